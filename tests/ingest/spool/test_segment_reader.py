"""The reader of segments: order, growing segments, any position, damage, hostile files and other
versions."""

import os
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.spool import segment
from logshipper.spool.segment import FRAME_HEADER_BYTES, Kind, Stream
from logshipper_ingest.spool import segment_reader
from logshipper_ingest.spool.segment_reader import (
    Damage,
    FrameBatch,
    Outcome,
    SegmentReader,
    SpoolPosition,
)
from tests.tools.captures.segment_factory import CaptureWriter

MANY = 1 << 40  # bytes; more than any test writes


class Reading:
    """A reader of a capture's segments, and the data that it has read."""

    def __init__(self, capture: CaptureWriter, position: SpoolPosition | None = None) -> None:
        self.fd = os.open(capture.segments, os.O_RDONLY | os.O_DIRECTORY)
        self.reader = SegmentReader(
            self.fd, str(capture.segments), position or SpoolPosition(), owner=os.getuid()
        )
        self.texts: list[bytes] = []
        self.damages: list[Damage] = []

    def read(self, max_bytes: int = MANY, *, alive: bool = True) -> Outcome:
        batch = self.read_batch(max_bytes, alive=alive)
        while batch.outcome is Outcome.MORE:
            batch = self.read_batch(max_bytes, alive=alive)
        return batch.outcome

    def read_batch(self, max_bytes: int, *, alive: bool = True) -> FrameBatch:
        batch = self.reader.read(max_bytes, alive=alive)
        self.texts += [frame.text for frame in batch.frames]
        self.damages += batch.damages
        return batch

    def close(self) -> None:
        self.reader.close()
        os.close(self.fd)


@pytest.fixture
def capture(tmp_path: Path) -> CaptureWriter:
    return CaptureWriter(tmp_path)


@pytest.fixture
def reading(capture: CaptureWriter) -> Iterator[Reading]:
    reading = Reading(capture)
    yield reading
    reading.close()


def reasons(reading: Reading) -> list[str]:
    return [damage.error.reason.partition(": ")[2] for damage in reading.damages]


# ---- undamaged


def test_reads_all_frames_in_order_over_several_segments(
    capture: CaptureWriter, reading: Reading
) -> None:
    for number in range(9):
        capture.lines([f"line {number}"])
        if number % 3 == 2:
            capture.rotate()
    capture.close()
    assert reading.read() is Outcome.CLOSED
    assert reading.texts == [b"line %d\n" % number for number in range(9)]
    assert reading.damages == []


@pytest.mark.parametrize("max_bytes", [1, 100, MANY])
def test_a_live_segment_is_followed_as_it_grows(
    capture: CaptureWriter, reading: Reading, max_bytes: int
) -> None:
    for number in range(5):
        capture.lines([f"line {number}"], stream=Stream.STDERR)
        assert reading.read(max_bytes) is Outcome.WAITING
        assert reading.texts == [b"line %d\n" % line for line in range(number + 1)]
    capture.close()
    assert reading.read(max_bytes) is Outcome.CLOSED
    assert reading.read(max_bytes) is Outcome.CLOSED


def test_goes_on_from_a_position_with_neither_loss_nor_repeat(capture: CaptureWriter) -> None:
    for number in range(20):
        capture.lines([f"line {number}"])
        if number == 10:
            capture.rotate()
    capture.close()
    position, texts = SpoolPosition(), []
    while True:
        reading = Reading(capture, position)
        batch = reading.read_batch(1)
        reading.close()
        texts += reading.texts
        position = batch.position
        if batch.outcome is not Outcome.MORE:
            break
    assert texts == [b"line %d\n" % number for number in range(20)]


def test_a_frame_byte_by_byte_is_waited_for(capture: CaptureWriter, reading: Reading) -> None:
    frame = segment.encode_lines(Stream.STDOUT, 5, b"hello\n", [(Kind.LOG, 1)])
    for at in range(len(frame)):
        assert reading.read() is Outcome.WAITING
        assert reading.texts == []
        capture.append(frame[at : at + 1])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [b"hello\n"]
    assert reading.damages == []


def test_a_file_header_byte_by_byte_is_waited_for(capture: CaptureWriter, reading: Reading) -> None:
    capture.segment.write_bytes(b"")
    for byte in segment.encode_file_header(1, 5):
        assert reading.read() is Outcome.WAITING
        capture.append(bytes([byte]))
    capture.lines(["one"])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [b"one\n"]


def test_a_rotation_under_way_is_not_the_end_of_a_segment(
    capture: CaptureWriter, reading: Reading
) -> None:
    """The writer makes the next segment before it ends the last one, and removes it again if the
    disk is full."""
    capture.lines(["one"])
    following = capture.segments / "0000000002.seg"
    following.write_bytes(segment.encode_file_header(2, 5))
    assert reading.read() is Outcome.WAITING
    following.unlink()
    capture.lines(["two"])
    assert reading.read() is Outcome.WAITING
    capture.rotate()
    capture.lines(["three"])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [b"one\n", b"two\n", b"three\n"]
    assert reading.damages == []


def test_large_frames_pass_and_memory_is_bounded(capture: CaptureWriter, reading: Reading) -> None:
    line = b"x" * (segment.MAX_LINE_BYTES - 1) + b"\n"
    text = line * 4
    capture.append(
        segment.encode_lines(Stream.STDOUT, 5, text[: segment.MAX_PAYLOAD_BYTES], [(Kind.LOG, 4)])
    )
    capture.lines(["after"])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [text, b"after\n"]


def test_a_reader_keeps_nothing_of_what_it_has_read(
    capture: CaptureWriter, reading: Reading
) -> None:
    """An agent has two readers of each capture, and many captures are over."""
    capture.lines(["x" * 1000])
    capture.append(b"?")
    capture.open_segment()
    batch = reading.read_batch(MANY, alive=False)
    assert len(batch.frames) == 1
    assert batch.damages
    reader = reading.reader
    assert (reader._frames, reader._damages, reader._present) == ([], [], None)


def test_a_batch_is_about_as_large_as_asked(capture: CaptureWriter, reading: Reading) -> None:
    for _ in range(100):
        capture.lines(["x" * 1000] * 10)
    batch = reading.read_batch(50_000)
    assert batch.outcome is Outcome.MORE
    assert 50_000 <= batch.size < 50_000 + 11_000


# ---- a capture that died


def test_dead_without_an_end_is_cut_after_the_last_whole_frame(
    capture: CaptureWriter, reading: Reading
) -> None:
    capture.lines(["one"])
    frame = segment.encode_lines(Stream.STDOUT, 5, b"torn\n", [(Kind.LOG, 1)])
    capture.append(frame[:-3])
    assert reading.read(alive=True) is Outcome.WAITING
    assert reading.damages == []
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == [b"one\n"]
    assert reasons(reading) == ["the last frame is cut short"]
    assert reading.damages[0].skipped == len(frame) - 3


def test_dead_after_a_clean_frame_is_no_damage(capture: CaptureWriter, reading: Reading) -> None:
    capture.lines(["one"])
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.damages == []


def test_dead_before_anything_was_written(capture: CaptureWriter, reading: Reading) -> None:
    capture.segment.unlink()
    assert reading.read(alive=True) is Outcome.WAITING
    assert reading.read(alive=False) is Outcome.CUT


@pytest.mark.parametrize("size", [0, 7])
def test_dead_within_the_file_header(capture: CaptureWriter, reading: Reading, size: int) -> None:
    capture.segment.write_bytes(segment.encode_file_header(1, 5)[:size])
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == []


def test_dead_between_two_segments(capture: CaptureWriter, reading: Reading) -> None:
    capture.lines(["one"])
    capture.append(segment.encode_end(5, closed=False))
    assert reading.read(alive=True) is Outcome.WAITING
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.damages == []


def test_zeros_that_a_machine_s_crash_left_are_skipped(
    capture: CaptureWriter, reading: Reading
) -> None:
    capture.lines(["one"])
    capture.append(bytes(5000))
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == [b"one\n"]
    assert [damage.skipped for damage in reading.damages] == [5000]


# ---- damage


def damage_at(path: Path, offset: int, value: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value)


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize(
    ("within", "value"),
    [
        (0, b"\0\0\0\0"),  # magic
        (4, b"\x09"),  # type
        (8, b"\xff\xff\xff\xff"),  # payload: impossible
        (8, b"\x60\x00\x00\x00"),  # payload: into the next frames
        (8, b"\x00\x00\x10\x00"),  # payload: past the end
        (12, b"\x05"),  # count
        (28, b"\0\0\0\0"),  # checksum
        (FRAME_HEADER_BYTES + 1, b"?"),  # text
    ],
)
def test_a_damaged_frame_is_skipped_and_all_others_are_read(
    capture: CaptureWriter, reading: Reading, within: int, value: bytes, alive: bool
) -> None:
    capture.lines(["one"])
    offset = capture.segment.stat().st_size
    capture.lines(["two"])
    size = capture.segment.stat().st_size - offset
    for number in range(5):
        capture.lines([f"after {number}"])
    damage_at(capture.segment, offset + within, value)
    assert reading.read(alive=alive) is (Outcome.WAITING if alive else Outcome.CUT)
    assert reading.texts == [b"one\n", *(b"after %d\n" % number for number in range(5))]
    assert [(damage.error.offset, damage.skipped) for damage in reading.damages] == [(offset, size)]
    assert reading.damages[0].error.path == str(capture.segment)


def test_a_damaged_file_header_costs_no_frame(capture: CaptureWriter, reading: Reading) -> None:
    capture.lines(["one"])
    capture.close()
    damage_at(capture.segment, 0, b"garbage!")
    assert reading.read() is Outcome.CLOSED
    assert reading.texts == [b"one\n"]
    assert reasons(reading) == ["this isn't a segment: the magic number is wrong"]


def test_a_lost_end_mark_or_segment_is_reported_and_reading_goes_on(
    capture: CaptureWriter, reading: Reading
) -> None:
    capture.lines(["one"])
    capture.open_segment()
    capture.lines(["two"])
    capture.rotate()
    capture.lines(["three"])
    lost = capture.segment
    capture.rotate()
    capture.lines(["four"])
    capture.close()
    lost.unlink()
    assert reading.read(alive=False) is Outcome.CLOSED
    assert reading.texts == [b"one\n", b"two\n", b"four\n"]
    assert reasons(reading) == [
        "the end mark is missing",
        "segments before 0000000004.seg are missing",
    ]


def test_attributes_that_make_python_raise_are_damage(
    capture: CaptureWriter, reading: Reading
) -> None:
    hostile = [
        b'{"runs":[[1,1e999]]}',
        b'{"runs":[[1,-1],[1,2]]}',
        b'{"runs":[[9,1]]}',
        b'{"lines":{"x":{}}}',
        b'{"lines":{"0":5}}',
        b"[" * 100_000,
        b'{"lines":' + b"9" * 5000 + b"}",
        b"\xff",
    ]
    for attrs in hostile:
        head = struct.pack(
            "<4sBBHIIQI", segment.FRAME_MAGIC, 1, 1, 0, len(attrs) + 2, 1, 5, len(attrs)
        )
        crc = zlib.crc32(b"a\n", zlib.crc32(attrs, zlib.crc32(head)))
        capture.append(head + crc.to_bytes(4, "little") + attrs + b"a\n")
    capture.lines(["after"])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [b"after\n"]


def test_the_search_for_frames_has_a_limit(
    capture: CaptureWriter, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every offset of a hostile segment may look like a frame of 16 MiB with a wrong checksum."""
    monkeypatch.setattr(segment_reader, "SEARCH_BYTES", 4 << 20)
    head = struct.pack("<4sBBHIIQII", segment.FRAME_MAGIC, 1, 1, 0, 1 << 20, 1, 5, 0, 0)
    capture.append(head * (2 << 15))
    assert reading.read() is Outcome.WAITING
    assert reading.texts == []
    assert len(reading.damages) == 1


def test_reports_of_one_read_have_a_limit(capture: CaptureWriter, reading: Reading) -> None:
    for _ in range(2500):
        capture.append(b"?")
        capture.lines(["x"])
    batch = reading.read_batch(MANY)
    assert batch.outcome is Outcome.MORE
    assert len(batch.damages) == 1000
    assert reading.read() is Outcome.WAITING
    assert len(reading.texts) == 2500


def incomplete(payload: int = segment.MAX_PAYLOAD_BYTES) -> bytes:
    """Return a frame's header that promises more bytes than ever come."""
    return struct.pack("<4sBBHIIQII", segment.FRAME_MAGIC, 1, 1, 0, payload, 1, 5, 0, 0)


@pytest.fixture
def gone_over(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of the reader's reads."""
    sizes: list[int] = []
    pread = segment_reader._pread

    def counting(fd: int, size: int, offset: int) -> bytes:
        data = pread(fd, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(segment_reader, "_pread", counting)
    return sizes


def test_an_incomplete_tail_is_not_searched_at_every_look(
    capture: CaptureWriter, reading: Reading, gone_over: list[int]
) -> None:
    capture.append(incomplete() * 40_000)
    assert reading.read() is Outcome.WAITING
    assert len(gone_over) < 3_000
    gone_over.clear()
    for _ in range(20):
        capture.append(incomplete() * 10)
        assert reading.read() is Outcome.WAITING
    assert len(gone_over) == 20


def test_a_whole_frame_after_an_incomplete_one_is_found_in_time(
    capture: CaptureWriter, reading: Reading
) -> None:
    capture.append(incomplete())
    assert reading.read() is Outcome.WAITING
    capture.lines(["after"])
    capture.lines(["twice as long now"])
    assert reading.read() is Outcome.WAITING
    assert reading.texts == [b"after\n", b"twice as long now\n"]


def test_a_dead_capture_s_incomplete_frames_cost_what_there_is(
    capture: CaptureWriter, reading: Reading, gone_over: list[int]
) -> None:
    frame = segment.encode_lines(Stream.STDOUT, 5, b"x\n", [(Kind.LOG, 1)])
    capture.append((incomplete() + frame) * 3_000)
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == [b"x\n"] * 3_000
    assert sum(gone_over) < 3_000 * 40_000  # each frame costs some KiB, not the whole rest


def test_a_read_ends_after_a_certain_amount_of_work(
    capture: CaptureWriter, reading: Reading, gone_over: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "READ_WORK_BYTES", 4 << 20)
    capture.append(b"?" * (16 << 20))
    capture.lines(["after"])
    positions = []
    while not reading.texts:
        gone_over.clear()
        positions.append(reading.read_batch(MANY).position)
        assert sum(gone_over) <= 6 << 20
    assert len(positions) == len(set(positions)) >= 4
    assert sum(damage.skipped for damage in reading.damages) == 16 << 20


def test_what_is_searched_is_counted_over_all_segments(
    capture: CaptureWriter, reading: Reading, gone_over: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "SEARCH_BYTES", 4 << 20)
    for _ in range(8):
        capture.append(b"?" * (2 << 20))
        capture.rotate()
    assert reading.read() is Outcome.WAITING
    assert sum(gone_over) < 13 << 20  # at most twice the limit, and a block of each segment


def test_what_a_frame_costs_counts_for_a_batch(capture: CaptureWriter, reading: Reading) -> None:
    for _ in range(10):
        capture.lines(["{}"] * 1000, kind=Kind.METADATA)
    batch = reading.read_batch(500_000)
    assert (len(batch.frames), batch.outcome) == (3, Outcome.MORE)
    assert batch.size > 3 * 1000 * segment_reader.FRAME_COST_BYTES > batch.frame_bytes


def test_a_folder_that_another_thread_reads_is_listed_whole(
    capture: CaptureWriter, reading: Reading
) -> None:
    """An incomplete list would close a dead capture without its lines."""
    capture.lines(["one"])
    capture.rotate()
    capture.lines(["two"])
    # another reader in the middle of its listing
    with os.scandir(reading.fd) as second_listing:
        next(second_listing)
        assert segment_reader.list_segments(reading.fd) == [1, 2]
        assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == [b"one\n", b"two\n"]


# ---- hostile folders


@pytest.mark.parametrize("alive", [True, False])
def test_very_many_names_are_listed_once_a_read_and_passed_over_in_pieces(
    capture: CaptureWriter, reading: Reading, monkeypatch: pytest.MonkeyPatch, alive: bool
) -> None:
    listings = []
    list_segments = segment_reader.list_segments
    monkeypatch.setattr(
        segment_reader,
        "list_segments",
        lambda fd: listings.append(fd) or list_segments(fd),  # type: ignore[func-returns-value]
    )
    capture.append(segment.encode_end(5, closed=False))
    for number in range(2, 2502):
        (capture.segments / f"{number:010d}.seg").symlink_to("nothing")
    for number in range(2502, 2702):
        (capture.segments / f"{number:010d}.seg").touch()
    reads = 1
    while reading.read_batch(MANY, alive=alive).outcome is Outcome.MORE:
        reads += 1
    assert reads >= 3
    assert len(listings) <= reads
    assert len(reading.damages) >= 2500


def test_links_pipes_folders_and_sockets_are_passed_over(
    capture: CaptureWriter, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(
        segment.encode_file_header(1, 5)
        + segment.encode_lines(Stream.STDOUT, 5, b"secret\n", [(Kind.LOG, 1)])
    )
    capture.append(segment.encode_end(5, closed=False))
    (capture.segments / "0000000002.seg").symlink_to(secret)
    os.mkfifo(capture.segments / "0000000003.seg")
    (capture.segments / "0000000004.seg").mkdir()
    working_folder = Path.cwd()
    os.chdir(capture.segments)  # which keeps a socket's path short
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("0000000005.seg")
    finally:
        os.chdir(working_folder)
    capture.number = 5
    capture.open_segment()
    capture.lines(["after"])
    capture.close()
    reading = Reading(capture)
    assert reading.read(alive=False) is Outcome.CLOSED
    reading.close()
    assert reading.texts == [b"after\n"]
    assert reasons(reading) == ["this isn't a regular file of the capture's owner"] * 4


def test_a_segment_of_another_owner_is_passed_over(capture: CaptureWriter) -> None:
    capture.lines(["one"])
    fd = os.open(capture.segments, os.O_RDONLY | os.O_DIRECTORY)
    reader = SegmentReader(fd, str(capture.segments), SpoolPosition(), owner=os.getuid() + 1)
    batch = reader.read(MANY, alive=False)
    reader.close()
    os.close(fd)
    assert (batch.frames, batch.outcome) == ([], Outcome.CUT)


def test_other_names_are_no_segments() -> None:
    names = (
        "1.seg",
        "0000000001.seg.bak",
        "000000000a.seg",
        "٠٠٠٠٠٠٠٠٠١.seg",
        "+000000001.seg",
        "0000000001seg",
        "lock",
    )
    assert [segment_reader.segment_number(name) for name in names] == [None] * len(names)
    assert segment_reader.segment_number("0000000012.seg") == 12


def test_a_newer_version_is_left_for_a_newer_program(
    capture: CaptureWriter, reading: Reading
) -> None:
    capture.lines(["one"])
    damage_at(capture.segment, 8, b"\x02\x00")
    assert reading.read(alive=False) is Outcome.BLOCKED
    assert "newer" in reasons(reading)[0]
    assert "upgrade" in reasons(reading)[0]
    assert reading.reader.position == SpoolPosition(1, 0)


def test_a_sparse_giant_is_cut_at_the_limit(
    capture: CaptureWriter, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "MAX_SEGMENT_BYTES", 1 << 20)
    capture.lines(["one"])
    os.truncate(capture.segment, 1 << 40)
    assert reading.read(alive=False) is Outcome.CUT
    assert reading.texts == [b"one\n"]
