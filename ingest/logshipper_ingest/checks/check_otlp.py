"""Checks of each OTLP server: reachable and writable. Sends a record, or a request without
points."""

from logshipper.errors import PushError
from logshipper_ingest.checks.findings import Finding, ok, wrong
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.otlp_section import OtlpSection
from logshipper_ingest.config.sink_config import SinkConfig, is_otlp
from logshipper_ingest.otlp.client import OtlpClient
from logshipper_ingest.otlp.otlp_sink import OtlpSink
from logshipper_ingest.shipping.entries import StreamKey


def check_otlps(config: AgentConfig) -> list[Finding]:
    """Return a finding about each signal of each server."""
    return [_check(sink) for sink in config.sinks if is_otlp(sink)]


def _check(config: SinkConfig[OtlpSection]) -> Finding:
    signal = "logs" if config.server.logs else "metrics"
    with OtlpClient(config.server) as client:
        try:
            client.push_body(OtlpSink(config).probe(StreamKey("", "event")))
        except PushError as error:
            fix = f"Do [{config.table}] url, credentials and headers_file fit, and does it take {signal}?"
            return wrong(config.label, str(error), fix)
        return ok(config.label, f"{client.name} takes {signal}")
