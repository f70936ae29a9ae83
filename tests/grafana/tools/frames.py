"""Grafana's data frames, with the parts that the panels need."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]  # Any: JSON
TIME, NUMBER, STRING, BOOLEAN, OTHER = "time", "number", "string", "boolean", "other"


@dataclass(frozen=True)
class Field:
    """A column. display: name from a transformation or a legend; labels: of a series' values."""

    name: str
    kind: str
    values: list[Any]  # Any: JSON
    labels: Mapping[str, str] = field(default_factory=dict)
    display: str = ""

    @property
    def display_name(self) -> str:
        return self.display or self.name

    def called(self, name: str) -> bool:
        return name in (self.name, self.display_name)

    def at(self, rows: Iterable[int]) -> "Field":
        return replace(self, values=[self.values[row] for row in rows])


@dataclass(frozen=True)
class Frame:
    """Columns of equal length. length: number of rows, even without columns."""

    fields: tuple[Field, ...]
    length: int
    ref: str = "A"

    @property
    def names(self) -> list[str]:
        return [column.display_name for column in self.fields]

    def column(self, name: str) -> list[Any]:
        """Return the values of a shown field. Raises KeyError without such a field."""
        for column in self.fields:
            if column.display_name == name:
                return column.values
        raise KeyError(f"{name!r} isn't one of {self.names}")

    def rows(self) -> list[Json]:
        """Return the rows by shown names, without fields that are None."""
        return [
            {
                column.display_name: column.values[row]
                for column in self.fields
                if column.values[row] is not None
            }
            for row in range(self.length)
        ]

    def of(self, kind: str) -> list[Field]:
        return [column for column in self.fields if column.kind == kind]

    def with_fields(self, fields: Iterable[Field]) -> "Frame":
        return replace(self, fields=tuple(fields))

    def at(self, rows: Iterable[int]) -> "Frame":
        rows = list(rows)
        return replace(
            self, fields=tuple(column.at(rows) for column in self.fields), length=len(rows)
        )


def loki_frame(ref: str, lines: Sequence[tuple[int, str]]) -> Frame:
    """Return Loki's answer as a frame: each line with its time in ms, in the order of the answer."""
    times = [at for at, _ in lines]
    fields = (
        Field("labels", STRING, ["{}"] * len(lines)),
        Field("Time", TIME, times),
        Field("Line", STRING, [line for _, line in lines]),
        Field("tsNs", STRING, [f"{at:013}000000" for at in times]),
        Field("id", STRING, [f"{ref}{place}" for place in range(len(lines))]),
    )
    return Frame(fields, len(lines), ref)


def kind_of(value: object) -> str:
    """Return a field's type by one value, as Grafana guesses it."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int | float):
        return NUMBER
    return STRING if isinstance(value, str) else OTHER
