"""The answer of `logshipper analyze`: on a terminal, as a picture, as CSV and as JSON."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from logshipper.errors import LogshipperError
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.x_axis import XChoice
from logshipper_observe.base.new_file import new_file
from logshipper_observe.base.output import Cell, Column, Output, Styled, write_data
from logshipper_observe.base.words import NS, duration, local_with_zone, utc
from logshipper_observe.commands.options import picture_of
from logshipper_observe.formats.csv_rows import CsvRows
from logshipper_observe.graphs.gantt_chart import GanttChart
from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.series import CLOCK_WORDS, Graph
from logshipper_observe.model.documents import Document
from logshipper_observe.query.opening import store_place

SCHEMA = "logshipper.analyze/1"
_SCATTERED = 7  # the rule of an X that is in no order


Between: TypeAlias = tuple[datetime | None, datetime | None]


@dataclass
class Analysis:
    """A report as it is shown."""

    title: str
    unit: str  # of Y
    # by name X and Y of each curve, or points if scattered
    steps: Mapping[str, tuple[list[datetime], Sequence[float]]]
    notes: list[str]  # a sentence each
    scattered: bool = False
    columns: Sequence[Column] = ()  # of the table
    table: list[list[Cell]] = field(default_factory=list)  # rows of names and cells
    titles: Sequence[str] = ()  # of CSV, with rows; without them it has the points
    rows: list[list[str]] = field(default_factory=list)
    document: Document = field(default_factory=dict)  # more fields of the JSON
    chart: GanttChart | None = None  # replaces curves


def mean_words(xs: Sequence[datetime], ys: Sequence[float]) -> str:
    if len(xs) < 2 or xs[-1] == xs[0]:
        return f"{max(ys, default=0):g} at most"
    secs = (xs[-1] - xs[0]).total_seconds()
    area = sum(y * (after - x).total_seconds() for x, after, y in zip(xs, xs[1:], ys, strict=False))
    return f"{max(ys):g} at most, {area / secs:.4g} on average in {duration(secs)}"


def print_answer(answer: Analysis) -> None:
    out = Output()
    out.line(Styled(answer.title, "bold"))
    if answer.chart is not None:
        out.line()
        answer.chart.print(out)
    if answer.table:
        out.line()
        out.table(answer.columns, answer.table)
    graphs = _graphs(answer)
    if graphs:
        from logshipper_observe.graphs.graph_text import graph_lines

        out.line()
        sys.stdout.write("".join(f"{line}\n" for line in graph_lines(graphs, out)))
    for note in answer.notes:
        out.note(note)


def _graphs(answer: Analysis) -> list[Graph]:
    """Return one graph with all curves, as steps; none without data."""
    curves = {name: curve for name, curve in answer.steps.items() if curve[0]}
    if not curves:
        return []
    begin = min(xs[0] for xs, _ in curves.values())
    graph = Graph(answer.unit, XChoice(None, _SCATTERED if answer.scattered else 0, CLOCK_WORDS))
    for name, (xs, ys) in curves.items():
        points, level = Points(name), 0.0
        for x, y in zip(xs, ys, strict=True):
            secs = (x - begin).total_seconds()
            if not answer.scattered:
                points.add(secs, level)
            points.add(secs, y)
            level = y
        graph.series.append(points)
    graph.integer = not answer.scattered and all(
        y == int(y) for _, ys in curves.values() for y in ys
    )
    graph.title = f"{answer.unit}, since {local_with_zone(int(begin.timestamp()) * NS)}"
    return [graph]


def write_picture(args: argparse.Namespace, answer: Analysis) -> None:
    from logshipper_observe.graphs.graph_png import write_png

    graphs = _graphs(answer)
    if not graphs and answer.chart is None:
        raise LogshipperError(f"{answer.title}: nothing to draw")
    path, form = picture_of(args)
    caption = "; ".join(answer.notes)
    if answer.chart is not None:
        answer.chart.write(path, answer.title, caption, form=form)
    else:
        write_png(path, graphs, answer.title, caption, form=form)
    if path != "-":
        Output().line(f"Wrote {safe(path)}. {safe(answer.title)}")


def write_csv(path: str, answer: Analysis, *, raw: bool = False) -> None:
    rows = CsvRows(raw=raw)
    lines = [rows.row(titles) for titles in [answer.titles or ("series", "time", answer.unit)]]
    lines += [rows.row(row) for row in answer.rows or _point_rows(answer)]
    text = "".join(f"{line}\n" for line in lines)
    if path == "-":
        write_data(text)
        return
    with new_file(path, force=True, option="--csv") as file:
        file.write(text.encode())
    Output().line(f"Wrote {safe(path)}: {plural(len(lines) - 1, 'row')}. {safe(answer.title)}")


def _point_rows(answer: Analysis) -> Iterator[list[str]]:
    for name, (xs, ys) in answer.steps.items():
        for x, y in zip(xs, ys, strict=True):
            yield [name, utc_of(x.timestamp()), f"{y:.9g}"]


def document(args: argparse.Namespace, answer: Analysis) -> Document:
    return {
        "schema": SCHEMA,
        "store": store_place(args),
        "report": args.report,
        "title": answer.title,
        "unit": answer.unit,
        **answer.document,
        "series": [
            {"name": name, "x": [utc_of(x.timestamp()) for x in xs], "y": list(ys)}
            for name, (xs, ys) in answer.steps.items()
        ],
        "notes": answer.notes,
    }


def utc_of(secs: float | None) -> str:
    return "" if secs is None else utc(round(secs * 1e6) * 1000)
