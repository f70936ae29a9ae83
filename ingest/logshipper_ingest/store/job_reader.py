"""Reads one job's database: lines in order of time, metadata records, events, live status, keys and
X axis.

Queries are short and read pages, so that a slow reader holds no lock.
"""

import heapq
import json
import os
import sqlite3
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from logshipper.config import JSON
from logshipper.errors import SpoolError, StoreError
from logshipper.spool.segment import MAX_PAYLOAD_BYTES, Kind, Stream
from logshipper_ingest.model.job import (
    OPEN_STATES,
    RUNNING,
    UNRESPONSIVE,
    UNRESPONSIVE_NS,
    Child,
    ChildChange,
    JobEvent,
    JobEventFilter,
    JobSummary,
    Json,
    LogLine,
    MetadataRecord,
    Position,
    RecordBlock,
    derived_state,
    heartbeat_lost,
)
from logshipper_ingest.model.keyed_reader import KeyedReader
from logshipper_ingest.model.summary import summarise
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import CaptureFolder, open_spool
from logshipper_ingest.sqlite_file import damaged, open_reader, store_errors, unfinished
from logshipper_ingest.store.child_rows import OWN_DETAILS, read_child_changes, read_children
from logshipper_ingest.store.event_rows import read_stored_events
from logshipper_ingest.store.job_db import VERSION, has_origins, read_captures, unpacked_text

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

ALL_KINDS = (Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE)
_PAGE = 256
_NO_END_NS = (1 << 63) - 1  # later than any record
_BLOCK_CHARS = 1 << 24
_MAX_BLOCK_NS = MAX_PAYLOAD_BYTES  # a block's lines are 1 ns apart, and at least a byte long
_MANY_BLOCKS = 50_000  # with more new ones, the index over time is faster
_STREAMS = {int(stream): stream for stream in Stream}
_FEW_BYTES = 64 << 10  # smaller packed texts do not justify a second thread
_PACKED_BYTES = 256 << 10  # packed texts per step; unpacked usually ten times as much
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})  # Any: JSON


class BlockHead(NamedTuple):
    """A block of a capture's stream, without its text."""

    id: int
    time_ns: int  # its first line's; the others are 1 ns apart
    lines: int
    stream: int
    capture: int


class _Key(NamedTuple):
    """A block's place in the order of time."""

    time_ns: int
    id: int
    lines: int


class _Open(NamedTuple):
    """A block that is being merged with others: sorts by its next line."""

    time_ns: int
    key_id: int
    line: LogLine
    key: _Key
    rest: Iterator[LogLine]


class _Query(NamedTuple):
    """The selected lines. attempts: of each capture; where: streams, captures and more, as SQL."""

    kinds: frozenset[int]
    attempts: dict[int, int]
    where: str


class JobReader(KeyedReader):
    """One job, as it was when it was opened (summary, captures); lines and records are those there
    are when asked.

    Raises StoreError wherever the database turns out to be damaged. Close it, or the store that
    opened it.
    """

    def __init__(self, path: str, job_id: str, spool: str | None = None) -> None:
        """Open the database. spool: holds the current bars of running captures."""
        self.path = path
        self._spool = spool
        self._connection: sqlite3.Connection | None = open_reader(path, VERSION)
        try:
            with store_errors(path):
                rows = read_captures(self._connection, path)
                self._origin = "origin" if has_origins(self._connection) else "''"
            summary = summarise(job_id, rows)
            if summary is None:
                raise unfinished(path, "it has no captures")
        except BaseException:
            self.close()
            raise
        now_ns = time.time_ns()
        self.summary: JobSummary = replace(
            summary, state=derived_state(summary.state, summary.heartbeat_ns, now_ns)
        )
        self.captures = [
            row.account.as_capture(
                row.id,
                row.attempt,
                row.step,
                row.task,
                derived_state(row.account.state, row.account.heartbeat_ns, now_ns),
            )
            for row in rows
        ]
        # folders in the spool, by the capture's number
        self._running = {row.id: row.folder for row in rows if row.account.state == RUNNING}
        self._silent = [
            JobEvent(row.account.newest_ns + UNRESPONSIVE_NS, heartbeat_lost(), row.attempt, row.id)
            for row, capture in zip(rows, self.captures, strict=True)
            if capture.state == UNRESPONSIVE and row.account.silent_ns != row.account.newest_ns
        ]
        self._learnt = [row.axis for row in rows]
        self._details = {
            name: value for name, value in rows[-1].account.details.items() if name != OWN_DETAILS
        }

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, so that no more lines come."""
        return self.summary.state not in OPEN_STATES

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "JobReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def _fetch(
        self, query: str, *values: object
    ) -> list[tuple[Any, ...]]:  # Any: columns, as the schema has them
        if self._connection is None:
            raise ValueError("the reader is closed")
        with store_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def _attempts_of(self, attempt: int | None) -> dict[int, int]:
        """Attempts by capture's number: of the captures there are now."""
        rows = self._fetch("SELECT id, attempt FROM capture")
        return {capture: number for capture, number in rows if attempt is None or number == attempt}

    # ---- lines

    def lines(
        self,
        *,
        streams: Collection[Stream],
        attempt: int | None = None,
        kinds: Collection[Kind] = ALL_KINDS,
        after: Position | None = None,
        tail: int | None = None,
        since_ns: int = 0,
    ) -> Iterator[LogLine]:
        """Yield lines in order of time.

        streams, kinds, attempt (None: all): the selection; after: position of the last line read;
        yields lines unread by then (use the same selection); tail: the last lines only; since_ns:
        lines from this time on, without after and tail.
        """
        newest = int(self._fetch("SELECT ifnull(max(id), 0) FROM block")[0][0])
        # after newest: the captures of all these blocks are among them
        attempts = self._attempts_of(attempt)
        where = (
            f"stream IN ({_numbers([*streams, Stream.NONE])}) AND capture IN ({_numbers(attempts)})"
        )
        query = _Query(frozenset(kinds), attempts, where)
        if tail is not None and tail <= 0:
            return iter(())
        if after is None:
            if tail is not None:
                return self._tail(query, newest, tail)
            if since_ns:
                query = query._replace(where=f"{where} AND time_ns + lines > {int(since_ns)}")
                return (
                    line for line in self._ordered(query, 0, newest) if line.time_ns >= since_ns
                )
            return self._ordered(query, 0, newest)
        lines = self._after(query, after, newest)
        return lines if tail is None else iter(deque(lines, maxlen=tail))

    def _after(self, query: _Query, after: Position, newest: int) -> Iterator[LogLine]:
        """Yield the rest of the position's blocks, then newer lines."""
        where = f"time_ns >= {max(0, after.time_ns - _MAX_BLOCK_NS)} AND time_ns + lines > {after.time_ns}"
        rest = self._ordered(
            query._replace(where=f"{query.where} AND {where}"), after.base, after.mark
        )
        for line in rest:
            if (line.time_ns, line.position.block) > (after.time_ns, after.block):
                yield line
        if newest > after.mark:
            yield from self._ordered(query, after.mark, newest)

    def _tail(self, query: _Query, newest: int, tail: int) -> Iterator[LogLine]:
        line_count, first = 0, None
        last: tuple[int, int] = (1 << 63) - 1, 0
        while line_count < tail:
            page = self._fetch(
                f"SELECT time_ns, id, lines, runs FROM block WHERE {query.where} AND id <= ?"  # noqa: S608  numbers only
                f" AND (time_ns, id) < (?, ?) ORDER BY time_ns DESC, id DESC LIMIT {_PAGE}",
                newest,
                *last,
            )
            for time_ns, number, lines, runs in page:
                line_count += sum(
                    count for kind, count in self._runs(runs, lines) if kind in query.kinds
                )
                first = last = (time_ns, number)
                if line_count >= tail:
                    break
            if len(page) < _PAGE:
                break
        if first is None:
            return iter(())
        where = f"{query.where} AND (time_ns, id) >= ({first[0]}, {first[1]})"
        return islice(
            self._ordered(query._replace(where=where), 0, newest), max(0, line_count - tail), None
        )

    def _ordered(self, query: _Query, base: int, mark: int) -> Iterator[LogLine]:
        """Yield lines of the blocks past base, up to mark.

        Blocks of different streams may overlap in time, and then their lines are merged. Blocks of
        one capture's stream never overlap, so few are open at a time.
        """
        keys = self._keys(query, base, mark)
        upcoming = next(keys, None)
        while upcoming is not None:
            key, upcoming = upcoming, next(keys, None)
            lines = self._block(query, base, mark, key)
            if upcoming is None or upcoming.time_ns >= key.time_ns + key.lines:
                yield from lines
                continue
            heap: list[_Open] = []
            _open(heap, key, lines)
            while heap:
                while upcoming is not None and upcoming.time_ns <= heap[0].line.time_ns:
                    _open(heap, upcoming, self._block(query, base, mark, upcoming))
                    upcoming = next(keys, None)
                first = heapq.heappop(heap)
                yield first.line
                _open(heap, first.key, first.rest)

    def _keys(self, query: _Query, base: int, mark: int) -> Iterator[_Key]:
        # numbers find new rows since the last look; the index over time finds all
        column = "+time_ns" if base and mark - base < _MANY_BLOCKS else "time_ns"
        last = (-1, 0)
        while True:
            page = self._fetch(
                f"SELECT time_ns, id, lines FROM block WHERE {query.where} AND id > ? AND id <= ?"  # noqa: S608  numbers
                f" AND ({column}, id) > (?, ?) ORDER BY {column}, id LIMIT {_PAGE}",
                base,
                mark,
                *last,
            )
            for row in page:
                yield _Key(*row)
            if len(page) < _PAGE:
                return
            last = page[-1][:2]

    def _block(self, query: _Query, base: int, mark: int, key: _Key) -> Iterator[LogLine]:
        columns = "capture, stream, runs, attrs, codec, text"
        rows = self._fetch(f"SELECT {columns} FROM block WHERE id = ?", key.id)  # noqa: S608  a constant
        capture, stream, packed_runs, packed_attrs, codec, packed = rows[0]
        runs = self._runs(packed_runs, key.lines)
        try:
            text = unpacked_text(codec, packed, self.path).decode("utf-8", "replace")
            attrs = {int(line): values for line, values in json.loads(packed_attrs or "{}").items()}
        except ValueError as error:
            raise damaged(self.path, str(error)) from None
        texts = text.split("\n")
        at = 0
        for kind, count in runs:
            if kind in query.kinds:
                end = at + count
                times = range(key.time_ns + at, key.time_ns + end)
                positions = map(
                    tuple.__new__,
                    repeat(Position),
                    zip(repeat(base), repeat(mark), times, repeat(key.id)),
                )
                of_lines = (
                    map(attrs.get, range(at, end), repeat(_NO_ATTRS))
                    if attrs
                    else repeat(_NO_ATTRS)
                )
                fields = zip(
                    positions,
                    times,
                    repeat(Stream(stream)),
                    repeat(Kind(kind)),
                    texts[at:end],
                    of_lines,
                    repeat(query.attempts[capture]),
                    repeat(capture),
                )
                yield from map(tuple.__new__, repeat(LogLine), fields)
            at += count

    def _runs(self, packed: str | None, lines: int) -> list[tuple[int, int]]:
        if packed is None:
            return [(Kind.LOG, lines)]
        try:
            return [(Kind(kind), int(count)) for kind, count in json.loads(packed)]
        except (ValueError, TypeError) as error:
            raise damaged(self.path, str(error)) from None

    # ---- blocks, for random access to the log

    def blocks(self, after: int = 0) -> list[BlockHead]:
        """All blocks with a higher id, in order of their ids: as they came."""
        rows = self._fetch(
            "SELECT id, time_ns, lines, stream, capture FROM block WHERE id > ? ORDER BY id", after
        )
        return list(map(tuple.__new__, repeat(BlockHead), rows))

    def block_texts(self, ids: Sequence[int]) -> list[bytes]:
        """Return the texts of blocks in the order of the ids, each line with its LF; empty for
        removed blocks.

        At least the first; the number depends on their sizes.
        """
        # all that there are: the usual case
        whole = list(ids) == list(range(ids[0], ids[0] + len(ids)))
        rising = (
            len(ids)
            if whole
            else next((at for at in range(1, len(ids)) if ids[at] <= ids[at - 1]), len(ids))
        )
        blocks, size = self._first_blocks(ids[:rising], whole=whole)
        rising = bisect_right(ids, blocks[-1][0], 0, rising) if blocks else 1
        half = len(blocks) // 2
        if size < _FEW_BYTES:
            texts = self._unpacked(blocks)
        else:
            # zstd lets other threads go on
            second_half = _unpacking().submit(self._unpacked, blocks[half:])
            texts = self._unpacked(blocks[:half]) + second_half.result()
        if len(texts) == rising:
            return texts
        texts_by_id = dict(zip((number for number, _, _ in blocks), texts, strict=True))
        return [texts_by_id.get(number, b"") for number in ids[:rising]]

    def _unpacked(self, rows: list[tuple[int, int, bytes]]) -> list[bytes]:
        return [unpacked_text(codec, packed, self.path) for _, codec, packed in rows]

    def _first_blocks(
        self, ids: Sequence[int], *, whole: bool
    ) -> tuple[list[tuple[int, int, bytes]], int]:
        """Return ids, codecs and packed texts of the first of these blocks, and the texts' size.

        ids: rising; whole: ids are consecutive.
        """
        if self._connection is None:
            raise ValueError("the reader is closed")
        id_range = f"BETWEEN {int(ids[0])} AND {int(ids[-1])}" if whole else f"IN ({_numbers(ids)})"
        blocks, size = [], 0
        with store_errors(self.path):
            query = f"SELECT id, codec, text FROM block WHERE id {id_range} ORDER BY id"  # noqa: S608  numbers
            rows = self._connection.execute(query)
            for row in rows:
                blocks.append(row)
                size += len(row[2])
                if size > _PACKED_BYTES:
                    break
            rows.close()
        return blocks, size

    def block_lines(self, head: BlockHead) -> list[LogLine]:
        """A block's lines, all kinds; their positions are of no use."""
        query = _Query(frozenset(ALL_KINDS), self._attempts_of(None), "")
        return list(self._block(query, 0, 0, _Key(head.time_ns, head.id, head.lines)))

    # ---- records, events, status

    def records(
        self,
        *,
        attempt: int | None = None,
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[MetadataRecord]:
        """Metadata records in order of time; newest first (R23): at equal times the one that came
        later. begin_ns, end_ns: as all readers have it."""
        attempts = self._attempts_of(attempt)
        end_ns = end_ns or _NO_END_NS
        compare, order, bound = ("<", "DESC", ">=") if newest_first else (">", "ASC", "<")
        columns = f"time_ns, id, n, capture, line, stream, {self._origin}"
        after, last_ns = ((end_ns, -1), begin_ns) if newest_first else ((begin_ns, -1), end_ns)
        while True:
            page = self._fetch(
                f"SELECT {columns} FROM record WHERE capture IN ({_numbers(attempts)})"  # noqa: S608  numbers and constants
                f" AND (time_ns, id) {compare} (?, ?) AND time_ns {bound} ?"
                f" ORDER BY time_ns {order}, id {order} LIMIT {_PAGE}",
                *after,
                last_ns,
            )
            if page:
                times, _, numbers, captures, lines, streams, origins = zip(*page, strict=True)
                attempt_numbers = map(attempts.__getitem__, captures)
                fields = zip(
                    times,
                    numbers,
                    attempt_numbers,
                    captures,
                    lines,
                    map(_STREAMS.__getitem__, streams),
                    (origin or JSON for origin in origins),
                    strict=True,
                )
                yield from map(tuple.__new__, repeat(MetadataRecord), fields)
            if len(page) < _PAGE:
                return
            after = page[-1][:2]

    def record_blocks(self, rows: int) -> Iterator[RecordBlock]:
        """Yield metadata records in order of time, at most `rows` per block, and fewer with long
        lines.

        SQLite itself builds the blocks, which takes a third of the time of rows.
        """
        attempts = self._attempts_of(None)
        only = next(iter(attempts)) if len(attempts) == 1 else None
        captures = "''" if only is not None else "group_concat(capture)"
        after, size = (-1, -1), min(rows, _PAGE)
        while True:
            page = self._fetch(
                f"SELECT count(*), group_concat(time_ns), group_concat(id), {captures}, group_concat(line, char(10))"  # noqa: S608  numbers and constants
                f" FROM (SELECT time_ns, id, capture, line FROM record WHERE capture IN ({_numbers(attempts)})"
                f" AND (time_ns, id) > (?, ?) ORDER BY time_ns, id LIMIT {size})",
                *after,
            )
            count, times, ids, numbers, text = page[0]
            if not count:
                return
            at = list(map(int, times.split(",")))
            of = [only] * count if only is not None else list(map(int, numbers.split(",")))
            yield RecordBlock(at, of, attempts, text)
            if count < size:
                return
            after = at[-1], int(ids.rpartition(",")[2])
            size = max(min(rows, 4 * size, _BLOCK_CHARS * count // len(text)), 1)

    def events(
        self,
        *,
        attempt: int | None = None,
        names: Collection[str] = (),
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[JobEvent]:
        """Yield events as all readers do. A late heartbeat precedes the stored events."""
        event_filter = JobEventFilter(attempt, names, newest_first, begin_ns, end_ns)
        attempts = self._attempts_of(attempt)
        yield from event_filter.merge(
            read_stored_events(self._fetch, self.path, attempts, event_filter), self._silent
        )

    def status(self) -> dict[Stream, tuple[int, str]]:
        """Return as Reader.status; nothing for ended captures. The spool's status replaces an older
        one."""
        rows = self._fetch(
            f"SELECT capture, stream, time_ns, text FROM status WHERE capture IN ({_numbers(self._running)})"  # noqa: S608  numbers
        )
        newest = {
            (capture, Stream(stream)): (time_ns, text) for capture, stream, time_ns, text in rows
        }
        for capture, stream, time_ns, text in self._live():
            newest[capture, stream] = max(newest.get((capture, stream), (0, "")), (time_ns, text))
        bars = sorted((bar, stream) for (_, stream), bar in newest.items() if bar[1])
        return {stream: bar for bar, stream in bars}

    def _live(self) -> Iterator[tuple[int, Stream, int, str]]:
        """Yield capture, stream, time in ns and text of live status in the spool."""
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
                    for stream, (time_ns, text) in folder.live_status().items():
                        yield capture, stream, time_ns, text
        finally:
            os.close(spool_fd)

    # ---- imported data

    def details(self) -> Json:
        return self._details

    def children(self) -> Iterator[Child]:
        return read_children(self._fetch, self.path)

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        return read_child_changes(
            self._fetch, newest_first=newest_first, begin_ns=begin_ns, end_ns=end_ns
        )

    # ---- keys and X axis

    def _axes(self) -> list[XAxis]:
        return self._learnt

    def _records_at(self, time_ns: int) -> list[str]:
        rows = self._fetch("SELECT line FROM record WHERE time_ns = ? ORDER BY id DESC", time_ns)
        return [line for (line,) in rows]


def _open(heap: list[_Open], key: _Key, lines: Iterator[LogLine]) -> None:
    """Push a block's next line onto the heap, unless the block is exhausted."""
    line = next(lines, None)
    if line is not None:
        heapq.heappush(heap, _Open(line.time_ns, key.id, line, key, lines))


@cache
def _unpacking() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # late: only scans of a whole log need it

    return ThreadPoolExecutor(1, "unpacking")


def _numbers(values: Collection[int]) -> str:
    return ", ".join(str(int(value)) for value in values)
