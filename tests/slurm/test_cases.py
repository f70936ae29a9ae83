"""Each case of the table, under each proctrack: the captured run equals the uncaptured run, and the
log equals both."""

import pytest

from tests.slurm.tools import cases
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.table import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_captured_is_as_uncaptured(
    cluster: CapturingCluster, case_runs: dict[str, tuple[cases.Run, cases.Run]], case: cases.Case
) -> None:
    cases.compare(cluster, case, *case_runs[case.name])
