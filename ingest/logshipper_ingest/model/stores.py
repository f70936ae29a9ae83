"""The interface of stores and jobs for reading commands; the local store and Loki implement it."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import (
    Allocation,
    Capture,
    Child,
    ChildChange,
    IngestOutcome,
    JobEvent,
    JobSummary,
    Json,
    LogLine,
    MetadataRecord,
    Position,
    RecordBlock,
)
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.model.x_axis import KeyStats, XChoice

ALL_KINDS = (Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE)
Progress = Callable[[int, int], None]  # how much is done, of how much in all


class History(Protocol):
    """The course of one job: summary and captures as of its opening."""

    @property
    def summary(self) -> JobSummary: ...

    @property
    def captures(self) -> Sequence[Capture]: ...

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

    def details(self) -> Json:
        """Return an imported job's data of its own system besides the summary; empty for other
        jobs."""

    def children(self) -> Iterator[Child]:
        """Yield parts of an imported job that are no separate jobs, in order of their iterations."""

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        """Yield changes of their states in order of time, or newest first.

        begin_ns, end_ns: the time range; 0 for no limit.
        """

    def __enter__(self) -> "History": ...

    def __exit__(self, *_: object) -> None: ...


class Reader(History, Protocol):
    """One job, with current lines and records.

    If the summary of a running job lags behind its records, `keys` raises its counts.
    """

    @property
    def is_over(self) -> bool:
        """Whether no more lines come."""

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

        after: position of the last line read; yields lines unread by then, with late arrivals;
        tail: the last lines only; since_ns: lines from this time on, without `after` and `tail`;
        older ones count as read.
        """

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

    def record_blocks(self, rows: int) -> Iterator[RecordBlock]:
        """Yield all metadata records in order of time, at most `rows` per block, for columns."""

    def status(self) -> dict[Stream, tuple[int, str]]:
        """Return the current running bars as (time in ns, text) by stream: a line per bar, from the
        top, separated by LF."""

    def keys(self) -> list[KeyStats]:
        """All keys of the job's metadata, in alphabetical order."""

    def x_axis(self) -> XChoice:
        """The X of the job's graphs (R25)."""

    def x_for(self, key: str) -> XChoice:
        """The X of one key's graph."""

    def notes(self) -> list[str]:
        """Describe the omissions of the limits on keys, a sentence each."""

    def close(self) -> None: ...

    def __enter__(self) -> "Reader": ...


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
