"""Later columns of the catalogue. An older logshipper leaves them NULL when it replaces or updates
rows.

The next writer fills in the parts of the summary; readers of a history (job_history.py) add it.
"""

import sqlite3
from collections.abc import Callable

from logshipper_ingest.model.job import JobSummary
from logshipper_ingest.sqlite_file import transaction

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


def ready(
    connection: sqlite3.Connection, summary_of: Callable[[str], JobSummary], *, writes: bool
) -> bool:
    """Return whether all rows have name and state.

    writes: fills them in; summary_of: parses a row's text. Raises SQLite's errors.
    """
    if writes and not _has_trigger(connection):
        with transaction(connection):
            if not _has_trigger(connection):  # no other process was faster
                for statement in _STATEMENTS:
                    connection.execute(statement)
    if not _has_trigger(connection):
        return False
    if not _has_empty(connection):
        return True
    if writes:
        with transaction(connection):
            _fill(connection, summary_of)
    return writes


def _has_trigger(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = 'job_columns'"
    return connection.execute(query).fetchone() is not None


def _has_empty(connection: sqlite3.Connection) -> bool:
    return (
        connection.execute("SELECT 1 FROM job WHERE state IS NULL LIMIT 1").fetchone() is not None
    )


def _fill(connection: sqlite3.Connection, summary_of: Callable[[str], JobSummary]) -> None:
    rows = connection.execute("SELECT job_id, summary FROM job WHERE state IS NULL").fetchall()
    jobs = ((job_id, summary_of(text)) for job_id, text in rows)
    connection.executemany(
        "UPDATE job SET name = ?, state = ? WHERE job_id = ?",
        ((job.name, job.state, job_id) for job_id, job in jobs),
    )
