"""Graphs of several jobs: their shared X, groups of runs, and the content of each graph."""

import math
import string
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import LogshipperError
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.x_axis import XChoice
from logshipper_observe.graphs import series
from logshipper_observe.graphs.curves import UNTREATED, Treatment, treated
from logshipper_observe.graphs.graph_notes import gap_notes
from logshipper_observe.graphs.points import Points
from logshipper_observe.model.job_context import option_text
from logshipper_observe.model.properties import TAGS, without_alias
from logshipper_observe.query.asked import UnknownKey, split_names

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import KeyStats

RUN, GROUP, COL = "run", "group", "col"
NODE, JOB, EXPERIMENT = "node", "job", "experiment"
PLACES = (RUN, NODE, JOB)  # groups independent of a job's options
BREAKS = (RUN, GROUP, COL)
XT_KEYS = ("epoch", "step", "iter", "epochs", "steps", "iters", "index")
BY_INDEX = XChoice(None, 0, "index: the number of each value, from 0")
BY_TIME = XChoice(None, 0, series.CLOCK_WORDS)
MAX_TRACES = 64
MAX_RUNS = 1024
AUTO = "auto"
MAX_AUTO_FACETS = 3
_NO_FACETS = ("job.name", "command", "git.", "cores", "first.")  # differ in nearly every job


@dataclass(frozen=True, slots=True)
class PlotQuery:
    """A request for graphs of several jobs."""

    request: series.GraphRequest
    x_rule: str = ""  # "xt" or ""
    group_by: str = RUN  # one of PLACES, or EXPERIMENT, a tag or another option
    break_on: Sequence[str] = (COL,)  # of BREAKS: values that get separate graphs
    treatment: Treatment = UNTREATED
    title: str = ""  # with $run, $group, $col and $facet; "" for the usual one
    max_traces: int = MAX_TRACES
    max_runs: int = MAX_RUNS
    # options whose values get separate graphs, AUTO for those that differ
    facets: Sequence[str] = ()


class _Run(NamedTuple):
    """The points of one Y of one run."""

    x: XChoice
    points: Points
    group: str  # the group's name
    x_integer: bool
    integer: bool
    facet: str  # its job's values of the facets


class GraphSet(NamedTuple):
    """Graphs, and their omissions, a sentence each. left_out: keys beyond the limit."""

    graphs: list[series.Graph]
    notes: list[str]
    left_out: list[str]


class Runs:
    """Gathers jobs one by one, and makes graphs of them."""

    def __init__(self, query: PlotQuery, max_graphs: int) -> None:
        self._query = query
        self._max_graphs = max_graphs
        self._runs: dict[str, list[_Run]] = {}
        self._labels: set[str] = set()
        self.drawn_names: dict[str, None] = {}  # of jobs with a drawn run
        self._left_out: dict[str, None] = {}
        self._without: list[str] = []
        self._beyond = 0
        self._is_grouped = query.group_by == EXPERIMENT  # some run has the option of the groups
        self.notes: list[str] = []
        self.seen_keys: dict[str, None] = {}  # with numbers, of all jobs read

    def leave_out(self, name: str, keys: "Mapping[str, KeyStats]") -> bool:
        """Return whether a job has none of the requested keys, and note it."""
        request = self._query.request
        x = _key_asked(request)
        self.seen_keys |= dict.fromkeys(keys)
        if not keys:
            self._without.append(name)
        elif request.y and not _present(request.y, keys):
            self.notes.append(f"{name} has no key {' or '.join(request.y)}")
        elif x is not None and x not in keys:
            self.notes.append(f"{name} has no key {x}, the X that was asked for")
        else:
            return False
        return True

    def add(
        self,
        reader: "Reader",
        name: str,
        axes: "CommonAxes",
        facet: str,
        options: Mapping[str, str],
    ) -> None:
        """Add a job's runs.

        name: tells it from the others; axes: of all jobs; facet: see `facets_of`; options: as in
        `options_of`, for groups.
        """
        y_keys = axes.drawn(series.numeric_keys(reader))
        if not self._query.request.y:
            self._left_out |= dict.fromkeys(y_keys[self._max_graphs :])
            y_keys = y_keys[: self._max_graphs]
        attempt, max_runs = self._query.request.attempt, self._query.max_runs
        for x, names in axes.by_x(y_keys).items():
            job_graphs, _ = series.graphs(
                reader, series.GraphRequest(x, names, attempt, max_runs), len(names)
            )
            self.take(reader, name, x, job_graphs, facet, options)

    def take(
        self,
        reader: "Reader",
        name: str,
        x: XChoice,
        job_graphs: Sequence[series.Graph],
        facet: str,
        options: Mapping[str, str],
    ) -> None:
        """Add graphs that were read before, over this X; otherwise as `add`."""
        captures = series.captures_by_label(reader)
        for graph in job_graphs:
            self._note(graph, name)
            for points in graph.series:
                run = f"{name}, {points.origin}" if points.origin else name
                if run not in self._labels and len(self._labels) >= self._query.max_runs:
                    self._beyond += 1
                    continue
                self._labels.add(run)
                self.drawn_names[name] = None
                label = f"{name}, {points.label}" if points.label else name
                capture = captures.get(points.origin)
                host = capture.host if capture else reader.summary.host
                places = {RUN: label, NODE: host, JOB: reader.summary.job_id}
                self._runs.setdefault(graph.key, []).append(
                    _Run(
                        graph.x if graph.own_x else x,
                        _relabel(points, label, index=x is BY_INDEX),
                        self._group(places, reader.summary, points, options),
                        graph.x_integer,
                        graph.integer,
                        facet,
                    )
                )

    def _group(
        self,
        places: Mapping[str, str],
        job: "JobSummary",
        points: Points,
        options: Mapping[str, str],
    ) -> str:
        by = self._query.group_by
        group = places[by] if by in places else _option_group(by, points, options)
        self._is_grouped |= bool(group)
        if not group:
            return _family(job) if by == EXPERIMENT else f"{by.removeprefix(TAGS)}=none"
        return group

    @property
    def is_grouped(self) -> bool:
        """Whether any run has the option of the groups."""
        return self._is_grouped or not self._runs

    def _note(self, graph: series.Graph, name: str) -> None:
        key = f"{name}, {graph.key}"
        if graph.more_series:
            self.notes.append(f"{key}: {graph.more_series:,} earlier series left out")
        if graph.without_x:
            numbers = plural(graph.without_x, "number")
            self.notes.append(f"{key}: {numbers} left out, without {graph.x.key} in its record")
        self.notes += [f"{name}: {note}" for note in gap_notes(graph)]
        if graph.beyond:
            self.notes.append(f"{key}: {plural(graph.beyond, 'number')} left out, too large")
        is_thinned = any(points.total > len(points.xs) for points in graph.series)
        if is_thinned and self._query.treatment != UNTREATED:
            self.notes.append(f"{key}: so long that it was thinned before it was treated")

    def gather(self, constants: Sequence[str] = ()) -> GraphSet:
        """Return the graphs. Raises LogshipperError without any. constants: of all jobs."""
        if not self.is_grouped:
            raise LogshipperError(
                f"--group-by: no job has the tag or option {self._query.group_by!r}; `logshipper diff` "
                "shows what there are"
            )
        if constants and not self._query.request.y:
            self.notes.append(f"one value in each job, so no graph: {', '.join(constants)}")
        keys = list(self._runs)
        if not keys:
            raise LogshipperError(
                f"nothing to plot: {', '.join(self._without)} printed no numbers as metadata"
                if self._without and not self.notes else "; ".join(self.notes) or "nothing to plot"
            )  # fmt: skip
        limit = len(keys) if self._query.request.y else self._max_graphs
        left_out = [*keys[limit:], *(key for key in self._left_out if key not in self._runs)]
        notes = []
        if self._without:
            notes.append(f"left out, without numbers: {', '.join(self._without)}")
        if self._beyond:
            notes.append(
                f"the first {self._query.max_runs:,} runs are drawn: --max-runs takes more"
            )
        notes += self.notes
        return GraphSet(self._graphs(keys[:limit], notes), notes, left_out)

    def _graphs(self, keys: Iterable[str], notes: list[str]) -> list[series.Graph]:
        traces = 0
        by_place: dict[tuple[str, ...], series.Graph] = {}
        for key in keys:
            common = self._runs[key][0].x
            groups: dict[tuple[str, str], list[_Run]] = {}
            for run in self._runs[key]:
                if run.x.key == common.key:
                    groups.setdefault((run.facet, run.group), []).append(run)
                else:
                    notes.append(
                        f"{run.points.label}: left out of {key}, it is never in a record with {common.key}"
                    )
            for (facet, group), runs in groups.items():
                label = group if len(runs) > 1 else runs[0].points.label
                points = [run.points for run in runs]
                for trace in treated(points, label, key, group, self._query.treatment):
                    if not trace.xs:
                        notes.append(
                            f"{label}, {key}: no point is left, as of one value there is no deviation"
                        )
                        continue
                    traces += 1
                    if traces > self._query.max_traces:
                        continue
                    names = {RUN: trace.label, GROUP: group, COL: key}
                    broken = (
                        name if part in self._query.break_on else "" for part, name in names.items()
                    )
                    place = (*broken, facet)
                    graph = by_place.get(place)
                    if graph is None:
                        graph = by_place[place] = series.Graph(key, common, integer=True)
                        graph.x_integer, graph.title = runs[0].x_integer, self._title(place)
                    elif COL not in self._query.break_on and key not in graph.key.split(", "):
                        graph.key += f", {key}"
                    graph.integer &= runs[0].integer
                    graph.series.append(trace)
        if traces > self._query.max_traces:
            notes.append(
                f"{traces - self._query.max_traces:,} of {traces:,} traces left out: --max-traces takes more"
            )
        return list(by_place.values())

    def _title(self, place: Sequence[str]) -> str:
        run, group, col, facet = place
        if self._query.title:
            title = string.Template(self._query.title)
            return title.safe_substitute(run=run, group=group, col=col, facet=facet)
        return ", ".join(part for part in place if part)


def _relabel(points: Points, label: str, *, index: bool) -> Points:
    copy = Points(label)
    xs, ys = points.rows()
    if index:
        step = points.total / max(len(points.ys), 1)
        before = accumulate(not math.isnan(y) for y in ys)
        xs = array("d", ((count - 1) * step for count in before))
    copy.hold(xs, ys, points.total, () if index else points.gaps)
    return copy


def _present(names: Sequence[str], keys: "Mapping[str, KeyStats]") -> list[str]:
    return [key for key in split_names(names, keys) if key in keys]


def _key_asked(request: series.GraphRequest) -> str | None:
    is_key = isinstance(request.x, str) and request.x != series.TIME
    return str(request.x).removeprefix(series.KEY_PREFIX) if is_key else None


class CommonAxes:
    """The drawn keys of several jobs, each over an X that the jobs with the key share.

    keys: of each job; choices: each one's own X; seen_keys: includes those of other jobs. Raises
    UnknownKey.
    """

    def __init__(
        self,
        query: PlotQuery,
        choices: Sequence[XChoice],
        keys: "Sequence[dict[str, KeyStats]]",
        seen_keys: Iterable[str] = (),
    ) -> None:
        self._request = query.request
        self._x_rule = query.x_rule
        self._choices = choices
        self._keys = keys
        self._x_by_key: dict[str, XChoice] = {}
        asked = _key_asked(query.request)
        if asked is not None and all(asked not in job_keys for job_keys in keys):
            raise UnknownKey(asked, (), sorted(seen_keys))
        names = sorted({name for job_keys in keys for name in job_keys})
        changing = [
            name for name in names if any(series.is_drawn(job[name]) for job in keys if name in job)
        ]
        over_x = [name for name in changing if not self.x_of(name).by_number]
        self._default = over_x or changing
        self.constants = [
            name
            for name in names
            if all(series.is_constant(job[name]) for job in keys if name in job)
        ]

    def drawn(self, keys: "Mapping[str, KeyStats]") -> list[str]:
        """Return the requested keys of a job, or those with graphs by default."""
        asked = _present(self._request.y, keys)
        return list(dict.fromkeys(asked)) or [key for key in self._default if key in keys]

    def by_x(self, keys: Iterable[str]) -> dict[XChoice, list[str]]:
        """These keys by the X of their graphs."""
        names: dict[XChoice, list[str]] = {}
        for key in keys:
            names.setdefault(self.x_of(key), []).append(key)
        return names

    def x_of(self, key: str) -> XChoice:
        """Return the X of a key's graph.

        It is the requested one, or the first choice of a job with the key that all of these have.
        The record's number replaces the key itself, time a missing X; BY_INDEX with XT's rule.
        """
        if key not in self._x_by_key:
            self._x_by_key[key] = self._shared_x(key)
        return self._x_by_key[key]

    def _shared_x(self, key: str) -> XChoice:
        peers = [
            (x, keys) for x, keys in zip(self._choices, self._keys, strict=True) if key in keys
        ]
        shared = set.intersection(*(set(keys) for _, keys in peers))
        if self._request.x == series.TIME:
            return BY_TIME
        asked = _key_asked(self._request)
        if asked is not None:
            stats = next(keys[asked] for keys in self._keys if asked in keys)
            return _over(stats, key, f"{asked}: asked for")
        if self._x_rule:
            name = next((name for name in XT_KEYS if name in shared), None)
            if name is None:
                return BY_INDEX
            return _over(peers[0][1][name], key, f"{name}: the first of XT's names")
        choices = [x for x, _ in peers]
        fitting = [choice for choice in choices if choice.key in shared and choice.key != key]
        if not fitting and all(choice.key == key for choice in choices):
            return _own_number(key)
        return next(iter([*fitting, *(x for x in choices if x.key is None)]), BY_TIME)


def _over(x: "KeyStats", key: str, words: str) -> XChoice:
    return _own_number(key) if x.key == key else XChoice(x.key, 0, words, x.path)


def _own_number(key: str) -> XChoice:
    return XChoice(None, 0, f"record number: {key} itself is the X", by_number=True)


def _option_group(name: str, points: Points, options: Mapping[str, str]) -> str:
    """Return the group by a tag of the measurements, or an option of the job; "" without it."""
    value = points.tags.get(name.removeprefix(TAGS))
    if value is None:
        names = (name, f"{TAGS}{name}", without_alias(name))
        option = next((option for option in names if option in options), None)
        if option is None:
            return ""
        value = option_text(option, options[option])
    return value if name == EXPERIMENT else f"{name.removeprefix(TAGS)}={value}"


def _family(job: "JobSummary") -> str:
    """Return the common name of parts of a job, such as iterations; else the job's name."""
    head, colon, number = job.name.rpartition(":")
    is_iteration = colon and number.isascii() and number.isdigit()
    return job.parent or (head if is_iteration else job.name)


def facets_of(facets: Sequence[str], options: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the distinctive options of each job's graphs: `lr=0.1, tags.set=a`.

    facets: names of options, or AUTO; options: JSON texts of each job, as in `options_of`. Raises
    LogshipperError for an unknown option, and if none differs.
    """
    option_names = {name for job in options for name in job}
    names: dict[str, None] = {}
    for name in facets:
        if name == AUTO:
            names |= dict.fromkeys(differing_options(options)[:MAX_AUTO_FACETS])
        elif (plain := name if name in option_names else without_alias(name)) in option_names:
            names[plain] = None
        else:
            raise LogshipperError(
                f"--facet: no job has the option {name!r}; `logshipper diff` lists them"
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


def differing_options(options: Sequence[Mapping[str, str]]) -> list[str]:
    """Names of options that differ between jobs and may part them, in alphabetical order. options:
    of each job, as `options_of` has them."""
    names = sorted({name for job_options in options for name in job_options})
    return [
        name
        for name in names
        if not name.startswith(_NO_FACETS)
        and len({job_options.get(name) for job_options in options}) > 1
    ]


def is_plain(query: PlotQuery) -> bool:
    """Return whether the request sets only X and Y: one job's graphs are drawn unchanged then."""
    return query == PlotQuery(query.request, max_traces=query.max_traces, max_runs=query.max_runs)
