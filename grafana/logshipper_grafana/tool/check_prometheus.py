"""Tests whether the Prometheus behind a data source fits the dashboards: frequent scrapes of the
agents, with their labels; through Grafana."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set

from logshipper.errors import QueryError
from logshipper_grafana.parts import Json
from logshipper_grafana.tool.check_loki import reach_fix
from logshipper_grafana.tool.server import as_options
from logshipper_ingest.checks.check_prometheus import retention_secs
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.metrics.prometheus import PrometheusClient, Target
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.servers.server_units import duration_secs, words_of_secs

LEAST_VERSION = (2, 33)  # queries have a negative offset
MOST_SCRAPE_SECS = 100.0  # of a job's series, which stay 300 s after its end: three scrapes
LEAST_RETENTION_SECS = 86_400.0
_BUILD_INFO = "logshipper_agent_build_info"
_JOB_INFO = "logshipper_job_info"
_OF_EACH_JOB = ("logshipper_job_state", "logshipper_job_start_time_seconds", "logshipper_job_lines")
_LABELS = ("cluster", "host")
_KEEP_LABELS = "scrape_configs: let no metric_relabel_configs drop labels of logshipper_ metrics."


def check_prometheus(access: ServerAccess, source: Json) -> list[Finding]:
    """Return the findings; earlier ones explain later ones. access: through Grafana; source: the
    data source."""
    with PrometheusClient(access) as client:
        try:
            version = client.build_info().get("version", "")
        except QueryError as error:
            if error.status != 404 or not _answers(client):
                fix = reach_fix(error, "prometheus")
                return [Finding("wrong", "prometheus", as_options(str(error)), fix)]
            version = ""
        try:
            agents = _labels_of(client, f"last_over_time({_BUILD_INFO}[1d])")
            jobs = _labels_of(client, f"last_over_time({_JOB_INFO}[1d])")
            every = 'last_over_time({__name__=~"logshipper_job_.+"}[1d])'
            names = {
                labels.get("__name__", "")
                for labels in _labels_of(client, f"group by(__name__)({every})")
            }
        except QueryError as error:
            return [_version(version), Finding("wrong", "prometheus", as_options(str(error)))]
        return [
            _version(version),
            _retention(client),
            *judge_series(agents, jobs, names),
            *(_scrapes(client, agents, source) if agents else []),
        ]


def _labels_of(client: PrometheusClient, promql: str) -> list[Mapping[str, str]]:
    return [series.labels for series in client.query(promql)]


def _answers(client: PrometheusClient) -> bool:
    """Return whether it answers PromQL; other servers than Prometheus report no version."""
    try:
        return bool(client.query("vector(1)"))
    except QueryError:
        return False


def _version(version: str) -> Finding:
    about, numbers = "prometheus version", re.match(r"v?(\d+)\.(\d+)", version)
    if numbers is None:
        return Finding("note", about, "isn't told; queries need what Prometheus 2.33 can")
    if (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
        fix = "Prometheus 2.33 or newer: queries look at the day after the page's time (`offset -1d`)."
        return Finding("wrong", about, f"{version} is too old", fix)
    return Finding("ok", about, version)


def _retention(client: PrometheusClient) -> Finding:
    try:
        flags = client.flags()
    except QueryError as error:
        return Finding("note", "prometheus retention", f"isn't told: {as_options(error.excerpt)}")
    secs = retention_secs(flags)
    words = f"{words_of_secs(secs)}; of older jobs the pages have what Loki knows"
    if secs < LEAST_RETENTION_SECS:
        fix = "--storage.tsdb.retention.time=15d: lists, X and thinning come from Prometheus."
        return Finding("note", "prometheus retention", words, fix)
    return Finding("ok", "prometheus retention", words)


def judge_series(
    agents: Sequence[Mapping[str, str]], jobs: Sequence[Mapping[str, str]], names: Iterable[str]
) -> list[Finding]:
    """agents, jobs: labels of build_info and job_info in the last day; names: of metrics of jobs.
    Pure."""
    if not agents and not jobs:
        words = f"no agent was scraped in the last day ({_BUILD_INFO})"
        fix = "scrape_configs: a job with each node's agent, port 9310 (docs/metrics.md)."
        return [Finding("wrong", "prometheus series", words, fix)]
    return [_judge_labels([*agents, *jobs], len(agents)), _judge_jobs(jobs, {*names})]


def _judge_labels(series: Sequence[Mapping[str, str]], agent_count: int) -> Finding:
    about = "prometheus labels"
    exported = sorted(
        {name for labels in series for name in labels if name.startswith("exported_")}
    )
    if exported:
        names = ", ".join(name.removeprefix("exported_") for name in exported)
        words = f"agents' own labels were renamed: {', '.join(exported)}"
        fix = f"scrape_configs: honor_labels: true, or no label {names} of the targets' own."
        return Finding("wrong", about, words, fix)
    absent = [name for name in _LABELS if any(name not in labels for labels in series)]
    if absent:
        return Finding("wrong", about, f"series without {', '.join(absent)}", _KEEP_LABELS)
    return Finding("ok", about, f"{agent_count} agents', as they give them")


def _judge_jobs(jobs: Sequence[Mapping[str, str]], names: Set[str]) -> Finding:
    about = "prometheus series"
    if not jobs:
        fix = "Nothing was captured since, or [metrics] job_values = false in the agents' configuration."
        return Finding("note", about, "no captured job is known from the last day", fix)
    absent = [name for name in _OF_EACH_JOB if name not in names]
    if absent:
        words = f"jobs are known, but not their {', '.join(absent)}"
        fix = "scrape_configs: let no metric_relabel_configs drop logshipper_ metrics."
        return Finding("wrong", about, words, fix)
    count = len({(labels.get("cluster"), labels.get("job_id")) for labels in jobs})
    return Finding("ok", about, f"{count} captured jobs of the last day are known")


def _scrapes(
    client: PrometheusClient, agents: Sequence[Mapping[str, str]], source: Json
) -> list[Finding]:
    try:
        targets = client.targets()
    except QueryError as error:
        words = f"what it scrapes isn't told: {as_options(error.excerpt)}"
        return [Finding("note", "prometheus scrape", words)]
    instances = {labels.get("instance", "") for labels in agents}
    agent_targets = [target for target in targets if target.labels.get("instance") in instances]
    interval = (source.get("jsonData") or {}).get("timeInterval")
    return judge_scrapes(agent_targets, duration_secs(interval))


def judge_scrapes(targets: Sequence[Target], source_secs: float | None) -> list[Finding]:
    """Judge scrapes. targets: the agents; source_secs: the data source's scrape interval, None for
    Grafana's 15 s. Pure."""
    findings: list[Finding] = []
    down = [target for target in targets if target.health == "down"]
    if down:
        words = f"{len(down)} of {len(targets)} agents are down, such as {down[0].scrape_url}: {down[0].last_error}"
        fix = "Does the agent run, and does Prometheus reach it?"
        findings.append(Finding("note", "prometheus scrape", words, fix))
    intervals = [target.interval_secs for target in targets if target.interval_secs]
    if not intervals:
        return findings
    slowest = max(intervals)
    if slowest > MOST_SCRAPE_SECS:
        words = f"agents are scraped every {words_of_secs(slowest)} only"
        fix = "scrape_configs: scrape_interval: 1m, or less: a job's series are there for 5 min after its end."
        findings.append(Finding("wrong", "prometheus scrape", words, fix))
    else:
        words = f"{len(targets)} agents, every {words_of_secs(slowest)}"
        findings.append(Finding("ok", "prometheus scrape", words))
    interval_secs = 15.0 if source_secs is None else source_secs
    if slowest > interval_secs:
        words = (
            f"the data source's is {words_of_secs(interval_secs)}, "
            f"but agents are scraped every {words_of_secs(slowest)}"
        )
        fix = (
            f"On the data source's page: Scrape interval {slowest:g}s; rates over less stay empty."
        )
        findings.append(Finding("note", "data source timeInterval", words, fix))
    return findings
