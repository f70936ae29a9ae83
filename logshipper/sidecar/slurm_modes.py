"""The modes of a job's captures on one node: separate captures of one job start no wider than the
narrowest of them.

The job's relays and sidecars share a table (deploy/slurm/spank/modes.h; docs/side-pipe.md, "What a
job's captures share"). A capture's relay counts the bytes read there, its sidecar the bytes obeyed.
Unobeyed bytes may hold a command that narrows. So the sidecar of a later capture waits for them
before it logs its first line. It waits only for captures with output from before its begin, so no
two wait for each other.
"""

import fcntl
import mmap
import os
import struct
import time
from typing import NamedTuple

from logshipper import config
from logshipper.classify.commands import narrowest
from logshipper.relay.side_pipe import unread_bytes

_MAGIC = b"LOGMOD\r\n"
_VERSION = 1
_WORD_BYTES, _SLOT_WORDS = 8, 8  # the head is as long as a slot
_ENDED = 3  # word of the head
# words of a slot; two of _TAKEN and of _OBEYED
_BEGUN, _TAKEN, _OBEYED, _MODE, _OVER = (0, 1, 3, 5, 6)
_AWAITED = struct.Struct("=QQQQ")
# struct flock of 64-bit Linux: type, whence, start, length, pid
_FLOCK = struct.Struct("=hhxxxxqqixxxx")
_F_OFD_GETLK = 36
_POLL_SECS = 0.01
_PRESSED_SECS = 3.0  # how long a job is slowed down for it: while its side pipe fills up
_START_FACTOR = 3  # how much longer others may take to begin than to go on

NO_WIDER = "other output of this job on this node is logged no wider"
UNKNOWN = "how other output of this job on this node is logged can't be known"
DIED = "the logging of other output of this job on this node died with some of it unread: it may have asked for that"
UNREAD = "what this job printed before on this node isn't read yet: it may have asked for that"


class AwaitedCapture(NamedTuple):
    """A capture with unobeyed output, up to these bytes of stdout and stderr."""

    number: int
    begun: int
    stdout: int
    stderr: int


class JobModes:
    """A capture's view of the table.

    table, awaited: fds, -1 for none (without a table nothing is known or noted); slot: the
    capture's own.
    """

    def __init__(self, table: int, slot: int, awaited: int) -> None:
        self._fd = table
        self._slot_at = (slot + 1) * _SLOT_WORDS
        words = _map(table, self._slot_at + _SLOT_WORDS)
        self._is_known = words is not None
        # without a table, the notes go nowhere
        self._words = words or memoryview(bytearray(_SLOT_WORDS * _WORD_BYTES)).cast("Q")
        if words is None:
            self._slot_at = 0
        self._awaited: list[AwaitedCapture] = []
        if self._is_known and awaited >= 0:
            with open(awaited, "rb") as file:
                captures = _AWAITED.iter_unpack(file.read())
                self._awaited = [AwaitedCapture(*numbers) for numbers in captures]

    def start_mode(self, mode: str, side_pipe: int, patience_secs: float) -> tuple[str, str]:
        """Return the mode to start with, and a reason against the configured one.

        Waits for captures with unread output: patience_secs at most, longer for those that have not
        begun, and less if the side pipe fills up meanwhile.
        """
        if mode == config.MODES[-1]:
            return mode, ""
        if not self._is_known:
            return config.MODES[-1], UNKNOWN
        if doubt := self._await(side_pipe, patience_secs):
            return config.MODES[-1], doubt
        start = narrowest(mode, self._narrowest())
        return start, "" if start == mode else NO_WIDER

    def note(self, mode: str, stdout: int, stderr: int) -> None:
        """All up to these bytes was obeyed, and this is the mode after that."""
        self._words[self._slot_at + _MODE] = config.MODES.index(mode) + 1
        self._words[self._slot_at + _OBEYED] = stdout
        self._words[self._slot_at + _OBEYED + 1] = stderr

    def note_over(self) -> None:
        """No command comes any more."""
        self._words[self._slot_at + _OVER] = 1

    def _narrowest(self) -> str:
        """Return the narrowest mode of present and past captures."""
        words = self._words
        mode_number = 0
        for at in range(_SLOT_WORDS, len(words), _SLOT_WORDS):
            if at != self._slot_at and words[at + _BEGUN]:
                mode_number = max(mode_number, words[at + _MODE])
        # read last: an ending capture writes here before it frees its slot
        mode_number = max(1, mode_number, words[_ENDED])
        return config.MODES[min(mode_number, len(config.MODES)) - 1]

    # ---- unread output

    def _await(self, side_pipe: int, patience_secs: float) -> str:
        """Wait for the others; return the reason of a doubt, or ""."""
        pressed_secs = 0.0
        began = last = time.monotonic()
        while self._awaited:
            self._awaited = [capture for capture in self._awaited if not self._has_obeyed(capture)]
            if any(self._is_dead(capture) for capture in self._awaited):
                return DIED
            if not self._awaited:
                break
            now = time.monotonic()
            if _is_filling(side_pipe):
                pressed_secs += now - last
            last = now
            is_starting = any(not self._words[_slot(capture) + _MODE] for capture in self._awaited)
            factor = _START_FACTOR if is_starting else 1
            if now - began >= factor * patience_secs or pressed_secs >= _PRESSED_SECS:
                return UNREAD
            time.sleep(_POLL_SECS)
        return ""

    def _has_obeyed(self, capture: AwaitedCapture) -> bool:
        words = self._words
        at = _slot(capture)
        if (
            at + _SLOT_WORDS > len(words)
            or words[at + _BEGUN] != capture.begun
            or words[at + _OVER]
        ):
            return True  # or over: then the head has its last mode, if it had obeyed everything
        return words[at + _OBEYED] >= capture.stdout and words[at + _OBEYED + 1] >= capture.stderr

    def _is_dead(self, capture: AwaitedCapture) -> bool:
        """Return whether a capture has released its slot's lock without obeying."""
        start = _slot(capture) * _WORD_BYTES
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, _SLOT_WORDS * _WORD_BYTES, 0)
        try:
            answer = fcntl.fcntl(self._fd, _F_OFD_GETLK, request)
        except OSError:
            return False  # as good as silent: the wait has its bound
        return int(_FLOCK.unpack(answer)[0]) == fcntl.F_UNLCK and not self._has_obeyed(capture)


def _map(table: int, least_words: int) -> "memoryview[int] | None":
    """Words of 64 bits, written and read as a whole each."""
    if table < 0:
        return None
    try:
        words = memoryview(mmap.mmap(table, 0)).cast("Q")
    except (OSError, ValueError):  # ValueError: it is empty
        return None
    if (
        len(words) < least_words
        or words[0].to_bytes(_WORD_BYTES, "little") != _MAGIC
        or words[1] != _VERSION
    ):
        return None
    return words


def _slot(capture: AwaitedCapture) -> int:
    """Return the number of its slot's first word."""
    return (capture.number + 1) * _SLOT_WORDS


def _is_filling(side_pipe: int) -> bool:
    """The relay may soon have to wait for us, and the job for the relay. (Pages of a full pipe may
    be half full.)"""
    return unread_bytes(side_pipe) * 5 >= fcntl.fcntl(side_pipe, fcntl.F_GETPIPE_SZ) * 2
