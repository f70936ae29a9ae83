"""Rows of a capture as entries of Loki's streams: labels, structured metadata, lines split to Loki's
limit. Pure.

A frame gives one chunk or a few. A chunk's entries share a stream, so that a block of plain lines is
encoded at once. The encoding only depends on the segment and the configuration, so a repeat sends
the same bytes.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, repeat
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import orjson

from logshipper.render.colours import SGR
from logshipper.spool.segment import COPY, ORIGIN, SENT, Kind, Stream
from logshipper_ingest.model.capture_rows import NAME_OF_ORIGIN, BlockRow, EventRow, RecordRow, Rows
from logshipper_ingest.model.job import HEARTBEAT, NAME, Json, job_shard
from logshipper_ingest.model.key_reports import VALUE
from logshipper_ingest.model.ledger import STREAM_NAMES
from logshipper_ingest.servers.loki_push import BlockLines, as_utf8, encode_block, encode_metadata
from logshipper_ingest.spool.capture_folder import Identity

SERVICE = "logshipper"
KIND_LABELS = {
    Kind.LOG: "log",
    Kind.METADATA: "metadata",
    Kind.COMMAND: "command",
    Kind.NOTE: "log",
}
HOUR_NS = 3600 * 10**9
EVENTS_SPAN_NS = 60 * 10**9  # of a chunk, since the first times give the order of chunks
NO_METADATA: Mapping[str, str] = MappingProxyType({})
_PART = re.compile(r"[0-9]{1,9}(/[0-9]{1,9})?")
_HOURS_PER_WEEK = 168
_ENTRY_BYTES = 24  # of an encoded entry without line and metadata
_EXTRA_BYTES = 24
_LEVEL_BYTES = 20  # detected_level, which Loki adds to each entry by default


class StreamKey(NamedTuple):
    """The identity of a stream of an agent."""

    stream: str  # stdout, stderr, "" for events
    kind: str
    replay: str = ""  # hour of the week, see `replay_hour`
    host: str = ""  # the capture's, "" for the agent's own
    tenant: str = ""  # see `tenants.tenant_of`
    shard: str = ""  # of a job's lines, see `job.job_shard`

    @property
    def text(self) -> str:
        """The form in the checkpoints, for `from_text`."""
        return "/".join(self).rstrip("/")

    @classmethod
    def from_text(cls, text: str) -> "StreamKey":
        # a later version may have more fields
        return cls(*text.split("/")[: len(cls._fields)])

    def labels(self, cluster: str, host: str) -> dict[str, str]:
        """Return Loki's labels without empty ones. host: the agent's."""
        labels = {
            "cluster": cluster,
            "service_name": SERVICE,
            "stream": self.stream,
            "kind": self.kind,
            "replay": self.replay,
            "host": self.host or host,
            "job_shard": self.shard,
        }
        return {name: value for name, value in labels.items() if value}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Entries of one capture and stream."""

    capture: str
    key: StreamKey
    times_ns: Sequence[int]  # of each entry; a range if they are a nanosecond apart
    lines: Sequence[bytes]  # of each entry
    common: "Metadata"  # of all entries
    extra: Sequence[Mapping[str, str]] = ()  # more metadata of each entry, or empty
    line_bytes: int = -1  # of all lines; by default they are counted

    def __post_init__(self) -> None:
        if self.line_bytes < 0:
            lines = self.lines
            size = lines.line_bytes if isinstance(lines, BlockLines) else sum(map(len, lines))
            object.__setattr__(self, "line_bytes", size)

    def encoded(self) -> bytes:
        """Encode the entries for `loki_push.assemble`."""
        if not self.extra and isinstance(self.times_ns, range):
            return encode_block(self.lines, self.times_ns[0], self.common.encoded)
        common = self.common.encoded
        extra = self.extra or repeat(NO_METADATA)
        entries = zip(self.times_ns, self.lines, extra, strict=False)
        return b"".join(
            encode_block((line,), time_ns, common + encode_metadata(pairs))
            for time_ns, line, pairs in entries
        )

    @property
    def size(self) -> int:
        """The approximate encoded bytes of all entries."""
        return self.line_bytes + len(self.lines) * self._overhead

    @property
    def weight(self) -> int:
        """The approximate bytes that Loki counts against the tenant's rate."""
        overhead = self.common.pair_bytes + _LEVEL_BYTES + (_EXTRA_BYTES if self.extra else 0)
        return self.line_bytes + len(self.lines) * overhead

    @property
    def _overhead(self) -> int:
        return _ENTRY_BYTES + len(self.common.encoded) + (_EXTRA_BYTES if self.extra else 0)

    def fitting(self, max_bytes: int) -> int:
        """Return how many of the first entries fit into about max_bytes, encoded."""
        lines = self.lines[: max_bytes // self._overhead + 1]
        ends = accumulate(map(self._overhead.__add__, map(len, lines)))
        return bisect_right(list(ends), max_bytes)

    def metadata(self, at: int) -> dict[str, str]:
        return {**self.common.pairs, **(self.extra[at] if self.extra else NO_METADATA)}

    def slice(self, begin: int, end: int) -> "Chunk":
        """Return some of the entries."""
        times, lines = self.times_ns[begin:end], self.lines[begin:end]
        return Chunk(self.capture, self.key, times, lines, self.common, self.extra[begin:end])


class Metadata(NamedTuple):
    """A capture's structured metadata."""

    pairs: Mapping[str, str]
    encoded: bytes  # by `encode_metadata`
    uid: int = -1  # of its user

    @property
    def pair_bytes(self) -> int:
        return len("".join(self.pairs)) + len("".join(self.pairs.values()))


Entry: TypeAlias = tuple[int, bytes, Mapping[str, str]]  # time, line, more metadata


class EntryBuilder:
    """Builds the entries of one capture."""

    def __init__(
        self,
        folder: str,
        identity: Identity,
        max_line_bytes: int,  # longer lines are split
        tenant: str = "",
        *,
        ahead_ns: int = 0,  # subtracted from all times
    ) -> None:
        self._folder = folder
        self._max_line_bytes = max_line_bytes
        self._ahead_ns = ahead_ns
        fields = {
            "job_id": identity.job_id,
            "user": identity.user,
            "step": identity.step,
            "task": str(identity.task),
            "attempt": str(identity.attempt),
        }
        pairs = {name: value for name, value in fields.items() if value}
        self._metadata = Metadata(pairs, encode_metadata(pairs), identity.uid)
        self._tenant = tenant
        self._shard = job_shard(identity.job_id)
        self._host = identity.host if NAME.fullmatch(identity.host) else ""

    def chunks(self, rows: Rows) -> Iterator[Chunk]:
        """Yield the chunks of all rows, lines as well as events of the capture itself."""
        for block in _in_order(rows):
            yield from self._block(block)
        for status in rows.statuses.values():
            text = as_utf8(status.text)[: self._max_line_bytes].decode("utf-8", "ignore").encode()
            key = self._key(status.stream, "status")
            yield self._chunk(key, [(status.time_ns, text or b" ", {})])
        events: dict[str, list[EventRow]] = {}
        for row in sorted([*rows.events, *rows.marks], key=lambda row: row.time_ns):
            kind = HEARTBEAT if row.event.get("event") == HEARTBEAT else "event"
            events.setdefault(kind, []).append(row)
        for kind, of_kind in events.items():
            yield from self._events(self._key(Stream.NONE, kind), of_kind)
        report = rows.report
        if report is not None and report.documents:
            metadata = {"final": "1"} if report.final else {}
            entries = [
                (report.time_ns, json_line(document), metadata) for document in report.documents
            ]
            yield self._chunk(self._key(Stream.NONE, VALUE), entries)

    def _key(self, stream: Stream, kind: str) -> StreamKey:
        # only streams of lines can become a flood
        shard = self._shard if kind == "log" else ""
        name = STREAM_NAMES.get(stream, "")
        return StreamKey(name, kind, host=self._host, tenant=self._tenant, shard=shard)

    def _block(self, block: BlockRow) -> Iterator[Chunk]:
        text = as_utf8(block.text)
        texts = BlockLines(text)
        block_attrs, max_bytes = block.attrs or {}, self._max_line_bytes
        at = 0
        for number, count in block.runs or [(int(Kind.LOG), block.lines)]:
            kind, begin = Kind(number), at
            at += count
            lines, time_ns = texts[begin:at], block.time_ns + begin
            if kind is Kind.STATUS or not lines:
                continue
            key = self._key(block.stream, KIND_LABELS[kind])
            numbers = range(begin, at) if block_attrs else range(0)
            attrs = {line - begin: block_attrs[line] for line in numbers if line in block_attrs}
            is_plain = kind is not Kind.NOTE and not attrs
            if is_plain and (len(text) <= max_bytes or lines.longest <= max_bytes):
                size = len(text) - count if count == block.lines else -1
                times = range(time_ns - self._ahead_ns, time_ns - self._ahead_ns + count)
                yield Chunk(self._folder, key, times, lines, self._metadata, line_bytes=size)
            else:
                yield self._chunk_of_lines(key, kind, lines, time_ns, attrs)

    def _chunk_of_lines(
        self, key: StreamKey, kind: Kind, lines: BlockLines, time_ns: int, attrs: dict[int, Json]
    ) -> Chunk:
        """Return lines that have their own attributes or are too long."""
        entries: list[Entry] = []
        for number, line in enumerate(lines):
            metadata = _valid_attrs(attrs[number]) if number in attrs else {}
            if kind is Kind.NOTE:
                metadata["note"] = "1"
            if len(line) <= self._max_line_bytes:
                entries.append((time_ns + number, line, metadata))
                continue
            pieces = split(line, self._max_line_bytes)
            prefix = f"{metadata['part']}." if "part" in metadata else ""
            entries += [
                (time_ns + number, text, {**metadata, "part": f"{prefix}{piece}/{len(pieces)}"})
                for piece, text in enumerate(pieces, start=1)
            ]
        return self._chunk(key, entries)

    def _events(self, key: StreamKey, rows: Sequence[EventRow]) -> Iterator[Chunk]:
        begin = 0
        for at in range(1, len(rows) + 1):
            if at == len(rows) or rows[at].time_ns - rows[begin].time_ns >= EVENTS_SPAN_NS:
                entries = [
                    (row.time_ns, json_line(row.event), NO_METADATA) for row in rows[begin:at]
                ]
                yield self._chunk(key, entries)
                begin = at

    def _chunk(self, key: StreamKey, entries: Sequence[Entry]) -> Chunk:
        times, lines, extra = zip(*entries, strict=True)
        times = tuple(time_ns - self._ahead_ns for time_ns in times)
        return Chunk(self._folder, key, times, lines, self._metadata, extra if any(extra) else ())


def _valid_attrs(attrs: Json) -> dict[str, str]:
    """Return a line's valid attributes: a segment is hostile input."""
    counts = {name: attrs.get(name) for name in ("n", "repeat", COPY, SENT)}
    pairs = {
        name: str(count)
        for name, count in counts.items()
        if type(count) is int and 0 < count < 1 << 63
    }
    part = attrs.get("part")
    if isinstance(part, str) and _PART.fullmatch(part):
        pairs["part"] = part
    origin = attrs.get(ORIGIN)
    if isinstance(origin, str) and NAME_OF_ORIGIN.fullmatch(origin):
        pairs[ORIGIN] = origin
    return pairs


def _in_order(rows: Rows) -> list[BlockRow]:
    """Return blocks, and records outside of blocks as blocks of their own, by time."""
    copies = [row for row in rows.records if row.is_copy]
    if not copies:
        return rows.blocks
    neighbours = groupby(
        enumerate(copies), lambda pair: (pair[1].stream, pair[1].time_ns - pair[0])
    )
    blocks = [_block_of([row for _, row in group]) for _, group in neighbours]
    return sorted([*rows.blocks, *blocks], key=lambda block: block.time_ns)


def _block_of(copies: Sequence[RecordRow]) -> BlockRow:
    """Return records a nanosecond apart as a block."""
    attrs: dict[int, Json] = {
        at: {"n": row.n, ORIGIN: row.origin, COPY: 1} for at, row in enumerate(copies)
    }
    count, text = len(copies), b"".join([row.line + b"\n" for row in copies])
    runs = [(int(Kind.METADATA), count)]
    return BlockRow(copies[0].stream, copies[0].time_ns, count, runs, attrs, text)


def json_line(value: Json) -> bytes:
    """One line of JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits, half a surrogate pair, deep nesting
        pass
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        event = value.get("event")
        name = event[:64].encode("utf-8", "replace").decode() if isinstance(event, str) else ""
        return orjson.dumps(
            {
                "event": name,
                "message": "its other fields can't be written as JSON, and are left out",
            }
        )


def split(line: bytes, max_bytes: int) -> list[bytes]:
    """Split a line into pieces of at most max_bytes (over 3), between characters and outside of
    colour sequences."""
    pieces = []
    begin = 0
    while begin < len(line):
        end = begin + max_bytes
        while end < len(line) and line[end] & 0xC0 == 0x80:
            end -= 1
        last = line.rfind(b"\x1b", begin, end) if end < len(line) else -1
        if last > begin and (match := SGR.match(line, last)) is not None and match.end() > end:
            end = last
        pieces.append(line[begin:end])
        begin = end
    return pieces


def replay_hour(time_ns: int) -> str:
    """Return the `replay` label of a late entry. Entries of one week in such a stream are at most an
    hour apart, so none is ever too far behind another, in any order."""
    return f"{time_ns // HOUR_NS % _HOURS_PER_WEEK:03d}"


def with_replay(chunk: Chunk, floor_ns: int) -> list[Chunk]:
    """Split a chunk so that entries before floor_ns go to replay streams."""
    if chunk.key.replay or min(chunk.times_ns) >= floor_ns:
        return [chunk]
    hours = [replay_hour(time_ns) if time_ns < floor_ns else "" for time_ns in chunk.times_ns]
    parts: list[Chunk] = []
    begin = 0
    for hour, entries in groupby(hours):
        end = begin + sum(1 for _ in entries)
        # all jobs share an hour's stream, or catching up would open ten times as many streams
        key = chunk.key._replace(replay=hour, shard="") if hour else chunk.key
        parts.append(replace(chunk.slice(begin, end), key=key))
        begin = end
    return parts


def batches(chunks: Iterable[Chunk], max_bytes: int) -> Iterator[list[Chunk]]:
    """Group chunks of one stream into batches of about max_bytes, or of one larger entry."""
    batch: list[Chunk] = []
    room = max_bytes
    for chunk in chunks:
        rest = chunk
        while (size := rest.size) > room:
            count = rest.fitting(room) or (0 if batch else 1)
            if count == len(rest.lines):
                break  # one larger entry
            if count:
                batch.append(rest.slice(0, count))
                rest = rest.slice(count, len(rest.lines))
            yield batch
            batch, room = [], max_bytes
        batch.append(rest)
        room -= size
    if batch:
        yield batch
