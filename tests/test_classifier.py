"""What is logged, and as what: modes, commands, metadata, repeats, blank lines (R5, R7-R22, R30, R31)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper import stream_log
from logshipper.classifier import Classifier
from logshipper.segment import Kind, Stream
from logshipper.stream_log import Event, Lines
from tests.model_settings import examples

OUT, ERR = Stream.STDOUT, Stream.STDERR
ENABLE = b'/LOGCOMMAND {"mode":"enabled"}\n'
METADATA = b'/LOGCOMMAND {"mode":"metadata"}\n'
DISABLE = b'/LOGCOMMAND {"mode":"disabled"}\n'


def _run(*steps: tuple[Stream, bytes], mode: str = "enabled", end: bool = True, **options: Any) -> Classifier:
    """Feeds each step whole, then ends both streams. options: of Classifier, of several types."""
    made = Classifier(mode, **options)
    for stream, data in steps:
        made.feed(stream, data, 1.0)
    if end:
        made.end(OUT, 2.0)
        made.end(ERR, 2.0)
    return made


def _lines(made: Classifier | list[Lines | Event], *kinds: Kind, stream: Stream | None = None) -> list[bytes]:
    items = made.take() if isinstance(made, Classifier) else made
    return [
        line
        for item in items
        if isinstance(item, Lines) and (not kinds or item.kind in kinds) and stream in (None, item.stream)
        for line in item.text.split(b"\n")[:-1]
    ]


def _events(items: list[Lines | Event]) -> list[str]:
    return [item.record["event"] for item in items if isinstance(item, Event)]


# ---- modes


def test_enabled_logs_everything() -> None:
    """R8, R5: stderr is logged; JSON there is a line like any other."""
    made = _run((OUT, b'a\n{"x": 1}\nb\n'), (ERR, b'c\n{"y": 1}\n'))
    items = made.take()
    assert _lines(items, Kind.LOG, stream=OUT) == [b"a", b"b"]
    assert _lines(items, Kind.METADATA) == [b'{"x": 1}']
    assert _lines(items, Kind.LOG, stream=ERR) == [b"c", b'{"y": 1}']


def test_metadata_mode() -> None:
    """R9: only metadata; all of stderr is dropped."""
    made = _run((OUT, b'a\n{"x": 1}\nb\n{not}\n'), (ERR, b'c\n{"y": 1}\n'), mode="metadata")
    assert _lines(made) == [b'{"x": 1}']
    ledger = made.ledger()
    assert (ledger["stdout"]["dropped"], ledger["stderr"]["dropped"]) == (3, 2)


def test_disabled_mode_listens() -> None:
    """R10, R11: commands are logged, all else is dropped, and enabling later works."""
    made = _run((OUT, b'secret\n{"x": 1}\n' + ENABLE + b"public\n"), mode="disabled")
    items = made.take()
    assert _lines(items) == [ENABLE.strip(), b"public"]
    assert _events(items) == ["mode_changed"]
    assert made.mode == "enabled"


@pytest.mark.parametrize("stream", [OUT, ERR])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r\r\n"])
@pytest.mark.parametrize("split", [1, 3, 1000])
def test_the_next_line_obeys(stream: Stream, ending: bytes, split: int) -> None:
    """R14, R15, R17: on both streams, however the bytes are split, whatever the line's end."""
    made = Classifier("enabled")
    data = b"one\n" + DISABLE.strip() + ending + b"two\n" + ENABLE.strip() + ending + b"three"
    for at in range(0, len(data), split):
        made.feed(stream, data[at : at + split], 1.0)
    made.end(stream, 2.0)
    items = made.take()
    assert _lines(items, Kind.LOG) == [b"one", b"three"]
    assert _lines(items, Kind.COMMAND) == [DISABLE.strip(), ENABLE.strip()]


def test_a_command_without_a_last_line_feed() -> None:
    """R15's arrow."""
    made = Classifier("enabled")
    made.feed(OUT, b"a\n" + DISABLE.strip(), 1.0)
    made.end(OUT, 1.0)
    assert made.mode == "disabled"


def test_only_at_the_start_of_a_line() -> None:
    """R15; a prompt, a tab, a quote before it make it text."""
    text = b" " + DISABLE + b"x" + DISABLE + b"\t" + DISABLE
    made = _run((OUT, text))
    assert made.mode == "enabled"
    assert len(_lines(made, Kind.LOG)) == 3


def test_a_command_drawn_over_a_bar_counts_as_rendered() -> None:
    """R15's arrow: the line is the rendered line."""
    made = _run((OUT, b"\r 50%|#####     |\r                  \r" + DISABLE + b"secret\n"))
    assert made.mode == "disabled"
    assert b"secret" not in b"".join(_lines(made))


def test_a_switch_applies_to_the_other_stream() -> None:
    """R16."""
    made = _run((OUT, DISABLE), (ERR, b"secret\n"))
    assert b"secret" not in b"".join(_lines(made))


def test_the_other_stream_obeys_the_strictest_until_seen_empty() -> None:
    """R16's arrow: what may have been written before the switch stays hidden."""
    made = Classifier("disabled")
    made.feed(OUT, ENABLE, 1.0)
    made.feed(ERR, b"written before\n", 1.0)
    made.seen_empty(ERR, 1.0)
    made.feed(ERR, b"written after\n", 1.0)
    assert _lines(made, stream=ERR) == [b"written after"]


def test_what_was_printed_before_a_switch_to_disabled_is_logged_first() -> None:
    """R11's arrow: a half line and a bar of the other stream, a run of repeats."""
    made = _run((OUT, b"a\na\na\nhalf"), (ERR, b"\r 10%|#  |" + DISABLE), end=False)
    assert made.mode == "enabled"  # the bar stands before it on its line: no command
    made = _run((OUT, b"a\na\na\nhalf"), (ERR, DISABLE), end=False)
    items = made.take()
    assert _lines(items, stream=OUT) == [b"a", b"[last line repeated 2 times]", b"half"]
    assert _lines(items)[-1] == DISABLE.strip()


def test_nothing_from_before_leaks() -> None:
    """R11: no half line, no bar, no held repeat, no buffer."""
    made = Classifier("disabled")
    made.feed(OUT, b"s1\ns1\ns1\n\x1b[As2\n\rs3 half", 1.0)
    made.feed(ERR, ENABLE, 1.0)
    made.seen_empty(OUT, 1.0)
    made.feed(OUT, b" tail\n\x1b[A\x1b[Anew\n", 1.0)
    made.tick(100.0)
    made.end(OUT, 200.0)
    text = b"|".join(_lines(made, stream=OUT))
    assert b"s1" not in text
    assert b"s2" not in text
    assert b"s3" not in text
    assert b"new" in text


def test_half_a_line_is_not_metadata() -> None:
    """R11: what would have followed it isn't known when the mode changes."""
    made = Classifier("metadata")
    made.feed(OUT, b'{"a": 1}', 1.0)
    made.feed(ERR, ENABLE, 1.0)
    made.seen_empty(OUT, 1.0)
    made.feed(OUT, b" and more\n", 1.0)
    made.end(OUT, 2.0)
    assert _lines(made, stream=OUT) == [b" and more"]


# ---- commands that are none


def test_refused_commands_are_ordinary_output() -> None:
    """R15's arrow."""
    bad = b'/LOGCOMMAND  {"mode":"enabled"}'
    made = _run((OUT, bad + b"\n"))
    items = made.take()
    assert _lines(items, Kind.LOG) == [bad]
    assert _events(items) == ["command_refused"]
    made = _run((OUT, bad + b"\n"), mode="disabled")
    items = made.take()
    assert (_lines(items), _events(items), made.mode) == ([], ["command_refused"], "disabled")


def test_a_dict_repr_narrows() -> None:
    """R15's arrow: it must not leak a token; the event shows the right form, and never the line."""
    made = _run((OUT, b"/LOGCOMMAND {'mode': 'disabled', 'why': 'hush'}\nsecret\n"), mode="metadata")
    items = made.take()
    assert made.mode == "disabled"
    assert _lines(items) == []
    assert _events(items) == ["command_refused", "mode_changed"]
    assert "hush" not in str(items)
    assert '/LOGCOMMAND {"mode":"metadata"}' in str(items[0])


def test_commands_off() -> None:
    """R16's arrow: a user may switch commands off."""
    made = _run((OUT, DISABLE + b"/LOGCOMMAND {'mode': 'disabled'}\n"), obey=False)
    items = made.take()
    assert made.mode == "enabled"
    assert len(_lines(items, Kind.LOG)) == 2
    assert _events(items) == []


def test_stop_token() -> None:
    """R16's arrow: between stop and resume nothing is obeyed; the token is masked in what is logged."""
    text = (
        b'/LOGCOMMAND {"stop":"tok-12345678"}\n'
        + DISABLE
        + b'/LOGCOMMAND {"resume":"wrong"}\nsaid tok-12345678\n/LOGCOMMAND {"resume":"tok-12345678"}\n'
        + METADATA
    )
    made = _run((OUT, text))
    items = made.take()
    assert made.mode == "metadata"
    assert _lines(items, Kind.LOG) == [DISABLE.strip(), b'/LOGCOMMAND {"resume":"wrong"}', b"said ***"]
    assert _lines(items, Kind.COMMAND) == [
        b'/LOGCOMMAND {"stop":"***"}',
        b'/LOGCOMMAND {"resume":"***"}',
        METADATA.strip(),
    ]
    assert "tok-12345678" not in str(items)
    assert _events(items) == ["commands_fenced", "commands_resumed", "mode_changed"]


def test_a_fence_holds_for_the_other_stream_until_seen_empty() -> None:
    made = Classifier("enabled")
    made.feed(OUT, b'/LOGCOMMAND {"stop":"t"}\n', 1.0)
    made.feed(OUT, b'/LOGCOMMAND {"resume":"t"}\n', 1.0)
    made.feed(ERR, DISABLE, 1.0)  # may have been written within the fence
    assert made.mode == "enabled"
    made.seen_empty(ERR, 1.0)
    made.feed(ERR, DISABLE, 1.0)
    assert made.mode == "disabled"


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
    """R20: blanks included, but not those that an erased bar left to the right."""
    made = _run((OUT, b'{"a": 1} \n {"b": 1}\nx {"c": 1}\n\r          \r{"d": 1}\n{"e": 1}\r\n'))
    items = made.take()
    assert _lines(items, Kind.METADATA) == [b'{"d": 1}', b'{"e": 1}']
    assert _lines(items, Kind.LOG) == [b'{"a": 1}', b' {"b": 1}', b'x {"c": 1}']


def test_json_written_above_a_bar() -> None:
    """R20's arrow: tqdm.write(json) clears its bar, writes, and draws the bar again."""
    bar = b"\r 10%|#         | 1/10"
    made = _run((OUT, bar + b"\r" + b" " * (len(bar) - 1) + b'\r{"loss": 0.5}\n' + bar + b"\n"))
    assert _lines(made, Kind.METADATA) == [b'{"loss": 0.5}']


def test_hints_once() -> None:
    """R21's arrow: one event per job, which never quotes the line."""
    made = _run((OUT, b'{"hush": NaN}\n{"hush": NaN}\n{\'hush\': 1}\n{"hush": Infinity}\n'))
    items = made.take()
    assert [item.record["reason"] for item in items if isinstance(item, Event)] == ["nan", "repr"]
    assert "hush" not in str([item for item in items if isinstance(item, Event)])
    assert len(_lines(items, Kind.LOG)) == 3  # and a note: the first came twice


def test_records_are_points() -> None:
    """R31: metadata is never collapsed; `n` counts the records with the same set of keys."""
    made = _run((OUT, b'{"a": 1}\n{"a": 1}\n{"b": 1, "a": 2}\n{"a": 1}\n{"a": 3, "b": 4}\n'))
    records = [item for item in made.take() if isinstance(item, Lines)]
    assert [item.attrs for item in records] == [{"n": 1}, {"n": 2}, {"n": 1}, {"n": 3}, {"n": 2}]


# ---- repeats and blank lines


def test_repeats() -> None:
    """R30's arrow: the first is logged, then one message with the count."""
    made = _run((OUT, b"w\n" * 500 + b"x\n"))
    items = [item for item in made.take() if isinstance(item, Lines)]
    assert [item.text for item in items] == [b"w\n", b"[last line repeated 499 times]\n", b"x\n"]
    assert items[1].attrs == {"repeat": 499}
    assert made.ledger()["stdout"]["collapsed"] == 499


def test_repeats_are_said_before_a_command() -> None:
    """A command that leaves the mode as it is included: a note is about the line before it."""
    command = b'/LOGCOMMAND {"mode":"enabled"}\n'
    made = _run((OUT, b"w\nw\n" + command + b"w\n"))
    items = [item for item in made.take() if isinstance(item, Lines)]
    assert [item.text for item in items] == [b"w\n", b"[last line repeated 1 time]\n", command, b"w\n"]


def test_repeats_are_said_while_they_go_on() -> None:
    """R30's arrow: at least every 10 s."""
    made = Classifier("enabled")
    made.feed(OUT, b"w\nw\n", 0.0)
    made.tick(stream_log.REPEAT_SECS - 1)
    assert _lines(made, Kind.NOTE) == []
    assert made.next_tick() is not None
    assert (made.next_tick() or 0) <= stream_log.REPEAT_SECS
    made.tick(stream_log.REPEAT_SECS)
    made.feed(OUT, b"w\n" * 3, 12.0)
    made.tick(12.0 + stream_log.REPEAT_SECS)
    made.feed(OUT, b"x\n", 30.0)
    assert _lines(made, Kind.NOTE) == [b"[last line repeated 1 time]", b"[last line repeated 3 times]"]


def test_repeats_are_never_fuzzy_and_per_stream() -> None:
    """R30's arrow."""
    made = _run((OUT, b"step 1\nstep 2\nA\n"), (ERR, b"A\n"), (OUT, b"A\n"))
    assert _lines(made) == [b"step 1", b"step 2", b"A", b"A", b"[last line repeated 1 time]"]


def test_repeats_across_chunks_and_blanks_at_the_end() -> None:
    made = _run((OUT, b"a\n"), (OUT, b"a  \n"), (OUT, b"a\nb\n"))
    assert _lines(made) == [b"a", b"[last line repeated 2 times]", b"b"]


def test_blank_lines() -> None:
    """R31: several become one."""
    made = _run((OUT, b"a\n\n\n"), (OUT, b"\n   \nb\n\nc\n"))
    assert _lines(made) == [b"a", b"", b"b", b"", b"c"]
    assert made.ledger()["stdout"]["blank"] == 3


# ---- status


def test_live_status() -> None:
    """R29's arrow: what a bar shows now; at most every 10 s, only when it changed, withdrawn at the end."""
    made = Classifier("enabled")
    made.feed(OUT, b"\r 10%|#  |", 100.0)
    made.tick(100.5)
    assert _lines(made, Kind.STATUS) == [b" 10%|#  |"]
    made.feed(OUT, b"\r 20%|## |", 101.0)
    made.tick(102.0)
    assert _lines(made, Kind.STATUS) == []
    made.tick(111.0)
    made.tick(122.0)
    assert _lines(made, Kind.STATUS) == [b" 20%|## |"]
    made.end(OUT, 123.0)
    items = made.take()
    assert _lines(items, Kind.STATUS) == [b""]
    assert _lines(items, Kind.LOG) == [b" 20%|## |"]


def test_no_status_outside_enabled() -> None:
    """R17's arrow: a switch away withdraws the last one."""
    made = Classifier("enabled")
    made.feed(OUT, b"\r 10%|#  |", 100.0)
    made.tick(100.5)
    made.take()
    made.feed(ERR, DISABLE, 101.0)
    assert _lines(made, Kind.STATUS) == [b""]
    made.feed(OUT, b"\r 20%|## |", 102.0)
    made.tick(200.0)
    assert _lines(made, Kind.STATUS) == []


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
    """ARCHITECTURE, Names: read = stored + collapsed + blank + dropped + commands + pending + lost, at any time."""
    made = Classifier(mode)
    stored = 0
    for number, (stream, data) in enumerate(steps):
        made.feed(stream, data, float(number))
        made.tick(float(number))
        stored += len(_lines(made, Kind.LOG, Kind.METADATA))
        _check_balance(made, stored)
    made.end(OUT, 1e6)
    made.end(ERR, 1e6)
    stored += len(_lines(made, Kind.LOG, Kind.METADATA))
    _check_balance(made, stored)
    assert made.ledger()["stdout"]["pending"] == 0


def _check_balance(made: Classifier, stored: int) -> None:
    ledger = made.ledger()
    for name in ("stdout", "stderr"):
        counts = ledger[name]
        parts = ("stored", "collapsed", "blank", "dropped", "commands", "pending", "lost")
        assert counts["read"] == sum(counts[part] for part in parts)
    assert ledger["stdout"]["stored"] + ledger["stderr"]["stored"] == stored


@given(_pieces, st.integers(1, 7))
@settings(max_examples=examples(100))
def test_any_split_gives_the_same(steps: list[tuple[Stream, bytes]], size: int) -> None:
    """R15's arrow."""
    whole, split = Classifier("enabled"), Classifier("enabled")
    for stream, data in steps:
        whole.feed(stream, data, 1.0)
        for at in range(0, len(data), size):
            split.feed(stream, data[at : at + size], 1.0)
    for made in (whole, split):
        made.end(OUT, 2.0)
        made.end(ERR, 2.0)
    for stream in (OUT, ERR):
        one = [(item.kind, item.text) for item in whole.take() if isinstance(item, Lines) and item.stream is stream]
        other = [(item.kind, item.text) for item in split.take() if isinstance(item, Lines) and item.stream is stream]
        assert _joined(one) == _joined(other)


def _joined(items: list[tuple[Kind, bytes]]) -> list[tuple[Kind, bytes]]:
    joined: list[tuple[Kind, bytes]] = []
    for kind, text in items:
        if joined and joined[-1][0] is kind:
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined
