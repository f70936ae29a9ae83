"""Keys that whoever follows a job presses, where standard input is a terminal: read one by one,
without Enter."""

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
    """fd: of the terminal; None where there is none, or it belongs to another program now."""

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
                self.fd = None  # the terminal is gone
            elif typed.endswith(b"\x1b") and select.select([self.fd], [], [], _SEQUENCE_SECS)[0]:
                typed += os.read(self.fd, 64)
            keys += [
                key for key in _SEQUENCE.sub(b"", typed).decode("ascii", "replace") if key in _KEYS
            ]
        return keys


@contextmanager
def read_keys(*, enabled: bool) -> Iterator[Keys]:
    """Keys of standard input, where it is a terminal in whose foreground we are. It is left as it
    was, also where a signal ends us, and set up again where we were stopped and go on."""
    fd = _terminal() if enabled else None
    if fd is None:
        yield Keys(None)
        return
    before = termios.tcgetattr(fd)
    handlers: dict[int, Any] = {}  # Any: what signal.signal returns

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
    """Standard input, where it is a terminal that is ours."""
    try:
        fd = sys.stdin.fileno()
        if os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp():
            return fd
    except (AttributeError, OSError, ValueError):
        pass  # it is closed, or none
    return None
