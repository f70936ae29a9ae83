"""What importers give: a job as another system tells of it. Plain values, shared by all importers
and the writer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from logshipper_ingest.model.job import Json


class ImportedChange(NamedTuple):
    """A job's change to a state. to: as its own system calls it; before: likewise, "" where it is
    the last change's; time_ns: nanoseconds since 1970; seen: the system gives no time, this is when
    it was seen: an exact one takes its place; data: what else it says."""

    time_ns: int
    to: str
    before: str = ""
    seen: bool = False
    data: Json | None = None


class ImportedEvent(NamedTuple):
    """What else happened, at a time. event: with `event`, its name."""

    time_ns: int
    event: Json


class ImportedRecord(NamedTuple):
    """A metadata record. line: one JSON object."""

    time_ns: int
    line: bytes


class ImportedChild(NamedTuple):
    """A part of a job, such as an iteration. state: the last one, as its own system calls it;
    changes: all that are known, in their order, which take the place of those that were known
    before, unless these are exact and they are `seen`."""

    name: str
    iteration: int | None
    state: str
    changes: Sequence[ImportedChange]
    exit_code: int | None = None
    signal: int = 0
    nodes: int = 0
    cores: int = 0
    details: Json | None = None


@dataclass
class ImportedJob:
    """A job. key: unique among all that is imported, the same whenever it is imported again; ids:
    what it may be called in the store: the first one that isn't another job's; states: the states
    of its system (see states.py).

    What is None, "" or 0 isn't known, and leaves what is known already. changes: those that are
    already in the store aren't added again; children: likewise, by their names; children_total: how
    many there will be. events, records: what comes behind those that were imported before; taken:
    how far the importer has read them, kept with the job. log: all bytes of a console, from its
    first one: what was imported before is known; log_ns: when it was printed, where the history
    doesn't say when the job began; log_ended: no more come, though the job may go on. tags, note:
    for whoever reads. is_small: it has a few rows, and most likely stays so.
    """

    key: str
    ids: Sequence[str]
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
    changes: list[ImportedChange] = field(default_factory=list)
    details: Json = field(default_factory=dict)
    children_total: int = 0
    children: Iterable[ImportedChild] = ()
    events: list[ImportedEvent] = field(default_factory=list)
    records: list[ImportedRecord] = field(default_factory=list)
    log: Iterable[bytes] = ()
    log_ns: int = 0
    log_ended: bool = True
    taken: Json = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    note: str = ""
    is_small: bool = False


Taken: TypeAlias = Callable[
    [ImportedJob], Json
]  # how far a job's files were ingested, as its `taken` had it last time
