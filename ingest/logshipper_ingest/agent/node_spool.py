"""The node's spool: directories of tasks, made by root, in which a job's user owns `segments/` and
nothing else (docs/segment-format.md, "Folders").

Invariants: the spool's folder and all in it but what is in `segments/` can be written by the
agent's user alone, so names in it can't be raced; everything is opened relative to a directory's
descriptor, links unfollowed; a capture's directory is made under a name that begins with a dot,
which readers leave out, and renamed when it is complete. All that makes or counts holds the spool's
lock.
"""

import errno
import fcntl
import os
import pwd
import re
import shutil
import stat
import time
from typing import NamedTuple

import orjson

from logshipper.errors import ConfigError, SpoolError, SpoolFull, os_words
from logshipper.fault_points import fault_point
from logshipper.private_folder import BEGUN_MODE, make_folder
from logshipper.safe_text import without_controls
from logshipper.spool.captures import NAME_CHARS, check_job_id, short_id
from logshipper.spool.spool_room import LIMITS_FILE, SpoolMarks
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.console.text_table import plural

LOCK_SECS = 1.5  # a maker holds it for a millisecond or two
MAX_NUMBERS_PER_USER = (
    10_000  # job ids whose attempts are remembered; then the oldest are forgotten
)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKING = ".new-"
_MAX_WHOLE = (1 << 31) - 1
_MAX_UID = (1 << 32) - 2  # the last one means "none" to chown(2)
_STEP = re.compile(r"[\x20-\x7e]{0,64}")
# names of users, accounts, partitions
_WORD = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,128}")


class TooManyCaptures(SpoolError):
    """The user has as many captures in the spool as one may have."""


class NodeIdentity(NamedTuple):
    """Whose a capture is."""

    job_id: str
    attempt: int
    step: str
    task: int
    name: str  # what can't be printed is replaced
    uid: int
    user: str
    account: str = ""
    partition: str = ""
    gid: int = -1  # of `segments/`; -1 for the user's primary group
    array_job_id: str = ""  # of a task of a job array
    array_task_id: str = ""  # likewise

    def problems(self) -> list[str]:
        """A sentence for each field that can't be so."""
        problems: list[str] = []
        try:
            check_job_id(self.job_id)
        except ConfigError as error:
            problems += error.problems
        wholes = {"attempt": (self.attempt, 1), "task": (self.task, 0)}
        problems += [
            f"{name} must be {least} to {_MAX_WHOLE}"
            for name, (value, least) in wholes.items()
            if not least <= value <= _MAX_WHOLE
        ]
        if not (0 <= self.uid <= _MAX_UID and -1 <= self.gid <= _MAX_UID):
            problems.append(f"uid and gid must be 0 to {_MAX_UID}")
        if not _STEP.fullmatch(self.step):
            problems.append("a step has at most 64 printable ASCII characters")
        words = ("user", "account", "partition", "array_job_id", "array_task_id")
        problems += [
            f"{name} has at most 128 characters that can be printed"
            for name in words
            if not _WORD.fullmatch(getattr(self, name))
        ]
        if not self.user:
            problems.append("user is missing")
        return problems


def prepare_capture(agent: AgentSection, identity: NodeIdentity) -> str:
    """Makes the directory of a task's capture; returns its path. It is on the disk then.

    Raises ConfigError where identity can't be so, TooManyCaptures, SpoolFull, SpoolError.
    """
    with NodeSpool(agent) as spool:
        spool.check_room(identity.uid)
        name = spool.make(identity)
    sync_capture(agent, name)
    return os.path.join(agent.spool_dir, name)


def sync_capture(agent: AgentSection, name: str) -> None:
    """Returns when a capture's identity is on the disk, its name with it. Not under the lock:
    others needn't wait. Raises SpoolError."""
    try:
        spool = open_own_folder(agent.spool_dir)
        try:
            for path, flags in ((f"{name}/identity.json", os.O_RDONLY), (name, _FOLDER_FLAGS)):
                fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=spool)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
            os.fsync(spool)
        finally:
            os.close(spool)
    except FileNotFoundError:
        pass  # shipped and removed already
    except OSError as error:
        raise _error(agent.spool_dir, error) from None


class NodeSpool:
    """The spool's folder, made where it is missing, open and locked: close it. Raises SpoolError.

    An agent that isn't root makes captures of its own user only.
    """

    def __init__(self, agent: AgentSection) -> None:
        self._agent = agent
        self._path = agent.spool_dir
        self._lock = -1
        try:
            self._fd = open_own_folder(self._path)
            try:
                self._lock = _take_lock(self._fd, self._path)
            except BaseException:
                os.close(self._fd)
                raise
        except OSError as error:
            raise _error(self._path, error) from None

    def __enter__(self) -> "NodeSpool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._lock)
        os.close(self._fd)

    def check_room(self, uid: int) -> None:
        """Raises TooManyCaptures where a user has as many captures as one may have. Removes what a
        maker that died left half made."""
        count = 0
        limit = self._agent.max_captures_per_user
        try:
            for name in os.listdir(self._fd):
                if name.startswith(_MAKING):
                    shutil.rmtree(name, dir_fd=self._fd)  # nobody makes it now: we hold the lock
                elif not name.startswith("."):
                    count += self._owner(name) == uid
        except OSError as error:
            raise _error(self._path, error) from None
        if count >= limit:
            raise TooManyCaptures(
                self._path,
                f"uid {uid} has {plural(count, 'capture')} here, and one user may have {limit} "
                "([agent] max_captures_per_user); there is room again when some are shipped",
            )

    def _owner(self, name: str) -> int:
        """Of a capture's `segments/`; -1 where there is none."""
        try:
            return os.stat(f"{name}/segments", dir_fd=self._fd, follow_symlinks=False).st_uid
        except OSError:
            return -1

    def new_job_id(self) -> str:
        """An id that no capture in the spool has, and other nodes hardly will."""
        job_ids = {name.split("@")[0] for name in os.listdir(self._fd)}
        while True:
            job_id = short_id(8)
            if job_id not in job_ids:
                return job_id

    def next_number(self, uid: int, key: str) -> int:
        """Counts a user's captures of one key (a job id, a step) from 1. The key holds no `/` and
        begins with a letter or digit. The oldest keys are forgotten when a user has
        MAX_NUMBERS_PER_USER."""
        try:
            folder = _open_below(_open_below(os.dup(self._fd), ".attempts"), str(uid))
            try:
                return _count(folder, key)
            finally:
                os.close(folder)
        except OSError as error:
            raise _error(self._path, error) from None

    def make(self, identity: NodeIdentity) -> str:
        """Makes the directory of a capture; returns its name in the spool. See `sync_capture`.

        Raises ConfigError where identity can't be so, SpoolFull, SpoolError.
        """
        problems = identity.problems()
        if problems:
            raise ConfigError("the capture's identity", problems)
        agent_uid = os.geteuid()
        if agent_uid not in (0, identity.uid):
            raise SpoolError(
                self._path,
                f"uid {agent_uid} makes captures of its own here, "
                f"only root those of uid {identity.uid}",
            )
        name = f"{identity.job_id}@{identity.attempt}.{short_id(NAME_CHARS)}"
        try:
            os.mkdir(_MAKING + name, 0o700, dir_fd=self._fd)
            try:
                self._fill(_MAKING + name, identity)
                fault_point("capture_made")
                os.rename(_MAKING + name, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
                fault_point("capture_named")
            except BaseException:
                shutil.rmtree(_MAKING + name, dir_fd=self._fd, ignore_errors=True)
                raise
        except OSError as error:
            raise _error(self._path, error) from None
        return name

    def _fill(self, name: str, identity: NodeIdentity) -> None:
        """Nobody but us gets into the directory before its own mode is set, the last step."""
        folder = os.open(name, _FOLDER_FLAGS, dir_fd=self._fd)
        try:
            _write_file(folder, "identity.json", _encode(self._agent, identity))
            _write_file(folder, LIMITS_FILE, _first_marks(self._agent).encode(), mode=0o644)
            os.mkdir("segments", 0o700, dir_fd=folder)
            segments = os.open("segments", _FOLDER_FLAGS, dir_fd=folder)
            try:
                os.fchmod(segments, 0o700)
                if os.geteuid() == 0:
                    os.fchown(segments, identity.uid, _group_of(identity))
            finally:
                os.close(segments)
            os.fchmod(folder, 0o711)
        finally:
            os.close(folder)

    def unmake(self, name: str) -> None:
        """Removes a capture that nobody has written to yet."""
        try:
            # not where somebody has: then it is the shipper's
            os.rmdir(f"{name}/segments", dir_fd=self._fd)
            for file in (LIMITS_FILE, "identity.json"):
                os.unlink(f"{name}/{file}", dir_fd=self._fd)
            os.rmdir(name, dir_fd=self._fd)
        except OSError:
            pass


def _error(path: str, error: OSError) -> SpoolError:
    where = (
        error.filename
        if isinstance(error.filename, str) and os.path.isabs(error.filename)
        else path
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpoolFull(
            where, "no room left there; free some, or choose another folder ([agent] spool_dir)"
        )
    reason = os_words(error)
    return SpoolError(
        where, f"{reason}; [agent] spool_dir names a folder that uid {os.geteuid()} owns"
    )


def open_own_folder(path: str) -> int:
    """The spool's folder, made where it is missing. Raises OSError, SpoolError where it isn't as it
    must be."""
    make_folder(os.path.dirname(path), 0o755)
    make_folder(path, 0o711)
    try:
        fd = os.open(path, _FOLDER_FLAGS)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise SpoolError(
            path, "isn't a folder (nor may it be a link to one); [agent] spool_dir names one"
        ) from None
    try:
        folder_stat = os.fstat(fd)
        if folder_stat.st_uid != os.geteuid():
            raise SpoolError(
                path,
                f"belongs to uid {folder_stat.st_uid}, not to the agent's, {os.geteuid()}; "
                "choose another",
            )
        mode = stat.S_IMODE(folder_stat.st_mode) & 0o777
        if mode == BEGUN_MODE:  # somebody else makes it right now, or was killed at it
            os.fchmod(fd, 0o711)
        elif mode != 0o711:
            raise SpoolError(
                path,
                f"has mode {mode:04o}; run `chmod 711` on it: users may pass, not list or write",
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_below(above: int, name: str) -> int:
    """A folder (0700) of our own in the folder above, which is closed."""
    try:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            pass
        return os.open(name, _FOLDER_FLAGS, dir_fd=above)
    finally:
        os.close(above)


def _take_lock(folder: int, path: str) -> int:
    fd = os.open(
        ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
    )
    deadline = time.monotonic() + LOCK_SECS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                raise SpoolError(
                    path, f"is locked by another process for over {LOCK_SECS:g} s; try again"
                ) from None
        time.sleep(0.002)


def _count(folder: int, key: str) -> int:
    try:
        fd = os.open(key, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        _forget_oldest(folder)
        fd = os.open(
            key, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
        )
    try:
        text = os.read(fd, 32).strip()
        number = min(int(text) + 1 if text.isdigit() else 1, _MAX_WHOLE)
        os.pwrite(fd, b"%d\n" % number, 0)
        return number
    finally:
        os.close(fd)


def _forget_oldest(folder: int) -> None:
    keys = os.listdir(folder)
    if len(keys) >= MAX_NUMBERS_PER_USER:
        keys.sort(key=lambda key: os.stat(key, dir_fd=folder, follow_symlinks=False).st_mtime_ns)
        for key in keys[: max(1, MAX_NUMBERS_PER_USER // 10)]:
            os.unlink(key, dir_fd=folder)


def _group_of(identity: NodeIdentity) -> int:
    if identity.gid >= 0:
        return identity.gid
    try:
        return pwd.getpwuid(identity.uid).pw_gid
    except KeyError:
        raise ConfigError(
            "the capture's identity", [f"uid {identity.uid} isn't known here: name a gid"]
        ) from None


def _encode(agent: AgentSection, identity: NodeIdentity) -> bytes:
    """identity.json, without what doesn't apply."""
    fields: dict[str, str | int] = {
        "version": 1,
        "cluster": agent.cluster,
        "host": agent.host or os.uname().nodename,
    }
    fields |= identity._asdict()
    del fields["gid"]
    fields["name"] = without_controls(identity.name[:256]) or identity.job_id
    for name in ("array_job_id", "array_task_id"):
        if not fields[name]:
            del fields[name]
    return orjson.dumps(fields) + b"\n"


def _first_marks(agent: AgentSection) -> SpoolMarks:
    """As if it were the user's only capture: the agent knows better in a moment
    (node/spool_limits.py)."""
    job = agent.job_spool_soft_max_bytes, agent.job_spool_hard_max_bytes
    user = agent.user_spool_soft_max_bytes, agent.user_spool_hard_max_bytes
    least = [min(filter(None, marks), default=0) for marks in zip(job, user, strict=True)]
    return SpoolMarks(least[0], least[1], "job" if job[1] and job[1] == least[1] else "user")


def _write_file(folder: int, name: str, content: bytes, *, mode: int = 0o600) -> None:
    fd = os.open(
        name,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=folder,
    )
    try:
        if os.write(fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fchmod(fd, mode)  # 0600: others on the node needn't know whose it is
    finally:
        os.close(fd)
