"""Events of jobs: `logshipper.EventLog`, with Balsam's queries.

It reads lazily: jobs are merged by the newest (or oldest) possible time of an event. The summary of
a job with one run and no late heartbeat has its two changes, so it stays closed. Reading stops at
the last requested event.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from logshipper_ingest.model.job import STATE_CHANGED, JobSummary
from logshipper_observe.api.lazy_answers import LazyAnswers
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.words import NS
from logshipper_observe.model.job_events import (
    EventSelection,
    StateEvent,
    bounds,
    is_read,
    read_events,
)
from logshipper_observe.model.job_states import fits

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import History

__all__ = ["EventLog", "EventQuery", "StateEvent"]

MAX_AT_ONCE = 1_000  # events of a job: only of one that has more its file stays open
MAX_OPEN = 32  # jobs open at a time
StoreOpener: TypeAlias = Callable[[], AbstractContextManager[Store]]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A selection of events. Empty collections and None select all."""

    ids: Collection[str] = ()
    job_ids: Collection[str] = ()
    scheduler_ids: Collection[str] = ()
    batch_job_ids: Collection[str] = ()
    kinds: Collection[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    from_state: str | None = None
    to_state: str | None = None
    before_ns: int | None = None
    after_ns: int | None = None
    other_events: bool = False  # not only changes of states
    newest_first: bool = True

    @property
    def asks_other_events(self) -> bool:
        """Whether other events than changes of state may match."""
        return self.other_events and self.from_state is None and self.to_state is None

    @property
    def selection(self) -> EventSelection:
        """Return the selection for each job."""
        bounds_ns = self.after_ns or 0, 0 if self.before_ns is None else self.before_ns + 1
        return EventSelection(self.asks_other_events, self.newest_first, self.kinds, *bounds_ns)

    def has(self, event: StateEvent) -> bool:
        return (
            (not self.ids or event.id in self.ids or (event.source_id or None) in self.ids)
            and (
                not self.kinds
                or event.kind in self.kinds
                or (STATE_CHANGED in self.kinds and bool(event.to_state))
            )
            and fits(self.from_state, event.from_state, event.to_state)
            and fits(self.to_state, event.to_state, event.from_state)
            and (self.before_ns is None or event.time_ns <= self.before_ns)
            and (self.after_ns is None or event.time_ns >= self.after_ns)
            and _contains(event.data, self.data)
        )


class EventQuery(LazyAnswers[StateEvent]):
    """Events of a store, read again in each pass; `query[:10]` and `query[3]` read no further than
    needed."""

    _TITLES = ("time (UTC)", "job", "kind", "from", "to", "message", "data")

    def __init__(self, open_store: StoreOpener, criteria: EventFilter) -> None:
        self._open_store = open_store
        self._criteria = criteria

    def filter(
        self,
        *,
        id: "str | int | Sequence[str | int]" = (),
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
        """Return the events that meet all conditions.

        id: also an imported job's number in its own system (`source_id`); id, job_id, kind: one or
        several; scheduler_id, batch_job_id: the allocation that the job is, or ran in (a Slurm
        job's number, which is its id; an imported job's name at the scheduler, or in its own
        system); tags: all must match, "" for any value; data: each key with this value, objects
        likewise; from_state, to_state: also by names of Balsam, QCG-PilotJob and XT;
        timestamp_before, timestamp_after: inclusive, UTC without a zone; own: includes other events
        than changes of state, as a kind does. A repeated condition replaces the earlier one; tags
        and data accumulate.
        """
        criteria = self._criteria
        kinds = texts_of(kind) or criteria.kinds
        has_other_kinds = any(name != STATE_CHANGED for name in kinds)
        return EventQuery(
            self._open_store,
            replace(
                criteria,
                ids=texts_of(id) or criteria.ids,
                job_ids=texts_of(job_id) or criteria.job_ids,
                scheduler_ids=texts_of(scheduler_id) or criteria.scheduler_ids,
                batch_job_ids=texts_of(batch_job_id) or criteria.batch_job_ids,
                kinds=kinds,
                tags={**criteria.tags, **(tags or {})},
                data={**criteria.data, **(data or {})},
                from_state=criteria.from_state if from_state is None else from_state,
                to_state=criteria.to_state if to_state is None else to_state,
                before_ns=criteria.before_ns if timestamp_before is None else _ns(timestamp_before),
                after_ns=criteria.after_ns if timestamp_after is None else _ns(timestamp_after),
                other_events=own if own is not None else criteria.other_events or has_other_kinds,
            ),
        )

    def all(self) -> "EventQuery":
        """Return the same events, for Balsam's users."""
        return self

    def order_by(self, field: str) -> "EventQuery":
        """`timestamp`: oldest first; `-timestamp`: newest first, as without it."""
        if field not in ("timestamp", "-timestamp"):
            raise ValueError(f"events are ordered by `timestamp` or `-timestamp`, not by {field!r}")
        criteria = replace(self._criteria, newest_first=field.startswith("-"))
        return EventQuery(self._open_store, criteria)

    def get(self, **conditions: Any) -> StateEvent:  # Any: as filter has them
        """Return the only event that meets all conditions. Raises LookupError for none, or several."""
        events = self.filter(**conditions)[:2]
        if len(events) != 1:
            raise LookupError("more than one event fits" if events else "no event fits")
        return events[0]

    def _read(self) -> Iterator[StateEvent]:
        with self._open_store() as store:
            yield from _events(store, self._criteria)

    def _cells(self, item: StateEvent) -> Sequence[object]:
        time = f"{item.timestamp:%Y-%m-%d %H:%M:%S}"
        change = (item.kind, item.from_state, item.to_state)
        return time, item.job_id, *change, item.message, dict(item.data)


class _Objects:
    """`EventLog.objects`: of the store that the environment names; opened again for each query."""

    def __get__(self, instance: object, owner: type) -> EventQuery:
        return EventQuery(Store.default, EventFilter())


class EventLog:
    """Queries over jobs' events: `EventLog.objects.filter(...)` and `EventLog.objects.all()` of the
    default store, `EventLog.filter(...)` likewise, `EventLog(store).filter(...)` of an open one."""

    objects: ClassVar[_Objects] = _Objects()

    def __new__(cls, store: Store) -> EventQuery:  # type: ignore[misc]  # a query over it is all that it is for
        return EventQuery(lambda: nullcontext(store), EventFilter())

    @staticmethod
    def filter(**conditions: Any) -> EventQuery:  # Any: as EventQuery.filter has them
        return EventQuery(Store.default, EventFilter()).filter(**conditions)


# ---- a store's events in order of time


def _events(store: Store, criteria: EventFilter) -> Iterator[StateEvent]:
    """Merge lazily: opens a job when it may have the next event."""
    sign = -1 if criteria.newest_first else 1
    tags = [f"{name}={value}" if value else name for name, value in criteria.tags.items()]
    ran_in = _ran_in(store, criteria)
    queue = []
    for number, job in enumerate(store.jobs(tags=tags)):
        # of an imported job, also in its own system
        names = job.job_id, job.job_id.removeprefix(f"{job.summary.origin}-")
        is_chosen = not criteria.job_ids or any(name in criteria.job_ids for name in names)
        if not is_chosen or not ran_in(job.summary):
            continue
        earliest_ns, latest_ns = bounds(job.summary, other_events=criteria.asks_other_events)
        if (criteria.after_ns or 0) > latest_ns or (
            criteria.before_ns is not None and criteria.before_ns < earliest_ns
        ):
            continue
        bound = latest_ns if criteria.newest_first else earliest_ns
        queue.append((sign * bound, number, job.summary))
    queue.sort()
    selection = criteria.selection
    read_jobs = [job for _, _, job in queue if is_read(job, other_events=selection.other_events)]
    open_reader: Callable[[JobSummary], History] = (
        store._in_order(read_jobs) if selection.other_events else store._histories(read_jobs)
    )
    merger = _Merger(sign)
    for least, number, summary in queue:
        yield from merger.before(least)
        events = read_events(summary, partial(open_reader, summary), store.problems, selection)
        merger.add(number, filter(criteria.has, events))
    yield from merger.before(None)


class _Merger:
    """Events of several jobs, those of each in order already. sign: of times, -1 for newest
    first."""

    def __init__(self, sign: int) -> None:
        self._sign = sign
        self._next: list[tuple[int, int, StateEvent]] = []  # a heap: of each job the next one
        self._rest: dict[int, Iterator[StateEvent]] = {}
        self._read_on: set[int] = set()  # jobs that are open

    def add(self, number: int, events: Iterator[StateEvent]) -> None:
        """Add a job's events; those of small jobs stay in memory, and few large jobs stay open.
        number: of the job."""
        first = list(islice(events, None if len(self._read_on) >= MAX_OPEN else MAX_AT_ONCE))
        if len(first) == MAX_AT_ONCE and len(self._read_on) < MAX_OPEN:
            self._read_on.add(number)
        self._rest[number] = chain(first, events)
        self._push(number)

    def before(self, least: int | None) -> Iterator[StateEvent]:
        """Yield events whose signed time is less; None for all."""
        while self._next and (least is None or self._next[0][0] < least):
            _, number, event = heapq.heappop(self._next)
            yield event
            self._push(number)

    def _push(self, number: int) -> None:
        event = next(self._rest[number], None)
        if event is None:
            del self._rest[number]
            self._read_on.discard(number)
        else:
            heapq.heappush(self._next, (self._sign * event.time_ns, number, event))


def _ran_in(store: Store, criteria: EventFilter) -> Callable[[JobSummary], bool]:
    """Return a test for jobs that are, or ran in, a requested allocation."""
    if not criteria.scheduler_ids and not criteria.batch_job_ids:
        return lambda job: True
    by_scheduler, by_batch = set(), set()
    for allocation in store._store.allocations():
        if allocation.scheduler_id in criteria.scheduler_ids:
            by_scheduler.add(allocation.id)
        number = allocation.id.rpartition("-")[2]  # balsam-batch-5: 5
        if allocation.id in criteria.batch_job_ids or number in criteria.batch_job_ids:
            by_batch.add(allocation.id)
    conditions = ((criteria.scheduler_ids, by_scheduler), (criteria.batch_job_ids, by_batch))
    return lambda job: all(
        not ids or job.job_id in ids or job.allocation in allocation_ids
        for ids, allocation_ids in conditions
    )


def _contains(value: object, part: object) -> bool:
    """Return whether an object contains all of another one, values likewise."""
    if isinstance(part, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and _contains(value[name], inner) for name, inner in part.items()
        )
    return value == part and isinstance(value, bool) is isinstance(part, bool)


def texts_of(values: "str | int | Sequence[str | int]") -> list[str]:
    """Return one or several values as texts."""
    return [str(values)] if isinstance(values, str | int) else [str(value) for value in values]


def _ns(moment: datetime) -> int:
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(at.replace(microsecond=0).timestamp()) * NS + at.microsecond * 1000
