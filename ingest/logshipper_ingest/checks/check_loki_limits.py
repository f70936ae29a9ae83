"""Checks of Loki's configuration, from /config, for the agent's pushes and the readers' queries.
Pure.

/config lacks limits of single tenants (`overrides`). Sizes, defaults and consequences come from
Loki 3.7's docs/sources/shared/configuration.md and from tests with 3.7.6.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from logshipper_ingest.checks.findings import Finding, note, ok, wrong
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
    findings = (
        *_schema(document, time.time() if now_secs is None else now_secs),
        *_switches(loki.limits),
        *_lines(loki, section),
        *_ages(loki, section),
        *_metadata(loki),
        *_rates(loki, section),
        *_sharding(loki, section),
        *_reading(loki),
        *_retention(loki),
    )
    return [finding._replace(about=f"loki {finding.about}") for finding in findings]


def _judge(is_good: bool, name: str, words: str, fix: str) -> Finding:
    return ok(name, words) if is_good else wrong(name, words, fix)


def _schema(document: Mapping[str, Any], now_secs: float) -> Iterator[Finding]:
    configs = _table(document.get("schema_config")).get("configs")
    today = time.strftime("%Y-%m-%d", time.gmtime(now_secs))
    periods = configs if isinstance(configs, list) else []
    begun = [_table(period) for period in periods if str(_table(period).get("from")) <= today]
    if not begun:
        return
    current = max(begun, key=lambda period: str(period.get("from")))
    store, schema = str(current.get("store")), str(current.get("schema"))
    number = schema.removeprefix("v")
    fix = "schema_config: add a period with store: tsdb and schema: v13; structured metadata needs both."
    is_good = store == "tsdb" and number.isdecimal() and int(number) >= 13
    yield _judge(is_good, "schema_config", f"{store}, {schema}", fix)


def _switches(limits: Mapping[str, Any]) -> Iterator[Finding]:
    words = "it changes times, so that what is sent again would stand twice"
    switches = {
        "allow_structured_metadata": (True, "it holds whose line an entry is"),
        "unordered_writes": (True, "jobs of a node share streams, and some lines come late"),
        "increment_duplicate_timestamp": (False, words),
    }
    for name, (right_value, reason) in switches.items():
        value = limits.get(name)
        if isinstance(value, bool):
            fix = f"limits_config: {name}: {str(right_value).lower()}; {reason}."
            yield _judge(value is right_value, name, str(value).lower(), fix)
    if limits.get("discover_log_levels") is True:
        fix = "limits_config: discover_log_levels: false, if nobody needs it; it costs Loki time for each line."
        yield note("discover_log_levels", "Loki adds detected_level to each entry", fix)
    enforced = limits.get("enforced_labels")
    names = enforced if isinstance(enforced, list) else []
    if excess := ", ".join(str(name) for name in names if name not in LABELS):
        words = f"every stream must have {excess}, which the agent's have not"
        yield wrong("enforced_labels", words, "limits_config: take them out for this tenant.")


def _lines(loki: _Loki, section: LokiSection) -> Iterator[Finding]:
    size = loki.size("max_line_size")
    if size is None:
        return
    words = f"{words_of_bytes(size) if size else 'no limit'}; lines are split at {section.max_line_bytes} bytes"
    if size == 0 or size >= section.max_line_bytes:
        yield ok("max_line_size", words)
        return
    verb = "cuts" if loki.limits.get("max_line_size_truncate") is True else "refuses"
    fix = f"[loki] max_line_bytes = {size}, or more in Loki's limits_config."
    yield wrong("max_line_size", f"{words}, and Loki {verb} what is longer than its own", fix)


def _ages(loki: _Loki, section: LokiSection) -> Iterator[Finding]:
    max_secs = loki.secs("reject_old_samples_max_age")
    if loki.limits.get("reject_old_samples") is False:
        yield ok("reject_old_samples_max_age", "entries of any age are taken")
    elif max_secs is not None:
        words = f"{words_of_secs(max_secs)}; the agent sends what is up to {section.max_age_hours:g} h old"
        fix = f"[loki] max_age_hours = {max_secs / 3600:g}, or more in Loki's limits_config."
        is_good = max_secs >= section.max_age_hours * 3600
        yield _judge(is_good, "reject_old_samples_max_age", words, fix)
    grace = loki.secs("creation_grace_period")
    if grace is not None and grace < 60:
        fix = "limits_config: creation_grace_period: 10m; a node's clock may be a little ahead."
        yield wrong("creation_grace_period", words_of_secs(grace), fix)
    within = duration_secs(loki.part("querier").get("query_ingesters_within"))
    if within and within < section.max_age_hours * 3600:
        words = f"what is shipped more than {words_of_secs(within)} late shows only once Loki wrote it to its store"
        fix = "querier: query_ingesters_within: 0 shows it at once; each question then asks the ingesters, too."
        yield note("query_ingesters_within", words, fix)


def _metadata(loki: _Loki) -> Iterator[Finding]:
    needs = {
        "max_structured_metadata_size": METADATA_BYTES,
        "max_structured_metadata_entries_count": METADATA_PAIRS,
        "max_label_names_per_series": len(LABELS),
    }
    for name, least in needs.items():
        value = loki.size(name)
        if value is not None:
            is_good = value >= least or (value == 0 and not name.startswith("max_label"))
            fix = f"limits_config: {name}: {least} or more."
            yield _judge(is_good, name, f"{value}; {least} are needed", fix)


def _rates(loki: _Loki, section: LokiSection) -> Iterator[Finding]:
    stream, burst = loki.size("per_stream_rate_limit"), loki.size("per_stream_rate_limit_burst")
    max_rate = section.stream_max_bytes_per_sec
    if stream is not None:
        pace = f"at most {words_of_bytes(max_rate)}/s" if max_rate else "as fast as it can"
        words = f"{words_of_bytes(stream)}/s; the agent sends {pace}"
        fix = f"[loki] stream_max_bytes_per_sec = {int(stream * 0.9)}, or more in Loki's limits_config."
        yield _judge(stream >= max_rate > 0, "per_stream_rate_limit", words, fix)
    tenant_burst = _mebibytes(loki.limits.get("ingestion_burst_size_mb"))
    bursts = {"per_stream_rate_limit_burst": burst, "ingestion_burst_size_mb": tenant_burst}
    for name, room in bursts.items():
        if room is not None and room < section.batch_max_bytes:
            words = f"{words_of_bytes(room)}, less than a push may have: it would never be taken"
            fix = f"[loki] batch_max_bytes = {room // 2}, or more in Loki's limits_config."
            yield wrong(name, words, fix)
    rate = _mebibytes(loki.limits.get("ingestion_rate_mb"))
    if rate is None:
        return
    words = f"{words_of_bytes(rate)}/s for all nodes of the tenant together; above it they wait, and lose nothing"
    least = max(max_rate, _MIB)
    if rate < least:
        fix = f"limits_config: ingestion_rate_mb: {least // _MIB + 1} or more."
        yield wrong("ingestion_rate_mb", words, fix)
    elif not 0 < section.tenant_max_bytes_per_sec <= rate:
        fix = f"[loki] tenant_max_bytes_per_sec = {int(rate * 0.95)}: then a node alone is never put off (429)."
        yield note("ingestion_rate_mb", words, fix)
    else:
        yield ok("ingestion_rate_mb", words)


def _sharding(loki: _Loki, section: LokiSection) -> Iterator[Finding]:
    sharding = _table(loki.limits.get("shard_streams"))
    rate = size_bytes(sharding.get("desired_rate"))
    if sharding.get("enabled") is not True or not rate:
        if sharding:
            yield ok("shard_streams", "off")
        return
    words = f"splits a stream above {words_of_bytes(rate)}/s, and its answer then hides refusals of a part"
    # a burst; Loki adds the push
    peak = section.stream_max_bytes_per_sec * (1 + 2 * STREAM_BURST)
    if 0 < peak < rate:
        pace = f"{words_of_bytes(int(peak))}/s, bursts included"
        yield ok("shard_streams", f"{words}; the agent stays below, at {pace}")
        return
    safe_rate = int(rate / (1 + 2 * STREAM_BURST) * 0.95)
    fix = f"[loki] stream_max_bytes_per_sec = {safe_rate}, or limits_config: shard_streams: enabled: false."
    yield wrong("shard_streams", words, fix)


def _reading(loki: _Loki) -> Iterator[Finding]:
    name = "max_entries_limit_per_query"
    entries = loki.size(name)
    if entries is not None:
        words = f"{entries} lines an answer, for Grafana too"
        fix = f"limits_config: {name}: {MAX_PAGE}; `--from loki` asks more often otherwise."
        yield note(name, words, fix) if 0 < entries < MAX_PAGE else ok(name, words)
    longest = loki.secs("max_query_length")
    if longest is not None:
        words = words_of_secs(longest) if longest else "no limit"
        fix = f"limits_config: max_query_length: 30d1h; `--from loki` asks for {MAX_RANGE_NS // 86_400 // 10**9} days."
        yield _judge(longest == 0 or longest * 1e9 >= MAX_RANGE_NS, "max_query_length", words, fix)
    server = loki.part("server")
    parts = [size_bytes(server.get(f"grpc_server_max_{way}_msg_size")) for way in ("recv", "send")]
    sizes = [size for size in parts if size]
    if sizes and min(sizes) < ANSWER_BYTES:
        words = f"questions whose answer is over {words_of_bytes(min(sizes))} are never answered: 5,000 lines of 1 KB"
        fix = "server: grpc_server_max_recv_msg_size and grpc_server_max_send_msg_size: 67108864. `--from loki` asks "
        fix += "for less at a time, but lines of some MiB, and Grafana's log panel, need it."
        yield note("grpc_server_max_recv_msg_size", words, fix)


def _retention(loki: _Loki) -> Iterator[Finding]:
    period = loki.secs("retention_period")
    enabled = loki.part("compactor").get("retention_enabled") is True
    if enabled and period:
        yield ok("retention", f"Loki removes what is older than {words_of_secs(period)}")
        return
    option = "limits_config: retention_period" if enabled else "compactor: retention_enabled"
    purge = "" if enabled else " `logshipper-agent purge` needs it, too."
    fix = f"{option}, if that's not meant.{purge}"
    yield note("retention", "Loki keeps everything for ever", fix)


def _mebibytes(megabytes: object) -> int | None:
    if isinstance(megabytes, bool) or not isinstance(megabytes, int | float):
        return None
    return int(megabytes * _MIB)


def _table(table: object) -> Mapping[str, Any]:  # Any: YAML
    return table if isinstance(table, dict) else {}
