"""Graphs of characters, by plotext: Braille dots on a terminal, ASCII elsewhere."""

import math
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

from logshipper.safe_text import safe
from logshipper_observe.base.output import Output, cells_wide
from logshipper_observe.base.words import number
from logshipper_observe.graphs.graph_notes import x_unit
from logshipper_observe.graphs.points import Points, gap_places
from logshipper_observe.graphs.series import Graph
from logshipper_observe.graphs.ticks import axis_range, labels, ticks

Range: TypeAlias = tuple[float, float]

WIDEST = 160  # columns of all graphs side by side
TEXT_POINTS = 1_200  # of a series: several for each column of Braille dots
_TWO_COLUMNS_FROM = 120
_COLOURS = ("cyan", "magenta", "green", "orange", "red", "blue+", "gray", "white")
_SGR = ("36", "35", "32", "33", "31", "94", "90", "37")  # of these colours
_MARKERS = "*+xo#@%&"  # tell series apart without colours
_ASCII_FRAME = str.maketrans("─│┌┐└┘┤├┬┴┼", "-|+++++++++")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def graph_lines(graphs: Sequence[Graph], out: Output, across: int = 0) -> list[str]:
    """The lines of all graphs. across: graphs side by side; 0: one, or two on a wide terminal."""
    width = min(out.columns, WIDEST)
    across = across or (2 if len(graphs) > 1 and width >= _TWO_COLUMNS_FROM else 1)
    down = -(-len(graphs) // across)
    height = (
        max(min(out.rows - 8, 22), 12) if down == 1 else max(min((out.rows - 6) // down, 16), 11)
    )
    graph_width = (width - 2 * (across - 1)) // across
    blocks = [_block(graph, graph_width, height, out) for graph in graphs]
    return [
        "  ".join(parts).rstrip(" ")
        for begin in range(0, len(blocks), across)
        for parts in zip_longest(*blocks[begin : begin + across], fillvalue=" " * graph_width)
    ]


def _block(graph: Graph, width: int, height: int, out: Output) -> list[str]:
    """A graph's heading, its plot and its legend, each line filled up to the width."""
    lines = [_title(graph, width, out)]
    if not graph.total:
        return [*lines, "  no point to show"[:width].ljust(width)]
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
        values = (drawn[-1].last, low, high)
        texts = [number(value, integer=graph.integer) for value in values]
        facts = "last {}  min {}  max {}".format(*texts)
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
    gap_xs = [x for points in graph.series for x in gap_places(points)]
    drawn = [points for points in graph.series if points.total]
    x_low = min(*gap_xs, *(min(points.xs) for points in drawn), math.inf)
    x_high = max(*gap_xs, *(max(points.xs) for points in drawn), -math.inf)
    unit, x_label = x_unit(graph, x_high - min(x_low, 0.0))
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
    plt.xlabel(_shorten(safe(x_label), width - 12))
    text = plt.build()
    if not colour:
        text = _ESCAPES.sub("", text)
    if not fine:
        text = text.translate(_ASCII_FRAME)
    return [line for line in text.split("\n") if _ESCAPES.sub("", line)]


def _set_axes(graph: Graph, x_range: Range, y_range: Range, width: int, height: int) -> None:
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
        mark = _MARKERS[at % len(_MARKERS)] if not out.colour else "──" if out.unicode else "--"
        label = f" {safe(points.label)}"
        entry_width = 3 + len(mark) + cells_wide(label)
        if wide + entry_width > width:
            break
        wide += entry_width
        text += (
            "   " + (f"\x1b[{_SGR[at % len(_SGR)]}m{mark}\x1b[0m" if out.colour else mark) + label
        )
    return text + " " * (width - wide)


def _shorten(text: str, width: int) -> str:
    if cells_wide(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, max(width - 1, 1)) + "…"
