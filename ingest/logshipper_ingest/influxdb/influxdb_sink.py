"""Brings metadata records to InfluxDB until each is taken or refused for good: deliveries, retries,
pauses and halving are those of the sink for Loki; here is what InfluxDB's answers mean.

A type conflict is a partial write: InfluxDB stores the others and names one field and its type.
Where exactly as many points were dropped as have that field with that type, these are the refused
ones; else the batch is halved. A resend overwrites each point with itself.
"""

import re
import threading
from collections.abc import Callable, Sequence

from logshipper.errors import PushError
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.influxdb.client import NOTHING, packed
from logshipper_ingest.influxdb.points import encode_all, point_of, type_of
from logshipper_ingest.metrics.metrics_server import SinkMetrics
from logshipper_ingest.servers.refusals import OTHER, TOO_LARGE
from logshipper_ingest.shipping.entries import Chunk, StreamKey
from logshipper_ingest.shipping.loki_sink import LokiSink, PushClient
from logshipper_ingest.shipping.quarantine import Refusal

TYPE_CONFLICT = "type_conflict"
_PATTERNS = (
    (TYPE_CONFLICT, re.compile(r"field type conflict", re.I)),
    (
        "too_old",
        re.compile(r"beyond retention policy|outside retention policy|outside of retention", re.I),
    ),
    ("series_limit", re.compile(r"max-series-per-database|max-values-per-tag|series limit", re.I)),
    (
        "malformed",
        re.compile(
            r"unable to parse|invalid (line protocol|field|number|boolean)|poorly formed", re.I
        ),
    ),
)
REASONS = (*(reason for reason, _ in _PATTERNS), TOO_LARGE, OTHER)
_CONFLICT = re.compile(
    r'input field "(.*)" on measurement ".*" is type (\w+), already exists as type \w+', re.S
)
_DROPPED = re.compile(r"dropped=(\d+)\D*$")


def reason_of(error: PushError) -> str:
    """One of REASONS."""
    if error.status == 413:
        return TOO_LARGE
    return next((reason for reason, pattern in _PATTERNS if pattern.search(error.excerpt)), OTHER)


class InfluxdbSink(LokiSink):
    """config: as this InfluxDB has it (`AgentConfig.sinks`). Takes metadata only."""

    server = "InfluxDB"
    _splitting = (400, 413, 422)

    def __init__(
        self,
        make_client: Callable[[], PushClient],
        config: AgentConfig,
        metrics: SinkMetrics,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        super().__init__(make_client, config.loki, lambda key: {}, metrics, stop, say)
        self._measurement = config.influxdb.measurement if config.influxdb else ""
        self._table = config.table
        self._where = config.agent.cluster, config.agent.host
        self._left_out = threading.local()  # values, of the body that a thread made last
        for reason in REASONS:
            metrics.refused_entries.labels(reason)

    def takes(self, key: StreamKey) -> bool:
        return key.kind == "metadata"

    def _body(self, part: Sequence[Chunk]) -> bytes:
        body, self._left_out.values = encode_all(part, self._measurement, *self._where)
        return packed(body)

    def _acknowledged(self, part: Sequence[Chunk]) -> None:
        if self._left_out.values:
            self._metrics.values_left_out.inc(self._left_out.values)

    def _reason(self, error: PushError) -> str:
        return reason_of(error)

    def _is_certain(self, error: PushError) -> bool:
        return reason_of(error) != OTHER

    def _takes_others(self, key: StreamKey) -> bool:
        try:
            self._client().push_body(packed(NOTHING))
        except PushError:
            return False
        return True

    def _take_known(
        self, part: list[Chunk], error: PushError, refusals: list[Refusal]
    ) -> list[Chunk]:
        found, dropped = _CONFLICT.search(error.excerpt), _DROPPED.search(error.excerpt)
        if found is None or dropped is None:
            return part
        refused: list[Refusal] = []
        kept: list[Chunk] = []
        for chunk in part:
            begin = 0
            for at, line in enumerate(chunk.lines):
                if not _has(line, found[1], found[2]):
                    continue
                refused.append(
                    Refusal(chunk.slice(at, at + 1), TYPE_CONFLICT, error.status, error.excerpt)
                )
                kept += [chunk.slice(begin, at)] if at > begin else []
                begin = at + 1
            kept += [chunk.slice(begin, len(chunk.lines))] if begin < len(chunk.lines) else []
        if len(refused) != int(dropped[1]):
            return part
        refusals += refused
        return kept

    def _fix(self, error: PushError, tenant: str) -> str:
        if error.status in (401, 403):
            return f"credentials are wrong: look at [{self._table}] in the agent's configuration; everything waits"
        if error.status == 404:
            return f"look at [{self._table}] url, database, bucket and org: the agent makes none; everything waits"
        return "everything waits in the spool, and is tried again"


def _has(line: bytes, field: str, kind: str) -> bool:
    value = point_of(line).fields.get(field)
    return value is not None and type_of(value) == kind
