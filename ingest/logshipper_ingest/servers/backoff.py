"""How long to wait before the next try. Pure: values."""

from dataclasses import dataclass

MAX_ASKED_SECS = 300.0  # no server makes us wait longer at a time


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from min_secs to max_secs; tries: how many have failed in a row."""

    min_secs: float
    max_secs: float
    tries: int = 0

    def failed(self) -> "Backoff":
        return Backoff(self.min_secs, self.max_secs, self.tries + 1)

    def pause_secs(self, jitter: float, asked_secs: float | None = None) -> float:
        """Before the next try. jitter: 0 to 1, random: so that a thousand agents don't come back as
        one; asked_secs: what the server asks for (Retry-After), which is the least."""
        doubled = self.min_secs * 2.0 ** min(max(self.tries - 1, 0), 30)
        pause = min(doubled, self.max_secs) * (0.5 + 0.5 * jitter)
        server_secs = min(max(asked_secs or 0.0, 0.0), MAX_ASKED_SECS)
        return max(pause, server_secs * (1.0 + 0.1 * jitter))


@dataclass(frozen=True, slots=True)
class Allowance:
    """A token bucket."""

    rate: float  # bytes a second, 0 for any
    burst: float  # bytes that may go at once
    tokens: float  # bytes that may go now
    at: float  # the time of that, by whatever clock

    @classmethod
    def full(cls, rate: float, burst: float, now: float) -> "Allowance":
        return cls(rate, burst, burst, now)

    def take(self, size: int, now: float) -> tuple["Allowance", float]:
        """The allowance after size bytes, and how many seconds to wait before they may go."""
        if not self.rate:
            return self, 0.0
        tokens = min(self.burst, self.tokens + (now - self.at) * self.rate) - size
        return Allowance(self.rate, self.burst, tokens, now), max(0.0, -tokens / self.rate)
