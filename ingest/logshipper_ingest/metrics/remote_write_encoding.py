"""Encodes what /metrics shows as remote write 1.0: Prometheus' `WriteRequest` (protobuf). Pure.

All samples of a round have one time. A series' labels are encoded when it appears and kept as long
as it is there, so that a round costs a look-up, a number and a join for each sample. Times are
varints of always six bytes (protobuf allows more groups than needed).

Field numbers: Prometheus' prompb/remote.proto and types.proto; what labels must be like:
https://prometheus.io/docs/specs/prw/remote_write_spec/
"""

import re
import struct
from collections.abc import Mapping

from logshipper_ingest.servers.loki_push import sized, varint

STALE = struct.pack("<Q", 0x7FF0_0000_0000_0002)  # the NaN that says: this series is over
MAX_TIME_MS = (1 << 42) - 1
_SAMPLE_BYTES = 16  # of a Sample: tag and value, tag and time
_LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n"}
_NUMBER = struct.Struct("<d")


class SeriesEncoder:
    """Turns rounds of text into encoded series. labels: those that each of them gets, such as
    `instance`."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._heads: dict[str, bytes] = {}  # by a series as the text has it

    def encode(self, text: str, time_ms: int) -> list[bytes]:
        """Each series with a sample, and those of the last round that are gone with a last one that
        says so.

        text: Prometheus' text format 0.0.4, without times. time_ms: since 1970. Some of the
        results, joined, are a request.
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
        """A series with one sample. head: as below; time: as `encode_time` gives it."""
        return head + _NUMBER.pack(value) + time

    def head(self, series: str) -> bytes:
        """All that stands before a sample's value. series: such as `name{label="value"}`."""
        name, _, rest = series.partition("{")
        labels = {"__name__": name, **self._labels}
        labels |= {match[1]: _ESCAPED.sub(_unescape, match[2]) for match in _LABEL.finditer(rest)}
        encoded = b"".join(
            b"\x0a"
            + sized(b"\x0a" + sized(label.encode()) + b"\x12" + sized(labels[label].encode()))
            for label in sorted(labels)
            if labels[label]  # one that is empty is none, and must not be sent
        )
        return (
            b"\x0a"
            + varint(len(encoded) + 2 + _SAMPLE_BYTES)
            + encoded
            + bytes((0x12, _SAMPLE_BYTES, 0x09))
        )


def _unescape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[1])


def encode_time(time_ms: int) -> bytes:
    """A sample's time, its tag included. Raises ValueError for times before 1970 or after 2109."""
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(f"{time_ms} ms is no time for a sample")
    return bytes(
        (0x10, *(0x80 | time_ms >> place & 127 for place in (0, 7, 14, 21, 28)), time_ms >> 35)
    )


def split(request: bytes) -> list[bytes]:
    """The encoded series of a write request."""
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
