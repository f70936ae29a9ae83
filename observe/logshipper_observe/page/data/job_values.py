"""Options and metrics of listed jobs, as columns.

The server reads them once for each state of a job, within a time limit. Columns have the names of
`ls --columns`: a property, a tag, a key of the metadata or a roll-up (`loss.min`). Names with START
are about the start of the job (`start.--lr`, `start.git.commit`).
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import LogshipperError
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.store.local_store import LocalStore
from logshipper_observe.base.output import to_json
from logshipper_observe.model import properties
from logshipper_observe.model.command_arguments import arguments_of, bare_name
from logshipper_observe.model.job_context import context_options, option_text
from logshipper_observe.model.options import FirstValues, first_values
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
DEFAULT_COLUMNS = 4
READ_SECS = 0.25  # reading time of one answer: the page repeats the request for the rest
CELL_CHARS = 200
_KEPT_JOBS = 2_000
# between two queries of a server for a running job: each transfers all records
_SERVER_SECS = 30.0
# differ between almost all jobs
_NO_DEFAULTS = (
    "start.command", "start.cwd", "start.env.", "start.scheduler.", "start.git.", "start.python.",
)  # fmt: skip


class JobValues(NamedTuple):
    """The values of a job."""

    keys: "Mapping[str, KeyValues]"  # of its metadata
    options: Mapping[str, str]  # JSON texts of constant keys, and of its start
    results: frozenset[str] = frozenset()  # constant keys that are no configuration


class Offer(NamedTuple):
    """Available columns."""

    options: list[str]
    metrics: list[str]
    differing: list[str]  # arguments and configuration that differ, the most frequent first


NO_VALUES = JobValues({}, {})


class _Entry(NamedTuple):
    state: tuple[int, int, int, bool]  # of the job at that time
    time: float  # of reading, monotonic
    values: JobValues


class ValueCache:
    """Values of recently listed jobs, for all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[JobKey, _Entry] = OrderedDict()

    def of(self, job: "JobSummary") -> JobValues:
        entry = self._entries.get(job.key)
        return NO_VALUES if entry is None else entry.values

    def read(
        self, jobs: "Sequence[JobSummary]", store: "JobStore", secs: float = READ_SECS
    ) -> bool:
        """Read changed jobs, at least one, until the time is up. Return whether all are read."""
        deadline = time.monotonic() + secs
        least_age = 0.0 if isinstance(store, LocalStore) else _SERVER_SECS
        outdated = [job for job in jobs if self._is_outdated(job, least_age)]
        for at, job in enumerate(outdated):
            if at and time.monotonic() > deadline:
                return False
            entry = _Entry(_state(job), time.monotonic(), _values_of(job, store))
            with self._lock:
                self._entries[job.key] = entry
                self._entries.move_to_end(job.key)
                while len(self._entries) > _KEPT_JOBS:
                    self._entries.popitem(last=False)
        return True

    def _is_outdated(self, job: "JobSummary", least_age: float) -> bool:
        entry, state = self._entries.get(job.key), _state(job)
        if entry is None or entry.state[0] != state[0]:
            return True
        return entry.state != state and time.monotonic() - entry.time >= least_age

    def field(self, name: str) -> properties.Field:
        """Return the column of a name."""
        if not name.startswith(START):
            return properties.field_of(name)

        def get(row: properties.JobRow) -> properties.Value:
            raw = self.of(row.job).options.get(name)
            return properties.MISSING if raw is None else properties.json_value(raw)

        return properties.Field(name, properties.PropertyKind.TEXT, get)

    def row(self, job: "JobSummary", marks: "Marks", now_ns: int) -> properties.JobRow:
        return properties.JobRow(job, marks, now_ns, lambda job: self.of(job).keys)


def cells_of(fields: Sequence[properties.Field], row: properties.JobRow) -> list[str]:
    """Return a row's exact texts, "" for missing values."""
    columns = (ColumnSpec(field, field.name, "") for field in fields)
    return [cell_of(column, row, terminal=False, exact=True)[:CELL_CHARS] for column in columns]


def in_order(
    rows: Iterable[properties.JobRow], field: properties.Field, *, ascending: bool
) -> list[properties.JobRow]:
    """Sort rows by a column. Rows without a value come last, in their present order."""
    values = [(field.get(row), row) for row in rows]
    present = [pair for pair in values if pair[0] is not properties.MISSING and pair[0] is not None]
    present.sort(key=lambda pair: sort_key(pair[0]), reverse=not ascending)
    absent = [row for value, row in values if value is properties.MISSING or value is None]
    return [*(row for _, row in present), *absent]


def offer_of(values: Sequence[JobValues]) -> Offer:
    """Return the available columns of some jobs."""
    jobs_by_option: Counter[str] = Counter()
    texts_by_option: dict[str, set[str]] = {}
    metrics: set[str] = set()
    for job in values:
        jobs_by_option.update(job.options.keys())
        for name, text in job.options.items():
            texts_by_option.setdefault(name, set()).add(text)
        metrics |= {field_name(name) for name, key in job.keys.items() if key.min != key.max}
    results = metrics.union(*(job.results for job in values))
    # an argument may also be a key of the metadata: `--batch-size` and `batch_size`
    keys = texts_by_option.keys() - results
    metrics -= jobs_by_option.keys()
    differing = [
        name
        for name, _ in jobs_by_option.most_common()
        if len(texts_by_option[name]) > 1
        and not name.startswith(_NO_DEFAULTS)
        and name not in results
        and not (name.startswith(START) and bare_name(name.removeprefix(START)) in keys)
    ]
    return Offer(list(texts_by_option)[:MAX_OFFERED], sorted(metrics)[:MAX_OFFERED], differing)


def _state(job: "JobSummary") -> tuple[int, int, int, bool]:
    """Return a state that changes with the values: the start is recorded before the first line."""
    return job.started_ns, job.records, job.attempts, bool(job.lines)


def _values_of(job: "JobSummary", store: "JobStore") -> JobValues:
    """Read a job's values; none of a damaged job, as its own page shows the problem."""
    try:
        keys = store.key_values(job) if job.records else {}
        with store.reader_of(job) as reader:
            first = first_values(reader) if job.records else FirstValues({}, {}, frozenset())
            context = context_options(reader)
    except LogshipperError:
        return NO_VALUES
    options = {
        field_name(name): value
        for name, value in first.constants.items()
        if len(value) <= CELL_CHARS
    }
    options |= _start_options(context)
    return JobValues(keys, options, frozenset(map(field_name, first.results)))


def field_name(key: str) -> str:
    """Return a key's name as a column: properties take precedence over keys."""
    return (
        key
        if properties.field_of(key).kind is properties.PropertyKind.KEY
        else properties.METADATA + key
    )


def _start_options(context: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a job's start: arguments of the command line, then all others."""
    command = context.get("command", '""')
    options = {name: to_json(value) for name, value in arguments_of(text_of(command)).items()}
    options |= {name: to_json(option_text(name, value)) for name, value in context.items()}
    return {START + name: value for name, value in options.items()}
