"""Influx line protocol: which lines are measurements, the reasons for refusals, and no exception
for any bytes."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper.classify import metadata
from logshipper.telegraf.line_protocol import MAX_FIELDS, MAX_LINE_BYTES, MAX_TAGS, REASONS, parse


def records(text: str) -> list[object]:
    return [
        json.loads(measurement.record) if measurement.record else measurement.reason
        for measurement in parse(text.encode())
    ]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("training_loss value=0.46", {"training_loss": 0.46}),
        ("test_metric value=123i", {"test_metric": 123}),
        ("m a=100i,b=-1i,c=True", {"m": {"a": 100, "b": -1, "c": True}}),
        ("m,server_name=my-server value=1i", {"m": 1, "tags": {"server_name": "my-server"}}),
        ('m value="say \\"hi\\" \\\\ a,b c=d"', {"m": 'say "hi" \\ a,b c=d'}),
        ("m\\ x\\,y,t\\ 1=a\\=b f\\ 1=1.5e-3", {"m x,y": {"f 1": 0.0015}, "tags": {"t 1": "a=b"}}),
        ("m value=1 1422568543702900257", {"m": 1.0, "time": 1422568543702900257}),
        ("m  value=t   -5  ", {"m": True, "time": -5}),
        ("m value=18446744073709551615u", {"m": 18446744073709551615}),
        ("m value=.5", {"m": 0.5}),
        ("m value=1,value=2", {"m": 2.0}),
        ("tags,a=b value=1", {"tags": 1.0, "tags_": {"a": "b"}}),
        ("time value=1 7", {"time": 1.0, "time_": 7}),
        ('\u00e9,t=\u00e9 f="\U0001f600"', {"\u00e9": {"f": "\U0001f600"}, "tags": {"t": "\u00e9"}}),
        ('m value="two\nlines"', {"m": "two\nlines"}),
    ],
)  # fmt: skip
def test_a_measurement_becomes_a_record(line: str, record: object) -> None:
    assert records(line) == [record]
    (measurement,) = parse(line.encode())
    assert (
        metadata.keys_of(measurement.record) == measurement.keys
    )  # metadata like any printed record


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("m value=nan", "not_finite"),
        ("m value=inf", "not_finite"),
        ("m value=-Infinity", "not_finite"),
        ("m value=1e999", "not_finite"),
        ('m value="say "hi" to"', "string"),
        ('m value="never ends', "string"),
        ("m value=[1, 2, 3]", "value"),
        ("m value={'a': 1}", "value"),
        ("m value=", "value"),
        ("m value=99999999999999999999i", "value"),
        ("m value=0x10", "value"),
        ("m,server= value=1", "tags"),
        ("m,=x value=1", "tags"),
        ("m,server value=1", "tags"),
        ("m ", "no_fields"),
        ("m", "no_fields"),
        ("m,a=b", "no_fields"),
        ("m justtext", "no_fields"),
        ("m value=1 soon", "time"),
        ("m value=1 1 1", "time"),
        ("m value=1 9999999999999999999", "time"),
        ("m value=1 -9999999999999999999", "time"),
        (",a=b value=1", "measurement"),
        ("m " + ",".join(f"f{number}=1" for number in range(MAX_FIELDS + 1)), "too_many"),
        (
            "m," + ",".join(f"t{number}=1" for number in range(MAX_TAGS + 1)) + " value=1",
            "too_many",
        ),
        (f'm value="{"x" * MAX_LINE_BYTES}"', "too_long"),
    ],
)
def test_what_is_none_says_why_and_costs_no_other_line(line: str, reason: str) -> None:
    assert reason in REASONS
    assert records(f"{line}\nm value=1i\n") == [reason, {"m": 1}] or '"' in line
    assert records(f"# a comment\n\nbefore value=1i\r\n{line}\n")[:2] == [{"before": 1}, reason]


def test_bytes_that_are_no_text_cost_one_line() -> None:
    measurements = list(parse(b"a value=1\n\xff value=1\nb value=2"))
    assert [measurement.reason for measurement in measurements] == ["", "encoding", ""]


@given(
    st.one_of(
        st.binary(max_size=200), st.text(alphabet='m,= \\"\n\r#1.eiut', max_size=80).map(str.encode)
    )
)
def test_any_bytes_at_all_never_raise_and_all_records_are_metadata(data: bytes) -> None:
    for measurement in parse(data):
        assert bool(measurement.record) != bool(measurement.reason)
        assert measurement.reason in (*REASONS, "")
        if measurement.record:
            assert metadata.keys_of(measurement.record) == measurement.keys


@given(st.text(alphabet="mt,= \r\t#1.-eiunaT", max_size=40))
def test_lines_without_quotes_are_read_as_those_with_them(line: str) -> None:
    """A quote anywhere in the data selects the slow parser. Both parsers must agree."""
    assert list(parse(line.encode())) == list(parse(f'{line}\nx value="'.encode()))[:-1]


_NAMES = st.text(
    st.characters(exclude_characters='\n\\\r\t#"', exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=8,
)
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.one_of(
    st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), _NUMBERS, st.text(max_size=9)
)


@given(
    _NAMES,
    st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4),
    st.dictionaries(_NAMES, _NAMES, max_size=3),
)
def test_what_is_written_by_the_book_is_read_as_it_was(
    name: str, fields: dict[str, object], tags: dict[str, str]
) -> None:
    name, tags = (
        name.strip() or "m",
        {key: value for key, value in tags.items() if value.strip() and key.strip()},
    )
    text = "".join(
        [_escaped(name), *(f",{_escaped(key)}={_escaped(value)}" for key, value in tags.items())]
    )
    text += " " + ",".join(
        f"{_escaped(key)}={_field_value(value)}" for key, value in fields.items()
    )
    (measurement,) = parse(text.encode("utf-8", "replace"))
    assert measurement.reason == "", text
    record = json.loads(measurement.record)
    values = {key: _readable(value) for key, value in fields.items()}
    assert record[name] == (values["value"] if list(values) == ["value"] else values)
    assert record.get("tags_" if name == "tags" else "tags", {}) == tags or name == "tags"


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in ", =" else char for char in text)


def _field_value(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value}i" if type(value) is int else str(value)


def _readable(value: object) -> object:
    if isinstance(value, float):
        assert math.isfinite(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
