"""A place in a job's log, as text for a command line: what was printed of each capture's streams.
Pure.

Within one stream of a capture lines come in the order of their times, and no two share one, so the
time of the last one that was printed is an exact place; streams go on independently of each other.
"""

import re
from typing import TYPE_CHECKING

from logshipper.spool.segment import MAX_LATE_NS, Stream

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine

_LETTERS = {Stream.STDOUT: "o", Stream.STDERR: "e", Stream.NONE: "n"}
_STREAMS = {letter: stream for stream, letter in _LETTERS.items()}
_OF_JOBS = (Stream.STDOUT, Stream.STDERR)
_PART = re.compile(r"([0-9]{1,9})([oen])([0-9a-f]{1,16})")


class LogPlace:
    """How far a log was printed."""

    def __init__(self) -> None:
        self._printed: dict[tuple[int, Stream], int] = {}

    @classmethod
    def parse(cls, text: str) -> "LogPlace":
        """The place that `str` gave. Raises ValueError."""
        place = cls()
        newest, *parts = text.split("-")
        matches = [_PART.fullmatch(part) for part in parts]
        if not parts or not re.fullmatch(r"[0-9a-f]{1,16}", newest) or not all(matches):
            raise ValueError(text)
        for part in matches:
            if part is not None:
                place._printed[int(part[1]), _STREAMS[part[2]]] = int(newest, 16) - int(part[3], 16)
        return place

    def __str__(self) -> str:
        """The newest line's time, and of each capture's stream how long before that its own newest
        one was; in hex."""
        if not self._printed:
            return ""
        newest = max(self._printed.values())
        parts = [f"{capture}{_LETTERS[stream]}{newest - time_ns:x}"
                 for (capture, stream), time_ns in sorted(self._printed.items())]  # fmt: skip
        return "-".join([f"{newest:x}", *parts])

    @property
    def begin_ns(self) -> int:
        """No line that is older hasn't been printed, of captures that are known; 0 where nothing
        was. Of a capture's stream that has nothing yet, what was drawn earlier may come."""
        has_both = all(
            (of, stream) in self._printed for of, _ in self._printed for stream in _OF_JOBS
        )
        late_ns = 0 if has_both else MAX_LATE_NS
        return max(0, self._oldest_ns - late_ns)

    @property
    def _oldest_ns(self) -> int:
        return min(self._printed.values(), default=0)

    def note(self, line: "LogLine") -> None:
        """The line is printed."""
        source = line.capture, line.stream
        self._printed[source] = max(self._printed.get(source, 0), line.time_ns)

    def is_printed(self, line: "LogLine") -> bool:
        """Of a capture of which nothing was printed, what is older than all that was isn't asked
        for."""
        if not any((line.capture, stream) in self._printed for stream in Stream):
            return line.time_ns < self._oldest_ns
        return line.time_ns <= self._printed.get((line.capture, line.stream), -1)
