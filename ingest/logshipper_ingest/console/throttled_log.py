"""Log lines about lasting trouble: one at first, then one every SECS with the number of repeats."""

import time
from collections.abc import Callable

from logshipper_ingest.console.service_log import other_words

SECS = 600.0  # between two lines of the same words
_MAX_KNOWN = 100


class ThrottledLog:
    """A log that drops repeated lines; one thread's."""

    def __init__(
        self, log: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._clock = clock
        # by words: time of the last line, and repeats dropped since
        self._last_lines: dict[str, tuple[float, int]] = {}

    def log(self, words: str) -> None:
        now = self._clock()
        at, times = self._last_lines.get(words, (float("-inf"), 0))
        if now - at < SECS:
            self._last_lines[words] = at, times + 1
            return
        if len(self._last_lines) >= _MAX_KNOWN:
            self._last_lines.clear()
        self._last_lines[words] = now, 0
        more = f" ({times} times more since this was said last)" if times else ""
        self._log(other_words(words, f"{words}{more}"))

    def reset(self) -> None:
        """Log the next trouble at once, since all is well."""
        self._last_lines.clear()
