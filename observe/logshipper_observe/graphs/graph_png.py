"""Graphs as pictures, PNG or SVG, by matplotlib: optional, and drawn without a display."""

import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from logshipper.errors import LogshipperError, os_words
from logshipper_observe.graphs.curves import Trace
from logshipper_observe.graphs.graph_notes import x_unit
from logshipper_observe.graphs.points import Points, gap_places
from logshipper_observe.graphs.series import Graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

PNG_POINTS = 4_000  # of a series: more than the picture's pixels across
_DOTS_UP_TO = 60  # points that are marked on their line
COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#64748b")
_GAP_COLOUR = "#dc2626"
_MIN_LINE_LETTERS, _MAX_LINE_LETTERS = 8, 400
_MAX_TITLE_LINES = 8
_POINTS_PER_INCH = 72
_TITLE_SIZE, _NOTE_SIZE = 13, 9.5  # points
_LEFT = 0.012  # left end of titles, as a part of the width
_HEAD_INCHES = 0.55  # of a title and a note of one line each
_MARGIN_INCHES = 1.0  # a graph's Y labels, beside its title
_STYLE: "dict[RcKeyType, Any]" = {  # Any: matplotlib's own type of its settings
    "axes.edgecolor": "#94a3b8",
    "axes.grid": True,
    "axes.labelcolor": "#334155",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": "#e2e8f0",
    "text.color": "#0f172a",
    "text.usetex": False,  # keys are no TeX, regardless of the user's matplotlibrc
    "xtick.color": "#64748b",
    "ytick.color": "#64748b",
}


def write_png(
    path: str,
    graphs: Sequence[Graph],
    title: str,
    subtitle: str,
    *,
    form: str = "png",
    across: int = 0,
) -> None:
    """Writes all graphs into one file; path `-` is standard output. form: png or svg; across:
    graphs side by side, 0: as it fits. Raises LogshipperError."""
    across = across or (1 if len(graphs) == 1 else 2 if len(graphs) <= 4 else 3)
    down = -(-len(graphs) // across)

    def draw(figure: "Figure") -> None:
        for at, graph in enumerate(graphs):
            room = figure.get_figwidth() / across - _MARGIN_INCHES
            _draw(figure, figure.add_subplot(down, across, at + 1), graph, room)

    write_figure(path, form, (max(5.2 * across, 7.2), 3.1 * down + 1.0), title, subtitle, draw)


def write_figure(
    path: str,
    form: str,
    inches: tuple[float, float],
    title: str,
    subtitle: str,
    draw: "Callable[[Figure], None]",
) -> None:
    """Write the picture of `draw`, with a title above it, into a file; path `-` is standard output.

    form: png or svg; inches: width and height, which grows with the title's lines. Raises
    LogshipperError.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise LogshipperError(
            "a picture needs matplotlib, which is not installed: pip install matplotlib"
        ) from None
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that no font has is drawn as a box
        figure = Figure(figsize=inches, dpi=130, layout="constrained")
        FigureCanvasAgg(figure)
        room = inches[0] * (1 - 2 * _LEFT)
        title = wrapped(figure, title, room, _TITLE_SIZE, "bold")
        subtitle = wrapped(figure, subtitle, room, _NOTE_SIZE)
        head = _line_inches(title, _TITLE_SIZE) + _line_inches(subtitle, _NOTE_SIZE) + 0.12
        figure.set_size_inches(inches[0], inches[1] + head - _HEAD_INCHES)
        _head(figure, title, subtitle, head)
        draw(figure)
        _save(figure, path, form)


def wrapped(
    figure: "Figure", text: str, inches: float, points: float, weight: str = "normal"
) -> str:
    """Wrap a text, between words or within too long ones; an ellipsis replaces lines beyond
    _MAX_TITLE_LINES. points: the letters' height."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.font_manager import FontProperties

    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]  # theirs has no types
    font = FontProperties(size=points, weight=weight)
    letters = _MAX_LINE_LETTERS
    while True:
        lines = textwrap.wrap(text, letters, max_lines=_MAX_TITLE_LINES, placeholder=" …")
        widths = (renderer.get_text_width_height_descent(line, font, False)[0] for line in lines)
        if letters <= _MIN_LINE_LETTERS or max(widths, default=0) <= inches * figure.dpi:
            return "\n".join(lines)
        letters = letters * 9 // 10


def _line_inches(text: str, points: float) -> float:
    return (text.count("\n") + 1) * points * 1.4 / _POINTS_PER_INCH


def _head(figure: "Figure", title: str, subtitle: str, head_inches: float) -> None:
    height_inches = figure.get_figheight()
    top = head_inches / height_inches
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0.005, 0, 0.99, 1 - top), w_pad=0.12, h_pad=0.1)  # type: ignore[call-arg]  # those of constrained layout
    for text, inches, size, weight, colour in (
        (title, 0.12, _TITLE_SIZE, "bold", "#0f172a"),
        (subtitle, 0.12 + _line_inches(title, _TITLE_SIZE), _NOTE_SIZE, "normal", "#64748b"),
    ):
        y = 1 - inches / height_inches
        letters = {"size": size, "weight": weight, "color": colour}
        figure.text(_LEFT, y, text, letters, va="top", parse_math=False)


def _draw(figure: "Figure", axes: "Axes", graph: Graph, inches: float) -> None:
    """Draw a graph. inches: width of its title."""
    from matplotlib.ticker import MaxNLocator

    unit, x_label = 1.0, graph.x.key or ""
    if graph.total:
        unit, x_label = x_unit(graph, max(max(points.xs, default=0.0) for points in graph.series))
    scattered = graph.x.rule == 7
    dotted = scattered or max((len(points.xs) for points in graph.series), default=0) <= _DOTS_UP_TO
    groups = {points.group: None for points in graph.series if isinstance(points, Trace)}
    numbers = {group: number for number, group in enumerate(groups)}
    shared = 1 < len(groups) < len(graph.series)  # several traces of a group have its colour
    for at, points in enumerate(graph.series):
        number = numbers[points.group] if shared and isinstance(points, Trace) else at
        colour = COLOURS[number % len(COLOURS)]
        if isinstance(points, Trace):
            _draw_around(axes, points, colour, unit)
        thin = points.thinned(PNG_POINTS)
        xs, ys = thin.rows()
        if not dotted:  # no line leads to a point between two gaps
            single = [piece for piece in thin.pieces() if len(piece[0]) == 1]
            single_xs = [xs[0] / unit for xs, _ in single]
            single_ys = [ys[0] for _, ys in single]
            axes.plot(single_xs, single_ys, ".", color=colour, markersize=3)
        axes.plot(
            [x / unit for x in xs],
            list(ys),
            color=colour,
            linewidth=0 if scattered else 1.6,
            marker="o" if dotted else "",
            markersize=3,
            label=points.label,
        )
        _draw_gaps(axes, points, unit)
    axes.set_xlabel(x_label, parse_math=False)
    axes.set_ylabel(graph.key, parse_math=False)
    if graph.own_x:
        title = wrapped(figure, f"X: {graph.x.words}", inches, 8.5)
        axes.set_title(title, size=8.5, color="#64748b", loc="left", parse_math=False)
    elif graph.title not in ("", graph.key):
        title = wrapped(figure, graph.title, inches, 10)
        axes.set_title(title, size=10, loc="left", parse_math=False)
    if graph.x_integer:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.02)
    if not graph.total:
        axes.text(
            0.5, 0.5, "no point to show", ha="center", color="#64748b", transform=axes.transAxes
        )
    elif len(graph.series) > 1:
        for text in axes.legend(framealpha=0.85, edgecolor="none", fontsize=8.5).get_texts():
            text.set_parse_math(False)


def _draw_gaps(axes: "Axes", points: Points, unit: float) -> None:
    """NaN and infinities: a band over the records that have them, crosses at the bottom."""
    if not points.gaps:  # an empty curve without clipping would ruin the figure's layout
        return
    for _, gap in points.gaps:
        axes.axvspan(
            gap.first_x / unit, gap.last_x / unit, color=_GAP_COLOUR, alpha=0.12, linewidth=0
        )
    xs = [x / unit for x in gap_places(points)]
    bottom = axes.get_xaxis_transform()
    axes.plot(
        xs, [0.0] * len(xs), "x", color=_GAP_COLOUR, markersize=5, transform=bottom, clip_on=False
    )


def _draw_around(axes: "Axes", trace: Trace, colour: str, unit: float) -> None:
    """Draw a trace's band and error bars, and its source curves."""
    xs = [x / unit for x in trace.xs]
    if trace.low is not None and trace.high is not None:
        axes.fill_between(
            xs, list(trace.low), list(trace.high), color=colour, alpha=0.18, linewidth=0
        )
    for points in trace.behind:
        thin = points.thinned(PNG_POINTS)
        axes.plot(
            [x / unit for x in thin.xs], list(thin.ys), color=colour, alpha=0.25, linewidth=0.9
        )
    if trace.errors is not None:
        errors = list(trace.errors)
        axes.errorbar(
            xs, list(trace.ys), yerr=errors, fmt="none", ecolor=colour, capsize=2, linewidth=1
        )


def _save(figure: "Figure", path: str, form: str) -> None:
    if path == "-":
        figure.savefig(sys.stdout.buffer, format=form)
        return
    try:
        figure.savefig(path, format=form)
    except OSError as error:
        where = os.path.abspath(path)
        raise LogshipperError(
            f"{where}: the {form.upper()} can't be written: {os_words(error)}"
        ) from None
