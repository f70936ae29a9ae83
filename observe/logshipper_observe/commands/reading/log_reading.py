"""Selects the lines of a job's log to print: the present ones, or each as it comes."""

import argparse
import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from logshipper.classify.repeat_note import printed_line
from logshipper.errors import QueryError, StoreError, UsageError
from logshipper.safe_text import safe
from logshipper.spool.segment import Kind, Stream
from logshipper_observe.base.running import say
from logshipper_observe.base.words import exit_words, uncoloured
from logshipper_observe.follow.follow_keys import LEAVE, NEXT, Keys
from logshipper_observe.follow.follow_nodes import Nodes, NodeView
from logshipper_observe.follow.log_place import LogPlace
from logshipper_observe.follow.log_writers import Writer
from logshipper_observe.query.opening import check_attempt, ingest

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary, LogLine, Position
    from logshipper_ingest.model.stores import JobStore, Reader


Answer = TypeVar("Answer")
STREAMS = {
    "stdout": (Stream.STDOUT,),
    "stderr": (Stream.STDERR,),
    "both": (Stream.STDOUT, Stream.STDERR),
}
PATIENCE_SECS = 600.0  # a follower's wait for a server that does not answer
_RETRY_SECS = 5.0
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
            has = ", ".join(map(str, sorted(tasks)[:20])) + (", ..." if len(tasks) > 20 else "")
            raise StoreError(
                "--task", f"the job has no task {unknown_tasks[0]}; it has {has or 'none'}"
            )

    def print(self, reader: "Reader", writer: "Writer") -> None:
        """Writes the lines that are new since the last call; the first one keeps to --tail."""
        self.summary = reader.summary
        self._captures = {
            capture.capture for capture in reader.captures if capture.task in self._tasks
        }
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
        since_ns = 0 if self._begun_at is None else self._begun_at.begin_ns
        after = self._after
        lines = reader.lines(
            streams=self.streams,
            attempt=self.attempt,
            kinds=_KINDS,
            after=after,
            tail=tail,
            since_ns=since_ns,
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


class Follower:
    """Prints new lines until the job ends, or its follower leaves."""

    def __init__(
        self,
        store: "JobStore",
        job_id: str,
        lines: LineSelection,
        writer: "Writer",
        outage: "Outage",
        keys: Keys,
        *,
        announce: bool,
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._lines = lines
        self._writer = writer
        self._outage = outage
        self._keys = keys
        self._problems: set[str] = set()  # that were reported
        self._unresponsive = False
        self._state = ""  # last reported
        self._announces_changes = announce

    def follow(self, secs: float | None) -> "tuple[JobSummary, bool]":
        """Follow the job; return its last summary, and whether it has ended. secs: time limit, None
        for no limit."""
        until = None if secs is None else time.monotonic() + secs
        if self._lines.summary is not None:
            self._say_what_is_followed(self._lines.summary)
            self._state = _told_state(self._lines.summary)
        if self._keys.fd is not None:
            self._outage.poll.register(self._keys.fd, select.POLLIN)
        while True:
            for problem in ingest(self._store, job_id=self._job_id):
                if problem not in self._problems:
                    self._problems.add(problem)
                    self._say(problem)
            summary, is_over, status = self._outage.through(self._look)
            if is_over:
                self._write(self._lines.view.show_all())  # its log stays complete
                self._writer.clear()
                if self._announces_changes:
                    say_ended(summary)
                return summary, True
            if (summary.state == "UNRESPONSIVE") != self._unresponsive:
                self._unresponsive = not self._unresponsive
                self._say(
                    "the job gives no sign of life" if self._unresponsive else "the job is back"
                )
            if _told_state(summary) != self._state:
                self._state = _told_state(summary)
                self._say_changes([f"{summary.name} ({summary.job_id}): {self._state}"])
            bars = {stream: bar for stream, bar in status.items() if stream in self._lines.streams}
            self._writer.show_status(bars)
            remaining_secs = self._store.poll_secs if until is None else until - time.monotonic()
            if remaining_secs <= 0:
                self._writer.clear()
                return summary, False
            _pause(self._outage.poll, min(remaining_secs, self._store.poll_secs))
            if self._is_left():
                return summary, False

    def _look(self) -> "tuple[JobSummary, bool, dict[Stream, tuple[int, str]]]":
        # its state is older than the lines read next: none is missed at the end
        with self._store.open(self._job_id) as reader:
            changes = self._lines.nodes.learn(reader.captures)
            self._say_changes(changes.began)
            self._write(self._lines.view.show_all_if_renamed())
            self._lines.print(reader, self._writer)
            self._say_changes(changes.ended)
            return reader.summary, reader.is_over, reader.status()

    def _say_changes(self, changes: list[str]) -> None:
        if self._announces_changes:
            for change in changes:
                self._say(change)

    def _is_left(self) -> bool:
        """Act on pressed keys; return whether one of them leaves."""
        for key in self._keys.pressed():
            if key == LEAVE:
                self._writer.clear()
                return True
            self._writer.clear()
            sentences, lines = self._lines.view.turn(1 if key == NEXT else -1)
            for words in sentences:
                self._say(words)
            self._write(lines)
        return False

    def _write(self, lines: "list[LogLine]") -> None:
        for line in lines:
            self._lines.show(line, self._writer)
        self._writer.flush()

    def _say_what_is_followed(self, job: "JobSummary") -> None:
        """Print the job, its state, the selection, and the keys."""
        if not self._announces_changes:
            return
        streams = " and ".join(stream.name.lower() for stream in self._lines.streams)
        nodes = [self._lines.nodes.title(label) for label in self._lines.nodes.labels]
        keys = " ESC leaves" if self._keys.fd is not None else ""
        if self._keys.fd is not None and nodes:
            keys = " + and - switch node, ESC leaves"
        of = f" of {', '.join(nodes[:8])}{', ...' if len(nodes) > 8 else ''}" if nodes else ""
        self._say(
            f"following {safe(job.name)} ({job.job_id}), {job.state}: {streams}{of};{keys or ' Ctrl-C leaves'}"
        )

    def _say(self, words: str) -> None:
        self._writer.clear()
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
        self._began: float | None = None

    def through(self, ask: Callable[[], Answer]) -> Answer:
        """Return the result of ask; repeats the call while the server does not answer."""
        while True:
            try:
                answer = ask()
            except QueryError as error:
                if not self._patient:
                    raise
                self._go_on(error)
                _pause(self.poll, _RETRY_SECS)
                continue
            self._end()
            return answer

    def _go_on(self, error: QueryError) -> None:
        """Raises the error where waiting is of no use, or has been so for long."""
        if error.status not in (0, 429) and error.status < 500:
            raise error
        if self._began is None:
            self._began = time.monotonic()
            self._writer.clear()
            say(f"{error}; trying again for {PATIENCE_SECS / 60:.0f} minutes")
        elif time.monotonic() - self._began > PATIENCE_SECS:
            raise error

    def _end(self) -> None:
        if self._began is not None:
            self._began = None
            self._writer.clear()
            say("it answers again")


def _pause(poll: "select.poll", secs: float) -> None:
    """Waits; a key that is pressed ends it."""
    if any(not event & select.POLLIN for _, event in poll.poll(secs * 1000)):
        raise BrokenPipeError  # the reader has gone: found before the job prints next


def stdout_poll() -> "select.poll":
    """Return a poll that reports only the loss of stdout's reader."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        pass  # no descriptor: poll is then but a pause
    return poll


def say_ended(job: "JobSummary") -> None:
    outcome = exit_words(job.exit_code, job.signal)
    say(
        f"{safe(job.name)} ({job.job_id}) has ended: {job.state}{', ' + outcome if outcome else ''}"
    )
