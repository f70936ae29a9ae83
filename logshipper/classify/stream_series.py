"""The series of one stream: finds them in its final lines and bars, and logs their records. Pure but
for the clock of CPU time."""

import time
from collections.abc import Callable, Iterable

from logshipper.classify.capture_log import CaptureLog
from logshipper.classify.metadata import json_record
from logshipper.classify.series.items import Record
from logshipper.classify.series.key_rules import KeyRules
from logshipper.classify.series.recogniser import Recogniser
from logshipper.classify.stream_output import StreamOutput
from logshipper.config import AUTO
from logshipper.spool.segment import COPY, ORIGIN, Json, Kind

CPU_SHARE = 0.05  # of a core, at most
BURST_SECS = 0.125  # CPU time that a quiet job may use at once
# Blocks of this size in quick succession are a flood. It gains no CPU time, as series would delay it:
# on a busy machine, 5 % of a core may be half of the sidecar's time
FLOOD_BYTES = 16 << 10
FLOOD_SECS = 0.1
REPORT_SECS = 60.0  # between two events about lines left out
BAR_SECS = 1.0  # between two samples of running bars


class StreamSeries:
    """Takes masked lines of a stream in mode `enabled`, or in mode `metadata`. key_rules: the user's
    corrections; is_limited: by CPU_SHARE."""

    def __init__(
        self,
        output: StreamOutput,
        capture: CaptureLog,
        key_rules: KeyRules,
        clock: Callable[[], float] = time.thread_time,
        *,
        is_limited: bool = True,
    ) -> None:
        self._output = output
        self._capture = capture
        self._key_rules = key_rules
        self._clock = clock
        self._is_limited = is_limited
        self._recogniser: Recogniser | None = Recogniser(key_rules)  # None: it failed
        self._credit = BURST_SECS  # CPU time that may be used now
        self._credited_at: float | None = None
        self._own_secs = 0.0  # wall-clock time of series since then
        self._is_paused = False
        self._left_out = 0  # lines since the last event
        self._report_due = float("-inf")
        self._bars_due = 0.0

    def is_open(self, count: int, size: int, drawn_at: float) -> bool:
        """Return whether to take a block; lines beyond CPU_SHARE are left out. count, size: its lines
        and bytes."""
        if self._recogniser is None:
            return False
        self._refill(drawn_at, size)
        if self._is_paused:
            self._left_out += count
        return not self._is_paused

    def take(self, lines: Iterable[bytes], drawn_at: float) -> None:
        """Take final lines without colours."""
        self._run(lambda recogniser: recogniser.feed(lines, drawn_at))

    def take_bars(
        self, read_rows: Callable[[], Iterable[bytes]], now: float, *, is_still: bool
    ) -> None:
        """Take the running bars, at most once in BAR_SECS. read_rows: returns their rows; is_still:
        no line has ended lately."""
        if now >= self._bars_due:
            self._bars_due = now + BAR_SECS
            self._run(lambda recogniser: recogniser.feed_bars(read_rows(), now, is_still=is_still))

    def tick(self, now: float) -> None:
        self._run(lambda recogniser: recogniser.tick(now))
        if now >= self._report_due and self._report():
            self._report_due = now + REPORT_SECS

    def next_tick(self) -> float | None:
        return self._recogniser.next_tick() if self._recogniser is not None else None

    def flush(self) -> None:
        """Log the open records."""
        self._run(lambda recogniser: recogniser.flush())
        self._report()

    def reset(self) -> None:
        """Log the open records; let no earlier line affect later ones."""
        self.flush()
        if self._recogniser is not None:
            self._recogniser = Recogniser(self._key_rules)

    def _run(self, work: Callable[[Recogniser], list[Record]]) -> None:
        """Log the records of some work. Its errors must never cost the log a line."""
        if self._recogniser is None:
            return
        begin, began_at = self._clock(), time.monotonic()
        try:
            self._write(work(self._recogniser))
        except Exception as error:  # as the docstring says
            self._recogniser = None
            self._capture.report_series_off(repr(error))
        self._credit -= self._clock() - begin
        self._own_secs += time.monotonic() - began_at
        self._is_paused = self._is_limited and (self._is_paused or self._credit < 0)

    def _refill(self, now: float, size: int) -> None:
        """Add the CPU time of the time since the last call. A pause ends with half the credit."""
        since = now if self._credited_at is None else self._credited_at + self._own_secs
        secs, self._own_secs = max(now - since, 0.0), 0.0
        if size < FLOOD_BYTES or secs >= FLOOD_SECS:
            self._credit += secs * CPU_SHARE
        self._credit = min(self._credit, BURST_SECS)
        self._credited_at = now
        if self._is_paused and self._credit >= BURST_SECS / 2:
            self._is_paused = False

    def _report(self) -> bool:
        """Report everything left out since the last call; return whether there was any."""
        over_limit = self._recogniser.take_over_limit() if self._recogniser is not None else {}
        for reason, count in over_limit.items():
            self._capture.report_series_over_limit(reason, count)
        lines, self._left_out = self._left_out, 0
        if lines:
            self._capture.report_series_too_fast(lines)
        return bool(over_limit or lines)

    def _write(self, records: list[Record]) -> None:
        for record in records:
            keys, text = json_record(record.values)
            attrs: Json = {"n": self._capture.number(keys), ORIGIN: AUTO, COPY: 1}
            self._output.write(Kind.METADATA, text + b"\n", 1, attrs, drawn_at=record.time)
        for name, new_name in self._key_rules.take_conflicts():
            self._capture.report_rename_conflict(name, new_name)
