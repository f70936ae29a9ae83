"""Rows of CSV and TSV, titles of their columns, and metadata records as such rows. Pure."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from logshipper_ingest.model.metadata_keys import names_of
from logshipper_observe.base.words import utc
from logshipper_observe.model.records import Path, at_path, cell, flat

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord


# the last ones: the same, of full width
_FORMULA_BEGINS = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def no_formula(text: str) -> str:
    """Return a cell that spreadsheets show and never calculate, because jobs' output is untrusted.
    Numbers stay."""
    return f"'{text}" if text.startswith(_FORMULA_BEGINS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text == text.strip()


class CsvRows:
    """Rows of text cells, without their final LF.

    All versions of Python quote cells with a CR or an LF, because the csv module ends lines with CR
    LF here. raw: keeps cells that a spreadsheet would treat as formulas.
    """

    def __init__(self, delimiter: str = ",", *, raw: bool = False) -> None:
        self._raw = raw
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, delimiter=delimiter, lineterminator="\r\n")

    def row(self, cells: Sequence[str]) -> str:
        self._writer.writerow(cells if self._raw else map(no_formula, cells))
        row = self._text.getvalue()[:-2]
        self._text.seek(0)
        self._text.truncate()
        return row


def own_titles(titles: Sequence[str], column_titles: Sequence[str]) -> list[str]:
    """Return the titles of logshipper's own columns (column_titles), with underscores before them
    until they differ from all keys (titles)."""
    free_titles = list(column_titles)
    for at in range(len(free_titles)):
        while free_titles[at] in titles:
            free_titles[at] = f"_{free_titles[at]}"
    return free_titles


def titles_of(paths: Iterable[Path]) -> list[str]:
    """The paths' names, in their order."""
    ordered = list(paths)
    names = names_of(ordered)
    return [names[path] for path in ordered]


def records_as_csv(
    records: "Callable[[], Iterable[MetadataRecord]]",
    columns: Sequence[Path] | None = None,
    *,
    raw: bool = False,
) -> Iterator[str]:
    """Yield lines of CSV: `_time`, `_attempt`, `_origin` and a column per key, nested ones as `a.b`.

    records: gives all records, twice, because only a full pass shows the columns; columns: paths of
    keys, None for all; raw: see CsvRows.
    """
    paths: dict[Path, None] = dict.fromkeys(columns or ())
    if columns is None:
        for record in records():
            for path in flat(record.keyed_line):
                paths.setdefault(path)
    rows = CsvRows(raw=raw)
    titles = titles_of(paths)
    yield rows.row([*own_titles(titles, ("_time", "_attempt", "_origin")), *titles]) + "\n"
    for record in records():
        if columns is None:
            of_record = flat(record.keyed_line)
            values = [of_record.get(path) for path in paths]
        else:
            values = [at_path(record.keyed_line, path) for path in paths]
        cells = ["" if value is None else cell(value) for value in values]
        yield rows.row([utc(record.time_ns), str(record.attempt), record.origin, *cells]) + "\n"
