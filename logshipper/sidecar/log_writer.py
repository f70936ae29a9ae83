"""Writes lines and records of one capture into its spool, as frames.

A full disk never stops it: it counts and reports unwritable lines as lost. It drops log lines
before the disk is full, stderr's first, and beyond the limits of the node's agent
(logshipper/spool/spool_room.py).
"""

import os
import time

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.errors import SpoolError, SpoolFull
from logshipper.fault_points import fault_point
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.spool.captures import CaptureDirectory
from logshipper.spool.segment import Json, Kind, Stream
from logshipper.spool.segment_writer import SegmentWriter
from logshipper.spool.spool_room import SLOW_BYTES_PER_SEC, SpoolRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_SECS = 1.0  # pause after a refusal of the spool
_STREAM_KINDS = (Kind.LOG, Kind.NOTE, Kind.STATUS)  # dropped without room


class LogWriter:
    """A capture's frames on their way to its segments.

    classifier: its mode allows notes, and its ledger counts lost lines. on_degraded(report): gets
    the first loss. Raises SpoolError for an unwritable spool, at first only.
    """

    def __init__(
        self,
        capture: CaptureDirectory,
        classifier: Classifier,
        on_degraded: "Callable[[str], None]",
    ) -> None:
        self._capture = capture
        self._classifier = classifier
        self._on_degraded = on_degraded
        # times follow the monotonic clock from here on
        self._wall_ns = time.time_ns() - time.monotonic_ns()
        self._frames = FrameBuilder(epoch_ns=self._wall_ns)
        self._writer = SegmentWriter(os.path.join(capture.path, "segments"), self.now_ns())
        self._refused_until = 0.0
        self._ledger: Json = {}  # as last written
        self._room = SpoolRoom(capture.path)
        self._slowed_since = 0.0  # 0: not slowed
        self._slowed_secs = 0.0
        # lines, not yet reported in the log
        self._lost = dict.fromkeys((Stream.STDOUT, Stream.STDERR), 0)
        self._lost_reason = ""
        # beside their lines, not yet reported
        self._lost_records = 0
        self._degraded = False

    def now_ns(self) -> int:
        return self._wall_ns + time.monotonic_ns()

    @property
    def is_slow(self) -> bool:
        """Whether the job's output is to be read slowly."""
        return self._room.slow

    def slowed(self, now: float) -> Json:
        """Return `slowed_secs` of records; empty if the job was never slowed."""
        secs = self._slowed_secs + (now - self._slowed_since if self._slowed_since else 0.0)
        return {"slowed_secs": round(secs)} if secs else {}

    def write(self, items: list[LoggedLines | LoggedEvent], *, with_ledger: bool) -> None:
        """Write items. with_ledger: and a changed ledger behind them, in the same piece."""
        now_ns = self.now_ns()
        self.look_for_room()
        self.report_lost()
        if self._room.left_out:
            items = [item for item in items if not self._leaves_out(item)]
        frames = self._frames.build(items, now_ns)
        data = [frame.data for frame in frames]
        ledger = self._changed_ledger() if with_ledger else None
        if ledger is not None:
            data.append(self._frames.record({"type": "ledger", "ledger": ledger}, now_ns))
        joins = len(data) > 1 or not frames
        if data and joins and time.monotonic() >= self._refused_until:
            if self._write(b"".join(data), now_ns):
                self._ledger = ledger or self._ledger
                return
            self._refused_until = 0.0  # a few of them may find room
        for frame in frames:
            if self._write(frame.data, now_ns):
                continue
            self._lost_records += frame.copies
            if frame.stored:
                self._count_lost(frame.stream, frame.stored)
                fault_point("lines_refused")

    def write_record(self, record: Json, *, syncs: bool = True) -> bool:
        """Write a record; return whether the spool accepted it. syncs: see `SegmentWriter.write`."""
        now_ns = self.now_ns()
        accepted = self._write(self._frames.record(record, now_ns), now_ns, syncs=syncs)
        if accepted and syncs:  # else its ledger may be lost with the machine
            self._ledger = record.get("ledger", self._ledger)
        return accepted

    def write_ledger(self, *, with_bytes: bool = False) -> None:
        """Write a changed ledger. with_bytes: also for bytes alone, as of a redrawn bar; otherwise
        the next heartbeat has them."""
        ledger = self._changed_ledger(with_bytes=with_bytes)
        if ledger is not None:
            self.write_record({"type": "ledger", "ledger": ledger})

    def _changed_ledger(self, *, with_bytes: bool = False) -> Json | None:
        """Return the ledger if it differs from the last written one."""
        ledger, last = self._classifier.ledger(), self._ledger
        same = ledger == last if with_bytes else _lines_of(ledger) == _lines_of(last)
        return None if same else ledger

    def write_event(self, event: Json) -> None:
        self.write_record({**event, "type": "event"})

    def report(self, about: Stream, words: str, event: str, **more: object) -> bool:
        """Write a note and an event; return whether the spool accepted it."""
        items: list[LoggedLines | LoggedEvent] = [
            LoggedEvent({"event": event, "message": words, **more})
        ]
        if self._classifier.mode == "enabled" or self._lost[about]:
            items.insert(0, LoggedLines(about, Kind.NOTE, f"[{words}]\n".encode(), 1))
        now_ns = self.now_ns()
        frames = self._frames.build(items, now_ns)
        return self._write(b"".join(frame.data for frame in frames), now_ns)

    def report_lost(self, *, at_end: bool = False) -> None:
        """Report the number of missing lines once the spool accepts a stream's lines again, or
        nothing follows."""
        for stream, lines in self._lost.items():
            if (
                not lines
                or (stream in self._room.left_out and not at_end)
                or time.monotonic() < self._refused_until
            ):
                continue
            self.give_up_reserve()
            if self.report(
                stream,
                f"{lines} lines lost here: {self._lost_reason}",
                "lines_lost",
                lines=lines,
                stream=stream.name.lower(),
                reason=self._lost_reason,
            ):
                self._lost[stream] = 0
        if self._lost_records and time.monotonic() >= self._refused_until:
            words = (
                f"{self._lost_records} records of lines that aren't JSON lost: {self._lost_reason}"
            )
            event = {"event": "records_lost", "message": words, "records": self._lost_records}
            if self.write_record({"type": "event", **event, "reason": self._lost_reason}):
                self._lost_records = 0

    def look_for_room(self) -> None:
        """Report the begin and end of dropped lines, and of slow reading."""
        now = time.monotonic()
        if not self._room.look(now, self._writer.present_bytes):
            return
        reason = self._room.reason
        if self._room.left_out:
            names = " and ".join(stream.name.lower() for stream in sorted(self._room.left_out))
            words = f"log lines of {names} are left out from here on: {reason}; metadata and events go on"
            self.report(Stream.STDOUT, words, "lines_left_out", reason=reason)
        if self._room.slow and not self._slowed_since:
            self._slowed_since = now
            words = f"output is taken at {SLOW_BYTES_PER_SEC >> 20} MiB/s at most from here on: {reason}"
            facts = {"bytes_per_sec": SLOW_BYTES_PER_SEC, "reason": reason}
            self.report(Stream.STDOUT, words, "output_slowed", **facts)
        elif self._slowed_since and not self._room.slow:
            secs = now - self._slowed_since
            self._slowed_secs, self._slowed_since = self._slowed_secs + secs, 0.0
            words = f"output was slowed for {secs:.0f} s"
            self.report(Stream.STDOUT, words, "output_slowed_no_longer", secs=round(secs))

    def give_up_reserve(self) -> None:
        """Make room for a report, and try to write it at once."""
        self._writer.give_up_reserve()
        self._refused_until = 0.0

    def sync(self) -> None:
        try:
            self._writer.sync()
        except SpoolError as error:
            self._degrade(error)

    def close(self) -> None:
        try:
            self._writer.close(self._frames.end(self.now_ns()))
        except SpoolError as error:
            self._degrade(error)

    def _leaves_out(self, item: LoggedLines | LoggedEvent) -> bool:
        """Return whether there is no room for a log line, and count it."""
        if (
            isinstance(item, LoggedEvent)
            or item.stream not in self._room.left_out
            or item.kind not in _STREAM_KINDS
        ):
            return False
        # a long line counts once
        if item.kind is Kind.LOG and (item.attrs or {}).get("part", "1") == "1":
            self._lost_reason = self._room.reason
            self._degrade(SpoolFull(self._capture.path, self._room.reason))
            self._count_lost(item.stream, item.lines)
        return True

    def _count_lost(self, stream: Stream, lines: int) -> None:
        self._lost[stream] += lines
        self._classifier.count_lost(stream, lines)

    def _write(self, frames: bytes, now_ns: int, *, syncs: bool = True) -> bool:
        """Write frames; return False if the spool refuses. The next attempt follows after
        RETRY_SECS."""
        now = time.monotonic()
        if now < self._refused_until:
            return False
        try:
            self._writer.write(frames, now_ns, syncs=syncs)
        except SpoolError as error:
            self._refused_until = now + RETRY_SECS
            self._lost_reason = error.reason
            self._degrade(error)
            return False
        return True

    def _degrade(self, error: SpoolError) -> None:
        if not self._degraded:
            self._degraded = True
            self._on_degraded(
                f"degraded lines are missing from the log of {self._capture.job_id}: {error}"
            )


def _lines_of(ledger: Json) -> Json:
    """A ledger without its bytes."""
    return {
        name: {**value, "bytes": 0} if isinstance(value, dict) else value
        for name, value in ledger.items()
    }
