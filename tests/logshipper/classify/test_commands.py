"""In-band commands (R14, R15)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify.commands import Command, MalformedCommand, parse

BEHIND = "text stands before it on its line"


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b'/LOGCOMMAND {"mode":"metadata"}', Command("mode", "metadata")),
        (b'/LOGCOMMAND { "mode" : "enabled" }', Command("mode", "enabled")),
        (b'/LOGCOMMAND {"mode":"disabled"}', Command("mode", "disabled")),
        (b'/LOGCOMMAND {"stop":"a b"}', Command("stop", "a b")),
        (b'/LOGCOMMAND {"resume":"x"}', Command("resume", "x")),
    ],
)
def test_valid(line: bytes, command: Command) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'/LOGCOMMAND  {"mode":"enabled"}', "more than one blank"),
        (b'/LOGCOMMAND\t{"mode":"enabled"}', "no blank follows"),
        (b'/LOGCOMMANDS {"mode":"enabled"}', "no blank follows"),
        (b"/LOGCOMMAND", "nothing follows"),
        (b"/LOGCOMMAND ", "nothing follows"),
        (b'/LOGCOMMAND ["mode","enabled"]', "no JSON object"),
        (b"/LOGCOMMAND enabled", "no JSON object"),
        (b'/LOGCOMMAND {"mode":"enabled"} ', "text follows"),
        (b'/LOGCOMMAND {"mode":"enabled"} please', "text follows"),
        (b'/LOGCOMMAND {"mode":"enabled"}{}', "no single JSON object"),
        (b"/LOGCOMMAND {'mode':'enabled'}", "no single JSON object"),
        (b'/LOGCOMMAND {"mode":"on"}', "mode must be"),
        (b'/LOGCOMMAND {"mode":1}', "mode must be"),
        (b'/LOGCOMMAND {"mode":["enabled"]}', "mode must be"),
        (b'/LOGCOMMAND {"Mode":"enabled"}', "one key"),
        (b"/LOGCOMMAND {}", "one key"),
        (b'/LOGCOMMAND {"mode":"enabled","mode":"enabled"}', "one key"),
        (b'/LOGCOMMAND {"mode":"enabled","label":"x"}', "one key"),
        (b'/LOGCOMMAND {"stop":""}', "token"),
        (b'/LOGCOMMAND {"stop":7}', "token"),
        (b'/LOGCOMMAND {"stop":"' + b"x" * 300 + b'"}', "token"),
        (b'/LOGCOMMAND {"mode":"' + b"x" * (1 << 20) + b'"}', "over 64 KiB"),
        (b'/LOGCOMMAND {"mode":' + b"[" * 60_000 + b"}", "no single JSON object"),
    ],
)
def test_refused_and_never_wider(line: bytes, reason: str) -> None:
    """R15: other lines are ordinary output; an invalid command never widens the mode."""
    command = parse(line)
    assert isinstance(command, MalformedCommand)
    assert reason in command.reason
    assert command.narrow is None


@pytest.mark.parametrize(
    ("line", "narrow"),
    [
        (b"/LOGCOMMAND {'mode': 'disabled'}", "disabled"),
        (b"/LOGCOMMAND {'mode': 'metadata'}", "metadata"),
        (b'/LOGCOMMAND  {"mode":"metadata"} or "disabled"', "disabled"),
        (b'/LOGCOMMAND {"mode":"disabled"}' + b" " * (1 << 20), "disabled"),
    ],
)
def test_a_refused_line_that_names_a_narrower_mode(line: bytes, narrow: str) -> None:
    """R15: a dict's repr must not leak a token."""
    command = parse(line)
    assert isinstance(command, MalformedCommand)
    assert command.narrow == narrow


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"say /LOGCOMMAND to it", None),
        (b"/usr/bin/logcommand", None),
        (b'x/LOGCOMMAND {"mode":"enabled"}', MalformedCommand(BEHIND, 1)),
        (b'x/LOGCOMMAND {"mode":"disabled"}', MalformedCommand(BEHIND, 1, "disabled")),
        (b"x/LOGCOMMAND {'MODE': 'Metadata'}  ", MalformedCommand(BEHIND, 1, "metadata")),
        (
            b'/LOGCOMMAND no /LOGCOMMAND {"mode":"disabled"}',
            MalformedCommand("no JSON object follows", 0, "disabled"),
        ),
        (b'x/LOGCOMMAND {"mode":"disabled"} x', MalformedCommand(BEHIND, 1)),
        (b'x/LOGCOMMAND {"stop":"tok"}', MalformedCommand(BEHIND, 1, None, "tok")),
        (b"x/LOGCOMMAND {'resume': 'tok'}", MalformedCommand(BEHIND, 1, None, None, "tok")),
        (b'\t/LOGCOMMAND {"mode":"enabled"}', MalformedCommand("blanks stand before it", 1)),
        (
            b'/LogCommand {"mode":"disabled"}',
            MalformedCommand("it isn't in capitals", 0, "disabled"),
        ),
        (
            b'/LOGCOMMAND {"stop": 7}',
            MalformedCommand("stop takes a token of 1 to 256 printable characters", 0, None, "7"),
        ),
        (
            b'/LOGCOMMAND {"stop": ["a"]}',
            MalformedCommand("stop takes a token of 1 to 256 printable characters", 0, None, ""),
        ),
        (
            b'/LOGCOMMAND {"stop":"t\\u006fk"} x',
            MalformedCommand("text follows the JSON object", 0, None, "tok", None, True),
        ),
        (
            b'/LOGCOMMAND {"mode":"disabled"}x',
            MalformedCommand("text follows the JSON object", 0, "disabled", has_tail=True),
        ),
        (b"/LOGCOMMAND stop", MalformedCommand("no JSON object follows", 0, has_tail=True)),
    ],
)
def test_what_may_be_meant(line: bytes, command: MalformedCommand | None) -> None:
    """R15: an inexact command may narrow the mode, and the result names its fault."""
    assert parse(line) == command


@given(st.binary(max_size=80))
def test_any_payload_gives_a_value(payload: bytes) -> None:
    assert isinstance(parse(b"/LOGCOMMAND" + payload), Command | MalformedCommand)
