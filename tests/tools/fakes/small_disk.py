"""A small disk that a test can fill: a tmpfs, which only root can mount."""

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: int, mode: int) -> Iterator[Path]:
    """Mount a disk of size bytes at folder, as root (`needs_root`). Skip the test if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode={mode:04o}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int) -> Path:
    """Return a new file that takes all but `leave` bytes of the disk.

    Other processes may write to the disk meanwhile.
    """
    filler = folder / ".filler"
    with filler.open("wb") as file:
        for _ in range(100):
            disk = os.statvfs(folder)
            try:
                os.posix_fallocate(file.fileno(), 0, max(disk.f_bavail * disk.f_frsize - leave, 1))
                return filler
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    raise AssertionError(f"{folder} is written to all the time")
