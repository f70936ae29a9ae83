"""What reading commands ask of a store and of a job in it, wherever it lies: the local store and
Loki answer alike."""

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
    """How one job ran: summary and captures as they were when it was opened."""

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
        """Events in order of time, or newest first. names: only of these; begin_ns, end_ns: only
        those from then on and before then; 0 for no limit."""

    def details(self) -> Json:
        """What an imported job's own system says of it besides the summary; nothing of others."""

    def children(self) -> Iterator[Child]:
        """Parts of the job that aren't jobs of their own, in order of their iterations; only
        imported jobs have any."""

    def child_changes(
        self, *, newest_first: bool = False, begin_ns: int = 0, end_ns: int = 0
    ) -> Iterator[ChildChange]:
        """Changes of their states in order of time, or newest first. begin_ns, end_ns: only those
        from then on and before then; 0 for no limit."""

    def __enter__(self) -> "History": ...

    def __exit__(self, *_: object) -> None: ...


class Reader(History, Protocol):
    """One job: lines and records are as they are when asked. Where the summary of a running job
    lags behind its records, `keys` raises its counts."""

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
        """Lines in order of time. after: the position of the line that was read last: what hadn't
        been read then, late arrivals included; tail: the last ones only; since_ns: of this time and
        later, without `after` and `tail`: what is older counts as read."""

    def records(
        self,
        *,
        attempt: int | None = None,
        newest_first: bool = False,
        begin_ns: int = 0,
        end_ns: int = 0,
    ) -> Iterator[MetadataRecord]:
        """Metadata records in order of time, or newest first. begin_ns, end_ns: only those printed
        from then on and before then; 0 for no limit."""

    def record_blocks(self, rows: int) -> Iterator[RecordBlock]:
        """All metadata records in order of time, so many at a time, or fewer: for whoever takes
        them as columns."""

    def status(self) -> dict[Stream, tuple[int, str]]:
        """What running bars show now, as (time in ns, text) by stream: a line for each bar, from
        the top, LF between them."""

    def keys(self) -> list[KeyStats]:
        """All keys of the job's metadata, in alphabetical order."""

    def x_axis(self) -> XChoice:
        """The X of the job's graphs (R25)."""

    def x_for(self, key: str) -> XChoice:
        """The X of one key's graph."""

    def notes(self) -> list[str]:
        """What the limits on keys have left out, a sentence each."""

    def close(self) -> None: ...

    def __enter__(self) -> "Reader": ...


class JobStore(Protocol):
    """Jobs, and what was captured of them."""

    @property
    def poll_secs(self) -> float:
        """How long whoever follows a job waits between two looks."""

    def ingest(
        self,
        *,
        deadline_secs: float = 10.0,
        job_id: str | None = None,
        progress: Progress | None = None,
    ) -> IngestOutcome:
        """Ingests what isn't in the store yet, of one job or of all."""

    def jobs(self) -> Sequence[JobSummary]:
        """Newest first."""

    def allocations(self) -> list[Allocation]:
        """Nodes that jobs were given, oldest first, those that wait last: what was imported of
        them."""

    def key_values(self, job: JobSummary) -> Mapping[str, KeyValues]:
        """The last, least and greatest value of each key of a job's metadata, one of `jobs`, by the
        key's name."""

    def resolve(self, name: str) -> str:
        """The id of the job that a name stands for. Raises UnknownJob."""

    def reader_of(self, job: JobSummary) -> Reader:
        """Opens one of `jobs`: also where several clusters have a job of its id."""

    def in_order(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], Reader]:
        """Opens each of these, of `jobs`, in this order, as `reader_of` does: for whoever goes
        through many, since over a network several are read at once."""

    def histories(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], History]:
        """As `in_order`, for whoever needs no more of them: of a local store's jobs few are
        opened."""

    def open(self, job_id: str) -> Reader:
        """Raises UnknownJob."""

    def close(self) -> None: ...
