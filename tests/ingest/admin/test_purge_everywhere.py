"""`logshipper-agent purge`: a secret disappears from every place and in every form, and the command
reports all remains."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tests.tools.fakes.modelled_loki
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest import sqlite_file
from logshipper_ingest.agent.user_agent import take_lock
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.x_axis import KeyStats
from logshipper_ingest.spool.purge_masks import masked_json, masked_lines
from logshipper_ingest.spool.purge_pattern import pattern_of
from logshipper_ingest.spool.text_forms import spans
from logshipper_ingest.store.job_reader import JobReader
from logshipper_ingest.store.local_store import LocalStore
from logshipper_ingest.telegraf.unidentified import UnidentifiedFile
from logshipper_observe.model.overlay import MarkChange, Overlay
from tests.ingest.admin.test_purge import node, purge, purge_store
from tests.tools.captures.segment_factory import CaptureWriter
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.stress.secret_oracle import SECRETS, Secret, has, holding

__all__ = ["node"]  # a fixture
OTHER = "something else"
every_secret = pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())


def print_it(capture: CaptureWriter, secret: Secret) -> None:
    """Put the secret into every kind of output, next to lines without it."""
    text, printed = secret
    capture.start()
    capture.lines([f"{n} {printed}" if n % 3 == 0 else f"{n} {OTHER}" for n in range(30)])
    capture.lines([f"err {printed}"], stream=Stream.STDERR, attrs={0: {"part": text}})
    as_ascii, as_utf8 = {"step": 1, "token": printed}, {"step": 2, "token": printed}
    capture.metadata(as_ascii, json.dumps(as_utf8, ensure_ascii=False), {"step": 3, "token": OTHER})
    capture.metadata({"step": 4, f"under {text}": 1.5}, {"step": 5, "nested": {text: [printed]}})
    capture.metadata({"step": 6, "within": json.dumps({"json": json.dumps([text])})})
    capture.event(
        "odd", f"it was {text}", data={"token": printed, text: 1, "list": [printed, OTHER]}
    )
    capture.event("even", OTHER, data={"token": OTHER})
    capture.lines([json.dumps({"not": "metadata", "token": text})])
    capture.status(f"50% {printed}")


# ---- a user's own store


@every_secret
@pytest.mark.parametrize("is_ingested", [True, False])
def test_a_store_has_it_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], secret: Secret, is_ingested: bool
) -> None:
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        for attempt in (1, 2):
            capture = CaptureWriter(
                root / "spool", "job1", attempt, name=f"run {secret.text}", step=secret.text
            )
            print_it(capture, secret)
            capture.end()
            capture.close()
            if is_ingested or attempt == 1:
                store.ingest()
        for job in store.jobs():
            store.key_values(job)
        overlay = Overlay.of_local(store)
        overlay.annotate(JobKey("job1"), f"note: {secret.text}")
        overlay.tag(JobKey("job1"), [MarkChange("kept", OTHER), MarkChange("secret", secret.text)])
    assert len(holding(secret.text, root)) > 5
    assert purge_store(root, "--job", "job1", "--fixed", secret.text) == 0, capsys.readouterr().err
    assert holding(secret.text, root) == []
    with LocalStore(str(root)) as store:
        store.ingest()
        assert holding(secret.text, root) == []
        with store.open("job1") as reader:
            lines = [line.text for line in reader.lines(streams=tuple(Stream), kinds=tuple(Kind))]
            assert lines.count(f"1 {OTHER}") == 2
            assert sum(OTHER in line for line in lines) == 2 * (20 + 1)
            records = [
                json.loads(record.line) for record in reader.records() if "*" not in record.line
            ]
            assert records == [{"step": 3, "token": OTHER}] * 2
            assert [key.path for key in _keys(reader)] == [("step",), ("token",)]
            events = [event.event for event in reader.events()]
            assert sum(event["event"] == "odd" for event in events) == 2
            assert [event["data"] for event in events if event["event"] == "even"] == [
                {"token": OTHER}
            ] * 2
        assert overlay.of(JobKey("job1")).tags["kept"] == OTHER


def test_a_running_job_prints_on_and_its_keys_are_followed(tmp_path: Path) -> None:
    secret = SECRETS["umlauts"]
    root = tmp_path / "store"
    with CaptureWriter(root / "spool", "job1", name=secret.text) as capture:
        print_it(capture, secret)
        with LocalStore(str(root), create=True) as store:
            store.ingest()
            assert purge_store(root, "--job", "job1", "--fixed", secret.text) == 0
            capture.metadata({"step": 7, "token": OTHER, "loss": 0.5})
            store.ingest()
            with store.open("job1") as reader:
                assert [(*key.path, key.count) for key in _keys(reader)] == [
                    ("loss", 1),
                    ("step", 2),
                    ("token", 2),
                ]
    assert holding(secret.text, root) == []


def test_a_number_is_gone_from_what_was_learnt_of_keys_as_well(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        capture = CaptureWriter(root / "spool", "job1")
        capture.metadata({"pin": 73215964}, {"pin": 3})
        capture.event("odd", "a number", data={"pin": 73215964})
        capture.close()
        store.ingest()
        for job in store.jobs():
            store.key_values(job)
    assert purge_store(root, "--job", "job1", "--fixed", "73215964") == 0
    assert holding("73215964", root) == []
    with LocalStore(str(root)) as store, store.open("job1") as reader:
        assert [(key.min, key.max) for key in _keys(reader)] == [(3, 3)]


def test_a_page_that_had_read_it_writes_it_nowhere(tmp_path: Path) -> None:
    """Another program has read the values, and would cache them for later lists when it closes the
    store."""
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        for job_id in ("job1", "job2"):
            capture = CaptureWriter(root / "spool", job_id)
            capture.metadata({"token": "hunter2" if job_id == "job1" else OTHER})
            capture.close()
        store.ingest()
    (root / "values.db").unlink()
    page = LocalStore(str(root))
    for job in page.jobs():
        page.key_values(job)
    assert purge_store(root, "--job", "job1", "--fixed", "hunter2") == 0
    page.close()
    assert holding("hunter2", root) == []
    assert "values.db: key_values.held" in holding(OTHER, root), (
        "what nobody has purged is remembered"
    )


def test_what_a_reader_keeps_in_a_log_is_said_and_all_else_is_purged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_SECS", 0.05)
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        capture = CaptureWriter(root / "spool", "job1", name="hunter2")
        capture.lines(["hunter2"])
        capture.close()
        store.ingest()
        Overlay.of_local(store).annotate(JobKey("job1"), "hunter2")
    database = root / "jobs" / "job1.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM block").fetchall()
        assert purge_store(root, "--job", "job1", "--fixed", "hunter2") == 3
        assert f"{database}: another program reads it" in capsys.readouterr().err
        assert {place.split(":")[0] for place in holding("hunter2", root)} <= {
            "jobs/job1.db",
            "jobs/job1.db-wal",
        }
        reader.execute("COMMIT")
    assert holding("hunter2", root) == []


def test_what_was_moved_aside_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = SECRETS["plain"]
    root = tmp_path / "store"
    with LocalStore(str(root), create=True) as store:
        capture = CaptureWriter(root / "spool", "job1")
        print_it(capture, secret)
        capture.close()
        store.ingest()
    aside = root / "jobs" / "job1.db.damaged-20260101T000000"
    aside.write_bytes(b"whatever")
    assert purge_store(root, "--job", "job1", "--fixed", secret.text) == 3
    assert f"{aside}: was moved aside as damaged, and not searched" in capsys.readouterr().err


def _keys(reader: JobReader) -> list[KeyStats]:
    return reader.keys()


# ---- a node's files


@every_secret
def test_a_node_has_it_nowhere(
    node: ShippingNode,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    secret: Secret,
) -> None:
    """Places are the spool, the quarantine and its unreadable part, the agent's state, and
    measurements of unknown senders."""
    state = node.folder / "state"
    capture = node.capture("job1", soon_ns(), name=f"run {secret.text}")
    print_it(capture, secret)
    neighbour = node.capture("job2", soon_ns())
    neighbour.lines([OTHER])
    monkeypatch.setattr(
        tests.tools.fakes.modelled_loki, "MAX_LINE_BYTES", 0
    )  # Loki refuses every line
    node.learn()
    node.ship()
    monkeypatch.undo()
    capture = node.capture("job1", soon_ns(), attempt=2, name=secret.text)
    print_it(capture, secret)
    capture.end()
    capture.close()
    node.learn()
    _put_elsewhere(state, secret)
    node.end()
    assert len({place.split(":")[0] for place in holding(secret.text, node.folder)}) >= 6
    assert purge(node, "--job", "job1", "--fixed", secret.text) == 0, capsys.readouterr().err
    assert holding(secret.text, node.folder) == []
    assert OTHER in (state / "quarantine.unreadable").read_text()
    documents = [
        json.loads(line)
        for line in (state / "telegraf" / "unidentified.jsonl").read_text().splitlines()
    ]
    assert [entry["lines"] for entry in documents if "*" not in entry["lines"]] == [OTHER]
    node.begin()
    node.ship()
    assert not any(has(secret.text, line) for line in node.loki.lines())
    assert [event["event"] for event in node.events("job1")][-2:] == ["ended", "closed"]


def _put_elsewhere(state: Path, secret: Secret) -> None:
    """Write the secret to the unreadable part of the quarantine, a torn line of it, and a
    measurement of an unknown sender."""
    (state / "quarantine.unreadable").write_text(
        f'{{"torn: "{secret.printed}\n{OTHER}\n{json.dumps(secret.text)}\n'
    )
    quarantined = next((state / "quarantine").glob("*.jsonl"))
    with quarantined.open("a") as file:
        file.write(f'{{"metadata": {{"job_id": "job1"}}, "line": {json.dumps(secret.text)}\n')
    unknown = UnidentifiedFile(str(state), 1 << 20)
    assert unknown.keep("127.0.0.1", -1, "", f"cpu,host=a value={secret.printed}".encode())
    assert unknown.keep("127.0.0.1", -1, "", OTHER.encode())


def test_what_a_running_agent_holds_is_said(
    node: ShippingNode, capsys: pytest.CaptureFixture[str]
) -> None:
    """The running agent keeps names and keys in memory, and would write them again."""
    capture = node.capture("job1", soon_ns(), name="hunter2")
    capture.lines([OTHER])
    capture.metadata({"hunter2": 1})
    capture.end()
    capture.close()
    node.learn()
    node.ship()
    lock = take_lock(str(node.folder / "state"))
    assert lock is not None
    assert purge(node, "--job", "job1", "--fixed", "hunter2") == 3
    assert (
        "state.db: what the agent remembers of the job's name or keys has it"
        in capsys.readouterr().err
    )


def test_all_of_a_job_leaves_nothing_on_a_node(node: ShippingNode) -> None:
    secret = SECRETS["quotes"]
    capture = node.capture("job1", soon_ns(), name=secret.text)
    print_it(capture, secret)
    capture.end()
    capture.close()
    node.learn()
    node.round()
    node.end()
    assert purge(node, "--job", "job1") == 0
    assert holding(secret.text, node.folder) == []
    node.begin()


# ---- forms


@pytest.mark.parametrize(
    ("line", "grep", "matches"),
    [
        ("a hunter2 b", "hunter2", ["hunter2"]),
        ("a hun\x1b[31mter2 b", "hunter2", ["hun\x1b[31mter2"]),
        ('{"a": "g\\u00e4h"}', "gäh", ["g\\u00e4h"]),
        ('{"a": "\\u001b[31mg\\u00e4\\u001b[0mh"}', "gäh", ["g\\u00e4\\u001b[0mh"]),
        ('{"a": "C:\\\\new"}', "C:.new", ["C:\\\\new"]),
        ('{"a": "{\\"b\\": \\"g\\\\u00e4h\\"}"}', "gäh", ["g\\\\u00e4h"]),
        ("\\ud83d\\udd11x", "\U0001f511", ["\\ud83d\\udd11"]),
        ("nothing of it \\", "gäh", []),
    ],
)
def test_pieces_of_a_line_that_have_it_in_any_form(
    line: str, grep: str, matches: list[str]
) -> None:
    pattern = pattern_of(grep, None)
    assert list(dict.fromkeys(spans(line, pattern.python))) == matches
    assert pattern.has(line) is bool(matches)


@pytest.mark.parametrize(
    ("record", "remainder"),
    [
        (
            {"type": "event", "event": "e1", "message": "x e1 y"},
            {"type": "event", "event": "e1", "message": "******"},
        ),
        ({"event": "a", "data": {"e1": 1, "b": 2}}, {"event": "a", "data": {"**": 1, "b": 2}}),
        ({"event": "a", "data": {"b": 7e1, "pin": -1e1}, "z": 1}, None),
        (
            {"event": "a", "data": [["e1"], {"b": ["e1", "c"]}]},
            {"event": "a", "data": [["**"], {"b": ["**", "c"]}]},
        ),
        ({"lines": 1, "data": "e1"}, {"lines": 1, "data": "**"}),
    ],
)
def test_json_stays_json_as_long_as_it_was(
    record: dict[str, Any], remainder: dict[str, Any] | None
) -> None:
    """Any: JSON."""
    pattern = pattern_of(None, "e1" if remainder else "70.0")
    text = json.dumps(record).encode()
    masked = masked_json(text, pattern)
    assert len(masked) == len(text)
    assert json.loads(masked) == (remainder or {**record, "data": {}})


def test_values_of_a_database_are_read_by_the_oracle(tmp_path: Path) -> None:
    """Check the oracle itself."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (?)", (json.dumps("gehäimes"),))
        connection.commit()
    assert holding("gehäimes", tmp_path) == ["a.db: its bytes", "a.db: t.a"]
    assert holding("gehaimes", tmp_path) == []


@st.composite
def printed_secrets(draw: st.DrawFn) -> tuple[str, str]:
    """Return a text, and a line that holds it: in colours, in JSON, in JSON within JSON, or
    plain."""
    text = draw(
        st.text(
            st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn")),
            min_size=3,
            max_size=12,
        )
    )
    assume(text.isprintable() and text.strip("*") == text)
    form = text
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        form = f"{text[:at]}\x1b[1;3{draw(st.integers(0, 7))}m{text[at:]}\x1b[0m"
    for _ in range(draw(st.integers(0, 2))):
        form = json.dumps({"a": [OTHER, form]}, ensure_ascii=draw(st.booleans()))
    return text, f"before {form} behind"


@given(printed_secrets())
def test_whatever_is_printed_is_found_and_has_a_piece_that_says_so(case: tuple[str, str]) -> None:
    text, line = case
    pattern = pattern_of(None, text)
    assert has(text, line), "the oracle's own word"
    assert pattern.has(line)
    pieces = list(spans(line, pattern.python))
    assert pieces
    assert all(piece in line for piece in pieces)
    assert any(pattern.has(piece) for piece in pieces)
    assert not pattern.has(masked_lines(line.encode(), pattern)[0])


@given(printed_secrets(), st.sampled_from(["message", "data", "reason"]))
def test_a_record_that_is_masked_is_json_without_it(case: tuple[str, str], key: str) -> None:
    text, line = case
    record = {"type": "event", "event": "user_event", key: {line: [line, 1]}, "lines": 3}
    pattern = pattern_of(None, text)
    whole = json.dumps(record).encode()
    masked = masked_json(whole, pattern)
    assert len(masked) == len(whole)
    document = json.loads(masked)
    assert (document["event"], document["lines"]) == ("user_event", 3)
    assert not has(text, json.dumps(document[key]))
