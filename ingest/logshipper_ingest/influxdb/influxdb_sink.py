"""InfluxDB as a sink for metadata records: interprets its answers.

A type conflict is a partial write: InfluxDB stores the other points and names one field and its
type. If the number of dropped points equals the number of points with this field and type, these
are the refused ones. Otherwise the sink halves the batch. A resend overwrites each point with
itself.
"""

import re
from collections.abc import Sequence

from logshipper.errors import PushError
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.influxdb.client import NOTHING, compress
from logshipper_ingest.influxdb.points import encode_all, point_of, type_of
from logshipper_ingest.influxdb.sent_points import SentPoints, sent_point
from logshipper_ingest.servers.refusals import OTHER, TOO_LARGE, first_match
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.sink import Push, Verdict

TYPE_CONFLICT = "type_conflict"
_PATTERNS = {
    TYPE_CONFLICT: r"field type conflict",
    "too_old": r"beyond retention policy|outside retention policy|outside of retention",
    "series_limit": r"max-series-per-database|max-values-per-tag|series limit",
    "malformed": r"unable to parse|invalid (line protocol|field|number|boolean)|poorly formed",
}
REASONS = (*_PATTERNS, TOO_LARGE, OTHER)
_CONFLICT = re.compile(
    r'input field "(.*)" on measurement "(.*)" is type (\w+), already exists as type \w+', re.S
)
_DROP_COUNT = re.compile(r"dropped=(\d+)\D*$")


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    return TOO_LARGE if error.status == 413 else first_match(_PATTERNS, error.excerpt)


class InfluxdbSink:
    """Takes metadata only."""

    kind = "InfluxDB"
    split_statuses = (400, 413, 422)
    reasons = REASONS

    def __init__(self, config: SinkConfig[InfluxdbSection]) -> None:
        self._measurement = config.server.measurement
        self._sent = SentPoints() if config.server.measurements else None
        self._table = config.table
        self._node = config.cluster, config.host

    def takes(self, key: StreamKey) -> bool:
        return key.kind == "metadata"

    def push(self, chunks: Sequence[Chunk]) -> Push:
        points, values_left_out = encode_all(chunks, self._measurement, *self._node)
        if self._sent is not None:
            sent_points, sent_left_out = self._sent.encode_all(chunks, *self._node)
            points, values_left_out = points + sent_points, values_left_out + sent_left_out
        return Push(compress(points), values_left_out)

    def probe(self, key: StreamKey) -> bytes:
        return compress(NOTHING)

    def reason(self, error: PushError) -> str:
        return reason_of(error)

    def is_certain(self, error: PushError) -> bool:
        return reason_of(error) != OTHER

    def judge(self, chunks: list[Chunk], error: PushError) -> Verdict:
        """Judge by the named field, if it explains the number of dropped points."""
        conflict, drop_count = _CONFLICT.search(error.excerpt), _DROP_COUNT.search(error.excerpt)
        if conflict is None or drop_count is None:
            return Verdict(chunks, [])
        verdict = Verdict([], [])
        for chunk in chunks:
            begin = 0
            for at, line in enumerate(chunk.lines):
                if not self._has(line, *conflict.groups()):
                    continue
                refused_chunk = chunk.slice(at, at + 1)
                verdict.refusals.append(
                    Refusal(refused_chunk, TYPE_CONFLICT, error.status, error.excerpt)
                )
                if at > begin:
                    verdict.rest.append(chunk.slice(begin, at))
                begin = at + 1
            if begin < len(chunk.lines):
                verdict.rest.append(chunk.slice(begin, len(chunk.lines)))
        return verdict if len(verdict.refusals) == int(drop_count[1]) else Verdict(chunks, [])

    def _has(self, line: bytes, field: str, measurement: str, kind: str) -> bool:
        if measurement == self._measurement:
            fields = point_of(line).fields
        else:
            sent = sent_point(line)
            fields = sent.fields if sent is not None and sent.measurement == measurement else {}
        value = fields.get(field)
        return value is not None and type_of(value) == kind

    def fix(self, error: PushError, tenant: str) -> str:
        if error.status in (401, 403):
            return f"credentials are wrong: look at [{self._table}] in the agent's configuration; everything waits"
        if error.status == 404:
            return f"look at [{self._table}] url, database, bucket and org: the agent makes none; everything waits"
        return "everything waits in the spool, and is tried again"
