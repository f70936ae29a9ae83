"""The screen of a terminal: rows of cells, a cursor, modes, and the effects of control functions.
Pure.

It follows xterm, and tmux where that loses less text (erasing to the right of a full row erases
nothing; lines that leave a region scroll off). It has no colours, no widths but 1 and 2, and no
reflow after a resize. The screen's size limits all requests of programs. x == columns means: the
last column is drawn, and the next character wraps.

LogScreen decides which lines are final; the methods that do nothing here serve it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from logshipper.render.cell_width import (
    ZWJ,
    cell_width,
    is_skin_tone,
    not_one_cell,
    runs,
    two_cells,
)
from logshipper.render.row import Row

MAX_COLUMNS = 4096
MAX_ROWS = 1024

_LINE_DRAWING = str.maketrans(
    "_`abcdefghijklmnopqrstuvwxyz{|}~", " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
)


class Screen:
    """columns, height: size, bounded. x, y: the cursor's place, from 0. rows: from the top, always
    `height` of them."""

    new_row: Callable[[], Row] = Row

    def __init__(self, columns: int = 160, height: int = 50) -> None:
        self.columns = min(max(columns, 2), MAX_COLUMNS)
        self.height = min(max(height, 1), MAX_ROWS)
        self.rows = [self.new_row() for _ in range(self.height)]
        self._hidden_rows: list[Row] | None = (
            None  # the main screen's, while the alternate one is shown
        )
        self._hidden_cursor: tuple[int, int, bool, int, list[bool]] | None = None
        self.reset_modes()
        self.x = self.y = 0

    def reset_modes(self) -> None:
        """Reset everything but the content and the cursor's place."""
        self.top = 0
        self.bottom = self.height - 1
        self.origin = self.insert_mode = self.protects = False
        self.autowrap = True
        self.tabs: list[int] | None = None  # columns in order; None: each eighth
        self._drawing = [False, False]  # whether G0 and G1 are the line drawing characters
        self._shift = 0
        self._saved_cursor: tuple[int, int, bool, int, list[bool]] | None = None

    def has_default_modes(self) -> bool:
        return (
            self.autowrap
            and not (
                self.top
                or self.origin
                or self.insert_mode
                or self.protects
                or self._shift
                or True in self._drawing
            )
            and self.bottom == self.height - 1
            and self.tabs is None
            and self._hidden_rows is None
        )

    @property
    def is_alternate(self) -> bool:
        return self._hidden_rows is not None

    # ---- for LogScreen

    def touch(self, row: Row) -> None:
        """A row is about to be drawn upon, at the cursor."""

    def edit(self, row: Row) -> None:
        """A row is about to be changed otherwise."""

    def scrolled_off(self, row: Row, successor: Row) -> None:
        """A row has left the screen; its successor is the row that was below it."""

    def scrolled_off_below(self, row: Row) -> None:
        """A row has left the screen at the bottom."""

    def vanished(self, row: Row) -> None:
        """A row has been taken out."""

    def torn(self, row: Row) -> None:
        """A row is no part of the line above it any more."""

    def cleared(self) -> None:
        """All of the screen is about to be cleared."""

    def rose(self) -> None:
        """The cursor has moved up."""

    # ---- drawing

    def draw(self, text: str) -> None:
        """Draws printable characters, at least one, from the cursor on."""
        if self.protects:
            self._draw_protected(text)
            return
        if self._drawing[self._shift]:
            text = text.translate(_LINE_DRAWING)
        if not text.isascii() and not_one_cell(text):
            for run in runs(text):
                if not not_one_cell(run[0]):
                    self._draw_run(run)
                elif two_cells(run):
                    self._draw_wide_run(run)
                else:
                    self._draw_odd(run)
            return
        self._draw_run(text)

    def _draw_protected(self, text: str) -> None:
        self.protects = False
        for character in text:
            self.draw(character)
            width = max(cell_width(character), 1)
            self.rows[self.y].protect(max(self.x - width, 0), self.x)
        self.protects = True

    def _draw_run(self, text: str) -> None:
        x = self.x
        end = x + len(text)
        if end > self.columns or self.insert_mode:
            self._draw_long(text)
            return
        row = self.rows[self.y]
        self.touch(row)
        row.put(x, text)
        self.x = end

    def _draw_long(self, text: str) -> None:
        at = 0
        while at < len(text):
            if self.x >= self.columns:
                if self.autowrap:
                    self._wrap()
                else:
                    self.x = self.columns - 1
                    # each overwrites the one before; that two met, LogScreen must know
                    at = max(at, len(text) - 2)
            piece = text[at : at + self.columns - self.x]
            row = self.rows[self.y]
            self.touch(row)
            if self.insert_mode:
                row.insert(self.x, len(piece), self.columns)
            row.put(self.x, piece)
            self.x += len(piece)
            at += len(piece)

    def _draw_wide_run(self, text: str) -> None:
        x = self.x
        end = x + 2 * len(text)
        if end > self.columns or self.insert_mode:
            for character in text:
                self._draw_wide(character, 2)
            return
        row = self.rows[self.y]
        self.touch(row)
        row.put_wide(x, text)
        self.x = end

    def _draw_odd(self, character: str) -> None:
        """Draw a character that may be wide, or may join the one before."""
        width = cell_width(character)
        row = self.rows[self.y]
        x = self.x
        if not width or (x and self._joins(row, x - 1, character)):
            if x:
                self.touch(row)
                row.join(x - 1, character)
            return  # without a character before it, it is not drawn
        self._draw_wide(character, width)

    def _draw_wide(self, character: str, width: int) -> None:
        row = self.rows[self.y]
        x = self.x
        if x + width > self.columns:
            if self.autowrap:
                if x < len(row.cells):
                    self.edit(row)
                    row.erase(x, self.columns, self.columns)
                self._wrap()
            else:
                self.x = self.columns - width
            row = self.rows[self.y]
            x = self.x
        self.touch(row)
        if self.insert_mode:
            row.insert(x, width, self.columns)
        if width == 1:
            row.put(x, character)
        else:
            row.put_wide(x, character)
        self.x = x + width

    @staticmethod
    def _joins(row: Row, x: int, character: str) -> bool:
        """Return whether a character with its own cells still joins the one at cell x."""
        if row.joins_next(x, ZWJ):
            return True
        return is_skin_tone(character) and row.cells[x : x + 1] == [""]

    def _wrap(self) -> None:
        row = self.rows[self.y]
        row.wrapped = True
        row.put_blanks(len(row.cells), self.x - len(row.cells))  # erased meanwhile
        self.x = 0
        self._down()
        if self.rows[self.y] is row:  # below the region: there is no next row
            row.wrapped = False

    # ---- moving the cursor

    def _down(self) -> None:
        if self.y == self.bottom:
            self._take_rows(self.top, 1, scrolls=True)
        elif self.y < self.height - 1:
            self.y += 1

    def _column(self) -> int:
        """The cursor's column, an end-of-row cursor standing on the last one."""
        return min(self.x, self.columns - 1)

    def index(self) -> None:
        """Down one row, scrolling at the region's end."""
        self.x = self._column()
        if self.y == self.bottom:
            self.rows[self.y].wrapped = False  # the row below does not continue this one any more
        self._down()

    def line_feed(self) -> None:
        """Perform LF, after the terminal driver's ONLCR, and NEL."""
        self.x = 0
        self.index()

    def carriage_return(self) -> None:
        self.x = 0

    def reverse_index(self) -> None:
        self.x = self._column()
        if self.y == self.top:
            self._insert_rows(self.top, 1)
        elif self.y:
            self.y -= 1
        self.rose()

    def backspace(self) -> None:
        self.x = max(self._column() - 1, 0)

    def up(self, count: int) -> None:
        self.x = self._column()
        self.y = max(self.y - count, self.top if self.y >= self.top else 0)
        self.rose()

    def down(self, count: int) -> None:
        self.x = self._column()
        self.y = min(self.y + count, self.bottom if self.y <= self.bottom else self.height - 1)

    def right(self, count: int) -> None:
        self.x = min(self.x + count, self.columns - 1)

    def left(self, count: int) -> None:
        self.x = max(self._column() - count, 0)

    def back_index(self) -> None:
        """Move left by one column; at the left edge the content moves right."""
        if self._column():
            self.left(1)
        else:
            self.insert_columns(1)

    def forward_index(self) -> None:
        """Move right by one column; at the right edge the content moves left."""
        if self.x < self.columns - 1:
            self.x += 1
        else:
            self.delete_columns(1, at_edge=True)

    def next_line(self, count: int) -> None:
        self.down(count)
        self.x = 0

    def previous_line(self, count: int) -> None:
        self.up(count)
        self.x = 0

    def to_column(self, column: int) -> None:
        self.x = min(column, self.columns) - 1

    def to_row(self, row: int) -> None:
        self.x = self._column()
        if self.origin:
            self.y = min(self.top + row - 1, self.bottom)
        else:
            self.y = min(row, self.height) - 1

    def rows_down(self, count: int) -> None:
        """Down, the region's end being no limit."""
        self.to_row(self.y + count + 1 - (self.top if self.origin else 0))

    def to_place(self, row: int, column: int) -> None:
        self.to_row(row)
        self.to_column(column)

    # ---- tab stops

    def tab(self, count: int = 1) -> None:
        if self.x >= self.columns - 1:
            return
        if self.tabs is None:
            stop = (self.x // 8 + count) * 8
        else:
            place = bisect_right(self.tabs, self.x) + count - 1
            stop = self.tabs[place] if place < len(self.tabs) else self.columns
        self.x = min(stop, self.columns - 1)

    def back_tab(self, count: int) -> None:
        stops = self._tab_stops()
        place = bisect_left(stops, self.x) - count
        self.x = stops[place] if place >= 0 else 0

    def _tab_stops(self) -> list[int]:
        return list(range(0, self.columns, 8)) if self.tabs is None else self.tabs

    def set_tab(self) -> None:
        self.tabs = sorted({*self._tab_stops(), self._column()})

    def clear_tabs(self, which: int) -> None:
        if which == 0:
            self.tabs = [stop for stop in self._tab_stops() if stop != self._column()]
        elif which == 3:
            self.tabs = []

    # ---- erasing and shifting

    def erase_line(self, which: int) -> None:
        row = self.rows[self.y]
        begin = self.x if which == 0 else 0
        end = self._column() + 1 if which == 1 else self.columns
        if (
            which > 2
            or row.is_empty()
            or (begin >= len(row.cells) and begin >= row.end and not row.wrapped)
        ):
            return
        if begin == self.columns:
            return  # a line that fills its row loses nothing: programs erase after each colour
        self.edit(row)
        row.erase(begin, end, self.columns)
        if begin == 0 and end == self.columns:  # nothing is left for the row above to continue in
            if self.y:
                self.rows[self.y - 1].wrapped = False
            self.torn(row)

    def clears(self, which: int) -> bool:
        """Return whether this erasure clears the whole screen."""
        return which == 2 or (which == 0 and self.x == self.y == 0)

    def erase_display(self, which: int) -> None:
        if self.clears(which):
            self.cleared()
            self.rows = [self.new_row() for _ in range(self.height)]
            return
        if which > 1:
            return
        self.erase_line(which)
        rows = self.rows[self.y + 1 :] if which == 0 else self.rows[: self.y]
        for row in rows:
            if not row.is_empty():
                self.edit(row)
            row.erase(0, self.columns, self.columns)
        if which == 1 and self.y:
            self.rows[self.y - 1].wrapped = False

    def erase_line_selectively(self, which: int) -> None:
        """Erase as erase_line, without protected cells."""
        row = self.rows[self.y]
        if not row.has_protected():
            self.erase_line(which)
        elif which <= 2:
            begin = self.x if which == 0 else 0
            self._erase_unprotected(row, begin, self._column() + 1 if which == 1 else self.columns)

    def erase_display_selectively(self, which: int) -> None:
        """Erase as erase_display, without protected cells; with any of them, no line counts as
        cleared."""
        if not any(row.has_protected() for row in self.rows):
            self.erase_display(which)
        elif which <= 2:
            if which < 2:
                self.erase_line_selectively(which)
            rows = self.rows[self.y + 1 :] if which == 0 else self.rows[: self.y]
            for row in rows if which < 2 else self.rows:
                if not row.is_empty():
                    self._erase_unprotected(row, 0, self.columns)

    def _erase_unprotected(self, row: Row, begin: int, end: int) -> None:
        self.edit(row)
        for run_begin, run_end in list(row.unprotected(begin, end)):
            row.erase(run_begin, run_end, self.columns)

    def erase_characters(self, count: int) -> None:
        row = self.rows[self.y]
        x = self._column()
        if not row.is_empty():
            self.edit(row)
            row.erase(x, min(x + count, self.columns), self.columns)

    def insert_characters(self, count: int) -> None:
        self.x = self._column()
        row = self.rows[self.y]
        if not row.is_empty():
            self.edit(row)
            row.insert(self.x, min(count, self.columns - self.x), self.columns)

    def delete_characters(self, count: int) -> None:
        self.x = self._column()
        row = self.rows[self.y]
        if not row.is_empty():
            self.edit(row)
            row.delete(self.x, min(count, self.columns - self.x))

    def insert_lines(self, count: int) -> None:
        if self.top <= self.y <= self.bottom:
            self._insert_rows(self.y, count)
            self.x = 0

    def delete_lines(self, count: int) -> None:
        if self.top <= self.y <= self.bottom:
            self._take_rows(self.y, count, scrolls=False)
            self.x = 0

    def scroll_up(self, count: int) -> None:
        self.rows[self.bottom].wrapped = False
        self._take_rows(self.top, count, scrolls=True)

    def scroll_down(self, count: int) -> None:
        self._insert_rows(self.top, count)

    def insert_columns(self, count: int, *, at_edge: bool = False) -> None:
        """Insert columns in each row of the cursor's region, at the cursor or at the left edge."""
        x = 0 if at_edge else self._column()
        for row in self._region_rows():
            row.insert(x, min(count, self.columns), self.columns)

    def delete_columns(self, count: int, *, at_edge: bool = False) -> None:
        x = 0 if at_edge else self._column()
        for row in self._region_rows():
            row.delete(x, min(count, self.columns))

    def _region_rows(self) -> list[Row]:
        if not self.top <= self.y <= self.bottom:
            return []
        rows = [row for row in self.rows[self.top : self.bottom + 1] if not row.is_empty()]
        for row in rows:
            self.edit(row)
        return rows

    def _take_rows(self, at: int, count: int, *, scrolls: bool) -> None:
        """Takes rows out; those below, down to the region's end, move up."""
        rows, bottom = self.rows, self.bottom
        for _ in range(min(count, bottom - at + 1)):
            row = rows.pop(at)
            rows.insert(bottom, self.new_row())
            if scrolls:
                self.scrolled_off(row, rows[at])
            else:
                rows[bottom - 1].wrapped = False
                self.vanished(row)
        if at:
            rows[at - 1].wrapped = False

    def _insert_rows(self, at: int, count: int) -> None:
        rows, bottom = self.rows, self.bottom
        for _ in range(min(count, bottom - at + 1)):
            self.vanished(rows.pop(bottom))
            rows.insert(at, self.new_row())
        rows[bottom].wrapped = False
        if at:
            rows[at - 1].wrapped = False

    # ---- modes

    def set_region(self, first: int, last: int) -> None:
        last = min(last or self.height, self.height)
        if first < last:
            self.top, self.bottom = first - 1, last - 1
            self.to_place(1, 1)

    def set_origin(self, *, on: bool) -> None:
        self.origin = on
        self.to_place(1, 1)

    def hide_cursor(self) -> None:
        """A program that does is about to draw something that moves."""

    def designate(self, which: int, *, drawing: bool) -> None:
        """which: 0 or 1, for G0 or G1."""
        self._drawing[which] = drawing

    def shift(self, which: int) -> None:
        self._shift = which

    def save_cursor(self) -> None:
        self._saved_cursor = (self.x, self.y, self.origin, self._shift, self._drawing[:])

    def restore_cursor(self, *, behind: bool = False) -> None:
        """Restore the cursor. behind: keeps its place behind the last column."""
        home = (0, 0, False, 0, [False, False])
        x, y, self.origin, self._shift, drawing = self._saved_cursor or home
        self._drawing = drawing[:]
        self.x = min(x, self.columns if behind else self.columns - 1)
        self.y = min(y, self.height - 1)

    def show_alternate(self, *, saves_cursor: bool) -> None:
        if saves_cursor:
            self.save_cursor()
        if self._hidden_rows is None:
            self._hidden_rows, self.rows = self.rows, [self.new_row() for _ in range(self.height)]
            self._saved_cursor, self._hidden_cursor = self._hidden_cursor, self._saved_cursor

    def show_main(self, *, restores_cursor: bool) -> None:
        if self._hidden_rows is not None:
            self.rows, self._hidden_rows = self._hidden_rows, None
            self._saved_cursor, self._hidden_cursor = self._hidden_cursor, self._saved_cursor
            self._fit()
        if restores_cursor:
            self.restore_cursor(behind=True)

    def soft_reset(self) -> None:
        tabs = self.tabs
        self.reset_modes()
        self.tabs = tabs

    def reset(self) -> None:
        """Reset as after power-on."""
        self.show_main(restores_cursor=False)
        self.cleared()
        self.rows = [self.new_row() for _ in range(self.height)]
        self.reset_modes()
        self.x = self.y = 0

    def align(self) -> None:
        """Fills the screen with E."""
        self.reset_modes()
        self.x = self.y = 0
        for row in self.rows:
            self.edit(row)
            row.erase(0, self.columns, self.columns)
            row.put(0, "E" * self.columns)

    def resize(self, columns: int, height: int) -> None:
        """Resize; rows keep their text.

        Excess rows scroll off at the top, up to the cursor's line, then at the bottom; blank rows
        at the bottom go first.
        """
        self.columns = min(max(columns, 2), MAX_COLUMNS)
        self.height = min(max(height, 1), MAX_ROWS)
        self.top, self.bottom = 0, self.height - 1
        self.x = min(self.x, self.columns)
        self._fit()

    def _fit(self) -> None:
        rows = self.rows
        while len(rows) > self.height:
            if len(rows) - 1 > self.y and rows[-1].is_blank():
                rows.pop()
            elif len(rows) - 1 > self.y and not self._stands_below_a_line():
                self.scrolled_off_below(rows.pop())
            else:
                self.scrolled_off(rows.pop(0), rows[0])
                self.y = max(self.y - 1, 0)
        rows.extend(self.new_row() for _ in range(self.height - len(rows)))
        self.y = min(self.y, self.height - 1)

    def _stands_below_a_line(self) -> bool:
        """Return whether another line than the cursor's stands above it."""
        return not all(row.wrapped for row in self.rows[: self.y])
