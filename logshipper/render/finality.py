"""A screen that decides which of its lines are final, and gives each out once, in order from the
top. Pure.

A line is final when it scrolls off, when the whole screen is cleared, at the end, and when the
cursor has left it for good. For the last case the screen keeps (row numbers are places on the
screen, and move as it scrolls):
- live: something hints at more drawing above the cursor: the cursor rose or was hidden, or a line
  was redrawn (CR, BS, erase) and then ended. This last hint is void once a line ends that was not
  redrawn and is not blank.
- holds: nothing is live, but the stream is young, or has moved the cursor up before. It may do so
  without a hint, so rows are final after HOLD_SECS without drawing. If nothing is live and nothing
  holds, a line is final at its end.
- low, max_rise: the lowest row drawn, and the greatest rise of the cursor above it, in rows. Rows
  further up are final after QUIET_SECS without drawing.
- addressed: the stream moved the cursor to a row by its number. It may redraw all live rows at long
  intervals (top), so ADDRESSED_QUIET_SECS replaces QUIET_SECS.
- calm: lines ended since anything else came. Beyond max_rise, the live part is over, and rows above
  the cursor need only be quiet. Beyond CALM_SCREENS screens, nothing is live any more. (One screen
  is not enough: a live table may be taller than the screen, or a program may print much above bars
  at once.)
The screen keeps the text of rows that it gave out, and gives them out again only with another text
that is not blank.

All this depends on bytes and clock alone, never on cuts of the input. The screen judges quietness
only when the clock has advanced (`settle`), and the rest at the control function that causes it.
"""

from collections.abc import Iterator

from logshipper.render.cell_width import not_one_cell
from logshipper.render.final_lines import FinalLines, LongLine
from logshipper.render.row import Row
from logshipper.render.screen import Screen

QUIET_SECS = 1.0
HOLD_SECS = 0.3
ADDRESSED_QUIET_SECS = 10.0
CALM_SCREENS = 4
NOTE = b"[full-screen output left out]\n"


class FinalityScreen(Screen):
    """lines: where final lines go. now: seconds of the caller's clock, to be set before anything is
    drawn."""

    line_type = LongLine

    def __init__(self, columns: int, height: int, lines: FinalLines) -> None:
        super().__init__(columns, height)
        self._lines = lines
        self.now = 0.0
        self.live = self._addressed = self._has_hidden = self._has_risen = False
        self.young_until = float("-inf")  # by the clock of `now`
        self.low = self.max_rise = self.calm = 0
        self._done = 0  # rows above this one are clean
        self._end = -1  # column before the CRs that came last, -1 where something else came last
        self._has_note = False  # this stay on the alternate screen
        self._main_place = (0, 0, 0)  # x, y and low before it; low is -1 as long as it lasts
        self._is_home = False  # a cursor in the first row was sent there on a screen with text

    # ---- calls from Screen

    def touch(self, row: Row) -> None:
        row.touched = self.now
        above = self.y - 1
        while above >= 0 and self.rows[above].wrapped and self.rows[above].touched != self.now:
            self.rows[above].touched = self.now  # the line that continues here is not quiet
            above -= 1
        row.clean = False
        row.fresh = True
        if self._end >= 0 or self.x < len(row.cells):
            self._end = -1
            row.edited = True
            self.calm = 0
        if self.y != self.low or self.y < self._done:
            self._note_place()

    def edit(self, row: Row) -> None:
        row.touched = self.now
        row.clean = False
        row.fresh = True
        row.edited = True
        self.disturb()
        self._done = 0
        self._note_place()

    def _note_place(self) -> None:
        if self.is_alternate:
            if not self._has_note:
                self._has_note = True
                self._lines.block(NOTE, self.now, note=True)
            return
        self._done = min(self._done, self.y)
        if self.y < self.low:
            self.rose()
        else:
            self.low = self.y

    def rose(self) -> None:
        if self.y < self.low:
            self.live = self._has_risen = True
            self.max_rise = max(self.max_rise, self.low - self.y)

    def disturb(self) -> None:
        """Something else than lines came."""
        self.calm = 0
        self._end = -1

    def scrolled_off(self, row: Row, successor: Row) -> None:
        if self.is_alternate:
            return
        self._done = max(self._done - 1, 0)
        if self.y < self.low <= self.bottom:
            self.low -= 1
        if row.head is None and (row.clean or not row.is_news(row.text())):
            return
        if not row.wrapped and row.head is None:
            self._lines.line(row.logged(row.text()), row.touched)
            return
        head = row.head if row.head is not None else self.line_type()
        head.add(row.logged(row.text()).encode(), self._lines, row.touched)
        if row.wrapped:
            successor.head = head
        else:
            head.end(self._lines, row.touched)

    def scrolled_off_below(self, row: Row) -> None:
        if not (self.is_alternate or row.clean) and row.is_news(row.text()):
            self._lines.line(row.logged(row.text()), row.touched)

    def vanished(self, row: Row) -> None:
        self._done = 0
        if row.head is not None and not self.is_alternate:
            row.head.end(self._lines, row.touched)

    def torn(self, row: Row) -> None:
        if row.head is not None:
            row.head.end(self._lines, row.touched)
            row.head = None

    def cleared(self) -> None:
        if not self.is_alternate:
            self._mark_end()
            self._give_out(0, self._behind_last())
            self._done = self.low = 0
        self._is_home = False

    # ---- control functions that mean something to finality

    def carriage_return(self) -> None:
        if self._end < 0:
            self._end = self.x
        self.x = 0

    def clears(self, which: int) -> bool:
        """Return whether an erasure clears the screen.

        ED 0 in the first row clears it for a program that went home. A program that moved up to
        this row, or returned to its first column, redraws.
        """
        return super().clears(which) and (which == 2 or self._is_home)

    def erase_display(self, which: int) -> None:
        super().erase_display(which)
        if which == 0:
            self.low = min(self.low, self.y)  # nothing is below the cursor any more

    def redraw(self, texts: list[str]) -> None:
        """Apply repeated CR and text by the chunk, with the effect of carriage_return and draw for
        each."""
        all_text = "".join(texts)
        if (
            max(map(len, texts)) > self.columns
            or self.insert_mode
            or self._drawing[self._shift]
            or not (all_text.isascii() or not not_one_cell(all_text))
        ):
            for text in texts:
                self.carriage_return()
                self.draw(text)
            return
        final_text = texts[-1]
        for text in reversed(texts) if len(max(texts, key=len)) > len(final_text) else ():
            final_text += text[len(final_text) :]
        self.carriage_return()
        self.draw(final_text)
        self.x = len(texts[-1])

    def tab(self, count: int = 1) -> None:
        begin = self.x
        super().tab(count)
        row = self.rows[self.y]
        if len(row.cells) <= begin < self.x:  # drawn as blanks, as the plain tier has it
            end, self.x = self.x, begin
            self.touch(row)
            row.put_blanks(begin, end - begin)
            self.x = end
        self._end = -1

    def backspace(self) -> None:
        self.disturb()
        super().backspace()

    def line_feed(self) -> None:
        """Perform LF, after the terminal driver's ONLCR."""
        self._end_line(by_feed=True)
        self.x = 0
        self._leave_row()

    def next_row(self) -> None:
        """NEL: as LF, but for the account of LFs."""
        self._end_line()
        self.x = 0
        self._leave_row()

    def end_half_line(self) -> None:
        """End the cursor's line as NEL does, without counting as drawing."""
        now, self.now = self.now, self.rows[self.y].touched
        self.next_row()
        self.now = now

    def index(self) -> None:
        self._end_line()
        self.x = self._column()
        self._leave_row()

    def _end_line(self, *, by_feed: bool = False) -> None:
        if self.is_alternate:
            return
        row = self.rows[self.y]
        self._mark_end()
        if row.edited:
            row.edited = False
            self.live = True
            self.calm = 0
        elif self.calm or not row.is_blank():  # a blank row may be reserved for a bar
            self.calm += 1
        if not row.clean:
            row.ended = True
            row.fed = row.fed or by_feed
            row.touched = self.now
        row.fresh = False

    def _leave_row(self) -> None:
        if self.is_alternate:
            super().index()
            return
        if self.live and self._is_over():
            self.live = self._addressed = self._has_hidden = False
            self.max_rise = 0
            self.low = self.y
        if not self.live and not self.holds():
            row = self.rows[self.y]
            if self._done == self.y and not row.wrapped and row.head is None:
                self._give_out_row(row)
                self._done = self.y + 1
            else:
                self._done = self._give_out(self._done, self.y + 1)
        super().index()
        self.low = max(self.low, self.y)

    def _is_over(self) -> bool:
        """Return whether lines came for so long that nothing is live any more."""
        if not (self.max_rise or self._has_hidden or self._addressed):
            return self.calm > 0
        is_whole = self.bottom - self.top == self.height - 1
        return is_whole and self.calm >= CALM_SCREENS * self.height

    def holds(self) -> bool:
        """Return whether ended lines may be redrawn without a hint."""
        return self._has_risen or self.now < self.young_until

    def _mark_end(self) -> None:
        """Mark the cursor's place (before any CR) as the end of its line, if the line is new or was
        drawn."""
        row = self.rows[self.y]
        if row.fresh or not (row.ended or row.clean):
            row.end = self.x if self._end < 0 else self._end
        self._end = -1

    def hide_cursor(self) -> None:
        """A program that does is about to draw something that moves."""
        self.live = self._has_hidden = True

    def align(self) -> None:
        super().align()
        for row in self.rows:
            # not the program's text; logging it could multiply the output a thousand times
            row.out = row.text()

    def show_alternate(self, *, saves_cursor: bool) -> None:
        if not self.is_alternate:
            self._has_note = False
            self._main_place = (self.x, self.y, self.low)
            self.low = -1
        super().show_alternate(saves_cursor=saves_cursor)

    def show_main(self, *, restores_cursor: bool) -> None:
        if self.is_alternate:
            self.low = min(self._main_place[2], self.height - 1)
        super().show_main(restores_cursor=restores_cursor)
        self._done = 0

    def up(self, count: int) -> None:
        self._go_home(is_sent=count > self.y)  # beyond the top
        super().up(count)

    def reverse_index(self) -> None:
        self._go_home(is_sent=not self.y)
        super().reverse_index()

    def restore_cursor(self, *, behind: bool = False) -> None:
        self._go_home(is_sent=self._saved_cursor is None)
        super().restore_cursor(behind=behind)

    def _go_home(self, *, is_sent: bool) -> None:
        self._is_home = is_sent and not all(row.is_empty() for row in self.rows)

    def to_row(self, row: int) -> None:
        super().to_row(row)
        self._go_home(is_sent=self.y == 0)
        if row > 1 and not self.is_alternate:  # not for "home", which scripts begin with
            self._addressed = True

    def rows_down(self, count: int) -> None:
        was_addressed = self._addressed
        super().rows_down(count)
        self._addressed = was_addressed

    def _quiet_secs(self) -> float:
        if not self.live:
            return HOLD_SECS
        return ADDRESSED_QUIET_SECS if self._addressed else QUIET_SECS

    def _leave_alternate(self) -> None:
        if self.is_alternate:
            x, y, _ = self._main_place
            self.show_main(restores_cursor=False)
            self.x, self.y = min(x, self.columns), min(y, self.height - 1)

    def resize(self, columns: int, height: int) -> None:
        super().resize(columns, height)
        self._done = 0
        self.low = min(self.low, self.height - 1)

    # ---- giving out

    def settle(self) -> None:
        """Give out rows that were quiet long enough; call it after the clock has advanced."""
        limit = self._reachable()
        if self._done < limit:
            self._done = self._give_out(self._done, limit, quiet=True)

    def next_settle(self) -> float | None:
        """Return the time of the next `settle`, None if nothing waits."""
        limit = self._reachable()
        main_rows = self._main_rows()
        for group in self._groups(main_rows, self._done, limit):
            rows = main_rows[group]
            if group.stop <= limit and not all(row.clean for row in rows):
                return max(row.touched for row in rows) + self._quiet_secs()
        return None

    def finish(self) -> None:
        """Gives out all there is."""
        self._leave_alternate()
        self._mark_end()
        self._give_out(0, self._behind_last())

    def _reachable(self) -> int:
        """Return the first row that may be redrawn if the live part continues as before."""
        if self.is_alternate:  # of the hidden main screen
            _, y, low = self._main_place
            return min(y, low - self.max_rise)
        if not self.live or self.calm > self.max_rise:
            return self.y
        return min(self.y, self.low - self.max_rise)

    def release(self) -> None:
        """Give out held rows above the cursor's line, if nothing is live."""
        if not self.live and not self.is_alternate:
            self._done = self._give_out(self._done, self.y)

    def _give_out(self, begin: int, end: int, *, quiet: bool = False) -> int:
        """Give out the new lines of rows from begin to end in order; return the row after the last.

        Stops before a line that reaches beyond end, or, with quiet, before one drawn within
        QUIET_SECS.
        """
        main_rows = self._main_rows()
        for group in self._groups(main_rows, begin, end):
            if group.stop > end:
                return group.start
            rows = main_rows[group]
            if quiet and any(
                not row.clean and row.touched + self._quiet_secs() > self.now for row in rows
            ):
                return group.start
            self._give_out_line(rows)
        return max(begin, end)

    def _give_out_row(self, row: Row) -> None:
        if not row.clean:
            text = row.text()
            if row.is_news(text):
                self._lines.line(row.logged(text), row.touched)
            row.out = text.rstrip(" ")
            row.clean = True
            row.ended = row.fed = False

    def _give_out_line(self, group: list[Row]) -> None:
        if len(group) == 1 and group[0].head is None:
            self._give_out_row(group[0])
            return
        head, group[0].head = group[0].head, None
        if head is None and any(not row.clean and row.is_news(row.text()) for row in group):
            head = self.line_type()
        if head is not None:
            logged = "".join(row.logged(row.text()) for row in group)
            drawn_at = max(row.touched for row in group)
            head.add(logged.encode(), self._lines, drawn_at)
            head.end(self._lines, drawn_at)
        for row in group:
            row.out = row.text().rstrip(" ")
            row.clean = True
            row.ended = row.fed = False

    @staticmethod
    def _groups(rows: list[Row], begin: int, end: int) -> "Iterator[slice[int, int, None]]":
        """The rows of each line that has one from begin to end."""
        while begin < end:
            stop = begin + 1
            while stop < len(rows) and rows[stop - 1].wrapped:
                stop += 1
            yield slice(begin, stop)
            begin = stop

    def _group_of(self, first: int) -> "slice[int, int, None]":
        while first and self.rows[first - 1].wrapped:
            first -= 1
        return next(self._groups(self.rows, first, first + 1))

    def _main_rows(self) -> list[Row]:
        return self.rows if self._hidden_rows is None else self._hidden_rows

    def _behind_last(self) -> int:
        for at in reversed(range(self.height)):
            row = self.rows[at]
            if row.ended or not row.is_blank() or not (row.head is None or row.head.is_blank()):
                return self._group_of(at).stop
        return 0
