"""Jobs' logs for the page: any place of them by line number, and searches, for all threads of the
server.

What is known of a log (LineIndex, searches) is kept for the jobs that were asked for last, and goes
on where it was. Texts are read again each time: what is deleted or masked in the store is gone here
as well.
"""

import heapq
import threading
from collections import OrderedDict
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logshipper.spool.segment import Stream
from logshipper_ingest.store.job_reader import BlockHead
from logshipper_observe.page.line_index import LineIndex, Slice
from logshipper_observe.page.search import Search, SearchQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logshipper_ingest.model.job import Capture, LogLine

MAX_LOGS = 16  # views of jobs that are remembered
MAX_SEARCHES = 4  # of each
MAX_TEXTS = 8_192  # blocks that are asked for at once
STREAMS = {
    "stdout": (Stream.STDOUT,),
    "stderr": (Stream.STDERR,),
    "both": (Stream.STDOUT, Stream.STDERR),
}


class Blocks(Protocol):
    """A job's log by the block: store.job_reader.JobReader, or a copy of what another store has
    (copied.py)."""

    @property
    def captures(self) -> "Sequence[Capture]": ...

    def blocks(self, after: int = 0) -> list[BlockHead]: ...

    def block_texts(self, ids: "Sequence[int]") -> list[bytes]: ...

    def block_lines(self, head: BlockHead) -> "list[LogLine]": ...


class View(NamedTuple):
    """Which lines are shown. streams: stdout, stderr or both; attempt: 0 for all."""

    job_id: str
    streams: str = "both"
    attempt: int = 0


class Log:
    """The index and the searches of one view. One thread at a time: hold `lock`."""

    def __init__(self, view: View) -> None:
        self.lock = threading.Lock()
        self._view = view
        self.index = self._empty()
        self._newest: BlockHead | None = None  # the last one that was looked at
        self._attempts: dict[int, int] = {}  # by capture
        self._searches: OrderedDict[SearchQuery, Search] = OrderedDict()

    def bring_up(self, source: Blocks) -> None:
        """Ingests what has come since; all of it where the job was removed and another one has its
        id. source: may have been opened before the one that was looked at last, and know fewer
        captures."""
        blocks = source.blocks(self._newest.id - 1 if self._newest else 0)
        if self._newest is not None and (not blocks or blocks[0] != self._newest):
            self._forget()
            blocks = source.blocks()
        elif self._newest is not None:
            del blocks[0]
        attempts = {capture.capture: capture.attempt for capture in source.captures}
        if not attempts.keys() <= self._attempts.keys():
            self._attempts |= attempts
            self.index.see(captures=self._captures_of_attempt())
        # of a capture that came in the meantime, only the next time
        ready_blocks = list(takewhile(lambda block: block.capture in self._attempts, blocks))
        self.index.add(ready_blocks)
        self._newest = ready_blocks[-1] if ready_blocks else self._newest

    def _empty(self) -> LineIndex:
        streams = STREAMS[self._view.streams]
        return LineIndex(None if self._view.streams == "both" else (*streams, Stream.NONE))

    def _forget(self) -> None:
        generation = self.index.generation
        self.index = self._empty()
        self.index.generation = generation + 1  # all lines have other numbers
        self._newest = None
        self._attempts = {}
        self._searches.clear()

    def _captures_of_attempt(self) -> set[int] | None:
        if not self._view.attempt:
            return None
        return {
            capture for capture, attempt in self._attempts.items() if attempt == self._view.attempt
        }

    def lines(self, source: Blocks, first: int, end: int) -> "list[LogLine]":
        """The lines numbered from first, and before end."""
        lines: list[LogLine] = []
        for group in self.index.slices(first, end):
            group_lines = merged_lines(source, group)
            lines += group_lines[max(first - group.first, 0) : end - group.first]
        return lines

    def numbered_lines(self, source: Blocks, numbers: "Sequence[int]") -> "list[LogLine]":
        """The lines with some numbers, which rise."""
        lines: list[LogLine] = []
        first, group_lines = 0, list["LogLine"]()
        for number in numbers:
            if not first <= number < first + len(group_lines):
                first, group_lines = self._lines_at(source, number)
            lines.append(group_lines[number - first])
        return lines

    def search_of(self, query: SearchQuery) -> Search:
        """A search as far as it is. Raises ExpressionRefusal."""
        search = self._searches.pop(query, None) or Search(query)
        self._searches[query] = search
        while len(self._searches) > MAX_SEARCHES:
            self._searches.popitem(last=False)
        return search

    def search(self, source: Blocks, query: SearchQuery) -> tuple[Search, bool]:
        """A search, gone on with, and whether it is through. Raises ExpressionRefusal."""
        search = self.search_of(query)
        through = search.scan(self.index, partial(self._text, source))
        return search, search.count_repeats(partial(self._lines_at, source)) and through

    def _lines_at(self, source: Blocks, number: int) -> "tuple[int, list[LogLine]]":
        """The lines of the group that has the one with this number, and the number of the
        first."""
        group = next(self.index.slices(number, number + 1))
        return group.first, merged_lines(source, group)

    def _text(self, source: Blocks, at: int) -> tuple[int, bytes]:
        """Some lines as one text, of blocks from a place in the index on, and the place behind
        these."""
        index = self.index
        end = index.alone(at, MAX_TEXTS)
        if end == at:
            end, group = next(index.groups(at))
            return end, "".join(f"{line.text}\n" for line in merged_lines(source, group)).encode(
                "utf-8", "replace"
            )
        texts = source.block_texts(index.ids(at, end))
        for number, text in enumerate(texts):
            if not text:  # it's gone: a line keeps its number
                texts[number] = b"\n" * index.block(at + number).lines
        return at + len(texts), b"".join(texts)


class Logs:
    """The logs that are known, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: OrderedDict[View, Log] = OrderedDict()

    def of(self, view: View) -> Log:
        with self._lock:
            log = self._logs.pop(view, None) or Log(view)
            self._logs[view] = log
            while len(self._logs) > MAX_LOGS:
                self._logs.popitem(last=False)
            return log


def merged_lines(source: Blocks, group: Slice) -> "list[LogLine]":
    """A group's lines in order of time."""
    if len(group.blocks) == 1:
        return source.block_lines(group.blocks[0])
    entries_by_block = [
        [(line.time_ns, block.id, line) for line in source.block_lines(block)]
        for block in group.blocks
    ]
    return [line for _, _, line in heapq.merge(*entries_by_block, key=lambda entry: entry[:2])]
