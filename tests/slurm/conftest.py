"""Clusters for the tests here. Where there can be none, tests are skipped and say why; see
gate.py."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.servers.running import LokiServer
from tests.slurm.tools import cases, gate, machine
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cluster import SlurmCluster
from tests.slurm.tools.machine import SlurmMissing
from tests.slurm.tools.users import JobUser

T = TypeVar("T")
INTERACTIVE = "LaunchParameters=use_interactive_step"


@pytest.fixture(scope="session", autouse=True)
def slurm_wanted() -> None:
    gate.skip_if_off()


@pytest.fixture(scope="session")
def slurm_machine(slurm_wanted: None) -> None:
    """For tests that start clusters of their own: skips them where there can be none."""
    unless_missing(machine.check)


@pytest.fixture(scope="session", params=["linuxproc", "cgroup"])
def slurm(request: pytest.FixtureRequest, slurm_machine: None) -> Iterator[SlurmCluster]:
    """A running cluster under each proctrack, which tests share: a test adds users of its own
    (`add_user`)."""
    with unless_missing(lambda: SlurmCluster(proctrack=request.param)) as cluster:
        yield cluster


@pytest.fixture(scope="session", params=["linuxproc", "cgroup"])
def cluster(
    request: pytest.FixtureRequest, slurm_machine: None, loki: LokiServer
) -> Iterator[CapturingCluster]:
    """A running cluster with the plugin, under each proctrack, which tests share: a test adds users
    of its own. The one under proctrack/cgroup has the plugin for identities, too."""
    proctrack, identity = request.param, request.param == "cgroup"
    with unless_missing(
        lambda: CapturingCluster(loki, proctrack=proctrack, identity=identity, more=INTERACTIVE)
    ) as running:
        yield running


@pytest.fixture
def user(cluster: CapturingCluster) -> Iterator[JobUser]:
    """One who opted in. The plugin's arguments that a test changed are again what they were."""
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    yield user
    cluster.set_plugstack(cluster.line)


@pytest.fixture(scope="session")
def case_runs(
    request: pytest.FixtureRequest, cluster: CapturingCluster
) -> dict[str, tuple[cases.Run, cases.Run]]:
    """Of each case of the table, the plain and the captured run: all that are to be tested run next
    to each other."""
    params = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and "case_runs" in item.fixturenames
    ]
    case_of = {
        case.name: case for param in params if isinstance(case := param.get("case"), cases.Case)
    }
    return {case.name: cases.run_pair(cluster, case) for case in case_of.values()}


def unless_missing(get: Callable[[], T]) -> T:
    """Skips a test where the machine lacks what is needed, or fails it where all must run."""
    try:
        return get()
    except SlurmMissing as error:
        gate.lacking(str(error))
