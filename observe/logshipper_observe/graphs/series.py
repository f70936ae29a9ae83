"""The points of a job's graphs: X, Y, and one series per attempt, step and task, per set of a
measurement's tags, and per curve where X falls back.

Memory is bounded (logshipper_observe/graphs/points.py).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import orjson

from logshipper.classify.metadata import GAPS
from logshipper.config import AUTO
from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.metadata_keys import AUTO_MARK, AUTO_ROOT, full_name
from logshipper_ingest.model.x_axis import CLOCK, LEAST_CLOCK_NS, NAMED_RULES, KeyStats, XChoice
from logshipper_observe.base.words import NS
from logshipper_observe.graphs.families import rank_of
from logshipper_observe.graphs.points import Points
from logshipper_observe.model.records import Path, at_path, is_number
from logshipper_observe.query.asked import split_names, unknown_key

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Capture, MetadataRecord
    from logshipper_ingest.model.stores import Reader

MAX_SERIES = 16

LARGEST = 1e300  # beyond that, the span between two values may not be a float any more
RANK: Path = (AUTO_ROOT, "rank")
TIME = "time"
KEY_PREFIX = "key:"  # `key:time` is a key called `time`; `time` is the clock
CLOCK_WORDS = "time: when each record was printed"


@dataclass(slots=True)
class Graph:
    """One Y over its X."""

    key: str
    x: XChoice
    own_x: bool = False  # its Y never shares a record with the others' X, and has its own X
    instead_of: str = ""  # the others' X, for a graph with its own
    integer: bool = False
    x_integer: bool = False
    series: list[Points] = field(default_factory=list)
    without_x: int = 0  # hidden numbers: their record has no X
    beyond: int = 0  # hidden numbers: beyond floats
    gaps: int = 0  # records in gaps: NaN or an infinity
    more_series: int = 0  # earlier ones, left out
    title: str = ""

    @property
    def is_auto(self) -> bool:
        """Whether its key is one of a series."""
        return self.key.endswith(AUTO_MARK)

    @property
    def total(self) -> int:
        return sum(points.total for points in self.series)


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """A request for graphs of a job."""

    x: str | XChoice | None = None  # None for the job's own choice
    y: Sequence[str] = ()  # empty for every numeric key that changes but X
    attempt: int | None = None  # None for all
    most_series: int = MAX_SERIES  # of a graph, the newest ones


def numeric_keys(reader: "Reader") -> "dict[str, KeyStats]":
    """Keys with a number in some record, by name."""
    return {key.key: key for key in reversed(reader.keys()) if key.numbers}


def graphs(reader: "Reader", request: GraphRequest, limit: int) -> tuple[list[Graph], list[str]]:
    """Return at most so many graphs, and the omitted keys. Raises UnknownKey."""
    plan, left_out = planned(reader, request, limit)
    _fill(reader, plan, request)
    shown_graphs = [with_own_x(reader, graph) if lacks_x(graph) else graph for graph in plan]
    if own_x_graphs := [graph for graph in shown_graphs if graph.own_x]:
        _fill(reader, own_x_graphs, request)
    return shown_graphs, left_out


def planned(reader: "Reader", request: GraphRequest, limit: int) -> tuple[list[Graph], list[str]]:
    """Return the graphs of `graphs` without points."""
    keys = numeric_keys(reader)
    choice = _x_choice(reader, request, keys)
    names = dict.fromkeys(_resolve_key(name, keys) for name in split_names(request.y, keys))
    y_keys = list(names) or _default_y(reader, keys, choice)
    if request.y:
        limit = max(limit, len(y_keys))  # requested by name: all are shown
    plan = [
        _graph(key, over_number(key, keys) if key == choice.key else choice, keys)
        for key in y_keys[:limit]
    ]
    return plan, y_keys[limit:]


def over_number(key: str, keys: "dict[str, KeyStats]") -> XChoice:
    """The X of a key's graph that is X itself: over itself it would be nothing but a diagonal."""
    if len(keys) == 1:
        reason = f"{key} is the only key with numbers"
    elif not any(is_drawn(peer) for name, peer in keys.items() if name != key):
        reason = f"{key} is the only key with changing numbers"
    else:
        reason = f"{key} itself is the X of the others"
    return XChoice(None, 0, f"record number: {reason}", by_number=True)


def is_constant(key: "KeyStats") -> bool:
    """Return whether a key has one value: configuration, whose graph would be a flat line."""
    return key.min == key.max and key.count == key.numbers


def is_clock(key: "KeyStats") -> bool:
    """Return whether a key is the time in the records."""
    return key.path == CLOCK and key.integer and (key.min or 0) >= LEAST_CLOCK_NS


def is_drawn(key: "KeyStats") -> bool:
    """Return whether a key has a graph by default: it changes, and is neither the time nor a rank,
    which tells curves apart, and no other key has its numbers."""
    return not (is_clock(key) or is_constant(key) or key.repeats or key.path == RANK)


def _x_choice(reader: "Reader", request: GraphRequest, keys: "dict[str, KeyStats]") -> XChoice:
    if request.x is None:
        return reader.x_axis()
    if isinstance(request.x, XChoice):
        return request.x
    if request.x == TIME:
        return XChoice(None, 0, CLOCK_WORDS)
    key = _resolve_key(request.x, keys)
    return XChoice(key, 0, f"{key}: asked for", keys[key].path)


def _resolve_key(name: str, keys: "dict[str, KeyStats]") -> str:
    key = full_name(name.removeprefix(KEY_PREFIX) if name not in keys else name, keys)
    if key not in keys:
        raise unknown_key(key, keys)
    return key


def _default_y(reader: "Reader", keys: "dict[str, KeyStats]", choice: XChoice) -> list[str]:
    """Return every changing numeric key but X, and without the X of keys that lack the job's X; all
    if none remains. Series come last. The most telling keys come first (families.py), and keys with
    fractions before integers, which mostly count; else the order is alphabetical."""
    changing = sorted(name for name, key in keys.items() if is_drawn(key))
    changing.sort(key=lambda name: (keys[name].is_auto, rank_of(name), keys[name].integer))
    names = [name for name in changing if name != choice.key]
    others_x = {reader.x_for(name).key for name in names} if choice.key is not None else set()
    is_own = choice.key == reader.x_axis().key
    return [
        name for name in names if name not in others_x or not (is_own or keys[name].is_auto)
    ] or changing


def _graph(key: str, choice: XChoice, keys: "dict[str, KeyStats]") -> Graph:
    x_integer = choice.by_number or (choice.key is not None and keys[choice.key].integer)
    return Graph(key, choice, integer=keys[key].integer, x_integer=x_integer)


def lacks_x(graph: Graph) -> bool:
    """Return whether the graph's key never shares a record with its X."""
    return not graph.total and graph.without_x > 0


def with_own_x(reader: "Reader", graph: Graph) -> Graph:
    """Return the graph of the same key over its own X, without points."""
    own_graph = _graph(graph.key, reader.x_for(graph.key), numeric_keys(reader))
    own_graph.own_x = True
    own_graph.instead_of = TIME if graph.x.key is None else graph.x.key
    return own_graph


def _fill(reader: "Reader", graphs: list[Graph], request: GraphRequest) -> None:
    filling = Filling(reader, graphs, most_series=request.most_series)
    for record in reader.records(attempt=request.attempt):
        filling.add(record)
    filling.show()


# the origin of a series: a capture's place, and the measurements' tags in order
Origin: TypeAlias = tuple[Source, tuple[tuple[str, str], ...]]


def tags_of(record: "MetadataRecord") -> tuple[tuple[str, str], ...]:
    """Return a measurement's tags (docs/numbers-in-text.md, measurements that are sent), or the rank of a
    process whose line became a record (docs/series.md)."""
    name = "tags" if record.origin != AUTO else "rank"
    if f'"{name}"' not in record.line:
        return ()
    try:
        tags = orjson.loads(record.line).get(name)
    except orjson.JSONDecodeError:  # NaN: no measurement holds it
        return ()
    if name == "rank" and type(tags) is int:
        return ((name, str(tags)),)
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        return ()
    return tuple(sorted(tags.items()))


def beginning_ns(reader: "Reader") -> int:
    """Return the begin of the time axis of a job's graphs, in ns since 1970."""
    return min(
        (capture.started_ns for capture in reader.captures), default=reader.summary.started_ns
    )


class _NoNumber(float):
    """NaN or an infinity that was printed: a gap."""

    __slots__ = ()


class Filling:
    """Fills graphs, record by record, all of them in one pass; measurements with different tags are
    different series. new_points: makes a series; most_series: of a graph."""

    def __init__(
        self,
        reader: "Reader",
        graphs: Sequence[Graph],
        new_points: Callable[[], Points] = Points,
        most_series: int = MAX_SERIES,
    ) -> None:
        keys = numeric_keys(reader)
        self._graphs = graphs
        self._new_points = new_points
        self._most_series = most_series
        self._paths = {
            name: keys[name].path
            for graph in graphs
            for name in (graph.key, graph.x.key)
            if name is not None
        }
        if any(graph.x.path == CLOCK for graph in graphs):
            self._paths[TIME] = CLOCK
        self._captures = {capture.capture: capture.source for capture in reader.captures}
        self._began_ns = beginning_ns(reader)
        # of each graph, by origin: the last ones
        self._series: list[dict[Origin, Points]] = [{} for _ in graphs]
        self._left_out: list[set[Origin]] = [set() for _ in graphs]
        self._counts: list[dict[Origin, int]] = [{} for _ in graphs]  # records, by origin

    def add(self, record: "MetadataRecord") -> None:
        values = _numbers(record.keyed_line, self._paths)
        if not values:
            return
        capture = self._captures.get(record.capture, Source(record.attempt, "", 0))
        source = capture, tags_of(record)
        for at, graph in enumerate(self._graphs):
            y = values.get(graph.key)
            if y is None:
                continue
            x: float | None
            if graph.x.key is not None:
                x = values.get(graph.x.key)
            elif graph.x.by_number:
                x = self._counts[at][source] = self._counts[at].get(source, 0) + 1
            else:
                own_ns = values.get(TIME) if graph.x.path == CLOCK else None
                x = ((record.time_ns if own_ns is None else own_ns) - self._began_ns) / NS
            is_gap = type(y) is _NoNumber
            if x is None or type(x) is _NoNumber:
                graph.without_x += not is_gap
            elif abs(x) > LARGEST or (abs(y) > LARGEST and not is_gap):
                graph.beyond += 1
            else:
                graph.gaps += is_gap
                points = self._series[at].get(source) or self.open_series(at, source)
                if points is not None:
                    (points.add_gap if is_gap else points.add)(x, y)

    def open_series(self, at: int, source: "Origin") -> Points | None:
        """Open a series, in place of the first one if there are many; None if it is omitted."""
        series = self._series[at]
        if len(series) >= self._most_series:
            first = min(series)
            self._left_out[at].add(min(first, source))
            if source < first:
                return None
            del series[first]
        graph = self._graphs[at]
        series[source] = points = self._new_points()
        points.tags = dict(source[1])
        is_counter = graph.x_integer or graph.x.path in NAMED_RULES
        points.begins_again = graph.x.key is not None and graph.x.rule != 7 and is_counter
        return points

    def show(self) -> None:
        """Update the graphs with the points so far."""
        sources = {source for series in self._series for source, _ in series}
        labels = labels_of(sorted(sources.union(self._captures.values())))
        for graph, series, left_out in zip(self._graphs, self._series, self._left_out, strict=True):
            shared_tags = set.intersection(*({*tags} for _, tags in series)) if series else set()
            for (source, tags), points in series.items():
                points.origin = labels[source]
                own_tags = [f"{name} {tag}" for name, tag in tags if (name, tag) not in shared_tags]
                points.label = ", ".join(filter(None, [points.origin, *own_tags]))
            most = max(self._most_series, MAX_SERIES) - len(series) + 1
            graph.series = [
                curve
                for points in map(series.__getitem__, sorted(series))
                if points.total or points.gaps
                for curve in points.curves(most)
            ]
            graph.more_series = len(left_out)


def _numbers(line: str, paths: dict[str, Path]) -> dict[str, float]:
    """Return a record's numbers at these paths, infinite beyond floats; _NoNumber for GAPS."""
    try:
        record = orjson.loads(line)  # integers of more than 64 bits become floats, as graphs need
    except orjson.JSONDecodeError:  # NaN, or a number that no float holds
        try:
            record = json.loads(line, parse_int=float, parse_constant=_NoNumber)
        except (ValueError, RecursionError):
            texts = {name: at_path(line, path) for name, path in paths.items()}
            return {
                name: float(text) if is_number(text) else _NoNumber(text)
                for name, text in texts.items()
                if text is not None and (text in GAPS or is_number(text))
            }
    numbers = {}
    for name, path in paths.items():
        value = record
        for key in path:
            value = value.get(key) if type(value) is dict else None
        if type(value) is float or type(value) is int:  # a boolean is no number
            numbers[name] = float(value)
        elif type(value) is _NoNumber:
            numbers[name] = value
    return numbers


def labels_of(sources: list[Source]) -> dict[Source, str]:
    """Return names of series with their differences only."""
    if len(sources) < 2:
        return dict.fromkeys(sources, "")
    values_by_noun = zip(Source._fields, zip(*sources, strict=True), strict=True)
    differing = [noun for noun, values in values_by_noun if len(set(values)) > 1]
    return {
        source: ", ".join(
            f"{noun} {value}" for noun in differing if (value := getattr(source, noun)) != ""
        )
        for source in sources
    }


def captures_by_label(reader: "Reader") -> "dict[str, Capture]":
    """The captures of a job by the names that their series have in its graphs."""
    captures = {capture.source: capture for capture in reader.captures}
    labels = labels_of(sorted(captures))
    return {labels[source]: capture for source, capture in captures.items()}
