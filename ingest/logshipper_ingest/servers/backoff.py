"""Pauses between retries, and a token bucket. Pure values."""

from dataclasses import dataclass

MAX_ASKED_SECS = 300.0  # the longest pause that a server can demand


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from min_secs to max_secs; tries: how many have failed in a row."""

    min_secs: float
    max_secs: float
    tries: int = 0

    def failed(self) -> "Backoff":
        return Backoff(self.min_secs, self.max_secs, self.tries + 1)

    def pause_secs(self, jitter: float, asked_secs: float | None = None) -> float:
        """Return the seconds before the next attempt.

        jitter: random, 0 to 1, so that a thousand agents do not return at once; asked_secs: the
        server's Retry-After, a lower bound.
        """
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
    at: float  # the time of `tokens`, by any clock

    @classmethod
    def full(cls, rate: float, burst: float, now: float) -> "Allowance":
        return cls(rate, burst, burst, now)

    def take(self, size: int, now: float) -> tuple["Allowance", float]:
        """The allowance after size bytes, and how many seconds to wait before they may go."""
        if not self.rate:
            return self, 0.0
        tokens = min(self.burst, self.tokens + (now - self.at) * self.rate) - size
        return Allowance(self.rate, self.burst, tokens, now), max(0.0, -tokens / self.rate)
