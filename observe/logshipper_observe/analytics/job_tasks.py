"""Tasks of a store's jobs, for `task_analytics`: from captures, and from their schedulers' reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from logshipper_ingest.imports.qcg import parse_allocation
from logshipper_ingest.model.job import JOB_ENDED, QUEUED, STATE_CHANGED
from logshipper_observe.analytics.task_analytics import Task
from logshipper_observe.api.event_log import StateEvent
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.words import NS, RUNNING_STATES
from logshipper_observe.model.job_events import REQUEUED

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Capture, Json
    from logshipper_ingest.model.stores import History
    from logshipper_observe.api.job_api import Job

_WAITING = (QUEUED, REQUEUED)
_STATES = ("from", "to", "source_to")  # of an event
_SCHEDULED = "SCHEDULED"  # QCG-PilotJob's state of tasks with their cores


class _Change(NamedTuple):
    time_ns: int
    before: str
    after: str
    source: str


def tasks_of(reader: "History") -> Iterator[Task]:
    """Yield a task for each attempt of a captured job, or for each run of an imported job or of its
    children.

    A captured attempt has the nodes of its captures, from the first start to the last end; its
    scheduler reports launch and end, to the second. Imported tasks have their jobs' names, and
    their system's reports.
    """
    return _imported_tasks(reader) if reader.summary.origin else _captured_tasks(reader)


def tasks_until(reader: "History", until: float) -> Iterator[Task]:
    """Yield the same tasks, but running ones end at `until`, in seconds since 1970.

    Only the last attempt of a captured job may run.
    """
    tasks = list(tasks_of(reader))
    if reader.summary.state not in RUNNING_STATES:
        yield from tasks
        return
    last = 0 if reader.summary.origin else len(tasks) - 1
    for number, task in enumerate(tasks):
        runs = number >= last and task.start is not None and task.end is None
        yield replace(task, end=max(until, task.start or until)) if runs else task


def tasks_of_jobs(store: Store, **which: Any) -> Iterator[Task]:  # Any: as Store.jobs has them
    """The tasks of the jobs that `store.jobs` lists. which: its options."""
    jobs = [job.summary for job in store.jobs(**which)]
    open_history = store._histories(jobs)
    for job in jobs:
        with open_history(job) as reader:
            yield from tasks_of(reader)


def events_of_children(job: "Job") -> Iterator[StateEvent]:
    """Yield changes of state of a job's children, each as a separate job; their parent does not
    run."""
    summary = job.summary
    with job._reader() as reader:
        nodes = {child.name: child.nodes for child in reader.children()}
        for place, change in enumerate(reader.child_changes(), start=1):
            data: dict[str, Any] = {
                "source_from": change.source_from,
                "source_to": change.source_to,
            }
            if change.to_state in RUNNING_STATES and nodes.get(change.child):
                data["num_nodes"] = nodes[change.child]
            event_id = f"{summary.cluster}/{job.job_id}/child/{place}".lstrip("/")
            child_id = f"{job.job_id}/{change.child}"
            states = change.from_state, change.to_state
            yield StateEvent(
                event_id, child_id, change.time_ns, *states, data, change.child, summary.cluster
            )


def _captured_tasks(reader: "History") -> Iterator[Task]:
    attempts: dict[int, list[Capture]] = {}
    for capture in reader.captures:
        attempts.setdefault(capture.attempt, []).append(capture)
    end_events = {event.attempt: event.event for event in reader.events(names=(JOB_ENDED,))}
    for attempt, captures in sorted(attempts.items()):
        end = end_events.get(attempt, {})
        ends = [capture.ended_ns for capture in captures if capture.ended_ns is not None]
        yield Task(
            name=reader.summary.job_id,
            start=min(capture.started_ns for capture in captures) / NS,
            end=max(ends) / NS if len(ends) == len(captures) else None,
            cores={capture.host: () for capture in captures if capture.host},
            launched=_secs(end.get("started_ns")),
            finished=_secs(end.get("ended_ns")),
            queued=_secs(end.get("submitted_ns")),
        )


def _imported_tasks(reader: "History") -> Iterator[Task]:
    job = reader.summary
    changes = [
        _Change(job_event.time_ns, *(str(job_event.event.get(name)) for name in _STATES))
        for job_event in reader.events(names=(STATE_CHANGED,))
    ]
    if not job.children:
        yield from _runs(job.name, changes, reader.details(), job.host)
        return
    child_details = {child.name: child.details for child in reader.children()}
    # stable: each one's stay in order of time
    child_changes = sorted(reader.child_changes(), key=lambda change: change.child)
    for name, group in groupby(child_changes, key=lambda change: change.child):
        of_child = [
            _Change(change.time_ns, change.from_state, change.to_state, change.source_to)
            for change in group
        ]
        yield from _runs(name, of_child, child_details.get(name, {}), "")


def _runs(name: str, changes: Iterable[_Change], details: "Json", host: str) -> Iterator[Task]:
    """Yield a task from each change to RUNNING to the next end, or until now; without any, a task
    that never ran."""
    cores: Mapping[str, Sequence[str]] = parse_allocation(str(details.get("allocation") or ""))
    cores = cores or ({host: ()} if host else {})
    secs = details.get("run_secs")
    scheduled: float | None = None
    start: float | None = None
    queued: float | None = None
    ran = False
    for change in changes:
        time = change.time_ns / NS
        ran_before, runs = change.before in RUNNING_STATES, change.after in RUNNING_STATES
        if queued is None and change.after in _WAITING and change.source != _SCHEDULED:
            queued = time
        if change.source == _SCHEDULED:
            scheduled = time
        elif runs and not ran_before:
            start, ran = time, True
        elif ran_before and not runs and start is not None:
            yield Task(name, start, time, cores, scheduled, start, run_secs=secs, queued=queued)
            start = scheduled = None  # the next run's are others
            queued = time if change.after in _WAITING else None
    if start is not None or not ran:
        yield Task(name, start, None, cores, scheduled, start, queued=queued)


def _secs(time_ns: object) -> float | None:
    return time_ns / NS if isinstance(time_ns, int) and time_ns > 0 else None
