"""A job's metadata as columns of numbers: plain lists, which pandas, polars and matplotlib take as
they are. Pure."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple, TypeAlias

from logshipper_ingest.model.metadata_keys import Number, Path, leaves_of, parse_record
from logshipper_observe.base.notebook import MAX_COLUMNS, MORE, columns_table, html_table

Column: TypeAlias = (
    list[int] | list[float] | list[int | None] | list[float | None] | list[Number | None]
)
TIME, ATTEMPT, TASK = "_time", "_attempt", "_task"
_INT64 = 1 << 63


class Columns(dict[str, Column]):
    """Columns of one length by their names, in order: a dict that shells and notebooks show by its
    first and last rows."""

    def __repr__(self) -> str:
        length = max(map(len, self.values()), default=0)
        names = [*list(self)[:MAX_COLUMNS], *([MORE] if len(self) > MAX_COLUMNS else [])]
        return f"<{length:,} rows of {', '.join(names)}>"

    def _repr_html_(self) -> str:
        return columns_table(self)


class Numbers(NamedTuple):
    """A record's numbers."""

    time_ns: int  # when it was printed
    attempt: int
    task: int
    values: Mapping[Path, Number]  # by the key's path; nan and inf as printed


@dataclass(frozen=True, slots=True)
class Rollup:
    """Statistics of a key's numbers, in the order of printing."""

    last: Number  # nan or inf as printed last; the fields below concern its numbers
    min: Number
    max: Number
    mean: float
    std: float  # of the population; 0.0 for a single number
    count: int


class Rollups(dict[str, Rollup]):
    """Roll-ups by key, in alphabetical order."""

    def _repr_html_(self) -> str:
        return html_table(
            ("key", *(field.name for field in fields(Rollup))),
            ((key, *astuple(rollup)) for key, rollup in self.items()),
        )


def numbers_of(line: str) -> Mapping[Path, Number]:
    """The numbers of a record, nested ones down to four keys, and NaN and infinities."""
    record = parse_record(line.encode("utf-8", "surrogatepass"))
    if record is None:
        return {}
    leaves = leaves_of(record)
    return leaves.numbers | leaves.gaps if leaves.gaps else leaves.numbers


def columns_of(rows: Iterable[Numbers], names: Mapping[Path, str]) -> Columns:
    """Return a list for each of these keys, all of one length, with a number or None per row;
    before them `_time` (seconds since 1970), `_attempt` and `_task`.

    A column has ints if all its numbers are integers of 64 bits, and otherwise floats.
    """
    times: list[float] = []
    attempts: list[int] = []
    tasks: list[int] = []
    columns_by_path: dict[Path, list[Number | None]] = {path: [] for path in names}
    for at, row in enumerate(rows):
        times.append(row.time_ns / 1e9)
        attempts.append(row.attempt)
        tasks.append(row.task)
        for path, number in row.values.items():
            column = columns_by_path.get(path)
            if column is not None:
                if len(column) < at:
                    column.extend([None] * (at - len(column)))
                column.append(number)
    columns = Columns({TIME: times, ATTEMPT: attempts, TASK: tasks})
    for path, column in columns_by_path.items():
        column.extend([None] * (len(times) - len(column)))
        columns[names[path]] = _column(column)
    return columns


def _column(numbers: list[Number | None]) -> Column:
    whole = [n for n in numbers if n is None or (isinstance(n, int) and -_INT64 <= n < _INT64)]
    if len(whole) == len(numbers):
        return whole
    return [None if number is None else _as_float(number) for number in numbers]


def _is_finite(number: Number) -> bool:
    return isinstance(number, int) or math.isfinite(number)


def _as_float(number: Number) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def merge_rows(rows: Iterable[Numbers], by: Path) -> Iterator[Numbers]:
    """Yield one row for each value of a key, within an attempt and task; of repeated values the
    last counts. Omits records without the key."""
    merged_rows: dict[tuple[int, int, Number], Numbers] = {}
    for row in rows:
        value = row.values.get(by)
        if value is None or not _is_finite(value):
            continue
        earlier = merged_rows.get((row.attempt, row.task, value))
        values = {**earlier.values, **row.values} if earlier else row.values
        merged_rows[row.attempt, row.task, value] = row._replace(values=values)
    yield from merged_rows.values()


def sets_of(rows: Iterable[Numbers]) -> dict[tuple[Path, ...], list[Numbers]]:
    """Rows grouped by the set of keys that they have, in the order in which these were first
    seen."""
    sets: dict[tuple[Path, ...], list[Numbers]] = {}
    for row in rows:
        if row.values:
            sets.setdefault(tuple(sorted(row.values)), []).append(row)
    return sets


class _Tally:
    """Mean and deviation by Welford's way: no sum of squares that loses digits."""

    __slots__ = ("count", "largest", "last", "least", "mean", "squares")

    def __init__(self, number: Number) -> None:
        self.count = 0
        self.last = self.least = self.largest = number
        self.mean = self.squares = 0.0
        self.add(number)

    def add(self, number: Number) -> None:
        self.count += 1
        self.last = number
        self.least, self.largest = min(self.least, number), max(self.largest, number)
        value = _as_float(number)
        away = value - self.mean
        self.mean += away / self.count
        self.squares += away * (value - self.mean)

    def rollup(self) -> Rollup:
        deviation = math.sqrt(self.squares / self.count) if self.squares >= 0 else math.nan
        return Rollup(self.last, self.least, self.largest, self.mean, deviation, self.count)


def rollups_of(rows: Iterable[Numbers], names: Mapping[Path, str]) -> Rollups:
    """Return the statistics of those keys that have numbers, by name, in alphabetical order."""
    tallies: dict[Path, _Tally] = {}
    for row in rows:
        for path, number in row.values.items():
            tally = tallies.get(path)
            if not _is_finite(number):
                if tally is not None:
                    tally.last = number
            elif tally is None:
                tallies[path] = _Tally(number)
            else:
                tally.add(number)
    return Rollups(
        (names[path], tallies[path].rollup()) for path in sorted(tallies, key=names.__getitem__)
    )
