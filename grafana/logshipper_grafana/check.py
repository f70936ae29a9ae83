"""`logshipper-grafana check`: do the dashboards find in a Grafana what they need? Asks; changes
nothing."""

import re
from dataclasses import dataclass
from typing import Any

from logshipper.errors import QueryError
from logshipper_grafana.check_loki import check_loki
from logshipper_grafana.check_prometheus import check_prometheus
from logshipper_grafana.check_queries import Asking, check_queries, of_job
from logshipper_grafana.panels import Json
from logshipper_grafana.server import GrafanaServer, as_options
from logshipper_grafana.wanted import UID_PREFIX, is_saved, wanted_dashboards, wanted_data_sources
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.servers.call_failures import clean
from logshipper_ingest.servers.server_access import ServerAccess

KINDS = ("loki", "prometheus")
LEAST_VERSION = (9, 4)
_CALLED = {"loki": "Loki", "prometheus": "Prometheus"}


@dataclass(frozen=True)
class Sought:
    """loki, prometheus: uids of data sources, "" for those that `apply` makes; job: the id to ask
    for, "" for the newest."""

    loki: str = ""
    prometheus: str = ""
    job: str = ""


def check(access: ServerAccess, sought: Sought | None = None) -> list[Finding]:
    """All that is found; takes as long as the pages' queries do. Raises ConfigError where there is
    no grafana-client, and nothing else of its own."""
    # what others wrote into Grafana may hold anything
    return [
        one._replace(words=clean(one.words), fix=clean(one.fix))
        for one in _found(access, sought or Sought())
    ]


def _found(access: ServerAccess, sought: Sought) -> list[Finding]:
    with GrafanaServer(access) as grafana:
        try:
            version = grafana.version()
            found = [_version(version)]
            sources = grafana.data_sources()
        except QueryError as error:
            return [Finding("wrong", "grafana", str(error))]
        chosen: dict[str, Json] = {}
        for kind, uid in zip(KINDS, (sought.loki, sought.prometheus), strict=True):
            one, findings = chosen_source(sources, kind, uid)
            found += findings
            if one is not None:
                chosen[kind] = one
                found += judged_source(one)
        found += _dashboards(grafana)
        ways = {kind: grafana.proxied(one, version) for kind, one in chosen.items()}
    servers = [*(check_loki(ways["loki"]) if "loki" in ways else [])]
    servers += (
        check_prometheus(ways["prometheus"], chosen["prometheus"]) if "prometheus" in ways else []
    )
    found += servers
    reached = not any(finding.level == "wrong" and finding.about in KINDS for finding in servers)
    if len(ways) == len(KINDS) and reached:
        found += _queries(Asking(ways["loki"], ways["prometheus"]), sought.job)
    else:
        words = "weren't asked: a data source isn't there, or isn't reached"
        found.append(Finding("note", "queries", words))
    return found


def _version(version: str) -> Finding:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return Finding(
            "note", "grafana version", "isn't told; the dashboards are for 9.4 and newer"
        )
    if (int(numbers[1]), int(numbers[2])) < LEAST_VERSION:
        return Finding(
            "wrong",
            "grafana version",
            f"{version} is too old",
            "The dashboards need Grafana 9.4 or newer.",
        )
    return Finding("ok", "grafana version", version)


def chosen_source(sources: list[Json], kind: str, uid: str) -> tuple[Json | None, list[Finding]]:
    """The data source that is looked at: the one with the uid, else the one that the pages take at
    first, Grafana's default or the first by name. Pure."""
    about = f"data source {kind}"
    wanted = uid or f"{UID_PREFIX}{kind}"
    fix = f"logshipper-grafana apply --{kind}-url URL makes one."
    named = next((one for one in sources if one.get("uid") == wanted), None)
    if named is not None and named.get("type") != kind:
        words = f"{wanted} is of the type {named.get('type')}"
        return None, [
            Finding("wrong", about, words, f"Give it another uid, or remove it; then {fix}")
        ]
    others = sorted((one for one in sources if one.get("type") == kind), key=_as_pages_choose)
    if named is None and uid:
        known = ", ".join(f"{one.get('uid')} ({one.get('name')})" for one in others) or "none"
        return None, [
            Finding(
                "wrong",
                about,
                f"there is none with the uid {uid}",
                f"Of this type there are: {known}.",
            )
        ]
    if named is None and not others:
        return None, [
            Finding("wrong", about, f"there is none of the type {kind}", fix[0].upper() + fix[1:])
        ]
    if named is not None:
        first = others[0]
        if first is not named:
            words = f"{named.get('name')} is there; the pages take {first.get('name')} at first"
            note = f"Links with &var-{kind}={named['uid']} choose it; or make it the default on its page."
            return named, [Finding("note", about, words, note)]
        return named, [Finding("ok", about, f"{named.get('name')} ({wanted})")]
    words = f"{wanted} isn't there; {others[0].get('name')} ({others[0].get('uid')}) is looked at, which the pages take"
    return others[0], [Finding("note", about, words, fix[0].upper() + fix[1:])]


def _as_pages_choose(source: Json) -> tuple[bool, str]:
    return not source.get("isDefault"), str(source.get("name")).lower()


def judged_source(source: Json) -> list[Finding]:
    """Its settings. Pure."""
    kind = str(source["type"])
    about = f"data source {kind}"
    options: dict[str, Any] = source.get("jsonData") or {}  # Any: JSON
    found: list[Finding] = []
    if source.get("access") not in (None, "proxy"):
        fix = "On its page: Access: Server (proxy); browsers can't ask servers themselves any more."
        found.append(Finding("wrong", about, f"its access is {source['access']}", fix))
    if kind == "prometheus" and options.get("httpMethod", "POST") != "POST":
        fix = "On its page: HTTP method: POST; queries have some KB, which servers refuse in an address."
        found.append(Finding("wrong", f"{about} httpMethod", str(options["httpMethod"]), fix))
    if kind == "loki":
        (wanted,) = (one for one in wanted_data_sources() if one["type"] == "loki")
        ours = {field["name"] for field in wanted["jsonData"]["derivedFields"]}
        there = {
            field.get("name")
            for field in options.get("derivedFields") or []
            if isinstance(field, dict)
        }
        if not ours <= there:
            fix = (
                "logshipper-grafana apply adds it: in Explore a line then leads to its job's page."
            )
            found.append(
                Finding(
                    "note",
                    f"{about} derivedFields",
                    f"{', '.join(sorted(ours - there))} is missing",
                    fix,
                )
            )
    return found


def _dashboards(grafana: GrafanaServer) -> list[Finding]:
    found: list[Finding] = []
    for uid, wanted in wanted_dashboards().items():
        about = f"dashboard {uid}"
        try:
            there = grafana.dashboard(uid)
            message = grafana.newest_message(uid) if there else None
        except QueryError as error:
            found.append(Finding("wrong", about, str(error)))
            continue
        if there is None:
            fix = "`logshipper-grafana apply`, or copy the file (docs/grafana.md)."
            found.append(Finding("wrong", about, "isn't there, or the token may not see it", fix))
        elif is_saved(wanted, there.get("dashboard") or {}, message):
            found.append(Finding("ok", about, "is there, as in this version"))
        else:
            fix = "`logshipper-grafana apply --dry-run` shows what differs."
            found.append(Finding("note", about, "isn't the one of this version", fix))
    return found


def _queries(asking: Asking, job: str) -> list[Finding]:
    try:
        asking = of_job(asking, job)
    except QueryError as error:
        return [Finding("wrong", "queries", as_options(str(error)))]
    found = check_queries(asking)
    if not asking.cluster:
        known = f"the job {job}" if job else "a job"
        words = f"were asked for nothing that is there: Prometheus doesn't know {known} from the last day"
        found.append(Finding("note", "queries", words, "--job JOB names another one."))
    return found
