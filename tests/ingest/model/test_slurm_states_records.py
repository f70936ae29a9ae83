"""Records of a job's end, even hostile ones, and the texts about them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper_ingest.model.end_record import (
    MAX_NODES,
    MAX_RECORD_BYTES,
    BadRecord,
    EndRecord,
    event_of,
    host_names,
    note_of,
    parse_end,
)

FIELDS = {
    "by": "jobcomp", "job_id": "4711", "state": "FAILED", "exit": "7:0", "start": "1700000000", "end": "1700000060",
    "restarts": "", "user": "ann", "nodes": "n[1-2]",
}  # fmt: skip


def content(**fields: str) -> bytes:
    lines = "".join(f"{name}={value}\n" for name, value in {**FIELDS, **fields}.items())
    return f"logshipper-ended 1\n{lines}.\n".encode("utf-8", "surrogateescape")


def parse(**fields: str) -> EndRecord:
    return parse_end(content(**fields), 1_700_000_099)


@pytest.mark.parametrize(
    ("state", "status", "result"),
    [
        ("COMPLETED", "0:0", ("COMPLETED", 0, 0)),
        ("FAILED", "255:0", ("FAILED", 255, 0)),
        ("FAILED", "0:11", ("FAILED", None, 11)),
        ("FAILED", "0:1", ("FAILED", None, 1)),
        ("CANCELLED", "0:15", ("CANCELLED", None, 15)),
        ("CANCELLED", "0:0", ("CANCELLED", None, 0)),
        ("TIMEOUT", "0:1", ("TIMEOUT", None, 0)),
        ("NODE_FAIL", "0:1", ("NODE_FAIL", None, 0)),
        ("OUT_OF_MEMORY", "0:125", ("OUT_OF_MEMORY", None, 9)),
        ("PENDING", "0:0", ("REQUEUED", None, 0)),
        ("DEADLINE", "0:1", ("DEADLINE", None, 0)),
        ("", "0:0", ("", None, 0)),
        ("", "0:15", ("", None, 15)),
        ("", "3:0", ("FAILED", 3, 0)),
        ("", "0:125", ("OUT_OF_MEMORY", None, 9)),
        ("", "", ("", None, 0)),
    ],
)
def test_states_and_exit_status(
    state: str, status: str, result: tuple[str, int | None, int]
) -> None:
    record = parse(state=state, exit=status)
    assert (record.state, record.exit_code, record.signal) == result
    assert EndRecord.from_json(record.to_json()) == record


def test_when_it_was_submitted_which_older_hooks_do_not_tell() -> None:
    assert (parse().submit, parse(submit="").submit) == (0, 0)
    record = parse(submit="1699999990")
    assert (record.submit, record.waited_secs) == (1699999990, 10)
    assert event_of(record)["submitted_ns"] == 1699999990 * 10**9
    assert parse(submit="1700000000").waited_secs == 0
    for later in (parse(submit="1700000001"), parse(start="", submit="1700000061")):
        assert (later.submit, later.waited_secs) == (0, None)
    assert (parse(start="", submit="1699999990").submit, parse(start="", submit="1699999990").waited_secs) == (
        1699999990, None
    )  # fmt: skip
    assert "submitted_ns" not in event_of(parse()), (
        "what an older version sent is sent again byte for byte"
    )


def test_records_that_an_older_version_kept() -> None:
    now = parse()
    *fields, nodes, number, _ = json.loads(now.to_json())
    for older in ([*fields, nodes, number], [*fields, nodes]):
        assert EndRecord.from_json(json.dumps(older)) == now


def test_times() -> None:
    assert parse()[5:8] == (1700000000, 1700000060, -1)
    assert parse(start="", end="", restarts="2")[5:8] == (0, 1_700_000_099, 2)
    assert parse(start="1700000061").start == 0


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\n",
        b"logshipper-ended 2\n.\n",
        content()[:-2],
        content()[:-40],
        content() + b"more\n",
        content().replace(b"user=", b"used="),
        content().replace(b"user=ann\n", b""),
        content(by="root"),
        content(job_id="4711x"),
        content(job_id="-1"),
        content(job_id="٣"),
        content(job_id="1" * 5000),
        content(state="RUNNING"),
        content(state="RESIZING"),
        content(exit="1"),
        content(exit="300:0"),
        content(exit="0:200"),
        content(end="99999999999"),
        content(end="9999999999"),
        content(start="now"),
        content(submit="now"),
        content(submit="1").replace(b"submit", b"summit"),
        content(submit="1", more="2"),
        content(nodes="n1\njob_id=1"),
        content(user="\udcff"),
        b"logshipper-ended 1\n" + b"x" * MAX_RECORD_BYTES,
    ],
)
def test_what_is_no_record(broken: bytes) -> None:
    with pytest.raises(BadRecord):
        parse_end(broken, 0)


def test_a_user_that_is_no_name_is_left_out() -> None:
    assert [parse(user=user).user for user in ("", "a b", "\x1b[31m", "x" * 129)] == [""] * 4
    assert parse(user="jörg").user == "jörg"


@given(st.binary(max_size=300))
def test_any_bytes(noise: bytes) -> None:
    for text in (noise, content()[:60] + noise, content().replace(b"n[1-2]", noise)):
        try:
            record = parse_end(text, 0)
        except BadRecord:
            continue
        json.dumps(event_of(record))
        assert "\n" not in note_of(record)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3,07],login", ("n1", "n2", "n3", "n07", "login")),
        ("a[08-11]-ib", ("a08-ib", "a09-ib", "a10-ib", "a11-ib")),
        ("", ()),
        ("(null)", ()),
        ("n[1-999999999]", ()),
        ("n[5-1],n2", ()),
        ("r[1-2]n[1-2]", ()),
        ('n1"} or {', ()),
        (",".join(f"n{n}" for n in range(MAX_NODES + 1)), ()),
    ],
)
def test_lists_of_nodes(text: str, names: tuple[str, ...]) -> None:
    assert host_names(text) == names


@given(st.text(alphabet="n[]-,0123456789.", max_size=60))
def test_any_list_of_nodes(text: str) -> None:
    assert len(host_names(text)) <= MAX_NODES


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({}, "failed (Slurm){}, exit code 7"),
        ({"state": "CANCELLED", "exit": "0:15"}, "cancelled (Slurm){}, signal 15"),
        ({"state": "TIMEOUT", "exit": "0:1"}, "killed: time limit (Slurm){}"),
        ({"state": "OUT_OF_MEMORY", "exit": "0:125"}, "killed: out of memory (Slurm){}, signal 9"),
        ({"state": "NODE_FAIL", "exit": "0:1"}, "node failed (Slurm){}"),
        ({"state": "", "exit": "0:9"}, "ended (Slurm){}, signal 9"),
        ({"state": "COMPLETED", "exit": "0:0"}, ""),
        ({"state": "", "exit": "0:0"}, ""),
    ],
)
def test_the_line_for_the_log(fields: dict[str, str], note: str) -> None:
    place = ", job 4711, 2023-11-14T22:14:20+00:00"
    line = f"[logshipper: {note.format(place)}]" if note else ""
    assert note_of(parse(**fields)) == line


def test_the_event() -> None:
    assert event_of(parse()) == {
        "event": "job_ended", "message": "Slurm ended job 4711: FAILED, exit code 7", "job_id": "4711",
        "state": "FAILED", "exit_code": 7, "signal": 0, "nodes": 2, "started_ns": 1700000000 * 10**9,
        "ended_ns": 1700000060 * 10**9, "by": "jobcomp/script",
    }  # fmt: skip
    unknown = event_of(parse(state="", exit="0:0", start=""))
    assert (unknown["state"], unknown["exit_code"], unknown["started_ns"]) == (None, None, None)
    assert unknown["message"] == "Slurm ended job 4711: nothing more is known"
