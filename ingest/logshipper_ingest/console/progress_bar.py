"""A progress bar on a terminal, for commands that may take a while. Light: reading commands import
it."""

import os
import sys
import time
from collections.abc import Callable

from logshipper.safe_text import safe

_PATIENCE_SECS = 0.5  # shorter work shows no bar
_REDRAW_SECS = 0.1
_CELLS = 24  # of the bar; fewer in a narrow terminal
_LEAST_CELLS = 4
_COLUMNS = 80  # of a terminal of unknown width


class Bar:
    """A progress bar on stderr, for long work on a terminal only.

    title: the work; amount: words for a number; unit: of the numbers.
    """

    def __init__(self, title: str, amount: Callable[[int], str], unit: str = "") -> None:
        self._show = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._fancy = (sys.stderr.encoding or "").lower().startswith("utf")
        self._title = title
        self._amount = amount
        self._unit = unit
        self._due = time.monotonic() + _PATIENCE_SECS
        self._is_visible = False

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show the progress: done of total; (0, 0) ends the bar.

        note: text behind the amounts.
        """
        now = time.monotonic()
        if not total:
            self.clear()
        if not self._show or now < self._due or not total:
            return
        self._due = now + _REDRAW_SECS
        self._is_visible = True
        percent = f"{min(100 * done // total, 100):3d}%"
        amounts = f"{self._amount(done)} of {self._amount(total)}{self._unit}{safe(note)}"
        title = safe(self._title)
        # a line that wraps couldn't be erased
        columns = _columns() - 1
        cells = columns - len(f"{title}  {percent}  {amounts}")
        bar = self._cells(done, total, max(min(cells, _CELLS), _LEAST_CELLS))
        sys.stderr.write(f"\r\x1b[K{f'{title} {bar} {percent}  {amounts}'[:columns]}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_visible = False

    def _cells(self, done: int, total: int, cells: int) -> str:
        full = min(cells * done // total, cells)
        marks = "━┄" if self._fancy else "#."
        return marks[0] * full + marks[1] * (cells - full)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS
