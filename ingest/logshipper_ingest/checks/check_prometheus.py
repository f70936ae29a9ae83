"""Checks of Prometheus: reachable, and scraping this node's agent often enough."""

import socket
import time
import urllib.parse
from collections.abc import Mapping

from logshipper.errors import PushError, QueryError
from logshipper_ingest.checks.findings import Finding, note, ok, wrong
from logshipper_ingest.config.agent_config import AgentConfig, is_loopback, listen_address
from logshipper_ingest.metrics.prometheus import PrometheusClient, Target
from logshipper_ingest.metrics.remote_write import (
    EMPTY,
    MAX_OFF_SECS,
    RemoteWriteClient,
    own_labels,
    probe,
)
from logshipper_ingest.servers.server_units import duration_secs, words_of_secs

SCRAPES = 3  # least number for a job's series after its end
_DEFAULT_RETENTION = "15d"  # without a flag of Prometheus
_LOOPBACK = ("localhost", "ip6-localhost")


def check_prometheus(config: AgentConfig) -> list[Finding]:
    """Return findings about Prometheus, or a note without [prometheus] url. With [remote_write],
    push a sample."""
    return _remote_write(config) + _server(config)


def _remote_write(config: AgentConfig) -> list[Finding]:
    access = config.remote_write.access
    if not access.url:
        return []
    with RemoteWriteClient(access) as client:
        try:
            date_ns = client.push(EMPTY)
            now_ns = time.time_ns()
            off_secs = (now_ns - (date_ns or now_ns)) / 1e9
            if abs(off_secs) > MAX_OFF_SECS:
                words = f"this node's clock is {off_secs:.0f} s off the server's, which counts for samples then"
                return [wrong("remote write", words, "Look at `chronyc tracking`.")]
            labels = own_labels(config.agent.cluster, config.agent.host)
            client.push(probe(labels, now_ns // 1_000_000))
        except PushError as error:
            fix = "Is [remote_write] url the whole address, does Prometheus run with"
            fix += " --web.enable-remote-write-receiver?"
            return [wrong("remote write", str(error), fix)]
    return [ok("remote write", f"{client.name} takes samples")]


def _server(config: AgentConfig) -> list[Finding]:
    access = config.prometheus.access
    if not config.metrics.listen:
        gets = "gets no scrape" if config.remote_write.access.url else "gets nothing"
        return [note("prometheus", f"{gets} of this node: [metrics] listen is empty")]
    if not access.url:
        fix = "[prometheus] url says where it is; only `check` uses it."
        return [note("prometheus", "wasn't looked at", fix)]
    with PrometheusClient(access) as client:
        try:
            state = "is ready" if client.ready() else "isn't ready yet"
            version = client.build_info().get("version") or "unknown"
            about = ok("prometheus", f"{client.name} {state}; version {version}")
        except QueryError as error:
            fix = "Does it run, is [prometheus] url right, do the credentials fit?"
            return [wrong("prometheus", str(error), fix)]
        return [about, _retention(client), *_check_scrapes(client, config)]


def _retention(client: PrometheusClient) -> Finding:
    try:
        flags = client.flags()
    except QueryError as error:
        return note("prometheus retention", f"isn't told: {error.excerpt}")
    words = f"{words_of_secs(retention_secs(flags))}; of older jobs Loki alone knows"
    return ok("prometheus retention", words)


def retention_secs(flags: Mapping[str, str]) -> float:
    """Return the retention of Prometheus from its flags."""
    names = ("storage.tsdb.retention.time", "storage.tsdb.retention")
    settings = [*(flags.get(name, "") for name in names), _DEFAULT_RETENTION]
    return next(filter(None, map(duration_secs, settings)), 0.0)


def _check_scrapes(client: PrometheusClient, config: AgentConfig) -> list[Finding]:
    try:
        targets = client.targets()
    except QueryError as error:
        return [note("prometheus scrape", f"what it scrapes isn't told: {error.excerpt}")]
    node_targets = [target for target in targets if is_own(target, config)]
    if not node_targets and config.remote_write.access.url:
        return [note("prometheus scrape", "this node isn't scraped: it has [remote_write]")]
    if not node_targets:
        words = f"nothing at {config.metrics.listen} is scraped, of {len(targets)} targets"
        fix = f"scrape_configs: a job with the target {config.agent.host}:{config.metrics.listen.rpartition(':')[2]}"
        if is_loopback(config.metrics.listen):
            fix += "; and from elsewhere [metrics] listen must not be a loopback address"
        return [wrong("prometheus scrape", words, f"{fix}.")]
    return [_target(target, config.metrics.expire_secs) for target in node_targets]


def _target(target: Target, expire_secs: float) -> Finding:
    about, url, every = "prometheus scrape", target.scrape_url, target.interval_secs
    if target.health == "down":
        fix = "Does the agent run, and does Prometheus reach it?"
        return wrong(about, f"{url} is down: {target.last_error}", fix)
    if target.health != "up":
        return note(about, f"{url} wasn't scraped yet")
    if every is None:
        return ok(about, f"{url} is up")
    words = f"{url} is up, every {words_of_secs(every)}; series stay {words_of_secs(expire_secs)} after a job"
    if expire_secs >= SCRAPES * every:
        return ok(about, words)
    fix = f"[metrics] expire_secs = {SCRAPES * every:g}, so that {SCRAPES} scrapes see a job's last values."
    return wrong(about, words, fix)


def is_own(target: Target, config: AgentConfig) -> bool:
    """Whether a target is this node's agent, by port and name or address. Looks up no names: a
    cluster has many."""
    listen = listen_address(config.metrics.listen)
    try:
        parts = urllib.parse.urlsplit(target.scrape_url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    if listen is None or port != listen[1]:
        return False
    names = {config.agent.host, config.agent.host.partition(".")[0], listen[0], *_LOOPBACK}
    return host in names or host.partition(".")[0] in names or _is_own_address(host)


def _is_own_address(host: str) -> bool:
    """Whether an address belongs to this machine: only such an address can be bound."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((host, 0))
        except OSError:
            continue
        return True
    return False
