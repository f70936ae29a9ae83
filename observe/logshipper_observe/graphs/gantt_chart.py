"""A chart of each node's or core's runs over time: rows of characters, or a picture."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from logshipper.errors import LogshipperError
from logshipper_observe.analytics.task_analytics import Core, Span, core_name
from logshipper_observe.base.output import Cell, Column, Output, natural_widths
from logshipper_observe.base.words import NS, count, duration, local_with_zone
from logshipper_observe.graphs.graph_png import COLOURS, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_ROWS = 200  # of characters
MAX_PICTURE_ROWS = 500  # more are unreadable, and exceed the picture's format
_LEAST_CELLS = 20  # of a row's course
_SHADES, _ASCII_SHADES = "·░▒▓█", ".-+x#"


@dataclass(frozen=True, slots=True)
class GanttChart:
    """spans: the run of each place; gaps: idle times; both in order of places and times. busy: by
    place, the busy part of the time."""

    spans: Sequence[Span]
    gaps: Sequence[Span]
    busy: dict[str, float]

    @property
    def begin(self) -> float:
        return min(span.start for span in self.spans)

    @property
    def end(self) -> float:
        return max(span.end for span in self.spans)

    def print(self, out: Output) -> None:
        """A row for each place: how many runs it had, how busy it was, its gaps, and its course."""
        gaps, by_place = dict(_by_place(self.gaps)), _by_place(self.spans)
        rows = [self._row(place, spans, gaps.get(place, ())) for place, spans in by_place]
        used = sum(natural_widths(_COLUMNS, rows)) + 2 * len(_COLUMNS)
        cells = max(_LEAST_CELLS, out.columns - used)
        shades = _SHADES if out.unicode else _ASCII_SHADES
        table_rows = [
            [*row, _course(spans, self.begin, self.end, cells, shades)]
            for row, (_, spans) in zip(rows[:MAX_ROWS], by_place, strict=False)
        ]
        out.table((*_COLUMNS, Column("course")), table_rows)
        if len(rows) > MAX_ROWS:
            out.line(
                f"{MAX_ROWS} of {count(len(rows))} rows are shown: --by node has fewer, --csv all"
            )
        begin = local_with_zone(int(self.begin) * NS)
        secs = (self.end - self.begin) / cells
        out.line(
            f"course: from {begin}, {f'{secs:.3g}s' if secs < 1 else duration(secs)} a character"
        )

    def write(self, path: str, title: str, subtitle: str, *, form: str) -> None:
        """Write a picture: a row of bars for each place, gaps grey. form: png or svg. Raises
        LogshipperError."""
        places = [core_name(place) for place, _ in _by_place(self.spans)]
        if len(places) > MAX_PICTURE_ROWS:
            raise LogshipperError(
                f"{count(len(places))} rows are too many for a picture ({MAX_PICTURE_ROWS}): fewer jobs, or --by node"
            )
        inches = (9.0, max(0.22 * len(places), 1.5) + 1.3)
        draw = partial(self._draw, places=places)
        write_figure(path, form, inches, title, subtitle, draw)

    def _row(self, place: Core, spans: Sequence[Span], gaps: Sequence[Span]) -> list[Cell]:
        name = core_name(place)
        longest = duration(max(gap.end - gap.start for gap in gaps)) if gaps else ""
        busy = f"{100 * self.busy[name]:.3g} %"
        return [name, count(len(spans)), busy, count(len(gaps)), longest]

    def _draw(self, figure: "Figure", places: Sequence[str]) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num

        axes = figure.add_subplot()
        rows = {name: row for row, name in enumerate(places)}
        tasks = dict.fromkeys(span.task for span in sorted(self.spans, key=lambda span: span.start))
        colours = {task: COLOURS[at % len(COLOURS)] for at, task in enumerate(tasks)}

        def bar(span: Span) -> tuple[float, float]:
            times = [datetime.fromtimestamp(secs, UTC) for secs in (span.start, span.end)]
            start, end = map(date2num, times)
            return start, end - start

        for gaps, height, colour in ((self.gaps, 0.3, "#e2e8f0"), (self.spans, 0.8, "")):
            for place, spans in _by_place(gaps):
                paint = colour or [colours[span.task] for span in spans]
                row = rows[core_name(place)]
                axes.broken_barh(
                    list(map(bar, spans)), (row - height / 2, height), facecolors=paint
                )
        axes.set_axisbelow(True)
        axes.set_yticks(range(len(places)), labels=places, parse_math=False)
        axes.set_ylim(len(places) - 0.5, -0.5)
        locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
        axes.set_xlabel("time (UTC)")


_COLUMNS = (
    Column("on"),
    *(Column(name, right=True) for name in ("runs", "busy", "gaps", "longest")),
)


def _by_place(spans: Sequence[Span]) -> list[tuple[Core, list[Span]]]:
    return [(place, list(group)) for place, group in groupby(spans, key=lambda span: span.place)]


def _course(
    spans: Sequence[Span], begin: float, end: float, cells: int, shades: Sequence[str]
) -> str:
    """Return a character for each part of the time, by its busy share; short runs stay visible."""
    whole = (end - begin) or 1.0
    busy = [0.0] * cells
    for span in spans:
        first, last = ((secs - begin) / whole * cells for secs in (span.start, span.end))
        first_cell = min(int(first), cells - 1)
        for cell in range(first_cell, max(first_cell + 1, min(math.ceil(last), cells))):
            busy[cell] += max(min(last, cell + 1) - max(first, cell), 1e-9)
    darkest = len(shades) - 1
    return "".join(shades[min(max(round(share * darkest), share > 0), darkest)] for share in busy)
