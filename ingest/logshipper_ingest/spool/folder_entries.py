"""Scanning of a folder through a shared descriptor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def scanned(folder_fd: int) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """Yield a folder's entries from a new descriptor. os.scandir and os.listdir continue at a
    descriptor's position, so two threads that read from one would miss entries. Raises OSError."""
    fd = os.open(".", _FLAGS, dir_fd=folder_fd)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)
