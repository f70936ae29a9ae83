"""What an agent, and `replay`, need to bring entries to a server, of whichever kind it is."""

import threading
from collections.abc import Callable

from logshipper_ingest.config.sink_config import Server, SinkConfig, is_influxdb
from logshipper_ingest.influxdb.client import InfluxdbClient
from logshipper_ingest.influxdb.influxdb_sink import InfluxdbSink
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.metrics_server import SinkMetrics
from logshipper_ingest.shipping.delivery import Delivery
from logshipper_ingest.shipping.loki_sink import LokiSink
from logshipper_ingest.shipping.sink import PushClient, Sink


def push_client(config: SinkConfig[Server]) -> LokiClient | InfluxdbClient:
    """For one thread; close it."""
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
    sink: Sink = (
        InfluxdbSink(config) if is_influxdb(config) else LokiSink(config.cluster, config.host)
    )
    return Delivery(sink, make_client, config.delivery, metrics, stop, say)
