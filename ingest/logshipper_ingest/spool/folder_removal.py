"""Removes a capture's directory whose content somebody else may have made, and may be changing
right now.

Strategy: one directory at a time, never one within another. A directory to be emptied lies directly
in the capture's, where only its owner can rename; it is opened without following links and, where
we are root, made root's and 0700, so that nothing in it can be changed any more. What it holds is
unlinked; directories in it are moved up next to it, and emptied in turn. So depth costs neither
recursion nor descriptors, and entries are never listed as a whole. `identity.json` goes last: until
then everybody sees whose it is.

What a user has filled with what no sidecar writes is taken from that user first: `segments/`
becomes TAKEN, root's and 0700; segments in it stay until they are shipped, as far as they are
within the limits.
"""

import errno
import os
import stat

from logshipper.fault_points import fault_point
from logshipper.spool.spool_room import LIMITS_FILE
from logshipper_ingest.spool.folder_size import BYTES_PER_ENTRY, FEW_ENTRIES
from logshipper_ingest.spool.segment_reader import list_segments, segment_name

REMOVED_AT_ONCE = 10_000  # entries by one call: about a second
TAKEN = "taken"  # what `segments/` is called once it was taken from its user
# on the disk: a sidecar's have 32 MiB; a file system may allocate as much ahead
_LARGEST_SEGMENT_BYTES = 64 << 20
_KEPT = "identity.json"
_COUNTERS = "counters"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def remove_remains(spool_fd: int, name: str) -> bool:
    """Removes a folder of the spool that is empty, as where an agent died at the end of a removal,
    or holds the agent's limits only, which it wrote into a capture that its keeper took back. False
    where it holds anything else."""
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
    """name: in the spool, open as spool_fd, and itself open as fd: both stay the caller's."""

    def __init__(self, spool_fd: int, name: str, fd: int) -> None:
        self._spool_fd = spool_fd
        self._name = name
        self._fd = fd
        self._budget = 0  # entries that this call may still remove

    def go_on(self) -> bool:
        """Removes REMOVED_AT_ONCE entries at most; True when all is gone. Raises OSError."""
        self._budget = REMOVED_AT_ONCE
        try:
            # readers of a half-removed capture find none, as in one being created
            self._move_up("segments", self._fd)
            fault_point("segments_moved")
        except FileNotFoundError:
            pass
        while self._budget > 0:
            if not self._remove_entries():
                self._remove_last()
                return True
        return False

    def _remove_entries(self) -> bool:
        """Goes once through the capture's directory; False where nothing but _KEPT is left."""
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
        """Empties and removes a directory in the capture's, as far as there is work left."""
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
        """Goes once through a directory; False where it is empty: file systems may pass over some
        while others go."""
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
        """Removes from TAKEN, at most REMOVED_AT_ONCE entries, what no sidecar writes, and segments
        after the first keep_bytes of them; True when nothing else is left. Raises OSError."""
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
        """Those that were moved up, and what is moved up of them; False where there are more."""
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
        """False where it is a directory."""
        self._budget -= 1
        try:
            os.unlink(name, dir_fd=fd)
        except (IsADirectoryError, PermissionError):  # EPERM: POSIX's word for a directory
            try:
                os.rmdir(name, dir_fd=fd)
            except NotADirectoryError:
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), name) from None
            except OSError:
                return False  # it holds something
        fault_point("entry_removed")
        return True

    def _move_up(self, name: str, fd: int) -> None:
        os.rename(name, os.urandom(16).hex(), src_dir_fd=fd, dst_dir_fd=self._fd)

    def _remove_last(self) -> None:
        try:
            os.unlink(_KEPT, dir_fd=self._fd)
        except FileNotFoundError:
            pass
        fault_point("identity_removed")
        os.rmdir(self._name, dir_fd=self._spool_fd)


def close_to_others(folder_fd: int) -> None:
    """From here on nobody else makes, renames or removes what is in it, whatever they have open."""
    if os.geteuid() == 0:
        os.fchown(folder_fd, 0, 0)  # first: its owner could change the mode back
    os.fchmod(folder_fd, 0o700)


def _is_plain(fd: int, name: str) -> bool:
    """Whether it is a file of one name and of a size that a sidecar's files have."""
    try:
        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return True  # shipped, and removed meanwhile
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_nlink == 1
        and status.st_blocks * 512 <= _LARGEST_SEGMENT_BYTES
    )


def _first_segments(fd: int, most_bytes: int) -> set[str]:
    """Names of the oldest ones that have no more together; hardly any where they are very many and
    hold nothing."""
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
