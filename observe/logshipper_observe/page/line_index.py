"""Where each line of a job's log is: its number, counted in order of time, against the block that
holds it.

Blocks (store/job_reader.py) come in the order of being ingested; the lines of one are in order of
time. Those of different streams and captures may overlap in time: such neighbours are one group,
whose lines are merged when they are read. What belongs before something that is numbered already
gives what is behind it other numbers: `generation` shows it. 25 bytes a block, so that a log of ten
million lines, or of as many blocks, has its index in memory.
"""

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Container, Iterator, Sequence
from itertools import accumulate
from operator import add, gt
from typing import NamedTuple

from logshipper_ingest.store.job_reader import BlockHead

_MAX_CHANGES = 1_000  # that are remembered; of older ones only that there were some


class Slice(NamedTuple):
    """Blocks whose lines, merged, are those from number `first` on."""

    first: int
    blocks: list[BlockHead]


class IndexChange(NamedTuple):
    """Blocks from `block` on, in the index's order, and lines from `line` on have other numbers
    than before."""

    block: int
    line: int


class LineIndex:
    """The lines of the blocks that are added. streams: only those of these; None: of all."""

    def __init__(self, streams: Container[int] | None = None) -> None:
        self.total = 0
        self.generation = 0  # rises whenever lines get other numbers
        self._changes: deque[IndexChange] = deque(maxlen=_MAX_CHANGES)
        self.newest = 0  # id of the last block that was added
        self._streams = streams
        self._captures: Container[int] | None = None
        self._ids = array("q")
        self._times = array("q")
        self._lines = array("I")
        self._of_stream = array("B")
        self._of_capture = array("I")
        self._firsts = array("q")  # number of each block's first line, as if blocks didn't overlap
        self._joins = array("B")  # whether a block overlaps what comes before it
        self._until_ns = 0  # end of the last group
        self._columns = (
            self._ids, self._times, self._lines, self._of_stream, self._of_capture, self._firsts, self._joins
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._ids)

    def see(self, captures: Container[int] | None) -> None:
        """From now on only blocks of these captures count; None: of all."""
        self._captures = captures

    def add(self, blocks: Sequence[BlockHead]) -> None:
        """Ingests blocks with higher ids than all before."""
        if self._extend(blocks):
            return
        late_blocks: list[BlockHead] = []
        for block in blocks:
            self.newest = block.id
            if (self._streams is not None and block.stream not in self._streams) or (
                self._captures is not None and block.capture not in self._captures
            ):
                continue
            if late_blocks or block.time_ns < self._until_ns:
                late_blocks.append(block)
            else:
                self._append(block)
        if late_blocks:
            self._insert(late_blocks)

    def _extend(self, blocks: Sequence[BlockHead]) -> bool:
        """The same, ten times as quick, where all of them count and none overlaps another; else
        does nothing, and returns False."""
        if not blocks or self._captures is not None:
            return False
        ids, times, lines, streams, captures = zip(*blocks, strict=True)
        if self._streams is not None and any(
            stream not in self._streams for stream in set(streams)
        ):
            return False
        if times[0] < self._until_ns or any(map(gt, map(add, times, lines), times[1:])):
            return False
        *firsts, total = accumulate(lines, initial=self.total)
        new = (ids, times, lines, streams, captures, firsts, bytes(len(blocks)))
        for column, values in zip(self._columns, new, strict=True):
            column.extend(values)
        self._until_ns, self.total, self.newest = times[-1] + lines[-1], total, ids[-1]
        return True

    def _append(self, block: BlockHead) -> None:
        self._joins.append(block.time_ns < self._until_ns)
        self._until_ns = max(self._until_ns, block.time_ns + block.lines)
        self._ids.append(block.id)
        self._times.append(block.time_ns)
        self._lines.append(block.lines)
        self._of_stream.append(block.stream)
        self._of_capture.append(block.capture)
        self._firsts.append(self.total)
        self.total += block.lines

    def _insert(self, late_blocks: list[BlockHead]) -> None:
        """Puts blocks where their times say; what is behind them gets other numbers."""
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
        """Where the first group begins that isn't over by this time, and when the one before it
        is."""
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
        """Where the first change since then was; None where there was none."""
        change_count = self.generation - generation
        if change_count > len(self._changes):
            return IndexChange(0, 0)
        return min(list(self._changes)[-change_count:]) if change_count else None

    def alone(self, begin: int, limit: int) -> int:
        """The end of the blocks from the place `begin` on that overlap no other, at most so many:
        at `begin` itself where that one does."""
        end = min(begin + limit, len(self))
        try:
            return self._joins.index(1, begin + 1, end + 1) - 1
        except ValueError:
            return end

    def ids(self, begin: int, end: int) -> "array[int]":
        """Of the blocks at these places."""
        return self._ids[begin:end]

    def first(self, at: int) -> int:
        """The number of the first line of the block at a place, or behind the last one, where it
        overlaps no other."""
        return self._firsts[at] if at < len(self) else self.total

    def block(self, at: int) -> BlockHead:
        return BlockHead(
            self._ids[at],
            self._times[at],
            self._lines[at],
            self._of_stream[at],
            self._of_capture[at],
        )

    def slices(self, first: int, end: int) -> Iterator[Slice]:
        """Groups of blocks that hold the lines from first to end, and perhaps some before and
        behind."""
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
        """All groups from the block at `begin` of the order on, each with where the next one
        begins."""
        at = begin
        while at < len(self):
            first = at
            at += 1
            while at < len(self) and self._joins[at]:
                at += 1
            yield at, Slice(self._firsts[first], [self.block(index) for index in range(first, at)])

    def groups_back(self, time_ns: int) -> Iterator[Slice]:
        """Groups that begin at this time or before, the last one first."""
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
        """The number of the first line that isn't older than this; the number behind the last where
        all are."""
        at = bisect_right(self._times, time_ns) - 1
        if at < 0:
            return 0
        return self._firsts[at] + min(time_ns - self._times[at], self._lines[at])
