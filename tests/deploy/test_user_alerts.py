"""Alerts for users: promtool's unit tests, Grafana's file, and their way from an agent's metrics
through a real Prometheus and a real Alertmanager to each user."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests
import yaml

from logshipper_grafana.tool import alert_rules
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from tests.logshipper.notify.receivers import HttpReceiver, MailReceiver
from tests.servers.alertmanager import AlertmanagerServer, run_amtool
from tests.servers.running import PrometheusServer, prometheus_program
from tests.tools.sources import ROOT
from tests.tools.stores.exported_metrics import exported
from tests.tools.stores.job_views import FakeCapture, job_metrics
from tests.tools.waiting import scaled, wait_until

FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "logshipper-user-alerts.yml"
UNIT_TESTS = FOLDER / "tests" / "user-alerts.yml"
ROUTES = ROOT / "deploy" / "alertmanager" / "logshipper-users.yml"
GRAFANA_USERS = alert_rules.FILE.with_name("logshipper-users.yaml.example")
PAGE = ROOT / "docs" / "user-alerts.md"
ARRIVED_WITHIN_SECS = 60.0
Document = dict[str, Any]  # Any: YAML and JSON
(GROUP,) = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for rule in GROUP["rules"] if "alert" in rule}
RECORDS = {rule["record"]: rule for rule in GROUP["rules"] if "record" in rule}
(GRAFANA,) = yaml.safe_load(alert_rules.FILE.read_text())["groups"]
OF_EXPORTERS = re.compile(r"\b(?:slurm_job_|DCGM_|ceems_|nvidia_gpu_)\w+")


@pytest.mark.usefixtures("prometheuses")
def test_promtool_passes_rules_and_their_unit_tests() -> None:
    _, promtool = prometheus_program().paths
    for verb, file in (("check", RULES), ("test", UNIT_TESTS)):
        done = subprocess.run(
            [promtool, verb, "rules", file], capture_output=True, text=True, timeout=scaled(60)
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_unit_tests_of_when_it_fires_and_when_it_does_not() -> None:
    fires: dict[str, list[bool]] = {}
    for test in yaml.safe_load(UNIT_TESTS.read_text())["tests"]:
        for moment in test["alert_rule_test"]:
            fires.setdefault(moment["alertname"], []).append(bool(moment["exp_alerts"]))
    assert fires.keys() == ALERTS.keys()
    assert all(moments[:3] == [False, True, False] for moments in fires.values())


def test_every_alert_stands_in_the_table_of_the_page() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    assert table == {name: rule["labels"]["severity"] for name, rule in ALERTS.items()}
    # the cluster's page lists alerts with names of admins' alerts
    assert not any(name.startswith("Logshipper") for name in ALERTS)


def test_rules_name_only_what_is_exported_or_recorded() -> None:
    exporters = (ROOT / "grafana" / "logshipper_grafana" / "parts" / "exporters.py").read_text()
    for name, rule in {**ALERTS, **RECORDS}.items():
        plain = re.sub(r"\b[a-z_]+:[\w:]+", "", rule["expr"])
        recorded = set(re.findall(r"\b[a-z_]+:[\w:]+", rule["expr"]))
        assert recorded <= RECORDS.keys(), name
        assert set(re.findall(r"\blogshipper_\w+", plain)) <= exported().keys(), name
        for metric in OF_EXPORTERS.findall(plain):
            assert metric.removeprefix("DCGM_FI_DEV_") in exporters, metric


# ---- Grafana's files


def test_grafana_has_the_same_alerts_without_recorded_series() -> None:
    rules = {rule["title"]: rule for rule in GRAFANA["rules"]}
    assert rules.keys() == ALERTS.keys()
    for name, rule in rules.items():
        assert (rule["for"], rule["labels"]) == (
            ALERTS[name].get("for", "0s"),
            ALERTS[name]["labels"],
        )
        query = rule["data"][0]["model"]["expr"]
        assert not any(record in query for record in RECORDS)
        assert rule["annotations"].keys() == ALERTS[name]["annotations"].keys()
        texts = "".join(rule["annotations"].values())
        assert "example.org" not in texts
        assert not re.search(r"\$value\b", texts)


def test_grafanas_example_names_its_contact_points_and_mute_times() -> None:
    document = yaml.safe_load(GRAFANA_USERS.read_text())
    (policy,) = document["policies"]
    (jobs,) = policy["routes"]
    contact_points = {contact["name"] for contact in document["contactPoints"]}
    assert {route["receiver"] for route in jobs["routes"]} == contact_points
    assert jobs["mute_time_intervals"] == [time["name"] for time in document["muteTimes"]]


# ---- real servers


@pytest.mark.usefixtures("alertmanagers")
def test_amtool_accepts_the_example_and_routes_by_user_and_name() -> None:
    done = run_amtool("check-config", str(ROUTES))
    assert done.returncode == 0, done.stdout + done.stderr
    of_job = ("service=logshipper-jobs", "alertname=JobFailed")
    for labels, receiver in (
        ((*of_job, "user=ada", "name=x"), "ada"),
        ((*of_job, "user=bob", "name=resnet-cifar"), "bob"),
        ((*of_job, "user=bob", "name=x"), "nobody"),
        ((*of_job, "user=dan", "name=x"), "mail"),
        ((*of_job, "user=eve", "name=x"), "nobody"),
        (("alertname=LogshipperAgentDown",), "admins"),
    ):
        done = run_amtool("config", "routes", "test", f"--config.file={ROUTES}", *labels)
        assert done.stdout.split() == [receiver], labels


class Site:
    """A Prometheus with the rules, an Alertmanager with the example's routes, and the receivers."""

    def __init__(self, stack: ExitStack) -> None:
        self.users = {
            name: stack.enter_context(HttpReceiver().serving()) for name in ("ada", "bob", "admins")
        }
        self.mail = stack.enter_context(MailReceiver().serving())
        config = yaml.safe_load(ROUTES.read_text())
        config["global"] |= {
            "smtp_smarthost": f"127.0.0.1:{self.mail.port}",
            "smtp_require_tls": False,
        }
        config["route"]["routes"][0]["group_wait"] = "1s"
        for receiver in config["receivers"]:
            if receiver["name"] in self.users:
                url = f"http://127.0.0.1:{self.users[receiver['name']].port}/"
                receiver.pop("email_configs", None)
                receiver["webhook_configs"] = [{"url": url, "send_resolved": False}]
        self.alertmanager = stack.enter_context(AlertmanagerServer(config))
        self.jobs: JobMetrics = job_metrics()
        self._server = MetricsServer("127.0.0.1:0", AgentMetrics("c1", "n1"), self.jobs)
        stack.callback(self._server.close)
        self.prometheus = stack.enter_context(self._prometheus())
        self.prometheus.set_targets([f"127.0.0.1:{self._server.port}"])

    def _prometheus(self) -> PrometheusServer:
        """Return a Prometheus whose alerts fire at once."""
        rules = [
            {name: value for name, value in rule.items() if name != "for"}
            for rule in GROUP["rules"]
        ]
        self.rules = self.alertmanager.folder / "rules.yml"
        self.rules.write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}))
        target = {"static_configs": [{"targets": [f"127.0.0.1:{self.alertmanager.port}"]}]}
        return PrometheusServer(
            config={
                "rule_files": [str(self.rules)],
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "alerting": {"alertmanagers": [target]},
            }
        )

    def run(self, job_id: str, user: str, name: str, **changes: Any) -> None:  # Any: of the view
        identity = {"user": user, "name": name}
        capture = FakeCapture(job_id=job_id, key=job_id, identity=identity)
        if changes.pop("has_nan", False):
            capture.print({"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")})
        self.jobs.update(capture.view(**changes))

    def summaries(self, name: str) -> set[str]:
        return {
            alert["annotations"]["summary"]
            for document in self.users[name].documents
            for alert in document["alerts"]
        }

    def subjects(self) -> set[str]:
        return {
            line.removeprefix("Subject: ").strip()
            for mail in self.mail.mails
            for line in mail.splitlines()
            if line.startswith("Subject: ")
        }


@pytest.fixture
def site(prometheuses: None, alertmanagers: None) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def test_each_user_gets_the_alerts_of_their_own_jobs(site: Site) -> None:
    site.alertmanager.silence("user=ada", "name=quiet")
    failed: Document = {"over": True, "state": "FAILED", "exit_code": 1}
    killed: Document = {"over": True, "state": "KILLED", "exit_code": None, "signal": 9}
    site.run("1", "ada", "resnet-cifar", **failed)
    site.run("2", "ada", "unet", has_nan=True)
    site.run("3", "ada", "quiet", **failed)
    site.run("4", "bob", "resnet-big", **killed)
    site.run("5", "bob", "other", **failed)
    site.run("6", "bob", "resnet-small", has_nan=True)
    site.run("7", "carol", "gpt", **failed)
    site.run("8", "eve", "secret", **failed)
    site.run("9", "ada", "fine", over=True)
    wait_until(
        lambda: len(site.alertmanager.alerts()) == 8 and site.subjects(),
        "Alertmanager has all",
        ARRIVED_WITHIN_SECS,
    )
    wait_until(
        lambda: len(site.summaries("ada")) == 2 and site.summaries("bob"),
        "all are delivered",
        ARRIVED_WITHIN_SECS,
    )
    assert site.summaries("ada") == {
        "resnet-cifar (job 1, ada) failed: exit code 1",
        "unet (job 2, ada): loss is NaN or infinite",
    }
    assert site.summaries("bob") == {"resnet-big (job 4, bob) was killed: signal 9"}
    assert site.subjects() == {"gpt (job 7, carol) failed: exit code 1"}
    assert "To: carol@example.org" in site.mail.mails[0]
    assert not site.users["admins"].documents
    # a new attempt resolves the failure
    identity = {"user": "ada", "name": "resnet-cifar"}
    again = FakeCapture(job_id="1", attempt=2, key="1b", identity=identity)
    site.jobs.update(again.view(started_ns=again.view().started_ns + 60 * 10**9))
    wait_until(
        lambda: not any(alert["labels"]["job_id"] == "1" for alert in site.alertmanager.alerts()),
        "resolved",
        ARRIVED_WITHIN_SECS,
    )


def test_prometheus_reads_grafanas_queries(prometheus: PrometheusServer) -> None:
    for rule in GRAFANA["rules"]:
        with requests.Session() as session:
            session.trust_env = False
            query = {"query": rule["data"][0]["model"]["expr"]}
            answer = session.post(f"{prometheus.url}/api/v1/query", data=query, timeout=10).json()
        assert answer["status"] == "success", answer
