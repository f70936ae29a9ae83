"""Frames from the classifier's output: order, kinds, unique rising times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.sidecar import frame_builder
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.spool import segment
from logshipper.spool.segment import Frame, FrameType, Kind, Stream

OUT, ERR = Stream.STDOUT, Stream.STDERR


def _decode(data: bytes) -> Frame:
    decoded = segment.decode_frame(data, 0)
    assert decoded is not None
    assert decoded[1] == len(data)
    return decoded[0]


def _values(frame: segment.Frame) -> list[object]:
    return [getattr(frame, name) for name in segment.Frame.__slots__]


def test_neighbours_of_a_stream_share_a_frame() -> None:
    items: list[LoggedLines | LoggedEvent] = [
        LoggedLines(OUT, Kind.LOG, b"a\nb\n", 2),
        LoggedLines(OUT, Kind.LOG, b"c\n", 1),
        LoggedLines(OUT, Kind.METADATA, b"{}\n", 1, {"n": 1}),
        LoggedLines(ERR, Kind.LOG, b"e\n", 1),
        LoggedEvent({"event": "x"}),
        LoggedLines(ERR, Kind.NOTE, b"[n]\n", 1, {"repeat": 2}),
    ]
    built = FrameBuilder().build(items, 1000)
    frames = [_decode(frame.data) for frame in built]
    unencoded = FrameBuilder().frames(items, 1000)
    assert [_values(frame) for frame in unencoded] == [_values(frame) for frame in frames]
    assert [frame.text for frame in frames] == [
        b"a\nb\nc\n{}\n",
        b"e\n",
        b'{"type":"event","event":"x"}',
        b"[n]\n",
    ]
    assert frames[0].runs == ((Kind.LOG, 3), (Kind.METADATA, 1))
    assert frames[0].attrs == {3: {"n": 1}}
    assert frames[3].attrs == {0: {"repeat": 2}}
    assert [frame.stored for frame in built] == [4, 1, 0, 0]
    assert [frame.time_ns for frame in frames] == [1000, 1004, 1005, 1006]


def test_records_beside_lines_follow_these_lines() -> None:
    """Readers handle lines in one run faster. Records keep their order: `n` rises."""
    copy = {"copy": 1, "origin": "auto"}
    items: list[LoggedLines | LoggedEvent] = [
        LoggedLines(OUT, Kind.LOG, b"a\n", 1),
        LoggedLines(OUT, Kind.METADATA, b"1\n", 1, {"n": 1, **copy}),
        LoggedLines(OUT, Kind.LOG, b"b\n", 1),
        LoggedLines(OUT, Kind.METADATA, b"2\n", 1, {"n": 2, **copy}),
        LoggedLines(OUT, Kind.LOG, b"c\n", 1),
        LoggedLines(OUT, Kind.METADATA, b"{}\n", 1, {"n": 3}),
        LoggedLines(OUT, Kind.METADATA, b"4\n", 1, {"n": 4, **copy}),
        LoggedLines(OUT, Kind.LOG, b"d\n", 1),
    ]
    (frame,) = (_decode(frame.data) for frame in FrameBuilder().build(items, 1000))
    assert frame.text == b"a\nb\nc\n1\n2\n{}\nd\n4\n"
    assert frame.runs == ((Kind.LOG, 3), (Kind.METADATA, 3), (Kind.LOG, 1), (Kind.METADATA, 1))
    assert [(at, attrs["n"]) for at, attrs in frame.attrs.items()] == [
        (3, 1),
        (4, 2),
        (5, 3),
        (7, 4),
    ]


def test_a_long_line_counts_once() -> None:
    parts: list[LoggedLines | LoggedEvent] = [
        LoggedLines(OUT, Kind.LOG, b"x\n", 1, {"part": part}) for part in ("1", "2", "3/3")
    ]
    assert sum(frame.stored for frame in FrameBuilder().build(parts, 1)) == 1


def test_frames_stay_small() -> None:
    """A reader needs memory for only one frame."""
    size = frame_builder.MAX_FRAME_BYTES // 4
    frames = FrameBuilder().build([LoggedLines(OUT, Kind.LOG, b"x" * size + b"\n", 1)] * 20, 1)
    assert len(frames) > 3
    assert all(len(frame.data) < 2 * frame_builder.MAX_FRAME_BYTES for frame in frames)


def test_a_great_many_lines_at_once_are_several_frames_as_well() -> None:
    """A full disk loses only little at once. A long line stays whole."""
    text = b"".join(b"%d\n" % n for n in range(200_000)) + b"x" * 300_000 + b"\nend\n"
    frames = FrameBuilder().build([LoggedLines(OUT, Kind.LOG, text, 200_002)], 1)
    assert b"".join(_decode(frame.data).text for frame in frames) == text
    assert sum(frame.stored for frame in frames) == 200_002
    sizes = sorted(len(frame.data) for frame in frames)
    assert sizes[-2] < 2 * frame_builder.MAX_FRAME_BYTES + 256
    assert sizes[-1] < 300_000 + 2 * frame_builder.MAX_FRAME_BYTES


def test_a_great_many_short_lines_are_several_frames() -> None:
    """A frame takes many times its size in a reader's memory, because each line becomes an
    entry."""
    built = FrameBuilder().build([LoggedLines(OUT, Kind.LOG, b"x\n" * 500_000, 500_000)], 1)
    frames = [_decode(frame.data) for frame in built]
    assert sum(frame.stored for frame in built) == 500_000
    assert b"".join(frame.text for frame in frames) == b"x\n" * 500_000
    assert max(frame.count for frame in frames) <= segment.MAX_FRAME_LINES
    assert frames[1].time_ns == frames[0].time_ns + frames[0].count


_item = st.one_of(
    st.builds(
        lambda stream, lines, drawn_at: LoggedLines(
            stream, Kind.LOG, b"x\n" * lines, lines, drawn_at=drawn_at
        ),
        st.sampled_from([OUT, ERR]),
        st.integers(1, 50),
        st.none() | st.integers(0, 10_000).map(lambda ns: ns / 1e9),
    ),
    st.just(LoggedEvent({"event": "x"})),
)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.lists(_item, max_size=5)), max_size=10))
def test_times_rise_within_a_stream_and_are_unique(
    batches: list[tuple[int, list[LoggedLines | LoggedEvent]]],
) -> None:
    """This also holds for a clock that stands still or goes back. New lines and records come after
    everything else."""
    builder = FrameBuilder()
    last = dict.fromkeys(Stream, -1)
    times: set[int] = set()
    for now, items in batches:
        for item in items:
            for built in builder.build([item], now):
                frame = _decode(built.data)
                count = frame.count if frame.type is FrameType.LINES else 1
                assert frame.time_ns > last[frame.stream]
                if isinstance(item, LoggedEvent) or item.drawn_at is None:
                    assert frame.time_ns > max(last.values())
                    assert frame.time_ns >= now
                frame_times = {*range(frame.time_ns, frame.time_ns + count)}
                assert not frame_times & times
                times |= frame_times
                last[frame.stream] = frame.time_ns + count - 1
    assert builder.end(0) > max(last.values())


def test_a_line_that_was_drawn_earlier_gets_the_first_free_time_from_then_on() -> None:
    builder = FrameBuilder()

    def time_of(stream: Stream, lines: int, drawn_ns: int) -> int:
        item = LoggedLines(stream, Kind.LOG, b"x\n" * lines, lines, drawn_at=drawn_ns / 1e9)
        return _decode(builder.build([item], 10_000)[0].data).time_ns

    assert time_of(OUT, 10, 1000) == 1000
    assert time_of(OUT, 10, 1020) == 1020
    assert time_of(ERR, 1, 500) == 500
    assert time_of(ERR, 5, 1005) == 1010
    assert time_of(ERR, 8, 1005) == 1030
    assert time_of(ERR, 1, 1005) == 1038


def test_spans_of_times_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_builder, "MAX_SPANS", 4)
    builder = FrameBuilder()
    for at in range(5):
        builder.record({"type": "ledger"}, 1000 * (at + 1))
    late: list[LoggedLines | LoggedEvent] = [LoggedLines(ERR, Kind.LOG, b"x\n", 1, drawn_at=0.0)]
    assert _decode(builder.build(late, 9000)[0].data).time_ns == 2001
