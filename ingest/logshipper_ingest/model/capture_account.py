"""The account of one capture, learnt frame by frame: identity, state, ledger, counts. Pure;
persisted as JSON.

Frames are hostile input: every field of a record is checked, and what is wrong counts as absent.
Times of lines are made to rise strictly within a stream, as the format promises, so that reading
can rely on it.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any, NamedTuple

import orjson

from logshipper.config import MODES
from logshipper.spool.captures import outcome
from logshipper.spool.segment import (
    COPY,
    MAX_RECORD_BYTES,
    ORIGIN,
    STATUS_BREAK,
    Frame,
    FrameType,
    Kind,
    Stream,
)
from logshipper_ingest.model.job import (
    END_STATES,
    HEARTBEAT_FOUND,
    HISTORY,
    JOB_ENDED,
    MARKS,
    MAX_NODES,
    RUNNING,
    UNRESPONSIVE_NS,
    Capture,
    Json,
    heartbeat_lost,
    limit_secs_of,
)
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.summary import CaptureFacts
from logshipper_ingest.model.x_axis import XAxis

MAX_TIME_NS = 1 << 62  # the year 2116; SQLite's integers end at twice that
MAX_EVENTS = 10_000  # per capture; further ones are counted
_NOT_RUN = (126, 127)  # exit codes, of a command that isn't there, or can't be executed
CAPTURE_TAKEN = "capture_taken"
# who reads a store trusts these
NOT_A_JOBS = (
    *MARKS,
    JOB_ENDED,
    "checked",
    CAPTURE_TAKEN,
    *HISTORY,
)
# that the relay may have counted before the sidecar's ledger does: pipe and buffers
AHEAD_BYTES = 16 << 20
MOST_PRINTED_PER_SEC = 1 << 30
MAX_MARKS = 100  # starts and ends, per capture
MAX_UNPARSED = 100  # metadata lines that are no JSON objects, per capture: no sidecar writes any
HEARTBEAT_NS = 10**9  # of the capture's time: between two that become marks
STREAM_NAMES = {Stream.STDOUT: "stdout", Stream.STDERR: "stderr"}
LEDGER_COUNTS = (
    "read",
    "stored",
    "collapsed",
    "blank",
    "dropped",
    "commands",
    "pending",
    "lost",
    "line_feeds",
    "bytes",
)
NAME_OF_ORIGIN = re.compile(r"[a-z][a-z0-9_-]{0,15}")
_STORED = (Kind.LOG, Kind.METADATA)  # the kinds that a ledger counts as stored


class BlockRow(NamedTuple):
    """Lines of one stream."""

    stream: Stream
    time_ns: int
    lines: int  # how many
    runs: list[tuple[int, int]] | None  # None where all are LOG
    attrs: dict[int, Json] | None
    text: bytes  # each line ended by LF


class RecordRow(NamedTuple):
    stream: Stream
    time_ns: int
    n: int
    line: bytes
    origin: str = ""  # what kind of line it was made of; "": the line is the record
    is_copy: bool = False  # that line is logged as well, and the record is in no block


class EventRow(NamedTuple):
    time_ns: int
    event: Json


class StatusRow(NamedTuple):
    stream: Stream
    time_ns: int
    text: bytes  # what bars show, LF between them


@dataclass
class Rows:
    """What a batch of frames adds to a store."""

    blocks: list[BlockRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    statuses: dict[Stream, StatusRow] = field(default_factory=dict)
    # the capture's start, heartbeats and end, as events
    marks: list[EventRow] = field(default_factory=list)
    report: "ReportRow | None" = None  # of the capture's keys


class ReportRow(NamedTuple):
    """What is known of a capture's keys at one time, a document each (`key_reports.documents`).
    final: nothing follows."""

    time_ns: int
    documents: list[Json]
    final: bool = False


@dataclass
class CaptureAccount(CaptureFacts):
    """See the module's docstring. The ledger is as the capture last wrote it."""

    cluster: str = "local"
    version: str = ""
    boot_id: str = ""
    # lines ingested, by stream, that the capture's ledger counts as stored
    stored: dict[str, int] = field(default_factory=dict)
    # bytes, and line feeds, by stream, that the relay counted
    printed: dict[str, int] = field(default_factory=dict)
    feeds: dict[str, int] = field(default_factory=dict)
    last_ns: dict[str, int] = field(default_factory=dict)  # the last line's time, by stream
    newest_ns: int = 0  # the last time of all
    silent_ns: int = 0  # newest_ns when the event was added that no heartbeat follows
    records: int = 0
    bytes_logged: int = 0
    damaged_bytes: int = 0
    damaged_places: int = 0
    events: int = 0
    marks: int = 0
    marked_ns: int = 0  # of the last heartbeat among the marks
    unparsed: int = 0  # metadata lines that are no JSON
    slowed_secs: int = 0  # how long a limit of the spool slowed it
    died: bool = False  # it ended without an END frame, and all that it left is ingested

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "CaptureAccount":
        """Raises ValueError where it isn't one that to_json made. Fields that are unknown here are
        left aside."""
        try:
            state = orjson.loads(text)
            if not isinstance(state, dict):
                raise ValueError("not the account of a capture")
            names = (account_field.name for account_field in fields(cls))
            return cls(**{name: state[name] for name in names if name in state})
        except TypeError as error:
            raise ValueError(f"not the account of a capture: {error}") from None

    # ---- learning

    def take(self, frame: Frame, axis: XAxis | None, rows: Rows, now_ns: int) -> None:
        """Takes the next frame; what it adds to the store goes to rows. axis: learns from metadata,
        None where another one does; now_ns: no sign of life is later than that."""
        time_ns = min(frame.time_ns, MAX_TIME_NS)
        if self.state == RUNNING and 0 < self.newest_ns < time_ns - UNRESPONSIVE_NS:
            self._add_heartbeat_found(time_ns, rows)
        self.heartbeat_ns = max(self.heartbeat_ns, min(time_ns, now_ns))
        self.newest_ns = max(self.newest_ns, time_ns)
        if frame.type is FrameType.LINES:
            self._take_lines(frame, time_ns, axis, rows)
        elif frame.type is FrameType.RECORD:
            if len(frame.text) > MAX_RECORD_BYTES:
                words = f"a record of {len(frame.text)} bytes is left out"
                self.take_event({"event": "record_left_out", "message": words}, time_ns, rows)
            else:
                self._take_record(frame.record(), time_ns, rows)

    def take_event(self, event: Json, time_ns: int, rows: Rows) -> None:
        self.events += 1
        if event.get("event") in HISTORY:
            self.note_change(time_ns)
        if self.events <= MAX_EVENTS:
            rows.events.append(EventRow(time_ns, event))
        elif self.events == MAX_EVENTS + 1:
            words = f"further events of this capture are only counted: it has {MAX_EVENTS:,}"
            rows.events.append(EventRow(time_ns, {"event": "events_left_out", "message": words}))

    def add_heartbeat_lost(self, rows: Rows) -> None:
        """The event that its heartbeat is late: once, and the same whenever it is added."""
        if self.silent_ns != self.newest_ns:
            self.silent_ns = self.newest_ns
            self.take_event(heartbeat_lost(), self.newest_ns + UNRESPONSIVE_NS, rows)

    @property
    def heartbeat_lost_ns(self) -> int:
        """The time of the event that its heartbeat is late, 0 where it isn't (any more)."""
        return (
            self.newest_ns + UNRESPONSIVE_NS
            if self.silent_ns and self.silent_ns == self.newest_ns
            else 0
        )

    def _add_heartbeat_found(self, time_ns: int, rows: Rows) -> None:
        """A frame after a silence. Frames' times follow a monotonic clock: no step of the machine's
        makes a silence."""
        self.add_heartbeat_lost(rows)
        secs = (time_ns - self.newest_ns) / 1e9
        words = f"the heartbeat is back, after {secs:.0f} seconds"
        self.take_event(
            {"event": HEARTBEAT_FOUND, "message": words, "secs": round(secs, 3)}, time_ns, rows
        )

    def take_damage(self, words: str, skipped: int, rows: Rows) -> None:
        """Notes that bytes of a segment were damaged and left out: for good, as an event. Its time
        is the newest that was read before: the same whenever the segment is read again."""
        self.damaged_places += 1
        self.damaged_bytes += skipped
        event = {"event": "segment_damaged", "message": words, "bytes": skipped}
        self.take_event(event, self.newest_ns or self.started_ns, rows)

    def conclude(self, *, died: bool, boot_id: str, end: tuple[int, int] | None = None) -> None:
        """All that there is was ingested.

        died: no END frame says that it is over. boot_id: the machine's, now. end: the relay's word
        on CMD's end, its wait status and when (ns), which counts where no end record could be
        written.
        """
        self.died = died
        if self.state != RUNNING:
            return
        self.ended_ns = self.heartbeat_ns
        if died and self.boot_id and boot_id and self.boot_id != boot_id:
            self.state = "NODE_FAIL"
            self.reason = "the machine restarted while the job ran"
        elif end is not None and self._take_word(*end):
            began = self.boot_id or any(self.printed.values())
            if not began and self.exit_code in _NOT_RUN:
                self.reason = "its command couldn't be run"
            else:
                self.reason = "its capture died before the job ended: lines are missing"
        elif died:
            self.state = "FAILED"
            self.reason = (
                "its capture died without an end record: killed, or out "
                "of memory; how the job ended isn't known"
            )
        else:
            self.state = "FAILED"
            self.reason = "its capture ended without an end record: how the job ended isn't known"

    def add_lines_lost(self, rows: Rows) -> None:
        """The event of a capture that died: how many lines it had read, or was yet to read, and
        nobody has."""
        lines = self.lost() - sum(
            clean_ledger(self.ledger)[name]["lost"] for name in STREAM_NAMES.values()
        )
        if self.died and lines > 0:
            reason = "its capture died before it had written them"
            event = {
                "event": "lines_lost",
                "message": f"{lines} lines lost: {reason}",
                "lines": lines,
                "reason": reason,
            }
            self.take_event(event, self.newest_ns or self.started_ns, rows)

    def _take_word(self, wait_status: int, ended_ns: int) -> bool:
        try:
            self.state, self.exit_code, self.signal = outcome(wait_status)
        except ValueError:
            return False
        self.ended_ns = ended_ns
        return True

    def take_counters(
        self, printed: dict[str, int], feeds: dict[str, int], silent_secs: float = 0.0
    ) -> None:
        """What the relay counted, by stream name. The job's processes can write there as well: no
        more counts than the segments' ledger has and what may have been printed since, silent_secs
        ago; nor more line feeds than bytes."""
        ahead_bytes = AHEAD_BYTES + int(silent_secs * MOST_PRINTED_PER_SEC)
        ledger = clean_ledger(self.ledger)
        self.printed, self.feeds = {}, {}
        for name in STREAM_NAMES.values():
            counts = ledger[name]
            more = min(max(printed.get(name, 0) - counts["bytes"], 0), ahead_bytes)
            self.printed[name] = min(printed.get(name, 0), counts["bytes"] + more)
            self.feeds[name] = min(feeds.get(name, 0), counts["line_feeds"] + more)

    # ---- lines

    def _take_lines(self, frame: Frame, time_ns: int, axis: XAxis | None, rows: Rows) -> None:
        stream = frame.stream
        name = STREAM_NAMES.get(stream, "")
        time_ns = max(time_ns, self.last_ns.get(name, 0) + 1)
        self.last_ns[name] = time_ns + frame.count - 1
        self.newest_ns = max(self.newest_ns, self.last_ns[name])
        if frame.runs == ((Kind.LOG, frame.count),) and not frame.attrs:
            if frame.count:
                rows.blocks.append(BlockRow(stream, time_ns, frame.count, None, None, frame.text))
                self._count(name, frame.count, len(frame.text))
            return
        texts = frame.text.split(b"\n")
        with_attrs = sorted(frame.attrs)
        for begin, runs, are_copies in _pieces(frame, texts, time_ns, rows):
            if are_copies:
                for line in range(begin, begin + runs[0][1]):
                    row = _record_row(frame, line, time_ns, texts[line])
                    self._take_metadata(row._replace(is_copy=True), axis, rows)
                continue
            lines = sum(count for _, count in runs)
            text = b"\n".join(texts[begin : begin + lines]) + b"\n"
            lines_with_attrs = with_attrs[
                bisect_left(with_attrs, begin) : bisect_left(with_attrs, begin + lines)
            ]
            attrs = {line - begin: frame.attrs[line] for line in lines_with_attrs}
            plain = all(kind is Kind.LOG for kind, _ in runs)
            packed_runs = None if plain else [(int(kind), count) for kind, count in runs]
            rows.blocks.append(
                BlockRow(stream, time_ns + begin, lines, packed_runs, attrs or None, text)
            )
            self._count(name, _stored_lines(runs, attrs), len(text))
            at = begin
            for kind, count in runs:
                if kind is Kind.METADATA:
                    for line in range(at, at + count):
                        row = _record_row(frame, line, time_ns, texts[line])
                        self._take_metadata(row, axis, rows)
                at += count

    def _take_metadata(self, row: RecordRow, axis: XAxis | None, rows: Rows) -> None:
        rows.records.append(row)
        self.records += 1
        if axis is None or self.unparsed >= MAX_UNPARSED:
            return
        record = parse_record(row.line)
        if record is not None:
            axis.add(record, row.time_ns, row.n)
            return
        self.unparsed += 1
        if self.unparsed == MAX_UNPARSED:
            words = f"{MAX_UNPARSED} metadata lines are no JSON objects: of those that follow none is graphed"
            self.take_event({"event": "metadata_ignored", "message": words}, row.time_ns, rows)

    def _count(self, name: str, stored: int, size: int) -> None:
        self.stored[name] = self.stored.get(name, 0) + stored
        self.bytes_logged += size

    # ---- records

    def _take_record(self, record: Json, time_ns: int, rows: Rows) -> None:
        kind = record.get("type")
        if kind == "event":
            event = {name: value for name, value in record.items() if name != "type"}
            if event.get("event") in NOT_A_JOBS:
                event["event"] = f"not_{event['event']}"  # a job's own word
            if event.get("event") == "mode_changed":
                self._set_mode(event.get("to"))
            self.take_event(event, time_ns, rows)
        elif kind == "start":
            self._take_start(record, time_ns)
            self._mark("started", self.start_facts(), time_ns, rows)
        elif kind in ("heartbeat", "ledger", "end"):
            self._set_mode(record.get("mode"))
            self.slowed_secs = max(self.slowed_secs, _count_of(record, "slowed_secs"))
            if isinstance(record.get("ledger"), dict):
                self.ledger = clean_ledger(record["ledger"])
            if kind == "end":
                self._take_end(record, time_ns)
                self._mark("ended", self.end_facts(), time_ns, rows)
            elif kind == "heartbeat" and time_ns - self.marked_ns >= HEARTBEAT_NS:
                self.marked_ns = time_ns
                rows.marks.append(
                    EventRow(time_ns, {"event": "heartbeat", "mode": self.mode, **self.counts()})
                )

    def _mark(self, event: str, facts: Json, time_ns: int, rows: Rows) -> None:
        """A capture has one start and one end; a hostile one may write any number."""
        self.marks += 1
        if self.marks <= MAX_MARKS:
            rows.marks.append(EventRow(time_ns, {"event": event, **facts}))

    def _take_start(self, record: Json, time_ns: int) -> None:
        self._set_mode(record.get("mode"))
        self.version = _text_of(record, "version") or self.version
        # who made the capture's directory knows better
        self.host = self.host or _text_of(record, "host")
        self.boot_id = _text_of(record, "boot_id") or self.boot_id
        self.columns = _count_of(record, "columns")
        self.rows = _count_of(record, "rows")
        self.tty = record.get("tty") is not False
        self.nodes = self.nodes or min(_count_of(record, "nodes"), MAX_NODES)
        self.limit_secs = self.limit_secs or limit_secs_of(record)
        # no later than its own record
        self.started_ns = min(_count_of(record, "started_ns") or time_ns, time_ns)

    def _take_end(self, record: Json, time_ns: int) -> None:
        state = record.get("state")
        self.state = state if state in END_STATES else "FAILED"
        code, signal = record.get("exit_code"), record.get("signal")
        self.exit_code = code if type(code) is int and 0 <= code <= 255 else None
        self.signal = signal if type(signal) is int and 0 <= signal <= 127 else 0
        self.reason = _text_of(record, "reason")
        self.ended_ns = min(_count_of(record, "ended_ns") or time_ns, MAX_TIME_NS)

    def _set_mode(self, mode: object) -> None:
        if isinstance(mode, str) and mode in MODES:
            self.mode = mode

    # ---- what comes of it

    @property
    def lines(self) -> int:
        """Lines ingested, parts of a long line as one."""
        return sum(self.stored.values())

    @property
    def bytes_printed(self) -> int:
        names = STREAM_NAMES.values()
        return sum(
            max(self.printed.get(name, 0), self.ledger.get(name, {}).get("bytes", 0))
            for name in names
        )

    def settled_ledger(self) -> Json:
        """The ledger; of a capture that died, with what it never wrote down as lost. It balances:
        of the line feeds that the relay counted past the ledger, the lines that are ingested all
        the same are stored, the others lost; so is what was pending. Lines that damaged segments
        have cost are lost, not stored."""
        if not self.ledger and not self.died:
            return {}
        ledger = clean_ledger(self.ledger)
        for name in STREAM_NAMES.values():
            account = ledger[name]
            stored_lines = self.stored.get(name, 0)
            if self.died:
                later = max(0, stored_lines - account["stored"])
                lost_lines = max(
                    0, self.feeds.get(name, 0) - account["line_feeds"], account["pending"]
                )
                account["lost"] += max(0, lost_lines - later)
                account["stored"] += later
                account["pending"] = 0
                account["line_feeds"] = max(account["line_feeds"], self.feeds.get(name, 0))
            if self.died or self.damaged_places:
                damaged_lines = max(0, account["stored"] - stored_lines)
                account["stored"] -= damaged_lines
                account["lost"] += damaged_lines
            if self.died:
                account["bytes"] = max(account["bytes"], self.printed.get(name, 0))
                account["read"] = sum(account[count] for count in LEDGER_COUNTS[1:8])
        return ledger

    def lost(self) -> int:
        ledger = self.settled_ledger() if self.died or self.damaged_places else self.ledger
        return sum(int(ledger[name]["lost"]) for name in STREAM_NAMES.values() if name in ledger)

    def start_facts(self) -> Json:
        """What a store's event says of the capture's start."""
        return {
            "version": self.version,
            "boot_id": self.boot_id,
            "columns": self.columns,
            "rows": self.rows,
            "tty": self.tty,
            **({"nodes": self.nodes} if self.nodes else {}),
            **({"limit_secs": self.limit_secs} if self.limit_secs else {}),
            "mode": self.mode,
            "started_ns": self.started_ns,
        }

    def end_facts(self) -> Json:
        """What a store's event says of its end."""
        return {
            "state": self.state,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "reason": self.reason,
            "ended_ns": self.ended_ns,
            "mode": self.mode,
            **self.counts(),
        }

    def counts(self) -> Json:
        return {
            "ledger": self.settled_ledger(),
            "lines": self.lines,
            "records": self.records,
            "lost": self.lost(),
            "bytes_printed": self.bytes_printed,
            "bytes_logged": self.bytes_logged,
            **({"slowed_secs": self.slowed_secs} if self.slowed_secs else {}),
        }

    def as_capture(self, capture: int, attempt: int, step: str, task: int, state: str) -> Capture:
        """The value that readers see. state: derived."""
        return Capture(
            capture=capture,
            attempt=attempt,
            step=step,
            task=task,
            host=self.host,
            state=state,
            exit_code=self.exit_code,
            signal=self.signal,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            mode=self.mode,
            reason=self.reason,
            ledger=self.settled_ledger(),
            columns=self.columns,
            rows=self.rows,
            tty=self.tty,
            nodes=self.nodes,
            limit_secs=self.limit_secs,
        )


def clean_ledger(ledger: Json) -> Json:
    """A ledger with all its counts, as integers."""
    cleaned: Json = {}
    for name in STREAM_NAMES.values():
        account = ledger.get(name)
        cleaned[name] = _counts_of(account if isinstance(account, dict) else {}, LEDGER_COUNTS)
    return {**cleaned, **_counts_of(ledger, ("notes", "status", "parts"))}


def _record_row(frame: Frame, line: int, time_ns: int, text: bytes) -> RecordRow:
    """line: its number in the frame; time_ns: the frame's."""
    attrs = frame.attrs.get(line, {})
    origin = attrs.get(ORIGIN)
    if not isinstance(origin, str) or not NAME_OF_ORIGIN.fullmatch(origin):
        origin = ""
    return RecordRow(frame.stream, time_ns + line, _count_of(attrs, "n"), text, origin)


def _pieces(
    frame: Frame, texts: list[bytes], time_ns: int, rows: Rows
) -> Iterator[tuple[int, list[tuple[Kind, int]], bool]]:
    """What lies between status lines, as (first line, runs, False); status lines go to rows, where
    the last one counts. Records whose lines are logged as well are pieces of their own: True."""
    at = begin = 0
    runs: list[tuple[Kind, int]] = []
    for kind, lines, are_copies in _runs(frame):
        if kind is Kind.STATUS or are_copies:
            if runs:
                yield begin, runs, False
            if are_copies:
                yield at, [(kind, lines)], True
            else:
                last = at + lines - 1
                text = texts[last].replace(STATUS_BREAK, b"\n")
                rows.statuses[frame.stream] = StatusRow(frame.stream, time_ns + last, text)
            runs, begin = [], at + lines
        else:
            runs.append((kind, lines))
        at += lines
    if runs:
        yield begin, runs, False


def _runs(frame: Frame) -> Iterator[tuple[Kind, int, bool]]:
    """The frame's runs that have lines, those of METADATA taken apart where some of it is a
    copy."""
    copies = {line for line, values in frame.attrs.items() if values.get(COPY) == 1}
    at = 0
    for kind, lines in frame.runs:
        if kind is Kind.METADATA and copies:
            for are_copies, group in groupby(range(at, at + lines), copies.__contains__):
                yield kind, sum(1 for _ in group), are_copies
        elif lines:
            yield kind, lines, False
        at += lines


def _stored_lines(runs: list[tuple[Kind, int]], attrs: dict[int, Json]) -> int:
    """Lines that a ledger counts as stored: of a long line that was cut into parts, the first part
    only."""
    stored = sum(lines for kind, lines in runs if kind in _STORED)
    return max(
        0, stored - sum(1 for values in attrs.values() if _is_further_part(values.get("part")))
    )


def _is_further_part(part: object) -> bool:
    return isinstance(part, str) and part.partition("/")[0] not in ("", "1")


def _count_of(record: Json, name: str) -> int:
    """A count that fits SQLite; 0 where it isn't one."""
    return _counts_of(record, (name,))[name]


def _counts_of(record: Json, names: Iterable[str]) -> dict[str, int]:
    """Likewise, of each name: a ledger has so many that calls would be most of it."""
    return {
        name: value if type(value := record.get(name)) is int and 0 <= value < 1 << 63 else 0
        for name in names
    }


def _text_of(record: Json, name: str) -> str:
    value: Any = record.get(name)  # Any: JSON, checked here
    if not isinstance(value, str):
        return ""
    return value[:1024].encode("utf-8", "replace").decode()
