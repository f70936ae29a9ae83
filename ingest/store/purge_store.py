"""Takes lines out of a job's database in a local store: each is overwritten by as many asterisks, in all tables.
Neither the file nor its write-ahead log holds anything of them any more."""

import sqlite3
from collections.abc import Callable

from ingest.capture.purge_pattern import LinePattern, masked, masked_json
from ingest.sqlite_file import UnwritableError, open_writer, store_errors, transaction
from ingest.store.child_rows import has_children
from ingest.store.job_db import SCHEMA, VERSION, packed_text, unpacked_text

_PAGE = 256

Mask = Callable[[bytes], bytes]


def purge_database(path: str, pattern: LinePattern, *, wal: bool, dry_run: bool) -> int:
    """How many lines, events and live lines had the pattern. dry_run: only counts. The caller holds the store's lock.
    Raises StoreError."""
    connection = open_writer(path, SCHEMA, VERSION, wal=wal, create=False)
    try:
        with store_errors(path):
            connection.execute("PRAGMA secure_delete=ON")
            with transaction(connection):
                found = _purge_blocks(connection, path, pattern, dry_run=dry_run)
                _purge_texts(connection, "record", "line", _whole(pattern), dry_run=dry_run)  # blocks have them, too
                found += _purge_texts(connection, "status", "text", _whole(pattern), dry_run=dry_run)
                events = _texts_of(pattern)
                found += _purge_texts(connection, "event", "event", events, dry_run=dry_run)
                if _is_imported(connection):  # what its own system says of it, and of its parts
                    found += _purge_texts(connection, "capture", "account", events, dry_run=dry_run)
                if has_children(lambda query: connection.execute(query).fetchall()):
                    found += _purge_texts(connection, "child", "details", events, dry_run=dry_run)
            if found and not dry_run:
                _settle(connection, path)
        return found
    finally:
        connection.close()


def _purge_blocks(connection: sqlite3.Connection, path: str, pattern: LinePattern, *, dry_run: bool) -> int:
    found, last = 0, -1
    while True:
        rows = connection.execute(
            "SELECT id, codec, text FROM block WHERE id > ? ORDER BY id LIMIT ?", (last, _PAGE)
        ).fetchall()
        if not rows:
            return found
        last = rows[-1][0]
        for number, codec, stored in rows:
            lines = unpacked_text(codec, stored, path).split(b"\n")
            hits = [at for at, line in enumerate(lines) if line and pattern.has(line)]
            found += len(hits)
            for at in hits:
                lines[at] = masked(lines[at])
            if hits and not dry_run:
                values = (*packed_text(b"\n".join(lines)), number)
                connection.execute("UPDATE block SET codec = ?, text = ? WHERE id = ?", values)


def _is_imported(connection: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM capture WHERE ifnull(json_extract(account, '$.origin'), '') <> ''"
    return connection.execute(query).fetchone() is not None


def _purge_texts(connection: sqlite3.Connection, table: str, column: str, mask: Mask, *, dry_run: bool) -> int:
    rows = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} <> ''")  # noqa: S608  names of our own
    found = [(new, number) for number, text in rows if (new := mask(text.encode()).decode()) != text]
    if not dry_run:
        connection.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", found)  # noqa: S608  likewise
    return len(found)


def _whole(pattern: LinePattern) -> Mask:
    return lambda text: masked(text) if pattern.has(text) else text


def _texts_of(pattern: LinePattern) -> Mask:
    return lambda text: masked_json(text, pattern)


def _settle(connection: sqlite3.Connection, path: str) -> None:
    """Old pages go: those that are free, and those in the write-ahead log."""
    connection.execute("VACUUM")
    busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    if busy:
        raise UnwritableError(
            path, "another program reads it: the lines are gone, but may stand in PATH-wal: try again"
        )
