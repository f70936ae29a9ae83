"""Lines of both streams, sorted by their times, read as on one terminal (R29)."""

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.spool import segment
from logshipper.spool.segment import MAX_LATE_NS, Frame, FrameType, Kind, Stream
from tests.programs import capture
from tests.tools.captures.terminal_oracle import Tmux, tmux
from tests.tools.sources import ROOT

__all__ = ["tmux"]  # a fixture

OUT, ERR = Stream.STDOUT, Stream.STDERR
EPOCH_NS = 1_700_000_000 * 10**9
NAMES = capture.names("two-streams/")


class Job:
    """Frames of a sidecar from a job's bytes."""

    def __init__(self, columns: int = 160, rows: int = 50) -> None:
        self._classifier = Classifier("enabled", columns=columns, rows=rows, collapse=False)
        self._frames = FrameBuilder(epoch_ns=EPOCH_NS)
        self.frames: list[Frame] = []

    def feed(self, stream: Stream, data: bytes, now: float) -> None:
        """Let time pass until `now`, then feed the data."""
        self.wait(now)
        self._classifier.feed(stream, data, now)
        self._write(now)

    def wait(self, now: float) -> None:
        while (due := self._classifier.next_tick()) is not None and due < now:
            self._classifier.tick(due)
            self._write(due)

    def end(self, now: float) -> None:
        self.wait(now)
        for stream in (OUT, ERR):
            self._classifier.end(stream, now)
        self._write(now)

    def _write(self, now: float) -> None:
        now_ns = EPOCH_NS + int(now * 1e9)
        for built in self._frames.build(self._classifier.take(), now_ns):
            decoded = segment.decode_frame(built.data, 0)
            assert decoded is not None
            self.frames.append(decoded[0])

    def lines(self) -> list[str]:
        """Return the lines of both streams in order of time, as readers see them."""
        lines = [
            (time_ns, text.decode().rstrip(" "))
            for frame in self.frames
            if frame.type is FrameType.LINES
            for time_ns, kind, text, _ in frame.lines()
            if kind in (Kind.LOG, Kind.METADATA)
        ]
        return [text for _, text in sorted(lines) if text]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_programs_read_as_on_one_terminal(name: str) -> None:
    recording = capture.read(name)
    job = Job(recording.columns, recording.rows)
    for (data, now), stream in zip(recording.timed_reads(), recording.streams, strict=True):
        job.feed(Stream(stream), data, now)
    job.end(recording.reads[-1][0])
    assert job.lines() == recording.shown


@pytest.mark.parametrize("name", NAMES)
def test_tmux_still_shows_what_it_showed(name: str, tmux: Tmux) -> None:
    recording = capture.read(name)
    assert [
        line for line in tmux.lines(recording.data, recording.columns, recording.rows) if line
    ] == recording.shown


def test_recordings_have_both_streams() -> None:
    assert len(NAMES) >= 10
    score = f"**{len(NAMES)} of {len(NAMES)}**"
    assert score in (ROOT / "docs" / "rendering.md").read_text()
    assert all({*capture.read(name).streams} == {OUT, ERR} for name in NAMES)


def test_a_bar_that_is_never_ended_stands_where_it_was_drawn_last() -> None:
    job = Job()
    job.feed(ERR, b"\r 10%\r 50%", 1.0)
    job.feed(OUT, b"one\n", 2.0)
    job.feed(OUT, b"two\n", 40.0)
    job.end(50.0)
    assert job.lines() == [" 50%", "one", "two"]


def test_a_status_holds_no_line_back() -> None:
    """A status has the time of its drawing, like the line that it becomes."""
    job = Job()
    job.feed(OUT, b"one\n", 1.0)
    job.feed(ERR, b"\r 50%", 2.0)
    job.feed(OUT, b"two\n", 3.0)
    job.feed(OUT, b"three\n", 30.0)
    statuses = [frame for frame in job.frames if any(kind is Kind.STATUS for kind, _ in frame.runs)]
    assert statuses
    job.end(40.0)
    assert job.lines() == ["one", " 50%", "two", "three"]


def test_times_rise_within_a_stream_and_none_comes_twice() -> None:
    job = Job()
    for turn in range(40):
        at = turn / 10
        job.feed(ERR, b"\router %d\n\rinner %d\x1b[A" % (turn, turn), at)
        job.feed(OUT, b"line\n" * 300 + b"\rbar %d\n" % turn, at)
    job.end(9.0)
    times: list[int] = []
    for stream in (OUT, ERR):
        of_stream = [
            time_ns
            for frame in job.frames
            if frame.stream is stream
            for time_ns, *_ in frame.lines()
        ]
        assert of_stream == sorted(of_stream)
        times += of_stream
    assert len(times) == len({*times})


def test_no_line_is_older_than_what_loki_takes_next_to_its_neighbours() -> None:
    builder = FrameBuilder(epoch_ns=EPOCH_NS)
    now_ns = EPOCH_NS + 3 * MAX_LATE_NS
    items: list[LoggedLines | LoggedEvent] = [LoggedLines(ERR, Kind.LOG, b"x\n", 1, drawn_at=1.0)]
    decoded = segment.decode_frame(builder.build(items, now_ns)[0].data, 0)
    assert decoded is not None
    assert decoded[0].time_ns == now_ns - MAX_LATE_NS
