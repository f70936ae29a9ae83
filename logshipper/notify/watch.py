"""Watches a job in its sidecar, and starts a sender for each message. Its clock is the caller's."""

import json
import os
import time
from collections import deque

from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.errors import os_words
from logshipper.named_tuple import NamedTuple
from logshipper.notify import orders
from logshipper.safe_text import safe
from logshipper.spool.segment import Json, Kind, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from subprocess import Popen
    from typing import Concatenate, ParamSpec

    from logshipper.config import Notify

    P = ParamSpec("P")

HOUR_SECS = 3600.0
HOLD_SECS = 5.0  # below the relay's patience with a sidecar
LONGEST_LEAD_SECS = 3600.0  # before the time limit, else a tenth of it
ASK_AFTER_SECS = 30.0  # shorter jobs never ask Slurm
MAX_RECORDS, MAX_RECORD_BYTES, MAX_VALUES, MAX_KEY_CHARS = 32, 8 << 10, 20, 64
MAX_LOOKS = 8  # at the words of gaps in lines that are written at once
MAX_LINES, MAX_LINES_BYTES, MAX_LINE_CHARS = 10, 4 << 10, 300
_MAX_ANSWER_BYTES = 64 << 10
_POLL_SECS = 0.02
_NEVER = float("inf")


class WatchedJob(NamedTuple):
    """The facts about a job that messages have, and that decide about them."""

    job_id: str
    name: str
    host: str
    started_at: float  # Unix time
    cwd: str | None = None  # for commands
    in_user_spool: bool = True  # else it has a page in Grafana
    ends_at: float = 0.0  # Unix time of the time limit; 0: unknown
    slurm_id: str = ""  # asks Slurm for the present limit; "" for none
    is_checked: bool = False  # the targets
    hold_secs: float = 0.0  # for which the job's end waits: its scheduler then kills the senders


def _safe(
    method: "Callable[Concatenate[Watch, P], list[Json]]",
) -> "Callable[Concatenate[Watch, P], list[Json]]":
    """Let an error end the watch, with an event."""

    def call(self: "Watch", /, *args: "P.args", **kwargs: "P.kwargs") -> list[Json]:
        try:
            return [] if self._is_over else method(self, *args, **kwargs)
        except Exception as error:
            self._is_over = True
            reason = f"{type(error).__name__}: {error}"
            message = f"logshipper sends no further messages, because of an error: {reason}"
            return [{"event": "notification_failed", "message": message, "reason": reason}]

    return call


class Watch:
    """The state behind messages. Its methods return new events. An error of its own ends it, and
    costs the log nothing."""

    def __init__(self, notify: "Notify", job: WatchedJob, now: float) -> None:
        self._notify = notify
        self._job = job
        self._records: deque[bytes] = deque(maxlen=MAX_RECORDS)
        self._stderr = b""
        self._nan = ""  # the news of a record with NaN since the last tick
        self._received = -1
        self._heard_at = now
        self._is_silent = False
        self._limit = _TimeLimit(job, now)
        self._sent_at: dict[str, float] = {}
        self._held: dict[str, int] = {}
        self._senders: dict[str, Popen[bytes]] = {}  # at most one of each kind
        self._events: list[Json] = []
        self._is_over = False
        if not job.is_checked:
            self._start({"kind": orders.CHECK})

    @_safe
    def take(self, items: "Iterable[LoggedLines | LoggedEvent]") -> list[Json]:
        """Take lines and records in the order of writing, with their secrets masked."""
        for item in items:
            if isinstance(item, LoggedEvent):
                continue
            if item.kind is Kind.METADATA:
                self._take_records(item.text)
            elif item.stream is Stream.STDERR and item.kind in (Kind.LOG, Kind.NOTE):
                self._stderr = (self._stderr + item.text[-MAX_LINES_BYTES:])[-MAX_LINES_BYTES:]
        return []

    def _take_records(self, text: bytes) -> None:
        lines = text.rsplit(b"\n", MAX_RECORDS + 1)[-MAX_RECORDS - 1 : -1]
        self._records += [line for line in lines if len(line) <= MAX_RECORD_BYTES]
        if not self._nan:
            self._nan = _gaps_in(text)

    @_safe
    def tick(self, now: float, received: int, mode: str) -> list[Json]:
        """Start due messages. received: bytes of the job's output so far."""
        if received != self._received:
            self._received, self._heard_at, self._is_silent = received, now, False
        elif now >= self._heard_at + self._notify.silence and not self._is_silent:
            self._is_silent = True
            self._offer("silence", f"no output for {_span(now - self._heard_at)}", now, mode)
        if self._nan:
            self._offer("nan", self._nan, now, mode)
            self._nan = ""
        if "limit" in self._notify.on and (left := self._limit.tick(now)):
            self._offer("limit", f"{_span(left)} left until the time limit", now, mode)
        return self._collect()

    @_safe
    def end(
        self, state: str, exit_code: int | None, reason: str, now: float, mode: str
    ) -> list[Json]:
        """Start the message about the job's end, after that about its last records."""
        if self._nan:
            self._offer("nan", self._nan, now, mode)
        words = state + (f", exit code {exit_code}" if exit_code is not None else "")
        is_failure = state != "COMPLETED" and "failure" in self._notify.on
        self._offer("failure" if is_failure else "end", words, now, mode, reason, state)
        return self._collect()

    @_safe
    def hold(self) -> list[Json]:
        """Wait for the senders as long as the job's end may wait."""
        self._wait(self._job.hold_secs)
        return self._collect()

    @_safe
    def finish(self) -> list[Json]:
        """Wait for the senders, and kill those that hang."""
        self._wait(orders.SEND_SECS + 2)
        for sender in self._senders.values():
            orders.kill(sender)
        for kind in [*self._held]:
            self._report_held(kind)
        return self._collect()

    def _wait(self, secs: float) -> None:
        until = time.monotonic() + secs
        while self._senders and time.monotonic() < until:
            self._events = self._collect()
            time.sleep(_POLL_SECS)

    # ---- messages

    def _offer(
        self, kind: str, news: str, now: float, mode: str, reason: str = "", state: str = "RUNNING"
    ) -> None:
        if kind not in self._notify.on:
            return
        if now < self._sent_at.get(kind, -_NEVER) + HOUR_SECS:
            self._held[kind] = self._held.get(kind, 0) + 1
            return
        self._sent_at[kind] = now
        self._report_held(kind)
        job = self._job
        facts = [
            f"job: {job.name + ', ' if job.name else ''}{job.job_id}, on {job.host}",
            f"state: {state}, after {_span(time.time() - job.started_at)}",
            f"reason: {reason or news}",
        ]
        if mode != "disabled" and (values := self._last_values()):
            facts.append(f"last values: {values}")
        if job.in_user_spool:
            facts.append(f"show it: logshipper show {job.job_id}")
        if mode == "enabled" and (lines := self._last_lines()):
            facts += ["", "last lines of standard error:", *lines]
        self._start(
            {
                "kind": kind,
                "job_id": job.job_id,
                "title": safe(f"{job.name or 'job'} ({job.job_id}): {news}"),
                "body": "\n".join(map(safe, facts)),
                "brief": "\n".join(map(safe, facts[:3])),
                "begin_ms": 0 if job.in_user_spool else int(job.started_at * 1000) - 60_000,
            }
        )

    def _start(self, order: Json) -> None:
        kind = order["kind"]
        try:
            sender = orders.start({**order, "targets": self._notify.to, "cwd": self._job.cwd})
        except OSError as error:
            self._report_fault(kind, {"target": "all targets", "reason": os_words(error)})
            return
        os.set_blocking(sender.stdout.fileno(), False)  # type: ignore[union-attr]  # a pipe
        self._senders[kind] = sender

    def _collect(self) -> list[Json]:
        """Return new events, also those of senders that have ended."""
        for kind, sender in [*self._senders.items()]:
            if (code := sender.poll()) is None:
                continue
            del self._senders[kind]
            with sender:
                output = (sender.stdout and sender.stdout.read(_MAX_ANSWER_BYTES)) or b""
            for fault in orders.faults(output, code):
                if "held" in fault:
                    self._held[kind] = self._held.get(kind, 0) + 1
                else:
                    self._report_fault(kind, fault)
        events, self._events = self._events, []
        return events

    def _report_fault(self, kind: str, fault: Json) -> None:
        what = "messages cannot reach" if kind == orders.CHECK else f"no message `{kind}` to"
        message = f"{what} {fault['target']}: {fault['reason']}"
        event = {"event": "notification_failed", "message": message, "kind": kind, **fault}
        self._events.append(event)

    def _report_held(self, kind: str) -> None:
        if count := self._held.pop(kind, 0):
            message = f"{count} messages `{kind}` held back: one an hour is the limit"
            event = {"event": "notifications_held_back", "message": message}
            self._events.append({**event, "kind": kind, "count": count})

    def _last_values(self) -> str:
        values: dict[str, float] = {}
        for line in self._records:
            values.update(_numbers(line))
        return ", ".join(f"{key} {value:.6g}" for key, value in [*values.items()][-MAX_VALUES:])

    def _last_lines(self) -> list[str]:
        from logshipper.render.colours import stripped

        lines = stripped(self._stderr).decode("utf-8", "replace").splitlines()[-MAX_LINES:]
        return [f"  {line[:MAX_LINE_CHARS]}" for line in lines]


class _TimeLimit:
    """The job's time limit: given, or asked from Slurm, again when it is about to end."""

    def __init__(self, job: WatchedJob, now: float) -> None:
        self._slurm_id = job.slurm_id
        self._began = now
        self._ask: Popen[bytes] | None = None
        self._given = now + job.ends_at - time.time() if job.ends_at else _NEVER
        self._set_end(self._given)
        if job.slurm_id:
            self._due = now + ASK_AFTER_SECS

    def _set_end(self, end: float) -> None:
        self._end = end
        self._due = end - min(LONGEST_LEAD_SECS, (end - self._began) / 10)

    def tick(self, now: float) -> float:
        """Return the seconds left once, when the limit is near; else 0."""
        if self._ask is not None and self._ask.poll() is not None:
            with self._ask as ask:
                ends_at = _unix_time((ask.stdout and ask.stdout.read(64)) or b"")
            self._ask = None
            self._set_end(now + ends_at - time.time() if ends_at else self._given)
        elif now >= self._due and self._slurm_id:
            self._due, self._ask = _NEVER, _ask_slurm(self._slurm_id)
            if self._ask is None:
                self._set_end(self._given)
        if now < self._due:
            return 0.0
        self._due = _NEVER
        return max(1.0, self._end - now)


def _ask_slurm(job_id: str) -> "Popen[bytes] | None":
    """Ask for the expected end of a job, its local time."""
    import subprocess

    command = ["timeout", "10", "squeue", "--noheader", "--format=%e", f"--jobs={job_id}"]
    null, environment = subprocess.DEVNULL, {**os.environ, "SLURM_TIME_FORMAT": "standard"}
    try:
        return subprocess.Popen(
            command, stdin=null, stdout=subprocess.PIPE, stderr=null, env=environment
        )
    except OSError:
        return None


def _unix_time(text: bytes) -> float:
    """Return the Unix time of an ISO time without zone; 0 for none."""
    try:
        return time.mktime(time.strptime(text.decode().strip(), "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return 0.0


def _numbers(line: bytes) -> list[tuple[str, float]]:
    """Return the numbers of a record by key, also NaN and infinities."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return []
    items = record.items() if isinstance(record, dict) else ()
    return [
        (key[:MAX_KEY_CHARS], value)
        for key, value in items
        if type(value) is float or (type(value) is int and abs(value) < 1 << 63)
    ]


def _gaps_in(records: bytes) -> str:
    """Return the news of the first NaN or infinity; "" for none."""
    for word in (b"NaN", b"Infinity"):
        at = -1
        for _ in range(MAX_LOOKS):  # the word may also be in a text
            if (at := records.find(word, at + 1)) < 0:
                break
            begin = records.rfind(b"\n", 0, at) + 1
            end = records.find(b"\n", at)
            if end - begin <= MAX_RECORD_BYTES:
                gaps = [key for key, value in _numbers(records[begin:end]) if value - value != 0]
                if gaps:
                    return f"NaN or an infinity in {', '.join(gaps[:3])}"
    return ""


def _span(secs: float) -> str:
    """Return a time in its two largest units."""
    minutes, hours = round(secs / 60), round(secs / 3600)
    if secs < 90:
        return f"{secs:.0f} s"
    return f"{minutes} minutes" if minutes < 120 else f"{hours} hours"
