"""Metadata records as points of InfluxDB's line protocol: `measurement,tags fields time`. Pure.

https://docs.influxdata.com/influxdb/v1/write_protocols/line_protocol_reference/. A field has one
type for all jobs of a database, and InfluxDB refuses points with another type. So all numbers of
printed records are floats: a key with `0` in one record and `0.5` in the next causes no conflict.
(Loki has the exact integers.) The module counts values that no field can hold: null, lists, numbers beyond a float,
keys that the protocol cannot write.
"""

import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from logshipper.spool.segment import Json
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.shipping.entries import Chunk

MAX_STRING_BYTES = 64 << 10
MAX_DEPTH = 4  # as graphs have it
MAX_FIELDS = 256  # of a record
MAX_KEY_BYTES = 1024
TAGS = ("cluster", "host", "user", "job_id", "attempt", "step", "task", "stream", "origin")
# `time` is the point's own; with a tag's name a query couldn't tell the field; the others are
# InfluxDB 2's own
_RESERVED = frozenset({"time", "_time", "_measurement", "_field", *TAGS})
_BAD_KEY = re.compile(r"[\x00-\x1f\x7f\\]|[\ud800-\udfff]")
_SPECIAL = re.compile(r"([,= ])")
_IN_STRING = re.compile(r'(["\\])')
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")

Field = bool | int | float | str


class Point(NamedTuple):
    """A record as a point."""

    fields: dict[str, Field]  # empty if the protocol can write none
    left_out: int  # number of omitted values


def point_of(line: bytes) -> Point:
    """Convert a printed record; the point has no fields if the line is no JSON."""
    record = parse_record(line)
    if record is None:
        return Point({}, 1)
    fields: dict[str, Field] = {}
    left_out = 0
    for key, value in _leaves(record, "", MAX_DEPTH):
        field = field_value(value)
        name = field_name(key, fields)
        if field is None or not name or len(fields) >= MAX_FIELDS:
            left_out += 1
            continue
        fields[name] = field
    return Point(fields, left_out)


def _leaves(record: Json, prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    """Yield values by name, nested ones as `a.b`; too deep values as one, which becomes no field."""
    for key, value in record.items():
        if isinstance(value, dict) and depth > 1:
            yield from _leaves(value, f"{prefix}{key}.", depth - 1)
        else:
            yield f"{prefix}{key}", value


def field_name(
    key: str, fields: Mapping[str, object], *, reserved: frozenset[str] = _RESERVED
) -> str:
    """Return a field's name, or "" if the protocol cannot write it. A reserved name gets an
    underscore."""
    return free_name(key, reserved, fields) if is_name(key) else ""


def is_name(text: str) -> bool:
    """Return whether a measurement, tag or field can have this name."""
    return bool(text) and len(text) <= MAX_KEY_BYTES and not _BAD_KEY.search(text)


def free_name(name: str, *names: Container[str]) -> str:
    """Return the name, with underscores appended until it differs from all given names."""
    while any(name in some for some in names):
        name += "_"
    return name


def field_value(value: object, *, integers: bool = False) -> Field | None:
    """Return a field's value, or None if no field can hold it. integers: keep those of 64 bits."""
    if isinstance(value, (bool, str)):
        return _truncate(value) if isinstance(value, str) else value
    if integers and isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value
    if isinstance(value, (int, float)):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None


def _truncate(text: str) -> str:
    """To MAX_STRING_BYTES, between characters."""
    whole = text.encode("utf-8", "replace")
    return whole[:MAX_STRING_BYTES].decode("utf-8", "ignore")


def tags_of(chunk: Chunk, at: int, cluster: str, host: str) -> dict[str, str]:
    """Return tags that tell a job's tasks apart: no two records share series and time.

    The tags do not name stdout.
    """
    key = chunk.key
    stream_tags = {
        "cluster": cluster,
        "host": key.host or host,
        "stream": "" if key.stream == "stdout" else key.stream,
    }
    values = {**chunk.metadata(at), **stream_tags}
    return {name: values[name] for name in TAGS if values.get(name)}


def encode(
    measurement: str, tags: Mapping[str, str], fields: Mapping[str, Field], time_ns: int
) -> bytes:
    """A line, with its end."""
    series = ",".join(
        [_escape(measurement), *(f"{name}={_tag(value)}" for name, value in tags.items())]
    )
    field_text = ",".join(f"{_escape(key)}={_value(value)}" for key, value in fields.items())
    return f"{series} {field_text} {time_ns}\n".encode()


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _tag(value: str) -> str:
    """A backslash at the end would take the comma behind it."""
    return _escape(_UNWRITABLE.sub("\ufffd", value).rstrip("\\") or "_")


def _value(value: Field) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value) if isinstance(value, float) else f"{value}i"
    return '"' + _IN_STRING.sub(r"\\\1", value) + '"'


def type_of(value: Field) -> str:
    """Return the type's name in InfluxDB's refusals."""
    names: dict[type, str] = {bool: "boolean", int: "integer", float: "float", str: "string"}
    return names[type(value)]


def encode_all(
    chunks: Iterable[Chunk], measurement: str, cluster: str, host: str
) -> tuple[bytes, int]:
    """Encode the points of all records; also return the number of omitted values."""
    lines: list[bytes] = []
    left_out = 0
    for chunk in chunks:
        shared_tags = None if chunk.extra else tags_of(chunk, 0, cluster, host)
        for at, line in enumerate(chunk.lines):
            point = point_of(line)
            left_out += point.left_out
            if point.fields:
                tags = tags_of(chunk, at, cluster, host) if shared_tags is None else shared_tags
                lines.append(encode(measurement, tags, point.fields, chunk.times_ns[at]))
    return b"".join(lines), left_out
