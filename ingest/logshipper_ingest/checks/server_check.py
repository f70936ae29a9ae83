"""`logshipper-agent check`: compares servers and node with the agent's needs. Pushes one entry
and fixes nothing."""

from logshipper_ingest.checks.check_influxdb import check_influxdbs
from logshipper_ingest.checks.check_loki import check_lokis
from logshipper_ingest.checks.check_node import check_node
from logshipper_ingest.checks.check_prometheus import check_prometheus
from logshipper_ingest.checks.check_slurm import check_slurm
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.config.agent_config import AgentConfig


def check(config: AgentConfig, plugstack: str | None = None) -> list[Finding]:
    """Return all findings, after some seconds or a few time-outs of each server. Raises nothing.
    plugstack: Slurm's plugstack.conf, None for the usual one."""
    findings = check_lokis(config) + check_influxdbs(config)
    if config.otlps:
        from logshipper_ingest.checks.check_otlp import check_otlps

        findings += check_otlps(config)
    return [
        *findings,
        *check_prometheus(config),
        *check_node(config),
        *check_slurm(config, plugstack),
    ]
