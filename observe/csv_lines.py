"""Lines of CSV. Pure."""

import csv
import io
from collections.abc import Sequence


def csv_line(cells: Sequence[str]) -> bytes:
    """One line, UTF-8. It ends in LF, and yet every cell that holds a CR or an LF is quoted (the csv module's own line
    end, CR LF, is what makes it quote both in all versions of Python)."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue()[:-2].encode("utf-8", "surrogatepass") + b"\n"
