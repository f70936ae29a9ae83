"""Checks of Loki: reachable, writable, readable, and with the same clock. Pushes one entry."""

import json
import time
import uuid
from contextlib import suppress
from dataclasses import replace

from logshipper import __version__
from logshipper.errors import PushError, QueryError
from logshipper_ingest.checks.check_loki_limits import check_limits
from logshipper_ingest.checks.findings import Finding, note, ok, wrong
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.sink_config import SinkConfig
from logshipper_ingest.loki.client import Entry, LokiClient
from logshipper_ingest.servers.logql import SERVICE, matcher

READ_BACK_SECS = 10.0
_POLL_SECS = 0.1
_SKEW_NOTE_SECS = 2.0
_SKEW_WRONG_SECS = 300.0  # half of Loki's default tolerance for future times
_HOUR_NS = 3600 * 10**9
_NEEDED = "allow_structured_metadata, schema v13 with tsdb, max_line_size, reject_old_samples_max_age, shard_streams"


def check_lokis(config: AgentConfig) -> list[Finding]:
    """Return findings about each Loki. All but the first are named."""
    findings: list[Finding] = []
    for sink in config.lokis:
        for finding in check_loki(sink):
            level, about, words, fix = finding
            named_fix = fix.replace("[loki]", f"[{sink.table}]")
            named = Finding(level, f"{sink.label}: {about}", words, named_fix)
            findings.append(finding if sink.is_first else named)
    return findings


def check_loki(config: SinkConfig[LokiSection]) -> list[Finding]:
    """Return findings about one Loki. Earlier findings explain later ones."""
    with LokiClient(config.server.access) as client:
        findings = _reach(client)
        if any(finding.level == "wrong" for finding in findings):
            return findings
        return [
            *findings,
            _version(client),
            *_push_and_read(client, config),
            _clock(client),
            *_limits(client, config),
        ]


def _reach(client: LokiClient) -> list[Finding]:
    try:
        if client.ready():
            return [ok("loki", f"{client.name} is ready")]
        words = "isn't ready yet: right after its start it takes some seconds"
        return [note("loki", f"{client.name} {words}", "If it stays so, its own log tells why.")]
    except QueryError as error:
        if error.status == 0:
            fix = "Does it run, is [loki] url right, does a firewall stand between? Nothing else was asked."
            return [wrong("loki", str(error), fix)]
        words = f"{client.name} doesn't say whether it is ready (HTTP {error.status}); a gateway may keep /ready away"
        return [note("loki", words)]


def _version(client: LokiClient) -> Finding:
    try:
        version = client.build_info().get("version", "")
    except QueryError as error:
        return note("loki version", f"isn't told: {error.excerpt}")
    if not version:
        return note("loki version", "isn't told: it was built without one")
    major = version.lstrip("v").partition(".")[0]
    if major.isdecimal() and int(major) < 3:
        fix = "Structured metadata needs Loki 3 or newer."
        return wrong("loki version", f"{version} is too old", fix)
    return ok("loki version", version)


def _push_and_read(client: LokiClient, config: SinkConfig[LokiSection]) -> list[Finding]:
    token = uuid.uuid4().hex
    node = {"cluster": config.cluster, "host": config.host}
    labels = {**node, "service_name": SERVICE, "kind": "event"}
    event = {"event": "checked", "host": config.host, "version": __version__, "token": token}
    entry = Entry(time.time_ns(), json.dumps(event), {"check": token})
    try:
        client.push(labels, [entry])
    except PushError as error:
        return [wrong("loki push", str(error), _push_fix(error))]
    except ValueError as error:
        return [wrong("loki push", str(error))]
    findings = [ok("loki push", "an entry was accepted"), _read_back(client, labels, entry)]
    if config.server.tenant_by and findings[-1].level == "ok":
        findings.append(_check_tenants(config, labels, entry))
    return findings


def _push_fix(error: PushError) -> str:
    if error.status in (401, 403):
        return "[loki] username, password_file, token_file or tenant don't fit, or may not push."
    if error.status == 404:
        return (
            "There is no Loki at this address: [loki] url is what stands before /loki/api/v1/push."
        )
    if 300 <= error.status < 400:
        return "[loki] url: put in the address that it leads to."
    if "structured metadata" in error.excerpt.lower():
        return "limits_config: allow_structured_metadata: true, with schema v13 and tsdb."
    if error.status == 260:
        return "limits_config: block_ingestion_until is set, so that Loki drops what it is sent."
    if "ahead" in error.excerpt or "too new" in error.excerpt or "too old" in error.excerpt:
        return "The clocks of this node and of Loki differ: see to NTP."
    return ""


def _ask_for(client: LokiClient, labels: dict[str, str], entry: Entry) -> list[Entry]:
    matchers = ",".join(matcher(name, [value]) for name, value in labels.items())
    logql = f'{{{matchers}}} |= "{entry.metadata["check"]}"'
    return list(client.entries(logql, entry.time_ns, entry.time_ns + 1))


def _check_tenants(
    config: SinkConfig[LokiSection], labels: dict[str, str], entry: Entry
) -> Finding:
    """Check the tenants. Loki without auth_enabled silently merges all of them."""
    access = config.server.access
    with LokiClient(replace(access, tenant=f"{access.tenant}!")) as other_client:
        try:
            entries = _ask_for(other_client, labels, entry)
        except QueryError as error:
            return note("loki tenants", f"weren't looked at: {error}")
    if entries:
        fix = "auth_enabled: true in Loki's configuration. Until then every user reads all jobs."
        return wrong("loki tenants", "one tenant reads what was pushed for another", fix)
    return ok("loki tenants", "are told apart")


def _read_back(client: LokiClient, labels: dict[str, str], entry: Entry) -> Finding:
    token = entry.metadata["check"]
    begin = time.monotonic()
    while True:
        try:
            entries = _ask_for(client, labels, entry)
        except QueryError as error:
            fix = "The agent itself only pushes; `--from loki`, on any machine, needs to read."
            return note("loki query", f"{error}", fix)
        if entries:
            break
        if time.monotonic() > begin + READ_BACK_SECS:
            words = f"the entry that was accepted didn't show within {READ_BACK_SECS:g} s"
            fix = "Is what reads another tenant than what pushes? Do queriers reach the ingesters? Loki's log tells."
            return wrong("loki query", words, fix)
        time.sleep(_POLL_SECS)
    if entries[0].metadata.get("check") != token or entries[0].line != entry.line:
        words = "the entry came back without its structured metadata, or changed"
        fix = (
            "limits_config: allow_structured_metadata: true; and let no gateway change what passes."
        )
        return wrong("loki query", words, fix)
    return ok("loki query", f"the entry was read back whole after {time.monotonic() - begin:.2f} s")


def _clock(client: LokiClient) -> Finding:
    """Compare clocks by an answer's Date, in whole seconds."""
    with suppress(QueryError):  # an error answer has a date as well
        client.labels(time.time_ns() - _HOUR_NS)
    date_ns = client.answer_date_ns
    if date_ns is None:
        return note("clock", "Loki's isn't told: its answers have no Date")
    ahead_secs = (time.time_ns() - date_ns) / 1e9 - 0.5
    words = f"this node's is {abs(ahead_secs):.0f} s {'ahead of' if ahead_secs > 0 else 'behind'} Loki's"
    if abs(ahead_secs) < _SKEW_NOTE_SECS:
        return ok("clock", "this node's and Loki's agree, to two seconds")
    fix = "See to NTP (chronyc tracking). Times of lines are this node's; Loki refuses what is 10 min ahead."
    return (wrong if abs(ahead_secs) > _SKEW_WRONG_SECS else note)("clock", words, fix)


def _limits(client: LokiClient, config: SinkConfig[LokiSection]) -> list[Finding]:
    try:
        document = client.config()
    except QueryError as error:
        fix = f"Ask whoever runs Loki for: {_NEEDED} (docs/in-loki.md)."
        return [note("loki limits", f"weren't looked at: {error}", fix)]
    return check_limits(document, config.server)
