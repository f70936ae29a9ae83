"""Data about a job, or one of many tasks, by name: `logshipper.JobInfo`, with QCG-PilotJob's words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from logshipper.classify.metadata import GAPS
from logshipper_ingest.model.job import JOB_ENDED, QUEUED, Capture, JobSummary
from logshipper_ingest.model.metadata_keys import Number
from logshipper_observe.base.words import NS, RUNNING_STATES
from logshipper_observe.model.job_context import contexts_of, cores_of, cwd_of
from logshipper_observe.model.job_events import changes_of
from logshipper_observe.model.properties import json_value

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

MAX_CHILDREN = 10_000  # of a job's tasks or iterations in `children`
NOT_ENDED = (*RUNNING_STATES, "REQUEUED", QUEUED)


@dataclass(frozen=True, slots=True)
class Iterations:
    """Sub-totals of a job's tasks, or of the jobs that are its iterations.

    finished: ended in any state; failed: those of them that are not COMPLETED.
    """

    total: int
    finished: int
    failed: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A key's numbers: the last one (None where the last value is none), the least, the
    greatest."""

    last: Number | None
    min: Number
    max: Number


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One job, task or iteration."""

    job_id: str
    name: str  # `name:i` of an iteration
    status: str
    # numbers of cores by host; an empty list if unknown
    nodes: Mapping[str, Sequence[int]]
    total_cores: int | None  # None: not known
    wdir: str  # "": not known
    time: timedelta  # run time; of a job that runs, so far
    exit_code: int | None
    signal: int  # that ended it; 0 for none
    history: Sequence[tuple[datetime, str]]  # when (UTC) each state was entered
    iteration: int | None = None  # its number
    iterations: Iterations | None = None  # totals of several tasks or iterations
    children: "Sequence[JobInfo]" = field(default=())  # these in order, MAX_CHILDREN at most
    messages: str = ""  # the reason, where the state needs one
    restarts: int = 0  # how often it was restarted
    metrics: Mapping[str, Metric] = field(default_factory=dict)  # its keys with numbers
    total_nodes: int | None = None  # None: not known

    def best(self, key: str, *, maximize: bool = False) -> Number | None:
        """Return the greatest, or the least, of a key's numbers, over all iterations; None without
        numbers."""
        metrics = [
            metric
            for info in (self, *self.children)
            if (metric := info.metrics.get(key)) is not None
        ]
        if not metrics:
            return None
        return (
            max(metric.max for metric in metrics)
            if maximize
            else min(metric.min for metric in metrics)
        )

    @property
    def is_finished(self) -> bool:
        return self.status not in NOT_ENDED


def info_of(reader: "Reader", now_ns: int, *, children: bool = True) -> JobInfo:
    """Return one job's data; several tasks are its children. children: False for sub-totals only."""
    job = reader.summary
    newest = max((capture.attempt for capture in reader.captures), default=1)
    captures = [capture for capture in reader.captures if capture.attempt == newest]
    contexts = {number: context.event for number, context in contexts_of(reader).items()}
    cores: dict[str, set[int]] = {}
    for capture in captures:
        cores.setdefault(capture.host, set()).update(cores_of(contexts.get(capture.capture, {})))
    wdir = next((cwd_of(event) for event in contexts.values() if cwd_of(event)), "")
    base = JobInfo(
        job_id=job.job_id,
        name=job.name,
        status=job.state,
        nodes={host: sorted(numbers) for host, numbers in cores.items() if host},
        total_nodes=job.nodes or len(cores) or None,
        total_cores=sum(map(len, cores.values())) or job.cores or None,
        wdir=wdir,
        time=_took(job, now_ns),
        exit_code=job.exit_code,
        signal=job.signal,
        history=_history(reader),
        messages=job.reason,
        restarts=job.attempts - 1,
        metrics=_metrics(reader),
    )
    if job.origin:
        from logshipper_observe.model.imported_info import imported_info

        return imported_info(base, reader, children=children)
    if len({(capture.step, capture.task) for capture in captures}) < 2:
        return base
    tasks = captures[: MAX_CHILDREN if children else 0]
    task_infos = [
        _task(base, capture, contexts.get(capture.capture, {}), now_ns) for capture in tasks
    ]
    return replace(
        base, children=task_infos, iterations=totals([capture.state for capture in captures])
    )


def _history(reader: "Reader") -> list[tuple[datetime, str]]:
    """Each state with the time at which it was entered; QUEUED, where Slurm reported when a
    captured job was submitted."""
    history = [(event.timestamp, event.to_state) for event in changes_of(reader)]
    ends = (
        job_event.event
        for job_event in reader.events()
        if job_event.event.get("event") == JOB_ENDED
    )
    submitted = [
        at_ns for end in ends if isinstance(at_ns := end.get("submitted_ns"), int) and at_ns > 0
    ]
    if history and submitted and (first := moment_of(min(submitted))) <= history[0][0]:
        history.insert(0, (first, QUEUED))
    return history


def brief(job: JobSummary, now_ns: int) -> JobInfo:
    """Return the data that a list of jobs has, without opening the job."""
    return JobInfo(
        job_id=job.job_id,
        name=job.name,
        status=job.state,
        nodes={},
        total_nodes=job.nodes or None,
        total_cores=job.cores or None,
        wdir="",
        time=_took(job, now_ns),
        exit_code=job.exit_code,
        signal=job.signal,
        history=[(moment_of(job.started_ns), "RUNNING")],
        messages=job.reason,
        restarts=job.attempts - 1,
    )


def _began(history: Sequence[tuple[datetime, str]]) -> datetime:
    """Return the time of the first run; of a job that never ran, the begin of its wait."""
    return next((at for at, state in history if state in RUNNING_STATES), history[0][0])


def group_of(name: str, members: Iterable[tuple[int, JobInfo]]) -> JobInfo:
    """Unite the jobs called NAME:0, NAME:1, ... as iterations of one."""
    children = [
        replace(info, iteration=number)
        for number, info in sorted(members, key=lambda member: member[0])
    ]
    nodes: dict[str, set[int]] = {}
    for info in children:
        for host, cores in info.nodes.items():
            nodes.setdefault(host, set()).update(cores)
    running = [info.status for info in children if not info.is_finished]
    failed = [info for info in children if info.is_finished and info.status != "COMPLETED"]
    runs = [(_began(info.history), info.time) for info in children if info.history]
    began = min(at for at, _ in runs)
    ends = max(at + took for at, took in runs)
    first = failed[0] if failed else children[0]
    return JobInfo(
        job_id="",
        name=name,
        status=running[0] if running else "FAILED" if failed else "COMPLETED",
        nodes={host: sorted(cores) for host, cores in nodes.items()},
        total_nodes=len(nodes) or None,
        total_cores=sum(map(len, nodes.values())) or None,
        wdir=children[0].wdir if len({info.wdir for info in children}) == 1 else "",
        time=ends - began,
        exit_code=None if running else first.exit_code,
        signal=0 if running else first.signal,
        history=sorted(moment for info in children for moment in info.history),
        iterations=totals([info.status for info in children]),
        children=children,
        messages=first.messages,
        restarts=sum(info.restarts for info in children),
    )


def totals(states: Sequence[str]) -> Iterations:
    ended = [state for state in states if state not in NOT_ENDED]
    return Iterations(len(states), len(ended), sum(state != "COMPLETED" for state in ended))


def _task(base: JobInfo, capture: Capture, context: Mapping[str, object], now_ns: int) -> JobInfo:
    cores = cores_of(context)
    step = f"{capture.step}." if capture.step not in ("", "batch") else ""
    moments = [(moment_of(capture.started_ns), "RUNNING")]
    if capture.ended_ns is not None:
        moments.append((moment_of(capture.ended_ns), capture.state))
    return replace(
        base,
        name=f"{base.name}:{step}{capture.task}",
        status=capture.state,
        nodes={capture.host: cores},
        total_nodes=1,
        total_cores=len(cores) or None,
        wdir=cwd_of(context),
        time=_took(capture, now_ns),
        exit_code=capture.exit_code,
        signal=capture.signal,
        history=moments,
        iteration=capture.task,
        messages=capture.reason,
        metrics={},
    )


def _metrics(reader: "Reader") -> dict[str, Metric]:
    metrics = {}
    for key in reader.keys():  # noqa: SIM118  not a dict's
        if key.numbers and key.min is not None and key.max is not None:
            value = float(key.last) if key.last in GAPS else json_value(key.last)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            metrics[key.key] = Metric(value if is_number else None, key.min, key.max)  # type: ignore[arg-type]  # is_number
    return metrics


def _took(job: JobSummary | Capture, now_ns: int) -> timedelta:
    end_ns = now_ns if job.ended_ns is None else job.ended_ns
    return timedelta(microseconds=max(end_ns - job.started_ns, 0) // 1000)


def moment_of(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // NS, UTC).replace(microsecond=time_ns % NS // 1000)
