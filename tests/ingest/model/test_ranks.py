"""Ranks of keys for the X axis, and keys as labels, case by case."""

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logshipper_ingest.model.courses import Trend
from logshipper_ingest.model.metadata_keys import Path
from logshipper_ingest.model.ranks import (
    MAX_POINTS,
    RULE_UNIT,
    JobKeys,
    alphabetical_code,
    escape,
    json_path,
    rank,
    thinning_digits,
    unfit,
)

RISING, ONE_WAY, ANY = 1, 2, 3


def keys_of(max_keys: int = 100, max_bytes: int = 128) -> tuple[JobKeys, list[tuple[str, Path]]]:
    reports: list[tuple[str, Path]] = []
    return JobKeys(
        max_keys, max_bytes, lambda reason, path: reports.append((reason, path))
    ), reports


def names(keys: JobKeys, trends: Mapping[Path, Trend]) -> list[str]:
    return [labels.key for labels, _ in keys.visible_keys(trends)[0].values()]


# ---- labels


@pytest.mark.parametrize(
    ("path", "expression"),
    [
        (("loss",), "loss"),
        (("opt", "beta"), 'opt"]["beta'),
        (("val/acc",), "val/acc"),
        (("a", "b", "ü c"), 'a"]["b"]["ü c'),
    ],
)
def test_path_is_what_stands_in_logql_s_json_expression(path: Path, expression: str) -> None:
    assert json_path(path) == expression
    assert unfit(path, 128) == ""


@pytest.mark.parametrize(
    "key",
    [
        *(
            'say "hi"',
            "a\\b",
            "`",
            "$x",
            "${job}",
            "[[job]]",
            "loss[0]",
            "]",
            "{{.lsx}}",
            "a\nb",
            "\x00",
            "\x7f",
            "\x9b1m",
        ),
        *("\ud800", "\u202eevil", "\u2028"),
    ],
)
def test_keys_that_no_query_can_hold_are_left_out(key: str) -> None:
    assert unfit((key,), 128) == "characters"
    assert unfit(("outer", key), 128) == "characters"


@pytest.mark.parametrize(
    "key",
    [
        "loss",
        "val/acc",
        "a.b",
        "x y",
        "ß",
        "日本",
        "🙂",
        "a'b",
        "a{b}",
        "[0",
        "100%",
        "a,b",
        "<b>&",
    ],
)
def test_other_keys_are_fine(key: str) -> None:
    assert unfit((key,), 128) == ""


def test_empty_and_long_keys_are_left_out() -> None:
    assert unfit(("",), 128) == "empty"
    assert unfit(("a", ""), 128) == "empty"
    assert unfit(("ü" * 64,), 128) == ""
    assert unfit(("ü" * 64 + "x",), 128) == "too_long"
    assert unfit(("a" * 62, "b" * 62), 128) == ""  # 62 + 62 and four characters around them
    assert unfit(("a" * 62, "b" * 63), 128) == "too_long"


def test_labels_are_escaped() -> None:
    assert escape('a"b\\c\nd') == r"a\"b\\c\nd"
    assert escape("\x00\x1b\ud800\x85é") == "\ufffd\ufffd\ufffd\ufffdé"


# ---- thinning


@pytest.mark.parametrize(
    ("records", "digits"),
    [
        (0, ""),
        (4500, ""),
        (4501, "0"),
        (45_000, "0"),
        (45_001, "00"),
        (450_000, "00"),
        (10**9, "000000"),
    ],
)
def test_thinning_digits(records: int, digits: str) -> None:
    assert thinning_digits(records) == digits


@given(st.integers(0, 10**12))
def test_at_most_4500_points_remain_and_no_fewer_than_need_be(records: int) -> None:
    digits = thinning_digits(records)
    assert records / 10 ** len(digits) <= MAX_POINTS
    assert not digits or records / 10 ** (len(digits) - 1) > MAX_POINTS


# ---- ranks


@given(st.text(max_size=9), st.text(max_size=9))
@example("äz", "öa")  # both begin with a non-ASCII character, so the rest doesn't count
@example("a", "a\x00")
@example("loss", "loss_a")
def test_codes_are_in_alphabetical_order(first_key: str, second_key: str) -> None:
    first, second = sorted([first_key, second_key])
    assert alphabetical_code(first) <= alphabetical_code(second) < 1 << 42


def test_first_six_characters_are_told_apart() -> None:
    assert alphabetical_code("train/a") == alphabetical_code("train/b")
    assert alphabetical_code("trainA") < alphabetical_code("train_") < alphabetical_code("traina")
    assert alphabetical_code("los") < alphabetical_code("loss")


@given(st.tuples(*[st.integers(0, 7), st.integers(0, (1 << 42) - 1), st.integers(0, 255)] * 2))
def test_a_float_holds_rule_code_and_place_exactly(
    facts: tuple[int, int, int, int, int, int],
) -> None:
    first, second = facts[:3], facts[3:]
    assert (rank(*first) < rank(*second)) is (first < second)
    assert rank(*first) // RULE_UNIT == first[0]
    assert rank(*first) < 2**53


def test_place_has_a_cap() -> None:
    assert rank(3, 1, 255) == rank(3, 1, 100_000) < rank(3, 2, 0)


def test_where_the_worst_of_two_nodes_is_not_the_rule_over_both() -> None:
    """Each node merges its captures by shape and by integer, but Prometheus only sees the rule of
    each. One pair has a better rule there. A key is a rising fraction on one node (4), and an
    integer that only falls on the other (5). Together it is a number that goes one way (6), while
    Prometheus gives 5."""
    kinds = list(product((RISING, ONE_WAY, ANY), (True, False)))
    different = [
        (first, second)
        for first, second in product(kinds, kinds)
        if Trend(*first, 1).merge(Trend(*second, 1)).rule()
        != max(Trend(*first, 1).rule(), Trend(*second, 1).rule())
    ]
    pair = ((RISING, False), (ONE_WAY, True))
    assert different == [pair, pair[::-1]]
    assert Trend(*pair[0], 1).merge(Trend(*pair[1], 1)).rule() == 6


# ---- exported keys


def test_progress_and_epoch_always_have_room() -> None:
    keys, reports = keys_of(max_keys=2)
    trends: dict[Path, Trend] = {
        ("a",): Trend(RISING, True, 5),
        ("b",): Trend(RISING, True, 5),
        ("c",): Trend(RISING, True, 5),
    }
    assert names(keys, trends) == ["a", "b"]
    special_keys: dict[Path, Trend] = {
        ("progress",): Trend(0, False, 1),
        ("epoch",): Trend(0, True, 1),
    }
    visible, left_out = keys.visible_keys({**trends, **special_keys})
    assert sorted(labels.key for labels, _ in visible.values()) == ["a", "b", "epoch", "progress"]
    assert {labels.key: rule for labels, rule in visible.values()}["progress"] == 1
    assert left_out == {"too_many": 1}
    assert reports == [("too_many", ("c",))]


def test_the_best_keys_are_shown_and_stay() -> None:
    keys, _ = keys_of(max_keys=1)
    assert names(keys, {("a",): Trend(0, True, 1), ("b",): Trend(0, True, 1)}) == [
        "a"
    ]  # nothing to choose by yet
    assert names(keys, {("a",): Trend(ANY, True, 2), ("b",): Trend(RISING, True, 2)}) == ["b"]
    worse: dict[Path, Trend] = {
        ("a",): Trend(RISING, True, 3),
        ("b",): Trend(ANY, False, 3),
        ("0",): Trend(RISING, True, 1),
    }
    assert names(keys, worse) == [
        "b"
    ]  # Prometheus remembers its better rank, so it must get the worse one


def test_of_two_keys_with_one_name_the_first_is_shown() -> None:
    keys, reports = keys_of()
    trends = {("a.b",): Trend(RISING, True, 2), ("a", "b"): Trend(RISING, True, 2)}
    visible, left_out = keys.visible_keys(trends)
    assert list(visible) == [("a", "b")]
    assert left_out == {"same_name": 1}
    assert reports == [("same_name", ("a.b",))]


def test_each_key_is_told_once() -> None:
    keys, reports = keys_of()
    trends = {
        ("$",): Trend(RISING, True, 2),
        ("x" * 200,): Trend(RISING, True, 2),
        ("a", ""): Trend(0, True, 1),
    }
    for _ in range(3):
        assert keys.visible_keys(trends) == ({}, {"characters": 1, "too_long": 1, "empty": 1})
    assert sorted(reason for reason, _ in reports) == ["characters", "empty", "too_long"]
