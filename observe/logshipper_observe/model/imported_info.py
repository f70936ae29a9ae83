"""Reports of QCG-PilotJob, Balsam and XT about an imported job, as `logshipper.JobInfo`."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING

from logshipper_ingest.imports.qcg import parse_allocation
from logshipper_observe.model.job_info import MAX_CHILDREN, Iterations, JobInfo, moment_of

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Child, Json
    from logshipper_ingest.model.stores import Reader


def imported_info(base: JobInfo, reader: "Reader", *, children: bool) -> JobInfo:
    """base: of the job as if it was captured; children: whether to include these."""
    job = reader.summary
    states = [
        (event.time_ns, str(event.event.get("to", "")))
        for event in reader.events()
        if event.event.get("event") == "state"
    ]
    info = _with_details(base, reader.details(), job.nodes, job.cores)
    info = replace(info, history=_history(states) or base.history)
    if not job.children:
        return info
    return replace(
        info,
        iterations=Iterations(job.children, job.children_finished, job.children_failed),
        children=_children(info, reader, reader.children()) if children else (),
    )


def child_of(info: JobInfo, reader: "Reader", number: int) -> JobInfo | None:
    """One iteration, also beyond those that `children` has."""
    return next(
        iter(
            _children(
                info, reader, (child for child in reader.children() if child.iteration == number)
            )
        ),
        None,
    )


def _children(info: JobInfo, reader: "Reader", children: "Iterable[Child]") -> list[JobInfo]:
    first_children = list(islice(children, MAX_CHILDREN))
    states_by_name: dict[str, list[tuple[int, str]]] = {child.name: [] for child in first_children}
    # many of them have very many changes in order of time: begin and end must do
    if reader.summary.children <= MAX_CHILDREN:
        for change in reader.child_changes():
            if change.child in states_by_name:
                states_by_name[change.child].append((change.time_ns, change.to_state))
    return [
        _child(info, child, _history(states_by_name[child.name]) or _ends(child))
        for child in first_children
    ]


def _ends(child: "Child") -> list[tuple[datetime, str]]:
    ended = [(child.ended_ns, child.state)] if child.ended_ns is not None else []
    began = [(child.started_ns, "RUNNING")] if child.started_ns is not None else []
    return [(moment_of(time_ns), state) for time_ns, state in began + ended]


def _child(info: JobInfo, child: "Child", history: list[tuple[datetime, str]]) -> JobInfo:
    ran = (
        (child.ended_ns or 0) - (child.started_ns or 0)
        if child.started_ns and child.ended_ns
        else 0
    )
    child_info = replace(
        info,
        name=child.name,
        status=child.state,
        nodes={},
        wdir="",
        time=timedelta(microseconds=max(ran, 0) // 1000),
        exit_code=child.exit_code,
        signal=child.signal,
        history=history,
        iteration=child.iteration,
        iterations=None,
        children=(),
        messages="",
        restarts=0,
        metrics={},
    )
    return _with_details(child_info, child.details, child.nodes, child.cores)


def _with_details(info: JobInfo, details: "Json", nodes: int, cores: int) -> JobInfo:
    """details: the other system's words; of any kind."""
    allocation = parse_allocation(_text(details, "allocation"))
    secs = details.get("run_secs")
    return replace(
        info,
        nodes={
            host: [int(number) for number in numbers if number.isdecimal()]
            for host, numbers in allocation.items()
        }
        or info.nodes,
        total_nodes=nodes or None,
        total_cores=cores or None,
        wdir=_text(details, "work_dir"),
        time=timedelta(seconds=secs) if isinstance(secs, int | float) else info.time,
        messages=_text(details, "messages") or info.messages,
    )


def _text(details: "Json", name: str) -> str:
    value = details.get(name)
    return value if isinstance(value, str) else ""


def _history(states: Iterable[tuple[int, str]]) -> list[tuple[datetime, str]]:
    """Each state when it was entered; that it was reported again is no change."""
    return [
        (moment_of(next(group)[0]), state)
        for state, group in groupby(states, key=lambda entry: entry[1])
    ]
