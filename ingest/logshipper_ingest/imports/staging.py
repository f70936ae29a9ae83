"""Sorts entries by the jobs that they belong to, on disk: memory stays flat however many there
are."""

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

from logshipper_ingest.model.job import Json
from logshipper_ingest.sqlite_file import store_errors

_BATCH = 5000
_READ_BATCH = 500
_SCHEMA = """
CREATE TABLE entry (id INTEGER PRIMARY KEY, job TEXT NOT NULL, part INTEGER NOT NULL, kind TEXT NOT NULL,
    path TEXT NOT NULL, line INTEGER NOT NULL, value TEXT NOT NULL)"""


class StagedEntry(NamedTuple):
    """An entry, and its place."""

    kind: str  # kind of the entry
    path: str
    line: int  # 0 for a file as a whole
    value: Json


class Staging:
    """Entries on their way to the store, in an unnamed file of a folder.

    part: groups entries, so that a job's are read together; advanced: called now and then during
    reading; count: entries; read_count: entries read back; entries_of_files: entries with a line in
    a file.
    """

    def __init__(self, folder: str, advanced: Callable[[], object] | None = None) -> None:
        fd, self._path = tempfile.mkstemp(prefix="import-", suffix=".tmp", dir=folder)
        os.close(fd)
        with store_errors(self._path):
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode=OFF")
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.execute(_SCHEMA)
        os.unlink(self._path)  # the file vanishes with this process
        self._batch: list[tuple[str, int, str, str, int, str]] = []
        self._advanced = advanced
        self.count = self.read_count = self.entries_of_files = 0

    def add(self, job: str, kind: str, path: str, line: int, value: Json, *, part: int = 0) -> None:
        self._batch.append((job, part, kind, path, line, json.dumps(value)))
        self.count += 1
        self.entries_of_files += line > 0
        if len(self._batch) >= _BATCH:
            self._write()

    def jobs(self) -> Iterator[str]:
        """Each job that has entries, in the order in which they first came. No more are added
        then."""
        self._write()
        with store_errors(self._path):
            self._connection.execute(
                "CREATE INDEX IF NOT EXISTS entry_job ON entry (job, part, id)"
            )
            cursor = self._connection.execute("SELECT job FROM entry GROUP BY job ORDER BY min(id)")
            while rows := cursor.fetchmany(_BATCH):
                yield from (job for (job,) in rows)

    def entries(self, job: str, part: int) -> Iterator[StagedEntry]:
        """A part's, in the order in which they came."""
        with store_errors(self._path):
            cursor = self._connection.execute(
                "SELECT kind, path, line, value FROM entry WHERE job = ? AND part = ? ORDER BY id",
                (job, part),
            )
            while rows := cursor.fetchmany(_READ_BATCH):
                yield from (
                    StagedEntry(kind, path, line, json.loads(value))
                    for kind, path, line, value in rows
                )
                self.read_count += len(rows)
                if self._advanced is not None:
                    self._advanced()

    def close(self) -> None:
        self._connection.close()

    def _write(self) -> None:
        with store_errors(self._path):
            self._connection.execute("BEGIN")
            self._connection.executemany(
                "INSERT INTO entry (job, part, kind, path, line, value) VALUES (?, ?, ?, ?, ?, ?)",
                self._batch,
            )
            self._connection.execute("COMMIT")
        self._batch.clear()

    def __enter__(self) -> "Staging":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
