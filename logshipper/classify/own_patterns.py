"""The user's own expressions, applied to lines within a limit of CPU time.

Python's `re` looks for signals while it matches: a timer of this process' CPU time stops a match
that takes too long, wherever it is. Only the main thread may be stopped so.
"""

import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from logshipper.config import MetadataPattern
from logshipper.metadata_pattern import compiled

SECS_PER_LINE = 0.0001  # of CPU, on average, for all expressions together
SECS_AT_ONCE = 0.25  # beyond that


class _StoppedError(Exception):
    pass


class OwnPatterns:
    """Finds values by named groups. Expressions that take too long are switched off, one after
    another."""

    def __init__(self, patterns: Sequence[MetadataPattern]) -> None:
        self._expressions: list[tuple[str, re.Pattern[str]]] = [
            (pattern.name, compiled(pattern.pattern)) for pattern in patterns
        ]
        self._rest_secs = SECS_AT_ONCE
        self._is_timed = False
        self._at_work = ""
        self._switched_off: list[str] = []
        if patterns:
            signal.signal(signal.SIGVTALRM, self._stop)
            # who started us may have blocked it
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGVTALRM,))

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def take_switched_off(self) -> list[str]:
        """Names of those that were switched off since the last call."""
        names, self._switched_off = self._switched_off, []
        return names

    def find(self, lines: Sequence[tuple[int, str]]) -> dict[int, tuple[str, dict[str, str]]]:
        """By the line's number: the name of the first expression that is in it, and the texts of
        its groups. lines: number and text."""
        self._rest_secs = min(self._rest_secs + len(lines) * SECS_PER_LINE, SECS_AT_ONCE)
        matches: dict[int, tuple[str, dict[str, str]]] = {}
        waiting = list(lines)
        waiting.reverse()
        while waiting and self._expressions:
            try:
                with self._limited():
                    while waiting:
                        number, line = waiting[-1]
                        match = self._search(line)
                        if match is not None:
                            matches[number] = match
                        waiting.pop()
            except _StoppedError:
                self._switch_off()
        return matches

    def _search(self, line: str) -> tuple[str, dict[str, str]] | None:
        for name, expression in self._expressions:
            self._at_work = name
            match = expression.search(line)
            if match is not None:
                groups = match.groupdict()
                return name, {key: text for key, text in groups.items() if text is not None}
        return None

    def _switch_off(self) -> None:
        self._expressions = [row for row in self._expressions if row[0] != self._at_work]
        self._switched_off.append(self._at_work)
        self._rest_secs = SECS_AT_ONCE

    @contextmanager
    def _limited(self) -> Iterator[None]:
        begin = time.thread_time()
        self._is_timed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, max(self._rest_secs, 0.001))
        try:
            yield
        finally:
            self._is_timed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._rest_secs -= time.thread_time() - begin

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._is_timed:
            raise _StoppedError
