"""Finds the columns of a table by their places, for rows with gaps or further words. Pure."""

import re
from typing import NamedTuple

from logshipper.classify.series.numbers import NUMBER

GAP = "-"
NEAR = 2  # characters between a number and its name, at most
_WORDS = re.compile(r"\S+(?: \S+)*")
_SENTENCE = re.compile(r"\b(?:of|the|for|are|this|with)\b")


class Number(NamedTuple):
    """A number of a row."""

    begin: int
    end: int
    text: str


class Column(NamedTuple):
    """A name of a header."""

    name: str
    begin: int
    end: int


def numbers_of(row: str) -> list[Number]:
    """Return the numbers that stand alone."""
    numbers = []
    for word in re.finditer(r"[^\s|]+", row):
        text = word[0].rstrip(",;:*%")
        if NUMBER.fullmatch(text.encode()):
            numbers.append(Number(word.start(), word.start() + len(text), text))
    return numbers


def columns_of(header: str, upper: str, row: str, numbers: list[Number]) -> list[Column]:
    """Return the columns of a header above a row; none if a number has no name of its own.
    upper: the line above the header, which may name the columns between."""
    if _SENTENCE.search(header) or len(_words(header)) < 2:
        return []
    columns = _split(_words(header), numbers)
    above = [column for column in _split(_words(upper), numbers) if not _hits(column, columns)]
    named: list[Column] = []
    taken: list[Column] = []
    for number in numbers:
        own = _nearest(columns, number) or _nearest(above, number)
        if not own and not named:
            before = row[: number.begin].split()
            own = [Column(before[-1], number.begin, number.end)] if before else []
        if not own or own[0] in taken:
            return []
        taken.append(own[0])
        begin, end = min(own[0].begin, number.begin), max(own[0].end, number.end)
        named.append(Column(own[0].name, begin, end))
    empty = [column for column in columns if column not in taken]
    if len(named) < max(2, len(empty)):
        return []
    return sorted((*named, *empty), key=lambda column: column.begin)


def cells_of(places: tuple[tuple[int, int], ...], numbers: list[Number]) -> list[str] | None:
    """Return a row's cells, some of them gaps; None if a number stands elsewhere."""
    cells = [GAP] * len(places)
    for number in numbers:
        shared = [min(number.end, end) - max(number.begin, begin) for begin, end in places]
        at = max(range(len(places)), key=shared.__getitem__)
        if shared[at] <= 0 or cells[at] != GAP:
            return None
        cells[at] = number.text
    return cells if len(numbers) > 1 else None


def _words(line: str) -> list[Column]:
    """Return the phrases of a header: wide gaps or `|` part them."""
    if line.lstrip().startswith("|"):
        line = line.replace("|", " ")
    line = line.replace("@", " ")
    return [Column(match[0], *match.span()) for match in _WORDS.finditer(line)]


def _split(columns: list[Column], numbers: list[Number]) -> list[Column]:
    """Split phrases that stand above several numbers."""
    split: list[Column] = []
    for column in columns:
        if sum(column in _nearest(columns, number) for number in numbers) < 2:
            split.append(column)
            continue
        for word in re.finditer(r"\S+", column.name):
            begin, end = word.span()
            split.append(Column(word[0], column.begin + begin, column.begin + end))
    return split


def _nearest(columns: list[Column], number: Number) -> list[Column]:
    """Return the column at a number's place, if there is one."""
    touched = [
        column
        for column in columns
        if column.begin - NEAR < number.end and number.begin < column.end + NEAR
    ]
    return sorted(
        touched,
        key=lambda column: (
            not _touch(column, number),
            max(column.begin - number.begin, number.end - column.end, 0),
        ),
    )[:1]


def _touch(column: Column, number: Number) -> bool:
    return column.begin < number.end and number.begin < column.end


def _hits(column: Column, others: list[Column]) -> bool:
    return any(column.begin < other.end and other.begin < column.end for other in others)
