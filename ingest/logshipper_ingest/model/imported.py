"""What importers give: a job as another system reports it. Plain values, shared by all importers
and the writer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from logshipper_ingest.model.job import Json


class ImportedChange(NamedTuple):
    """A job's change to a state."""

    time_ns: int  # since 1970
    to: str  # as its own system calls it
    before: str = ""  # likewise; "" where it is the last change's
    # the system gives no time, time_ns is when the change was noticed: an exact one takes its place
    inexact: bool = False
    data: Json | None = None  # what else the system says
    id: str = ""  # the event's, as the system numbers it


class ImportedEvent(NamedTuple):
    """What else happened, at a time. event: with `event`, its name."""

    time_ns: int
    event: Json


class ImportedRecord(NamedTuple):
    """A metadata record. line: one JSON object."""

    time_ns: int
    line: bytes


class ImportedChild(NamedTuple):
    """A part of a job, such as an iteration."""

    name: str
    iteration: int | None
    state: str  # the last one, as its own system calls it
    # all that are known, in their order; they take the place of those that were known before,
    # unless these are exact and they are inexact
    changes: Sequence[ImportedChange]
    exit_code: int | None = None
    signal: int = 0
    nodes: int = 0
    cores: int = 0
    details: Json | None = None


@dataclass
class ImportedJob:
    """A job. What is None, "" or 0 isn't known, and leaves what is known already."""

    key: str  # unique among all that is imported, the same whenever it is imported again
    ids: Sequence[str]  # what it may be called in the store: the first that isn't another job's
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
    # those that are already in the store aren't added again
    changes: list[ImportedChange] = field(default_factory=list)
    details: Json = field(default_factory=dict)
    children_total: int = 0  # how many there will be
    children: Iterable[ImportedChild] = ()  # as changes, by their names
    # events and records: what comes behind those that were imported before
    events: list[ImportedEvent] = field(default_factory=list)
    records: list[ImportedRecord] = field(default_factory=list)
    log: Iterable[bytes] = ()  # all bytes of a console, from its first one
    log_ns: int = 0  # when it was printed, where the history doesn't say when the job began
    log_ended: bool = True  # no more come, though the job may go on
    # how far the importer has read events and records, kept with the job
    position: Json = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)  # for whoever reads
    note: str = ""  # likewise
    is_small: bool = False  # it has a few rows, and most likely stays so


# how far a job's files were ingested, as its `position` had it last time
PositionLookup: TypeAlias = Callable[[ImportedJob], Json]
