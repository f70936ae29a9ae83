"""The classifier: modes, commands, metadata, repeats, blank lines (R5, R7-R22, R30, R31)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.classify import stream_output, stream_status
from logshipper.classify.classifier import MAX_REFUSALS, Classifier
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.classify.repeat_note import printed_line
from logshipper.spool.segment import MAX_LINE_BYTES, MAX_STATUS_BARS, MAX_STATUS_BYTES, Kind, Stream
from tests.tools.stress.model_settings import examples

OUT, ERR = Stream.STDOUT, Stream.STDERR
ENABLE = b'/LOGCOMMAND {"mode":"enabled"}\n'
METADATA = b'/LOGCOMMAND {"mode":"metadata"}\n'
DISABLE = b'/LOGCOMMAND {"mode":"disabled"}\n'
STOP = b'/LOGCOMMAND {"stop":"token-12345"}\n'
RESUME = b'/LOGCOMMAND {"resume":"token-12345"}\n'


def _run(
    *steps: tuple[Stream, bytes], mode: str = "enabled", end: bool = True, **options: Any
) -> Classifier:
    """Feed each step whole, then end both streams. options: of Classifier, of several types."""
    classifier = Classifier(mode, **options)
    for stream, data in steps:
        classifier.feed(stream, data, 1.0)
    if end:
        classifier.end(OUT, 2.0)
        classifier.end(ERR, 2.0)
    return classifier


def _lines(
    classifier: Classifier | list[LoggedLines | LoggedEvent],
    *kinds: Kind,
    stream: Stream | None = None,
) -> list[bytes]:
    items = classifier.take() if isinstance(classifier, Classifier) else classifier
    return [
        line
        for item in items
        if isinstance(item, LoggedLines)
        and (not kinds or item.kind in kinds)
        and stream in (None, item.stream)
        for line in item.text.split(b"\n")[:-1]
    ]


def _events(items: list[LoggedLines | LoggedEvent]) -> list[str]:
    return [item.record["event"] for item in items if isinstance(item, LoggedEvent)]


# ---- modes


def test_enabled_logs_everything() -> None:
    """R8, R5: stderr is logged; JSON is an ordinary line there."""
    classifier = _run((OUT, b'a\n{"x": 1}\nb\n'), (ERR, b'c\n{"y": 1}\n'))
    items = classifier.take()
    assert _lines(items, Kind.LOG, stream=OUT) == [b"a", b"b"]
    assert _lines(items, Kind.METADATA) == [b'{"x": 1}']
    assert _lines(items, Kind.LOG, stream=ERR) == [b"c", b'{"y": 1}']


def test_metadata_mode() -> None:
    """R9: log only metadata, and drop all of stderr."""
    classifier = _run((OUT, b'a\n{"x": 1}\nb\n{not}\n'), (ERR, b'c\n{"y": 1}\n'), mode="metadata")
    assert _lines(classifier) == [b'{"x": 1}']
    ledger = classifier.ledger()
    assert (ledger["stdout"]["dropped"], ledger["stderr"]["dropped"]) == (3, 2)


def test_disabled_mode_listens() -> None:
    """R10, R11: log commands, drop everything else, and allow enabling later."""
    classifier = _run((OUT, b'secret\n{"x": 1}\n' + ENABLE + b"public\n"), mode="disabled")
    items = classifier.take()
    assert _lines(items) == [ENABLE.strip(), b"public"]
    assert _events(items) == ["mode_changed"]
    assert classifier.mode == "enabled"


@pytest.mark.parametrize("stream", [OUT, ERR])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("split", [1, 3, 1000])
def test_the_next_line_obeys(stream: Stream, ending: bytes, split: int) -> None:
    """R14, R15, R17: on both streams, for every split of the bytes and every line ending."""
    classifier = Classifier("enabled")
    data = b"one\n" + DISABLE.strip() + ending + b"two\n" + ENABLE.strip() + ending + b"three"
    for at in range(0, len(data), split):
        classifier.feed(stream, data[at : at + split], 1.0)
    classifier.end(stream, 2.0)
    items = classifier.take()
    assert _lines(items, Kind.LOG) == [b"one", b"three"]
    assert _lines(items, Kind.COMMAND) == [DISABLE.strip(), ENABLE.strip()]


def test_a_command_without_a_last_line_feed() -> None:
    """R15."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"a\n" + DISABLE.strip(), 1.0)
    classifier.end(OUT, 1.0)
    assert classifier.mode == "disabled"


@pytest.mark.parametrize(
    "before", [b" ", b"\t", b"Loading...", "50%|██   |".encode(), b"x" * 500, b"\x1b[31mx"]
)
@pytest.mark.parametrize("colours", [False, True])
def test_text_before_a_command(before: bytes, colours: bool) -> None:
    """R15: text before a command lets it narrow the mode but never widen it. Either way an event
    reports it."""
    classifier = _run(
        (OUT, before + DISABLE + b"secret\n"), (ERR, b"secret\n"), keep_colours=colours
    )
    items = classifier.take()
    assert (classifier.mode, _events(items)) == ("disabled", ["command_refused", "mode_changed"])
    assert b"secret" not in b"".join(_lines(items))
    # the command's own line, printed before the command took effect
    assert len(_lines(items, Kind.LOG)) == 1
    classifier = _run((OUT, before + ENABLE + b"secret\n"), mode="disabled", keep_colours=colours)
    items = classifier.take()
    assert (classifier.mode, _lines(items), _events(items)) == ("disabled", [], ["command_refused"])


@pytest.mark.parametrize(
    "line",
    [
        b'print(\'/LOGCOMMAND {"mode":"disabled"}\')',
        b'+ echo \'/LOGCOMMAND {"mode":"disabled"}\'',
        b'{"say": "/LOGCOMMAND {\\"mode\\":\\"disabled\\"}"}',
        b'see /LOGCOMMAND {"mode":"disabled"} there',
    ],
)
def test_a_command_that_is_quoted(line: bytes) -> None:
    """Commands in source code and tracebacks have no effect, and an event reports them."""
    classifier = _run((OUT, line + b"\n"))
    items = classifier.take()
    assert (classifier.mode, _lines(items), _events(items)) == (
        "enabled",
        [line],
        ["command_refused"],
    )


def test_a_mere_mention_is_no_event() -> None:
    classifier = _run((OUT, b"see /LOGCOMMAND in the guide\n/usr/bin/logcommand\n"))
    assert _events(classifier.take()) == []


def test_text_behind_a_narrowing_command_is_not_logged() -> None:
    """`print(command, end="")` and then a secret: both are on one line."""
    classifier = _run((OUT, b"a\n" + DISABLE.strip() + b"secret\n"))
    items = classifier.take()
    assert _lines(items, Kind.LOG) == [b"a"]
    assert b"secret" not in str(items).encode()
    assert classifier.ledger()["stdout"]["dropped"] == 1


@pytest.mark.parametrize("shape", [b"%s\n", b"\x1b[A\r%s\r\n"])
def test_a_command_at_the_end_of_a_line_that_is_cut_into_parts(shape: bytes) -> None:
    """The command works at every cut between parts, on both tiers."""
    for size in (
        MAX_LINE_BYTES - len(DISABLE),
        MAX_LINE_BYTES - 5,
        MAX_LINE_BYTES,
        MAX_LINE_BYTES + 3,
    ):
        classifier = _run(
            (OUT, shape % (b"x" * size + DISABLE.strip()) + b"secret\n"), columns=10_000
        )
        items = classifier.take()
        assert classifier.mode == "disabled", size
        assert b"secret" not in b"".join(_lines(items))
        assert b"".join(_lines(items, Kind.LOG)) == b"x" * size + DISABLE.strip()


@pytest.mark.parametrize("tier", ["plain", "screen"])
@pytest.mark.parametrize("size", [(20, 5), (40, 1), (300, 2), (80, 100)])
def test_a_resize_amid_a_command(size: tuple[int, int], tier: str) -> None:
    """R15: the rendered line counts."""
    for at in range(1, len(DISABLE)):
        classifier = Classifier("enabled", columns=80, rows=24)
        classifier.feed(
            OUT, b"a\nb\n" + (b"\x1b[A\x1b[B" if tier == "screen" else b"") + DISABLE[:at], 1.0
        )
        classifier.resize(*size)
        classifier.feed(OUT, DISABLE[at:] + b"secret\n", 1.1)
        assert classifier.mode == "disabled", at
        classifier.resize(80, 24)
        classifier.feed(OUT, ENABLE[:at], 2.0)
        classifier.resize(*size)
        classifier.feed(OUT, ENABLE[at:], 2.1)
        assert classifier.mode == "enabled", at


def test_a_stale_command_of_the_other_stream() -> None:
    """R16: stderr's `enabled` was printed first and read last. It widens nothing, and an event
    reports it."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, DISABLE, 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.seen_empty(ERR, 1.0)
    classifier.feed(OUT, b"secret\n", 1.1)
    items = classifier.take()
    assert (classifier.mode, _events(items)) == ("disabled", ["mode_changed", "command_refused"])
    assert _lines(items) == [DISABLE.strip(), ENABLE.strip()]
    assert "print it again" in str(items[-1])
    classifier.feed(ERR, ENABLE, 2.0)
    classifier.seen_empty(OUT, 2.0)
    classifier.feed(OUT, b"public\n", 2.1)
    assert _lines(classifier, Kind.LOG) == [b"public"]


def test_what_narrows_counts_where_the_mode_is_narrower_already() -> None:
    """stderr's `enabled` was printed before stdout's malformed `disabled`, so it undoes only older
    commands."""
    classifier = Classifier("enabled")
    classifier.feed(ERR, DISABLE, 1.0)
    classifier.feed(OUT, b" " + DISABLE, 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, b"secret\n", 1.0)
    assert (classifier.mode, _lines(classifier, Kind.LOG, stream=OUT)) == ("disabled", [])


@pytest.mark.parametrize("tier", [b"", b"\x1b[A"])
@pytest.mark.parametrize("before", [b"", b"Loading..."])
@pytest.mark.parametrize("mode", ["enabled", "metadata", "disabled"])
@pytest.mark.parametrize("colours", [False, True])
def test_a_change_of_the_mode_amid_a_commands_line(
    tier: bytes, before: bytes, mode: str, colours: bool
) -> None:
    """The command works and its text is not logged, wherever the read of the other stream's
    commands cut its line."""
    line = before + DISABLE.strip()
    for at in range(len(before) + 1, len(line) + 1):
        classifier = Classifier(mode, keep_colours=colours)
        classifier.feed(OUT, b"a\n" + tier + line[:at], 1.0)
        classifier.feed(ERR, METADATA + ENABLE + METADATA + ENABLE, 1.0)
        classifier.feed(OUT, line[at:] + b"\r\n", 1.0)
        classifier.seen_empty(OUT, 1.0)
        classifier.feed(OUT, b"secret\n", 1.0)
        classifier.end(OUT, 2.0)
        items = classifier.take()
        assert (classifier.mode, b"secret" in b"".join(_lines(items))) == ("disabled", False), at
        assert classifier.ledger()["stdout"]["pending"] == 0


def test_a_change_of_the_mode_amid_a_stop() -> None:
    """The stop's token isn't logged, and the fence holds."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, STOP[:-1], 1.0)
    classifier.feed(ERR, METADATA, 1.0)
    classifier.feed(OUT, b"\n" + ENABLE, 1.0)
    assert classifier.mode == "metadata"
    assert "token-12345" not in str(classifier.take())


def test_half_a_line_that_is_no_command_is_dropped() -> None:
    """The start of the line has an unknown meaning in the new mode; the next line is logged."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"/logs", 1.0)
    classifier.feed(ERR, DISABLE + ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, b"/x\nnext\n", 1.0)
    classifier.feed(OUT, b"/LOG", 1.0)
    classifier.feed(ERR, DISABLE + ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, b"S\nlast\n", 1.0)
    items = classifier.take()
    assert _lines(items, Kind.LOG) == [b"/logs", b"/x", b"next", b"last"]
    assert classifier.ledger()["stdout"]["dropped"] == 1


def test_a_long_line_that_begins_with_a_command() -> None:
    """Its mode narrows the log, although the line's start is dropped before its end."""
    for line in (DISABLE.strip(), b" " + DISABLE.strip(), DISABLE.strip() + b" " * 5000):
        classifier = Classifier("enabled")
        classifier.feed(OUT, line + b"x" * (MAX_LINE_BYTES + 100) + b"\nsecret\n", 1.0)
        assert (classifier.mode, _lines(classifier)[-1:] == [b"secret"]) == ("disabled", False)
        classifier = Classifier("disabled")
        widening = line.replace(b"disabled", b"enabled") + b" " * (MAX_LINE_BYTES + 100)
        classifier.feed(OUT, widening + b"\nsecret\n", 1.0)
        assert (classifier.mode, _lines(classifier)) == ("disabled", [])


def test_a_command_on_the_alternate_screen_narrows() -> None:
    for command, mode in ((DISABLE, "disabled"), (ENABLE, "enabled")):
        classifier = Classifier("enabled" if command is DISABLE else "metadata")
        classifier.feed(OUT, b"\x1b[?1049h" + command + b"\x1b[?1049lsecret\n", 1.0)
        items = classifier.take()
        assert b"secret" not in b"".join(_lines(items))
        assert "command_refused" in _events(items)
        assert classifier.mode != "enabled", mode


@pytest.mark.parametrize(
    "line",
    [
        b'/LOGCOMMAND {"event":{"name":"early stop: 5","loss":NaN}}',
        b'/LOGCOMMAND {"event":{"stop":"now","loss":NaN}}',
        b'Example:  /LOGCOMMAND {"stop":"TOKEN"}',
        b"/LOGCOMMAND {'stop': 'TOKEN'}",
    ],
)
def test_what_only_looks_like_a_stop_keeps_no_narrowing_command_out(line: bytes) -> None:
    classifier = _run((OUT, line + b"\n" + DISABLE + b"secret\n"))
    assert classifier.mode == "disabled"
    assert b"secret" not in b"".join(_lines(classifier))


@pytest.mark.parametrize(
    "line",
    [
        b"/logcommands/metadata.json",
        b"/LOGCOMMAND_DISABLED=1",
        b"/opt/logcommand/disabled/x",
        b"   /LOGCOMMAND lines are ignored when commands are disabled",
    ],
)
def test_paths_and_prose_switch_nothing_off(line: bytes) -> None:
    classifier = _run((OUT, line + b"\n"))
    assert (classifier.mode, _lines(classifier)) == ("enabled", [line])


def test_escapes_behind_a_token_that_are_none() -> None:
    classifier = _run((OUT, STOP + b"x \\u006e\\users\n\\ud83d \\u00\n"))
    assert _lines(classifier, Kind.LOG) == [b"x \\u006e\\users", b"\\ud83d \\u00"]


def test_tokens_in_what_is_sent_and_in_events() -> None:
    """A masked number is no number, so the record is dropped. The event remains, with `***` as
    its name."""
    classifier = Classifier("enabled")
    classifier.feed(
        OUT, b'/LOGCOMMAND {"stop":"12345678"}\n/LOGCOMMAND {"resume":"12345678"}\n', 1.0
    )
    classifier.take_measurements([b'{"x":12345678}', b'{"x":1}'], 1.0)
    classifier.feed(OUT, b'/LOGCOMMAND {"event":{"n":12345678}}\n', 1.0)
    items = classifier.take()
    assert _lines(items, Kind.METADATA) == [b'{"x":1}']
    assert "12345678" not in str(items)
    assert _events(items)[-1] == "user_event"


def test_an_unknown_resume_shows_no_token() -> None:
    classifier = _run((ERR, RESUME), (OUT, STOP + DISABLE + b"secret\n"))
    items = classifier.take()
    assert classifier.mode == "disabled"
    assert "token-12345" not in str(items)
    assert b"secret" not in b"".join(_lines(items))


def test_a_status_ends_before_what_an_escape_may_hide() -> None:
    classifier = Classifier("enabled")
    classifier.feed(
        OUT, b'/LOGCOMMAND {"stop":"secret\\"token123"}\nworking {"t":"secret\\"token12', 1.0
    )
    classifier.tick(20.0)
    assert "secret" not in str(_lines(classifier, Kind.STATUS))


def test_many_stops_are_one_event() -> None:
    classifier = _run((OUT, b"/LOGCOMMAND stop=\n" * 2000))
    assert _events(classifier.take()).count("commands_fenced") == 1


def test_events_of_refused_commands_have_a_limit() -> None:
    """Later refusals are only counted."""
    classifier = _run((OUT, b"/LOGCOMMAND x\n" * (MAX_REFUSALS + 7)))
    events = [item.record for item in classifier.take() if isinstance(item, LoggedEvent)]
    assert [event["event"] for event in events[-2:]] == ["refusals_left_out"] * 2
    assert len(events) == MAX_REFUSALS + 2
    assert events[-1]["events"] == 7


def test_a_command_drawn_over_a_bar_counts_as_rendered() -> None:
    """R15: the rendered line counts."""
    classifier = _run((OUT, b"\r 50%|#####     |\r                  \r" + DISABLE + b"secret\n"))
    assert classifier.mode == "disabled"
    assert b"secret" not in b"".join(_lines(classifier))


def test_a_switch_applies_to_the_other_stream() -> None:
    """R16."""
    classifier = _run((OUT, DISABLE), (ERR, b"secret\n"))
    assert b"secret" not in b"".join(_lines(classifier))


def test_the_other_stream_obeys_the_strictest_until_seen_empty() -> None:
    """R16: text possibly written before the switch stays hidden."""
    classifier = Classifier("disabled")
    classifier.feed(OUT, ENABLE, 1.0)
    classifier.feed(ERR, b"written before\n", 1.0)
    classifier.seen_empty(ERR, 1.0)
    classifier.feed(ERR, b"written after\n", 1.0)
    assert _lines(classifier, stream=ERR) == [b"written after"]


def test_what_was_printed_before_a_switch_to_disabled_is_logged_first() -> None:
    """R11: a half line and a bar of the other stream, and a run of repeats."""
    classifier = _run((OUT, b"a\na\na\nhalf"), (ERR, b"\r 10%|#  |" + DISABLE), end=False)
    assert classifier.mode == "disabled"
    assert b" 10%|#  |" + DISABLE.strip() in _lines(classifier, stream=ERR)
    classifier = _run((OUT, b"a\na\na\nhalf"), (ERR, DISABLE), end=False)
    items = classifier.take()
    assert _lines(items, stream=OUT) == [b"a", b"[repeated 2 times: a]", b"half"]
    assert _lines(items)[-1] == DISABLE.strip()


def test_nothing_from_before_leaks() -> None:
    """R11: no half line, bar, held repeat or buffer from before the switch."""
    classifier = Classifier("disabled")
    classifier.feed(OUT, b"s1\ns1\ns1\n\x1b[As2\n\rs3 half", 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, b" tail\n\x1b[A\x1b[Anew\n", 1.0)
    classifier.tick(100.0)
    classifier.end(OUT, 200.0)
    text = b"|".join(_lines(classifier, stream=OUT))
    assert b"s1" not in text
    assert b"s2" not in text
    assert b"s3" not in text
    assert b"new" in text


def test_half_a_line_is_not_metadata() -> None:
    """R11: after a change of the mode, the rest of the line is unknown."""
    classifier = Classifier("metadata")
    classifier.feed(OUT, b'{"a": 1}', 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, b" and more\n", 1.0)
    classifier.end(OUT, 2.0)
    assert _lines(classifier, stream=OUT) == [b" and more"]


# ---- refused and masked commands


def test_refused_commands_are_ordinary_output() -> None:
    """R15."""
    bad = b'/LOGCOMMAND  {"mode":"enabled"}'
    classifier = _run((OUT, bad + b"\n"))
    items = classifier.take()
    assert _lines(items, Kind.LOG) == [bad]
    assert _events(items) == ["command_refused"]
    classifier = _run((OUT, bad + b"\n"), mode="disabled")
    items = classifier.take()
    assert (_lines(items), _events(items), classifier.mode) == ([], ["command_refused"], "disabled")


def test_a_dict_repr_narrows() -> None:
    """R15: it must not leak a token. The event shows the correct form, and never the line."""
    classifier = _run(
        (OUT, b"/LOGCOMMAND {'mode': 'disabled', 'why': 'hush'}\nsecret\n"), mode="metadata"
    )
    items = classifier.take()
    assert classifier.mode == "disabled"
    assert _lines(items) == []
    assert _events(items) == ["command_refused", "mode_changed"]
    assert "hush" not in str(items)
    assert '/LOGCOMMAND {"mode":"metadata"}' in str(items[0])


def test_commands_off() -> None:
    """R16: a user may switch commands off."""
    classifier = _run((OUT, DISABLE + b"/LOGCOMMAND {'mode': 'disabled'}\n"), obey=False)
    items = classifier.take()
    assert classifier.mode == "enabled"
    assert len(_lines(items, Kind.LOG)) == 2
    assert _events(items) == []


def test_stop_token() -> None:
    """R16: the classifier obeys no command between stop and resume, and masks the token in the
    log."""
    text = (
        b'/LOGCOMMAND {"stop":"tok-12345678"}\n'
        + DISABLE
        + b'/LOGCOMMAND {"resume":"wrong"}\nsaid tok-12345678\n/LOGCOMMAND {"resume":"tok-12345678"}\n'
        + METADATA
    )
    classifier = _run((OUT, text))
    items = classifier.take()
    assert classifier.mode == "metadata"
    assert _lines(items, Kind.LOG) == [
        DISABLE.strip(),
        b'/LOGCOMMAND {"resume":"***"}',
        b"said ***",
    ]
    assert _lines(items, Kind.COMMAND) == [
        b'/LOGCOMMAND {"stop":"***"}',
        b'/LOGCOMMAND {"resume":"***"}',
        METADATA.strip(),
    ]
    assert "tok-12345678" not in str(items)
    assert _events(items) == [
        "commands_fenced",
        "command_refused",
        "commands_resumed",
        "mode_changed",
    ]


def test_a_fence_holds_for_the_other_stream_until_seen_empty() -> None:
    """Until then a command that may be inside the fence narrows the mode, and never widens it."""
    classifier = Classifier("disabled")
    classifier.feed(OUT, STOP + RESUME, 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    assert classifier.mode == "disabled"
    classifier.seen_empty(ERR, 1.0)
    classifier.feed(ERR, ENABLE, 1.0)
    assert classifier.mode == "enabled"
    classifier.feed(OUT, STOP, 1.0)
    classifier.feed(ERR, DISABLE, 1.0)  # possibly printed before the stop
    assert classifier.mode == "disabled"


def test_a_stale_resume_does_not_end_the_other_streams_fence() -> None:
    classifier = Classifier("disabled")
    classifier.feed(OUT, STOP, 1.0)
    classifier.feed(ERR, RESUME, 1.0)
    classifier.seen_empty(OUT, 1.0)
    classifier.feed(OUT, ENABLE, 1.0)
    items = classifier.take()
    assert (classifier.mode, _events(items)) == (
        "disabled",
        ["commands_fenced", "command_refused", "command_refused"],
    )
    assert "token-12345" not in str(items)


@pytest.mark.parametrize(
    "line",
    [
        b"/LOGCOMMAND {'stop': 'token-12345'}",
        b'/LOGCOMMAND  {"stop":"token-12345"}',
        b'/logcommand {"stop":"token-12345"}',
        b' /LOGCOMMAND {"stop":"token-12345"}',
        b'Begin: /LOGCOMMAND {"stop":"token-12345"}',
        b'/LOGCOMMAND {"stop":"token-12345"',
        b'/LOGCOMMAND {"stop":"token-12345"} now',
        b'/LOGCOMMAND {"stop":"token-12345","mode":"x"}',
    ],
)
def test_a_malformed_stop_fences(line: bytes) -> None:
    """R16: the following text is not trustworthy, so it can't widen the mode. The token is
    masked."""
    classifier = Classifier("metadata")
    classifier.feed(OUT, line + b"\n" + ENABLE, 1.0)
    classifier.feed(OUT, b'{"said": "token-12345"}\n', 1.0)
    assert classifier.mode == "metadata"
    classifier.feed(OUT, RESUME + ENABLE, 1.0)
    assert classifier.mode == "enabled"
    items = classifier.take()
    assert "token-12345" not in str(items)
    assert _events(items)[:2] == ["commands_fenced", "command_refused"]


def test_a_stop_without_a_token_keeps_out_what_widens() -> None:
    classifier = _run(
        (OUT, b'/LOGCOMMAND {"stop":""}\n' + ENABLE + METADATA + DISABLE), mode="metadata"
    )
    assert classifier.mode == "disabled"


def test_a_malformed_resume_lets_pass_what_narrows() -> None:
    """A secret may follow, and two wrong quotes must not log it."""
    classifier = _run(
        (OUT, STOP + b"/LOGCOMMAND {'resume': 'token-12345'}\n" + DISABLE + b"secret\n" + ENABLE)
    )
    items = classifier.take()
    assert classifier.mode == "disabled"
    assert b"secret" not in b"".join(_lines(items))
    assert "token-12345" not in str(items)


def test_a_malformed_resume_of_the_other_stream_narrows_at_once() -> None:
    """Commands after the stop token may count, even for text read immediately afterwards."""
    classifier = _run(
        (OUT, STOP + DISABLE),
        (ERR, b"/LOGCOMMAND {'resume': 'token-12345'}\nsecret\n"),
        (OUT, b"secret\n"),
    )
    assert classifier.mode == "disabled"
    assert b"secret" not in b"".join(_lines(classifier.take()))


def test_tokens_are_masked_in_every_form() -> None:
    """As JSON may write them, beyond the 64th token, and at the cuts of a long line."""
    tokens = [f'täg"{number:04}\\/' for number in range(80)]
    stops = "".join(
        f"/LOGCOMMAND {json.dumps({'stop': token})}\n/LOGCOMMAND {json.dumps({'resume': token})}\n"
        for token in tokens
    )
    classifier = Classifier("enabled")
    classifier.feed(OUT, stops.encode(), 1.0)
    forms = [
        form
        for token in tokens
        for form in (token, json.dumps(token), json.dumps(token, ensure_ascii=False))
    ]
    forms += ["".join(f"\\u{ord(char):04X}" for char in token) for token in tokens]
    classifier.feed(OUT, "".join(f'{{"k": "x {form}"}}\n{form}\n' for form in forms).encode(), 1.0)
    token = tokens[0].encode()
    sizes = (MAX_LINE_BYTES - len(token), MAX_LINE_BYTES - 5, MAX_LINE_BYTES - 1)
    for size in sizes:
        classifier.feed(OUT, b"x" * size + token + b"y\n", 1.0)
    classifier.end(OUT, 2.0)
    items = classifier.take()
    parts = [
        item for item in items if isinstance(item, LoggedLines) and "part" in (item.attrs or {})
    ]
    text = b"".join(part.text[:-1] for part in parts)
    assert text.count(b"***y") == len(sizes)
    assert b'g"0' not in text
    log = b"\n".join(_lines(items))
    assert not [form for form in forms if form.encode() in log]


@pytest.mark.parametrize("cut", range(14, 38))
def test_a_live_status_shows_no_token(cut: int) -> None:
    """This includes half a token, and a token in an unfinished command."""
    line = b'/LOGCOMMAND {"stop":"hush-123456"}'
    classifier = Classifier("enabled", snapshot_secs=1.0)
    classifier.feed(OUT, line[:cut], 1.0)
    for now in (2.0, 20.0, 40.0):
        classifier.tick(now)
    shown, live = str(classifier.take()), str(classifier.live())
    assert "hus" not in shown + live
    assert "/LOGCOMMAND ***" in shown
    assert "/LOGCOMMAND ***" in live
    classifier.feed(OUT, line[cut:] + b"\n" + b"bar hush-123456"[: max(cut - 10, 8)], 50.0)
    for now in (60.0, 80.0):
        classifier.tick(now)
    assert "hush" not in str(classifier.take())
    assert classifier.live()[OUT].startswith(b"bar")
    assert b"hush" not in classifier.live()[OUT]


# ---- metadata


@pytest.mark.parametrize(
    "line",
    [
        b'{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}',
        b'{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
        b'{"size": "big", "speed": "slow", "lr": 0.1}',
    ],
)
def test_the_promised_examples_byte_for_byte(line: bytes) -> None:
    """R19."""
    assert _lines(_run((OUT, b"x\n" + line + b"\ny\n")), Kind.METADATA) == [line]


def test_other_text_on_the_line() -> None:
    """R20: blanks count as text, except those that an erased bar left on the right."""
    classifier = _run(
        (OUT, b'{"a": 1} \n {"b": 1}\nx {"c": 1}\n\r          \r{"d": 1}\n{"e": 1}\r\n')
    )
    items = classifier.take()
    assert _lines(items, Kind.METADATA) == [b'{"d": 1}', b'{"e": 1}']
    assert _lines(items, Kind.LOG) == [b'{"a": 1}', b' {"b": 1}', b'x {"c": 1}']


def test_json_written_above_a_bar() -> None:
    """R20: `tqdm.write(json)` clears its bar, writes, and draws the bar again."""
    bar = b"\r 10%|#         | 1/10"
    classifier = _run(
        (OUT, bar + b"\r" + b" " * (len(bar) - 1) + b'\r{"loss": 0.5}\n' + bar + b"\n")
    )
    assert _lines(classifier, Kind.METADATA) == [b'{"loss": 0.5}']


def test_hints_once() -> None:
    """R21: one event per job, without the line outside of mode `enabled`."""
    classifier = _run((OUT, b"{'hush': 2}\n{'hush': 2}\n{'hush': 1}\n{}\n"), mode="metadata")
    items = classifier.take()
    assert [item.record["reason"] for item in items if isinstance(item, LoggedEvent)] == ["repr"]
    assert "hush" not in str([item for item in items if isinstance(item, LoggedEvent)])


def test_no_hint_at_dicts_that_become_series() -> None:
    """Trainer of transformers prints such lines, and their curves are on the page."""
    printed = b"".join(b"{'loss': '%.1f', 'epoch': '%.1f'}\n" % (9 - n, n) for n in range(5))
    classifier = _run((OUT, printed), finds_series=True)
    items = classifier.take()
    assert len(_lines(items, Kind.METADATA)) == 5
    assert not [item for item in items if isinstance(item, LoggedEvent)]


@pytest.mark.parametrize("mode", ["enabled", "metadata"])
def test_nan_is_a_record_with_its_exact_text(mode: str) -> None:
    """R18, R19: accept NaN as Python's json.dumps writes it."""
    printed = b'{"loss": NaN}\n{"loss":  NaN}\n{"loss": 0.5}\n{"loss": -Infinity}\n'
    items = _run((OUT, printed), mode=mode).take()
    records = [item for item in items if isinstance(item, LoggedLines)]
    assert b"".join(item.text for item in records) == printed
    assert {item.kind for item in records} == {Kind.METADATA}
    assert [item.attrs for item in records] == [{"n": number} for number in (1, 2, 3, 4)]
    (event,) = [item.record for item in items if isinstance(item, LoggedEvent)]
    assert (event["event"], event["reason"]) == ("json_hint", "nan"), "once, with its time"
    assert "loss" not in str(event)


def test_records_are_points() -> None:
    """R31: metadata is never collapsed; `n` counts the records with the same set of keys."""
    classifier = _run((OUT, b'{"a": 1}\n{"a": 1}\n{"b": 1, "a": 2}\n{"a": 1}\n{"a": 3, "b": 4}\n'))
    records = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    assert [item.attrs for item in records] == [{"n": 1}, {"n": 2}, {"n": 1}, {"n": 3}, {"n": 2}]


# ---- repeats and blank lines


def test_repeats() -> None:
    """R30: log the first line, then one message with the count that quotes it."""
    classifier = _run((OUT, b"w\n" * 500 + b"x\n"))
    items = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    assert [item.text for item in items] == [b"w\n", b"[repeated 499 times: w]\n", b"x\n"]
    assert items[1].attrs == {"repeat": 499}
    assert classifier.ledger()["stdout"]["collapsed"] == 499


def test_a_single_repeat_is_logged_as_it_is() -> None:
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"a\nb\nb\nc\nc\n", 1.0)
    account = classifier.ledger()["stdout"]
    assert (account["stored"], account["pending"], account["line_feeds"]) == (4, 1, 4)
    classifier.feed(OUT, b"d\n", 2.0)
    assert _lines(classifier, Kind.LOG) == [b"a", b"b", b"b", b"c", b"c", b"d"]
    account = classifier.ledger()["stdout"]
    assert (account["stored"], account["collapsed"], account["pending"]) == (6, 0, 0)
    assert account["line_feeds"] == 6


def test_a_single_repeat_keeps_its_colours() -> None:
    classifier = _run((OUT, b"\x1b[31mred\x1b[0m\n\x1b[32mred\x1b[0m\n"), keep_colours=True)
    assert _lines(classifier, Kind.LOG) == [b"\x1b[31mred\x1b[0m", b"\x1b[32mred\x1b[0m"]


def test_repeats_are_said_before_a_command() -> None:
    """This includes a command that does not change the mode: a note is about the line before it."""
    command = b'/LOGCOMMAND {"mode":"enabled"}\n'
    classifier = _run((OUT, b"w\nw\nw\n" + command + b"w\n"))
    items = [item for item in classifier.take() if isinstance(item, LoggedLines)]
    assert [item.text for item in items] == [b"w\n", b"[repeated 2 times: w]\n", command, b"w\n"]


def test_repeats_are_said_while_they_go_on() -> None:
    """R30: at least every 10 s."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"w\nw\nw\n", 0.0)
    classifier.tick(stream_output.REPEAT_SECS - 1)
    assert _lines(classifier) == [b"w"]
    assert classifier.next_tick() is not None
    assert (classifier.next_tick() or 0) <= stream_output.REPEAT_SECS
    classifier.feed(OUT, b"w\n", 9.5)
    classifier.tick(stream_output.REPEAT_SECS)
    classifier.feed(OUT, b"w\n" * 2, 12.0)
    classifier.tick(12.0 + stream_output.REPEAT_SECS)
    assert _lines(classifier, Kind.NOTE) == [b"[repeated 3 times: w]", b"[repeated 2 times: w]"]


def test_a_gap_ends_a_run_of_repeats() -> None:
    """R30: a gap over 10 s."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"w\nw\nw\n", 0.0)
    classifier.feed(OUT, b"w\n", stream_output.REPEAT_SECS)
    classifier.feed(OUT, b"w\n" * 3, 2.1 * stream_output.REPEAT_SECS)
    classifier.end(OUT, 30.0)
    assert _lines(classifier) == [b"w", b"[repeated 3 times: w]", b"w", b"[repeated 2 times: w]"]


def test_repeats_are_never_fuzzy_and_of_one_stream() -> None:
    """R30: a line of the other stream, including its notes and commands, ends a run."""
    classifier = _run((OUT, b"step 1\nstep 2\nA\n"), (ERR, b"A\n"), (OUT, b"A\n"))
    assert _lines(classifier) == [b"step 1", b"step 2", b"A", b"A", b"A"]
    classifier = _run((OUT, b"A\n" * 4), (ERR, b"x\n"), (OUT, b"A\n" * 3), (ERR, METADATA))
    lines = [b"A", b"[repeated 3 times: A]", b"x", b"A", b"[repeated 2 times: A]", METADATA[:-1]]
    assert _lines(classifier) == lines


def test_what_the_other_stream_does_not_log_ends_no_run_of_repeats() -> None:
    """A running bar is no line of the log."""
    classifier = Classifier("enabled")
    for step in range(5):
        classifier.feed(ERR, b"\r%d%%" % step, float(step))
        classifier.feed(OUT, b"A\n", float(step))
    classifier.end(OUT, 6.0)
    assert _lines(classifier, stream=OUT) == [b"A", b"[repeated 4 times: A]"]


def test_repeats_across_chunks_and_blanks_at_the_end() -> None:
    classifier = _run((OUT, b"a\n"), (OUT, b"a  \n"), (OUT, b"a\nb\n"))
    assert _lines(classifier) == [b"a", b"[repeated 2 times: a]", b"b"]


def test_what_a_note_quotes_is_masked_as_of_now() -> None:
    """The token was not secret yet when the line was logged."""
    classifier = _run((ERR, b"say token-12345\n" * 4), (ERR, STOP))
    assert _lines(classifier, Kind.NOTE) == [b"[repeated 3 times: say ***]"]


def test_a_note_of_a_line_as_long_as_any_is_no_longer() -> None:
    classifier = _run((OUT, (b"x" * (MAX_LINE_BYTES - 2) + "é".encode() + b"\n") * 3))
    lines = [len(line) for line in _lines(classifier)]
    assert lines[0] == MAX_LINE_BYTES
    assert MAX_LINE_BYTES - 64 < lines[1] <= MAX_LINE_BYTES


_PRINTED = st.lists(
    st.tuples(
        st.sampled_from([OUT, ERR]),
        st.lists(st.sampled_from([b"a", b"b", b"", b'{"a": 1}']), max_size=6),
        st.sampled_from([0.0, 0.5, 11.0]),
    ),
    max_size=12,
)


@given(_PRINTED)
@settings(max_examples=examples(60), deadline=None)
def test_each_line_is_found_as_often_as_it_was_printed(
    steps: list[tuple[Stream, list[bytes], float]],
) -> None:
    """A note counts as the lines that it replaces, and the ledger balances at any time."""
    classifier = Classifier("enabled")
    now = 0.0
    items: list[LoggedLines | LoggedEvent] = []
    for stream, lines, later in steps:
        now += later
        classifier.tick(now)
        classifier.feed(stream, b"".join(line + b"\n" for line in lines), now)
        items += classifier.take()
        for account in (classifier.ledger()["stdout"], classifier.ledger()["stderr"]):
            assert account["read"] == account["line_feeds"] + account["pending"]
    classifier.end(OUT, now)
    classifier.end(ERR, now)
    items += classifier.take()
    for stream in (OUT, ERR):
        for text in (b"a", b"b", b'{"a": 1}'):
            occurrences = 0
            for item in items:
                if isinstance(item, LoggedLines) and item.stream is stream:
                    attrs = item.attrs or {}
                    occurrences += sum(
                        attrs.get("repeat", 1)
                        for line in item.text.decode().split("\n")
                        if printed_line(line, attrs) == text.decode()
                    )
            assert occurrences == sum(lines.count(text) for of, lines, _ in steps if of is stream)


def test_blank_lines() -> None:
    """R31: several blank lines become one."""
    classifier = _run((OUT, b"a\n\n\n"), (OUT, b"\n   \nb\n\nc\n"))
    assert _lines(classifier) == [b"a", b"", b"b", b"", b"c"]
    assert classifier.ledger()["stdout"]["blank"] == 3


# ---- status


def test_live_status() -> None:
    """R29: the status shows the bar's current text. It appears at most every 10 s and only after a
    change, and is withdrawn at the end."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"\r 10%|#  |", 100.0)
    classifier.tick(100.5)
    assert _lines(classifier, Kind.STATUS) == [b" 10%|#  |"]
    classifier.feed(OUT, b"\r 20%|## |", 101.0)
    classifier.tick(102.0)
    assert _lines(classifier, Kind.STATUS) == []
    classifier.tick(111.0)
    classifier.tick(122.0)
    assert _lines(classifier, Kind.STATUS) == [b" 20%|## |"]
    classifier.end(OUT, 123.0)
    items = classifier.take()
    assert _lines(items, Kind.STATUS) == [b""]
    assert _lines(items, Kind.LOG) == [b" 20%|## |"]


def test_a_running_bar_is_live() -> None:
    """R29: a bar drawn 100 times a second is at most half a second old. Few of its states reach the
    segments."""
    classifier = Classifier("enabled")
    ages: list[float] = []
    for step in range(3000):
        now = 100.0 + step / 100
        classifier.feed(OUT, b"\r step %.2f" % now, now)
        if now >= (classifier.next_tick() or 0.0):
            classifier.tick(now)
        ages.append(now - float(classifier.live()[OUT].split()[-1]))
    assert max(ages) <= stream_status.LIVE_SECS + 0.011
    assert len(_lines(classifier, Kind.STATUS)) == 3
    classifier.feed(OUT, b"\n", now)
    while (due := classifier.next_tick()) is not None and classifier.live()[OUT]:
        classifier.tick(due)
        assert due < now + 2
    assert classifier.live() == {OUT: b"", ERR: b""}


def test_each_of_several_bars_is_in_the_status() -> None:
    """The bars are nested, in one stream. A snapshot shows the lowest one."""
    classifier = Classifier("enabled", snapshot_secs=10.0)
    classifier.feed(OUT, b"\repoch 1/3\n\rbatch 10/40\x1b[A", 100.0)
    classifier.tick(100.6)
    assert classifier.live()[OUT] == b"epoch 1/3\rbatch 10/40"
    assert _lines(classifier, Kind.STATUS) == [b"epoch 1/3\rbatch 10/40"]
    classifier.feed(OUT, b"\n\rbatch 20/40\x1b[A", 105.0)
    for now in (111.0, 122.0):
        classifier.tick(now)
    items = classifier.take()
    assert _lines(items, Kind.STATUS) == [b"epoch 1/3\rbatch 20/40"]
    assert _lines(items, Kind.NOTE) == [stream_status.SNAPSHOT_MARK + b"batch 20/40"]
    classifier.end(OUT, 123.0)
    items = classifier.take()
    assert _lines(items, Kind.STATUS) == [b""]
    assert _lines(items, Kind.LOG) == [b"epoch 1/3", b"batch 20/40"]


@pytest.mark.parametrize(
    ("bars", "bytes_each", "shown"), [(20, 30, MAX_STATUS_BARS), (10, 1000, 4), (2, 5000, 1)]
)
def test_of_many_bars_the_lowest_are_in_the_status(bars: int, bytes_each: int, shown: int) -> None:
    classifier = Classifier("enabled", columns=6000, rows=40)
    texts = [b"%d %s" % (number, b"#" * (bytes_each - 3)) for number in range(bars)]
    classifier.feed(OUT, b"\r" + b"\n\r".join(texts) + b"\x1b[%dA" % (bars - 1), 100.0)
    classifier.tick(100.6)
    status = classifier.live()[OUT]
    assert len(status) <= MAX_STATUS_BYTES
    assert status.split(b"\r") == [text[:MAX_STATUS_BYTES] for text in texts[-shown:]]


def test_no_bar_of_several_shows_a_token() -> None:
    classifier = Classifier("enabled")
    classifier.feed(OUT, b'/LOGCOMMAND {"stop":"hush-123456"}\n', 99.0)
    classifier.feed(OUT, b"\rone hush-123456\n\rtwo hush-1234\n\rthree\x1b[2A", 100.0)
    classifier.tick(110.0)
    assert b"hush" not in classifier.live()[OUT]
    assert classifier.live()[OUT].split(b"\r")[2] == b"three"


def test_a_line_that_is_being_printed_is_not_live() -> None:
    """A prompt is live, because no line ends after it."""
    classifier = Classifier("enabled")
    for step in range(300):
        now = 100.0 + step / 100
        classifier.feed(OUT, b"part\nand half a li", now)
        classifier.tick(now)
        assert classifier.live()[OUT] == b""
        classifier.feed(OUT, b"ne\n", now)
    classifier.feed(OUT, b"Password: ", now)
    while (due := classifier.next_tick()) is not None and not classifier.live()[OUT]:
        classifier.tick(max(due, now))
        assert due < now + 3
    assert classifier.live()[OUT] == b"Password:"


def test_a_bar_below_lines_is_live() -> None:
    """tqdm.write prints such lines."""
    classifier = Classifier("enabled")
    for step in range(300):
        now = 100.0 + step / 100
        classifier.feed(OUT, b"\r\x1b[Kline %d\n\r %d%%|##  |" % (step, step), now)
        classifier.tick(now)
    assert classifier.live()[OUT].endswith(b"|##  |")


@pytest.mark.parametrize("mode", ["metadata", "disabled"])
@pytest.mark.parametrize("by", [OUT, ERR])
def test_nothing_is_live_outside_enabled(mode: str, by: Stream) -> None:
    """R17: a switch to another mode withdraws it at once, and none appears until the switch
    back."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"\r 10%|#  |", 100.0)
    classifier.tick(100.5)
    assert classifier.live() == {OUT: b" 10%|#  |", ERR: b""}
    classifier.feed(by, b'\n/LOGCOMMAND {"mode":"%s"}\n' % mode.encode(), 101.0)
    assert classifier.live() == {OUT: b"", ERR: b""}
    for now in (102.0, 103.0, 104.0):
        classifier.feed(OUT, b"\r 20%|## |", now)
        classifier.tick(now + 0.6)
        assert classifier.live() == {OUT: b"", ERR: b""}


def test_no_status_outside_enabled() -> None:
    """R17: a switch to another mode withdraws the last status."""
    classifier = Classifier("enabled")
    classifier.feed(OUT, b"\r 10%|#  |", 100.0)
    classifier.tick(100.5)
    classifier.take()
    classifier.feed(ERR, DISABLE, 101.0)
    assert _lines(classifier, Kind.STATUS) == [b""]
    classifier.feed(OUT, b"\r 20%|## |", 102.0)
    classifier.tick(200.0)
    assert _lines(classifier, Kind.STATUS) == []


# ---- the account


_pieces = st.lists(
    st.tuples(
        st.sampled_from([OUT, ERR]),
        st.sampled_from(
            [
                b"a\n",
                b"a\n",
                b"b\n",
                b"\n",
                b'{"x": 1}\n',
                b"\rbar",
                b"\r\n",
                b"\x1b[A",
                b"half",
                ENABLE,
                METADATA,
                DISABLE,
                b" \n",
            ]
        ),
    ),
    max_size=40,
)


@given(_pieces, st.sampled_from(["enabled", "metadata", "disabled"]))
@settings(max_examples=examples(80))
def test_the_ledger_balances(steps: list[tuple[Stream, bytes]], mode: str) -> None:
    """At any time: read = stored + collapsed + blank + dropped + commands + pending + lost."""
    classifier = Classifier(mode)
    stored = 0
    for number, (stream, data) in enumerate(steps):
        classifier.feed(stream, data, float(number))
        classifier.tick(float(number))
        stored += len(_lines(classifier, Kind.LOG, Kind.METADATA))
        _check_balance(classifier, stored)
    classifier.end(OUT, 1e6)
    classifier.end(ERR, 1e6)
    stored += len(_lines(classifier, Kind.LOG, Kind.METADATA))
    _check_balance(classifier, stored)
    assert classifier.ledger()["stdout"]["pending"] == 0


def _check_balance(classifier: Classifier, stored: int) -> None:
    ledger = classifier.ledger()
    for name in ("stdout", "stderr"):
        counts = ledger[name]
        parts = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
        assert counts["read"] == sum(counts[part] for part in parts)
    assert ledger["stdout"]["stored"] + ledger["stderr"]["stored"] == stored


@given(_pieces, st.integers(1, 7))
@settings(max_examples=examples(100))
def test_any_split_gives_the_same(steps: list[tuple[Stream, bytes]], size: int) -> None:
    """R15."""
    whole, split = Classifier("enabled"), Classifier("enabled")
    for stream, data in steps:
        whole.feed(stream, data, 1.0)
        for at in range(0, len(data), size):
            split.feed(stream, data[at : at + size], 1.0)
    for classifier in (whole, split):
        classifier.end(OUT, 2.0)
        classifier.end(ERR, 2.0)
    for stream in (OUT, ERR):
        whole_items = [
            (item.kind, item.text)
            for item in whole.take()
            if isinstance(item, LoggedLines) and item.stream is stream
        ]
        split_items = [
            (item.kind, item.text)
            for item in split.take()
            if isinstance(item, LoggedLines) and item.stream is stream
        ]
        assert _join(whole_items) == _join(split_items)


def _join(items: list[tuple[Kind, bytes]]) -> list[tuple[Kind, bytes]]:
    runs: list[tuple[Kind, bytes]] = []
    for kind, text in items:
        if runs and runs[-1][0] is kind:
            runs[-1] = (kind, runs[-1][1] + text)
        else:
            runs.append((kind, text))
    return runs
