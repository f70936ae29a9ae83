"""`allocations.db`: nodes given to jobs for a time, as other systems report them."""

import json
import os
from collections.abc import Sequence
from contextlib import closing

from logshipper_ingest.model.job import Allocation
from logshipper_ingest.sqlite_file import (
    UnfinishedError,
    damaged,
    open_reader,
    open_writer,
    store_errors,
    transaction,
)

FILE = "allocations.db"
VERSION = 1
SCHEMA = """
CREATE TABLE allocation (
    id TEXT PRIMARY KEY,
    origin TEXT NOT NULL,
    scheduler_id TEXT NOT NULL,
    state TEXT NOT NULL,
    nodes INTEGER NOT NULL,
    started_ns INTEGER,
    ended_ns INTEGER,
    details TEXT NOT NULL
) WITHOUT ROWID"""


def put_allocations(root: str, allocations: Sequence[Allocation], *, wal: bool) -> None:
    """Enters them, each in the place of its earlier row. Raises StoreError."""
    path = os.path.join(root, FILE)
    with (
        closing(open_writer(path, SCHEMA, VERSION, wal=wal)) as connection,
        store_errors(path),
        transaction(connection),
    ):
        connection.executemany(
            "INSERT OR REPLACE INTO allocation VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(*allocation[:-1], json.dumps(allocation.details)) for allocation in allocations],
        )


def read_allocations(root: str) -> list[Allocation]:
    """Oldest first, those that wait last. Raises StoreError."""
    path = os.path.join(root, FILE)
    if not os.path.exists(path):
        return []
    try:
        with closing(open_reader(path, VERSION)) as connection, store_errors(path):
            rows = connection.execute(
                "SELECT id, origin, scheduler_id, state, nodes, started_ns, ended_ns, details FROM allocation"
                " ORDER BY started_ns IS NULL, started_ns, id"
            ).fetchall()
    except UnfinishedError:
        return []  # the first ones are on their way
    try:
        return [Allocation._make((*row[:-1], json.loads(row[-1]))) for row in rows]
    except ValueError as error:
        raise damaged(path, str(error)) from None
