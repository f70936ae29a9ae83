"""The output of `logshipper plot`: the graphs of one job, or of several."""

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import LogshipperError
from logshipper.safe_text import safe
from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Cell, Output, Styled, print_json
from logshipper_observe.base.running import say
from logshipper_observe.base.words import FOUND, count, listed
from logshipper_observe.commands.options import picture_of
from logshipper_observe.graphs.curves import NONE, Trace
from logshipper_observe.graphs.graph_notes import gap_document, key_notes, left_out_of, rule_words
from logshipper_observe.graphs.plot_runs import PLACES, CommonAxes, PlotQuery, Runs, facets_of
from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.series import (
    KEY_PREFIX,
    TIME,
    Graph,
    GraphRequest,
    graphs,
    numeric_keys,
)
from logshipper_observe.model.documents import Document, job_heading
from logshipper_observe.model.options import options_of
from logshipper_observe.query.opening import check_attempt, is_from_loki, overlay_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore, Reader


SCHEMA = "logshipper.plot/1"
TERMINAL_GRAPHS = 4
PNG_GRAPHS = 12
HELD_READERS = 100  # jobs with open databases at a time


def plot_one(reader: "Reader", request: GraphRequest, args: argparse.Namespace) -> None:
    """One job's graphs as they are."""
    check_attempt({capture.attempt for capture in reader.captures}, args.attempt)
    keys = numeric_keys(reader)
    all_keys = reader.keys()
    if not keys:
        _nothing_to_plot(reader, list(key_notes(all_keys)), reread=args.reread)
    if args.x == TIME and TIME in keys:
        say(f"X is the clock; `--x {KEY_PREFIX}{TIME}` takes the key called {TIME}")
    plots, left_out = graphs(reader, request, _max_graphs(args))
    if not plots:
        reasons = "; ".join(key_notes(all_keys))
        raise LogshipperError(f"{reasons}; `--y {min(keys)}` plots one of them all the same")
    not_drawn = [] if request.y else list(key_notes(all_keys))
    if args.json:
        _print_document(job_heading(reader), plots, left_out, not_drawn)
        return
    name, job_id = reader.summary.name, reader.summary.job_id
    head = _Head(f"{name} · {job_id}", name, job_id)
    from logshipper_observe.graphs.graph_png import PNG_POINTS
    from logshipper_observe.graphs.graph_text import TEXT_POINTS

    thinned_to = PNG_POINTS if args.png or args.svg else TEXT_POINTS
    notes = _notes(reader, plots, left_out, points=thinned_to)
    _show(plots, head, [*notes, *not_drawn], args)


def _max_graphs(args: argparse.Namespace) -> int:
    return PNG_GRAPHS if args.png or args.svg or args.json else TERMINAL_GRAPHS


def plot_several(
    store: "JobStore", job_ids: list[str], query: PlotQuery, args: argparse.Namespace
) -> None:
    """Graphs of several jobs, or of one with its curves treated."""
    names = _names(store, job_ids)
    with ExitStack() as exit_stack:
        # Loki's readers learn the keys by reading all records
        keep = len(job_ids) <= HELD_READERS or is_from_loki(args)

        def open_reader(job_id: str) -> "Reader":
            reader = store.open(job_id)
            exit_stack.callback(reader.close)
            return reader

        open_readers: dict[str, Reader] = {}
        choices, keys, jobs, options = [], [], [], []
        runs = Runs(query, _max_graphs(args))
        drawn_ids: list[str] = []
        for job_id in job_ids:
            if len(drawn_ids) == query.max_runs:
                break
            reader = open_reader(job_id)
            jobs.append(job_heading(reader))
            job_keys = numeric_keys(reader)
            if runs.leave_out(names[job_id], job_keys):
                reader.close()
                continue
            drawn_ids.append(job_id)
            if query.facets or query.group_by not in PLACES:
                options.append(options_of(reader, overlay_of(store).of(reader.summary.key)))
            keys.append(job_keys)
            choices.append(reader.x_axis())
            if keep:
                open_readers[job_id] = reader
            else:
                reader.close()
        axes = CommonAxes(query, choices, keys, runs.seen_keys)
        facets = facets_of(query.facets, options) if query.facets else [""] * len(drawn_ids)
        of_jobs = options or [{}] * len(drawn_ids)
        for job_id, facet, job_options in zip(drawn_ids, facets, of_jobs, strict=True):
            reader = open_readers.get(job_id) or open_reader(job_id)
            runs.add(reader, names[job_id], axes, facet, job_options)
            reader.close()
        done = runs.gather(axes.constants)
    if len(jobs) < len(job_ids):
        done.notes.insert(
            0, f"the first {len(jobs):,} of {len(job_ids):,} jobs: --max-runs takes more"
        )
    across = _across(args.layout, len(done.graphs))
    if args.json:
        first = jobs[0] if len(jobs) == 1 else {"job_id": None, "name": None, "state": None}
        _print_document({**first, "jobs": jobs}, done.graphs, done.left_out, done.notes)
        return
    drawn = list(runs.drawn_names)
    title = ", ".join(drawn[:4]) + (f" and {len(drawn) - 4} more" if len(drawn) > 4 else "")
    notes = [*_other_axes(done.graphs), *done.notes, *_left_out_note(done.left_out)]
    if not args.png and not args.svg and (args.error_bars != NONE or args.shade != NONE):
        notes.append("error bars and shades are in pictures only: --png FILE, --svg FILE")
    _show(done.graphs, _Head(title, title, ""), notes, args, across)


def _other_axes(plots: list[Graph]) -> list[str]:
    """List graphs with another X than the first one, and the reason."""
    return [
        f"{graph.title or graph.key}: {rule_words(graph)}"
        for graph in plots
        if graph.x.words != plots[0].x.words
    ]


def _names(store: "JobStore", job_ids: list[str]) -> dict[str, str]:
    """Return jobs' names, with the id for shared names."""
    names = {}
    for job_id in job_ids:
        with store.open(job_id) as reader:
            names[job_id] = reader.summary.name
    several = {name for name, times in Counter(names.values()).items() if times > 1}
    return {
        job_id: f"{name} {job_id}" if name in several else name for job_id, name in names.items()
    }


def _across(layout: tuple[int, int] | None, plots: int) -> int:
    """Return the number of graphs side by side; 0 for automatic. Raises LogshipperError if not all
    of them fit."""
    if layout is None:
        return 0
    rows, columns = layout
    if rows and columns and plots > rows * columns:
        room = plural(rows * columns, "graph")
        raise LogshipperError(
            f"--layout {rows}x{columns} has room for {room}, and there are {plots}"
        )
    return columns or -(-plots // rows)


def _nothing_to_plot(reader: "Reader", notes: list[str], *, reread: bool) -> None:
    name = safe(reader.summary.name)
    if not reader.summary.records:
        raise LogshipperError(
            f"{name} has printed no metadata, so there is nothing to plot; "
            'a line such as {"epoch": 1, "loss": 0.5} on stdout is'
            + "; `--reread` looks for series in its lines"
            * (not reread)
        )
    raise LogshipperError(
        f"the metadata of {name} holds no number to plot; `logshipper metadata` shows it"
        + "".join(f"; {note}" for note in notes)
    )


def _print_document(
    head: Document, plots: list[Graph], left_out: list[str], notes: list[str]
) -> None:
    graph_documents = [_graph(graph) for graph in plots]
    lists = {"graphs": graph_documents, "left_out": left_out, "notes": notes}
    print_json({"schema": SCHEMA, **head, **lists})


def _graph(graph: Graph) -> dict[str, object]:
    return {
        "key": graph.key,
        "x_axis": {name: getattr(graph.x, name) for name in ("key", "rule", "words", "by_number")},
        "own_x": graph.own_x,
        "without_x": graph.without_x,
        "beyond": graph.beyond,
        "title": graph.title or graph.key,
        "series": [_series(graph, points) for points in graph.series],
    }


def _series(graph: Graph, points: Points) -> dict[str, object]:
    document: dict[str, object] = {
        "label": points.label,
        "seen": points.total,
        "x": [_exact(x, graph.x_integer) for x in points.xs],
        "y": [_exact(y, graph.integer) for y in points.ys],
        "breaks": points.breaks,
        "gaps": [gap_document(gap) for _, gap in points.gaps],
    }
    if isinstance(points, Trace):
        document |= {"key": points.key, "group": points.group, "runs": points.runs}
        for name in ("errors", "low", "high"):
            values = getattr(points, name)
            document[name] = None if values is None else list(values)
    return document


def _exact(value: float, integer: bool) -> float | int:
    """Return an integer if it was printed as one, and a float holds it exactly."""
    return int(value) if integer and abs(value) < 2**53 and value == int(value) else value


class _Head(NamedTuple):
    """Text above graphs. title: of a picture; name, job_id: in the terminal."""

    title: str
    name: str
    job_id: str


def _show(
    plots: list[Graph], head: _Head, notes: list[str], args: argparse.Namespace, across: int = 0
) -> None:
    if args.png or args.svg:
        _write_picture(plots, head, notes, args, across)
        return
    from logshipper_observe.graphs.graph_text import graph_lines

    out = Output()
    rule = _common_rule(plots)
    job_id: list[Cell] = [Styled(head.job_id, "bold cyan"), "  "] if head.job_id else []
    out.line(Styled(head.name, "bold"), "  ", *job_id, rule)
    out.line()
    for is_auto in (False, True):
        of_origin = [graph for graph in plots if graph.is_auto is is_auto]
        if of_origin and is_auto:
            out.line(Styled(FOUND, "bold"))
        lines = graph_lines(of_origin, out, across) if of_origin else []
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    for note in notes:
        out.note(note)


def _common_rule(plots: list[Graph]) -> str:
    return rule_words(next((graph for graph in plots if not graph.own_x), plots[0]))


def _write_picture(
    plots: list[Graph], head: _Head, notes: list[str], args: argparse.Namespace, across: int
) -> None:
    from logshipper_observe.graphs.graph_png import write_png

    path, form = picture_of(args)
    rule = _common_rule(plots)
    write_png(path, plots, head.title, rule, form=form, across=across)
    report = say if path == "-" else Output().line
    report(f"Wrote {safe(path)}: {plural(len(plots), 'graph')}. {safe(rule)}")
    for note in notes:
        report(safe(note))


def _own_x_notes(plots: list[Graph]) -> list[str]:
    """Return R25's arrow: graphs with their own X, and its key."""
    sharing: dict[tuple[str, str], list[str]] = {}
    for graph in plots:
        if graph.own_x:
            rule = rule_words(graph).replace(f", in the records of {graph.key}", "")
            sharing.setdefault((graph.instead_of, rule), []).append(graph.key)
    return [
        f"{', '.join(keys)}: in no record with {x}, so another {rule}"
        for (x, rule), keys in sharing.items()
    ]


def _notes(reader: "Reader", plots: list[Graph], left_out: list[str], *, points: int) -> list[str]:
    """List the graphs' omissions, a sentence each. points: limit of a series."""
    notes = [*reader.notes(), *_own_x_notes(plots), *chain.from_iterable(map(left_out_of, plots))]
    max_points = max((curve.total for graph in plots for curve in graph.series), default=0)
    if max_points > points:
        notes.append(
            f"{count(max_points)} points are more than a graph can show: thinned, with every peak kept"
        )
    return [*notes, *_left_out_note(left_out)]


def _left_out_note(left_out: list[str]) -> list[str]:
    if not left_out:
        return []
    keys = plural(len(left_out), "more key")
    return [f"{keys} left out: {listed(left_out)} (--y {left_out[0]} shows it)"]
