"""The offset of this machine's clock from a server that refuses future times."""

import time
from collections.abc import Callable

from logshipper.errors import LogshipperError

TOLERATED_NS = 5 * 60 * 10**9  # Loki accepts times up to ten minutes ahead
FRESH_SECS = 60.0  # how long an answer counts: a suspended machine's monotonic clock stands still


class ServerClock:
    """A server's clock, for several threads."""

    def __init__(self, ask: Callable[[], int | None]) -> None:
        """ask: returns the server's time in ns since 1970, or None if its answer has none."""
        self._ask = ask
        # its time by the monotonic clock, and by the server's
        self._last_answer: tuple[float, int] | None = None
        self._next_ask = 0.0  # by the monotonic clock

    def note(self, date_ns: int) -> None:
        """Note the time of an answer that has just come."""
        now = time.monotonic()
        self._last_answer, self._next_ask = (now, date_ns), now + FRESH_SECS

    def ahead_ns(self) -> int:
        """Return how far this clock is ahead; 0 up to TOLERATED_NS, or without an answer. Ask the
        server if the last answer is old, but once in FRESH_SECS: a silent one costs a time-out."""
        now = time.monotonic()
        if now >= self._next_ask:
            self._next_ask = now + FRESH_SECS
            try:
                date_ns = self._ask()
            except LogshipperError:
                date_ns = None
            if date_ns is not None:
                self.note(date_ns)
        ahead_ns = time.time_ns() - self.now_ns()
        return ahead_ns if ahead_ns > TOLERATED_NS else 0

    def now_ns(self) -> int:
        """Return the server's time if it differs by more than TOLERATED_NS, else this machine's.
        This asks nobody, and is right even if this clock was set since the last answer."""
        now_ns, answer = time.time_ns(), self._last_answer
        if answer is None:
            return now_ns
        at, date_ns = answer
        server_ns = date_ns + int((time.monotonic() - at) * 1e9)
        return server_ns if abs(now_ns - server_ns) > TOLERATED_NS else now_ns
