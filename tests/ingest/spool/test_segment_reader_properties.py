"""Segments with random damage: the reader never raises, never invents a line, and only loses
damaged frames."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.spool import segment
from logshipper.spool.segment import FILE_HEADER_BYTES, Kind, Stream
from logshipper_ingest.spool.segment_reader import Outcome, SegmentReader, SpoolPosition
from tests.tools.captures.segment_factory import memory_folder
from tests.tools.stress.model_settings import examples


class Placed(NamedTuple):
    """A frame's place in a capture. text: unique among all frames."""

    segment: int
    begin: int
    end: int
    text: bytes


class Made(NamedTuple):
    files: dict[int, bytearray]
    frames: list[Placed]


@st.composite
def captures(draw: st.DrawFn) -> Made:
    """Return a whole capture of a few segments: frames of lines of several kinds, and records."""
    files: dict[int, bytearray] = {}
    frames: list[Placed] = []
    count = draw(st.integers(1, 3))
    for number in range(1, count + 1):
        content = bytearray(segment.encode_file_header(number, 5))
        for _ in range(draw(st.integers(0, 5))):
            serial = len(frames)
            if draw(st.sampled_from(["lines", "record"])) == "record":
                text = b'{"type":"event","event":"e%d"}' % serial
                frame = segment.encode_record(serial, {"type": "event", "event": f"e{serial}"})
            else:
                lines = draw(st.lists(st.text("ab{}é", max_size=20), min_size=1, max_size=4))
                text = b"".join(b"%d %s\n" % (serial, line.encode()) for line in lines)
                kind = draw(st.sampled_from([Kind.LOG, Kind.METADATA]))
                frame = segment.encode_lines(
                    Stream.STDOUT, serial, text, [(kind, len(lines))], {0: {"n": 1}}
                )
            frames.append(Placed(number, len(content), len(content) + len(frame), text))
            content += frame
        content += segment.encode_end(9, closed=number == count)
        files[number] = content
    return Made(files, frames)


@contextmanager
def folder_of(files: dict[int, bytearray]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="logshipper-test-", dir=memory_folder()) as name:
        folder = Path(name)
        for number, content in files.items():
            (folder / f"{number:010d}.seg").write_bytes(content)
        yield folder


def read_all(folder: Path, *, alive: bool, max_bytes: int = 1 << 40) -> tuple[list[bytes], Outcome]:
    """Return all texts. A new reader reads each batch, and only knows the position."""
    texts: list[bytes] = []
    position = SpoolPosition()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        while True:
            reader = SegmentReader(fd, str(folder), position, owner=os.getuid())
            batch = reader.read(max_bytes, alive=alive)
            reader.close()
            texts += [frame.text for frame in batch.frames]
            assert batch.outcome is not Outcome.MORE or batch.position > position
            position = batch.position
            if batch.outcome is not Outcome.MORE:
                return texts, batch.outcome
    finally:
        os.close(fd)


def is_in_order(texts: list[bytes], capture: Made) -> bool:
    """Whether no text is invented, repeated or misplaced."""
    serial = {frame.text: at for at, frame in enumerate(capture.frames)}
    places = [serial.get(text, -1) for text in texts]
    return -1 not in places and places == sorted(set(places))


@settings(max_examples=examples(50), deadline=None)
@given(captures(), st.sampled_from([1, 60, 1 << 40]))
def test_undamaged_captures_are_read_whole(capture: Made, max_bytes: int) -> None:
    with folder_of(capture.files) as folder:
        texts, outcome = read_all(folder, alive=True, max_bytes=max_bytes)
    assert texts == [frame.text for frame in capture.frames]
    assert outcome is Outcome.CLOSED


@settings(max_examples=examples(80), deadline=None)
@given(captures(), st.data())
def test_overwritten_bytes_cost_the_frames_that_they_hit_and_no_other(
    capture: Made, data: st.DataObject
) -> None:
    hit: set[tuple[int, int]] = set()
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.sampled_from(sorted(capture.files)))
        content = capture.files[number]
        begin = data.draw(st.integers(FILE_HEADER_BYTES, len(content) - 1))
        for at, value in enumerate(data.draw(st.binary(min_size=1, max_size=12)), start=begin):
            if at < len(content) and content[at] != value:
                content[at] = value
                hit.add((number, at))
    intact = [
        f.text
        for f in capture.frames
        if not any(f.segment == n and f.begin <= at < f.end for n, at in hit)
    ]
    with folder_of(capture.files) as folder:
        texts, _ = read_all(folder, alive=False, max_bytes=data.draw(st.sampled_from([1, 1 << 40])))
    assert is_in_order(texts, capture)
    assert set(intact) <= set(texts)


@settings(max_examples=examples(50), deadline=None)
@given(captures(), st.data())
def test_inserted_and_deleted_bytes_cost_only_the_frames_there(
    capture: Made, data: st.DataObject
) -> None:
    number = data.draw(st.sampled_from(sorted(capture.files)))
    content = capture.files[number]
    at = data.draw(st.integers(FILE_HEADER_BYTES, len(content)))
    size = data.draw(st.integers(0, 50))
    junk = data.draw(
        st.one_of(st.binary(max_size=80), st.just(segment.FRAME_MAGIC), st.just(bytes(64)))
    )
    intact = [
        f.text for f in capture.frames if f.segment != number or f.end <= at or f.begin >= at + size
    ]
    content[at : at + size] = junk
    with folder_of(capture.files) as folder:
        texts, _ = read_all(folder, alive=False)
    assert is_in_order(texts, capture)
    assert set(intact) <= set(texts)


@settings(max_examples=examples(50), deadline=None)
@given(captures(), st.data())
def test_truncation_anywhere_keeps_all_before_it(capture: Made, data: st.DataObject) -> None:
    number = data.draw(st.sampled_from(sorted(capture.files)))
    size = data.draw(st.integers(0, len(capture.files[number])))
    del capture.files[number][size:]
    intact = [f.text for f in capture.frames if f.segment != number or f.end <= size]
    with folder_of(capture.files) as folder:
        texts, _ = read_all(folder, alive=False)
        assert texts == intact
        read_all(folder, alive=True)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=200), st.just(segment.FRAME_MAGIC), st.just(b"LOGSEG\r\n")),
        max_size=8,
    )
)
def test_any_bytes_at_all_never_raise(pieces: list[bytes]) -> None:
    for begin in (b"", segment.encode_file_header(1, 5)):
        with folder_of({1: bytearray(begin + b"".join(pieces))}) as folder:
            for alive in (True, False):
                texts, outcome = read_all(folder, alive=alive)
                assert texts == []
                assert outcome in (Outcome.WAITING, Outcome.CUT, Outcome.BLOCKED)
