"""Builds a segment's frames from the classifier's output, with times that are unique in the capture
and rise within a stream. Pure.

A line's time is that of its last drawing, so that both streams, sorted by time, read as on one
terminal. A bar's last state becomes final QUIET_SECS and more after lines of the other stream below
it. Such a line gets the first free time from its own on, behind its stream's last.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from logshipper import line_feeds
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.named_tuple import NamedTuple
from logshipper.spool import segment
from logshipper.spool.segment import Json, Kind, Stream

# the loss of a full disk at once, and the read of a tail; below twice as many bytes a frame stays
# below segment.MAX_FRAME_LINES
MAX_FRAME_BYTES = 64 << 10
MAX_SPANS = 4096  # remembered spans of used times; beyond them, no line is older

_NONE: Json = {}
_COUNTED = (Kind.LOG, Kind.METADATA)  # kinds that the ledger counts as stored


class EncodedFrame(NamedTuple):
    """A frame. stored: lines that the ledger counts as stored; copies: records beside their logged
    lines, which it does not count."""

    data: bytes
    stream: Stream
    stored: int
    copies: int = 0


class _LinesFrame(NamedTuple):
    """A frame of lines: the values of segment.encode_lines, then those of EncodedFrame."""

    stream: Stream
    time_ns: int
    text: bytes
    runs: list[tuple[Kind, int]]
    attrs: dict[int, Json]
    stored: int
    copies: int


class FrameBuilder:
    """See above. last_ns: nothing is older; epoch_ns: the time at which the classifier's clock was
    0."""

    def __init__(self, last_ns: int = 0, *, epoch_ns: int = 0) -> None:
        self._epoch_ns = epoch_ns
        self._last_ns = dict.fromkeys(Stream, last_ns)  # the last time of each stream
        # spans of used times, in order, none adjacent: begins, ends
        self._begins = [0]
        self._ends = [last_ns + 1]

    def record(self, record: Json, now_ns: int) -> bytes:
        """A RECORD frame at now_ns, or just after the last time given out."""
        return segment.encode_record(self.end(now_ns), record)

    def end(self, now_ns: int) -> int:
        """A time for the END frame."""
        return self._take_times(Stream.NONE, max(now_ns, self._ends[-1]), 1)

    def build(self, items: Iterable[LoggedLines | LoggedEvent], now_ns: int) -> list[EncodedFrame]:
        """Frames of items, in order: neighbours of one stream that were drawn at one time share a
        frame of up to about MAX_FRAME_BYTES."""
        return [
            EncodedFrame(frame, Stream.NONE, 0)
            if isinstance(frame, bytes)
            else EncodedFrame(segment.encode_lines(*frame[:5]), frame.stream, *frame[5:])
            for frame in self._frames(items, now_ns)
        ]

    def frames(
        self, items: Iterable[LoggedLines | LoggedEvent], now_ns: int
    ) -> Iterator[segment.Frame]:
        """Return the frames of `build` as readers decode them."""
        for frame in self._frames(items, now_ns):
            if isinstance(frame, bytes):
                if (decoded := segment.decode_frame(frame, 0)) is not None:
                    yield decoded[0]
            else:
                stream, time_ns, text, runs, attrs, *_ = frame
                count = sum(lines for _, lines in runs)
                kind = segment.FrameType.LINES
                yield segment.Frame(kind, stream, time_ns, count, text, tuple(runs), attrs)

    def _frames(
        self, items: Iterable[LoggedLines | LoggedEvent], now_ns: int
    ) -> "Iterator[_LinesFrame | bytes]":
        block: list[LoggedLines] = []
        size = 0
        for item in _of_few_bytes(items):
            goes_on = (
                isinstance(item, LoggedLines)
                and block
                and item.stream is block[0].stream
                and item.drawn_at == block[0].drawn_at
                and size < MAX_FRAME_BYTES
            )
            if block and not goes_on:
                yield self._lines(block, now_ns)
                block, size = [], 0
            if isinstance(item, LoggedLines):
                block.append(item)
                size += len(item.text)
            else:
                yield self.record({"type": "event", **item.record}, now_ns)
        if block:
            yield self._lines(block, now_ns)

    def _lines(self, block: list[LoggedLines], now_ns: int) -> "_LinesFrame":
        runs: list[tuple[Kind, int]] = []
        attrs: dict[int, Json] = {}
        at = stored = copies = 0
        block = list(_copies_behind(block))
        for item in block:
            if item.attrs:
                attrs[at] = item.attrs
            if runs and runs[-1][0] is item.kind:
                runs[-1] = (item.kind, runs[-1][1] + item.lines)
            else:
                runs.append((item.kind, item.lines))
            at += item.lines
            line_attrs = item.attrs or _NONE
            if segment.COPY in line_attrs:
                copies += item.lines
            # a long line counts once
            elif item.kind in _COUNTED and line_attrs.get("part", "1") == "1":
                stored += item.lines
        text = b"".join(item.text for item in block)
        stream, drawn_at = block[0].stream, block[0].drawn_at
        if drawn_at is None:
            time_ns = max(now_ns, self._ends[-1])
        else:
            drawn_ns = self._epoch_ns + int(drawn_at * 1e9)
            time_ns = min(max(drawn_ns, now_ns - segment.MAX_LATE_NS), now_ns)
        first_ns = self._take_times(stream, time_ns, at)
        return _LinesFrame(stream, first_ns, text, runs, attrs, stored, copies)

    def _take_times(self, stream: Stream, time_ns: int, count: int) -> int:
        """The first of so many times in a row that are free, from time_ns on."""
        begins, ends = self._begins, self._ends
        first = max(time_ns, self._last_ns[stream] + 1, ends[0])
        at = bisect_right(begins, first)
        first = max(first, ends[at - 1])
        while at < len(begins) and first + count > begins[at]:
            first = ends[at]
            at += 1
        self._last_ns[stream] = first + count - 1
        if first == ends[at - 1]:
            ends[at - 1] = first + count
        else:
            begins.insert(at, first)
            ends.insert(at, first + count)
        if len(begins) > MAX_SPANS:
            half = MAX_SPANS // 2
            self._begins, self._ends = begins[half:], ends[half:]
        return first


def _copies_behind(block: list[LoggedLines]) -> Iterator[LoggedLines]:
    """Put the records beside logged lines behind these lines, up to the log's own next record.

    Lines in one run cost all readers less, and records keep their order.
    """
    copies: list[LoggedLines] = []
    for item in block:
        if segment.COPY in (item.attrs or _NONE):
            copies.append(item)
            continue
        if item.kind is Kind.METADATA:
            yield from copies
            copies.clear()
        yield item
    yield from copies


def _of_few_bytes(
    items: Iterable[LoggedLines | LoggedEvent],
) -> Iterator[LoggedLines | LoggedEvent]:
    """Split items of more than MAX_FRAME_BYTES and several lines."""
    for item in items:
        if isinstance(item, LoggedEvent) or len(item.text) <= MAX_FRAME_BYTES or item.lines == 1:
            yield item
            continue
        text, begin = item.text, 0
        while begin < len(text):
            end = (
                text.rfind(b"\n", begin, begin + MAX_FRAME_BYTES) + 1
                or text.index(b"\n", begin) + 1
            )
            part = text[begin:end]
            yield item._replace(text=part, lines=line_feeds.count(part))
            begin = end
