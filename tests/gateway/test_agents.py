"""Agents behind the gateway push to every user's tenant and read no tenant. Their metrics in
Prometheus reveal no jobs."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import requests

from logshipper_ingest.checks.check_loki import check_loki
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry, compress, encode_push
from logshipper_ingest.servers.server_access import ServerAccess
from tests.gateway.conftest import ANN, BEN, Site, capture, new_job, tenant_agent
from tests.gateway.nginx import Answer, question
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.fakes.tls_gateway import Pair
from tests.tools.stores.node_agents import NodeAgent

ALL = '{service_name="logshipper"}'
PUSH = "/loki/api/v1/push"


def ask(
    site: Site, target: str, tenant: str | None, holder: str, method: str = "GET", body: bytes = b""
) -> Answer:
    """Send a request to the agents' port. holder: owner of the certificate, "" for no certificate."""
    certificate: Pair | None = getattr(site.gateway.certificates, holder) if holder else None
    headers = [("Content-Type", "application/x-protobuf")] if body else []
    headers += [] if tenant is None else [("X-Scope-OrgID", tenant)]
    port = site.gateway.agents_port
    return site.gateway.ask(
        target, headers, method=method, body=body, certificate=certificate, port=port
    )


def pushed(line: str) -> bytes:
    return compress(encode_push({"service_name": "pushed"}, [Entry(time.time_ns(), line)]))


def lines_of(site: Site, tenant: str) -> list[str]:
    with LokiClient(ServerAccess(url=site.loki.url, tenant=tenant)) as client:
        return [
            entry.line
            for entry in client.entries('{service_name="pushed"}', site.begin_ns, time.time_ns())
        ]


def test_agents_push_to_any_one_tenant(site: Site) -> None:
    for tenant in ("carol", "uid!1000", "nobody!"):
        line = f"for {tenant} {uuid.uuid4().hex}"
        assert ask(site, PUSH, tenant, "node", "POST", pushed(line)).status == 204
        assert line in lines_of(site, tenant)


@pytest.mark.parametrize(
    "tenant", [None, "", "ann|ben", "ann,ben", "a b", "a/b", "\u00e4", "a" * 151, "fake"]
)
def test_agents_push_to_no_two_tenants_and_to_none(site: Site, tenant: str | None) -> None:
    assert ask(site, PUSH, tenant, "node", "POST", pushed("nowhere")).status in (400, 403)
    assert "nowhere" not in lines_of(site, ANN) + lines_of(site, BEN) + lines_of(site, "fake")


@pytest.mark.parametrize("holder", ["", "grafana", "neighbour"])
def test_others_push_nothing(site: Site, holder: str) -> None:
    """Clients without a certificate can't push, nor can clients with one of the readers' CA."""
    line = f"forged {uuid.uuid4().hex}"
    assert ask(site, PUSH, BEN, holder, "POST", pushed(line)).status == 400
    assert line not in lines_of(site, BEN)
    assert ask(site, question("query_range", query=ALL, **site.span), BEN, holder).status == 400


def test_a_node_reads_no_user_s_jobs(site: Site) -> None:
    target = question("query_range", query=ALL, **site.span)
    for tenant in (ANN, BEN, "uid!0", "nobody!|ben", "nobody", "nobody!x"):
        answer = ask(site, target, tenant, "node")
        assert answer.status == 403
        assert site.seen_of(BEN, answer.body) == []
    assert ask(site, target, "nobody!", "node").status == 200
    assert ask(site, target, "fake", "controller").status == 403, (
        "of all users, from before tenants"
    )
    for user in (ANN, BEN):
        controller = ask(site, target, user, "controller")
        assert controller.status == 200
        assert site.seen_of(user, controller.body), "who asks which jobs were captured"


@pytest.mark.parametrize("holder", ["node", "controller"])
@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/config", 404),
        ("POST", "/flush", 404),
        ("GET", PUSH, 405),
        ("POST", f"{PUSH}?a=b", 405),
        ("POST", f"/{PUSH}", 404),
        ("POST", "/loki/api/v1/%70ush", 405),
        ("POST", "/loki/api/v1/delete?query={}", 404),
        ("GET", "/loki/api/v1/tail?query={}", 404),
        ("DELETE", "/loki/api/v1/query", 405),
        ("GET", "/loki/api/v1/query/../push", 405),
    ],
)
def test_agents_do_nothing_else(
    site: Site, holder: str, method: str, target: str, status: int
) -> None:
    answer = ask(site, target, "nobody!", holder, method, b"x" if method == "POST" else b"")
    assert answer.status == status
    assert b"<center>nginx" in answer.body


def test_a_grafana_user_is_nothing_to_agents(site: Site) -> None:
    """The agents' port ignores Grafana's users. For Grafana, the tenants uid!0 and nobody! are no
    valid user names."""
    certificates, target = (
        site.gateway.certificates,
        question("query_range", query=ALL, **site.span),
    )
    headers = [("X-Grafana-User", BEN)]
    assert (
        site.gateway.ask(
            target, headers, certificate=certificates.node, port=site.gateway.agents_port
        ).status
        == 403
    )
    assert site.gateway.as_grafana("nobody!", target).status == 403


# ---- logshipper-agent check


def findings(agent: NodeAgent) -> dict[str, tuple[str, str]]:
    findings = check_loki(agent_config.load(str(agent.config)).lokis[0])
    return {
        finding.about: (finding.level, f"{finding.words} {finding.fix}") for finding in findings
    }


def test_check_is_content_behind_the_gateway(site: Site, tmp_path: Path) -> None:
    by_about = findings(tenant_agent(tmp_path, site.gateway, "n3"))
    assert {level for level, _ in by_about.values()} == {"ok", "note"}
    for about in ("loki push", "loki query", "loki tenants"):
        assert by_about[about][0] == "ok", by_about


def test_check_says_where_loki_tells_no_tenants_apart(loki: LokiServer, tmp_path: Path) -> None:
    """Loki's default is auth_enabled: true. Without it, every user could silently read all logs."""
    by_about = findings(NodeAgent(tmp_path, loki.url, cluster="apart", loki={"tenant_by": "user"}))
    level, words = by_about["loki tenants"]
    assert level == "wrong"
    assert "auth_enabled: true" in words


# ---- Prometheus


def series_of(prometheus: PrometheusServer, target: str) -> str:
    """Return all series of a target in Prometheus, and all values of all its labels."""
    selector = f'{{instance="{target}"}}'

    def get(path: str, **params: str) -> Any:  # Any: JSON
        return session.get(
            f"{prometheus.url}/api/v1/{path}", params=params, timeout=TIMEOUT_SECS
        ).json()["data"]

    with requests.Session() as session:
        session.trust_env = False
        values = [get(f"label/{name}/values", **{"match[]": selector}) for name in get("labels")]
        return str([get("series", **{"match[]": selector}), get("query", query=selector), values])


@pytest.mark.parametrize("tenant_by", ["user", ""])
def test_prometheus_is_told_nothing_of_jobs(
    site: Site, prometheus: PrometheusServer, tmp_path: Path, tenant_by: str
) -> None:
    """Prometheus has no users, so everyone with access sees all of it. With tenants by user,
    job_values has no effect; without them, the same job is visible."""
    options = {"tenant_by": tenant_by} if tenant_by else {"tenant_by": "", "tenant": "control"}
    agent = tenant_agent(tmp_path, site.gateway, "n4", **options)
    # [metrics] is the last table of the file
    agent.config.write_text(agent.config.read_text() + "job_values = true\n")
    job = new_job("dora", "n4", 0)
    with agent:
        target = agent.metrics_url.split("/")[2]
        capture(agent, job)
        agent.wait_shipped()
        if not tenant_by:
            wait_until(lambda: job.word in agent.metrics(), "a job's series are there")
        prometheus.set_targets([target])
        prometheus.wait_for_target(target)
        wait_until(
            lambda: "logshipper_agent_pushes_total" in series_of(prometheus, target),
            "the agent's health",
        )
        text = series_of(prometheus, target) + agent.metrics()
    prometheus.set_targets([])
    words = [job.word, job.job_id, job.loss, "dora", "loss", "logshipper_job_info"]
    assert [word for word in words if word in text] == ([] if tenant_by else words)
