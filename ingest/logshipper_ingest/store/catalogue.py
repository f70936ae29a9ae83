"""`catalogue.db`: a summary of each job for lists, its history (job_history.py) for reports, and
tombstones of removed jobs.

The summaries are copies from the jobs' databases. If the file is missing or damaged, the store
rebuilds it from these, without the tombstones. An update follows the job's database and precedes
the removal of the spooled capture's folder, so after a crash in between the folder triggers the
update again.

Later versions added the columns behind the summary (catalogue_rows.py). An older logshipper may
write the file, too, and leaves them empty.
"""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from logshipper.errors import StoreError
from logshipper.fault_points import fault_point
from logshipper_ingest import sqlite_file
from logshipper_ingest.model.job import NAME, RUNNING, UNRESPONSIVE, JobSummary, derived_state
from logshipper_ingest.store.catalogue_rows import (
    PUT,
    CatalogueRow,
    has_columns,
    summary_from_json,
    summary_to_json,
)

FILE = "catalogue.db"
UNFINISHED = ".new"  # suffix of an unfinished file
VERSION = 1
SCHEMA = """
CREATE TABLE job (
    job_id TEXT PRIMARY KEY,
    started_ns INTEGER NOT NULL,
    summary TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX job_started ON job (started_ns);
CREATE TABLE tombstone (
    job_id TEXT PRIMARY KEY,
    attempt INTEGER NOT NULL,
    removed_ns INTEGER NOT NULL
) WITHOUT ROWID"""
_ORIGINS = ("qcg", "balsam", "xt")  # of imported jobs; names may omit them


class Tombstone(NamedTuple):
    """The rest of a removed job. attempt: its last one; removed_ns: time of the removal."""

    attempt: int
    removed_ns: int


class Catalogue:
    """The list of a store's jobs. Raises StoreError. is_damaged: the file needs a rebuild."""

    def __init__(
        self, path: str, inode: int, connection: sqlite3.Connection, *, writes: bool = True
    ) -> None:
        self.path = path
        self.is_damaged = False
        self._connection = connection
        self._inode = inode
        try:
            with self._errors():
                # otherwise the table keeps an earlier version's form
                self._has_columns = has_columns(connection, path, writes=writes)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def open(cls, path: str, *, wal: bool) -> "Catalogue":
        """Open the file for writing. Raises DamagedError if it is missing or needs a rebuild."""
        # checked first, to notice a later replacement
        inode = _inode_of(path)
        return cls(
            path, inode, sqlite_file.open_writer(path, SCHEMA, VERSION, wal=wal, create=False)
        )

    @classmethod
    def open_for_reading(cls, path: str) -> "Catalogue":
        inode = _inode_of(path)
        return cls(path, inode, sqlite_file.open_reader(path, VERSION), writes=False)

    @classmethod
    def in_memory(cls) -> "Catalogue":
        """Open a substitute for a missing catalogue that cannot be rebuilt now."""
        return cls(
            "catalogue in memory",
            0,
            sqlite_file.open_writer(":memory:", SCHEMA, VERSION, wal=False),
        )

    def close(self) -> None:
        self._connection.close()

    def is_in_place(self) -> bool:
        """Return whether the open file is still the one at its path."""
        return self._inode == _inode_of(self.path)

    @property
    def is_in_memory(self) -> bool:
        return self._inode == 0

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with sqlite_file.store_errors(self.path):
                yield
        except sqlite_file.DamagedError:
            self.is_damaged = True
            raise

    def __len__(self) -> int:
        with self._errors():
            return int(self._connection.execute("SELECT count(*) FROM job").fetchone()[0])

    def jobs(
        self, now_ns: int, after: JobSummary | None = None, count: int = -1
    ) -> list[JobSummary]:
        """Newest first. now_ns: decides which running jobs are unresponsive; after: those behind
        it; count: at most so many, -1 for all."""
        condition, values = "", list[object]()
        if after is not None:
            condition = "WHERE started_ns <= ? AND (started_ns < ? OR job_id > ?) "
            values = [after.started_ns, after.started_ns, after.job_id]
        return self._summaries(
            now_ns, f"{condition}ORDER BY started_ns DESC, job_id LIMIT ?", *values, count
        )

    def _summaries(self, now_ns: int, condition: str, *values: object) -> list[JobSummary]:
        with self._errors():
            rows = self._connection.execute(f"SELECT summary FROM job {condition}", values)  # noqa: S608  constants
            return [_current(summary_from_json(text, self.path), now_ns) for (text,) in rows]

    def job(self, job_id: str, now_ns: int) -> JobSummary | None:
        jobs = self._summaries(now_ns, "WHERE job_id = ?", job_id) if NAME.fullmatch(job_id) else []
        return jobs[0] if jobs else None

    def candidates(self, name: str, now_ns: int) -> list[JobSummary]:
        """Those that a name may mean as an id, as its beginning or as the newest job's name, newest
        first."""
        if not self._has_columns or not name or not name.isprintable():
            return self.jobs(now_ns)
        conditions = {
            "WHERE job_id = ?": [name],
            # ids with this beginning; more than some thousands help nobody
            "WHERE job_id >= ? AND job_id < ? LIMIT 1000": [name, f"{name}\U0010ffff"],
            "WHERE job_id IN (?, ?, ?)": [f"{origin}-{name}" for origin in _ORIGINS],
            "WHERE name = ? ORDER BY started_ns DESC, job_id LIMIT 1": [name],
        }
        jobs = {
            job.job_id: job
            for condition, values in conditions.items()
            for job in self._summaries(now_ns, condition, *values)
        }
        return sorted(jobs.values(), key=lambda job: (-job.started_ns, job.job_id))

    def states(self, now_ns: int) -> Counter[str]:
        """Count the jobs in each state."""
        if not self._has_columns:
            return Counter(job.state for job in self.jobs(now_ns))
        with self._errors():
            rows = self._connection.execute("SELECT state, count(*) FROM job GROUP BY state")
            states = Counter(dict(rows))
        running = self._summaries(now_ns, "WHERE state = ?", RUNNING)
        silent = sum(job.state == UNRESPONSIVE for job in running)
        return states + Counter({UNRESPONSIVE: silent}) - Counter({RUNNING: silent})

    def put(self, row: CatalogueRow) -> None:
        with self._errors():
            self._connection.execute(PUT, row.values())

    def put_all(self, rows: Sequence[CatalogueRow]) -> None:
        """Write all rows, or none; skips unchanged ones."""
        with self._errors(), sqlite_file.transaction(self._connection):
            self._connection.executemany(PUT, map(CatalogueRow.values, rows))

    # ---- how jobs ran

    def histories(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the histories of these jobs, where the catalogue has one."""
        if not self._has_columns:
            return {}
        marks = ", ".join("?" * len(job_ids))
        query = f"SELECT job_id, history FROM job WHERE job_id IN ({marks}) AND history IS NOT NULL"  # noqa: S608  marks
        with self._errors():
            return dict(self._connection.execute(query, job_ids).fetchall())

    def add_histories(self, rows: Sequence[CatalogueRow]) -> None:
        """Add histories to jobs without one, if their summaries are unchanged."""
        values = [(row.history, row.summary.job_id, summary_to_json(row.summary)) for row in rows]
        with self._errors(), sqlite_file.transaction(self._connection):
            self._connection.executemany(
                "UPDATE job SET history = ? WHERE job_id = ? AND summary = ? AND history IS NULL",
                values,
            )

    def tombstone(self, job_id: str) -> Tombstone | None:
        with self._errors():
            row = self._connection.execute(
                "SELECT attempt, removed_ns FROM tombstone WHERE job_id = ?", (job_id,)
            ).fetchone()
        return Tombstone(*row) if row else None

    def bury(self, job_id: str, attempt: int) -> None:
        """Leaves a tombstone: no segment up to this attempt is ingested any more."""
        with self._errors():
            self._connection.execute(
                "INSERT OR REPLACE INTO tombstone (job_id, attempt, removed_ns) VALUES (?, ?, ?)",
                (job_id, attempt, time.time_ns()),
            )

    def forget(self, job_ids: Sequence[str]) -> None:
        """Delete jobs' rows, and write the whole file anew, once, so that it keeps no part of them.

        Removal calls this last, so an interrupted removal finds the jobs, without their text, and
        repeats.
        """
        if not job_ids:
            return
        marks = ",".join("?" * len(job_ids))
        with self._errors():
            for summary in self._summaries(0, f"WHERE job_id IN ({marks})", *job_ids):
                self.put(CatalogueRow(replace(summary, name=summary.job_id, reason="")))
            sqlite_file.rewrite(self._connection)
            fault_point("store_summary_blanked")
            self._connection.executemany(
                "DELETE FROM job WHERE job_id = ?", [(job_id,) for job_id in job_ids]
            )

    def replace(self, row: CatalogueRow) -> None:
        """Replace a job's row, and overwrite the old one in the file."""
        with self._errors():
            self.put(row)
            sqlite_file.rewrite_wholly(self._connection, self.path)

    def words(self, job_id: str) -> list[str]:
        """Texts of a job's summary and history that are the job's own."""
        from logshipper_ingest.store.job_history import JobHistory

        summary = self.job(job_id, 0)
        if summary is None:
            return []
        words = [summary.name, summary.reason, summary.account, summary.partition]
        text = self.histories([job_id]).get(job_id)
        return words if text is None else [*words, *JobHistory(summary, text).texts()]

    def job_ids(self) -> set[str]:
        with self._errors():
            return {job_id for (job_id,) in self._connection.execute("SELECT job_id FROM job")}

    def rebuild(self, jobs_folder: str) -> list[str]:
        """Enter all jobs with a database; return the faults, a sentence each."""
        from logshipper_ingest.store.job_db import read_catalogue_row  # late: lists do not need it

        problems = []
        for name in sorted(os.listdir(jobs_folder)) if os.path.isdir(jobs_folder) else []:
            job_id, ending = os.path.splitext(name)
            if ending != ".db":
                continue
            try:
                row = read_catalogue_row(os.path.join(jobs_folder, name), job_id)
            except sqlite_file.UnfinishedError:
                continue  # nothing was ever in it: the job is still in the spool
            except StoreError as error:
                problems.append(str(error))
            else:
                if row is not None:
                    self.put(row)
        return problems


def make_again(path: str, jobs_folder: str, *, wal: bool) -> tuple[Catalogue, list[str]]:
    """Create a catalogue, or replace a damaged one, which moves aside; also return the faults.

    The new file replaces the old one in one step. The caller holds the store's lock.
    """
    new_path = f"{path}{UNFINISHED}"
    sqlite_file.remove_database(new_path)
    connection = sqlite_file.open_writer(new_path, SCHEMA, VERSION, wal=wal)
    catalogue = Catalogue(new_path, _inode_of(new_path), connection)
    try:
        problems = catalogue.rebuild(jobs_folder)
    finally:
        catalogue.close()
    if os.path.exists(path):
        os.replace(path, f"{path}.damaged")
    sqlite_file.remove_database(path)  # its log, too: it mustn't be taken for the new one's
    os.replace(new_path, path)
    return Catalogue.open(path, wal=wal), problems


def _inode_of(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def _current(job: JobSummary, now_ns: int) -> JobSummary:
    state = derived_state(job.state, job.heartbeat_ns, now_ns)
    return job if state == job.state else replace(job, state=state)
