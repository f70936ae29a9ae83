"""Parses Influx line protocol, as Telegraf's clients send it, to metadata records. Pure; untrusted
input never raises.

    measurement[,tag=value...] field=value[,field=value...] [time]

A measurement becomes one JSON object: `{"loss": 0.46}` for the single field `value` of a
measurement `loss`, else `{"loss": {"train": 0.46, "step": 3}}`; `tags` has its tags, and `time` its
own time, unchanged.
https://docs.influxdata.com/influxdb/v1/write_protocols/line_protocol_reference/
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import orjson

MAX_LINE_BYTES = 64 << 10
MAX_FIELDS = 256
MAX_TAGS = 64
_LEAST_INT, _LARGEST_INT = -(1 << 63), (1 << 64) - 1
# a line ends at a line feed outside quoted strings
_LINES = re.compile(r'(?:[^"\n\\]|\\.|\\|"(?:[^"\\]|\\.)*"|")+', re.DOTALL)
_MEASUREMENT = re.compile(r"(?:[^, \\]|\\.|\\(?=$))+", re.DOTALL)
_TAG = re.compile(r",((?:[^,= \\]|\\.)+)=((?:[^,= \\]|\\.|\\(?=$))*)", re.DOTALL)
_FIELD = re.compile(r"((?:[^,= \\]|\\.)+)=", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BARE = re.compile(r"[^, ]+")
_BLANKS = re.compile(r" +")
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_IN_STRING = re.compile(r'\\(["\\])')
_INT = re.compile(r"[-+]?[0-9]{1,20}[iu]", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]{1,5})?", re.ASCII)
_TIME = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.I)
_BOOLEANS = {**dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
             **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False)}  # fmt: skip

REASONS = tuple(
    "encoding too_long measurement tags no_fields string not_finite value time too_many".split()
)
Value = bool | int | float | str


class _Invalid(Exception):
    """reason: one of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Measurement(NamedTuple):
    """A line. record: JSON, "" for an invalid line; keys: of the record; reason: one of REASONS for
    an invalid line."""

    record: bytes
    keys: tuple[str, ...]
    reason: str = ""


def parse(data: bytes) -> Iterator[Measurement]:
    """Each measurement of a datagram, or of lines of a stream, in order. Blank lines and comments
    are passed over."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        if b"\n" in data.strip(b"\n"):  # one bad line must not cost the others
            for raw_line in data.split(b"\n"):
                yield from parse(raw_line)
        else:
            yield Measurement(b"", (), "encoding")
        return
    # without these, each line feed ends a line, and each blank a part of it
    if '"' not in text and "\\" not in text:
        for line in _worth(text.split("\n")):
            yield _parse_plain(line) or _parse_line(line)
        return
    for match in _LINES.finditer(text):
        line = match[0]
        if "\n" in line:
            whole = _parse_line(line.strip(" \r"))
            # an odd quote has taken the next line in: each by itself, then
            yield from [whole] if not whole.reason else map(_parse_line, _worth(line.split("\n")))
        else:
            yield from map(_parse_line, _worth([line]))


def _worth(lines: list[str]) -> list[str]:
    stripped = [line.strip(" \r\t") for line in lines]
    return [line for line in stripped if line and not line.startswith("#")]


def _parse_line(line: str) -> Measurement:
    try:
        if len(line) > MAX_LINE_BYTES:
            raise _Invalid("too_long")
        return _record(*_parts(line))
    except _Invalid as invalid:
        return Measurement(b"", (), invalid.reason)


def _parse_plain(line: str) -> Measurement | None:
    """Parse a line without quotes and backslashes, in a third of the time of `_parse_line`; None
    for other lines."""
    series, *parts = line.split(" ")
    measurement, *pairs = series.split(",")
    is_plain = measurement and 1 <= len(parts) <= 2
    if not is_plain or len(line) > MAX_LINE_BYTES or len(pairs) > MAX_TAGS:
        return None
    tags: dict[str, str] = {}
    for pair in pairs:
        key, _, tag = pair.partition("=")
        if not key or not tag or "=" in tag:
            return None
        tags[key] = tag
    fields: dict[str, Value] = {}
    pairs = parts[0].split(",")
    if len(pairs) > MAX_FIELDS:
        return None
    try:
        for pair in pairs:
            key, _, text = pair.partition("=")
            if not key:
                return None
            fields[key] = _value(text)
        return _record(measurement, tags, fields, _time(parts[1]) if len(parts) > 1 else None)
    except _Invalid:
        return None


def _parts(line: str) -> tuple[str, dict[str, str], dict[str, Value], int | None]:
    """Measurement, tags, fields and time. Raises _Invalid."""
    head = _MEASUREMENT.match(line)
    if head is None:
        raise _Invalid("measurement")
    tags, at = _tags(line, head.end())
    blanks = _BLANKS.match(line, at)
    if blanks is None:
        raise _Invalid("no_fields" if at == len(line) else "tags")
    fields, at = _fields(line, blanks.end())
    rest = line[at:].strip(" ")
    return _ESCAPED.sub(r"\1", head[0]), tags, fields, _time(rest) if rest else None


def _tags(line: str, at: int) -> tuple[dict[str, str], int]:
    tags: dict[str, str] = {}
    while line[at : at + 1] == ",":
        match = _TAG.match(line, at)
        if match is None or not match[2]:  # InfluxDB refuses an empty one, too
            raise _Invalid("tags")
        if len(tags) >= MAX_TAGS:
            raise _Invalid("too_many")
        tags[_ESCAPED.sub(r"\1", match[1])] = _ESCAPED.sub(r"\1", match[2])
        at = match.end()
    return tags, at


def _fields(line: str, at: int) -> tuple[dict[str, Value], int]:
    fields: dict[str, Value] = {}
    while True:
        key = _FIELD.match(line, at)
        if key is None:
            raise _Invalid("value" if fields else "no_fields")
        if len(fields) >= MAX_FIELDS:
            raise _Invalid("too_many")
        at = key.end()
        if line[at : at + 1] == '"':
            quoted = _STRING.match(line, at)
            if quoted is None or line[quoted.end() : quoted.end() + 1] not in ("", " ", ","):
                raise _Invalid("string")
            value: Value = _ESCAPED_IN_STRING.sub(r"\1", quoted[1])
            at = quoted.end()
        else:
            bare = _BARE.match(line, at)
            value = _value(bare[0] if bare else "")
            at = bare.end() if bare else at
        fields[_ESCAPED.sub(r"\1", key[1])] = value
        if line[at : at + 1] != ",":
            return fields, at
        at += 1


def _value(text: str) -> Value:
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INT.fullmatch(text):
        number = int(text[:-1])
        if _LEAST_INT <= number <= _LARGEST_INT:
            return number
    elif _FLOAT.fullmatch(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise _Invalid("not_finite")
    raise _Invalid("not_finite" if _NOT_FINITE.fullmatch(text) else "value")


def _time(text: str) -> int:
    time_ns = int(text) if _TIME.fullmatch(text) else None
    if time_ns is None or not _LEAST_INT <= time_ns < -_LEAST_INT:
        raise _Invalid("time")
    return time_ns


def _record(
    measurement: str, tags: dict[str, str], fields: dict[str, Value], time_ns: int | None
) -> Measurement:
    only = list(fields) == ["value"]
    record: dict[str, object] = {measurement: fields["value"] if only else fields}
    for name, more in (("tags", tags or None), ("time", time_ns)):
        if more is not None:
            record[f"{name}_" if name == measurement else name] = more
    return Measurement(orjson.dumps(record), tuple(record))
