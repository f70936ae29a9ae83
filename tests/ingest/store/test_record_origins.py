"""Records from lines that aren't JSON: the local store and Loki have the same, next to their lines
or in their place."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.spool import segment
from logshipper.spool.segment import Frame, FrameType, Json, Kind, Stream
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.capture_rows import BlockRow, RecordRow, Rows
from logshipper_ingest.model.stores import Reader
from logshipper_ingest.shipping.entries import EntryBuilder
from logshipper_ingest.spool.capture_folder import Identity
from logshipper_ingest.spool.purge_pattern import pattern_of
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import START_NS, CaptureWriter
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import push_spool
from tests.tools.stores.loki_pushing import BOTH, JOB, open_store

PRINTED = (
    b"start\n{'epoch': 1, 'loss': 0.50}\n{\"epoch\": 1}\nstep=5 loss=0.4\n"
    b"step=5 loss=0.4\nstep=5 loss=0.4\nend\n"
)
LOGGED = [
    "start",
    "{'epoch': 1, 'loss': 0.50}",
    '{"epoch": 1}',
    "step=5 loss=0.4",
    "[repeated 2 times: step=5 loss=0.4]",
    "end",
]
RECORDS = [
    ("dict", 1, '{"epoch": 1, "loss": 0.50}'),
    ("json", 1, '{"epoch": 1}'),
    ("pairs", 1, '{"step": 5, "loss": 0.4}'),
    ("pairs", 2, '{"step": 5, "loss": 0.4}'),
    ("pairs", 3, '{"step": 5, "loss": 0.4}'),
]
Read = Callable[[str], "Reader"]  # reads a capture of this mode


def spool_capture(spool: Path, mode: str, printed: bytes = PRINTED, attempt: int = 1) -> None:
    """Spool a capture like a sidecar."""
    classifier = Classifier(mode, metadata=("json", "dict", "pairs"))
    classifier.feed(Stream.STDOUT, printed, 1.0)
    for stream in BOTH:
        classifier.end(stream, 2.0)
    capture = CaptureWriter(spool, attempt=attempt)
    capture.start(mode=mode)
    for frame in FrameBuilder(epoch_ns=START_NS).build(classifier.take(), capture.tick()):
        capture.append(frame.data)
    capture.end(ledger=classifier.ledger())
    capture.close()


@pytest.fixture(params=["local", "loki"])
def read(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Read]:
    spool = tmp_path / "store" / "spool"
    fake = FakeLoki()
    with LocalStore(str(tmp_path / "store"), create=True) as store:

        def read_local(mode: str) -> Reader:
            spool_capture(spool, mode)
            assert store.ingest().problems == []
            return store.open(JOB)

        def read_loki(mode: str) -> Reader:
            spool_capture(spool, mode)
            push_spool(fake, spool)
            return open_store(fake, since_secs=86_400 * 3650).open(JOB)

        yield read_local if request.param == "local" else read_loki


def test_a_record_stands_beside_its_line(read: Read) -> None:
    """The log has the printed line, and the table has the record. Collapsed repeats keep their
    records."""
    with read("enabled") as reader:
        assert [line.text for line in reader.lines(streams=BOTH)] == LOGGED
        assert [line.text for line in reader.lines(streams=BOTH, tail=3)] == LOGGED[-3:]
        assert [line.text for line in reader.lines(streams=BOTH, kinds=(Kind.METADATA,))] == [
            '{"epoch": 1}'
        ]
        records = list(reader.records())
        assert [(record.origin, record.n, record.line) for record in records] == RECORDS
        assert {record.stream for record in records} == {Stream.STDOUT}
        assert len({record.time_ns for record in records}) == len(records)
        assert [record.line for record in reader.records(newest_first=True)] == [
            line for _, _, line in reversed(RECORDS)
        ]
        keys = reader.keys()
        assert {key.key: key.count for key in keys} == {"epoch": 2, "loss": 4, "step": 3}
        assert reader.summary.records == len(RECORDS)
        assert reader.summary.lost == 0
        ledger = reader.captures[0].ledger["stdout"]
        assert (ledger["read"], ledger["stored"], ledger["collapsed"]) == (7, 5, 2)
        assert reader.summary.lines == 5


def test_a_record_takes_the_place_of_its_line(read: Read) -> None:
    """Mode `metadata` does so (R9)."""
    with read("metadata") as reader:
        lines = list(reader.lines(streams=BOTH))
        assert [line.text for line in lines] == [line for _, _, line in RECORDS]
        assert [line.attrs.get("origin", "json") for line in lines] == [
            origin for origin, _, _ in RECORDS
        ]
        records = list(reader.records())
        assert [(record.origin, record.n, record.line) for record in records] == RECORDS
        ledger = reader.captures[0].ledger["stdout"]
        assert (ledger["read"], ledger["stored"], ledger["dropped"]) == (7, 5, 2)


@pytest.mark.parametrize(
    ("mode", "fixed", "lines"),
    [
        ("enabled", "0.50", 2),  # the line, and the record next to it
        ("enabled", '"loss": 0.5', 1),  # only the record
        ("metadata", "0.50", 1),
        ("enabled", "dict", 0),
    ],
)
def test_records_are_purged(mode: str, fixed: str, lines: int, tmp_path: Path) -> None:
    """The file has no purged bytes."""
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        spool_capture(tmp_path / "store" / "spool", mode)
        assert store.ingest().problems == []
        pattern = pattern_of(fixed=fixed, grep=None)
        assert store.purge(JOB, pattern, dry_run=True).lines == lines
        assert store.purge(JOB, pattern, dry_run=False).lines == lines
        with store.open(JOB) as reader:
            assert not any(fixed in record.line for record in reader.records())
    data = b"".join(path.read_bytes() for path in (tmp_path / "store" / "jobs").iterdir())
    assert fixed == "dict" or fixed.encode() not in data


def test_a_long_capture() -> None:
    """A frame has room for the attributes of many lines, with the longest name and large
    numbers."""
    frames = FrameBuilder()
    items: list[LoggedLines | LoggedEvent] = [
        LoggedLines(
            Stream.STDOUT,
            Kind.METADATA,
            b'{"a": 1}\n',
            1,
            {"n": 10**9 + at, "origin": "a" * 16, "copy": 1},
        )
        for at in range(30_000)
    ]
    data = b"".join(frame.data for frame in frames.build(items, START_NS))
    account, rows, offset = CaptureAccount(), Rows(), 0
    while offset < len(data):
        decoded = segment.decode_frame(data, offset)
        assert decoded is not None
        account.take(decoded[0], None, rows, START_NS)
        offset = decoded[1]
    assert [row.n for row in rows.records] == [10**9 + at for at in range(30_000)]
    assert {(row.origin, row.is_copy) for row in rows.records} == {("a" * 16, True)}
    assert (rows.blocks, account.lines, account.records) == ([], 0, 30_000)


@pytest.mark.parametrize(
    ("attrs", "origin", "is_copy"),
    [
        ({"origin": "keras", "copy": 1}, "keras", True),
        ({"origin": "UPPER", "copy": 2}, "", False),
        ({"origin": "a" * 17}, "", False),
        ({"origin": 5, "copy": "1"}, "", False),
        ({}, "", False),
    ],
)
def test_what_a_segment_may_say(attrs: Json, origin: str, is_copy: bool) -> None:
    """Segments are hostile input."""
    frame = Frame(
        FrameType.LINES, Stream.STDOUT, START_NS, 1, b"{}\n", ((Kind.METADATA, 1),), {0: attrs}
    )
    account, rows = CaptureAccount(), Rows()
    account.take(frame, None, rows, START_NS)
    assert [(row.origin, row.is_copy) for row in rows.records] == [(origin, is_copy)]
    assert len(rows.blocks) == (not is_copy)


def test_entries_of_loki() -> None:
    """Entries are in order of time, and structured metadata has origin and copy."""
    rows = Rows(
        blocks=[
            BlockRow(Stream.STDOUT, START_NS, 1, None, None, b"a: 5\n"),
            BlockRow(Stream.STDOUT, START_NS + 5, 1, [(2, 1)], {0: {"n": 1}}, b'{"b": 1}\n'),
        ],
        records=[
            RecordRow(Stream.STDOUT, START_NS + 1, 7, b'{"a": 5}', "pairs", is_copy=True),
            RecordRow(Stream.STDOUT, START_NS + 5, 1, b'{"b": 1}'),
        ],
    )
    identity = Identity("job1", 1, "", 0, "train.py", "me", "n1", "local")
    chunks = list(EntryBuilder("f", identity, 1000).chunks(rows))
    assert [(chunk.key.kind, chunk.key.stream, chunk.lines[0]) for chunk in chunks] == [
        ("log", "stdout", b"a: 5"),
        ("metadata", "stdout", b'{"a": 5}'),
        ("metadata", "stdout", b'{"b": 1}'),
    ]
    assert chunks[1].times_ns[0] == START_NS + 1
    attributes = {name: chunks[1].metadata(0)[name] for name in ("n", "origin", "copy")}
    assert attributes == {"n": "7", "origin": "pairs", "copy": "1"}


def test_a_database_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Its records are JSON, and new ones have their origin."""
    spool = tmp_path / "store" / "spool"
    with LocalStore(str(tmp_path / "store"), create=True) as store:
        spool_capture(spool, "enabled", b'{"epoch": 1}\n')
        assert store.ingest().problems == []
        with closing(sqlite3.connect(tmp_path / "store" / "jobs" / f"{JOB}.db")) as database:
            database.execute("ALTER TABLE record DROP COLUMN origin")
        with store.open(JOB) as reader:
            assert [record.origin for record in reader.records()] == ["json"]
        spool_capture(spool, "enabled", b"loss: 0.5\n", attempt=2)
        assert store.ingest().problems == []
        with store.open(JOB) as reader:
            assert [record.origin for record in reader.records()] == ["json", "pairs"]
