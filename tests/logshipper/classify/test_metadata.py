"""Recognition of metadata lines (R18-R21)."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify.metadata import MAX_DEPTH, REPR_HINT, KeysWithGaps, keys_of


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        (b'{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}', ("epoch", "loss", "acc")),
        (
            b'{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
            ("step", "lr", "flops", "time"),
        ),
        (b'{"size": "big", "speed": "slow", "lr": 0.1}', ("size", "speed", "lr")),
        (b'{"a": {"b": [1, {"c": null}]}}', ("a",)),
        (b"{}", ()),
        (b'{"a": 1, "a": 2}', ("a",)),
        (b'{"a": %s}' % (b"9" * 400), ("a",)),
        (b'{"a": %s}' % (b"9" * 5000), ("a",)),
        (b'{"a": 12345678901234567890}', ("a",)),
        (b'{"a": 1e999}', ("a",)),
        (b'{"a": "\\ud800"}', ("a",)),
        (b'{"a": ' * 400 + b"1" + b"}" * 400, ("a",)),
        (b'{"a": "%s"}' % (b"x" * (1 << 20)), ("a",)),
        ('{"ä": "ü"}'.encode(), ("ä",)),
    ],
)
def test_metadata(line: bytes, keys: tuple[str, ...]) -> None:
    """R18, R19; nested, repeated keys, big integers, lone surrogates, a line of 1 MB."""
    assert keys_of(line) == keys


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b' {"a": 1}',
        b'{"a": 1} ',
        b'{"a": 1} x',
        b'x {"a": 1}',
        b'{"a": 1}{"b": 2}',
        b"[1, 2]",
        b'"text"',
        b"7",
        b"{not json}",
        b"{0: 1}",
        b"{'a'}",
        b'{"a": 01}',
        b'{"a": 1,}',
        b'{"a": "\xff"}',
        b'{"a": "tab\there"}',
        b'{"a":' * (4 * MAX_DEPTH) + b"1" + b"}" * (4 * MAX_DEPTH),
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"' * 100_000 + b"}",
        b"{" * 100_000 + b"}" * 100_000,
    ],
)
def test_other_lines(line: bytes) -> None:
    """R20; hostile input never raises."""
    assert keys_of(line) is None


def test_near_misses_get_a_hint() -> None:
    """R21: a dict's repr is not JSON."""
    assert keys_of(b"{'epoch': 1, 'loss': 0.5}") is REPR_HINT


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_dumps_writes_of_no_number_is_a_record(value: float) -> None:
    """R18: everything that Python's json.dumps writes for a dict of floats."""
    record = {"step": 1, "loss": value, "all": [value, {"deep": value}], "big": 10**30}
    keys = keys_of(json.dumps(record).encode())
    assert keys == ("step", "loss", "all", "big")
    assert type(keys) is KeysWithGaps
    assert type(keys_of(b'{"text": "NaN", "big": 1000000000000000000000000}')) is tuple


@pytest.mark.parametrize("value", ["NaN, x", "nan", "+Infinity", "inf", "-NaN", "NaN1", '"a": NaN'])
def test_other_spellings_of_no_number_are_no_json(value: str) -> None:
    assert keys_of(f'{{"loss": {value}}}'.encode()) is None


def test_stdlib_would_write_what_is_read() -> None:
    """The limits of the two parsers differ, but every line that json.dumps writes for sane data is
    metadata."""
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert keys_of(json.dumps({"a": deep}).encode()) == ("a",)


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _values, max_size=6), st.booleans())
def test_every_object_is_found(record: dict[str, Any], ascii_only: bool) -> None:
    line = json.dumps(record, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert keys_of(line) == (None if _has_surrogates(line) else tuple(record))


def _has_surrogates(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


@given(st.text(alphabet="{}[]\":,\\0123456789eE+-.nulltruefalsNaI '", max_size=60))
def test_agrees_with_the_standard_library(text: str) -> None:
    line = ("{" + text + "}").encode()
    try:
        value = json.loads(line, parse_constant=lambda name: 1 / 0)
    except (ValueError, ZeroDivisionError):
        assert not isinstance(keys_of(line), tuple)
    else:
        assert keys_of(line) == tuple(value)
