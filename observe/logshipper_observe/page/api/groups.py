"""`api/groups`: curves of several jobs in groups, with mean and deviation, like `plot --group-by`
and `--aggregate`."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from logshipper.errors import LogshipperError, UnknownJob
from logshipper_ingest.console.text_table import plural
from logshipper_observe.graphs.curves import NONE, Trace, Treatment
from logshipper_observe.graphs.plot_runs import MAX_TRACES, PLACES, RUN, CommonAxes, PlotQuery, Runs
from logshipper_observe.graphs.points import extreme_places
from logshipper_observe.graphs.series import GraphRequest, numeric_keys
from logshipper_observe.model.options import options_of
from logshipper_observe.page.api.compare import job_ids
from logshipper_observe.page.api.graphs import (
    DEFAULT_POINTS,
    READ_SECS,
    axis_document,
    keys_of,
    points_document,
    weight_of,
)
from logshipper_observe.page.api.request import (
    PageAnswer,
    Request,
    RequestRefusal,
    etag_of,
    json_answer,
)
from logshipper_observe.page.data.graph_feeds import KEPT_POINTS, FeedQuery
from logshipper_observe.page.data.job_list import facts_of

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

MOST_KEYS = 4  # of one answer, which holds all runs of each key in memory
RUN_POINTS = 1 << 14  # of a run
RUN_SERIES = 64  # of a job


class _Job(NamedTuple):
    reader: "Reader"
    label: str
    options: Mapping[str, str]


def groups(request: Request) -> PageAnswer:
    """Return the graphs of the keys in `y`, a JSON list, over several jobs.

    Parameters: `jobs`, and a label for each in `labels`; `by` groups the runs; `mean=1` replaces
    the runs of a group by their mean and deviation at each X; `x`, `smooth`, `debias` and `points`
    as for graphs.
    """
    began = time.perf_counter()
    points = request.number("points", DEFAULT_POINTS, 4, KEPT_POINTS)
    keys = keys_of(request, MOST_KEYS)
    measures = ("mean", "std") if request.flag("mean") else (NONE, NONE)
    query = PlotQuery(
        GraphRequest(request.params.get("x") or None, keys),
        group_by=request.params.get("by") or RUN,
        treatment=Treatment(weight_of(request), *measures, debias=request.flag("debias")),
        max_traces=sys.maxsize,
    )
    with ExitStack() as exit_stack:
        jobs = _open(request, exit_stack, query.group_by)
        facts = [[facts_of(job.reader.summary), job.reader.is_over, job.options] for job in jobs]
        etag = etag_of([request.params, facts])
        if etag == request.client_etag:
            return PageAnswer(b"", etag=etag)
        runs = {key: Runs(query, 1) for key in keys}
        complete, records = _read(request, query, jobs, runs)
        document = {
            "complete": complete,
            "records": records,
            "total": sum(job.reader.summary.records for job in jobs),
            "graphs": [_graph(query, key, runs[key], points) for key in keys] if complete else [],
            "secs": round(time.perf_counter() - began, 4),
        }
    return json_answer(document, etag if complete else "")


def _open(request: Request, exit_stack: ExitStack, by: str) -> list[_Job]:
    ids = job_ids(request)
    labels = request.texts("labels", '["lr=0.1"]') if "labels" in request.params else ids
    if len(labels) != len(ids):
        raise RequestRefusal("labels: must have a text for each job")
    jobs = []
    for job_id, label in zip(ids, labels, strict=True):
        try:
            reader = exit_stack.enter_context(request.store.job(job_id))
        except UnknownJob:
            continue
        options = {} if by in PLACES else options_of(reader, request.store.marks(reader))
        jobs.append(_Job(reader, label, options))
    return jobs


def _read(
    request: Request, query: PlotQuery, jobs: Sequence[_Job], runs: Mapping[str, Runs]
) -> tuple[bool, int]:
    """Read the runs of each key. Return whether the time sufficed, and the number of records read
    so far."""
    deadline = time.monotonic() + READ_SECS
    all_keys = [numeric_keys(job.reader) for job in jobs]
    axes = CommonAxes(query, [job.reader.x_axis() for job in jobs], all_keys)
    complete, records = True, 0
    for job, keys in zip(jobs, all_keys, strict=True):
        for name in runs.keys() - keys.keys():
            runs[name].notes.append(f"{job.label} has no key {name}")
        for x, names in axes.by_x(name for name in runs if name in keys).items():
            if x.key is not None and x.key not in keys:
                for name in names:
                    runs[name].notes.append(f"{job.label} has no key {x.key}, which is X")
                continue
            feed_query = FeedQuery(
                job.reader.summary.job_id,
                x,
                tuple(names),
                kept_points=RUN_POINTS,
                most_series=RUN_SERIES,
            )
            feed = request.caches.feeds.get(feed_query)
            with feed.lock:
                graphs = feed.read_on(job.reader, max(deadline - time.monotonic(), 0.0))
                complete = complete and feed.complete
                records += feed.reading.records
                for graph in graphs:
                    runs[graph.key].take(job.reader, job.label, x, [graph], "", job.options)
    return complete, records


def _graph(query: PlotQuery, key: str, runs: Runs, points: int) -> dict[str, Any]:  # Any: JSON
    """Return a graph with at most so many points per curve."""
    if not runs.is_grouped:
        return _empty(key, [f"No run of these has the tag or option {query.group_by}."])
    try:
        graph_set = runs.gather()
    except LogshipperError as error:
        return _empty(key, [str(error)])
    (graph,) = graph_set.graphs
    traces = [trace for trace in graph.series if isinstance(trace, Trace)]
    notes = list(filter(None, map(_uneven, traces)))
    if len(traces) > MAX_TRACES:
        notes.append(
            f"{len(traces) - MAX_TRACES} more curves left out: one graph shows {MAX_TRACES}."
        )
    is_raw = query.treatment.aggregate == NONE
    return {
        **_empty(key, [*notes, *graph_set.notes]),
        "integer": graph.integer and is_raw,
        "x": axis_document(graph),
        "scattered": graph.x.rule == 7 and is_raw,
        "series": [_series(trace, points) for trace in traces[:MAX_TRACES]],
    }


def _empty(key: str, notes: list[str]) -> dict[str, Any]:  # Any: JSON
    return {
        "key": key,
        "integer": False,
        "x": None,
        "own_x": False,
        "scattered": False,
        "series": [],
        "notes": notes,
    }


def _uneven(trace: Trace) -> str:
    """Return a note for a mean over runs with different X, "" if the runs share all X."""
    least, most = min(trace.counts, default=trace.runs), max(trace.counts, default=trace.runs)
    if least == trace.runs:
        return ""
    if most == 1:
        return (
            f"{trace.group}: no two of its {trace.runs} runs share an X, so there is no deviation."
        )
    return f"{trace.group}: some of its {trace.runs} runs lack an X: means are over {least} to {most} runs."


def _series(trace: Trace, points: int) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = {"group": trace.group, "runs": trace.runs, "seen": trace.total}
    if trace.errors is None:
        return {**document, "label": trace.label, **points_document(trace, points)}
    places = extreme_places(trace.ys, points)
    return {
        **document,
        "label": f"{trace.group}, {plural(trace.runs, 'run')}",
        "x": [trace.xs[at] for at in places],
        "y": [trace.ys[at] for at in places],
        "breaks": [],
        "gaps": [],
        "deviations": [trace.errors[at] for at in places],
        "counts": [trace.counts[at] for at in places],
    }
