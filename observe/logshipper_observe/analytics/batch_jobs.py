"""Allocations: the nodes that jobs had, from when until when. `logshipper.BatchJob`, queried as
Balsam's is."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from logshipper_observe.analytics.analytics import is_running
from logshipper_observe.api.event_log import EventLog, StateEvent, StoreOpener, texts_of
from logshipper_observe.api.job_api import _moment
from logshipper_observe.api.lazy_answers import LazyAnswers
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.words import RUNNING_STATES, STATES, state_of

if TYPE_CHECKING:
    from logshipper_observe.api.job_api import Job

NO_ALLOCATION = "no allocation of these jobs is known: the system that ran them told of none"
_LAST = datetime.max.replace(tzinfo=UTC)  # of waiting ones


@dataclass(frozen=True, slots=True)
class BatchJob:
    """An allocation: a run of a captured job on its nodes, or an imported allocation."""

    objects: ClassVar["_Objects"]

    id: str
    scheduler_id: str  # the scheduler's number, which is a captured job's id
    attempt: int
    state: str
    num_nodes: int | None  # None: not known
    start_time: datetime | None  # UTC; None while it waits
    end_time: datetime | None  # UTC; None while it runs, or if unknown
    name: str
    user: str
    project: str  # the account
    queue: str  # the partition
    cluster: str
    tags: Mapping[str, str] = field(default_factory=dict)  # the reader's own

    @property
    def is_running(self) -> bool:
        return is_running(self.state)

    @staticmethod
    def over(store: Store) -> "AllocationQuery":
        """Return the allocations of an open store."""
        return AllocationQuery(lambda: nullcontext(store), AllocationFilter())


@dataclass(frozen=True, slots=True)
class AllocationFilter:
    """A selection of allocations. Empty collections select all."""

    ids: Sequence[str] = ()
    job_ids: Sequence[str] = ()  # jobs that are allocations, or ran in them
    tags: Mapping[str, str] = field(default_factory=dict)
    states: Sequence[str] = ()
    project: str = ""
    queue: str = ""
    newest_first: bool = True

    def has(self, allocation: BatchJob) -> bool:
        return (
            (not self.ids or allocation.id in self.ids or allocation.scheduler_id in self.ids)
            and (not self.states or allocation.state in self.states)
            and self.project in ("", allocation.project)
            and self.queue in ("", allocation.queue)
        )


class AllocationQuery(LazyAnswers[BatchJob]):
    """Allocations of a store, the newest begin first; read again in each pass."""

    _TITLES = ("id", "state", "nodes", "started (UTC)", "ended (UTC)", "user", "queue", "name")

    def __init__(self, open_store: StoreOpener, criteria: AllocationFilter) -> None:
        self._open_store = open_store
        self._criteria = criteria

    def filter(
        self,
        *,
        id: "str | int | Sequence[str | int]" = (),
        scheduler_id: "str | int | Sequence[str | int]" = (),
        job_id: "str | int | Sequence[str | int]" = (),
        filter_tags: "Mapping[str, str] | None" = None,
        state: "str | Sequence[str]" = (),
        project: str | None = None,
        queue: str | None = None,
    ) -> "AllocationQuery":
        """Return the allocations that meet all conditions.

        id, scheduler_id: one or several; job_id: those that these jobs are, or ran in; filter_tags:
        all must match, "" for any value; state: one or several, such as `running` and `finished`;
        project, queue: account, partition.
        """
        criteria = self._criteria
        states = [name for text in texts_of(state) for name in _states(text)]
        return AllocationQuery(
            self._open_store,
            replace(
                criteria,
                ids=[*texts_of(id), *texts_of(scheduler_id)] or criteria.ids,
                job_ids=texts_of(job_id) or criteria.job_ids,
                tags={**criteria.tags, **(filter_tags or {})},
                states=states or criteria.states,
                project=criteria.project if project is None else project,
                queue=criteria.queue if queue is None else queue,
            ),
        )

    def all(self) -> "AllocationQuery":
        return self

    def order_by(self, field: str) -> "AllocationQuery":
        """`start_time`: the one that began first is first; `-start_time`: last, as without it."""
        if field not in ("start_time", "-start_time"):
            fields = "`start_time` or `-start_time`"
            raise ValueError(f"allocations are ordered by {fields}, not by {field!r}")
        criteria = replace(self._criteria, newest_first=field.startswith("-"))
        return AllocationQuery(self._open_store, criteria)

    def _read(self) -> Iterator[BatchJob]:
        with self._open_store() as store:
            allocations = list(filter(self._criteria.has, _allocations(store, self._criteria)))
        newest_first = self._criteria.newest_first
        yield from sorted(allocations, key=lambda a: a.start_time or _LAST, reverse=newest_first)

    def _cells(self, item: BatchJob) -> Sequence[object]:
        times = (item.start_time, item.end_time)
        began, ended = (None if time is None else f"{time:%Y-%m-%d %H:%M:%S}" for time in times)
        return item.id, item.state, item.num_nodes, began, ended, item.user, item.queue, item.name


class _Objects:
    """`BatchJob.objects`: of the store that the environment names; opened again for each query."""

    def __get__(self, instance: object, owner: type) -> AllocationQuery:
        return AllocationQuery(Store.default, AllocationFilter())


BatchJob.objects = _Objects()


def _allocations(store: Store, criteria: AllocationFilter) -> Iterator[BatchJob]:
    tags = [f"{name}={value}" if value else name for name, value in criteria.tags.items()]
    jobs = {
        (job.summary.cluster, job.job_id): job
        for job in store.jobs(tags=tags)
        if not criteria.job_ids or job.job_id in criteria.job_ids
    }
    of_jobs = {job.summary.allocation for job in jobs.values()} - {""}
    yield from _imported_allocations(store, criteria, of_jobs)
    ids = [*criteria.ids, *criteria.job_ids]
    runs: dict[tuple[str, str, int], list[StateEvent]] = {}
    for event in EventLog(store).filter(tags=criteria.tags, job_id=ids).order_by("timestamp"):
        run = event.cluster, event.job_id, event.data.get("attempt", 1)
        runs.setdefault(run, []).append(event)
    for (cluster, job_id, attempt), events in runs.items():
        start = next((event for event in events if is_running(event.to_state)), None)
        job = jobs.get((cluster, job_id))
        if start is None or job is None:  # never ran; or it came between the two questions
            continue
        if job.summary.origin or job.summary.allocation:  # a part of an allocation
            continue
        ends = [e for e in events if is_running(e.from_state) and not is_running(e.to_state)]
        yield _allocation(job, attempt, start, ends[-1] if ends else None)


def _imported_allocations(
    store: Store, criteria: AllocationFilter, of_jobs: Collection[str]
) -> Iterator[BatchJob]:
    """of_jobs: the allocations that the jobs ran in that have the tags and ids."""
    for allocation in store._store.allocations():
        details = allocation.details
        tags = details.get("filter_tags")
        has_tags = not criteria.tags or _has_tags(tags, criteria.tags)
        if allocation.id not in of_jobs and (criteria.job_ids or not has_tags):
            continue
        yield BatchJob(
            id=allocation.id,
            scheduler_id=allocation.scheduler_id,
            attempt=1,
            state=state_of(allocation.state),
            num_nodes=allocation.nodes or None,
            start_time=None if allocation.started_ns is None else _moment(allocation.started_ns),
            end_time=None if allocation.ended_ns is None else _moment(allocation.ended_ns),
            name=str(details.get("name") or allocation.id),
            user=str(details.get("user") or ""),
            project=str(details.get("project") or ""),
            queue=str(details.get("queue") or ""),
            cluster="",
            tags=tags if isinstance(tags, dict) else {},
        )


def _has_tags(tags: object, tag_filter: Mapping[str, str]) -> bool:
    return isinstance(tags, dict) and all(
        name in tags and value in ("", str(tags[name])) for name, value in tag_filter.items()
    )


def _allocation(job: "Job", attempt: int, start: StateEvent, end: StateEvent | None) -> BatchJob:
    summary = job.summary
    return BatchJob(
        id=job.job_id,
        scheduler_id=job.job_id,
        attempt=attempt,
        state=job.state if end is None else end.to_state,
        num_nodes=start.data.get("num_nodes"),
        start_time=start.timestamp,
        end_time=None if end is None else end.timestamp,
        name=job.name,
        user=summary.user,
        project=summary.account,
        queue=summary.partition,
        cluster=summary.cluster,
        tags=job.tags,
    )


def _states(text: str) -> Sequence[str]:
    """Balsam's `running` and `finished` of a batch job, and all that jobs have."""
    name = state_of(text)
    if name == "FINISHED":
        return [state for state in STATES if state not in RUNNING_STATES]
    return RUNNING_STATES if name == "RUNNING" else [name]
