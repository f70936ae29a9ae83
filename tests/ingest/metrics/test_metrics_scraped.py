"""A real Prometheus scrapes a real agent over TLS and with a password. All series have the name,
labels, type and unit in docs/metrics.md. A job's series end after three scrapes or more."""

import email.utils
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families as parsed

from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.metrics.prometheus import PrometheusClient
from tests.ingest.metrics.test_metrics_docs import JOB_LABELS, code, rows
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.stores.access_setup import (
    PASSWORD,
    Certificates,
    certificates,
    plain_environment,
    secret,
    with_certificate,
)
from tests.tools.stores.node_agents import NodeAgent

__all__ = ["certificates", "plain_environment"]  # fixtures
EXPIRE_SECS = 8.0
ADDED = {"__name__", "instance", "job"}  # labels that Prometheus adds
# a job without signal and scheduler lacks these; Slurm's controller exports two of them
NOT_OF_THIS_JOB = {
    "logshipper_job_signal", "logshipper_job_nodes", "logshipper_job_time_limit_seconds",
    "logshipper_job_slurm_start_time_seconds", "logshipper_job_slurm_end_time_seconds",
}  # fmt: skip
PRINTED = b'{"step": 1, "loss": 2.5, "$": 1}\n{"step": 2, "loss": 0.5}\nhello\n'
SCRIPT = 'printf \'{"step": 1, "loss": 2.5, "$": 1}\\n{"step": 2, "loss": 0.5}\\nhello\\n\'; exit 3'


def scraping(certificates: Certificates, password_file: str) -> dict[str, Any]:  # Any: YAML
    job = {
        "job_name": "logshipper-agent",
        "honor_labels": True,
        "scheme": "https",
        "tls_config": {"ca_file": str(certificates.ca), **with_certificate(certificates.client)},
        "basic_auth": {"username": "ann", "password_file": password_file},
        "file_sd_configs": [{"files": ["targets/*.yml"]}],
    }
    return {"scrape_configs": [job]}


def types(prometheus: PrometheusServer) -> dict[str, str]:
    with requests.Session() as session:
        session.trust_env = False
        document = session.get(f"{prometheus.url}/api/v1/metadata", timeout=10).json()["data"]
    return {name: facts[0]["type"] for name, facts in document.items()}


def test_every_series_is_as_documented_and_ends_as_documented(
    loki: LokiServer, prometheuses: None, certificates: Certificates, tmp_path: Path
) -> None:
    password_file = secret(tmp_path, "password", PASSWORD)
    access = {
        "cert_file": str(certificates.server.cert),
        "key_file": str(certificates.server.key),
        "client_ca_file": str(certificates.ca),
        "username": "ann",
        "password_file": password_file,
        "expire_secs": EXPIRE_SECS,
    }
    job = f"job-{uuid.uuid4().hex[:12]}"
    documented = {name: row for name, row in rows("Jobs").items() if name.startswith("logshipper_")}
    with (
        NodeAgent(tmp_path / "agent", loki.url, cluster=f"c-{job}", metrics=access) as agent,
        PrometheusServer(config=scraping(certificates, password_file)) as prometheus,
    ):
        target = agent.metrics_url.removeprefix("http://").removesuffix("/metrics")
        prometheus.set_targets([target])
        prometheus.wait_for_target(target)
        client = PrometheusClient(prometheus.url)
        begin = time.time()
        assert agent.run("sh", "-c", SCRIPT, options=("--job-id", job)).returncode == 3
        ended = time.time()
        of_job = f'{{job_id=~"{job}.*"}}'
        metric_names = documented.keys() - NOT_OF_THIS_JOB
        wait_until(
            lambda: {series["__name__"] for series in client.series(of_job)} == metric_names,
            "all series are there",
        )
        for labels in client.series(of_job):
            label_names = JOB_LABELS | code(documented[labels["__name__"]][0]) | ADDED
            # to Prometheus, an empty label is a missing one
            assert labels.keys() <= label_names, labels
            assert label_names - labels.keys() <= {
                "step",
                "account",
                "partition",
                "dec",
                "x",
                "constant",
            }, labels
        assert {
            name: kind for name, kind in types(prometheus).items() if name in metric_names
        } == dict.fromkeys(metric_names, "gauge")

        def last(name: str, **labels: str) -> float:
            """Return the last scraped value, even of a series that has ended."""
            matched = "".join(f',{label}="{value}"' for label, value in labels.items())
            (series,) = client.query(f'last_over_time({name}{{job_id=~"{job}.*"{matched}}}[10m])')
            return series.samples[-1].value

        def is_over() -> bool:
            return not client.query(of_job)

        wait_until(is_over, "its series end")
        (series,) = client.query(
            f'count_over_time(logshipper_job_exit_code{{job_id=~"{job}.*"}}[10m])'
        )
        assert series.samples[-1].value >= 3
        for name in ("start", "end", "heartbeat"):
            assert begin - 1 <= last(f"logshipper_job_{name}_time_seconds") <= ended + 5, name
        assert last("logshipper_job_exit_code") == 3
        assert last("logshipper_job_bytes", what="printed") == len(PRINTED)
        assert last("logshipper_job_lines", stream="stdout", outcome="read") == 3
        assert last("logshipper_metadata_value", key="loss") == 0.5
        assert last("logshipper_keys_left_out", reason="characters") == 1
        _agents_own_series(client, types(prometheus))
        assert f"/metrics on port {target.rpartition(':')[2]}" in agent.log.read_text()
    assert os.stat(password_file).st_mode & 0o077 == 0


def test_what_an_agent_waits_for_and_a_clock_that_is_off(tmp_path: Path) -> None:
    """A Loki, whose clock is three hours behind, refuses the agent."""
    then = email.utils.formatdate(time.time() - 3 * 3600, usegmt=True)
    with (
        FaultyServer(Said(401, b"who are you?", {"Date": then})) as loki,
        NodeAgent(tmp_path, loki.url, cluster="c1") as agent,
    ):
        assert agent.run("echo", "hello").returncode == 0
        wait_until(
            lambda: 'logshipper_agent_waiting_streams{result="401"} 0.0' not in agent.metrics(),
            "it waits",
        )
        text = agent.metrics()
        values = {sample.name: sample.value for family in parsed(text) for sample in family.samples}
        assert values["logshipper_agent_clock_skew_seconds"] == pytest.approx(3 * 3600, abs=60)
        assert values["logshipper_agent_quarantine_bytes"] == 0
        assert values["logshipper_agent_quarantine_max_bytes"] == LokiSection().quarantine_max_bytes


def _agents_own_series(client: PrometheusClient, kinds: dict[str, str]) -> None:
    documented = {
        name: row for name, row in rows("The agent").items() if name.startswith("logshipper_")
    }
    series = client.series('{__name__=~"logshipper_agent_.*"}')
    parts = ("_bucket", "_sum", "_count")  # series of a histogram
    for labels in series:
        name = labels["__name__"]
        if name not in documented:
            name = next(name.removesuffix(part) for part in parts if name.endswith(part))
        kind, label_names = documented[name][0], code(documented[name][1])
        # OpenMetrics' name of a counter has no _total
        assert kinds.get(name, kinds.get(name.removesuffix("_total"))) == kind, name
        own_labels = labels.keys() - ADDED - {"le"}
        assert own_labels <= label_names, labels
        assert label_names - own_labels <= {"user"}, labels  # an empty user is a missing label
    names = {labels["__name__"] for labels in series}
    assert {"logshipper_agent_disk_free_bytes", "logshipper_agent_lost_lines_total"} <= names
    (free,) = client.query('logshipper_agent_disk_free_bytes{folder="spool"}')
    (size,) = client.query('logshipper_agent_disk_size_bytes{folder="spool"}')
    assert 0 <= free.samples[0].value <= size.samples[0].value
