"""A decoder of Loki's push requests and Prometheus' write requests.

It follows the protobuf specification field by field, and shares no code with the encoder.
"""

from collections.abc import Iterator
from typing import NamedTuple

import cramjam


class Pushed(NamedTuple):
    time_ns: int
    line: bytes
    metadata: list[tuple[str, str]]


def fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a protobuf structure.

    Varints are int; other values are bytes, also those of 64 bits.
    """
    at = 0
    while at < len(content):
        tag, at = varint(content, at)
        if tag & 7 == 0:
            value, at = varint(content, at)
            yield tag >> 3, value
        elif tag & 7 == 1:
            yield tag >> 3, content[at : at + 8]
            at += 8
        else:
            assert tag & 7 == 2, f"wire type {tag & 7}"
            size, at = varint(content, at)
            assert at + size <= len(content), "a field is longer than what holds it"
            yield tag >> 3, content[at : at + size]
            at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        byte = content[at + place]
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise AssertionError("a varint has at most ten bytes")


def decode(body: bytes) -> tuple[str, list[Pushed]]:
    """Return labels and entries of a request of one stream."""
    ((number, stream),) = fields(body)
    assert number == 1
    assert isinstance(stream, bytes)
    labels = ""
    entries = []
    for number, value in fields(stream):
        assert isinstance(value, bytes)
        if number == 1:
            labels = value.decode()
        else:
            assert number == 2
            entries.append(entry(value))
    return labels, entries


def entry(content: bytes) -> Pushed:
    time_ns, line, metadata = -1, None, []
    for number, value in fields(content):
        assert isinstance(value, bytes)
        if number == 1:
            assert time_ns == -1, "one time"
            stamp = dict(fields(value))
            seconds, nanos = stamp[1], stamp[2]
            assert isinstance(seconds, int)
            assert isinstance(nanos, int)
            assert nanos < 1_000_000_000
            time_ns = seconds * 1_000_000_000 + nanos
        elif number == 2:
            assert line is None, "one line"
            line = value
        else:
            assert number == 3
            pair = dict(fields(value))
            name, text = pair[1], pair[2]
            assert isinstance(name, bytes)
            assert isinstance(text, bytes)
            metadata.append((name.decode(), text.decode()))
    assert line is not None
    return Pushed(time_ns, line, metadata)


def decompress(body: bytes) -> bytes:
    return bytes(cramjam.snappy.decompress_raw(body))


class Written(NamedTuple):
    """A series with one sample. value: eight bytes of a little-endian float."""

    labels: list[tuple[str, str]]
    value: bytes
    time_ms: int


def decode_write(body: bytes) -> list[Written]:
    """Return the series of a `prometheus.WriteRequest`."""
    return [
        decode_series(series)
        for number, series in fields(body)
        if number == 1 and isinstance(series, bytes)
    ]


def decode_series(content: bytes) -> Written:
    labels, samples = [], []
    for number, part in fields(content):
        assert isinstance(part, bytes)
        field_of = dict(fields(part))
        if number == 1:
            name, value = field_of[1], field_of[2]
            assert isinstance(name, bytes)
            assert isinstance(value, bytes)
            labels.append((name.decode(), value.decode()))
        else:
            assert number == 2
            samples.append(field_of)
    (sample,) = samples
    number_bytes, time_ms = sample[1], sample[2]
    assert isinstance(number_bytes, bytes)
    assert isinstance(time_ms, int)
    return Written(labels, number_bytes, time_ms)
