"""Encodes pushes to Loki: `logproto.PushRequest` (protobuf) with one stream, in snappy's block
format. Pure.

The hot path is `encode_block`: a chunk of lines with one metadata, a nanosecond apart. Only three
parts of an entry vary: two lengths, the line, and the low 14 bits of the time. Tables give the
lengths by the line's length, and the low bits by their value. So a chunk becomes slices of one list
and a single join, without a Python loop over lines. For this, nanoseconds are varints of always
five bytes (protobuf allows more groups than needed), and an entry's fields have the order line,
timestamp, metadata (protobuf allows any). The same input gives the same bytes.

Field numbers: Loki's pkg/push/push.proto; the block format: google/snappy, format_description.txt.
"""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import cramjam

_SECOND_NS = 1_000_000_000
_LOW_VALUES = 1 << 14
_MAX_TIME_NS = 1 << 63  # Loki's times are signed
_TIMESTAMP_BYTES = 14  # tag, length, and two fields of a tag and five bytes
# lengths of longer lines are encoded each time: a table of all would have no end
_TABLED_BYTES = 4096
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n"}
_NO_NAMES: Mapping[str, str] = {}

_SHORT = [bytes((value,)) for value in range(128)]  # varints
# tag and length of the timestamp, tag of its nanos, and their two lowest groups
_LOW = [bytes((0x0A, 12, 0x10, 0x80 | low & 127, 0x80 | low >> 7)) for low in range(_LOW_VALUES)]
_LOW_AFTER_LF = [low[1:] for low in _LOW]


class Entry(NamedTuple):
    """One line in Loki. For a push only the first three fields count."""

    time_ns: int  # since 1970
    line: str
    metadata: Mapping[str, str] = _NO_NAMES  # structured metadata
    labels: Mapping[str, str] = _NO_NAMES  # of its stream
    parsed: Mapping[str, str] = _NO_NAMES  # labels that the query parsed from the line (`| json`)


class BlockLines(Sequence[bytes]):
    """Lines of a block of text, each ended by LF there, without their ends."""

    __slots__ = ("ended",)

    def __init__(self, text: bytes | list[bytes]) -> None:
        self.ended = io.BytesIO(text).readlines() if isinstance(text, bytes) else text

    def __len__(self) -> int:
        return len(self.ended)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> "BlockLines": ...

    def __getitem__(self, at: int | slice) -> "bytes | BlockLines":
        return BlockLines(self.ended[at]) if isinstance(at, slice) else self.ended[at][:-1]

    def __iter__(self) -> Iterator[bytes]:
        return (line[:-1] for line in self.ended)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    @property
    def line_bytes(self) -> int:
        """Bytes of all lines together."""
        return sum(map(len, self.ended)) - len(self.ended)

    @property
    def longest(self) -> int:
        """Bytes of the longest line."""
        return max(map(len, self.ended), default=1) - 1


class _Heads(dict[int, bytes]):
    """Tags and lengths before a line, by the line's length with its end.

    metadata_bytes: of the entry; end_bytes: of the line's end.
    """

    def __init__(self, metadata_bytes: int, end_bytes: int = 0) -> None:
        super().__init__()
        self._fixed_bytes = _TIMESTAMP_BYTES + metadata_bytes
        self._end_bytes = end_bytes

    def __missing__(self, length: int) -> bytes:
        line_bytes = length - self._end_bytes
        before = b"\x12" + varint(line_bytes)
        head = b"\x12" + varint(len(before) + line_bytes + self._fixed_bytes) + before
        if line_bytes < _TABLED_BYTES:
            self[length] = head
        return head


_heads = lru_cache(maxsize=256)(_Heads)


def encode_block(lines: Sequence[bytes], time_ns: int, metadata: bytes = b"") -> bytes:
    """Entries of lines of UTF-8 without their ends; the n-th, from 0, has the time time_ns + n.

    metadata: of each of them, from `encode_metadata`. Results are joined by `assemble`. Raises
    ValueError for times before 1970 or after 2262.
    """
    if not 0 <= time_ns < _MAX_TIME_NS - len(lines):
        raise ValueError(f"{time_ns} ns is no time that Loki has")
    seconds, nanos = divmod(time_ns, _SECOND_NS)
    if isinstance(lines, BlockLines):
        return _encode_runs(lines.ended, time_ns, metadata, _heads(len(metadata), 1), _LOW_AFTER_LF)
    heads = _heads(len(metadata))
    if len(lines) == 1:  # as for metadata records, each with its own number
        line = lines[0]
        return b"".join(
            (heads[len(line)], line, _LOW[nanos % _LOW_VALUES], _rest(seconds, nanos), metadata)
        )
    return _encode_runs(lines, time_ns, metadata, heads, _LOW)


def _encode_runs(
    lines: Sequence[bytes], time_ns: int, metadata: bytes, heads: _Heads, lows: Sequence[bytes]
) -> bytes:
    """Encode runs of lines whose times differ only in the low bits of nanos.

    lows: a table of these bits.
    """
    runs = []
    begin = 0
    while begin < len(lines):
        seconds, nanos = divmod(time_ns + begin, _SECOND_NS)
        low = nanos % _LOW_VALUES
        end = begin + min(_LOW_VALUES - low, _SECOND_NS - nanos)
        run = lines if end >= len(lines) and not begin else lines[begin:end]
        parts = [_rest(seconds, nanos) + metadata] * (4 * len(run))
        parts[0::4] = map(heads.__getitem__, map(len, run))
        parts[1::4] = run
        parts[2::4] = lows[low : low + len(run)]
        runs.append(b"".join(parts))
        begin = end
    return runs[0] if len(runs) == 1 else b"".join(runs)


def _rest(seconds: int, nanos: int) -> bytes:
    """A timestamp's bytes behind the table's: the higher groups of nanos, and the seconds."""
    return bytes(
        (0x80 | nanos >> 14 & 127, 0x80 | nanos >> 21 & 127, nanos >> 28)
    ) + _encode_seconds(seconds)


@lru_cache(maxsize=64)
def _encode_seconds(seconds: int) -> bytes:
    """Encode seconds as a varint of five bytes: times of 63 bits have 34 bits of seconds."""
    return bytes(
        (0x08, *(0x80 | seconds >> place & 127 for place in (0, 7, 14, 21)), seconds >> 28)
    )


def encode_metadata(metadata: Mapping[str, str]) -> bytes:
    """Encode structured metadata of an entry, sorted by name, without empty values.

    Raises ValueError for a name with characters besides letters, digits and `_`.
    """
    return b"".join(
        [
            b"\x1a" + sized(_encode_name(name) + sized(to_utf8(metadata[name])))
            for name in sorted(metadata)
            if metadata[name]
        ]
    )


@lru_cache(maxsize=256)
def _encode_name(name: str) -> bytes:
    """A pair's name, and the tag of its value."""
    return b"\x0a" + sized(_name(name).encode()) + b"\x12"


def encode_labels(labels: Mapping[str, str]) -> str:
    """Return a stream in Loki's notation: `{cluster="local",host="n1"}`, sorted by name, without
    empty values.

    Raises ValueError for a name with characters besides letters, digits and `_`, and for no labels
    at all.
    """
    pairs = [f'{_name(name)}="{_escape(labels[name])}"' for name in sorted(labels) if labels[name]]
    if not pairs:
        raise ValueError("a stream needs a label: Loki takes none without")
    return "{" + ",".join(pairs) + "}"


def assemble(labels: Mapping[str, str], encoded_entries: Iterable[bytes]) -> bytes:
    """A push request of one stream. encoded_entries: results of `encode_block`. Raises ValueError
    (encode_labels)."""
    labels_field = b"\x0a" + sized(to_utf8(encode_labels(labels)))
    entries = list(encoded_entries)
    size = len(labels_field) + sum(map(len, entries))
    return b"".join((b"\x0a", varint(size), labels_field, *entries))


def encode_push(labels: Mapping[str, str], entries: Iterable[Entry]) -> bytes:
    """Encode a push request of one stream, whose entries have their own times and metadata.

    Raises ValueError.
    """
    encoded_entries = (
        encode_block((to_utf8(entry.line),), entry.time_ns, encode_metadata(entry.metadata))
        for entry in entries
    )
    return assemble(labels, encoded_entries)


def compress(body: bytes) -> bytes:
    """A request as it is sent (snappy, block format)."""
    return bytes(cramjam.snappy.compress_raw(body))


def as_utf8(text: bytes) -> bytes:
    """Return the text with invalid UTF-8 replaced by U+FFFD, as readers of the local store see it.

    Line feeds keep their places.
    """
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def to_utf8(text: str) -> bytes:
    """UTF-8, also of text with surrogates, which are written as escapes."""
    return text.encode("utf-8", "backslashreplace")


def is_name(name: str) -> bool:
    """Return whether a label or structured metadata can have this name."""
    return _NAME.fullmatch(name) is not None


def _name(name: str) -> str:
    if not is_name(name):
        raise ValueError(
            f"{name!r} can't be a label's name: letters, digits and `_`, the first one no digit"
        )
    return name


def _escape(value: str) -> str:
    """Escape a value as in a Go string literal, which Loki parses."""
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}", value)


def sized(content: bytes) -> bytes:
    """Protobuf's bytes or message: its length, and itself."""
    return varint(len(content)) + content


def varint(value: int) -> bytes:
    """Protobuf's."""
    if value < 128:
        return _SHORT[value]
    groups = bytearray()
    while value > 127:
        groups.append(0x80 | value & 127)
        value >>= 7
    groups.append(value)
    return bytes(groups)
