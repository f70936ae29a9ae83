"""Purges a job's name and keys from an agent's `state.db`, which keeps shipped captures for a week.
The job's lines are never in there."""

import json
import os
import sqlite3
from contextlib import closing
from typing import NamedTuple

from logshipper_ingest import sqlite_file
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.purge_masks import masked_json
from logshipper_ingest.spool.purge_pattern import EVERY_LINE, LinePattern
from logshipper_ingest.state.checkpoints import SCHEMA, VERSION

_JSON_COLUMNS = (("shipped", "identity"), ("shipped", "account"), ("learnt", "account"))


class _Cell(NamedTuple):
    """A value in the state file that matches the pattern."""

    table: str
    column: str
    folder: str
    new: str | None  # the replacement, None to delete the row


def purge_state(path: str, job_id: str, pattern: LinePattern, *, dry_run: bool) -> int:
    """Mask matching values, or delete all rows of the job for EVERY_LINE; return their number.
    dry_run only counts, even while the agent runs; else the caller holds the agent's lock. Raises
    StoreError."""
    if not os.path.exists(path):
        return 0
    database = (
        sqlite_file.open_reader(path, VERSION)
        if dry_run
        else sqlite_file.open_writer(path, SCHEMA, VERSION, wal=True, create=False)
    )
    with closing(database) as connection, sqlite_file.store_errors(path):
        cells = _find_cells(connection, job_id, pattern)
        if cells and not dry_run:
            with sqlite_file.transaction(connection):
                for cell in cells:
                    _write(connection, cell)
            sqlite_file.rewrite_wholly(connection, path)
    return len(cells)


def _find_cells(connection: sqlite3.Connection, job_id: str, pattern: LinePattern) -> list[_Cell]:
    folders = _folders(connection, job_id)
    tables = ("shipped", "learnt")
    folders_by_table = {table: _of(connection, table, "folder", folders) for table in tables}
    if pattern is EVERY_LINE:
        return [
            _Cell(table, "folder", folder, None)
            for table in tables
            for folder in folders_by_table[table]
        ]
    cells: list[_Cell] = []
    for table, column in _JSON_COLUMNS:
        for folder, text in _of(connection, table, column, folders).items():
            new = masked_json(text.encode(), pattern).decode()
            cells += [_Cell(table, column, folder, new)] if new != text else []
    empty_axis = XAxis().to_json()
    for folder, text in _of(connection, "learnt", "x_axis", folders).items():
        # Start over: the records that the X axis was learned from are gone.
        if text != empty_axis and pattern.has(text):
            cells.append(_Cell("learnt", "x_axis", folder, empty_axis))
    return cells


def _folders(connection: sqlite3.Connection, job_id: str) -> set[str]:
    """Return the job's captures; for those without shipped entries, only the folder's name tells
    the job."""
    rows = connection.execute("SELECT folder, identity FROM shipped").fetchall()
    of_job = {folder for folder, identity in rows if json.loads(identity).get("job_id") == job_id}
    unshipped = {folder for (folder,) in connection.execute("SELECT folder FROM learnt")} - {
        folder for folder, _ in rows
    }
    return of_job | {folder for folder in unshipped if folder.rpartition("@")[0] == job_id}


def _of(
    connection: sqlite3.Connection, table: str, column: str, folders: set[str]
) -> dict[str, str]:
    rows = connection.execute(f"SELECT folder, {column} FROM {table}")  # noqa: S608  names of our own
    return {folder: text for folder, text in rows if folder in folders}


def _write(connection: sqlite3.Connection, cell: _Cell) -> None:
    if cell.new is None:
        connection.execute(f"DELETE FROM {cell.table} WHERE folder = ?", (cell.folder,))  # noqa: S608  likewise
    else:
        statement = f"UPDATE {cell.table} SET {cell.column} = ? WHERE folder = ?"  # noqa: S608  likewise
        connection.execute(statement, (cell.new, cell.folder))
