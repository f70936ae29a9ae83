"""`logshipper analyze REPORT`: throughput, utilization, nodes, overheads and gantt of a store's
jobs."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob, UsageError
from logshipper_ingest.console.progress_bar import Bar
from logshipper_observe.analytics.analytics import (
    available_nodes,
    throughput_report,
    utilization_report,
)
from logshipper_observe.analytics.batch_jobs import NO_ALLOCATION, BatchJob
from logshipper_observe.analytics.job_tasks import events_of_children
from logshipper_observe.api.event_log import EventLog, EventQuery, StateEvent
from logshipper_observe.api.job_api import Job
from logshipper_observe.api.store_api import Store
from logshipper_observe.base.output import print_json
from logshipper_observe.base.waiting import Watch
from logshipper_observe.base.words import count, duration
from logshipper_observe.commands import completers
from logshipper_observe.commands.analysis import analyze_tasks
from logshipper_observe.commands.analysis.analyze_answer import (
    Analysis,
    Between,
    document,
    mean_words,
    print_answer,
    write_csv,
    write_picture,
)
from logshipper_observe.commands.options import (
    ONLY_HELP,
    add_between,
    add_completed,
    add_flag,
    add_jobs,
    add_json,
    add_picture,
    add_raw_cells,
    add_source,
    add_tag,
    between_of,
    check_files,
    describe,
    event_state,
    tags_of,
)
from logshipper_observe.model.documents import unknown_documents
from logshipper_observe.model.job_states import fits
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

EXIT_UNKNOWN = 1
_DEFAULT_STATE = "COMPLETED"

REPORTS = ("throughput", "utilization", "nodes", "overheads", "gantt")


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Draws how many jobs had ended (throughput), how many nodes ran jobs (utilization),\n"
        "how many there were for them (nodes), each over time; what launching jobs cost, how\n"
        "long they ran, and how busy nodes and cores were (overheads); or which of them each\n"
        "core or node had when, and when none (gantt). Of the jobs of the store only: others\n"
        "aren't known. JOB: ids, names, ranges (a3-a9), wildcards.",
        "examples:\n"
        "  logshipper analyze throughput\n"
        "  logshipper analyze throughput --to-state failed --after 2026-05-01\n"
        "  logshipper analyze utilization --png utilization.png\n"
        "  logshipper analyze utilization 'train*' --no-node-weighting --csv running.csv\n"
        "  logshipper analyze nodes --tag experiment=foo\n"
        "  logshipper analyze overheads a3-a9 --json\n"
        "  logshipper analyze gantt --by node --svg gantt.svg\n"
        "  logshipper analyze throughput --from loki --since 30d\n"
        "  logshipper analyze utilization --all-jobs --from loki",
    )
    parser.add_argument(
        "report", choices=REPORTS, metavar="REPORT", help=f"one of {', '.join(REPORTS)}"
    )
    add_jobs(parser, ONLY_HELP)
    for option, words in (
        ("--to-state", "count changes to this state (default: JOB_FINISHED, equal to COMPLETED)"),
        ("--from-state", "only changes from this state"),
    ):
        add_completed(
            parser,
            completers.states,
            option,
            type=event_state,
            metavar="STATE",
            help=f"throughput: {words}",
        )
    add_between(parser)
    add_tag(parser)
    parser.add_argument(
        "--no-node-weighting",
        dest="node_weighting",
        action="store_false",
        help="utilization: count running jobs, not their nodes",
    )
    parser.add_argument(
        "--by",
        choices=("core", "node"),
        default="core",
        help="gantt: a row for each core (default), or node",
    )
    add_flag(
        parser, "--all-jobs", help="throughput, utilization: by hour, of all jobs that Slurm ended"
    )
    form = parser.add_mutually_exclusive_group()
    add_picture(form)
    form.add_argument("--csv", metavar="FILE", help="the points as CSV")
    add_raw_cells(parser)
    add_json(form, "for programs: the points as JSON, described in docs/analytics.md")
    add_source(parser)


def call(args: argparse.Namespace) -> int:
    _check(args)
    between = after, before = between_of(args)
    if after is not None and before is not None and after > before:
        raise UsageError(
            "--before", [f"{args.before} is before --after {args.after}: there is nothing between"]
        )
    if args.all_jobs:
        _show(args, _of_all_jobs(args, between), [])
        return 0
    with opening.chosen_jobs(args) as (store, ids, unknown):
        if unknown and not ids:
            return EXIT_UNKNOWN
        answer = _answer(args, store, ids, between)
    opening.say_where_else(args)
    _show(args, answer, unknown)
    return EXIT_UNKNOWN if unknown else 0


def _show(args: argparse.Namespace, answer: Analysis, unknown: Sequence[UnknownJob]) -> None:
    if args.json:
        print_json(document(args, answer) | {"unknown": unknown_documents(unknown)})
    elif args.csv:
        write_csv(args.csv, answer, raw=args.raw_cells)
    elif args.png or args.svg:
        write_picture(args, answer)
    else:
        print_answer(answer)


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError for options that do not concern the report."""
    check_files(args, "png", "svg", "csv")
    for option in ("from_state", "to_state"):
        if getattr(args, option) and args.report != "throughput":
            words = "is for throughput, which counts changes of states"
            raise UsageError(f"--{option.replace('_', '-')}", [words])
    if not args.node_weighting and args.report != "utilization":
        words = "is for utilization, which counts nodes otherwise"
        raise UsageError("--no-node-weighting", [words])
    if args.by != analyze_tasks.CORE and args.report != "gantt":
        raise UsageError("--by", ["is for gantt, which has a row for each core otherwise"])
    if args.all_jobs:
        if args.report not in ("throughput", "utilization"):
            words = "is for throughput and utilization: of all jobs nothing else is known"
            raise UsageError("--all-jobs", [words])
        options = {"JOB": args.jobs, "--tag": args.tag, "--to-state": args.to_state, "--from-state": args.from_state,
                 "--no-node-weighting": not args.node_weighting}  # fmt: skip
        for name, value in options.items():
            if value:
                raise UsageError(name, ["not with --all-jobs: of all jobs only sums are known"])


def _of_all_jobs(args: argparse.Namespace, between: Between) -> Analysis:
    from logshipper_ingest.loki.store import DEFAULT_SINCE_SECS
    from logshipper_observe.commands.analysis.analyze_hours import (
        hours_throughput,
        hours_utilization,
    )

    if not opening.is_from_loki(args):
        raise UsageError("--all-jobs", ["Prometheus knows of them: give --from loki as well"])
    site = opening.site_of(args)
    if not site.prometheus.url:
        place = "give --prometheus-url, or its place in the site file"
        raise UsageError("--all-jobs", [f"Prometheus knows of them: {place}"])
    report = hours_utilization if args.report == "utilization" else hours_throughput
    since_secs = DEFAULT_SINCE_SECS if args.since is None else args.since
    with closing(Watch()) as watch:
        ask = opening.metrics_of(site.prometheus, watch if sys.stderr.isatty() else None)
        return report(ask, args.cluster, since_secs, between, datetime.now(UTC))


def _answer(
    args: argparse.Namespace, store: "JobStore | None", ids: list[str], between: Between
) -> Analysis:
    """Answer for the jobs. store: None without any, for no jobs at all."""
    tags = tags_of(args)
    read = None if store is None else Store(store, opening.overlay_of(store))
    all_jobs: Iterable[Job] = () if read is None else read.jobs(tags=args.tag or ())
    jobs = [job for job in all_jobs if not ids or job.job_id in ids]
    if args.report == "overheads":
        return analyze_tasks.overheads(store, jobs, between)
    if args.report == "gantt":
        return analyze_tasks.gantt_answer(store, jobs, between, by=args.by)
    events = () if read is None else _events(EventLog(read).filter(job_id=ids, tags=tags), jobs)
    if args.report == "throughput":
        return _throughput(args, events, analyze_tasks.which_jobs(jobs), between)
    allocations: Iterable[BatchJob] | None = None
    if args.report == "nodes":
        allocations = (
            () if read is None else BatchJob.over(read).filter(job_id=ids, filter_tags=tags)
        )
    return _utilization(args, events, allocations, analyze_tasks.which_jobs(jobs), between)


def _events(query: EventQuery, jobs: Sequence[Job]) -> Iterator[StateEvent]:
    """Yield events of jobs, or of their children instead."""
    parents = {(job.summary.cluster, job.job_id): job for job in jobs if job.summary.children}
    bar, jobs_read = Bar("Reading jobs", count), set()
    try:
        for event in query:
            key = event.cluster, event.job_id
            jobs_read.add(key)
            bar(len(jobs_read), len(jobs))
            if key not in parents:
                yield event
    finally:
        bar.clear()
    for job in parents.values():
        yield from events_of_children(job)


# ---- the reports


def _throughput(
    args: argparse.Namespace, events: Iterable[StateEvent], which: str, between: Between
) -> Analysis:
    state = args.to_state or _DEFAULT_STATE
    after, before = between
    changes = (
        event
        for event in events
        if fits(args.from_state, event.from_state, event.to_state)
        and (after is None or event.timestamp >= after)
        and (before is None or event.timestamp <= before)
    )
    report = throughput_report(changes, to_state=state)
    times, counts = report
    words = f"{analyze_tasks.sentence(which)} that became {state}: {count(len(times))}"
    if len(times) > 1 and times[-1] > times[0]:
        hours = (times[-1] - times[0]).total_seconds() / 3600
        words += f" in {duration(3600 * hours)}, {(len(times) - 1) / hours:.4g} an hour"
    return Analysis(
        words, "jobs", {"jobs": (times, counts)}, report.notes, document={"to_state": state}
    )


def _utilization(
    args: argparse.Namespace,
    events: Iterable[StateEvent],
    allocations: Iterable[BatchJob] | None,
    which: str,
    between: Between,
) -> Analysis:
    usage = utilization_report(events, node_weighting=args.node_weighting)
    unit = "nodes" if args.node_weighting else "jobs"
    curves = {"in use" if allocations is not None else unit: _within(usage[0], usage[1], between)}
    notes = usage.notes
    if allocations is not None:
        availability = available_nodes(allocations)
        curves = {"available": _within(availability[0], availability[1], between), **curves}
        unknown = [] if availability[0] else [NO_ALLOCATION]
        notes = list(dict.fromkeys([*unknown, *availability.notes, *notes]))
    means = {
        name: mean_words(*curve) if curve[0] else "not known" for name, curve in curves.items()
    }
    if allocations is not None:
        title = f"Nodes of {which}: {means['available']}; that ran one: {means['in use']}"
    else:
        title = f"{'Nodes that ran' if args.node_weighting else 'Running'} {which}: {means[unit]}"
    return Analysis(title, unit, curves, notes)


def _within(
    xs: list[datetime], ys: Sequence[float], between: Between
) -> tuple[list[datetime], list[float]]:
    """Return the curve between two times, with its values at both ends if known, up to now if it
    continues.

    Drops negative values: a run that ended at the time of its start gives one, because ends come
    first.
    """
    after, before = between
    now = datetime.now(UTC)
    end = min(before or now, now)
    if not xs or (after is not None and after > end):
        return [], []
    points = [
        (x, y)
        for x, y in zip(xs, ys, strict=True)
        if (after is None or x >= after) and x <= end and y >= 0
    ]
    levels_before = [y for x, y in zip(xs, ys, strict=True) if after is not None and x < after]
    if after is not None and levels_before and (points or levels_before[-1] or xs[-1] > end):
        points.insert(0, (after, levels_before[-1]))
    if points and points[-1][0] < end and (points[-1][1] or xs[-1] > end):
        points.append((end, points[-1][1]))
    return [x for x, _ in points], [y for _, y in points]
