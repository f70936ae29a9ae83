"""`api/jobs`, the list; `api/last`, the last values of some; `api/jobs/ID`, what the head of a
job's page shows."""

import fnmatch
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import orjson

from logshipper.errors import LogshipperError, UnknownJob
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.store.job_list import JobList, states_of
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.words import exit_words
from logshipper_observe.model.documents import (
    STREAM_NAMES,
    Document,
    capture_document,
    duration_secs,
    job_document,
    moment,
)
from logshipper_observe.model.ledger import ledger_of
from logshipper_observe.model.masked_values import masked_values, masked_words
from logshipper_observe.model.missed_tasks import missed_tasks
from logshipper_observe.model.overlay import NO_MARKS, Marks
from logshipper_observe.model.records import flat
from logshipper_observe.page.answers import (
    Ask,
    PageAnswer,
    RequestRefusal,
    json_answer,
    tagged_answer,
)
from logshipper_observe.page.job_values import (
    MAX_COLUMNS,
    START,
    UNASKED_COLUMNS,
    ValueCache,
    cells_of,
    in_order,
    offer_of,
)
from logshipper_observe.query.opening import overlay_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

MAX_LISTED = 1_000
MAX_LAST = 50  # jobs whose last values are asked for at once
_VALUES = 6  # of a job's last record that are listed
_VALUE_CHARS = 60
_NAME_CHARS = 300  # of a column
_KEPT_SECS = 5.0  # a list whose store hasn't changed; the age of heartbeats counts, too
_ASKED_SECS = 3.0  # at least between two lists of a server's
_KEPT_LAST = 2_000
_FACT_FIELDS = [field.name for field in fields(JobSummary) if field.name != "heartbeat_ns"]
SORTS: dict[str, Callable[[JobSummary, int], int | float | str]] = {
    "started": lambda job, _: job.started_ns,
    "name": lambda job, _: job.name.casefold(),
    "state": lambda job, _: job.state,
    "took": duration_secs,
    "lines": lambda job, _: job.lines,
    "records": lambda job, _: job.records,
}


class Listing(NamedTuple):
    """A store's jobs and marks, as they were when the store had this signature."""

    signature: object  # None for a server's
    read: float  # when, by the monotonic clock
    newest: Sequence[JobSummary]  # MAX_LISTED at most
    total: int
    states: Counter[str]
    marks: Mapping[JobKey, Marks]


class JobsPage:
    """The list that was read last, and last values, for all threads of the server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._all: tuple[Listing, Sequence[JobSummary]] | None = None  # where all were asked for
        self.values = ValueCache()
        self._last: OrderedDict[str, tuple[tuple[int, int], list[list[str]]]] = OrderedDict()

    def of(self, store: "JobStore | None") -> Listing:
        """Read again where the store has changed; a server is asked now and then."""
        if store is None:
            return Listing(None, 0.0, (), 0, Counter(), {})
        with self._lock:
            signature, now = _signature(store), time.monotonic()
            listing = self._listing
            max_age_secs = _ASKED_SECS if signature is None else _KEPT_SECS
            if (
                listing is None
                or signature != listing.signature
                or now - listing.read > max_age_secs
            ):
                jobs = store.jobs()
                newest, states = jobs[:MAX_LISTED], states_of(jobs)
                marks = overlay_of(store).all()
                listing = Listing(signature, now, newest, states.total(), states, marks)
                self._listing = listing
                self._all = None if isinstance(jobs, JobList) else (listing, jobs)
            return listing

    def all(self, listing: Listing, store: "JobStore | None") -> Sequence[JobSummary]:
        """All jobs, newest first: of many it takes a while."""
        if store is None or len(listing.newest) == listing.total:
            return listing.newest
        with self._lock:
            if self._all is None or self._all[0] is not listing:
                self._all = listing, store.jobs()[:]
            return self._all[1]

    def last(self, job: JobSummary, store: "JobStore") -> list[list[str]]:
        """The first keys of a job's newest record and their values."""
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
            if newest is not None:
                pairs = list(flat(newest.line).items())[:_VALUES]
                values = [
                    [".".join(path)[:_VALUE_CHARS], value[:_VALUE_CHARS]] for path, value in pairs
                ]
        with self._lock:
            self._last[job.job_id] = state, values
            while len(self._last) > _KEPT_LAST:
                self._last.popitem(last=False)
        return values


def _signature(store: "JobStore") -> object:
    """Changes when a list of the store's jobs does; None for a store that can't show that."""
    if not isinstance(store, LocalStore):
        return None
    names = ("catalogue.db", "catalogue.db-wal", "overlay.db", "overlay.db-wal")
    return [_stamp(os.path.join(store.root, name)) for name in names]


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_mtime_ns, status.st_size, status.st_ino


def jobs(ask: Ask) -> PageAnswer:
    """Jobs, as `ls --json` has them. `q`: in their names, ids, users, hosts, tags or notes, `*` and
    `?` as in a shell; `state`: several, joined by commas; `tag`: `word` or `key=value`;
    `starred=1`; `sort`: one of SORTS or a column, `ascending=1`; `limit`; `columns`: a JSON list of
    names (job_values.py), without it those in which the jobs differ. cells: of each job, by
    column; offer: what columns there are; complete: all of them were read, else ask again."""
    now_ns = time.time_ns()
    store = ask.store.get()
    listing = ask.shelf.listing.of(store)
    values = ask.shelf.listing.values
    limit = ask.number("limit", 100, maximum=MAX_LISTED)
    matches, matching = _matches(ask, listing, limit)
    page_jobs, complete = _sorted(ask, matches, now_ns)
    page_jobs = page_jobs[:limit]
    names = _column_names(ask)
    # a server sends all records of a job for its values: only where they are asked for
    if store is not None and (names is not None or isinstance(store, LocalStore)):
        complete = values.read(page_jobs, store) and complete
    offer = offer_of([values.of(job) for job in page_jobs])
    if names is None:
        names = offer.differing[:UNASKED_COLUMNS] if len(page_jobs) > 1 else []
    columns = [values.field(name) for name in names]
    cells = [cells_of(columns, values.row(job, _marks(listing, job), now_ns)) for job in page_jobs]
    document = {
        "place": ask.store.intake.place,
        "problems": ask.store.intake.problems,
        "total": listing.total,
        "matching": matching,
        "states": listing.states,
        "tags": sorted({word for marks in listing.marks.values() for word in marks.tag_words()})[
            :MAX_LISTED
        ],
        "columns": [{"name": name, "title": name.removeprefix(START)} for name in names],
        "offer": {"options": offer.options, "metrics": offer.metrics},
        "complete": complete,
        "jobs": [
            {**_document(job, now_ns, _marks(listing, job)), "cells": texts}
            for job, texts in zip(page_jobs, cells, strict=True)
        ],
    }
    facts = [
        *(facts_of(job) for job in page_jobs),
        *(document[name] for name in ("tags", "states", "problems", "columns", "offer")),
        complete,
        cells,
        matching,
    ]
    facts.append([_marks(listing, job).changed_ns for job in page_jobs])
    return tagged_answer(ask, {**document, "now_ns": now_ns}, facts)


def _matches(ask: Ask, listing: Listing, limit: int) -> tuple[Sequence[JobSummary], int]:
    """Jobs that the filters leave, newest first, and how many these are: all of them, or as many of
    the newest as are shown."""
    job_filter = _JobFilter(ask)
    by = ask.words.get("sort") or "started"
    newest_first = by == "started" and ask.choice("ascending", "0", "1") == "0"
    if (newest_first or by not in SORTS) and not job_filter.looks_inside:
        newest = [job for job in listing.newest if job_filter.has(job, NO_MARKS)]
        matching = sum(listing.states[state] for state in job_filter.states or listing.states)
        if len(newest) >= min(limit if newest_first else MAX_LISTED, matching):
            return newest, matching
    jobs = ask.shelf.listing.all(listing, ask.store.get())
    matches = [job for job in jobs if job_filter.has(job, _marks(listing, job))]
    return matches, len(matches)


def _sorted(
    ask: Ask, matches: Sequence[JobSummary], now_ns: int
) -> tuple[Sequence[JobSummary], bool]:
    """The jobs in the order that is asked for, and whether all that it takes was read. matches:
    newest first."""
    name = ask.words.get("sort") or "started"
    ascending = ask.choice("ascending", "0", "1") == "1"
    sort = SORTS.get(name)
    if name == "started" and not ascending:
        return matches, True
    if sort is not None:
        return sorted(matches, key=lambda job: sort(job, now_ns), reverse=not ascending), True
    store = ask.store.get()
    listing = ask.shelf.listing.of(store)
    values = ask.shelf.listing.values
    # a store of more jobs than the page lists is sorted by values among the newest
    newest = matches[:MAX_LISTED]
    complete = store is None or values.read(newest, store)
    rows = (values.row(job, _marks(listing, job), now_ns) for job in newest)
    return [
        row.job for row in in_order(rows, values.field(name[:_NAME_CHARS]), ascending=ascending)
    ], complete


def _column_names(ask: Ask) -> list[str] | None:
    """None where none are asked for. Raises RequestRefusal."""
    text = ask.words.get("columns")
    if text is None:
        return None
    try:
        names = orjson.loads(text)
    except orjson.JSONDecodeError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, 'columns: a JSON list of names is wanted, such as ["loss.min"]'
        )
    if len(names) > MAX_COLUMNS:
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, f"columns: {len(names)} names; at most {MAX_COLUMNS} are shown"
        )
    return [name[:_NAME_CHARS] for name in dict.fromkeys(names)]


def _document(job: JobSummary, now_ns: int, marks: Marks) -> Document:
    return {**job_document(job, now_ns, marks), "outcome": exit_words(job.exit_code, job.signal)}


class _JobFilter:
    """The filters of a list."""

    def __init__(self, ask: Ask) -> None:
        text = ask.words.get("q", "").strip().casefold()[:200]
        self._pattern = (
            "" if not text else text if any(mark in text for mark in "*?[") else f"*{text}*"
        )
        self.states = {state for state in ask.words.get("state", "").upper().split(",") if state}
        self._tag = ask.words.get("tag", "")
        self._starred = ask.choice("starred", "0", "1") == "1"

    @property
    def looks_inside(self) -> bool:
        """Whether more than a job's state counts."""
        return bool(self._pattern or self._tag or self._starred)

    def has(self, job: JobSummary, marks: Marks) -> bool:
        if self.states and job.state not in self.states:
            return False
        if self._starred and not marks.starred:
            return False
        if self._tag and self._tag not in marks.tag_words() and self._tag not in marks.tags:
            return False
        if not self._pattern:
            return True
        texts = (job.name, job.job_id, job.user, job.host, marks.note, *marks.tag_words())
        return any(fnmatch.fnmatchcase(text.casefold(), self._pattern) for text in texts)


def _marks(listing: Listing, job: JobSummary) -> Marks:
    return listing.marks.get(job.key, NO_MARKS) if listing.marks else NO_MARKS


def last(ask: Ask) -> PageAnswer:
    """`jobs`: ids, joined by commas. By id: keys and values of the newest record."""
    ids = set(ask.words.get("jobs", "").split(",")[:MAX_LAST])
    store = ask.store.get()
    listing = ask.shelf.listing.of(store)
    values = {}
    jobs: Sequence[JobSummary] = [job for job in listing.newest if job.job_id in ids]
    if len(jobs) < len(ids):
        jobs = ask.shelf.listing.all(listing, store)
    for job in jobs:
        if job.job_id in ids and store is not None:
            try:
                values[job.job_id] = ask.shelf.listing.last(job, store)
            except (
                LogshipperError
            ):  # a damaged job's list is still a list; its own page says what is wrong
                values[job.job_id] = []
    return json_answer({"last": values})


def job(ask: Ask) -> PageAnswer:
    """One job: as in the list, its captures, account of lines and what a running bar shows."""
    now_ns = time.time_ns()
    with ask.store.job(ask.parts[0]) as reader:
        summary = reader.summary
        store = ask.store.get()
        marks = overlay_of(store).of(summary.key) if store else NO_MARKS
        status = reader.status()
        document = {
            "now_ns": now_ns,
            "poll_secs": ask.store.bar_poll_secs if status else ask.store.poll_secs,
            **_document(summary, now_ns, marks),
            "is_over": reader.is_over,
            "ledger": ledger_of(reader),
            "masked": masked_words(masked_values(reader)),
            "captures": [capture_document(capture) for capture in reader.captures],
            "missed": missed_tasks(reader).words(),
            "live_status": {
                STREAM_NAMES[stream]: {**moment("time", time_ns), "text": text}
                for stream, (time_ns, text) in status.items()
            },
        }
        facts = [
            facts_of(summary),
            reader.is_over,
            document["captures"],
            document["masked"],
            document["missed"],
            sorted(status.items()),
            marks.changed_ns,
        ]
        return tagged_answer(ask, document, facts)


def facts_of(summary: JobSummary) -> list[object]:
    """What a change of is shown; a heartbeat alone changes nothing."""
    return [getattr(summary, name) for name in _FACT_FIELDS]
