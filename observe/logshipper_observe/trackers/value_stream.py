"""The values of a job's graphs one by one, as other trackers take them: exact, with a whole step.

The step is the graph's X. A key keeps the X that it has at its first values, so a running job's
curve never changes its steps.
"""

import math
from collections.abc import Callable, Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

from logshipper_ingest.model.metadata_keys import AUTO_MARK
from logshipper_ingest.model.x_axis import PROGRESS
from logshipper_observe.follow.log_place import LogPlace
from logshipper_observe.graphs import series
from logshipper_observe.graphs.points import Points
from logshipper_observe.query.asked import UnknownKey

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import Reader

MAX_GRAPHS = 10_000
MAX_CURVES = 1_000  # of a graph: tasks, attempts, tags
LEAST_VALUES = 3  # of a running job's key before its X is chosen
STEPS_OF_PROGRESS = 10_000  # progress 1
STEPS_OF_ONE = 1_000  # of any other X with fractions


class Value(NamedTuple):
    """A number of a curve."""

    curve: str  # the attempt, task and tags, "" for the only curve
    key: str
    step: int
    number: float  # NaN for any number that is none
    time_ns: int


class ValueStream:
    """Yields the values of a job, those of a running job as they appear. x: the key asked for."""

    def __init__(self, x: str | None = None) -> None:
        self.count = 0
        self.without_step = 0  # numbers whose record has no X
        self._x = x
        self._place = LogPlace()
        self._graphs: dict[str, series.Graph] = {}
        self._fillings: list[_ValueFilling] = []
        self._values: list[Value] = []

    @property
    def keys(self) -> list[str]:
        return list(self._graphs)

    def step_words(self) -> list[str]:
        """Return a sentence for each kind of step: `epoch`, and its scale if it has fractions."""
        words = {}
        for graph in self._graphs.values():
            name = graph.x.key or ("the record's number" if graph.x.by_number else "seconds")
            scale = scale_of(graph)
            words[name] = name if scale == 1 else f"{name}: 0.5 is step {scale // 2:,}"
        return list(words.values())

    def new_values(self, reader: "Reader") -> Iterator[Value]:
        """Yield the values since the last call. Raises UnknownKey for an X that is no key."""
        new_graphs = self._new_graphs(reader)
        if new_graphs:
            filling = _ValueFilling(reader, new_graphs, self._values.append)
            for record in reader.records():
                if self._place.is_printed(record):
                    filling.add(record)
                    yield from self._taken()
            self._fillings.append(filling)
        for record in reader.records(begin_ns=self._place.begin_ns):
            if not self._place.is_printed(record):
                for filling in self._fillings:
                    filling.add(record)
                self._place.note(record)
                yield from self._taken()
        self.without_step = sum(graph.without_x for graph in self._graphs.values())

    def _new_graphs(self, reader: "Reader") -> list[series.Graph]:
        keys = series.numeric_keys(reader)
        least = 1 if reader.is_over else LEAST_VALUES
        new_graphs = []
        try:
            plan, _ = series.planned(reader, series.GraphRequest(x=self._x), MAX_GRAPHS)
        except UnknownKey:
            if reader.is_over:
                raise
            return []  # the job may still print it
        for graph in plan:
            if graph.key in self._graphs or keys[graph.key].numbers < least:
                continue
            if self._x is None and not graph.x.by_number:
                graph.x = reader.x_for(graph.key)
            self._graphs[graph.key] = graph
            new_graphs.append(graph)
        return new_graphs

    def _taken(self) -> list[Value]:
        values = self._values.copy()
        self._values.clear()
        self.count += len(values)
        return values


def scale_of(graph: series.Graph) -> int:
    """Return the number of steps for 1 of the graph's X: steps are whole numbers."""
    if graph.x_integer or graph.x.key is None:
        return 1
    return STEPS_OF_PROGRESS if graph.x.path[-1:] == PROGRESS else STEPS_OF_ONE


class _ValueFilling(series.Filling):
    """Passes the points of graphs on and keeps none."""

    def __init__(
        self, reader: "Reader", graphs: list[series.Graph], take: Callable[[Value], object]
    ) -> None:
        super().__init__(reader, graphs, most_series=MAX_CURVES)
        self._labels = series.labels_of(sorted(self._captures.values()))
        self._names = {key.key for key in reader.keys()}  # noqa: SIM118  not a dict's
        self._take = take
        self._time_ns = 0

    def add(self, record: "MetadataRecord") -> None:
        self._time_ns = record.time_ns
        super().add(record)

    def open_series(self, at: int, source: series.Origin) -> Points | None:
        points = self._series[at].get(source)
        if points is None:
            place, tags = source
            label = self._labels.get(place, f"attempt {place.attempt}, task {place.task}")
            curve = ", ".join(filter(None, [label, *(f"{name} {tag}" for name, tag in tags)]))
            name = _plain_name(self._graphs[at].key, self._names)
            points = self._series[at][source] = _PassedPoints(self, self._graphs[at], name, curve)
        return points

    def take(self, curve: str, key: str, step: int, y: float) -> None:
        self._take(Value(curve, key, step, y, self._time_ns))


class _PassedPoints(Points):
    """The points of one curve. key: its name for others."""

    def __init__(self, filling: _ValueFilling, graph: series.Graph, key: str, curve: str) -> None:
        super().__init__()
        self._filling, self._key, self._name = filling, key, curve
        self._scale = scale_of(graph)

    def add(self, x: float, y: float) -> None:
        self._filling.take(self._name, self._key, round(x * self._scale), y)

    def add_gap(self, x: float, value: float) -> None:
        self.add(x, math.nan)


def _plain_name(key: str, names: Container[str]) -> str:
    """Return a series' name as printed, if no other key has this name."""
    name = key.removesuffix(AUTO_MARK)
    return key if name in names else name
