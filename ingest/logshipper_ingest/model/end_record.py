"""Parses the record that the hook job-ended writes about one run of a job, strictly, and makes its
event and line for Loki. Pure.

It corrects misleading data of Slurm: a restarted run is already PENDING; an exit status of 0:1 is
invented for jobs that did not end by themselves; 0:125 means out of memory.
"""

import json
import re
from datetime import UTC, datetime
from typing import NamedTuple

from logshipper_ingest.model.job import JOB_ENDED, SLURM_STATES
from logshipper_ingest.model.job import MAX_NODES as MAX_JOB_NODES

MAX_RECORD_BYTES = 64 << 10
SECOND_NS = 10**9
_HEAD = "logshipper-ended 1"
_FIELDS = ("by", "job_id", "state", "exit", "start", "end", "restarts", "user", "nodes")
_FURTHER = ("submit",)  # missing from older hooks
JOBCOMP = "jobcomp/script"
_BY = {"jobcomp": JOBCOMP, "epilog": "EpilogSlurmctld"}
_MAX_SECS = 1 << 33
_WHOLE = re.compile(r"[0-9]{1,10}", re.ASCII)
_STATUS = re.compile(r"([0-9]{1,3}):([0-9]{1,3})", re.ASCII)
_USER = re.compile(r"[^\x00-\x20\x7f-\x9f\ud800-\udfff]{1,128}")
_OUT_OF_MEMORY = "OUT_OF_MEMORY"
_OOM_SIGNAL = 125
_KILL = 9
# states of jobs with their own exit status
_BY_ITSELF = ("COMPLETED", "FAILED", _OUT_OF_MEMORY)

# words of the log's last line; other states use their names
_REASONS = {
    "CANCELLED": "cancelled",
    "TIMEOUT": "killed: time limit",
    _OUT_OF_MEMORY: "killed: out of memory",
    "DEADLINE": "killed: deadline",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "node failed",
    "BOOT_FAIL": "node failed to boot",
    "REQUEUED": "requeued",
    "FAILED": "failed",
}

MAX_NODES = 200  # as many as a query names
_NODE = re.compile(r"[A-Za-z0-9._-]{1,255}", re.ASCII)
_ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGES = re.compile(r"([^\[\]]*)\[([0-9,-]+)\]([^\[\]]*)", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
# outcomes of a record
TAKEN, SHIPPED = "taken", "shipped"
DROPPED = ("not_captured", "too_many", "refused", "malformed")
NOT_CAPTURED, TOO_MANY, REFUSED, MALFORMED = DROPPED
OUTCOMES = (TAKEN, SHIPPED, *DROPPED)


class EndRecord(NamedTuple):
    """The end of a run of a job."""

    by: str  # its reporter
    job_id: str
    state: str  # one of SLURM_STATES, "" if unknown
    exit_code: int | None  # None after a signal, or if unknown
    signal: int
    start: int  # seconds since 1970, 0 if unknown
    end: int  # seconds since 1970
    restarts: int  # number of restarts, an upper bound; -1 if unknown
    user: str
    nodes: tuple[str, ...]  # names, empty for any
    node_count: int = 0  # 0 if unknown
    submit: int = 0  # when this run began to wait, as start

    @property
    def waited_secs(self) -> int | None:
        """Time in the queue; None if unknown."""
        return self.start - self.submit if self.start and self.submit else None

    def to_json(self) -> str:
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> "EndRecord":
        values = json.loads(text)
        if isinstance(values[-1], list):  # of a version without a count
            values.append(len(values[-1]))
        if isinstance(values[-2], list):  # of a version without a time of submission
            values.append(0)
        *fields, nodes, number, submit = values
        return cls._make([*fields, tuple(nodes), number, submit])


class BadRecord(ValueError):
    """The hook did not write this. str: the reason."""


def parse_end(content: bytes, written_secs: int) -> EndRecord:
    """Parse a file's content.

    written_secs: the file's time, for hooks without the job's end. Raises BadRecord.
    """
    if len(content) > MAX_RECORD_BYTES:
        raise BadRecord(f"is over {MAX_RECORD_BYTES >> 10} KiB")
    try:
        lines = content.decode().split("\n")
    except UnicodeDecodeError:
        raise BadRecord("isn't UTF-8 text") from None
    if lines[0] != _HEAD:
        raise BadRecord("does not begin like a record")
    names = tuple(line.partition("=")[0] for line in lines[1:-2])
    if lines[-2:] != [".", ""] or names not in (_FIELDS, (*_FIELDS, *_FURTHER)):
        raise BadRecord("lacks lines of a record")
    fields = dict(zip(names, (line.partition("=")[2] for line in lines[1:-2]), strict=True))
    if fields["by"] not in _BY:
        raise BadRecord("does not name its writer")
    state = "REQUEUED" if fields["state"] == "PENDING" else fields["state"]
    if state not in (*SLURM_STATES, ""):
        raise BadRecord(f"{state[:40]!r} is no state of an ended job")
    exit_code, signal = _status(fields["exit"], state)
    if signal == _OOM_SIGNAL:
        state, signal = state or _OUT_OF_MEMORY, _KILL
    if not state and exit_code:
        state = "FAILED"
    start, end = _secs(fields, "start"), _secs(fields, "end") or written_secs
    start = start if start <= end else 0
    submit = _secs(fields, "submit")
    return EndRecord(
        by=_BY[fields["by"]],
        job_id=str(_whole(fields, "job_id")),
        state=state,
        exit_code=exit_code,
        signal=signal,
        start=start,
        end=end,
        restarts=_whole(fields, "restarts") if fields["restarts"] else -1,
        user=fields["user"] if _USER.fullmatch(fields["user"]) else "",
        nodes=host_names(fields["nodes"]),
        node_count=host_count(fields["nodes"]),
        submit=submit if submit <= (start or end) else 0,
    )


def _status(text: str, state: str) -> tuple[int | None, int]:
    """Return exit code and signal, if they are the job's own."""
    if not text:
        return None, 0
    match = _STATUS.fullmatch(text)
    if match is None:
        raise BadRecord(f"{text[:40]!r} is no exit status")
    exit_code, signal = int(match[1]), int(match[2])
    if exit_code > 255 or signal > 127:
        raise BadRecord(f"{text[:40]!r} is no exit status")
    if state not in _BY_ITSELF and (exit_code, signal) in ((0, 0), (0, 1)):
        return None, 0
    return (None if signal else exit_code), signal


def _whole(fields: dict[str, str], name: str) -> int:
    if not _WHOLE.fullmatch(fields[name]):
        raise BadRecord(f"{name} is {fields[name][:40]!r}, which is no whole number")
    return int(fields[name])


def _secs(fields: dict[str, str], name: str) -> int:
    secs = _whole(fields, name) if fields.get(name) else 0
    if secs >= _MAX_SECS:
        raise BadRecord(f"{name} is {secs}, which is no time")
    return secs


def host_names(text: str) -> tuple[str, ...]:
    """Expand a list such as `n[1-3,07],login`; empty for other texts, and for lists too long for a
    query."""
    names: list[str] = []
    for before, behind, ranges in _host_ranges(text):
        for first, last in ranges:
            if int(last) - int(first) >= MAX_NODES:
                return ()
            numbers = range(int(first), int(last) + 1)
            names += [f"{before}{number:0{len(first)}}{behind}" for number in numbers]
        names += [] if ranges else [before]
        if len(names) > MAX_NODES:
            return ()
    return tuple(names) if all(map(_NODE.fullmatch, names)) else ()


def host_count(text: str) -> int:
    """Count the names in a list such as `n[1-3,07],login`; 0 for other texts."""
    total = 0
    for before, _, ranges in _host_ranges(text):
        if not ranges and not _NODE.fullmatch(before):
            return 0
        total += sum(int(last) - int(first) + 1 for first, last in ranges) if ranges else 1
    return total if total <= MAX_JOB_NODES else 0


def _host_ranges(text: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return each item's text before and behind its numbers, and the ranges of these; empty for
    texts with a wrong range."""
    items: list[tuple[str, str, list[tuple[str, str]]]] = []
    for item in _ITEM.findall(text):
        match = _RANGES.fullmatch(item)
        if match is None:
            items.append((item, "", []))
            continue
        before, numbers, behind = match.groups()
        ranges = [_RANGE.fullmatch(number_range) for number_range in numbers.split(",")]
        pairs = [(pair[1], pair[2] or pair[1]) for pair in ranges if pair is not None]
        if len(pairs) < len(ranges) or any(int(last) < int(first) for first, last in pairs):
            return []
        items.append((before, behind, pairs))
    return items


def event_of(record: EndRecord) -> dict[str, object]:
    """The event as it goes to Loki. It names the job, so that no two are the same line."""
    return {
        "event": JOB_ENDED,
        "message": f"Slurm ended job {record.job_id}: {_outcome(record)}",
        "job_id": record.job_id,
        "state": record.state or None,
        "exit_code": record.exit_code,
        "signal": record.signal,
        **({"submitted_ns": record.submit * SECOND_NS} if record.submit else {}),
        "started_ns": record.start * SECOND_NS or None,
        "ended_ns": record.end * SECOND_NS,
        "nodes": record.node_count or None,
        "by": record.by,
    }


def note_of(record: EndRecord) -> str:
    """Return the log's last line, such as `[logshipper: killed: time limit (Slurm), job 4711,
    ...]`, or an empty text."""
    if record.state == "COMPLETED" or not (record.state or record.exit_code or record.signal):
        return ""
    at = datetime.fromtimestamp(record.end, UTC).isoformat()
    reason = _REASONS.get(record.state, record.state or "ended")
    words = [f"{reason} (Slurm)", f"job {record.job_id}", at, *_exit(record)]
    return f"[logshipper: {', '.join(words)}]"


def _outcome(record: EndRecord) -> str:
    state = record.state or ("" if record.signal else "nothing more is known")
    return ", ".join(filter(None, (state, *_exit(record))))


def _exit(record: EndRecord) -> list[str]:
    if record.signal:
        return [f"signal {record.signal}"]
    return [f"exit code {record.exit_code}"] if record.exit_code else []
