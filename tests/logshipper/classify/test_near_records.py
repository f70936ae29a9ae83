"""Hints for lines that are nearly records (R20, R21): once per reason, and with the line only if
the mode logs it."""

from typing import Any

import pytest

from logshipper.classify.capture_log import MAX_LOOKS
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.near_records import MAX_BYTES, QUOTED_BYTES, hint_at
from logshipper.spool.segment import Kind, Stream

OUT, ERR = Stream.STDOUT, Stream.STDERR


def hints(*steps: tuple[Stream, bytes], mode: str = "enabled", **options: Any) -> list[Any]:
    """Return the events of a capture with these steps. options: of Classifier, of several types;
    Any: JSON."""
    classifier = Classifier(mode, **options)
    for stream, data in steps:
        classifier.feed(stream, data, 1.0)
    classifier.end(OUT, 2.0)
    classifier.end(ERR, 2.0)
    return [item.record for item in classifier.take() if isinstance(item, LoggedEvent)]


def reasons(*steps: tuple[Stream, bytes], **options: Any) -> list[str]:
    return [event["reason"] for event in hints(*steps, **options) if event["event"] == "json_hint"]


@pytest.mark.parametrize(
    ("stream", "line", "reason"),
    [
        (OUT, b'epoch 1: {"loss": 0.3}', "text_before"),
        (OUT, b' {"loss": 0.3}', "text_before"),
        (OUT, b'2026-11-23 INFO {"loss": NaN} done', "text_before"),
        (OUT, b'{"loss": 0.3} done', "text_after"),
        (OUT, b'{"loss": 0.3} ', "text_after"),
        (OUT, b'{"loss": 0.3},', "text_after"),
        (ERR, b'{"loss": 0.3}', "stderr"),
        (ERR, b'INFO:root:{"train": {"loss": 0.3}}', "stderr"),
        (OUT, b"{'loss': 0.3}", "repr"),
    ],
)
def test_what_is_nearly_a_record_gets_a_hint_with_its_line(
    stream: Stream, line: bytes, reason: str
) -> None:
    (event,) = hints((stream, b"begin\n" + line + b"\n" + line + b"\nend\n"))
    assert (event["event"], event["reason"]) == ("json_hint", reason)
    assert event["stream"] == stream.name.lower()
    assert event["message"].endswith(f"The line: {line.decode()}")
    assert hints((stream, b"\x1b[1mbold\x1b[0m\n" + line + b"\n"), keep_colours=True)


@pytest.mark.parametrize(
    "line",
    [
        b'{"loss": 0.3}',
        b'{"loss": 0.3} {"loss": 0.4}'[:13],
        b'GET /?q={"name": "x"} 200',
        b'{"name": "0.3"} text',
        b"epoch 1: {loss: 0.3}",
        b'/LOGCOMMAND {"mode": 3}',
        b'see /logcommand {"stop": "a-token", "n": 1}',
        b'x {"loss": 0.3',
        b'x {"": ',
        b"x {" + b'"a": {' * 600 + b'"b": 1' + b"}" * 601,
        b'x {"a": ' + b"1" * (MAX_BYTES + 1) + b"}",
    ],
)
def test_other_lines_get_none(line: bytes) -> None:
    assert reasons((OUT, line + b"\n")) == []


def test_hostile_numbers_do_not_raise() -> None:
    assert reasons((OUT, b'x {"a": ' + b"1" * 9000 + b"}\n")) == ["text_before"]


def test_once_for_each_reason_of_both_streams() -> None:
    lines = b'a {"n": 1}\n{"n": 1} b\nc {"n": 2}\n{"n": 2} d\n'
    assert reasons((OUT, lines), (ERR, lines), (OUT, lines)) == [
        "text_before",
        "text_after",
        "stderr",
    ]


def test_a_long_line_is_quoted_in_part() -> None:
    line = 'é {"loss": 0.3, "text": "' + "ä" * 500 + '"}'
    (event,) = hints((OUT, line.encode() + b"\n"))
    quote = event["message"].partition("The line: ")[2]
    assert line.startswith(quote.removesuffix("…"))
    assert len(quote.removesuffix("…").encode()) == QUOTED_BYTES


def test_outside_enabled_nothing_is_quoted() -> None:
    """Mode `metadata` gives hints for stdout without the line and ignores stderr. Mode `disabled`
    gives none."""
    secret = b'hush {"loss": 0.3, "token": "hush"}\n{"loss": 1} hush\n{\'hush\': 1}\n{"n": 1}\n'
    events = hints((OUT, secret), (ERR, secret), mode="metadata")
    assert [event["reason"] for event in events] == ["text_before", "text_after", "repr"]
    assert "hush" not in str(events)
    assert hints((OUT, secret), (ERR, secret), mode="disabled") == []


def test_tokens_are_masked_in_quotes() -> None:
    token = b"a-secret-stop-token"
    lines = b'/LOGCOMMAND {"stop":"' + token + b'"}\n' + token + b' {"loss": 0.3}\n'
    (event,) = [event for event in hints((OUT, lines)) if event["event"] == "json_hint"]
    assert token.decode() not in str(event)
    assert "***" in event["message"]


def test_looks_are_bounded() -> None:
    """The search ends after MAX_LOOKS lines without a hint."""
    words = b'x {"name": "y"}\n'
    assert reasons((OUT, words * (MAX_LOOKS - 1) + b'x {"n": 1}\n')) == ["text_before"]
    assert reasons((OUT, words * MAX_LOOKS + b'x {"n": 1}\n')) == []


def test_the_lines_are_logged_as_ever() -> None:
    classifier = Classifier("enabled")
    classifier.feed(OUT, b'a\nx {"n": 1}\nb\n', 1.0)
    classifier.end(OUT, 2.0)
    lines = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    assert b"".join(item.text for item in lines) == b'a\nx {"n": 1}\nb\n'
    assert {item.kind for item in lines} == {Kind.LOG}


def test_where_an_object_is_looked_for() -> None:
    assert hint_at(b"no object", OUT) is None
