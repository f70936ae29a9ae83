"""Tests whether the Loki behind a data source fits the dashboards: limits, labels, structured
metadata; through Grafana."""

import time
from collections.abc import Mapping
from typing import Any

from logshipper.errors import QueryError
from logshipper_grafana.tool.server import as_options
from logshipper_ingest.checks.check_loki_limits import LABELS, check_limits
from logshipper_ingest.checks.findings import Finding, Level
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.loki.client import MAX_PAGE, LokiClient
from logshipper_ingest.servers import server_units
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.servers.server_calls import MAX_CONFIG_BYTES, Server, yaml_table

LOOK_BACK_NS = 86_400 * 10**9
_MONTH_SECS = 30 * 86_400
SERIES = 500  # Loki's own max_query_series
LISTED_SERIES = 20_000  # for a list of jobs that Prometheus does not know
_SERVICE = "logshipper"
_TENANT_LIMITS = "/config/tenant/v1/limits"
_NEEDED = (
    "allow_structured_metadata, max_entries_limit_per_query, max_query_length, max_query_series"
)
# the agent's checks that reading depends on; `logshipper-agent check` does the rest
_OF_READING = (
    "schema_config",
    "allow_structured_metadata",
    "max_query_length",
    "grpc_server_max_recv_msg_size",
)
_KEPT_AWAY = (403, 404)  # deploy/gateway answers so
_NOT_TOLD = "isn't told"
_OURS = '{service_name="logshipper"}'
_ANYBODYS = '{kind=~"log|metadata|event"}'


def check_loki(access: ServerAccess, now_ns: int | None = None) -> list[Finding]:
    """Return the findings; earlier ones explain later ones. access: through Grafana."""
    with LokiClient(access) as client:
        end_ns = now_ns or time.time_ns()
        try:
            version = client.build_info().get("version", "")
        except QueryError as error:
            if error.status not in _KEPT_AWAY or not _answers(client, end_ns):
                return [Finding("wrong", "loki", as_options(str(error)), reach_fix(error, "loki"))]
            version = _NOT_TOLD
        if not version:
            words = "what answers doesn't say which Loki it is"
            fix = "The data source's address must be Loki's, before /loki/api."
            return [Finding("wrong", "loki", words, fix)]
        return [
            _version(version),
            *_limits(client, access),
            *_labels(client, end_ns),
            *_metadata(client, end_ns),
        ]


def reach_fix(error: QueryError, kind: str) -> str:
    """Explain a failed connection through Grafana."""
    if error.status in (502, 503, 504) or error.status == 0:
        return f"Does {kind.capitalize()} run, and does Grafana reach the data source's address?"
    if error.status == 400 and "Authentication to data source failed" in error.excerpt:
        return "The credentials on the data source's page in Grafana don't fit."
    if error.status == 403:
        return "The token may not ask data sources (datasources:query), or data_source_proxy_whitelist forbids it."
    if error.status == 404:
        return f"The data source's address must be {kind.capitalize()}'s, with any path before its /api."
    return ""


def _answers(client: LokiClient, end_ns: int) -> bool:
    """Return whether it is a Loki behind a gateway that admits only queries."""
    try:
        client.labels(end_ns - LOOK_BACK_NS, end_ns)
    except QueryError:
        return False
    return True


def _version(version: str) -> Finding:
    about = "loki version"
    if version == _NOT_TOLD:
        fix = "A gateway keeps it away. Structured metadata needs Loki 3."
        return Finding("note", about, version, fix)
    major = version.lstrip("v").partition(".")[0]
    if major.isdecimal() and int(major) < 3:
        fix = "Structured metadata needs Loki 3 or newer."
        return Finding("wrong", about, f"{version} is too old", fix)
    return Finding("ok", about, version)


def _limits(client: LokiClient, access: ServerAccess) -> list[Finding]:
    """Check the common configuration, and the limits of the data source's own tenant, which
    override it."""
    tenant_limits = _tenant_limits(access)
    document: Mapping[str, Any] = {}
    try:
        document = client.config()
    except QueryError as error:
        if not tenant_limits:
            words = f"weren't looked at: {as_options(str(error))}"
            fix = f"Ask whoever runs Loki for: {_NEEDED} (docs/grafana.md)."
            return [Finding("note", "loki limits", words, fix)]
    return reading_limits({**document, "limits_config": _general(document) | tenant_limits})


def _general(document: Mapping[str, Any]) -> dict[str, Any]:
    """The limits of all tenants. Any: YAML."""
    limits = document.get("limits_config")
    return limits if isinstance(limits, dict) else {}


def _tenant_limits(access: ServerAccess) -> dict[str, Any]:  # Any: YAML
    """Return the tenant's limits; empty for older Lokis, which do not report them."""
    server = Server("Loki", access, MAX_CONFIG_BYTES)
    try:
        # `fake` is Loki's only tenant without auth_enabled; a data source's own precedes it
        answer = server.get(_TENANT_LIMITS, headers={"X-Scope-OrgID": "fake"})
        return yaml_table(answer, server.name)
    except QueryError:
        return {}
    finally:
        server.close()


def reading_limits(document: Mapping[str, Any]) -> list[Finding]:
    """Check limits for reading. document: /config, parsed (Any: YAML); ignores keys missing in
    other versions. Pure."""
    findings = [
        finding
        for finding in check_limits(document, LokiSection(ServerAccess()))
        if finding.about.removeprefix("loki ") in _OF_READING
    ]

    def add(name: str, words: str, setting: object, *, level: Level = "note") -> None:
        fix = "" if level == "ok" else f"limits_config: {name}: {setting}."
        findings.append(Finding(level, f"loki {name}", words, fix))

    limits = _general(document)
    entries = server_units.size_bytes(limits.get("max_entries_limit_per_query"))
    if entries is not None:
        words = f"{entries or 'no limit'}; graphs and tables ask for {MAX_PAGE}"
        level: Level = "ok" if entries == 0 or entries >= MAX_PAGE else "wrong"
        add("max_entries_limit_per_query", words, MAX_PAGE, level=level)
    series = server_units.size_bytes(limits.get("max_query_series"))
    if series is not None:
        words = f"{series or 'no limit'}; panels with more series than that show an error"
        level = "ok" if series == 0 or series >= SERIES else "wrong"
        if SERIES <= series < LISTED_SERIES:
            level = "note"
            words = (
                f"{series}: where Prometheus doesn't know the jobs (with tenants, or after its "
                "retention), a list of more captures than that shows an error instead"
            )
        add("max_query_series", words, LISTED_SERIES, level=level)
    longest = server_units.duration_secs(limits.get("max_query_length"))
    if longest and _MONTH_SECS <= longest <= _MONTH_SECS + 3600:
        words = (
            f"{server_units.words_of_secs(longest)}: a page of the last 30 days is refused in the month after the "
            "end of summer time, which is an hour longer"
        )
        findings = [finding for finding in findings if finding.about != "loki max_query_length"]
        add("max_query_length", words, "31d")
    if look_back := server_units.duration_secs(limits.get("max_query_lookback")):
        words = f"{server_units.words_of_secs(look_back)}: pages of older jobs are empty, whatever Loki still has"
        add("max_query_lookback", words, 0)
    if most_bytes := server_units.size_bytes(limits.get("max_query_bytes_read")):
        words = f"{server_units.words_of_bytes(most_bytes)}: a longer time of a busy node's jobs is refused"
        add("max_query_bytes_read", words, 0)
    if at_most := server_units.duration_secs(limits.get("max_query_range")):
        words = f"{server_units.words_of_secs(at_most)}: numbers over a longer time of a page are refused"
        add("max_query_range", words, 0)
    return findings


def _labels(client: LokiClient, end_ns: int) -> list[Finding]:
    """Check the labels of the last day's streams."""
    begin_ns = end_ns - LOOK_BACK_NS
    try:
        streams = client.series(_OURS, begin_ns=begin_ns, end_ns=end_ns)
        if streams:
            return judge_labels(streams, [])
        return judge_labels([], client.series(_ANYBODYS, begin_ns=begin_ns, end_ns=end_ns))
    except QueryError as error:
        return [Finding("wrong", "loki labels", as_options(str(error)))]


def judge_labels(
    streams: list[dict[str, str]], other_streams: list[dict[str, str]]
) -> list[Finding]:
    """Judge labels. streams: those of the service logshipper; other_streams: without any, those
    with its kinds. Pure."""
    about = "loki labels"
    needed = ("cluster", "host", "kind")
    lookalikes = [stream for stream in other_streams if {*needed} <= stream.keys()]
    if not streams and lookalikes:
        names = {stream.get("service_name", "no service_name") for stream in lookalikes}
        words = f"streams look like the agents', but their service is {', '.join(sorted(names))}"
        fix = f'Let nothing between agent and Loki change labels: service_name must stay "{_SERVICE}".'
        return [Finding("wrong", about, words, fix)]
    if not streams:
        fix = "`logshipper-agent check` on a node tells why, if jobs were captured."
        return [Finding("note", about, "no agent sent anything in the last day", fix)]
    absent_labels = [name for name in needed if any(name not in stream for stream in streams)]
    if absent_labels:
        fix = "Let nothing between agent and Loki drop labels: the pages' queries select by them."
        return [Finding("wrong", about, f"streams without {', '.join(absent_labels)}", fix)]
    extra_labels = sorted({name for stream in streams for name in stream} - {*LABELS})
    if extra_labels:
        words = f"streams have labels that no agent gives: {', '.join(extra_labels)}"
        fix = "A pipeline adds them; each further value is a stream of its own, which costs Loki memory."
        return [Finding("note", about, words, fix)]
    clusters = sorted({stream["cluster"] for stream in streams})
    cluster_names = ", ".join(clusters[:5]) + (", ..." if len(clusters) > 5 else "")
    words = (
        f"{len(streams)} streams of the last day, of the cluster{'' if len(clusters) == 1 else 's'} "
        f"{cluster_names}, are labelled as they should be"
    )
    return [Finding("ok", about, words)]


def _metadata(client: LokiClient, end_ns: int) -> list[Finding]:
    """Check whether an entry names its job."""
    about, begin_ns = "loki structured metadata", end_ns - LOOK_BACK_NS
    query = '{service_name="logshipper",kind=~"log|metadata"}'
    try:
        streams = client.query_range(query, begin_ns, end_ns, limit=1, direction="backward")
    except QueryError as error:
        return [Finding("wrong", about, as_options(str(error)))]
    entry = next((entry for stream in streams for entry in stream.entries), None)
    if entry is None:
        return []
    if entry.metadata.get("job_id"):
        return [Finding("ok", about, "entries say whose they are")]
    if "job_id" in entry.labels:
        words = "job_id is a label: each job is streams of its own"
        fix = "Let nothing between agent and Loki make labels of structured metadata: Loki runs out of streams."
        return [Finding("wrong", about, words, fix)]
    words = "entries come without job_id: no page finds its job"
    fix = "limits_config: allow_structured_metadata: true; and let nothing between agent and Loki drop it."
    return [Finding("wrong", about, words, fix)]
