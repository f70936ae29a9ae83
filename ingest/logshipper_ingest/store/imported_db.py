"""Writes an imported job's database, which also has tables of the job's children.

Repeats change nothing: a job is one capture, whose `folder` is the job's key; time and state
identify changes of state, and names children. Each call is one transaction, and includes the
importer's position in its files.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice

from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.imported import ImportedChange, ImportedChild
from logshipper_ingest.model.imported_states import is_over, state_of
from logshipper_ingest.model.job import RUNNING, STATE_CHANGED, Json
from logshipper_ingest.sqlite_file import open_reader, store_errors, transaction
from logshipper_ingest.store.job_db import VERSION, CaptureRow, JobWriter

_CHILD_TABLES = """
CREATE TABLE IF NOT EXISTS child (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    iteration INTEGER,
    state TEXT NOT NULL,
    source_state TEXT NOT NULL,
    exit_code INTEGER,
    signal INTEGER NOT NULL,
    started_ns INTEGER,
    ended_ns INTEGER,
    nodes INTEGER NOT NULL,
    cores INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    details TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS child_iteration ON child (ifnull(iteration, 0), id);
CREATE TABLE IF NOT EXISTS child_change (
    id INTEGER PRIMARY KEY,
    child INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    source_from TEXT NOT NULL,
    source_to TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS child_change_time ON child_change (time_ns, id);
CREATE INDEX IF NOT EXISTS child_change_child ON child_change (child)"""
_PUT_CHILD = """
INSERT INTO child (name, iteration, state, source_state, exit_code, signal, started_ns, ended_ns, nodes, cores, seen,
    details) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET iteration = excluded.iteration, state = excluded.state,
    source_state = excluded.source_state, exit_code = excluded.exit_code, signal = excluded.signal,
    started_ns = excluded.started_ns, ended_ns = excluded.ended_ns, nodes = excluded.nodes, cores = excluded.cores,
    seen = excluded.seen, details = excluded.details
WHERE CASE WHEN excluded.seen THEN child.seen AND child.source_state <> excluded.source_state
    ELSE child.seen OR child.source_state <> excluded.source_state OR child.ended_ns IS NOT excluded.ended_ns END
RETURNING id"""
_BATCH = 1000


def key_of(path: str) -> str:
    """Return the key of an imported job, or the folder of a captured job's first capture; ""
    without one.

    Raises StoreError.
    """
    with closing(open_reader(path, VERSION)) as connection, store_errors(path):
        row = connection.execute("SELECT folder FROM capture ORDER BY id LIMIT 1").fetchone()
    return str(row[0]) if row else ""


class ImportedJobWriter(JobWriter):
    """Writes the database of an imported job. Raises StoreError."""

    def __init__(self, path: str, *, wal: bool, synced: bool) -> None:
        super().__init__(path, wal=wal, synced=synced)
        self._becomes_wal = wal and not synced
        if synced and wal:  # after a power cut the import repeats: its source still exists
            self._connection.execute("PRAGMA synchronous=NORMAL")
        self._has_children: bool | None = None

    def close(self) -> None:
        try:
            if self._becomes_wal:
                with store_errors(self.path):
                    self._connection.execute("PRAGMA journal_mode=WAL")
        finally:
            super().close()

    def enter(self, key: str, account: CaptureAccount) -> CaptureRow:
        """Return the job's capture, and create it if it is new; within `writing`."""
        return self.capture(key) or self._add_capture(key, Source(1, "", 0), account)

    def changes(self, capture: int) -> list[ImportedChange]:
        """The job's own, in order of time."""
        with store_errors(self.path):
            rows = self._connection.execute(
                "SELECT time_ns, event FROM event WHERE capture = ? AND json_extract(event, '$.event') = ?"
                " ORDER BY time_ns, id",
                (capture, STATE_CHANGED),
            ).fetchall()
        events = [(time_ns, json.loads(text)) for time_ns, text in rows]
        return [
            ImportedChange(
                time_ns,
                event["source_to"],
                event["source_from"],
                bool(event.get("seen")),
                event.get("data"),
                event.get("source_id", ""),
            )
            for time_ns, event in events
        ]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """All that is written meanwhile is one transaction."""
        with store_errors(self.path), transaction(self._connection):
            yield

    def add(self, capture: CaptureRow, rows: Rows) -> None:
        """Adds rows, within `writing`."""
        self._insert(capture.id, rows)

    def finish(
        self,
        capture: CaptureRow,
        changes: Sequence[tuple[int, Json]],
        children: Iterable[ImportedChild],
    ) -> None:
        """Puts all changes of the job's own state in the place of those before, adds or replaces
        children, counts them, and replaces the job's account; within `writing`."""
        account = capture.account
        self._put_changes(capture.id, changes)
        total = self._put_children(account.origin, children)
        if self._tells_of_children():
            account.children = [max(total, account.children[0]), *self._child_counts()]
            self._begin_with_children(account, changes)
        self._connection.execute(
            "UPDATE capture SET done = 1, account = ?1, x_axis = ?2 WHERE id = ?3"
            " AND NOT (done AND account = ?1 AND x_axis = ?2)",
            (account.to_json().decode(), capture.axis.to_json(), capture.id),
        )

    def _put_changes(self, capture: int, changes: Sequence[tuple[int, Json]]) -> None:
        events = [(time_ns, json.dumps(event)) for time_ns, event in changes]
        rows = self._connection.execute(
            "SELECT id, time_ns, event FROM event WHERE capture = ? AND json_extract(event, '$.event') = ?",
            (capture, STATE_CHANGED),
        ).fetchall()
        unchanged = {(time_ns, text) for _, time_ns, text in rows} & set(events)
        obsolete_ids = [
            (number,) for number, time_ns, text in rows if (time_ns, text) not in unchanged
        ]
        self._connection.executemany("DELETE FROM event WHERE id = ?", obsolete_ids)
        self._connection.executemany(
            "INSERT INTO event (capture, time_ns, event) VALUES (?, ?, ?)",
            ((capture, *event) for event in events if event not in unchanged),
        )

    # ---- children

    def _put_children(self, origin: str, children: Iterable[ImportedChild]) -> int:
        """Store children; return their number."""
        remaining_children = iter(children)
        while batch := list(islice(remaining_children, _BATCH)):
            if not self._tells_of_children():
                for statement in _CHILD_TABLES.split(";"):
                    self._connection.execute(statement)
                self._has_children = True
            self._put_batch(origin, batch)
        if not self._tells_of_children():
            return 0
        return int(self._connection.execute("SELECT count(*) FROM child").fetchone()[0])

    def _tells_of_children(self) -> bool:
        if self._has_children is None:
            query = "SELECT 1 FROM sqlite_master WHERE name = 'child'"
            self._has_children = self._connection.execute(query).fetchone() is not None
        return self._has_children

    def _put_batch(self, origin: str, children: Sequence[ImportedChild]) -> None:
        # a child may come twice: the last counts
        changes: dict[int, Iterable[tuple[int, int, str, str, str, str]]] = {}
        for child in children:
            row = self._connection.execute(_PUT_CHILD, _child_row(origin, child)).fetchone()
            if row is None:
                continue  # known, or the known time is exact and this one is not
            self._connection.execute("DELETE FROM child_change WHERE child = ?", row)
            changes[row[0]] = _change_rows(origin, row[0], child.changes)
        self._connection.executemany(
            "INSERT INTO child_change (child, time_ns, from_state, to_state, source_from, source_to)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            chain.from_iterable(changes.values()),
        )

    def _child_counts(self) -> tuple[int, int]:
        """Count the ended children, and the failed ones among these."""
        rows = self._connection.execute(
            "SELECT state, count(*) FROM child GROUP BY state"
        ).fetchall()
        over = {state: number for state, number in rows if is_over(state)}
        finished = sum(over.values())
        return finished, finished - over.get("COMPLETED", 0)

    def _begin_with_children(
        self, account: CaptureAccount, changes: Sequence[tuple[int, Json]]
    ) -> None:
        """Set the begin of a job whose own history does not report running to its first child's
        begin.

        A job without children stays running.
        """
        if any(event["to"] == RUNNING for _, event in changes):
            return
        first_ns = self._connection.execute(
            "SELECT min(ifnull(started_ns, ended_ns)) FROM child"
        ).fetchone()[0]
        if first_ns is not None:
            account.started_ns = first_ns
        if not changes and (account.children[1] or first_ns is not None):
            account.state = RUNNING


def _child_row(origin: str, child: ImportedChild) -> tuple[object, ...]:
    started_ns = ended_ns = None
    for change in child.changes:
        state = state_of(origin, change.to)
        if state == RUNNING:
            started_ns = change.time_ns
        elif is_over(state):
            ended_ns = change.time_ns
    return (
        child.name,
        child.iteration,
        state_of(origin, child.state),
        child.state,
        child.exit_code,
        child.signal,
        started_ns,
        ended_ns,
        child.nodes,
        child.cores,
        any(change.inexact for change in child.changes) or not child.changes,
        json.dumps(child.details, separators=(",", ":")) if child.details else "",
    )


def _change_rows(
    origin: str, number: int, changes: Sequence[ImportedChange]
) -> Iterator[tuple[int, int, str, str, str, str]]:
    last = ""
    for change in changes:
        before = change.before or last
        yield (
            number,
            change.time_ns,
            state_of(origin, before) if before else "",
            state_of(origin, change.to),
            before,
            change.to,
        )
        last = change.to
