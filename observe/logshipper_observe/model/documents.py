"""The `--json` documents of jobs (docs/reading.md has the schema). Versions add fields, and never
change or remove any."""

from typing import TYPE_CHECKING, Any, TypeAlias

from logshipper.spool.segment import Stream
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
    """Return a time as two fields: `NAME` in ISO 8601 UTC, `NAME_ns` as an integer; null without a
    time."""
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


def job_document(job: "JobSummary", now_ns: int, marks: "Marks | None" = None) -> Document:
    """Return a job's own fields; marks: the reader's."""
    return {
        "job_id": job.job_id,
        "name": job.name,
        "user": job.user,
        "host": job.host,
        "state": job.state,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "reason": job.reason,
        "attempts": job.attempts,
        **moment("started", job.started_ns),
        **moment("ended", job.ended_ns),
        **moment("heartbeat", job.heartbeat_ns or None),
        "duration_secs": round(duration_secs(job, now_ns), 3),
        "limit_secs": job.limit_secs or None,
        "mode": job.mode,
        "lines": job.lines,
        "records": job.records,
        "lost": job.lost,
        "bytes_printed": job.bytes_printed,
        "bytes_logged": job.bytes_logged,
        "cluster": job.cluster,
        "account": job.account,
        "partition": job.partition,
        "origin": job.origin,
        "parent": job.parent,
        "iteration": job.iteration,
        "nodes": job.nodes,
        "cores": job.cores,
        "packing": job.packing,
        "allocation": job.allocation,
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
        "capture": capture.capture,
        "attempt": capture.attempt,
        "step": capture.step,
        "task": capture.task,
        "host": capture.host,
        "state": capture.state,
        "exit_code": capture.exit_code,
        "signal": capture.signal,
        **moment("started", capture.started_ns),
        **moment("ended", capture.ended_ns),
        "mode": capture.mode,
        "reason": capture.reason,
        "ledger": capture.ledger,
        "columns": capture.columns,
        "rows": capture.rows,
        "tty": capture.tty,
    }


def key_document(key: "KeyStats") -> Document:
    """`last` as every parser of JSON reads it; with NaN in it, `last_text` as it was printed."""
    last = valid_json(key.last)
    return {
        "key": key.key,
        "path": list(key.path),
        "count": key.count,
        "numbers": key.numbers,
        "last": Raw(last),
        **({} if last == key.last else {"last_text": key.last}),
        "min": key.min,
        "max": key.max,
        "integer": key.integer,
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
    return {
        "job_id": reader.summary.job_id,
        "name": reader.summary.name,
        "state": reader.summary.state,
    }
