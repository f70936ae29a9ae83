"""Finds the jobs, tasks and iterations behind the names for `info` and `status`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from logshipper.errors import UnknownJob
from logshipper_observe.base.notebook import MAX_ROWS, html_table
from logshipper_observe.model import job_info
from logshipper_observe.query.selectors import iterations_of, parent_of, resolve_each

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

T = TypeVar("T")


class Found(dict[str, T]):
    """Results by the given names; for a job of a range or a pattern, by its id.

    unknown: an error for each name without a job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unknown: list[UnknownJob] = []

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        titles = ("job", "state", "name", "took", "nodes", "exit code")
        rows = [
            (name, value.status, value.name, value.time, value.total_nodes, value.exit_code)
            if isinstance(value, job_info.JobInfo)
            else (name, value)
            for name, value in islice(self.items(), MAX_ROWS + 1)
        ]
        unknown = ", ".join(map(str, self.unknown))
        return html_table(titles[: max(map(len, rows), default=2)], rows, unknown)


def infos(
    store: "JobStore",
    names: Iterable[str],
    resolve: Callable[[str], str],
    now_ns: int,
    *,
    children: bool = True,
) -> Found[job_info.JobInfo]:
    """Look up jobs, tasks' jobs by their common name, ranges and patterns; unknown names stop
    nothing.

    children: False for states and sub-totals only.
    """
    lookup = _Lookup(store, now_ns, children=children)
    for name in names:
        try:
            info = lookup.of_id(resolve(name))
        except UnknownJob as error:
            lookup.add_group_or_matches(name, error)
        else:
            lookup.infos[name] = (
                info if name in (info.job_id, "last") else lookup.with_iterations(name, info)
            )
    return lookup.infos


class _Lookup:
    """infos: so far."""

    def __init__(self, store: "JobStore", now_ns: int, *, children: bool) -> None:
        self.infos: Found[job_info.JobInfo] = Found()
        self._store = store
        self._now_ns = now_ns
        self._children = children
        self._jobs = cache(store.jobs)  # one request to Loki

    def of_id(self, job_id: str) -> job_info.JobInfo:
        with self._store.open(job_id) as reader:
            return job_info.info_of(reader, self._now_ns, children=self._children)

    def add_group_or_matches(self, name: str, error: UnknownJob) -> None:
        """Add a name that is no single job's: iterations with this common name, one of an imported
        job, a range, a pattern."""
        info = self._group(name) or self._child(name)
        if info is not None:
            self.infos[name] = info
            return

        def resolve(_: str) -> str:
            raise error

        ids, unknown = resolve_each([name], resolve, self._jobs)
        self.infos.unknown += unknown
        self.infos.update({job_id: self.of_id(job_id) for job_id in ids})

    def with_iterations(self, name: str, info: job_info.JobInfo) -> job_info.JobInfo:
        """Return the info with its iterations. info: of the job with this name, or a beginning of
        its id."""
        group = self._group(name)
        if group is None:
            return info
        if info.name != name:
            return group
        return replace(info, children=group.children, iterations=group.iterations)

    def _child(self, name: str) -> job_info.JobInfo | None:
        """One task or iteration of a job, by NAME:i."""
        parent = parent_of(name, self._jobs())
        if parent is None:
            return None
        job, number = parent
        with self._store.open(job.job_id) as reader:
            if job.origin:
                return job_info.child_of(
                    job_info.info_of(reader, self._now_ns, children=False), reader, number
                )
            tasks = job_info.info_of(reader, self._now_ns).children
            return next((task for task in tasks if task.iteration == number), None)

    def _group(self, name: str) -> job_info.JobInfo | None:
        """Return the group of jobs called NAME:i, and of imported parts of that job."""
        jobs = self._jobs()
        parents = {job.job_id for job in jobs if job.name == name}
        members = iterations_of(name, jobs)
        parts = [
            job
            for job in reversed(jobs)
            if job.parent and (job.parent in parents or _is_called(job.parent, name))
        ]
        for at, job in enumerate(parts):
            members.append((at if job.iteration is None else job.iteration, job))
        if not members:
            return None
        if not self._children:
            group = job_info.group_of(
                name, [(at, job_info.brief(job, self._now_ns)) for at, job in members]
            )
            return replace(group, children=())
        group = job_info.group_of(
            name, [(at, self.of_id(job.job_id)) for at, job in members[: job_info.MAX_CHILDREN]]
        )
        return replace(group, iterations=job_info.totals([job.state for _, job in members]))


def _is_called(job_id: str, name: str) -> bool:
    """Return whether an imported job, present or not, had this name: its id ends with it."""
    return f"-{job_id}".endswith(f"-{name}")
