"""Reads the lines of one job's database: in order of time, or block by block.

Queries are short and read pages, so that a slow reader holds no lock.
"""

import heapq
import json
import sqlite3
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, islice, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from logshipper.spool.segment import MAX_PAYLOAD_BYTES, Kind, Stream
from logshipper_ingest.model.job import LineQuery, LogLine, Position
from logshipper_ingest.model.stores import ALL_KINDS, Reader
from logshipper_ingest.sqlite_file import damaged, open_reader, store_errors
from logshipper_ingest.store.job_db import VERSION, unpacked_text
from logshipper_ingest.store.job_rows import NO_END_NS, Row, pages

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

PAGE = 256
_MAX_BLOCK_NS = MAX_PAYLOAD_BYTES  # a block's lines are 1 ns apart, and at least a byte long
_MANY_BLOCKS = 50_000  # with more new ones, the index over time is faster
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


class TextBlock(NamedTuple):
    """A block with its text."""

    time_ns: int  # its first line's; the others are 1 ns apart
    id: int
    lines: int
    stream: int
    attrs: str | None  # JSON
    text: bytes  # lines with an LF between them


class _Open(NamedTuple):
    """A block that is being merged with others: sorts by its next line."""

    time_ns: int
    id: int
    line: LogLine
    rest: Iterator[LogLine]


class _Selection(NamedTuple):
    """Selected lines. attempts: of each capture; where: streams, captures and more, as SQL; base,
    mark: the ids of the blocks are above base and at most mark."""

    kinds: frozenset[int]
    attempts: dict[int, int]
    where: str
    base: int = 0
    mark: int = 0

    def narrowed(self, where: str) -> "_Selection":
        return self._replace(where=f"{self.where} AND {where}")


class LineReader(Reader):
    """The lines of an open database."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = open_reader(path, VERSION)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None:
            self.close()

    def _open_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ValueError("the reader is closed")
        return self._connection

    def _fetch(self, query: str, *values: object) -> list[Row]:
        connection = self._open_connection()
        with store_errors(self.path):
            return connection.execute(query, values).fetchall()

    def _attempts_of(self, attempt: int | None = None) -> dict[int, int]:
        """Attempts by capture's number: of the captures there are now."""
        rows = self._fetch("SELECT id, attempt FROM capture")
        return {capture: number for capture, number in rows if attempt is None or number == attempt}

    def _select_lines(
        self, query: LineQuery, after: Position | None, tail: int | None, since_ns: int
    ) -> Iterator[LogLine]:
        newest = int(self._fetch("SELECT ifnull(max(id), 0) FROM block")[0][0])
        # after newest: the captures of all these blocks are among them
        attempts = self._attempts_of(query.attempt)
        streams = numbers_text([*query.streams, Stream.NONE])
        where = f"stream IN ({streams}) AND capture IN ({numbers_text(attempts)})"
        selection = _Selection(query.kinds, attempts, where, mark=newest)
        if after is not None:
            lines = self._after(selection, after)
            return lines if tail is None else iter(deque(lines, maxlen=tail))
        if tail is not None:
            return self._tail(selection, tail)
        if since_ns:
            selection = selection.narrowed(f"time_ns + lines > {int(since_ns)}")
            return (line for line in self._ordered(selection) if line.time_ns >= since_ns)
        return self._ordered(selection)

    def _after(self, selection: _Selection, after: Position) -> Iterator[LogLine]:
        """Yield the rest of the position's blocks, then newer lines."""
        least_ns = max(0, after.time_ns - _MAX_BLOCK_NS)
        rest = selection.narrowed(
            f"time_ns >= {least_ns} AND time_ns + lines > {after.time_ns}"
        )._replace(base=after.base, mark=after.mark)
        for line in self._ordered(rest):
            if (line.time_ns, line.position.block) > (after.time_ns, after.block):
                yield line
        if selection.mark > after.mark:
            yield from self._ordered(selection._replace(base=after.mark))

    def _tail(self, selection: _Selection, tail: int) -> Iterator[LogLine]:
        query = (
            f"SELECT time_ns, id, lines, runs FROM block WHERE {selection.where}"  # noqa: S608  numbers only
            f" AND (time_ns, id) < (?, ?) AND id <= ? ORDER BY time_ns DESC, id DESC LIMIT ?"
        )
        line_count, first = 0, None
        blocks = pages(self._fetch, query, (NO_END_NS, 0), selection.mark, size=PAGE)
        for time_ns, number, lines, runs in chain.from_iterable(blocks):
            line_count += sum(
                count for kind, count in self._runs(runs, lines) if kind in selection.kinds
            )
            first = time_ns, number
            if line_count >= tail:
                break
        if first is None:
            return iter(())
        lines_from = self._ordered(selection.narrowed(f"(time_ns, id) >= ({first[0]}, {first[1]})"))
        return islice(lines_from, max(0, line_count - tail), None)

    def _ordered(self, selection: _Selection) -> Iterator[LogLine]:
        """Yield the lines of the selected blocks in order of time.

        Blocks of different streams may overlap in time, and then their lines are merged. Blocks of
        one capture's stream never overlap, so few are open at a time.
        """
        heads = self._heads(selection)
        upcoming = next(heads, None)
        while upcoming is not None:
            head, upcoming = upcoming, next(heads, None)
            lines = self._block(selection, head)
            if upcoming is None or upcoming.time_ns >= head.time_ns + head.lines:
                yield from lines
                continue
            heap: list[_Open] = []
            _open(heap, head.id, lines)
            while heap:
                while upcoming is not None and upcoming.time_ns <= heap[0].time_ns:
                    _open(heap, upcoming.id, self._block(selection, upcoming))
                    upcoming = next(heads, None)
                first = heapq.heappop(heap)
                yield first.line
                _open(heap, first.id, first.rest)

    def _heads(self, selection: _Selection) -> Iterator[BlockHead]:
        base, mark = selection.base, selection.mark
        # numbers find new rows since the last look; the index over time finds all
        column = "+time_ns" if base and mark - base < _MANY_BLOCKS else "time_ns"
        query = (
            f"SELECT time_ns, id, lines, stream, capture FROM block WHERE {selection.where}"  # noqa: S608  numbers
            f" AND ({column}, id) > (?, ?) AND id > ? AND id <= ? ORDER BY {column}, id LIMIT ?"
        )
        rows = chain.from_iterable(pages(self._fetch, query, (-1, 0), base, mark, size=PAGE))
        return (BlockHead(number, time_ns, *others) for time_ns, number, *others in rows)

    def _block(self, selection: _Selection, head: BlockHead) -> Iterator[LogLine]:
        rows = self._fetch("SELECT runs, attrs, codec, text FROM block WHERE id = ?", head.id)
        packed_runs, packed_attrs, codec, packed = rows[0]
        runs = self._runs(packed_runs, head.lines)
        try:
            text = unpacked_text(codec, packed, self.path).decode("utf-8", "replace")
            attrs = {int(line): values for line, values in json.loads(packed_attrs or "{}").items()}
        except ValueError as error:
            raise damaged(self.path, str(error)) from None
        texts = text.split("\n")
        at = 0
        for kind, count in runs:
            if kind in selection.kinds:
                end = at + count
                times = range(head.time_ns + at, head.time_ns + end)
                positions = map(
                    tuple.__new__,
                    repeat(Position),
                    zip(repeat(selection.base), repeat(selection.mark), times, repeat(head.id)),
                )
                of_lines = (
                    map(attrs.get, range(at, end), repeat(_NO_ATTRS))
                    if attrs
                    else repeat(_NO_ATTRS)
                )
                fields = zip(
                    positions,
                    times,
                    repeat(Stream(head.stream)),
                    repeat(Kind(kind)),
                    texts[at:end],
                    of_lines,
                    repeat(selection.attempts[head.capture]),
                    repeat(head.capture),
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
        id_range = (
            f"BETWEEN {int(ids[0])} AND {int(ids[-1])}" if whole else f"IN ({numbers_text(ids)})"
        )
        blocks, size = [], 0
        connection = self._open_connection()
        with store_errors(self.path):
            query = f"SELECT id, codec, text FROM block WHERE id {id_range} ORDER BY id"  # noqa: S608  numbers
            rows = connection.execute(query)
            for row in rows:
                blocks.append(row)
                size += len(row[2])
                if size > _PACKED_BYTES:
                    break
            rows.close()
        return blocks, size

    def block_lines(self, head: BlockHead) -> list[LogLine]:
        """A block's lines, all kinds; their positions are of no use."""
        return list(self._block(_Selection(frozenset(ALL_KINDS), self._attempts_of(), ""), head))


def text_blocks(path: str) -> Iterator[TextBlock]:
    """Yield a job's blocks in order of time: quicker than a reader, which knows the job's captures.

    Raises StoreError. It holds no lock between two blocks.
    """
    query = (
        "SELECT time_ns, id, lines, stream, attrs, codec, text FROM block"
        " WHERE (time_ns, id) > (?, ?) ORDER BY time_ns, id"
    )
    with closing(open_reader(path, VERSION)) as connection:
        after: Row = (-1, 0)
        is_end = False
        while not is_end:
            rows, size = [], 0
            with store_errors(path), closing(connection.execute(query, after)) as cursor:
                for row in cursor:
                    rows.append(row)
                    size += len(row[-1])
                    if size > _PACKED_BYTES or len(rows) == PAGE:
                        after = row[:2]
                        break
                else:
                    is_end = True
            for time_ns, number, lines, stream, attrs, codec, packed in rows:
                text = unpacked_text(codec, packed, path)[:-1]
                yield TextBlock(time_ns, number, lines, stream, attrs, text)


def _open(heap: list[_Open], block_id: int, lines: Iterator[LogLine]) -> None:
    """Push a block's next line onto the heap, unless the block is exhausted."""
    line = next(lines, None)
    if line is not None:
        heapq.heappush(heap, _Open(line.time_ns, block_id, line, lines))


@cache
def _unpacking() -> "ThreadPoolExecutor":
    from concurrent.futures import ThreadPoolExecutor  # late: only scans of a whole log need it

    return ThreadPoolExecutor(1, "unpacking")


def numbers_text(values: Collection[int]) -> str:
    """Return numbers for SQL's IN."""
    return ", ".join(str(int(value)) for value in values)
