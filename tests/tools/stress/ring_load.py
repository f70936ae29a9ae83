"""A steady load on a ring of Lokis through a real agent, and faults in the ring.

An oracle reads all lines back from each member. Tests and `make soak RING=1` use it.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.loki_ring import TENANT, LokiRing, RingMember
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.fakes.small_disk import fill
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent, entries_of
from tests.tools.stress.conservation import Balance, Place, balances_in_loki, places

# prints numbers to both streams until a file exists, then writes their count into it
STEADY = """
import os, sys, time
number, pause, end = 0, float(sys.argv[1]), sys.argv[2]
while not os.path.exists(end):
    for _ in range(5):
        print("line", number, flush=True)
        print("line", number, file=sys.stderr, flush=True)
        number += 1
    time.sleep(pause)
with open(end + ".new", "w") as file:
    file.write(str(number))
os.replace(end + ".new", end)
"""
PAUSE_SECS = 0.05
CATCH_UP_SECS = 120.0
_SHIPPED = re.compile(r'^logshipper_agent_entries_total\{[^}]*kind="log"[^}]*\} ([0-9.e+]+)', re.M)
# the agent gives up on a hung member before the gateway notices it
AGENT_OPTIONS = {
    "tenant": TENANT,
    "timeout_secs": 2.0,
    "retry_min_secs": 0.1,
    "retry_max_secs": 1.0,
    "settle_secs": 1.0,
}


class SteadyJob:
    """A captured job that prints from its start to `end`."""

    def __init__(
        self, agent: NodeAgent, folder: Path, job_id: str, pause_secs: float = PAUSE_SECS
    ) -> None:
        self.job_id = f"{job_id}.u{os.getuid()}"
        self._end = folder / f"{job_id}.end"
        words = [sys.executable, "-m", "logshipper", "run", "--job-id", job_id, "--"]
        environment = {**agent.environment, "HOME": str(folder), "LOGSHIPPER_AGENT": "off"}
        null = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*words, sys.executable, "-c", STEADY, str(pause_secs), str(self._end)],
            cwd=ROOT, env=environment, stdin=null, stdout=null, stderr=null,
        )  # fmt: skip

    def end(self) -> dict[Place, int]:
        """End the job; return the number of its lines by stream."""
        self._end.touch()
        assert self.process.wait(TIMEOUT_SECS) == 0
        return places(self.job_id, int(self._end.read_text()))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class RingNode:
    """An agent before a ring, and its jobs. `with` starts and stops the agent."""

    def __init__(self, ring: LokiRing, folder: Path, cluster: str) -> None:
        self.ring = ring
        self.cluster = cluster
        self._folder = folder
        self.agent = NodeAgent(folder / "node", ring.url, cluster=cluster, loki=AGENT_OPTIONS)
        self._job_count = 0

    def __enter__(self) -> "RingNode":
        self.agent.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.__exit__()

    def start_job(self, pause_secs: float = PAUSE_SECS) -> SteadyJob:
        self._job_count += 1
        return SteadyJob(self.agent, self._folder, f"job{self._job_count}", pause_secs)

    def shipped(self) -> int:
        """Return the number of lines that Loki acknowledged since the agent's start."""
        return sum(int(float(count)) for count in _SHIPPED.findall(self.agent.metrics()))

    def wait_more(self, lines: int, purpose: str) -> None:
        """Wait until Loki has acknowledged so many lines more."""
        aim = self.shipped() + lines
        wait_until(lambda: self.shipped() >= aim, f"{lines} more lines are shipped {purpose}")

    def balances(self, line_counts: Mapping[Place, int]) -> dict[str, dict[Place, Balance]]:
        """Return the balances that each running member yields, by its name."""
        ids = "|".join(sorted({place.job_id.replace(".", "[.]") for place in line_counts}))
        result = {}
        for member in self.ring.running():
            with reader(member.url) as client:
                entries = entries_of(client, self.cluster, selector=f'| job_id=~"{ids}"')
            result[member.folder.name] = balances_in_loki(entries, line_counts)
        return result


def reader(url: str) -> LokiClient:
    return LokiClient(ServerAccess(url, tenant=TENANT, timeout_secs=TIMEOUT_SECS))


# ---- faults in a ring: the code after `yield` ends the fault, and waits until the ring is whole


@contextmanager
def kill(ring: LokiRing, member: RingMember) -> Iterator[None]:
    member.stop(9)
    yield
    _come_back(ring, member)


@contextmanager
def restart(ring: LokiRing, member: RingMember) -> Iterator[None]:
    member.stop()
    member.start(wait=False)
    yield
    member.wait_ready()
    ring.wait_whole()


@contextmanager
def hang(ring: LokiRing, member: RingMember) -> Iterator[None]:
    member.hang()
    yield
    member.go_on()
    ring.wait_whole()


@contextmanager
def join_and_leave(ring: LokiRing, _: RingMember) -> Iterator[None]:
    """Add a fourth member, which takes its share; remove it at the end."""
    member = ring.add_member()
    member.start()
    ring.wait_whole()
    yield
    ring.remove_member(member)
    ring.wait_whole()


@contextmanager
def fill_disk(ring: LokiRing, member: RingMember) -> Iterator[None]:
    """Fill the disk of the member's write-ahead log, as root.

    Then the fault kills the member, which loses all pushes that it accepted meanwhile.
    """
    filler = fill(member.wal.parent, 0)
    yield
    failures = member.metric("loki_ingester_wal_disk_full_failures_total")
    assert failures > 0, "it had no room"
    member.stop(9)
    filler.unlink()
    _come_back(ring, member)


def _come_back(ring: LokiRing, member: RingMember) -> None:
    member.start(wait=False)
    member.wait_ready()
    ring.wait_whole()


Fault = Callable[[LokiRing, RingMember], AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {
    "a member is killed": kill,
    "a member hangs": hang,
    "a member restarts": restart,
    "a member joins and leaves": join_and_leave,
}
FULL_DISK = "a member's disk is full"


class Outcome(NamedTuple):
    """Result of a fault. secs: from its end until all lines were shipped; line_counts: of the jobs,
    by stream."""

    secs: float
    line_counts: dict[Place, int]


def meet(
    node: RingNode,
    fault: Fault,
    member: RingMember,
    *,
    pauses: Sequence[float],
    lines: int,
    kill_agent: bool = False,
) -> Outcome:
    """Print from jobs before, during and after a fault, until so many lines came through each time.

    pauses: each job's, in seconds; kill_agent: kill the agent during the fault, too.
    """
    running = [node.start_job(pause) for pause in pauses]
    try:
        node.wait_more(lines, "before it")
        with fault(node.ring, member):
            if kill_agent:
                node.agent.stop(9)
                node.agent.start()
            node.wait_more(lines, "meanwhile")
        begin = time.monotonic()
        node.wait_more(lines, "afterwards")
        line_counts = {place: count for job in running for place, count in job.end().items()}
    finally:
        for job in running:
            job.kill()
    node.agent.wait_shipped(CATCH_UP_SECS)
    return Outcome(time.monotonic() - begin, line_counts)


class Readers:
    """Reads a job repeatedly through the gateway inside `with`.

    counts: answers by their number of lines, -1 for an error; longest_secs: of an answer.
    """

    def __init__(self, node: RingNode, job_id: str) -> None:
        self.counts: Counter[int] = Counter()
        self.longest_secs = 0.0
        self._node = node
        self._selector = f'| job_id="{job_id}"'
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        while not self._stop.is_set():
            access = ServerAccess(self._node.ring.url, tenant=TENANT)
            begin = time.monotonic()
            with LokiClient(access) as client:
                try:
                    entries = entries_of(client, self._node.cluster, "log", selector=self._selector)
                    self.counts[len(entries)] += 1
                except QueryError:
                    self.counts[-1] += 1
            self.longest_secs = max(self.longest_secs, time.monotonic() - begin)
            self._stop.wait(0.2)

    def __enter__(self) -> "Readers":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
