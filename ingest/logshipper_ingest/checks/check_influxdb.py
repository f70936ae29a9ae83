"""Checks of each InfluxDB: reachable, and writable as configured. Writes nothing."""

from logshipper.errors import PushError
from logshipper_ingest.checks.findings import Finding, ok, wrong
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.influxdb_section import InfluxdbSection
from logshipper_ingest.config.sink_config import SinkConfig, is_influxdb
from logshipper_ingest.influxdb.client import NOTHING, InfluxdbClient, compress


def check_influxdbs(config: AgentConfig) -> list[Finding]:
    """Return a finding about each InfluxDB."""
    return [_check(sink) for sink in config.sinks if is_influxdb(sink)]


def _check(config: SinkConfig[InfluxdbSection]) -> Finding:
    section = config.server
    with InfluxdbClient(section) as client:
        try:
            client.push_body(compress(NOTHING))
        except PushError as error:
            fix = f"Do [{config.table}] url, database or bucket, and credentials fit? The agent makes no database."
            return wrong(config.label, str(error), fix)
        where = f"bucket {section.bucket}" if section.bucket else f"database {section.database}"
        return ok(config.label, f"{client.name} takes points for the {where}")
