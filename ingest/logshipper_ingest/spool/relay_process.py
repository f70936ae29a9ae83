"""Whether a capture's relay still runs, by the pid and start time in its counters."""

import errno
import os
import time

from logshipper.spool.captures import started_of

# errors that don't prove the absence of a file
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
SEARCH_SECS = 1.0  # between two searches of /proc
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


class _Inner:
    """Processes of inner pid namespaces (containers). /proc is searched at most once after a
    process' start, since a process that is absent then never comes, and at most once in
    SEARCH_SECS: a job can forge ever newer starts."""

    def __init__(self) -> None:
        # time of the search in seconds since boot, and outer pids by inner pid and start; one
        # attribute, since threads share it
        self._seen: tuple[float, dict[tuple[int, int], int]] = float("-inf"), {}

    def pid_of(self, pid: int, started: int) -> int | None:
        """Return the outer pid of an inner one, 0 if there is none, or None before the next search.
        started: in clock ticks since boot, by the job's word."""
        looked_at, pids = self._seen
        if looked_at <= (started + 1) / _TICKS_PER_SEC:
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            if started / _TICKS_PER_SEC > now:
                return 0
            if now - looked_at < SEARCH_SECS:
                return None
            pids = _look()
            self._seen = now, pids
        return pids.get((pid, started), 0)


def _look() -> dict[tuple[int, int], int]:
    pids = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            numbers = _status_of(int(name)).get(b"NSpid", [])
            if len(numbers) > 1:
                pids[int(numbers[-1]), started_of(int(name))] = int(name)
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
    return pids


_inner = _Inner()


def relay_runs(pid: int, started: int, uid: int) -> bool:
    """Whether a user's process with this start (clock ticks since boot, 0: any) still runs; another
    process may have its pid by now. The pid may be that of a container's namespace; the answer is
    True until /proc was searched for it. Raises OSError if the system lacks resources."""
    if _runs(pid, started, uid):
        return True
    here = _inner.pid_of(pid, started) if started else 0
    return here is None or (here != 0 and _runs(here, started, uid))


def _runs(pid: int, started: int, uid: int) -> bool:
    try:
        # not the owner of /proc/PID, which is root if the process hides its memory
        owner = _status_of(pid).get(b"Uid", [b""])[0]
        process_start = started_of(pid)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return False
    return process_start != 0 and owner == b"%d" % uid and started in (0, process_start)


def _status_of(pid: int) -> dict[bytes, list[bytes]]:
    """Return the fields of its status, split at white space (proc_pid_status(5)). Raises OSError."""
    with open(f"/proc/{pid}/status", "rb") as file:
        fields = (line.partition(b":") for line in file)
        return {name: value.split() for name, _, value in fields}
