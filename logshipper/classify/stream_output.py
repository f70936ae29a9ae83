"""Writes the lines of one stream into the capture's log; collapses repeats and blank lines. Pure."""

from collections import deque

from logshipper.classify.capture_log import CaptureLog
from logshipper.classify.logged import LoggedLines, Tally
from logshipper.classify.repeat_note import repeat_note
from logshipper.render.renderer import Renderer
from logshipper.spool.segment import Json, Kind, Stream

REPEAT_SECS = 10.0  # a line after a longer pause is no repeat; also the time between two notes
MAX_INTERRUPTIONS = 64  # remembered lines of the other stream; an older run of repeats has ended


class StreamOutput:
    """The lines of one stream. A run is a sequence of equal lines, or of blank lines."""

    def __init__(self, stream: Stream, renderer: Renderer, capture: CaptureLog) -> None:
        self.stream = stream
        self.tally = Tally()
        self.other: StreamOutput | None = None  # the capture's other stream
        self._renderer = renderer
        self._capture = capture
        # waiting lines, which form one item: without colours, and as logged
        self._texts: list[bytes] = []
        self._logged: list[bytes] = []
        self._interruptions: deque[float] = deque(maxlen=MAX_INTERRUPTIONS)  # times of drawing
        self.forget()

    def forget(self) -> None:
        """Let no earlier line affect later ones."""
        self.last_line: bytes | None = None  # the last logged line, without colours
        self._last_line_at = 0.0  # its last occurrence, by the clock of `Classifier.feed`
        self.repeats = 0  # further occurrences, not yet logged
        self._first_repeat = b""  # the first of them, as logged
        self._repeats_since = 0.0  # its time
        self._ends_blank = False  # the last logged line is blank

    # ---- single lines

    def write(
        self,
        kind: Kind,
        text: bytes,
        count: int = 1,
        attrs: Json | None = None,
        *,
        drawn_at: float | None = None,
    ) -> None:
        if kind is not Kind.STATUS and self.other is not None:
            self.other.interrupt(drawn_at)
        self._capture.out.append(LoggedLines(self.stream, kind, text, count, attrs, drawn_at))

    def write_note(
        self, text: bytes, attrs: Json | None = None, *, drawn_at: float | None = None
    ) -> None:
        self._capture.notes += 1
        self.write(Kind.NOTE, text + b"\n", 1, attrs, drawn_at=drawn_at)

    def write_log(self, lines: list[bytes], text: bytes, drawn_at: float) -> None:
        """Write ordinary lines. lines: without colours; text: as logged, ended by LF."""
        self.tally.stored += len(lines)
        self.write(Kind.LOG, text, len(lines), drawn_at=drawn_at)
        self.last_line, self._last_line_at = lines[-1], drawn_at
        self._ends_blank = False

    # ---- runs of equal lines

    def add(self, text: bytes, logged: bytes) -> None:
        """Add a line without collapsing. text: without colours; logged: as logged."""
        self._texts.append(text)
        self._logged.append(logged)

    def add_run(
        self, text: bytes, times: int, logged: bytes, repeat: bytes, drawn_at: float
    ) -> None:
        """Add equal lines; the second and later ones count as repeats. text: without colours and
        blanks at the end; logged, repeat: the first and second line, as logged."""
        if not text:
            self._add_blank(times, drawn_at)
            return
        if self._texts[-1] == text if self._texts else self._is_repeat(text, drawn_at):
            self.flush(drawn_at)
            self._count_repeats(logged, times, drawn_at)
            return
        if self.repeats:
            self.report_repeats()
        self._ends_blank = False
        self.add(text, logged)
        if times > 1:
            self.flush(drawn_at)
            self._count_repeats(repeat, times - 1, drawn_at)

    def flush(self, drawn_at: float) -> None:
        """Write the waiting lines."""
        if self._texts:
            self.write_log(self._texts, b"\n".join(self._logged) + b"\n", drawn_at)
            self._texts.clear()
            self._logged.clear()

    def _add_blank(self, times: int, drawn_at: float) -> None:
        self.flush(drawn_at)
        if not self._ends_blank:
            self.end_run()
            self.write(Kind.LOG, b"\n", drawn_at=drawn_at)
            self.tally.stored += 1
            times -= 1
        self.tally.blank += times
        self._ends_blank = True

    def _is_repeat(self, text: bytes, drawn_at: float) -> bool:
        return (
            text == self.last_line
            and drawn_at - self._last_line_at <= REPEAT_SECS
            and not self._is_interrupted(self._last_line_at, drawn_at)
        )

    def _is_interrupted(self, begin: float, end: float) -> bool:
        """Return whether the other stream drew a line between two times."""
        times = self._interruptions
        if not times or times[-1] <= begin:
            return False
        is_forgotten = len(times) == MAX_INTERRUPTIONS and times[0] > begin
        return is_forgotten or any(begin < time <= end for time in times)

    def _count_repeats(self, logged: bytes, times: int, drawn_at: float) -> None:
        if not self.repeats:
            self._first_repeat, self._repeats_since = logged, drawn_at
        self.repeats += times
        self._last_line_at = drawn_at

    def repeats_due(self) -> float | None:
        """Return the time at which the repeats must be reported."""
        return self._repeats_since + REPEAT_SECS if self.repeats else None

    def report_repeats(self) -> None:
        """Log a single repeat as a line, several as a note. Tokens added since then are masked."""
        times, self.repeats = self.repeats, 0
        line = self.last_line or b""
        masked = self._capture.stop_tokens.masked(line)
        if times == 1:
            self.tally.stored += 1
            text = (self._first_repeat if masked == line else masked) + b"\n"
            self.write(Kind.LOG, text, drawn_at=self._last_line_at)
            return
        self.tally.collapsed += times
        note = repeat_note(masked, times)
        self.write_note(note, {"repeat": times}, drawn_at=self._last_line_at)

    def end_run(self) -> None:
        """End runs of repeats and of blank lines, before another line."""
        if self.repeats:
            self.report_repeats()
        self.last_line = None
        self._ends_blank = False

    def interrupt(self, drawn_at: float | None) -> None:
        """End runs before a line of the other stream, unless this stream's renderer holds lines
        that were perhaps drawn earlier. drawn_at: of the other stream's line."""
        if drawn_at is not None:
            self._interruptions.append(drawn_at)
        has_run = self.last_line is not None or self._ends_blank
        if has_run and (drawn_at is None or not self._renderer.pending()):
            self.end_run()
