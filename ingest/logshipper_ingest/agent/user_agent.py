"""The per-user agent: ingests a user's captures into the local store, without server and
configuration.

`logshipper run` starts it (agent_start.py). It ends at once if another agent works on the store.
It keeps no descriptor, terminal or directory of its starter. It runs at low CPU priority and
ingests small growth every ten seconds, and all else every two. It ends when no capture is alive and
the spool stays unchanged for a while. Killing it does no harm: readers ingest as well.
"""

import fcntl
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from logshipper.background import NICE, forbid_core_files, keep_freed_memory, yield_to_jobs
from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper_ingest.agent_start import LOCK_FILE, let_go
from logshipper_ingest.spool.capture_folder import FolderSignature, Life
from logshipper_ingest.store.local_store import LocalStore

IDLE_SECS = 10.0
STUCK_SECS = 60.0  # of retries for captures that fail
LOOK_SECS = 2.0  # between two looks at the spool
LAZY_SECS = 10.0  # between two of a job that prints little: readers ingest as well
MUCH_BYTES = 1 << 20  # of a capture: such growth is ingested sooner
DEADLINE_SECS = 10.0  # of one ingestion
MAX_LOG_BYTES = 256 << 10
_RETRY_SECS = 0.02  # longer than `running_agent` holds the lock

Say = Callable[[str], None]
Spool = Mapping[str, FolderSignature]  # the state of each capture


def ingest_until_idle(root: str, say: Say, idle_secs: float = IDLE_SECS) -> None:
    """Ingest until nothing remains to do. root: the store's folder; say: receives problems. Raises
    StoreError if the store can't be opened."""
    last_seen: Spool | None = None
    ingested: Spool | None = None
    last_problems: list[str] = []
    ingest_due = last_change = time.monotonic()
    with LocalStore(root, create=True) as store:
        while True:
            spool = store.spool_signature()
            now = time.monotonic()
            if spool != last_seen:
                last_seen, last_change = spool, now
            if spool != ingested and (now >= ingest_due or _is_urgent(spool, ingested)):
                ingestion = store.ingest(deadline_secs=DEADLINE_SECS)
                ingested = spool if ingestion.complete else None
                ingest_due = now + LAZY_SECS
                if ingestion.problems != last_problems:
                    for problem in ingestion.problems:
                        say(problem)
                last_problems = ingestion.problems
            if _is_done(store, time.monotonic() - last_change, idle_secs):
                return
            time.sleep(LOOK_SECS)


def _is_urgent(spool: Spool, ingested: Spool | None) -> bool:
    """Return whether captures have come, ended or grown much since the last ingestion, or it did
    not finish."""
    if ingested is None or spool.keys() != ingested.keys():
        return True
    for name, state in spool.items():
        life, end = ingested[name].life, ingested[name].end
        grown_bytes = state.end.offset - end.offset
        if state.life is not life or state.end.segment != end.segment or grown_bytes >= MUCH_BYTES:
            return True
    return False


def _is_done(store: LocalStore, quiet_secs: float, idle_secs: float) -> bool:
    if quiet_secs < idle_secs:
        return False
    spooled = store.spooled()
    if any(capture.life is not Life.DEAD for capture in spooled):
        return False
    return not spooled or quiet_secs >= max(STUCK_SECS, idle_secs)


def take_lock(root: str) -> int | None:
    """Lock the store's agent.lock and write this process's id into it. Return the descriptor, or
    None if another agent holds the lock. Raises StoreError."""
    path = os.path.join(root, LOCK_FILE)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreError(path, f"can't be opened: {os_words(error)}") from None
    try:
        if not _is_locked(fd):
            os.close(fd)
            return None
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except OSError as error:
        os.close(fd)
        raise StoreError(path, f"can't be locked: {os_words(error)}") from None
    return fd


def _is_locked(fd: int) -> bool:
    """Lock the file; return False if another agent holds the lock. The retries outlast
    `running_agent`, which holds it for a moment."""
    for pause_secs in (_RETRY_SECS, _RETRY_SECS, _RETRY_SECS, 0.0):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(pause_secs)
        else:
            return True
    return False


def serve(root: str, say: Say, *, idle_secs: float = IDLE_SECS) -> bool:
    """Run the agent until nothing remains to do. Return False if another one runs. Raises
    StoreError."""
    with LocalStore(root, create=True):
        pass  # creates its folder
    while True:
        lock = take_lock(root)
        if lock is None:
            return False
        try:
            ingest_until_idle(root, say, idle_secs)
        finally:
            os.close(lock)
        # A capture may have begun while we ended: it saw the lock and started no agent.
        with LocalStore(root) as store:
            if not any(capture.life is not Life.DEAD for capture in store.spooled()):
                return True


# ---- as a daemon


class AgentLog:
    """The store's agent.log, rotated to agent.log.old at MAX_LOG_BYTES."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, "agent.log")

    def __call__(self, problem: str) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line = f"{stamp} {problem}\n".encode("utf-8", "backslashreplace")
        with suppress(OSError):  # an unwritable log must not stop the agent
            fd = self.open()
            try:
                os.write(fd, line)
            finally:
                os.close(fd)

    def open(self) -> int:
        """Open the log for appending. Raises OSError."""
        flags = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        fd = os.open(self._path, flags, 0o600)
        if os.fstat(fd).st_size < MAX_LOG_BYTES:
            return fd
        os.close(fd)
        os.replace(self._path, f"{self._path}.old")
        return os.open(self._path, flags, 0o600)


def detach(log: AgentLog) -> None:
    """Leave the session, directory and descriptors of this process's starter."""
    with suppress(PermissionError):  # already a session leader
        os.setsid()
    forbid_core_files()
    os.chdir("/")
    os.umask(0o077)
    try:
        out: int | None = log.open()
    except OSError:
        out = None
    let_go(out)


def main(root: str, idle_secs: str = str(IDLE_SECS)) -> int:
    """Run the agent, detached but not forked."""
    log = AgentLog(root := os.path.abspath(root))
    try:
        with LocalStore(root, create=True):
            pass  # creates the folder of the log
        detach(log)
        yield_to_jobs(NICE)
        keep_freed_memory()
        serve(root, log, idle_secs=float(idle_secs))
    except LogshipperError as error:
        log(str(error))
        return 1
    return 0
