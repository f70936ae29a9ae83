"""Selects and sorts a store's jobs, for `ls`, other commands and the library.

Conditions on properties and tags come first, so that excluded jobs' metadata is never read.
"""

import argparse
import fnmatch
import re
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper_ingest.store.job_list import states_of
from logshipper_observe.model.overlay import NO_MARKS, Overlay
from logshipper_observe.model.properties import MISSING, Field, JobRow
from logshipper_observe.query.columns import sort_key
from logshipper_observe.query.conditions import Condition, parse_condition, tag_condition
from logshipper_observe.query.selectors import WILDCARDS, pick

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A selection of jobs, and their order."""

    selectors: Sequence[str] = ()  # as in selectors, empty for all
    states: Sequence[str] = ()  # empty for any
    name: str = ""  # a part of it, or a pattern
    conditions: Sequence[Condition] = ()  # all must hold
    sort: Field | None = None  # None for newest first
    reverse: bool = False  # reversed order

    @property
    def is_costly(self) -> bool:
        """Whether a condition needs jobs' metadata."""
        return not all(condition.field.cheap for condition in self.conditions)

    @property
    def selects(self) -> bool:
        """Whether it may leave out jobs."""
        return bool(self.selectors or self.states or self.name or self.conditions)

    @property
    def orders(self) -> bool:
        return self.sort is not None or self.reverse


def selection_of(args: argparse.Namespace) -> JobQuery:
    """Return the selection of a command's options. Raises UsageError."""
    conditions = [*map(parse_condition, args.filter or ()), *map(tag_condition, args.tag or ())]
    return JobQuery(args.jobs, args.state or (), args.name or "", conditions)


class Listing:
    """The jobs of a store, as of now.

    jobs: all of them, newest first; unknown: an error for each selector without a job.
    """

    def __init__(self, store: "JobStore", overlay: Overlay, query: JobQuery) -> None:
        self.jobs = store.jobs()
        self.unknown: list[UnknownJob] = []
        self._store = store
        self._marks = overlay.all()
        self._query = query
        self._now_ns = time.time_ns()

    def rows(self) -> Generator[JobRow]:
        """Those that the query fits, each when it is its turn."""
        matches = self._matching()
        if not self._query.orders:
            yield from matches
            return
        rows = list(matches)
        sort = self._query.sort
        if sort is None:
            yield from reversed(rows)
            return
        # missing values stay last, and equal ones newest first, also in reverse: Python's sort is
        # stable
        values = {id(row): sort.get(row) for row in rows}
        absent = [row for row in rows if values[id(row)] in (MISSING, None)]
        present = [row for row in rows if values[id(row)] not in (MISSING, None)]
        present.sort(key=lambda row: sort_key(values[id(row)]), reverse=self._query.reverse)
        yield from (*present, *absent)

    def states(self) -> Counter[str] | None:
        """Count the matching jobs by state, if this needs no job's metadata; else None."""
        query = self._query
        if query.selectors or query.name or query.conditions:
            return None
        states = states_of(self.jobs)
        return Counter({state: states[state] for state in query.states or states})

    def row(self, job: "JobSummary") -> JobRow:
        marks = self._marks.get(job.key, NO_MARKS) if self._marks else NO_MARKS
        return JobRow(job, marks, self._now_ns, self._store.key_values)

    def _matching(self) -> Iterator[JobRow]:
        conditions = sorted(self._query.conditions, key=lambda condition: not condition.field.cheap)
        for job in self._selected_jobs():
            row = self.row(job)
            if all(condition.holds(row) for condition in conditions):
                yield row

    def _selected_jobs(self) -> "Iterator[JobSummary]":
        query = self._query
        jobs: Iterable[JobSummary] = self.jobs
        if query.selectors:
            picks = pick(query.selectors, self.jobs, all_named=True)
            self.unknown = picks.unknown
            keys = {(job.cluster, job.job_id) for job in picks.jobs}
            jobs = (job for job in jobs if (job.cluster, job.job_id) in keys)
        if query.states:
            jobs = (job for job in jobs if job.state in query.states)
        if query.name:
            name = query.name.lower()
            pattern = name if any(mark in name for mark in WILDCARDS) else f"*{name}*"
            matches = re.compile(fnmatch.translate(pattern)).match
            jobs = (job for job in jobs if matches(job.name.lower()))
        return iter(jobs)
