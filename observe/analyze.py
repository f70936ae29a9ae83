"""`logshipper analyze REPORT`: throughput, utilization, nodes and overheads of a store's jobs."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.metadata.x_axis import XChoice
from ingest.progress_bar import Bar
from logshipper.errors import LogshipperError, UsageError
from observe.analytics import available_nodes, throughput_report, utilization_report
from observe.batch_jobs import BatchJob
from observe.conditions import time_ns
from observe.csv_rows import CsvRows
from observe.documents import Document
from observe.event_log import EventLog, EventQuery, StateEvent
from observe.job_api import Job
from observe.job_states import fits
from observe.job_tasks import events_of_children, tasks_of
from observe.new_file import new_file
from observe.opening import chosen_jobs, overlay_of, say_where_else, store_place
from observe.output import Cell, Column, Output, Styled, print_json
from observe.points import Points
from observe.series import CLOCK_WORDS, Graph
from observe.store_api import Store
from observe.task_analytics import Statistics, Task, busy_share, efficiency, launch_overheads, statistics_of
from observe.words import NS, count, duration, local_with_zone, plural, safe, utc

if TYPE_CHECKING:
    from ingest.store.stores import Store as AnyStore

SCHEMA = "logshipper.analyze/1"
EXIT_UNKNOWN = 1
_DEFAULT_STATE = "COMPLETED"
_SCATTERED = 7  # the rule of an X that is in no order


@dataclass
class Answer:
    """A report as it is shown. steps: by name X and Y of each curve, or points where scattered; table: rows of names
    and cells; document: what JSON has of it beside that."""

    title: str
    unit: str
    steps: Mapping[str, tuple[list[datetime], Sequence[float]]]
    notes: list[str]
    scattered: bool = False
    columns: Sequence[Column] = ()
    table: list[list[Cell]] = field(default_factory=list)
    titles: Sequence[str] = ()
    rows: list[list[str]] = field(default_factory=list)
    document: Document = field(default_factory=dict)


def call(args: argparse.Namespace) -> int:
    _check(args)
    between = _moment(args.after, "--after"), _moment(args.before, "--before")
    with chosen_jobs(args) as (store, ids, unknown):
        if unknown and not ids:
            return EXIT_UNKNOWN
        answer = _empty(args) if store is None else _answer(args, store, ids, between)
    say_where_else(args)
    if args.json:
        unknown_ones = [{"name": error.name, "reason": str(error)} for error in unknown]
        print_json(_document(args, answer) | {"unknown": unknown_ones})
    elif args.csv:
        _write_csv(args.csv, answer)
    elif args.png or args.svg:
        _write_picture(args, answer)
    else:
        _print(answer)
    return EXIT_UNKNOWN if unknown else 0


def _check(args: argparse.Namespace) -> None:
    """Raises UsageError for options that say nothing of the report."""
    for option in ("from_state", "to_state"):
        if getattr(args, option) and args.report != "throughput":
            raise UsageError(f"--{option.replace('_', '-')}", ["is for throughput, which counts changes of states"])
    if not args.node_weighting and args.report != "utilization":
        raise UsageError("--no-node-weighting", ["is for utilization, which counts nodes otherwise"])


def _moment(text: str | None, option: str) -> datetime | None:
    return None if text is None else datetime.fromtimestamp(time_ns(option, text) / NS, UTC)


Between = tuple[datetime | None, datetime | None]


def _answer(args: argparse.Namespace, store: "AnyStore", ids: list[str], between: Between) -> Answer:
    read = Store(store, overlay_of(store))
    tags = dict(text.partition("=")[::2] for text in args.tag or ())
    jobs = [job for job in read.jobs(tags=args.tag or ()) if not ids or job.job_id in ids]
    if args.report == "overheads":
        return _overheads(store, jobs, between)
    events = _events(EventLog(read).filter(job_id=ids, tags=tags), jobs)
    if args.report == "throughput":
        return _throughput(args, events, _which(jobs), between)
    allocations = BatchJob.over(read).filter(id=ids, filter_tags=tags) if args.report == "nodes" else None
    return _utilization(args, events, allocations, _which(jobs), between)


def _events(query: EventQuery, jobs: Sequence[Job]) -> Iterator[StateEvent]:
    """Of jobs, and of such as have children of these instead."""
    parents = {(job.summary.cluster, job.job_id): job for job in jobs if job.summary.children}
    yield from (event for event in query if (event.cluster, event.job_id) not in parents)
    for job in parents.values():
        yield from events_of_children(job)


def _which(jobs: Iterable[Job]) -> str:
    """Whose numbers they are: no others are known."""
    imported = {bool(job.summary.origin) for job in jobs}
    return (
        "captured and imported jobs" if len(imported) > 1 else "imported jobs" if True in imported else "captured jobs"
    )


def _empty(args: argparse.Namespace) -> Answer:
    return Answer(f"{args.report} of captured jobs: there are none yet", "jobs", {}, [])


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


# ---- the reports


def _throughput(args: argparse.Namespace, events: Iterable[StateEvent], which: str, between: Between) -> Answer:
    state = args.to_state or _DEFAULT_STATE
    after, before = between
    wanted = (
        event
        for event in events
        if fits(args.from_state, event.from_state, event.to_state)
        and (after is None or event.timestamp >= after)
        and (before is None or event.timestamp <= before)
    )
    report = throughput_report(wanted, to_state=state)
    times, counts = report
    words = f"{_sentence(which)} that became {state}: {count(len(times))}"
    if len(times) > 1 and times[-1] > times[0]:
        hours = (times[-1] - times[0]).total_seconds() / 3600
        words += f" in {duration(3600 * hours)}, {(len(times) - 1) / hours:.4g} an hour"
    return Answer(words, "jobs", {"jobs": (times, counts)}, report.notes, document={"to_state": state})


def _utilization(
    args: argparse.Namespace,
    events: Iterable[StateEvent],
    allocations: Iterable[BatchJob] | None,
    which: str,
    between: Between,
) -> Answer:
    used = utilization_report(events, node_weighting=args.node_weighting)
    unit = "nodes" if args.node_weighting else "jobs"
    curves = {"in use" if allocations is not None else unit: _within(used[0], used[1], between)}
    notes = used.notes
    if allocations is not None:
        there = available_nodes(allocations)
        curves = {"available": _within(there[0], there[1], between), **curves}
        notes = list(dict.fromkeys([*there.notes, *notes]))
    title = {
        "nodes": f"Nodes of {which}, and how many of them ran one",
        "utilization": f"{'Nodes that ran' if args.node_weighting else 'Running'} {which}",
    }[args.report]
    first = next(iter(curves.values()))
    return Answer(f"{title}: {_mean_words(*first)}", unit, curves, notes)


def _within(xs: list[datetime], ys: Sequence[float], between: Between) -> tuple[list[datetime], list[float]]:
    """What is between two times, and at both ends what was so then; up to now where something goes on."""
    after, before = between
    if not xs:
        return [], []
    now = datetime.now(UTC)
    end = min(before or now, now)
    kept = [(x, y) for x, y in zip(xs, ys, strict=True) if (after is None or x >= after) and x <= end]
    held = [y for x, y in zip(xs, ys, strict=True) if after is not None and x < after]
    if held and held[-1]:
        kept.insert(0, (after or xs[0], held[-1]))
    if kept and kept[-1][1] and kept[-1][0] < end:
        kept.append((end, kept[-1][1]))
    return [x for x, _ in kept], [y for _, y in kept]


def _mean_words(xs: Sequence[datetime], ys: Sequence[float]) -> str:
    if len(xs) < 2 or xs[-1] == xs[0]:
        return f"{max(ys, default=0):g} at most"
    secs = (xs[-1] - xs[0]).total_seconds()
    area = sum(y * (after - x).total_seconds() for x, after, y in zip(xs, xs[1:], ys, strict=False))
    return f"{max(ys):g} at most, {area / secs:.4g} on average in {duration(secs)}"


def _overheads(store: "AnyStore", jobs: Sequence[Job], between: Between) -> Answer:
    tasks = [task for task in _tasks(store, jobs) if _is_between(task, between)]
    tasks.sort(key=lambda task: task.start or 0.0)
    shares = dict(zip(*busy_share(tasks), strict=True))
    efficient = dict(zip(*efficiency(tasks), strict=True))
    found = launch_overheads(tasks)
    rows: list[tuple[str, Statistics | None]] = [
        ("run time", statistics_of(secs for task in tasks if (secs := task.run_time) is not None)),
        ("given nodes to launched", found.launch),
        ("launched to started", found.start),
        ("ended to over", found.finish),
    ]
    notes = [] if found.start or found.launch else ["no scheduler told when these jobs were launched and over"]
    if shares:
        busy, used = statistics_of(shares.values()), statistics_of(efficient.values())
        words = f"busy {100 * busy.mean:.3g} % of the time on average" if busy else ""
        words += f", {100 * used.mean:.3g} % without waits that the schedule caused" if used else ""
        notes.append(f"{plural(len(shares), 'core' if any(task.has_cores for task in tasks) else 'node')} {words}")
    if found.share is not None:
        notes.append(f"launching and ending took {100 * found.share:.3g} % of the run time, on average")
    over = [task for task in tasks if task.run_time is not None and task.start is not None]
    times = [datetime.fromtimestamp(task.start or 0, UTC) for task in over]
    return Answer(
        f"{_sentence(_which(jobs))}: {plural(len(tasks), 'run')}, {count(len(over))} of them over",
        "run time (s)",
        {"run time (s)": (times, [task.run_time or 0.0 for task in over])},
        notes,
        scattered=True,
        columns=_STATISTICS,
        table=[[Styled(name, "bold"), *_cells(one)] for name, one in rows if one is not None],
        titles=("job", "started", "run_secs", "scheduled", "launched", "over"),
        rows=[_csv_row(task) for task in tasks],
        document={
            "runs": len(tasks),
            "statistics": {name.replace(" ", "_"): one and one._asdict() for name, one in rows},
            "overhead_share": found.share,
            "cores": [{"core": core, "busy": shares[core], "efficiency": efficient.get(core)} for core in shares],
        },
    )


_STATISTICS = (
    Column(""),
    *(Column(title, right=True) for title in ("runs", "mean", "median", "deviation", "min", "max")),
)


def _cells(one: Statistics) -> list[Cell]:
    secs = (one.mean, one.median, one.stdev, one.min, one.max)
    return [count(one.number), *("-" if value is None else f"{value:.4g} s" for value in secs)]


def _tasks(store: "AnyStore", jobs: Sequence[Job]) -> Iterator[Task]:
    bar = Bar("Reading jobs", count)
    try:
        for number, job in enumerate(jobs):
            bar(number, len(jobs))
            with store.reader_of(job.summary) as reader:
                yield from tasks_of(reader)
    finally:
        bar.clear()


def _is_between(task: Task, between: Between) -> bool:
    after, before = between
    start = task.start or task.launched or 0.0
    return (after is None or start >= after.timestamp()) and (before is None or start <= before.timestamp())


def _csv_row(task: Task) -> list[str]:
    times = [task.scheduled, task.launched, task.finished]
    run = "" if task.run_time is None else f"{task.run_time:.9g}"
    return [task.name, _utc(task.start), run, *map(_utc, times)]


def _utc(secs: float | None) -> str:
    return "" if secs is None else utc(round(secs * 1e6) * 1000)


# ---- showing


def _print(answer: Answer) -> None:
    out = Output()
    out.line(Styled(answer.title, "bold"))
    if answer.table:
        out.line()
        out.table(answer.columns, answer.table)
    graphs = _graphs(answer)
    if graphs:
        from observe.graph_text import drawn

        out.line()
        sys.stdout.write("".join(f"{line}\n" for line in drawn(graphs, out)))
    for note in answer.notes:
        out.line(Styled(note, "dim"))


def _graphs(answer: Answer) -> list[Graph]:
    """One graph with all curves, as steps; none where there is nothing to show."""
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
    graph.integer = not answer.scattered and all(y == int(y) for _, ys in curves.values() for y in ys)
    graph.title = f"{answer.unit}, since {local_with_zone(int(begin.timestamp()) * NS)}"
    return [graph]


def _write_picture(args: argparse.Namespace, answer: Answer) -> None:
    from observe.graph_png import write_png

    path, form = (args.png, "png") if args.png else (args.svg, "svg")
    graphs = _graphs(answer)
    if not graphs:
        raise LogshipperError(f"{answer.title}: nothing to draw")
    if path == "-" and sys.stdout.isatty():
        raise LogshipperError(f"--{form}: a picture isn't written to a terminal; give a file's name")
    write_png(path, graphs, answer.title, "; ".join(answer.notes), form=form)
    if path != "-":
        Output().line(f"Wrote {safe(path)}. {safe(answer.title)}")


def _write_csv(path: str, answer: Answer) -> None:
    rows = CsvRows()
    lines = [rows.row(titles) for titles in [answer.titles or ("series", "time", answer.unit)]]
    lines += [rows.row(row) for row in answer.rows or _point_rows(answer)]
    text = "".join(f"{line}\n" for line in lines)
    if path == "-":
        sys.stdout.write(text)
        return
    with new_file(path, force=True, option="--csv") as file:
        file.write(text.encode())
    Output().line(f"Wrote {safe(path)}: {plural(len(lines) - 1, 'row')}. {safe(answer.title)}")


def _point_rows(answer: Answer) -> Iterator[list[str]]:
    for name, (xs, ys) in answer.steps.items():
        for x, y in zip(xs, ys, strict=True):
            yield [name, _utc(x.timestamp()), f"{y:.9g}"]


def _document(args: argparse.Namespace, answer: Answer) -> Document:
    return {
        "schema": SCHEMA,
        "store": store_place(args),
        "report": args.report,
        "title": answer.title,
        "unit": answer.unit,
        **answer.document,
        "series": [
            {"name": name, "x": [_utc(x.timestamp()) for x in xs], "y": list(ys)}
            for name, (xs, ys) in answer.steps.items()
        ],
        "notes": answer.notes,
    }
