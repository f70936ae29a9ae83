"""Takes a pattern out of all that a store's folder holds of one job: lines, names, tags, notes.

Asterisks overwrite each match in all tables of the job's database, and the keys' statistics start
again. Neither the file nor its write-ahead log keeps any part of a match. The caller holds the
store's lock.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.purge_masks import masked, masked_json, masked_lines
from logshipper_ingest.spool.purge_pattern import LinePattern
from logshipper_ingest.spool.purge_segments import PurgeResult
from logshipper_ingest.sqlite_file import (
    UnwritableError,
    open_writer,
    rewrite_wholly,
    store_errors,
    transaction,
)
from logshipper_ingest.store import due_marks, marks_file
from logshipper_ingest.store.catalogue import Catalogue
from logshipper_ingest.store.intake import Intake
from logshipper_ingest.store.job_db import (
    SCHEMA,
    VERSION,
    has_origins,
    packed_text,
    read_catalogue_row,
    unpacked_text,
)
from logshipper_ingest.store.job_rows import has_children
from logshipper_ingest.store.job_traces import JobPlace, moved_aside, remove_unfinished

_PAGE = 256


def purge_job(
    place: JobPlace, intake: Intake, catalogue: Catalogue, pattern: LinePattern, *, dry_run: bool
) -> PurgeResult:
    """Count and overwrite matching lines, names, tags and notes, by file.

    dry_run: only counts. Raises StoreError for files that cannot be written, after all other files.
    """
    spooled = intake.purge(place.job_id, pattern, dry_run=dry_run)
    if not dry_run:
        remove_unfinished(place)
    steps: dict[str, Callable[[], int]] = {
        place.database: lambda: _purge_database(place, pattern, dry_run=dry_run),
        catalogue.path: lambda: _purge_summary(place, catalogue, pattern, dry_run=dry_run),
        os.path.join(place.root, marks_file.FILE): lambda: marks_file.purge_marks(
            place.root, place.job_id, pattern, wal=place.wal, dry_run=dry_run
        ),
        os.path.join(place.root, due_marks.FILE): lambda: due_marks.purge(
            place.root, place.job_id, pattern, dry_run=dry_run
        ),
    }
    lines, files = spooled.lines, list(spooled.files)
    failed: list[UnwritableError] = []
    for path, step in steps.items():
        try:
            hit_count = step()
        except UnwritableError as error:
            failed.append(error)
        else:
            lines += hit_count
            files += [path] if hit_count else []
    if failed:
        raise failed[0]
    return PurgeResult(lines, files)


def _purge_database(place: JobPlace, pattern: LinePattern, *, dry_run: bool) -> int:
    path = place.database
    if not os.path.exists(path):
        return 0
    with (
        closing(open_writer(path, SCHEMA, VERSION, wal=place.wal, create=False)) as connection,
        store_errors(path),
    ):
        with transaction(connection):
            hit_count = _Purge(connection, path, pattern, dry_run).run()
        if hit_count and not dry_run:
            rewrite_wholly(connection, path)
    return hit_count


def _purge_summary(
    place: JobPlace, catalogue: Catalogue, pattern: LinePattern, *, dry_run: bool
) -> int:
    """Purge the summary; its matches count in the job's database."""
    hit_count = sum(map(pattern.has, catalogue.words(place.job_id)))
    if dry_run or not hit_count or not os.path.exists(place.database):
        return hit_count
    row = read_catalogue_row(place.database, place.job_id)
    if row is not None:
        catalogue.replace(row)
    return 0


def not_purged(place: JobPlace, pattern: LinePattern) -> list[str]:
    """List remaining places that may match, a sentence each."""
    problems = [
        f"{path}: was moved aside as damaged, and not searched: remove it"
        for path in moved_aside(place)
    ]
    if pattern.has(place.job_id):
        problems.append(f"the job's id has it, which names files: `logshipper rm {place.job_id}`")
    return problems


class _Purge:
    def __init__(
        self, connection: sqlite3.Connection, path: str, pattern: LinePattern, dry_run: bool
    ) -> None:
        self._connection = connection
        self._path = path
        self._pattern = pattern
        self._dry_run = dry_run

    def run(self) -> int:
        hit_count = self._blocks() + self._records_in_no_block()
        records = self._texts("record", "line", self._whole)  # blocks have most, and these count
        for table, column, mask in (
            ("block", "attrs", self._json),
            ("status", "text", self._whole),
            ("event", "event", self._json),
            ("capture", "account", self._json),
            ("capture", "step", self._whole),
        ):
            hit_count += self._texts(table, column, mask)
        if has_children(lambda query: self._connection.execute(query).fetchall()):
            hit_count += self._texts("child", "details", self._others_json)
            hit_count += self._texts("child_change", "source_from", self._whole)
            hit_count += self._texts("child_change", "source_to", self._whole)
            hit_count += self._names_of_children()
        return hit_count + self._axes(learn=records > 0)

    def _whole(self, text: bytes) -> bytes:
        return masked(text) if self._pattern.has(text) else text

    def _json(self, text: bytes) -> bytes:
        return masked_json(text, self._pattern)

    def _others_json(self, text: bytes) -> bytes:
        return masked_json(text, self._pattern, own_levels=0)

    def _blocks(self) -> int:
        hit_count, last = 0, -1
        query = "SELECT id, codec, text FROM block WHERE id > ? ORDER BY id LIMIT ?"
        while rows := self._connection.execute(query, (last, _PAGE)).fetchall():
            last = rows[-1][0]
            for number, codec, stored in rows:
                text, hits = masked_lines(unpacked_text(codec, stored, self._path), self._pattern)
                hit_count += hits
                if hits and not self._dry_run:
                    values = (*packed_text(text), number)
                    self._connection.execute(
                        "UPDATE block SET codec = ?, text = ? WHERE id = ?", values
                    )
        return hit_count

    def _records_in_no_block(self) -> int:
        """Count records that are no JSON: a block has the line, and the record lies beside it."""
        if not has_origins(self._connection):
            return 0
        rows = self._connection.execute("SELECT id, line FROM record WHERE origin <> ''")
        hits = [number for number, line in rows if self._pattern.has(line)]
        is_in_none = (
            "SELECT NOT EXISTS (SELECT 1 FROM block WHERE capture = r.capture AND stream = r.stream"
            " AND time_ns <= r.time_ns AND time_ns + lines > r.time_ns) FROM record AS r WHERE id = ?"
        )
        return sum(self._connection.execute(is_in_none, (number,)).fetchone()[0] for number in hits)

    def _texts(self, table: str, column: str, mask: Callable[[bytes], bytes]) -> int:
        rows = self._connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {column} <> ''")  # noqa: S608  names of our own
        edits = [
            (new, number) for number, text in rows if (new := mask(text.encode()).decode()) != text
        ]
        if not self._dry_run:
            self._connection.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", edits)  # noqa: S608  likewise
        return len(edits)

    def _names_of_children(self) -> int:
        """No two may have the same: their numbers tell them apart."""
        rows = self._connection.execute("SELECT id, name FROM child")
        edits = [
            (f"{'*' * len(name)}{child_id}", child_id)
            for child_id, name in rows
            if not name.startswith("*") and self._pattern.has(name)
        ]
        if not self._dry_run:
            self._connection.executemany("UPDATE child SET name = ? WHERE id = ?", edits)
        return len(edits)

    # ---- statistics of keys

    def _axes(self, *, learn: bool) -> int:
        """Count captures with a matching key. learn: some of their records were masked."""
        rows = self._connection.execute("SELECT id, x_axis FROM capture").fetchall()
        keyed = [number for number, x_axis in rows if any(map(self._pattern.has, _keys(x_axis)))]
        if not self._dry_run:
            for number in [number for number, _ in rows] if learn else keyed:
                values = (self._learnt_again(number).to_json(), number)
                self._connection.execute("UPDATE capture SET x_axis = ? WHERE id = ?", values)
        return len(keyed)

    def _learnt_again(self, capture: int) -> XAxis:
        axis = XAxis()
        query = "SELECT line, time_ns, origin FROM record WHERE capture = ? ORDER BY id"
        for line, time_ns, origin in self._connection.execute(query, (capture,)):
            record = parse_record(line.encode())
            if record is not None:
                axis.add(record, time_ns, origin=origin)
        return axis


def _keys(x_axis: str) -> Iterator[str]:
    state = json.loads(x_axis)
    for path, _ in (*state.get("numbers", ()), *state.get("others", ())):
        yield from path
        yield ".".join(path)
