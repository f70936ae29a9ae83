"""Graphs that pages have asked for lately: of a running job they are read on from where they are,
not again.

A feed is read again from the beginning where that is no longer the whole truth: records came late
(from another node), there is another capture, the job has ended or is another one of its id, or
another key became X.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from logshipper_observe.graphs.points import Points, SmoothedPoints
from logshipper_observe.graphs.series import (
    MAX_SERIES,
    Filling,
    Graph,
    GraphRequest,
    lacks_x,
    planned,
    with_own_x,
)
from logshipper_observe.graphs.smoothing import MovingMean

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import XChoice

MOST_FEEDS = 24
_LOOKS = 256  # records between two looks at the clock
KEPT_POINTS = 1 << 12  # of a series: more than a screen has pixels across

QueryT = TypeVar("QueryT")
StateT = TypeVar("StateT")

EVERYWHERE = (-math.inf, math.inf)


class FeedQuery(NamedTuple):
    """Which graphs of which job."""

    place: str  # of the store
    job_id: str
    x: "str | XChoice | None"  # None for the job's own choice
    y: tuple[str, ...]  # keys
    smooth: float = 0.0  # the weight of what came before, 0 for the numbers themselves
    # the lowest and highest X that are shown, of a graph whose X is known
    inside: tuple[float, float] = EVERYWHERE
    debias: bool = False  # of smoothing, see MovingMean
    kept_points: int = KEPT_POINTS  # of a series
    most_series: int = MAX_SERIES  # of a graph


class RecordSink(Protocol):
    """What becomes of records that are read: a Filling's graphs, say."""

    def add(self, record: "MetadataRecord") -> object:
        """Something true where no more records are wanted."""

    def show(self) -> None:
        """Called where all is read, or the time is up."""


@dataclass
class Reading:
    """Records that are read by and by, and how far."""

    filling: RecordSink
    time_ns: int = 0  # all records before it were read
    at_that_time: int = 0  # records of time_ns itself that were read
    records: int = 0  # all that were read

    def read_on(self, reader: "Reader", deadline: float) -> bool:
        """False where the time was up before all was read."""
        skip = self.at_that_time
        done = True
        before = self.records
        for record in reader.records(begin_ns=self.time_ns):
            if record.time_ns == self.time_ns and skip:
                skip -= 1
                continue
            # some in any case, or a slow machine would never come to an end
            read = self.records - before
            if read and not read % _LOOKS and time.monotonic() > deadline:
                done = False
                break
            if record.time_ns != self.time_ns:
                self.time_ns, self.at_that_time = record.time_ns, 0
            self.at_that_time += 1
            self.records += 1
            if self.filling.add(record):
                break
        self.filling.show()
        return done


class Feed:
    """Graphs of one job, as far as they are read. complete: to the last record there was."""

    def __init__(self, query: FeedQuery) -> None:
        self.lock = threading.Lock()  # held by whoever calls it
        self.query = query
        self.complete = False
        self._state: object = None
        self._absent_count = 0

    @property
    def records(self) -> int:
        """Those that were read."""
        return self._reading.records

    def read_on(self, reader: "Reader", secs: float = math.inf) -> list[Graph]:
        """The graphs, with what has come since the last call. secs: how long to read at most, to go
        on with the next call. Raises UnknownKey."""
        deadline = time.monotonic() + secs
        graphs, _ = planned(reader, GraphRequest(self.query.x, self.query.y), len(self.query.y))
        axes = [(graph.key, graph.x.key, graph.x.rule, graph.x.by_number) for graph in graphs]
        state = (axes, reader.summary.started_ns, len(reader.captures), reader.is_over)
        if state != self._state:
            self._begin(reader, graphs)
            self._state = state
        self.complete = self._reading.read_on(reader, deadline)
        if (
            self.complete and reader.summary.records - self.records > self._absent_count
        ):  # some came late
            graphs, _ = planned(reader, GraphRequest(self.query.x, self.query.y), len(self.query.y))
            self._begin(reader, graphs)
            self.complete = self._reading.read_on(reader, deadline)
            self._absent_count = (
                max(reader.summary.records - self.records, 0) if self.complete else 0
            )
        if not self.complete or self.query.inside != EVERYWHERE:
            return self._graphs
        return [
            self._own_x_graph(reader, at, deadline) if lacks_x(graph) else graph
            for at, graph in enumerate(self._graphs)
        ]

    def _begin(self, reader: "Reader", graphs: list[Graph]) -> None:
        self._graphs = graphs
        self._reading = Reading(self._filling(reader, graphs))
        self._absent_count = 0
        self._own_graphs: dict[int, tuple[Graph, Reading]] = {}

    def _filling(self, reader: "Reader", graphs: Sequence[Graph]) -> Filling:
        smooth, inside, limit = self.query.smooth, self.query.inside, self.query.kept_points

        def new_points() -> Points:
            if not smooth:
                return Points(limit=limit, inside=inside)
            mean = MovingMean(smooth, debias=self.query.debias)
            return SmoothedPoints(mean, limit, inside)

        return Filling(reader, graphs, new_points, self.query.most_series)

    def _own_x_graph(self, reader: "Reader", at: int, deadline: float) -> Graph:
        """The graph of a key that never stands in a record with the X of the others."""
        graph = with_own_x(reader, self._graphs[at])
        entry = self._own_graphs.get(at)
        if entry is None or entry[0].x.key != graph.x.key:
            entry = self._own_graphs[at] = graph, Reading(self._filling(reader, [graph]))
        self.complete = entry[1].read_on(reader, deadline) and self.complete
        return entry[0]


class Latest(Generic[QueryT, StateT]):
    """What is known of the questions that were asked last. make: of a question that is new."""

    def __init__(self, make: Callable[[QueryT], StateT], capacity: int) -> None:
        self._make = make
        self._capacity = capacity
        self._lock = threading.Lock()
        self._states: OrderedDict[QueryT, StateT] = OrderedDict()

    def get(self, query: QueryT) -> StateT:
        with self._lock:
            state = self._states.pop(query, None) or self._make(query)
            self._states[query] = state
            while len(self._states) > self._capacity:
                self._states.popitem(last=False)
            return state


class Feeds(Latest[FeedQuery, Feed]):
    """Those that were asked for last."""

    def __init__(self, capacity: int = MOST_FEEDS) -> None:
        super().__init__(Feed, capacity)
