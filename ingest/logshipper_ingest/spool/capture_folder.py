"""One capture's directory in the spool, as whoever ingests it sees it: identity, counters, who
lives, removal.

Everything is opened relative to a directory's descriptor and without following links; what belongs
to somebody else is left alone. What stands in its files may be wrong in any way.
"""

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

import orjson

from logshipper.errors import SpoolError, StoreError, os_words
from logshipper.safe_text import without_controls
from logshipper.shape_mask import masked_text
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

GRACE_SECS = 60.0  # how long a capture may take from its directory to its first frame
IDENTITY = "identity.json"
MAX_IDENTITY_BYTES = 64 << 10
_MAX_FOLDERS = 100_000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER_NAME = re.compile(rf"({NAME.pattern})@([0-9]{{1,9}})\..*")


class Identity(NamedTuple):
    """Whose capture it is (`identity.json`)."""

    job_id: str
    attempt: int
    step: str
    task: int
    name: str
    user: str
    host: str
    cluster: str
    uid: int = -1  # of the job's processes, -1 where the file has none
    account: str = ""  # the scheduler's
    partition: str = ""  # likewise
    nodes: int = 0  # that the job has, 0 where the file has none
    limit_secs: int = 0  # the job's time limit, likewise

    @property
    def source(self) -> Source:
        return Source(self.attempt, self.step, self.task)

    def about(self, capture: str) -> dict[str, str]:
        """What a line of the agent's log is about; capture: its folder's name."""
        return {"job": self.job_id, "user": self.user, "capture": capture}


class Life(Enum):
    """STARTING: nothing is written yet; LIVE: its sidecar writes; ORPHANED: the sidecar is gone,
    the job's relay runs on, counting what isn't logged; DEAD: both are gone."""

    STARTING = "starting"
    LIVE = "live"
    ORPHANED = "orphaned"
    DEAD = "dead"


class CaptureFolder:
    """Open descriptors of one capture's directory: close it. Raises SpoolError where it isn't the
    owner's, OSError.

    owner: of the directory and what says whose it is. writer: of `segments/`: the owner in a user's
    own spool; in a node's, the job's user, as identity.json there says. is_taken: the agent has
    taken `segments/` from its user.
    """

    def __init__(
        self, spool_fd: int, spool: str, name: str, owner: int, *, node: bool = False
    ) -> None:
        self.name = name
        self.key = name.encode(
            "utf-8", "backslashreplace"
        ).decode()  # for databases; names are bytes, in truth
        self.path = os.path.join(spool, name)
        self.owner = self.writer = owner
        self.segments_fd = -1
        self.is_taken = False
        self._has_begun = False
        self._spool_fd = spool_fd
        self._fd = self._open_folder(name, spool_fd, owner)
        try:
            if node:
                self.writer = self._uid_of_job()
            self.segments_fd = self._open_segments(node)
        except BaseException:
            os.close(self._fd)
            raise

    def _open_segments(self, node: bool) -> int:
        """-1 where there are none: it is being created, or removed."""
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
            raise SpoolError(self.path, "belongs to another user, and is left alone")
        return fd

    def _uid_of_job(self) -> int:
        identity = self.identity()
        if identity is None or identity.uid < 0:
            raise SpoolError(self.path, "its identity.json doesn't say whose it is")
        return identity.uid

    def close(self) -> None:
        os.close(self._fd)
        if self.segments_fd >= 0:
            os.close(self.segments_fd)

    def __enter__(self) -> "CaptureFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what its files say

    def identity(self, *, complete: bool = False) -> Identity | None:
        """From identity.json; None where it isn't written yet. complete: it never will be (the
        capture died before): then the directory's name has to do. Raises SpoolError where neither
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
            raise SpoolError(
                self.path,
                f"its identity.json has the newer version {version!r}: upgrade logshipper",
            )
        job_id = identity.get("job_id", name_match[1] if name_match else None)
        if not isinstance(job_id, str) or not NAME.fullmatch(job_id):
            raise SpoolError(self.path, "its identity.json names no job")
        return Identity(
            job_id=job_id,
            attempt=_whole(identity.get("attempt"), int(name_match[2]) if name_match else 1) or 1,
            step=_words(identity.get("step")),
            task=_whole(identity.get("task"), 0),
            # masked here, too: a scheduler's plugin writes the job's name as it is
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
        """None where there are none, or none that can be understood. Raises OSError as `life`
        does."""
        text = (
            self._read(self.segments_fd, "counters", COUNTERS_BYTES)
            if self.segments_fd >= 0
            else None
        )
        return None if text is None else read_counters(text)

    def telegraf_port(self) -> int:
        """Where its sidecar takes measurements, as it says; 0 where it doesn't, or that can't be
        read now."""
        try:
            text = self._read(self.segments_fd, PORT_FILE, 16) if self.segments_fd >= 0 else None
        except OSError:
            return 0
        digits = (text or b"").strip()
        return int(digits) if digits.isdigit() and 0 < int(digits) < 65536 else 0

    def live_status(self) -> dict[Stream, tuple[int, str]]:
        """What running bars show now, as (time in ns, their lines) by stream, "" where that was
        withdrawn; nothing where its sidecar hasn't said so."""
        try:
            data = (
                self._read(self.segments_fd, LIVE_FILE, MAX_LIVE_BYTES)
                if self.segments_fd >= 0
                else None
            )
        except OSError:
            return {}
        return {
            stream: (
                time_ns,
                "\n".join(map(without_controls, text.decode(errors="replace").split("\n"))),
            )
            for stream, (time_ns, text) in decode_live(data or b"").items()
        }

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
        """Whether (1 or 0) change makes other bytes, as many, of identity.json: these are written
        into it. dry_run: only looks. Raises OSError."""
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
        """About when it began: its directory's own time may be later, never earlier."""
        try:
            return os.stat(IDENTITY, dir_fd=self._fd, follow_symlinks=False).st_mtime_ns
        except OSError:
            return os.fstat(self._fd).st_mtime_ns

    # ---- who lives

    def life(self) -> Life:
        """Looked at before segments are read: once it is DEAD or ORPHANED they don't grow any more.
        Raises OSError where the system is short of what it takes to look: nobody is dead for that.
        What was taken away is DEAD: whoever writes there still isn't read any more."""
        if self.is_taken:
            return Life.DEAD
        if (
            not self._has_begun
        ):  # first: it may begin right now; looked for once, as there may be very many names
            self._has_begun = self.segments_fd >= 0 and bool(list_segments(self.segments_fd))
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
        """Whether nobody has begun to write: it was made for a job, and that is all."""
        if self.is_taken:
            return False
        return self.counters() is None and not (
            self.segments_fd >= 0 and list_segments(self.segments_fd)
        )

    def _is_locked(self) -> bool:
        """Whether the sidecar holds its lock. A shared lock, for a moment: a sidecar that begins
        just now waits."""
        try:
            fd = (
                os.open("lock", _FILE_FLAGS, dir_fd=self.segments_fd)
                if self.segments_fd >= 0
                else -1
            )
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            return False
        if fd < 0:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # not a file that can be locked: not a sidecar's
        finally:
            os.close(fd)
        return False

    def write_limits(self, marks: bytes) -> None:
        """Says how large its segments may be (logshipper/spool/spool_room.py), for its user to
        read. Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(LIMITS_FILE, flags, 0o600, dir_fd=self._fd)
        try:
            if os.pwrite(fd, marks, 0) != len(
                marks
            ):  # over the last ones: needs no room on a full disk
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fchmod(fd, 0o644)
        finally:
            os.close(fd)

    # ---- sizes and removal

    def bytes_from(self, position: SpoolPosition) -> int:
        """Bytes of segments from a position on."""
        total = 0
        for number in list_segments(self.segments_fd) if self.segments_fd >= 0 else []:
            if number >= position.segment:
                total += self._size(number)
        return max(0, total - position.offset) if position.segment else total

    def signature(self) -> tuple[object, ...]:
        """Changes whenever there is something new to ingest."""
        numbers = list_segments(self.segments_fd) if self.segments_fd >= 0 else []
        return (
            self.life(),
            len(numbers),
            [(number, self._size(number)) for number in numbers[-2:]],
        )

    def _size(self, number: int) -> int:
        try:
            status = os.stat(segment_name(number), dir_fd=self.segments_fd, follow_symlinks=False)
        except OSError:
            return 0
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def size(self) -> FolderSize:
        """Of all that is in the directory. Raises OSError."""
        return folder_size(self._fd)

    def take_away(self) -> None:
        """Takes `segments/` from its user, who can't make, rename or remove anything in it then; in
        a node's spool, as the directory around it is the agent's. Files that are open can still be
        written to. Raises OSError."""
        os.rename("segments", TAKEN, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        self.is_taken = True
        close_to_others(self.segments_fd)

    def empty_taken(self, keep_bytes: int) -> bool:
        """Removes what isn't segments, and those beyond keep_bytes; False where there is more than
        one call removes. Raises OSError."""
        return FolderRemoval(self._spool_fd, self.name, self._fd).empty_taken(keep_bytes)

    def remove_segments_before(self, number: int) -> None:
        """Removes segments that are wholly ingested."""
        for earlier in list_segments(self.segments_fd) if self.segments_fd >= 0 else []:
            if earlier < number:
                try:
                    os.unlink(segment_name(earlier), dir_fd=self.segments_fd)
                except (FileNotFoundError, IsADirectoryError):
                    pass  # a directory goes with the whole capture

    def remove(self) -> bool:
        """Removes the capture's directory, links in it unfollowed; False where there was more in it
        than one call removes: call it again. Raises OSError."""
        return FolderRemoval(self._spool_fd, self.name, self._fd).go_on()


def open_spool(path: str) -> int | None:
    """A spool's folder, to look at; None where there is none. Raises StoreError."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(path, f"can't be opened: {os_words(error)}") from None


def list_folders(spool_fd: int) -> list[str]:
    """Names of the captures' directories in a spool; those that begin with a dot are the spool's
    own."""
    names = []
    with scanned(spool_fd) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            if len(names) >= _MAX_FOLDERS:
                break
    return sorted(names)


def _words(value: object) -> str:
    return without_controls(value[:256]) if isinstance(value, str) else ""


def _whole(value: object, otherwise: int, below: int = 1 << 31) -> int:
    return value if type(value) is int and 0 <= value < below else otherwise
