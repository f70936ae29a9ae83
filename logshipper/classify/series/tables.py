"""Finds tables: a line of names above rows of numbers. Pure.

A row belongs to a header with as many cells, or to one whose words stand above its numbers. Such
rows may lack cells.
"""

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from logshipper.classify.series.items import Item, Source
from logshipper.classify.series.names import ATOMS, are_coordinates, is_counter
from logshipper.classify.series.numbers import as_float, as_json, is_fractional, json_values
from logshipper.classify.series.rows import Cell, Header, Row, read_header, read_row, stacked

MAX_HEADERS = 4  # lines above a row that may be its header
MAX_TABLES = 16
MAX_HEADER_CHARACTERS = 2048
_JUDGED_ROWS = (3, 4, 6, 12, 20, 30)  # numbers of held rows at which they are judged; then anew
_LEAST_ROWS = 12  # of a table without a counter, whose header recurs
MAX_HELD_CELLS = 600  # of a table
_NAMED_ROWS = 3  # rows with a name of their own make a listing
_LEAST_COLUMNS = 4  # that change, of whole numbers
_LEAST_COUNTED = 6  # rows of whole numbers behind a rising one
_RULE = "-=+|_ *#:~"
_EDGE = " ~\t\r"  # of a frame, behind a line


class Table(Source):
    """Rows below one header."""

    __slots__ = ("header", "headers", "held", "is_confirmed", "is_listing", "label", "labels")

    def __init__(self, header: Header, label: str) -> None:
        super().__init__(frozenset())
        self.header = header
        self.headers = 1  # how often it was printed
        self.label = label
        self.labels: set[str] = set()  # of the held rows
        self.held: list[tuple[int, float, tuple[Cell | None, ...]]] = []
        self.is_confirmed = False
        self.is_listing = False  # its rows have names of their own
        self.describe("table", " ".join(header.names), header.names, b"")

    def item(self, seq: int, time: float, numbers: Sequence[bytes]) -> Item:
        """Return the values of a row of nothing but numbers."""
        self.count += 1
        return Item(seq, time, json_values(self.header.names, numbers), self)

    def takes(self, row: Row) -> bool:
        """Return whether the row's label fits: rows with names of their own are a listing."""
        if not self.header.spans:
            return bool(self.label) == bool(row.label)
        label = row.label
        has_colons = self.label.endswith(":") and label.endswith(":")
        has_flag = len(label) + len(self.label) == 1
        return label == self.label or has_colons or has_flag


class Tables:
    """The tables of one stream."""

    def __init__(self) -> None:
        self.headers: deque[bytes] = deque(maxlen=MAX_HEADERS)
        self._tables: dict[tuple[str, ...], Table] = {}  # that with the newest header last
        # headers such as `freqs:, k1, k2`, by the label of their rows, however far below
        self._labelled: dict[str, bytes] = {}
        self._rows: dict[bytes, Table] = {}  # confirmed, by the shape of their rows
        self._missed = b""  # the line above the newest row without a table

    def all(self) -> list[Table]:
        return list(self._tables.values())

    def row_table(self, key: bytes) -> Table | None:
        """Return the confirmed table of rows of nothing but numbers, if no header stands above."""
        return None if self.headers else self._rows.get(key)

    def feed(self, key: bytes, seq: int, time: float, line: bytes) -> list[Item] | None:
        """Take a possible row; None if it is none."""
        if not self.headers and not self._tables:
            return None
        text = line.decode("utf-8", "replace").rstrip(_EDGE)
        row = read_row(text)
        if row is None:
            if ":," in text and len(self._labelled) < MAX_TABLES:
                self._labelled[text.partition(",")[0]] = line
            return None
        if row.separator and row.cells[0].text in self._labelled:
            self.headers.append(self._labelled[row.cells[0].text])
        table, cells = self._table(row)
        if table is None:
            return None
        if table.is_listing:
            return []
        entry = (seq, time, cells)
        table.example = table.example or line
        if not table.is_confirmed:
            table.held.append(entry)
            words = (cell.text for cell in row.cells if cell.is_word)
            table.labels |= {row.label, row.rest, *words}
            table.is_confirmed = len(table.held) in _JUDGED_ROWS and _is_series(table)
            rows = []
            is_last = len(table.held) == max(_JUDGED_ROWS)
            if table.is_confirmed or is_last or len(table.held) * len(cells) > MAX_HELD_CELLS:
                rows, table.held = table.held, []
                table.labels.clear()
            return [_item(table, *held) for held in rows] if table.is_confirmed else []
        if key.count(b"\x01") == len(table.header.names) and not key.strip(b"\x01 "):
            if len(self._rows) >= MAX_TABLES:
                self._rows.clear()
            self._rows[key] = table
        return [_item(table, *entry)]

    def _table(self, row: Row) -> tuple[Table | None, tuple[Cell | None, ...]]:
        """Return the table of a row, by a header above it, else the newest one that fits; and the
        cells of its columns."""
        may_align = True  # of all lines above, only the nearest one's words name numbers below them
        above = tuple(self.headers)
        while self.headers:
            text = self.headers.pop().decode("utf-8", "replace").rstrip(_EDGE)
            if len(text) > MAX_HEADER_CHARACTERS or not text.strip(_RULE):
                continue
            header = read_header(text, row, may_align=may_align)
            if header is None and may_align and self.headers:
                upper = self.headers[-1].decode("utf-8", "replace")
                header = read_header(stacked(upper, text), row, may_align=True)
            may_align = False
            if header is not None:
                self.headers.clear()
                table = self._tables.pop(header.names, None)
                if table is None or not (table.takes(row) or table.is_listing):
                    table = Table(header, row.label)
                else:
                    table.header = header
                    table.headers += 1
                if len(self._tables) >= MAX_TABLES:
                    del self._tables[next(iter(self._tables))]
                self._tables[header.names] = table
                return table, header.cells(row) or ()
        first = row.cells[0].text
        if row.separator and first.endswith(":"):  # `fld:, 1, 0.25`, without a header
            names = first, *(f"{first[:-1]} {at}" for at in range(1, len(row.cells)))
            if names in self._tables or len(self._tables) < MAX_TABLES:
                header = Header(names, row.separator)
                return self._tables.setdefault(names, Table(header, "")), row.cells
        newest = reversed(self._tables.values())
        for table in sorted(newest, key=lambda table: table.label != row.label):
            cells = table.header.cells(row)
            if cells is None or (cells[0] is None and row.label != table.label):
                continue
            if table.is_listing or table.takes(row):
                return table, cells
            if table.header.spans and row.label and not table.is_confirmed:
                table.is_listing = True
        if above and above[-1] is not self._missed:  # a first row may differ from the others
            self._missed = above[-1]
            self.headers.extend(above)
        return None, ()


def _is_series(table: Table) -> bool:
    rows = [cells for _, _, cells in table.held]
    labels = {label for label in table.labels if not label.endswith(":")}
    names = table.header.names
    columns = [
        [cell.number for row in rows if (cell := row[at]) is not None and cell.number]
        for at in range(len(names))
    ]
    # rows that count may end with one of some words
    may_recur = not table.label and len(labels) * 3 <= len(rows) * 2 and _counts(columns[0])
    if len(labels) >= _NAMED_ROWS and not may_recur:
        return False
    changing = [at for at, column in enumerate(columns) if len(set(column)) > 1]
    rising = [at for at in changing if len(columns[at]) == len(rows) and _rises(columns[at])]
    fractional = [at for at in changing if any(map(is_fractional, columns[at]))]
    if rising and (rising[0] == 0 or is_counter(names[rising[0]])):
        table.counters = frozenset((names[rising[0]],))
        if all(map(is_counter, names)):
            table.counters, table.only_counts = frozenset(names), True
    times = [tuple(cell.text for cell in row if cell is not None and cell.is_time) for row in rows]
    is_counted = rising[:1] == [0] and len(set(columns[0])) == len(rows)
    is_counter_first = is_counted and (0 not in fractional or are_coordinates(names[1:]))
    if names[0].lower() in ATOMS or (are_coordinates(names) and not is_counter_first):
        return False
    if fractional and (rising or len(fractional) * 2 >= len(names)):
        return True
    if changing and all(times) and len(set(times)) > 1:
        return True
    if rising[:1] == [0] and len(rows) >= _LEAST_COUNTED and len(changing) >= _LEAST_COLUMNS:
        return is_counted
    firsts = list(map(as_float, columns[0]))
    # no row has a number of its own, and they are not in the order of the first one
    is_listing = len(set(firsts)) == len(rows) or firsts in (
        sorted(firsts),
        sorted(firsts, reverse=True),
    )
    return (
        (table.headers > 1 or not is_listing)
        and len(rows) >= _LEAST_ROWS
        and len(changing) >= 3
        and len(changing) * 2 >= len(names)
    )


def _rises(numbers: list[str]) -> bool:
    values = list(map(as_float, numbers))
    return all(a <= b for a, b in pairwise(values)) and values[0] < values[-1]


def _counts(numbers: list[str]) -> bool:
    return all(as_float(b) - as_float(a) == 1 for a, b in pairwise(numbers))


def _item(table: Table, seq: int, time: float, cells: tuple[Cell | None, ...]) -> Item:
    values = {
        name: as_json(cell.number)
        for name, cell in zip(table.header.names, cells, strict=True)
        if cell is not None and cell.number
    }
    table.count += 1
    return Item(seq, time, values, table)
