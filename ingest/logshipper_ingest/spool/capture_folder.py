"""A capture's directory in the spool, for its readers: identity, counters, life, removal.

All files are opened relative to a directory's descriptor, without following links. Files of other
users are ignored. File contents are hostile input.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import orjson

from logshipper.errors import SpoolError, StoreError, os_words
from logshipper.masks.shape_mask import masked_text
from logshipper.safe_text import without_controls
from logshipper.spool.captures import COUNTERS_BYTES, PORT_FILE, Counters, read_counters
from logshipper.spool.live_status import LIVE_FILE, MAX_LIVE_BYTES, decode_live
from logshipper.spool.segment import Stream
from logshipper.spool.spool_room import LIMITS_FILE
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.job import NAME, limit_secs_of
from logshipper_ingest.spool.folder_entries import scanned
from logshipper_ingest.spool.folder_removal import TAKEN, FolderRemoval, close_to_others
from logshipper_ingest.spool.folder_size import FolderSize, folder_size
from logshipper_ingest.spool.relay_process import SHORTAGES, relay_runs
from logshipper_ingest.spool.segment_reader import SpoolPosition, list_segments, segment_name

GRACE_SECS = 60.0  # from a capture's directory to its first frame
IDENTITY = "identity.json"
MAX_IDENTITY_BYTES = 64 << 10
_MAX_FOLDERS = 100_000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_NAME = re.compile(rf"({NAME.pattern})@([0-9]{{1,9}})\..*")


class Identity(NamedTuple):
    """The job, task and user of a capture (`identity.json`)."""

    job_id: str
    attempt: int
    step: str
    task: int
    name: str
    user: str
    host: str
    cluster: str
    uid: int = -1  # of the job's processes, -1 if the file has none
    account: str = ""  # the scheduler's
    partition: str = ""  # likewise
    nodes: int = 0  # of the job, 0 if the file has none
    limit_secs: int = 0  # the job's time limit, likewise

    @property
    def source(self) -> Source:
        return Source(self.attempt, self.step, self.task)

    def about(self, capture: str) -> dict[str, str]:
        """Return the fields for lines of the agent's log. capture: the folder's name."""
        return {"job": self.job_id, "user": self.user, "capture": capture}


class Life(Enum):
    """The life of a capture's processes."""

    STARTING = "starting"  # nothing is written yet
    LIVE = "live"  # the sidecar writes
    ORPHANED = "orphaned"  # the sidecar is gone; the relay runs on and counts the lost output
    DEAD = "dead"  # sidecar and relay are gone


class FolderSignature(NamedTuple):
    """State of a capture's directory: it changes with everything new."""

    life: Life
    segments: int
    size_before: int  # of the last segment but one, which gets its last frame late
    end: SpoolPosition  # of the last segment


class CaptureFolder:
    """Open descriptors of one capture's directory; close it after use. Raises SpoolError if the
    directory belongs to another user, and OSError."""

    def __init__(
        self, spool_fd: int, spool: str, name: str, owner: int, *, node: bool = False
    ) -> None:
        self.name = name
        self.key = name.encode("utf-8", "backslashreplace").decode()  # valid text, for databases
        self.path = os.path.join(spool, name)
        self.owner = owner  # of the directory and identity.json
        self.writer = owner  # of `segments/`: in a node's spool, the user in identity.json
        self.segments_fd = -1
        self.is_taken = False  # the agent took `segments/` from its user
        self._has_begun = False
        self._spool_fd = spool_fd
        self._fd = self._open_folder(name, spool_fd, owner)
        try:
            if node:
                identity = self.identity()
                if identity is None or identity.uid < 0:
                    raise SpoolError(self.path, "its identity.json has no uid")
                self.writer = identity.uid
            self.segments_fd = self._open_segments(node)
        except BaseException:
            os.close(self._fd)
            raise

    def _open_segments(self, node: bool) -> int:
        """Return a descriptor, or -1 while the capture is being created or removed."""
        try:
            return self._open_folder("segments", self._fd, self.writer)
        except FileNotFoundError:
            pass
        try:
            fd = os.open(TAKEN, _FOLDER_FLAGS, dir_fd=self._fd) if node else -1
        except FileNotFoundError:
            return -1
        self.is_taken = fd >= 0
        return fd

    def _open_folder(self, name: str, above: int, owner: int) -> int:
        fd = os.open(name, _FOLDER_FLAGS, dir_fd=above)
        if os.fstat(fd).st_uid != owner:
            os.close(fd)
            raise SpoolError(self.path, "belongs to another user, so logshipper ignores it")
        return fd

    def close(self) -> None:
        os.close(self._fd)
        if self.segments_fd >= 0:
            os.close(self.segments_fd)

    def __enter__(self) -> "CaptureFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- contents of its files

    def identity(self, *, complete: bool = False) -> Identity | None:
        """Read identity.json; return None if it isn't written yet. complete: the capture died, so a
        missing file never comes and the directory's name must do. Raises SpoolError if neither
        names the job."""
        text = self._read(self._fd, IDENTITY, MAX_IDENTITY_BYTES)
        if text is None and not complete:
            return None
        name_match = _FOLDER_NAME.fullmatch(self.name)
        try:
            identity: Any = orjson.loads(text or b"{}")  # Any: JSON, each field of which is checked
        except orjson.JSONDecodeError:
            identity = None
        if not isinstance(identity, dict):
            raise SpoolError(self.path, "its identity.json isn't a JSON object")
        version = identity.get("version", 1)
        if type(version) is not int or version > 1:
            words = f"its identity.json has the newer version {version!r}: upgrade logshipper"
            raise SpoolError(self.path, words)
        job_id = identity.get("job_id", name_match[1] if name_match else None)
        if not isinstance(job_id, str) or not NAME.fullmatch(job_id):
            raise SpoolError(self.path, "its identity.json names no job")
        return Identity(
            job_id=job_id,
            attempt=_whole(identity.get("attempt"), int(name_match[2]) if name_match else 1) or 1,
            step=_words(identity.get("step")),
            task=_whole(identity.get("task"), 0),
            # mask here, too: a scheduler's plugin writes the job's name unmasked
            name=masked_text(_words(identity.get("name"))) or job_id,
            user=_words(identity.get("user")),
            host=_words(identity.get("host")),
            cluster=_words(identity.get("cluster")) or "local",
            uid=_whole(identity.get("uid"), -1, 1 << 32),
            account=_words(identity.get("account")),
            partition=_words(identity.get("partition")),
            nodes=_whole(identity.get("nodes"), 0),
            limit_secs=limit_secs_of(identity),
        )

    def counters(self) -> Counters | None:
        """Return the relay's counters, or None if they are missing or invalid. Raises OSError like
        `life`."""
        text = self._read_segments_file("counters", COUNTERS_BYTES)
        return None if text is None else read_counters(text)

    def telegraf_port(self) -> int:
        """Return the port on which its sidecar takes measurements, or 0."""
        try:
            text = self._read_segments_file(PORT_FILE, 16)
        except OSError:
            return 0
        digits = (text or b"").strip()
        return int(digits) if digits.isdigit() and 0 < int(digits) < 65536 else 0

    def live_status(self) -> dict[Stream, tuple[int, str]]:
        """Return the present lines of progress bars as (time in ns, lines) by stream; "" withdraws
        earlier lines."""
        try:
            data = self._read_segments_file(LIVE_FILE, MAX_LIVE_BYTES)
        except OSError:
            return {}
        statuses = {}
        for stream, (time_ns, text) in decode_live(data or b"").items():
            lines = text.decode(errors="replace").split("\n")
            statuses[stream] = time_ns, "\n".join(map(without_controls, lines))
        return statuses

    def _read_segments_file(self, name: str, max_bytes: int) -> bytes | None:
        return self._read(self.segments_fd, name, max_bytes) if self.segments_fd >= 0 else None

    def _read(self, folder: int, name: str, max_bytes: int) -> bytes | None:
        try:
            fd = os.open(name, _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return os.pread(fd, max_bytes, 0)
        finally:
            os.close(fd)

    def rewrite_identity(self, change: Callable[[bytes], bytes], *, dry_run: bool) -> int:
        """Replace identity.json's bytes by the result of change, which has the same length. Return 1
        if they differ, else 0. Raises OSError."""
        text = self._read(self._fd, IDENTITY, MAX_IDENTITY_BYTES) or b""
        changed = change(text)
        if changed == text or dry_run:
            return int(changed != text)
        fd = os.open(IDENTITY, _FILE_FLAGS | os.O_WRONLY, dir_fd=self._fd)
        try:
            status = os.fstat(fd)
            if os.pwrite(fd, changed, 0) != len(text):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))  # see `begun_ns`
            os.fsync(fd)
        finally:
            os.close(fd)
        return 1

    def begun_ns(self) -> int:
        """Return about when it began. The fallback, the directory's time, may be later."""
        try:
            return os.stat(IDENTITY, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return os.fstat(self._fd).st_mtime_ns

    # ---- life

    def life(self) -> Life:
        """Return its life. Call it before reading segments, which don't grow once it is DEAD or
        ORPHANED. Raises OSError if the system lacks resources to find out, since that makes nobody
        dead. A taken capture is DEAD: later writes there are ignored."""
        if self.is_taken:
            return Life.DEAD
        # Check this first, as it may begin right now, and only once: there may be very many names.
        if not self._has_begun:
            self._has_begun = bool(self.segment_numbers())
        if self._is_locked():
            return Life.LIVE
        counters = self.counters()
        runs = counters is not None and relay_runs(counters.pid, counters.started, self.writer)
        if not self._has_begun:
            ended = counters is not None and counters.end is not None
            young = not ended and time.time_ns() - self.begun_ns() < GRACE_SECS * 1e9
            return Life.STARTING if young or runs else Life.DEAD
        return Life.ORPHANED if runs else Life.DEAD

    def is_unused(self) -> bool:
        """Whether nobody has begun to write into it."""
        if self.is_taken:
            return False
        return self.counters() is None and not self.segment_numbers()

    def _is_locked(self) -> bool:
        """Whether the sidecar holds its lock. This takes a shared lock for a moment, so a sidecar
        that begins just now waits."""
        if self.segments_fd < 0:
            return False
        try:
            fd = os.open("lock", _FILE_FLAGS, dir_fd=self.segments_fd)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # it can't be locked, so it isn't a sidecar's
        finally:
            os.close(fd)
        return False

    def write_limits(self, marks: bytes) -> None:
        """Write the limits of its segments' size (logshipper/spool/spool_room.py), which its user
        may read. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(LIMITS_FILE, flags, 0o600, dir_fd=self._fd)
        try:
            # Overwriting the last limits needs no room on a full disk.
            if os.pwrite(fd, marks, 0) != len(marks):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fchmod(fd, 0o644)
        finally:
            os.close(fd)

    # ---- sizes and removal

    def segment_numbers(self) -> list[int]:
        return list_segments(self.segments_fd) if self.segments_fd >= 0 else []

    def bytes_from(self, position: SpoolPosition) -> int:
        """Return the bytes of segments from a position on."""
        numbers = [number for number in self.segment_numbers() if number >= position.segment]
        total = sum(map(self._size, numbers))
        return max(0, total - position.offset) if position.segment else total

    def signature(self) -> FolderSignature:
        numbers = self.segment_numbers()
        last = numbers[-1] if numbers else 0
        before = self._size(numbers[-2]) if numbers[1:] else 0
        end = SpoolPosition(last, self._size(last) if last else 0)
        return FolderSignature(self.life(), len(numbers), before, end)

    def _size(self, number: int) -> int:
        try:
            status = os.stat(segment_name(number), dir_fd=self.segments_fd, follow_symlinks=False)
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def size(self) -> FolderSize:
        """Return the size of the whole directory. Raises OSError."""
        return folder_size(self._fd)

    def take_away(self) -> None:
        """Take `segments/` from its user, who then can't make, rename or remove files there, but can
        still write to open ones. This works in a node's spool, where the agent owns the directory
        above. Raises OSError."""
        os.rename("segments", TAKEN, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self.is_taken = True
        close_to_others(self.segments_fd)

    def empty_taken(self, keep_bytes: int) -> bool:
        """Remove segments beyond keep_bytes and all foreign files. Return False if more remains than
        one call removes. Raises OSError."""
        return FolderRemoval(self._spool_fd, self.name, self._fd).empty_taken(keep_bytes)

    def remove_segments_before(self, number: int) -> None:
        """Remove fully ingested segments."""
        for earlier in self.segment_numbers():
            if earlier < number:
                # a directory goes with the whole capture
                with suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(segment_name(earlier), dir_fd=self.segments_fd)

    def remove(self) -> bool:
        """Remove the capture's directory without following links. Return False if more remains than
        one call removes. Raises OSError."""
        return FolderRemoval(self._spool_fd, self.name, self._fd).go_on()


def open_spool(path: str) -> int | None:
    """Open a spool's folder for reading; return None if it is missing. Raises StoreError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(path, f"can't be opened: {os_words(error)}") from None


def list_folders(spool_fd: int) -> list[str]:
    """Return the names of the captures' directories in a spool; the spool's own begin with a dot."""
    with scanned(spool_fd) as entries:
        names = (
            entry.name
            for entry in entries
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        )
        return sorted(islice(names, _MAX_FOLDERS))


def _words(value: object) -> str:
    return without_controls(value[:256]) if isinstance(value, str) else ""


def _whole(value: object, otherwise: int, below: int = 1 << 31) -> int:
    return value if type(value) is int and 0 <= value < below else otherwise
