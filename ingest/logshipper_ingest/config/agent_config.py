"""The node agent's configuration: a TOML file as frozen dataclasses, with all problems at once
(docs/agent.md)."""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from logshipper.errors import ConfigError
from logshipper_ingest.config import toml_section
from logshipper_ingest.config.delivery_options import retry_rules
from logshipper_ingest.config.influxdb_section import INFLUXDB_SINK, InfluxdbSection, fill_influxdbs
from logshipper_ingest.config.loki_section import FIRST_SINK, MAX_SINKS, LokiSection, fill_lokis
from logshipper_ingest.config.metrics_access import MetricsAccess
from logshipper_ingest.config.sink_config import AnyServer, Server, SinkConfig
from logshipper_ingest.config.telegraf_section import TelegrafSection
from logshipper_ingest.model.job import NAME
from logshipper_ingest.servers.server_access import ServerAccess

if TYPE_CHECKING:
    from logshipper_ingest.config.otlp_section import OtlpSection

DEFAULT_PATH = "/etc/logshipper/agent.toml"
MIN_SPOOL_BYTES = 1_000_000
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*):([0-9]{1,5})")


@dataclass(frozen=True)
class AgentSection:
    """The node's table: places and limits of captures."""

    cluster: str = "local"  # label of all shipped entries
    host: str = ""  # the node's name, "" for its host name
    spool_dir: str = "/var/spool/logshipper"  # folder of waiting captures
    state_dir: str = "/var/lib/logshipper"  # folder of checkpoints and quarantine
    socket: str = "/run/logshipper/agent.sock"  # for requests of `logshipper run`; "" for none
    max_captures_per_user: int = 1000  # in the spool at the same time
    # segment bytes on this node, 0 for any number:
    job_spool_soft_max_bytes: int = 4 << 30  # of a job; more slow its output
    job_spool_hard_max_bytes: int = 8 << 30  # of a job; more stop its log lines
    user_spool_soft_max_bytes: int = 8 << 30  # of a user; more slow the output
    user_spool_hard_max_bytes: int = 16 << 30  # of a user; more stop the log lines
    poll_secs: float = 0.25  # between two polls of the spool


@dataclass(frozen=True)
class MetricsSection:
    """/metrics of the agent."""

    listen: str = "127.0.0.1:9310"  # address and port; "" for none
    access: MetricsAccess = field(default_factory=MetricsAccess)  # TLS and credentials of readers
    job_values: bool = True  # show jobs' ids, keys and values; by default unless is_open
    expire_secs: float = 300.0  # lifetime of a job's series after its end
    max_captures: int = 2000  # of all jobs
    max_keys: int = 100  # of a job
    max_label_bytes: int = 128  # longer keys are omitted

    @property
    def is_open(self) -> bool:
        """Whether everyone with access to this node can read /metrics: it listens beyond
        loopback and asks for no credentials."""
        return (
            bool(self.listen) and not is_loopback(self.listen) and not self.access.wants_credentials
        )


@dataclass(frozen=True)
class PrometheusSection:
    """The address of Prometheus, for `check` only."""

    access: ServerAccess = field(default_factory=ServerAccess)


@dataclass(frozen=True)
class RemoteWriteSection:
    """Samples pushed to a server, for nodes that no Prometheus can scrape."""

    access: ServerAccess = field(default_factory=ServerAccess)  # url: path included, "" for nowhere
    interval_secs: float = 15.0  # between two rounds of samples
    max_samples: int = 2000  # of a request
    queue_max_bytes: int = 16_000_000  # of waiting requests, compressed
    max_age_secs: float = 3000.0  # older samples are dropped
    retry_min_secs: float = 1.0  # the first pause between tries
    retry_max_secs: float = 30.0  # the longest one


@dataclass(frozen=True)
class SlurmSection:
    """Reports of Slurm's controller."""

    ended_dir: str = ""  # where the hook job-ended writes records; "" for none


@dataclass(frozen=True)
class AgentConfig:
    """The whole file. `sinks` has each server that the agent ships to."""

    agent: AgentSection = field(default_factory=AgentSection)
    loki: LokiSection = field(default_factory=LokiSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    prometheus: PrometheusSection = field(default_factory=PrometheusSection)
    slurm: SlurmSection = field(default_factory=SlurmSection)
    remote_write: RemoteWriteSection = field(default_factory=RemoteWriteSection)
    telegraf: TelegrafSection = field(default_factory=TelegrafSection)
    path: str = ""  # the file, "" for none
    named_lokis: Mapping[str, LokiSection] = field(default_factory=dict)  # [loki.NAME], by name
    influxdbs: Mapping[str, InfluxdbSection] = field(default_factory=dict)  # likewise
    otlps: "Mapping[str, OtlpSection]" = field(default_factory=dict)  # likewise

    @property
    def sinks(self) -> list[SinkConfig[Server]]:
        """All servers that the agent ships to. [loki] is the first."""
        sinks: list[SinkConfig[Server]] = [*self.lokis]
        for name, influxdb in self.influxdbs.items():
            sinks.append(self._sink(influxdb, name, _table(INFLUXDB_SINK, name)))
        for name, section in self.otlps.items():
            for label, signal in section.signals(name).items():
                sinks.append(self._sink(signal, label, _table(OTLP, name)))
        return sinks

    @property
    def lokis(self) -> list[SinkConfig[LokiSection]]:
        """The sinks that are a Loki."""
        ended_dir = self.slurm.ended_dir
        sections = self.named_lokis.items()
        return [
            self._sink(self.loki, self.loki.name, FIRST_SINK, ended_dir),
            *(self._sink(loki, name, f"loki.{name}", ended_dir) for name, loki in sections),
        ]

    def _sink(
        self, server: AnyServer, name: str, table: str, ended_dir: str = ""
    ) -> SinkConfig[AnyServer]:
        agent = self.agent
        node = agent.cluster, agent.host, agent.state_dir
        return SinkConfig(server, name, table, *node, ended_dir)


def _table(kind: str, name: str) -> str:
    return kind if name == kind else f"{kind}.{name}"


SECTIONS = {
    "agent": AgentSection,
    "loki": LokiSection,
    "influxdb": InfluxdbSection,
    "metrics": MetricsSection,
    "prometheus": PrometheusSection,
    "slurm": SlurmSection,
    "remote_write": RemoteWriteSection,
    "telegraf": TelegrafSection,
}
OTLP = "otlp"  # a further table; its section is imported only if present


class UnsetError(ConfigError):
    """The configuration is not filled in: [loki] lacks a url, and nothing else is wrong."""


def load(path: str) -> AgentConfig:
    """Read a configuration. Raises ConfigError with all its problems."""
    config, problems = read(path)
    if problems:
        is_unset = len(problems) == 1 and not config.loki.access.url
        raise (UnsetError if is_unset else ConfigError)(path, problems)
    return config


def read(path: str) -> tuple[AgentConfig, list[str]]:
    """Return the configuration and a sentence for each problem. Raises ConfigError if the file
    is not TOML."""
    return parse(toml_section.read_toml(path), path)


def parse(tables: Mapping[str, object], path: str = "") -> tuple[AgentConfig, list[str]]:
    """Return configuration and problems of parsed tables. Sets the host, and the options that
    tenants by user require."""
    problems = toml_section.unknown_tables(tables, [*SECTIONS, OTLP])
    agent = toml_section.fill(AgentSection, tables.get("agent", {}), "agent", problems)
    loki, named_lokis, loki_problems = fill_lokis(tables.get("loki", {}), problems)
    metrics_table = tables.get("metrics", {})
    metrics = toml_section.fill(MetricsSection, metrics_table, "metrics", problems)
    if metrics.is_open and isinstance(metrics_table, Mapping) and "job_values" not in metrics_table:
        metrics = replace(metrics, job_values=False)
    prometheus = toml_section.fill(
        PrometheusSection, tables.get("prometheus", {}), "prometheus", problems
    )
    slurm = toml_section.fill(SlurmSection, tables.get("slurm", {}), "slurm", problems)
    write_table = tables.get("remote_write", {})
    remote_write = toml_section.fill(RemoteWriteSection, write_table, "remote_write", problems)
    telegraf = toml_section.fill(TelegrafSection, tables.get("telegraf", {}), "telegraf", problems)
    if not agent.host:
        agent = replace(agent, host=os.uname().nodename)
    if any(section.tenant_by for section in (loki, *named_lokis.values())):
        # Prometheus has no users, so its readers would see all jobs
        metrics = replace(metrics, job_values=False)
    problems += _agent_problems(agent) + loki_problems
    influxdbs = fill_influxdbs(tables.get("influxdb", {}), problems)
    otlps = {}
    if OTLP in tables:
        from logshipper_ingest.config.otlp_section import fill_otlps

        otlps = fill_otlps(tables[OTLP], problems)
    problems += _metrics_problems(metrics)
    problems += prometheus.access.problems("prometheus") + _slurm_problems(slurm, agent)
    problems += _remote_write_problems(remote_write) + telegraf.problems()
    sections = agent, loki, metrics, prometheus, slurm, remote_write, telegraf
    config = AgentConfig(*sections, path, named_lokis, influxdbs, otlps)
    problems += _names_problems(config)
    return config, problems


def _agent_problems(agent: AgentSection) -> list[str]:
    name_form = "letters, digits, `.`, `_`, `-`, at most 64"
    rules = {
        "cluster": (bool(NAME.fullmatch(agent.cluster)), name_form),
        "host": (bool(NAME.fullmatch(agent.host)), name_form),
        "spool_dir": (os.path.isabs(agent.spool_dir), "must be an absolute path"),
        "state_dir": (os.path.isabs(agent.state_dir), "must be an absolute path"),
        **toml_section.socket_rules(agent.socket),
        **toml_section.within(agent, max_captures_per_user=(1, 1_000_000), poll_secs=(0.05, 60)),
    }
    problems = toml_section.broken(rules, "agent")
    for scope in ("job", "user"):
        soft, hard = f"{scope}_spool_soft_max_bytes", f"{scope}_spool_hard_max_bytes"
        limits = {soft: MIN_SPOOL_BYTES, hard: MIN_SPOOL_BYTES}
        problems += toml_section.broken(toml_section.zero_or_at_least(agent, **limits), "agent")
        if getattr(agent, soft) > getattr(agent, hard) > 0:
            reason = "a hard limit stops what a soft one slows"
            problems.append(f"[agent] {soft}: must be at most {hard}: {reason}")
    if os.path.normpath(agent.spool_dir) == os.path.normpath(agent.state_dir):
        problems.append("[agent] state_dir: must be another folder than spool_dir")
    return problems


def _names_problems(config: AgentConfig) -> list[str]:
    """Return problems with the names of sinks other than Lokis."""
    problems = []
    sinks = config.sinks
    owners = {sink.label: "a Loki" for sink in config.lokis}
    for sink in sinks[len(config.lokis) :]:
        if sink.label in owners:
            owner = owners[sink.label]
            problems.append(
                f"[{sink.table}]: is the name of {owner}; another name tells them apart"
            )
        owners.setdefault(sink.label, f"what [{sink.table}] ships to")
    if len(sinks) > MAX_SINKS and (config.influxdbs or config.otlps):
        problems.append(
            f"[{OTLP if config.otlps else INFLUXDB_SINK}]: {len(sinks)} servers to ship to, with Lokis, at most"
            f" {MAX_SINKS}{'; logs and metrics of one count as two' if config.otlps else ''}"
        )
    return problems


def _metrics_problems(metrics: MetricsSection) -> list[str]:
    rules = {
        "listen": (
            not metrics.listen or listen_address(metrics.listen) is not None,
            'looks like 127.0.0.1:9310; "" for none',
        ),
        **toml_section.within(metrics, expire_secs=(0, 86400), max_captures=(1, 100_000)),
        **toml_section.within(metrics, max_keys=(1, 256), max_label_bytes=(16, 1024)),
    }
    return toml_section.broken(rules, "metrics") + metrics.access.problems()


def _remote_write_problems(section: RemoteWriteSection) -> list[str]:
    rules = {
        "interval_secs": (
            1 <= section.interval_secs <= 300,
            "must be 1 to 300: series end after 300 s without any",
        ),
        **toml_section.within(section, max_samples=(1, 100_000)),
        "queue_max_bytes": (section.queue_max_bytes >= 100_000, "must be at least 100000"),
        **toml_section.within(section, max_age_secs=(10, 86_400)),
        **retry_rules(section.retry_min_secs, section.retry_max_secs),
    }
    return toml_section.broken(rules, "remote_write") + section.access.problems("remote_write")


def _slurm_problems(slurm: SlurmSection, agent: AgentSection) -> list[str]:
    if not slurm.ended_dir:
        return []
    folder = os.path.normpath(slurm.ended_dir)
    agent_folders = [os.path.normpath(agent.spool_dir), os.path.normpath(agent.state_dir)]
    is_apart = folder not in agent_folders
    rules = {
        "ended_dir": (os.path.isabs(folder), 'must be an absolute path, or "" for none'),
        "ended_dir ": (is_apart, "must be another folder than spool_dir, state_dir"),
    }
    return toml_section.broken(rules, "slurm")


def listen_address(text: str) -> tuple[str, int] | None:
    """Return address ("" for all) and port of `HOST:PORT`, or None if malformed."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        return None
    return match[1].strip("[]"), int(match[2])


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches the address `HOST:PORT`."""
    host = (listen_address(listen) or ("", 0))[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "ip6-localhost")
