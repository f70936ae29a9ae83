"""Rows of the catalogue: each job's summary as JSON, and later columns.

An older logshipper leaves the later columns NULL when it replaces or updates rows. The next writer
fills in the parts of the summary; readers of a history (job_history.py) add it.
"""

import json
import sqlite3
from dataclasses import MISSING, fields
from typing import NamedTuple

import orjson

from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.sqlite_file import DamagedError, transaction

_STATEMENTS = (
    "ALTER TABLE job ADD COLUMN name TEXT",
    "ALTER TABLE job ADD COLUMN state TEXT",
    "ALTER TABLE job ADD COLUMN history TEXT",
    "CREATE INDEX job_name ON job (name, started_ns)",
    "CREATE INDEX job_state ON job (state)",
    # our own statements never update a summary
    "CREATE TRIGGER job_columns AFTER UPDATE OF summary ON job BEGIN"
    " UPDATE job SET name = NULL, state = NULL, history = NULL WHERE job_id = new.job_id; END",
)
PUT = """
INSERT OR REPLACE INTO job (job_id, started_ns, summary, name, state, history)
SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS
    (SELECT 1 FROM job WHERE job_id = ?1 AND summary = ?3 AND state = ?5 AND history IS ?6)"""
_DEFAULTS = {field.name: field.default for field in fields(JobSummary)}
_REQUIRED = {name for name, default in _DEFAULTS.items() if default is MISSING}


class CatalogueRow(NamedTuple):
    """A job in the catalogue. history: see job_history.py; None without one."""

    summary: JobSummary
    history: str | None = None

    def values(self) -> tuple[object, ...]:
        """Return the values of PUT."""
        summary = self.summary
        text = summary_to_json(summary)
        return summary.job_id, summary.started_ns, text, summary.name, summary.state, self.history


def summary_to_json(summary: JobSummary) -> str:
    """Encode a summary without default values, so that lists load fast."""
    values = vars(summary).items()
    return json.dumps(
        {name: value for name, value in values if value != _DEFAULTS.get(name, MISSING)}
    )


def summary_from_json(text: str, path: str) -> JobSummary:
    """Past the constructor, which takes ten times as long: lists of 10,000 jobs wait for it. Raises
    DamagedError; path: of the file."""
    try:
        values = orjson.loads(text)
        if not values.keys() >= _REQUIRED:
            raise TypeError(f"a summary lacks {', '.join(sorted(_REQUIRED - values.keys()))}")
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(path, f"is damaged: {error}") from None
    summary = object.__new__(JobSummary)
    summary.__dict__.update(values)
    return summary


def has_columns(connection: sqlite3.Connection, path: str, *, writes: bool) -> bool:
    """Return whether all rows have name and state.

    path: of the file; writes: fills them in. Raises SQLite's errors, DamagedError.
    """
    if writes and not _has_trigger(connection):
        with transaction(connection):
            if not _has_trigger(connection):  # no other process was faster
                for statement in _STATEMENTS:
                    connection.execute(statement)
    if not _has_trigger(connection):
        return False
    is_complete = not connection.execute("SELECT 1 FROM job WHERE state IS NULL LIMIT 1").fetchone()
    if writes and not is_complete:
        with transaction(connection):
            rows = connection.execute("SELECT job_id, summary FROM job WHERE state IS NULL")
            jobs = [(summary_from_json(text, path), job_id) for job_id, text in rows.fetchall()]
            connection.executemany(
                "UPDATE job SET name = ?, state = ? WHERE job_id = ?",
                [(job.name, job.state, job_id) for job, job_id in jobs],
            )
    return writes or is_complete


def _has_trigger(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = 'job_columns'"
    return connection.execute(query).fetchone() is not None
