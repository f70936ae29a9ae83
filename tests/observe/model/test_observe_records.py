"""Parsing metadata records keeps every value as printed (R19, R22)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logshipper_observe.model import records

R19 = [
    '{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}',
    '{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
    '{"size": "big", "speed": "slow", "lr": 0.1}',
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=6)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])


def test_r19_values_stay_as_they_were_printed() -> None:
    assert records.split(R19[0]) == {"epoch": "1", "loss": "7.2355865", "acc": "0.00123"}
    assert records.split(R19[1])["flops"] == "789773523480.1762"
    assert records.split(R19[2]) == {"size": '"big"', "speed": '"slow"', "lr": "0.1"}


@settings(deadline=None)
@given(OBJECTS, SEPARATORS, st.booleans())
def test_split_finds_what_json_finds(
    value: dict[str, object], separators: tuple[str, str], ascii_only: bool
) -> None:
    line = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    fields = records.split(line)
    assert list(fields) == list(value)
    assert {key: json.loads(text) for key, text in fields.items()} == value
    assert json.loads(records.rebuilt(fields)) == value


@settings(deadline=None)
@given(OBJECTS)
def test_flat_leaves_nothing_out(value: dict[str, object]) -> None:
    tree: dict[str, object] = {}
    for path, text in records.flat(json.dumps(value)).items():
        inside = tree
        for key in path[:-1]:
            branch = inside.setdefault(key, {})
            assert isinstance(branch, dict)
            inside = branch
        inside[path[-1]] = json.loads(text)
    assert tree == value


@pytest.mark.parametrize(
    "line",
    ["{}", "{ }", '{"a" : {} , "b":[ ]}', '{"a":"}{,:\\"\\\\"}', '{"a":[{"b":["]"]}],"c":1}'],
)
def test_split_of_odd_objects(line: str) -> None:
    assert {key: json.loads(text) for key, text in records.split(line).items()} == json.loads(line)


def test_hostile_objects_neither_raise_nor_stall() -> None:
    deep = '{"a":' * 512 + "1" + "}" * 512
    assert list(records.flat(deep)) == [("a",) * records.FLAT_DEPTH]
    digits = "9" * 5000
    assert records.split(f'{{"n":{digits},"s":"{"x" * 1_000_000}"}}')["n"] == digits
    assert records.split('{"a":1,"a":2}') == {"a": "2"}, "of a key given twice, the last"
    assert records.display_text('"\\ud800"') == '"\\ud800"', "a lone surrogate stays escaped"
    assert records.cell('"\\ud800"') == '"\\ud800"'
    assert records.at_path(deep, ("a",) * 511).endswith('{"a":1}')  # type: ignore[union-attr]  # the path exists


def test_r22_a_string_that_looks_like_a_number_is_told_apart() -> None:
    texts = ('"0.1"', "0.1", "true", '"true"', '"big"', '"a\\nb"', '" x"', "null")
    assert [records.display_text(text) for text in texts] == [
        '"0.1"', "0.1", "true", '"true"', "big", '"a\\nb"', '" x"', "null",
    ]  # fmt: skip
    assert [records.is_number(text) for text in ("1", "-0.5e-3", '"0.1"', "true", "[1]")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_at_path() -> None:
    line = '{"a": {"b": {"c": 1.50}}, "d": 2}'
    assert records.at_path(line, ("a", "b", "c")) == "1.50"
    assert records.at_path(line, ("d", "x")) is None
    assert records.at_path(line, ("y",)) is None
