"""The `--json` documents of jobs (docs/json.md has the schema). Versions only add fields."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from logshipper.config import AUTO
from logshipper.spool.segment import Stream
from logshipper_ingest.model.metadata_keys import printed_path
from logshipper_observe.base.output import Raw
from logshipper_observe.base.words import NS, uncoloured, utc
from logshipper_observe.model.records import valid_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from logshipper.errors import UnknownJob
    from logshipper_ingest.model.job import Capture, JobEvent, JobSummary, LogLine, MetadataRecord
    from logshipper_ingest.model.stores import Reader
    from logshipper_ingest.model.x_axis import KeyStats
    from logshipper_observe.model.overlay import Marks

Document: TypeAlias = dict[str, Any]  # Any: JSON

LOGS_SCHEMA = "logshipper.logs/1"
METADATA_SCHEMA = "logshipper.metadata/1"
STREAMS = {
    "stdout": (Stream.STDOUT,),
    "stderr": (Stream.STDERR,),
    "both": (Stream.STDOUT, Stream.STDERR),
}
STREAM_NAMES = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr", Stream.NONE: ""}


def moment(name: str, time_ns: int | None) -> Document:
    """Return a time as `NAME` in ISO 8601 UTC, and `NAME_ns` as an integer; null without it."""
    return {name: None if time_ns is None else utc(time_ns), f"{name}_ns": time_ns}


def unknown_documents(errors: "Iterable[UnknownJob]") -> list[Document]:
    """Return the field `unknown` of documents: the names of no job, each with the reason."""
    return [{"name": error.name, "reason": str(error)} for error in errors]


def event_details(job_event: "JobEvent") -> Document:
    """Return an event's fields besides its name and message."""
    known = ("type", "event", "message")
    return {name: value for name, value in job_event.event.items() if name not in known}


def duration_secs(job: "JobSummary | Capture", now_ns: int) -> float:
    return max((now_ns if job.ended_ns is None else job.ended_ns) - job.started_ns, 0) / NS


_JOB_FIELDS = (
    "job_id",
    "name",
    "user",
    "host",
    "state",
    "exit_code",
    "signal",
    "reason",
    "attempts",
)
_JOB_FACTS = (
    "mode", "lines", "records", "lost", "bytes_printed", "bytes_logged", "cluster", "account", "partition", "origin",
    "parent", "iteration", "nodes", "cores", "packing", "allocation",
)  # fmt: skip
_CAPTURE_FIELDS = ("capture", "attempt", "step", "task", "host", "state", "exit_code", "signal")
_CAPTURE_FACTS = ("mode", "reason", "ledger", "columns", "rows", "tty")


def _fields(source: object, names: Sequence[str]) -> Document:
    return {name: getattr(source, name) for name in names}


def job_document(job: "JobSummary", now_ns: int, marks: "Marks | None" = None) -> Document:
    """Return a job's own fields; marks: the reader's."""
    return {
        **_fields(job, _JOB_FIELDS),
        **moment("started", job.started_ns),
        **moment("ended", job.ended_ns),
        **moment("heartbeat", job.heartbeat_ns or None),
        "duration_secs": round(duration_secs(job, now_ns), 3),
        "limit_secs": job.limit_secs or None,
        **_fields(job, _JOB_FACTS),
        "children": {
            "total": job.children,
            "finished": job.children_finished,
            "failed": job.children_failed,
        },
        "tags": dict(marks.tags) if marks else {},
        "note": marks.note if marks else "",
        "starred": marks.starred if marks else False,
    }


def capture_document(capture: "Capture") -> Document:
    return {
        **_fields(capture, _CAPTURE_FIELDS),
        **moment("started", capture.started_ns),
        **moment("ended", capture.ended_ns),
        **_fields(capture, _CAPTURE_FACTS),
    }


def key_document(key: "KeyStats") -> Document:
    """`last` as every parser of JSON reads it; with NaN in it, `last_text` as it was printed."""
    last = valid_json(key.last)
    return {
        "key": key.key,
        "path": list(printed_path(key.path)),
        "origin": AUTO if key.is_auto else None,
        "repeats": key.repeats or None,
        **_fields(key, ("count", "numbers")),
        "last": Raw(last),
        **({} if last == key.last else {"last_text": key.last}),
        **_fields(key, ("min", "max", "integer")),
    }


def line_document(line: "LogLine") -> Document:
    """A line of a job's log. orjson writes it: a capture's attributes are plain values."""
    text = uncoloured(line.text)
    document = {
        "schema": LOGS_SCHEMA,
        **moment("time", line.time_ns),
        "stream": STREAM_NAMES[line.stream],
        "kind": line.kind.name.lower(),
        "text": text,
        "attempt": line.attempt,
        "capture": line.capture,
        "attrs": dict(line.attrs),
    }
    return document if text == line.text else {**document, "ansi": line.text}


def record_document(record: "MetadataRecord") -> Document:
    """Return a record's fields without its keys and values, whose text must stay unchanged."""
    return {
        "schema": METADATA_SCHEMA,
        **moment("time", record.time_ns),
        "n": record.n,
        "attempt": record.attempt,
        "capture": record.capture,
        "stream": STREAM_NAMES[record.stream],
        "origin": record.origin,
    }


def job_heading(reader: "Reader") -> Document:
    """Return the job's fields for documents about a part of it."""
    return _fields(reader.summary, ("job_id", "name", "state"))
