"""Columns of a list as people ask for them: `name,loss=Loss:.5f,tags.dataset`. Pure."""

import math
import re
from typing import NamedTuple

from logshipper.errors import ConfigError
from observe.properties import MISSING, Field, Kind, Row, Value, field_of
from observe.words import duration, local, local_with_zone, number

_FORMAT = re.compile(r"[+ ]?0?[0-9]{0,2}[,_]?(?:\.[0-9]{1,2})?[deEfFgGn%]?", re.ASCII)


class ColumnAsked(NamedTuple):
    """field: what it shows; title: above it; format: Python's, of numbers, "" for as they are."""

    field: Field
    title: str
    format: str


def parse_columns(texts: list[str]) -> list[ColumnAsked]:
    """Of `KEY`, `KEY=Title`, `KEY=Title:.5f` and `KEY:.5f`, joined by commas. Raises ConfigError."""
    words = [word.strip() for text in texts for word in _split(text)]
    if not all(words) or not words:
        raise ConfigError("--columns", ["a name is missing; it looks like name,loss=Loss:.5f"])
    return [_column(word) for word in words]


def _split(text: str) -> list[str]:
    """At commas; a format of its own begins with one: `lines=Lines:,` and `:,.2f`."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and parts[-1].endswith(":"):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _column(word: str) -> ColumnAsked:
    name, equals, rest = word.partition("=")
    head, colon, spec = (rest if equals else name).rpartition(":")
    if not colon or not spec:
        head, spec = (rest if equals else name), ""
    elif not equals and not _is_format(spec):
        head, spec = name, ""  # a key with a colon in it
    elif not _is_format(spec):
        raise ConfigError("--columns", [f"{spec!r} isn't a format of numbers; it looks like .5f or ,d"])
    field = field_of(name if equals else head)
    return ColumnAsked(field, head or field.name, spec)


def _is_format(spec: str) -> bool:
    return _FORMAT.fullmatch(spec) is not None


def cell_of(column: ColumnAsked, row: Row, *, terminal: bool) -> str:
    """A cell's text; "" for what the job doesn't have."""
    value = column.field.get(row)
    if value is MISSING or value is None:
        return "" if value is MISSING else "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if column.field.kind is Kind.TIME:
            return local(int(value)) if terminal else local_with_zone(int(value))
        if column.format:
            return _formatted(value, column.format)
        if column.field.kind is Kind.SPAN:
            return duration(value)
        return number(value) if terminal and isinstance(value, float) else str(value)
    return value


def _formatted(value: int | float, spec: str) -> str:
    try:
        return format(value, spec)
    except (ValueError, OverflowError):  # `d` of a fraction, `f` of a number beyond floats
        return str(value)


def sort_key(value: Value) -> tuple[int, float, str]:
    """Numbers before texts, what isn't there last."""
    if value is MISSING or value is None:
        return 2, 0.0, ""
    if isinstance(value, str):
        return 1, 0.0, value
    try:
        return 0, float(value), ""
    except OverflowError:
        return 0, math.inf if value > 0 else -math.inf, ""
