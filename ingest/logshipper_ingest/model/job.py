"""Plain values about a job, shared by writers and readers of stores."""

import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from logshipper.config import JSON
from logshipper.spool.captures import LIMIT_MAX_SECS
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.capture_id import JobKey, Source
from logshipper_ingest.model.metadata_keys import line_by_origin

Json: TypeAlias = dict[str, Any]  # Any: JSON objects that jobs' captures wrote

# valid names of a job's id, a host and a cluster
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UNRESPONSIVE_NS = 20 * 10**9  # running, and no sign of life for longer, where its segments are
# the same in Loki: the agent sends a sign every 10 s, and shipping takes its time
SHIPPED_UNRESPONSIVE_NS = 60 * 10**9
MAX_NODES = 1_000_000  # of a job: larger numbers are errors
RUNNING = "RUNNING"
UNRESPONSIVE = "UNRESPONSIVE"
QUEUED = "QUEUED"  # of imported jobs only: a capture begins when its job runs
UNKNOWN = "UNKNOWN"  # over, with an unknown end: an imported log without a history
OPEN_STATES = (QUEUED, RUNNING, UNRESPONSIVE)  # of a job before its end
# a capture's
END_STATES = (
    "COMPLETED", "FAILED", "CANCELLED", "KILLED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "PREEMPTED",
)  # fmt: skip
# as Slurm has them, and KILLED, by how bad they are: of captures that ran together the worst counts, here and
# on Grafana's pages. REQUEUED: this run is over, another one follows
SLURM_STATES = (
    "COMPLETED", "CANCELLED", "PREEMPTED", "REQUEUED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "KILLED", "FAILED",
    "NODE_FAIL", "BOOT_FAIL",
)  # fmt: skip
JOB_ENDED = "job_ended"  # the event that says how Slurm ended a job
STATE_CHANGED = "state"  # the event of an imported job: from `from` to `to`, in its system's states
HEARTBEAT = "heartbeat"  # an event, and its kind in Loki: most events are, and are seldom read
STARTED, STILL_RUNNING, ENDED, CLOSED = "started", "still_running", "ended", "closed"
MARKS = (STARTED, HEARTBEAT, STILL_RUNNING, ENDED, CLOSED)  # events that a store makes itself
STILL_RUNNING_SECS = 45 * 60  # interval of these events of a capture
EVENT_KINDS = ("event", HEARTBEAT)
HEARTBEAT_LOST, HEARTBEAT_FOUND = "heartbeat_lost", "heartbeat_found"
# events that change a job's state, besides start and end
HISTORY = (STATE_CHANGED, HEARTBEAT_LOST, HEARTBEAT_FOUND)


def job_shard(job_id: str) -> str:
    """Return the label that separates a job's lines from most others of its node: the last digit of
    its id, or `x`.

    It follows from the id, also in dashboards (PromQL).
    """
    return job_id[-1] if job_id[-1:] in frozenset("0123456789") else "x"


def limit_secs_of(facts: Json) -> int:
    """Return a job's time limit from the record of a capture's start; 0 without a valid one."""
    limit = facts.get("limit_secs")
    return limit if type(limit) is int and 0 < limit <= LIMIT_MAX_SECS else 0


@dataclass(frozen=True)
class JobSummary:
    """One job. State, exit code, times, host and mode are those of its newest attempt; lines
    (stored), records, lost and bytes are of all attempts. Times are nanoseconds since 1970."""

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
    heartbeat_ns: int  # 0 without heartbeats
    mode: str
    lines: int
    records: int
    lost: int
    bytes_printed: int
    bytes_logged: int
    reason: str = ""  # explains some states
    cluster: str = ""  # "" in a local store
    account: str = ""  # the scheduler's, "" without one
    partition: str = ""  # likewise
    origin: str = ""  # the system of an imported job (qcg, balsam, xt), "" for captured ones
    parent: str = ""  # the id of the job that this one is a part of
    iteration: int | None = None  # which part
    nodes: int = 0  # as the scheduler says, and at least those that it ran on; 0: not known
    cores: int = 0  # 0 if unknown
    packing: int = 1  # such jobs per node
    allocation: str = ""  # the id of the one it ran in
    children: int = 0  # parts that are no separate jobs
    children_finished: int = 0  # how many of them are over
    children_failed: int = 0  # how many of these without success
    # events besides start and end that changed the job's state, 0 without any
    first_change_ns: int = 0
    last_change_ns: int = 0
    limit_secs: int = 0  # the newest attempt's time limit, 0 if unknown

    @property
    def key(self) -> JobKey:
        return JobKey(self.job_id, self.cluster)


class Child(NamedTuple):
    """A part of a job that is no separate job, such as an iteration."""

    name: str
    iteration: int | None
    state: str
    source_state: str  # the state as its own system calls it
    exit_code: int | None
    signal: int
    started_ns: int | None  # None if unknown
    ended_ns: int | None  # likewise
    nodes: int
    cores: int
    details: Json  # more data of its system


class ChildChange(NamedTuple):
    """A change of a child's state."""

    time_ns: int
    child: str
    from_state: str
    to_state: str
    source_from: str  # as the child's own system calls it; "" before the first change
    source_to: str  # likewise


class Allocation(NamedTuple):
    """Nodes given to jobs for a time."""

    id: str  # unique in the store
    origin: str
    scheduler_id: str  # the scheduler's number, "" without one
    state: str
    nodes: int
    started_ns: int | None  # None while it waits
    ended_ns: int | None  # None while it waits or runs
    details: Json  # more data


@dataclass(frozen=True)
class Capture:
    """One capture of a job: an attempt's, step's and task's output."""

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
    ledger: Json  # its account of lines, settled where the capture died
    columns: int  # of the terminal
    rows: int  # likewise
    tty: bool  # False where pipes took its place
    nodes: int = 0  # by the scheduler; 0 if unknown
    limit_secs: int = 0  # the job's time limit, likewise

    @property
    def source(self) -> Source:
        return Source(self.attempt, self.step, self.task)


class Position(NamedTuple):
    """A line's place in a reader's progress: `lines(after=...)` continues behind it, with late
    arrivals and without repeats.

    The reader has read the blocks up to base; of those up to mark, it has read lines up to
    (time_ns, block).
    """

    base: int
    mark: int
    time_ns: int
    block: int


class LogLine(NamedTuple):
    """A final line."""

    position: Position
    time_ns: int
    stream: Stream
    kind: Kind
    text: str  # without its LF
    attrs: Mapping[str, Any]  # `n`, `repeat`, `part`, `origin` if they apply; Any: JSON
    attempt: int
    capture: int  # its number


class MetadataRecord(NamedTuple):
    """A metadata record."""

    time_ns: int
    n: int  # its number among those with the same set of keys
    attempt: int
    capture: int
    line: str  # as printed, or built from the numbers of a line in another format
    stream: Stream
    # its origin: `json`, `dict`, `pairs`, the name of a pattern, or `auto` for a series
    origin: str = JSON

    @property
    def keyed_line(self) -> str:
        """Its line as the paths of keys see it: those of a series lie below AUTO_ROOT."""
        return line_by_origin(self.line, self.origin)


class RecordBlock(NamedTuple):
    """Metadata records in order of time."""

    times: Sequence[int]  # ns
    captures: Sequence[int]  # each record's capture's number
    attempts: Mapping[int, int]  # by capture's number
    text: str  # the lines as paths of keys see them, with an LF between them
    origins: Sequence[str]  # each record's, as in MetadataRecord


class JobEvent(NamedTuple):
    time_ns: int
    event: Json
    attempt: int
    capture: int


class JobEventFilter(NamedTuple):
    """A selection of a job's events, and their order."""

    attempt: int | None = None  # None: of all
    names: Collection[str] = ()  # empty: all
    newest_first: bool = False
    begin_ns: int = 0  # first time, 0 for no limit
    end_ns: int = 0  # before then, 0 for no limit

    def has(self, event: JobEvent) -> bool:
        return (
            (self.attempt is None or event.attempt == self.attempt)
            and (not self.names or event.event.get("event") in self.names)
            and event.time_ns >= self.begin_ns
            and (not self.end_ns or event.time_ns < self.end_ns)
        )

    def merge(self, events: Iterable[JobEvent], silent: Iterable[JobEvent]) -> Iterator[JobEvent]:
        """All that pass the filter, in its order. events: in that order already, and only those
        that pass; silent: in any."""
        key = attrgetter("time_ns")
        ordered = sorted(filter(self.has, silent), key=key)
        if self.newest_first:
            return heapq.merge(reversed(ordered), events, key=key, reverse=True)
        return heapq.merge(events, ordered, key=key)


class LineQuery(NamedTuple):
    """A selection of a job's lines."""

    kinds: frozenset[Kind]
    streams: frozenset[Stream]
    attempt: int | None = None  # None: of all


class RecordQuery(NamedTuple):
    """A selection of a job's metadata records, and their order."""

    attempt: int | None = None  # None: of all
    newest_first: bool = False
    begin_ns: int = 0  # first time, 0 for no limit
    end_ns: int = 0  # before then, 0 for no limit


@dataclass(frozen=True)
class IngestOutcome:
    """The outcome of ingesting. complete: all that was spooled is in the store; problems: a
    sentence each."""

    complete: bool
    problems: list[str]


def derived_state(
    state: str, heartbeat_ns: int, now_ns: int, after_ns: int = UNRESPONSIVE_NS
) -> str:
    """Return UNRESPONSIVE for a RUNNING job whose last sign of life is older than after_ns.

    heartbeat_ns: 0 without heartbeats.
    """
    is_silent = state == RUNNING and heartbeat_ns and now_ns - heartbeat_ns > after_ns
    return UNRESPONSIVE if is_silent else state


def heartbeat_lost() -> Json:
    """The event of a capture that has given no sign of life for UNRESPONSIVE_NS: that much after
    the last one."""
    message = f"no heartbeat for {UNRESPONSIVE_NS // 10**9} seconds"
    return {"event": HEARTBEAT_LOST, "message": message}


def worst_state(states: list[str]) -> str:
    """The state of several captures that ran together: running while one runs, queued while one
    is, then the worst end."""
    for state in (RUNNING, UNRESPONSIVE, QUEUED):
        if state in states:
            return state
    return max(states, key=lambda state: SLURM_STATES.index(state) if state in SLURM_STATES else -1)
