"""`logshipper plot JOB`: graphs of its metadata, in the terminal or as a PNG."""

import argparse
import sys
from typing import TYPE_CHECKING

from logshipper.errors import LogshipperError
from observe.documents import job_heading
from observe.graph_notes import left_out_of, rule_words
from observe.opening import check_attempt, opened_job
from observe.output import Output, Styled, print_json
from observe.running import say
from observe.series import KEY_PREFIX, TIME, Graph, Request, graphs, numeric_keys
from observe.words import count, plural, safe

if TYPE_CHECKING:
    from ingest.stores import Reader

SCHEMA = "logshipper.plot/1"
TERMINAL_GRAPHS = 4
PNG_GRAPHS = 12


def call(args: argparse.Namespace) -> int:
    with opened_job(args) as (store, job_id), store.open(job_id) as reader:
        check_attempt({capture.attempt for capture in reader.captures}, args.attempt)
        keys = numeric_keys(reader)
        if not keys:
            _nothing_to_plot(reader)
        if args.x == TIME and TIME in keys:
            say(f"X is the clock; `--x {KEY_PREFIX}{TIME}` takes the key called {TIME}")
        most = PNG_GRAPHS if args.png or args.json else TERMINAL_GRAPHS
        found, left_out = graphs(reader, Request(args.x, args.y or (), args.attempt), most)
        if not found:
            raise LogshipperError(
                f"{next(iter(keys))} is the only numeric key, and X itself: `--x {TIME}` plots it over time"
            )
        if args.json:
            print_json(_document(reader, found, left_out))
        elif args.png:
            _write_png(args.png, reader, found, left_out)
        else:
            _draw(reader, found, left_out)
    return 0


def _nothing_to_plot(reader: "Reader") -> None:
    name = safe(reader.summary.name)
    if not reader.summary.records:
        raise LogshipperError(
            f"{name} has printed no metadata, so there is nothing to plot; "
            'a line such as {"epoch": 1, "loss": 0.5} on stdout is'
        )
    raise LogshipperError(f"the metadata of {name} holds no number to plot; `logshipper metadata` shows it")


def _document(reader: "Reader", found: list[Graph], left_out: list[str]) -> dict[str, object]:
    return {"schema": SCHEMA, **job_heading(reader), "graphs": [_graph(graph) for graph in found],
            "left_out": left_out}  # fmt: skip


def _graph(graph: Graph) -> dict[str, object]:
    return {
        "key": graph.key,
        "x_axis": {"key": graph.x.key, "rule": graph.x.rule, "words": graph.x.words},
        "own_x": graph.own_x,
        "without_x": graph.without_x,
        "beyond": graph.beyond,
        "series": [
            {
                "label": points.label,
                "seen": points.seen,
                "x": [_exact(x, graph.x_integer) for x in points.xs],
                "y": [_exact(y, graph.integer) for y in points.ys],
            }
            for points in graph.series
        ],
    }


def _exact(value: float, integer: bool) -> float | int:
    """An integer where it was printed as one, and a float holds it to the last digit."""
    return int(value) if integer and abs(value) < 2**53 else value


def _title(reader: "Reader") -> str:
    return f"{reader.summary.name} · {reader.summary.job_id}"


def _write_png(path: str, reader: "Reader", found: list[Graph], left_out: list[str]) -> None:
    from observe.graph_png import PNG_POINTS, write_png

    if path == "-" and sys.stdout.isatty():
        raise LogshipperError("--png: a picture isn't written to a terminal; give a file's name")
    common = next((graph for graph in found if not graph.own_x), found[0])
    write_png(path, found, _title(reader), rule_words(common))
    said = say if path == "-" else Output().line
    said(f"Wrote {safe(path)}: {plural(len(found), 'graph')}. {safe(rule_words(common))}")
    for note in _notes(reader, found, left_out, points=PNG_POINTS):
        said(safe(note))


def _draw(reader: "Reader", found: list[Graph], left_out: list[str]) -> None:
    from observe.graph_text import TEXT_POINTS, drawn

    out = Output()
    common = next((graph for graph in found if not graph.own_x), found[0])
    out.line(Styled(reader.summary.name, "bold"), "  ", Styled(reader.summary.job_id, "bold cyan"), "  ",
             rule_words(common))  # fmt: skip
    out.line()
    sys.stdout.write("".join(f"{line}\n" for line in drawn(found, out)))
    for note in _notes(reader, found, left_out, points=TEXT_POINTS):
        out.line(Styled(note, "dim"))


def _own_x_notes(found: list[Graph]) -> list[str]:
    """R25's arrow: which graphs have an X of their own, and which one."""
    sharing: dict[tuple[str, str], list[str]] = {}
    for graph in found:
        if graph.own_x:
            own = rule_words(graph).replace(f", in the records of {graph.key}", "")
            sharing.setdefault((graph.instead_of, own), []).append(graph.key)
    return [f"{', '.join(keys)}: in no record with {x}, so another {own}" for (x, own), keys in sharing.items()]


def _notes(reader: "Reader", found: list[Graph], left_out: list[str], *, points: int) -> list[str]:
    """What the graphs don't show, a sentence each. points: that a series is thinned to."""
    notes = [*reader.notes(), *_own_x_notes(found)]
    for graph in found:
        notes += left_out_of(graph)
    most = max((one.seen for graph in found for one in graph.series), default=0)
    if most > points:
        notes.append(f"{count(most)} points are more than a graph can show: thinned, with every peak kept")
    if left_out:
        names = ", ".join(left_out[:8]) + (", ..." if len(left_out) > 8 else "")
        notes.append(f"{plural(len(left_out), 'more key')} left out: {names} (--y {left_out[0]} shows it)")
    return notes
