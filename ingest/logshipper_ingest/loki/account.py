"""Accounts of a job's captures, built from Loki's events in any order. Pure.

Everybody may push to Loki, so the module checks every field and ignores invalid ones. The agent's
events about a capture (MARKS) report its state and counts. Other events come from the capture
itself and stay unchanged.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from logshipper.config import MODES
from logshipper.spool.segment import Stream
from logshipper_ingest.model import job
from logshipper_ingest.model.capture_account import MAX_EVENTS, MAX_TIME_NS
from logshipper_ingest.model.capture_id import CaptureId, JobKey
from logshipper_ingest.model.ledger import clean_ledger
from logshipper_ingest.model.summary import CaptureFacts, summarise

# how far an event's end may lie behind the event: where a node's clock is ahead, it does
END_AHEAD_NS = 3600 * 10**9
BEATS = 4  # heartbeats that show the interval between them
_MISSED = 3  # missing heartbeats that mean silence
MAX_PATIENCE_NS = _MISSED * 3600 * 10**9  # an agent's heartbeats are an hour apart at most
SETTLE_NS = 3 * 10**9
LATE_SECS = 60  # how long lines may follow an end that no `closed` follows
MAX_CAPTURES = 100_000  # of a job, and of a list
MAX_NESTED = 200  # objects and arrays in an event
STREAMS = {"": Stream.NONE, "stdout": Stream.STDOUT, "stderr": Stream.STDERR}
_WHOLE = re.compile(r"[0-9]{1,9}", re.ASCII)
# of accounts, for readers
_SHOWN = ("host", "exit_code", "signal", "started_ns", "ended_ns", "mode", "reason", "ledger",
          "columns", "rows", "tty", "nodes", "limit_secs")  # fmt: skip
_RANKS = {job.HEARTBEAT: 1, job.ENDED: 2, job.CLOSED: 3}


class LokiEntry(Protocol):
    """An entry of Loki's, as logshipper_ingest.loki.client's client gives it."""

    @property
    def time_ns(self) -> int: ...
    @property
    def line(self) -> str: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


def is_job_id(text: str) -> bool:
    return job.NAME.fullmatch(text) is not None


def job_key(entry: LokiEntry) -> JobKey | None:
    """Return the job of an entry; None for an entry without a valid one."""
    job_id = entry.metadata.get("job_id", "")
    return JobKey(job_id, entry.labels.get("cluster", "")) if is_job_id(job_id) else None


def capture_id(entry: LokiEntry) -> CaptureId:
    metadata, labels = entry.metadata, entry.labels
    return CaptureId(
        labels.get("cluster", ""),
        metadata.get("job_id", ""),
        _whole(metadata.get("attempt", ""), 1),
        metadata.get("step", ""),
        _whole(metadata.get("task", ""), 0),
        labels.get("host", ""),
    )


def _whole(text: str, otherwise: int) -> int:
    return int(text) if _WHOLE.fullmatch(text) else otherwise


@dataclass
class EventAccount(CaptureFacts):
    """One capture, as its events report it; times are ns since 1970."""

    lines: int = 0
    records: int = 0
    bytes_printed: int = 0
    bytes_logged: int = 0
    first_ns: int = MAX_TIME_NS  # of its first event
    start_at_ns: int = MAX_TIME_NS  # of the first event that reports its start
    closed: bool = False  # its account is final
    closed_seen_ns: int = 0  # time of the end's arrival, for followers of the job
    counts_rank: tuple[int, int] = (-1, 0)  # rank and time of the event that its counts are from
    mode_ns: int = -1  # of the event that set its mode
    beats_ns: list[int] = field(default_factory=list)  # of its newest heartbeats, in order
    lost_ns: int = 0  # of the last event about a late heartbeat

    def take(self, event: job.Json, time_ns: int) -> None:
        """Takes an event of the capture, of the agent's making or its own."""
        name = event.get("event")
        if name in job.HISTORY:
            self.note_change(time_ns)
        if name == job.HEARTBEAT_LOST:
            self.lost_ns = max(self.lost_ns, time_ns)
        # events after the capture's last sign of life
        behind_ns = (
            1 if name == job.CLOSED else job.UNRESPONSIVE_NS if name == job.HEARTBEAT_LOST else 0
        )
        self.heartbeat_ns = max(self.heartbeat_ns, time_ns - behind_ns)
        self.first_ns = min(self.first_ns, time_ns)
        if name in (job.STARTED, job.STILL_RUNNING) and time_ns < self.start_at_ns:
            self._take_start(event, time_ns)
        elif self.start_at_ns == MAX_TIME_NS:
            self.started_ns = self.first_ns
        if name == "mode_changed" or name in job.MARKS:
            mode = event.get("to" if name == "mode_changed" else "mode")
            if isinstance(mode, str) and mode in MODES and time_ns >= self.mode_ns:
                self.mode, self.mode_ns = mode, time_ns
        if name == job.HEARTBEAT and time_ns not in self.beats_ns:
            self.beats_ns = sorted([*self.beats_ns, time_ns])[-BEATS:]
        if name in (job.HEARTBEAT, job.ENDED, job.CLOSED):
            rank = (_RANKS[name], time_ns)
            if rank >= self.counts_rank:
                self.counts_rank = rank
                for count in ("lines", "records", "bytes_printed", "bytes_logged"):
                    setattr(self, count, _count(event, count))
                ledger = event.get("ledger")
                self.ledger = clean_ledger(ledger) if isinstance(ledger, dict) and ledger else {}
                if name != job.HEARTBEAT:
                    self._take_end(event, time_ns)
            self.closed = self.closed or name == job.CLOSED

    def _take_start(self, event: job.Json, time_ns: int) -> None:
        self.start_at_ns = time_ns
        self.name, self.user = _text(event, "name"), _text(event, "user") or self.user
        self.host = _text(event, "host") or self.host
        self.account, self.partition = _text(event, "account"), _text(event, "partition")
        self.columns, self.rows = _count(event, "columns"), _count(event, "rows")
        self.tty = event.get("tty") is not False
        self.nodes = min(_count(event, "nodes"), job.MAX_NODES)
        self.limit_secs = job.limit_secs_of(event)
        self.started_ns = min(_count(event, "started_ns") or time_ns, time_ns)

    def _take_end(self, event: job.Json, time_ns: int) -> None:
        state = event.get("state")
        self.state = state if isinstance(state, str) and state in job.END_STATES else "FAILED"
        self.exit_code, self.signal = _outcome(event)
        self.reason = _text(event, "reason")
        self.ended_ns = _end_of(event, time_ns)

    def lost(self) -> int:
        streams = (self.ledger.get(stream) for stream in ("stdout", "stderr"))
        return sum(stream["lost"] for stream in streams if stream is not None)

    def patience_ns(self) -> int:
        """The longest normal silence, by the interval of heartbeats in the agent's configuration."""
        longest_ns = max((after - before for before, after in pairwise(self.beats_ns)), default=0)
        return min(max(job.SHIPPED_UNRESPONSIVE_NS, _MISSED * longest_ns), MAX_PATIENCE_NS)

    def is_silent(self, now_ns: int) -> bool:
        """Return whether the silence is so long that only the heartbeats' interval can explain it."""
        return now_ns - self.heartbeat_ns > job.SHIPPED_UNRESPONSIVE_NS

    @property
    def is_lost(self) -> bool:
        """Whether the node's agent has reported a late heartbeat, and nothing has come since."""
        return self.lost_ns > self.heartbeat_ns

    def derived_state(self, now_ns: int) -> str:
        if self.state == job.RUNNING and self.is_lost:
            return job.UNRESPONSIVE
        return job.derived_state(self.state, self.heartbeat_ns, now_ns, self.patience_ns())

    def may_print(self, now_ns: int) -> bool:
        """Return whether more lines may come: other streams may lag a little behind the events."""
        if self.closed:
            return now_ns - max(self.heartbeat_ns, self.closed_seen_ns) < SETTLE_NS
        if self.ended_ns is None:
            return True
        return now_ns - max(self.ended_ns, self.heartbeat_ns) < LATE_SECS * 10**9


@dataclass
class CaptureOfLoki:
    key: CaptureId
    account: EventAccount

    @property
    def attempt(self) -> int:
        return self.key.attempt


class CaptureEvent(NamedTuple):
    """An event of a capture's own: mode changes, lost lines and the like."""

    time_ns: int
    key: CaptureId
    line: str


class SlurmEnd(NamedTuple):
    """Slurm's end of a run of a job (event JOB_ENDED). The greatest of several counts."""

    certainty: int  # 0: no state, 1: only that the job is restarted, 2: the state
    time_ns: int  # of the event
    state: str  # "" where Slurm didn't report it
    exit_code: int | None
    signal: int
    ended_ns: int
    host: str  # of the agent that reported it
    nodes: int  # of the job, 0 if Slurm did not report it

    def over(self, account: EventAccount) -> EventAccount:
        """Return the account of a capture of that run: an open one ends as its job did."""
        if account.closed or account.ended_ns is not None or not self.state:
            return account
        return replace(account, state=self.state, ended_ns=self.ended_ns)

    def over_job(self, summary: job.JobSummary) -> job.JobSummary:
        """Return the summary of the job with this newest run; without Slurm's exit status, the
        node's stays."""
        summary = replace(summary, nodes=max(summary.nodes, self.nodes))
        if not self.state:
            return summary
        ended_ns = max(self.ended_ns, summary.ended_ns or 0)
        reason = summary.reason if self.state == summary.state else ""
        summary = replace(summary, state=self.state, ended_ns=ended_ns, reason=reason)
        if self.exit_code or self.signal or self.state in ("COMPLETED", "FAILED"):
            summary = replace(summary, exit_code=self.exit_code, signal=self.signal)
        return summary


class JobAccount:
    """One job by its events so far; repeated events do no harm.

    ends: Slurm's ends of its runs, by attempt.
    """

    def __init__(self, key: JobKey) -> None:
        self.key = key
        self.captures: dict[CaptureId, EventAccount] = {}
        self.ends: dict[int, SlurmEnd] = {}
        self._events: dict[CaptureEvent, job.Json] = {}
        self._event_counts: dict[CaptureId, int] = {}

    def take(self, entry: LokiEntry) -> None:
        """Apply an entry of the job; ignores other kinds than events."""
        if not 0 < entry.time_ns <= MAX_TIME_NS:
            return
        event = parse_event(entry.line)
        if event is None:
            return
        key = capture_id(entry)
        if event["event"] == job.JOB_ENDED:
            self._take_job_end(key, event, entry)
            return
        account = self.captures.get(key)
        if account is None:
            if len(self.captures) >= MAX_CAPTURES:
                return
            account = EventAccount(user=entry.metadata.get("user", ""), host=key.host)
            self.captures[key] = account
        account.take(event, entry.time_ns)
        if event["event"] not in job.MARKS:
            self._keep(CaptureEvent(entry.time_ns, key, entry.line), event)

    def _take_job_end(self, key: CaptureId, event: job.Json, entry: LokiEntry) -> None:
        slurm_state = event.get("state")
        state = (
            slurm_state if isinstance(slurm_state, str) and slurm_state in job.SLURM_STATES else ""
        )
        certainty = 0 if not state else 1 if state == "REQUEUED" else 2
        ended_ns = _end_of(event, entry.time_ns)
        nodes = min(_count(event, "nodes"), job.MAX_NODES)
        end = SlurmEnd(certainty, entry.time_ns, state, *_outcome(event), ended_ns, key.host, nodes)
        if key.attempt in self.ends or len(self.ends) < MAX_CAPTURES:
            self.ends[key.attempt] = max(
                end, self.ends.get(key.attempt, end), key=lambda slurm_end: slurm_end[:3]
            )
        self._keep(CaptureEvent(entry.time_ns, key, entry.line), event)

    def _keep(self, capture_event: CaptureEvent, event: job.Json) -> None:
        count = self._event_counts.get(capture_event.key, 0)
        # the last one says that there are more
        if capture_event not in self._events and count <= MAX_EVENTS:
            self._events[capture_event] = event
            self._event_counts[capture_event.key] = count + 1

    def numbered(self) -> list[CaptureOfLoki]:
        """The captures in the order of their numbers, which begin at 1: by start, then attempt,
        step and task."""
        captures = []
        for key, account in self.captures.items():
            end = self.ends.get(key.attempt)
            captures.append(CaptureOfLoki(key, account if end is None else end.over(account)))
        return sorted(captures, key=lambda capture: (capture.account.started_ns, capture.key))

    def events(self) -> Iterator[tuple[CaptureEvent, job.Json]]:
        """The captures' own events and how Slurm ended the job, in order of time."""
        for capture_event in sorted(self._events):
            yield capture_event, self._events[capture_event]

    def summary(self, now_ns: int) -> job.JobSummary | None:
        """None where no event reported it."""
        base = summarise(self.key.job_id, self.numbered())
        if base is None:
            return None
        state = base.state
        newest = max(key.attempt for key in self.captures)
        if state == job.RUNNING:
            current = [account for key, account in self.captures.items() if key.attempt == newest]
            patience_ns = max(account.patience_ns() for account in current)
            state = job.derived_state(state, base.heartbeat_ns, now_ns, patience_ns)
            if all(account.is_lost for account in current if account.state == job.RUNNING):
                state = job.UNRESPONSIVE
        heartbeat_ns = min(base.heartbeat_ns, now_ns)
        summary = replace(base, state=state, heartbeat_ns=heartbeat_ns, cluster=self.key.cluster)
        end = self.ends.get(newest)
        return summary if end is None else end.over_job(summary)

    def silent_captures(self, now_ns: int) -> list[CaptureId]:
        """Captures that may be running, but are silent."""
        return [
            key
            for key in self.open_captures()
            if key.attempt not in self.ends and self.captures[key].is_silent(now_ns)
        ]

    def open_captures(self) -> list[CaptureId]:
        """Captures that may be running, by their own events."""
        return [
            key
            for key, account in self.captures.items()
            if not account.closed and account.ended_ns is None
        ]


def as_capture(number: int, capture: CaptureOfLoki, now_ns: int) -> job.Capture:
    """The value that readers see."""
    account = capture.account
    return job.Capture(
        capture=number,
        attempt=capture.key.attempt,
        step=capture.key.step,
        task=capture.key.task,
        state=account.derived_state(now_ns),
        **{name: getattr(account, name) for name in _SHOWN},
    )


def parse_event(line: str) -> job.Json | None:
    """Parse an event with a name; None for other lines."""
    try:
        event: Any = json.loads(line)  # Any: JSON, checked here and field by field
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    # printing deep nesting might exhaust the stack
    return event if line.count("[") + line.count("{") <= MAX_NESTED else None


def _count(event: job.Json, name: str) -> int:
    value = event.get(name)
    return value if type(value) is int and 0 <= value <= MAX_TIME_NS else 0


def _end_of(event: job.Json, time_ns: int) -> int:
    """Return the time of a capture's end from an event of that time.

    An end long after the event is not credible: it would precede all newer events for years.
    """
    return min(_count(event, "ended_ns") or time_ns, time_ns + END_AHEAD_NS, MAX_TIME_NS)


def _outcome(event: job.Json) -> tuple[int | None, int]:
    code, signal = event.get("exit_code"), event.get("signal")
    exit_code = code if type(code) is int and 0 <= code <= 255 else None
    return exit_code, signal if type(signal) is int and 0 <= signal <= 127 else 0


def _text(event: job.Json, name: str) -> str:
    value = event.get(name)
    return value[:1024].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
