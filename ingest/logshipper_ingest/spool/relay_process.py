"""Whether a capture's relay still runs, by what its counters say of it."""

import errno
import os
import time

from logshipper.spool.captures import started_of

# what was looked for may well be there
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
_TICKS_PER_SEC = os.sysconf("SC_CLK_TCK")


class _Inner:
    """Processes of inner pid namespaces (containers), looked for at most once after a process'
    start: one that wasn't there then never comes."""

    def __init__(self) -> None:
        # when they were looked for, in seconds since boot, and their numbers here, by number there
        # and start: one attribute, since threads share it
        self._seen: tuple[float, dict[tuple[int, int], int]] = 0.0, {}

    def pid_of(self, pid: int, started: int) -> int:
        """Its number here, 0 where there is none. pid: its number there; started: in clock ticks
        since boot, by the job's word."""
        looked_at, pids = self._seen
        if looked_at <= (started + 1) / _TICKS_PER_SEC:
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            if started / _TICKS_PER_SEC > now:
                return 0  # it would have us look for it each time
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
    """Whether a user's process that started at a time (clock ticks since boot, 0: any) still runs:
    another one may have its number meanwhile. In a container the number is that of its pid
    namespace. Raises OSError where the system is short of what it takes to look."""
    if _runs(pid, started, uid):
        return True
    here = _inner.pid_of(pid, started) if started else 0
    return here != 0 and _runs(here, started, uid)


def _runs(pid: int, started: int, uid: int) -> bool:
    try:
        # the folder's own owner is root where memory is hidden
        owner = _status_of(pid).get(b"Uid", [b""])[0]
        process_start = started_of(pid)
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return False
    return process_start != 0 and owner == b"%d" % uid and started in (0, process_start)


def _status_of(pid: int) -> dict[bytes, list[bytes]]:
    """The fields of its status, split at white space (proc_pid_status(5)). Raises OSError."""
    with open(f"/proc/{pid}/status", "rb") as file:
        fields = (line.partition(b":") for line in file)
        return {name: value.split() for name, _, value in fields}
