"""Reads a job's output files as a capture would have read them: bytes with their times.

A line has the time of a timestamp at the begin of a line, its own or one before, in steps: many
times would cost many frames.
"""

import heapq
import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import chain
from multiprocessing import get_context
from operator import attrgetter
from typing import NamedTuple

from logshipper.render import command_prefix
from logshipper.spool.segment import Stream
from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.source_file import SourceFile
from logshipper_ingest.imports.values import NS
from logshipper_ingest.model.imported import LogPiece

MAX_STEPS = 2000  # of a job's duration
_BEGIN = rb"(?m)^[^\n\r]{0,40}?"  # of a line, before its timestamp
_TIME = re.compile(
    _BEGIN
    + rb"([12]\d{3}[-/][01]\d[-/][0-3]\d[T _][0-2]\d:[0-5]\d):([0-5]\d)(?:[.,]\d{1,9})?(Z|[+-]\d\d:\d\d)?"
)
_DATE = re.compile(  # as date(1) prints it
    _BEGIN
    + rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3} [ \d]\d) (\d\d:\d\d:\d\d)(?: [A-Z]{3,5})? ([12]\d{3})"
)
# cheap searches, which most texts without such times end
_CLOCK = re.compile(rb":[0-5]\d:[0-5]\d")
_DAY = re.compile(rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d ")
bytes_read = get_context("fork").Value("Q")  # by this process and its children


class OutputFile(NamedTuple):
    """A file with a stream. begin_ns: time of its lines before the first timestamp."""

    path: str
    stream: Stream
    begin_ns: int


class OutputText:
    """Texts of a job's files, in order of time; each iteration reads the files.

    Commands of logshipper in one file concern the other one, too, and the common order is not
    certain. So the file with commands comes first, and they apply to all of the other one.
    zone: of times without one, None for this machine's; duration_ns: of the job. Reading raises
    Unreadable.
    """

    def __init__(self, files: list[OutputFile], zone: tzinfo | None, duration_ns: int) -> None:
        self._files = files
        self._zone = zone
        self._step_ns = max(NS, duration_ns // MAX_STEPS)

    def __iter__(self) -> Iterator[LogPiece]:
        files = self._files
        commanding = [file for file in files if len(files) > 1 and _has_command(file.path)]
        if commanding:
            others = (file for file in files if file not in commanding)
            return chain.from_iterable(map(self._pieces, (*commanding, *others)))
        return heapq.merge(*map(self._pieces, files), key=attrgetter("time_ns"))

    def _pieces(self, file: OutputFile) -> Iterator[LogPiece]:
        time_ns = file.begin_ns
        for data in SourceFile(file.path, Faults(lambda _: None)).pieces():
            begin = 0
            for at, at_ns in times_in(data, self._zone):
                if at_ns >= time_ns + self._step_ns:
                    if at > begin:
                        yield LogPiece(data[begin:at], file.stream, time_ns)
                    begin, time_ns = at, at_ns
            yield LogPiece(data[begin:], file.stream, time_ns)
            with bytes_read.get_lock():
                bytes_read.value += len(data)


def _has_command(path: str) -> bool:
    end = b""  # of the piece before
    for data in SourceFile(path, Faults(lambda _: None)).pieces():
        if command_prefix.find(end + data) >= 0:
            return True
        end = data[-len(command_prefix.PREFIX) - 1 :]
    return False


def times_in(data: bytes, zone: tzinfo | None) -> list[tuple[int, int]]:
    """Return begins of lines with a timestamp in a new second, and the times in ns."""
    times: list[tuple[int, int]] = []
    if not _CLOCK.search(data):
        return times
    last: tuple[bytes, ...] = ()
    for match in _TIME.finditer(data):
        if match.groups() != last:
            last = match.groups()
            if minute_ns := _minute_ns(match[1], match[3], zone):
                times.append((match.start(), minute_ns + int(match[2]) * NS))
    if not _DAY.search(data):
        return times
    dates = [(match.start(), _date_ns(match, zone)) for match in _DATE.finditer(data)]
    return sorted(times + [date for date in dates if date[1]])


@lru_cache(100)
def _minute_ns(minute: bytes, offset: bytes | None, zone: tzinfo | None) -> int:
    """0 for no time."""
    text = minute.decode().replace("/", "-").replace("_", "T") + (offset or b"").decode()
    try:
        return _time_ns(datetime.fromisoformat(text), zone)
    except ValueError:
        return 0


def _date_ns(match: "re.Match[bytes]", zone: tzinfo | None) -> int:
    text = b" ".join(match.groups()).decode("ascii", "replace")
    try:
        moment = datetime.strptime(text, "%b %d %H:%M:%S %Y")
        return _time_ns(moment, UTC if b" UTC " in match[0] else zone)
    except ValueError:
        return 0


def _time_ns(moment: datetime, zone: tzinfo | None) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone) if zone is not None else moment.astimezone()
    return int(moment.timestamp()) * NS
