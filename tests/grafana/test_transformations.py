"""The models of Grafana's transformations behave like Grafana."""

from typing import Any

import pytest

from tests.grafana.tools.frames import BOOLEAN, NUMBER, OTHER, STRING, TIME, Field, Frame, kind_of
from tests.grafana.tools.transformations import applied, parsed_object

JSON_OPTIONS = {"source": "Line", "format": "json", "replace": True}


def frame(ref: str = "A", **columns: list[Any]) -> Frame:  # Any: JSON
    fields = tuple(
        Field(name, kind_of(values[0]) if values else OTHER, values)
        for name, values in columns.items()
    )
    return Frame(fields, max((len(values) for values in columns.values()), default=0), ref)


def rows_of(frames: list[Frame]) -> list[list[dict[str, Any]]]:  # Any: JSON
    return [frame.rows() for frame in frames]


def transform(name: str, options: dict[str, Any], *frames: Frame) -> list[Frame]:  # Any: JSON
    return applied([{"id": name, "options": options}], frames)


def test_keys_that_are_array_indices_come_first() -> None:
    text = '{"b": 1, "10": 2, "a": 3, "2": 4, "01": 5, "-1": 6, "4294967295": 7, "1.5": 8}'
    assert list(parsed_object(text)) == ["2", "10", "b", "a", "01", "-1", "4294967295", "1.5"]


def test_the_first_place_and_the_last_value_of_a_repeated_key_count() -> None:
    assert list(parsed_object('{"a": 1, "b": 2, "a": 3}').items()) == [("a", 3.0), ("b", 2.0)]


@pytest.mark.parametrize("text", ["no", "[1]", "1", '{"a": NaN}', '{"a"', ""])
def test_what_is_no_object_is_an_empty_row(text: str) -> None:
    assert parsed_object(text) == {}


def test_extracted_fields_have_the_order_and_type_of_first_values() -> None:
    lines = ['{"x": null, "b": true}', '{"c": "t", "x": 1}', "no JSON", '{"x": 2.5, "o": [1]}']
    (result,) = transform("extractFields", JSON_OPTIONS, frame(Time=[1, 2, 3, 4], Line=lines))
    assert [(field.name, field.kind) for field in result.fields] == [
        ("x", NUMBER),
        ("b", BOOLEAN),
        ("c", STRING),
        ("o", OTHER),
    ]
    assert result.column("x") == [None, 1.0, None, 2.5]
    assert result.length == 4


def test_extracted_fields_beside_the_others() -> None:
    (result,) = transform(
        "extractFields", {**JSON_OPTIONS, "replace": False}, frame(Time=[1], Line=['{"x": 1}'])
    )
    assert result.names == ["Time", "Line", "x"]


def test_of_an_empty_answer_no_field_is_left() -> None:
    empty = frame(Time=[], Line=[])
    assert transform("extractFields", JSON_OPTIONS, empty)[0].fields == ()
    drop = {"id": "filterFieldsByName", "options": {"exclude": {"names": ["nobody"]}}}
    assert applied([{"id": "extractFields", "options": JSON_OPTIONS}, drop], [empty]) == []


def test_a_field_is_found_by_the_name_that_it_was_given() -> None:
    newer = frame(timestamp=[2, 1], body=['{"x": 2}', '{"x": 1}'])
    rename = {
        "excludeByName": {},
        "indexByName": {},
        "renameByName": {"timestamp": "Time", "body": "Line"},
    }
    steps = [
        {"id": "organize", "options": rename},
        {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Time"}]}},
        {"id": "extractFields", "options": JSON_OPTIONS},
    ]
    assert rows_of(applied(steps, [newer])) == [[{"x": 1.0}, {"x": 2.0}]]


def test_sorting_is_stable_and_by_the_first_field_only() -> None:
    rows = frame(k=["b", "a", "b", "a"], n=[1, 2, 3, 4])
    ordered = {"fields": {}, "sort": [{"field": "k"}, {"field": "n", "desc": True}]}
    assert transform("sortBy", ordered, rows)[0].column("n") == [2, 4, 1, 3]
    down = {"fields": {}, "sort": [{"field": "k", "desc": True}]}
    assert transform("sortBy", down, rows)[0].column("n") == [1, 3, 2, 4]
    assert transform("sortBy", {"fields": {}, "sort": [{"field": "gone"}]}, rows) == [rows]


def test_organize_leaves_out_orders_and_renames() -> None:
    options = {
        "excludeByName": {"a": True},
        "indexByName": {"c": 0, "b": 1},
        "renameByName": {"b": "B"},
    }
    (result,) = transform("organize", options, frame(a=[1], b=[2], c=[3], d=[4]))
    assert result.names == ["c", "B", "d"]
    assert [field.name for field in result.fields] == ["c", "b", "d"]


def test_numbers_become_times() -> None:
    options = {"fields": {}, "conversions": [{"targetField": "t", "destinationType": "time"}]}
    (result,) = transform("convertFieldType", options, frame(t=[1500.0, None], n=[1, 2]))
    assert [field.kind for field in result.fields] == [TIME, NUMBER]


def test_groups_have_their_last_values() -> None:
    last = {"operation": "aggregate", "aggregations": ["last"]}
    options = {"fields": {"k": {"operation": "groupby", "aggregations": []}, "v": last, "w": last}}
    (result,) = transform(
        "groupBy", options, frame(k=["b", "a", "b"], v=[1, 2, 3], w=["x", "y", None], z=[0, 0, 0])
    )
    assert result.names == ["k", "v (last)", "w (last)"]
    assert result.rows() == [{"k": "b", "v (last)": 3}, {"k": "a", "v (last)": 2, "w (last)": "y"}]
    assert transform("groupBy", options, frame(other=[1])) == []


def test_rows_that_agree_become_one() -> None:
    first, second = frame("A", job=["1", "2"], a=[10, 20]), frame("B", job=["2", "3"], b=[200, 300])
    assert rows_of(transform("merge", {}, first, second)) == [
        [{"job": "1", "a": 10}, {"job": "2", "a": 20, "b": 200}, {"job": "3", "b": 300}]
    ]


def test_rows_that_contradict_each_other_stay() -> None:
    first, second = frame("A", job=["1"], a=[10]), frame("B", job=["1"], a=[11])
    assert rows_of(transform("merge", {}, first, second)) == [
        [{"job": "1", "a": 10}, {"job": "1", "a": 11}]
    ]


def test_names_to_show_are_lost_by_a_merge() -> None:
    renamed = Frame((Field("v", NUMBER, [1], display="V"),), 1)
    assert transform("merge", {}, renamed, renamed)[0].names == ["v"]
    assert transform("merge", {}, renamed)[0].names == ["V"]


def test_rows_are_filtered() -> None:
    rows = frame(a=[1, None, 3], b=["x", "y", " "])
    null = {"fieldName": "a", "config": {"id": "isNull", "options": {}}}
    blank = {"fieldName": "b", "config": {"id": "regex", "options": {"value": "^ *$"}}}
    more = {"fieldName": "a", "config": {"id": "greater", "options": {"value": 1}}}

    def values_after(kind: str, *filters: dict[str, Any]) -> list[Any]:  # Any: JSON
        return transform(
            "filterByValue", {"type": kind, "match": "any", "filters": list(filters)}, rows
        )[0].column("b")

    assert values_after("exclude", null) == ["x", " "]
    assert values_after("exclude", null, blank) == ["x"]
    assert values_after("include", more) == [" "]


def test_a_filter_of_a_missing_field_fits_nothing() -> None:
    rows = frame(a=[1, 2])

    def length_after(kind: str, match: str, *names: str) -> int:
        check = "isNull" if kind == "exclude" else "isNotNull"
        filters = [{"fieldName": name, "config": {"id": check, "options": {}}} for name in names]
        return transform("filterByValue", {"type": kind, "match": match, "filters": filters}, rows)[
            0
        ].length

    assert length_after("exclude", "any", "gone") == 2
    assert length_after("include", "all", "a", "gone") == 0
    assert length_after("include", "any", "a", "gone") == 2
    assert length_after("include", "all", "a") == 2


def test_the_first_rows_of_parts() -> None:
    rows = frame(k=["b", "a", "b"], v=[1, 2, 3])
    parts = transform("partitionByValues", {"fields": ["k"], "keepFields": True}, rows)
    assert rows_of(parts) == [[{"k": "b", "v": 1}, {"k": "b", "v": 3}], [{"k": "a", "v": 2}]]
    assert rows_of(transform("limit", {"limitField": 1}, *parts)) == [
        [{"k": "b", "v": 1}],
        [{"k": "a", "v": 2}],
    ]


def test_fields_become_rows() -> None:
    options = {"mode": "seriesToRows", "reducers": ["distinctCount", "allValues"]}
    assert rows_of(transform("reduce", options, frame(a=[1, 1, 2], b=["x", "x", "x"]))) == [
        [
            {"Field": "a", "Distinct Count": 2, "All values": [1, 1, 2]},
            {"Field": "b", "Distinct Count": 1, "All values": ["x", "x", "x"]},
        ]
    ]


def test_what_is_not_modelled_is_an_error() -> None:
    with pytest.raises(KeyError):
        transform("regression", {}, frame(a=[1]))
    with pytest.raises(AssertionError):
        transform("extractFields", {**JSON_OPTIONS, "keepTime": True}, frame(Line=["{}"]))
