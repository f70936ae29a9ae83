"""One cell for all tests here. Without a cell, tests are skipped with a reason; see
tests/slurm/tools/gate.py."""

from collections.abc import Iterator

import pytest

from tests.sge.cell import SgeCell
from tests.slurm.tools import gate, machine


@pytest.fixture(scope="package")
def cell() -> Iterator[SgeCell]:
    """Yield a running cell; a test adds users of its own."""
    gate.skip_if_off()
    try:
        sge_cell = SgeCell()
    except machine.SlurmMissing as error:
        gate.lacking(str(error), "Grid Engine")
    with sge_cell:
        yield sge_cell
