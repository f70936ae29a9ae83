"""What a store says of a job: plain values, shared by all that write and read stores."""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from logshipper.spool.segment import Kind, Stream

Json: TypeAlias = dict[str, Any]  # Any: JSON objects that jobs' captures wrote

NAME = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
)  # what a job's id, a host and a cluster may be called
UNRESPONSIVE_NS = 20 * 10**9  # running, and no sign of life for longer, where its segments are
# the same in Loki: the agent sends a sign every 10 s, and shipping takes its time
SHIPPED_UNRESPONSIVE_NS = 60 * 10**9
MAX_NODES = 1_000_000  # of a job: what says more is wrong
RUNNING = "RUNNING"
UNRESPONSIVE = "UNRESPONSIVE"
QUEUED = "QUEUED"  # of jobs that other systems tell of: a capture begins when its job runs
OPEN_STATES = (QUEUED, RUNNING, UNRESPONSIVE)  # of a job that isn't over
END_STATES = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "NODE_FAIL",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "PREEMPTED",
)  # a capture's
# as Slurm has them, by how bad they are: of captures that ran together the worst counts, here and
# on Grafana's pages. REQUEUED: this run is over, another one follows
SLURM_STATES = (
    "COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "FAILED", "NODE_FAIL",
    "BOOT_FAIL",
)  # fmt: skip
JOB_ENDED = "job_ended"  # the event that tells how Slurm ended a job
STATE_CHANGED = (
    "state"  # the event of an imported job: from `from` to `to`, in the states of where it is from
)
HEARTBEAT_LOST, HEARTBEAT_FOUND = "heartbeat_lost", "heartbeat_found"
HISTORY = (
    STATE_CHANGED,
    HEARTBEAT_LOST,
    HEARTBEAT_FOUND,
)  # events that change a job's state, besides start and end


def job_shard(job_id: str) -> str:
    """The label that keeps a job's lines apart from most others' of its node: the last digit of its
    id, `x` where that isn't one. Whoever knows the id knows it, dashboards (PromQL) included."""
    return job_id[-1] if job_id[-1:] in frozenset("0123456789") else "x"


@dataclass(frozen=True)
class JobSummary:
    """One job. State, exit code, times, host and mode are those of its newest attempt; lines
    (stored), records, lost and bytes are of all attempts. Times are nanoseconds since 1970;
    heartbeat_ns: 0 where none is sent. reason: why, where the state needs a word; cluster: "" in a
    local store; account, partition: the scheduler's, "" without one.

    origin: the system that an imported job comes from (qcg, balsam, xt), "" for captured ones;
    parent: the id of the job it is a part of, and iteration which one; nodes: as told, and at least
    those that it was seen on; nodes, cores: 0 where they aren't known; packing: how many such jobs
    share a node; allocation: the id of the one it ran in. children: parts that aren't jobs of their
    own, how many of them are over, and how many of these without success. first_change_ns,
    last_change_ns: of events besides start and end that changed its state, 0 where there are
    none."""

    job_id: str
    name: str
    user: str
    host: str
    state: str
    exit_code: int | None
    signal: int
    attempts: int
    started_ns: int
    ended_ns: int | None
    heartbeat_ns: int
    mode: str
    lines: int
    records: int
    lost: int
    bytes_printed: int
    bytes_logged: int
    reason: str = ""
    cluster: str = ""
    account: str = ""
    partition: str = ""
    origin: str = ""
    parent: str = ""
    iteration: int | None = None
    nodes: int = 0
    cores: int = 0
    packing: int = 1
    allocation: str = ""
    children: int = 0
    children_finished: int = 0
    children_failed: int = 0
    first_change_ns: int = 0
    last_change_ns: int = 0


class Child(NamedTuple):
    """A part of a job that isn't a job of its own, such as an iteration. source_state: the state as
    its own system calls it; times: None where they aren't known; details: what else that system
    says of it."""

    name: str
    iteration: int | None
    state: str
    source_state: str
    exit_code: int | None
    signal: int
    started_ns: int | None
    ended_ns: int | None
    nodes: int
    cores: int
    details: Json


class ChildChange(NamedTuple):
    """A change of a child's state. source_from, source_to: as its own system calls them; "" before
    the first one."""

    time_ns: int
    child: str
    from_state: str
    to_state: str
    source_from: str
    source_to: str


class Allocation(NamedTuple):
    """Nodes that were given to jobs for a time. id: unique in the store; scheduler_id: the
    scheduler's number, "" without one; started_ns, ended_ns: None while it waits, and while it
    runs; details: what else is known."""

    id: str
    origin: str
    scheduler_id: str
    state: str
    nodes: int
    started_ns: int | None
    ended_ns: int | None
    details: Json


@dataclass(frozen=True)
class Capture:
    """One capture of a job: an attempt's, step's and task's output. ledger: its account of lines,
    settled where the capture died; columns, rows: of the terminal; tty: False where pipes took its
    place; nodes: that the job has, as its scheduler says, 0 where nobody does."""

    capture: int
    attempt: int
    step: str
    task: int
    host: str
    state: str
    exit_code: int | None
    signal: int
    started_ns: int
    ended_ns: int | None
    mode: str
    reason: str
    ledger: Json
    columns: int
    rows: int
    tty: bool
    nodes: int = 0


class Position(NamedTuple):
    """A line's place in what was read so far: `lines(after=...)` goes on behind it, with late
    arrivals, none twice.

    Read are the blocks up to base, and of those up to mark what isn't later than (time_ns, block).
    """

    base: int
    mark: int
    time_ns: int
    block: int


class LogLine(NamedTuple):
    """A final line. text: without its LF; attrs: `n`, `repeat`, `part` where they apply; capture:
    its number."""

    position: Position
    time_ns: int
    stream: Stream
    kind: Kind
    text: str
    attrs: Mapping[str, Any]  # Any: JSON
    attempt: int
    capture: int


class MetadataRecord(NamedTuple):
    """A metadata record. n: its number among those with the same set of keys; line: exactly as
    printed."""

    time_ns: int
    n: int
    attempt: int
    capture: int
    line: str
    stream: Stream


class RecordBlock(NamedTuple):
    """Metadata records in order of time. times: in ns; captures: their numbers, and attempts:
    theirs; text: the lines, with an LF between them."""

    times: Sequence[int]
    captures: Sequence[int]
    attempts: Mapping[int, int]
    text: str


class JobEvent(NamedTuple):
    time_ns: int
    event: Json
    attempt: int
    capture: int


class JobEventFilter(NamedTuple):
    """Which events of a job, and in which order: of an attempt (None: all); of these names, all
    where there are none; from begin_ns on and before end_ns, 0 for no limit."""

    attempt: int | None = None
    names: Collection[str] = ()
    newest_first: bool = False
    begin_ns: int = 0
    end_ns: int = 0

    def has(self, event: JobEvent) -> bool:
        return (
            (self.attempt is None or event.attempt == self.attempt)
            and (not self.names or event.event.get("event") in self.names)
            and event.time_ns >= self.begin_ns
            and (not self.end_ns or event.time_ns < self.end_ns)
        )

    def merged(self, told: Iterable[JobEvent], silent: Iterable[JobEvent]) -> Iterator[JobEvent]:
        """In the order that is asked for. told: in that order already, and only those that are
        asked for."""
        key = attrgetter("time_ns")
        ordered = sorted(filter(self.has, silent), key=key)
        if self.newest_first:
            return heapq.merge(reversed(ordered), told, key=key, reverse=True)
        return heapq.merge(told, ordered, key=key)


@dataclass(frozen=True)
class IngestOutcome:
    """What ingesting came to. complete: all that was spooled is in the store; problems: a sentence
    each."""

    complete: bool
    problems: list[str]


def derived_state(
    state: str, heartbeat_ns: int, now_ns: int, after_ns: int = UNRESPONSIVE_NS
) -> str:
    """RUNNING becomes UNRESPONSIVE where the last sign of life is longer ago than after_ns.
    heartbeat_ns: 0 where none is sent."""
    return (
        UNRESPONSIVE
        if state == RUNNING and heartbeat_ns and now_ns - heartbeat_ns > after_ns
        else state
    )


def heartbeat_lost() -> Json:
    """The event of a capture that has given no sign of life for UNRESPONSIVE_NS: that much after
    the last one."""
    return {
        "event": HEARTBEAT_LOST,
        "message": f"no heartbeat for {UNRESPONSIVE_NS // 10**9} seconds",
    }


def worst_state(states: list[str]) -> str:
    """The state of several captures that ran together: running while one runs, queued while one
    is, then the worst end."""
    for state in (RUNNING, UNRESPONSIVE, QUEUED):
        if state in states:
            return state
    return max(states, key=lambda state: SLURM_STATES.index(state) if state in SLURM_STATES else -1)
