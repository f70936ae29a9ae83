"""`api/groups`: curves of several jobs in groups, with mean and deviation, as `plot --group-by` and
`--aggregate` have them."""

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from logshipper.errors import LogshipperError, UnknownJob
from logshipper_ingest.console.text_table import plural
from logshipper_observe.graphs.curves import NONE, Trace, Treatment
from logshipper_observe.graphs.graph_notes import gap_document
from logshipper_observe.graphs.plot_runs import MAX_TRACES, PLACES, RUN, CommonAxes, PlotQuery, Runs
from logshipper_observe.graphs.points import extreme_places
from logshipper_observe.graphs.series import GraphRequest, numeric_keys
from logshipper_observe.model.options import options_of
from logshipper_observe.page.answers import Ask, PageAnswer, RequestRefusal, etag_of, json_answer
from logshipper_observe.page.compare_api import job_ids, marks_of
from logshipper_observe.page.graph_feeds import KEPT_POINTS, FeedQuery
from logshipper_observe.page.graphs_api import (
    DEFAULT_POINTS,
    READ_SECS,
    axis_document,
    is_debiased,
    keys_of,
    weight_of,
)
from logshipper_observe.page.jobs_api import facts_of
from logshipper_observe.query.asked import UnknownKey

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader

MOST_KEYS = 4  # of one answer, of each of which all runs are held in memory
RUN_POINTS = 1 << 14  # that are kept of a run
RUN_SERIES = 64  # of a job


class _Job(NamedTuple):
    reader: "Reader"
    label: str
    options: Mapping[str, str]


def groups(ask: Ask) -> PageAnswer:
    """The graphs of the keys in `y`, a JSON list, of the jobs in `jobs`, which `labels` names. by:
    what runs are grouped by; mean=1: of each group the mean and deviation at each X instead of its
    runs; x, smooth, debias, points: as in `graphs`."""
    began = time.perf_counter()
    points = ask.number("points", DEFAULT_POINTS, 4, KEPT_POINTS)
    keys = keys_of(ask, MOST_KEYS)
    is_mean = ask.choice("mean", "0", "1") == "1"
    measures = ("mean", "std") if is_mean else (NONE, NONE)
    treatment = Treatment(weight_of(ask), *measures, debias=is_debiased(ask))
    request = GraphRequest(ask.words.get("x") or None, keys)
    query = PlotQuery(
        request, group_by=ask.words.get("by") or RUN, treatment=treatment, max_traces=sys.maxsize
    )
    with ExitStack() as exit_stack:
        jobs = _open(ask, exit_stack, query.group_by)
        etag = etag_of([ask.words, [_facts(job) for job in jobs]])
        if etag == ask.client_etag:
            return PageAnswer(b"", etag=etag)
        reading = _Grouping(ask, query, jobs)
        complete = reading.read(time.monotonic() + READ_SECS)
        document = {
            "complete": complete,
            "records": reading.records,
            "total": sum(job.reader.summary.records for job in jobs),
            "graphs": [reading.graph(key, points) for key in keys] if complete else [],
            "secs": round(time.perf_counter() - began, 4),
        }
    return json_answer(document, etag if complete else "")


def _open(ask: Ask, exit_stack: ExitStack, by: str) -> list[_Job]:
    """Those that are there. Raises RequestRefusal."""
    ids = job_ids(ask)
    try:
        labels = orjson.loads(ask.words.get("labels", "null"))
    except orjson.JSONDecodeError:
        labels = ()
    if labels is None:
        labels = ids
    if not isinstance(labels, list) or [*map(type, labels)] != [str] * len(ids):
        raise RequestRefusal(
            HTTPStatus.BAD_REQUEST, "labels: a JSON list of a text for each job is wanted"
        )
    jobs = []
    for job_id, label in zip(ids, labels, strict=True):
        try:
            reader = exit_stack.enter_context(ask.store.job(job_id))
        except UnknownJob:
            continue
        options = {} if by in PLACES else options_of(reader, marks_of(ask, reader))
        jobs.append(_Job(reader, label, options))
    return jobs


def _facts(job: _Job) -> list[object]:
    reader = job.reader
    return [facts_of(reader.summary), reader.summary.records, reader.is_over, job.options]


class _Grouping:
    """The runs of jobs, by key."""

    def __init__(self, ask: Ask, query: PlotQuery, jobs: Sequence[_Job]) -> None:
        self.records = 0  # that were read
        self._ask = ask
        self._query = query
        self._runs = {key: Runs(query, 1) for key in query.request.y}
        self._jobs = jobs

    def read(self, deadline: float) -> bool:
        """False where the time was up before all was read. Raises RequestRefusal."""
        all_keys = [numeric_keys(job.reader) for job in self._jobs]
        choices = [job.reader.x_axis() for job in self._jobs]
        complete = True
        try:
            axes = CommonAxes(self._query, choices, all_keys)
        except UnknownKey as error:
            raise RequestRefusal(HTTPStatus.NOT_FOUND, str(error)) from None
        for job, keys in zip(self._jobs, all_keys, strict=True):
            for name in self._runs.keys() - keys.keys():
                self._runs[name].notes.append(f"{job.label} has no key {name}")
            for x, names in axes.by_x(axes.drawn(keys)).items():
                if x.key is not None and x.key not in keys:
                    for name in names:
                        self._runs[name].notes.append(f"{job.label} has no key {x.key}, which is X")
                    continue
                place, job_id = self._ask.store.intake.place, job.reader.summary.job_id
                feed = self._ask.shelf.feeds.get(
                    FeedQuery(
                        place,
                        job_id,
                        x,
                        tuple(names),
                        kept_points=RUN_POINTS,
                        most_series=RUN_SERIES,
                    )
                )
                with feed.lock:
                    graphs = feed.read_on(job.reader, max(deadline - time.monotonic(), 0.0))
                    complete = complete and feed.complete
                    self.records += feed.records
                    for graph in graphs:
                        self._runs[graph.key].take(
                            job.reader, job.label, x, [graph], "", job.options
                        )
        return complete

    def graph(self, key: str, points: int) -> dict[str, Any]:  # Any: JSON
        """As the page draws it. points: that each curve is thinned to."""
        runs = self._runs[key]
        if not runs.is_grouped:
            return _empty(key, [f"No run of these has the tag or option {self._query.group_by}."])
        try:
            graph_set = runs.gather()
        except LogshipperError as error:
            return _empty(key, [str(error)])
        (graph,) = graph_set.graphs
        traces = [trace for trace in graph.series if isinstance(trace, Trace)]
        notes = [note for trace in traces if (note := _uneven(trace))]
        if len(traces) > MAX_TRACES:
            notes.append(
                f"{len(traces) - MAX_TRACES} more curves left out: one graph shows {MAX_TRACES}."
            )
        return {
            **_empty(key, [*notes, *graph_set.notes]),
            "integer": graph.integer and self._query.treatment.aggregate == NONE,
            "x": axis_document(graph),
            "scattered": graph.x.rule == 7 and self._query.treatment.aggregate == NONE,
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
    """What is to be known of a mean whose runs have different X; "" where they share them."""
    least, most = min(trace.counts, default=trace.runs), max(trace.counts, default=trace.runs)
    if least == trace.runs:
        return ""
    if most == 1:
        return (
            f"{trace.group}: no X is one of two of its {trace.runs} runs, so there is no deviation."
        )
    return f"{trace.group}: not each X is one of all its {trace.runs} runs: means are of {least} to {most}."


def _series(trace: Trace, points: int) -> dict[str, Any]:  # Any: JSON
    document: dict[str, Any] = {"group": trace.group, "runs": trace.runs, "seen": trace.total}
    if trace.errors is None:
        thin = trace.thinned(points)
        gaps = [gap_document(gap) for _, gap in trace.gaps]
        return {
            **document,
            "label": trace.label,
            "x": thin.xs.tolist(),
            "y": thin.ys.tolist(),
            "breaks": thin.breaks,
            "gaps": gaps,
        }
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
