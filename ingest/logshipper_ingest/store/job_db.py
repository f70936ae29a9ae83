"""Writes a job's database, `jobs/<job id>.db`: one row per block of lines, record, event and
capture.

A capture's row holds its account and the position in its segments. Both change in one transaction
with the lines, so that a crash between any two steps neither loses nor doubles a line.
"""

import json
import sqlite3
import zlib
from contextlib import closing
from typing import NamedTuple

import cramjam

from logshipper.fault_points import fault_point
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import OPEN_STATES, Capture, JobEventFilter
from logshipper_ingest.model.summary import summarise
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.sqlite_file import (
    damaged,
    open_reader,
    open_writer,
    store_errors,
    transaction,
)
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.job_history import EVENTS, packed_history
from logshipper_ingest.store.job_rows import read_stored_events

VERSION = 1
SCHEMA = """
CREATE TABLE capture (
    id INTEGER PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    attempt INTEGER NOT NULL,
    step TEXT NOT NULL,
    task INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    done INTEGER NOT NULL,
    account TEXT NOT NULL,
    x_axis TEXT NOT NULL
);
CREATE TABLE block (
    id INTEGER PRIMARY KEY,
    capture INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    runs TEXT,
    attrs TEXT,
    codec INTEGER NOT NULL,
    text BLOB NOT NULL
);
CREATE INDEX block_time ON block (time_ns);
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    capture INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    n INTEGER NOT NULL,
    line TEXT NOT NULL,
    origin TEXT NOT NULL DEFAULT ''
);
CREATE INDEX record_time ON record (time_ns);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    capture INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    event TEXT NOT NULL
);
CREATE TABLE status (
    capture INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (capture, stream)
)"""
PLAIN, ZLIB, ZSTD = 0, 1, 2  # codecs of a block's text; zlib's was written by earlier versions
_ZSTD_LEVEL = 1  # higher levels take longer and save nothing on log lines


class CaptureRow(NamedTuple):
    """A capture as stored."""

    id: int
    folder: str
    attempt: int
    step: str
    task: int
    position: SpoolPosition  # next position in its segments
    done: bool  # all of it is ingested
    account: CaptureAccount
    axis: XAxis

    def as_capture(self, state: str) -> Capture:
        """Return the capture for readers. state: after `derived_state`."""
        return self.account.as_capture(self.id, self.attempt, self.step, self.task, state)


class JobWriter:
    """Writes a job's database. The store's lock ensures a single writer. Raises StoreError."""

    def __init__(self, path: str, *, wal: bool, synced: bool = True) -> None:
        self.path = path
        self._connection = open_writer(path, SCHEMA, VERSION, wal=wal, synced=synced)
        try:
            with store_errors(path):
                if not has_origins(self._connection):  # an earlier version's file
                    column = "origin TEXT NOT NULL DEFAULT ''"
                    self._connection.execute(f"ALTER TABLE record ADD COLUMN {column}")
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def catalogue_row(self, job_id: str) -> CatalogueRow | None:
        """Return the job's row for the catalogue; None before its first capture."""
        with store_errors(self.path):
            return _catalogue_row(job_id, self._connection, self.path)

    def capture(self, folder: str) -> CaptureRow | None:
        """Return the capture of a folder of the spool, None for a new one."""
        with store_errors(self.path):
            return next(iter(read_captures(self._connection, self.path, folder)), None)

    def add_capture(self, folder: str, source: Source, account: CaptureAccount) -> CaptureRow:
        """Enters a capture. The attempt is the next free one where another folder has the same
        attempt already."""
        with store_errors(self.path), transaction(self._connection):
            return self._add_capture(folder, source, account)

    def _add_capture(self, folder: str, source: Source, account: CaptureAccount) -> CaptureRow:
        attempt, step, task = source
        if self._connection.execute(
            "SELECT 1 FROM capture WHERE attempt = ? AND step = ? AND task = ?", source
        ).fetchone():
            attempt = 1 + int(
                self._connection.execute("SELECT max(attempt) FROM capture").fetchone()[0]
            )
        row = CaptureRow(0, folder, attempt, step, task, SpoolPosition(), False, account, XAxis())
        cursor = self._connection.execute(
            "INSERT INTO capture (folder, attempt, step, task, segment, offset, done, account, x_axis)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*row[1:5], *row.position, row.done, account.to_json().decode(), row.axis.to_json()),
        )
        return row._replace(id=cursor.lastrowid or 0)

    def write(self, capture: CaptureRow, rows: Rows) -> None:
        """Adds rows and replaces the capture's account, its position included, in one
        transaction."""
        with store_errors(self.path), transaction(self._connection):
            self._insert(capture.id, rows)
            self._connection.execute(
                "UPDATE capture SET segment = ?, offset = ?, done = ?, account = ?, x_axis = ? WHERE id = ?",
                (*capture.position, capture.done, capture.account.to_json().decode(), capture.axis.to_json(),
                 capture.id),
            )  # fmt: skip
            fault_point("store_rows_written")

    def _insert(self, capture: int, rows: Rows) -> None:
        self._connection.executemany(
            "INSERT INTO block (capture, stream, time_ns, lines, runs, attrs, codec, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    capture,
                    block.stream,
                    block.time_ns,
                    block.lines,
                    block.runs and json.dumps(block.runs, separators=(",", ":")),
                    block.attrs and json.dumps(block.attrs, separators=(",", ":")),
                    *packed_text(block.text),
                )
                for block in rows.blocks
            ),
        )
        self._connection.executemany(
            "INSERT INTO record (capture, stream, time_ns, n, line, origin) VALUES (?, ?, ?, ?, ?, ?)",
            (
                (capture, *row[:3], row.line.decode("utf-8", "replace"), row.origin)
                for row in rows.records
            ),
        )
        self._connection.executemany(
            "INSERT INTO event (capture, time_ns, event) VALUES (?, ?, ?)",
            ((capture, row.time_ns, json.dumps(row.event)) for row in rows.events),
        )
        self._connection.executemany(
            "INSERT OR REPLACE INTO status (capture, stream, time_ns, text) VALUES (?, ?, ?, ?)",
            (
                (capture, *row[:2], row.text.decode("utf-8", "replace"))
                for row in rows.statuses.values()
            ),
        )


def has_origins(connection: sqlite3.Connection) -> bool:
    """Return whether records have origins; in earlier versions, all were JSON.

    Raises SQLite's errors.
    """
    query = "SELECT 1 FROM pragma_table_info('record') WHERE name = 'origin'"
    return connection.execute(query).fetchone() is not None


def packed_text(text: bytes) -> tuple[int, bytes]:
    """Return a block's codec and its stored text."""
    packed = bytes(cramjam.zstd.compress(text, _ZSTD_LEVEL))
    return (ZSTD, packed) if len(packed) < len(text) else (PLAIN, text)


def unpacked_text(codec: int, stored: bytes, path: str) -> bytes:
    """Return a block's text. Raises StoreError for damage; path: of the database."""
    try:
        if codec == ZSTD:
            return bytes(cramjam.zstd.decompress(stored))
        return zlib.decompress(stored) if codec == ZLIB else stored
    except (cramjam.DecompressionError, zlib.error) as error:
        raise damaged(path, str(error)) from None


def read_catalogue_row(path: str, job_id: str) -> CatalogueRow | None:
    """Build a job's row for the catalogue; None before its first capture. Raises StoreError."""
    with closing(open_reader(path, VERSION)) as connection, store_errors(path):
        return _catalogue_row(job_id, connection, path)


def _catalogue_row(job_id: str, connection: sqlite3.Connection, path: str) -> CatalogueRow | None:
    rows = read_captures(connection, path)
    summary = summarise(job_id, rows)
    if summary is None or any(row.account.state in OPEN_STATES for row in rows):
        return None if summary is None else CatalogueRow(summary)
    events = read_stored_events(
        lambda query, *values: connection.execute(query, values).fetchall(),
        path,
        {row.id: row.attempt for row in rows},
        JobEventFilter(names=EVENTS),
    )
    captures = [row.as_capture(row.account.state) for row in rows]
    return CatalogueRow(
        summary, packed_history(summary, captures, events, rows[-1].account.details)
    )


def read_captures(
    connection: sqlite3.Connection, path: str, folder: str | None = None
) -> list[CaptureRow]:
    """All captures, or the one of a folder, in the order in which they came. Raises DamagedError
    and SQLite's own."""
    rows = connection.execute(
        "SELECT id, folder, attempt, step, task, segment, offset, done, account, x_axis FROM capture"
        " WHERE :folder IS NULL OR folder = :folder ORDER BY id",
        {"folder": folder},
    )
    try:
        return [
            CaptureRow(
                row_id,
                name,
                attempt,
                step,
                task,
                SpoolPosition(segment, offset),
                bool(done),
                CaptureAccount.from_json(account),
                XAxis.from_json(axis),
            )
            for row_id, name, attempt, step, task, segment, offset, done, account, axis in rows
        ]
    except ValueError as error:
        raise damaged(path, str(error)) from None
