"""The list of jobs and their last values, for all threads of the server."""

import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import UnknownJob
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.metadata_keys import plain_name
from logshipper_ingest.store.job_list import JobList, states_of
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.graphs.families import rank_of
from logshipper_observe.model.overlay import NO_MARKS, Marks
from logshipper_observe.model.records import flat
from logshipper_observe.page.data.job_values import ValueCache
from logshipper_observe.query.opening import overlay_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

MAX_LISTED = 1_000
_VALUES = 5  # of a job's last record, the most telling ones
_VALUE_CHARS = 60
_KEPT_SECS = 5.0  # for a list of an unchanged store: heartbeats age
_SERVER_SECS = 3.0  # between two queries of a server
_KEPT_LAST = 2_000
_FACT_FIELDS = [field.name for field in fields(JobSummary) if field.name != "heartbeat_ns"]


class Listing(NamedTuple):
    """The jobs and marks of a store."""

    signature: object  # of the store, None for a server
    time: float  # of reading, monotonic
    newest: Sequence[JobSummary]  # at most MAX_LISTED
    total: int
    states: Counter[str]
    marks: Mapping[JobKey, Marks]

    def marks_of(self, job: JobSummary) -> Marks:
        return self.marks.get(job.key, NO_MARKS) if self.marks else NO_MARKS


class JobListing:
    """The newest listing of a store, and its jobs' last values."""

    def __init__(self) -> None:
        self.values = ValueCache()
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._all: tuple[Listing, Sequence[JobSummary]] | None = None
        self._last: OrderedDict[str, tuple[tuple[int, int], list[list[str]]]] = OrderedDict()

    def of(self, store: "JobStore | None") -> Listing:
        """Return the listing, read again if the store has changed or the listing is old."""
        if store is None:
            return Listing(None, 0.0, (), 0, Counter(), {})
        with self._lock:
            signature, now = _signature(store), time.monotonic()
            listing = self._listing
            max_age_secs = _SERVER_SECS if signature is None else _KEPT_SECS
            is_old = listing is not None and now - listing.time > max_age_secs
            if listing is None or is_old or signature != listing.signature:
                jobs = store.jobs()
                newest, states = jobs[:MAX_LISTED], states_of(jobs)
                marks = overlay_of(store).all()
                listing = Listing(signature, now, newest, states.total(), states, marks)
                self._listing = listing
                self._all = None if isinstance(jobs, JobList) else (listing, jobs)
            return listing

    def all(self, listing: Listing, store: "JobStore | None") -> Sequence[JobSummary]:
        """Return all jobs, newest first. Slow for large stores."""
        if store is None or len(listing.newest) == listing.total:
            return listing.newest
        with self._lock:
            if self._all is None or self._all[0] is not listing:
                self._all = listing, store.jobs()[:]
            return self._all[1]

    def last(self, job: JobSummary, store: "JobStore") -> list[list[str]]:
        """Return the first keys of a job's newest record, with their values."""
        with self._lock:
            entry = self._last.get(job.job_id)
        state = job.started_ns, job.records
        if entry is not None and entry[0] == state:
            return entry[1]
        values: list[list[str]] = []
        if job.records:
            try:
                with store.open(job.job_id) as reader:
                    newest = next(reader.records(newest_first=True), None)
            except UnknownJob:
                newest = None
            pairs = flat(newest.keyed_line) if newest else {}
            named = [(plain_name(path), value) for path, value in pairs.items()]
            named.sort(key=lambda pair: rank_of(pair[0]))
            values = [
                [name[:_VALUE_CHARS], value[:_VALUE_CHARS]] for name, value in named[:_VALUES]
            ]
        with self._lock:
            self._last[job.job_id] = state, values
            while len(self._last) > _KEPT_LAST:
                self._last.popitem(last=False)
        return values


def _signature(store: "JobStore") -> object:
    """Return a value that changes with the list of the store's jobs, None for a server."""
    if not isinstance(store, LocalStore):
        return None
    stamps: list[tuple[int, int, int] | None] = []
    for name in ("catalogue.db", "catalogue.db-wal", "overlay.db", "overlay.db-wal"):
        try:
            status = os.stat(os.path.join(store.root, name))
            stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            stamps.append(None)
    return stamps


def facts_of(summary: JobSummary) -> list[object]:
    """Return the facts whose change is visible: a heartbeat alone changes nothing."""
    return [getattr(summary, name) for name in _FACT_FIELDS]
