"""Metadata records as lines of CSV. Pure."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ingest.metadata_keys import names_of
from observe.records import Path, at_path, cell, flat
from observe.words import utc

if TYPE_CHECKING:
    from ingest.job import MetadataRecord


class CsvLines:
    """Makes lines of CSV. They end in LF, and yet every cell that holds a CR or an LF is quoted (the csv module's own
    line end, CR LF, is what makes it quote both in all versions of Python)."""

    def __init__(self) -> None:
        self._line = io.StringIO(newline="")
        self._writer = csv.writer(self._line, lineterminator="\r\n")

    def line(self, cells: Sequence[str]) -> str:
        self._writer.writerow(cells)
        line = self._line.getvalue()[:-2] + "\n"
        self._line.seek(0)
        self._line.truncate()
        return line


def own_titles(titles: Sequence[str], own: Sequence[str]) -> list[str]:
    """The titles of logshipper's own columns, with underscores before them until no key is called so."""
    found = []
    for title in own:
        unused = title
        while unused in titles:
            unused = "_" + unused
        found.append(unused)
    return found


def titles_of(paths: Iterable[Path]) -> list[str]:
    """The paths' names, in their order."""
    ordered = list(paths)
    names = names_of(ordered)
    return [names[path] for path in ordered]


def records_as_csv(
    records: "Callable[[], Iterable[MetadataRecord]]", wanted: Sequence[Path] | None = None
) -> Iterator[str]:
    """Lines of CSV: `_time`, `_attempt` and a column per key, nested ones as `a.b`. records: gives all of them, twice:
    the columns are known only when every record was seen. wanted: the columns, where not all are."""
    paths: dict[Path, None] = dict.fromkeys(wanted or ())
    if wanted is None:
        for record in records():
            for path in flat(record.line):
                paths.setdefault(path)
    lines = CsvLines()
    titles = titles_of(paths)
    yield lines.line([*own_titles(titles, ("_time", "_attempt")), *titles])
    for record in records():
        values = flat(record.line) if wanted is None else {path: at_path(record.line, path) for path in paths}
        cells = [cell(value) if (value := values.get(path)) is not None else "" for path in paths]
        yield lines.line([utc(record.time_ns), str(record.attempt), *cells])
