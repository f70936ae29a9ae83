"""Slurm tasks whose two streams switch modes against each other leak nothing (R11, R16, R17). These
are the classifier's two-stream tests, run by the C relay."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.tools.captures.other_users import public_folder
from tests.tools.stress import secret_stress
from tests.tools.stress.order_stress import ByPlugin, captured, telling_runs

RUNS = 24


@pytest.mark.parametrize("number", range(RUNS))
def test_nothing_that_was_kept_out_is_stored_by_the_plugin(binaries: Path, number: int) -> None:
    with ExitStack() as stack:
        assert captured(ByPlugin(stack, binaries), telling_runs(RUNS)[number])[0] == []


@pytest.mark.parametrize("one_file", [False, True])
@pytest.mark.parametrize("tty", [False, True])
def test_secret_right_after_the_other_streams_command(
    binaries: Path, tty: bool, one_file: bool
) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(public_folder("logshipper-secrets-"))
        by, name = ByPlugin(stack, binaries), f"t{tty:d}{one_file:d}"
        stored = secret_stress.stored_of(by, name, folder, tty=tty, one_file=one_file)
    assert secret_stress.leaks_in(stored, name) == []
    assert secret_stress.open_in(stored)
