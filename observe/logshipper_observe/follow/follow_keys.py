"""Reads the keys of a job's follower one by one, without Enter, if standard input is a terminal."""

import os
import re
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NEXT, BEFORE, LEAVE = "+", "-", "\x1b"
_KEYS = (NEXT, BEFORE, LEAVE)
# an arrow's, or a key's with Alt
_SEQUENCE = re.compile(rb"\x1b(?:[\[O][0-?]*[ -/]*[@-~]|[^\x1b])")
_SEQUENCE_SECS = 0.05  # within that the rest of an arrow key's sequence follows its ESC
_ENDING = (signal.SIGTERM, signal.SIGHUP)


class Keys:
    """fd: of the terminal; None without one, or while another program owns it."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd

    def pressed(self) -> list[str]:
        """Keys of meaning that were pressed since the last look."""
        keys: list[str] = []
        while self.fd is not None and select.select([self.fd], [], [], 0)[0]:
            try:
                typed = os.read(self.fd, 64)
            except OSError:
                typed = b""
            if not typed:
                self.fd = None  # the terminal has gone
            elif typed.endswith(b"\x1b") and select.select([self.fd], [], [], _SEQUENCE_SECS)[0]:
                typed += os.read(self.fd, 64)
            keys += [
                key for key in _SEQUENCE.sub(b"", typed).decode("ascii", "replace") if key in _KEYS
            ]
        return keys


@contextmanager
def read_keys(*, enabled: bool) -> Iterator[Keys]:
    """Give the keys of a terminal in whose foreground we are.

    Restores the terminal at the end, also after a signal, and sets it up again after a stop.
    """
    fd = _terminal() if enabled else None
    if fd is None:
        yield Keys(None)
        return
    before = termios.tcgetattr(fd)
    handlers: dict[int, Any] = {}  # Any: results of signal.signal

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def go_on(*_: object) -> None:
        if _terminal() is not None:
            tty.setcbreak(fd, termios.TCSADRAIN)

    try:
        for number in _ENDING:
            if signal.getsignal(number) == signal.SIG_DFL:
                handlers[number] = signal.signal(number, end)
        handlers[signal.SIGCONT] = signal.signal(signal.SIGCONT, go_on)
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)


def _terminal() -> int | None:
    """Return standard input if it is our terminal."""
    try:
        fd = sys.stdin.fileno()
        if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp():
            return fd
    except (AttributeError, OSError, ValueError):
        pass  # it is closed, or none
    return None
