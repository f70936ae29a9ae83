"""Lines in order of time, from any position, and the last ones, against a plain list of the written
lines."""

import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.errors import StoreError
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import LogLine, Position
from logshipper_ingest.store import job_db, line_reader
from logshipper_ingest.store.job_reader import JobReader
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import CaptureWriter, memory_folder
from tests.tools.stress.model_settings import examples

BOTH = (Stream.STDOUT, Stream.STDERR)


class Step(NamedTuple):
    """A frame of a job with two tasks. gap: ns after the time of the last frame, even of another
    stream, so frames may overlap."""

    task: int
    stream: Stream
    gap: int
    lines: int
    kind: Kind


STEPS = st.lists(
    st.builds(
        Step,
        st.integers(0, 1),
        st.sampled_from(BOTH),
        st.sampled_from([0, 1, 2, 3, 10, 1000]),
        st.integers(1, 5),
        st.sampled_from([Kind.LOG, Kind.LOG, Kind.METADATA]),
    ),
    max_size=12,
)


class Written(NamedTuple):
    time_ns: int
    arrival: int  # the number of its frame
    stream: Stream
    kind: Kind
    text: str


class Job:
    """Writes steps, and keeps a list of the lines."""

    def __init__(self, root: Path) -> None:
        self.tasks = [
            CaptureWriter(root / "spool", task=task, suffix=f"s{task}") for task in (0, 1)
        ]
        self.entries: list[Written] = []
        self._now_ns = 1000
        self._last: dict[tuple[int, Stream], int] = {}
        self._frames = 0

    def write(self, step: Step) -> None:
        self._now_ns += step.gap
        begin = max(self._now_ns, self._last.get((step.task, step.stream), 0) + 1)
        self._last[step.task, step.stream] = begin + step.lines - 1
        self._frames += 1
        texts = [f'{{"{self._frames}": {at}}}' for at in range(step.lines)]
        self.tasks[step.task].lines(texts, stream=step.stream, kind=step.kind, time_ns=begin)
        self.entries += [
            Written(begin + at, self._frames, step.stream, step.kind, text)
            for at, text in enumerate(texts)
        ]


@contextmanager
def job_and_store() -> Iterator[tuple[Job, LocalStore]]:
    folder = tempfile.TemporaryDirectory(prefix="logshipper-test-", dir=memory_folder())
    with folder as name, LocalStore(name, create=True) as store:
        job = Job(Path(name))
        with job.tasks[0], job.tasks[1]:
            yield job, store


def reader_of(store: LocalStore) -> JobReader:
    store.ingest()
    return store.open("k3f9x2")


def texts(lines: Iterator[LogLine]) -> list[str]:
    return [line.text for line in lines]


@settings(max_examples=examples(50), deadline=None)
@given(STEPS)
def test_lines_come_in_order_of_time_each_once(steps: list[Step]) -> None:
    with job_and_store() as (job, store):
        for step in steps:
            job.write(step)
        reader = reader_of(store)
        lines = list(reader.lines(streams=BOTH))
        assert [line.time_ns for line in lines] == sorted(entry.time_ns for entry in job.entries)
        assert sorted(texts(iter(lines))) == sorted(entry.text for entry in job.entries)
        for stream in BOTH:
            stream_lines = [line for line in lines if line.stream is stream]
            assert list(texts(reader.lines(streams=[stream]))) == texts(iter(stream_lines))
        metadata = [line.text for line in lines if line.kind is Kind.METADATA]
        assert texts(reader.lines(streams=BOTH, kinds=[Kind.METADATA])) == metadata
        assert sorted(metadata) == sorted(w.text for w in job.entries if w.kind is Kind.METADATA)


@settings(max_examples=examples(50), deadline=None)
@given(STEPS, st.integers(0, 40))
def test_the_tail_is_the_end_of_all(steps: list[Step], tail: int) -> None:
    with job_and_store() as (job, store):
        for step in steps:
            job.write(step)
        reader = reader_of(store)
        whole = list(reader.lines(streams=BOTH))
        last_texts = texts(reader.lines(streams=BOTH, tail=tail))
        assert len(last_texts) == min(tail, len(whole))
        # if blocks overlap within some nanoseconds, the tail may begin with another of their lines
        assert set(last_texts) <= set(texts(iter(whole)))
        only = [line.text for line in whole if line.kind is Kind.METADATA]
        assert len(texts(reader.lines(streams=BOTH, kinds=[Kind.METADATA], tail=tail))) == min(
            tail, len(only)
        )


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(STEPS, max_size=4), st.data())
def test_following_from_any_position_misses_nothing_and_repeats_nothing(
    parts: list[list[Step]], data: st.DataObject
) -> None:
    """Follow like `logs --follow`, but stop in the middle of the present lines. Late lines have
    earlier times."""
    with job_and_store() as (job, store):
        after: Position | None = None
        read: list[str] = []
        for part in [*parts, []]:
            for step in part:
                job.write(step)
            reader = reader_of(store)
            stop = data.draw(st.integers(0, 12)) if part else 1 << 40
            for line in reader.lines(streams=BOTH, after=after):
                if stop == 0:
                    break
                stop -= 1
                read.append(line.text)
                after = line.position
        assert sorted(read) == sorted(entry.text for entry in job.entries)
        assert texts(reader.lines(streams=BOTH, after=after)) == []


def test_a_late_arrival_with_an_earlier_time_is_followed() -> None:
    with job_and_store() as (job, store):
        job.tasks[0].lines(["late"], time_ns=5000)
        first = list(reader_of(store).lines(streams=BOTH))
        job.tasks[1].lines(["early"], time_ns=10)
        assert texts(reader_of(store).lines(streams=BOTH, after=first[-1].position)) == ["early"]
        assert texts(reader_of(store).lines(streams=BOTH)) == ["early", "late"]


def test_a_task_that_begins_while_the_job_is_read_is_not_missed(tmp_path: Path) -> None:
    with LocalStore(str(tmp_path), create=True) as store:
        CaptureWriter(tmp_path / "spool", task=0, suffix="s0").lines(["first"], time_ns=5)
        before = reader_of(store)
        CaptureWriter(tmp_path / "spool", task=1, suffix="s1").lines(["second"], time_ns=6)
        store.ingest()
        lines = list(before.lines(streams=BOTH))
        rest = store.open("k3f9x2").lines(streams=BOTH, after=lines[-1].position)
        assert texts(iter(lines)) + texts(rest) == ["first", "second"]


def test_more_lines_than_a_page_of_blocks(tmp_path: Path) -> None:
    count = 3 * line_reader.PAGE + 7
    with LocalStore(str(tmp_path), create=True) as store:
        capture = CaptureWriter(tmp_path / "spool")
        for number in range(count):
            capture.metadata({"n": number})
        capture.close()
        reader = reader_of(store)
        whole = list(reader.lines(streams=BOTH))
        assert [line.text for line in whole] == [f'{{"n": {number}}}' for number in range(count)]
        assert texts(reader.lines(streams=BOTH, tail=count - 5)) == [
            line.text for line in whole[5:]
        ]
        assert texts(reader.lines(streams=BOTH, after=whole[10].position, tail=3)) == [
            line.text for line in whole[-3:]
        ]
        assert [record.line for record in reader.records()] == [line.text for line in whole]
        assert [record.line for record in reader.records(newest_first=True)] == [
            line.text for line in whole[::-1]
        ]


def test_writing_goes_on_while_somebody_reads_slowly() -> None:
    with job_and_store() as (job, store):
        for number in range(600):
            job.tasks[0].lines([str(number)])
        reading = reader_of(store).lines(streams=BOTH)
        next(reading)
        job.tasks[0].lines(["more"])
        assert store.ingest(deadline_secs=5).complete
        assert len(texts(reading)) == 599


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.integers(1, 300),
    st.integers(0, 200),
    st.data(),
)
def test_texts_of_any_blocks(
    sizes: list[int], packed_bytes: int, few_bytes: int, data: st.DataObject
) -> None:
    """Blocks are large or small, in any order, and some are missing."""
    numbers = data.draw(st.lists(st.integers(1, len(sizes) + 3), min_size=1, unique=True))
    blocks = {at: f"block {at} ".encode() * size for at, size in enumerate(sizes, start=1)}
    with pytest.MonkeyPatch.context() as patch, job_and_store() as (job, store):
        patch.setattr(line_reader, "_PACKED_BYTES", packed_bytes)
        patch.setattr(line_reader, "_FEW_BYTES", few_bytes)
        for text in blocks.values():
            job.tasks[0].lines([text.decode()])
        reader, read = reader_of(store), 0
        while read < len(numbers):
            contents = reader.block_texts(numbers[read:])
            assert contents == [
                blocks[number] + b"\n" if number in blocks else b""
                for number in numbers[read : read + len(contents)]
            ]
            assert contents
            read += len(contents)


def test_texts_that_earlier_versions_packed(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    with LocalStore(str(tmp_path), create=True) as store:
        with CaptureWriter(tmp_path / "spool") as capture:
            capture.lines(text.split("\n"))
        reader_of(store)
        with closing(sqlite3.connect(tmp_path / "jobs" / "k3f9x2.db")) as connection, connection:
            [(codec, stored)] = connection.execute("SELECT codec, text FROM block").fetchall()
            assert codec == job_db.ZSTD
            assert len(stored) < len(text) / 2
            packed = zlib.compress(f"{text}\n".encode())
            connection.execute("UPDATE block SET codec = ?, text = ?", (job_db.ZLIB, packed))
        reader = store.open("k3f9x2")
        assert texts(reader.lines(streams=BOTH)) == text.split("\n")
        with closing(sqlite3.connect(tmp_path / "jobs" / "k3f9x2.db")) as connection, connection:
            connection.execute("UPDATE block SET codec = ?, text = ?", (job_db.ZSTD, packed))
        with pytest.raises(StoreError, match="damaged"):
            texts(store.open("k3f9x2").lines(streams=BOTH))
