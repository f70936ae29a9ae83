"""`logshipper info JOB...`: nodes, cores, folder, history and metrics of jobs, and their tasks and
iterations. Unknown names are reported one by one, the others answered."""

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from logshipper_ingest.console.text_table import plural
from logshipper_observe.base.output import Cell, Column, Output, print_json, state_cell
from logshipper_observe.base.running import say
from logshipper_observe.base.words import NS, duration, exit_short, exit_words, local, number
from logshipper_observe.commands import completers, options
from logshipper_observe.model.documents import Document, unknown_documents
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from datetime import datetime

    from logshipper_observe.model.job_info import JobInfo
    from logshipper_observe.query.info_lookup import Found

SCHEMA = "logshipper.info/1"
EXIT_UNKNOWN = 1
_CHILDS_SHOWN = 50
_CHILD_COLUMNS = (
    Column("iteration"),
    Column("state"),
    Column("exit", right=True),
    Column("took", right=True),
    Column("nodes", flexible=True),
)
_METRIC_COLUMNS = (Column("key"), *(Column(name, right=True) for name in ("last", "min", "max")))
_KEYS_SHOWN = 30


def add_options(parser: argparse.ArgumentParser) -> None:
    options.describe(
        parser,
        "Tells of each of these jobs its state, nodes, cores, working directory, run time, exit\n"
        "code, the history of its states, and of its tasks or iterations how many there are,\n"
        "have finished and failed. JOB: also NAME for jobs NAME:0, NAME:1, ...; ranges (a3-a9)\n"
        "and wildcards. Unknown jobs are reported one by one, the others answered.",
        "examples:\n"
        "  logshipper info last\n"
        "  logshipper info train.py a3-a9\n"
        "  logshipper info last --primary val_loss\n"
        "  logshipper info last --json | jq '.jobs[].iterations'\n"
        "  logshipper info 4711 --from loki",
    )
    options.add_jobs(parser)
    primary_help = "also the best value of this metric: its least"
    options.add_completed(parser, completers.keys, "--primary", metavar="KEY", help=primary_help)
    options.add_flag(parser, "--maximize", help="the greatest is the best")
    options.add_json(parser)
    options.add_source(parser)


def call(args: argparse.Namespace) -> int:
    job_infos = look_up(args)
    if args.json:
        jobs = [
            {"asked": name, **_document(info), **_best(info, args)}
            for name, info in job_infos.items()
        ]
        print_document(SCHEMA, args, jobs, job_infos)
    else:
        out = Output()
        for at, info in enumerate(job_infos.values()):
            if at:
                out.line()
            _print_info(out, info, args)
    return EXIT_UNKNOWN if job_infos.unknown else 0


def look_up(args: argparse.Namespace, *, children: bool = True) -> "Found[JobInfo]":
    """Look up `args.jobs`; children: as in `infos`. Reports unknown ones on stderr. Raises
    UnknownJob without a store."""
    from logshipper_observe.query.info_lookup import infos

    with opening.open_store(args) as store:
        if store is None:
            raise opening.no_jobs_yet(args, args.jobs[0])
        if not opening.is_from_loki(args):
            for problem in opening.ingest(store):
                say(problem)
            if "last" in args.jobs:
                opening.say_where_else(args)
        find_id = partial(opening.resolve, store, args=args)
        job_infos = infos(store, args.jobs, find_id, time.time_ns(), children=children)
    for error in job_infos.unknown:
        say(str(error))
    return job_infos


def print_document(
    schema: str, args: argparse.Namespace, jobs: list[Document], job_infos: "Found[JobInfo]"
) -> None:
    """Print a document. jobs: the known jobs."""
    unknown = unknown_documents(job_infos.unknown)
    print_json(
        {"schema": schema, "store": opening.store_place(args), "jobs": jobs, "unknown": unknown}
    )


def _document(info: "JobInfo") -> Document:
    iterations = info.iterations
    return {
        "job_id": info.job_id,
        "name": info.name,
        "state": info.status,
        "nodes": {host: list(cores) for host, cores in info.nodes.items()},
        "total_nodes": info.total_nodes,
        "total_cores": info.total_cores,
        "wdir": info.wdir,
        "run_secs": info.time.total_seconds(),
        "exit_code": info.exit_code,
        "signal": info.signal,
        "messages": info.messages,
        "restarts": info.restarts,
        "metrics": {
            name: {"last": metric.last, "min": metric.min, "max": metric.max}
            for name, metric in info.metrics.items()
        },
        "history": [{"time": _utc(moment), "state": state} for moment, state in info.history],
        "iteration": info.iteration,
        "iterations": iterations
        and {name: getattr(iterations, name) for name in ("total", "finished", "failed")},
        "children": [_document(child) for child in info.children],
    }


def _utc(moment: "datetime") -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _best(info: "JobInfo", args: argparse.Namespace) -> Document:
    """Return the best value of the requested metric: null for a job without it."""
    return {} if args.primary is None else {"best": info.best(args.primary, maximize=args.maximize)}


def _print_info(out: Output, info: "JobInfo", args: argparse.Namespace) -> None:
    out.job_line(info.name, info.job_id)
    out.fields(list(_fields(info, args)))
    if info.metrics:
        out.heading("Metrics")
        rows: list[list[Cell]] = [
            [name, *map(number, (metric.last, metric.min, metric.max))]
            for name, metric in info.metrics.items()
        ]
        _print_some(out, _METRIC_COLUMNS, rows, _KEYS_SHOWN, "more key")
    if info.children:
        out.heading("Iterations", totals_words(info))
        rows = [_child_row(child) for child in info.children]
        _print_some(out, _CHILD_COLUMNS, rows, _CHILDS_SHOWN, "more iteration")


def _print_some(
    out: Output, columns: Sequence[Column], rows: list[list[Cell]], limit: int, noun: str
) -> None:
    visible_rows = rows[:limit] if out.terminal else rows
    out.table(columns, visible_rows)
    if len(visible_rows) < len(rows):
        out.note(f"and {plural(len(rows) - len(visible_rows), noun)}: see --json")


def _child_row(child: "JobInfo") -> list[Cell]:
    exit_cell = exit_short(child.exit_code, child.signal)
    took = duration(child.time.total_seconds())
    return [child.name, state_cell(child.status), exit_cell, took, _nodes(child)]


def _fields(info: "JobInfo", args: argparse.Namespace) -> Iterator[tuple[str, list[Cell]]]:
    outcome = exit_words(info.exit_code, info.signal)
    yield "State", [state_cell(info.status), f", {outcome}" if outcome else ""]
    if info.messages:
        yield "Reason", [info.messages]
    yield "Nodes", [_nodes(info) or str(info.total_nodes or "not known")]
    yield "Cores", ["not known" if info.total_cores is None else str(info.total_cores)]
    yield "Folder", [info.wdir or "not known"]
    so_far = "" if info.is_finished else " so far"
    yield "Run time", [duration(info.time.total_seconds()) + so_far]
    yield "Restarts", [str(info.restarts)]
    if args.primary is not None:
        best = info.best(args.primary, maximize=args.maximize)
        yield "Best", ["not known" if best is None else f"{args.primary} {number(best)}"]
    # iterations share a name only: each has its own history
    for at, (moment, state) in enumerate(info.history if info.job_id else ()):
        yield "" if at else "History", [f"{local(int(moment.timestamp() * NS))}  {state}"]


def _nodes(info: "JobInfo") -> str:
    """`n1[0:1],n2`, as QCG-PilotJob writes them."""
    return ",".join(
        f"{host}[{':'.join(map(str, cores))}]" if cores else host
        for host, cores in info.nodes.items()
    )


def totals_words(info: "JobInfo") -> str:
    totals = info.iterations
    if not totals:
        return ""
    return f"{totals.total} total, {totals.finished} finished, {totals.failed} failed"
