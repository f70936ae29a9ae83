"""Recently requested graphs. A feed of a running job reads only new records.

A feed starts again at the first record after late records from another node, a new capture, the
job's end, a new job with the same id, or a change of X.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from logshipper_observe.graphs import series
from logshipper_observe.graphs.points import MovingMean, Points

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import XChoice

_CLOCK_RECORDS = 256  # between two readings of the clock
KEPT_POINTS = 1 << 12  # of a series: more than the pixels of a screen's width

EVERYWHERE = (-math.inf, math.inf)


class FeedQuery(NamedTuple):
    """The graphs of a job that a page requests."""

    job_id: str
    x: "str | XChoice | None"  # None for the job's own choice
    y: tuple[str, ...]  # keys
    smooth: float = 0.0  # weight of the previous mean, 0 for no smoothing
    inside: tuple[float, float] = EVERYWHERE  # lowest and highest X
    debias: bool = False  # of smoothing: MovingMean
    kept_points: int = KEPT_POINTS  # of a series
    most_series: int = series.MAX_SERIES  # of a graph


@dataclass
class Reading:
    """The progress of reading a job's records."""

    take: "Callable[[MetadataRecord], object]"  # a true result ends the reading
    show: Callable[[], None] = lambda: None  # finishes a stretch of reading
    time_ns: int = 0  # of the last record
    at_that_time: int = 0  # records of time_ns read so far
    records: int = 0  # read so far

    def read_on(self, reader: "Reader", deadline: float) -> bool:
        """Read on. Return False if the deadline passes before the last record."""
        skip = self.at_that_time
        done = True
        before = self.records
        for record in reader.records(begin_ns=self.time_ns):
            if record.time_ns == self.time_ns and skip:
                skip -= 1
                continue
            # at least some records, or a slow machine would never finish
            read = self.records - before
            if read and not read % _CLOCK_RECORDS and time.monotonic() > deadline:
                done = False
                break
            if record.time_ns != self.time_ns:
                self.time_ns, self.at_that_time = record.time_ns, 0
            self.at_that_time += 1
            self.records += 1
            if self.take(record):
                break
        self.show()
        return done


class Feed:
    """Graphs of one job, which grow with its records."""

    def __init__(self, query: FeedQuery) -> None:
        self.lock = threading.Lock()  # callers hold it
        self.query = query
        self.complete = False  # up to the last record
        self._state: object = None
        self._absent_count = 0  # records of the summary that no reading returns

    def read_on(self, reader: "Reader", secs: float = math.inf) -> list[series.Graph]:
        """Read for at most so long, and return the graphs. Raises UnknownKey."""
        deadline = time.monotonic() + secs
        graphs = self._plan(reader)
        axes = [(graph.key, graph.x.key, graph.x.rule, graph.x.by_number) for graph in graphs]
        state = (axes, reader.summary.started_ns, len(reader.captures), reader.is_over)
        if state != self._state:
            self._begin(reader, graphs)
            self._state = state
        self.complete = self.reading.read_on(reader, deadline)
        if self.complete and reader.summary.records - self.reading.records > self._absent_count:
            self._begin(reader, self._plan(reader))  # some came late
            self.complete = self.reading.read_on(reader, deadline)
            if self.complete:
                self._absent_count = max(reader.summary.records - self.reading.records, 0)
        if not self.complete or self.query.inside != EVERYWHERE:
            return self._graphs
        return [
            self._own_x_graph(reader, at, deadline) if series.lacks_x(graph) else graph
            for at, graph in enumerate(self._graphs)
        ]

    def _plan(self, reader: "Reader") -> list[series.Graph]:
        request = series.GraphRequest(self.query.x, self.query.y)
        return series.planned(reader, request, len(self.query.y))[0]

    def _begin(self, reader: "Reader", graphs: list[series.Graph]) -> None:
        self._graphs = graphs
        self.reading = self._reading_of(reader, graphs)
        self._absent_count = 0
        self._own_graphs: dict[int, tuple[series.Graph, Reading]] = {}

    def _reading_of(self, reader: "Reader", graphs: Sequence[series.Graph]) -> Reading:
        query = self.query

        def new_points() -> Points:
            mean = MovingMean(query.smooth, debias=query.debias) if query.smooth else None
            return Points(limit=query.kept_points, inside=query.inside, mean=mean)

        filling = series.Filling(reader, graphs, new_points, query.most_series)
        return Reading(filling.add, filling.show)

    def _own_x_graph(self, reader: "Reader", at: int, deadline: float) -> series.Graph:
        """Return the graph of a key whose records lack the X of the others."""
        graph = series.with_own_x(reader, self._graphs[at])
        entry = self._own_graphs.get(at)
        if entry is None or entry[0].x.key != graph.x.key:
            entry = self._own_graphs[at] = graph, self._reading_of(reader, [graph])
        self.complete = entry[1].read_on(reader, deadline) and self.complete
        return entry[0]
