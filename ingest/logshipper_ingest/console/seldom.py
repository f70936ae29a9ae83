"""Lines for the agent's log about trouble that lasts: at first, then ever so often, with how often
it was."""

import time
from collections.abc import Callable

SECS = 600.0  # between two lines of the same words
_MAX_KNOWN = 100


class Seldom:
    """say: gets the lines; clock: monotonic, in seconds. One thread's."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._known: dict[
            str, tuple[float, int]
        ] = {}  # when it was said, and how often it was since

    def say(self, words: str) -> None:
        now = self._clock()
        at, times = self._known.get(words, (float("-inf"), 0))
        if now - at < SECS:
            self._known[words] = at, times + 1
            return
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[words] = now, 0
        self._say(f"{words} ({times} times more since this was said last)" if times else words)

    def is_over(self) -> None:
        """All is well: the next trouble is news again."""
        self._known.clear()
