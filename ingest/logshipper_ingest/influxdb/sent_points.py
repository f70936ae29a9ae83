"""Measurements of jobs as points with their own name and tags, so that queries and dashboards for
Telegraf's points work.

A point also has the tags of all points, so that equal measurements of two jobs differ. If the job
sent a tag of that name, ours gets an `_`. Integers remain integers, as Telegraf writes them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from logshipper.spool.segment import SENT
from logshipper_ingest.influxdb import points
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.shipping.entries import Chunk

MAX_TAGS_BYTES = 8 << 10  # of the tags that a point's sender set
MAX_SERIES = 256  # of a capture: sets of measurement and tags
MAX_CAPTURES = 1024  # with counted series; the module forgets the oldest first
_MIN_TIME_NS, _MAX_TIME_NS = -(1 << 63) + 2, (1 << 63) - 2  # InfluxDB's
_RESERVED = frozenset({"time", "_time", "_measurement", "_field"})  # names that no tag can have


class SentPoint(NamedTuple):
    """A measurement.

    time_ns: its own time, or None; left_out: number of values that no field can hold.
    """

    measurement: str
    tags: dict[str, str]
    fields: dict[str, points.Field]
    time_ns: int | None
    left_out: int


def sent_point(line: bytes) -> SentPoint | None:
    """Parse a record that line_protocol.py made from a measurement; None if the protocol cannot
    write it."""
    record = parse_record(line)
    if not record:
        return None
    measurement, content = next(iter(record.items()))
    beside = [f"{name}_" if name == measurement else name for name in ("tags", "time")]
    tags, own_time = (record.get(name) for name in beside)
    tags = {} if tags is None else tags
    if not isinstance(tags, dict) or not points.is_name(measurement):
        return None
    sent_tags = {points.free_name(name, _RESERVED): value for name, value in tags.items()}
    if not all(
        isinstance(value, str) and points.is_name(name) for name, value in sent_tags.items()
    ):
        return None
    fields: dict[str, points.Field] = {}
    values = content if isinstance(content, dict) else {"value": content}
    for name, value in values.items():
        field = points.field_value(value, integers=True)
        key = points.field_name(name, fields, reserved=_RESERVED)
        if field is not None and key:
            fields[key] = field
    time_ns = None
    if isinstance(own_time, int) and _MIN_TIME_NS <= own_time <= _MAX_TIME_NS:
        time_ns = own_time
    return SentPoint(measurement, sent_tags, fields, time_ns, len(values) - len(fields))


class SentPoints:
    """Encodes them, of each capture those of its first MAX_SERIES series."""

    def __init__(self) -> None:
        self._series: dict[str, set[int]] = {}  # by capture: hashes

    def encode_all(self, chunks: Iterable[Chunk], cluster: str, host: str) -> tuple[bytes, int]:
        """Encode the points of all measurements; also return the number of omitted values."""
        lines: list[bytes] = []
        left_out = 0
        for chunk in chunks:
            for at, line in enumerate(chunk.lines):
                if not chunk.extra or SENT not in chunk.extra[at]:
                    continue
                point = sent_point(line)
                if point is None or not self._has_room(chunk.capture, point):
                    left_out += 1
                    continue
                left_out += point.left_out
                if point.fields:
                    tags = dict(point.tags)
                    for name, value in points.tags_of(chunk, at, cluster, host).items():
                        tags[points.free_name(name, tags)] = value
                    time_ns = chunk.times_ns[at] if point.time_ns is None else point.time_ns
                    lines.append(points.encode(point.measurement, tags, point.fields, time_ns))
        return b"".join(lines), left_out

    def _has_room(self, capture: str, point: SentPoint) -> bool:
        tags = point.tags.items()
        size = sum(len(name) + len(value.encode("utf-8", "replace")) for name, value in tags)
        if size > MAX_TAGS_BYTES:
            return False
        series = self._series.get(capture)
        if series is None:
            if len(self._series) >= MAX_CAPTURES:
                del self._series[next(iter(self._series))]
            series = self._series[capture] = set()
        key = hash((point.measurement, *sorted(point.tags.items())))
        if key not in series and len(series) >= MAX_SERIES:
            return False
        series.add(key)
        return True
