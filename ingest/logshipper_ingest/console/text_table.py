"""Plain tables for the agent's command line. Pure."""

from collections.abc import Container, Sequence

from logshipper.safe_text import safe


def printed_table(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> str:
    """Rows as lines of text, columns aligned. right: the columns that stand right."""
    safe_rows = [[safe(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in safe_rows) for column in range(len(safe_rows[0]))]
    lines = []
    for row in safe_rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def plural(number: int, noun: str) -> str:
    """`1 line`, `1,234 lines`, `2 keys`, `2 entries`."""
    if number == 1:
        return f"1 {noun}"
    several = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number:,} {several}"


def shown_size(size: int) -> str:
    return f"{size:,} B"
