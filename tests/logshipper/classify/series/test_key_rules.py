"""Corrections of series by `ignore` and `rename`."""

import time

import pytest

from logshipper.classify.series.items import Record
from logshipper.classify.series.key_rules import KeyRules
from tests.tools.waiting import scaled

RECORD = {"step": "1", "lm loss": "0.5", "tokens/s": "9", "time (ms)": "3", "l[0]": "4", "lx": "5"}


def corrected(rules: KeyRules, **values: str) -> dict[str, str] | None:
    """Return the corrected RECORD, or other values; None without a record."""
    records = rules.apply([Record(1, 0.0, values or dict(RECORD))])
    return records[0].values if records else None


@pytest.mark.parametrize(
    ("name", "ignored"),
    [
        ("tokens/s", {"tokens/s"}),
        ("time*", {"time (ms)"}),
        ("l?", {"lx"}),
        ("l[0]", {"l[0]"}),
        ("l[x]", set()),
        ("Lm loss", set()),
        ("*o*s", {"tokens/s", "lm loss"}),
    ],
)
def test_ignored_keys_match_as_printed(name: str, ignored: set[str]) -> None:
    assert corrected(KeyRules([name])) == {
        key: number for key, number in RECORD.items() if key not in ignored
    }


def test_a_record_of_counters_vanishes_only_if_it_lost_something() -> None:
    rules = KeyRules(["loss"])
    assert corrected(rules, epoch="1", count="5", rank="0", loss="0.5") is None
    assert corrected(rules, epoch="1", loss="0.5", acc="1") == {"epoch": "1", "acc": "1"}
    assert corrected(rules, epoch="1") == {"epoch": "1"}


def test_renamed_keys_keep_their_place() -> None:
    rules = KeyRules(rename=[("lm loss", "loss"), ("lm*", "other"), ("t*", "t")])
    found = corrected(rules, **{"lm loss": "1", "lm x": "2", "tokens": "3"})
    assert found == {"loss": "1", "other": "2", "t": "3"}
    assert list(found) == ["loss", "other", "t"]
    assert rules.take_conflicts() == []


def test_the_first_of_equal_names_wins_and_no_number_is_lost() -> None:
    rules = KeyRules(rename=[("a", "loss"), ("b", "loss")])
    assert corrected(rules, a="1", b="2") == {"loss": "1", "b": "2"}
    assert corrected(rules, b="2", a="1") == {"loss": "2", "a": "1"}
    assert corrected(rules, a="1", loss="3") == {"a": "1", "loss": "3"}
    assert corrected(rules, b="2") == {"loss": "2"}
    assert sorted(rules.take_conflicts()) == [("a", "loss"), ("b", "loss")]
    corrected(rules, a="1", b="2")
    assert rules.take_conflicts() == [], "each once"


def test_names_can_be_swapped() -> None:
    assert corrected(KeyRules(rename=[("a", "b"), ("b", "a")]), a="1", b="2") == {
        "b": "1",
        "a": "2",
    }


def test_an_ignored_key_is_not_renamed() -> None:
    assert corrected(KeyRules(["a*"], [("ab", "c")]), ab="1", b="2") == {"b": "2"}


def test_hostile_patterns_take_linear_time() -> None:
    rules = KeyRules(["*a" * 60 + "b"] * 100)
    begin = time.process_time()
    assert corrected(rules, **{"a" * 128: "1"}) is not None
    assert time.process_time() - begin < scaled(1.0)
