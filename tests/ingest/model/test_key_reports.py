"""Reports of a capture's keys: their numbers and the places of these, within limits."""

from typing import Any

import pytest

from logshipper_ingest.model.key_reports import MAX_NAME_BYTES, MAX_REPORTED, KeyReport, documents
from logshipper_ingest.model.ranks import RULE_UNIT, JobKeys, rank, reported_documents
from logshipper_ingest.model.x_axis import MAX_KEYS, MAX_WHOLE, XAxis


def axis_of(*records: dict[str, Any]) -> XAxis:  # Any: JSON
    axis = XAxis(keeps_places=True)
    for n, record in enumerate(records, start=1):
        axis.add(record, n, n)
    return axis


def by_key(axis: XAxis) -> dict[str, KeyReport]:
    return {report.key: report for report in axis.key_reports()}


def test_values_are_there_with_x_of_their_records() -> None:
    reports = by_key(
        axis_of(
            {"step": 10, "loss": 3.0},
            {"step": 20, "loss": 0.5},
            {"step": 30, "loss": 0.5},
            {"step": 40, "loss": 1.0},
        )
    )
    assert reports["loss"] == KeyReport("loss", 4, "step", 1.0, 0.5, 3.0, 40, 20, 10)
    assert reports["step"] == KeyReport("step", 4, None, 40, 10, 40, 4, 1, 4)


def test_x_that_came_later_stands_at_the_records_that_have_it_already() -> None:
    """`step` is constant in the first records, so any key may still become X."""
    records = [{"a": 9 - at % 3, "loss": at, "step": at // 3} for at in range(9)]
    assert by_key(axis_of(*records))["a"] == KeyReport("a", 9, "loss", 7, 7, 9, 8, 2, 0)


@pytest.mark.parametrize("late", ["epoch", "progress"])
def test_x_that_some_values_hadn_t_is_the_record_s_number(late: str) -> None:
    reports = by_key(axis_of({"step": 1, "loss": 5}, {"step": 2, "loss": 4, late: 7}))
    assert reports["loss"] == KeyReport("loss", 2, None, 4, 4, 5, 2, 2, 1)


def test_a_key_apart_from_x_has_its_own() -> None:
    reports = by_key(
        axis_of({"step": 1, "loss": 5}, {"round": 7, "test": 0.5}, {"round": 8, "test": 0.25})
    )
    assert reports["test"] == KeyReport("test", 2, "round", 0.25, 0.25, 0.5, 8, 8, 7)


def test_gaps_and_texts_are_no_values() -> None:
    nan = float("nan")
    reports = by_key(axis_of({"step": 1, "loss": 5}, {"step": 2, "loss": nan}, {"loss": "0.1"}))
    assert reports["loss"] == KeyReport("loss", 1, "step", 5, 5, 5, 1, 1, 1)


def test_of_many_keys_x_is_kept_once_it_has_shown_itself() -> None:
    """The first record has all keys, and can't tell which one will become X."""
    noise = [f"m{number:02}" for number in range(3 * MAX_WHOLE)]
    records = [{key: (at * 7 + len(key)) % 11 - 5.5 for key in noise} for at in range(40)]
    axis = axis_of(*({**record, "step": at} for at, record in enumerate(records)))
    axis = XAxis.from_json(axis.to_json())
    reports = axis.key_reports()
    assert len(reports) == len(noise) + 1
    for report in reports[1:]:
        values = [record[report.key] for record in records]
        places = [39, values.index(min(values)), values.index(max(values))]
        assert [report.x, report.last_at, report.least_at, report.largest_at] == ["step", *places]


def test_without_places_nothing_is_reported() -> None:
    """An earlier version began to learn the capture."""
    axis = XAxis()
    axis.add({"loss": 1}, 1, 1)
    assert XAxis.from_json(axis.to_json()).key_reports() == axis.key_reports() == []
    assert XAxis(keeps_places=True).merge(axis).key_reports() == []


def test_the_state_is_as_small_as_there_are_keys() -> None:
    """Keys that can't become X any more are dropped."""
    keys = [f"k{number:03}" for number in range(2 * MAX_KEYS)]
    records = [{key: hash((key, at)) % 1000 for key in keys} for at in range(300)]
    state = axis_of(*records).to_json()
    assert len(state) < MAX_KEYS * 1000


def test_more_keys_than_are_reported_are_counted() -> None:
    axis = axis_of({f"k{number:03}": number for number in range(MAX_REPORTED + 7)})
    *shown, left_out = documents(axis.key_reports())
    assert len(shown) == MAX_REPORTED
    assert left_out == {"left_out": 7}


def test_what_can_t_be_written_is_counted() -> None:
    long, large = "k" * (MAX_NAME_BYTES + 1), 10**400
    (shown, left_out) = documents(axis_of({long: 1, "large": large, "big": 1 << 70}).key_reports())
    assert (shown["key"], shown["last"]) == ("big", float(1 << 70))
    assert left_out == {"left_out": 2}


# ---- data for graphs


def graph_facts(axis: XAxis, *, over: bool = True) -> dict[str, dict[str, Any]]:
    return {
        document["key"]: {
            name: document[name] for name in ("rank", "own_x", "constant") if name in document
        }
        for document in reported_documents(axis, over=over)
    }


def test_a_key_comes_with_its_rank_its_own_x_and_whether_it_changes() -> None:
    facts = graph_facts(
        axis_of(
            {"step": 1, "loss": 3.0, "seed": 7}, {"step": 2, "loss": 4.0, "seed": 7}, {"epoch": 1}
        )
    )
    assert {key: values["rank"] // RULE_UNIT for key, values in facts.items()} == {
        "epoch": 2, "step": 3, "loss": 4, "seed": 7,
    }  # fmt: skip
    assert {key: values.get("own_x") for key, values in facts.items()} == {
        "epoch": None, "step": None, "loss": "step", "seed": "step",
    }  # fmt: skip
    assert [key for key, values in facts.items() if values.get("constant")] == ["epoch", "seed"]


def test_a_rule_that_is_not_known_yet_has_a_rank_below_the_first_rules() -> None:
    axis = axis_of({"step": 1, "epoch": 1})
    assert {key: values["rank"] // RULE_UNIT for key, values in graph_facts(axis, over=False).items()} == {
        "epoch": 2, "step": 0,
    }  # fmt: skip
    assert graph_facts(axis)["step"]["rank"] // RULE_UNIT == 7


def test_ranks_are_those_that_prometheus_gets() -> None:
    axis = axis_of(*({"step": at, "stepping": at / 2, "val/acc": -at} for at in range(5)))
    keys = JobKeys(MAX_REPORTED, MAX_NAME_BYTES, lambda *_: None)
    visible, _ = keys.visible_keys(axis.trends(over=True))
    ranks = {labels.key: rank(rule, labels.code, labels.place) for labels, rule in visible.values()}
    assert {key: values["rank"] for key, values in graph_facts(axis).items()} == ranks


def test_a_key_that_no_query_can_hold_has_none_of_it() -> None:
    assert [
        key for key, values in graph_facts(axis_of({'q"': 1, "loss": 3})).items() if values
    ] == ["loss"]
