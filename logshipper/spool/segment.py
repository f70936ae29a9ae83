"""The segment file format, version 1 (docs/segment-format.md): encoding and decoding of frames, no
I/O.

A segment is a file header and frames. A frame holds a block of lines of one stream under one time
and one checksum (the n-th line's time is the block's plus n nanoseconds), or one JSON record about
the capture. All integers are little-endian. Readers treat segments as untrusted and check lengths
before use.
"""

import io
import json
import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice

from logshipper.errors import SegmentCorrupt

VERSION = 1
MAX_PAYLOAD_BYTES = 16 << 20
MAX_FRAME_LINES = 1 << 17
MAX_LINE_BYTES = 4 << 20  # the renderer cuts longer lines into parts
# how far before a frame's writing its time may lie: Loki takes that next to its stream's newest
MAX_LATE_NS = 30 * 60 * 10**9
MAX_RECORD_BYTES = 64 << 10  # of a RECORD's JSON
MAX_STATUS_BYTES = 4096  # of a STATUS line
MAX_STATUS_BARS = 16  # that it has
STATUS_BREAK = b"\r"  # between them
MAX_ATTRS_BYTES = 1 << 20
MAX_RUNS = 1 << 16  # of a frame; also the METADATA lines of one
ORIGIN, COPY, SENT = "origin", "copy", "sent"  # attributes, see Frame
_ATTRS_BYTES = 256  # without lines, at most
_ATTRS_BYTES_PER_LINE = 64

# magic, version, header bytes, reserved, segment number, created (ns)
_FILE_HEADER = struct.Struct("<8sHHIQQ")
_FILE_MAGIC = b"LOGSEG\r\n"
# magic, type, stream, reserved, payload, count, time, attrs, crc
_FRAME_HEADER = struct.Struct("<4sBBHIIQII")
_MAX_WORDS = 200  # of an error, which may quote the bytes
FRAME_MAGIC = b"\xf1LSF"
FILE_HEADER_BYTES = _FILE_HEADER.size
FRAME_HEADER_BYTES = _FRAME_HEADER.size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Json = dict[str, "Any"]  # Any: JSON objects of records, checked by their readers


class Stream(IntEnum):
    """The source of a line; NONE is the capture itself."""

    NONE = 0
    STDOUT = 1
    STDERR = 2


class Kind(IntEnum):
    """Kind of a line: LOG (text as on the terminal), METADATA (one JSON object), COMMAND (an obeyed
    /LOGCOMMAND), NOTE (logshipper's own line: repeats, lost lines, dropped screens), STATUS (the
    current bar; an empty one withdraws the last)."""

    LOG = 1
    METADATA = 2
    COMMAND = 3
    NOTE = 4
    STATUS = 5


class FrameType(IntEnum):
    LINES = 1
    RECORD = 2  # one JSON object: start, heartbeat, event, end
    END = 3  # no frame follows in this file; count is 1 where the capture is closed, 0 where another segment follows


class Frame:
    """One frame.

    text: lines, each ended by LF (LINES); JSON (RECORD); empty (END). runs: kinds in order, as
    (kind, number of lines), which sum up to count. attrs: by line index, data of a single line: `n`
    (number of a metadata record among those with the same set of keys, from 1), `repeat` (number of
    repeats in a note), `part` ("2", the last one "3/3"), `origin` (source of a metadata record
    other than JSON), `copy` (1: the log has the line as well), `sent` (1: the job sent the record
    as a measurement, and printed no line).
    """

    __slots__ = ("attrs", "count", "runs", "stream", "text", "time_ns", "type")

    def __init__(
        self,
        frame_type: FrameType,
        stream: Stream,
        time_ns: int,
        count: int,
        text: bytes,
        runs: tuple[tuple[Kind, int], ...] = (),
        attrs: dict[int, Json] | None = None,
    ) -> None:
        self.type = frame_type
        self.stream = stream
        self.time_ns = time_ns
        self.count = count
        self.text = text
        self.runs = runs
        self.attrs = {} if attrs is None else attrs

    def lines(self) -> Iterator[tuple[int, Kind, bytes, Json]]:
        """Yields (time in ns, kind, text without LF, attributes) of each line of a LINES frame."""
        texts = self.text.split(b"\n")
        at = 0
        none: Json = {}
        for kind, count in self.runs:
            for _ in range(count):
                yield self.time_ns + at, kind, texts[at], self.attrs.get(at, none)
                at += 1

    def record(self) -> Json:
        """The JSON object of a RECORD frame; empty for other JSON, or beyond MAX_RECORD_BYTES."""
        if len(self.text) > MAX_RECORD_BYTES:
            return {}
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def encode_file_header(number: int, created_ns: int) -> bytes:
    return _FILE_HEADER.pack(_FILE_MAGIC, VERSION, FILE_HEADER_BYTES, 0, number, created_ns)


def decode_file_header(data: bytes, path: str = "segment") -> int:
    """Return the offset of the first frame. Raises SegmentCorrupt for unreadable files."""
    if len(data) < FILE_HEADER_BYTES:
        raise SegmentCorrupt(path, 0, "file header is cut short")
    magic, version, header_bytes, _, _, _ = _FILE_HEADER.unpack_from(data)
    if magic != _FILE_MAGIC:
        raise SegmentCorrupt(path, 0, "this isn't a segment: the magic number is wrong")
    if version > VERSION:
        reason = f"segment format {version} is newer than this logshipper's {VERSION}: upgrade it"
        raise SegmentCorrupt(path, 8, reason)
    if header_bytes != FILE_HEADER_BYTES:
        raise SegmentCorrupt(path, 10, f"a file header of {header_bytes} bytes")
    return FILE_HEADER_BYTES


def _encode(
    kind: FrameType, stream: Stream, time_ns: int, count: int, attrs: bytes, text: bytes
) -> bytes:
    head = _FRAME_HEADER.pack(
        FRAME_MAGIC, kind, stream, 0, len(attrs) + len(text), count, time_ns, len(attrs), 0
    )[:-4]
    crc = zlib.crc32(text, zlib.crc32(attrs, zlib.crc32(head)))
    return b"".join((head, crc.to_bytes(4, "little"), attrs, text))


def encode_lines(
    stream: Stream,
    time_ns: int,
    text: bytes,
    runs: list[tuple[Kind, int]],
    attrs: dict[int, Json] | None = None,
) -> bytes:
    """A LINES frame. text: lines, each ended by LF; runs: (kind, lines) that sum up to the number
    of lines."""
    count = sum(lines for _, lines in runs)
    extra: Json = {}
    if len(runs) != 1 or runs[0][0] is not Kind.LOG:
        extra["runs"] = runs
    if attrs:
        extra["lines"] = attrs
    packed = json.dumps(extra, separators=(",", ":")).encode() if extra else b""
    return _encode(FrameType.LINES, stream, time_ns, count, packed, text)


def encode_record(time_ns: int, record: Json) -> bytes:
    """Encode a RECORD frame; `record["type"]` is start, heartbeat, event or end.

    A record over MAX_RECORD_BYTES keeps its numbers and the beginnings of its texts.
    """
    text = _packed(record)
    if len(text) > MAX_RECORD_BYTES:
        short = {
            name: value[:1024] if isinstance(value, str) else value
            for name, value in record.items()
        }
        text = _packed(
            {name: value for name, value in short.items() if isinstance(value, (str, int, float))}
        )
    return _encode(FrameType.RECORD, Stream.NONE, time_ns, 1, b"", text)


def _packed(record: Json) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode()


def encode_end(time_ns: int, *, closed: bool) -> bytes:
    """An END frame. closed: the capture is over; False: another segment follows."""
    return _encode(FrameType.END, Stream.NONE, time_ns, int(closed), b"", b"")


def frame_bytes(data: bytes, offset: int) -> int | None:
    """Return the length of the frame at offset, None if its header is incomplete; raises
    SegmentCorrupt."""
    if len(data) - offset < FRAME_HEADER_BYTES:
        if data[offset : offset + 4] != FRAME_MAGIC[: len(data) - offset]:
            raise SegmentCorrupt("segment", offset, "no frame begins here")
        return None
    magic, kind, stream, _, payload, count, _, attrs, _ = _FRAME_HEADER.unpack_from(data, offset)
    if magic != FRAME_MAGIC:
        raise SegmentCorrupt("segment", offset, "no frame begins here")
    impossible = payload > MAX_PAYLOAD_BYTES or attrs > payload or not 1 <= kind <= 3 or stream > 2
    most_attrs = min(_ATTRS_BYTES + _ATTRS_BYTES_PER_LINE * count, MAX_ATTRS_BYTES)
    if impossible or count > MAX_FRAME_LINES or attrs > most_attrs:
        raise SegmentCorrupt("segment", offset, "impossible frame header")
    return FRAME_HEADER_BYTES + int(payload)


def decode_frame(data: bytes, offset: int) -> tuple[Frame, int] | None:
    """Return the frame at offset and the offset behind it; None for an incomplete one.

    Raises SegmentCorrupt (its path is `segment`) for an invalid frame.
    """
    size = frame_bytes(data, offset)
    if size is None or len(data) - offset < size:
        return None
    _, kind, stream, _, _, count, time_ns, attrs_bytes, crc = _FRAME_HEADER.unpack_from(
        data, offset
    )
    begin = offset + FRAME_HEADER_BYTES
    end = offset + size
    view = memoryview(data)
    if zlib.crc32(view[begin:end], zlib.crc32(view[offset : begin - 4])) != crc:
        raise SegmentCorrupt("segment", offset, "checksum doesn't match")
    text = data[begin + attrs_bytes : end]
    frame_type = FrameType(kind)
    if frame_type is not FrameType.LINES:
        return Frame(frame_type, Stream(stream), time_ns, count, text), end
    runs, attrs = _decode_attrs(data[begin : begin + attrs_bytes], count, offset)
    if not _has_lines(text, count):
        raise SegmentCorrupt("segment", offset, "number of lines doesn't match")
    return Frame(frame_type, Stream(stream), time_ns, count, text, runs, attrs), end


def _has_lines(text: bytes, count: int) -> bool:
    """Return whether text has so many lines, each ended by LF.

    This loop takes a quarter of the time of bytes.count or split (Python 3.11), and stops after
    count.
    """
    lines = list(islice(io.BytesIO(text), count + 1))
    return len(lines) == count and (not text or text.endswith(b"\n"))


def _decode_attrs(
    packed: bytes, count: int, offset: int
) -> tuple[tuple[tuple[Kind, int], ...], dict[int, Json]]:
    if not packed:
        return ((Kind.LOG, count),), {}
    try:
        extra = json.loads(packed.decode())  # of bytes, it would look for their encoding first
        pairs = extra.get("runs", [[Kind.LOG, count]])
        if len(pairs) > MAX_RUNS:
            raise ValueError(f"{len(pairs)} runs")
        runs = tuple((Kind(kind), int(lines)) for kind, lines in pairs)
        # the format's numbers and short texts only
        attrs = {
            at: {name: value for name, value in of.items() if isinstance(value, (int, str))}
            for line, of in extra.get("lines", {}).items()
            if 0 <= (at := int(line)) < count
        }
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise SegmentCorrupt(
            "segment", offset, f"attributes can't be read: {str(error)[:_MAX_WORDS]}"
        ) from None
    if sum(lines for _, lines in runs) != count or any(lines < 0 for _, lines in runs):
        raise SegmentCorrupt("segment", offset, "runs don't sum up to the number of lines")
    if sum(lines for kind, lines in runs if kind is Kind.METADATA) > MAX_RUNS:
        raise SegmentCorrupt("segment", offset, "too many metadata lines")
    return runs, attrs
