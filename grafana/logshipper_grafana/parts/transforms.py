"""Grafana's transformations, for the needs of the pages."""

from collections.abc import Iterable, Mapping, Sequence

from logshipper_grafana.parts import Json
from logshipper_grafana.parts.records import POINT_FIELD, SERIES_FIELD

_NOBODYS_FIELD = "lsnone"
# Grafana's names for the columns of `reduce`
_ALL_VALUES = "allValues"
REDUCED = {"lastNotNull": "Last *", "min": "Min", "max": "Max", _ALL_VALUES: "All values"}


def order_by_time(*, newest_first: bool = False) -> list[Json]:
    """Entries in order of time. Those of a burst share a millisecond, so that nanoseconds decide
    (`tsNs`). Newer data frames have other names; they get those of the older."""
    return [
        organize({"timestamp": "Time", "body": "Line"}),
        sort_by("Time", newest_first=newest_first),
        sort_by("tsNs", newest_first=newest_first),
    ]


def decoded(*, newest_first: bool = False) -> list[Json]:
    """Entries in order of time, as the fields of their JSON objects."""
    return [*order_by_time(newest_first=newest_first), decode()]


def sort_by(field: str, *, newest_first: bool = False) -> Json:
    return {
        "id": "sortBy",
        "options": {"fields": {}, "sort": [{"field": field, "desc": newest_first}]},
    }


def decode(source: str = "Line", *, replace: bool = True) -> Json:
    """The fields of a line's JSON object. replace: and nothing else."""
    options = {"source": source, "format": "json", "replace": replace}
    return {"id": "extractFields", "options": options}


def of_graph(*more: Json) -> list[Json]:
    """Entries as a graph's points. Points with series become columns, in the series' order; others
    stay unchanged. more: further steps."""
    by_series = (sort_by(SERIES_FIELD), decode(POINT_FIELD))
    return [*decoded(), *by_series, *more, without_empty_frames()]


def without_empty_frames() -> Json:
    """Drop frames without a field: an empty answer must not become the first frame, which is drawn."""
    return {"id": "filterFieldsByName", "options": {"exclude": {"names": [_NOBODYS_FIELD]}}}


def as_time(*fields: str) -> Json:
    return _converted({"targetField": field, "destinationType": "time"} for field in fields)


def as_text(*fields: str) -> Json:
    """Lists as their values with commas between: 9.4 by itself, 10.4 and newer by `joinWith`;
    others write JSON."""
    as_string = {"destinationType": "string", "joinWith": ","}
    return _converted({"targetField": field, **as_string} for field in fields)


def _converted(conversions: Iterable[Json]) -> Json:
    options = {"fields": {}, "conversions": [*conversions]}
    return {"id": "convertFieldType", "options": options}


def organize(
    renamed: Mapping[str, str] | None = None,
    *,
    order: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> Json:
    options = {
        "excludeByName": dict.fromkeys(hidden, True),
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": dict(renamed or {}),
    }
    return {"id": "organize", "options": options}


def newest_of_each(by: Sequence[str], fields: Sequence[str], *, merge: bool = False) -> list[Json]:
    """Return the last row's fields of rows that share `by`, under their own names. merge: of
    several queries."""
    return in_groups(by, dict.fromkeys(fields, "last"), merge=merge)


def in_groups(by: Sequence[str], reducers: Mapping[str, str], *, merge: bool = False) -> list[Json]:
    """Return a row for each `by`, with the reducers' results (by field), under their own names."""
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
    return [grouped, *merging, organize(renamed, order=[*by, *renamed])]


def merge_rows() -> Json:
    """Rows of several queries that agree in all columns that the queries share become one row."""
    return {"id": "merge", "options": {}}


def rows_with(*fields: str) -> Json:
    """Keep rows with all of these fields; none, if an empty query lacks a field."""
    filters = (_filter(field, "isNotNull") for field in fields)
    return _filtered("include", "all", *filters)


def rows_with_any(*fields: str) -> Json:
    """Keep rows with one of these fields at least."""
    return _filtered("include", "any", *(_filter(field, "isNotNull") for field in fields))


def rows_without_blank(field: str) -> Json:
    """Only rows in which the field holds more than blanks."""
    return _filtered("exclude", "any", _filter(field, "regex", value="^ *$"))


def _filtered(kind: str, match: str, *filters: Json) -> Json:
    return {"id": "filterByValue", "options": {"type": kind, "match": match, "filters": [*filters]}}


def _filter(field: str, test: str, **options: object) -> Json:
    return {"fieldName": field, "config": {"id": test, "options": options}}


def first_rows(count: int) -> Json:
    """Keep the first rows of each query."""
    return {"id": "limit", "options": {"limitField": count}}


def reduced(reducers: Mapping[str, str], names: Mapping[str, str]) -> list[Json]:
    """Return a row per field, with the reducers' results. reducers: their titles; names: of further
    columns."""
    renamed = {REDUCED[reducer]: name for reducer, name in reducers.items()}
    return [_rows_of_fields(*reducers), organize({**renamed, **names})]


def _rows_of_fields(*reducers: str) -> Json:
    return {"id": "reduce", "options": {"mode": "seriesToRows", "reducers": [*reducers]}}


def rows_as_one(*fields: str, row: str) -> list[Json]:
    """Merge rows that agree in the first field, with columns from objects in the field `row`.

    fields: no two rows share all of these.
    """
    return [
        {"id": "partitionByValues", "options": {"fields": [*fields], "keepFields": True}},
        decode(row, replace=False),
        organize(hidden=[*fields[1:], row]),
        merge_rows(),
    ]


def different_columns(*, always: Sequence[str]) -> list[Json]:
    """Return a row for each column with different values, and for those of `always`, with the rows'
    values in order."""
    differs = _filter("Distinct Count", "greater", value=1)
    is_named = _filter("Field", "regex", value=f"^({'|'.join(always)})$")
    return [
        _rows_of_fields("distinctCount", _ALL_VALUES),
        _filtered("include", "any", differs, is_named),
    ]


def rows_as_columns() -> list[Json]:
    """Return the result of different_columns as a row of names, then a row per former row. Fields
    are called 0, 1 and so on."""
    lists = REDUCED[_ALL_VALUES]
    return [
        decode(lists, replace=False),
        organize(hidden=["Distinct Count", lists]),
        _rows_of_fields(_ALL_VALUES),
        decode(lists),
    ]
