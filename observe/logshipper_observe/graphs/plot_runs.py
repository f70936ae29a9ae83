"""Graphs of several jobs: which X they share, which runs belong together, and what stands in which
graph."""

import string
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from logshipper.errors import LogshipperError
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.x_axis import XChoice
from logshipper_observe.graphs.curves import UNTREATED, Treatment, treated
from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.series import (
    CLOCK_WORDS,
    KEY_PREFIX,
    TIME,
    Graph,
    GraphRequest,
    captures_by_label,
    graphs,
    numeric_keys,
)
from logshipper_observe.model.job_context import option_text
from logshipper_observe.model.properties import without_alias
from logshipper_observe.query.asked import UnknownKey, split_names

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import KeyStats

RUN, GROUP, COL = "run", "group", "col"
GROUPS = (RUN, "node", "job", "experiment")
BREAKS = (RUN, GROUP, COL)
XT_KEYS = ("epoch", "step", "iter", "epochs", "steps", "iters", "index")
BY_INDEX = XChoice(None, 0, "index: the number of each value, from 0")
BY_TIME = XChoice(None, 0, CLOCK_WORDS)
MAX_TRACES = 64
MAX_RUNS = 1024
AUTO = "auto"
MAX_AUTO_FACETS = 3
_NO_FACETS = ("job.name", "command", "git.", "cores")  # of nearly every job another


@dataclass(frozen=True, slots=True)
class PlotQuery:
    """Which graphs of several jobs."""

    request: GraphRequest
    x_rule: str = ""  # "xt" or ""
    group_by: str = RUN  # one of GROUPS
    break_on: Sequence[str] = (COL,)  # of BREAKS, what gets graphs of its own
    treatment: Treatment = UNTREATED
    title: str = ""  # with $run, $group, $col and $facet; "" for the usual one
    max_traces: int = MAX_TRACES
    max_runs: int = MAX_RUNS
    # options whose values get graphs of their own, AUTO for those that differ
    facets: Sequence[str] = ()


@dataclass(slots=True)
class _Run:
    """The points of one Y of one run."""

    key: str
    x: XChoice
    points: Points
    group: str  # the group's name
    label: str
    x_integer: bool
    integer: bool
    facet: str  # its job's values of the facets


@dataclass(slots=True)
class GraphSet:
    """Graphs, and what they don't show, a sentence each. left_out: keys that there was no room
    for."""

    graphs: list[Graph] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Runs:
    """Gathers jobs one by one, and makes graphs of them."""

    def __init__(self, query: PlotQuery, max_graphs: int) -> None:
        self._query = query
        self._max_graphs = max_graphs
        self._runs: dict[str, list[_Run]] = {}
        self._labels: set[str] = set()
        self._left_out: dict[str, None] = {}
        self._without: list[str] = []
        self._beyond = 0
        self.notes: list[str] = []

    def add(self, reader: "Reader", name: str, x: XChoice, facet: str = "") -> None:
        """A job's runs. name: what distinguishes it from the others; x: that of all jobs; facet:
        see `facets_of`."""
        keys = numeric_keys(reader)
        if not keys:
            self._without.append(name)
            return
        request = self._query.request
        y = [key for key in split_names(request.y, keys) if key in keys]
        if request.y and not y:
            self.notes.append(f"{name} has no key {' or '.join(request.y)}")
            return
        if x.key is not None and x.key not in keys:
            self.notes.append(f"{name} has no key {x.key}, the X that was asked for")
            return
        graph_request = GraphRequest(
            TIME if x.key is None else KEY_PREFIX + x.key, y, request.attempt, self._query.max_runs
        )
        job_graphs, left_out = graphs(reader, graph_request, self._max_graphs)
        self._left_out |= dict.fromkeys(left_out)
        captures = captures_by_label(reader)
        for graph in job_graphs:
            self._note(graph, name)
            for points in graph.series:
                label = f"{name}, {points.label}" if points.label else name
                if label not in self._labels and len(self._labels) >= self._query.max_runs:
                    self._beyond += 1
                    continue
                self._labels.add(label)
                capture = captures.get(points.label)
                groups = {
                    RUN: label,
                    "node": capture.host if capture else reader.summary.host,
                    "job": reader.summary.job_id,
                    "experiment": reader.summary.name,
                }
                run_points = _relabel(points, label, index=x is BY_INDEX)
                choice = graph.x if graph.own_x else x
                self._runs.setdefault(graph.key, []).append(
                    _Run(
                        graph.key,
                        choice,
                        run_points,
                        groups[self._query.group_by],
                        label,
                        graph.x_integer,
                        graph.integer,
                        facet,
                    )
                )

    def _note(self, graph: Graph, name: str) -> None:
        if graph.without_x:
            self.notes.append(f"{name}, {graph.key}: {plural(graph.without_x, 'number')} left out, without "
                              f"{graph.x.key} in its record")  # fmt: skip
        if graph.beyond:
            self.notes.append(
                f"{name}, {graph.key}: {plural(graph.beyond, 'number')} left out, too large"
            )
        if (
            any(points.total > len(points.xs) for points in graph.series)
            and self._query.treatment != UNTREATED
        ):
            self.notes.append(
                f"{name}, {graph.key}: so long that it was thinned before it was treated"
            )

    def gather(self) -> GraphSet:
        """Raises LogshipperError where there is nothing to draw."""
        keys = list(self._runs)
        if not keys:
            raise LogshipperError(
                f"nothing to plot: {', '.join(self._without)} printed no numbers as metadata"
                if self._without and not self.notes else "; ".join(self.notes) or "nothing to plot"
            )  # fmt: skip
        shown_keys, beyond = (
            (keys, [])
            if self._query.request.y
            else (keys[: self._max_graphs], keys[self._max_graphs :])
        )
        graph_set = GraphSet(
            left_out=[*beyond, *(key for key in self._left_out if key not in self._runs)]
        )
        if self._without:
            graph_set.notes.append(f"left out, without numbers: {', '.join(self._without)}")
        if self._beyond:
            graph_set.notes.append(
                f"the first {self._query.max_runs:,} runs are drawn: --max-runs takes more"
            )
        graph_set.notes += self.notes
        self._make(graph_set, shown_keys)
        return graph_set

    def _make(self, graph_set: GraphSet, keys: Iterable[str]) -> None:
        traces = 0
        by_place: dict[tuple[str, ...], Graph] = {}
        for key in keys:
            common = self._runs[key][0].x
            groups: dict[tuple[str, str], list[_Run]] = {}
            for run in self._runs[key]:
                if run.x.key != common.key:
                    graph_set.notes.append(
                        f"{run.label}: left out of {key}, it is never in a record with {common.key}"
                    )
                    continue
                groups.setdefault((run.facet, run.group), []).append(run)
            for (facet, group), runs in groups.items():
                label = group if len(runs) > 1 else runs[0].label
                group_traces = treated(
                    [run.points for run in runs], label, key, group, self._query.treatment
                )
                for trace in group_traces:
                    if not trace.xs:
                        graph_set.notes.append(
                            f"{label}, {key}: no point is left, as of one value there is no deviation"
                        )
                        continue
                    traces += 1
                    if traces > self._query.max_traces:
                        continue
                    names = {RUN: trace.label, GROUP: group, COL: key}
                    broken = tuple(
                        names[part] if part in self._query.break_on else "" for part in BREAKS
                    )
                    place = (*broken, facet)
                    graph = by_place.get(place)
                    if graph is None:
                        graph = Graph(
                            key, common, integer=runs[0].integer, x_integer=runs[0].x_integer
                        )
                        by_place[place] = graph
                        graph.title = self._title(place)
                    elif COL not in self._query.break_on and key not in graph.key.split(", "):
                        graph.key += f", {key}"
                    graph.integer &= runs[0].integer
                    graph.series.append(trace)
        beyond = traces - self._query.max_traces
        if beyond > 0:
            graph_set.notes.append(
                f"{beyond:,} of {traces:,} traces left out: --max-traces takes more"
            )
        graph_set.graphs = list(by_place.values())

    def _title(self, place: Sequence[str]) -> str:
        run, group, col, facet = place
        if self._query.title:
            return string.Template(self._query.title).safe_substitute(
                run=run, group=group, col=col, facet=facet
            )
        return ", ".join(part for part in place if part)


def _relabel(points: Points, label: str, *, index: bool) -> Points:
    copy = Points(label)
    xs, ys = points.xs, points.ys
    if index:
        step = points.total / max(len(ys), 1)
        xs = array("d", (at * step for at in range(len(ys))))
    copy.hold(xs, ys, points.total)
    return copy


def common_x(
    query: PlotQuery, choices: Sequence[XChoice], keys: "Sequence[dict[str, KeyStats]]"
) -> XChoice:
    """The X of all jobs' graphs: what was asked for, or the first that one of them chooses and all
    have; time where there is none, BY_INDEX with XT's rule. Raises UnknownKey."""
    if query.request.x == TIME:
        return BY_TIME
    if query.request.x is not None:
        key = query.request.x.removeprefix(KEY_PREFIX)
        if all(key not in job_keys for job_keys in keys):
            raise UnknownKey(key, (), sorted({key for job_keys in keys for key in job_keys}))
        return XChoice(key, 0, f"{key}: asked for")
    if query.x_rule:
        shared_key = next(
            (key for key in XT_KEYS if all(key in job_keys for job_keys in keys)), None
        )
        return (
            BY_INDEX
            if shared_key is None
            else XChoice(shared_key, 0, f"{shared_key}: the first of XT's names")
        )
    for choice in choices:
        if choice.key is not None and all(choice.key in job_keys for job_keys in keys):
            return choice
    return BY_TIME


def facets_of(facets: Sequence[str], options: Sequence[Mapping[str, str]]) -> list[str]:
    """What distinguishes each job's graphs: `lr=0.1, tags.set=a`. facets: names of options, or
    AUTO; options: JSON texts of each job, as `options_of` has them. Raises LogshipperError for an
    option that no job has, and where none differs."""
    option_names = {name for job_options in options for name in job_options}
    names: dict[str, None] = {}
    for name in facets:
        if name == AUTO:
            differences = [
                option
                for option in sorted(option_names)
                if len({job_options.get(option) for job_options in options}) > 1
            ]
            names |= dict.fromkeys(
                [option for option in differences if not option.startswith(_NO_FACETS)][
                    :MAX_AUTO_FACETS
                ]
            )
        elif (plain := name if name in option_names else without_alias(name)) in option_names:
            names[plain] = None
        else:
            raise LogshipperError(
                f"--facet: no job has the option {name!r}; `logshipper diff` shows what there are"
            )
    if not names:
        raise LogshipperError(
            "--facet auto: nothing differs between these jobs that graphs could be told apart by"
        )
    return [
        ", ".join(
            f"{name}={option_text(name, job_options[name]) if name in job_options else 'none'}"
            for name in names
        )
        for job_options in options
    ]


def is_plain(query: PlotQuery) -> bool:
    """Whether nothing is asked for but X and Y: one job's graphs are drawn as they are, then."""
    return query == PlotQuery(query.request, max_traces=query.max_traces, max_runs=query.max_runs)
