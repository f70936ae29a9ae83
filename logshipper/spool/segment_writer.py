"""Appends frames to the segments of one capture (docs/segment-format.md), with group commit.

Strategy: it writes frames at once (page cache), and a thread syncs them, because a sync can stall
for seconds. The next sync begins at most SYNC_SECS after the last, the first one SYNC_SECS after
the begin; a shorter capture has one sync. It removes incomplete writes, so that a full disk never
leaves a torn frame inside a segment. A small reserve file makes room for the records about a full
disk.
"""

import errno
import os
import threading
import time

from logshipper.errors import SpoolError, SpoolFull, os_words
from logshipper.fault_points import fault_point
from logshipper.spool import segment

SYNC_SECS = 0.05
MAX_SEGMENT_BYTES = 32 << 20
RESERVE_BYTES = 64 << 10


class SegmentWriter:
    """Writes into folder (the capture's `segments/`), which belongs to the user. Raises SpoolError."""

    def __init__(self, folder: str, now_ns: int) -> None:
        self._folder = folder
        self._number = 1
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._lock = threading.Lock()  # held while the fd is exchanged
        self._sync_error: OSError | None = None
        self._sizes: dict[str, int] = {}  # of the segments before the last one
        self._reserve = os.path.join(folder, "reserve")
        try:
            self._fd, self._size = self._create(1, now_ns)
        except OSError as error:
            raise _spool_error(folder, error) from None
        self._is_named = False  # the first segment's name is on the disk
        self._make_reserve()
        self._syncer = threading.Thread(target=self._sync_on, name="sync", daemon=True)
        self._syncer.start()

    def write(self, frames: bytes, now_ns: int, *, syncs: bool = True) -> None:
        """Append whole frames. syncs: they reach the disk soon (SYNC_SECS), not just with later
        ones. Raises SpoolError: then none of it is written."""
        try:
            if self._sync_error is not None:
                error, self._sync_error = self._sync_error, None
                raise error
            is_full = self._size + len(frames) > MAX_SEGMENT_BYTES
            if is_full and self._size > segment.FILE_HEADER_BYTES:
                self._rotate(now_ns)
            self._append(frames)
        except OSError as error:
            raise _spool_error(self._folder, error) from None
        fault_point("frames_written")
        if syncs:
            self._dirty.set()

    def present_bytes(self) -> int:
        """Bytes of the segments that still exist."""
        try:
            present = set(os.listdir(self._folder))
        except OSError:
            return self._size
        self._sizes = {name: size for name, size in self._sizes.items() if name in present}
        return sum(self._sizes.values()) + self._size

    def give_up_reserve(self) -> None:
        """Frees the room kept for the records that say that there is no room."""
        _unlink(self._reserve)

    def close(self, now_ns: int) -> None:
        """The capture is over: writes the END frame, syncs, ends the thread."""
        self.give_up_reserve()
        try:
            self._append(segment.encode_end(now_ns, closed=True))
            fault_point("capture_closed")
        except OSError as error:
            raise _spool_error(self._folder, error) from None
        finally:
            self._closing.set()
            self._dirty.set()
            self._syncer.join()
            try:
                self.sync()
            finally:
                os.close(self._fd)

    def sync(self) -> None:
        """Returns when all that was written is on the disk. Raises SpoolError."""
        try:
            self._sync()
        except OSError as error:
            raise _spool_error(self._folder, error) from None

    def _sync(self) -> None:
        os.fdatasync(self._fd)
        if not self._is_named:
            self._sync_names()
            self._is_named = True

    def _append(self, data: bytes) -> None:
        self._size += _write_whole(self._fd, data, self._size)

    def _rotate(self, now_ns: int) -> None:
        """Start the next segment before the last one names its successor: either may fail without
        room.

        After that, the last one must not grow, whatever its sync brings: nobody would read it.
        """
        number = self._number + 1
        fd, size = self._create(number, now_ns)
        try:
            os.fdatasync(fd)
            self._sync_names()
            fault_point("next_segment_made")
            self._append(segment.encode_end(now_ns, closed=False))
            fault_point("segment_sealed")
        except OSError:
            os.close(fd)
            _unlink(self._path(number))
            raise
        with self._lock:
            self._sizes[os.path.basename(self._path(self._number))] = self._size
            last, self._fd, self._size, self._number = self._fd, fd, size, number
        try:
            os.fdatasync(last)
        finally:
            os.close(last)

    def _create(self, number: int, now_ns: int) -> tuple[int, int]:
        """Returns the new segment's fd and size; its file header is written."""
        path = self._path(number)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fault_point("segment_created")
            size = _write_whole(fd, segment.encode_file_header(number, now_ns), 0)
            fault_point("segment_begun")
        except OSError:
            os.close(fd)
            _unlink(path)
            raise
        return fd, size

    def _sync_names(self) -> None:
        """A segment's name, too, must survive a crash."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:010d}.seg")

    def _make_reserve(self) -> None:
        try:
            fd = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)
        except OSError:
            self.give_up_reserve()  # there is hardly room now: the log itself needs it more

    def _sync_on(self) -> None:
        due = time.monotonic() + SYNC_SECS
        while True:
            self._dirty.wait()  # first: a pause that nothing came in needn't wake us
            self._closing.wait(max(0.0, due - time.monotonic()))
            self._dirty.clear()
            if self._closing.is_set():  # checked here: an end's event must not be cleared
                return
            with self._lock:
                try:
                    self._sync()
                except OSError as error:
                    self._sync_error = error
                else:
                    fault_point("frames_synced")
            due = time.monotonic() + SYNC_SECS


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # the folder was removed, or is the agent's now


def _write_whole(fd: int, data: bytes, offset: int) -> int:
    """Write all of data at offset, or nothing and raise OSError. Returns its length."""
    view = memoryview(data)
    written_bytes = 0
    try:
        while written_bytes < len(view):
            written_bytes += os.pwrite(fd, view[written_bytes:], offset + written_bytes)
    except OSError:
        try:
            os.ftruncate(fd, offset)
        except OSError:
            pass  # the next write replaces it
        raise
    return written_bytes


def _spool_error(folder: str, error: OSError) -> SpoolError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpoolFull(folder, "no room left there")
    return SpoolError(folder, os_words(error))
