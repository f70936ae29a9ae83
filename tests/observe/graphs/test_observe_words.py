"""Words, ticks and plain tables for people."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper.safe_text import safe, safe_json, safe_lines, without_controls
from logshipper_ingest.model.job import JobSummary
from logshipper_observe.base import output, words
from logshipper_observe.base.output import Output
from logshipper_observe.commands.reading.show import _Page
from logshipper_observe.graphs.ticks import axis_range, labels, ticks, time_unit
from logshipper_observe.model.overlay import NO_MARKS
from logshipper_observe.query.asked import UnknownKey, pick_keys
from tests.tools.fakes.observe_fake import FakeReader

NS = 10**9


UNSAFE = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
                                 *range(0x2066, 0x206A), *range(0xD800, 0xE000))]  # fmt: skip
any_text = st.text(st.characters() | st.sampled_from(UNSAFE))


@settings(deadline=None)
@given(any_text)
def test_nothing_that_a_terminal_obeys_is_safe(text: str) -> None:
    for safe_text, line_breaks in ((safe(text), ""), (safe_lines(text), "\n")):
        assert len(safe_text) == len(text)
        assert not set(safe_text) & (set(UNSAFE) - set(line_breaks))
        safe_text.encode()
    assert not any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in without_controls(text))


@settings(deadline=None)
@given(any_text)
def test_json_is_made_safe_and_says_the_same(text: str) -> None:
    safe_text = safe_json(json.dumps({text: text}, ensure_ascii=False))
    assert not set(safe_text) & (set(UNSAFE) - {"\n"})
    assert json.loads(safe_text) == json.loads(json.dumps({text: text}))


def test_safe_keeps_what_is_harmless() -> None:
    assert safe("epoch 1: 100%|██████| é 日本 ⚠️") == "epoch 1: 100%|██████| é 日本 ⚠️"
    assert safe("\x1b[31m\x9b\x07\t") == "�[31m���"
    assert safe("safe\u202etxt.exe") == "safe�txt.exe"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (45_678, "45.7 kB"),
        (999_600, "1.00 MB"),
        (10**15, "1000 TB"),
    ],
)
def test_size(octets: int, text: str) -> None:
    assert words.size(octets) == text


@pytest.mark.parametrize(
    ("secs", "text"),
    [
        (-1, "0.00s"),
        (0.349, "0.35s"),
        (12.34, "12.3s"),
        (59.96, "1m00s"),
        (245, "4m05s"),
        (7380, "2h03m"),
        (273600, "3d04h"),
    ],
)
def test_duration(secs: float, text: str) -> None:
    assert words.duration(secs) == text


def test_times() -> None:
    time_ns = 1_780_000_000_123_456_789
    assert words.utc(time_ns) == "2026-05-28T20:26:40.123456789Z"
    assert words.local(time_ns, millis=True).endswith(".123")
    assert words.when(time_ns, time_ns + 2 * NS) == "just now"
    assert words.when(time_ns, time_ns + 65 * NS) == "1 min ago"
    assert words.when(time_ns, time_ns + 5 * 3600 * NS) == "5 h ago"
    assert words.when(time_ns, time_ns + 3 * 86400 * NS) == words.local(time_ns)[5:16]
    assert words.when(time_ns, time_ns + 900 * 86400 * NS) == words.local(time_ns)[:10]


def test_outcomes() -> None:
    assert words.exit_words(3, 0) == "exit code 3"
    assert words.exit_words(None, 9) == "died of SIGKILL"
    assert words.exit_words(None, 0) == ""
    assert [words.exit_short(0, 0), words.exit_short(None, 15), words.exit_short(None, 0)] == [
        "0",
        "SIGTERM",
        "-",
    ]
    assert words.signal_name(200) == "signal 200"
    assert words.times_smaller(1000, 100) == "10 times smaller"
    assert words.times_smaller(100, 1000) == words.times_smaller(100, 0) == ""


def test_a_running_jobs_output_in_loki_is_not_nothing() -> None:
    """The count of bytes comes with the job's end; its lines come earlier."""
    reader = FakeReader(['{"epoch": 1}', '{"epoch": 2}'])
    running = replace(
        reader.summary, state="RUNNING", ended_ns=None, bytes_printed=0, bytes_logged=0
    )

    def output(job: JobSummary) -> str:
        page = _Page(Output(), reader, job, [], 0, NO_MARKS)  # type: ignore[arg-type]  # a fake
        return page._output()

    assert output(running) == "2 lines logged so far; Loki gets the bytes at the end"
    assert output(replace(running, lines=0)) == output(running), "its lines are counted later"
    assert output(replace(running, lines=0, records=0)) == "nothing printed"
    assert output(reader.summary).startswith("1.00 kB printed")


def test_numbers_of_any_size() -> None:
    assert words.number(1.0, integer=True) == "1"
    assert words.number(0.000123456789) == "0.000123457"
    assert words.number(10**400, integer=True) == "1e+400"
    assert words.number(-(10**400), integer=True) == "-1e+400"
    assert words.number(None) == "-"


@settings(deadline=None)
@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.integers(2, 30), st.booleans())
def test_ticks_lie_on_the_axis(first: float, second: float, limit: int, integer: bool) -> None:
    low, high = axis_range(min(first, second), max(first, second))
    assert low < high
    tick_values = ticks(low, high, limit, integer=integer)
    assert 2 <= len(tick_values) <= limit
    room = (high - low) * 1e-6
    assert all(low - room <= tick <= high + room for tick in tick_values)
    assert all(math.isfinite(tick) for tick in tick_values)
    assert len(labels(tick_values)) == len(tick_values)


@pytest.mark.parametrize("low", [1e6, 1e9, -3e7, 0.12345678, 1e-9, 2.0**53])
@pytest.mark.parametrize("span", [1e-5, 4e-4, 1, 7, 40])
def test_no_two_ticks_of_an_axis_look_alike(low: float, span: float) -> None:
    found = ticks(*axis_range(low, low + span), 6)
    texts = labels(found)
    assert len(set(texts)) == len(set(found)) > 1
    assert max(map(len, texts)) <= 24


def test_ticks_are_round() -> None:
    assert ticks(1, 100, 6) == [20, 40, 60, 80, 100]
    assert labels(ticks(0.1, 0.95, 5)) == ["0.2", "0.4", "0.6", "0.8"]
    assert ticks(1, 3, 9, integer=True) == [1, 2, 3]
    assert labels([2.5, 5.0, 7.5]) == ["2.5", "5.0", "7.5"]
    assert time_unit(5400) == (60.0, "min")


def test_wrong_key_gets_a_hint() -> None:
    paths = [("loss",), ("val_loss",), ("a", "b")]
    with pytest.raises(UnknownKey, match="no key 'Loss'; did you mean loss or val_loss"):
        pick_keys(["Loss"], paths)
    with pytest.raises(UnknownKey, match=r"it has a\.b, loss, val_loss"):
        pick_keys(["zzzzzz"], paths)
    assert pick_keys(["a.b,loss", "loss"], paths) == [("a", "b"), ("loss",)]
    assert pick_keys(["a,b"], [("a,b",), ("a",)]) == [("a,b",)]


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(JSON_VALUES, st.sampled_from([None, "  "]))
def test_json_is_json(value: object, indent: str | None) -> None:
    text = output.to_json(value, indent)
    assert json.loads(text) == value
    text.encode()  # the output escapes lone surrogates
    assert indent is not None or "\n" not in text


def test_json_keeps_texts_and_knows_no_infinity() -> None:
    big = "1" * 5000
    assert (
        output.to_json({"a": output.Raw(big), "b": math.inf, "c": []})
        == f'{{"a":{big},"b":null,"c":[]}}'
    )


def test_plain_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [output.Column("id"), output.Column("n", right=True), output.Column("name")]
    wide = "x" * 100
    output.Output().table(columns, [["a", "1", "日本"], ["bcd", "", "tab\there"], [wide, "22", ""]])
    lines = capsys.readouterr().out.splitlines()
    at = max(len("id"), output._ALIGNED_UP_TO)
    assert lines[0].startswith("id ")
    assert lines[0][at + 3] == "n"
    assert lines[1].split() == ["a", "1", "日本"]
    assert lines[2].split() == ["bcd", "-", "tab�here"], (
        "an empty cell is a dash, so that columns can be counted"
    )
    assert lines[3] == f"{wide}  22  -", "nothing is cut off"
