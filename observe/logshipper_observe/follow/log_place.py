"""A place in a job's log, as text for a command line: the progress in each capture's streams. Pure.

Within one stream of a capture, lines come in order of time, and no two share one. So the time of
the last printed line is an exact place. Streams progress independently.
"""

import re
from typing import TYPE_CHECKING

from logshipper.spool.segment import MAX_LATE_NS, Stream

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine, MetadataRecord

_LETTERS = {Stream.STDOUT: "o", Stream.STDERR: "e", Stream.NONE: "n"}
_STREAMS = {letter: stream for stream, letter in _LETTERS.items()}
_OF_JOBS = (Stream.STDOUT, Stream.STDERR)
_PART = re.compile(r"([0-9]{1,9})([oen])([0-9a-f]{1,16})")


class LogPlace:
    """Progress in a log."""

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
        parts = (
            f"{capture}{_LETTERS[stream]}{newest - time_ns:x}"
            for (capture, stream), time_ns in sorted(self._printed.items())
        )
        return "-".join([f"{newest:x}", *parts])

    @property
    def begin_ns(self) -> int:
        """The time before which all lines of known captures were printed; 0 at first.

        A capture's stream without lines so far may bring earlier ones.
        """
        has_both = all(
            (of, stream) in self._printed for of, _ in self._printed for stream in _OF_JOBS
        )
        late_ns = 0 if has_both else MAX_LATE_NS
        return max(0, self._oldest_ns - late_ns)

    @property
    def _oldest_ns(self) -> int:
        return min(self._printed.values(), default=0)

    def note(self, line: "LogLine | MetadataRecord") -> None:
        """The line is printed."""
        source = line.capture, line.stream
        self._printed[source] = max(self._printed.get(source, 0), line.time_ns)

    def is_printed(self, line: "LogLine | MetadataRecord") -> bool:
        """Return whether a line was printed; lines of new captures before all printed ones count as
        printed."""
        if not any((line.capture, stream) in self._printed for stream in Stream):
            return line.time_ns < self._oldest_ns
        return line.time_ns <= self._printed.get((line.capture, line.stream), -1)
