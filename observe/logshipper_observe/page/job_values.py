"""Options and metrics of listed jobs, as columns: read once for each state of a job, within a limit
of time.

A column is named as in `ls --columns`: a property, a tag, a key of the metadata or a roll-up of one
(`loss.min`); START and a name stand for how the job was started (`start.--lr`, `start.git.commit`).
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import LogshipperError
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.output import to_json
from logshipper_observe.model.command_arguments import arguments_of, bare_name
from logshipper_observe.model.constants import FirstValues, first_values
from logshipper_observe.model.job_context import context_options, option_text
from logshipper_observe.model.properties import (
    METADATA,
    MISSING,
    Field,
    JobRow,
    PropertyKind,
    Value,
    field_of,
    json_value,
)
from logshipper_observe.model.records import text_of
from logshipper_observe.query.columns import ColumnSpec, cell_of, sort_key

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.key_values import KeyValues
    from logshipper_ingest.model.stores import JobStore
    from logshipper_observe.model.overlay import Marks

START = "start."
MAX_COLUMNS = 24
MAX_OFFERED = 500  # options, and as many metrics
UNASKED_COLUMNS = 4
READ_SECS = 0.25  # of reading jobs in one answer: the page asks again for the rest
CELL_CHARS = 200
_KEPT_JOBS = 2_000
# between two looks at a running job in a server, which sends all its records for each
_SERVER_SECS = 30.0
# what differs between all jobs, and says little at a glance
_UNOFFERED_FIRST = (
    "start.command", "start.cwd", "start.env.", "start.scheduler.", "start.git.", "start.python.",
)  # fmt: skip


class JobValues(NamedTuple):
    """What is known of a job. keys: of its metadata; options: JSON texts of the keys that never
    change, and with START of how it was started; results: those that are no configuration."""

    keys: "Mapping[str, KeyValues]"
    options: Mapping[str, str]
    results: frozenset[str] = frozenset()


class Offer(NamedTuple):
    """What columns there may be. differing: arguments and configuration that are told apart by
    their values, those of most jobs first."""

    options: list[str]
    metrics: list[str]
    differing: list[str]


NOTHING_KNOWN = JobValues({}, {})


class _Entry(NamedTuple):
    state: object  # of the job, when it was read
    started_ns: int
    read: float  # by the monotonic clock
    values: JobValues


class ValueCache:
    """Values of the jobs that were listed last, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[JobKey, _Entry] = OrderedDict()

    def of(self, job: "JobSummary") -> JobValues:
        """What was read of a job last."""
        entry = self._entries.get(job.key)
        return NOTHING_KNOWN if entry is None else entry.values

    def read(
        self, jobs: "Sequence[JobSummary]", store: "JobStore", secs: float = READ_SECS
    ) -> bool:
        """Reads what has changed of these jobs, one at least, until the time is up; whether all are
        read."""
        deadline = time.monotonic() + secs
        least_age = 0.0 if isinstance(store, LocalStore) else _SERVER_SECS
        outdated = [job for job in jobs if self._is_outdated(job, least_age)]
        for at, job in enumerate(outdated):
            if at and time.monotonic() > deadline:
                return False
            entry = _Entry(_state(job), job.started_ns, time.monotonic(), _values_of(job, store))
            with self._lock:
                self._entries[job.key] = entry
                self._entries.move_to_end(job.key)
                while len(self._entries) > _KEPT_JOBS:
                    self._entries.popitem(last=False)
        return True

    def _is_outdated(self, job: "JobSummary", least_age: float) -> bool:
        entry = self._entries.get(job.key)
        if entry is None or entry.started_ns != job.started_ns:
            return True
        return entry.state != _state(job) and time.monotonic() - entry.read >= least_age

    def field(self, name: str) -> Field:
        """What a column's name stands for."""
        if not name.startswith(START):
            return field_of(name)

        def get(row: JobRow) -> Value:
            raw = self.of(row.job).options.get(name)
            return MISSING if raw is None else json_value(raw)

        return Field(name, PropertyKind.TEXT, get)

    def row(self, job: "JobSummary", marks: "Marks", now_ns: int) -> JobRow:
        return JobRow(job, marks, now_ns, lambda job: self.of(job).keys)


def cells_of(fields: Sequence[Field], row: JobRow) -> list[str]:
    """A row's texts, exact; "" for what the job doesn't have."""
    columns = (ColumnSpec(field, field.name, "") for field in fields)
    texts = (cell_of(column, row, terminal=False, exact=True) for column in columns)
    return [text[:CELL_CHARS] for text in texts]


def in_order(rows: Iterable[JobRow], field: Field, *, ascending: bool) -> list[JobRow]:
    """Rows by a column's values; those that lack it stay last, in the order that they have."""
    values = [(field.get(row), row) for row in rows]
    present = [pair for pair in values if pair[0] is not MISSING and pair[0] is not None]
    present.sort(key=lambda pair: sort_key(pair[0]), reverse=not ascending)
    absent = [row for value, row in values if value is MISSING or value is None]
    return [*(row for _, row in present), *absent]


def offer_of(values: Sequence[JobValues]) -> Offer:
    """Columns of these jobs."""
    jobs_by_option: Counter[str] = Counter()
    texts_by_option: dict[str, set[str]] = {}
    metrics: set[str] = set()
    for job in values:
        jobs_by_option.update(job.options.keys())
        for name, text in job.options.items():
            texts_by_option.setdefault(name, set()).add(text)
        metrics |= {field_name(name) for name, key in job.keys.items() if key.min != key.max}
    results = metrics.union(*(job.results for job in values))
    metrics -= jobs_by_option.keys()
    differing = [
        name
        for name, count in jobs_by_option.most_common()
        if count > 1
        and (len(texts_by_option[name]) > 1 or count < len(values))
        and not name.startswith(_UNOFFERED_FIRST)
        and name not in results
        and not _is_said_twice(name, texts_by_option.keys() - results)
    ]
    return Offer(
        list(texts_by_option)[:MAX_OFFERED],
        sorted(metrics)[:MAX_OFFERED],
        differing,
    )


def _is_said_twice(name: str, options: Collection[str]) -> bool:
    """Whether an argument is a key of the metadata as well: `--batch-size` and `batch_size`."""
    return name.startswith(START) and bare_name(name.removeprefix(START)) in options


def _state(job: "JobSummary") -> object:
    """Changes when values do: how a job was started is known once it has printed something."""
    return job.started_ns, job.records, job.attempts, bool(job.lines)


def _values_of(job: "JobSummary", store: "JobStore") -> JobValues:
    """What can't be read of a damaged job is nothing: its own page says what is wrong."""
    try:
        keys = store.key_values(job) if job.records else {}
        with store.reader_of(job) as reader:
            first = first_values(reader) if job.records else FirstValues({}, {}, frozenset())
            context = context_options(reader)
    except LogshipperError:
        return NOTHING_KNOWN
    constants = {
        field_name(name): value
        for name, value in first.constants.items()
        if len(value) <= CELL_CHARS
    }
    return JobValues(
        keys, {**constants, **_start_options(context)}, frozenset(map(field_name, first.results))
    )


def field_name(key: str) -> str:
    """How a key is named as a column: a property of its name comes first."""
    return key if field_of(key).kind is PropertyKind.KEY else METADATA + key


def _start_options(context: Mapping[str, str]) -> dict[str, str]:
    """How a job was started: what its command line sets, then all else."""
    command = context.get("command", '""')
    options = {name: to_json(value) for name, value in arguments_of(text_of(command)).items()}
    options |= {name: to_json(option_text(name, value)) for name, value in context.items()}
    return {START + name: value for name, value in options.items()}
