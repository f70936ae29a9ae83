"""Removal of a capture's directory, whose content hostile users may be changing right now.

It empties one directory at a time, never one within another. Each lies directly in the capture's,
where only the owner can rename it. It is opened without following links and, as root, made root's
with mode 0700, so that its content can't change any more. Its files are unlinked; directories in it
are moved up next to it and emptied in turn. So depth costs neither recursion nor descriptors, and no
listing is ever complete in memory. `identity.json` goes last, so that the owner stays known.

If a user fills `segments/` with files that no sidecar writes, the agent first takes it: it becomes
TAKEN, root's with mode 0700. Segments within the limits stay there until they are shipped.
"""

import errno
import os
import stat
from contextlib import suppress

from logshipper.fault_points import fault_point
from logshipper.spool.spool_room import LIMITS_FILE
from logshipper_ingest.spool.folder_size import BYTES_PER_ENTRY, FEW_ENTRIES
from logshipper_ingest.spool.segment_reader import list_segments, segment_name

REMOVED_AT_ONCE = 10_000  # entries by one call: about a second
TAKEN = "taken"  # the name of `segments/` after the agent took it from its user
# on the disk: a sidecar writes 32 MiB, and a file system may allocate as much ahead
_LARGEST_SEGMENT_BYTES = 64 << 20
_KEPT = "identity.json"
_COUNTERS = "counters"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def remove_remains(spool_fd: int, name: str) -> bool:
    """Remove a folder of the spool that is empty or only holds limits; return False for any other.
    An agent that died at the end of a removal leaves an empty one. Limits remain if the agent wrote
    them after the capture's keeper had withdrawn it."""
    try:
        fd = os.open(name, _FLAGS, dir_fd=spool_fd)
        try:
            if os.fstat(fd).st_uid == os.geteuid() and os.listdir(fd) == [LIMITS_FILE]:
                os.unlink(LIMITS_FILE, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=spool_fd)
    except OSError:
        return False
    return True


class FolderRemoval:
    """The removal of one folder of the spool. The caller keeps both descriptors."""

    def __init__(self, spool_fd: int, name: str, fd: int) -> None:
        self._spool_fd = spool_fd
        self._name = name
        self._fd = fd
        self._budget = 0  # entries that this call may still remove

    def go_on(self) -> bool:
        """Remove at most REMOVED_AT_ONCE entries; return whether that were all. Raises OSError."""
        self._budget = REMOVED_AT_ONCE
        with suppress(FileNotFoundError):
            # so that readers find no segments, as in a capture that is being created
            self._move_up("segments", self._fd)
            fault_point("segments_moved")
        while self._budget > 0:
            if not self._remove_entries():
                self._remove_last()
                return True
        return False

    def _remove_entries(self) -> bool:
        """Go once through the capture's directory; return False if only _KEPT remains."""
        has_entries = False
        with os.scandir(self._fd) as entries:
            for entry in entries:
                if entry.name == _KEPT and not entry.is_dir(follow_symlinks=False):
                    continue
                has_entries = True
                if self._budget <= 0:
                    break
                if not self._unlinked(entry.name, self._fd):
                    self._empty(entry.name)
        return has_entries

    def _empty(self, name: str) -> None:
        """Empty and remove a directory in the capture's, within the budget."""
        fd = os.open(name, _FLAGS, dir_fd=self._fd)
        try:
            close_to_others(fd)
            has_entries = True
            while has_entries and self._budget > 0:
                has_entries = self._empty_once(fd)
        finally:
            os.close(fd)
        if not has_entries:
            os.rmdir(name, dir_fd=self._fd)

    def _empty_once(self, fd: int) -> bool:
        """Go once through a directory; return False if it is empty. File systems may skip entries
        while others are removed, so one pass may not suffice."""
        has_entries = False
        with os.scandir(fd) as entries:
            for entry in entries:
                has_entries = True
                if self._budget <= 0:
                    break
                if not self._unlinked(entry.name, fd):
                    self._move_up(entry.name, fd)
        return has_entries

    def empty_taken(self, keep_bytes: int) -> bool:
        """Remove at most REMOVED_AT_ONCE entries from TAKEN: foreign files, and segments after the
        first keep_bytes of them. Return whether that were all. Raises OSError."""
        self._budget = REMOVED_AT_ONCE
        fd = os.open(TAKEN, _FLAGS, dir_fd=self._fd)
        try:
            close_to_others(fd)
            keep_names = _first_segments(fd, keep_bytes) | {_COUNTERS}
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name in keep_names and _is_plain(fd, entry.name):
                        continue
                    if self._budget <= 0:
                        return False
                    if not self._unlinked(entry.name, fd):
                        self._move_up(entry.name, fd)
        finally:
            os.close(fd)
        return self._removed_folders()

    def _removed_folders(self) -> bool:
        """Remove directories that were moved up; return False if the budget ends before."""
        while True:
            with os.scandir(self._fd) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and entry.name != TAKEN
                ]
            if not names:
                return True
            for name in names:
                if self._budget <= 0:
                    return False
                self._empty(name)

    def _unlinked(self, name: str, fd: int) -> bool:
        """Unlink an entry; return False for a directory with content."""
        self._budget -= 1
        try:
            os.unlink(name, dir_fd=fd)
        except (IsADirectoryError, PermissionError):  # POSIX has EPERM for a directory
            try:
                os.rmdir(name, dir_fd=fd)
            except NotADirectoryError:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name) from None
            except OSError:
                return False
        fault_point("entry_removed")
        return True

    def _move_up(self, name: str, fd: int) -> None:
        os.rename(name, os.urandom(16).hex(), src_dir_fd=fd, dst_dir_fd=self._fd)

    def _remove_last(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(_KEPT, dir_fd=self._fd)
        fault_point("identity_removed")
        os.rmdir(self._name, dir_fd=self._spool_fd)


def close_to_others(folder_fd: int) -> None:
    """Keep all others from making, renaming or removing its entries, even through open descriptors."""
    if os.geteuid() == 0:
        os.fchown(folder_fd, 0, 0)  # before the mode, which its owner could change back
    os.fchmod(folder_fd, 0o700)


def _is_plain(fd: int, name: str) -> bool:
    """Whether it is a file with one name and a size that a sidecar may write."""
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return True  # a shipper removed it meanwhile
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and status.st_blocks * 512 <= _LARGEST_SEGMENT_BYTES
    )


def _first_segments(fd: int, most_bytes: int) -> set[str]:
    """Return the names of the oldest segments that fit into most_bytes; hardly any of very many
    empty ones."""
    names: set[str] = set()
    size = 0
    for number in list_segments(fd) if most_bytes else []:
        name = segment_name(number)
        try:
            size += os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue
        if size > most_bytes or len(names) >= FEW_ENTRIES // 2 + size // BYTES_PER_ENTRY:
            break
        names.add(name)
    return names
