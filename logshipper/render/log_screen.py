"""The log's screen: the lines that are not final, as the renderer asks for them. Pure."""

from logshipper.render import command_prefix
from logshipper.render.cell_width import not_own_cells
from logshipper.render.final_lines import FinalLines, LongLine
from logshipper.render.finality import FinalityScreen
from logshipper.render.row import Row, account


class LogScreen(FinalityScreen):
    """See the module's docstring."""

    def shape(self) -> object:
        """Return the screen's state without the characters of rows not yet given out.

        None in modes in which frames of one shape (redraws.py) may still draw different cells.
        """
        if not self.has_default_modes():
            return None
        return (
            (self.x, self.y, self.low, self.max_rise, self.calm, self._done, self._end),
            (self.live, self._addressed, self._has_hidden, self._has_risen, self._is_home),
            self._lines.size(),
            [(row, len(row.cells), account(row)) for row in self.rows],
        )

    def command(self) -> str | None:
        """Return the text of the line that LF would end here, if it holds /LOGCOMMAND and was drawn
        since it ended; of a too long line, its last part."""
        row = self.rows[self.y]
        if not row.fresh:
            return None
        is_one_row = row.head is None and not (
            (self.y and self.rows[self.y - 1].wrapped) or row.wrapped
        )
        if is_one_row and "/" not in row.cells:
            return None
        rows = self._ending_rows()
        text = self._text_of(rows)
        if command_prefix.find(text.encode()) >= 0:
            return text
        return text if rows[0].head is not None and rows[0].head.command else None

    def _ending_rows(self) -> list[Row]:
        """The rows of the cursor's line, which ends at the cursor."""
        self.rows[self.y].end = self.x if self._end < 0 else self._end
        return self.rows[self._group_of(self.y)]

    def part(self) -> bytes | None:
        """Return the mark for the missing begin of the cursor's line, if that can only be kept;
        else None."""
        if self.is_alternate:
            return command_prefix.AMID_LINE
        head = self.rows[self._group_of(self.y).start].head
        return None if head is None else head.part()

    def half_line(self) -> str:
        """The text of the cursor's line, if it was drawn since it ended; "" of one that is too
        long."""
        if not self.rows[self.y].fresh or self.part() is not None:
            return ""
        return self._text_of(self._ending_rows())

    @staticmethod
    def _text_of(rows: list[Row]) -> str:
        """Return the whole line; of a too long one, the last part."""
        text = "".join(row.text() for row in rows)
        head = rows[0].head
        return text if head is None else head.plain().decode() + text

    def take_line(self) -> None:
        """Takes the cursor's line out as if it had never been drawn."""
        group = self._group_of(self.y)
        count = group.stop - group.start
        del self.rows[group]
        self.rows.extend(self._new_rows(count))
        if group.start:
            self.rows[group.start - 1].wrapped = False
        self.x, self.y = 0, group.start
        self.low = max(self.low - count, self.y)
        self._done = 0
        self._end = -1

    def drop_half_lines(self) -> None:
        """Drop drawings that neither ended nor were given out."""
        self._leave_alternate()
        for group in list(self._groups(self.rows, 0, self.height)):
            rows = self.rows[group]
            if not rows[-1].ended and not all(row.clean for row in rows):
                self.rows[group] = self._new_rows(len(rows))

    def has_half_line(self) -> bool:
        """Return whether the cursor stands in an unfinished line."""
        if self.is_alternate or not self.rows[self.y].fresh:
            return False
        rows = self.rows[self._group_of(self.y)]
        head = rows[0].head
        return not (head is None or head.is_blank()) or not all(row.is_blank() for row in rows)

    def is_plain(self) -> bool:
        """Return whether plain text has the same effect here as on a fresh screen, after the
        release of held rows."""
        if self.live or self._end >= 0 or self.low != self.y or not self.has_default_modes():
            return False
        row = self.rows[self.y]
        return (
            not (row.wrapped or row.edited or row.ended or row.head is not None)
            and self.x == len(row.cells)
            and not_own_cells(self.open_line()) is None
            and all((row.clean or self.holds()) and not row.wrapped for row in self.rows[: self.y])
            and all(row.out is None for row in self.rows[self.y :])
            and all(
                row.is_empty() and not (row.ended or row.edited) for row in self.rows[self.y + 1 :]
            )
        )

    def open_line(self) -> str:
        """The text of the cursor's row."""
        return "".join(self.rows[self.y].cells)

    def take_open_line(self) -> tuple[str, float]:
        """Takes the cursor's line out, where is_plain(): its text, and when it was drawn."""
        text, touched = self.open_line(), self.rows[self.y].touched
        self.rows[self.y] = self.new_row()
        self.x = 0
        return text, touched

    def replay(self, final: list[str], open_line: LongLine, touched: float) -> None:
        """Draw plain lines that were given out, and an unfinished one, drawn at `touched`."""
        lines, self._lines = self._lines, FinalLines()
        for text in final:
            if text:
                self._draw_again(text)
            self.line_feed()
        self.release()
        self._lines = lines
        if open_line.text:
            now, self.now = self.now, touched
            if open_line.parts:
                head = self.rows[self.y].head = self.line_type()
                head.parts, head.command = open_line.parts, open_line.command
            self._draw_again(open_line.text.decode())
            self.now = now

    def _draw_again(self, text: str) -> None:
        self.draw(text)

    def held_line_feeds(self) -> int:
        """Count the LFs that ended rows not yet given out; at most one per row, which is one line."""
        return [row.fed for row in self._main_rows()].count(True)

    def held_lines(self) -> list[tuple[str, float, int]]:
        """Return non-blank lines not yet given out, from the top: text, last drawing, and the row
        behind; without long lines' parts."""
        rows = self._main_rows()
        lines = []
        stop = 0
        for at, row in enumerate(rows):
            # most rows: nothing to look for, many times a second
            if at < stop or (
                not row.wrapped and (row.clean or not (row.cells or row.head is not None))
            ):
                continue
            group = next(self._groups(rows, at, at + 1))
            stop = group.stop
            if any(not row.clean and row.is_news(row.text()) for row in rows[group]):
                text = self._text_of(rows[group])
                if text.strip(" ") and (row.head is None or not row.head.parts):
                    lines.append((text, max(row.touched for row in rows[group]), stop))
        return lines

    def running_lines(self) -> list[tuple[str, float]]:
        """Return the held lines that the live part still draws, without those printed above them;
        else the last line.

        If nothing is live, only an unfinished one. As held_lines.
        """
        rows, limit = self._main_rows(), self._reachable()
        lines = [line for line in self.held_lines() if self.live or not rows[line[2] - 1].ended]
        return [line[:2] for line in lines if line[2] > limit] or [line[:2] for line in lines[-1:]]
