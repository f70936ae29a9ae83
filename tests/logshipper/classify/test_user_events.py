"""Events from a job itself, by `/LOGCOMMAND {"event": ...}` and `logshipper.event`, in large
numbers and with hostile content."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logshipper
from logshipper import emitting
from logshipper.classify import commands
from logshipper.classify.classifier import MAX_USER_EVENTS, Classifier
from logshipper.classify.commands import (
    MAX_EVENT_BYTES,
    MAX_EVENT_NESTED,
    MalformedCommand,
    UserEvent,
)
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.spool import segment
from logshipper.spool.segment import Kind, Stream
from tests.tools.captures.captured_runs import Home

OUT, ERR = Stream.STDOUT, Stream.STDERR


def line_of(value: object) -> bytes:
    return b"/LOGCOMMAND " + json.dumps({"event": value}).encode()


def classified(
    data: bytes, *, stream: Stream = OUT, mode: str = "enabled", **options: Any
) -> Classifier:
    classifier = Classifier(mode, **options)
    classifier.feed(stream, data, 1.0)
    for source in (OUT, ERR):
        classifier.end(source, 2.0)
    return classifier


def events_of(items: list[LoggedLines | LoggedEvent]) -> list[dict[str, Any]]:
    return [item.record for item in items if isinstance(item, LoggedEvent)]


def lines(items: list[LoggedLines | LoggedEvent], kind: Kind) -> list[bytes]:
    texts = (
        item.text.splitlines()
        for item in items
        if isinstance(item, LoggedLines) and item.kind is kind
    )
    return [line for of_item in texts for line in of_item]


@pytest.mark.parametrize("mode", ["enabled", "metadata", "disabled"])
@pytest.mark.parametrize("stream", [OUT, ERR])
def test_an_event_is_taken_in_each_mode_and_of_both_streams(mode: str, stream: Stream) -> None:
    data = {"name": "checkpoint", "step": 100, "loss": 0.25, "where": {"node": "n1"}}
    classifier = classified(b"one\n" + line_of(data) + b"\ntwo\n", stream=stream, mode=mode)
    items = classifier.take()
    (event,) = events_of(items)
    assert event == {
        "event": "user_event", "name": "checkpoint", "data": data, "stream": stream.name.lower(),
        "message": 'checkpoint: {"step": 100, "loss": 0.25, "where": {"node": "n1"}}',
    }  # fmt: skip
    assert lines(items, Kind.COMMAND) == [line_of(data)]
    assert lines(items, Kind.LOG) == ([b"one", b"two"] if mode == "enabled" else [])
    account = classifier.ledger()[stream.name.lower()]
    assert (account["read"], account["commands"]) == (3, 1)


@pytest.mark.parametrize(
    ("value", "data", "message"),
    [
        ("evaluated", {"name": "evaluated"}, "evaluated"),
        ({"message": "at last", "name": "save"}, {"message": "at last", "name": "save"}, "at last"),
        ({"a": "größer"}, {"a": "größer"}, '{"a": "größer"}'),
        ({"name": 3, "message": ""}, {"name": 3, "message": ""}, '{"message": ""}'),
        ({"event": "job_ended", "state": "FAILED"}, {"event": "job_ended", "state": "FAILED"},
         '{"event": "job_ended", "state": "FAILED"}'),
    ],
)  # fmt: skip
def test_names_and_messages(value: object, data: object, message: str) -> None:
    event = commands.parse(line_of(value))
    assert event == UserEvent(data)  # type: ignore[arg-type]  # JSON
    assert isinstance(event, UserEvent)
    record = event.record()
    assert (record["event"], record["message"], record["data"]) == ("user_event", message, data)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (line_of({}), "isn't empty"),
        (line_of(""), "isn't empty"),
        (line_of(3), "isn't empty"),
        (line_of(["a"]), "isn't empty"),
        (b'/LOGCOMMAND {"event": {"a": NaN}}', "NaN"),
        (b'/LOGCOMMAND {"event": {"a": 1}, "mode": "enabled"}', "one key"),
        (b'/LOGCOMMAND {"event": {"a": 1}, "event": {"a": 2}}', "one key"),
        (b'/LOGCOMMAND {"event": {"a": 1}} ', "text follows"),
        (b'/LOGCOMMAND  {"event": {"a": 1}}', "more than one blank"),
        (b"/LOGCOMMAND {'event': {'a': 1}}", "no single JSON object"),
        (line_of({"a": "x" * MAX_EVENT_BYTES}), "over 8 KiB"),
        (b'/LOGCOMMAND {"event": ' + b'{"a":' * 200 + b"1" + b"}" * 201, "over 100 brackets"),
        (b'/LOGCOMMAND {"event": ' + b"[" * 4000, "no JSON object|no single JSON|text follows"),
        (b'/LOGCOMMAND {"event": {"a": ' + b"9" * 5000 + b"}}", "no single JSON object"),
    ],
)
def test_what_is_no_event_is_an_ordinary_line(line: bytes, reason: str) -> None:
    command = commands.parse(line)
    assert isinstance(command, MalformedCommand)
    assert re.search(reason, command.reason)
    items = classified(line + b"\n").take()
    assert [event["event"] for event in events_of(items)] == ["command_refused"]
    assert b"".join(lines(items, Kind.LOG)) == line.rstrip()


def test_a_malformed_event_that_names_a_narrow_mode_narrows() -> None:
    items = classified(b"/LOGCOMMAND {'event': 'disabled'}\nsecret\n").take()
    assert b"secret" not in b"".join(lines(items, Kind.LOG))


def test_a_fence_and_commands_off_leave_events_alone() -> None:
    fenced = (
        b'/LOGCOMMAND {"stop":"token-of-mine"}\n'
        + line_of("a")
        + b'\n/LOGCOMMAND {"resume":"token-of-mine"}\n'
    )
    items = classified(fenced).take()
    assert "user_event" not in [event["event"] for event in events_of(items)]
    assert lines(items, Kind.LOG) == [line_of("a")]
    items = classified(line_of("a") + b"\n", obey=False).take()
    assert (events_of(items), lines(items, Kind.LOG)) == ([], [line_of("a")])


def test_a_token_is_masked_in_events() -> None:
    fence = b'/LOGCOMMAND {"stop":"token-of-mine"}\n/LOGCOMMAND {"resume":"token-of-mine"}\n'
    items = classified(fence + line_of({"said": "token-of-mine"}) + b"\n").take()
    assert events_of(items)[-1]["data"] == {"said": "***"}
    assert b"token-of-mine" not in b"".join(lines(items, Kind.COMMAND))


def test_very_many_events_leave_room_for_others_and_none_is_lost() -> None:
    count = 4 * MAX_USER_EVENTS
    classifier = Classifier("enabled")
    chunk = (line_of({"step": 1}) + b"\n") * 10_000
    events: list[str] = []
    commanded = peak = 0
    for _ in range(count // 10_000):
        classifier.feed(OUT, chunk, 1.0)
        items = classifier.take()
        events += [event["event"] for event in events_of(items)]
        commanded += len(lines(items, Kind.COMMAND))
        peak = max(peak, len(items))
    classifier.end(OUT, 2.0)
    last = events_of(classifier.take())[-1]
    assert events.count("user_event") == MAX_USER_EVENTS
    assert events[MAX_USER_EVENTS:] == ["user_events_left_out"]
    assert (last["event"], last["events"]) == ("user_events_left_out", count - MAX_USER_EVENTS)
    assert commanded == count == classifier.ledger()["stdout"]["commands"]
    assert peak <= 3 * 10_000


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    )
)
def test_any_event_stays_as_it_is_in_a_segment(value: object) -> None:
    event = commands.parse(line_of({"value": value}))
    assert isinstance(event, UserEvent)
    packed = segment.encode_record(1, {"type": "event", **event.record()})
    decoded = segment.decode_frame(packed, 0)
    assert decoded is not None
    assert decoded[0].record()["data"] == {"value": value}


# ---- from Python


@pytest.fixture
def output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "pytest.CaptureFixture[str]":
    monkeypatch.setattr(emitting, "_notes", set())
    return capsys


def test_what_python_tells_is_an_event(output: "pytest.CaptureFixture[str]") -> None:
    logshipper.event(
        "checkpoint", {"step": 3, "name": "another"}, loss=float("nan"), path=Path("/tmp/größer")
    )
    out, err = output.readouterr()
    assert out.isascii()
    event = commands.parse(out.rstrip("\n").encode())
    assert event == UserEvent(
        {"name": "checkpoint", "step": 3, "loss": None, "path": "/tmp/größer"}
    )
    assert "loss is nan" in err


def test_what_cannot_be_told_is_said_once_and_raises_nothing(
    output: "pytest.CaptureFixture[str]",
) -> None:
    deep: dict[str, object] = {}
    for _ in range(20):
        deep = {"a": [deep] * 5}
        if len(str(deep)) > 2000:
            break
    for _ in range(2):
        logshipper.event("")
        logshipper.event(3)  # type: ignore[arg-type]
        logshipper.event("long", text="x" * MAX_EVENT_BYTES)
        logshipper.event("deep", many=[[1]] * MAX_EVENT_NESTED)
        logshipper.event("cyclic", {1: deep, "x": object()})  # type: ignore[dict-item]
    out, err = output.readouterr()
    assert out.count("\n") == 2 * ("cyclic" in out)
    assert err.count("logshipper.event: an event was left out: its name") == 1
    assert err.count("bytes was left out") == 1
    assert err.count("nested") + err.count("objects and lists was left out") >= 1


def test_limits_are_the_captures() -> None:
    assert (emitting.MAX_EVENT_BYTES, emitting.MAX_EVENT_NESTED) == (
        MAX_EVENT_BYTES,
        MAX_EVENT_NESTED,
    )


JOB = """
import logshipper
print("begins")
logshipper.emit(epoch=1, loss=0.5)
logshipper.event("checkpoint", step=100, path="model.pt")
print('/LOGCOMMAND {"event": {"name": "evaluated", "acc": 0.9}}')
print('{"event": "job_ended", "state": "FAILED"}')
"""


def test_a_captured_job_tells_events_printed_and_sent(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.run("python3", "-c", JOB, options=("--name", "train"))
    listing = home.call("events", "last", "--kind", "user_event", "--oldest-first", "--json")
    assert listing.returncode == 0, listing.stderr
    events = json.loads(listing.stdout)["events"]
    assert [event["data"] for event in events] == [
        {"name": "checkpoint", "step": 100, "path": "model.pt"}, {"name": "evaluated", "acc": 0.9},
    ]  # fmt: skip
    assert events[0]["message"] == 'checkpoint: {"step": 100, "path": "model.pt"}'
    table = home.call("events", "--data", "step=100").stdout.decode()
    assert "train: checkpoint" in table
    assert "evaluated" not in table
    assert home.logs("last") == ["begins", '{"epoch": 1, "loss": 0.5}', *home.logs("last")[2:]]
    assert home.logs("last")[-1] == '{"event": "job_ended", "state": "FAILED"}', (
        "metadata is no event"
    )
    assert home.show()["state"] == "COMPLETED"
