"""The job of a sender: the kernel names the process of a Unix socket, and /proc that of any other.

Senders with thousands of processes and descriptors could prolong a search, so searches have a limit
and users share the time. An environment read never blocks: the kernel (since 4.17) reads no memory
backed by files.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from logshipper.telegraf.socket_owner import SocketOwner, processes_of
from logshipper_ingest.sockets.peer import job_ids_of

KEEP_SECS = 30.0  # lifetime of a result, while the socket lives
KEEP_PROCESS_SECS = 1.0
MAX_KEPT = 4096
SEARCH_SHARE = 1 / 4  # the part of a core for searches of /proc


class Claim(NamedTuple):
    """A sender's claim.

    jobs: ids of its possible jobs, empty without a job, None if its process is unknown.
    """

    jobs: frozenset[str] | None


class Senders:
    """One thread's."""

    def __init__(self) -> None:
        self._claims: OrderedDict[SocketOwner, tuple[float, Claim]] = OrderedDict()
        self._search_after: dict[int, float] = {}  # by user

    def claim(self, owner: SocketOwner, came_ns: int) -> Claim | None:
        """Identify a sender, with an occasional look at /proc for each socket.

        came_ns: time of arrival (CLOCK_BOOTTIME); a younger process is not the sender. Returns None
        to ask for a retry in a moment.
        """
        now = time.monotonic()
        cache_entry = self._claims.get(owner)
        if cache_entry is not None and cache_entry[0] > now:
            return cache_entry[1]
        if owner.pid:
            keep_secs, processes = KEEP_PROCESS_SECS, [owner.pid]
        elif now < self._search_after.get(owner.uid, 0.0):
            return None
        else:
            keep_secs, processes = KEEP_SECS, self._search(owner)
        claim = Claim(_jobs_of(processes, owner.uid, came_ns))
        self._claims[owner] = (now + keep_secs, claim)
        self._claims.move_to_end(owner)
        if len(self._claims) > MAX_KEPT:
            self._claims.popitem(last=False)
        return claim

    def _search(self, owner: SocketOwner) -> list[int]:
        begin = time.thread_time()
        processes = processes_of(owner)
        took, ended = time.thread_time() - begin, time.monotonic()
        search_after = self._search_after.items()
        self._search_after = {uid: after for uid, after in search_after if after > ended}
        users = len(self._search_after.keys() | {owner.uid})
        self._search_after[owner.uid] = ended + took * (users / SEARCH_SHARE - 1)
        return processes


def _jobs_of(processes: list[int], uid: int, came_ns: int) -> frozenset[str] | None:
    answers = [job_ids_of(pid, uid, came_ns) for pid in processes]
    job_sets = [jobs for jobs in answers if jobs is not None]
    return frozenset().union(*job_sets) if job_sets else None
