"""Columns of a list as people ask for them: `name,loss=Loss:.5f,tags.dataset,metrics.*`. Pure."""

import fnmatch
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from logshipper.errors import UsageError
from logshipper_observe.base.words import duration, local, local_with_zone, number
from logshipper_observe.model import properties

_FORMAT = re.compile(r"[+ ]?0?[0-9]{0,2}[,_]?(?:\.[0-9]{1,2})?[deEfFgGn%]?", re.ASCII)


class ColumnSpec(NamedTuple):
    """field: its content; title: above it; format: Python's, for numbers, "" for none. A wildcard's
    field has the pattern as its name; `expand` makes columns of it."""

    field: properties.Field
    title: str
    format: str


def parse_columns(texts: list[str]) -> list[ColumnSpec]:
    """Parse `KEY`, `KEY=Title`, `KEY=Title:.5f` and `KEY:.5f`, joined by commas. Raises UsageError."""
    words = [word.strip() for text in texts for word in _split(text)]
    if not all(words) or not words:
        raise UsageError("--columns", ["a name is missing; it looks like name,loss=Loss:.5f"])
    return [_column(word) for word in words]


def _split(text: str) -> list[str]:
    """Split at commas, except the first of a format: `lines=Lines:,` and `:,.2f`."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and parts[-1].endswith(":"):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _column(word: str) -> ColumnSpec:
    name, equals, rest = word.partition("=")
    head, colon, spec = (rest if equals else name).rpartition(":")
    if not colon or not spec:
        head, spec = (rest if equals else name), ""
    elif not equals and not _is_format(spec):
        head, spec = name, ""  # a key with a colon in it
    elif not _is_format(spec):
        words = f"{spec!r} isn't a format of numbers; it looks like .5f or ,d"
        raise UsageError("--columns", [words])
    field = properties.field_of(name if equals else head)
    if equals and is_wildcard(field):
        words = f"{name!r} stands for several columns: they can't share a title"
        raise UsageError("--columns", [words])
    return ColumnSpec(field, head or field.name, spec)


def is_wildcard(field: properties.Field) -> bool:
    return field.kind is properties.PropertyKind.KEY and "*" in field.name


def expand(columns: Sequence[ColumnSpec], rows: Sequence[properties.JobRow]) -> list[ColumnSpec]:
    """Replace each wildcard by a column for each matching key, in alphabetical order, each key
    once.

    `hparams.*` matches constant keys, `metrics.*` changing numbers, others all keys. rows: the
    listed jobs.
    """
    if not any(is_wildcard(column.field) for column in columns):
        return list(columns)
    keys, changing, numbers = set(), set(), set()
    for row in rows:
        for key, values in row.keys.items():
            keys.add(key)
            if values.min != values.max:
                changing.add(key)
            if values.min:
                numbers.add(key)
    keys_by_alias = {properties.METRICS: numbers & changing, properties.HPARAMS: keys - changing}
    names = {column.field.name for column in columns}
    expansion = []
    for column in columns:
        if not is_wildcard(column.field):
            expansion.append(column)
            continue
        prefix = next((alias for alias in keys_by_alias if column.field.name.startswith(alias)), "")
        pattern = properties.without_alias(column.field.name).replace("[", "[[]")
        matches = re.compile(fnmatch.translate(pattern)).match
        for key in sorted(keys_by_alias.get(prefix, keys)):
            field = properties.field_of(key)
            if (
                field.kind is not properties.PropertyKind.KEY
            ):  # a key with the name of a property is
                field = properties.field_of(properties.METADATA + key)
            if matches(key) and field.name not in names:
                names.add(field.name)
                expansion.append(ColumnSpec(field, key, column.format))
    return expansion


def _is_format(spec: str) -> bool:
    return _FORMAT.fullmatch(spec) is not None


def cell_of(
    column: ColumnSpec, row: properties.JobRow, *, terminal: bool, exact: bool = False
) -> str:
    """Return a cell's text; "" for missing values. exact: all digits of a number."""
    value = column.field.get(row)
    if value is properties.MISSING or value is None:
        return "" if value is properties.MISSING else "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if column.field.kind is properties.PropertyKind.TIME:
            return local(int(value)) if terminal else local_with_zone(int(value))
        if column.format:
            return _format(value, column.format)
        if column.field.kind is properties.PropertyKind.SPAN:
            return duration(value)
        return number(value) if isinstance(value, float) and not exact else str(value)
    return value


def _format(value: int | float, spec: str) -> str:
    try:
        return format(value, spec)
    except (ValueError, OverflowError):  # `d` of a fraction, `f` of a number beyond floats
        return str(value)


def sort_key(value: properties.Value) -> tuple[int, float, str]:
    """Sort numbers before texts, and missing values last."""
    if value is properties.MISSING or value is None:
        return 2, 0.0, ""
    if isinstance(value, str):
        return 1, 0.0, value
    try:
        return 0, float(value), ""
    except OverflowError:
        return 0, math.inf if value > 0 else -math.inf, ""
