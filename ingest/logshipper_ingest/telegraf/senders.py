"""Which job a sender is in: by its process, which the kernel names for a Unix socket, and /proc for
any other.

How long a search takes is in its sender's hands, who may have thousands of processes and
descriptors: it has an end, and users share the time. An environment is read at once: the kernel
(since 4.17) reads none of a file's memory.
"""

import time
from collections import OrderedDict
from typing import NamedTuple

from logshipper.telegraf.socket_owner import SocketOwner, processes_of
from logshipper_ingest.sockets.peer import job_ids_of

KEEP_SECS = 30.0  # what is known of a socket, as long as that lives
KEEP_PROCESS_SECS = 1.0
MAX_KEPT = 4096
SEARCH_SHARE = 1 / 4  # of a core, at most, goes into searching /proc


class Claim(NamedTuple):
    """uid: the sender's; jobs: ids of the jobs that it may be in, empty where it is in none; None
    where its process can't be found."""

    uid: int
    jobs: frozenset[str] | None


class Senders:
    """One thread's."""

    def __init__(self) -> None:
        self._claims: OrderedDict[SocketOwner, tuple[float, Claim]] = OrderedDict()
        self._search_after: dict[int, float] = {}  # by user

    def claim(self, owner: SocketOwner, came_ns: int) -> Claim | None:
        """Who sent: a look at /proc for each socket now and then. came_ns: when (CLOCK_BOOTTIME): a
        process that is younger isn't the one that did. None where it is to be asked again in a
        moment."""
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
        claim = Claim(owner.uid, _jobs_of(processes, owner.uid, came_ns))
        self._claims[owner] = (now + keep_secs, claim)
        self._claims.move_to_end(owner)
        if len(self._claims) > MAX_KEPT:
            self._claims.popitem(last=False)
        return claim

    def _search(self, owner: SocketOwner) -> list[int]:
        begin = time.thread_time()
        processes = processes_of(owner)
        took, ended = time.thread_time() - begin, time.monotonic()
        self._search_after = {
            uid: after for uid, after in self._search_after.items() if after > ended
        }
        users = len(self._search_after.keys() | {owner.uid})
        self._search_after[owner.uid] = ended + took * (users / SEARCH_SHARE - 1)
        return processes


def _jobs_of(processes: list[int], uid: int, came_ns: int) -> frozenset[str] | None:
    job_sets = [
        jobs for jobs in (job_ids_of(pid, uid, came_ns) for pid in processes) if jobs is not None
    ]
    return frozenset().union(*job_sets) if job_sets else None
