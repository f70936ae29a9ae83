"""How much of the disk a capture's directory takes, whatever its user has put there.

Blocks count, not lengths: holes are free, and room may be allocated beyond a file's end; a file
that has several names counts once. Entries count, as each may be an inode: a normal capture has
some ten, and one for each 32 MiB of segments. Everything is looked at by stat(2) relative to a
directory's descriptor, links unfollowed; only directories are opened. The walk ends where there are
more entries, or they lie deeper, than in any capture that a sidecar writes.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from logshipper_ingest.spool.segment_reader import segment_number

FEW_ENTRIES = 1000
# further entries are allowed for so many bytes of segments; compressed, they may be as small
BYTES_PER_ENTRY = 64 << 10
MAX_DEPTH = 4  # `segments/` is the only directory, and has none
_BLOCK = 512  # of st_blocks: stat(2)
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FolderSize(NamedTuple):
    """The size of a capture's directory."""

    blocks: int = 0  # bytes on the disk
    segments: int = 0  # of these, what segments hold
    entries: int = 0  # how many were counted
    # there are more entries, or deeper ones, than in any normal capture, and not all were looked at
    is_flood: bool = False

    @property
    def foreign(self) -> int:
        """Bytes that no segment holds."""
        return self.blocks - self.segments


def folder_size(folder_fd: int) -> FolderSize:
    """Of a capture's directory, which is open. Raises OSError where the system refuses to look."""
    walk = _Walk()
    try:
        walk.enter(".", folder_fd)
        return walk.run()
    finally:
        walk.close()


class _Walk:
    """Directories that are open: each one within the one before."""

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
    """What is gone or another file by now, closed to us, or mounted there by its user (FUSE) keeps
    nothing else from being counted. Raises the error where the system is short of what it takes to
    look."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise error
