"""Jobs in a Loki in memory: readers give the same answers as from the local store, in the same
order and with whole lines."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.spool.segment import Kind, Stream
from logshipper.start.cli import main
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.captures.segment_factory import CaptureWriter, make_ledger
from tests.tools.fakes.loki_fake import FakeLoki
from tests.tools.stores.loki_job import pieces, push_spool
from tests.tools.stores.loki_pushing import BOTH, JOB, Ask, Pushing, asking, open_store, read, texts
from tests.tools.stores.reading_store import SpooledCapture, assert_spans, training
from tests.tools.stress.model_settings import examples


@pytest.fixture
def fake() -> FakeLoki:
    return FakeLoki()


@pytest.fixture
def ask(fake: FakeLoki, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    return asking(fake, monkeypatch, capsys)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def both_answers(
    fake: FakeLoki, store: Path, ask: Ask, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[str, str]:
    """Return a command's output for the same captures in Loki and in the local store."""
    push_spool(fake, store / "spool", max_line_bytes=1000)
    from_loki = ask(*words)
    code = main([*words, "--store", str(store)])
    from_store = (code, *capsys.readouterr())
    assert from_loki[0] == from_store[0] == 0
    assert from_loki[2] == from_store[2]
    return from_loki[1], from_store[1]


# ---- the same answers


@pytest.mark.parametrize(
    "words",
    [
        "ls", "logs last", "logs last --json", "logs last --tail 4", "logs last --stream stderr --times",
        "logs last --tail 2 --grep Warning", "metadata last", "metadata last --json", "metadata last --format csv",
        "metadata last --limit 2 --keys loss", "plot last --json", f"logs {JOB} --attempt 1",
    ],
)  # fmt: skip
def test_answers_are_the_same(
    words: str, fake: FakeLoki, store: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    training(store)
    training(store, attempt=2, epochs=3, started_ns=time.time_ns() - 20 * NS)
    from_loki, from_store = both_answers(fake, store, ask, capsys, *words.split())
    assert from_loki == from_store
    assert from_loki


def test_show_is_the_same(
    fake: FakeLoki, store: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    training(store)
    with SpooledCapture(store, attempt=2, started_ns=time.time_ns() - 20 * NS) as job:
        job.metadata({"step": 10**30, "loss": 0.1}, {"step": 10**30 + 1, "name": "größe"})
        job.lines("x" * 2500, "ü" * 700)
        job.printed(9000)
        job.lose(3)
        job.end(3)
    from_loki, from_store = both_answers(fake, store, ask, capsys, "show", "last", "--json")
    loki_job, store_job = json.loads(from_loki), json.loads(from_store)
    assert (loki_job.pop("store"), store_job.pop("store")) == ("http://loki.invalid", str(store))
    assert (loki_job.pop("cluster"), store_job.pop("cluster")) == ("local", "")
    assert loki_job == store_job
    assert from_loki.count(str(10**30 + 1)) == from_store.count(str(10**30 + 1)) > 0


def test_long_lines_are_whole_again(store: Path, fake: FakeLoki) -> None:
    """The reader joins pieces of one line. Parts that the capture itself has split stay
    separate."""
    capture = CaptureWriter(store / "spool")
    capture.start()
    capture.lines(["ä" * 5000, "short"])
    capture.lines(
        ["a" * 3000, "b" * 2000, "end"],
        attrs={0: {"part": "1"}, 1: {"part": "2"}, 2: {"part": "3/3"}},
    )
    record = json.dumps({"epoch": 1, "text": "z" * 4000})
    capture.metadata(record)
    capture.end(ledger=make_ledger({"stored": 4}))
    capture.close()
    push_spool(fake, store / "spool", max_line_bytes=1000)
    with open_store(fake, since_secs=86_400 * 3650).open(JOB) as reader:
        lines = list(reader.lines(streams=BOTH))
        backward = list(reader.lines(streams=BOTH, tail=100))
        assert [entry.line for entry in reader.records()] == [record]
        assert reader.keys()[0].last == "1"
    assert [(line.text, dict(line.attrs)) for line in lines] == [
        ("ä" * 5000, {}), ("short", {}), ("a" * 3000, {"part": "1"}), ("b" * 2000, {"part": "2"}),
        ("end", {"part": "3/3"}), (record, {"n": 1}),
    ]  # fmt: skip
    assert [line[1:] for line in backward] == [line[1:] for line in lines]


def test_counts_of_a_running_job_are_at_least_those_of_its_keys(fake: FakeLoki, ask: Ask) -> None:
    """Its last heartbeat, 10 s ago, still has lower counts."""
    job = Pushing(fake, began_ns=time.time_ns() - 10 * NS)
    job.event(
        {"event": "heartbeat", "mode": "enabled", "ledger": {}, "lines": 1, "bytes_printed": 9}, 1
    )
    for n in (1, 2, 3):
        job.push("metadata", NS + n, json.dumps({"epoch": n}), n=str(n))
    answer = json.loads(ask("show", JOB, "--json")[1])
    assert (answer["records"], answer["lines"], answer["keys"][0]["count"]) == (3, 3, 3)
    page = ask("show", JOB)[1]
    assert "of 3 metadata records" in page
    assert "in 3 lines" in page
    assert "(rule 2 of 7)" in page
    code, out, err = ask("metadata", JOB)
    assert (code, err, [row.split()[-1] for row in out.splitlines()]) == (
        0,
        "",
        ["epoch", "3", "2", "1"],
    )


# ---- order, pieces, ties


def test_ties_are_in_the_order_of_captures(fake: FakeLoki) -> None:
    """Both ranks printed at the same nanosecond. Reading gives them by rank, forwards and
    backwards."""
    began_ns = time.time_ns() - 100 * NS
    second = Pushing(fake, host="node2", began_ns=began_ns, task="1")
    first = Pushing(fake, host="node1", began_ns=began_ns - 5)
    for at_ns in (10, 11, 12):
        second.line(at_ns, f"second {at_ns}")
        first.line(at_ns + 5, f"first {at_ns}")
    ordered_texts = [
        f"{source} {at_ns}" for at_ns in (10, 11, 12) for source in ("first", "second")
    ]
    lines = read(fake)
    assert texts(lines) == ordered_texts
    assert [line.capture for line in lines] == [1, 2] * 3
    assert texts(read(fake, tail=5)) == ordered_texts[1:]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.text(alphabet="aäß😀 ", max_size=40), st.sampled_from(["", "1", "2", "3/3"])),
        max_size=8,
    ),
    st.integers(4, 12),
    st.randoms(use_true_random=False),
)
def test_pieces_are_joined_whatever_the_order(
    lines: list[tuple[str, str]], max_bytes: int, random: Any
) -> None:
    fake = FakeLoki()
    job = Pushing(fake)
    text_attrs, entries = [], []
    for at_ns, (text, part) in enumerate(lines, start=10):
        text_attrs.append((text, {"part": part} if part else {}))
        entries += [(at_ns, piece, attrs) for piece, attrs in pieces(text, part, max_bytes)]
    random.shuffle(entries)
    for at_ns, piece, part in entries:
        job.line(at_ns, piece, **({"part": part} if part else {}))
    for options in ({}, {"tail": 100}):
        assert [(line.text, dict(line.attrs)) for line in read(fake, **options)] == text_attrs


def test_a_line_without_all_its_pieces_is_shown_in_pieces_when_they_are_late(
    fake: FakeLoki,
) -> None:
    job = Pushing(fake)
    job.line(10, "one", part="1/3")
    job.line(10, "three", part="3/3")
    job.line(20, "next")
    assert [(line.text, dict(line.attrs)) for line in read(fake)] == [
        ("one", {"part": "1/3"}), ("three", {"part": "3/3"}), ("next", {}),
    ]  # fmt: skip
    young = Pushing(FakeLoki(), began_ns=time.time_ns())
    young.line(10, "one", part="1/2")
    assert texts(read(young.fake)) == [], "its other piece is on its way"
    young.line(10, "two", part="2/2")
    assert texts(read(young.fake)) == ["onetwo"]


def test_what_was_sent_again_to_a_replay_stream_counts_once(fake: FakeLoki) -> None:
    job = Pushing(fake)
    job.line(10, "one")
    job.line(10, "one", replay="017")
    job.line(11, "two", replay="017")
    assert texts(read(fake)) == ["one", "two"]


def test_attributes_have_their_types_again(fake: FakeLoki) -> None:
    job = Pushing(fake)
    job.push("metadata", 10, '{"a":1}', n="7")
    job.line(11, "[the line above 12 times more]", note="1", repeat="12")
    job.push("command", 12, '/LOGCOMMAND {"mode":"metadata"}')
    job.push("status", 13, "10%")
    job.push("metadata", 14, '{"a":2}', n="x" * 30)
    assert [(line.kind, dict(line.attrs)) for line in read(fake)] == [
        (Kind.METADATA, {"n": 7}), (Kind.NOTE, {"repeat": 12}), (Kind.COMMAND, {}), (Kind.METADATA, {}),
    ]  # fmt: skip
    assert [line.kind for line in read(fake, kinds=(Kind.NOTE,))] == [Kind.NOTE]
    assert [
        line.kind for line in read(fake, kinds=(Kind.METADATA,), streams=(Stream.STDERR,))
    ] == []


# ---- lazy


def test_a_tail_reads_backward_and_little(fake: FakeLoki) -> None:
    job = Pushing(fake)
    for at_ns in range(5000):
        job.line(10 + at_ns, f"line {at_ns}")
    store = open_store(fake)
    with store.open(JOB) as reader:
        before = fake.handed
        assert texts(list(reader.lines(streams=BOTH, tail=3))) == [
            "line 4997",
            "line 4998",
            "line 4999",
        ]
        assert fake.handed - before < 1100
        assert fake.queries[-1].direction == "backward"
        assert list(reader.lines(streams=BOTH, tail=0)) == []


def test_a_tail_that_is_too_long_to_be_kept_is_right(
    fake: FakeLoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logshipper_ingest.loki.reader.MAX_HELD", 10)
    began_ns = time.time_ns() - 100 * NS
    ranks = [
        Pushing(fake, began_ns=began_ns, host=f"node{task}", task=str(task)) for task in range(3)
    ]
    for at_ns in range(20):
        for task, rank in enumerate(ranks):
            rank.line(10 + at_ns, f"{at_ns} of {task}")
    ordered_texts = [f"{at_ns} of {task}" for at_ns in range(20) for task in range(3)]
    for tail in (9, 10, 11, 12, 13, 40, 60, 100):
        assert texts(read(fake, tail=tail)) == ordered_texts[-tail:]


def test_lines_come_as_they_are_read(fake: FakeLoki) -> None:
    job = Pushing(fake)
    for at_ns in range(100):
        job.line(10 + at_ns, "x")
    with open_store(fake).open(JOB) as reader:
        before = fake.handed
        lines = reader.lines(streams=BOTH)
        next(lines)
        assert fake.handed - before <= 2


# ---- keys


def test_x_is_judged_capture_by_capture(fake: FakeLoki, store: Path) -> None:
    """Steps of two ranks interleave, and a requeued attempt begins at 1 again. Within each capture,
    `step` only rises."""
    for attempt, task in ((1, 0), (1, 1), (2, 0)):
        capture = CaptureWriter(
            store / "spool",
            attempt=attempt,
            task=task,
            suffix=f"t{task}",
            start_ns=time.time_ns() - (900 - 300 * attempt) * NS,
        )
        capture.start()
        for step in range(1, 6):
            capture.metadata({"step": step, "loss": 1 / step})
        capture.end(ledger=make_ledger({"stored": 5}))
        capture.close()
    push_spool(fake, store / "spool")
    with LocalStore(str(store), create=True) as local:
        assert local.ingest().complete
        with local.open(JOB) as local_reader, open_store(fake).open(JOB) as reader:
            assert reader.x_axis() == local_reader.x_axis()
            assert (reader.x_axis().key, reader.x_axis().rule) == ("step", 3)
            assert reader.keys() == local_reader.keys()
            assert reader.notes() == local_reader.notes()
            assert reader.x_for("loss") == local_reader.x_for("loss")
            newest = [record.line for record in reader.records(newest_first=True)]
            assert newest == [record.line for record in reader.records()][::-1]
            assert_spans(reader)


def test_progress_tells_how_many_records_are_read(fake: FakeLoki) -> None:
    job = Pushing(fake)
    for at_ns in range(2500):
        job.push("metadata", 10 + at_ns, '{"a":1}')
    job.close(records=2500)
    reports: list[tuple[int, int]] = []
    with open_store(fake, progress=lambda done, total: reports.append((done, total))).open(
        JOB
    ) as reader:
        reader.x_axis()
        reader.keys()
        reader.notes()
    assert reports == [(1000, 2500), (2000, 2500), (0, 0)]
