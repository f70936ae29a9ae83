"""Slurm tasks whose two streams switch modes against each other leak nothing (R11, R16, R17): the
two-stream tests of the classifier, by the C relay."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tools.order_stress import ByPlugin, captured, telling_runs

RUNS = 24


@pytest.mark.parametrize("number", range(RUNS))
def test_nothing_that_was_kept_out_is_stored_by_the_plugin(binaries: Path, number: int) -> None:
    with ExitStack() as stack:
        assert captured(ByPlugin(stack, binaries), telling_runs(RUNS)[number])[0] == []
