"""Turns what the classifier gives out into the frames of a segment, with unique, rising times.
Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from logshipper.classify.stream_log import LoggedEvent, LoggedLines
from logshipper.spool import segment
from logshipper.spool.segment import Json, Kind, Stream

MAX_ITEM_LINES = 1 << 15  # with MAX_FRAME_BYTES, a frame stays below segment.MAX_FRAME_LINES
MAX_FRAME_BYTES = 64 << 10  # what a full disk loses at once, and what a reader of a tail reads

_NONE: Json = {}
_COUNTED = (Kind.LOG, Kind.METADATA)  # kinds that the ledger counts as stored


class EncodedFrame(NamedTuple):
    """A frame. stored: the stream's lines in it that the ledger counts as stored; copies: records
    that stand beside their lines, which it doesn't count."""

    data: bytes
    stream: Stream
    stored: int
    copies: int = 0


class FrameBuilder:
    """Frames with times that never fall and never repeat, over both streams of a capture."""

    def __init__(self, last_ns: int = 0) -> None:
        self.last_ns = last_ns

    def record(self, record: Json, now_ns: int) -> bytes:
        """A RECORD frame at now_ns, or just after the last time given out."""
        return segment.encode_record(self._take_times(now_ns, 1), record)

    def end(self, now_ns: int) -> int:
        """A time for the END frame."""
        return self._take_times(now_ns, 1)

    def build(self, items: Iterable[LoggedLines | LoggedEvent], now_ns: int) -> list[EncodedFrame]:
        """Frames of items, in order: neighbours of one stream share a frame of up to about
        MAX_FRAME_BYTES."""
        frames: list[EncodedFrame] = []
        block: list[LoggedLines] = []
        size = 0
        for item in _of_few_lines(items):
            goes_on = (
                isinstance(item, LoggedLines)
                and block
                and item.stream is block[0].stream
                and size < MAX_FRAME_BYTES
            )
            if block and not goes_on:
                frames.append(self._lines(block, now_ns))
                block, size = [], 0
            if isinstance(item, LoggedLines):
                block.append(item)
                size += len(item.text)
            else:
                frames.append(
                    EncodedFrame(
                        self.record({"type": "event", **item.record}, now_ns), Stream.NONE, 0
                    )
                )
        if block:
            frames.append(self._lines(block, now_ns))
        return frames

    def _lines(self, block: list[LoggedLines], now_ns: int) -> EncodedFrame:
        runs: list[tuple[Kind, int]] = []
        attrs: dict[int, Json] = {}
        at = stored = copies = 0
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
        stream = block[0].stream
        return EncodedFrame(
            segment.encode_lines(stream, self._take_times(now_ns, at), text, runs, attrs),
            stream,
            stored,
            copies,
        )

    def _take_times(self, now_ns: int, count: int) -> int:
        first = max(now_ns, self.last_ns + 1)
        self.last_ns = first + count - 1
        return first


def _of_few_lines(
    items: Iterable[LoggedLines | LoggedEvent],
) -> Iterator[LoggedLines | LoggedEvent]:
    """Items as they are, but for those of a great many short lines, which are taken apart."""
    for item in items:
        if isinstance(item, LoggedEvent) or item.lines <= MAX_ITEM_LINES:
            yield item
            continue
        texts = item.text.split(b"\n")
        for at in range(0, item.lines, MAX_ITEM_LINES):
            part = texts[at : at + min(MAX_ITEM_LINES, item.lines - at)]
            yield item._replace(text=b"\n".join(part) + b"\n", lines=len(part))
