"""Applies the user's own expressions to lines, within a limit of CPU time.

Python's `re` checks for signals while it matches, so a CPU timer can stop a slow match at any point.
Python handles signals in the main thread only.
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
SECS_AT_ONCE = 0.25  # burst beyond that


class _StoppedError(Exception):
    pass


class UserPatterns:
    """Finds values by named groups. Expressions that exceed the time limit are disabled one by
    one."""

    def __init__(self, patterns: Sequence[MetadataPattern]) -> None:
        self._expressions: list[tuple[str, re.Pattern[str]]] = [
            (pattern.name, compiled(pattern.pattern)) for pattern in patterns
        ]
        self._budget_secs = SECS_AT_ONCE
        self._is_timed = False
        self._current_name = ""  # of the expression that is matching
        self._disabled_names: list[str] = []
        signal.signal(signal.SIGVTALRM, self._stop)
        # the parent process may have blocked it
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGVTALRM,))

    def __bool__(self) -> bool:
        return bool(self._expressions)

    def take_disabled(self) -> list[str]:
        """Return the names of patterns disabled since the last call."""
        names, self._disabled_names = self._disabled_names, []
        return names

    def find(self, lines: Sequence[tuple[int, str]]) -> dict[int, tuple[str, dict[str, str]]]:
        """Map the number of each matching line to the name of its first matching expression and the
        texts of the groups. lines: number and text."""
        self._budget_secs = min(self._budget_secs + len(lines) * SECS_PER_LINE, SECS_AT_ONCE)
        matches: dict[int, tuple[str, dict[str, str]]] = {}
        at = 0
        while at < len(lines) and self._expressions:
            try:
                with self._limited():
                    while at < len(lines):
                        number, line = lines[at]
                        match = self._search(line)
                        if match is not None:
                            matches[number] = match
                        at += 1
            except _StoppedError:
                self._disable_current()
        return matches

    def _search(self, line: str) -> tuple[str, dict[str, str]] | None:
        for name, expression in self._expressions:
            self._current_name = name
            match = expression.search(line)
            if match is not None:
                groups = match.groupdict()
                return name, {key: text for key, text in groups.items() if text is not None}
        return None

    def _disable_current(self) -> None:
        self._expressions = [row for row in self._expressions if row[0] != self._current_name]
        self._disabled_names.append(self._current_name)
        self._budget_secs = SECS_AT_ONCE

    @contextmanager
    def _limited(self) -> Iterator[None]:
        begin = time.thread_time()
        self._is_timed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, max(self._budget_secs, 0.001))
        try:
            yield
        finally:
            self._is_timed = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._budget_secs -= time.thread_time() - begin

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._is_timed:
            raise _StoppedError
