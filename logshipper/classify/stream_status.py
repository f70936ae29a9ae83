"""The live status of one stream: running bars and prompts, which are not final. Pure."""

from logshipper.classify.capture_log import CaptureLog
from logshipper.classify.stream_output import StreamOutput
from logshipper.masks.shape_mask import MASK, ShapeMask
from logshipper.render import command_prefix
from logshipper.render.renderer import Renderer
from logshipper.spool.segment import MAX_STATUS_BARS, MAX_STATUS_BYTES, STATUS_BREAK, Kind

STATUS_SECS = 10.0  # between two status lines of a stream in the segments
LIVE_SECS = 0.5  # between two polls of the renderer's open lines
OVER_SECS = 1.0  # longest display of a bar after its end
SNAPSHOT_MARK = b"[so far] "
_NEVER = float("inf")


class StreamStatus:
    """The open lines of a stream, for readers of the live status, and as snapshots in the log."""

    def __init__(
        self,
        renderer: Renderer,
        output: StreamOutput,
        capture: CaptureLog,
        shapes: ShapeMask | None,
        snapshot_secs: float,
    ) -> None:
        self.live = b""  # the open lines, at most LIVE_SECS old; b"" for none
        self._renderer = renderer
        self._output = output
        self._capture = capture
        self._shapes = shapes  # None: secrets stay
        self._snapshot_secs = snapshot_secs  # between two snapshots; 0 for none
        self._polled_at = 0.0
        self._polled_line_feeds = -1  # of the stream at the last poll
        self._status = b""  # the last one in the segments
        self._status_checked_at = 0.0
        self._snapshot = b""  # the last one
        self._snapshot_due = _NEVER

    def tick(self, now: float, *, is_enabled: bool) -> None:
        if now >= self._polled_at + LIVE_SECS or not self._renderer.pending():
            self._poll(now, is_enabled)
        if now >= self._status_checked_at + STATUS_SECS:
            self._status_checked_at = now
            text = self._text() if is_enabled else b""
            if text != self._status:
                self._write(text)
        elif self._status and not self._renderer.pending():
            self._write(b"")  # withdraw the status of a finished bar at once
        if self._snapshot_secs and is_enabled and self._renderer.pending():
            self._take_snapshot(now)

    def due_times(self, ticked_at: float) -> list[float]:
        """Return the next times for `tick` in mode `enabled`. ticked_at: time of the last one."""
        if not (self.live or self._status or self._renderer.pending()):
            return []
        return [
            self._polled_at + LIVE_SECS,
            self._status_checked_at + STATUS_SECS,
            min(self._snapshot_due, ticked_at + OVER_SECS),
        ]

    def withdraw(self) -> None:
        self.live = self._snapshot = b""
        if self._status:
            self._write(b"")

    def rows(self) -> list[bytes]:
        """Return the held lines, masked."""
        return [self._masked(line) for line in self._renderer.held().split(b"\n")]

    def _poll(self, now: float, is_enabled: bool) -> None:
        """Update `live`. A plain line counts only if no line ended since the last poll: others are
        just being printed."""
        is_still = self._renderer.line_feeds == self._polled_line_feeds
        self._polled_at, self._polled_line_feeds = now, self._renderer.line_feeds
        is_shown = is_enabled and (is_still or self._renderer.is_on_screen)
        self.live = self._text() if is_shown else b""

    def _text(self) -> bytes:
        """Return the lowest open lines that fit into a STATUS line."""
        lines = self._renderer.status().split(b"\n")[-MAX_STATUS_BARS:]
        text = b""
        for line in map(self._masked, reversed(lines)):
            joined = line + STATUS_BREAK + text if text else line
            if len(joined) > MAX_STATUS_BYTES:
                break
            text = joined
        return text

    def _masked(self, line: bytes) -> bytes:
        """Mask an open line, including the content of an unfinished command."""
        command = command_prefix.find(line)
        if command >= 0:
            line = line[:command] + command_prefix.PREFIX + b" " + MASK
        line = self._capture.stop_tokens.masked_open(line)
        if self._shapes is not None:
            line = self._shapes.masked_open(line)
        line = line[:MAX_STATUS_BYTES]
        return line.decode(errors="ignore").rstrip(" ").encode()

    def _write(self, text: bytes) -> None:
        """Write a status with its time of drawing: a later time would delay lines drawn after it."""
        self._status = text
        self._capture.statuses += 1
        drawn_at = self._renderer.status_drawn_at() if text else None
        self._output.write(Kind.STATUS, text + b"\n", drawn_at=drawn_at)

    def _take_snapshot(self, now: float) -> None:
        """Log the present state of the lowest bar as a note; its last state is yet to come."""
        if now < self._snapshot_due < _NEVER:
            return
        is_first = self._snapshot_due == _NEVER
        self._snapshot_due = now + self._snapshot_secs
        text = self._text().rpartition(STATUS_BREAK)[2]
        if is_first or text in (b"", self._snapshot):
            return
        self._snapshot = text
        self._output.end_run()
        drawn_at = self._renderer.status_drawn_at()
        self._output.write_note(SNAPSHOT_MARK + text, drawn_at=drawn_at)
