"""Which jobs, tasks and iterations the names stand for that `info` and `status` are asked for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from ingest.capture.job import JobSummary
from logshipper.errors import UnknownJob
from observe.imported_info import child_of
from observe.job_info import MAX_CHILDS, JobInfo, group_of, info_of
from observe.selectors import iterations_of, resolve_each

if TYPE_CHECKING:
    from ingest.store.stores import Store

T = TypeVar("T")


class Found(dict[str, T]):
    """What was found, by the names that were asked; a job of a range or a pattern by its id. unknown: an error for each
    name that stands for none."""

    def __init__(self) -> None:
        super().__init__()
        self.unknown: list[UnknownJob] = []


def infos(store: "Store", names: Iterable[str], resolve: Callable[[str], str], now_ns: int) -> Found[JobInfo]:
    """Of jobs, tasks' jobs by their common name, ranges and patterns; what is unknown stops nothing."""
    found: Found[JobInfo] = Found()
    jobs = cache(store.jobs)  # of Loki they are asked for once
    for name in names:
        try:
            own = _of_id(store, resolve(name), now_ns)
        except UnknownJob as error:
            _add_others(found, store, name, error, jobs(), now_ns)
        else:
            found[name] = own if name in (own.job_id, "last") else _with_iterations(store, name, own, jobs(), now_ns)
    return found


def _add_others(
    found: Found[JobInfo], store: "Store", name: str, error: UnknownJob, jobs: Sequence[JobSummary], now_ns: int
) -> None:
    """Of a name that isn't one job's: iterations that have it in common, one of an imported job, a range, a pattern."""
    members = _members(store, name, jobs, now_ns)
    if members:
        found[name] = group_of(name, members)
        return
    parent, colon, number = name.rpartition(":")
    job = next((job for job in jobs if job.children and parent in (job.job_id, job.name)), None) if colon else None
    if job is not None and number.isascii() and number.isdigit():
        with store.open(job.job_id) as reader:
            child = child_of(info_of(reader, now_ns), reader, int(number))
        if child is not None:
            found[name] = child
            return

    def resolve(_: str) -> str:
        raise error

    ids, unknown = resolve_each([name], resolve, lambda: jobs)
    found.unknown += unknown
    found.update({job_id: _of_id(store, job_id, now_ns) for job_id in ids})


def _with_iterations(store: "Store", name: str, own: JobInfo, jobs: Sequence[JobSummary], now_ns: int) -> JobInfo:
    """own: the job that the name stands for, perhaps only by the beginning of its id."""
    members = _members(store, name, jobs, now_ns)
    if not members:
        return own
    group = group_of(name, members)
    return replace(own, childs=group.childs, iterations=group.iterations) if own.name == name else group


def _members(store: "Store", name: str, jobs: Sequence[JobSummary], now_ns: int) -> list[tuple[int, JobInfo]]:
    """Jobs that are called NAME:i, and those that were imported as parts of that job."""
    parents = {job.job_id for job in jobs if job.name == name}
    own = iterations_of(name, jobs)
    parts = [job for job in reversed(jobs) if job.parent and job.parent in parents]
    own += [(at if job.iteration is None else job.iteration, job) for at, job in enumerate(parts)]
    return [(number, _of_id(store, job.job_id, now_ns)) for number, job in own[:MAX_CHILDS]]


def _of_id(store: "Store", job_id: str, now_ns: int) -> JobInfo:
    with store.open(job_id) as reader:
        return info_of(reader, now_ns)
