"""deploy/prometheus: promtool's unit tests of the alerts, the alerts' runbooks, and the alerts in a
real Prometheus."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import yaml

from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.metrics.remote_write import RemoteWriteMetrics
from tests.servers.running import PrometheusServer, free_port, prometheus_program
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT
from tests.tools.stores.exported_metrics import exported
from tests.tools.waiting import scaled

FOLDER = ROOT / "deploy" / "prometheus"
RULES = [FOLDER / "logshipper-recording.yml", FOLDER / "logshipper-alerts.yml"]
UNIT_TESTS = FOLDER / "tests" / "alerts.yml"
RUNBOOKS = ROOT / "docs" / "alerts.md"
SCRAPED_WITHIN_SECS = 60.0
Document = dict[str, Any]  # Any: YAML of ours


def rules(kind: str) -> dict[str, Document]:
    """Return the rules by name. kind: `alert` or `record`."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return {rule[kind]: rule for group in groups for rule in group["rules"] if kind in rule}


ALERTS = rules("alert")


@pytest.mark.usefixtures("prometheuses")
def test_promtool_passes_rules_and_their_unit_tests() -> None:
    _, promtool = prometheus_program().paths
    for verb, files in (("check", RULES), ("test", [UNIT_TESTS])):
        done = subprocess.run(
            [promtool, verb, "rules", *files], capture_output=True, text=True, timeout=scaled(60)
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_unit_tests_of_when_it_fires_and_when_it_does_not() -> None:
    fires: dict[str, set[bool]] = {}
    for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
        for moment in test["alert_rule_test"]:
            fires.setdefault(moment["alertname"], set()).add(bool(moment["exp_alerts"]))
    assert fires == {name: {True, False} for name in ALERTS}


def test_every_alert_has_a_runbook_and_stands_in_the_table() -> None:
    page = RUNBOOKS.read_text()
    headings = set(re.findall(r"^## (Logshipper\w+)$", page, re.MULTILINE))
    table = dict(re.findall(r"^\| \[(\w+)\]\(#\w+\) \| (\w+) \|", page, re.MULTILINE))
    assert headings == ALERTS.keys()
    assert table == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"docs/alerts.md#{name.lower()}"


def test_rules_name_only_what_is_exported_or_recorded() -> None:
    records = rules("record")
    metrics = exported().keys() | {"logshipper_agent_push_seconds_bucket"}
    for name, rule in {**ALERTS, **records}.items():
        recorded = set(re.findall(r"\b[a-z_]+:[\w:]+", rule["expr"]))
        assert recorded <= records.keys(), name
        plain = re.sub(r"\b[a-z_]+:[\w:]+", "", rule["expr"])
        assert set(re.findall(r"\blogshipper_\w+", plain)) <= metrics, name
    text = "".join(rule["expr"] for rule in ALERTS.values())
    assert {name for name in records if name.startswith("cluster_host") and name not in text} == {
        "cluster_host:logshipper_agent_spool_bytes:max"  # for dashboards
    }


@pytest.fixture
def prometheus_with_rules(prometheuses: None) -> Iterator[PrometheusServer]:
    settings = {
        "rule_files": list(map(str, RULES)),
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
    }
    with PrometheusServer(config=settings) as server:
        yield server


def alerts(prometheus: PrometheusServer) -> dict[str, dict[str, str]]:
    """Return the labels of pending and firing alerts, by name."""
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(
            f"{prometheus.url}/api/v1/query", params={"query": "ALERTS"}, timeout=10
        ).json()
    active = [series["metric"] for series in answer["data"]["result"]]
    return {labels["alertname"]: labels for labels in active}


def test_real_prometheus_sees_each_trouble_of_a_real_agent(
    prometheus_with_rules: PrometheusServer,
) -> None:
    prometheus = prometheus_with_rules
    wait_until(
        lambda: set(alerts(prometheus)) == {"LogshipperNoAgents"},
        "no agents are noticed",
        SCRAPED_WITHIN_SECS,
    )
    agent = AgentMetrics("c1", "n1")
    remote = RemoteWriteMetrics(agent.registry)
    server = MetricsServer("127.0.0.1:0", agent, None)
    target, dead_target = f"127.0.0.1:{server.port}", f"127.0.0.1:{free_port()}"
    try:
        for folder, free in (("spool", 1.0), ("state", float("nan"))):
            agent.disk_free_bytes.labels(folder).set(free)
            agent.disk_size_bytes.labels(folder).set(100.0)
        agent.quarantine_bytes.set(90)
        agent.quarantine_max_bytes.set(100)
        agent.lag_seconds.set(301)
        agent.limited.labels("hard").set(1)
        agent.clock_skew_seconds.set(-31)
        agent.set_waiting({"503": 1, "260": 2})
        prometheus.set_targets([target, dead_target])
        prometheus.wait_for_target(target)
        agent.refused_entries.labels("too_old").inc()
        agent.left_out.labels("quarantine_full").inc()
        agent.lost_lines.inc(3)
        remote.dropped_samples.labels("too_old").inc()
        agent.telegraf_lines.labels("overflow").inc()
        agent.telegraf_down.set(1)
        agent.damaged_bytes.inc(100)
        names = ALERTS.keys() - {"LogshipperNoAgents", "LogshipperAgentRestarts"}
        wait_until(lambda: set(alerts(prometheus)) == names, "all is noticed", SCRAPED_WITHIN_SECS)
        by_name = alerts(prometheus)
        assert by_name.pop("LogshipperAgentDown")["instance"] == dead_target
        assert {(labels["cluster"], labels["host"]) for labels in by_name.values()} == {
            ("c1", "n1")
        }
        assert by_name["LogshipperHolding"]["result"] == "260"
        assert {
            by_name[name]["folder"] for name in ("LogshipperDiskFull", "LogshipperDiskNearlyFull")
        } == {"spool"}
    finally:
        server.close()
