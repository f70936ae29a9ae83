"""Tasks of a store's jobs, for `observe.task_analytics`: what was captured of them, and what their scheduler told."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingest.capture.job import JOB_ENDED
from observe.store_api import Store
from observe.task_analytics import Task
from observe.words import NS

if TYPE_CHECKING:
    from ingest.capture.job import Capture
    from ingest.store.stores import Reader


def tasks_of(reader: "Reader") -> Iterator[Task]:
    """A task for each attempt of a job: on the nodes where it was captured, from the first capture's start to the last
    one's end; when it was launched and over, as its scheduler told it, to the second."""
    attempts: dict[int, list[Capture]] = {}
    for capture in reader.captures:
        attempts.setdefault(capture.attempt, []).append(capture)
    told = {found.attempt: found.event for found in reader.events() if found.event.get("event") == JOB_ENDED}
    for attempt, captures in sorted(attempts.items()):
        end = told.get(attempt, {})
        ends = [capture.ended_ns for capture in captures if capture.ended_ns is not None]
        yield Task(
            name=reader.summary.job_id,
            start=min(capture.started_ns for capture in captures) / NS,
            end=max(ends) / NS if len(ends) == len(captures) else None,
            cores={capture.host: () for capture in captures if capture.host},
            launched=_secs(end.get("started_ns")),
            finished=_secs(end.get("ended_ns")),
        )


def tasks_of_jobs(store: Store, **which: Any) -> Iterator[Task]:  # Any: as Store.jobs has them
    """The tasks of the jobs that `store.jobs` lists. which: its options."""
    for job in store.jobs(**which):
        with job._reader() as reader:
            yield from tasks_of(reader)


def _secs(time_ns: object) -> float | None:
    return time_ns / NS if isinstance(time_ns, int) and time_ns > 0 else None
