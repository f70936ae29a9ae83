"""Lines for the agent's log about trouble that lasts: at first, then ever so often, with how often
it was."""

import time
from collections.abc import Callable

from logshipper_ingest.console.service_log import other_words

SECS = 600.0  # between two lines of the same words
_MAX_KNOWN = 100


class Seldom:
    """say: gets the lines; clock: monotonic, in seconds. One thread's."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._last_lines: dict[
            str, tuple[float, int]
        ] = {}  # by words: when the line was logged, and how often it has been held back since

    def say(self, words: str) -> None:
        now = self._clock()
        at, times = self._last_lines.get(words, (float("-inf"), 0))
        if now - at < SECS:
            self._last_lines[words] = at, times + 1
            return
        if len(self._last_lines) >= _MAX_KNOWN:
            self._last_lines.clear()
        self._last_lines[words] = now, 0
        more = f" ({times} times more since this was said last)" if times else ""
        self._say(other_words(words, f"{words}{more}"))

    def is_over(self) -> None:
        """All is well: the next trouble is news again."""
        self._last_lines.clear()
