"""Removal of remains of captures that were cancelled or half removed."""

import os
from pathlib import Path

import pytest

from logshipper.spool.spool_room import LIMITS_FILE
from logshipper_ingest.spool.folder_removal import remove_remains


@pytest.mark.parametrize(
    ("files", "goes"),
    [
        ([], True),
        ([LIMITS_FILE], True),  # the agent wrote it while the keeper removed the capture
        (["identity.json"], False),
        ([LIMITS_FILE, "identity.json"], False),
    ],
)
def test_remains(tmp_path: Path, files: list[str], goes: bool) -> None:
    folder = tmp_path / "7@1.abc"
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    spool_fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert remove_remains(spool_fd, folder.name) is goes
        assert not remove_remains(spool_fd, "nowhere")
    finally:
        os.close(spool_fd)
    assert folder.exists() is not goes
    assert goes or sorted(path.name for path in folder.iterdir()) == sorted(files)
