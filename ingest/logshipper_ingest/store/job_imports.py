"""Imports jobs into a store, exactly once over any number of imports.

A job continues from its last import: its history has all known changes, and its state is the last
one.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple, TypeAlias, TypeVar

from logshipper.classify.metadata import Hint, keys_of
from logshipper.errors import StoreError
from logshipper.fault_points import fault_point
from logshipper.masks.shape_mask import ShapeMask, masked_text
from logshipper.spool.segment import Stream
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_rows import RecordRow, Rows
from logshipper_ingest.model.imported import ImportedChange, ImportedJob
from logshipper_ingest.model.imported_states import is_over, state_of
from logshipper_ingest.model.job import QUEUED, RUNNING, STATE_CHANGED, UNKNOWN, Json
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.sqlite_file import open_reader, store_errors
from logshipper_ingest.store.catalogue import Catalogue
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.due_marks import DueMarks, Mark, MarksOnTheirWay
from logshipper_ingest.store.imported_db import ImportedJobWriter, key_of
from logshipper_ingest.store.imported_log import AnotherLog, import_facts, log_rows
from logshipper_ingest.store.job_db import VERSION, CaptureRow, read_captures, read_catalogue_row
from logshipper_ingest.store.new_databases import NewDatabases

MAX_KEY_SETS = 256  # of a job's records, with kept numbers
Value = TypeVar("Value")
# begins work with these arguments; the result waits for its end
Submit: TypeAlias = Callable[..., Callable[[], "_Written"]]
# of a job that its account takes over, unless they are unknown
_FACTS = (
    "user", "host", "parent", "nodes", "cores", "packing", "allocation", "partition", "signal", "reason",
)  # fmt: skip


class ImportOutcome(NamedTuple):
    """Result of importing a job."""

    job_id: str
    is_new: bool = False  # the store did not have it
    was_removed: bool = False  # omitted, because the user removed it
    log_differs: bool = False  # omitted, because the log differs from the imported one


class JobImports:
    """Writes imported jobs into a store whose lock the caller holds.

    mark: gets changes of tags and notes; again: includes jobs that the user removed.
    """

    def __init__(
        self, root: str, catalogue: Catalogue, *, mark: Mark, wal: bool, again: bool = False
    ) -> None:
        self._jobs = os.path.join(root, "jobs")
        self._new = NewDatabases(root, self._jobs)
        self._marks = MarksOnTheirWay(root, mark)
        self._catalogue = catalogue
        self._wal = wal
        self._again = again
        self._rows: dict[str, CatalogueRow] = {}

    def position_of(self, job: ImportedJob) -> Json:
        """Return the job's last `ImportedJob.position`; empty for a new job."""
        place = self._place(job)
        if not place.exists:
            return {}
        with closing(open_reader(place.path, VERSION)) as connection, store_errors(place.path):
            row = next(iter(read_captures(connection, place.path, job.key)), None)
        if row is not None and not place.is_new and place.job_id not in self._listed_ids:
            self._put_in_lists(place.job_id, read_catalogue_row(place.path, place.job_id))
        return {} if row is None else dict(import_facts(row.account).get("taken", {}))

    def put(self, job: ImportedJob) -> ImportOutcome:
        """Ingests a job; `flush` brings it to its place, and into the lists. Raises StoreError."""
        return self.begin(job)()

    def begin(self, job: ImportedJob, submit: Submit | None = None) -> Callable[[], ImportOutcome]:
        """Begin to ingest a job, perhaps in another process. Return a function that waits for the
        result, as `put`. submit: begins work there; for jobs without tags and notes."""
        place = self._place(job)
        job_id, is_new = place.job_id, not place.exists
        if is_new and self._catalogue.tombstone(job_id) is not None and not self._again:
            return partial(ImportOutcome, job_id, was_removed=True)
        path = self._new.make(job_id, job.key, small=job.is_small) if is_new else place.path
        target = _Target(job_id, path, place.is_new, self._wal)
        if submit is not None:
            return partial(self._finish, job_id, is_new, submit(_write, job, target, None))
        write = partial(_write, job, target, self._marks)
        return partial(self._finish, job_id, is_new, write)

    def _finish(self, job_id: str, is_new: bool, write: "Callable[[], _Written]") -> ImportOutcome:
        try:
            written = write()
        except BaseException:
            if is_new:
                self._new.drop(job_id)
            raise
        self._put_in_lists(job_id, written.list_row)
        return ImportOutcome(job_id, is_new=is_new, log_differs=written.log_differs)

    @cached_property
    def _listed_ids(self) -> set[str]:
        """Jobs in the lists. A killed import leaves named jobs outside."""
        return self._catalogue.job_ids()

    def _put_in_lists(self, job_id: str, row: CatalogueRow | None) -> None:
        if row is not None:
            self._rows[job_id] = row

    @property
    def is_full(self) -> bool:
        """Whether `flush` is due."""
        return self._new.is_full

    def flush(self) -> None:
        """Publish new databases and update the lists."""
        self._marks.deliver()
        fault_point("imports_marked")
        self._new.publish()
        self._catalogue.put_all(list(self._rows.values()))
        self._rows.clear()

    def close(self) -> None:
        self._new.close()

    def _place(self, job: ImportedJob) -> "_Place":
        """Choose the first of the job's ids that no other job has."""
        digest = hashlib.sha256(job.key.encode()).hexdigest()[:10]
        for job_id in (*job.ids, f"{job.ids[-1][:50]}-{digest}"):
            new_key = self._new.key_of(job_id)
            if new_key is not None:
                if new_key == job.key:
                    return _Place(job_id, self._new.path_of(job_id), exists=True, is_new=True)
                continue
            path = os.path.join(self._jobs, f"{job_id}.db")
            if not os.path.exists(path):
                return _Place(job_id, path, exists=False, is_new=True)
            if key_of(path) in (job.key, ""):
                return _Place(job_id, path, exists=True, is_new=False)
        raise StoreError(path, "is another job's")


class _Place(NamedTuple):
    """A job's place in the store."""

    job_id: str
    path: str
    exists: bool
    is_new: bool  # it has no name in the store yet


# ---- one job


class _Target(NamedTuple):
    """A job's database."""

    job_id: str
    path: str
    is_new: bool
    wal: bool


class _Written(NamedTuple):
    """Result of writing a job: its row for the lists, and whether its log has changed."""

    list_row: CatalogueRow | None
    log_differs: bool = False


def _write(job: ImportedJob, target: _Target, marks: MarksOnTheirWay | None) -> _Written:
    """Write a job, perhaps in another process; without its log if that has changed. marks: gets
    changed tags and notes."""
    job = without_secrets(job)
    try:
        return _write_whole(job, target, marks)
    except AnotherLog:
        written = _write_whole(replace(job, log=()), target, marks)
        return written._replace(log_differs=True)


def _write_whole(job: ImportedJob, target: _Target, marks: MarksOnTheirWay | None) -> _Written:
    database = ImportedJobWriter(target.path, wal=target.wal, synced=not target.is_new)
    with closing(database) as writer, writer.writing():
        row = writer.enter(job.key, CaptureAccount(name=job.name, origin=job.origin))
        changed_marks = _changed_marks(target.job_id, job, import_facts(row.account))
        _put(writer, row, job)
        if changed_marks is not None and marks is not None:
            marks.add(changed_marks, note=not target.is_new)
        list_row = writer.catalogue_row(target.job_id)
        fault_point("import_written")
    fault_point("import_committed")
    return _Written(list_row)


def _put(writer: ImportedJobWriter, row: CaptureRow, job: ImportedJob) -> None:
    """Within `writing`. Raises AnotherLog."""
    account, rows = row.account, Rows()
    changes = merge_changes([] if job.is_whole_history else writer.changes(row.id), job.changes)
    if job.is_whole_history:
        account.exit_code, account.signal, account.reason = None, 0, ""
    _take_facts(account, job)
    _take_history(account, job.origin, changes)
    runs = (change.time_ns for change in changes if state_of(job.origin, change.to) == RUNNING)
    log_ns = next(runs, job.log_ns)
    for event in job.events:
        account.take_event(event.event, event.time_ns, rows)
        account.newest_ns = max(account.newest_ns, event.time_ns)
    _take_records(row, job, rows)
    writer.add(row, rows)
    for of_log in log_rows(row, job, log_ns):
        writer.add(row, of_log)
    account.started_ns = account.started_ns or job.begun_ns or account.newest_ns or time.time_ns()
    events = list(_events(job.origin, changes))
    times = [time_ns for time_ns, _ in events]
    account.first_change_ns, account.last_change_ns = min(times, default=0), max(times, default=0)
    writer.finish(row, events, job.children)


def _take_facts(account: CaptureAccount, job: ImportedJob) -> None:
    account.name, account.origin = job.name or account.name, job.origin
    for name in _FACTS:
        setattr(account, name, getattr(job, name) or getattr(account, name))
    account.iteration = account.iteration if job.iteration is None else job.iteration
    account.exit_code = account.exit_code if job.exit_code is None else job.exit_code
    account.heartbeat_ns = 0  # none is sent
    account.children = [max(account.children[0], job.children_total), *account.children[1:]]
    account.details = _joined_details(account.details, job.details)
    facts = import_facts(account)
    facts["taken"] = {**facts.get("taken", {}), **job.position}
    facts["tags"] = {**facts.get("tags", {}), **job.tags}
    if job.note:
        facts["note"] = job.note


def _joined_details(details: Json, update: Json) -> Json:
    """All details, those of the update before earlier ones; objects likewise."""
    nested = {name: {**details[name], **update[name]} for name in details.keys() & update.keys()
            if isinstance(details[name], dict) and isinstance(update[name], dict)}  # fmt: skip
    return {**details, **update, **nested}


def _take_history(account: CaptureAccount, origin: str, changes: Sequence[ImportedChange]) -> None:
    """Derive state, begin, end and restarts from all known changes."""
    if not changes:
        if account.state == RUNNING and not account.started_ns:
            account.state = QUEUED
        return
    states = [state_of(origin, change.to) for change in changes]
    begins = [
        change.time_ns
        for change, state, before in zip(changes, states, ["", *states[:-1]], strict=True)
        if state == RUNNING and (before != RUNNING or change.to == "restarted")
    ]
    account.state = states[-1]
    account.started_ns = begins[0] if begins else changes[0].time_ns
    account.restarts = max(len(begins) - 1, 0)
    account.ended_ns = None
    if is_over(account.state):
        at = len(states) - 1
        while at and states[at - 1] == account.state:
            at -= 1  # its system has further states behind the first that is an end here
        account.ended_ns = changes[at].time_ns


def merge_changes(
    stored: Sequence[ImportedChange], incoming: Sequence[ImportedChange]
) -> list[ImportedChange]:
    """Merge changes in order of time, each once; exact times replace inexact ones."""
    by_time: dict[tuple[int, str], ImportedChange] = {}
    for change in (*stored, *incoming):
        duplicate = by_time.get((change.time_ns, change.to))
        if duplicate is None or duplicate.inexact or not change.inexact:
            by_time[change.time_ns, change.to] = change
    exact = {change.to for change in by_time.values() if not change.inexact}
    inexact_states: set[str] = set()
    history: list[ImportedChange] = []
    for change in sorted(by_time.values(), key=lambda change: change.time_ns):
        if change.to == UNKNOWN:  # a file that has grown since ends later
            history = [earlier for earlier in history if earlier.to != UNKNOWN]
        elif change.inexact and (change.to in exact or change.to in inexact_states):
            continue
        if change.inexact and change.to != UNKNOWN:
            inexact_states.add(change.to)
        history.append(change)
    return history


def _events(origin: str, changes: Sequence[ImportedChange]) -> Iterator[tuple[int, Json]]:
    last = ""
    for change in changes:
        before = change.before or last
        event: Json = {
            "event": STATE_CHANGED,
            "from": state_of(origin, before) if before else "",
            "to": state_of(origin, change.to),
            "source_from": before,
            "source_to": change.to,
        }
        if change.inexact:
            event["seen"] = True
        if change.data:
            event["data"] = change.data
        if change.id:
            event["source_id"] = change.id
        yield change.time_ns, event
        last = change.to


def _take_records(row: CaptureRow, job: ImportedJob, rows: Rows) -> None:
    """Records keep their order where their times are equal."""
    account = row.account
    numbers: dict[str, int] = import_facts(account).setdefault("numbers", {})
    for record in job.records:
        keys = keys_of(record.line)
        if keys is None or isinstance(keys, Hint):
            continue
        name = "\n".join(sorted(keys))
        if name not in numbers and len(numbers) >= MAX_KEY_SETS:
            name = ""
        numbers[name] = numbers.get(name, 0) + 1
        rows.records.append(RecordRow(Stream.STDOUT, record.time_ns, numbers[name], record.line))
        account.records += 1
        account.newest_ns = max(account.newest_ns, record.time_ns)
        parsed = parse_record(record.line)
        if parsed is not None:
            row.axis.add(parsed, record.time_ns)


def _changed_marks(job_id: str, job: ImportedJob, facts: Json) -> DueMarks | None:
    """Return the tags and the note that changed since the last import; None if none did."""
    before = facts.get("tags", {})
    tags = {name: value for name, value in job.tags.items() if before.get(name) != value}
    note = job.note if job.note and job.note != facts.get("note") else None
    return DueMarks(job_id, tags, note) if tags or note is not None else None


# ---- masks


def without_secrets(job: ImportedJob) -> ImportedJob:
    """The job with masks in its texts; its console is masked when it is rendered."""
    mask = ShapeMask()
    return replace(
        job,
        name=masked_text(job.name),
        reason=masked_text(job.reason),
        details=_masked(job.details),
        changes=_masked_changes(job.changes),
        children=(
            child._replace(
                name=masked_text(child.name),
                details=_masked(child.details),
                changes=_masked_changes(child.changes),
            )
            for child in job.children
        ),
        events=[event._replace(event=_masked(event.event)) for event in job.events],
        records=[record._replace(line=mask.masked(record.line)) for record in job.records],
        tags=_masked(job.tags),
        note=masked_text(job.note),
    )


def _masked_changes(changes: Sequence[ImportedChange]) -> list[ImportedChange]:
    return [change._replace(data=_masked(change.data)) for change in changes]


def _masked(value: Value) -> Value:
    """A JSON value: masked as text, in which a member's name stands beside its secret."""
    if not value:
        return value
    text = json.dumps(value, ensure_ascii=False)
    masked = masked_text(text)
    return value if masked == text else json.loads(masked)
