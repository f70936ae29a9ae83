"""Data about a job, or one of many tasks, by name: `logshipper.JobInfo`, with QCG-PilotJob's words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING

from logshipper.classify.metadata import GAPS
from logshipper_ingest.model.job import JOB_ENDED, QUEUED, STATE_CHANGED, Capture, JobSummary
from logshipper_ingest.model.metadata_keys import Number
from logshipper_observe.base.words import RUNNING_STATES
from logshipper_observe.model.job_context import contexts_of, cores_of, cwd_of
from logshipper_observe.model.job_events import changes_of, moment_of
from logshipper_observe.model.properties import number_of

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Child, Json
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
    """A key's numbers: last (None if the last value is no number), least and greatest."""

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
        """Return the least, or greatest, number of a key in all iterations; None without one."""
        metrics = [info.metrics[key] for info in (self, *self.children) if key in info.metrics]
        if maximize:
            return max((metric.max for metric in metrics), default=None)
        return min((metric.min for metric in metrics), default=None)

    @property
    def is_finished(self) -> bool:
        return self.status not in NOT_ENDED


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


def info_of(reader: "Reader", now_ns: int, *, children: bool = True) -> JobInfo:
    """Return one job's data; several tasks are its children. children: False for sub-totals only."""
    job = reader.summary
    newest = max((capture.attempt for capture in reader.captures), default=1)
    captures = [capture for capture in reader.captures if capture.attempt == newest]
    contexts = {number: context.event for number, context in contexts_of(reader).items()}
    cores: dict[str, set[int]] = {}
    for capture in captures:
        cores.setdefault(capture.host, set()).update(cores_of(contexts.get(capture.capture, {})))
    info = replace(
        brief(job, now_ns),
        nodes={host: sorted(numbers) for host, numbers in cores.items() if host},
        total_nodes=job.nodes or len(cores) or None,
        total_cores=sum(map(len, cores.values())) or job.cores or None,
        wdir=next(filter(None, map(cwd_of, contexts.values())), ""),
        history=_captured_history(reader),
        metrics=_metrics(reader),
    )
    if job.origin:
        return _imported(info, reader, children=children)
    if len({(capture.step, capture.task) for capture in captures}) < 2:
        return info
    tasks = captures[: MAX_CHILDREN if children else 0]
    return replace(
        info,
        children=[_task(info, task, contexts.get(task.capture, {}), now_ns) for task in tasks],
        iterations=totals([capture.state for capture in captures]),
    )


def _captured_history(reader: "Reader") -> list[tuple[datetime, str]]:
    """Each state with the time of its begin; QUEUED if Slurm reported a job's submission."""
    history = [(event.timestamp, event.to_state) for event in changes_of(reader)]
    ends = (job_event.event for job_event in reader.events(names=(JOB_ENDED,)))
    submitted = [
        at_ns for end in ends if isinstance(at_ns := end.get("submitted_ns"), int) and at_ns > 0
    ]
    if history and submitted and (first := moment_of(min(submitted))) <= history[0][0]:
        history.insert(0, (first, QUEUED))
    return history


def _imported(info: JobInfo, reader: "Reader", *, children: bool) -> JobInfo:
    """Add the reports of QCG-PilotJob, Balsam and XT. info: as if the job was captured."""
    job = reader.summary
    events = reader.events(names=(STATE_CHANGED,))
    states = [(event.time_ns, str(event.event.get("to", ""))) for event in events]
    info = _with_details(info, reader.details(), job.nodes, job.cores)
    info = replace(info, history=_history(states) or info.history)
    if not job.children:
        return info
    return replace(
        info,
        iterations=Iterations(job.children, job.children_finished, job.children_failed),
        children=_children(info, reader, reader.children()) if children else (),
    )


def child_of(info: JobInfo, reader: "Reader", number: int) -> JobInfo | None:
    """One iteration of an imported job, also beyond those that `children` has."""
    iterations = (child for child in reader.children() if child.iteration == number)
    return next(iter(_children(info, reader, iterations)), None)


def _children(info: JobInfo, reader: "Reader", children: "Iterable[Child]") -> list[JobInfo]:
    first_children = list(islice(children, MAX_CHILDREN))
    states_by_name: dict[str, list[tuple[int, str]]] = {child.name: [] for child in first_children}
    # many of them have very many changes in order of time: begin and end must do
    if reader.summary.children <= MAX_CHILDREN:
        for change in reader.child_changes():
            if change.child in states_by_name:
                states_by_name[change.child].append((change.time_ns, change.to_state))
    return [_child(info, child, _history(states_by_name[child.name])) for child in first_children]


def _child(info: JobInfo, child: "Child", history: list[tuple[datetime, str]]) -> JobInfo:
    ran_ns = child.ended_ns - child.started_ns if child.started_ns and child.ended_ns else 0
    child_info = replace(
        info,
        name=child.name,
        status=child.state,
        nodes={},
        wdir="",
        time=timedelta(microseconds=max(ran_ns, 0) // 1000),
        exit_code=child.exit_code,
        signal=child.signal,
        history=history or _ends(child),
        iteration=child.iteration,
        iterations=None,
        children=(),
        messages="",
        restarts=0,
        metrics={},
    )
    return _with_details(child_info, child.details, child.nodes, child.cores)


def _ends(run: "Capture | Child") -> list[tuple[datetime, str]]:
    ends = ((run.started_ns, "RUNNING"), (run.ended_ns, run.state))
    return [(moment_of(time_ns), state) for time_ns, state in ends if time_ns is not None]


def _with_details(info: JobInfo, details: "Json", nodes: int, cores: int) -> JobInfo:
    """details: the other system's words; of any kind."""
    # late: few jobs are imported, and importers take time to load
    from logshipper_ingest.imports.qcg import parse_allocation

    allocation, wdir, messages = (
        value if isinstance(value := details.get(name), str) else ""
        for name in ("allocation", "work_dir", "messages")
    )
    secs = details.get("run_secs")
    nodes_by_host = {
        host: [int(number) for number in numbers if number.isdecimal()]
        for host, numbers in parse_allocation(allocation).items()
    }
    return replace(
        info,
        nodes=nodes_by_host or info.nodes,
        total_nodes=nodes or None,
        total_cores=cores or None,
        wdir=wdir,
        time=timedelta(seconds=secs) if isinstance(secs, int | float) else info.time,
        messages=messages or info.messages,
    )


def _history(states: Iterable[tuple[int, str]]) -> list[tuple[datetime, str]]:
    """Each state when it was entered; that it was reported again is no change."""
    return [
        (moment_of(next(group)[0]), state)
        for state, group in groupby(states, key=lambda entry: entry[1])
    ]


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
        history=_ends(capture),
        iteration=capture.task,
        messages=capture.reason,
        metrics={},
    )


def _metrics(reader: "Reader") -> dict[str, Metric]:
    metrics = {}
    for key in reader.keys():  # noqa: SIM118  not a dict's
        if key.numbers and key.min is not None and key.max is not None:
            last = float(key.last) if key.last in GAPS else number_of(key.last)
            metrics[key.key] = Metric(last, key.min, key.max)
    return metrics


def _took(job: JobSummary | Capture, now_ns: int) -> timedelta:
    end_ns = now_ns if job.ended_ns is None else job.ended_ns
    return timedelta(microseconds=max(end_ns - job.started_ns, 0) // 1000)
