"""The cursor of a terminal: its place, its moves within the screen and the scrolling region, and the
tab stops. Pure.

x == columns means: the last column is drawn, and the next character wraps.
"""

from bisect import bisect_left, bisect_right

MAX_COLUMNS = 4096
MAX_ROWS = 1024


class Cursor:
    """columns, height: the screen's size, bounded. x, y: the cursor's place, from 0. top, bottom:
    the region's first and last row."""

    def __init__(self, columns: int, height: int) -> None:
        self.set_size(columns, height)
        self.x = self.y = 0
        self.origin = False  # rows count from the region's first one
        self.tabs: list[int] | None = None  # columns in order; None: each eighth

    def set_size(self, columns: int, height: int) -> None:
        """Set the size; the region becomes the whole screen."""
        self.columns = min(max(columns, 2), MAX_COLUMNS)
        self.height = min(max(height, 1), MAX_ROWS)
        self.top, self.bottom = 0, self.height - 1

    def rose(self) -> None:
        """The cursor has moved up."""

    def _column(self) -> int:
        """The cursor's column, an end-of-row cursor standing on the last one."""
        return min(self.x, self.columns - 1)

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

    def set_region(self, first: int, last: int) -> None:
        last = min(last or self.height, self.height)
        if first < last:
            self.top, self.bottom = first - 1, last - 1
            self.to_place(1, 1)

    def set_origin(self, *, on: bool) -> None:
        self.origin = on
        self.to_place(1, 1)

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
