"""Loki's limits against the agent's needs, limit by limit, with durations and sizes in Loki's
notation."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from logshipper_ingest.checks.check_loki_limits import check_limits
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.servers.server_units import (
    duration_secs,
    size_bytes,
    words_of_bytes,
    words_of_secs,
)

DEFAULTS: dict[str, Any] = {
    "schema_config": {"configs": [{"from": "2024-01-01", "store": "tsdb", "schema": "v13"}]},
    "limits_config": {
        "allow_structured_metadata": True,
        "unordered_writes": True,
        "increment_duplicate_timestamp": False,
        "discover_log_levels": True,
        "max_line_size": "256KB",
        "reject_old_samples": True,
        "reject_old_samples_max_age": "1w",
        "creation_grace_period": "10m",
        "max_structured_metadata_size": "64KB",
        "max_structured_metadata_entries_count": 128,
        "max_label_names_per_series": 15,
        "per_stream_rate_limit": "3MB",
        "per_stream_rate_limit_burst": "15MB",
        "ingestion_rate_mb": 4,
        "ingestion_burst_size_mb": 6,
        "shard_streams": {"enabled": True, "desired_rate": "1536KB"},
        "max_entries_limit_per_query": 5000,
        "max_query_length": "30d1h",
        "retention_period": "0s",
    },
    "querier": {"query_ingesters_within": "3h0m0s"},
    "server": {"grpc_server_max_recv_msg_size": 4194304, "grpc_server_max_send_msg_size": 4194304},
    "compactor": {"retention_enabled": False},
}
SECTION = LokiSection()


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.about: finding.level for finding in findings}


def the(findings: list[Finding], about: str) -> Finding:
    (match,) = (finding for finding in findings if finding.about == about)
    return match


def limits_with(path: str, value: object) -> dict[str, Any]:
    document = json.loads(json.dumps(DEFAULTS))
    *folders, name = path.split(".")
    table = document
    for folder in folders:
        table = table.setdefault(folder, {})
    table[name] = value
    assert isinstance(document, dict)
    return document


def test_lokis_defaults_will_do() -> None:
    findings = check_limits(DEFAULTS, SECTION)
    assert {finding.about for finding in findings if finding.level == "wrong"} == set()
    assert {finding.about for finding in findings if finding.level == "note"} == {
        "loki discover_log_levels",
        "loki query_ingesters_within",
        "loki grpc_server_max_recv_msg_size",
        "loki retention",
    }


@pytest.mark.parametrize(
    ("path", "value", "level"),
    [
        ("limits_config.allow_structured_metadata", False, "wrong"),
        ("limits_config.unordered_writes", False, "wrong"),
        ("limits_config.increment_duplicate_timestamp", True, "wrong"),
        ("limits_config.discover_log_levels", False, None),
        ("limits_config.enforced_labels", ["team"], "wrong"),
        ("limits_config.enforced_labels", ["host"], None),
        ("limits_config.max_line_size", "128KB", "wrong"),
        ("limits_config.max_line_size", "0B", "ok"),
        ("limits_config.max_line_size", 256_000, "ok"),
        ("limits_config.max_line_size", 255_999, "wrong"),
        ("limits_config.reject_old_samples_max_age", "1d", "wrong"),
        ("limits_config.reject_old_samples_max_age", "160h", "ok"),
        ("limits_config.creation_grace_period", "5s", "wrong"),
        ("limits_config.max_structured_metadata_size", "1KB", "wrong"),
        ("limits_config.max_structured_metadata_entries_count", 8, "wrong"),
        ("limits_config.max_label_names_per_series", 5, "wrong"),
        ("limits_config.per_stream_rate_limit", "500KB", "wrong"),
        ("limits_config.per_stream_rate_limit_burst", "512KB", "wrong"),
        ("limits_config.ingestion_burst_size_mb", 0.5, "wrong"),
        ("limits_config.ingestion_rate_mb", 0.5, "wrong"),
        ("limits_config.shard_streams", {"enabled": False}, "ok"),
        ("limits_config.shard_streams", {"enabled": True, "desired_rate": "1MB"}, "wrong"),
        ("limits_config.max_entries_limit_per_query", 1000, "note"),
        ("limits_config.max_query_length", "1w", "wrong"),
        ("limits_config.max_query_length", "0s", "ok"),
        ("querier.query_ingesters_within", "0s", None),
        ("server.grpc_server_max_recv_msg_size", 100 << 20, "note"),
        (
            "schema_config.configs",
            [{"from": "2024-01-01", "store": "boltdb-shipper", "schema": "v12"}],
            "wrong",
        ),
    ],
)
def test_each_limit(path: str, value: object, level: str | None) -> None:
    name = (
        path.split(".")[1].replace("configs", "schema_config")
        if "schema" in path
        else path.split(".")[1]
    )
    findings = check_limits(limits_with(path, value), SECTION)
    changed = [finding for finding in findings if finding.about == f"loki {name}"]
    assert [finding.level for finding in changed] == ([level] if level else [])
    assert all(bool(finding.fix) for finding in changed if finding.level == "wrong")


def test_schema_of_today_counts() -> None:
    old = {"from": "2020-01-01", "store": "boltdb", "schema": "v11"}
    new = {"from": "2026-06-01", "store": "tsdb", "schema": "v13"}
    later = {"from": "2999-01-01", "store": "other", "schema": "v99"}
    document = limits_with("schema_config.configs", [later, new, old])
    now_secs = time.mktime(time.strptime("2026-07-01", "%Y-%m-%d"))
    assert the(check_limits(document, SECTION, now_secs), "loki schema_config").words == "tsdb, v13"
    assert (
        the(check_limits(document, SECTION, now_secs - 90 * 86_400), "loki schema_config").level
        == "wrong"
    )


def test_agent_that_sends_as_fast_as_it_can() -> None:
    level_of = levels(check_limits(DEFAULTS, replace(SECTION, stream_max_bytes_per_sec=0)))
    assert level_of["loki shard_streams"] == level_of["loki per_stream_rate_limit"] == "wrong"


@pytest.mark.parametrize("rate", [0, 4_300_000])
def test_agent_that_sends_more_than_a_tenant_may(rate: int) -> None:
    findings = check_limits(DEFAULTS, replace(SECTION, tenant_max_bytes_per_sec=rate))
    assert levels(findings)["loki ingestion_rate_mb"] == "note"
    assert "tenant_max_bytes_per_sec = 3984588" in the(findings, "loki ingestion_rate_mb").fix


def test_both_grpc_limits_are_needed_and_retention_is_told() -> None:
    document = limits_with(
        "server",
        {"grpc_server_max_recv_msg_size": 64 << 20, "grpc_server_max_send_msg_size": 64 << 20},
    )
    document["compactor"] = {"retention_enabled": True}
    document["limits_config"]["retention_period"] = "30d"
    findings = check_limits(document, SECTION)
    assert "loki grpc_server_max_recv_msg_size" not in levels(findings)
    assert the(findings, "loki retention") == Finding(
        "ok", "loki retention", "Loki removes what is older than 30 days"
    )


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"limits_config": 7},
        {"limits_config": {"shard_streams": [], "max_line_size": []}},
        {"schema_config": {"configs": [1, {}]}, "server": None},
    ],
)
def test_configuration_of_odd_shape(odd: dict[str, Any]) -> None:
    assert [
        finding.about for finding in check_limits(odd, SECTION) if finding.level == "wrong"
    ] == []


@pytest.mark.parametrize(
    ("text", "secs"),
    [("1w", 604_800), ("30d1h", 2_595_600), ("168h0m0s", 604_800), ("0s", 0), (0, 0), ("1.5h", 5400), ("100ms", 0.1),
     ("1y", 31_536_000), ("", None), ("soon", None), ("1", None), (5, None), (None, None)],
)  # fmt: skip
def test_durations(text: object, secs: float | None) -> None:
    assert duration_secs(text) == secs


@pytest.mark.parametrize(
    ("text", "size"),
    [("256KB", 262_144), ("1536KB", 1_572_864), ("3MB", 3_145_728), ("0B", 0), (7, 7), ("7", 7), ("1.5MiB", 1_572_864),
     ("x", None), (True, None), (None, None), ("-1B", None)],
)  # fmt: skip
def test_sizes(text: object, size: int | None) -> None:
    assert size_bytes(text) == size


def test_words_of_quantities() -> None:
    assert [words_of_secs(secs) for secs in (90, 60, 10_800, 86_400, 604_800, 0.5)] == [
        "90 s", "1 min", "3 h", "1 day", "7 days", "0.5 s"]  # fmt: skip
    assert [words_of_bytes(size) for size in (0, 1023, 1536, 4 << 20, 5 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "4 MiB", "5120 GiB"]  # fmt: skip
