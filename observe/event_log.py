"""Changes of jobs' states, and what jobs themselves tell: `observe.EventLog`, queried as Balsam's is.

Read lazily: jobs are merged by the newest (or oldest) time that an event of theirs can have, and one that ran once,
its heartbeat never late, is not opened for its changes: its summary tells the two. What was asked of the last event is
all that is read.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, overload

from ingest.capture.job import (
    HEARTBEAT_FOUND,
    HEARTBEAT_LOST,
    STATE_CHANGED,
    UNRESPONSIVE,
    Capture,
    JobEvent,
    JobSummary,
    worst_state,
)
from logshipper.commands import USER_EVENT
from logshipper.errors import StoreError, UnknownJob
from observe.job_states import QUEUED, Silence, fits, is_stale, silences, told_changes
from observe.store_api import Store
from observe.words import NS, RUNNING_STATES

if TYPE_CHECKING:
    from ingest.store.stores import Reader

Opened: TypeAlias = Callable[[], AbstractContextManager[Store]]

_NEVER_NS = 1 << 62
_LATE_NS = 3600 * NS  # how long after its last sign of life a job's event may be told, by its scheduler
RUNNING, REQUEUED = "RUNNING", "REQUEUED"


@dataclass(frozen=True, slots=True)
class StateEvent:
    """A job's change from one state to another; both are "" for its other events. id: the same whenever it is read;
    time_ns: nanoseconds since 1970; kind: `state`, else the event's name, such as `heartbeat_lost`, `mode_changed`,
    `lines_lost`, `user_event`; message: a sentence, of changes "" but for a late heartbeat; data: attempt, and at an
    end exit_code, signal, reason; of a user's event just what the user gave; of others all that they say."""

    id: str
    job_id: str
    time_ns: int
    from_state: str
    to_state: str
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    name: str = ""
    cluster: str = ""
    kind: str = STATE_CHANGED
    message: str = ""

    @property
    def timestamp(self) -> datetime:
        """In UTC, to the microsecond."""
        return datetime.fromtimestamp(self.time_ns // NS, UTC).replace(microsecond=self.time_ns % NS // 1000)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events. Empty collections and None are for any."""

    ids: Collection[str] = ()
    job_ids: Collection[str] = ()
    allocations: Collection[str] = ()
    kinds: Collection[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    from_state: str | None = None
    to_state: str | None = None
    before_ns: int | None = None
    after_ns: int | None = None
    own: bool = False
    newest_first: bool = True

    @property
    def asks_own(self) -> bool:
        """Whether events that are no changes of states may fit."""
        return self.own and self.from_state is None and self.to_state is None

    def has(self, event: StateEvent) -> bool:
        return (
            (not self.ids or event.id in self.ids)
            and (not self.kinds or event.kind in self.kinds or (STATE_CHANGED in self.kinds and bool(event.to_state)))
            and fits(self.from_state, event.from_state, event.to_state)
            and fits(self.to_state, event.to_state, event.from_state)
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
        scheduler_id: "str | int | Sequence[str | int]" = (),
        batch_job_id: "str | int | Sequence[str | int]" = (),
        kind: "str | Sequence[str]" = (),
        tags: "Mapping[str, str] | None" = None,
        data: "Mapping[str, Any] | None" = None,
        from_state: str | None = None,
        to_state: str | None = None,
        timestamp_before: datetime | None = None,
        timestamp_after: datetime | None = None,
        own: bool | None = None,
    ) -> "EventQuery":
        """Only events that all of this fits. id, job_id, kind: one or several; scheduler_id, batch_job_id: the
        allocation that the job is, or ran in: of a job of Slurm's its number, which is its id; tags: all must match,
        "" for any value; data: each key there with this value, objects likewise; from_state, to_state: also as Balsam,
        QCG-PilotJob and XT call them; timestamp_before, timestamp_after: that time included, UTC unless it has a zone;
        own: not only changes of states, which a kind implies. What is given once more takes the former's place, but
        tags and data come together."""
        wanted = self._wanted
        kinds = _texts(kind) or wanted.kinds
        of_others = any(one != STATE_CHANGED for one in kinds)
        return EventQuery(
            self._opened,
            replace(
                wanted,
                ids=_texts(id) or wanted.ids,
                job_ids=_texts(job_id) or wanted.job_ids,
                allocations=[*_texts(scheduler_id), *_texts(batch_job_id)] or wanted.allocations,
                kinds=kinds,
                tags={**wanted.tags, **(tags or {})},
                data={**wanted.data, **(data or {})},
                from_state=wanted.from_state if from_state is None else from_state,
                to_state=wanted.to_state if to_state is None else to_state,
                before_ns=wanted.before_ns if timestamp_before is None else _ns(timestamp_before),
                after_ns=wanted.after_ns if timestamp_after is None else _ns(timestamp_after),
                own=own if own is not None else wanted.own or of_others,
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


# ---- a store's events in order of time


def _events(store: Store, wanted: Wanted) -> Iterator[StateEvent]:
    """Merged lazily: a job is opened when the next event may be one of its own."""
    sign = -1 if wanted.newest_first else 1
    tags = [f"{name}={value}" if value else name for name, value in wanted.tags.items()]
    waiting = []
    for number, job in enumerate(store.jobs(tags=tags)):
        if wanted.job_ids and job.job_id not in wanted.job_ids:
            continue
        if wanted.allocations and job.job_id not in wanted.allocations:
            continue
        earliest_ns, latest_ns = _bounds(job.summary, own=wanted.asks_own)
        if (wanted.after_ns or 0) > latest_ns or (wanted.before_ns is not None and wanted.before_ns < earliest_ns):
            continue
        bound = latest_ns if wanted.newest_first else earliest_ns
        waiting.append((sign * bound, number, job))
    heapq.heapify(waiting)
    ready: list[tuple[int, int, int, StateEvent]] = []
    while waiting or ready:
        while waiting and (not ready or waiting[0][0] <= ready[0][0]):
            _, number, job = heapq.heappop(waiting)
            for place, event in enumerate(_of_job(job.summary, job._reader, store.problems, own=wanted.asks_own)):
                if wanted.has(event):
                    heapq.heappush(ready, (sign * event.time_ns, number, sign * place, event))
        if ready:
            yield heapq.heappop(ready)[3]


def _bounds(job: JobSummary, *, own: bool) -> tuple[int, int]:
    """No event of the job is before the first time, or after the second, unless its clock went back."""
    if _is_plain(job) and not own:
        return job.started_ns, max(job.ended_ns or 0, job.started_ns)
    earliest_ns = min(job.first_change_ns or job.started_ns, job.started_ns) if job.attempts == 1 else 0
    if job.state in RUNNING_STATES:
        return earliest_ns, _NEVER_NS
    latest_ns = max(job.ended_ns or 0, job.started_ns, job.heartbeat_ns, job.last_change_ns)
    return earliest_ns, latest_ns + (_LATE_NS if own else 0)


def _is_plain(job: JobSummary) -> bool:
    """Whether all changes of its state are in its summary."""
    return job.attempts == 1 and not job.last_change_ns and job.state != UNRESPONSIVE


def _of_job(job: JobSummary, opened: "Callable[[], Reader]", problems: list[str], *, own: bool) -> list[StateEvent]:
    """In order of time. Of a job that is damaged, or was removed meanwhile, what its summary tells."""
    if own or not _is_plain(job):
        try:
            with opened() as reader:
                return events_of(job, reader, own=own)
        except UnknownJob:
            pass
        except StoreError as error:
            problems.append(str(error))
    return list(_changes(job, [(job.attempts, job.started_ns, job.ended_ns, job.state, _end_data(job))], {}))


def events_of(job: JobSummary, reader: "Reader", *, own: bool = True) -> list[StateEvent]:
    """What happened to a job, in order of time. own: not only changes of its state."""
    captures: list[Capture] = list(reader.captures)
    told = list(reader.events())
    attempts: dict[int, list[Capture]] = {}
    for capture in captures:
        attempts.setdefault(capture.attempt, []).append(capture)
    found = list(_told_changes(job, told))
    used: set[int] = set()
    if not found:
        runs = [_run(job, number, attempts[number], max(attempts)) for number in sorted(attempts)]
        silent = {number: list(silences(of, _of_attempt(told, number))) for number, of in attempts.items()}
        found = list(_changes(job, runs, silent))
        used = {id(one.told) for of in silent.values() for one in of if one.told is not None}
    if own:
        left = (one for one in told if id(one) not in used and one.event.get("event") != STATE_CHANGED)
        # in this order: at equal times an end comes after what was told before it
        found = [*_own_events(job, (one for one in left if not is_stale(one, captures))), *found]
    return sorted(found, key=lambda event: event.time_ns)


def _of_attempt(events: Iterable[JobEvent], attempt: int) -> Iterator[JobEvent]:
    return (event for event in events if event.attempt == attempt)


_Run: TypeAlias = tuple[int, int, int | None, str, dict[str, Any]]  # Any: JSON


def _run(job: JobSummary, number: int, captures: Sequence[Capture], newest: int) -> _Run:
    """An attempt: its number, begin, end, state and how it came out."""
    if number == newest:
        return number, job.started_ns, job.ended_ns, job.state, _end_data(job)
    state = worst_state([capture.state for capture in captures])
    worst = next(capture for capture in captures if capture.state == state)
    ends = [capture.ended_ns for capture in captures if capture.ended_ns is not None]
    begin_ns = min(capture.started_ns for capture in captures)
    return number, begin_ns, max(ends) if ends else None, state, _end_data(worst)


def _end_data(outcome: JobSummary | Capture) -> dict[str, Any]:  # Any: JSON
    return {"exit_code": outcome.exit_code, "signal": outcome.signal, "reason": outcome.reason}


def _changes(job: JobSummary, runs: Iterable[_Run], silent: Mapping[int, Sequence[Silence]]) -> Iterator[StateEvent]:
    """Of a restart two: back into the queue, and running again. An attempt whose end nobody saw has none. silent: by
    attempt. None is before the one that it follows, whatever the clock did."""
    last_ns = 0

    def event(time_ns: int, before: str, after: str, data: dict[str, Any], more: str = "") -> StateEvent:  # Any: JSON
        nonlocal last_ns
        last_ns = max(last_ns, time_ns)
        its_id = f"{job.cluster}/{job.job_id}/{data['attempt']}/{after}{more}".lstrip("/")
        return StateEvent(its_id, job.job_id, last_ns, before, after, data, job.name, job.cluster)

    before = QUEUED
    for number, begin_ns, end_ns, state, outcome in runs:
        if before not in (QUEUED, REQUEUED):
            yield event(begin_ns, before, REQUEUED, {"attempt": number})
            before = REQUEUED
        yield event(begin_ns, before, RUNNING, {"attempt": number})
        before = RUNNING
        is_over = end_ns is not None and state not in RUNNING_STATES
        for one in silent.get(number, ()):
            after = UNRESPONSIVE if one.is_lost else RUNNING
            if after != before and not (is_over and one.time_ns > (end_ns or 0)):
                facts = {"attempt": number, **(one.told.event if one.told else {})}
                changed = event(one.time_ns, before, after, facts, f"/{one.time_ns}")
                kind = HEARTBEAT_LOST if one.is_lost else HEARTBEAT_FOUND
                yield replace(changed, kind=kind, message=str(facts.get("message", "")))
                before = after
        if is_over:
            yield event(max(end_ns or 0, begin_ns), before, state, {"attempt": number, **outcome})
            before = state


def _told_changes(job: JobSummary, events: Iterable[JobEvent]) -> Iterator[StateEvent]:
    """Of an imported job, in its own system's words."""
    for place, change in enumerate(told_changes(events), start=1):
        its_id = f"{job.cluster}/{job.job_id}/state/{place}".lstrip("/")
        data = {name: value for name, value in change.event.event.items() if name not in ("event", "from", "to")}
        states = change.before, change.after
        yield StateEvent(its_id, job.job_id, change.time_ns, *states, data, job.name, job.cluster)


def _own_events(job: JobSummary, events: Iterable[JobEvent]) -> Iterator[StateEvent]:
    seen: Counter[str] = Counter()
    for found in events:
        kind, message = str(found.event.get("event", "")), str(found.event.get("message", ""))
        its_id = f"{job.cluster}/{job.job_id}/{kind}/{found.time_ns}".lstrip("/")
        seen[its_id] += 1
        its_id += f"/{seen[its_id]}" if seen[its_id] > 1 else ""
        data = {**found.event, "attempt": found.attempt, "capture": found.capture}
        given = found.event.get("data")
        if kind == USER_EVENT and isinstance(given, dict):
            data = given
        yield StateEvent(its_id, job.job_id, found.time_ns, "", "", data, job.name, job.cluster, kind, message)


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
