"""The record that a point of a graph stands for. No graph keeps it: it is looked for among the job's
records, for a while at a time, and the search goes on where it was."""

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from logshipper_observe.base.words import NS
from logshipper_observe.graphs.points import Points
from logshipper_observe.graphs.series import (
    Filling,
    Graph,
    GraphRequest,
    beginning_ns,
    captures_by_label,
    planned,
    tags_of,
    with_own_x,
)
from logshipper_observe.page.graph_feeds import Latest, Reading

if TYPE_CHECKING:
    from logshipper_ingest.model.job import MetadataRecord
    from logshipper_ingest.model.stores import Reader

MOST_SEARCHES = 16
_NEAR_NS = 1_000  # more than what a float of seconds since a job's start may be off by


class PointQuery(NamedTuple):
    """A point of one of a job's graphs."""

    place: str  # of the store
    job_id: str
    y: str  # the graph's key
    x: str | None  # as the graph was asked for, None for the job's own choice
    own_x: bool  # its key has an X of its own
    origin: str  # of its series: whose records these are, see Points
    tags: tuple[tuple[str, str], ...]  # of its series, in order
    curve: int | None  # of its series, None where that isn't parted
    at: tuple[float, float]  # X and Y, not smoothed


class PointSearch:
    """Looks for the first record of a point. complete: to the last record there was; found_at: when the
    record was found, of time.monotonic()."""

    def __init__(self, query: PointQuery) -> None:
        self.lock = threading.Lock()  # held by whoever calls it
        self.complete = False
        self.found_at = 0.0
        self._query = query
        self._state: object = None

    @property
    def records(self) -> int:
        """Those that were read."""
        return self._reading.records

    def read_on(self, reader: "Reader", secs: float) -> "MetadataRecord | None":
        """The record; None where there is none, or as long as it isn't found. secs: how long to
        read at most, to go on with the next call. Raises UnknownKey."""
        deadline = time.monotonic() + secs
        query = self._query
        (graph,), _ = planned(reader, GraphRequest(query.x, (query.y,)), 1)
        if query.own_x:
            graph = with_own_x(reader, graph)
        state = (graph.x, reader.summary.started_ns, len(reader.captures))
        if state != self._state:
            self._sink = _PointSink(reader, graph, query)
            self._reading = Reading(self._sink, self._begin_ns(reader, graph))
            self._state = state
        if self._sink.record is None:
            self.complete = self._reading.read_on(reader, deadline)
            self.found_at = time.monotonic()
        return self._sink.record

    def _begin_ns(self, reader: "Reader", graph: Graph) -> int:
        """The time before which the record can't be: over the clock X says it, unless it is the
        records' own."""
        if graph.x.key is not None or graph.x.by_number or graph.x.path:
            return 0
        return max(beginning_ns(reader) + int(self._query.at[0] * NS) - _NEAR_NS, 0)


class PointSearches(Latest[PointQuery, PointSearch]):
    """Those that were asked for last."""

    def __init__(self) -> None:
        super().__init__(PointSearch, MOST_SEARCHES)


class _PointSink:
    """Takes records until one has the point. record: that one."""

    def __init__(self, reader: "Reader", graph: Graph, query: PointQuery) -> None:
        self.record: MetadataRecord | None = None
        capture = captures_by_label(reader).get(query.origin)
        self._captures = {
            peer.capture
            for peer in reader.captures
            if capture is not None and peer.source == capture.source
        }
        self._tags = query.tags
        self._point = _Point(query.at, query.curve)
        self._filling = Filling(reader, [graph], lambda: self._point)

    def add(self, record: "MetadataRecord") -> bool:
        tags = tags_of(record.line) if '"tags"' in record.line else ()
        if record.capture not in self._captures or tags != self._tags:
            return False
        self._point.is_here = False
        self._filling.add(record)
        if self._point.is_here:
            self.record = record
        return self._point.is_here

    def show(self) -> None:
        """Nothing is drawn of it."""


class _Point(Points):
    """A series that keeps nothing. is_here: the last point that was added is the one at this
    place, on this curve."""

    __slots__ = ("_of_curve", "_place", "is_here")

    def __init__(self, place: tuple[float, float], curve: int | None) -> None:
        super().__init__()
        self._place = place
        self._of_curve = curve
        self.is_here = False

    def _take(self, x: float, y: float) -> None:
        self.is_here = (x, y) == self._place and self._of_curve in (None, self._curve)

    def _append(self, x: float, y: float) -> None:
        """Nothing is kept."""
