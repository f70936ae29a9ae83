"""How fast a tenant's entries go to Loki: as fast as is allowed, and slower where Loki says that it
is too much. Pure.

Loki's limit is of a tenant, whatever number of agents share it, so each finds its share as TCP
does: what is taken raises the rate, a 429 cuts it. An agent begins slowly, at its start and after
an outage, when all others begin as well, and doubles quickly until the first 429. From then on it
regains slowly what it was cut by, so that a hundred agents together draw a 429 every few seconds,
not hundreds. What is raised depends on what was taken, not on the clock: an idle agent learns
nothing.
"""

from dataclasses import dataclass, replace

START_BYTES_PER_SEC = 64 << 10
LEAST_BYTES_PER_SEC = 16 << 10
_MOST_BYTES_PER_SEC = 1 << 30  # where there is no limit
BEGIN_SECS = 0.5  # of sending, in which the rate grows e-fold before the first 429
REGAIN_SECS = 120.0  # of sending, until a cut is made up for
GROW_SECS = 20.0  # of sending, in which it grows e-fold where it was never refused
_FIRST_CUT, _CUT = 0.5, 0.7
_BATCH_SECS, _LEAST_BATCH_BYTES = 1.0, 32 << 10
_ROUND_SECS, _LEAST_ROUND_BYTES = 2.0, 64 << 10


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a tenant's entries go now. Times are of one clock, in seconds."""

    max_rate: float  # bytes a second that are allowed, 0 for any
    rate: float  # bytes a second now, 0 for any: nothing is known yet
    ceiling: float  # the rate that was too much last, 0 where none was
    credit: float  # bytes that may go at once, below 0 what is owed
    at: float  # when the credit was that
    cut_at: float  # when the rate was cut last

    @classmethod
    def begin(cls, max_rate: float, now: float) -> "Pace":
        """An agent's start."""
        rate = min(START_BYTES_PER_SEC, max_rate)
        return cls(max_rate, rate, 0.0, 4.0 * rate, now, float("-inf"))

    def take(self, size: int, now: float) -> tuple["Pace", float]:
        """The pace after size bytes, and how many seconds to wait before they may go."""
        if not self.rate:
            return self, 0.0
        credit = min(max(self.rate, self.credit), self.credit + (now - self.at) * self.rate) - size
        return replace(self, credit=credit, at=now), max(0.0, -credit / self.rate)

    def after_push(self, size: int) -> "Pace":
        """Loki has taken size bytes."""
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
        """It was too much: a 429 for size bytes. sent_at: what was on its way when the rate was cut
        doesn't cut it again. jitter: 0 to 1, random: agents that were refused together don't come
        back as one."""
        rate = self.rate or START_BYTES_PER_SEC / _FIRST_CUT
        ceiling, cut_at = self.ceiling, self.cut_at
        if sent_at >= cut_at:
            ceiling, cut_at = rate, now
            rate = max(rate * (_CUT if self.ceiling else _FIRST_CUT), LEAST_BYTES_PER_SEC)
        return Pace(
            self.max_rate, rate, ceiling, min(self.credit, 0.0) - jitter * size, now, cut_at
        )

    def after_outage(self, now: float) -> "Pace":
        """Loki was away for all: it begins as at an agent's start, but that nothing goes at
        once."""
        rate = min(self.rate or START_BYTES_PER_SEC, START_BYTES_PER_SEC)
        return Pace(self.max_rate, rate, 0.0, min(self.credit, 0.0), now, self.cut_at)

    def batch_bytes(self, max_bytes: int) -> int:
        """Of a push, at most: small ones find room where many share a limit."""
        return (
            min(max_bytes, max(int(self.rate * _BATCH_SECS), _LEAST_BATCH_BYTES))
            if self.rate
            else max_bytes
        )

    def round_bytes(self, max_bytes: int) -> int:
        """Of a round, at most, so that nobody waits for another's for more than some seconds."""
        return (
            min(max_bytes, max(int(self.rate * _ROUND_SECS), _LEAST_ROUND_BYTES))
            if self.rate
            else max_bytes
        )
