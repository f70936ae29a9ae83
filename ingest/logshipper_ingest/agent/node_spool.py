"""The node's spool: root creates a directory per task, and the job's user owns only its `segments/`
(docs/segment-format.md, "Folders").

Invariants:

- Only the agent's user writes outside of `segments/`, so users cannot race its names.
- The agent opens everything relative to a directory's descriptor and follows no links.
- A new directory has a name with a dot, which readers ignore, until the agent renames it.
- Creation and counting hold the spool's lock.
"""

import errno
import fcntl
import os
import pwd
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from logshipper_ingest.open_files import opened

LOCK_SECS = 1.5  # a holder needs a millisecond or two
MAX_NUMBERS_PER_USER = 10_000  # counted keys per user; beyond, the oldest go
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKING = ".new-"
_MAX_WHOLE = (1 << 31) - 1
_MAX_UID = (1 << 32) - 2  # the last one means "none" to chown(2)
_STEP = re.compile(r"[\x20-\x7e]{0,64}")
# names of users, accounts, partitions
_WORD = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{0,128}")


class TooManyCaptures(SpoolError):
    """The user has reached the limit of captures in the spool."""


class NodeIdentity(NamedTuple):
    """Identity of a capture."""

    job_id: str
    attempt: int
    step: str
    task: int
    name: str  # with unprintable characters replaced
    uid: int
    user: str
    account: str = ""
    partition: str = ""
    gid: int = -1  # of `segments/`; -1 for the user's primary group
    array_job_id: str = ""  # of a task of a job array
    array_task_id: str = ""  # likewise

    def problems(self) -> list[str]:
        """Return a sentence for each invalid field."""
        problems: list[str] = []
        try:
            check_job_id(self.job_id)
        except ConfigError as error:
            problems += error.problems
        wholes = ("attempt", self.attempt, 1), ("task", self.task, 0)
        problems += [
            f"{name} must be {least} to {_MAX_WHOLE}"
            for name, value, least in wholes
            if not least <= value <= _MAX_WHOLE
        ]
        if not (0 <= self.uid <= _MAX_UID and -1 <= self.gid <= _MAX_UID):
            problems.append(f"uid and gid must be 0 to {_MAX_UID}")
        if not _STEP.fullmatch(self.step):
            problems.append("a step has at most 64 printable ASCII characters")
        words = ("user", "account", "partition", "array_job_id", "array_task_id")
        problems += [
            f"{name} must have at most 128 printable characters"
            for name in words
            if not _WORD.fullmatch(getattr(self, name))
        ]
        if not self.user:
            problems.append("user is missing")
        return problems


def prepare_capture(agent: AgentSection, identity: NodeIdentity) -> str:
    """Create the directory of a task's capture, sync it to disk and return its path.

    Raises ConfigError for an invalid identity, TooManyCaptures, SpoolFull, SpoolError.
    """
    with NodeSpool(agent) as spool:
        spool.check_room(identity.uid)
        name = spool.make(identity)
    sync_capture(agent, name)
    return os.path.join(agent.spool_dir, name)


def sync_capture(agent: AgentSection, name: str) -> None:
    """Sync a capture's identity and name to disk, without the lock, so that others need not wait.
    Raises SpoolError."""
    try:
        spool = open_own_folder(agent.spool_dir)
        try:
            for path, flags in ((f"{name}/identity.json", os.O_RDONLY), (name, _FOLDER_FLAGS)):
                with opened(path, flags | os.O_NOFOLLOW, dir_fd=spool) as fd:
                    os.fsync(fd)
            os.fsync(spool)
        finally:
            os.close(spool)
    except FileNotFoundError:
        pass  # shipped and removed already
    except OSError as error:
        raise _error(agent.spool_dir, error) from None


class NodeSpool:
    """The spool's folder, open and locked; created if missing. Close it. Raises SpoolError.

    An agent without root rights creates only captures of its own user.
    """

    def __init__(self, agent: AgentSection) -> None:
        self._agent = agent
        self._path = agent.spool_dir
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
        os.close(self._lock)
        os.close(self._fd)

    def check_room(self, uid: int) -> None:
        """Raise TooManyCaptures at the user's limit. Remove incomplete directories of a killed
        agent."""
        count = 0
        limit = self._agent.max_captures_per_user
        try:
            for name in os.listdir(self._fd):
                if name.startswith(_MAKING):
                    shutil.rmtree(name, dir_fd=self._fd)  # abandoned: we hold the lock
                elif not name.startswith("."):
                    count += self._owner(name) == uid
        except OSError as error:
            raise _error(self._path, error) from None
        if count >= limit:
            words = (
                f"uid {uid} has {plural(count, 'capture')} here, and the limit per user is {limit}"
            )
            remedy = "wait until the agent has shipped some"
            option = "[agent] max_captures_per_user"
            raise TooManyCaptures(self._path, f"{words} ({option}); {remedy}")

    def _owner(self, name: str) -> int:
        """Return the owner of a capture's `segments/`, or -1."""
        try:
            return os.stat(f"{name}/segments", dir_fd=self._fd, follow_symlinks=False).st_uid
        except OSError:
            return -1

    def new_job_id(self) -> str:
        """Return an id that is unique in the spool and very likely on other nodes."""
        job_ids = {name.split("@")[0] for name in os.listdir(self._fd)}
        while True:
            job_id = short_id(8)
            if job_id not in job_ids:
                return job_id

    def next_number(self, uid: int, key: str) -> int:
        """Count a user's captures of one key (a job id, a step) from 1. The key holds no `/` and
        begins with a letter or digit. Beyond MAX_NUMBERS_PER_USER the oldest keys go."""
        try:
            with (
                _private_folder(".attempts", self._fd) as above,
                _private_folder(str(uid), above) as folder,
            ):
                return _count(folder, key)
        except OSError as error:
            raise _error(self._path, error) from None

    def make(self, identity: NodeIdentity) -> str:
        """Create the directory of a capture and return its name. See `sync_capture`.

        Raises ConfigError for an invalid identity, SpoolFull, SpoolError.
        """
        problems = identity.problems()
        if problems:
            raise ConfigError("the capture's identity", problems)
        agent_uid = os.geteuid()
        if agent_uid not in (0, identity.uid):
            words = f"this agent's uid {agent_uid} creates only its own captures"
            raise SpoolError(self._path, f"{words}; run it as root for those of uid {identity.uid}")
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
        """Fill the directory. Its mode comes last, so that nobody else enters it before."""
        with opened(name, _FOLDER_FLAGS, dir_fd=self._fd) as folder:
            _write_file(folder, "identity.json", _encode(self._agent, identity))
            _write_file(folder, LIMITS_FILE, _first_marks(self._agent).encode(), mode=0o644)
            os.mkdir("segments", 0o700, dir_fd=folder)
            with opened("segments", _FOLDER_FLAGS, dir_fd=folder) as segments:
                os.fchmod(segments, 0o700)
                if os.geteuid() == 0:
                    os.fchown(segments, identity.uid, _group_of(identity))
            os.fchmod(folder, 0o711)

    def unmake(self, name: str) -> None:
        """Remove a capture without a writer."""
        with suppress(OSError):
            # fails if somebody has written: then the shipper removes it
            os.rmdir(f"{name}/segments", dir_fd=self._fd)
            for file in (LIMITS_FILE, "identity.json"):
                os.unlink(f"{name}/{file}", dir_fd=self._fd)
            os.rmdir(name, dir_fd=self._fd)


def _error(path: str, error: OSError) -> SpoolError:
    name = error.filename
    where = name if isinstance(name, str) and os.path.isabs(name) else path
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpoolFull(
            where, "no room left there; free some, or choose another folder in [agent] spool_dir"
        )
    remedy = f"set [agent] spool_dir to a folder that uid {os.geteuid()} owns"
    return SpoolError(where, f"{os_words(error)}; {remedy}")


def open_own_folder(path: str) -> int:
    """Open the spool's folder and create it if missing. Raises OSError, and SpoolError for wrong
    kind, owner or mode."""
    make_folder(os.path.dirname(path), 0o755)
    make_folder(path, 0o711)
    try:
        fd = os.open(path, _FOLDER_FLAGS)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        words = "must be a folder, not a link or file; change [agent] spool_dir"
        raise SpoolError(path, words) from None
    try:
        folder_stat = os.fstat(fd)
        if folder_stat.st_uid != os.geteuid():
            words = f"belongs to uid {folder_stat.st_uid}, not to the agent's, {os.geteuid()}"
            raise SpoolError(path, f"{words}; choose another")
        mode = stat.S_IMODE(folder_stat.st_mode) & 0o777
        if mode == BEGUN_MODE:  # another process creates it now, or was killed meanwhile
            os.fchmod(fd, 0o711)
        elif mode != 0o711:
            words = "run `chmod 711` on it: users may enter, not list or write"
            raise SpoolError(path, f"has mode {mode:04o}; {words}")
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def _private_folder(name: str, above: int) -> Iterator[int]:
    """Open a folder in the folder `above`, created if missing."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    with opened(name, _FOLDER_FLAGS, dir_fd=above) as folder:
        yield folder


def _take_lock(folder: int, path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(".lock", flags, 0o600, dir_fd=folder)
    deadline = time.monotonic() + LOCK_SECS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                words = f"is locked by another process for over {LOCK_SECS:g} s; try again"
                raise SpoolError(path, words) from None
        time.sleep(0.002)


def _count(folder: int, key: str) -> int:
    try:
        os.stat(key, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        _forget_oldest(folder)
    with opened(key, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, dir_fd=folder) as fd:
        text = os.read(fd, 32).strip()
        number = min(int(text) + 1 if text.isdigit() else 1, _MAX_WHOLE)
        os.pwrite(fd, b"%d\n" % number, 0)
        return number


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
        words = f"uid {identity.uid} is unknown on this node: add a gid"
        raise ConfigError("the capture's identity", [words]) from None


def _encode(agent: AgentSection, identity: NodeIdentity) -> bytes:
    """Return identity.json without empty fields of arrays."""
    host = agent.host or os.uname().nodename
    fields = {"version": 1, "cluster": agent.cluster, "host": host, **identity._asdict()}
    del fields["gid"]
    fields["name"] = without_controls(identity.name[:256]) or identity.job_id
    for name in ("array_job_id", "array_task_id"):
        if not fields[name]:
            del fields[name]
    return orjson.dumps(fields) + b"\n"


def _first_marks(agent: AgentSection) -> SpoolMarks:
    """Return marks for a user's only capture; the agent soon corrects them (spool_limits.py)."""
    job = agent.job_spool_soft_max_bytes, agent.job_spool_hard_max_bytes
    user = agent.user_spool_soft_max_bytes, agent.user_spool_hard_max_bytes
    least = [min(filter(None, marks), default=0) for marks in zip(job, user, strict=True)]
    return SpoolMarks(least[0], least[1], "job" if job[1] and job[1] == least[1] else "user")


def _write_file(folder: int, name: str, content: bytes, *, mode: int = 0o600) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with opened(name, flags, dir_fd=folder) as fd:
        if os.write(fd, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fchmod(fd, mode)  # 0600: it names the owner, which others need not know
