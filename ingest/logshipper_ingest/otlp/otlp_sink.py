"""An OTLP server as a sink, for one signal: log records of all entries, or points of metadata
records.

A partial success is final: the server gives the number of dropped entries without naming them, and
the sink must not send any again. If it dropped all, they go to the quarantine; otherwise the sink
counts them. Other refusals (400, 413, 422, 500) concern the whole request: the sink halves the
batch until the refused entries are alone. Loki's own endpoint stores the other entries and still
answers 400; it drops exact repeats.
"""

import time
from collections.abc import Sequence

from logshipper.errors import PushError
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.metrics.agent_metrics import PARTIAL_SUCCESS
from logshipper_ingest.otlp.client import PartialSuccess, compress
from logshipper_ingest.otlp.log_records import encode_logs, probe
from logshipper_ingest.otlp.points import encode_points
from logshipper_ingest.servers.refusals import CERTAIN, REASONS, reason_of
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.loki_sink import late_verdict
from logshipper_ingest.shipping.quarantine import Refusal
from logshipper_ingest.shipping.sink import Push, Verdict


class OtlpSink:
    kind = "OTLP"
    split_statuses = (200, 204, 400, 413, 422, 500)  # the first two: of a partial success
    reasons = (*REASONS, PARTIAL_SUCCESS)

    def __init__(self, config: SinkConfig[OtlpSection]) -> None:
        self._is_logs = config.server.logs
        self._table = config.table
        self._node = config.cluster, config.host

    def takes(self, key: StreamKey) -> bool:
        return self._is_logs or key.kind == "metadata"

    def push(self, chunks: Sequence[Chunk]) -> Push:
        if self._is_logs:
            return Push(compress(encode_logs(chunks, *self._node)))
        points = encode_points(chunks, *self._node)
        return Push(compress(points.body), points.left_out)

    def probe(self, key: StreamKey) -> bytes:
        """A record of our own; of points a request without any."""
        return compress(probe(key, *self._node, time.time_ns()) if self._is_logs else b"")

    def reason(self, error: PushError) -> str:
        return PARTIAL_SUCCESS if isinstance(error, PartialSuccess) else reason_of(error)

    def is_certain(self, error: PushError) -> bool:
        return isinstance(error, PartialSuccess) or reason_of(error) in CERTAIN

    def judge(self, chunks: list[Chunk], error: PushError) -> Verdict:
        if not isinstance(error, PartialSuccess):
            return late_verdict(chunks, error)
        if error.count < self._count(chunks):
            return Verdict([], [], error.count)
        refusals = [
            Refusal(chunk, PARTIAL_SUCCESS, error.status, error.excerpt) for chunk in chunks
        ]
        return Verdict([], refusals)

    def _count(self, chunks: Sequence[Chunk]) -> int:
        """Count records or points, as the server does."""
        if self._is_logs:
            return sum(len(chunk.lines) for chunk in chunks)
        return encode_points(chunks, *self._node).point_count

    def fix(self, error: PushError, tenant: str) -> str:
        table = f"[{self._table}] in the agent's configuration"
        if error.status in (401, 403):
            return f"credentials or headers are wrong: look at {table}; everything waits"
        if error.status in (404, 405):
            return f"nothing speaks OTLP there: look at url of {table}; everything waits"
        if error.status == 415:
            return "it takes no protobuf, or no gzip, which OTLP asks of it; everything waits"
        if error.status in self.split_statuses:
            return "it refuses everything; all data waits"
        return "everything waits in the spool, and is tried again"
