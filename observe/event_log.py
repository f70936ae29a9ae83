"""Changes of jobs' states, and what jobs themselves tell: `observe.EventLog`, queried as Balsam's is.

Read lazily: jobs are merged by the newest (or oldest) time that an event of theirs can have, and one that ran once is
never opened: its summary tells its two changes. What was asked of the last event is all that is read.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

from ingest.capture.job import Capture, JobSummary, worst_state
from ingest.capture.summary import nodes_of
from observe.store_api import Store
from observe.words import NS, RUNNING_STATES, state_of

if TYPE_CHECKING:
    from ingest.store.stores import Reader

Opened: TypeAlias = Callable[[], AbstractContextManager[Store]]

_NEVER_NS = 1 << 62
QUEUED, RUNNING, REQUEUED = "QUEUED", "RUNNING", "REQUEUED"


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A job's change from one state to another; both are "" for what a job itself told. id: the same whenever it is
    read; time_ns: nanoseconds since 1970; data: attempt, where it begins to run num_nodes, at an end exit_code, signal,
    reason; of a job's own event all that it says."""

    id: str
    job_id: str
    time_ns: int
    from_state: str
    to_state: str
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    name: str = ""
    cluster: str = ""

    @property
    def timestamp(self) -> datetime:
        """In UTC, to the microsecond."""
        return datetime.fromtimestamp(self.time_ns // NS, UTC).replace(microsecond=self.time_ns % NS // 1000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events. Empty collections and None are for any."""

    ids: Collection[str] = ()
    job_ids: Collection[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    from_state: str | None = None
    to_state: str | None = None
    before_ns: int | None = None
    after_ns: int | None = None
    own: bool = False
    newest_first: bool = True

    def has(self, event: StateEvent) -> bool:
        return (
            (not self.ids or event.id in self.ids)
            and self.from_state in (None, event.from_state)
            and self.to_state in (None, event.to_state)
            and (self.before_ns is None or event.time_ns <= self.before_ns)
            and (self.after_ns is None or event.time_ns >= self.after_ns)
            and _contains(event.data, self.data)
        )


class EventQuery:
    """Events of a store, read when they are gone through, each time anew; `query[:10]` and `query[3]` read no further
    than that."""

    def __init__(self, opened: Opened, wanted: Wanted) -> None:
        self._opened = opened
        self._wanted = wanted

    def filter(
        self,
        *,
        id: "str | Sequence[str]" = (),
        job_id: "str | int | Sequence[str | int]" = (),
        scheduler_id: "str | int | None" = None,
        tags: "Mapping[str, str] | None" = None,
        data: "Mapping[str, Any] | None" = None,
        from_state: str | None = None,
        to_state: str | None = None,
        timestamp_before: datetime | None = None,
        timestamp_after: datetime | None = None,
        own: bool | None = None,
    ) -> "EventQuery":
        """Only events that all of this fits. id, job_id: one or several; scheduler_id: Slurm's number, which is the
        job's id; tags: all must match, "" for any value; data: each key there with this value, objects likewise;
        from_state, to_state: also as Balsam, QCG-PilotJob and XT call them; timestamp_before, timestamp_after: that
        time included, UTC unless it has a zone; own: also what jobs themselves told."""
        wanted = self._wanted
        jobs = [*_texts(job_id), *_texts(scheduler_id if scheduler_id is not None else ())]
        return EventQuery(
            self._opened,
            replace(
                wanted,
                ids=_texts(id) or wanted.ids,
                job_ids=jobs or wanted.job_ids,
                tags={**wanted.tags, **(tags or {})},
                data={**wanted.data, **(data or {})},
                from_state=wanted.from_state if from_state is None else state_of(from_state),
                to_state=wanted.to_state if to_state is None else state_of(to_state),
                before_ns=wanted.before_ns if timestamp_before is None else _ns(timestamp_before),
                after_ns=wanted.after_ns if timestamp_after is None else _ns(timestamp_after),
                own=wanted.own if own is None else own,
            ),
        )

    def order_by(self, field: str) -> "EventQuery":
        """`timestamp`: oldest first; `-timestamp`: newest first, as without it."""
        if field not in ("timestamp", "-timestamp"):
            raise ValueError(f"events are ordered by `timestamp` or `-timestamp`, not by {field!r}")
        return EventQuery(self._opened, replace(self._wanted, newest_first=field.startswith("-")))

    def __iter__(self) -> Iterator[StateEvent]:
        with self._opened() as store:
            yield from _events(store, self._wanted)

    @overload
    def __getitem__(self, at: int) -> StateEvent: ...
    @overload
    def __getitem__(self, at: slice) -> list[StateEvent]: ...
    def __getitem__(self, at: int | slice) -> StateEvent | list[StateEvent]:
        """Counts from the first one; negative places aren't there."""
        if isinstance(at, slice):
            return list(islice(self, at.start, at.stop, at.step))
        found = next(islice(self, at, None), None)
        if found is None:
            raise IndexError(f"there is no event {at}")
        return found

    def count(self) -> int:
        return sum(1 for _ in self)


class _Objects:
    """`EventLog.objects`: of the store that the environment names; opened anew for each query."""

    def __get__(self, instance: object, owner: type) -> EventQuery:
        return EventQuery(Store.default, Wanted())


class EventLog:
    """Queries over jobs' events: `EventLog.objects.filter(...)` of the default store, `EventLog.filter(...)` likewise,
    `EventLog(store).filter(...)` of an open one."""

    objects: ClassVar[_Objects] = _Objects()

    def __new__(cls, store: Store) -> EventQuery:  # type: ignore[misc]  # a query over it is all that it is for
        return EventQuery(lambda: nullcontext(store), Wanted())

    @staticmethod
    def filter(**wanted: Any) -> EventQuery:  # Any: as EventQuery.filter has them
        return EventQuery(Store.default, Wanted()).filter(**wanted)


def changes_of(reader: "Reader") -> list[StateEvent]:
    """All changes of one job's state, in order of time."""
    return _of_job(reader.summary, lambda: nullcontext(reader), own=False)


# ---- a store's events in order of time


def _events(store: Store, wanted: Wanted) -> Iterator[StateEvent]:
    """Merged lazily: a job is opened when the next event may be one of its own."""
    sign = -1 if wanted.newest_first else 1
    tags = [f"{name}={value}" if value else name for name, value in wanted.tags.items()]
    waiting = []
    for number, job in enumerate(store.jobs(tags=tags)):
        if wanted.job_ids and job.job_id not in wanted.job_ids:
            continue
        earliest_ns, latest_ns = _bounds(job.summary, own=wanted.own)
        if (wanted.after_ns or 0) > latest_ns or (wanted.before_ns is not None and wanted.before_ns < earliest_ns):
            continue
        bound = latest_ns if wanted.newest_first else earliest_ns
        waiting.append((sign * bound, number, job))
    heapq.heapify(waiting)
    ready: list[tuple[int, int, int, StateEvent]] = []
    while waiting or ready:
        while waiting and (not ready or waiting[0][0] <= ready[0][0]):
            _, number, job = heapq.heappop(waiting)
            for place, event in enumerate(_of_job(job.summary, job._reader, own=wanted.own)):
                if wanted.has(event):
                    heapq.heappush(ready, (sign * event.time_ns, number, sign * place, event))
        if ready:
            yield heapq.heappop(ready)[3]


def _bounds(job: JobSummary, *, own: bool) -> tuple[int, int]:
    """No event of the job is before the first time, or after the second. What a job told may be known late."""
    earliest_ns = job.started_ns if job.attempts == 1 and not own else 0
    return earliest_ns, _NEVER_NS if own else max(job.ended_ns or 0, job.started_ns)


def _of_job(job: JobSummary, opened: "Callable[[], AbstractContextManager[Reader]]", *, own: bool) -> list[StateEvent]:
    """In order of time."""
    if job.attempts == 1 and not own:
        return list(_changes(job, [(1, job.nodes, job.started_ns, job.ended_ns, job.state, _end_data(job))]))
    with opened() as reader:
        attempts: dict[int, list[Capture]] = {}
        for capture in reader.captures:
            attempts.setdefault(capture.attempt, []).append(capture)
        found = list(_changes(job, [_run(job, number, attempts[number], max(attempts)) for number in sorted(attempts)]))
        if own:
            found += _own_events(job, reader)
    return sorted(found, key=lambda event: event.time_ns)


_Run: TypeAlias = tuple[int, int, int, int | None, str, dict[str, Any]]  # Any: JSON


def _run(job: JobSummary, number: int, captures: Sequence[Capture], newest: int) -> _Run:
    """An attempt: its number, nodes, begin, end, state and how it came out."""
    if number == newest:
        return number, job.nodes, job.started_ns, job.ended_ns, job.state, _end_data(job)
    state = worst_state([capture.state for capture in captures])
    worst = next(capture for capture in captures if capture.state == state)
    ends = [capture.ended_ns for capture in captures if capture.ended_ns is not None]
    begin_ns = min(capture.started_ns for capture in captures)
    nodes = nodes_of((capture.nodes for capture in captures), (capture.host for capture in captures))
    return number, nodes, begin_ns, max(ends) if ends else None, state, _end_data(worst)


def _end_data(outcome: JobSummary | Capture) -> dict[str, Any]:  # Any: JSON
    return {"exit_code": outcome.exit_code, "signal": outcome.signal, "reason": outcome.reason}


def _changes(job: JobSummary, runs: Iterable[_Run]) -> Iterator[StateEvent]:
    """Of a restart two: back into the queue, and running again. An attempt whose end nobody saw has none."""

    def event(time_ns: int, before: str, after: str, data: dict[str, Any]) -> StateEvent:  # Any: JSON
        its_id = f"{job.cluster}/{job.job_id}/{data['attempt']}/{after}".lstrip("/")
        return StateEvent(its_id, job.job_id, time_ns, before, after, data, job.name, job.cluster)

    before = QUEUED
    for number, nodes, begin_ns, end_ns, state, outcome in runs:
        if before not in (QUEUED, REQUEUED):
            yield event(begin_ns, before, REQUEUED, {"attempt": number})
            before = REQUEUED
        yield event(begin_ns, before, RUNNING, {"attempt": number, **({"num_nodes": nodes} if nodes else {})})
        before = RUNNING
        if end_ns is not None and state not in RUNNING_STATES:
            yield event(max(end_ns, begin_ns), RUNNING, state, {"attempt": number, **outcome})
            before = state


def _own_events(job: JobSummary, reader: "Reader") -> Iterator[StateEvent]:
    for place, found in enumerate(reader.events(), start=1):
        data = {**found.event, "attempt": found.attempt, "capture": found.capture}
        its_id = f"{job.cluster}/{job.job_id}/event/{place}".lstrip("/")
        yield StateEvent(its_id, job.job_id, found.time_ns, "", "", data, job.name, job.cluster)


def _contains(value: object, wanted: object) -> bool:
    """Whether an object has all that another one has, each value likewise."""
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and _contains(value[name], inner) for name, inner in wanted.items()
        )
    return value == wanted and isinstance(value, bool) is isinstance(wanted, bool)


def _texts(values: "str | int | Sequence[str | int]") -> list[str]:
    return [str(values)] if isinstance(values, str | int) else [str(value) for value in values]


def _ns(moment: datetime) -> int:
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    whole = int(at.replace(microsecond=0).timestamp())
    return whole * NS + at.microsecond * 1000
