"""Each case of the table, under each proctrack: captured against uncaptured run, and the log against both."""

from collections.abc import Iterator

import pytest

from tests.servers.running import LokiServer
from tests.slurm import cases
from tests.slurm.capturing import CapturingCluster
from tests.slurm.conftest import unless_missing
from tests.slurm.table import CASES


@pytest.fixture(scope="module", params=["linuxproc", "cgroup"])
def cluster(request: pytest.FixtureRequest, slurm_machine: None, loki: LokiServer) -> Iterator[CapturingCluster]:
    with unless_missing(lambda: CapturingCluster(loki, proctrack=request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def begun(request: pytest.FixtureRequest, cluster: CapturingCluster) -> dict[str, tuple[cases.Run, cases.Run]]:
    """Of each case, the plain and the captured run: all that are to be tested run beside each other."""
    names = [item.callspec.params.get("case") for item in request.session.items if hasattr(item, "callspec")]
    wanted = [case for case in CASES if case in names]
    return {
        case.name: (cases.start(cluster, case, opted_in=False), cases.start(cluster, case, opted_in=True))
        for case in wanted
    }


@pytest.mark.timeout(240)  # a time limit is a minute at least, and Slurm looks at it twice a minute
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_captured_is_as_uncaptured(
    cluster: CapturingCluster, begun: dict[str, tuple[cases.Run, cases.Run]], case: cases.Case
) -> None:
    plain, captured = (cases.finish(cluster, case, run) for run in begun[case.name])
    found = cases.difference(case, plain, captured)
    found += cases.log_difference(cluster, case, plain, captured)
    found += cases.nothing_logged(cluster, plain)
    assert not found, "\n".join(found)
