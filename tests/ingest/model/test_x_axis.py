"""The X-axis rule (R22, R24-R26), case by case, and the parsing of metadata records for it
(R18-R21)."""

import json
import math
import sys
from typing import Any

import pytest

from logshipper_ingest.model.key_groups import MAX_GROUPS, MAX_PLANNED_KEYS
from logshipper_ingest.model.metadata_keys import (
    MAX_INT_DIGITS,
    MAX_KEY_BYTES,
    names_of,
    parse_record,
    raw_value,
)
from logshipper_ingest.model.x_axis import MAX_KEYS, XAxis, merge_all

Json = dict[str, Any]  # Any: JSON


def axis_of(*records: Json | str) -> XAxis:
    axis = XAxis()
    for time_ns, record in enumerate(records, start=1):
        line = record if isinstance(record, str) else json.dumps(record)
        parsed = parse_record(line.encode())
        assert parsed is not None
        axis.add(parsed, time_ns)
    return axis


def choice_of(*records: Json | str) -> tuple[str | None, int]:
    choice = axis_of(*records).choose()
    return choice.key, choice.rule


def numbers(*values: object, key: str = "k") -> list[Json]:
    return [{key: value} for value in values]


# ---- R24: a time that records bring with them

NS = 1_700_000_000 * 10**9


def measured(*values: dict[str, float], at: int = NS) -> list[Json]:
    return [
        {**value, "tags": {"host": "a"}, "time": at + n * 10**9} for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("records", "key"),
    [
        (measured({"loss": 0.5}, {"loss": 0.25}), None),
        (measured({"done": 1}, {"done": 2}), None),
        ([*measured({"loss": 0.5}, {"loss": 0.2}), *measured({"loss": 0.4})], None),
        (measured({"acc": 0.1, "loss": 0.5}, {"acc": 0.2, "loss": 0.25}), None),
        (measured({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}), "step"),
        (measured({"wall": 1, "loss": 0.5}, {"wall": 2, "loss": 0.25}), "wall"),
        (measured({"epoch": 3}, {"epoch": 1}), "epoch"),
        (measured({"loss": 0.5}, {"loss": 0.25}, at=1_700_000_000), "time"),
        ([*measured({"loss": 0.5}, {"loss": 0.25}), {"time": 3}], "loss"),
        ([{"time": 16520, "flops": 2.5}, {"time": 16530, "flops": 1.5}], "time"),
    ],
)
def test_r24_the_time_of_measurements(records: list[Json], key: str | None) -> None:
    axis = axis_of(*records)
    choice = axis.choose()
    assert choice.key == key
    assert (choice.path == ("time",)) is (key in (None, "time"))
    assert XAxis.from_json(axis.to_json()).choose() == choice
    assert axis.merge(axis_of(*records)).choose() == choice


def test_r24_a_measurement_between_records_of_another_x() -> None:
    printed = [{"epoch": n, "loss": 1 / n} for n in (1, 2)]
    axis = axis_of(*printed, *measured({"gpu": 5}, {"gpu": 7}))
    assert axis.choose().key == "epoch"
    own_x = axis.x_for("gpu")
    assert (own_x.key, own_x.path) == (None, ("time",))


def test_r24_prometheus_ranks_the_time_before_an_only_key() -> None:
    trends = axis_of(*measured({"done": 1}, {"done": 2})).trends(over=True)
    assert (trends[("time",)].rule(), trends[("done",)].rule()) == (3, 7)
    assert trends[("done",)].own_x[1] == ("time",)


# ---- R25, rule by rule


@pytest.mark.parametrize(
    ("records", "choice"),
    [
        ([], (None, 0)),
        ([{"size": "big", "fast": True, "list": [1, 2], "none": None}], (None, 0)),
        (
            [{"a": 1, "progress": 7.5, "epoch": 1}, {"a": 2, "progress": 7.5, "epoch": 2}],
            ("progress", 1),
        ),
        ([{"a": 1, "epoch": 9}, {"a": 2, "epoch": 3}], ("epoch", 2)),
        ([{"progress": "50%", "epoch": 1}], ("epoch", 2)),
        (numbers(1, 1, 2), ("k", 3)),
        (numbers(1, 1.5, 2), ("k", 4)),
        (numbers(3, 2, 2), ("k", 5)),
        (numbers(3.5, 2, 2), ("k", 6)),
        (numbers(1, 2, 1), ("k", 7)),
        (numbers(5, 5, 5), ("k", 7)),
        (numbers(5), ("k", 7)),
    ],
)
def test_rules_in_order_r25_r26(records: list[Json], choice: tuple[str | None, int]) -> None:
    assert choice_of(*records) == choice


def test_better_rule_wins_over_alphabet_and_alphabet_decides_between_equals_r25() -> None:
    records = [{"a": 0.5, "b": 3, "y": 1, "z": 1}, {"a": 0.4, "b": 2, "y": 2, "z": 2}]
    assert choice_of(*records) == ("y", 3)
    assert choice_of(*records, {"y": 1}) == ("z", 3)
    assert choice_of(*records, {"y": 1, "z": 1}) == ("b", 5)


@pytest.mark.parametrize("text", ["1.0", "1e3", "1E3", "1.5e1"])
def test_integer_means_written_without_fraction_or_exponent_in_every_record_r25(text: str) -> None:
    assert choice_of('{"k": 1}', '{"k": 2}') == ("k", 3)
    assert choice_of(f'{{"k": {text}}}', '{"k": 2000}') == ("k", 4)
    assert choice_of('{"k": -5}', f'{{"k": {text}}}') == ("k", 4)


def test_only_the_exact_top_level_key_counts_for_the_first_two_rules_r25() -> None:
    assert choice_of(
        {"run": {"epoch": 1}, "Progress": 5, "a": 1}, {"run": {"epoch": 1}, "a": 2}
    ) == ("a", 3)


def test_booleans_and_strings_are_no_numbers_r22() -> None:
    assert choice_of({"a": True, "b": "0.1", "c": 1}, {"a": False, "b": "0.2", "c": 0}) == ("c", 5)


def test_judged_over_the_records_that_have_the_key_r25() -> None:
    assert choice_of({"step": 1}, {"val": 0.5}, {"step": 2}, {"val": 0.6}, {"step": 2}) == (
        "step",
        3,
    )


def test_examples_of_r19() -> None:
    axis = axis_of(
        '{"epoch": 1, "loss": 7.2355865, "acc": 0.00123}',
        '{"step": 151100, "lr": 0.07938926, "flops": 789773523480.1762, "time": 16520}',
        '{"size": "big", "speed": "slow", "lr": 0.1}',
    )
    assert axis.choose().words == "epoch: the key epoch"
    stats = {key.key: key for key, _ in axis.key_stats()}
    assert list(stats) == ["acc", "epoch", "flops", "loss", "lr", "size", "speed", "step", "time"]
    assert (stats["lr"].min, stats["lr"].max, stats["lr"].count, stats["lr"].integer) == (
        0.07938926,
        0.1,
        2,
        False,
    )
    assert (stats["size"].min, stats["size"].numbers, stats["size"].count) == (None, 0, 1)
    assert stats["step"].integer
    assert stats["step"].min == 151100


def test_words_of_every_rule() -> None:
    assert axis_of().choose().words == "time: no key with numbers"
    assert axis_of({"progress": 1}).choose().words == "progress: the key progress"
    assert axis_of(*numbers(1, 2)).choose().words == "k: integers that never fall"
    assert axis_of(*numbers(1, 2.5)).choose().words == "k: numbers that never fall"
    assert axis_of(*numbers(2, 1)).choose().words == "k: integers that only rise or only fall"
    assert axis_of(*numbers(2.5, 1)).choose().words == "k: numbers that only rise or only fall"
    assert axis_of(*numbers(1)).choose().words == "k: the first key with numbers"


# ---- attempts and tasks: judged separately, merged by the worst


def test_a_restart_from_the_beginning_spoils_nothing_r25() -> None:
    first, second = (
        axis_of(*[{"step": step, "loss": 1 / step} for step in range(1, 9)]) for _ in range(2)
    )
    assert first.merge(second).choose().rule == 3
    together = axis_of(*[{"step": step} for step in (1, 2, 3, 1, 2, 3)])
    assert together.choose().rule == 7


@pytest.mark.parametrize(
    ("attempts", "rule"),
    [
        ([(1, 2), (5, 6)], 3),
        ([(1, 2), (0.5, 0.6)], 4),
        ([(1, 2), (6, 5)], 5),
        ([(6, 5), (8, 7)], 5),
        ([(1.5, 2), (6, 5)], 6),
        ([(1, 2), (1, 3, 2)], 7),
        ([(1, 2), (4, 4)], 7),
        ([(1, 2), (4,)], 7),
    ],
)
def test_attempts_are_merged_by_the_worst_r25(attempts: list[tuple[float, ...]], rule: int) -> None:
    axes = [axis_of(*numbers(*values)) for values in attempts]
    assert merge_all(axes).choose().rule == rule
    assert merge_all(reversed(axes)).choose().rule == rule


def test_records_after_a_merge_begin_another_attempt() -> None:
    axis = axis_of(*numbers(5, 6)).merge(axis_of(*numbers(1, 2)))
    for value in (3, 4):
        axis.add({"k": value})
    assert axis.choose().rule == 3


# ---- keys that share no record with the chosen X


def test_a_key_apart_gets_an_x_by_the_same_rule_over_its_own_records_r25() -> None:
    axis = axis_of(
        {"epoch": 1, "loss": 0.5},
        {"iter": 10, "val": 0.9, "z": 3},
        {"epoch": 2, "loss": 0.4},
        {"iter": 20, "val": 1},
    )
    assert axis.choose().key == "epoch"
    assert axis.x_for("loss") == axis.choose()
    x = axis.x_for("val")
    assert (x.key, x.rule) == ("iter", 3)
    assert x.words == "iter: integers that never fall, in the records of val"
    itself = axis.x_for("iter")
    assert (itself.key, itself.rule, itself.words) == (
        None,
        0,
        "time: iter itself is the X of its records",
    )


def test_own_records_only_decide_r25() -> None:
    # `iter` falls over all records, but not over those with `val`
    axis = axis_of(
        {"epoch": 1, "iter": 50},
        {"iter": 1, "val": 0.5},
        {"iter": 2, "val": 0.4},
        {"epoch": 2, "iter": 0},
    )
    assert axis.x_for("val").key == "iter"
    assert axis.x_for("val").rule == 3
    assert axis.x_for("iter").key == "epoch"


def test_a_key_alone_goes_by_time_r24() -> None:
    axis = axis_of({"epoch": 1}, {"alone": 5})
    choice = axis.x_for("alone")
    assert (choice.key, choice.rule) == (None, 0)
    assert "alone" in choice.words


def test_x_for_keys_without_numbers_or_unknown_is_the_chosen_one() -> None:
    axis = axis_of({"epoch": 1, "name": "x"})
    assert axis.x_for("name") == axis.x_for("nonsense") == axis.x_for("epoch") == axis.choose()


def test_sharing_records_in_one_attempt_is_enough() -> None:
    axis = axis_of({"val": 1}).merge(axis_of({"epoch": 1, "val": 1}))
    assert axis.x_for("val").key == "epoch"


# ---- nested keys


def test_nested_numbers_are_keys_down_to_depth_4_more_is_said_r22() -> None:
    axis = axis_of({"a": {"b": {"c": {"d": 1, "e": {"f": 2}}}}, "o": {"name": "x"}})
    assert [key.path for key, _ in axis.key_stats()] == [("a", "b", "c", "d"), ("o",)]
    assert axis.notes() == ["1 objects are left out: more than 4 keys deep"]


def test_keys_with_dots_never_collide_with_nested_ones() -> None:
    axis = axis_of(
        {"a.b": 1, "a": {"b": 10}, "loss.train": 5}, {"a.b": 2, "a": {"b": 9}, "loss.train": 4}
    )
    assert [key.key for key, _ in axis.key_stats()] == ["a.b", '"a.b"', "loss.train"]
    assert axis.choose().key == '"a.b"'
    assert axis.path_of("a.b") == ("a", "b")
    assert axis.path_of('"a.b"') == ("a.b",)


def test_names_are_unique_and_printable() -> None:
    nested = [("a", "b.c"), ("a.b", "c"), ("a", "b", "c"), ("a.b.c",), ('"a.b.c"',)]
    odd = [
        ("",),
        ("", ""),
        (".",),
        ("\x1b[31m",),
        ("\ud800",),
        ("\\ud800",),
        ('"\\ud800"',),
        ("ü",),
    ]
    paths = nested + odd
    names = names_of(paths)
    assert len(set(names.values())) == len(paths)
    assert all(name.isprintable() for name in names.values())
    assert names["ü",] == "ü"


# ---- limits, each with a note


def test_a_job_s_first_256_keys_with_numbers_are_followed() -> None:
    axis = axis_of({f"k{number:04d}": number for number in range(300)}, {"epoch": 1, "k0300": 1})
    assert sum(key.numbers > 0 for key, _ in axis.key_stats()) == MAX_KEYS + 1
    assert axis.choose().key == "epoch"  # it always has room
    assert axis.notes() == ["45 values are left out: of a job, 256 keys with numbers are graphed"]


def test_too_many_different_sets_of_keys_are_said_and_never_stall() -> None:
    axis = axis_of(*[{"x": number, f"k{number}": 1} for number in range(3 * MAX_GROUPS)])
    assert any("roughly" in note for note in axis.notes())
    assert len(list(axis._groups)) <= MAX_GROUPS
    assert axis.choose().key == "x"
    assert XAxis.from_json(axis.to_json()).notes() == axis.notes()


# ---- exact numbers from hostile lines


def test_integers_of_20_and_400_digits_are_exact_r19() -> None:
    for digits in (20, 400, MAX_INT_DIGITS):
        big = 10 ** (digits - 1)
        axis = axis_of(f'{{"k": {big}}}', f'{{"k": {big + 1}}}')
        stats = axis.key_stats()[0][0]
        assert (stats.min, stats.max, stats.integer) == (big, big + 1, True)
        assert axis.choose().rule == 3
        again = XAxis.from_json(axis.to_json())
        again.add({"k": big})
        assert again.choose().rule == 7


def test_floats_and_integers_are_compared_exactly() -> None:
    # as floats, both would be 2**53
    assert choice_of({"k": 9007199254740993}, {"k": 9007199254740992.0}) == ("k", 6)


def test_what_cannot_be_worked_with_is_said() -> None:
    digits = "9" * 5000
    axis = axis_of(f'{{"k": {digits}, "a": 1}}', '{"k": 1e999, "a": 2}')
    assert axis.choose().key == "a"
    assert axis.notes() == ["2 numbers are left out: too long or too large to work with"]
    assert [(key.key, key.count, key.numbers) for key, _ in axis.key_stats()] == [
        ("a", 2, 2),
        ("k", 2, 0),
    ]


def test_ever_other_sets_of_keys_cost_bounded_memory() -> None:
    """Each record has its own copies of the keys' names, which must not stay in memory."""
    names = [f"{number:03d}" + "k" * 200 for number in range(MAX_KEYS)]
    axis = axis_of(*(dict.fromkeys(names[shift % 50 : shift + 60], shift) for shift in range(170)))
    planned = [path for paths in axis._groups.plans for path in paths]
    assert 0 < len(planned) <= MAX_PLANNED_KEYS
    assert {id(path) for path in planned} <= set(map(id, axis._numbers))


def test_long_keys_are_left_out_and_said() -> None:
    longest = "\u00e9" * (MAX_KEY_BYTES // 2)
    axis = axis_of(
        {longest: 1, longest + "x": 2, "y" * 1_000_000: "z", "nested": {longest + "x": 3, "a": 4}}
    )
    assert [stats.key for stats, _ in axis.key_stats()] == ["nested.a", longest]
    assert axis.notes() == ["3 values are left out: of keys that are longer than 256 bytes"]
    assert XAxis.from_json(axis.to_json()).notes() == axis.notes()
    assert axis.merge(axis).notes() == [
        "6 values are left out: of keys that are longer than 256 bytes"
    ]


def test_a_state_of_before_long_keys_were_counted_is_taken() -> None:
    state = json.loads(axis_of({"a": 1}).to_json())
    state["limits"].pop()
    assert XAxis.from_json(json.dumps(state)).notes() == []


def test_nan_and_infinities_are_gaps_and_no_numbers_r22() -> None:
    records = [json.dumps({"step": 1, "loss": 0.5, "in": {"acc": 0.1}})]
    records += [
        json.dumps({"step": step, "loss": loss, "in": {"acc": math.inf}})
        for step, loss in ((2, math.nan), (3, -math.inf))
    ]
    axis = axis_of(*records)
    assert axis.choose().key == "step"
    assert axis.notes() == [], "nothing is left out: the text of a gap says all that there is"
    stats = {key.key: key for key, _ in axis.key_stats()}
    assert (stats["loss"].count, stats["loss"].numbers, stats["loss"].max) == (3, 1, 0.5)
    assert (stats["in.acc"].count, stats["in.acc"].numbers) == (3, 1)
    assert [last_ns for _, last_ns in axis.key_stats()] == [3, 3, 3], "as the newest record has it"
    assert list(stats) == ["in.acc", "loss", "step"]
    latest = {"step": 3, "loss": -math.inf, "in.acc": math.inf}
    for same in (axis, XAxis.from_json(axis.to_json())):
        assert {".".join(path): value for path, value in same.latest().items()} == latest
    axis.add(parse_record(b'{"step": 4, "loss": 1}') or {}, 4)
    assert axis.latest()[("loss",)] == 1
    assert '"gaps"' not in axis_of({"loss": 1}).to_json(), "as earlier versions wrote it"


def test_a_key_that_never_was_a_number_has_no_gap_in_its_numbers() -> None:
    axis = axis_of('{"loss": NaN}', '{"loss": NaN}')
    assert axis.latest() == {}
    ((stats, _),) = axis.key_stats()
    assert (stats.key, stats.count, stats.numbers) == ("loss", 2, 0)


def test_lines_that_are_no_objects_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orjson.loads", lambda line: pytest.fail("it is parsed"))
    for line in (b"", b"x", b"[1]", b'{"a": 1', b' {"a": 1}'):
        assert parse_record(line) is None


def test_a_lower_limit_of_digits_never_raises() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        axis = axis_of(f'{{"k": {"9" * 3000}}}')
    finally:
        sys.set_int_max_str_digits(before)
    assert axis.notes()


@pytest.mark.parametrize("line", ['{"a": nan}', "[1]", "{", "", "[" * 100_000, "{'epoch': 1}"])
def test_what_is_no_metadata_is_none_r18_r21(line: str) -> None:
    assert parse_record(line.encode()) is None


def test_any_depth_of_nesting_does_not_raise() -> None:
    for depth in (500, 5_000, 300_000):
        record = parse_record(b'{"a":' * depth + b"1" + b"}" * depth)
        XAxis().add(record or {})


def test_the_last_of_duplicate_keys_wins_and_lone_surrogates_do_not_raise() -> None:
    assert parse_record(b'{"a": 1, "a": 2}') == {"a": 2}
    assert parse_record(b'{"a": 18446744073709551616, "a": "x"}') == {"a": "x"}
    axis = axis_of('{"\\ud800": 1}', '{"\\ud800": 2}')
    assert XAxis.from_json(axis.to_json()).choose().key == '"\\ud800"'


def test_one_megabyte_of_keys_or_digits_is_quick() -> None:
    parse_record(b'{"a": ' + b"9" * (1 << 20) + b"}")
    axis = axis_of(json.dumps({f"key{number}": number for number in range(50_000)}))
    assert axis.notes()


def test_state_that_is_no_state_raises_value_error() -> None:
    good = axis_of({"a": 1, "b": 2.5}).to_json()
    for text in (
        "",
        "[]",
        "null",
        "{}",
        good.replace('"version":1', '"version":2'),
        good[:-5],
        good.replace("2.5", "{}"),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  its words are for a damaged database only
            XAxis.from_json(text)


# ---- raw values


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        (("a",), "1.50"),
        (("b", "c"), "1E5"),
        (("b",), '{"c":1E5 , "d" : [1, {"x": "}"}]}'),
        (("s",), '"\\u0041 \\" }"'),
        (("dup",), "2"),
        (("big",), "9" * 6000),
        (("missing",), None),
        (("a", "b"), None),
        (("b", "d", "x"), None),
    ],
)
def test_raw_values_are_as_printed_r19(path: tuple[str, ...], raw: str | None) -> None:
    nested = '{"c":1E5 , "d" : [1, {"x": "}"}]}'
    line = (
        f'{{"a":1.50, "b": {nested},"s":"\\u0041 \\" }}","dup": 1, "dup": 2 , "big": {"9" * 6000}}}'
    )
    assert raw_value(line, path) == raw


def test_raw_values_of_what_is_no_json_are_none() -> None:
    for line in ("", "{", "nonsense", '{"a" 1}', '{"a": }', '{"a": 1', "[" * 5000):
        assert raw_value(line, ("a",)) is None


def test_a_counter_of_series_may_begin_again() -> None:
    axis = XAxis()
    for run in range(2):
        for count in (1, 2, 3):
            axis.add({"Deviance": 9 - count - run, "Iter": count})
            axis.add({"Deviance": 9.5 - count, "Iter": count}, origin="auto")
    assert axis.x_for("Deviance (auto)").key == "Iter (auto)"
    assert axis.x_for("Deviance").rule == 7, "keys of JSON must not begin again"
    copy = XAxis.from_json(axis.to_json())
    copy.add({"Deviance": 1.5, "Iter": 1}, origin="auto")
    assert copy.x_for("Deviance (auto)").key == "Iter (auto)"
