"""Which job a sender is in: by its process, which the kernel tells of a Unix socket, and /proc of any other."""

import time
from collections import OrderedDict
from typing import NamedTuple

from ingest.node.peer import job_ids_of
from logshipper.socket_owner import Owner, processes_of

KEEP_SECS = 30.0  # what is known of a socket, as long as that lives
KEEP_PROCESS_SECS = 1.0
MAX_KEPT = 4096
SEARCH_SHARE = 1 / 4  # of the time, at most, goes into searching /proc


class Claim(NamedTuple):
    """uid: the sender's; jobs: ids of the jobs that it may be in, empty where it is in none; None where its process
    can't be found."""

    uid: int
    jobs: frozenset[str] | None


class Senders:
    """One thread's."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int], tuple[float, Claim]] = OrderedDict()
        self._search_after = 0.0

    def claim(self, owner: Owner) -> Claim | None:
        """Who sent: a look at /proc for each socket now and then. None where it is to be asked again in a moment."""
        now = time.monotonic()
        known = self._known.get(owner)
        if known is not None and known[0] > now:
            return known[1]
        if owner.pid:
            claim, keep_secs = Claim(owner.uid, _jobs_of([owner.pid], owner.uid)), KEEP_PROCESS_SECS
        elif now < self._search_after:
            return None
        else:
            claim, keep_secs = Claim(owner.uid, _jobs_of(processes_of(owner), owner.uid)), KEEP_SECS
            ended = time.monotonic()
            self._search_after = ended + (ended - now) * (1 / SEARCH_SHARE - 1)
        self._known[owner] = (now + keep_secs, claim)
        if len(self._known) > MAX_KEPT:
            self._known.popitem(last=False)
        return claim


def _jobs_of(processes: list[int], uid: int) -> frozenset[str] | None:
    found = [jobs for jobs in (job_ids_of(pid, uid) for pid in processes) if jobs is not None]
    return frozenset().union(*found) if found else None
