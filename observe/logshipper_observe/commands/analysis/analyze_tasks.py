"""The reports of `logshipper analyze` on runs: overheads and gantt."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural
from logshipper_observe.analytics import task_analytics
from logshipper_observe.analytics.job_tasks import tasks_of, tasks_until
from logshipper_observe.api.job_api import Job
from logshipper_observe.base.output import Cell, Column, Styled
from logshipper_observe.base.words import count
from logshipper_observe.commands.analysis.analyze_answer import Analysis, Between, utc_of
from logshipper_observe.graphs.gantt_chart import GanttChart
from logshipper_observe.model.documents import Document

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore

CORE, NODE = "core", "node"  # of --by


def which_jobs(jobs: Iterable[Job]) -> str:
    """Name the jobs of the numbers: no others are known."""
    sources = {"imported" if job.summary.origin else "captured" for job in jobs}
    return f"{' and '.join(sorted(sources)) or 'captured'} jobs"


def sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def overheads(store: "JobStore | None", jobs: Sequence[Job], between: Between) -> Analysis:
    tasks = [task for task in _tasks(store, jobs) if _is_between(task, between)]
    tasks.sort(key=lambda task: task.start or 0.0)
    shares = dict(zip(*task_analytics.busy_share(tasks), strict=True))
    efficient = dict(zip(*task_analytics.efficiency(tasks), strict=True))
    launches = task_analytics.launch_overheads(tasks)
    rows: list[tuple[str, task_analytics.Statistics | None]] = [
        (
            "run time",
            task_analytics.statistics_of(
                secs for task in tasks if (secs := task.run_time) is not None
            ),
        ),
        ("waited in the queue", task_analytics.statistics_of(task_analytics.queue_waits(tasks)[1])),
        ("given nodes to launched", launches.launch),
        ("launched to started", launches.start),
        ("ended to over", launches.finish),
    ]
    notes = []
    if not launches.start and not launches.launch:
        notes.append("no scheduler told when these jobs were launched and over")
    if shares:
        busy, effective = (
            task_analytics.statistics_of(shares.values()),
            task_analytics.statistics_of(efficient.values()),
        )
        noun = "core" if any(task.has_cores for task in tasks) else "node"
        words = f"busy {100 * busy.mean:.3g} % of the time on average" if busy else ""
        if effective:
            words += f", {100 * effective.mean:.3g} % without waits that the schedule caused"
        notes.append(f"{plural(len(shares), noun)} {words}")
    if launches.share is not None:
        percent = f"{100 * launches.share:.3g} %"
        notes.append(f"launching and ending took {percent} of the run time, on average")
    over = [task for task in tasks if task.run_time is not None and task.start is not None]
    times = [datetime.fromtimestamp(task.start or 0, UTC) for task in over]
    return Analysis(
        f"{sentence(which_jobs(jobs))}: {plural(len(tasks), 'run')}, {count(len(over))} of them over",
        "run time (s)",
        {"run time (s)": (times, [task.run_time or 0.0 for task in over])},
        notes,
        scattered=True,
        columns=_STATISTICS,
        table=[
            [Styled(name, "bold"), *_cells(statistics)]
            for name, statistics in rows
            if statistics is not None
        ],
        titles=("job", "started", "run_secs", "queued", "scheduled", "launched", "over"),
        rows=[_csv_row(task) for task in tasks],
        document={
            "runs": len(tasks),
            "statistics": {
                name.replace(" ", "_"): statistics and statistics._asdict()
                for name, statistics in rows
            },
            "overhead_share": launches.share,
            "cores": _cores(shares, efficient),
        },
    )


_STATISTICS = (
    Column("time"),
    *(Column(title, right=True) for title in ("runs", "mean", "median", "deviation", "min", "max")),
)


def _cells(statistics: task_analytics.Statistics) -> list[Cell]:
    secs = (statistics.mean, statistics.median, statistics.stdev, statistics.min, statistics.max)
    return [
        count(statistics.number),
        *("-" if value is None else f"{value:.4g} s" for value in secs),
    ]


def _tasks(
    store: "JobStore | None", jobs: Sequence[Job], until: float | None = None
) -> Iterator[task_analytics.Task]:
    """Yield the jobs' tasks. until: the end of running ones, None for none; store: None without
    jobs."""
    if store is None:
        return
    bar = Bar("Reading jobs", count)
    open_history = store.histories([job.summary for job in jobs])
    try:
        for number, job in enumerate(jobs):
            bar(number, len(jobs))
            with open_history(job.summary) as reader:
                yield from tasks_of(reader) if until is None else tasks_until(reader, until)
    finally:
        bar.clear()


def gantt_answer(
    store: "JobStore | None", jobs: Sequence[Job], between: Between, *, by: str
) -> Analysis:
    after, before = (None if limit is None else limit.timestamp() for limit in between)
    until_now = _tasks(store, jobs, until=datetime.now(UTC).timestamp())
    core_tasks = list(task_analytics.clipped(until_now, after, before))
    tasks = core_tasks if by == CORE else task_analytics.by_node(core_tasks)
    spans, free = task_analytics.gantt(tasks), task_analytics.gaps(tasks)
    shares = dict(zip(*task_analytics.busy_share(tasks), strict=True))
    efficient = dict(zip(*task_analytics.efficiency(tasks), strict=True))
    noun = "core" if by == CORE and any(task.has_cores for task in tasks) else "node"
    words = (
        f"{sentence(which_jobs(jobs))} on {plural(len(shares), noun)}: {plural(len(tasks), 'run')}"
    )
    mean = task_analytics.statistics_of(shares.values())
    words += f", busy {100 * mean.mean:.3g} % of the time on average" if mean else ""
    return Analysis(
        words,
        noun,
        {},
        task_analytics.left_out_note(tasks),
        titles=("node", "core", "job", "start", "end", "secs"),
        rows=[
            [*place, task, utc_of(start), utc_of(end), f"{end - start:.9g}"]
            for place, start, end, task in (*spans, *free)
        ],
        document={
            "by": noun,
            "spans": [_span(span) for span in spans],
            "gaps": [_span(span) for span in free],
            "cores": _cores(shares, efficient),
        },
        chart=GanttChart(spans, free, shares) if spans else None,
    )


def _cores(shares: Mapping[str, float], efficient: Mapping[str, float]) -> list[Document]:
    return [
        {"core": core, "busy": share, "efficiency": efficient.get(core)}
        for core, share in shares.items()
    ]


def _span(span: task_analytics.Span) -> Document:
    node, core = span.place
    job = {"job": span.task} if span.task else {}
    times = {"start": utc_of(span.start), "end": utc_of(span.end)}
    return {"node": node, "core": core or None, **job, **times}


def _is_between(task: task_analytics.Task, between: Between) -> bool:
    after, before = between
    start = task.start or task.launched or 0.0
    return (after is None or start >= after.timestamp()) and (
        before is None or start <= before.timestamp()
    )


def _csv_row(task: task_analytics.Task) -> list[str]:
    times = [task.queued, task.scheduled, task.launched, task.finished]
    run = "" if task.run_time is None else f"{task.run_time:.9g}"
    return [task.name, utc_of(task.start), run, *map(utc_of, times)]
