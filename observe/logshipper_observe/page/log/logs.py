"""Jobs' logs for the page, by line number, and their searches, for all threads of the server.

The server keeps indexes and searches of recently viewed jobs, but reads texts again each time. So
text that the store deletes or masks disappears here, too.
"""

import heapq
import threading
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, Protocol

from logshipper.spool.segment import Stream
from logshipper_ingest.store.line_reader import BlockHead
from logshipper_observe.page.data.cache import Cache
from logshipper_observe.page.log.line_index import LineIndex, Slice
from logshipper_observe.page.log.search import Search, SearchQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from logshipper_ingest.model.job import Capture, LogLine

MAX_SEARCHES = 4  # of each view
MAX_TEXTS = 8_192  # blocks of one read
STREAMS = {
    "stdout": (Stream.STDOUT,),
    "stderr": (Stream.STDERR,),
    "both": (Stream.STDOUT, Stream.STDERR),
}


class Blocks(Protocol):
    """A job's log in blocks: JobReader, or the copy of a log in another store (log_copy.py)."""

    @property
    def captures(self) -> "Sequence[Capture]": ...

    def blocks(self, after: int = 0) -> list[BlockHead]: ...

    def block_texts(self, ids: "Sequence[int]") -> list[bytes]: ...

    def block_lines(self, head: BlockHead) -> "list[LogLine]": ...


class View(NamedTuple):
    """A selection of a job's lines."""

    job_id: str
    streams: str = "both"  # a key of STREAMS
    attempt: int = 0  # 0 for all


class Log:
    """The index and the searches of one view."""

    def __init__(self, view: View) -> None:
        self.lock = threading.Lock()  # callers hold it
        self._view = view
        self._begin(generation=0)

    def _begin(self, generation: int) -> None:
        streams = (*STREAMS[self._view.streams], Stream.NONE)
        self.index = LineIndex(None if self._view.streams == "both" else streams)
        self.index.generation = generation
        self._newest: BlockHead | None = None  # the last one in the index
        self._attempts: dict[int, int] = {}  # by capture
        self.searches = Cache(Search, MAX_SEARCHES)

    def bring_up(self, source: Blocks) -> None:
        """Add new blocks. Start again if a new job has taken the id. `source` may be older than the
        last one and have fewer captures."""
        blocks = source.blocks(self._newest.id - 1 if self._newest else 0)
        if self._newest is not None and (not blocks or blocks[0] != self._newest):
            self._begin(self.index.generation + 1)  # all lines get other numbers
            blocks = source.blocks()
        elif self._newest is not None:
            del blocks[0]
        attempts = {capture.capture: capture.attempt for capture in source.captures}
        if not attempts.keys() <= self._attempts.keys():
            self._attempts |= attempts
            if self._view.attempt:
                self.index.see(
                    {
                        capture
                        for capture, attempt in self._attempts.items()
                        if attempt == self._view.attempt
                    }
                )
        # blocks of a capture that this source lacks wait for the next call
        ready_blocks = list(takewhile(lambda block: block.capture in self._attempts, blocks))
        self.index.add(ready_blocks)
        self._newest = ready_blocks[-1] if ready_blocks else self._newest

    def lines(self, source: Blocks, first: int, end: int) -> "list[LogLine]":
        """Return the lines from first up to end, exclusive."""
        lines: list[LogLine] = []
        for group in self.index.slices(first, end):
            group_lines = merged_lines(source, group)
            lines += group_lines[max(first - group.first, 0) : end - group.first]
        return lines

    def numbered_lines(self, source: Blocks, numbers: "Sequence[int]") -> "list[LogLine]":
        """Return the lines with some ascending numbers."""
        lines: list[LogLine] = []
        first, group_lines = 0, list["LogLine"]()
        for number in numbers:
            if not first <= number < first + len(group_lines):
                first, group_lines = self._lines_at(source, number)
            lines.append(group_lines[number - first])
        return lines

    def search(self, source: Blocks, query: SearchQuery) -> tuple[Search, bool]:
        """Continue a search. Return it, and whether it is complete. Raises ExpressionRefusal."""
        search = self.searches.get(query)
        is_scanned = search.scan(self.index, partial(self._text, source))
        return search, search.count_repeats(partial(self._lines_at, source)) and is_scanned

    def _lines_at(self, source: Blocks, number: int) -> "tuple[int, list[LogLine]]":
        """Return the group of a line: the number of its first line, and its lines."""
        group = next(self.index.slices(number, number + 1))
        return group.first, merged_lines(source, group)

    def _text(self, source: Blocks, at: int) -> tuple[int, bytes]:
        """Read blocks from a place in the index on. Return the place behind them and their text."""
        index = self.index
        end = index.alone(at, MAX_TEXTS)
        if end == at:
            end, group = next(index.groups(at))
            joined = "".join(f"{line.text}\n" for line in merged_lines(source, group))
            return end, joined.encode("utf-8", "replace")
        texts = source.block_texts(index.ids(at, end))
        for number, text in enumerate(texts):
            if not text:  # deleted: the other lines keep their numbers
                texts[number] = b"\n" * index.block(at + number).lines
        return at + len(texts), b"".join(texts)


def merged_lines(source: Blocks, group: Slice) -> "list[LogLine]":
    """Return a group's lines in order of time."""
    if len(group.blocks) == 1:
        return source.block_lines(group.blocks[0])
    entries_by_block = [
        [(line.time_ns, block.id, line) for line in source.block_lines(block)]
        for block in group.blocks
    ]
    return [line for _, _, line in heapq.merge(*entries_by_block, key=lambda entry: entry[:2])]
