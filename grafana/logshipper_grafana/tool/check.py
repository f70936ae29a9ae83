"""`logshipper-grafana check`: tests whether the dashboards find everything in a Grafana. Reads
only."""

import re
from dataclasses import dataclass
from typing import Any

from logshipper.errors import QueryError
from logshipper_grafana.parts import Json
from logshipper_grafana.tool import content
from logshipper_grafana.tool.check_loki import check_loki
from logshipper_grafana.tool.check_prometheus import check_prometheus
from logshipper_grafana.tool.check_queries import QueryContext, check_queries, of_job
from logshipper_grafana.tool.server import IN_NEW_FORM, GrafanaServer, as_options
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.servers.call_failures import clean
from logshipper_ingest.servers.server_access import ServerAccess

KINDS = ("loki", "prometheus")
LEAST_VERSION = (9, 4)


@dataclass(frozen=True)
class CheckScope:
    """loki, prometheus: uids of data sources, "" for those that `apply` makes; job: the id to ask
    for, "" for the newest."""

    loki: str = ""
    prometheus: str = ""
    job: str = ""


def check(access: ServerAccess, scope: CheckScope | None = None) -> list[Finding]:
    """Return all findings; takes as long as the pages' queries. Raises ConfigError without
    grafana-client."""
    # others' content in Grafana is untrusted
    return [
        finding._replace(words=clean(finding.words), fix=clean(finding.fix))
        for finding in _findings(access, scope or CheckScope())
    ]


def _findings(access: ServerAccess, scope: CheckScope) -> list[Finding]:
    with GrafanaServer(access) as grafana:
        try:
            version = grafana.version()
            findings = [_version(version)]
            sources = grafana.data_sources()
        except QueryError as error:
            return [Finding("wrong", "grafana", str(error))]
        source_by_kind: dict[str, Json] = {}
        for kind, uid in zip(KINDS, (scope.loki, scope.prometheus), strict=True):
            source, source_findings = choose_source(sources, kind, uid)
            findings += source_findings
            if source is not None:
                source_by_kind[kind] = source
                findings += judge_source(source)
        findings.append(_values_source(sources))
        findings += _dashboards(grafana)
        ways = {kind: grafana.proxied(source, version) for kind, source in source_by_kind.items()}
    servers: list[Finding] = []
    if "loki" in ways:
        servers += check_loki(ways["loki"])
    if "prometheus" in ways:
        servers += check_prometheus(ways["prometheus"], source_by_kind["prometheus"])
    findings += servers
    is_reached = not any(finding.level == "wrong" and finding.about in KINDS for finding in servers)
    if len(ways) == len(KINDS) and is_reached:
        findings += _queries(QueryContext(ways["loki"], ways["prometheus"]), scope.job)
    else:
        words = "weren't asked: a data source isn't there, or isn't reached"
        findings.append(Finding("note", "queries", words))
    return findings


def _version(version: str) -> Finding:
    about, numbers = "grafana version", re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return Finding("note", about, "isn't told; the dashboards are for 9.4 and newer")
    if (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
        fix = "The dashboards need Grafana 9.4 or newer."
        return Finding("wrong", about, f"{version} is too old", fix)
    return Finding("ok", about, version)


def choose_source(sources: list[Json], kind: str, uid: str) -> tuple[Json | None, list[Finding]]:
    """Choose the data source with the uid, else the pages' initial one, Grafana's default or the
    first by name. Pure."""
    about = f"data source {kind}"
    source_uid = uid or f"{content.UID_PREFIX}{kind}"
    fix = f"logshipper-grafana apply --{kind}-url URL makes one."
    chosen = next((source for source in sources if source.get("uid") == source_uid), None)
    if chosen is not None and chosen.get("type") != kind:
        words = f"{source_uid} is of the type {chosen.get('type')}"
        fix = f"Give it another uid, or remove it; then {fix}"
        return None, [Finding("wrong", about, words, fix)]
    candidates = sorted(content.of_kind(sources, kind), key=_as_pages_choose)
    if chosen is None and uid:
        choices = [f"{source.get('uid')} ({source.get('name')})" for source in candidates]
        fix = f"Of this type there are: {', '.join(choices) or 'none'}."
        return None, [Finding("wrong", about, f"there is none with the uid {uid}", fix)]
    fix = fix[0].upper() + fix[1:]
    if not candidates:
        return None, [Finding("wrong", about, f"there is none of the type {kind}", fix)]
    first = candidates[0]
    if chosen is None:
        words = (
            f"there is no {source_uid}; the pages take {first.get('name')} ({first.get('uid')}), so this "
            "check looks at it"
        )
        return first, [Finding("note", about, words, fix)]
    if first is not chosen:
        words = f"{chosen.get('name')} is there; the pages take {first.get('name')} at first"
        fix = (
            f"Links with &var-{kind}={chosen['uid']} choose it; or make it the default on its page."
        )
        return chosen, [Finding("note", about, words, fix)]
    return chosen, [Finding("ok", about, f"{chosen.get('name')} ({source_uid})")]


def _values_source(sources: list[Json]) -> Finding:
    """Test whether variables can query Loki. Pure."""
    about = "data source values"
    fix = "logshipper-grafana apply --loki-url URL makes one."
    of_loki = [
        source
        for source in sources
        if source.get("type") == "prometheus" and not content.is_prometheus(source)
    ]
    if not of_loki:
        words = "there is none: pages of jobs that Prometheus has forgotten have no X"
        return Finding("note", about, words, fix)
    first = min(of_loki, key=_as_pages_choose)
    words = f"{first.get('name')} ({first.get('uid')})"
    if not str(first.get("url")).rstrip("/").endswith("/loki"):
        fix = "It is Loki's with /loki behind it, as http://loki.example.org:3100/loki."
        return Finding("wrong", about, f"{words} has the address {first.get('url')}", fix)
    return Finding("ok", about, words)


def _as_pages_choose(source: Json) -> tuple[bool, str]:
    return not source.get("isDefault"), str(source.get("name")).lower()


def judge_source(source: Json) -> list[Finding]:
    """Its settings. Pure."""
    kind = str(source["type"])
    about = f"data source {kind}"
    options: dict[str, Any] = source.get("jsonData") or {}  # Any: JSON
    findings: list[Finding] = []
    if source.get("access") not in (None, "proxy"):
        fix = "On its page: Access: Server (proxy); browsers can't ask servers themselves any more."
        findings.append(Finding("wrong", about, f"its access is {source['access']}", fix))
    if kind == "prometheus" and options.get("httpMethod", "POST") != "POST":
        fix = "On its page: HTTP method: POST; queries have some KB, which servers refuse in an address."
        findings.append(Finding("wrong", f"{about} httpMethod", str(options["httpMethod"]), fix))
    if kind == "loki":
        (template,) = (entry for entry in content.wanted_data_sources() if entry["type"] == "loki")
        names = {field["name"] for field in template["jsonData"]["derivedFields"]}
        fields = options.get("derivedFields") or []
        names -= {field.get("name") for field in fields if isinstance(field, dict)}
        if names:
            words = f"{', '.join(sorted(names))} is missing"
            fix = (
                "logshipper-grafana apply adds it: in Explore a line then leads to its job's page."
            )
            findings.append(Finding("note", f"{about} derivedFields", words, fix))
    return findings


def _dashboards(grafana: GrafanaServer) -> list[Finding]:
    return [
        _dashboard(grafana, f"dashboard {uid}", dashboard)
        for uid, dashboard in content.wanted_dashboards().items()
    ]


def _dashboard(grafana: GrafanaServer, about: str, dashboard: Json) -> Finding:
    try:
        answer = grafana.dashboard(dashboard["uid"])
        message = grafana.newest_message(dashboard["uid"]) if answer else None
    except QueryError as error:
        if error.status != IN_NEW_FORM:
            return Finding("wrong", about, str(error))
        words = "isn't the one of this version: somebody saved it in the new editor's form (v2)"
        fix = "`logshipper-grafana apply --force` replaces it; save it under a new name first, to keep it."
        return Finding("note", about, words, fix)
    if answer is None:
        fix = "`logshipper-grafana apply`, or copy the file (docs/grafana.md)."
        return Finding("wrong", about, "isn't there, or the token may not see it", fix)
    if content.is_saved(dashboard, answer.get("dashboard") or {}, message):
        return Finding("ok", about, "is there, as in this version")
    fix = "`logshipper-grafana apply --dry-run` shows what differs."
    return Finding("note", about, "isn't the one of this version", fix)


def _queries(context: QueryContext, job: str) -> list[Finding]:
    try:
        context = of_job(context, job)
    except QueryError as error:
        return [Finding("wrong", "queries", as_options(str(error)))]
    findings = check_queries(context)
    if not context.cluster:
        subject = f"the job {job}" if job else "a job"
        words = f"were asked for nothing that is there: Prometheus doesn't know {subject} from the last day"
        findings.append(Finding("note", "queries", words, "--job JOB names another one."))
    return findings
