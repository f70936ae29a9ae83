"""Rows that a capture's frames add to a store, and the division of a frame of lines into rows."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from logshipper.spool.segment import COPY, ORIGIN, STATUS_BREAK, Frame, Kind, Stream
from logshipper_ingest.model.job import Json
from logshipper_ingest.model.ledger import count_of

NAME_OF_ORIGIN = re.compile(r"[a-z][a-z0-9_-]{0,15}")
_STORED = (Kind.LOG, Kind.METADATA)  # kinds of lines that a ledger counts as stored


class BlockRow(NamedTuple):
    """Lines of one stream."""

    stream: Stream
    time_ns: int
    lines: int  # their number
    runs: list[tuple[int, int]] | None  # (kind, lines); None: all are LOG
    attrs: dict[int, Json] | None  # by line, from 0
    text: bytes  # each line ends with LF


class RecordRow(NamedTuple):
    """A metadata record."""

    stream: Stream
    time_ns: int
    n: int
    line: bytes
    origin: str = ""  # kind of the parsed line; "": the line itself is the record
    is_copy: bool = False  # a block has the parsed line, but not this record


class EventRow(NamedTuple):
    time_ns: int
    event: Json


class StatusRow(NamedTuple):
    """The live progress bars of a stream."""

    stream: Stream
    time_ns: int
    text: bytes  # a line per bar, LF between them


class ReportRow(NamedTuple):
    """The state of a capture's keys at one time."""

    time_ns: int
    documents: list[Json]  # one per key, from key_reports.documents
    final: bool = False  # no other report follows


@dataclass
class Rows:
    """Rows of a batch of frames."""

    blocks: list[BlockRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    events: list[EventRow] = field(default_factory=list)
    statuses: dict[Stream, StatusRow] = field(default_factory=dict)
    # the capture's start, heartbeats and end, as events
    marks: list[EventRow] = field(default_factory=list)
    report: ReportRow | None = None


def record_row(frame: Frame, line: int, time_ns: int, text: bytes, *, is_copy: bool) -> RecordRow:
    """Return the row of a record.

    line: its number in the frame; time_ns: the frame's.
    """
    attrs = frame.attrs.get(line, {})
    origin = _checked_origin(attrs.get(ORIGIN, ""))
    return RecordRow(frame.stream, time_ns + line, count_of(attrs, "n"), text, origin, is_copy)


@lru_cache(64)
def _checked_origin(origin: str | int) -> str:
    return origin if isinstance(origin, str) and NAME_OF_ORIGIN.fullmatch(origin) else ""


def pieces(
    frame: Frame, texts: list[bytes], time_ns: int, rows: Rows
) -> Iterator[tuple[int, list[tuple[Kind, int]], bool]]:
    """Divide a frame at its status lines, of which rows keeps the last one.

    Yields (first line, runs, False), and (first line, runs, True) for copies: records whose lines
    the log repeats.
    """
    at = begin = 0
    runs: list[tuple[Kind, int]] = []
    for kind, lines, are_copies in _runs(frame):
        if kind is Kind.STATUS or are_copies:
            if runs:
                yield begin, runs, False
            if are_copies:
                yield at, [(kind, lines)], True
            else:
                last = at + lines - 1
                text = texts[last].replace(STATUS_BREAK, b"\n")
                rows.statuses[frame.stream] = StatusRow(frame.stream, time_ns + last, text)
            runs, begin = [], at + lines
        else:
            runs.append((kind, lines))
        at += lines
    if runs:
        yield begin, runs, False


def _runs(frame: Frame) -> Iterator[tuple[Kind, int, bool]]:
    """The frame's runs that have lines, with runs of METADATA divided into copies and others."""
    copies = {line for line, values in frame.attrs.items() if values.get(COPY) == 1}
    at = 0
    for kind, lines in frame.runs:
        if kind is Kind.METADATA and copies:
            for are_copies, group in groupby(range(at, at + lines), copies.__contains__):
                yield kind, sum(1 for _ in group), are_copies
        elif lines:
            yield kind, lines, False
        at += lines


def stored_lines(runs: list[tuple[Kind, int]], attrs: dict[int, Json]) -> int:
    """Count lines as a ledger does: a long line in several parts once."""
    stored = sum(lines for kind, lines in runs if kind in _STORED)
    return max(0, stored - sum(_is_later_part(values.get("part")) for values in attrs.values()))


def _is_later_part(part: object) -> bool:
    return isinstance(part, str) and part.partition("/")[0] not in ("", "1")
