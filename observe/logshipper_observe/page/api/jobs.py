"""`api/jobs`: the list of jobs; `api/last`: last values; `api/jobs/ID`: the head of a job's page."""

import fnmatch
import time
from collections.abc import Callable, Sequence

from logshipper.errors import LogshipperError
from logshipper_ingest.model.job import OPEN_STATES, JobSummary
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
from logshipper_observe.model.job_context import context_options, option_text
from logshipper_observe.model.job_facts import ledger_of, masked_values, masked_words, missed_tasks
from logshipper_observe.model.options import first_values
from logshipper_observe.model.overlay import NO_MARKS, Marks
from logshipper_observe.model.records import display_text
from logshipper_observe.page.api.request import PageAnswer, Request, json_answer, tagged_answer
from logshipper_observe.page.data.job_list import MAX_LISTED, Listing, facts_of
from logshipper_observe.page.data.job_values import (
    DEFAULT_COLUMNS,
    MAX_COLUMNS,
    START,
    cells_of,
    in_order,
    offer_of,
)

MAX_LAST = 50  # jobs of one request for last values
_NAME_CHARS = 300  # of a column
SORTS: dict[str, Callable[[JobSummary, int], int | float | str]] = {
    "started": lambda job, _: job.started_ns,
    "name": lambda job, _: job.name.casefold(),
    "state": lambda job, _: job.state,
    "took": duration_secs,
    "lines": lambda job, _: job.lines,
    "records": lambda job, _: job.records,
}


def jobs(request: Request) -> PageAnswer:
    """List jobs, like `ls --json`.

    Parameters: `q` searches names, ids, users, hosts, tags and notes, with `*` and `?` as in a
    shell; `state` lists states, joined by commas; `tag` is `word` or `key=value`; `starred=1`;
    `sort` is a name in SORTS or a column, `ascending=1`; `limit`; `columns` is a JSON list of
    columns (job_values.py), by default those in which the jobs differ.

    Answer: each job's `cells` are in the order of the columns; `offer` has the available columns.
    While `complete` is false, the page repeats the request.
    """
    now_ns = time.time_ns()
    store = request.store.get()
    listing = request.caches.listing.of(store)
    values = request.caches.listing.values
    limit = request.number("limit", 100, maximum=MAX_LISTED)
    matches, matching = _matches(request, listing, limit)
    page_jobs, complete = _sorted(request, listing, matches, now_ns)
    page_jobs = page_jobs[:limit]
    names = _column_names(request)
    # a server would send all records of a job for default columns
    if store is not None and (names is not None or isinstance(store, LocalStore)):
        complete = values.read(page_jobs, store) and complete
    offer = offer_of([values.of(job) for job in page_jobs])
    if names is None:
        names = offer.differing[:DEFAULT_COLUMNS] if len(page_jobs) > 1 else []
    columns = [values.field(name) for name in names]
    cells = [cells_of(columns, values.row(job, listing.marks_of(job), now_ns)) for job in page_jobs]
    tags = {word for marks in listing.marks.values() for word in marks.tag_words()}
    document = {
        "place": request.store.intake.place,
        "problems": request.store.intake.problems,
        "total": listing.total,
        "matching": matching,
        "states": listing.states,
        "tags": sorted(tags)[:MAX_LISTED],
        "columns": [{"name": name, "title": name.removeprefix(START)} for name in names],
        "offer": {"options": offer.options, "metrics": offer.metrics},
        "complete": complete,
        "jobs": [
            {**_document(job, now_ns, listing.marks_of(job)), "cells": texts}
            for job, texts in zip(page_jobs, cells, strict=True)
        ],
    }
    facts = [
        *(facts_of(job) for job in page_jobs),
        *(document[name] for name in ("tags", "states", "problems", "columns", "offer")),
        complete,
        cells,
        matching,
        [listing.marks_of(job).changed_ns for job in page_jobs],
    ]
    return tagged_answer(request, {**document, "now_ns": now_ns}, facts)


def matching_jobs(request: Request) -> Sequence[JobSummary]:
    """Return all jobs that the request selects, newest first."""
    listing = request.caches.listing.of(request.store.get())
    return _matches(request, listing, listing.total)[0]


def _matches(request: Request, listing: Listing, limit: int) -> tuple[Sequence[JobSummary], int]:
    """Return the matching jobs, newest first, and their number. The jobs are complete, or at least
    as many as the answer has."""
    job_filter = _JobFilter(request)
    by = request.params.get("sort") or "started"
    newest_first = by == "started" and not request.flag("ascending")
    if (newest_first or by not in SORTS) and not job_filter.looks_inside:
        newest = [job for job in listing.newest if job_filter.has(job, NO_MARKS)]
        matching = sum(listing.states[state] for state in job_filter.states or listing.states)
        if len(newest) >= min(limit if newest_first else MAX_LISTED, matching):
            return newest, matching
    jobs = request.caches.listing.all(listing, request.store.get())
    matches = [job for job in jobs if job_filter.has(job, listing.marks_of(job))]
    return matches, len(matches)


def _sorted(
    request: Request, listing: Listing, matches: Sequence[JobSummary], now_ns: int
) -> tuple[Sequence[JobSummary], bool]:
    """Sort jobs, newest first before. Return False, too, if the values of some are unread."""
    name = request.params.get("sort") or "started"
    ascending = request.flag("ascending")
    sort = SORTS.get(name)
    if name == "started" and not ascending:
        return matches, True
    if sort is not None:
        return sorted(matches, key=lambda job: sort(job, now_ns), reverse=not ascending), True
    store = request.store.get()
    values = request.caches.listing.values
    newest = matches[:MAX_LISTED]  # sorting by values reads no further jobs
    complete = store is None or values.read(newest, store)
    rows = (values.row(job, listing.marks_of(job), now_ns) for job in newest)
    sorted_rows = in_order(rows, values.field(name[:_NAME_CHARS]), ascending=ascending)
    return [row.job for row in sorted_rows], complete


def _column_names(request: Request) -> list[str] | None:
    if "columns" not in request.params:
        return None
    names = request.texts("columns", '["loss.min"]', least=0, most=MAX_COLUMNS)
    return [name[:_NAME_CHARS] for name in dict.fromkeys(names)]


def _document(job: JobSummary, now_ns: int, marks: Marks) -> Document:
    return {**job_document(job, now_ns, marks), "outcome": exit_words(job.exit_code, job.signal)}


class _JobFilter:
    def __init__(self, request: Request) -> None:
        text = request.params.get("q", "").strip().casefold()[:200]
        has_wildcards = any(mark in text for mark in "*?[")
        self._pattern = text if has_wildcards or not text else f"*{text}*"
        self.states = set(filter(None, request.params.get("state", "").upper().split(",")))
        self._tag = request.params.get("tag", "")
        self._starred = request.flag("starred")

    @property
    def looks_inside(self) -> bool:
        """Whether the filter needs more than a job's state."""
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


def last(request: Request) -> PageAnswer:
    """Return the keys and values of the newest records of `jobs`, ids joined by commas, and the bars
    of those that run."""
    ids = set(request.params.get("jobs", "").split(",")[:MAX_LAST])
    store = request.store.get()
    listing = request.caches.listing.of(store)
    jobs = [job for job in listing.newest if job.job_id in ids]
    if len(jobs) < len(ids):
        jobs = [job for job in request.caches.listing.all(listing, store) if job.job_id in ids]
    values, bars = {}, {}
    for job in jobs:
        if store is not None:
            try:
                values[job.job_id] = request.caches.listing.last(job, store)
                if job.state in OPEN_STATES and isinstance(store, LocalStore):
                    with store.reader_of(job) as reader:
                        bars[job.job_id] = "\n".join(text for _, text in reader.status().values())
            except LogshipperError:  # a damaged job: its own page shows the problem
                values[job.job_id] = []
    return json_answer({"last": values, "bars": bars})


def start(request: Request) -> PageAnswer:
    """Return how a job was started: `command`, `cwd`, `git.commit` and others (job_context.py), and
    its configuration, the keys of the first records that never change."""
    with request.store.job(request.parts[0]) as reader:
        options = {name: option_text(name, text) for name, text in context_options(reader).items()}
        constants = first_values(reader).constants
    configuration = {name: display_text(text) for name, text in constants.items()}
    return json_answer({"options": options, "configuration": configuration})


def job(request: Request) -> PageAnswer:
    """Return a job with its captures, its account of lines and its running bars."""
    now_ns = time.time_ns()
    with request.store.job(request.parts[0]) as reader:
        summary = reader.summary
        marks = request.store.marks(reader)
        status = reader.status()
        document = {
            "now_ns": now_ns,
            # a running bar changes, with the sidecar's delay, each second
            "poll_secs": request.store.poll_secs(0.4) if status else request.store.poll_secs(),
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
            *(document[name] for name in ("is_over", "captures", "masked", "missed")),
            sorted(status.items()),
            marks.changed_ns,
        ]
        return tagged_answer(request, document, facts)
