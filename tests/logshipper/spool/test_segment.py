"""The segment format (docs/segment-format.md): round trips, and hostile bytes."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.errors import SegmentCorrupt
from logshipper.spool import segment
from logshipper.spool.segment import FrameType, Kind, Stream

_line = st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"?"))
_runs = st.lists(
    st.tuples(st.sampled_from(Kind), st.lists(_line, min_size=1, max_size=5)),
    min_size=1,
    max_size=5,
)


def test_plain_lines_as_documented() -> None:
    """The example in docs/segment-format.md, byte for byte, because other programs read this
    format."""
    frame = segment.encode_lines(
        Stream.STDOUT, 1_700_000_000_000_000_000, b"hello\nworld\n", [(Kind.LOG, 2)]
    )
    assert frame.hex(" ", -4) == (
        "f14c5346 01010000 0c000000 02000000 00002a36 fe9c9717 00000000 b860847e 68656c6c 6f0a776f 726c640a"
    )
    header = segment.encode_file_header(1, 1_700_000_000_000_000_000)
    assert (
        header.hex(" ", -4)
        == "4c4f4753 45470d0a 01002000 00000000 01000000 00000000 00002a36 fe9c9717"
    )


@given(st.sampled_from([Stream.STDOUT, Stream.STDERR]), _runs, st.integers(0, 2**63))
def test_lines_round_trip(
    stream: Stream, runs: list[tuple[Kind, list[bytes]]], time_ns: int
) -> None:
    lines = [(kind, line) for kind, part in runs for line in part]
    attrs: dict[int, segment.Json] = {0: {"n": 1}, len(lines) - 1: {"part": "2/2"}}
    text = b"".join(line + b"\n" for _, line in lines)
    data = segment.encode_lines(
        stream, time_ns, text, [(kind, len(part)) for kind, part in runs], attrs
    )
    decoded = segment.decode_frame(b"xyz" + data + b"more", 3)
    assert decoded is not None
    frame, end = decoded
    assert end == 3 + len(data)
    assert (frame.type, frame.stream, frame.count) == (FrameType.LINES, stream, len(lines))
    decoded_lines = list(frame.lines())
    assert [(kind, line) for _, kind, line, _ in decoded_lines] == lines
    assert [at for at, _, _, _ in decoded_lines] == [time_ns + index for index in range(len(lines))]
    assert decoded_lines[-1][3]["part"] == "2/2"


def test_records_and_end() -> None:
    data = segment.encode_record(5, {"type": "start", "x": "ü\ud800"}) + segment.encode_end(
        6, closed=True
    )
    decoded = segment.decode_frame(data, 0)
    assert decoded is not None
    assert decoded[0].record() == {"type": "start", "x": "ü\ud800"}
    end = segment.decode_frame(data, decoded[1])
    assert end is not None
    assert (end[0].type, end[0].count, end[0].record()) == (FrameType.END, 1, {})


def test_a_record_that_is_too_long_keeps_its_beginning() -> None:
    """For example, the refusal of a ~/.logoptin with thousands of problems."""
    record = {
        "type": "event",
        "event": "config_refused",
        "message": "m" * 99_999,
        "problems": ["p"] * 99_999,
        "n": 7,
    }
    decoded = segment.decode_frame(segment.encode_record(5, record), 0)
    assert decoded is not None
    assert len(decoded[0].text) <= segment.MAX_RECORD_BYTES
    assert decoded[0].record() == {
        "type": "event",
        "event": "config_refused",
        "message": "m" * 1024,
        "n": 7,
    }


def lines_frame(attrs: bytes, count: int) -> bytes:
    """Return a frame of blank lines with these attributes."""
    text = b"\n" * count
    head = struct.pack(
        "<4sBBHIIQI", segment.FRAME_MAGIC, 1, 1, 0, len(attrs) + count, count, 5, len(attrs)
    )
    return (
        head
        + zlib.crc32(text, zlib.crc32(attrs, zlib.crc32(head))).to_bytes(4, "little")
        + attrs
        + text
    )


@pytest.mark.parametrize(
    ("attrs", "count", "reason"),
    [
        (
            b'{"lines":{' + b" " * 320 + b"}}",
            1,
            "impossible frame header",
        ),  # more than one line can have
        (
            b'{"lines":{' + b" " * segment.MAX_ATTRS_BYTES + b"}}",
            100_000,
            "impossible frame header",
        ),
        (b'{"runs":[' + b"[1,1],[2,1]," * 32_768 + b"[1,1]]}", 65_537, "65537 runs"),
        (b'{"runs":[[2,65537]]}', 65_537, "too many metadata lines"),
    ],
)
def test_costly_attributes_are_damage(attrs: bytes, count: int, reason: str) -> None:
    with pytest.raises(SegmentCorrupt, match=reason):
        segment.decode_frame(lines_frame(attrs, count), 0)


def test_attributes_of_no_line_and_of_no_known_sort_are_left_out() -> None:
    attrs = b'{"lines":{"0":{"n":1,"part":"2","x":[[]],"y":null},"1":{"n":2},"-1":{"n":3}}}'
    decoded = segment.decode_frame(lines_frame(attrs, 1), 0)
    assert decoded is not None
    assert decoded[0].attrs == {0: {"n": 1, "part": "2"}}


@given(st.data())
def test_a_frame_cut_short_is_waited_for(data: st.DataObject) -> None:
    frame = segment.encode_lines(Stream.STDOUT, 1, b"a\nb\n", [(Kind.LOG, 2)])
    size = data.draw(st.integers(0, len(frame) - 1))
    assert segment.decode_frame(frame[:size], 0) is None


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    frame = segment.encode_lines(
        Stream.STDERR, 7, b"abc\n{}\n", [(Kind.LOG, 1), (Kind.METADATA, 1)], {1: {"n": 1}}
    )
    bit = data.draw(st.integers(0, len(frame) * 8 - 1))
    bad = bytearray(frame)
    bad[bit // 8] ^= 1 << bit % 8
    try:
        decoded = segment.decode_frame(bytes(bad), 0)
    except SegmentCorrupt:
        return
    assert decoded is None  # a longer length: the reader waits for more


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_corrupt(data: bytes) -> None:
    for bytes_ in (data, segment.FRAME_MAGIC + data):
        try:
            segment.decode_frame(bytes_, 0)
        except SegmentCorrupt:
            pass


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "cut short"),
        (b"x" * 32, "isn't a segment"),
        (
            segment.encode_file_header(1, 0).replace(b"\x01\x00", b"\x02\x00", 1),
            "newer than this logshipper's",
        ),
    ],
)
def test_file_headers_that_cannot_be_read(header: bytes, reason: str) -> None:
    with pytest.raises(SegmentCorrupt, match=reason):
        segment.decode_file_header(header, "/spool/x.seg")


def test_file_header() -> None:
    assert (
        segment.decode_file_header(segment.encode_file_header(3, 99)) == segment.FILE_HEADER_BYTES
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [(b"", 1), (b"a\n", 0), (b"a\n", 2), (b"a", 1), (b"a\nb", 2), (b"a\nb", 1), (b"\n" * 10**6, 1)],
)
def test_a_number_of_lines_that_lies(text: bytes, count: int) -> None:
    frame = segment.encode_lines(Stream.STDOUT, 5, text, [(Kind.LOG, count)])
    with pytest.raises(SegmentCorrupt, match="number of lines doesn't match"):
        segment.decode_frame(frame, 0)


def test_attributes_that_lie() -> None:
    """Jobs could write their own segments: runs with a wrong sum, unknown kinds, lists for
    objects."""
    for extra in (
        b'{"runs":[[1,5]]}',
        b'{"runs":[[99,1]]}',
        b"[]",
        b'{"runs":7}',
        b'{"runs":[[1,1e999]]}',
        b'{"lines":[1]}',
        b"{" * 900,
        b'{"runs":[[1,-1],[1,2]]}',
    ):
        data = segment._encode(FrameType.LINES, Stream.STDOUT, 1, 1, extra, b"a\n")
        with pytest.raises(SegmentCorrupt):
            segment.decode_frame(data, 0)
