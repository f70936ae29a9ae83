"""The values of a line, and the records that lines form."""

from typing import NamedTuple


class Source:
    """A shape or a table."""

    __slots__ = ("count", "counters", "is_boxed", "only_counts")

    def __init__(
        self, counters: frozenset[str], *, only_counts: bool = False, is_boxed: bool = False
    ) -> None:
        self.counters = counters  # names of rising counters
        self.only_counts = only_counts  # it has no other names
        self.is_boxed = is_boxed  # its lines begin with `|`
        self.count = 0  # number of lines


class Item(NamedTuple):
    """The values of one line."""

    seq: int  # number of the line in the stream
    time: float
    values: dict[str, str]  # JSON numbers by name
    source: Source

    def counts(self) -> dict[str, str]:
        counters = self.source.counters
        return {name: number for name, number in self.values.items() if name in counters}


class Record(NamedTuple):
    """A record of one or more lines."""

    seq: int  # number of its first line
    time: float
    values: dict[str, str]  # JSON numbers by name
