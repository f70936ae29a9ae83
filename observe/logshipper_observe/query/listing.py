"""Which jobs of a store are listed, and in what order: shared by `ls`, other commands and the
library.

Conditions on properties and tags come first: the metadata of a job that they leave out is never
read.
"""

import fnmatch
import re
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper_observe.model.overlay import NO_MARKS, JobKey, Overlay
from logshipper_observe.model.properties import MISSING, Field, JobRow
from logshipper_observe.query.columns import sort_key
from logshipper_observe.query.conditions import Condition
from logshipper_observe.query.selectors import WILDCARDS, pick

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import Store


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs. selectors: as in selectors, empty for all; states: empty for any; name: a part of
    it, or a pattern; conditions: all must hold; sort: None for newest first; reverse: the other way
    round."""

    selectors: Sequence[str] = ()
    states: Sequence[str] = ()
    name: str = ""
    conditions: Sequence[Condition] = ()
    sort: Field | None = None
    reverse: bool = False

    @property
    def is_costly(self) -> bool:
        """Whether a condition needs jobs' metadata."""
        return not all(condition.field.cheap for condition in self.conditions)

    @property
    def orders(self) -> bool:
        return self.sort is not None or self.reverse


class Listing:
    """The jobs of a store, as they are now.

    jobs: all of them, newest first; unknown: an error for each selector that stands for none.
    """

    def __init__(self, store: "Store", overlay: Overlay, asked: JobQuery) -> None:
        self.jobs = store.jobs()
        self.unknown: list[UnknownJob] = []
        self._store = store
        self._marks = overlay.all()
        self._asked = asked
        self._now_ns = time.time_ns()

    def rows(self) -> Generator[JobRow]:
        """Those that are asked for, each when it is its turn."""
        found = self._matching()
        if not self._asked.orders:
            yield from found
            return
        rows = list(found)
        sort = self._asked.sort
        if sort is not None:
            # what isn't there stays last, and equal ones newest first, also backwards: Python's
            # sort is stable
            values = {id(row): sort.get(row) for row in rows}
            absent = [row for row in rows if values[id(row)] in (MISSING, None)]
            present = [row for row in rows if values[id(row)] not in (MISSING, None)]
            present.sort(key=lambda row: sort_key(values[id(row)]), reverse=self._asked.reverse)
            yield from (*present, *absent)
            return
        yield from reversed(rows)

    def row(self, job: "JobSummary") -> JobRow:
        marks = (
            self._marks.get(JobKey(job.job_id, job.cluster), NO_MARKS) if self._marks else NO_MARKS
        )
        return JobRow(job, marks, self._now_ns, self._store.key_values)

    def _matching(self) -> Iterator[JobRow]:
        asked = self._asked
        cheap = [condition for condition in asked.conditions if condition.field.cheap]
        costly = [condition for condition in asked.conditions if not condition.field.cheap]
        for job in self._named():
            row = self.row(job)
            if all(condition.holds(row) for condition in cheap) and all(
                condition.holds(row) for condition in costly
            ):
                yield row

    def _named(self) -> "Iterator[JobSummary]":
        asked, jobs = self._asked, self.jobs
        if asked.selectors:
            picked = pick(asked.selectors, jobs, all_named=True)
            self.unknown = picked.unknown
            chosen = {(job.cluster, job.job_id) for job in picked.jobs}
            jobs = [job for job in jobs if (job.cluster, job.job_id) in chosen]
        if asked.states:
            jobs = [job for job in jobs if job.state in asked.states]
        if asked.name:
            wanted = asked.name.lower()
            pattern = wanted if any(mark in wanted for mark in WILDCARDS) else f"*{wanted}*"
            matches = re.compile(fnmatch.translate(pattern)).match
            jobs = [job for job in jobs if matches(job.name.lower())]
        return iter(jobs)
