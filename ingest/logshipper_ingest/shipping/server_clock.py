"""How far this machine's clock is off a server's that refuses what comes from the future."""

import time
from collections.abc import Callable

from logshipper.errors import LogshipperError

TOLERATED_NS = 5 * 60 * 10**9  # Loki takes what is up to ten minutes ahead
FRESH_SECS = (
    60.0  # how long an answer counts; the monotonic clock stands still while a machine is suspended
)


class ServerClock:
    """ask: gets an answer of the server's, and returns its time (ns since 1970), None where it
    doesn't tell. For several threads."""

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        # By the monotonic clock, and the server's then.
        self._last_answer: tuple[float, int] | None = None
        self._next_ask = 0.0  # by the monotonic clock

    def note(self, date_ns: int) -> None:
        """An answer has just come."""
        now = time.monotonic()
        self._last_answer, self._next_ask = (now, date_ns), now + FRESH_SECS

    def ahead_ns(self) -> int:
        """0 where it is no more than TOLERATED_NS, or where nobody has answered. Asks where the
        last answer is old, and once in FRESH_SECS: who doesn't answer may take as long as a
        time-out for that."""
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
        """The server's time, where it isn't about this machine's. Asks nobody, and holds also where
        this machine's clock was set since the last answer."""
        now_ns, answer = time.time_ns(), self._last_answer
        if answer is None:
            return now_ns
        at, date_ns = answer
        server_ns = date_ns + int((time.monotonic() - at) * 1e9)
        return server_ns if abs(now_ns - server_ns) > TOLERATED_NS else now_ns
