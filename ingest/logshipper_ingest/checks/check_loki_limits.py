"""Checks of Loki's configuration, from /config, for the agent's pushes and the readers' queries.
Pure.

/config lacks limits of single tenants (`overrides`). Sizes, defaults and consequences come from
Loki 3.7's docs/sources/shared/configuration.md and from tests with 3.7.6.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.loki.client import MAX_PAGE, MAX_RANGE_NS
from logshipper_ingest.servers.server_units import (
    duration_secs,
    size_bytes,
    words_of_bytes,
    words_of_secs,
)
from logshipper_ingest.shipping.rates import STREAM_BURST

LABELS = ("cluster", "host", "stream", "kind", "service_name", "replay", "job_shard")
# upper limit per entry: job id, user, step, task, attempt and four more, all short
METADATA_BYTES = 4096
METADATA_PAIRS = 16
ANSWER_BYTES = 16 << 20  # a longest line, 4 MiB, in pieces, and room for Grafana's 5,000 lines
_MIB = 1 << 20


class _Loki(NamedTuple):
    """whole: its configuration; limits: limits_config of it (Any: YAML)."""

    whole: Mapping[str, Any]
    limits: Mapping[str, Any]

    def size(self, name: str) -> int | None:
        return size_bytes(self.limits.get(name))

    def secs(self, name: str) -> float | None:
        return duration_secs(self.limits.get(name))

    def part(self, name: str) -> Mapping[str, Any]:
        return _table(self.whole.get(name))


def check_limits(
    document: Mapping[str, Any], section: LokiSection, now_secs: float | None = None
) -> list[Finding]:
    """Return findings about the limits. document: /config, parsed (Any: YAML). Limits missing in
    other versions are skipped."""
    loki = _Loki(document, _table(document.get("limits_config")))
    findings = [
        _schema(document, time.time() if now_secs is None else now_secs),
        *_switches(loki.limits),
        *_lines(loki, section),
        *_ages(loki, section),
        *_metadata(loki),
        *_rates(loki, section),
        *_sharding(loki, section),
        *_reading(loki),
        *_retention(loki),
    ]
    return [finding for finding in findings if finding is not None]


def _schema(document: Mapping[str, Any], now_secs: float) -> Finding | None:
    configs = _table(document.get("schema_config")).get("configs")
    periods = (
        [period for period in configs if isinstance(period, dict)]
        if isinstance(configs, list)
        else []
    )
    today = time.strftime("%Y-%m-%d", time.gmtime(now_secs))
    current = max(
        (period for period in periods if str(period.get("from")) <= today), key=_begin, default=None
    )
    if current is None:
        return None
    store, schema = str(current.get("store")), str(current.get("schema"))
    number = schema.removeprefix("v")
    if store == "tsdb" and number.isdecimal() and int(number) >= 13:
        return _ok("schema_config", f"{store}, {schema}")
    fix = "schema_config: add a period with store: tsdb and schema: v13; structured metadata needs both."
    return _wrong("schema_config", f"{store}, {schema}", fix)


def _begin(period: Mapping[str, Any]) -> str:
    return str(period.get("from"))


def _switches(limits: Mapping[str, Any]) -> list[Finding]:
    findings = []
    switches = {
        "allow_structured_metadata": (True, "it holds whose line an entry is"),
        "unordered_writes": (True, "jobs of a node share streams, and some lines come late"),
        "increment_duplicate_timestamp": (
            False,
            "it changes times, so that what is sent again would stand twice",
        ),
    }
    for name, (right_value, reason) in switches.items():
        value = limits.get(name)
        if isinstance(value, bool):
            words = str(value).lower()
            fix = f"limits_config: {name}: {str(right_value).lower()}; {reason}."
            findings.append(_ok(name, words) if value is right_value else _wrong(name, words, fix))
    if limits.get("discover_log_levels") is True:
        fix = "limits_config: discover_log_levels: false, if nobody needs it; it costs Loki time for each line."
        findings.append(_note("discover_log_levels", "Loki adds detected_level to each entry", fix))
    enforced = limits.get("enforced_labels")
    excess_names = (
        [str(name) for name in enforced if name not in LABELS] if isinstance(enforced, list) else []
    )
    if excess_names:
        words = f"every stream must have {', '.join(excess_names)}, which the agent's have not"
        findings.append(
            _wrong("enforced_labels", words, "limits_config: take them out for this tenant.")
        )
    return findings


def _lines(loki: _Loki, section: LokiSection) -> list[Finding]:
    size = loki.size("max_line_size")
    if size is None:
        return []
    words = f"{words_of_bytes(size) if size else 'no limit'}; lines are split at {section.max_line_bytes} bytes"
    if size == 0 or size >= section.max_line_bytes:
        return [_ok("max_line_size", words)]
    verb = "cuts" if loki.limits.get("max_line_size_truncate") is True else "refuses"
    fix = f"[loki] max_line_bytes = {size}, or more in Loki's limits_config."
    return [_wrong("max_line_size", f"{words}, and Loki {verb} what is longer than its own", fix)]


def _ages(loki: _Loki, section: LokiSection) -> list[Finding]:
    findings = []
    max_secs = loki.secs("reject_old_samples_max_age")
    if loki.limits.get("reject_old_samples") is False:
        findings.append(_ok("reject_old_samples_max_age", "entries of any age are taken"))
    elif max_secs is not None:
        words = (
            f"{words_of_secs(max_secs)}; "
            f"the agent sends what is up to {section.max_age_hours:g} h old"
        )
        fix = f"[loki] max_age_hours = {max_secs / 3600:g}, or more in Loki's limits_config."
        good = max_secs >= section.max_age_hours * 3600
        findings.append(_ok("reject_old_samples_max_age", words) if good else
                     _wrong("reject_old_samples_max_age", words, fix))  # fmt: skip
    grace = loki.secs("creation_grace_period")
    if grace is not None and grace < 60:
        fix = "limits_config: creation_grace_period: 10m; a node's clock may be a little ahead."
        findings.append(_wrong("creation_grace_period", words_of_secs(grace), fix))
    within = duration_secs(loki.part("querier").get("query_ingesters_within"))
    if within and within < section.max_age_hours * 3600:
        words = f"what is shipped more than {words_of_secs(within)} late shows only once Loki wrote it to its store"
        fix = "querier: query_ingesters_within: 0 shows it at once; each question then asks the ingesters, too."
        findings.append(_note("query_ingesters_within", words, fix))
    return findings


def _metadata(loki: _Loki) -> list[Finding]:
    findings = []
    limits = {
        "max_structured_metadata_size": (loki.size("max_structured_metadata_size"), METADATA_BYTES),
        "max_structured_metadata_entries_count": (
            loki.size("max_structured_metadata_entries_count"),
            METADATA_PAIRS,
        ),
        "max_label_names_per_series": (loki.size("max_label_names_per_series"), len(LABELS)),
    }
    for name, (value, least) in limits.items():
        if value is not None:
            words = f"{value}; {least} are needed"
            good = value >= least or (value == 0 and not name.startswith("max_label"))
            findings.append(
                _ok(name, words)
                if good
                else _wrong(name, words, f"limits_config: {name}: {least} or more.")
            )
    return findings


def _rates(loki: _Loki, section: LokiSection) -> list[Finding]:
    findings = []
    stream, burst = loki.size("per_stream_rate_limit"), loki.size("per_stream_rate_limit_burst")
    max_rate = section.stream_max_bytes_per_sec
    if stream is not None:
        pace = f"at most {words_of_bytes(max_rate)}/s" if max_rate else "as fast as it can"
        words = f"{words_of_bytes(stream)}/s; the agent sends {pace}"
        fix = f"[loki] stream_max_bytes_per_sec = {int(stream * 0.9)}, or more in Loki's limits_config."
        good = stream >= max_rate > 0
        findings.append(
            _ok("per_stream_rate_limit", words)
            if good
            else _wrong("per_stream_rate_limit", words, fix)
        )
    tenant_burst = _mebibytes(loki.limits.get("ingestion_burst_size_mb"))
    for name, room in (
        ("per_stream_rate_limit_burst", burst),
        ("ingestion_burst_size_mb", tenant_burst),
    ):
        if room is not None and room < section.batch_max_bytes:
            words = f"{words_of_bytes(room)}, less than a push may have: it would never be taken"
            findings.append(
                _wrong(
                    name,
                    words,
                    f"[loki] batch_max_bytes = {room // 2}, or more in Loki's limits_config.",
                )
            )
    rate = _mebibytes(loki.limits.get("ingestion_rate_mb"))
    if rate is not None:
        words = f"{words_of_bytes(rate)}/s for all nodes of the tenant together; above it they wait, and lose nothing"
        least = max(max_rate, _MIB)
        if rate < least:
            fix = f"limits_config: ingestion_rate_mb: {least // _MIB + 1} or more."
            findings.append(_wrong("ingestion_rate_mb", words, fix))
        elif not 0 < section.tenant_max_bytes_per_sec <= rate:
            fix = f"[loki] tenant_max_bytes_per_sec = {int(rate * 0.95)}: then a node alone is never put off (429)."
            findings.append(_note("ingestion_rate_mb", words, fix))
        else:
            findings.append(_ok("ingestion_rate_mb", words))
    return findings


def _sharding(loki: _Loki, section: LokiSection) -> list[Finding]:
    sharding = _table(loki.limits.get("shard_streams"))
    rate = size_bytes(sharding.get("desired_rate"))
    max_rate = section.stream_max_bytes_per_sec
    if sharding.get("enabled") is not True or not rate:
        return [_ok("shard_streams", "off")] if sharding else []
    words = f"splits a stream above {words_of_bytes(rate)}/s, and its answer then hides refusals of a part"
    peak = max_rate * (1 + 2 * STREAM_BURST)  # a burst; Loki adds the push
    if 0 < peak < rate:
        return [
            _ok(
                "shard_streams",
                f"{words}; the agent stays below, at {words_of_bytes(int(peak))}/s, bursts included",
            )
        ]
    safe_rate = int(rate / (1 + 2 * STREAM_BURST) * 0.95)
    fix = f"[loki] stream_max_bytes_per_sec = {safe_rate}, or limits_config: shard_streams: enabled: false."
    return [_wrong("shard_streams", words, fix)]


def _reading(loki: _Loki) -> list[Finding]:
    findings = []
    entries = loki.size("max_entries_limit_per_query")
    if entries is not None:
        words = f"{entries} lines an answer, for Grafana too"
        fix = f"limits_config: max_entries_limit_per_query: {MAX_PAGE}; `--from loki` asks more often otherwise."
        is_small = 0 < entries < MAX_PAGE
        findings.append(_note("max_entries_limit_per_query", words, fix) if is_small else
                     _ok("max_entries_limit_per_query", words))  # fmt: skip
    longest = loki.secs("max_query_length")
    if longest is not None:
        words = words_of_secs(longest) if longest else "no limit"
        fix = f"limits_config: max_query_length: 30d1h; `--from loki` asks for {MAX_RANGE_NS // 86_400 // 10**9} days."
        good = longest == 0 or longest * 1e9 >= MAX_RANGE_NS
        findings.append(
            _ok("max_query_length", words) if good else _wrong("max_query_length", words, fix)
        )
    server = loki.part("server")
    parts = [size_bytes(server.get(f"grpc_server_max_{way}_msg_size")) for way in ("recv", "send")]
    sizes = [size for size in parts if size]
    if sizes and min(sizes) < ANSWER_BYTES:
        words = f"questions whose answer is over {words_of_bytes(min(sizes))} are never answered: 5,000 lines of 1 KB"
        fix = "server: grpc_server_max_recv_msg_size and grpc_server_max_send_msg_size: 67108864. `--from loki` asks "
        fix += "for less at a time, but lines of some MiB, and Grafana's log panel, need it."
        findings.append(_note("grpc_server_max_recv_msg_size", words, fix))
    return findings


def _retention(loki: _Loki) -> list[Finding]:
    period = loki.secs("retention_period")
    enabled = loki.part("compactor").get("retention_enabled") is True
    if not enabled or not period:
        option = "limits_config: retention_period" if enabled else "compactor: retention_enabled"
        purge = "" if enabled else " `logshipper-agent purge` needs it, too."
        return [
            _note(
                "retention",
                "Loki keeps everything for ever",
                f"{option}, if that's not meant.{purge}",
            )
        ]
    return [_ok("retention", f"Loki removes what is older than {words_of_secs(period)}")]


def _mebibytes(megabytes: object) -> int | None:
    return (
        int(megabytes * _MIB)
        if isinstance(megabytes, int | float) and not isinstance(megabytes, bool)
        else None
    )


def _table(table: object) -> Mapping[str, Any]:  # Any: YAML
    return table if isinstance(table, dict) else {}


def _ok(name: str, words: str) -> Finding:
    return Finding("ok", f"loki {name}", words)


def _note(name: str, words: str, fix: str) -> Finding:
    return Finding("note", f"loki {name}", words, fix)


def _wrong(name: str, words: str, fix: str) -> Finding:
    return Finding("wrong", f"loki {name}", words, fix)
