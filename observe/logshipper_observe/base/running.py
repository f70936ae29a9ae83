"""The frame of every reading command: sets up streams; gives a broken pipe and Ctrl-C the exit
codes that shells expect."""

import argparse
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logshipper.errors import LogshipperError, os_words
from logshipper.safe_text import safe_lines

Call = Callable[[argparse.Namespace], int]

# a shell's exit codes for programs that died of these, such as cat
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
EXIT_INTERRUPTED = 128 + signal.SIGINT
_AGAIN_SECS = 0.05


def guarded(call: Call) -> Call:
    """The command, with standard output set up before it and flushed after it."""

    def run(args: argparse.Namespace) -> int:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the caller
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  for good
        _set_up(sys.stdout)
        try:
            with _interruptible_everywhere():
                code = call(args)
            sys.stdout.flush()
        except BrokenPipeError:
            _abandon_stdout()
            return EXIT_BROKEN_PIPE
        except KeyboardInterrupt:
            sys.stderr.write("\n" if sys.stderr.isatty() else "")
            return EXIT_INTERRUPTED
        except OSError as error:
            _abandon_stdout()
            where = error.filename if isinstance(error.filename, str) else "standard output"
            raise LogshipperError(f"{where}: {os_words(error)}") from None
        return code

    return run


def say(text: str) -> None:
    """A sentence on stderr, marked as this program's own."""
    sys.stdout.flush()
    sys.stderr.write(safe_lines(f"logshipper: {text}\n"))
    sys.stderr.flush()


@contextmanager
def _interruptible_everywhere() -> Iterator[None]:
    """Keep a Ctrl-C that falls into a finalizer, of which imports have many: Python reports
    KeyboardInterrupt there and continues."""
    usual = sys.unraisablehook
    timers: list[threading.Timer] = []

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            usual(unraisable)
            return
        again = threading.Timer(_AGAIN_SECS, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        timers.append(again)
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
        pending = [timer for timer in timers if timer.is_alive()]
        for timer in pending:
            timer.cancel()
    if pending:
        raise KeyboardInterrupt


def _set_up(stdout: object) -> None:
    """Set UTF-8 for programs in any locale; a terminal gets the characters that it can show."""
    if not isinstance(stdout, io.TextIOWrapper):
        return
    if stdout.isatty():
        stdout.reconfigure(errors="replace")
    else:
        stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def _abandon_stdout() -> None:
    """Drop the buffered output, so that the interpreter does not complain at its end."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass
