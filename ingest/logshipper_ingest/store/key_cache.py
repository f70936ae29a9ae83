"""`values.db`: the last, least and greatest value of each key of jobs' metadata, for lists.

It is only a cache of the jobs' databases: the store removes it when it is damaged or a purge runs,
and it fills again. An entry is valid for one number of the job's records. If the file cannot be
read or written, the cache stays empty.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, suppress

import orjson

from logshipper.errors import StoreError
from logshipper_ingest import sqlite_file
from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.model.key_values import KeyValues

FILE = "values.db"
VERSION = 2
SCHEMA = """
CREATE TABLE key_values (
    job_id TEXT PRIMARY KEY,
    started_ns INTEGER NOT NULL,
    records INTEGER NOT NULL,
    held TEXT NOT NULL
) WITHOUT ROWID"""
MAX_BYTES = 32_768  # of a job's values; larger ones always come from the job's database
MAX_WAITING = 500  # jobs whose values are written together

IsCurrent = Callable[[str, int], bool]
_Entry = tuple[int, int, str]  # the job's begin, its number of records, its values as JSON


class KeyCache:
    """The cache of one store, loaded at the first use.

    job_check: a context for writing; its function returns whether a job is still in the store with
    the same stamp, so that removed or purged values are not written. writable: whether to write the
    cache.
    """

    def __init__(
        self,
        root: str,
        job_check: Callable[[], AbstractContextManager[IsCurrent]],
        *,
        wal: bool,
        writable: bool,
    ) -> None:
        self._path = os.path.join(root, FILE)
        self._job_check = job_check
        self._wal = wal
        self._writable = writable
        self._entries: dict[str, _Entry] | None = None
        self._queue: dict[str, tuple[_Entry, int]] = {}  # with the jobs' stamps

    def get(self, job: JobSummary) -> Mapping[str, KeyValues] | None:
        """Return values by key; None if unknown."""
        if self._entries is None:
            self._entries = self._read()
        entry = self._entries.get(job.job_id)
        if entry is None or entry[:2] != (job.started_ns, job.records):
            return None
        try:
            return {key: KeyValues(*values) for key, values in orjson.loads(entry[2]).items()}
        except (ValueError, TypeError, AttributeError):
            return None

    def put(self, job: JobSummary, values: Mapping[str, KeyValues], stamp: int) -> None:
        """Store a job's values; `flush` writes them. stamp: of its database, before the reading."""
        text = json.dumps(values)
        if not self._writable or len(text) > MAX_BYTES:
            return
        entry = (job.started_ns, job.records, text)
        self._queue[job.job_id] = entry, stamp
        if self._entries is not None:
            self._entries[job.job_id] = entry
        if len(self._queue) >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        queue, self._queue = self._queue, {}
        if not queue:
            return
        with self._job_check() as is_current:
            rows = [
                (job_id, *entry)
                for job_id, (entry, stamp) in queue.items()
                if is_current(job_id, stamp)
            ]
            if rows:
                self._write(rows)

    def forget(self, job_id: str) -> None:
        """Delete a job's values, and overwrite them in the file. The caller holds the store's lock."""
        self._queue.pop(job_id, None)
        if self._entries is not None:
            self._entries.pop(job_id, None)
        if not os.path.exists(self._path):
            return
        try:
            writer = sqlite_file.open_writer(self._path, SCHEMA, VERSION, wal=self._wal)
            with closing(writer) as connection, sqlite_file.store_errors(self._path):
                connection.execute("DELETE FROM key_values WHERE job_id = ?", (job_id,))
                sqlite_file.rewrite(connection)
        except StoreError:
            self.remove()  # it is but a cache

    def remove(self) -> None:
        """All of it: a value that was purged may stand there."""
        self._entries, self._queue = {}, {}
        sqlite_file.remove_database(self._path)

    def _read(self) -> dict[str, _Entry]:
        if not os.path.exists(self._path):
            return {}
        try:
            with (
                closing(sqlite_file.open_reader(self._path, VERSION)) as connection,
                sqlite_file.store_errors(self._path),
            ):
                self._check_version(connection)
                rows = connection.execute(
                    "SELECT job_id, started_ns, records, held FROM key_values"
                ).fetchall()
        except sqlite_file.UnfinishedError:
            return {}  # another process is creating it and still needs it
        except sqlite_file.DamagedError:
            self._remove_damaged()
            return {}
        except StoreError:
            return {}
        return {job_id: (started_ns, records, text) for job_id, started_ns, records, text in rows}

    def _write(self, rows: list[tuple[str, int, int, str]]) -> None:
        try:
            writer = sqlite_file.open_writer(self._path, SCHEMA, VERSION, wal=self._wal)
            with (
                closing(writer) as connection,
                sqlite_file.store_errors(self._path),
                sqlite_file.transaction(connection),
            ):
                self._check_version(connection)
                connection.executemany(
                    "INSERT OR REPLACE INTO key_values VALUES (?, ?, ?, ?)", rows
                )
        except sqlite_file.DamagedError:
            self._remove_damaged()
        except (StoreError, sqlite3.Error):
            pass  # a full disk, a lock: it is but a cache

    def _check_version(self, connection: sqlite3.Connection) -> None:
        """Raises DamagedError for a file of an older version, which is made again."""
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            raise sqlite_file.damaged(self._path, "an older logshipper wrote it")

    def _remove_damaged(self) -> None:
        with suppress(OSError):
            sqlite_file.remove_database(self._path)
