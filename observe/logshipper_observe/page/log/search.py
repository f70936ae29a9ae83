"""Searches for a text or an expression in a job's log.

A search scans each block once, for a limited time per request. An index of words would be larger
than the log and miss parts of words; a scan takes a fraction of a second per million lines
(benchmarks/page.py).
"""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from logshipper.classify.repeat_note import NOTE_BEGIN, printed_line
from logshipper.spool.segment import Kind
from logshipper_observe.base.words import uncoloured
from logshipper_observe.page.log.line_index import IndexChange, LineIndex
from logshipper_observe.search.line_search import COLOURS, LineSearch

SECS = 0.25  # scanning time of one answer
MAX_TEXT = 200  # characters of a query
MAX_HITS = 5_000_000  # lines: then the search ends

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine


class SearchQuery(NamedTuple):
    """A query."""

    text: str  # or a regular expression
    exact: bool = False  # case matters
    is_expression: bool = False


class Search:
    """A search and its hits. Raises ExpressionRefusal."""

    def __init__(self, query: SearchQuery) -> None:
        self.hits = array("q")  # numbers of lines
        # hits that may be repeat notes, with their number of repeats; 0: not read yet
        self.notes: dict[int, int] = {}
        self.expression = LineSearch(
            [query.text], fixed=not query.is_expression, ignore_case=not query.exact
        )
        self._generation = 0
        self._at = 0  # place in the index: all blocks before it are scanned

    def scan(
        self, index: LineIndex, texts: Callable[[int], tuple[int, bytes]], secs: float = SECS
    ) -> bool:
        """Continue until the time is up. Return whether all is scanned. `texts` reads blocks from a
        place in the index on that no other block overlaps: the place behind them, and their text."""
        change = index.changed_since(self._generation)
        self._generation = index.generation
        if change is not None:
            self._drop_from(change, index)
        until = time.monotonic() + secs
        while self._at < len(index) and not self.is_full:
            first = index.first(self._at)
            self._at, text = texts(self._at)
            self._find(first, text)
            if time.monotonic() > until:
                break
        return self._at >= len(index) or self.is_full

    @property
    def is_full(self) -> bool:
        """Whether the search has stopped at its limit; there may be further hits."""
        return len(self.hits) >= MAX_HITS

    def _drop_from(self, change: IndexChange, index: LineIndex) -> None:
        """Forget hits in renumbered lines."""
        self._at = min(self._at, change.block)
        del self.hits[bisect_left(self.hits, change.line) :]
        self.notes = {at: lines for at, lines in self.notes.items() if at < change.line}

    @property
    def printed(self) -> int:
        """How often the job printed matching lines."""
        return len(self.hits) + sum(lines - 1 for lines in self.notes.values() if lines)

    def count_repeats(
        self, lines_at: "Callable[[int], tuple[int, list[LogLine]]]", secs: float = SECS
    ) -> bool:
        """Read repeat notes until the time is up. Return whether all are read. `lines_at` returns
        the group of a line: the number of its first line, and its lines."""
        until = time.monotonic() + secs
        first, lines = 0, list["LogLine"]()
        for number in [number for number, repeats in self.notes.items() if not repeats]:
            if not first <= number < first + len(lines):
                if time.monotonic() > until:
                    return False
                first, lines = lines_at(number)
            self.notes[number] = self._lines_of(lines[number - first])
        return True

    def _lines_of(self, line: "LogLine") -> int:
        lines = line.attrs.get("repeat", 1)
        text = printed_line(uncoloured(line.text), line.attrs)
        is_note = line.kind is Kind.NOTE and isinstance(lines, int) and lines > 0
        return lines if is_note and self.expression.has(text) else 1

    def scanned(self, index: LineIndex) -> float:
        """Return the scanned part of the log: 0 to 1."""
        return self._at / len(index) if len(index) else 1.0

    def _find(self, first: int, text: bytes) -> None:
        if b"\x1b" in text:
            text = COLOURS.sub(b"", text)
        for at, begin, _ in self.expression.lines_in(text.removesuffix(b"\n")):
            self.hits.append(first + at)
            if text.startswith(NOTE_BEGIN, begin):
                self.notes[first + at] = 0

    def near(self, number: int, *, back: bool) -> int | None:
        """Return the index of the first hit from a line on, or of the last hit up to a line (back),
        wrapping around. None without hits."""
        if not self.hits:
            return None
        if back:
            return (bisect_right(self.hits, number) - 1) % len(self.hits)
        return bisect_left(self.hits, number) % len(self.hits)
