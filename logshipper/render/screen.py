"""The screen of a terminal: rows of cells, modes, and the effects of control functions. Pure.

It follows xterm, and tmux where that loses less text (erasing to the right of a full row erases
nothing; lines that leave a region scroll off). It has no colours, no widths but 1 and 2, and no
reflow after a resize. The screen's size limits all requests of programs.

FinalityScreen decides which lines are final; the methods that do nothing here serve it.
"""

from collections.abc import Callable

from logshipper.render.cell_width import RUN, SKIN_TONE, TWO_CELLS, ZWJ, cell_width, not_one_cell
from logshipper.render.cursor import Cursor
from logshipper.render.row import Row

_LINE_DRAWING = str.maketrans(
    "_`abcdefghijklmnopqrstuvwxyz{|}~", " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
)

# x, y, origin, and the selected character set of G0 and G1
_SavedCursor = tuple[int, int, bool, int, tuple[bool, bool]]
_HOME: _SavedCursor = (0, 0, False, 0, (False, False))


class Screen(Cursor):
    """rows: from the top, always `height` of them."""

    new_row: Callable[[], Row] = Row

    def __init__(self, columns: int, height: int) -> None:
        super().__init__(columns, height)
        self.rows = self._new_rows(self.height)
        # the main screen's, while the alternate one is shown
        self._hidden_rows: list[Row] | None = None
        self._hidden_cursor: _SavedCursor | None = None
        self.reset_modes()

    def _new_rows(self, count: int) -> list[Row]:
        return [self.new_row() for _ in range(count)]

    def reset_modes(self) -> None:
        """Reset everything but the content and the cursor's place."""
        self.top, self.bottom = 0, self.height - 1
        self.origin = self.insert_mode = self.protects = False
        self.autowrap = True
        self.tabs = None
        self._drawing = (False, False)  # whether G0 and G1 are the line drawing characters
        self._shift = 0
        self._saved_cursor: _SavedCursor | None = None

    def has_default_modes(self) -> bool:
        return (
            self.autowrap
            and not (self.top or self.origin or self.insert_mode or self.protects or self._shift)
            and True not in self._drawing
            and self.bottom == self.height - 1
            and self.tabs is None
            and self._hidden_rows is None
        )

    @property
    def is_alternate(self) -> bool:
        return self._hidden_rows is not None

    # ---- for FinalityScreen

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

    # ---- drawing

    def draw(self, text: str) -> None:
        """Draws printable characters, at least one, from the cursor on."""
        if self.protects:
            self._draw_protected(text)
            return
        if self._drawing[self._shift]:
            text = text.translate(_LINE_DRAWING)
        if not text.isascii() and not_one_cell(text):
            for run in RUN.findall(text):
                if not not_one_cell(run[0]):
                    self._draw_run(run)
                elif TWO_CELLS.match(run):
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
                    # each overwrites the one before; that two met, FinalityScreen must know
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
        return SKIN_TONE.match(character) is not None and row.cells[x : x + 1] == [""]

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

    def index(self) -> None:
        """Down one row, scrolling at the region's end."""
        self.x = self._column()
        if self.y == self.bottom:
            self.rows[self.y].wrapped = False  # the row below does not continue this one any more
        self._down()

    def reverse_index(self) -> None:
        self.x = self._column()
        if self.y == self.top:
            self._insert_rows(self.top, 1)
        elif self.y:
            self.y -= 1
        self.rose()

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

    # ---- erasing and shifting

    def erase_line(self, which: int) -> None:
        row = self.rows[self.y]
        begin = self.x if which == 0 else 0
        end = self._column() + 1 if which == 1 else self.columns
        if (
            which > 2
            or row.is_empty()
            or (begin >= len(row.cells) and begin >= row.end and not row.wrapped)
            # a line that fills its row loses nothing: programs erase after each colour
            or begin == self.columns
        ):
            return
        self.edit(row)
        row.erase(begin, end, self.columns)
        if begin == 0 and end == self.columns:  # nothing is left for the row above to continue in
            if self.y:
                self.rows[self.y - 1].wrapped = False
            self.torn(row)

    def clears(self, which: int) -> bool:
        """Return whether this erasure clears the whole screen."""
        return which == 2 or (which == 0 and self.x == self.y == 0)

    def _clear(self) -> None:
        self.cleared()
        self.rows = self._new_rows(self.height)

    def erase_display(self, which: int) -> None:
        if self.clears(which):
            self._clear()
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

    def designate(self, which: int, *, drawing: bool) -> None:
        """which: 0 or 1, for G0 or G1."""
        first, second = self._drawing
        self._drawing = (first, drawing) if which else (drawing, second)

    def shift(self, which: int) -> None:
        self._shift = which

    def save_cursor(self) -> None:
        self._saved_cursor = (self.x, self.y, self.origin, self._shift, self._drawing)

    def restore_cursor(self, *, behind: bool = False) -> None:
        """Restore the cursor. behind: keeps its place behind the last column."""
        x, y, self.origin, self._shift, self._drawing = self._saved_cursor or _HOME
        self.x = min(x, self.columns if behind else self.columns - 1)
        self.y = min(y, self.height - 1)

    def show_alternate(self, *, saves_cursor: bool) -> None:
        if saves_cursor:
            self.save_cursor()
        if self._hidden_rows is None:
            self._hidden_rows, self.rows = self.rows, self._new_rows(self.height)
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
        self._clear()
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
        self.set_size(columns, height)
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
        rows.extend(self._new_rows(self.height - len(rows)))
        self.y = min(self.y, self.height - 1)

    def _stands_below_a_line(self) -> bool:
        return not all(row.wrapped for row in self.rows[: self.y])
