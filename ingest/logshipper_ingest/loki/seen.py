"""Remembers the lines that a follower of a job has read, to find late ones and repeat none. Pure.

Loki has no order of arrival. So a follower finds late lines by reading again: the last seconds each
time, longer spans less often, everything at the end. The history holds spans of time per capture,
in which each time belongs to one line. Lines of a block are a nanosecond apart, so a span covers at
least a block.
"""

from bisect import bisect_right
from operator import itemgetter

from logshipper_ingest.model.capture_id import CaptureId

SECOND_NS = 10**9
MAX_SPANS = 200_000


LEVELS = ((3, 0), (30, 15), (300, 120), (3600, 1800))  # seconds to read again, and how often


class ReadHistory:
    """The lines read of one job.

    newest_ns: the newest line's time; lines: their number; floor_ns: older lines count as read.
    """

    def __init__(self) -> None:
        self.newest_ns = 0
        self.lines = 0
        self.floor_ns = 0
        self._spans: dict[CaptureId, list[list[int]]] = {}
        self._count = 0
        self._due = [0] * len(LEVELS)

    def add(self, key: CaptureId, time_ns: int) -> None:
        """Marks a line as read."""
        self.lines += 1
        self.newest_ns = max(self.newest_ns, time_ns)
        spans = self._spans.setdefault(key, [])
        if spans and spans[-1][1] == time_ns:  # right behind the newest one
            spans[-1][1] = time_ns + 1
            return
        at = bisect_right(spans, time_ns, key=itemgetter(0))
        if at and time_ns < spans[at - 1][1]:
            return
        if at and spans[at - 1][1] == time_ns:
            spans[at - 1][1] += 1
        else:
            spans.insert(at, [time_ns, time_ns + 1])
            self._count += 1
            if self._count > MAX_SPANS:
                self._forget_older_half()

    def has(self, key: CaptureId, time_ns: int) -> bool:
        if time_ns < self.floor_ns:
            return True
        spans = self._spans.get(key, [])
        at = bisect_right(spans, time_ns, key=itemgetter(0))
        return at > 0 and time_ns < spans[at - 1][1]

    def _forget_older_half(self) -> None:
        begins = sorted(span[0] for spans in self._spans.values() for span in spans)
        self.floor_ns = begins[len(begins) // 2]
        for key, spans in self._spans.items():
            self._spans[key] = [span for span in spans if span[1] > self.floor_ns]
        self._count = sum(map(len, self._spans.values()))

    def read_from_ns(self, now_ns: int, *, last: bool) -> int:
        """Return the time from which to read again.

        last: no more lines will come, so read everything once more.
        """
        if last:
            return self.floor_ns
        back_secs = 0
        for number, (level_secs, every_secs) in enumerate(LEVELS):
            if now_ns >= self._due[number]:
                back_secs = level_secs if self._due[number] or not number else back_secs
                self._due[number] = now_ns + every_secs * SECOND_NS
        return max(self.floor_ns, min(self.newest_ns, now_ns) - back_secs * SECOND_NS)
