"""Each reading command fails with exit code 1 for an inaccessible store; it does not call the store
empty."""

import os
from pathlib import Path

import pytest

from logshipper.start.cli import main
from tests.tools.stores.reading_store import training

COMMANDS = (
    ["ls"], ["ls", "--json"], ["show", "last"], ["info", "last"], ["status", "last"], ["logs", "last"],
    ["monitor", "last"], ["metadata", "last"], ["export", "last"], ["plot", "last"], ["events"],
    ["events", "last"], ["allocations"], ["analyze", "throughput"], ["wait", "last"], ["diff", "a", "b"],
    ["tag", "last"], ["annotate", "last"], ["rm", "last", "--yes"],
)  # fmt: skip
ordinary_user_only = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everywhere")


def refused(command: list[str], store: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Return the command's stderr."""
    assert main([*command, "--store", str(store)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_below_a_file(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    store = tmp_path / "file" / "store"
    assert (
        refused(command, store, capfd) == f"logshipper: {store}: can't be read: not a directory\n"
    )


@ordinary_user_only
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_in_a_folder_that_may_not_be_searched(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "private" / "store"
    store.parent.mkdir()
    training(store, job_id="aaaaaa")
    store.parent.chmod(0)
    try:
        err = refused(command, store, capfd)
    finally:
        store.parent.chmod(0o700)
    assert err == f"logshipper: {store}: can't be read: permission denied\n"
