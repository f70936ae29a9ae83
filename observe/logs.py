"""`logshipper logs JOB`: what a job printed, as its terminal showed it; live while it runs."""

import argparse
import re
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import orjson

from logshipper.errors import LogshipperError, QueryError
from logshipper.segment import Kind, Stream
from observe.documents import line_document
from observe.opening import check_attempt, opened_job, take_in
from observe.output import Output, cells_wide
from observe.running import say
from observe.words import exit_words, is_further_part, local, plural, safe, safe_coloured, uncoloured

if TYPE_CHECKING:
    from ingest.job import JobSummary, LogLine, Position
    from ingest.stores import Reader, Store

Answer = TypeVar("Answer")

STREAMS = {"stdout": (Stream.STDOUT,), "stderr": (Stream.STDERR,), "both": (Stream.STDOUT, Stream.STDERR)}
PATIENCE_SECS = 600.0  # how long a follower waits for a server that doesn't answer
_RETRY_SECS = 5.0
_KINDS = (Kind.LOG, Kind.METADATA, Kind.COMMAND, Kind.NOTE)
_WRITE_CHARS = 1 << 16

_RESET = "\x1b[0m"
_DIM = "2"
_RED = "31"
_MATCH = "\x1b[1;7m"
_CLEAR_LINE = "\r\x1b[K"


def call(args: argparse.Namespace) -> int:
    pattern = _pattern(args.grep)
    attempt = None if args.attempt == "all" else int(args.attempt)
    lines = _Lines(args, pattern, attempt)
    writer = _JsonWriter() if args.json else _TextWriter(Output(args.color), times=args.times, pattern=pattern)
    outage = _Outage(writer, _stdout_poll(), patient=args.follow)
    with opened_job(args, outage.through) as (store, job_id):

        def look() -> "tuple[JobSummary, bool]":
            with store.open(job_id) as reader:
                check_attempt({capture.attempt for capture in reader.captures}, attempt)
                lines.print(reader, writer)
                return reader.summary, reader.is_over

        try:
            summary, is_over = outage.through(look)
            if args.follow and not is_over:
                summary = _follow(store, job_id, lines, writer, outage)
        except KeyboardInterrupt:
            writer.clear()
            raise
        if summary.lost and attempt is None:
            say(f"{plural(summary.lost, 'line')} of this job couldn't be logged: see `logshipper show`")
    return 0


def _pattern(text: str | None) -> "re.Pattern[str] | None":
    try:
        return None if text is None else re.compile(text)
    except (re.error, RecursionError) as error:
        raise LogshipperError(f"--grep: {text!r} isn't a regular expression: {error}") from None


class _Lines:
    """Which lines are asked for, and how far they have been printed."""

    def __init__(self, args: argparse.Namespace, pattern: "re.Pattern[str] | None", attempt: int | None) -> None:
        self.streams = STREAMS[args.stream]
        self._pattern = pattern
        self._attempt = attempt
        self._tail: int | None = args.tail
        self._after: Position | None = None

    def print(self, reader: "Reader", writer: "_Writer") -> None:
        """Writes the lines that are new since the last call; the first one keeps to --tail."""
        found = self._read(reader)
        if self._tail is not None:
            try:
                found = iter(deque(found, maxlen=self._tail))
            except QueryError:
                self._after = None  # nothing of it is printed yet
                raise
            self._tail = None
        for line in found:
            writer.write(line)
        writer.flush()

    def _read(self, reader: "Reader") -> Iterator["LogLine"]:
        # without a pattern the store itself finds the tail; at least one line tells where to go on from
        tail = None if self._tail is None or self._pattern is not None else max(self._tail, 1)
        after = self._after
        for line in reader.lines(streams=self.streams, attempt=self._attempt, kinds=_KINDS, after=after, tail=tail):
            self._after = line.position
            if self._pattern is None or self._pattern.search(uncoloured(line.text)):
                yield line


def _follow(store: "Store", job_id: str, lines: _Lines, writer: "_Writer", outage: "_Outage") -> "JobSummary":
    """Prints what comes, until the job has ended; returns how it did."""
    told: set[str] = set()

    def look() -> "tuple[JobSummary, bool, dict[Stream, tuple[int, str]]]":
        # its state is older than the lines read next: none is missed at the end
        with store.open(job_id) as reader:
            lines.print(reader, writer)
            return reader.summary, reader.is_over, reader.status()

    unresponsive = False
    while True:
        for problem in take_in(store, job_id=job_id):
            if problem not in told:
                told.add(problem)
                writer.clear()
                say(problem)
        summary, is_over, status = outage.through(look)
        if is_over:
            writer.clear()
            _say_ended(summary)
            return summary
        if (summary.state == "UNRESPONSIVE") != unresponsive:
            unresponsive = not unresponsive
            writer.clear()
            say("the job gives no sign of life" if unresponsive else "the job is back")
        writer.show_status({stream: shown for stream, shown in status.items() if stream in lines.streams})
        _pause(outage.poll, store.poll_secs)


class _Outage:
    """A server that doesn't answer for a while: it is said once, and waited for, by those who follow (patient)."""

    def __init__(self, writer: "_Writer", poll: "select.poll", *, patient: bool) -> None:
        self.poll = poll
        self._writer = writer
        self._patient = patient
        self._began: float | None = None

    def through(self, ask: Callable[[], Answer]) -> Answer:
        """What ask returns; called again while the server doesn't answer."""
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
    if poll.poll(secs * 1000):
        raise BrokenPipeError  # nobody reads any more: not only noticed when the job prints next


def _stdout_poll() -> "select.poll":
    """Reports only that the other end of stdout is gone."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        pass  # no descriptor: poll is then but a pause
    return poll


def _say_ended(job: "JobSummary") -> None:
    if sys.stderr.isatty():
        outcome = exit_words(job.exit_code, job.signal)
        say(f"{safe(job.name)} ({job.job_id}) has ended: {job.state}{', ' + outcome if outcome else ''}")


class _Writer:
    """Gathers text into few writes."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._chars = 0

    def write(self, line: "LogLine") -> None:
        raise NotImplementedError

    def show_status(self, status: dict[Stream, tuple[int, str]]) -> None:
        """Shows what a running bar shows now, where that can be done."""

    def flush(self) -> None:
        if self._held:
            sys.stdout.write("".join(self._held))
            self._held.clear()
            self._chars = 0
        sys.stdout.flush()

    def clear(self) -> None:
        """Flushes, and leaves the cursor at the beginning of an empty line."""
        self.flush()

    def _put(self, text: str) -> None:
        self._held.append(text)
        self._chars += len(text)
        if self._chars > _WRITE_CHARS:
            _Writer.flush(self)


class _JsonWriter(_Writer):
    """One JSON document a line."""

    def write(self, line: "LogLine") -> None:
        self._put(orjson.dumps(line_document(line), option=orjson.OPT_APPEND_NEWLINE).decode())


class _TextWriter(_Writer):
    """Text as it was, without its colours; on a terminal safe, with them, stderr in red, and what isn't the job's own
    text dimmed."""

    def __init__(self, out: Output, *, times: bool, pattern: "re.Pattern[str] | None") -> None:
        super().__init__()
        self._out = out
        self._times = times
        self._pattern = pattern if out.colour else None
        self._open: tuple[Stream, int] | None = None  # the line that isn't ended yet: a part may follow
        self._status = ""  # what the last line of the terminal shows now

    def write(self, line: "LogLine") -> None:
        self._clear_status()
        source = (line.stream, line.capture)
        if self._open == source and is_further_part(str(line.attrs.get("part", ""))):
            self._put(self._dressed(line))
            return
        self._end_line()
        stamp = f"{local(line.time_ns, millis=True)} " if self._times else ""
        self._put((f"\x1b[{_DIM}m{stamp}{_RESET}" if stamp and self._out.colour else stamp) + self._dressed(line))
        self._open = source

    def _dressed(self, line: "LogLine") -> str:
        if not self._out.colour:
            text = uncoloured(line.text)
            return safe(text) if self._out.terminal else text
        code = _DIM if line.kind in (Kind.COMMAND, Kind.NOTE) else _RED if line.stream is Stream.STDERR else ""
        if self._pattern is None:
            return safe_coloured(line.text, code)
        style = f"\x1b[{code}m" if code else ""
        text = self._pattern.sub(
            lambda found: f"{_MATCH}{found[0]}{_RESET}{style}" if found[0] else "", safe(uncoloured(line.text))
        )
        return f"{style}{text}{_RESET}" if style else text

    def _end_line(self) -> None:
        if self._open is not None:
            self._put("\n")
            self._open = None

    def flush(self) -> None:
        self._end_line()
        super().flush()

    def clear(self) -> None:
        self._clear_status()
        self.flush()

    def show_status(self, status: dict[Stream, tuple[int, str]]) -> None:
        text = safe("  ".join(text for _, (_, text) in sorted(status.items()) if text))
        if not self._out.ansi or text == self._status:
            return
        self._clear_status()
        fitted = self._fitted(text)
        self._status = text  # first: who is interrupted behind it clears it
        self._put(fitted)
        super().flush()

    def _fitted(self, text: str) -> str:
        """One row of the terminal, dimmed; a bar that wrapped couldn't be cleared any more."""
        columns = max(Output().columns - 1, 1)  # asked again: the terminal may have been resized
        if cells_wide(text) > columns:
            from rich.cells import set_cell_size

            text = set_cell_size(text, columns - 1) + "…"
        return f"\x1b[{_DIM}m{text}{_RESET}" if self._out.colour else text

    def _clear_status(self) -> None:
        if self._status:
            self._put(_CLEAR_LINE)
            self._status = ""
