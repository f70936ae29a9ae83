"""`slurm.db`: records of job ends until they are in Loki or obsolete, and counts of their outcomes.

Two commits protect each record. The first stores it, the second releases it for sending after its
file is durably removed. So the agent never collects a sent record again. It stores time, attempt
and stream before sending: after a kill, it sends the same bytes again.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from logshipper_ingest.model.end_record import OUTCOMES, TAKEN, TOO_MANY, EndRecord
from logshipper_ingest.model.slurm_hours import HourSums
from logshipper_ingest.sqlite_file import damaged, open_reader, store_errors
from logshipper_ingest.state.state_file import StateFile

VERSION = 1
FILE = "slurm.db"  # in the agent's state_dir
SCHEMA = """
CREATE TABLE waiting (
    name TEXT PRIMARY KEY,
    record TEXT NOT NULL,
    taken_ns INTEGER NOT NULL,
    due_ns INTEGER NOT NULL,
    ready INTEGER NOT NULL,
    told TEXT
) WITHOUT ROWID;
CREATE INDEX due ON waiting (ready, due_ns);
CREATE TABLE outcome (
    name TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID"""
HOURS = """
CREATE TABLE IF NOT EXISTS hour (
    hour INTEGER PRIMARY KEY,
    node_secs INTEGER NOT NULL,
    ended INTEGER NOT NULL
) WITHOUT ROWID"""


class SentNote(NamedTuple):
    """Place of a record's entries in Loki."""

    attempt: int  # of the record's run, by its captures
    time_ns: int  # of event and note
    event_replay: str  # label of the event's stream
    note_replay: str  # label of the note's stream


class WaitingEnd(NamedTuple):
    """A waiting record."""

    name: str  # of its file
    record: EndRecord
    taken_ns: int  # time of collection
    due_ns: int  # time of the next attempt
    sent_note: SentNote | None = None  # None until decided


HoursOf = Callable[[Sequence[EndRecord]], Mapping[int, HourSums]]


class WaitingEnds(StateFile):
    """The file, open for writing."""

    def __init__(self, path: str) -> None:
        super().__init__(path, SCHEMA, VERSION)
        with self._transaction() as connection:  # missing in files of older agents
            connection.execute(HOURS)

    def put(
        self, ends: Iterable[WaitingEnd], max_count: int, hours_of: HoursOf | None
    ) -> Mapping[str, int]:
        """Store records whose files still exist, with the sums of hours_of for new ones. Beyond
        max_count, drop the oldest. Return the counts by outcome."""
        with self._transaction() as connection:
            before = _number(connection)
            new = [end.record for end in ends if _is_new(connection, end)]
            if hours_of is not None:
                connection.executemany(
                    "INSERT INTO hour (hour, node_secs, ended) VALUES (?, ?, ?) ON CONFLICT (hour)"
                    " DO UPDATE SET node_secs = node_secs + excluded.node_secs,"
                    " ended = ended + excluded.ended",
                    ((hour, *sums) for hour, sums in hours_of(new).items()),
                )
            now = _number(connection)
            connection.execute(
                "DELETE FROM waiting WHERE name IN (SELECT name FROM waiting WHERE ready AND told IS NULL"
                " ORDER BY taken_ns LIMIT ?)",
                (max(0, now - max_count),),
            )
            counts = {TAKEN: now - before, TOO_MANY: now - _number(connection)}
            _count(connection, counts)
            return counts

    def unready(self) -> set[str]:
        """Return the names of records whose files may still exist."""
        with self._reading() as connection:
            rows = connection.execute("SELECT name FROM waiting WHERE ready = 0").fetchall()
        return {name for (name,) in rows}

    def make_ready(self, names: Collection[str]) -> None:
        """Allow the sending of records, after the removal of their files."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE waiting SET ready = 1 WHERE name = ?", ((name,) for name in names)
            )

    def due(self, now_ns: int, max_count: int) -> list[WaitingEnd]:
        """Return due records, the longest due first."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT name, record, taken_ns, due_ns, told FROM waiting WHERE ready = 1 AND due_ns <= ?"
                " ORDER BY due_ns LIMIT ?",
                (now_ns, max_count),
            ).fetchall()
        try:
            return [
                WaitingEnd(
                    name,
                    EndRecord.from_json(record),
                    taken_ns,
                    due_ns,
                    SentNote(*json.loads(sent_note)) if sent_note else None,
                )
                for name, record, taken_ns, due_ns, sent_note in rows
            ]
        except (ValueError, TypeError) as error:
            raise damaged(self.path, str(error)) from None

    def put_off(self, due_ns: Mapping[str, int]) -> None:
        """Postpone records to these times."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE waiting SET due_ns = ? WHERE name = ?",
                ((at_ns, name) for name, at_ns in due_ns.items()),
            )

    def put_sent_notes(self, sent_notes: Mapping[str, SentNote]) -> None:
        """Store the place of records' entries before sending them."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE waiting SET told = ? WHERE name = ?",
                ((json.dumps(sent_note), name) for name, sent_note in sent_notes.items()),
            )

    def done(self, outcomes: Mapping[str, str]) -> None:
        """Remove sent or dropped records and count their outcomes by name."""
        with self._transaction() as connection:
            connection.executemany(
                "DELETE FROM waiting WHERE name = ?", ((name,) for name in outcomes)
            )
            _count(connection, Counter(outcomes.values()))

    def count(self, outcome: str, number: int) -> None:
        with self._transaction() as connection:
            _count(connection, {outcome: number})

    def hours(self, oldest: int) -> dict[int, HourSums]:
        """Return the sums of each hour and delete hours before the oldest."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM hour WHERE hour < ?", (oldest,))
            rows = connection.execute(
                "SELECT hour, node_secs, ended FROM hour ORDER BY hour"
            ).fetchall()
        return {hour: HourSums(*sums) for hour, *sums in rows}

    def number(self) -> int:
        """Return the number of waiting records."""
        with self._reading() as connection:
            return _number(connection)


def _is_new(connection: sqlite3.Connection, end: WaitingEnd) -> bool:
    """Insert a record; return whether it is new."""
    row = end.name, end.record.to_json(), end.taken_ns, end.due_ns
    insert = "INSERT OR IGNORE INTO waiting (name, record, taken_ns, due_ns, ready) VALUES (?, ?, ?, ?, 0)"
    return connection.execute(insert, row).rowcount == 1


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM waiting").fetchone()[0])


def _count(connection: sqlite3.Connection, counts: Mapping[str, int]) -> None:
    connection.executemany(
        "INSERT INTO outcome (name, count) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count"
        " + excluded.count",
        ((name, number) for name, number in counts.items() if number),
    )


def read_counts(path: str) -> dict[str, int]:
    """Return the counts of all outcomes and of `waiting` ones, next to a running agent. Raises
    StoreError."""
    with closing(open_reader(path, VERSION)) as connection, store_errors(path):
        counts = dict(connection.execute("SELECT name, count FROM outcome").fetchall())
        return {**dict.fromkeys(OUTCOMES, 0), **counts, "waiting": _number(connection)}
