"""The node agent's configuration: a TOML file into frozen dataclasses, every problem of it at once
(docs/agent.md)."""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace

from logshipper.errors import ConfigError
from logshipper_ingest.config.influxdb_section import INFLUXDB_SINK, InfluxdbSection, filled
from logshipper_ingest.config.loki_section import MAX_LINE_BYTES, SINK_NAME, LokiSection
from logshipper_ingest.config.metrics_access import MetricsAccess
from logshipper_ingest.config.telegraf_section import TelegrafSection
from logshipper_ingest.config.tenants import NOBODYS, TENANT_BY
from logshipper_ingest.config.toml_section import broken, fill, hint, read_toml
from logshipper_ingest.model.job import NAME
from logshipper_ingest.servers.server_access import ServerAccess

DEFAULT_PATH = "/etc/logshipper/agent.toml"
MIN_SPOOL_BYTES = 1_000_000
MAX_SINKS = 8
FIRST_SINK = "loki"  # what [loki] is called where it has no name
SINKS_FOLDER = "sinks"  # in state_dir: a folder for each sink that has a name
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*):([0-9]{1,5})")


@dataclass(frozen=True)
class AgentSection:
    """cluster: its label; host: the node's, "" for its own name; spool_dir: captures wait there;
    state_dir: what the agent remembers; socket: where `logshipper run` asks for a directory, "" for
    none; max_captures_per_user: in the spool at a time; job_spool_..., user_spool_...: bytes of
    segments of a job, and of a user, on this node, 0 for any: soft slows their output, hard stops
    their log lines; poll_secs: between two looks at the spool."""

    cluster: str = "local"
    host: str = ""
    spool_dir: str = "/var/spool/logshipper"
    state_dir: str = "/var/lib/logshipper"
    socket: str = "/run/logshipper/agent.sock"
    max_captures_per_user: int = 1000
    job_spool_soft_max_bytes: int = 4 << 30
    job_spool_hard_max_bytes: int = 8 << 30
    user_spool_soft_max_bytes: int = 8 << 30
    user_spool_hard_max_bytes: int = 16 << 30
    poll_secs: float = 0.25


@dataclass(frozen=True)
class MetricsSection:
    """listen: address and port of /metrics, "" for none; access: who may read it; job_values:
    whether jobs' ids, keys and values are shown, by default unless is_open; expire_secs: how long
    after its end a job's series stay; max_captures, max_keys: of all, and of a job;
    max_label_bytes: keys that are longer are left out."""

    listen: str = "127.0.0.1:9310"
    access: MetricsAccess = field(default_factory=MetricsAccess)
    job_values: bool = True
    expire_secs: float = 300.0
    max_captures: int = 2000
    max_keys: int = 100
    max_label_bytes: int = 128

    @property
    def is_open(self) -> bool:
        """Whether whoever reaches this node reads /metrics: it listens on more than loopback, and
        wants no credentials."""
        return (
            bool(self.listen) and not is_loopback(self.listen) and not self.access.wants_credentials
        )


@dataclass(frozen=True)
class PrometheusSection:
    """Where Prometheus is: only `check` asks it."""

    access: ServerAccess = field(default_factory=ServerAccess)


@dataclass(frozen=True)
class RemoteWriteSection:
    """access: its url is where remote write goes, path included, "" for nowhere; interval_secs:
    between two rounds of samples; max_samples: of a request; queue_max_bytes: of requests that
    wait, compressed; max_age_secs: older ones are dropped; retry_min_secs, retry_max_secs: pauses
    between tries."""

    access: ServerAccess = field(default_factory=ServerAccess)
    interval_secs: float = 15.0
    max_samples: int = 2000
    queue_max_bytes: int = 16_000_000
    max_age_secs: float = 3000.0
    retry_min_secs: float = 1.0
    retry_max_secs: float = 30.0


@dataclass(frozen=True)
class SlurmSection:
    """ended_dir: where the hook job-ended on Slurm's controller tells how jobs ended, "" where
    there is none."""

    ended_dir: str = ""


@dataclass(frozen=True)
class AgentConfig:
    """loki: the sink that is meant, the first Loki where nothing else is said; further: the other
    Lokis, by name; influxdbs: InfluxDBs, likewise; influxdb: the one that is meant, None for a
    Loki; table: what stands over it in the file, without brackets; path: the file that says so, ""
    for none."""

    agent: AgentSection = field(default_factory=AgentSection)
    loki: LokiSection = field(default_factory=LokiSection)
    metrics: MetricsSection = field(default_factory=MetricsSection)
    prometheus: PrometheusSection = field(default_factory=PrometheusSection)
    slurm: SlurmSection = field(default_factory=SlurmSection)
    remote_write: RemoteWriteSection = field(default_factory=RemoteWriteSection)
    telegraf: TelegrafSection = field(default_factory=TelegrafSection)
    path: str = ""
    further: Mapping[str, LokiSection] = field(default_factory=dict)
    table: str = "loki"
    influxdbs: Mapping[str, InfluxdbSection] = field(default_factory=dict)
    influxdb: InfluxdbSection | None = None

    @property
    def sinks(self) -> list["AgentConfig"]:
        """This configuration as each sink has it, where `loki` is that one; the first is [loki]'s.
        Of an InfluxDB `loki` has what a shipper has to know of any sink."""
        alone = replace(self, further={}, influxdbs={})
        lokis = [
            replace(alone, loki=one, table=f"loki.{name}") for name, one in self.further.items()
        ]
        influxdbs = [
            replace(
                alone,
                loki=one.as_loki(name),
                table=_influxdb_table(name),
                influxdb=one,
                slurm=SlurmSection(),
            )
            for name, one in self.influxdbs.items()
        ]
        return [self, *lokis, *influxdbs]

    @property
    def lokis(self) -> list["AgentConfig"]:
        """Those of the sinks that are one."""
        return [one for one in self.sinks if one.influxdb is None]

    @property
    def sink(self) -> str:
        """What `loki` is called in logs, `status` and metrics."""
        return self.loki.name or FIRST_SINK

    @property
    def sink_dir(self) -> str:
        """Where the agent remembers how far it is with `loki`, and keeps what that refused."""
        name = self.loki.name
        return (
            os.path.join(self.agent.state_dir, SINKS_FOLDER, name) if name else self.agent.state_dir
        )


def _influxdb_table(name: str) -> str:
    return "influxdb" if name == INFLUXDB_SINK else f"influxdb.{name}"


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


def load(path: str) -> AgentConfig:
    """The configuration that a file says. Raises ConfigError with all that is wrong with it."""
    config, problems = read(path)
    if problems:
        raise ConfigError(path, problems)
    return config


def read(path: str) -> tuple[AgentConfig, list[str]]:
    """The configuration, and a sentence for each problem. Raises ConfigError where there is no TOML
    at all."""
    return parse(read_toml(path), path)


def parse(tables: Mapping[str, object], path: str = "") -> tuple[AgentConfig, list[str]]:
    """The same, of tables that were read already. host is filled in, and what tenants by user ask
    for."""
    problems = [
        f"[{name}]: there is no such table{hint(name, list(SECTIONS))}"
        for name in tables
        if name not in SECTIONS
    ]
    agent = fill(AgentSection, tables.get("agent", {}), "agent", problems)
    loki_table, further_tables = _loki_tables(tables.get("loki", {}))
    loki = fill(LokiSection, loki_table, "loki", problems)
    metrics = fill(MetricsSection, tables.get("metrics", {}), "metrics", problems)
    if metrics.is_open and "job_values" not in _names(tables.get("metrics")):
        metrics = replace(metrics, job_values=False)
    prometheus = fill(PrometheusSection, tables.get("prometheus", {}), "prometheus", problems)
    slurm = fill(SlurmSection, tables.get("slurm", {}), "slurm", problems)
    remote_write = fill(
        RemoteWriteSection, tables.get("remote_write", {}), "remote_write", problems
    )
    telegraf = fill(TelegrafSection, tables.get("telegraf", {}), "telegraf", problems)
    if not agent.host:
        agent = replace(agent, host=os.uname().nodename)
    further = {
        name: _further(loki, name, table, problems) for name, table in further_tables.items()
    }
    loki, further = _for_nobody(loki), {name: _for_nobody(one) for name, one in further.items()}
    if any(one.tenant_by for one in (loki, *further.values())):
        metrics = replace(
            metrics, job_values=False
        )  # Prometheus has no users: its readers would see all jobs
    problems += _agent_problems(agent) + _loki_rules(loki, "loki") + loki.access.problems("loki")
    problems += _further_problems(loki, further)
    influxdbs = filled(tables.get("influxdb", {}), problems)
    problems += _names_problems({loki.name or FIRST_SINK, *further}, influxdbs)
    problems += _metrics_problems(metrics)
    problems += prometheus.access.problems("prometheus") + _slurm_problems(slurm, agent)
    problems += _remote_write_problems(remote_write) + telegraf.problems()
    sections = agent, loki, metrics, prometheus, slurm, remote_write, telegraf
    config = AgentConfig(*sections, path, further, influxdbs=influxdbs)
    return config, problems


def _names(table: object) -> Collection[object]:
    return table if isinstance(table, Mapping) else ()


_LOKI_OPTIONS = [option.name for option in fields(LokiSection)]
_INHERITED = [name for name in _LOKI_OPTIONS if name not in ("access", "name")]


def _loki_tables(loki: object) -> tuple[object, dict[str, Mapping[str, object]]]:
    """[loki] by itself, and those of further Lokis, [loki.NAME], by name."""
    if not isinstance(loki, Mapping):
        return loki, {}
    known = {*_LOKI_OPTIONS, *(option.name for option in fields(ServerAccess))}
    further = {
        name: table
        for name, table in loki.items()
        if isinstance(table, Mapping) and name not in known
    }
    return {name: value for name, value in loki.items() if name not in further}, further


def _further(
    first: LokiSection, name: str, table: Mapping[str, object], problems: list[str]
) -> LokiSection:
    """What it doesn't say of rates, sizes, pauses and tenant_by is as in [loki]; nothing of how
    Loki is reached is: another server must not get the first one's credentials."""
    if "name" in table:
        problems.append(f"[loki.{name}] name: the table's own is the name")
    said = fill(LokiSection, {option: value for option, value in table.items() if option != "name"},
                f"loki.{name}", problems)  # fmt: skip
    return replace(
        said,
        name=name,
        **{option: getattr(first, option) for option in _INHERITED if option not in table},
    )


def _for_nobody(loki: LokiSection) -> LokiSection:
    if not loki.tenant_by:
        return loki
    return replace(loki, access=replace(loki.access, tenant=loki.access.tenant or NOBODYS))


def _agent_problems(agent: AgentSection) -> list[str]:
    socket_bytes = len(os.fsencode(agent.socket))
    rules = {
        "cluster": (
            bool(NAME.fullmatch(agent.cluster)),
            "letters, digits, `.`, `_`, `-`, at most 64",
        ),
        "host": (bool(NAME.fullmatch(agent.host)), "letters, digits, `.`, `_`, `-`, at most 64"),
        "spool_dir": (os.path.isabs(agent.spool_dir), "must be an absolute path"),
        "state_dir": (os.path.isabs(agent.state_dir), "must be an absolute path"),
        "socket": (
            not agent.socket or os.path.isabs(agent.socket),
            'must be an absolute path, or "" for none',
        ),
        "socket ": (
            socket_bytes <= 107,
            "is longer than the 107 bytes that a socket's path may have",
        ),
        "max_captures_per_user": (
            1 <= agent.max_captures_per_user <= 1_000_000,
            "must be 1 to 1000000",
        ),
        "poll_secs": (0.05 <= agent.poll_secs <= 60, "must be 0.05 to 60"),
    }
    problems = broken(rules, "agent") + _spool_problems(agent)
    if os.path.normpath(agent.spool_dir) == os.path.normpath(agent.state_dir):
        problems.append("[agent] state_dir: must be another folder than spool_dir")
    return problems


def _spool_problems(agent: AgentSection) -> list[str]:
    problems = []
    for scope in ("job", "user"):
        soft, hard = f"{scope}_spool_soft_max_bytes", f"{scope}_spool_hard_max_bytes"
        values = {name: getattr(agent, name) for name in (soft, hard)}
        least = {name: (value == 0 or value >= MIN_SPOOL_BYTES, f"must be 0, or at least {MIN_SPOOL_BYTES}")
                 for name, value in values.items()}  # fmt: skip
        problems += broken(least, "agent")
        if values[soft] > values[hard] > 0:
            problems.append(
                f"[agent] {soft}: must be at most {hard}: a hard limit stops what a soft one slows"
            )
    return problems


def _further_problems(first: LokiSection, further: Mapping[str, LokiSection]) -> list[str]:
    """Of what is inherited only [loki] is told."""
    problems = []
    inherited = {problem.partition("] ")[2] for problem in _loki_rules(first, "loki")}
    places = {(first.access.url.rstrip("/"), first.access.tenant): "loki"}
    for name, loki in further.items():
        table = f"loki.{name}"
        own = _loki_rules(loki, table)
        problems += [
            one for one in own if "] url:" in one or one.partition("] ")[2] not in inherited
        ]
        problems += loki.access.problems(table)
        if name == first.name:
            problems.append(f"[{table}]: is the name of [loki]; another name tells them apart")
        known = places.setdefault((loki.access.url.rstrip("/"), loki.access.tenant), table)
        if known != table and loki.access.url:
            problems.append(
                f"[{table}]: has url and tenant of [{known}]: all would be sent there twice"
            )
    if len(further) >= MAX_SINKS:
        problems.append(f"[loki]: {len(further)} tables more than itself, at most {MAX_SINKS - 1}")
    return problems


def _names_problems(lokis: set[str], influxdbs: Mapping[str, InfluxdbSection]) -> list[str]:
    taken = [_influxdb_table(name) for name in influxdbs if name in lokis]
    problems = [
        f"[{table}]: is the name of a Loki; another name tells them apart" for table in taken
    ]
    if len(lokis) + len(influxdbs) > MAX_SINKS and influxdbs:
        problems.append(
            f"[influxdb]: {len(lokis) + len(influxdbs)} servers to ship to, with Lokis, at most {MAX_SINKS}"
        )
    return problems


def _loki_rules(loki: LokiSection, table: str) -> list[str]:
    rules = {
        "name": (
            not loki.name or (bool(SINK_NAME.fullmatch(loki.name)) and loki.name != FIRST_SINK),
            f"a small letter, then small letters, digits, `_`, `-`, at most 32; not `{FIRST_SINK}`",
        ),
        "url": (
            bool(loki.access.url),
            "is missing: where Loki is, such as http://loki.example.org:3100",
        ),
        "tenant_by": (loki.tenant_by in TENANT_BY, 'must be "user", or "" for one tenant'),
        "batch_max_bytes": (
            10_000 <= loki.batch_max_bytes <= 10_000_000,
            "must be 10000 to 10000000",
        ),
        "batch_wait_secs": (0 <= loki.batch_wait_secs <= 60, "must be 0 to 60"),
        "stream_max_bytes_per_sec": (
            loki.stream_max_bytes_per_sec == 0 or loki.stream_max_bytes_per_sec >= 10_000,
            "must be 0, or at least 10000",
        ),
        "tenant_max_bytes_per_sec": (
            loki.tenant_max_bytes_per_sec == 0 or loki.tenant_max_bytes_per_sec >= 100_000,
            "must be 0, or at least 100000",
        ),
        "max_line_bytes": (
            1000 <= loki.max_line_bytes <= MAX_LINE_BYTES,
            f"must be 1000 to {MAX_LINE_BYTES}",
        ),
        "max_age_hours": (
            1 <= loki.max_age_hours <= 167,
            "must be 1 to 167: replay streams are told apart for a week",
        ),
        "retry_min_secs": (
            0 < loki.retry_min_secs <= loki.retry_max_secs,
            "must be over 0, at most retry_max_secs",
        ),
        "retry_max_secs": (loki.retry_max_secs <= 600, "must be at most 600"),
        "settle_secs": (0 <= loki.settle_secs <= 600, "must be 0 to 600"),
        "heartbeat_secs": (5 <= loki.heartbeat_secs <= 3600, "must be 5 to 3600"),
        "quarantine_max_bytes": (loki.quarantine_max_bytes >= 0, "must not be negative"),
    }
    return broken(rules, table)


def _metrics_problems(metrics: MetricsSection) -> list[str]:
    rules = {
        "listen": (not metrics.listen or listen_address(metrics.listen) is not None, 'looks like 127.0.0.1:9310; ""'
                   " for none"),
        "expire_secs": (0 <= metrics.expire_secs <= 86400, "must be 0 to 86400"),
        "max_captures": (1 <= metrics.max_captures <= 100_000, "must be 1 to 100000"),
        "max_keys": (1 <= metrics.max_keys <= 256, "must be 1 to 256"),
        "max_label_bytes": (16 <= metrics.max_label_bytes <= 1024, "must be 16 to 1024"),
    }  # fmt: skip
    return broken(rules, "metrics") + metrics.access.problems()


def _remote_write_problems(section: RemoteWriteSection) -> list[str]:
    retry_min_secs, retry_max_secs = section.retry_min_secs, section.retry_max_secs
    rules = {
        "interval_secs": (
            1 <= section.interval_secs <= 300,
            "must be 1 to 300: series end after 300 s without any",
        ),
        "max_samples": (1 <= section.max_samples <= 100_000, "must be 1 to 100000"),
        "queue_max_bytes": (section.queue_max_bytes >= 100_000, "must be at least 100000"),
        "max_age_secs": (10 <= section.max_age_secs <= 86_400, "must be 10 to 86400"),
        "retry_min_secs": (
            0 < retry_min_secs <= retry_max_secs,
            "must be over 0, at most retry_max_secs",
        ),
        "retry_max_secs": (retry_max_secs <= 600, "must be at most 600"),
    }
    return broken(rules, "remote_write") + section.access.problems("remote_write")


def _slurm_problems(slurm: SlurmSection, agent: AgentSection) -> list[str]:
    folder = os.path.normpath(slurm.ended_dir)
    others = [os.path.normpath(agent.spool_dir), os.path.normpath(agent.state_dir)]
    rules = {
        "ended_dir": (
            not slurm.ended_dir or os.path.isabs(folder),
            'must be an absolute path, or "" for none',
        ),
        "ended_dir ": (
            not slurm.ended_dir or folder not in others,
            "must be another folder than spool_dir, state_dir",
        ),
    }
    return broken(rules, "slurm")


def listen_address(text: str) -> tuple[str, int] | None:
    """Address ("" for all) and port of `HOST:PORT`; None where it isn't one."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or int(found[2]) > 65535:
        return None
    return found[1].strip("[]"), int(found[2])


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches the address `HOST:PORT`."""
    host = (listen_address(listen) or ("", 0))[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "ip6-localhost")
