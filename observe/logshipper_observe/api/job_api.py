"""One job for programs: `logshipper.Job`. It reads output on demand, page by page."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from logshipper.spool.segment import Kind
from logshipper_ingest.model.job import Capture, JobSummary
from logshipper_ingest.model.metadata_keys import Path
from logshipper_ingest.model.x_axis import KeyStats, XChoice
from logshipper_observe.api import tables
from logshipper_observe.base.notebook import html_table
from logshipper_observe.base.words import NS, RUNNING_STATES, duration
from logshipper_observe.model.documents import STREAM_NAMES, STREAMS, event_details
from logshipper_observe.model.overlay import Marks, Overlay, parse_change
from logshipper_observe.query.asked import pick_keys

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore, Reader

__all__ = ["Capture", "Event", "Job", "JobSummary", "KeyStats", "Line", "Record", "XChoice"]
StreamName: TypeAlias = Literal["stdout", "stderr", "both"]
_KINDS = {Kind.LOG: "log", Kind.METADATA: "metadata", Kind.COMMAND: "command", Kind.NOTE: "note"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the log."""

    time_ns: int  # nanoseconds since 1970
    stream: str  # `stdout` or `stderr`, "" for notes of neither
    kind: str  # `log`, `metadata`, `command` or `note`
    text: str  # without its line end, with kept colours
    attempt: int
    capture: int
    attrs: Mapping[str, Any]  # `n`, `repeat`, `part`, `origin` if they apply. Any: JSON


@dataclass(frozen=True, slots=True)
class Record:
    """A metadata record."""

    time_ns: int  # nanoseconds since 1970
    n: int  # its number among those with the same keys, from 1
    attempt: int
    task: int
    capture: int
    line: str  # the JSON object exactly as it was printed, or made of a line's numbers
    origin: str = "json"  # `json`, `dict`, `pairs`, a pattern's name, or `auto`

    @property
    def values(self) -> dict[str, Any]:  # Any: JSON
        """The object, integers exact. Raises ValueError for numbers of thousands of digits: `line`
        has them."""
        import json

        parsed: dict[str, Any] = json.loads(self.line)
        return parsed


@dataclass(frozen=True, slots=True)
class Event:
    """An event."""

    time_ns: int  # nanoseconds since 1970
    name: str  # such as `mode_changed`
    message: str  # for people
    attempt: int
    capture: int  # 0 for the job as a whole
    details: Mapping[str, Any] = field(default_factory=dict)  # its other fields. Any: JSON


class Job:
    """One job of a store, as of its listing; `refresh` updates it.

    All reads may raise StoreError (damaged file), QueryError (Loki does not answer) or UnknownJob
    (removed). Iterators read lazily; close the store after the last read.
    """

    def __init__(
        self,
        store: "JobStore",
        summary: JobSummary,
        overlay: Overlay,
        marks: Marks,
        *,
        check: Callable[[], None],
    ) -> None:
        self.summary = summary
        self._store = store
        self._overlay = overlay
        self._marks = marks
        self._check = check

    def __repr__(self) -> str:
        return f"<Job {self.job_id} {self.name!r} {self.state}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_table(("property", "value"), self._properties(), self.note)

    def _properties(self) -> list[tuple[str, object]]:
        """Return the rows of tables, by name."""
        took = self.duration_secs
        return [
            ("job", self.job_id),
            ("name", self.name),
            ("state", self.state),
            ("started (UTC)", f"{self.started:%Y-%m-%d %H:%M:%S}"),
            ("took", "" if took is None else duration(took)),
            ("exit code", self.exit_code),
            ("records", self.summary.records),
            ("tags", ", ".join(f"{k}={v}" if v else k for k, v in self.tags.items())),
        ]

    # ---- known without reading

    @property
    def job_id(self) -> str:
        return self.summary.job_id

    @property
    def name(self) -> str:
        return self.summary.name

    @property
    def state(self) -> str:
        """`RUNNING`, `COMPLETED`, `FAILED` and so on: docs/reading.md has all."""
        return self.summary.state

    @property
    def is_running(self) -> bool:
        return self.summary.state in RUNNING_STATES

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and where a signal ended it."""
        return self.summary.exit_code

    @property
    def started(self) -> datetime:
        """In UTC, to the microsecond; `summary.started_ns` has nanoseconds."""
        return _moment(self.summary.started_ns)

    @property
    def ended(self) -> datetime | None:
        """None while it runs."""
        return None if self.summary.ended_ns is None else _moment(self.summary.ended_ns)

    @property
    def duration_secs(self) -> float | None:
        """None while it runs."""
        ended_ns = self.summary.ended_ns
        return None if ended_ns is None else max(ended_ns - self.summary.started_ns, 0) / NS

    @property
    def tags(self) -> Mapping[str, str]:
        """The reader's own; "" for a tag that is just a word."""
        return self._marks.tags

    @property
    def note(self) -> str:
        return self._marks.note

    @property
    def starred(self) -> bool:
        return self._marks.starred

    # ---- reading

    def lines(
        self, stream: StreamName = "both", *, attempt: int | None = None, tail: int | None = None
    ) -> Iterator[Line]:
        """Log lines in order of time, read by the page. attempt: None for all; tail: only the last
        ones."""
        with self._reader() as reader:
            for line in reader.lines(streams=STREAMS[stream], attempt=attempt, tail=tail):
                kind = _KINDS[line.kind]
                name = STREAM_NAMES[line.stream]
                place = line.attempt, line.capture
                yield Line(line.time_ns, name, kind, line.text, *place, line.attrs)

    def records(
        self, *, attempt: int | None = None, newest_first: bool = False
    ) -> Iterator[Record]:
        """Metadata records in the order of printing, or newest first, read by the page."""
        with self._reader() as reader:
            tasks = {capture.capture: capture.task for capture in reader.captures}
            for record in reader.records(attempt=attempt, newest_first=newest_first):
                place = record.attempt, tasks.get(record.capture, 0), record.capture
                yield Record(record.time_ns, record.n, *place, record.line, record.origin)

    def events(self, *, attempt: int | None = None) -> Iterator[Event]:
        """Events in order of time: mode changes, lost lines, hints, how Slurm ended the job."""
        with self._reader() as reader:
            for job_event in reader.events(attempt=attempt):
                name, message = (str(job_event.event.get(key, "")) for key in ("event", "message"))
                place = job_event.attempt, job_event.capture
                yield Event(job_event.time_ns, name, message, *place, event_details(job_event))

    def metrics(
        self, *keys: str, attempt: int | None = None, by: str | None = None
    ) -> tables.Columns:
        """Return the numbers of the metadata as columns: a dict of lists of one length, a row per
        record.

        keys: names as in `keys` (`loss`, `opt.lr`), also joined by commas; none for all, in
        alphabetical order. by: one row for each value of this key (within an attempt and task),
        with the last value of each column; otherwise a row for each record with any of the keys.
        Columns: `_time` (seconds since 1970, float), `_attempt`, `_task` (int), then the keys. A
        column has ints if all of its numbers are integers of 64 bits, else floats; None for missing
        values. Raises UnknownKey.

        `pandas.DataFrame(job.metrics())`, `polars.DataFrame(job.metrics())` and
        `plt.plot(columns["epoch"], columns["loss"])` accept the result.
        """
        with self._reader() as reader:
            names = _numeric(reader)
            if keys:
                paths = pick_keys([*([by] if by else []), *keys], list(names))
                names = {path: names[path] for path in paths}
            rows = self._numbers(reader, attempt, names)
            if by is not None:
                (by_path,) = pick_keys([by], list(names))
                rows = tables.merge_rows(rows, by_path)
            return tables.columns_of(rows, names)

    def metric_sets(self, *, attempt: int | None = None) -> list[tables.Columns]:
        """Return `metrics` for each set of keys that records have, without any None."""
        with self._reader() as reader:
            names = _numeric(reader)
            return [
                tables.columns_of(rows, {path: names[path] for path in paths})
                for paths, rows in tables.sets_of(self._numbers(reader, attempt, names)).items()
            ]

    def rollup(self, *, attempt: int | None = None) -> tables.Rollups:
        """Return last, min, max, mean, std and count of each key with numbers."""
        with self._reader() as reader:
            names = _numeric(reader)
            return tables.rollups_of(self._numbers(reader, attempt, names), names)

    def _numbers(
        self, reader: "Reader", attempt: int | None, names: Mapping[Path, str]
    ) -> Iterator[tables.Numbers]:
        tasks = {capture.capture: capture.task for capture in reader.captures}
        for record in reader.records(attempt=attempt):
            numbers = tables.numbers_of(record.keyed_line)
            values = {path: number for path, number in numbers.items() if path in names}
            if values:
                yield tables.Numbers(
                    record.time_ns, record.attempt, tasks.get(record.capture, 0), values
                )

    def keys(self) -> list[KeyStats]:
        """All keys of the metadata, in alphabetical order: name, count, last value, minimum,
        maximum."""
        with self._reader() as reader:
            return reader.keys()

    def last_values(self) -> Mapping[str, str]:
        """The last value of each key, as JSON text, by the key's name."""
        self._check()
        if not self.summary.records:
            return {}
        return {key: values.last for key, values in self._store.key_values(self.summary).items()}

    def x_axis(self) -> XChoice:
        """The X of the job's graphs, and the rule that chose it."""
        with self._reader() as reader:
            return reader.x_axis()

    def captures(self) -> Sequence[Capture]:
        """Attempts, steps and tasks, each with its state, host, times and account of lines."""
        with self._reader() as reader:
            return reader.captures

    def refresh(self) -> "Job":
        """The job as it is now."""
        self._check()
        self._store.ingest(job_id=self.job_id)
        with self._reader() as reader:
            summary = reader.summary
        marks = self._overlay.of(summary.key)
        return Job(self._store, summary, self._overlay, marks, check=self._check)

    # ---- tags, notes, stars

    def tag(self, *changes: str) -> Mapping[str, str]:
        """Make changes such as `+baseline`, `-draft`, `dataset=cifar10`; return the resulting tags.

        Only you see them. Raises ConfigError for invalid changes.
        """
        self._check()
        self._marks = self._overlay.tag(self.summary.key, list(map(parse_change, changes)))
        return self._marks.tags

    def annotate(self, text: str) -> None:
        """Writes a note in the place of the last one; "" takes it away."""
        self._check()
        self._marks = self._overlay.annotate(self.summary.key, text)

    def star(self, starred: bool = True) -> None:
        self._check()
        self._marks = self._overlay.star(self.summary.key, starred)

    def _reader(self) -> "Reader":
        self._check()
        return self._store.reader_of(self.summary)


def _numeric(reader: "Reader") -> dict[Path, str]:
    """Names of the keys with numbers, by path."""
    keys = reader.keys()
    return {key.path: key.key for key in keys if key.numbers}


def _moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // NS, UTC).replace(microsecond=time_ns % NS // 1000)
