"""The values of a line, and the records that lines form."""

from logshipper.named_tuple import NamedTuple


class ListedShape(NamedTuple):
    """A shape with records. kind: `line`, `table`, `bar`, or `block` if its lines begin records of
    several lines; lines: their number."""

    name: str  # its words, with `#` for each number
    kind: str
    lines: int
    keys: tuple[str, ...]  # of its records
    example: str  # a line


class Source:
    """A shape, a table or a bar."""

    __slots__ = (
        "block_keys", "count", "counters", "example", "is_boxed", "keys", "kind", "only_counts",
        "words",
    )  # fmt: skip

    def __init__(
        self, counters: frozenset[str], *, only_counts: bool = False, is_boxed: bool = False
    ) -> None:
        self.counters = counters  # names of rising counters
        self.only_counts = only_counts  # it has no other names
        self.is_boxed = is_boxed  # its lines begin with `|`
        self.count = 0  # number of lines
        self.block_keys: dict[str, None] = {}  # of records of several lines that it begins
        self.describe("", "", (), b"")

    def describe(self, kind: str, words: str, keys: tuple[str, ...], example: bytes) -> None:
        """Set the values of its entry in a list."""
        self.kind, self.words, self.keys, self.example = kind, words, keys, example

    def listed(self) -> ListedShape | None:
        """Return its entry in a list; None without records."""
        if not self.count or (self.only_counts and not self.is_boxed and not self.block_keys):
            return None
        example = self.example.decode("utf-8", "replace").rstrip()
        if self.block_keys:
            return ListedShape(self.words, "block", self.count, tuple(self.block_keys), example)
        return ListedShape(self.words, self.kind, self.count, self.keys, example)


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
