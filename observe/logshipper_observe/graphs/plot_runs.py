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
    """What is asked for. x_rule: "xt" or ""; group_by: one of GROUPS; break_on: of BREAKS, what
    gets graphs of its own; title: with $run, $group, $col and $facet, "" for the usual one; facets:
    options whose values get graphs of their own, AUTO for those that differ."""

    request: GraphRequest
    x_rule: str = ""
    group_by: str = RUN
    break_on: Sequence[str] = (COL,)
    treatment: Treatment = UNTREATED
    title: str = ""
    max_traces: int = MAX_TRACES
    max_runs: int = MAX_RUNS
    facets: Sequence[str] = ()


@dataclass(slots=True)
class _Run:
    """The points of one Y of one run. group: its name; x: its X; facet: its job's values of the
    facets."""

    key: str
    x: XChoice
    points: Points
    group: str
    label: str
    x_integer: bool
    integer: bool
    facet: str


@dataclass(slots=True)
class Gathered:
    """Graphs, and what they don't show, a sentence each. left_out: keys that there was no room
    for."""

    graphs: list[Graph] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Runs:
    """Takes jobs in one by one, and makes graphs of them."""

    def __init__(self, wanted: PlotQuery, most: int) -> None:
        self._wanted = wanted
        self._most = most
        self._runs: dict[str, list[_Run]] = {}
        self._counted: set[str] = set()
        self._left_out: dict[str, None] = {}
        self._without: list[str] = []
        self._beyond = 0
        self.notes: list[str] = []

    def add(self, reader: "Reader", name: str, x: XChoice, facet: str = "") -> None:
        """A job's runs. name: what tells it from the others; x: that of all jobs; facet: see
        `facets_of`."""
        keys = numeric_keys(reader)
        if not keys:
            self._without.append(name)
            return
        request = self._wanted.request
        y = [key for key in split_names(request.y, keys) if key in keys]
        if request.y and not y:
            self.notes.append(f"{name} has no key {' or '.join(request.y)}")
            return
        if x.key is not None and x.key not in keys:
            self.notes.append(f"{name} has no key {x.key}, the X that was asked for")
            return
        asked = GraphRequest(
            TIME if x.key is None else KEY_PREFIX + x.key, y, request.attempt, self._wanted.max_runs
        )
        found, left_out = graphs(reader, asked, self._most)
        self._left_out |= dict.fromkeys(left_out)
        captures = captures_by_label(reader)
        for graph in found:
            self._note(graph, name)
            for points in graph.series:
                label = f"{name}, {points.label}" if points.label else name
                if label not in self._counted and len(self._counted) >= self._wanted.max_runs:
                    self._beyond += 1
                    continue
                self._counted.add(label)
                capture = captures.get(points.label)
                groups = {
                    RUN: label,
                    "node": capture.host if capture else reader.summary.host,
                    "job": reader.summary.job_id,
                    "experiment": reader.summary.name,
                }
                named = _relabelled(points, label, index=x is BY_INDEX)
                choice = graph.x if graph.own_x else x
                self._runs.setdefault(graph.key, []).append(
                    _Run(graph.key, choice, named, groups[self._wanted.group_by], label, graph.x_integer, graph.integer,
                         facet)
                )  # fmt: skip

    def _note(self, graph: Graph, name: str) -> None:
        if graph.without_x:
            self.notes.append(f"{name}, {graph.key}: {plural(graph.without_x, 'number')} left out, without "
                              f"{graph.x.key} in its record")  # fmt: skip
        if graph.beyond:
            self.notes.append(
                f"{name}, {graph.key}: {plural(graph.beyond, 'number')} left out, too large"
            )
        if (
            any(points.seen > len(points.xs) for points in graph.series)
            and self._wanted.treatment != UNTREATED
        ):
            self.notes.append(
                f"{name}, {graph.key}: so long that it was thinned before it was treated"
            )

    def gathered(self) -> Gathered:
        """Raises LogshipperError where there is nothing to draw."""
        keys = list(self._runs)
        if not keys:
            raise LogshipperError(
                f"nothing to plot: {', '.join(self._without)} printed no numbers as metadata"
                if self._without and not self.notes else "; ".join(self.notes) or "nothing to plot"
            )  # fmt: skip
        kept, beyond = (
            (keys, []) if self._wanted.request.y else (keys[: self._most], keys[self._most :])
        )
        done = Gathered(
            left_out=[*beyond, *(key for key in self._left_out if key not in self._runs)]
        )
        if self._without:
            done.notes.append(f"left out, without numbers: {', '.join(self._without)}")
        if self._beyond:
            done.notes.append(
                f"the first {self._wanted.max_runs:,} runs are drawn: --max-runs takes more"
            )
        done.notes += self.notes
        self._make(done, kept)
        return done

    def _make(self, done: Gathered, keys: Iterable[str]) -> None:
        traces = 0
        by_place: dict[tuple[str, ...], Graph] = {}
        for key in keys:
            common = self._runs[key][0].x
            groups: dict[tuple[str, str], list[_Run]] = {}
            for run in self._runs[key]:
                if run.x.key != common.key:
                    done.notes.append(
                        f"{run.label}: left out of {key}, it is never in a record with {common.key}"
                    )
                    continue
                groups.setdefault((run.facet, run.group), []).append(run)
            for (facet, group), runs in groups.items():
                label = group if len(runs) > 1 else runs[0].label
                made = treated(
                    [run.points for run in runs], label, key, group, self._wanted.treatment
                )
                for trace in made:
                    if not trace.xs:
                        done.notes.append(
                            f"{label}, {key}: no point is left, as of one value there is no deviation"
                        )
                        continue
                    traces += 1
                    if traces > self._wanted.max_traces:
                        continue
                    broken = tuple({RUN: trace.label, GROUP: group, COL: key}[part] if part in self._wanted.break_on
                                   else "" for part in BREAKS)  # fmt: skip
                    place = (*broken, facet)
                    graph = by_place.get(place)
                    if graph is None:
                        graph = Graph(
                            key, common, integer=runs[0].integer, x_integer=runs[0].x_integer
                        )
                        by_place[place] = graph
                        graph.title = self._title(place)
                    elif COL not in self._wanted.break_on and key not in graph.key.split(", "):
                        graph.key += f", {key}"
                    graph.integer &= runs[0].integer
                    graph.series.append(trace)
        beyond = traces - self._wanted.max_traces
        if beyond > 0:
            done.notes.append(f"{beyond:,} of {traces:,} traces left out: --max-traces takes more")
        done.graphs = list(by_place.values())

    def _title(self, place: Sequence[str]) -> str:
        run, group, col, facet = place
        if self._wanted.title:
            return string.Template(self._wanted.title).safe_substitute(
                run=run, group=group, col=col, facet=facet
            )
        return ", ".join(part for part in place if part)


def _relabelled(points: Points, label: str, *, index: bool) -> Points:
    named = Points(label)
    xs, ys = points.xs, points.ys
    if index:
        step = points.seen / max(len(ys), 1)
        xs = array("d", (at * step for at in range(len(ys))))
    named.hold(xs, ys, points.seen)
    return named


def common_x(
    wanted: PlotQuery, choices: Sequence[XChoice], keys: "Sequence[dict[str, KeyStats]]"
) -> XChoice:
    """The X of all jobs' graphs: what was asked for, or the first that one of them chooses and all
    have; time where there is none, BY_INDEX with XT's rule. Raises UnknownKey."""
    if wanted.request.x == TIME:
        return BY_TIME
    if wanted.request.x is not None:
        key = wanted.request.x.removeprefix(KEY_PREFIX)
        if all(key not in its for its in keys):
            raise UnknownKey(key, (), sorted({key for its in keys for key in its}))
        return XChoice(key, 0, f"{key}: asked for")
    if wanted.x_rule:
        found = next((key for key in XT_KEYS if all(key in its for its in keys)), None)
        return BY_INDEX if found is None else XChoice(found, 0, f"{found}: the first of XT's names")
    for choice in choices:
        if choice.key is not None and all(choice.key in its for its in keys):
            return choice
    return BY_TIME


def facets_of(wanted: Sequence[str], options: Sequence[Mapping[str, str]]) -> list[str]:
    """What each job's graphs are told apart by: `lr=0.1, tags.set=a`. options: JSON texts of each
    job, as options has them. Raises LogshipperError for an option that no job has, and where none
    differs."""
    known = {name for its in options for name in its}
    names: dict[str, None] = {}
    for name in wanted:
        if name == AUTO:
            differing = [one for one in sorted(known) if len({its.get(one) for its in options}) > 1]
            names |= dict.fromkeys(
                [one for one in differing if not one.startswith(_NO_FACETS)][:MAX_AUTO_FACETS]
            )
        elif (plain := name if name in known else without_alias(name)) in known:
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
            f"{name}={option_text(name, its[name]) if name in its else 'none'}" for name in names
        )
        for its in options
    ]


def is_plain(wanted: PlotQuery) -> bool:
    """Whether nothing is asked for but X and Y: one job's graphs are drawn as they are, then."""
    return wanted == PlotQuery(
        wanted.request, max_traces=wanted.max_traces, max_runs=wanted.max_runs
    )
