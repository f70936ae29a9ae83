"""The interface of stores and jobs for reading commands; the local store and Loki implement it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol, Self

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import (
    Allocation,
    Capture,
    Child,
    ChildChange,
    IngestOutcome,
    JobEvent,
    JobEventFilter,
    JobSummary,
    Json,
    LineQuery,
    LogLine,
    MetadataRecord,
    Position,
    RecordBlock,
    RecordQuery,
)
from logshipper_ingest.model.key_values import KeyValues, values_of
from logshipper_ingest.model.metadata_keys import raw_value
from logshipper_ingest.model.repeats import with_repeats
from logshipper_ingest.model.x_axis import KeyStats, XAxis, XChoice, merge_all

ALL_KINDS = (Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE)
BLOCK_RECORDS = 1000
Progress = Callable[[int, int], None]  # how much is done, of how much in all


class History(ABC):
    """The course of one job: summary and captures as of its opening."""

    summary: JobSummary
    captures: Sequence[Capture]

    def events(
        self,
        *,
        attempt: int | None = None,
        names: Collection[str] = (),
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[JobEvent]:
        """Yield events in order of time, or newest first.

        names: only these; begin_ns, end_ns: the time range; 0 for no limit.
        """
        return self._select_events(JobEventFilter(attempt, names, newest_first, begin_ns, end_ns))

    @abstractmethod
    def _select_events(self, event_filter: JobEventFilter) -> Iterator[JobEvent]: ...

    def details(self) -> Json:
        """Return an imported job's data of its own system besides the summary; empty for other
        jobs."""
        return {}

    def children(self) -> Iterator[Child]:
        """Yield parts of an imported job that are no separate jobs, in order of their iterations."""
        return iter(())

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        """Yield changes of their states in order of time, or newest first.

        begin_ns, end_ns: the time range; 0 for no limit.
        """
        return iter(())

    def close(self) -> None:  # noqa: B027  most have nothing to close
        """Free what the job holds open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Reader(History):
    """One job, with current lines and records. is_over: whether no more lines come.

    If the summary of a running job lags behind its records, `keys` raises its counts.
    """

    is_over: bool
    _axis: XAxis | None = None

    def lines(
        self,
        *,
        streams: Collection[Stream],
        attempt: int | None = None,
        kinds: Collection[Kind] = ALL_KINDS,
        after: Position | None = None,
        tail: int | None = None,
        since_ns: int = 0,
    ) -> Iterator[LogLine]:
        """Yield lines in order of time.

        streams, kinds, attempt (None: all): the selection; after: position of the last line read;
        yields lines unread by then, with late arrivals (use the same selection); tail: the last
        lines only; since_ns: lines from this time on, without `after` and `tail`; older ones count
        as read.
        """
        if tail is not None and tail <= 0:
            return iter(())
        query = LineQuery(frozenset(kinds), frozenset(streams), attempt)
        return self._select_lines(query, after, tail, since_ns)

    @abstractmethod
    def _select_lines(
        self, query: LineQuery, after: Position | None, tail: int | None, since_ns: int
    ) -> Iterator[LogLine]: ...

    def records(
        self,
        *,
        attempt: int | None = None,
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[MetadataRecord]:
        """Yield metadata records in order of time, or newest first.

        begin_ns, end_ns: the time range of printing; 0 for no limit.
        """
        return self._select_records(RecordQuery(attempt, newest_first, begin_ns, end_ns))

    @abstractmethod
    def _select_records(self, query: RecordQuery) -> Iterator[MetadataRecord]: ...

    def record_blocks(self, rows: int) -> Iterator[RecordBlock]:
        """Yield all metadata records in order of time, at most `rows` per block, for columns."""
        records = self.records()
        while block := list(islice(records, min(rows, BLOCK_RECORDS))):
            yield RecordBlock(
                [record.time_ns for record in block],
                [record.capture for record in block],
                {record.capture: record.attempt for record in block},
                "\n".join(record.keyed_line for record in block),
                [record.origin for record in block],
            )

    @abstractmethod
    def status(self) -> dict[Stream, tuple[int, str]]:
        """Return the current running bars as (time in ns, text) by stream: a line per bar, from the
        top, separated by LF."""

    @abstractmethod
    def _axes(self) -> list[XAxis]:
        """Return the statistics of each capture, in their order; called once."""

    @abstractmethod
    def _records_at(self, time_ns: int) -> list[str]:
        """Return the lines of one time's records as paths see them, newest first."""

    def _x_axis(self) -> XAxis:
        if self._axis is None:
            axes = self._axes()
            self._axis = axes[0] if len(axes) == 1 else merge_all(axes)
        return self._axis

    def keys(self) -> list[KeyStats]:
        """All keys of the job's metadata in alphabetical order: numbers of nested objects, and
        top-level keys."""
        records: dict[int, list[str]] = {}
        key_stats = []
        for stats, last_ns in self._x_axis().key_stats():
            if last_ns not in records:
                records[last_ns] = self._records_at(last_ns)
            values = (raw_value(record, stats.path) for record in records[last_ns])
            last = next((value for value in values if value is not None), "null")
            key_stats.append(replace(stats, last=last))
        return with_repeats(key_stats, over=self.is_over)

    def key_values(self) -> dict[str, KeyValues]:
        """Each key's last, least and greatest value by its name."""
        return {key.key: values_of(key) for key in self.keys()}

    def x_axis(self) -> XChoice:
        """The X of the job's graphs (R25)."""
        return self._x_axis().choose()

    def x_for(self, key: str) -> XChoice:
        """Return the X of one key's graph: the job's, or its own if the two never share a record."""
        return self._x_axis().x_for(key)

    def notes(self) -> list[str]:
        """Describe the omissions of the limits on keys, a sentence each."""
        return self._x_axis().notes()


class JobStore(Protocol):
    """A store of captured jobs."""

    @property
    def poll_secs(self) -> float:
        """Interval of followers of a job."""

    def ingest(
        self,
        *,
        deadline_secs: float = 10.0,
        job_id: str | None = None,
        progress: Progress | None = None,
    ) -> IngestOutcome:
        """Ingest pending data of one job or of all."""

    def jobs(self) -> Sequence[JobSummary]:
        """Newest first."""

    def allocations(self) -> list[Allocation]:
        """Return imported allocations of nodes, oldest first, waiting ones last."""

    def key_values(self, job: JobSummary) -> Mapping[str, KeyValues]:
        """The last, least and greatest value of each key of a job's metadata, one of `jobs`, by the
        key's name."""

    def resolve(self, name: str) -> str:
        """Return the id of the job with this name. Raises UnknownJob."""

    def reader_of(self, job: JobSummary) -> Reader:
        """Opens one of `jobs`: also where several clusters have a job of its id."""

    def in_order(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], Reader]:
        """Return a function like `reader_of` for reading `jobs` in this order; over a network it
        reads several at once."""

    def histories(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], History]:
        """Return a function like `in_order` for histories only; a local store opens few jobs for
        it."""

    def open(self, job_id: str) -> Reader:
        """Raises UnknownJob."""

    def close(self) -> None: ...
