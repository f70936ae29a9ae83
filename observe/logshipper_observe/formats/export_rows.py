"""Common columns of an exported job's rows, and the interface of writers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine, MetadataRecord
    from logshipper_ingest.model.stores import Reader

Row = TypeVar("Row")
Progress = Callable[[int], None]  # how many rows more are written

METADATA, LOGS = "metadata", "logs"
SOURCE_TITLES = ("job_id", "time", "attempt", "step", "task", "host")
RECORD_TITLES = (*SOURCE_TITLES, "origin")
LINE_TITLES = ("stream", "kind", "text", "repeat", "part")
MAX_COLUMNS = 10_000  # keys of a table; JSONL has no such limit
BLOCK_ROWS = 32_768
_BLOCK_CHARS = 1 << 24
_AT_A_TIME = 256


@dataclass(frozen=True, slots=True)
class ExportedCapture:
    """A capture of a job."""

    job_id: str
    attempt: int
    step: str
    task: int  # its number, 0 for a single task
    host: str
    origin: str = ""  # of a record


class Sources:
    """The captures of a job, by number. A capture that appears during the reading has only its
    attempt."""

    def __init__(self, reader: "Reader") -> None:
        self._job_id = reader.summary.job_id
        self._host = reader.summary.host
        self._captures = {
            capture.capture: ExportedCapture(
                self._job_id, capture.attempt, capture.step, capture.task, capture.host
            )
            for capture in reader.captures
        }

    def of(self, capture: int, attempt: int) -> ExportedCapture:
        return self._captures.get(capture) or ExportedCapture(
            self._job_id, attempt, "", 0, self._host
        )


class RowWriter:
    """Writes rows of one or several jobs into one file."""

    def records(self, sources: Sources, reader: "Reader", progress: Progress) -> None:
        """Write a job's metadata records. Raises LogshipperError if the format cannot hold them."""
        raise NotImplementedError

    def lines(self, sources: Sources, lines: "Iterable[LogLine]", progress: Progress) -> None:
        """Writes lines of a job."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the rows that waited for the last one."""

    def close(self) -> None:
        """Release the waiting rows, written or not."""


def record_blocks(
    records: "Iterable[MetadataRecord]", size: int = BLOCK_ROWS
) -> "Iterator[list[MetadataRecord]]":
    """Yield the records in groups of `size`; fewer if they are long."""
    return _blocks(records, size, attrgetter("line"))


def line_blocks(lines: "Iterable[LogLine]", size: int = BLOCK_ROWS) -> "Iterator[list[LogLine]]":
    """The lines, likewise."""
    return _blocks(lines, size, attrgetter("text"))


def _blocks(rows: Iterable[Row], size: int, text: Callable[[Row], str]) -> Iterator[list[Row]]:
    rest = iter(rows)
    block: list[Row] = []
    chars = 0
    while piece := list(islice(rest, _AT_A_TIME)):
        block += piece
        chars += sum(map(len, map(text, piece)))
        if len(block) >= size or chars >= _BLOCK_CHARS:
            yield block
            block, chars = [], 0
    if block:
        yield block
