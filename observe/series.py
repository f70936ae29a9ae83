"""The points of a job's graphs: which X, which Y, one series per attempt, step and task. Memory is bounded.

A series keeps every point up to MAX_POINTS; then each four neighbours give way to their lowest and highest, so that
no spike is ever lost.
"""

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ingest.metadata_keys import Leaves, leaves_of, parse_record
from ingest.x_axis import KeyStats, XChoice
from observe.asked import split_names, unknown_key
from observe.records import Path, at_path, is_number
from observe.words import NS

if TYPE_CHECKING:
    from ingest.job import Capture
    from ingest.stores import Reader

MAX_POINTS = 1 << 16
MAX_SERIES = 16
LARGEST = 1e300  # beyond that, the span between two values may not be a float any more
TIME = "time"
KEY_PREFIX = "key:"  # `key:time` is a key called `time`; `time` is the clock
CLOCK_WORDS = "time: when each record was printed"


class Points:
    """One series. seen: the points there were; xs, ys: those that are kept, in the order in which they were printed."""

    __slots__ = ("label", "seen", "xs", "ys")

    def __init__(self, label: str = "") -> None:
        self.label = label
        self.seen = 0
        self.xs = array("d")
        self.ys = array("d")

    def add(self, x: float, y: float) -> None:
        self.seen += 1
        self.xs.append(x)
        self.ys.append(y)
        if len(self.xs) > MAX_POINTS:
            self.xs, self.ys = halved(self.xs, self.ys)

    def thinned(self, points: int) -> "Points":
        """At most so many points (but at least 4), lowest and highest among them."""
        thin = Points(self.label)
        thin.seen, thin.xs, thin.ys = self.seen, self.xs, self.ys
        while len(thin.xs) > max(points, 4):
            thin.xs, thin.ys = halved(thin.xs, thin.ys)
        return thin


def halved(xs: "array[float]", ys: "array[float]") -> "tuple[array[float], array[float]]":
    """Of each four points the lowest and the highest; the first and the last point stay as well."""
    kept = [0]
    for begin in range(1, len(ys) - 1, 4):
        four = range(begin, min(begin + 4, len(ys) - 1))
        low = min(four, key=ys.__getitem__)
        high = max(four, key=ys.__getitem__)
        kept += [low] if low == high else [min(low, high), max(low, high)]
    kept.append(len(ys) - 1)
    return array("d", (xs[at] for at in kept)), array("d", (ys[at] for at in kept))


@dataclass(slots=True)
class Graph:
    """One Y over its X.

    own_x: this Y never stands in a record with the X of the others (instead_of), and has its own.
    without_x, beyond: numbers of this key that can't be shown: their record has no X, or no float holds them.
    """

    key: str
    x: XChoice
    own_x: bool = False
    instead_of: str = ""
    integer: bool = False
    x_integer: bool = False
    series: list[Points] = field(default_factory=list)
    without_x: int = 0
    beyond: int = 0
    more_series: int = 0
    title: str = ""

    @property
    def seen(self) -> int:
        return sum(points.seen for points in self.series)


@dataclass(frozen=True, slots=True)
class Request:
    """Which graphs. x: None for the job's own choice; y: empty for every numeric key but X; attempt: None for all;
    most_series: of a graph, the newest ones."""

    x: str | None = None
    y: Sequence[str] = ()
    attempt: int | None = None
    most_series: int = MAX_SERIES


def numeric_keys(reader: "Reader") -> "dict[str, KeyStats]":
    """Keys with a number in some record, by name."""
    return {key.key: key for key in reversed(reader.keys()) if key.numbers}


def graphs(reader: "Reader", request: Request, most: int) -> tuple[list[Graph], list[str]]:
    """At most so many graphs, and the keys that are left out. Raises UnknownKey."""
    keys = numeric_keys(reader)
    choice = _x_choice(reader, request, keys)
    wanted = [_known(name, keys) for name in split_names(request.y, keys)] or _default_y(reader, keys, choice)
    wanted = list(dict.fromkeys(wanted))
    if request.y:
        most = max(most, len(wanted))  # asked for by name: none is left out
    chosen, left_out = wanted[:most], wanted[most:]
    found = [_graph(key, choice, keys) for key in chosen]
    _fill(reader, found, keys, request)
    for at, graph in enumerate(found):
        if not graph.seen and graph.without_x:
            own = _graph(graph.key, reader.x_for(graph.key), keys)
            own.own_x = True
            own.instead_of = graph.x.key or TIME
            _fill(reader, [own], keys, request)
            found[at] = own
    return found, left_out


def _x_choice(reader: "Reader", request: Request, keys: "dict[str, KeyStats]") -> XChoice:
    if request.x is None:
        return reader.x_axis()
    if request.x == TIME:
        return XChoice(None, 0, CLOCK_WORDS)
    key = _known(request.x, keys)
    return XChoice(key, 0, f"{key}: asked for", keys[key].path)


def _known(name: str, keys: "dict[str, KeyStats]") -> str:
    key = name.removeprefix(KEY_PREFIX) if name not in keys else name
    if key not in keys:
        raise unknown_key(key, keys)
    return key


def _default_y(reader: "Reader", keys: "dict[str, KeyStats]", choice: XChoice) -> list[str]:
    """Every numeric key but X in alphabetical order; last come those that never change, and those that are X of others
    (whose records lack the chosen X)."""
    names = sorted(key for key in keys if key != choice.key)
    others_x = {reader.x_for(name).key for name in names} if choice.key is not None else set()
    return sorted(names, key=lambda name: name in others_x or keys[name].min == keys[name].max)


def _graph(key: str, choice: XChoice, keys: "dict[str, KeyStats]") -> Graph:
    x_integer = choice.key is not None and keys[choice.key].integer
    return Graph(key, choice, integer=keys[key].integer, x_integer=x_integer)


def _fill(reader: "Reader", found: list[Graph], keys: "dict[str, KeyStats]", request: Request) -> None:
    """One pass over the records for all these graphs."""
    captures = {capture.capture: (capture.attempt, capture.step, capture.task) for capture in reader.captures}
    labels = _labels(sorted({captures[number] for number in captures}))
    paths = {name: keys[name].path for graph in found for name in (graph.key, graph.x.key) if name is not None}
    by_source: dict[tuple[int, str, int], list[Points]] = {}
    began_ns = min((capture.started_ns for capture in reader.captures), default=reader.summary.started_ns)
    for record in reader.records(attempt=request.attempt):
        values = _numbers(record.line, paths)
        if not values:
            continue
        source = captures.get(record.capture, (record.attempt, "", 0))
        row = by_source.get(source)
        if row is None:
            row = by_source[source] = [Points(labels.get(source, "")) for _ in found]
        for graph, points in zip(found, row, strict=True):
            y = values.get(graph.key)
            if y is None:
                continue
            x = (record.time_ns - began_ns) / NS if graph.x.key is None else values.get(graph.x.key)
            if x is None:
                graph.without_x += 1
            elif abs(y) > LARGEST or abs(x) > LARGEST:
                graph.beyond += 1
            else:
                points.add(x, y)
    for at, graph in enumerate(found):
        filled = [by_source[source][at] for source in sorted(by_source) if by_source[source][at].seen]
        graph.series = filled[-request.most_series :]
        graph.more_series = len(filled) - len(graph.series)


def _numbers(line: str, paths: dict[str, Path]) -> dict[str, float]:
    """The numbers of a record at these paths; infinite where no float is large enough."""
    record = parse_record(line.encode("utf-8", "surrogatepass"))
    leaves = Leaves() if record is None else leaves_of(record)
    if record is None or leaves.oversized:
        texts = {name: at_path(line, path) for name, path in paths.items()}
        return {name: float(text) for name, text in texts.items() if text is not None and is_number(text)}
    numbers = leaves.numbers
    return {name: _as_float(numbers[path]) for name, path in paths.items() if path in numbers}


def _as_float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _labels(sources: list[tuple[int, str, int]]) -> dict[tuple[int, str, int], str]:
    """Names of series: only what tells them apart."""
    if len(sources) < 2:
        return dict.fromkeys(sources, "")
    differs = [len({source[at] for source in sources}) > 1 for at in range(3)]

    def words(source: tuple[int, str, int]) -> Iterator[str]:
        for at, noun in enumerate(("attempt", "step", "task")):
            if differs[at] and source[at] != "":
                yield f"{noun} {source[at]}"

    return {source: ", ".join(words(source)) for source in sources}


def captures_by_label(reader: "Reader") -> "dict[str, Capture]":
    """The captures of a job by the names that their series have in its graphs."""
    captures = {(capture.attempt, capture.step, capture.task): capture for capture in reader.captures}
    labels = _labels(sorted(captures))
    return {labels[source]: capture for source, capture in captures.items()}
