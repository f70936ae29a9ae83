"""Converts Loki's entries to a job's lines: joins pieces of long lines, numbers captures, orders
ties. Pure.

Within a capture each time belongs to one line. So entries with the same time, capture, stream and
kind are pieces of a line too long for Loki. Their `part` is `i/n`, or `P.i/n` if the line was part
P of a longer one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from logshipper.render.colours import SEQUENCES
from logshipper.safe_text import without_controls
from logshipper.spool.segment import COPY, ORIGIN, SENT, Kind, Stream
from logshipper_ingest.loki.account import MAX_CAPTURES, STREAMS, LokiEntry, capture_id
from logshipper_ingest.model.capture_id import CaptureId
from logshipper_ingest.model.capture_rows import NAME_OF_ORIGIN

KINDS = {"log": Kind.LOG, "metadata": Kind.METADATA, "command": Kind.COMMAND}
MAX_SHARING = 20_000  # entries of one time that are put in order together
_PIECE = re.compile(r"(?:(.*)\.)?([0-9]{1,6})/([0-9]{1,6})", re.ASCII | re.DOTALL)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_HEAD_CHARS = 250
_HEAD = re.compile(
    r"[^%]{0,200}?[0-9]+(?:\.[0-9]+)?%|(?:[^0-9]{0,100}[0-9]+(?:\.[0-9]+)?){1,2}", re.ASCII
)
_NUMBER = re.compile(r"[ 0]*[0-9]+(?:\.[0-9]+)?", re.ASCII)
_MAX_BAR_CHARS = 4096  # of a line, with its colours
_NO_ATTRS: Mapping[str, Any] = MappingProxyType({})  # Any: JSON


class Captures:
    """The numbers of a job's captures. Those without an event get the next free numbers as they
    appear."""

    def __init__(self, keys: Iterable[CaptureId]) -> None:
        self._numbers = {key: number for number, key in enumerate(keys, start=1)}
        self._captures: dict[tuple[str, ...], tuple[int, CaptureId]] = {}

    def of(self, entry: LokiEntry) -> tuple[int, CaptureId]:
        get = entry.metadata.get
        task = get("attempt", ""), get("step", ""), get("task", "")
        identity = (*task, entry.labels.get("host", ""))
        capture = self._captures.get(identity)
        if capture is None:
            if len(self._captures) >= MAX_CAPTURES:
                self._captures.clear()
            capture = self._captures[identity] = self._enter(capture_id(entry))
        return capture

    def _enter(self, key: CaptureId) -> tuple[int, CaptureId]:
        number = self._numbers.get(key, 0)
        if not number and len(self._numbers) < MAX_CAPTURES:
            number = self._numbers[key] = len(self._numbers) + 1
        return number, key


class LokiLine(NamedTuple):
    """A line, complete or with the pieces that exist."""

    time_ns: int
    capture: int
    stream: Stream
    kind: Kind
    text: str
    attrs: Mapping[str, Any]  # Any: JSON
    key: CaptureId
    complete: bool = True  # no piece of it is missing


def clean(text: str) -> str:
    """The text as a capture would have written it: one line, without control characters but for
    colours."""
    if text.isprintable():
        return text
    pieces = SEQUENCES.split(text)
    pieces[::2] = map(without_controls, pieces[::2])
    return "".join(pieces)


def begins_alike(bar: str, line: str) -> bool:
    """Return whether a line may be the end of a bar.

    Both must have the same words, with other numbers, up to the bar's percentage, or to the second
    number of a bar without one.
    """
    match = _HEAD.match(bar)
    head = _NUMBER.sub("0", match[0] if match else bar[:_HEAD_CHARS])
    line = SEQUENCES.sub("", line[:_MAX_BAR_CHARS])
    return bool(head) and _NUMBER.sub("0", line[: 2 * _HEAD_CHARS]).startswith(head)


def join_pieces(
    entries: Iterable[LokiEntry], captures: Captures, *, newest_first: bool = False
) -> Iterator[LokiLine]:
    """Lines of entries that come in order of time (newest_first: backwards): by time, then
    capture."""
    for _, sharing in groupby(entries, key=attrgetter("time_ns")):
        while group := list(islice(sharing, MAX_SHARING)):
            yield from _lines_of(group, captures, newest_first)


def _lines_of(group: list[LokiEntry], captures: Captures, newest_first: bool) -> Iterable[LokiLine]:
    """Yield the lines of entries that share a time; repeats from a replay stream count once."""
    if len(group) == 1:
        line = _line(group[0], captures)
        if line is None:
            return ()
        piece = _PIECE.fullmatch(line.attrs.get("part", ""))
        return (line,) if piece is None else _join_group(piece[1] or "", [line])
    sources: dict[tuple[int, Stream, Kind, str], dict[tuple[str, str], LokiLine]] = {}
    for entry in group:
        line = _line(entry, captures)
        if line is not None:
            part = line.attrs.get("part", "")
            piece = _PIECE.fullmatch(part)
            source = (line.capture, line.stream, line.kind, (piece[1] or "") if piece else part)
            sources.setdefault(source, {})[part, line.text] = line
    whole = [
        line
        for source in sorted(sources)
        for line in _join_group(source[3], list(sources[source].values()))
    ]
    return reversed(whole) if newest_first else whole


def _join_group(above: str, pieces_of_time: list[LokiLine]) -> list[LokiLine]:
    """Lines of one time, capture, stream and kind. above: their part, where the capture itself had
    cut the line."""
    by_size: dict[int, dict[int, LokiLine]] = {}
    lines = []
    for line in pieces_of_time:
        piece = _PIECE.fullmatch(line.attrs.get("part", ""))
        if piece is None:
            lines.append(line)
        else:
            by_size.setdefault(int(piece[3]), {})[int(piece[2])] = line
    for size, pieces in by_size.items():
        numbers = sorted(pieces)
        first = pieces[numbers[0]]
        if numbers == [*range(1, size + 1)]:
            attrs = {name: value for name, value in first.attrs.items() if name != "part"}
            attrs |= {"part": above} if above else {}
            text = "".join(pieces[number].text for number in numbers)
            lines.append(first._replace(text=text, attrs=attrs))
        elif numbers == [size] and not above:
            lines.append(first)  # the last part of a line that the capture had cut
        else:
            lines += [pieces[number]._replace(complete=False) for number in numbers]
    return lines


def _line(entry: LokiEntry, captures: Captures) -> LokiLine | None:
    kind = KINDS.get(entry.labels.get("kind", ""))
    stream = STREAMS.get(entry.labels.get("stream", ""))
    if kind is None or stream is None:
        return None
    metadata = entry.metadata
    if kind is Kind.LOG and metadata.get("note") == "1":
        kind = Kind.NOTE
    attrs = _NO_ATTRS
    if "part" in metadata or "n" in metadata or "repeat" in metadata:
        attrs = {
            name: int(metadata[name])
            for name in ("n", "repeat", COPY, SENT)
            if _WHOLE.fullmatch(metadata.get(name, ""))
        }
        if metadata.get("part"):
            attrs["part"] = metadata["part"][:64]
        if NAME_OF_ORIGIN.fullmatch(metadata.get(ORIGIN, "")):
            attrs[ORIGIN] = metadata[ORIGIN]
    number, key = captures.of(entry)
    return LokiLine(entry.time_ns, number, stream, kind, clean(entry.line), attrs, key)
