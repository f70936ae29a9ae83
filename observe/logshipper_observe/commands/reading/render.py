"""`logshipper render [FILE]`: renders raw output as a terminal would, by the lines that `run` logs
or by its screen.

A file has no times, so all of it counts as one moment. The command reads a pipe or terminal live,
as `run` reads a command's output.
"""

import argparse
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.errors import LogshipperError, os_words
from logshipper.process.terminal import BATCH_COLUMNS, BATCH_ROWS
from logshipper.render.cursor import MAX_COLUMNS, MAX_ROWS
from logshipper.render.last_screen import LastScreen
from logshipper.render.renderer import FIRST_SECS
from logshipper.safe_text import safe
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.console.progress_bar import Bar
from logshipper_observe.base.output import Output
from logshipper_observe.base.running import say
from logshipper_observe.base.words import is_further_part, safe_coloured, size
from logshipper_observe.commands.options import add_flag, describe, within

_READ_BYTES = 256 << 10
STEP_BYTES = 256 << 10  # per step: the output may be many times as large
_BAR_BYTES = 4_000_000  # a smaller file is done before a bar would be drawn
_STDIN = "standard input"
MOMENT = 0.0
_FIXES = {
    FileNotFoundError: "check the name; `logshipper logs JOB` prints the log of a stored job",
    IsADirectoryError: "name a file in it",
    PermissionError: "ask its owner, or pipe it in: `sudo cat FILE | logshipper render`",
}
_RESET = "\x1b[0m"
_DIM = "\x1b[2m"


class _Sink:
    """Receives the bytes. now: seconds of a monotonic clock."""

    def feed(self, data: bytes, now: float) -> None:
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """Handle time."""

    def next_tick(self) -> float | None:
        """Return the time of the next tick without more bytes; None for never."""
        return None

    def end(self, now: float) -> None:
        raise NotImplementedError


columns_number, rows_number = within(2, MAX_COLUMNS), within(1, MAX_ROWS)


def screen_size(text: str) -> tuple[int, int]:
    """Columns and rows of `80x25`."""
    columns, by, rows = text.partition("x")
    if not by:
        raise argparse.ArgumentTypeError(
            f"{text!r} isn't a size; it looks like 80x25, columns and rows"
        )
    return columns_number(columns), rows_number(rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    describe(
        parser,
        "Prints the lines that `logshipper run` would log of a command that prints FILE: a\n"
        "typescript of script(1), a Slurm output file, anything with control characters.\n"
        "Of a progress bar the last state, repeats counted, /LOGCOMMAND lines obeyed.\n"
        "Standard input is rendered live.",
        "examples:\n"
        "  logshipper render slurm-4711.out | less\n"
        "  logshipper render --colors keep slurm-4711.out | less -R\n"
        "  tail -f slurm-4711.out | logshipper render\n"
        "  logshipper render --columns 80 --rows 24 typescript > session.txt\n"
        "  logshipper render --screen 80x25 typescript     the last screen",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="`-`, and the default, is standard input"
    )
    parser.add_argument(
        "--columns",
        type=columns_number,
        metavar="N",
        help=f"the terminal's width (default: {BATCH_COLUMNS})",
    )
    parser.add_argument(
        "--rows",
        type=rows_number,
        metavar="N",
        help=f"the terminal's height (default: {BATCH_ROWS})",
    )
    parser.add_argument(
        "--stream-type",
        choices=("pty", "pipe"),
        default="pty",
        help="device of FILE's bytes; both are rendered alike (default: pty)",
    )
    add_flag(parser, "--no-collapse", help="print all repeated and blank lines")
    add_flag(parser, "--no-mask", help="print tokens, keys and other secrets as they are")
    parser.add_argument(
        "--colors",
        choices=("strip", "keep"),
        default="strip",
        help="as in ~/.logoptin (default: strip)",
    )
    parser.add_argument(
        "--screen",
        type=screen_size,
        metavar="COLUMNSxROWS",
        help="print the last screen of a terminal of that size",
    )
    parser.set_defaults(refuse=parser.error)


def call(args: argparse.Namespace) -> int:
    if args.screen and (args.columns or args.rows or args.no_collapse or args.colors == "keep"):
        args.refuse(
            "--screen has its own size, no repeats, no colours; not with --columns, --rows, --no-collapse or --colors"
        )
    with open_source(args.file) as source:
        sink: _Sink = _Screen(*args.screen) if args.screen else _Log(args)
        if source.is_file:
            _read_file(source, sink, Bar("Rendering", size) if _wants_bar(source, args) else None)
        else:
            _follow(source, sink)
    return 0


class Source:
    """The input. name: for people; is_file: a regular file; size: its remaining bytes."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        status = os.fstat(fd)
        self.is_file = stat.S_ISREG(status.st_mode)
        self.size = status.st_size - os.lseek(fd, 0, os.SEEK_CUR) if self.is_file else 0

    def read(self) -> bytes | None:
        """Return b"" at the end; None while there is nothing."""
        try:
            return os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _refusal(self.name, error) from None


@contextmanager
def open_source(name: str | None) -> Iterator[Source]:
    if name in (None, "-"):
        if sys.stdin is None:
            raise LogshipperError(f"{_STDIN}: it is closed; name a file")
        yield Source(0, _STDIN)
        return
    display_name = safe(str(name))
    try:
        fd = os.open(str(name), os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _refusal(display_name, error) from None
    try:
        yield Source(fd, display_name)
    finally:
        os.close(fd)


def _refusal(name: str, error: Exception) -> LogshipperError:
    fix = next((f"; {words}" for kind, words in _FIXES.items() if isinstance(error, kind)), "")
    return LogshipperError(f"{name}: {os_words(error)}{fix}")


def _wants_bar(source: Source, args: argparse.Namespace) -> bool:
    """Not where lines come on the same terminal meanwhile, be it from a pager."""
    if source.size < _BAR_BYTES:
        return False
    return bool(args.screen) or not (
        sys.stdout.isatty() or stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    )


def _read_file(source: Source, sink: _Sink, bar: Bar | None) -> None:
    done = 0
    try:
        while data := source.read():
            sink.feed(data, MOMENT)
            done += len(data)
            if bar is not None:
                bar(done, max(source.size, done))
    finally:
        if bar is not None:
            bar.clear()
    sink.end(MOMENT)


def _follow(source: Source, sink: _Sink) -> None:
    """Render input as it comes. Ctrl-C ends it as the end of the input does."""
    if os.isatty(source.fd) and sys.stderr.isatty():
        say("reading from the terminal; Ctrl-D ends it")
    poll = select.poll()
    poll.register(source.fd, select.POLLIN)
    if sys.stdout.fileno() != source.fd:
        poll.register(sys.stdout.fileno(), 0)  # reports only the loss of its reader
    while True:
        try:
            until = sink.next_tick()
            wait_secs = None if until is None else until - time.monotonic()
            ready = poll.poll(None if wait_secs is None else max(0, int(wait_secs * 1000) + 1))
        except KeyboardInterrupt:
            sink.end(time.monotonic())
            sys.stdout.flush()
            raise
        if any(fd != source.fd for fd, _ in ready):
            raise BrokenPipeError
        data = source.read() if ready else None
        if data == b"":
            break
        if data is None:
            sink.tick(time.monotonic())
        else:
            sink.feed(data, time.monotonic())
        sys.stdout.flush()
    sink.end(time.monotonic())


class _Log(_Sink):
    """The lines that `run` logs of a command's standard output, written as they become final."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._classifier = Classifier(
            "enabled",
            columns=args.columns or BATCH_COLUMNS,
            rows=args.rows or BATCH_ROWS,
            collapse=not args.no_collapse,
            keep_colours=args.colors == "keep",
            first_secs=FIRST_SECS,
            mask=not args.no_mask,
        )
        self._out = Output()
        self._open = False  # a line whose parts continue

    def feed(self, data: bytes, now: float) -> None:
        for at in range(0, len(data), STEP_BYTES):
            self._classifier.feed(Stream.STDOUT, data[at : at + STEP_BYTES], now)
            self._write()

    def tick(self, now: float) -> None:
        self._classifier.tick(now)
        self._write()

    def next_tick(self) -> float | None:
        return self._classifier.next_tick()

    def end(self, now: float) -> None:
        self._classifier.end(Stream.STDOUT, now)
        self._write()
        if self._open:
            self._put(b"\n")

    def _write(self) -> None:
        for item in self._classifier.take():
            if isinstance(item, LoggedLines) and item.kind is not Kind.STATUS:
                self._write_lines(item)

    def _write_lines(self, item: LoggedLines) -> None:
        part = str((item.attrs or {}).get("part", ""))
        if self._open and not is_further_part(part):
            self._put(b"\n")
        self._open = bool(part) and "/" not in part
        text = item.text[:-1] if self._open else item.text
        if self._out.colour and item.kind in (Kind.COMMAND, Kind.NOTE):
            text = b"%s%s%s\n" % (_DIM.encode(), text[:-1], _RESET.encode())
        self._put(text)

    def _put(self, text: bytes) -> None:
        """Write text; removes control characters that a terminal should not get, though the
        renderer leaves none."""
        if self._out.terminal:
            # in characters that it can show
            sys.stdout.write("\n".join(map(safe_coloured, text.decode().split("\n"))))
        else:
            sys.stdout.buffer.write(text)


class _Screen(_Sink):
    """The terminal's screen at the end."""

    def __init__(self, columns: int, rows: int) -> None:
        self._screen = LastScreen(columns, rows)

    def feed(self, data: bytes, now: float) -> None:
        self._screen.feed(data)

    def end(self, now: float) -> None:
        sys.stdout.write("".join(f"{safe(row)}\n" for row in self._screen.rows()))
