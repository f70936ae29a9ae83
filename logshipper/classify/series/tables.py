"""Finds tables: a line of names above rows with as many numbers. Pure."""

import re
from collections import deque
from itertools import pairwise

from logshipper.classify.series import places
from logshipper.classify.series.items import Item, Source
from logshipper.classify.series.names import LISTED, is_counter
from logshipper.classify.series.numbers import NUMBER, as_float, as_json, is_fractional

MAX_HEADERS = 4  # lines above a row that may be its header
MAX_TABLES = 32
MAX_HEADER_CHARACTERS = 2048
_JUDGED_ROWS = (3, 4, 6, 12, 30)  # numbers of held rows at which they are judged; then anew
MAX_COLUMNS = 100
_WIDE = re.compile(r"\s{2,}|\t")
_SENTENCE = frozenset("of the in for is are to and at on with by from".split())
_LABEL = re.compile(r"\s*([^\W\d_][\w+-]{0,15}:?),?(?=\s)")
_NO_VALUE = re.compile(r"[-*.]+|[0-9.]+[A-Za-z]{1,2}")  # a gap, or a number with a unit
_LABEL_WORD = re.compile(rb"[A-Za-z][\w+-]{0,15}:?,?").fullmatch
_CELL = re.compile(rb"\x01(?:/\x01)?[A-Za-z%]{0,2}[,;|]?|[-*.|]{1,9}").fullmatch
# cells and at most three short words or clocks
_SPARSE = re.compile(
    rb"(?:\| ?)?(?:[^ ]{1,24} ){0,2}(?:\x01[%*:]?(?:(?::\x01)+)? ?(?:[|%o*~-] ?)*){3,100}(?:[A-Za-z][^ \x01]{0,11})?"
).fullmatch
_IS_NAME = re.compile(r".*[^\W\d_].*")


class Table(Source):
    """Rows below one header."""

    __slots__ = ("held", "is_confirmed", "label", "labels", "names", "places")

    def __init__(
        self, names: tuple[str, ...], label: str, places: tuple[tuple[int, int], ...] = ()
    ) -> None:
        super().__init__(frozenset())
        self.names = names
        self.label = label
        self.labels: set[str] = set()  # of the held rows
        self.places = places  # begins and ends of columns with gaps or further words
        self.held: list[tuple[int, float, list[str]]] = []
        self.is_confirmed = False

    def fits(self, label: str, cells: list[str]) -> bool:
        is_whole = len(self.names) == len(cells) and not self.places
        return is_whole and bool(self.label) == bool(label)


class Tables:
    """The tables of one stream."""

    def __init__(self) -> None:
        self.headers: deque[bytes] = deque(maxlen=MAX_HEADERS)
        self._tables: dict[tuple[str, ...], Table] = {}  # that with the newest header last
        self._labelled: dict[str, bytes] = {}  # lines of names by the label before them
        self._rows: dict[bytes, Table] = {}  # confirmed, by the shape of their rows

    def note(self, line: bytes) -> None:
        """Keep a line of names with a label, `freqs:, k index, k1`, for rows with the same label."""
        label, comma, _ = line.lstrip().partition(b":,")
        if comma and len(label) < 17 and len(self._labelled) < MAX_TABLES:
            self._labelled.setdefault(label.decode("utf-8", "replace") + ":", line)

    def take_row(self, key: bytes, seq: int, time: float, line: bytes) -> Item | None:
        """Take a row of a confirmed table without a label, if no header stands above it."""
        table = self._rows.get(key)
        if table is None or self.headers:
            return None
        numbers = (as_json(number.decode()) for number in NUMBER.findall(line))
        table.count += 1
        return Item(seq, time, dict(zip(table.names, numbers, strict=True)), table)

    def feed(self, key: bytes, seq: int, time: float, line: bytes) -> list[Item] | None:
        """Take a possible row; None if it is none."""
        text = line.decode("utf-8", "replace").rstrip()
        label, cells, ends = _cells(text)
        numbers = places.numbers_of(text)
        if not 2 <= len(numbers) <= MAX_COLUMNS:
            return None
        table = self._table(label, cells, ends, text, numbers)
        if table is None:
            return None
        if table.places:
            cells = places.cells_of(table.places, numbers) or []
        table.labels.add(label)
        row = (seq, time, cells)
        if not table.is_confirmed:
            table.held.append(row)
            table.is_confirmed = len(table.held) in _JUDGED_ROWS and _is_series(table)
            rows: list[tuple[int, float, list[str]]] = []
            if table.is_confirmed or len(table.held) == max(_JUDGED_ROWS):
                rows, table.held = table.held, []
            return [_item(table, *entry) for entry in rows] if table.is_confirmed else []
        if not label and key.count(b"\x01") == len(cells) and not key.strip(b"\x01 "):
            if len(self._rows) >= MAX_TABLES:
                self._rows.clear()
            self._rows[key] = table
        return [_item(table, *row)]

    def _table(
        self, label: str, cells: list[str], ends: list[int], text: str, numbers: list[places.Number]
    ) -> Table | None:
        """Return the table of a row: by a header above it, else the newest one that fits."""
        lead = text[: numbers[0].begin].strip()
        if label in self._labelled:
            self.headers.append(self._labelled.pop(label))
        while self.headers:
            header = self.headers.pop().decode("utf-8", "replace")
            if len(header) > MAX_HEADER_CHARACTERS or not header.strip("-=+|_ *#@"):
                continue  # a rule
            names = _names(header, label, cells, ends) if len(cells) > 1 else None
            spans: tuple[tuple[int, int], ...] = ()
            if names is None:
                upper = self.headers[-1].decode("utf-8", "replace") if self.headers else ""
                columns = places.columns_of(header, upper, text, numbers)
                names = _checked([name for name, _, _ in columns], len(columns) or 1)
                spans = tuple((begin, end) for _, begin, end in columns)
            if names is not None:
                self.headers.clear()
                first = Table(names, lead if spans else label, spans)
                table = self._tables.pop(names, None) or first
                if len(self._tables) >= MAX_TABLES:
                    del self._tables[next(iter(self._tables))]
                self._tables[names] = table
                return table
        for table in reversed(self._tables.values()):
            if not table.places and table.fits(label, cells):
                return table
            if table.places and table.label == lead and places.cells_of(table.places, numbers):
                return table
        return None


def may_be_row(key: bytes) -> bool:
    """Return whether a line with MARK for each number may be a row, perhaps behind a label."""
    if key.count(b"\x01") > 2 and _SPARSE(key):
        return True
    label, *cells = key.split(b" ")
    return (
        bool(cells) and all(map(_CELL, cells)) and (_CELL(label) or _LABEL_WORD(label)) is not None
    )


def _cells(text: str) -> tuple[str, list[str], list[int]]:
    """Return a row's label, its numbers and their ends; no numbers if it is no row."""
    label = ""
    body = text
    offset = 0
    if "|" in text:
        body = text.replace("|", " ")
    match = _LABEL.match(body)
    if match is not None:
        label, offset = match[1], match.end()
    cells: list[str] = []
    ends: list[int] = []
    for word in re.finditer(r"\S+", body[offset:]):
        part = re.sub(r"^([0-9]+)/[0-9]+$", r"\1", word[0].strip(",;"))
        if not _is_number(part) and not _NO_VALUE.fullmatch(part):
            return "", [], []
        cells.append(part)
        ends.append(word.end() + offset)
    return label, cells, ends


def _names(header: str, label: str, cells: list[str], ends: list[int]) -> tuple[str, ...] | None:
    count = len(cells)
    text = header.strip()
    if "|" in text:
        return _checked([cell.strip() for cell in text.strip("| ").split("|")], count)
    text = text.lstrip("#").strip()
    words = text.split()
    if label and len(words) == count + 1 and (words[0].endswith(":") or not label.endswith(":")):
        return _checked(words[1:], count)
    listed = [cell.strip() for cell in text.split(",")]
    if label and listed[0] == label and len(listed) == count + 1:
        return _checked(listed[1:], count)
    if label and not label.endswith(":"):
        return None
    if not _WIDE.search(text) and (words[-1].startswith("(") or not _SENTENCE.isdisjoint(words)):
        return None  # a sentence or a title
    for parts in (
        words,
        [cell for cell in _WIDE.split(text) if cell],
        listed,
    ):
        names = _checked(parts, count)
        if names is not None:
            return names
    pitch = ends[0]
    if count > 1 and all(end == pitch * (number + 1) for number, end in enumerate(ends)):
        parts = [header[at * pitch : (at + 1) * pitch].strip() for at in range(count)]
        if len(header.rstrip()) <= pitch * count:
            return _checked(parts, count)
    return None


def _checked(cells: list[str], count: int) -> tuple[str, ...] | None:
    if len(cells) != count:
        return None
    names: list[str] = []
    for cell in cells:
        name = " ".join(cell.split()).strip(":,;")
        if not _IS_NAME.fullmatch(name) or len(name) > 64 or NUMBER.fullmatch(name.encode()):
            return None
        while name in names:
            name += "'"
        names.append(name)
    return tuple(names)


def _is_series(table: Table) -> bool:
    rows = [cells for _, _, cells in table.held]
    rising = [at for at in range(len(table.names)) if _rises(rows, at)]
    fractional = [
        at
        for at in range(len(table.names))
        if len({row[at] for row in rows}) > 1
        and any(_is_number(row[at]) and is_fractional(row[at]) for row in rows)
    ]
    if rising and (rising[0] == 0 or is_counter(table.names[rising[0]])):
        table.counters = frozenset((table.names[rising[0]],))
        if all(map(is_counter, table.names)):
            table.counters, table.only_counts = frozenset(table.names), True
    names = {name.lower() for name in table.names}
    filled = [at for at in range(len(table.names)) if any(row[at] != places.GAP for row in rows)]
    first = filled[0] if filled else 0
    counts = first in rising and all(
        row[first].isdigit() or row[first] == places.GAP for row in rows
    )
    if names & LISTED or ((table.places or len(table.labels) > 1) and not counts):
        return False  # rows of a listing
    if names >= {"x", "y", "z"} and (0 not in rising or len({row[0] for row in rows}) < len(rows)):
        return False  # of positions
    changing = sum(len({row[at] for row in rows}) > 1 for at in range(len(table.names)))
    if table.places and rising and len(rows) > 5 and changing > 3:
        return True
    return bool(fractional) and (bool(rising) or len(fractional) * 2 >= len(table.names))


def _is_number(cell: str) -> bool:
    return NUMBER.fullmatch(cell.rstrip("%").encode()) is not None


def _rises(rows: list[list[str]], at: int) -> bool:
    cells = [row[at] for row in rows if row[at] != places.GAP]
    if len(cells) < 3 or not all(map(_is_number, cells)):
        return False
    values = [as_float(cell.rstrip("%")) for cell in cells]
    return all(a <= b for a, b in pairwise(values)) and values[0] < values[-1]


def _item(table: Table, seq: int, time: float, cells: list[str]) -> Item:
    values = {
        name: as_json(cell.rstrip("%"))
        for name, cell in zip(table.names, cells, strict=True)
        if _is_number(cell)
    }
    table.count += 1
    return Item(seq, time, values, table)
