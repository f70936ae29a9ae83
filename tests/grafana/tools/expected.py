"""What graphs and tables are to show, made of what the jobs printed, by the requirements and not by
the dashboards."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from tests.grafana.tools.frames import Json

MAX_DEPTH = 4
NO_X = "record number"
BLANK = "\u2800"  # in names of series
DENSE = 6 * BLANK  # behind those of more than 60 points


def numbers(
    record: Mapping[str, Any], above: str = "", depth: int = 1
) -> dict[str, float]:  # Any: JSON
    """R22: what JSON calls a number, nested ones as `a.b`; without keys that graphs leave out."""
    values: dict[str, float] = {}
    for key, value in record.items():
        name = above + key
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            if not set(name) & set('"\\'):
                values[name] = float(value)
        elif isinstance(value, dict) and depth < MAX_DEPTH:
            values |= numbers(value, f"{name}.", depth + 1)
    return values


def over(
    x: str, records: Sequence[Json], *, only: str = "", suffix: str = ""
) -> list[dict[str, float]]:
    """Rows of a graph over X, in order of the records."""
    return [row for row in _rows(x, records, only, suffix) if x in row and len(row) > 1]


def _rows(x: str, records: Sequence[Json], only: str, suffix: str) -> Iterator[dict[str, float]]:
    for record in records:
        values = numbers(record)
        yield {
            name if name == x else series_name(name, suffix): value
            for name, value in values.items()
            if not only or name in (x, only)
        }


def series_name(key: str, suffix: str = "") -> str:
    """Without white space, which newer versions of Grafana split names at."""
    name = re.sub(r"\s", BLANK, key + suffix)
    return name + BLANK if name[:1].isdigit() else name


def numbered(x: str, records: Sequence[Json], *, only: str = "") -> list[dict[str, float]]:
    """Rows of a graph over the record's number, of records without X: its place among those with
    the same keys."""
    counts: dict[tuple[str, ...], int] = {}
    rows = []
    for record in records:
        keys = tuple(sorted(record))
        counts[keys] = counts.get(keys, 0) + 1
        values = numbers(record)
        row = {name: value for name, value in values.items() if not only or name == only}
        if x not in values and row:
            named = {series_name(name): value for name, value in row.items()}
            rows.append({NO_X: float(counts[keys]), **named})
    return rows


def floats(value: Any) -> Any:  # Any: JSON
    """JSON as a browser holds it: all numbers are floats, what isn't finite is text; nulls are gone
    from objects of rows."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return float(value) if isfinite(value) else json.dumps(value)
    if isinstance(value, list):
        return [floats(item) for item in value]
    return {key: floats(item) for key, item in value.items()}
