"""Goes through a folder that is open already, whoever else has it open."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def scanned(folder_fd: int) -> Iterator[Iterator["os.DirEntry[str]"]]:
    """A folder's entries. os.scandir and os.listdir of a descriptor go on where the last one that
    read from it stands: while another thread reads, entries would be missing. So it is opened once
    more. Raises OSError."""
    fd = os.open(".", _FLAGS, dir_fd=folder_fd)
    try:
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)
