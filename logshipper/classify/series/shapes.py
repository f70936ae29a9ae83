"""Finds line shapes: the words that remain when the numbers are taken out. Pure.

A shape is confirmed after three lines with other numbers, if its numbers look like measurements.
The shape's held lines then become records, and each later line at once.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from logshipper.classify.series import names
from logshipper.classify.series.items import Item, Source
from logshipper.classify.series.line_reader import MARK, folded
from logshipper.classify.series.names import Column, Reading
from logshipper.classify.series.numbers import NUMBER, as_float, as_json, is_fractional, json_values
from logshipper.named_tuple import NamedTuple

CONFIRMING_LINES = 3
MAX_PENDING = 256  # a step of a simulation may print a hundred different lines
MAX_SHAPES = 256
MAX_REJECTED = 256
MAX_HELD_BYTES = 256 << 10  # of lines that await confirmation
MAX_CONFIRMED_BYTES = 512 << 10
_COLUMN_BYTES = 400  # of a confirmed shape, about
MAX_NUMBERS = 100  # in a line
_RETRIES = frozenset((10, 30, 100))  # lines of a rejected shape that are judged again
_FREE_WORDS_EACH = 3  # in a line of several values
# a line with one number, behind at most four words
_COUNTER_LINE = re.compile(
    rb"[^\w\x01]{0,20}(?:[A-Za-z][A-Za-z_]*[ #:=.]{1,5}){1,3}[\[(]?\x01(?:/\x01)?[^\w\x01]{0,20}"
).fullmatch


_ASSIGNS = re.compile(rb"(?:[A-Za-z]\w* = \x01,? ?){2,8}").fullmatch  # nSV = 280, nBSV = 275
_NO_SIGN = re.compile(rb"[^=:|]*").fullmatch


def shape_key(line: bytes) -> bytes:
    """Return a line with MARK for each number, and blanks folded."""
    return folded(NUMBER.sub(MARK, line))


class Held(NamedTuple):
    """A line of a shape that awaits confirmation."""

    seq: int
    time: float
    line: bytes


class Shape(Source):
    """A confirmed shape."""

    __slots__ = ("columns", "names", "places")

    def __init__(
        self,
        columns: tuple[Column, ...],
        counters: frozenset[str],
        *,
        is_boxed: bool,
        rank: int | None = None,
    ) -> None:
        super().__init__(counters, only_counts=len(counters) == len(columns), is_boxed=is_boxed)
        self.columns = columns
        places = {column.name: column.at for column in columns}
        if rank is not None:  # the place of its number
            places["rank"] = rank
        self.names, self.places = tuple(places), tuple(places.values())

    def item(self, seq: int, time: float, numbers: Sequence[bytes]) -> Item:
        """Return the values of a line. numbers: all of the line."""
        self.count += 1
        return Item(seq, time, json_values(self.names, [numbers[at] for at in self.places]), self)


class Shapes:
    """The shapes of one stream."""

    def __init__(self) -> None:
        self.confirmed: dict[bytes, Shape] = {}
        self.rejected: dict[bytes, int] = {}  # lines seen
        self.dropped = 0  # shapes over the limit
        self.pending: dict[bytes, list[Held]] = {}
        self._names: dict[str, bytes] = {}  # the shape that a name belongs to
        self._held_bytes = self._confirmed_bytes = 0

    def is_due(self, key: bytes) -> bool:
        """Count a line of a rejected shape; return whether to judge the shape again."""
        self.rejected[key] += 1
        return self.rejected[key] in _RETRIES or key in self.pending

    def feed(self, key: bytes, seq: int, time: float, line: bytes) -> list[Item]:
        """Take a line of a shape that is not confirmed. key: the line with MARK for each number and
        blanks folded."""
        held = self._take_held(key) if key in self.pending else []
        if not held:
            if _COUNTER_LINE(key) and not self._is_full():
                leader = self._leader(line)
                if leader is not None:
                    self._confirm(key, leader, line)
                    return [leader.item(seq, time, NUMBER.findall(line))]
            if key.count(MARK) * 2 > key.count(b" ") + 1 and _NO_SIGN(key):
                return []  # more numbers than words
        held.append(Held(seq, time, line))
        if len(held) < CONFIRMING_LINES:
            self.pending[key] = held
            self._held_bytes += _size(key, held)
            while len(self.pending) > MAX_PENDING or self._held_bytes > MAX_HELD_BYTES:
                self._take_held(next(iter(self.pending)))
            return []
        shape = self._judged(key, held)
        if shape is not None and self._is_full():
            self.dropped += key not in self.rejected
            shape = None
        if shape is None:
            if len(self.rejected) >= MAX_REJECTED:
                del self.rejected[next(iter(self.rejected))]
            self.rejected.setdefault(key, CONFIRMING_LINES)
            return []
        self.rejected.pop(key, None)
        self._confirm(key, shape, held[0].line)
        return [shape.item(entry.seq, entry.time, NUMBER.findall(entry.line)) for entry in held]

    def _take_held(self, key: bytes) -> list[Held]:
        held = self.pending.pop(key)
        self._held_bytes -= _size(key, held)
        return held

    def _is_full(self) -> bool:
        return len(self.confirmed) >= MAX_SHAPES or self._confirmed_bytes >= MAX_CONFIRMED_BYTES

    def _confirm(self, key: bytes, shape: Shape, example: bytes) -> None:
        words = key.replace(MARK, b"#").decode("utf-8", "replace")
        shape.describe("line", words, shape.names, example)
        self.confirmed[key] = shape
        self._confirmed_bytes += len(key) + _COLUMN_BYTES * len(shape.names)

    def _leader(self, line: bytes) -> Shape | None:
        """Return the shape of a line that only counts. It needs no confirmation, as a counter alone
        makes no record."""
        columns = _read(line).columns
        if len(columns) != 1 or not columns[0].is_counter:
            return None
        return Shape(columns, frozenset((columns[0].name,)), is_boxed=_is_boxed(line))

    def _judged(self, key: bytes, held: list[Held]) -> Shape | None:
        if key.count(MARK) > MAX_NUMBERS:
            return None
        rows = [_numbers(entry.line) for entry in held]
        line = held[-1].line
        texts = _texts(line)
        reading = names.read(texts, rows[-1])
        columns = _with_leading_counter(reading.columns, texts, rows)
        strong = sum(column.is_strong for column in columns)
        if not columns or len(columns) + strong < reading.nameless:
            return None
        changing = [column for column in columns if len({row[column.at] for row in rows}) > 1]
        if not changing:
            return None
        counters = frozenset(
            column.name for column in columns if column.is_counter and _rises(rows, column.at)
        )
        if not counters and names.are_coordinates(column.name for column in columns):
            return None
        if counters:  # the epoch of many steps may stand still
            counters |= {column.name for column in columns if column.is_counter} - {
                column.name for column in changing
            }
        values = [column for column in changing if column.name not in counters]
        steady = [
            column
            for column in columns
            if column.is_strong and column.name not in counters and "." in rows[-1][column.at]
        ]
        if counters and not values and len(steady) == 1 and len(columns) == 2:
            values = steady
        elif counters and not values:
            columns = tuple(column for column in columns if column.name in counters)
        fractional = [
            column for column in values if any(is_fractional(row[column.at]) for row in rows)
        ]
        strong = sum(column.is_strong for column in fractional)
        is_boxed = _is_boxed(line)
        is_series = (
            (is_boxed and len(columns) == 1 and reading.free_words <= 1)
            or (bool(counters) and len(columns) == len(counters) and reading.free_words <= 2)
            or (bool(counters) and bool(values) and (bool(fractional) or reading.free_words <= 2))
            or (strong >= 2 and reading.free_words <= _FREE_WORDS_EACH * strong)
            or (strong == 1 and reading.free_words <= 3)
            or (len(fractional) >= 2 and reading.free_words <= 2)
            or (_ASSIGNS(key) is not None and len(values) > 1)
        )
        if not is_series:
            return None
        columns = self._apart(key, columns)
        rank = _rank(texts)
        if rank == 0 and any(column.at == 0 for column in columns):
            rank = None
        return Shape(columns, counters, is_boxed=is_boxed, rank=rank)

    def _apart(self, key: bytes, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Add a word of the shape to the names that other shapes have, too: `Ux Initial residual`."""
        rivals: dict[str, list[bytes]] = {}  # by name
        for column in columns:
            owner = self._names.get(column.name, key)
            if not self._is_full():
                self._names[column.name] = owner
            rivals[column.name] = [owner] if owner != key else []
        for other, held in self.pending.items():
            if len(held) > 1:
                for name in _names_of(held[-1].line) & rivals.keys():
                    rivals[name].append(other)
        words = names.words_of(key.partition(MARK)[0])
        return tuple(
            column if column.is_counter else _told_apart(column, words, rivals[column.name])
            for column in columns
        )


def _size(key: bytes, held: list[Held]) -> int:
    size = len(key)
    for entry in held:
        size += len(entry.line)
    return size


def _told_apart(column: Column, words: list[str], rivals: list[bytes]) -> Column:
    """Prefix a name by the last word that no rival has; else by one that some rivals lack."""
    others = [set(names.words_of(rival)) for rival in rivals]
    for is_apart in (all, any):
        for word in reversed(words):
            if (
                rivals
                and word not in column.name
                and is_apart(word not in other for other in others)
            ):
                return column._replace(name=f"{word} {column.name}")
    return column


def _is_boxed(line: bytes) -> bool:
    return line.lstrip()[:1] == b"|"


def _texts(line: bytes) -> list[str]:
    """Return the texts around a line's numbers."""
    return [part.decode("utf-8", "replace") for part in NUMBER.split(line)]


def _numbers(line: bytes) -> list[str]:
    return [number.decode("ascii") for number in NUMBER.findall(line)]


def _read(line: bytes) -> Reading:
    return names.read(_texts(line), _numbers(line))


def named_numbers(line: bytes) -> list[tuple[str, str]]:
    """Return the names of a line's numbers with JSON numbers."""
    numbers = _numbers(line)
    return [(column.name, as_json(numbers[column.at])) for column in _read(line).columns]


def _names_of(line: bytes) -> set[str]:
    return {column.name for column in _read(line).columns}


def _with_leading_counter(
    columns: tuple[Column, ...], texts: list[str], rows: list[list[str]]
) -> tuple[Column, ...]:
    """Add a bare number at the line's begin that counts: `12 KSP Residual norm 1e-3`."""
    if (
        texts[0].strip() not in ("", "[", "#")
        or not texts[1].startswith((" ", "\t", "]", ": ", ", "))
        or any(column.at == 0 for column in columns)
    ):
        return columns
    firsts = [row[0] for row in rows]
    if not all(number.isdigit() for number in firsts) or len(set(firsts)) == 1:
        return columns
    if any(column.name == "iteration" for column in columns):
        return columns
    return (
        (Column(0, "iteration", is_strong=True, is_counter=True), *columns) if columns else columns
    )


def _rises(rows: list[list[str]], at: int) -> bool:
    values = [as_float(row[at]) for row in rows]
    pairs = list(pairwise(values))
    return any(a < b for a, b in pairs) and all(a <= b or b in (0.0, 1.0) for a, b in pairs)


def _rank(texts: list[str]) -> int | None:
    """Return the place of a rank before the line: `[rank 0]`, `3: ` of srun -l."""
    begin = texts[0].lower().lstrip()
    if begin in ("[rank ", "(rank ", "rank "):
        return 0
    return 0 if not begin and len(texts) > 2 and texts[1].startswith(": ") else None
