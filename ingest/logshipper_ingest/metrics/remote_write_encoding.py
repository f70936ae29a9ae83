"""The text of /metrics as remote write 1.0: Prometheus' `WriteRequest` (protobuf). Pure.

All samples of a round share one time. The encoder caches the labels of each present series, so a
sample costs a look-up, a number and a join. Times are always six-byte varints: protobuf allows more
groups than needed.

Field numbers: Prometheus' prompb/remote.proto and types.proto; rules for labels:
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

import re
import struct
from collections.abc import Mapping

from logshipper_ingest.servers.loki_push import sized, varint

STALE = struct.pack("<Q", 0x7FF0_0000_0000_0002)  # the NaN that ends a series
MAX_TIME_MS = (1 << 42) - 1
_SAMPLE_BYTES = 16  # of a Sample: tag and value, tag and time
_LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_NUMBER = struct.Struct("<d")


class SeriesEncoder:
    """Encodes rounds of text, adding labels such as `instance` to each series."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._heads: dict[str, bytes] = {}  # by the series' text

    def encode(self, text: str, time_ms: int) -> list[bytes]:
        """Return each series with a sample, and vanished series with a stale marker. Any of them,
        joined, are a request.

        text: Prometheus' text format 0.0.4 without times. time_ms: since 1970.
        """
        time = encode_time(time_ms)
        before, self._heads = self._heads, {}
        series_bytes: list[bytes] = []
        for line in text.split("\n"):
            if line and line[0] != "#":
                series, _, value = line.rpartition(" ")
                head = before.get(series) or self.head(series)
                self._heads[series] = head
                series_bytes.append(self.sample(head, float(value), time))
        series_bytes += [
            head + STALE + time for series, head in before.items() if series not in self._heads
        ]
        return series_bytes

    @staticmethod
    def sample(head: bytes, value: float, time: bytes) -> bytes:
        """Return a series with one sample, from the results of `head` and `encode_time`."""
        return head + _NUMBER.pack(value) + time

    def head(self, series: str) -> bytes:
        """Return the bytes before a sample's value. series: such as `name{label="value"}`."""
        name, _, rest = series.partition("{")
        labels = {"__name__": name, **self._labels}
        labels |= {match[1]: _ESCAPED.sub(_unescape, match[2]) for match in _LABEL.finditer(rest)}
        encoded = b"".join(
            b"\x0a" + sized(b"\x0a" + sized(name.encode()) + b"\x12" + sized(value.encode()))
            for name, value in sorted(labels.items())
            if value  # an empty label is none, and must not be sent
        )
        length = varint(len(encoded) + 2 + _SAMPLE_BYTES)
        return b"\x0a" + length + encoded + bytes((0x12, _SAMPLE_BYTES, 0x09))


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])


def encode_time(time_ms: int) -> bytes:
    """Return a sample's tag and time. Raises ValueError for times before 1970 or after 2109."""
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(f"{time_ms} ms is no time for a sample")
    groups = (0x80 | time_ms >> place & 127 for place in (0, 7, 14, 21, 28))
    return bytes((0x10, *groups, time_ms >> 35))


def split(request: bytes) -> list[bytes]:
    """Return the encoded series of a write request."""
    series = []
    begin = 0
    while begin < len(request):
        size, at, shift = 0, begin + 1, 0
        while True:
            byte = request[at]
            size |= (byte & 127) << shift
            at, shift = at + 1, shift + 7
            if byte < 128:
                break
        series.append(request[begin : at + size])
        begin = at + size
    return series
