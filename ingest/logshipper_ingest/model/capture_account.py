"""The account of one capture: identity, state, ledger and counts, updated frame by frame.

Pure; stores keep it as JSON. Frames are untrusted: a field with an invalid value counts as absent.
The account makes line times rise strictly within each stream, and readers rely on that."""

from bisect import bisect_left
from dataclasses import dataclass, field, fields
from typing import Any

import orjson

from logshipper.config import MODES
from logshipper.spool.captures import outcome
from logshipper.spool.segment import MAX_RECORD_BYTES, Frame, FrameType, Kind
from logshipper_ingest.model import job
from logshipper_ingest.model.capture_rows import (
    BlockRow,
    EventRow,
    RecordRow,
    Rows,
    pieces,
    record_row,
    stored_lines,
)
from logshipper_ingest.model.ledger import OUTCOMES, STREAM_NAMES, clean_ledger, count_of
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.summary import CaptureFacts
from logshipper_ingest.model.x_axis import Entry, XAxis

MAX_TIME_NS = 1 << 62  # the year 2116; SQLite's integers end at twice that
MAX_EVENTS = 10_000  # per capture; further ones are counted
_NOT_RUN = (126, 127)  # exit codes of commands that are missing or not executable
CAPTURE_TAKEN = "capture_taken"
RESERVED_EVENTS = (
    *job.MARKS,
    job.JOB_ENDED,
    "checked",
    CAPTURE_TAKEN,
    *job.HISTORY,
)  # readers trust these
AHEAD_BYTES = 16 << 20  # in pipe and buffers: counted by the relay before the sidecar
MOST_PRINTED_PER_SEC = 1 << 30
MAX_MARKS = 100  # starts and ends, per capture
MAX_UNPARSED = 100  # metadata lines that are no JSON objects, per capture: no sidecar writes any
# what a Capture has from the account, unchanged
_OF_CAPTURE = (
    "host", "exit_code", "signal", "started_ns", "ended_ns", "mode", "reason", "columns", "rows", "tty", "nodes",
    "limit_secs",
)  # fmt: skip
HEARTBEAT_NS = 10**9  # least distance, in the capture's time, of two heartbeats among the marks


@dataclass
class CaptureAccount(CaptureFacts):
    """The account of a capture. Its ledger is the last one that the capture wrote."""

    cluster: str = "local"
    version: str = ""
    boot_id: str = ""
    # by stream name
    stored: dict[str, int] = field(default_factory=dict)  # lines
    printed: dict[str, int] = field(default_factory=dict)  # bytes, counted by the relay
    feeds: dict[str, int] = field(default_factory=dict)  # line feeds, counted by the relay
    last_ns: dict[str, int] = field(default_factory=dict)  # time of the last line
    newest_ns: int = 0  # newest time of any frame
    silent_ns: int = 0  # newest_ns at the last event of a late heartbeat
    records: int = 0
    bytes_logged: int = 0
    damaged_bytes: int = 0
    damaged_places: int = 0
    events: int = 0
    marks: int = 0
    marked_ns: int = 0  # time of the last heartbeat among the marks
    unparsed: int = 0  # metadata lines that are no JSON
    slowed_secs: int = 0  # time that limits of the spool slowed the capture
    died: bool = False  # complete without an END frame

    def to_json(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> "CaptureAccount":
        """Read the output of to_json, and ignore unknown fields. Raises ValueError."""
        try:
            state = orjson.loads(text)
            if not isinstance(state, dict):
                raise ValueError("not the account of a capture")
            names = (account_field.name for account_field in fields(cls))
            return cls(**{name: state[name] for name in names if name in state})
        except TypeError as error:
            raise ValueError(f"not the account of a capture: {error}") from None

    # ---- frames

    def take(self, frame: Frame, axis: XAxis | None, rows: Rows, now_ns: int) -> None:
        """Add the next frame to the account, and its rows to rows.

        axis: receives the metadata, unless None; now_ns: the heartbeat is at most this."""
        time_ns = min(frame.time_ns, MAX_TIME_NS)
        if self.state == job.RUNNING and 0 < self.newest_ns < time_ns - job.UNRESPONSIVE_NS:
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

    def take_event(self, event: job.Json, time_ns: int, rows: Rows) -> None:
        self.events += 1
        if event.get("event") in job.HISTORY:
            self.note_change(time_ns)
        if self.events <= MAX_EVENTS:
            rows.events.append(EventRow(time_ns, event))
        elif self.events == MAX_EVENTS + 1:
            words = f"further events of this capture are only counted: it has {MAX_EVENTS:,}"
            rows.events.append(EventRow(time_ns, {"event": "events_left_out", "message": words}))

    def add_heartbeat_lost(self, rows: Rows) -> None:
        """Add the event of a late heartbeat once. A repeated call adds the same event."""
        if self.silent_ns != self.newest_ns:
            self.silent_ns = self.newest_ns
            self.take_event(job.heartbeat_lost(), self.newest_ns + job.UNRESPONSIVE_NS, rows)

    @property
    def heartbeat_lost_ns(self) -> int:
        """The time of the event of a late heartbeat, 0 after the heartbeat returned."""
        if self.silent_ns and self.silent_ns == self.newest_ns:
            return self.newest_ns + job.UNRESPONSIVE_NS
        return 0

    def _add_heartbeat_found(self, time_ns: int, rows: Rows) -> None:
        """Report a frame after a silence. Frame times follow a monotonic clock, so a step of the
        machine's clock makes no silence."""
        self.add_heartbeat_lost(rows)
        secs = (time_ns - self.newest_ns) / 1e9
        words = f"the heartbeat is back, after {secs:.0f} seconds"
        event = {"event": job.HEARTBEAT_FOUND, "message": words, "secs": round(secs, 3)}
        self.take_event(event, time_ns, rows)

    def take_damage(self, words: str, skipped: int, rows: Rows) -> None:
        """Record damaged bytes of a segment, which stay lost, as an event.

        The event's time is the newest time before the damage, so a second read gives the same
        event."""
        self.damaged_places += 1
        self.damaged_bytes += skipped
        event = {"event": "segment_damaged", "message": words, "bytes": skipped}
        self.take_event(event, self.newest_ns or self.started_ns, rows)

    def conclude(self, *, died: bool, boot_id: str, end: tuple[int, int] | None = None) -> None:
        """Close the account after the last frame.

        died: no END frame exists; boot_id: of the running machine; end: the relay's wait status of
        the command and its time in ns, which counts without an end record."""
        self.died = died
        if self.state != job.RUNNING:
            return
        self.state, self.ended_ns = "FAILED", self.heartbeat_ns
        if died and self.boot_id and boot_id and self.boot_id != boot_id:
            self.state, self.reason = "NODE_FAIL", "the machine restarted while the job ran"
        elif end is not None and self._take_exit(*end):
            began = self.boot_id or any(self.printed.values())
            if not began and self.exit_code in _NOT_RUN:
                self.reason = "its command couldn't be run"
            else:
                self.reason = "its capture died before the job ended: lines are missing"
        elif died:
            self.reason = (
                "its capture died without an end record: killed, or out of memory;"
                " the job's end is unknown"
            )
        else:
            self.reason = "its capture ended without an end record: the job's end is unknown"

    def add_lines_lost(self, rows: Rows) -> None:
        """Add the event about lines that died with the capture."""
        lines = self.lost() - sum(
            clean_ledger(self.ledger)[name]["lost"] for name in STREAM_NAMES.values()
        )
        if self.died and lines > 0:
            reason = "its capture died before it had written them"
            message = f"{lines} lines lost: {reason}"
            event = {"event": "lines_lost", "message": message, "lines": lines, "reason": reason}
            self.take_event(event, self.newest_ns or self.started_ns, rows)

    def _take_exit(self, wait_status: int, ended_ns: int) -> bool:
        try:
            self.state, self.exit_code, self.signal = outcome(wait_status)
        except ValueError:
            return False
        self.ended_ns = ended_ns
        return True

    def take_counters(
        self, printed: dict[str, int], feeds: dict[str, int], silent_secs: float = 0.0
    ) -> None:
        """Accept the relay's counters, by stream name, up to a limit, since the job's processes can
        write them too.

        The limit is the ledger plus the output that is possible in silent_secs. Line feeds never
        exceed bytes."""
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
        for begin, runs, are_copies in pieces(frame, texts, time_ns, rows):
            at = begin
            for kind, count in runs:
                if kind is Kind.METADATA:
                    records = [
                        record_row(frame, line, time_ns, texts[line], is_copy=are_copies)
                        for line in range(at, at + count)
                    ]
                    self._take_metadata(records, axis, rows)
                at += count
            if are_copies:
                continue
            text = b"\n".join(texts[begin:at]) + b"\n"
            first, last = bisect_left(with_attrs, begin), bisect_left(with_attrs, at)
            attrs = {line - begin: frame.attrs[line] for line in with_attrs[first:last]}
            plain = all(kind is Kind.LOG for kind, _ in runs)
            packed_runs = None if plain else [(int(kind), count) for kind, count in runs]
            rows.blocks.append(
                BlockRow(stream, time_ns + begin, at - begin, packed_runs, attrs or None, text)
            )
            self._count(name, stored_lines(runs, attrs), len(text))

    def _take_metadata(self, records: list[RecordRow], axis: XAxis | None, rows: Rows) -> None:
        rows.records += records
        self.records += len(records)
        if axis is None:
            return
        entries: list[Entry] = []
        for row in records:
            if self.unparsed >= MAX_UNPARSED:
                break
            record = parse_record(row.line)
            if record is not None:
                entries.append((record, row.time_ns, row.n, row.origin))
                continue
            self.unparsed += 1
            if self.unparsed == MAX_UNPARSED:
                words = f"{MAX_UNPARSED} metadata lines are no JSON objects: of those that follow none is graphed"
                self.take_event({"event": "metadata_ignored", "message": words}, row.time_ns, rows)
        axis.add_all(entries)

    def _count(self, name: str, stored: int, size: int) -> None:
        self.stored[name] = self.stored.get(name, 0) + stored
        self.bytes_logged += size

    # ---- records

    def _take_record(self, record: job.Json, time_ns: int, rows: Rows) -> None:
        kind = record.get("type")
        if kind == "event":
            event = {name: value for name, value in record.items() if name != "type"}
            if event.get("event") in RESERVED_EVENTS:
                event["event"] = f"not_{event['event']}"  # the job made it
            if event.get("event") == "mode_changed":
                self._set_mode(event.get("to"))
            self.take_event(event, time_ns, rows)
        elif kind == "start":
            self._take_start(record, time_ns)
            self._mark("started", self.start_facts(), time_ns, rows)
        elif kind in ("heartbeat", "ledger", "end"):
            self._set_mode(record.get("mode"))
            self.slowed_secs = max(self.slowed_secs, count_of(record, "slowed_secs"))
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

    def _mark(self, event: str, facts: job.Json, time_ns: int, rows: Rows) -> None:
        """Add a start or an end. A hostile capture may write any number of them."""
        self.marks += 1
        if self.marks <= MAX_MARKS:
            rows.marks.append(EventRow(time_ns, {"event": event, **facts}))

    def _take_start(self, record: job.Json, time_ns: int) -> None:
        self._set_mode(record.get("mode"))
        self.version = _text_of(record, "version") or self.version
        # the creator of the capture's directory is the better source
        self.host = self.host or _text_of(record, "host")
        self.boot_id = _text_of(record, "boot_id") or self.boot_id
        self.columns = count_of(record, "columns")
        self.rows = count_of(record, "rows")
        self.tty = record.get("tty") is not False
        self.nodes = self.nodes or min(count_of(record, "nodes"), job.MAX_NODES)
        self.limit_secs = self.limit_secs or job.limit_secs_of(record)
        # at most the record's time
        self.started_ns = min(count_of(record, "started_ns") or time_ns, time_ns)

    def _take_end(self, record: job.Json, time_ns: int) -> None:
        state = record.get("state")
        self.state = state if state in job.END_STATES else "FAILED"
        code, signal = record.get("exit_code"), record.get("signal")
        self.exit_code = code if type(code) is int and 0 <= code <= 255 else None
        self.signal = signal if type(signal) is int and 0 <= signal <= 127 else 0
        self.reason = _text_of(record, "reason")
        self.ended_ns = min(count_of(record, "ended_ns") or time_ns, MAX_TIME_NS)

    def _set_mode(self, mode: object) -> None:
        if isinstance(mode, str) and mode in MODES:
            self.mode = mode

    # ---- results

    @property
    def lines(self) -> int:
        """Stored lines, with a long line in several parts counted once."""
        return sum(self.stored.values())

    @property
    def bytes_printed(self) -> int:
        return sum(
            max(self.printed.get(name, 0), self.ledger.get(name, {}).get("bytes", 0))
            for name in STREAM_NAMES.values()
        )

    def settled_ledger(self) -> job.Json:
        """The ledger, which balances also after damage or a crash.

        After a crash, the relay may have counted line feeds that the ledger lacks. Of those and of
        the pending lines, the stored ones count as stored and the others as lost. Lines in damaged
        segments count as lost."""
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
                account["read"] = sum(account[outcome] for outcome in OUTCOMES)
        return ledger

    def lost(self) -> int:
        ledger = self.settled_ledger() if self.died or self.damaged_places else self.ledger
        return sum(int(ledger[name]["lost"]) for name in STREAM_NAMES.values() if name in ledger)

    def start_facts(self) -> job.Json:
        """The content of the event `started`."""
        return {
            **self._values("version", "boot_id", "columns", "rows", "tty"),
            **({"nodes": self.nodes} if self.nodes else {}),
            **({"limit_secs": self.limit_secs} if self.limit_secs else {}),
            **self._values("mode", "started_ns"),
        }

    def end_facts(self) -> job.Json:
        """The content of the event `ended`."""
        names = ("state", "exit_code", "signal", "reason", "ended_ns", "mode")
        return {**self._values(*names), **self.counts()}

    def _values(self, *names: str) -> job.Json:
        return {name: getattr(self, name) for name in names}

    def counts(self) -> job.Json:
        return {
            "ledger": self.settled_ledger(),
            "lines": self.lines,
            "records": self.records,
            "lost": self.lost(),
            "bytes_printed": self.bytes_printed,
            "bytes_logged": self.bytes_logged,
            **({"slowed_secs": self.slowed_secs} if self.slowed_secs else {}),
        }

    def as_capture(
        self, capture: int, attempt: int, step: str, task: int, state: str
    ) -> job.Capture:
        """Return the capture for readers. state: after `derived_state`."""
        return job.Capture(
            capture=capture,
            attempt=attempt,
            step=step,
            task=task,
            state=state,
            ledger=self.settled_ledger(),
            **self._values(*_OF_CAPTURE),
        )


def _text_of(record: job.Json, name: str) -> str:
    value: Any = record.get(name)  # Any: JSON, checked here
    if not isinstance(value, str):
        return ""
    return value[:1024].encode("utf-8", "replace").decode()
