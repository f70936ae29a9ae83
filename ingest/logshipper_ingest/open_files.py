"""Files and folders as descriptors, for paths relative to a folder that is open."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def opened(path: str, flags: int, mode: int = 0o600, *, dir_fd: int | None = None) -> Iterator[int]:
    """Open a file or folder for the time of the block. Raises OSError."""
    fd = os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)
