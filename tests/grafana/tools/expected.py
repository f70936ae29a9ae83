"""Expected contents of graphs and tables, from the jobs' output and the requirements, independent
of the dashboards."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from tests.grafana.tools.frames import Json

MAX_DEPTH = 4
NO_X = "record number"
BLANK = "\u2800"  # in names of series
DENSE = 6 * BLANK  # suffix of series with more than 60 points


def numbers(
    record: Mapping[str, Any], above: str = "", depth: int = 1
) -> dict[str, float]:  # Any: JSON
    """Return a record's JSON numbers (R22), nested ones as `a.b`, without keys that graphs leave
    out."""
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
    """Return the rows of a graph over X, in order of the records."""
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
    """Return a name without white space, because newer versions of Grafana split names there."""
    name = re.sub(r"\s", BLANK, key + suffix)
    return name + BLANK if name[:1].isdigit() else name


def numbered(x: str, records: Sequence[Json], *, only: str = "") -> list[dict[str, float]]:
    """Return the rows of a graph over the record's number, for records without X. The number is the
    place among records with the same keys."""
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
    """Return JSON as a browser holds it: numbers as floats, non-finite ones as text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return float(value) if isfinite(value) else json.dumps(value)
    if isinstance(value, list):
        return [floats(item) for item in value]
    return {key: floats(item) for key, item in value.items()}
