"""Index of a job's log: numbers lines in order of time, and finds the block of a line.

Blocks (store/line_reader.py) arrive in the order of ingestion. The lines of one block are in order of
time, but blocks of different streams and captures may overlap. Overlapping neighbours form a group,
and readers merge its lines. Late blocks renumber the lines behind them; then `generation` rises. The
index takes 25 bytes per block.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, Sequence
from itertools import accumulate
from operator import add, gt
from typing import NamedTuple

from logshipper_ingest.store.line_reader import BlockHead

_MAX_CHANGES = 1_000  # in memory; older changes count as a change of all


class Slice(NamedTuple):
    """Blocks whose merged lines have the numbers from `first` on."""

    first: int
    blocks: list[BlockHead]


class IndexChange(NamedTuple):
    """The first block and line with other numbers than before."""

    block: int  # place in the index
    line: int


class LineIndex:
    """The lines of some streams, or of all (None)."""

    def __init__(self, streams: Container[int] | None = None) -> None:
        self.total = 0
        self.generation = 0  # rises whenever lines get other numbers
        self._changes: deque[IndexChange] = deque(maxlen=_MAX_CHANGES)
        self.newest = 0  # id of the last block
        self._streams = streams
        self._captures: Container[int] | None = None
        self._ids = array("q")
        self._times = array("q")
        self._lines = array("I")
        self._firsts = array("q")  # number of each block's first line, ignoring overlaps
        self._joins = array("B")  # whether a block overlaps an earlier one
        self._until_ns = 0  # end of the last group
        self._columns = (  # first the fields of BlockHead
            self._ids, self._times, self._lines, array("B"), array("I"), self._firsts, self._joins
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._ids)

    def see(self, captures: Container[int] | None) -> None:
        """Add only blocks of these captures from now on, or of all (None)."""
        self._captures = captures

    def add(self, blocks: Sequence[BlockHead]) -> None:
        """Add blocks with higher ids than all before."""
        if blocks:
            self.newest = blocks[-1].id
        visible_blocks = [
            block
            for block in blocks
            if (self._streams is None or block.stream in self._streams)
            and (self._captures is None or block.capture in self._captures)
        ]
        if not visible_blocks or self._extend(visible_blocks):
            return
        for at, block in enumerate(visible_blocks):
            if block.time_ns < self._until_ns:
                self._insert(visible_blocks[at:])
                return
            self._append(block)

    def _extend(self, blocks: Sequence[BlockHead]) -> bool:
        """Add blocks ten times as fast, unless one overlaps another. Return whether they are added."""
        ids, times, lines, streams, captures = zip(*blocks, strict=True)
        if times[0] < self._until_ns or any(map(gt, map(add, times, lines), times[1:])):
            return False
        *firsts, total = accumulate(lines, initial=self.total)
        new = (ids, times, lines, streams, captures, firsts, bytes(len(blocks)))
        for column, values in zip(self._columns, new, strict=True):
            column.extend(values)
        self._until_ns, self.total = times[-1] + lines[-1], total
        return True

    def _append(self, block: BlockHead) -> None:
        row = (*block, self.total, block.time_ns < self._until_ns)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._until_ns = max(self._until_ns, block.time_ns + block.lines)
        self.total += block.lines

    def _insert(self, late_blocks: list[BlockHead]) -> None:
        """Insert blocks by their times, which renumbers the lines behind them."""
        at, until_ns = self._group_behind(min(block.time_ns for block in late_blocks))
        tail_blocks = [self.block(index) for index in range(at, len(self))]
        if tail_blocks:
            self.total = self._firsts[at]
            self.generation += 1
            self._changes.append(IndexChange(at, self.total))
        for values in self._columns:
            del values[at:]
        self._until_ns = until_ns
        for block in sorted([*tail_blocks, *late_blocks], key=lambda head: (head.time_ns, head.id)):
            self._append(block)

    def _group_behind(self, time_ns: int) -> tuple[int, int]:
        """Return the place of the first group that ends after this time, and the end of the group
        before it."""
        at = bisect_right(self._times, time_ns)
        while at:
            begin = at - 1
            while self._joins[begin]:
                begin -= 1
            until_ns = max(self._times[index] + self._lines[index] for index in range(begin, at))
            if until_ns <= time_ns and (at == len(self) or not self._joins[at]):
                return at, until_ns
            at = begin
        return 0, 0

    def changed_since(self, generation: int) -> IndexChange | None:
        """Return the first change since a generation, None without one."""
        change_count = self.generation - generation
        if change_count > len(self._changes):
            return IndexChange(0, 0)
        return min(list(self._changes)[-change_count:]) if change_count else None

    def alone(self, begin: int, limit: int) -> int:
        """Return the end of the run of blocks from `begin` on that overlap no other."""
        end = min(begin + limit, len(self))
        try:
            return self._joins.index(1, begin + 1, end + 1) - 1
        except ValueError:
            return end

    def ids(self, begin: int, end: int) -> "array[int]":
        """Return the ids of the blocks at these places."""
        return self._ids[begin:end]

    def first(self, at: int) -> int:
        """Return the number of a block's first line, without overlaps; at the end, of all lines."""
        return self._firsts[at] if at < len(self) else self.total

    def block(self, at: int) -> BlockHead:
        return BlockHead(*(column[at] for column in self._columns[:5]))

    def slices(self, first: int, end: int) -> Iterator[Slice]:
        """Return the groups of the lines from first to end. They may have further lines."""
        if first >= end or first >= self.total:
            return
        at = bisect_right(self._firsts, first) - 1
        while self._joins[at]:
            at -= 1
        for _, group in self.groups(at):
            if group.first >= end:
                return
            yield group

    def groups(self, begin: int) -> Iterator[tuple[int, Slice]]:
        """Return all groups from the block at `begin` on, each with the place of the next one."""
        at = begin
        while at < len(self):
            first = at
            at += 1
            while at < len(self) and self._joins[at]:
                at += 1
            yield at, Slice(self._firsts[first], [self.block(index) for index in range(first, at)])

    def groups_back(self, time_ns: int) -> Iterator[Slice]:
        """Return the groups that begin at this time or before, the last one first."""
        at = bisect_right(self._times, time_ns)
        end = at
        while end < len(self) and self._joins[end]:
            end += 1
        while at:
            at -= 1
            while self._joins[at]:
                at -= 1
            yield Slice(self._firsts[at], [self.block(index) for index in range(at, end)])
            end = at

    def number_at(self, time_ns: int) -> int:
        """Return the number of the first line at this time or later, or behind the last line."""
        at = bisect_right(self._times, time_ns) - 1
        if at < 0:
            return 0
        return self._firsts[at] + min(time_ns - self._times[at], self._lines[at])
