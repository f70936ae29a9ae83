"""The disk usage of a capture's directory, even if its user has put other files there.

Blocks count, not lengths: holes are free, and file systems may allocate beyond a file's end. A file
with several names counts once. Entries count, since each may be an inode: a normal capture has some
ten, and one for each 32 MiB of segments. The walk calls stat(2) relative to a directory's descriptor
without following links, and opens only directories. It ends when it finds more or deeper entries
than any sidecar writes.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from logshipper_ingest.spool.segment_reader import segment_number

FEW_ENTRIES = 1000
# of segments for each further entry: compressed ones may be as small
BYTES_PER_ENTRY = 64 << 10
MAX_DEPTH = 4  # `segments/` is the only directory, and has none
_BLOCK = 512  # of st_blocks: stat(2)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderSize(NamedTuple):
    """The size of a capture's directory."""

    blocks: int = 0  # bytes on the disk
    segments: int = 0  # bytes of these in segments
    entries: int = 0  # counted ones
    is_flood: bool = False  # the walk ended early: more or deeper entries than any sidecar writes

    @property
    def foreign(self) -> int:
        """Bytes outside of segments."""
        return self.blocks - self.segments


def folder_size(folder_fd: int) -> FolderSize:
    """Measure a capture's open directory. Raises OSError if the system lacks resources."""
    walk = _Walk()
    try:
        walk.enter(".", folder_fd)
        return walk.run()
    finally:
        walk.close()


class _Walk:
    """A walk through nested directories, all of them open."""

    def __init__(self) -> None:
        self._open: list[tuple[int, Iterator[os.DirEntry[str]]]] = []
        self._hard_links: set[tuple[int, int]] = set()  # files with several names
        self._blocks = self._segments = self._entries = 0

    def enter(self, name: str, above: int) -> None:
        fd = os.open(name, _FLAGS, dir_fd=above)
        try:
            self._open.append((fd, os.scandir(fd)))
        except BaseException:
            os.close(fd)
            raise

    def run(self) -> FolderSize:
        while self._open:
            fd, entries = self._open[-1]
            entry = next(entries, None)
            if entry is None:
                self._leave()
                continue
            self._entries += 1
            self._count(entry)
            if self._entries > FEW_ENTRIES + self._segments // BYTES_PER_ENTRY:
                return self._size(is_flood=True)
            if _is_folder(entry):
                if len(self._open) > MAX_DEPTH:
                    return self._size(is_flood=True)
                try:
                    self.enter(entry.name, fd)
                except OSError as error:
                    _pass_over(error)
        return self._size(is_flood=False)

    def _count(self, entry: "os.DirEntry[str]") -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            _pass_over(error)
            return
        if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
            file = status.st_dev, status.st_ino
            if file in self._hard_links:
                return
            self._hard_links.add(file)
        blocks = status.st_blocks * _BLOCK
        self._blocks += blocks
        if stat.S_ISREG(status.st_mode) and segment_number(entry.name):
            self._segments += min(blocks, status.st_size)

    def _size(self, *, is_flood: bool) -> FolderSize:
        return FolderSize(self._blocks, self._segments, self._entries, is_flood)

    def _leave(self) -> None:
        fd, entries = self._open.pop()
        entries.close()  # type: ignore[attr-defined]  # os.scandir's has it
        os.close(fd)

    def close(self) -> None:
        while self._open:
            self._leave()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError as error:
        _pass_over(error)
        return False


def _pass_over(error: OSError) -> None:
    """Ignore an entry that has vanished or changed, that is closed to us, or that its user mounted
    there (FUSE): the others still count. Raises the error if the system lacks resources."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error
