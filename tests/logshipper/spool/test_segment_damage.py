"""A small capture, torn, flipped, zeroed and shifted at every byte: the reader returns exactly the
undamaged frames, in order. Damaged ones count as lost, in bytes and in lines."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from logshipper.spool.segment import (
    FILE_HEADER_BYTES,
    FRAME_MAGIC,
    FrameType,
    Json,
    Kind,
    Stream,
    decode_frame,
)
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import RUNNING
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome, SegmentReader, SpoolPosition
from tests.tools.captures.segment_factory import CaptureWriter, make_ledger, memory_folder

MANY = 1 << 40
LINES = 7
FIRST, SECOND = "0000000001.seg", "0000000002.seg"
VERSION_BYTES = (8, 9)  # in the file header; the reader leaves newer versions for a newer program
MASKS = (0x01, 0x80, 0xFF)


class Placed(NamedTuple):
    """A frame's place. lines: their number in the ledger."""

    segment: str
    begin: int
    end: int
    text: bytes
    lines: int
    is_end: bool


class Whole(NamedTuple):
    """files: the capture's undamaged segments, by name."""

    folder: Path
    files: dict[str, bytes]
    frames: list[Placed]

    def bytes_of(self, frame: Placed) -> bytes:
        return self.files[frame.segment][frame.begin : frame.end]


def ledger(stdout: int, stderr: int = 0) -> Json:
    return make_ledger(
        {"stored": stdout, "line_feeds": stdout}, {"stored": stderr, "line_feeds": stderr}
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    capture = CaptureWriter(tmp_path_factory.mktemp("spool"))
    capture.start()
    capture.lines(["one", "two"])
    capture.ledger(ledger(2))
    capture.lines(["three"], stream=Stream.STDERR)
    capture.lines(['{"loss": 1}'], kind=Kind.METADATA, attrs={0: {"n": 1}})
    capture.rotate()
    capture.lines(["four", "five", "six"])
    capture.ledger(ledger(6, 1))
    capture.end(ledger=ledger(6, 1))
    capture.close()
    files = {path.name: path.read_bytes() for path in sorted(capture.segments.glob("*.seg"))}
    return Whole(
        capture.segments,
        files,
        [frame for name, data in files.items() for frame in placed(name, data)],
    )


def placed(name: str, data: bytes) -> Iterator[Placed]:
    at = FILE_HEADER_BYTES
    while (decoded := decode_frame(data, at)) is not None:
        frame, end = decoded
        is_end = frame.type is FrameType.END
        yield Placed(
            name, at, end, frame.text, frame.count if frame.type is FrameType.LINES else 0, is_end
        )
        at = end


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield an open empty folder, in memory if possible."""
    path = (
        Path(memory_folder() or tmp_path_factory.mktemp("x"))
        / f"logshipper-test-damage-{os.getpid()}"
    )
    path.mkdir()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)
    for file in path.iterdir():
        file.unlink()
    path.rmdir()


def write(folder: int, name: str, data: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
    os.write(fd, data)
    os.close(fd)


def read(folder: int, *, alive: bool = False) -> FrameBatch:
    reader = SegmentReader(folder, "segments", SpoolPosition(), owner=os.getuid())
    try:
        return reader.read(MANY, alive=alive)
    finally:
        reader.close()


def account_of(batch: FrameBatch) -> CaptureAccount:
    """Return the agent's final account of the capture."""
    account = CaptureAccount()
    rows = Rows()
    for frame in batch.frames:
        account.take(frame, None, rows, MANY)
    for damage in batch.damages:
        account.take_damage(str(damage.error), damage.skipped, rows)
    account.take_counters({"stdout": 1000, "stderr": 1000}, {"stdout": LINES - 1, "stderr": 1})
    account.conclude(died=batch.outcome is Outcome.CUT, boot_id="")
    return account


def check(batch: FrameBatch, whole: Whole, hit: list[Placed], *, count_bytes: bool = True) -> None:
    """Assert the loss of the frames in `hit`. count_bytes: also count them as skipped bytes."""
    texts = [frame.text for frame in whole.frames if frame not in hit and not frame.is_end]
    assert [frame.text for frame in batch.frames] == texts
    account = account_of(batch)
    lost = sum(frame.lines for frame in hit)
    assert account.lost() == lost
    assert account.state != RUNNING
    for counts in account.settled_ledger().values():
        if isinstance(counts, dict):
            parts = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
            assert counts["read"] == sum(counts[name] for name in parts)
    if count_bytes:
        assert sum(damage.skipped for damage in batch.damages) >= sum(
            frame.end - frame.begin for frame in hit
        )


def hit_at(whole: Whole, name: str, begin: int, end: int) -> list[Placed]:
    return [
        frame
        for frame in whole.frames
        if frame.segment == name and frame.begin < end and begin < frame.end
    ]


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_flipped_byte_costs_its_frame_and_no_other(whole: Whole, folder: int, name: str) -> None:
    for segment_name, data in whole.files.items():
        write(folder, segment_name, data)
    for at in range(len(whole.files[name])):
        for mask in MASKS:
            flipped = bytearray(whole.files[name])
            flipped[at] ^= mask
            write(folder, name, bytes(flipped))
            if at in VERSION_BYTES and flipped[at] > whole.files[name][at]:
                assert read(folder).outcome is Outcome.BLOCKED
            else:
                check(read(folder), whole, hit_at(whole, name, at, at + 1))


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_segment_torn_anywhere_gives_all_before_and_the_next_segment(
    whole: Whole, folder: int, name: str
) -> None:
    for segment_name, data in whole.files.items():
        write(folder, segment_name, data)
    for size in range(len(whole.files[name])):
        data = whole.files[name][:size]
        hit = hit_at(whole, name, size, len(whole.files[name]))
        torn = data + bytes(len(whole.files[name]) - size)  # as after a crash on some file systems
        for content, is_counted in ((data, False), (torn, True)):
            write(folder, name, content)
            check(read(folder), whole, hit, count_bytes=is_counted and size >= FILE_HEADER_BYTES)


def test_a_live_segment_torn_anywhere_is_waited_for(whole: Whole, folder: int) -> None:
    write(folder, FIRST, whole.files[FIRST])
    for size in range(len(whole.files[SECOND])):
        write(folder, SECOND, whole.files[SECOND][:size])
        batch = read(folder, alive=True)
        assert (batch.outcome, batch.damages) == (Outcome.WAITING, [])
        hit = hit_at(whole, SECOND, size, len(whole.files[SECOND]))
        texts = [frame.text for frame in whole.frames if frame not in hit and not frame.is_end]
        assert [frame.text for frame in batch.frames] == texts


@pytest.mark.parametrize(
    "junk", [b"", b"?", FRAME_MAGIC, bytes(40)], ids=["cut out", "?", "magic", "zeros"]
)
@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_bytes_put_in_or_cut_out_cost_the_frame_there(
    whole: Whole, folder: int, name: str, junk: bytes
) -> None:
    for segment_name, data in whole.files.items():
        write(folder, segment_name, data)
    for at in range(FILE_HEADER_BYTES, len(whole.files[name])):
        end = at if junk else at + 1
        data = whole.files[name][:at] + junk + whole.files[name][end:]
        write(folder, name, data)
        hit = [frame for frame in hit_at(whole, name, at, end) if whole.bytes_of(frame) not in data]
        check(read(folder), whole, hit, count_bytes=bool(junk))
