"""`logshipper-agent check`: compares servers and node with the agent's needs. Pushes one entry
and fixes nothing."""

from collections.abc import Callable

from logshipper_ingest.checks.check_influxdb import check_influxdbs
from logshipper_ingest.checks.check_loki import check_lokis
from logshipper_ingest.checks.check_node import check_node
from logshipper_ingest.checks.check_prometheus import check_prometheus
from logshipper_ingest.checks.check_slurm import check_slurm
from logshipper_ingest.checks.findings import Finding, as_document, exit_code, print_findings
from logshipper_ingest.config.agent_config import AgentConfig

__all__ = ["Finding", "as_document", "check", "exit_code", "print_findings"]


def _check_otlps(config: AgentConfig) -> list[Finding]:
    if not config.otlps:
        return []
    from logshipper_ingest.checks.check_otlp import check_otlps

    return check_otlps(config)


_PARTS: tuple[Callable[[AgentConfig], list[Finding]], ...] = (
    check_lokis,
    check_influxdbs,
    _check_otlps,
    check_prometheus,
    check_node,
)


def check(config: AgentConfig, plugstack: str | None = None) -> list[Finding]:
    """Return all findings, after some seconds or a few time-outs of each server. Raises nothing.
    plugstack: Slurm's plugstack.conf, None for the usual one."""
    return [finding for part in _PARTS for finding in part(config)] + check_slurm(config, plugstack)
