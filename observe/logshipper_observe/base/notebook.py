"""Tables for notebooks: HTML of bounded size, in which a job's text is never markup."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from logshipper.safe_text import safe
from logshipper_observe.base import words

MAX_ROWS = 20  # of a table
MAX_COLUMNS = 20
MAX_CHARS = 120  # of a cell
MORE = "…"


def html_table(titles: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """Return a table of the first MAX_ROWS rows and MAX_COLUMNS columns, reads no more, and marks
    omissions.

    note: a sentence below it.
    """
    parts = ["<table><thead>", _row(titles, "th"), "</thead><tbody>"]
    for number, row in enumerate(rows):
        if number == MAX_ROWS:
            parts.append(_row([MORE] * min(len(titles), MAX_COLUMNS), "td"))
            break
        parts.append(_row(row, "td"))
    parts.append("</tbody></table>")
    return "".join(parts) + (f"<p>{escape(_shorten(note))}</p>" if note else "")


def columns_table(columns: Mapping[str, Sequence[object]]) -> str:
    """Return a table of columns of one length, with the first and last of many rows."""
    length = max(map(len, columns.values()), default=0)
    rows = range(length)
    half = MAX_ROWS // 2
    numbers = [*rows] if length <= MAX_ROWS else [*rows[: half - 1], None, *rows[-half:]]
    cells = (
        [MORE if number is None else column[number] for column in columns.values()]
        for number in numbers
    )
    table = html_table(list(columns), cells)
    return f"{table}<p>{length:,} rows, {len(columns):,} columns</p>"


def _row(cells: Sequence[object], tag: str) -> str:
    texts = [escape(_shorten(_text(cell))) for cell in cells[:MAX_COLUMNS]]
    texts += [MORE] if len(cells) > MAX_COLUMNS else []
    return f"<tr>{''.join(f'<{tag}>{text}</{tag}>' for text in texts)}</tr>"


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return words.number(cell) if isinstance(cell, float) else str(cell)


def _shorten(text: str) -> str:
    return safe(text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 1]}{MORE}")
