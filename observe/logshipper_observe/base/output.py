"""Output of a command: rich tables on a terminal, plain aligned text in a pipe, JSON for programs.

Plain text for grep and awk has no colours, boxes or tabs, and is never cut.
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from logshipper.safe_text import safe, safe_json, safe_lines
from logshipper_observe.base.words import STATE_STYLES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_ALIGNED_UP_TO = 48  # columns of plain text; a wider cell pushes its own row only
_FLEXIBLE_MIN = 8  # columns
_RICH_ROWS = 2_000  # rich lays a table out as a whole; longer ones are plain


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column."""

    title: str
    right: bool = False  # aligned to the right
    style: str = ""  # rich's
    flexible: bool = False  # shrinks in a narrow terminal
    ellipsis: bool = False  # narrowed, its cells are shortened; otherwise they are folded


class Styled(NamedTuple):
    """A cell or a piece of a line with a style of rich's."""

    text: str
    style: str


Cell = str | Styled


def state_cell(state: str, text: str = "") -> Styled:
    """Return a state, or a text about it, in the state's style."""
    return Styled(text or state, STATE_STYLES.get(state, ""))


class Raw(str):
    """A JSON text that is printed as it is: numbers keep every digit."""

    __slots__ = ()


class Output:
    """Standard output.

    terminal: a person reads it; ansi: it knows escape codes; colour: its abilities, NO_COLOR,
    `always` and `never` decide; columns, rows: its size; unicode: it shows more than ASCII.
    """

    def __init__(self, colour: str = "auto") -> None:
        self.terminal = sys.stdout.isatty()
        self.ansi = self.terminal and os.environ.get("TERM", "dumb") not in ("dumb", "")
        auto_colour = self.ansi and not os.environ.get("NO_COLOR")
        self.colour = auto_colour if colour == "auto" else colour == "always"
        self.columns, self.rows = shutil.get_terminal_size((100, 30))
        self.unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
        self._console: Console | None = None

    @property
    def console(self) -> "Console":
        """Made when first asked for: rich is a heavy import."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                file=sys.stdout,
                force_terminal=self.terminal,
                color_system="auto" if self.colour else None,
                no_color=not self.colour,
                width=self.columns,
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=False,
            )
        return self._console

    def line(self, *pieces: Cell) -> None:
        """Prints one line; wrapped by words on a terminal."""
        if not self.terminal:
            sys.stdout.write("".join(_plain(piece) for piece in pieces).rstrip(" ") + "\n")
            return
        self.console.print(_rich_text(pieces))

    def note(self, text: str, style: str = "dim") -> None:
        """Print one line in a style of rich's."""
        self.line(Styled(text, style))

    def job_line(self, name: str, job_id: str) -> None:
        """Print the job above its answer."""
        self.line(Styled(name, "bold"), "  ", Styled(job_id, "bold cyan"))

    def heading(self, title: str, note: str = "") -> None:
        """A blank line and a heading."""
        self.line()
        self.line(Styled(title, "bold"), Styled(f"  {note}" if note else "", "dim"))

    def fields(self, rows: Sequence[tuple[str, Sequence[Cell]]]) -> None:
        """Names and their values, a line each."""
        width = max(len(name) for name, _ in rows)
        if not self.terminal:
            for name, pieces in rows:
                self.line(name.ljust(width), "  ", *pieces)
            return
        from rich.table import Table

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, pieces in rows:
            grid.add_row(name, _rich_text(pieces))
        self.console.print(grid)

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        if self.terminal and len(rows) <= _RICH_ROWS:
            widths = _fit_widths(columns, natural_widths(columns, rows), self.columns)
            if _table_width(widths) > self.columns and len(columns) > 2:
                self._rows_as_fields(columns, rows)
            else:
                self._rich_table(columns, rows, widths)
        else:
            self.plain_table(columns, rows, plain_widths(columns, rows))

    def plain_table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], widths: Sequence[int]
    ) -> None:
        """Writes row by row, two blanks between columns; an empty cell is `-`, so that columns can
        be counted."""
        sys.stdout.write(_plain_row([column.title for column in columns], columns, widths))
        for row in rows:
            sys.stdout.write(_plain_row(row, columns, widths))

    def _rows_as_fields(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Each row as lines of title and cell, where the terminal is too narrow for a table: no
        number is cut off."""
        for at, row in enumerate(rows):
            if at:
                self.line()
            self.fields([(column.title, [cell]) for column, cell in zip(columns, row, strict=True)])

    def _rich_table(
        self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], widths: Sequence[int]
    ) -> None:
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            padding=(0, 0, 0, 1),
            header_style="bold",
            border_style="dim",
        )
        for column, width in zip(columns, widths, strict=True):
            table.add_column(
                _rich_text([column.title]),
                justify="right" if column.right else "left",
                style=column.style,
                width=width,
                no_wrap=column.ellipsis or not column.flexible,
                overflow="ellipsis" if column.ellipsis else "fold",
            )
        for row in rows:
            table.add_row(*(_rich_text([cell]) for cell in row))
        self.console.print(table)


def _rich_text(pieces: Iterable[Cell]) -> "Text":
    from rich.text import Text

    text = Text()
    for piece in pieces:
        text.append(_plain(piece), piece.style if isinstance(piece, Styled) else None)
    return text


def _plain(cell: Cell) -> str:
    return safe(cell.text if isinstance(cell, Styled) else cell)


def cells_wide(text: str) -> int:
    """Return the columns of a text, exact beyond ASCII."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def line_width(pieces: Iterable[Cell]) -> int:
    """Return the columns of a line of such pieces without wrapping."""
    return sum(cells_wide(_plain(piece)) for piece in pieces)


def natural_widths(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> list[int]:
    """Columns' widths where nothing is cut or folded."""
    texts: list[Sequence[Cell]] = [[column.title for column in columns], *rows]
    return [max(cells_wide(_plain(cell)) for cell in cells) for cells in zip(*texts, strict=True)]


def fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> int:
    """Return the number of columns, from the left, that fit if the flexible ones shrink; at least
    one."""
    total_width = -2
    for at, (column, width) in enumerate(zip(columns, widths, strict=True)):
        total_width += 2 + (min(width, _FLEXIBLE_MIN) if column.flexible else width)
        if total_width > room and at:
            return at
    return len(columns)


def _table_width(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _fit_widths(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """The widths, with the widest flexible columns narrowed until all fit."""
    excess = _table_width(widths) - room
    while excess > 0:
        flexible = [at for at, column in enumerate(columns) if column.flexible]
        widest = max(flexible, key=widths.__getitem__, default=0)
        if not flexible or widths[widest] <= _FLEXIBLE_MIN:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def plain_widths(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> list[int]:
    """Columns' widths in plain text."""
    widths = [cells_wide(column.title) for column in columns]
    for row in rows:
        widen(widths, row)
    return widths


def widen(widths: list[int], row: Sequence[Cell]) -> None:
    """Makes the widths fit one more row."""
    for at, cell in enumerate(row):
        wide = cells_wide(_plain(cell))
        if widths[at] < wide:
            widths[at] = max(widths[at], min(wide, _ALIGNED_UP_TO))


def _plain_row(row: Sequence[Cell], columns: Sequence[Column], widths: Sequence[int]) -> str:
    parts = []
    for cell, column, width in zip(row, columns, widths, strict=True):
        text = _plain(cell) or "-"
        blanks = " " * (width - cells_wide(text))
        parts.append(blanks + text if column.right else text + blanks)
    return "  ".join(parts).rstrip(" ") + "\n"


def to_json(value: object, indent: str | None = None, level: int = 0) -> str:
    """Encode dicts, lists, plain values and Raw texts as JSON; infinite numbers become null.

    indent: None for one line without blanks, else the indentation of each level.
    """
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Mapping):
        colon = ":" if indent is None else ": "
        items = [
            f"{_json_text(str(key))}{colon}{to_json(item, indent, level + 1)}"
            for key, item in value.items()
        ]
        return _enclosed("{", items, "}", indent, level)
    if isinstance(value, list | tuple):
        items = [to_json(item, indent, level + 1) for item in value]
        return _enclosed("[", items, "]", indent, level)
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    return _json_text(value)


def _json_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # UTF-8 has no lone surrogates
        text = json.dumps(value)
    return text


def _enclosed(begin: str, items: list[str], end: str, indent: str | None, level: int) -> str:
    if not items:
        return begin + end
    if indent is None:
        return begin + ",".join(items) + end
    inner = "\n" + indent * (level + 1)
    return begin + inner + ("," + inner).join(items) + "\n" + indent * level + end


def print_json(value: object) -> None:
    """Prints a JSON document for people and programs: indented, in UTF-8."""
    import orjson  # twenty times as fast, where nothing but plain values is in it

    try:
        text = orjson.dumps(
            value, option=orjson.OPT_INDENT_2 | orjson.OPT_PASSTHROUGH_SUBCLASS
        ).decode()
    except TypeError:  # Raw texts, integers of more than 64 bits, lone surrogates
        text = to_json(value, indent="  ")
    write_json(text + "\n")


def write_json(text: str) -> None:
    """Writes JSON: on a terminal with nothing raw in it that one obeys."""
    sys.stdout.write(safe_json(text) if sys.stdout.isatty() else text)


def write_data(text: str) -> None:
    """Write text for programs, such as CSV: unchanged, but safe on a terminal."""
    sys.stdout.write(safe_lines(text) if sys.stdout.isatty() else text)
