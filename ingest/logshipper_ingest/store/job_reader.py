"""Reads one job's database: lines (line_reader.py), metadata records, events, live status, keys and
X axis."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat

from logshipper.config import AUTO, JSON
from logshipper.errors import SpoolError, StoreError
from logshipper.spool.segment import Stream
from logshipper_ingest.model import job
from logshipper_ingest.model.metadata_keys import AUTO_ROOT, line_by_origin
from logshipper_ingest.model.summary import summarise
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import CaptureFolder, open_spool
from logshipper_ingest.sqlite_file import store_errors, unfinished
from logshipper_ingest.store.job_db import has_origins, read_captures
from logshipper_ingest.store.job_rows import (
    OWN_DETAILS,
    pages,
    read_child_changes,
    read_children,
    read_stored_events,
    time_range,
)
from logshipper_ingest.store.line_reader import PAGE, LineReader, numbers_text

_BLOCK_CHARS = 1 << 24
_STREAMS = {int(stream): stream for stream in Stream}


class JobReader(LineReader):
    """One job, as it was when it was opened (summary, captures); lines and records are those there
    are when asked.

    Raises StoreError wherever the database turns out to be damaged. Close it, or the store that
    opened it.
    """

    def __init__(self, path: str, job_id: str, spool: str | None = None) -> None:
        """Open the database. spool: holds the current bars of running captures."""
        super().__init__(path)
        self._spool = spool
        try:
            with store_errors(path):
                rows = read_captures(self._open_connection(), path)
                self._origin = "origin" if has_origins(self._open_connection()) else "''"
            summary = summarise(job_id, rows)
            if summary is None:
                raise unfinished(path, "it has no captures")
        except BaseException:
            self.close()
            raise
        now_ns = time.time_ns()
        state = job.derived_state(summary.state, summary.heartbeat_ns, now_ns)
        self.summary = replace(summary, state=state)
        self.is_over = state not in job.OPEN_STATES
        self.captures = [
            row.as_capture(job.derived_state(row.account.state, row.account.heartbeat_ns, now_ns))
            for row in rows
        ]
        # folders in the spool, by the capture's number
        self._running = {row.id: row.folder for row in rows if row.account.state == job.RUNNING}
        self._silent = [
            job.JobEvent(
                row.account.newest_ns + job.UNRESPONSIVE_NS,
                job.heartbeat_lost(),
                row.attempt,
                row.id,
            )
            for row, capture in zip(rows, self.captures, strict=True)
            if capture.state == job.UNRESPONSIVE and row.account.silent_ns != row.account.newest_ns
        ]
        self._capture_axes = [row.axis for row in rows]
        self._details = {
            name: value for name, value in rows[-1].account.details.items() if name != OWN_DETAILS
        }

    # ---- records, events, status

    def _select_records(self, query: job.RecordQuery) -> Iterator[job.MetadataRecord]:
        """Newest first (R23): at equal times the one that came later."""
        attempts = self._attempts_of(query.attempt)
        after, last_ns, (compare, order, bound) = time_range(
            newest_first=query.newest_first, begin_ns=query.begin_ns, end_ns=query.end_ns
        )
        statement = (
            f"SELECT time_ns, id, n, capture, line, stream, {self._origin} FROM record"  # noqa: S608  numbers and constants
            f" WHERE capture IN ({numbers_text(attempts)}) AND (time_ns, id) {compare} (?, ?)"
            f" AND time_ns {bound} ? ORDER BY time_ns {order}, id {order} LIMIT ?"
        )
        for page in pages(self._fetch, statement, after, last_ns, size=PAGE):
            times, _, numbers, captures, lines, streams, origins = zip(*page, strict=True)
            fields = zip(
                times,
                numbers,
                map(attempts.__getitem__, captures),
                captures,
                lines,
                map(_STREAMS.__getitem__, streams),
                (origin or JSON for origin in origins),
                strict=True,
            )
            yield from map(tuple.__new__, repeat(job.MetadataRecord), fields)

    def record_blocks(self, rows: int) -> Iterator[job.RecordBlock]:
        """Yield metadata records in order of time, at most `rows` per block, and fewer with long
        lines.

        SQLite itself builds the blocks, which takes a third of the time of rows.
        """
        attempts = self._attempts_of()
        only = next(iter(attempts)) if len(attempts) == 1 else None
        captures = "''" if only is not None else "group_concat(capture)"
        line = f"""iif(origin = '{AUTO}', '{{"{AUTO_ROOT}":' || line || '}}', line)"""
        after, size = (-1, -1), min(rows, PAGE)
        while True:
            page = self._fetch(
                f"SELECT count(*), group_concat(time_ns), group_concat(id), {captures}, group_concat({line}, char(10)),"  # noqa: S608  numbers and constants
                f" group_concat(origin) FROM (SELECT time_ns, id, capture, line, {self._origin} AS origin FROM record"
                f" WHERE capture IN ({numbers_text(attempts)}) AND (time_ns, id) > (?, ?)"
                f" ORDER BY time_ns, id LIMIT {size})",
                *after,
            )
            count, times, ids, numbers, text, origins = page[0]
            if not count:
                return
            at = list(map(int, times.split(",")))
            of = [only] * count if only is not None else list(map(int, numbers.split(",")))
            yield job.RecordBlock(
                at, of, attempts, text, [origin or JSON for origin in origins.split(",")]
            )
            if count < size:
                return
            after = at[-1], int(ids.rpartition(",")[2])
            size = max(min(rows, 4 * size, _BLOCK_CHARS * count // len(text)), 1)

    def _select_events(self, event_filter: job.JobEventFilter) -> Iterator[job.JobEvent]:
        """A late heartbeat precedes the stored events."""
        attempts = self._attempts_of(event_filter.attempt)
        yield from event_filter.merge(
            read_stored_events(self._fetch, self.path, attempts, event_filter), self._silent
        )

    def status(self) -> dict[Stream, tuple[int, str]]:
        """Return as Reader.status; nothing for ended captures. The spool's status replaces an older
        one."""
        rows = self._fetch(
            f"SELECT capture, stream, time_ns, text FROM status WHERE capture IN ({numbers_text(self._running)})"  # noqa: S608  numbers
        )
        newest = {
            (capture, Stream(stream)): (time_ns, text) for capture, stream, time_ns, text in rows
        }
        for capture, stream, bar in self._live():
            newest[capture, stream] = max(newest.get((capture, stream), (0, "")), bar)
        bars = sorted((bar, stream) for (_, stream), bar in newest.items() if bar[1])
        return {stream: bar for bar, stream in bars}

    def _live(self) -> Iterator[tuple[int, Stream, tuple[int, str]]]:
        """Yield capture, stream, and (time in ns, text) of live status in the spool."""
        if not self._running or self._spool is None:
            return
        try:
            spool_fd = open_spool(self._spool)
        except StoreError:
            return  # the intake reports it
        if spool_fd is None:
            return
        try:
            for capture, name in self._running.items():
                try:
                    folder = CaptureFolder(spool_fd, self._spool, name, os.geteuid())
                except (OSError, SpoolError):
                    continue  # ended meanwhile, or another user's
                with folder:
                    for stream, bar in folder.live_status().items():
                        yield capture, stream, bar
        finally:
            os.close(spool_fd)

    # ---- imported data

    def details(self) -> job.Json:
        return self._details

    def children(self) -> Iterator[job.Child]:
        return read_children(self._fetch, self.path)

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[job.ChildChange]:
        return read_child_changes(
            self._fetch, newest_first=newest_first, begin_ns=begin_ns, end_ns=end_ns
        )

    # ---- keys and X axis

    def _axes(self) -> list[XAxis]:
        return self._capture_axes

    def _records_at(self, time_ns: int) -> list[str]:
        query = f"SELECT line, {self._origin} FROM record WHERE time_ns = ? ORDER BY id DESC"  # noqa: S608  constants
        return [line_by_origin(*row) for row in self._fetch(query, time_ns)]
