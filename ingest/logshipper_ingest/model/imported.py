"""Jobs as importers deliver them: plain values for all importers and the writer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from logshipper.config import Config
from logshipper.spool.segment import Stream
from logshipper_ingest.model.job import Json


class ImportedChange(NamedTuple):
    """A job's change to a state."""

    time_ns: int  # since 1970
    to: str  # as its own system calls it
    before: str = ""  # the state before; "" for the last change's
    # the system gives no time, time_ns is when the change was noticed: an exact one takes its place
    inexact: bool = False
    data: Json | None = None  # more data of the system
    id: str = ""  # the event's, as the system numbers it


class ImportedEvent(NamedTuple):
    """Another event. event: with its name as `event`."""

    time_ns: int
    event: Json


class ImportedRecord(NamedTuple):
    """A metadata record. line: one JSON object."""

    time_ns: int
    line: bytes


class LogPiece(NamedTuple):
    """Bytes of a console. time_ns: of their output; 0: the job's begin."""

    data: bytes
    stream: Stream = Stream.STDOUT
    time_ns: int = 0


class ImportedChild(NamedTuple):
    """A part of a job, such as an iteration."""

    name: str
    iteration: int | None
    state: str  # the last one, as its own system calls it
    # all known changes in order; they replace earlier ones, unless those are exact and these are
    # not
    changes: Sequence[ImportedChange]
    exit_code: int | None = None
    signal: int = 0
    nodes: int = 0
    cores: int = 0
    details: Json | None = None


@dataclass
class ImportedJob:
    """A job. None, "" and 0 mean unknown, and keep known values."""

    key: str  # unique among all that is imported, the same whenever it is imported again
    ids: Sequence[str]  # possible ids in the store: the first that no other job has
    name: str
    origin: str
    user: str = ""
    host: str = ""
    parent: str = ""
    iteration: int | None = None
    nodes: int = 0
    cores: int = 0
    packing: int = 0
    allocation: str = ""
    partition: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    begun_ns: int = 0
    # the store adds only new ones
    changes: list[ImportedChange] = field(default_factory=list)
    details: Json = field(default_factory=dict)
    children_total: int = 0  # how many there will be
    children: Iterable[ImportedChild] = ()  # as changes, by their names
    # events and records behind the imported ones
    events: list[ImportedEvent] = field(default_factory=list)
    records: list[ImportedRecord] = field(default_factory=list)
    log: Iterable[LogPiece] = ()  # all of a console, from its first byte
    log_ns: int = 0  # time of the output, if the history does not report the begin
    log_ended: bool = True  # no more come, though the job may go on
    config: Config | None = None  # of the log's classes, as for a run by hand; None: JSON only
    is_whole_history: bool = False  # changes, exit code, signal and reason replace stored ones
    is_unchanged: bool = False  # since the last import: there is nothing to write
    # how far the importer has read events and records, kept with the job
    position: Json = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # for readers
    note: str = ""  # likewise
    is_small: bool = False  # it has a few rows, and most likely stays so


# how far a job's files were ingested, as its `position` had it last time
PositionLookup: TypeAlias = Callable[[ImportedJob], Json]
