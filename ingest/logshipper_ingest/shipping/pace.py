"""The pace of a tenant's entries: as fast as allowed, and slower when Loki refuses. Pure.

Agents share a tenant's limit, so each finds its share like TCP: acknowledged bytes raise the rate,
and a 429 cuts it. An agent begins slowly, at its start and after an outage, when all others begin as
well. It grows quickly until the first 429. Later it regains a cut slowly, so that a hundred agents
together cause a 429 every few seconds, not hundreds. The rate grows with acknowledged bytes, not
with time: an idle agent learns nothing.
"""

from dataclasses import dataclass, replace

START_BYTES_PER_SEC = 64 << 10
LEAST_BYTES_PER_SEC = 16 << 10
_MOST_BYTES_PER_SEC = 1 << 30  # without a limit
BEGIN_SECS = 0.5  # of sending, for e-fold growth before the first 429
REGAIN_SECS = 120.0  # of sending, to regain a cut
GROW_SECS = 20.0  # of sending, for e-fold growth beyond the last refused rate
_FIRST_CUT, _CUT = 0.5, 0.7
_BATCH_SECS, _LEAST_BATCH_BYTES = 1.0, 32 << 10
_ROUND_SECS, _LEAST_ROUND_BYTES = 2.0, 64 << 10


@dataclass(frozen=True, slots=True)
class Pace:
    """The present pace of a tenant. Times are seconds of one clock."""

    max_rate: float  # bytes a second, 0 for no limit
    rate: float  # bytes a second now, 0 for no limit
    ceiling: float  # the last refused rate, or 0
    credit: float  # bytes that may go at once; below 0, a debt
    at: float  # the time of that credit
    cut_at: float  # the time of the last cut

    @classmethod
    def begin(cls, max_rate: float, now: float) -> "Pace":
        """Return the pace at an agent's start."""
        rate = min(START_BYTES_PER_SEC, max_rate)
        return cls(max_rate, rate, 0.0, 4.0 * rate, now, float("-inf"))

    def take(self, size: int, now: float) -> tuple["Pace", float]:
        """Return the pace after size bytes, and the seconds until they may go."""
        if not self.rate:
            return self, 0.0
        credit = min(max(self.rate, self.credit), self.credit + (now - self.at) * self.rate) - size
        return replace(self, credit=credit, at=now), max(0.0, -credit / self.rate)

    def after_push(self, size: int) -> "Pace":
        """Return the pace after Loki has acknowledged size bytes."""
        if not self.rate:
            return self
        if not self.ceiling:
            increase = size / BEGIN_SECS
        elif self.rate < self.ceiling:
            increase = (1 - _CUT) * self.ceiling * size / self.rate / REGAIN_SECS
        else:
            increase = size / GROW_SECS
        return replace(self, rate=min(self.rate + increase, self.max_rate or _MOST_BYTES_PER_SEC))

    def after_refusal(self, size: int, sent_at: float, now: float, jitter: float) -> "Pace":
        """Return the pace after a 429 for size bytes. A push sent before the last cut does not cut
        again. jitter: random, 0 to 1, so that agents refused together don't return together."""
        rate = self.rate or START_BYTES_PER_SEC / _FIRST_CUT
        ceiling, cut_at = self.ceiling, self.cut_at
        if sent_at >= cut_at:
            ceiling, cut_at = rate, now
            rate = max(rate * (_CUT if self.ceiling else _FIRST_CUT), LEAST_BYTES_PER_SEC)
        return Pace(
            self.max_rate, rate, ceiling, min(self.credit, 0.0) - jitter * size, now, cut_at
        )

    def after_outage(self, now: float) -> "Pace":
        """Return the pace after an outage: that of an agent's start, but without credit."""
        rate = min(self.rate or START_BYTES_PER_SEC, START_BYTES_PER_SEC)
        return Pace(self.max_rate, rate, 0.0, min(self.credit, 0.0), now, self.cut_at)

    def batch_bytes(self, max_bytes: int) -> int:
        """Return the maximum of a push: small ones find room within a shared limit."""
        return self._bytes_in(_BATCH_SECS, _LEAST_BATCH_BYTES, max_bytes)

    def round_bytes(self, max_bytes: int) -> int:
        """Return the maximum of a round, so that nobody waits for another's for many seconds."""
        return self._bytes_in(_ROUND_SECS, _LEAST_ROUND_BYTES, max_bytes)

    def _bytes_in(self, secs: float, least: int, most: int) -> int:
        return min(most, max(int(self.rate * secs), least)) if self.rate else most
