"""Graphs made of characters, by plotext: Braille dots on a terminal, ASCII where nothing else can
be shown."""

import math
import re
from collections.abc import Sequence

from logshipper.safe_text import safe
from logshipper_observe.base.output import Output, cells_wide
from logshipper_observe.base.words import number
from logshipper_observe.graphs.points import Points, gap_places
from logshipper_observe.graphs.series import CLOCK_WORDS, Graph
from logshipper_observe.graphs.ticks import axis_range, labels, ticks, time_unit

WIDEST = 160  # columns of all graphs side by side
TEXT_POINTS = 1_200  # of a series: several for each column of Braille dots
_TWO_COLUMNS_FROM = 120
_COLOURS = ("cyan", "magenta", "green", "orange", "red", "blue+", "gray", "white")
_SGR = {
    "cyan": "36",
    "magenta": "35",
    "green": "32",
    "orange": "33",
    "red": "31",
    "blue+": "94",
    "gray": "90",
    "white": "37",
}
_MARKERS = "*+xo#@%&"  # tell series apart without colours
_ASCII_FRAME = str.maketrans("─│┌┐└┘┤├┬┴┼", "-|+++++++++")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def graph_lines(graphs: Sequence[Graph], out: Output, across: int = 0) -> list[str]:
    """The lines of all graphs. across: so many side by side; 0: one below the other, or two where
    there is room."""
    width = min(out.columns, WIDEST)
    across = across or (2 if len(graphs) > 1 and width >= _TWO_COLUMNS_FROM else 1)
    down = -(-len(graphs) // across)
    height = (
        max(min(out.rows - 8, 22), 12) if down == 1 else max(min((out.rows - 6) // down, 16), 11)
    )
    graph_width = (width - 2 * (across - 1)) // across
    blocks = [_block(graph, graph_width, height, out) for graph in graphs]
    lines: list[str] = []
    for begin in range(0, len(blocks), across):
        row = blocks[begin : begin + across]
        deepest = max(map(len, row))
        padded = [block + [" " * graph_width] * (deepest - len(block)) for block in row]
        lines += ["  ".join(parts).rstrip(" ") for parts in zip(*padded, strict=True)]
    return lines


def _block(graph: Graph, width: int, height: int, out: Output) -> list[str]:
    """A graph's heading, its plot and its legend, each line filled up to the width."""
    lines = [_title(graph, width, out)]
    if not graph.total:
        return [*lines, _pad("  no point to show", width)]
    lines += _plot(graph, width, height, out)
    if len(graph.series) > 1:
        lines.append(_legend(graph.series, width, out))
    return lines


def _title(graph: Graph, width: int, out: Output) -> str:
    """Return the key, and a few numbers that dots cannot show."""
    title = _shorten(safe(graph.title or graph.key), width)
    facts = ""
    drawn = [points for points in graph.series if points.total]
    if drawn:
        low = min(min(points.ys) for points in drawn)
        high = max(max(points.ys) for points in drawn)
        values = zip(("last", "min", "max"), (drawn[-1].last, low, high), strict=True)
        facts = "  ".join(
            f"{name} {number(value, integer=graph.integer)}" for name, value in values
        )
    blanks = width - cells_wide(title) - len(facts) - 1
    if blanks < 2:
        facts, blanks = "", width - cells_wide(title)
    if out.colour:
        return f"\x1b[1m{title}\x1b[0m{' ' * blanks}\x1b[2m{facts}\x1b[0m" + " " * bool(facts)
    return f"{title}{' ' * blanks}{facts}" + " " * bool(facts)


def _plot(graph: Graph, width: int, height: int, out: Output) -> list[str]:
    import plotext as plt

    colour, fine = out.colour, out.unicode
    plt.clear_figure()
    plt.theme("clear")
    plt.limit_size(False, False)
    plt.plot_size(width, height)
    unit, x_label = 1.0, safe(graph.x.key or "")
    gap_xs = [x for points in graph.series for x in gap_places(points)]
    drawn = [points for points in graph.series if points.total]
    x_low = min(*gap_xs, *(min(points.xs) for points in drawn), math.inf)
    x_high = max(*gap_xs, *(max(points.xs) for points in drawn), -math.inf)
    if graph.x.key is None:
        unit, name = time_unit(x_high - min(x_low, 0.0))
        x_label = f"time since the start ({name})"
        if graph.x.words != CLOCK_WORDS:
            unit, x_label = 1.0, graph.x.words.partition(":")[0]
    y_low = min(min(points.ys) for points in drawn)
    y_high = max(max(points.ys) for points in drawn)
    several = len(graph.series) > 1
    for at, points in enumerate(graph.series):
        thin = points.thinned(TEXT_POINTS)
        marker = (
            ("braille" if fine else "*") if colour or not several else _MARKERS[at % len(_MARKERS)]
        )
        paint = _COLOURS[at % len(_COLOURS)] if colour else None
        draw = plt.scatter if graph.x.rule == 7 else plt.plot
        for xs, ys in thin.pieces():
            draw([x / unit for x in xs], list(ys), marker=marker, color=paint)
    if gap_xs:
        bottom = axis_range(y_low, y_high)[0]
        red = "red" if colour else None
        plt.scatter([x / unit for x in gap_xs], [bottom] * len(gap_xs), marker="x", color=red)
    _set_axes(graph, (x_low / unit, x_high / unit), (y_low, y_high), width, height)
    plt.xlabel(_shorten(x_label, width - 12))
    text = plt.build()
    if not colour:
        text = _ESCAPES.sub("", text)
    if not fine:
        text = text.translate(_ASCII_FRAME)
    return [line for line in text.split("\n") if _ESCAPES.sub("", line)]


def _set_axes(
    graph: Graph,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    width: int,
    height: int,
) -> None:
    import plotext as plt

    x_low, x_high = axis_range(*x_range)
    y_low, y_high = axis_range(*y_range)
    x_ticks = ticks(x_low, x_high, max(width // 10, 3), integer=graph.x_integer)
    y_ticks = ticks(y_low, y_high, max((height - 4) // 2, 3), integer=graph.integer)
    plt.xlim(x_low, x_high)
    plt.ylim(y_low, y_high)
    plt.xticks(x_ticks, labels(x_ticks))
    plt.yticks(y_ticks, labels(y_ticks))


def _legend(series: Sequence[Points], width: int, out: Output) -> str:
    text, wide = "", 0
    for at, points in enumerate(series):
        colour = _COLOURS[at % len(_COLOURS)]
        mark = _MARKERS[at % len(_MARKERS)] if not out.colour else "──" if out.unicode else "--"
        label = f" {safe(points.label)}"
        entry_width = 3 + len(mark) + cells_wide(label)
        if wide + entry_width > width:
            break
        wide += entry_width
        text += "   " + (f"\x1b[{_SGR[colour]}m{mark}\x1b[0m" if out.colour else mark) + label
    return text + " " * (width - wide)


def _shorten(text: str, width: int) -> str:
    if cells_wide(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 1)) + "…"


def _pad(text: str, width: int) -> str:
    return text[:width].ljust(width)
