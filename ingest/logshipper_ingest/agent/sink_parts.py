"""Clients and deliveries for each kind of sink, for the agent and `replay`."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from logshipper_ingest.config.sink_config import Server, SinkConfig, is_influxdb, is_otlp
from logshipper_ingest.influxdb.client import InfluxdbClient
from logshipper_ingest.influxdb.influxdb_sink import InfluxdbSink
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.agent_metrics import SinkMetrics
from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.loki_sink import LokiSink
from logshipper_ingest.shipping.sink import PushClient, Sink

if TYPE_CHECKING:
    from logshipper_ingest.otlp.client import OtlpClient

ClosablePushClient: TypeAlias = "LokiClient | InfluxdbClient | OtlpClient"


def push_client(
    config: SinkConfig[Server], say: Callable[[str], None] | None = None
) -> ClosablePushClient:
    """Return a client for one thread; close it. say: receives warnings of the server."""
    if is_otlp(config):
        from logshipper_ingest.otlp.client import OtlpClient

        return OtlpClient(config.server, say)
    if is_influxdb(config):
        return InfluxdbClient(config.server)
    return LokiClient(config.server.access)


def make_delivery(
    config: SinkConfig[Server],
    make_client: Callable[[], PushClient],
    metrics: SinkMetrics,
    stop: threading.Event,
    say: Callable[[str], None],
) -> Delivery:
    return Delivery(_sink(config), make_client, config.delivery, metrics, stop, say)


def _sink(config: SinkConfig[Server]) -> Sink:
    if is_otlp(config):
        from logshipper_ingest.otlp.otlp_sink import OtlpSink

        return OtlpSink(config)
    return InfluxdbSink(config) if is_influxdb(config) else LokiSink(config.cluster, config.host)
