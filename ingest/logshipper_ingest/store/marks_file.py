"""`overlay.db` in a store's folder: tags, notes and stars of the store's user, by job. Written by
the reading side (logshipper_observe/model/overlay.py); a job that is removed takes its marks
along."""

import os
from contextlib import closing
from typing import TYPE_CHECKING

from logshipper_ingest.sqlite_file import open_writer, rewrite, rewrite_wholly, store_errors

if TYPE_CHECKING:
    from logshipper_ingest.spool.purge_pattern import LinePattern

FILE = "overlay.db"
VERSION = 1
SCHEMA = """
CREATE TABLE mark (
    source TEXT NOT NULL,
    job_id TEXT NOT NULL,
    tags TEXT NOT NULL,
    note TEXT NOT NULL,
    starred INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,
    PRIMARY KEY (source, job_id)
) WITHOUT ROWID"""
OF_STORE = ""  # the source of the store's own jobs


def forget_marks(root: str, job_id: str, *, wal: bool) -> None:
    """Delete a job's marks, and overwrite them in the file. Raises StoreError."""
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return
    with closing(open_writer(path, SCHEMA, VERSION, wal=wal)) as connection, store_errors(path):
        connection.execute("DELETE FROM mark WHERE source = ? AND job_id = ?", (OF_STORE, job_id))
        rewrite(connection)


def purge_marks(root: str, job_id: str, pattern: "LinePattern", *, wal: bool, dry_run: bool) -> int:
    """Overwrites a note, and names and values of tags, that have the pattern; whether (1 or 0)
    there are any. dry_run: only looks. Raises StoreError."""
    from logshipper_ingest.spool.purge_masks import (
        masked,
        masked_json,
    )  # late: lists of tags do not need it

    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return 0
    key = (OF_STORE, job_id)
    with closing(open_writer(path, SCHEMA, VERSION, wal=wal)) as connection, store_errors(path):
        row = connection.execute(
            "SELECT tags, note FROM mark WHERE source = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return 0
        tags = masked_json(row[0].encode(), pattern, own_levels=0).decode()
        note = masked(row[1].encode()).decode() if pattern.has(row[1]) else row[1]
        if (tags, note) == row:
            return 0
        if not dry_run:
            connection.execute(
                "UPDATE mark SET tags = ?, note = ? WHERE source = ? AND job_id = ?",
                (tags, note, *key),
            )
            rewrite_wholly(connection, path)
    return 1
