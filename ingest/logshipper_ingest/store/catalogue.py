"""`catalogue.db`: a summary of each job for lists, and tombstones of removed ones.

The summaries are but a copy of what the jobs' own databases say: where the file is missing or
damaged it is made again from these (tombstones are lost then). It is brought up to date after a
job's database and before the spooled capture's directory goes, so that a crash in between leaves
the directory, and with it the cause to do it again.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, replace
from typing import NamedTuple

import orjson

from logshipper.errors import StoreError
from logshipper.fault_points import fault_point
from logshipper_ingest.model.job import RUNNING, JobSummary, derived_state
from logshipper_ingest.model.summary import summarise
from logshipper_ingest.sqlite_file import (
    DamagedError,
    UnfinishedError,
    open_reader,
    open_writer,
    remove_database,
    rewrite,
    rewrite_wholly,
    store_errors,
    transaction,
)

__all__ = ["Catalogue", "Tombstone", "make_again", "read_summary", "summarise"]

FILE = "catalogue.db"
UNFINISHED = ".new"  # behind the name of one that is being made
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


class Tombstone(NamedTuple):
    """What is left of a removed job. attempt: its last one; removed_ns: when it was removed."""

    attempt: int
    removed_ns: int


class Catalogue:
    """The list of a store's jobs. Raises StoreError. is_damaged: it was found to be so, and must be
    made again."""

    def __init__(self, path: str, inode: int, connection: sqlite3.Connection) -> None:
        self.path = path
        self.is_damaged = False
        self._connection = connection
        self._inode = inode

    @classmethod
    def open(cls, path: str, *, wal: bool) -> "Catalogue":
        """For writing. Raises DamagedError where it is missing, or has to be made again."""
        # looked at first: what is put into its place from now on is seen to be another one
        inode = _inode_of(path)
        return cls(path, inode, open_writer(path, SCHEMA, VERSION, wal=wal, create=False))

    @classmethod
    def open_for_reading(cls, path: str) -> "Catalogue":
        inode = _inode_of(path)
        return cls(path, inode, open_reader(path, VERSION))

    @classmethod
    def in_memory(cls) -> "Catalogue":
        """For a store whose catalogue is missing and can't be made, or not now."""
        return cls("catalogue in memory", 0, open_writer(":memory:", SCHEMA, VERSION, wal=False))

    def close(self) -> None:
        self._connection.close()

    def is_in_place(self) -> bool:
        """Whether the file that is open is still the one at its path."""
        return self._inode == _inode_of(self.path)

    @property
    def is_in_memory(self) -> bool:
        return self._inode == 0

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with store_errors(self.path):
                yield
        except DamagedError:
            self.is_damaged = True
            raise

    def jobs(self, now_ns: int) -> list[JobSummary]:
        """Newest first. now_ns: decides which running jobs are unresponsive."""
        with self._errors():
            rows = self._connection.execute(
                "SELECT summary FROM job ORDER BY started_ns DESC, job_id"
            ).fetchall()
            try:
                jobs = [_summary_from_json(text) for (text,) in rows]
            except (ValueError, TypeError, AttributeError) as error:
                raise DamagedError(self.path, f"is damaged: {error}") from None
        for at, job in enumerate(jobs):
            if job.state == RUNNING:
                jobs[at] = replace(job, state=derived_state(job.state, job.heartbeat_ns, now_ns))
        return jobs

    def put(self, summary: JobSummary) -> None:
        with self._errors():
            self._connection.execute(
                "INSERT OR REPLACE INTO job (job_id, started_ns, summary) VALUES (?, ?, ?)",
                _row(summary),
            )

    def put_all(self, summaries: Sequence[JobSummary]) -> None:
        """All of them, or none; what is there already isn't written again."""
        with self._errors(), transaction(self._connection):
            self._connection.executemany(
                "INSERT INTO job (job_id, started_ns, summary) VALUES (?, ?, ?) ON CONFLICT (job_id) DO UPDATE"
                " SET started_ns = excluded.started_ns, summary = excluded.summary WHERE summary <> excluded.summary",
                map(_row, summaries),
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

    def forget(self, job_id: str) -> None:
        """Nothing of its summary stands in the file then. It is the last one to know a job that is
        removed, so whoever is killed before that finds the job, without its words, and removes it
        again."""
        with self._errors():
            row = self._connection.execute(
                "SELECT summary FROM job WHERE job_id = ?", (job_id,)
            ).fetchone()
            try:
                if row:
                    self.put(replace(_summary_from_json(row[0]), name=job_id, reason=""))
            except (ValueError, TypeError, AttributeError) as error:
                raise DamagedError(self.path, f"is damaged: {error}") from None
            rewrite(self._connection)
            fault_point("store_summary_blanked")
            self._connection.execute("DELETE FROM job WHERE job_id = ?", (job_id,))

    def replace(self, summary: JobSummary) -> None:
        """Nothing of the one before stands in the file then."""
        with self._errors():
            self.put(summary)
            rewrite_wholly(self._connection, self.path)

    def words(self, job_id: str) -> list[str]:
        """Texts of a job's summary that are the job's own."""
        with self._errors():
            row = self._connection.execute(
                "SELECT summary FROM job WHERE job_id = ?", (job_id,)
            ).fetchone()
        summary = _summary_from_json(row[0]) if row else None
        return [summary.name, summary.reason, summary.account, summary.partition] if summary else []

    def job_ids(self) -> set[str]:
        with self._errors():
            return {job_id for (job_id,) in self._connection.execute("SELECT job_id FROM job")}

    def rebuild(self, jobs_folder: str) -> list[str]:
        """Enters all jobs that have a database; returns what couldn't be read, a sentence each."""
        problems = []
        for name in sorted(os.listdir(jobs_folder)) if os.path.isdir(jobs_folder) else []:
            job_id, ending = os.path.splitext(name)
            if ending != ".db":
                continue
            try:
                summary = read_summary(os.path.join(jobs_folder, name), job_id)
            except UnfinishedError:
                continue  # nothing was ever in it: the job is still in the spool
            except StoreError as error:
                problems.append(str(error))
            else:
                if summary is not None:
                    self.put(summary)
        return problems


def make_again(path: str, jobs_folder: str, *, wal: bool) -> tuple[Catalogue, list[str]]:
    """A catalogue where there is none, or in the place of a damaged one, which is moved aside; and
    what couldn't be read. It is put into place whole. The caller holds the store's lock."""
    new_path = f"{path}{UNFINISHED}"
    remove_database(new_path)
    connection = open_writer(new_path, SCHEMA, VERSION, wal=wal)
    catalogue = Catalogue(new_path, _inode_of(new_path), connection)
    try:
        problems = catalogue.rebuild(jobs_folder)
    finally:
        catalogue.close()
    if os.path.exists(path):
        os.replace(path, f"{path}.damaged")
    remove_database(path)  # its log, too: it mustn't be taken for the new one's
    os.replace(new_path, path)
    return Catalogue.open(path, wal=wal), problems


def _inode_of(path: str) -> int:
    """-1 where there is no file."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def read_summary(path: str, job_id: str) -> JobSummary | None:
    """From a job's database; None where no capture is in it yet. Raises StoreError."""
    from logshipper_ingest.store.job_db import VERSION as JOB_VERSION  # late: lists don't need it
    from logshipper_ingest.store.job_db import read_captures

    connection = open_reader(path, JOB_VERSION)
    try:
        with store_errors(path):
            captures = read_captures(connection, path)
    finally:
        connection.close()
    return summarise(job_id, captures)


_NEEDED = frozenset(field.name for field in fields(JobSummary) if field.default is MISSING)
_DEFAULTS = {
    field.name: field.default for field in fields(JobSummary) if field.default is not MISSING
}
_UNSET = object()


def _row(summary: JobSummary) -> tuple[str, int, str]:
    """Without what is as by default, which most are: lists are read the faster."""
    values = {
        name: value for name, value in vars(summary).items() if value != _DEFAULTS.get(name, _UNSET)
    }
    return summary.job_id, summary.started_ns, json.dumps(values)


def _summary_from_json(text: str) -> JobSummary:
    """Past the constructor, which takes ten times as long: lists of 10,000 jobs wait for it."""
    values = orjson.loads(text)
    if not values.keys() >= _NEEDED:
        raise TypeError(f"a summary lacks {', '.join(sorted(_NEEDED - values.keys()))}")
    summary = object.__new__(JobSummary)
    summary.__dict__.update(values)
    return summary
