"""Models of the transformations that the dashboards use. `applied` fails on any other
transformation, and on unmodelled options. The models follow Grafana 9.4, unless stated otherwise:

- **extractFields** (`format: json`, `replace`): the objects' keys become fields in the order of
  their first appearance, row by row. JavaScript puts integer keys of an object first. The first
  value that isn't null gives a field its type. A repeated key keeps its first place and last value.
  Text that isn't JSON makes an empty row. With `replace` no other field stays, not even of an empty
  answer.
- **organize**: removes, orders, and then renames fields *for display*. A field keeps its own name,
  and later steps find both.
- **sortBy**: uses only the first field of `sort`; stable. A frame without the field stays the same.
- **convertFieldType** to time: treats a field as time if its first value is a number. To string:
  JavaScript's notation, with commas in lists. Versions 9.5 to 10.3 write lists as JSON, and newer
  ones do so without `joinWith`.
- **groupBy**: one row per combination of values, in the order of first rows. Aggregates have names
  such as `NAME (last)`; `last` and `firstNotNull` keep the type.
- **merge**: joins rows of several frames. Two rows become one if they agree in all fields common to
  every frame, and contradict each other in no field. Display names disappear.
- **filterByValue**: removes the rows with the same numbers from all frames. A missing field never
  matches.
- **filterFieldsByName**: removes frames without remaining fields.
- **partitionByValues**: splits only the first frame, into a frame per value. All fields stay; newer
  versions need `keepFields` for this. **limit**: keeps each frame's first rows.
- **reduce** (`seriesToRows`): a row per field of all frames, except for time fields. The first
  value gives a column its type, and a text such as `7` counts as a number. Columns of another frame
  join only those of the same type.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cmp_to_key
from typing import Any

from tests.grafana.tools.frames import NUMBER, OTHER, STRING, TIME, Field, Frame, Json, kind_of

_MAX_INDEX = 2**32 - 2  # JavaScript's largest array index


def applied(transformations: Sequence[Json], frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames after all transformations of a panel."""
    for step in transformations:
        assert {*step} <= {"id", "options"}, f"not modelled: {step}"
        frames = _MODELS[step["id"]](step["options"], list(frames))
    return list(frames)


def parsed_object(line: str) -> Json:
    """Return a JSON object as JavaScript holds it: numbers as floats, array indices as first keys,
    ascending."""
    try:
        document: Any = json.loads(line, parse_int=float, parse_constant=_no_constant)  # Any: JSON
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    indices = sorted((key for key in document if _is_index(key)), key=int)
    return {
        key: document[key] for key in [*indices, *(key for key in document if not _is_index(key))]
    }


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} isn't JSON")


def _is_index(key: str) -> bool:
    return key.isascii() and key.isdigit() and str(int(key)) == key and int(key) <= _MAX_INDEX


def _find(frame: Frame, name: str) -> Field | None:
    return next((field for field in frame.fields if field.called(name)), None)


def _extract_fields(options: Json, frames: list[Frame]) -> list[Frame]:
    assert {*options} == {"source", "format", "replace"}, options
    assert options["format"] == "json", options
    return [_extracted(frame, options["source"], keep=not options["replace"]) for frame in frames]


def _extracted(frame: Frame, source: str, *, keep: bool) -> Frame:
    field = _find(frame, source)
    if field is None:
        return frame
    columns: dict[str, list[Any]] = {}  # Any: JSON
    for row, line in enumerate(field.values):
        # also parses objects and lists
        point: Json = (
            line if isinstance(line, dict) else parsed_object(line) if isinstance(line, str) else {}
        )
        if isinstance(line, list):
            point = {str(place): value for place, value in enumerate(line)}
        for key, value in point.items():
            columns.setdefault(key, [None] * frame.length)[row] = value
    fields = [Field(name, _kind(values), values) for name, values in columns.items()]
    return frame.with_fields([*(frame.fields if keep else ()), *fields])


def _kind(values: Sequence[object]) -> str:
    return next((kind_of(value) for value in values if value is not None), OTHER)


def _organize(options: Json, frames: list[Frame]) -> list[Frame]:
    assert {*options} == {"excludeByName", "indexByName", "renameByName"}, options
    hidden = [name for name, out in options["excludeByName"].items() if out]
    places, names = options["indexByName"], options["renameByName"]
    results = []
    for frame in _without(hidden, frames):
        fields = (
            sorted(frame.fields, key=lambda field: places.get(field.display_name, 1 << 53))
            if places
            else frame.fields
        )
        results.append(
            frame.with_fields(
                replace(field, display=names.get(field.display_name) or field.display)
                for field in fields
            )
        )
    return results


def _without(names: Sequence[str], frames: list[Frame]) -> list[Frame]:
    if not names:
        return frames
    results = []
    for frame in frames:
        fields = [field for field in frame.fields if not any(field.called(name) for name in names)]
        if fields:
            results.append(frame.with_fields(fields))
    return results


def _filter_fields(options: Json, frames: list[Frame]) -> list[Frame]:
    assert {*options} == {"exclude"}, options
    return _without(options["exclude"]["names"], frames)


def _sort_by(options: Json, frames: list[Frame]) -> list[Frame]:
    order = options["sort"][0]
    return [_sorted(frame, order["field"], descending=order.get("desc", False)) for frame in frames]


def _sorted(frame: Frame, name: str, *, descending: bool) -> Frame:
    key_field = next((field for field in frame.fields if field.display_name == name), None)
    if key_field is None or key_field.kind == OTHER:
        return frame
    values = key_field.values

    def compare(first: int, second: int) -> int:
        first_value, second_value = (
            (values[second], values[first]) if descending else (values[first], values[second])
        )
        if key_field.kind != NUMBER and (not first_value or not second_value):
            return int(bool(second_value)) - int(bool(first_value))
        if key_field.kind == NUMBER:
            first_value, second_value = first_value or 0, second_value or 0
        return int(first_value > second_value) - int(first_value < second_value)

    return frame.at(sorted(range(frame.length), key=cmp_to_key(compare)))


def _convert(options: Json, frames: list[Frame]) -> list[Frame]:
    for conversion in options["conversions"]:
        name, convert = conversion["targetField"], _CONVERSIONS[conversion["destinationType"]]
        frames = [
            frame.with_fields(
                convert(field) if field.called(name) else field for field in frame.fields
            )
            for frame in frames
        ]
    return frames


def _as_time(field: Field) -> Field:
    """Convert a field to times. Texts must be ISO 8601 in UTC."""
    if field.values and isinstance(field.values[0], int | float):
        return replace(field, kind=TIME)
    values = [_moment_ms(value) if isinstance(value, str) else value for value in field.values]
    return replace(field, kind=TIME, values=values)


def _moment_ms(text: str) -> int:
    return round(
        datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp() * 1000
    )


def _as_string(field: Field) -> Field:
    return replace(field, kind=STRING, values=[_as_text(value) for value in field.values])


_CONVERSIONS: dict[str, Callable[[Field], Field]] = {"time": _as_time, "string": _as_string}


def _group_by(options: Json, frames: list[Frame]) -> list[Frame]:
    operations = options["fields"]
    by = [name for name, operation in operations.items() if operation["operation"] == "groupby"]
    results = []
    for frame in frames:
        keys = [field for field in frame.fields if any(field.called(name) for name in by)]
        if not keys:
            continue
        groups: dict[tuple[str, ...], list[int]] = {}
        for row in range(frame.length):
            groups.setdefault(tuple(str(field.values[row]) for field in keys), []).append(row)
        fields = [
            replace(field.at(rows[0] for rows in groups.values()), labels={}) for field in keys
        ]
        for field in frame.fields:
            operation = operations.get(field.display_name, {"operation": None})
            if operation["operation"] != "aggregate":
                continue
            (reducer,) = operation["aggregations"]
            values = [
                _REDUCERS[reducer]([field.values[row] for row in rows]) for rows in groups.values()
            ]
            kind = field.kind if reducer in ("last", "firstNotNull") else _kind(values)
            fields.append(Field(f"{field.display_name} ({reducer})", kind, values))
        results.append(Frame(tuple(fields), len(groups), frame.ref))
    return results


_REDUCERS: dict[str, Callable[[list[Any]], Any]] = {  # Any: JSON
    "last": lambda values: values[-1],
    "firstNotNull": lambda values: next((value for value in values if value is not None), None),
    "uniqueValues": lambda values: list(dict.fromkeys(values)),
    "max": lambda values: max((value for value in values if value is not None), default=None),
    "min": lambda values: min((value for value in values if value is not None), default=None),
    "sum": lambda values: sum(value for value in values if value is not None),
    "count": len,
}


def _merge(_: Json, frames: list[Frame]) -> list[Frame]:
    if len(frames) <= 1:
        return frames
    whole = [frame for frame in frames if frame.fields]
    if not whole:
        return frames[:1]
    kinds: dict[str, str] = {}
    for frame in whole:
        for field in frame.fields:
            kinds.setdefault(field.name, field.kind)
    shared = [
        name
        for name in kinds
        if all(any(field.name == name for field in frame.fields) for frame in whole)
    ]
    if not shared:
        return frames
    rows: list[Json] = []
    by_key: dict[str, list[Json]] = {}
    for frame in whole:
        for row in range(frame.length):
            new = {field.name: field.values[row] for field in frame.fields}
            key = "".join(str(new[name]) for name in shared)
            fitting = [old for old in by_key.setdefault(key, []) if _agree(old, new)]
            for old in fitting:
                old.update(new)
            if not fitting:
                by_key[key].append(new)
                rows.append(new)
    fields = tuple(
        Field(name, kind, [row.get(name) for row in rows]) for name, kind in kinds.items()
    )
    return [Frame(fields, len(rows), whole[0].ref)]


def _agree(old: Json, new: Json) -> bool:
    return all(old.get(name) is None or old[name] == value for name, value in new.items())


def _filter_rows(options: Json, frames: list[Frame]) -> list[Frame]:
    together = {"any": any, "all": all}[options["match"]]
    rows: set[int] = set()
    for frame in frames:
        tests = [
            (_find(frame, condition["fieldName"]), condition["config"])
            for condition in options["filters"]
        ]
        rows |= {
            row
            for row in range(frame.length)
            if together(
                field is not None and _fits(field.values[row], config) for field, config in tests
            )
        }
    include = options["type"] == "include"
    return [
        frame.at(row for row in range(frame.length) if (row in rows) == include) for frame in frames
    ]


def _fits(value: object, config: Json) -> bool:
    if config["id"] == "isNull":
        return value is None
    if config["id"] == "isNotNull":
        return value is not None
    if config["id"] == "regex":
        return re.search(config["options"]["value"], _as_text(value)) is not None
    assert config["id"] == "greater", config
    return isinstance(value, int | float) and value > config["options"]["value"]


def _as_text(value: object) -> str:
    """Return a value in JavaScript's notation."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_as_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _partition(options: Json, frames: list[Frame]) -> list[Frame]:
    assert {*options} <= {"fields", "keepFields"}, options
    if not frames:
        return frames
    frame = frames[0]
    keys = [
        field for field in frame.fields if any(field.called(name) for name in options["fields"])
    ]
    groups: dict[tuple[str, ...], list[int]] = {}
    for row in range(frame.length):
        groups.setdefault(tuple(str(field.values[row]) for field in keys), []).append(row)
    return [frame.at(rows) for rows in groups.values()]


def _limit(options: Json, frames: list[Frame]) -> list[Frame]:
    return [frame.at(range(min(frame.length, options["limitField"]))) for frame in frames]


def _reduce(options: Json, frames: list[Frame]) -> list[Frame]:
    assert options["mode"] == "seriesToRows", options
    tables = [_reduced(options["reducers"], frame) for frame in frames]
    if not tables:
        return []
    length = sum(table.length for table in tables)
    columns = []
    for place, first in enumerate(tables[0].fields):
        values: list[Any] = []  # Any: JSON
        for table in tables:
            column = table.fields[place]
            assert column.kind == first.kind or not column.values, f"{first.name}: rows are lost"
            values += column.values
        columns.append(replace(first, values=values))
    return [Frame(tuple(columns), length)]


def _reduced(reducers: Sequence[str], frame: Frame) -> Frame:
    fields = [field for field in frame.fields if field.kind != TIME]
    columns = [Field("Field", STRING, [field.display_name for field in fields])]
    for name in reducers:
        title, calculate = _CALCULATIONS[name]
        values = [calculate(field.values) for field in fields]
        columns.append(Field(title, _guessed_kind(values), values))
    return Frame(tuple(columns), len(fields))


def _guessed_kind(values: Sequence[object]) -> str:
    """Return a field's type by its first value; texts that look like a number count as one."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, str):
        return NUMBER if re.fullmatch(r"\s*-?(\d*\.)?\d+\s*", first) else STRING
    return kind_of(first) if first is not None else OTHER


def _present(values: Sequence[Any]) -> list[Any]:  # Any: JSON
    return [value for value in values if value is not None]


_CALCULATIONS: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {  # Any: JSON
    "distinctCount": (
        "Distinct Count",
        lambda values: len({json.dumps(value) for value in values}),
    ),
    "allValues": ("All values", lambda values: values),
    "lastNotNull": ("Last *", lambda values: next(iter(_present(values)[::-1]), None)),
    "min": ("Min", lambda values: min(_present(values), default=None)),
    "max": ("Max", lambda values: max(_present(values), default=None)),
}


_MODELS: dict[str, Callable[[Json, list[Frame]], list[Frame]]] = {
    "convertFieldType": _convert,
    "extractFields": _extract_fields,
    "filterByValue": _filter_rows,
    "filterFieldsByName": _filter_fields,
    "groupBy": _group_by,
    "limit": _limit,
    "merge": _merge,
    "organize": _organize,
    "partitionByValues": _partition,
    "reduce": _reduce,
    "sortBy": _sort_by,
}
