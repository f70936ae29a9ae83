"""What an agent, and `replay`, need to bring entries to a sink: its client and its sink, of
whichever kind it is."""

import threading
from collections.abc import Callable

from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.influxdb.client import InfluxdbClient
from logshipper_ingest.influxdb.influxdb_sink import InfluxdbSink
from logshipper_ingest.loki.client import Client
from logshipper_ingest.metrics.metrics_server import SinkMetrics
from logshipper_ingest.shipping.loki_sink import LokiSink, PushClient


def push_client(config: AgentConfig) -> Client | InfluxdbClient:
    """For one thread; close it."""
    return (
        Client(config.loki.access) if config.influxdb is None else InfluxdbClient(config.influxdb)
    )


def made_sink(
    config: AgentConfig,
    make_client: Callable[[], PushClient],
    metrics: SinkMetrics,
    stop: threading.Event,
    say: Callable[[str], None],
) -> LokiSink:
    """The sink that config's is."""
    if config.influxdb is not None:
        return InfluxdbSink(make_client, config, metrics, stop, say)
    agent = config.agent
    return LokiSink(
        make_client,
        config.loki,
        lambda key: key.labels(agent.cluster, agent.host),
        metrics,
        stop,
        say,
    )
