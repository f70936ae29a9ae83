"""A progress bar on a terminal, for commands that may take a while. Light: reading commands import
it."""

import os
import sys
import time
from collections.abc import Callable

from logshipper.safe_text import safe

_PATIENCE_SECS = 0.5  # a progress bar only where it takes longer
_REDRAW_SECS = 0.1


class Bar:
    """A progress bar on stderr; nothing where that is no terminal, or where it is over soon.

    title: what is being done; amount: a number in words; unit: what is counted.
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
        """How much is done, of how much; (0, 0): it is over. note: text behind the amounts."""
        now = time.monotonic()
        if not total:
            self.clear()
        if not self._show or now < self._due or not total:
            return
        self._due = now + _REDRAW_SECS
        self._is_visible = True
        bar_width = min(24 * done // total, 24)
        bar = (
            ("━" * bar_width + "┄" * (24 - bar_width))
            if self._fancy
            else ("#" * bar_width + "." * (24 - bar_width))
        )
        percent = min(100 * done // total, 100)
        amounts = f"{self._amount(done)} of {self._amount(total)}{self._unit}"
        sys.stderr.write(f"\r\x1b[K{safe(self._title)} {bar} {percent:3d}%  {amounts}{safe(note)}")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_visible = False
