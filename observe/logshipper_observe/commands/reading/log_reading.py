"""Selects the lines of a job's log to print: the present ones, or each as it comes."""

import argparse
import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from logshipper.classify.repeat_note import printed_line
from logshipper.errors import QueryError, StoreError, UsageError
from logshipper.safe_text import safe
from logshipper.spool.segment import Kind, Stream
from logshipper_observe.api.job_ends import RETRY_SECS, Silence
from logshipper_observe.base.running import say
from logshipper_observe.base.words import exit_words, listed, uncoloured
from logshipper_observe.follow.follow_keys import LEAVE, NEXT, Keys
from logshipper_observe.follow.follow_nodes import Nodes, NodeView
from logshipper_observe.follow.log_place import LogPlace
from logshipper_observe.follow.log_writers import Writer
from logshipper_observe.model.documents import STREAMS
from logshipper_observe.query.opening import check_attempt, ingest

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary, LogLine, Position
    from logshipper_ingest.model.stores import JobStore, Reader


Answer = TypeVar("Answer")
_KINDS = (Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE)


def pattern_of(text: str | None) -> "re.Pattern[str] | None":
    try:
        return None if text is None else re.compile(text)
    except (re.error, RecursionError) as error:
        raise UsageError("--grep", [f"{text!r} isn't a regular expression: {error}"]) from None


class LineSelection:
    """The selected lines, nodes, and progress."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.streams = STREAMS[args.stream]
        self.pattern = pattern_of(args.grep)
        self.attempt = None if args.attempt == "all" else int(args.attempt)
        self.place: LogPlace = args.after or LogPlace()
        self.nodes = Nodes()
        self.view = NodeView(self.nodes)
        self.summary: JobSummary | None = None
        self._tasks: frozenset[int] = frozenset(args.task or ())
        self._captures: set[int] = set()  # of the selected tasks
        self._begun_at = LogPlace.parse(str(self.place)) if args.after else None
        self._tail: int | None = args.tail
        self._after: Position | None = None
        self._follows: bool = args.follow

    def choose_task(self, task: int) -> None:
        """Only this task's lines, from now on."""
        self._tasks = frozenset({task})

    def check(self, reader: "Reader") -> None:
        """Raise StoreError for an unknown attempt or task of a job; a followed job may still get
        one."""
        check_attempt({capture.attempt for capture in reader.captures}, self.attempt)
        tasks = {capture.task for capture in reader.captures}
        unknown_tasks = sorted(self._tasks - tasks)
        if unknown_tasks and not (self._follows and not reader.is_over):
            has = listed(sorted(tasks), 20) or "none"
            raise StoreError("--task", f"the job has no task {unknown_tasks[0]}; it has {has}")

    def print(self, reader: "Reader", writer: "Writer") -> None:
        """Writes the lines that are new since the last call; the first one keeps to --tail."""
        self.summary = reader.summary
        self._captures = {c.capture for c in reader.captures if c.task in self._tasks}
        lines = self._read(reader)
        if self._tail is not None:
            try:
                lines = iter(deque(lines, maxlen=self._tail))
            except QueryError:
                self._after = None  # nothing printed yet
                raise
            self._tail = None
        for line in lines:
            if self.view.takes(line):
                self.show(line, writer)
        writer.flush()

    def show(self, line: "LogLine", writer: "Writer") -> None:
        writer.write(line, self.nodes.label(line.capture))
        if self._follows:
            self.place.note(line)

    def _read(self, reader: "Reader") -> Iterator["LogLine"]:
        # without omissions the store itself finds the tail; at least one line gives the place to
        # continue
        filtered = self.pattern is not None or self._tasks or self._begun_at is not None
        tail = None if self._tail is None or filtered else max(self._tail, 1)
        lines = reader.lines(
            streams=self.streams,
            attempt=self.attempt,
            kinds=_KINDS,
            after=self._after,
            tail=tail,
            since_ns=0 if self._begun_at is None else self._begun_at.begin_ns,
        )
        for line in lines:
            self._after = line.position
            if self._tasks and line.capture not in self._captures:
                continue
            if self._begun_at is not None and self._begun_at.is_printed(line):
                continue
            if self.pattern is None or self.pattern.search(
                printed_line(uncoloured(line.text), line.attrs)
            ):
                yield line


@dataclass
class Follower:
    """Prints new lines until the job ends, or its follower leaves."""

    store: "JobStore"
    job_id: str
    lines: LineSelection
    writer: "Writer"
    outage: "Outage"
    keys: Keys
    announces_changes: bool
    _problems: set[str] = field(default_factory=set)  # that were reported
    _unresponsive: bool = False
    _state: str = ""  # last reported

    def follow(self, secs: float | None) -> "tuple[JobSummary, bool]":
        """Follow the job; return its last summary, and whether it has ended. secs: time limit, None
        for no limit."""
        until = None if secs is None else time.monotonic() + secs
        if self.lines.summary is not None:
            self._say_what_is_followed(self.lines.summary)
            self._state = _told_state(self.lines.summary)
        if self.keys.fd is not None:
            self.outage.poll.register(self.keys.fd, select.POLLIN)
        while True:
            for problem in ingest(self.store, job_id=self.job_id):
                if problem not in self._problems:
                    self._problems.add(problem)
                    self._say(problem)
            summary, is_over, status = self.outage.through(self._look)
            if is_over:
                self._write(self.lines.view.show_all())  # its log stays complete
                self.writer.clear()
                if self.announces_changes:
                    say_ended(summary)
                return summary, True
            if (summary.state == "UNRESPONSIVE") != self._unresponsive:
                self._unresponsive = not self._unresponsive
                sign = "gives no sign of life" if self._unresponsive else "is back"
                self._say(f"the job {sign}")
            if _told_state(summary) != self._state:
                self._state = _told_state(summary)
                self._say_changes([f"{summary.name} ({summary.job_id}): {self._state}"])
            bars = {stream: bar for stream, bar in status.items() if stream in self.lines.streams}
            self.writer.show_status(bars)
            remaining_secs = self.store.poll_secs if until is None else until - time.monotonic()
            if remaining_secs <= 0:
                self.writer.clear()
                return summary, False
            _pause(self.outage.poll, min(remaining_secs, self.store.poll_secs))
            if self._is_left():
                return summary, False

    def _look(self) -> "tuple[JobSummary, bool, dict[Stream, tuple[int, str]]]":
        # its state is older than the lines read next: none is missed at the end
        with self.store.open(self.job_id) as reader:
            changes = self.lines.nodes.learn(reader.captures)
            self._say_changes(changes.began)
            self._write(self.lines.view.show_all_if_renamed())
            self.lines.print(reader, self.writer)
            self._say_changes(changes.ended)
            return reader.summary, reader.is_over, reader.status()

    def _say_changes(self, changes: list[str]) -> None:
        if self.announces_changes:
            for change in changes:
                self._say(change)

    def _is_left(self) -> bool:
        """Act on pressed keys; return whether one of them leaves."""
        for key in self.keys.pressed():
            self.writer.clear()
            if key == LEAVE:
                return True
            sentences, lines = self.lines.view.turn(1 if key == NEXT else -1)
            for words in sentences:
                self._say(words)
            self._write(lines)
        return False

    def _write(self, lines: "list[LogLine]") -> None:
        for line in lines:
            self.lines.show(line, self.writer)
        self.writer.flush()

    def _say_what_is_followed(self, job: "JobSummary") -> None:
        if not self.announces_changes:
            return
        streams = " and ".join(stream.name.lower() for stream in self.lines.streams)
        nodes = [self.lines.nodes.title(label) for label in self.lines.nodes.labels]
        keys = "Ctrl-C leaves"
        if self.keys.fd is not None:
            keys = "+ and - switch node, ESC leaves" if nodes else "ESC leaves"
        of = f" of {listed(nodes)}" if nodes else ""
        self._say(f"following {safe(job.name)} ({job.job_id}), {job.state}: {streams}{of}; {keys}")

    def _say(self, words: str) -> None:
        self.writer.clear()
        say(safe(words))


def _told_state(job: "JobSummary") -> str:
    """Return the state in words; silence has its own."""
    return "RUNNING" if job.state == "UNRESPONSIVE" else job.state


class Outage:
    """A server that does not answer for a while: a patient follower reports it once, and waits."""

    def __init__(self, writer: "Writer", poll: "select.poll", *, patient: bool) -> None:
        self.poll = poll
        self._writer = writer
        self._patient = patient
        self._silence = Silence(self._say)

    def through(self, ask: Callable[[], Answer]) -> Answer:
        """Return the result of ask; repeats the call while the server does not answer."""
        while True:
            try:
                answer = ask()
            except QueryError as error:
                if not self._patient:
                    raise
                self._silence.bear(error)
                _pause(self.poll, RETRY_SECS)
                continue
            if self._silence.end():
                self._say("it answers again")
            return answer

    def _say(self, words: str) -> None:
        self._writer.clear()
        say(words)


def _pause(poll: "select.poll", secs: float) -> None:
    """Waits; a key that is pressed ends it."""
    if any(not event & select.POLLIN for _, event in poll.poll(secs * 1000)):
        raise BrokenPipeError  # the reader has gone: found before the job prints next


def stdout_poll() -> "select.poll":
    """Return a poll that reports only the loss of stdout's reader."""
    poll = select.poll()
    with suppress(OSError, ValueError):  # no descriptor: poll is then but a pause
        poll.register(sys.stdout.fileno(), 0)
    return poll


def say_ended(job: "JobSummary") -> None:
    words = ", ".join(filter(None, (job.state, exit_words(job.exit_code, job.signal))))
    say(f"{safe(job.name)} ({job.job_id}) has ended: {words}")
