"""Grafana's transformations, as far as the pages use them."""

from collections.abc import Mapping, Sequence
from typing import Any

from logshipper_grafana.parts.records import POINT_FIELD, SERIES_FIELD

Json = dict[str, Any]  # Any: JSON

_NOBODYS_FIELD = "lsnone"
# Grafana's names for the columns of `reduce`
_ALL_VALUES = "allValues"
REDUCED = {"lastNotNull": "Last *", "min": "Min", "max": "Max", _ALL_VALUES: "All values"}


def order_by_time(*, newest_first: bool = False) -> list[Json]:
    """Entries in order of time. Those of a burst share a millisecond, so that nanoseconds decide
    (`tsNs`). Newer data frames have other names; they get those of the older."""
    return [
        organize(renamed={"timestamp": "Time", "body": "Line"}),
        sort_by("Time", newest_first=newest_first),
        sort_by("tsNs", newest_first=newest_first),
    ]


def sort_by(field: str, *, newest_first: bool = False) -> Json:
    return {
        "id": "sortBy",
        "options": {"fields": {}, "sort": [{"field": field, "desc": newest_first}]},
    }


def decode(source: str = "Line") -> Json:
    """The fields of a line's JSON object, and nothing else."""
    return {"id": "extractFields", "options": {"source": source, "format": "json", "replace": True}}


def by_series() -> list[Json]:
    """Of points that tell their series, columns in the order of these: columns stand as they first
    come. Others stay as they are."""
    return [sort_by(SERIES_FIELD), decode(POINT_FIELD)]


def without_empty_frames() -> Json:
    """Leaves out frames without a field: an empty answer must not be the first frame, which is what
    is drawn."""
    return {"id": "filterFieldsByName", "options": {"exclude": {"names": [_NOBODYS_FIELD]}}}


def as_time(*fields: str) -> Json:
    conversions = [{"targetField": field, "destinationType": "time"} for field in fields]
    return {"id": "convertFieldType", "options": {"fields": {}, "conversions": conversions}}


def as_text(*fields: str) -> Json:
    """Lists as their values with commas between: 9.4 by itself, 10.4 and newer by `joinWith`;
    others write JSON."""
    conversions = [
        {"targetField": field, "destinationType": "string", "joinWith": ","} for field in fields
    ]
    return {"id": "convertFieldType", "options": {"fields": {}, "conversions": conversions}}


def organize(
    *,
    renamed: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> Json:
    return {
        "id": "organize",
        "options": {
            "excludeByName": dict.fromkeys(hidden, True),
            "indexByName": {name: index for index, name in enumerate(order)},
            "renameByName": dict(renamed or {}),
        },
    }


def newest_of_each(by: Sequence[str], fields: Sequence[str], *, merge: bool = False) -> list[Json]:
    """Of rows that share `by` the last one's fields, under their own names. merge: of several
    queries."""
    return in_groups(by, dict.fromkeys(fields, "last"), merge=merge)


def in_groups(by: Sequence[str], reducers: Mapping[str, str], *, merge: bool = False) -> list[Json]:
    """A row for all that share `by`, with what the reducers (by field) make of the others, under
    their own names."""
    groups: Json = {name: {"operation": "groupby", "aggregations": []} for name in by}
    groups |= {
        name: {"operation": "aggregate", "aggregations": [reducer]}
        for name, reducer in reducers.items()
    }
    renamed = {
        f"{name} ({reducer})": name for name, reducer in reducers.items()
    }  # columns are ordered before they are renamed
    merging = [merge_rows()] if merge else []  # which forgets new names
    grouped = {"id": "groupBy", "options": {"fields": groups}}
    return [grouped, *merging, organize(renamed=renamed, order=[*by, *renamed])]


def merge_rows() -> Json:
    """Rows of several queries that agree in all columns that the queries share become one row."""
    return {"id": "merge", "options": {}}


def rows_with(*fields: str) -> Json:
    """Only rows that have all of these fields: none, where a field isn't there at all, as its query
    found nothing."""
    filters = [
        {"fieldName": field, "config": {"id": "isNotNull", "options": {}}} for field in fields
    ]
    return {
        "id": "filterByValue",
        "options": {"type": "include", "match": "all", "filters": filters},
    }


def rows_without_blank(field: str) -> Json:
    """Only rows in which the field holds more than blanks."""
    filters = [{"fieldName": field, "config": {"id": "regex", "options": {"value": "^ *$"}}}]
    return {
        "id": "filterByValue",
        "options": {"type": "exclude", "match": "any", "filters": filters},
    }


def first_rows(count: int) -> Json:
    """Of each query's rows the first ones."""
    return {"id": "limit", "options": {"limitField": count}}


def reduced(reducers: Mapping[str, str], names: Mapping[str, str]) -> list[Json]:
    """A row for each field, with what reducers make of it. reducers: what each is called then;
    names: what further columns are called."""
    renamed = {REDUCED[reducer]: name for reducer, name in reducers.items()}
    return [
        {"id": "reduce", "options": {"mode": "seriesToRows", "reducers": [*reducers]}},
        organize(renamed={**renamed, **names}),
    ]


def rows_as_one(*fields: str, row: str) -> list[Json]:
    """Of rows that hold objects in the field `row`, with other columns each: those that agree in
    what all of them have become one row. fields: what no two rows share all of."""
    return [
        {"id": "partitionByValues", "options": {"fields": [*fields], "keepFields": True}},
        decode(row),
        merge_rows(),
    ]


def different_columns(*, always: Sequence[str] = ()) -> list[Json]:
    """A row for each column that doesn't hold the same everywhere, and for those of `always`, with
    its values in the rows' order."""
    names = "|".join(always)
    filters = [
        {"fieldName": "Distinct Count", "config": {"id": "greater", "options": {"value": 1}}},
        {"fieldName": "Field", "config": {"id": "regex", "options": {"value": f"^({names})$"}}},
    ]
    return [
        {
            "id": "reduce",
            "options": {"mode": "seriesToRows", "reducers": ["distinctCount", _ALL_VALUES]},
        },
        {"id": "filterByValue", "options": {"type": "include", "match": "any", "filters": filters}},
    ]


def rows_as_columns() -> list[Json]:
    """Of what different_columns leaves: a row with the columns' names, then one for each row that
    there was before. Fields are called 0, 1 and so on."""
    lists = REDUCED[_ALL_VALUES]
    return [
        {
            "id": "extractFields",
            "options": {"source": lists, "format": "json", "replace": False},
        },
        organize(hidden=["Distinct Count", lists]),
        {"id": "reduce", "options": {"mode": "seriesToRows", "reducers": [_ALL_VALUES]}},
        decode(lists),
    ]
