"""Searches for the record of a point in a graph.

Graphs keep no records. So a search reads the job's records, for a limited time per request, and
continues at the next one.
"""

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from logshipper_observe.base.words import NS
from logshipper_observe.graphs import series
from logshipper_observe.graphs.points import Points
from logshipper_observe.page.data.graph_feeds import Reading

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import Reader

_NEAR_NS = 1_000  # more than the rounding error of seconds since a job's start


class PointQuery(NamedTuple):
    """A point of one of a job's graphs."""

    job_id: str
    y: str  # the graph's key
    x: str | None  # of the graph's request, None for the job's own choice
    own_x: bool  # the key has an X of its own
    origin: str  # of the series: Points
    tags: tuple[tuple[str, str], ...]  # of the series, in order
    curve: int | None  # of the series, None for an undivided one
    at: tuple[float, float]  # X and Y before smoothing


class PointSearch:
    """A search for the first record of a point."""

    def __init__(self, query: PointQuery) -> None:
        self.lock = threading.Lock()  # callers hold it
        self.complete = False  # up to the last record
        self.end_time = 0.0  # of the last reading, monotonic
        self._query = query
        self._state: object = None
        self._record: MetadataRecord | None = None  # the match

    def read_on(self, reader: "Reader", secs: float) -> "MetadataRecord | None":
        """Read for at most so long. Return the record, None so far. Raises UnknownKey."""
        deadline = time.monotonic() + secs
        query = self._query
        (graph,), _ = series.planned(reader, series.GraphRequest(query.x, (query.y,)), 1)
        if query.own_x:
            graph = series.with_own_x(reader, graph)
        state = (graph.x, reader.summary.started_ns, len(reader.captures))
        if state != self._state:
            self._begin(reader, graph)
            self._state = state
        if self._record is None:
            self.complete = self.reading.read_on(reader, deadline)
            self.end_time = time.monotonic()
        return self._record

    def _begin(self, reader: "Reader", graph: series.Graph) -> None:
        query = self._query
        capture = series.captures_by_label(reader).get(query.origin)
        source = None if capture is None else capture.source
        self._captures = {peer.capture for peer in reader.captures if peer.source == source}
        self._record = None
        self._point = _Point(query.at, query.curve)
        self._filling = series.Filling(reader, [graph], lambda: self._point)
        begin_ns = 0
        if graph.x.key is None and not graph.x.by_number and not graph.x.path:
            # X is logshipper's clock: no earlier record has the point
            begin_ns = max(series.beginning_ns(reader) + int(query.at[0] * NS) - _NEAR_NS, 0)
        self.reading = Reading(self._take, time_ns=begin_ns)

    def _take(self, record: "MetadataRecord") -> bool:
        if record.capture not in self._captures or series.tags_of(record) != self._query.tags:
            return False
        self._point.is_here = False
        self._filling.add(record)
        self._record = record if self._point.is_here else None
        return self._point.is_here


class _Point(Points):
    """A series without memory that compares each point with a place on a curve."""

    def __init__(self, place: tuple[float, float], curve: int | None) -> None:
        super().__init__()
        self._place = place
        self._of_curve = curve
        self.is_here = False  # whether the last point matches

    def _take(self, x: float, y: float) -> None:
        self.is_here = (x, y) == self._place and self._of_curve in (None, self._curve)

    def _append(self, x: float, y: float) -> None:
        """Keep nothing."""
