"""Cases of the table that end by their time limit, a minute at least: their jobs begin with all
others of the table, and are looked at here, when other tests have run meanwhile."""

import pytest

from tests.slurm.tools import cases
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.table import TIMED


@pytest.mark.timeout(240)  # Slurm looks at limits twice a minute
@pytest.mark.parametrize("case", TIMED, ids=lambda case: case.name)
def test_captured_is_as_uncaptured(
    cluster: CapturingCluster, case_runs: dict[str, tuple[cases.Run, cases.Run]], case: cases.Case
) -> None:
    cases.compare(cluster, case, *case_runs[case.name])
