"""Rows of CSV and TSV, and titles of their columns. Pure."""

import csv
import io
from collections.abc import Sequence


class CsvRows:
    """Rows of cells as text that ends in LF. Cells with a CR or an LF are quoted, in all versions of Python: the csv
    module's own line end, CR LF, is what makes it do so."""

    def __init__(self, delimiter: str = ",") -> None:
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, delimiter=delimiter, lineterminator="\r\n")

    def row(self, cells: Sequence[str]) -> str:
        self._writer.writerow(cells)
        row = self._text.getvalue()[:-2]
        self._text.seek(0)
        self._text.truncate()
        return row


def own_titles(titles: Sequence[str], own: Sequence[str]) -> list[str]:
    """The titles of logshipper's own columns, with underscores before them until no key is called so."""
    found = []
    for title in own:
        unused = title
        while unused in titles:
            unused = "_" + unused
        found.append(unused)
    return found
