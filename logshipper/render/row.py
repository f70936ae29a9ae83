"""One row of a terminal's screen: its cells, and its facts for the log.

Cells are a str while each character takes one cell, which is usual and fast; else a list with a str
per cell: a character with those that join it, or "" for the second half of a wide one. Cells to the
right of the last drawn one do not exist and are blank.
"""

from collections.abc import Iterator
from operator import attrgetter

from logshipper.render.final_lines import LongLine

MAX_JOINED = 32  # characters in one cell; further ones are dropped


class ProtectedCell(str):
    """A cell that selective erase leaves as it is (DECSCA)."""

    __slots__ = ()


class Row:
    """See above. x, begin, end: cells from the left edge, from 0."""

    __slots__ = (
        "cells",
        "clean",
        "edited",
        "end",
        "ended",
        "fed",
        "fresh",
        "head",
        "out",
        "touched",
        "wrapped",
    )

    def __init__(self) -> None:
        self.cells: str | list[str] = ""
        self.wrapped = False  # the line goes on in the next row
        self.end = 0  # the cursor's place when the line ended
        # text of the same line that was in rows above and has scrolled off
        self.head: LongLine | None = None
        # FinalityScreen's
        self.touched = 0.0  # time of the last change
        self.out: str | None = None  # the text given out
        self.clean = False  # unchanged since then
        self.ended = False  # the line was ended, and not given out since
        self.fed = False  # ended by LF
        self.fresh = False  # drawn upon since it was ended
        self.edited = False  # drawn over since it was ended

    def text(self) -> str:
        """The row's part of its line: all of it, but blanks to the right of the place where the
        line ended."""
        cells = self.cells
        if isinstance(cells, str):
            surplus = len(cells) - self.end
            if surplus == 0 or self.wrapped:
                return cells
            if surplus < 0:
                return cells + " " * -surplus
            return cells[: self.end] + cells[self.end :].rstrip(" ")
        if self.wrapped:
            return "".join(cells)
        size = len(cells)
        while size > self.end and cells[size - 1] == " ":
            size -= 1
        return "".join(cells[:size]) + " " * (self.end - len(cells))

    def logged(self, text: str) -> str:
        """Return the log's form of the text."""
        return text

    def is_empty(self) -> bool:
        """Return whether there is nothing to erase."""
        return not (self.cells or self.end or self.wrapped)

    def is_blank(self) -> bool:
        return not "".join(self.cells).strip(" ")

    def is_news(self, text: str) -> bool:
        """Return whether to give out the text, after earlier texts of this row; an erasure is no
        news."""
        return self.out is None or text.rstrip(" ") not in ("", self.out)

    def put(self, x: int, text: str) -> None:
        """Draws characters of one cell each."""
        cells = self.cells
        if isinstance(cells, str):
            size = len(cells)
            if x == size:
                self.cells = cells + text
            elif x > size:
                self.cells = cells + " " * (x - size) + text
            else:
                self.cells = cells[:x] + text + cells[x + len(text) :]
        else:
            self._replace(x, x + len(text), list(text))

    def put_wide(self, x: int, text: str) -> None:
        """Draws characters of two cells each."""
        cells = [""] * (2 * len(text))
        cells[::2] = text
        self._replace(x, x + len(cells), cells)

    def put_blanks(self, x: int, count: int) -> None:
        """Makes cells beyond the last one blank."""
        self.put(x, " " * count)

    def join(self, x: int, character: str) -> None:
        """Draws a character upon the one that covers cell x, if there is any."""
        cells = self._as_list()
        if x < len(cells):
            if cells[x] == "" and x > 0:
                x -= 1
            if len(cells[x]) < MAX_JOINED:
                cells[x] = type(cells[x])(cells[x] + character)

    def joins_next(self, x: int, joiner: str) -> bool:
        """Return whether the character at cell x ends with this joiner."""
        cells = self.cells
        if isinstance(cells, str) or x >= len(cells):
            return False
        return (cells[x] or cells[max(x - 1, 0)]).endswith(joiner)

    def erase(self, begin: int, end: int, columns: int) -> None:
        """Makes cells blank. columns: the screen's width; at its edge the line is torn from the
        next row's."""
        size = len(self.cells)
        if begin < size:
            if end < size:
                self._replace(begin, end, [" "] * (end - begin))
            elif isinstance(self.cells, str):
                self.cells = self.cells[:begin]
            else:
                self._fix(begin)
                self.cells = self.cells[:begin]
        if begin < self.end <= end:
            self.end = begin
        if end >= columns:
            self.wrapped = False
        if not begin and not self.cells:
            self.ended = self.fed = False  # as if never drawn: below the last text it's no line

    def protect(self, begin: int, end: int) -> None:
        """Protect drawn cells from selective erasure."""
        cells = self._as_list()
        cells[begin:end] = map(ProtectedCell, cells[begin:end])

    def unprotected(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the unprotected runs of cells from begin to end, each with the cell behind it."""
        drawn = [] if isinstance(self.cells, str) else self.cells[:end]
        for x in range(begin, len(drawn)):
            if isinstance(drawn[x], ProtectedCell):
                if begin < x:
                    yield begin, x
                begin = x + 1
        if begin < end:
            yield begin, end

    def has_protected(self) -> bool:
        return not isinstance(self.cells, str) and any(
            isinstance(cell, ProtectedCell) for cell in self.cells
        )

    def insert(self, x: int, count: int, columns: int) -> None:
        """Move the cells from x on to the right; those beyond the screen vanish."""
        if x >= len(self.cells):
            return
        self._replace(x, x, [" "] * count)
        if len(self.cells) > columns:
            self._fix(columns)
            self.cells = self.cells[:columns]

    def delete(self, x: int, count: int) -> None:
        """Takes cells out; those to the right move left."""
        if x < len(self.cells):
            self._replace(x, x + count, [])
        self.wrapped = False

    def _as_list(self) -> list[str]:
        if isinstance(self.cells, str):
            self.cells = list(self.cells)
        return self.cells

    def _fix(self, x: int) -> None:
        """Both halves of a wide character become blank where the cut before cell x would part
        them."""
        cells = self.cells
        if not isinstance(cells, str) and 0 < x < len(cells) and cells[x] == "":
            cells[x - 1] = cells[x] = " "

    def _replace(self, begin: int, end: int, new: list[str]) -> None:
        cells = self.cells
        if isinstance(cells, str) and "" not in new and all(len(cell) == 1 for cell in new):
            blanks = " " * (begin - len(cells))
            self.cells = cells[:begin] + blanks + "".join(new) + cells[end:]
            return
        self._fix(begin)
        self._fix(end)
        cells = self._as_list()
        cells.extend([" "] * (begin - len(cells)))
        cells[begin:end] = new


# all facts about a row besides its cells
account = attrgetter(*(name for name in Row.__slots__ if name != "cells"))
