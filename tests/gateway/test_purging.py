"""Purging a printed secret from Loki through the gateway, with a certificate for this purpose only."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logshipper.errors import ConfigError
from logshipper_ingest.admin.purge_node import NodePurge
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry, compress, encode_push
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.spool.purge_pattern import pattern_of
from tests.gateway.conftest import ANN, BEN, started, tenant_agent
from tests.gateway.nginx import Nginx, SiteCertificates, question
from tests.servers.running import LokiServer
from tests.tools.fakes.tls_gateway import Pair
from tests.tools.stores.node_agents import NodeAgent

DELETE = "/loki/api/v1/delete"
ALL = '{service_name="logshipper"}'
SECRET = "g\u00e4hunter2"  # noqa: S105  nobody's


@pytest.fixture(scope="module")
def deleting(lokis: None, certificates: SiteCertificates) -> Iterator[tuple[LokiServer, Nginx]]:
    with ExitStack() as until:
        loki = until.enter_context(LokiServer(auth_enabled=True, deletes=True))
        yield loki, started(loki, certificates, "certificate", until)


def push(loki: LokiServer, tenant: str, job_id: str) -> None:
    now_ns = time.time_ns() - 60 * 10**9
    lines = ["kept", f"printed {SECRET}", json.dumps({"token": SECRET})]
    entries = [Entry(now_ns + at, line, {"job_id": job_id}) for at, line in enumerate(lines)]
    with LokiClient(ServerAccess(url=loki.url, tenant=tenant)) as client:
        client.push(
            {"service_name": "logshipper", "cluster": "site", "kind": "log", "host": "n1"}, entries
        )


def lines_of(loki: LokiServer, tenant: str, job_id: str) -> list[str]:
    with LokiClient(ServerAccess(url=loki.url, tenant=tenant)) as client:
        entries = client.entries(
            f'{ALL} | job_id="{job_id}"', time.time_ns() - 3600 * 10**9, time.time_ns()
        )
        return [entry.line for entry in entries]


def test_a_secret_is_taken_out_through_the_gateway(
    deleting: tuple[LokiServer, Nginx], tmp_path: Path
) -> None:
    loki, gateway = deleting
    agent = tenant_agent(tmp_path, gateway, "n1")
    agent.state.mkdir()
    job_id = uuid.uuid4().hex[:12]
    for tenant in (ANN, BEN):
        push(loki, tenant, job_id)
    purge = ("purge", "--job", job_id, "--fixed", SECRET, "--user", ANN, "--since", "1h", "--yes")
    denial = agent.call(*purge, "--wait", "1s")
    assert (denial.returncode, "--cert FILE --key FILE" in denial.stderr) == (1, True), (
        denial.stderr
    )
    certificate = gateway.certificates.purger
    options = ("--cert", str(certificate.cert), "--key", str(certificate.key))
    assert agent.call(*purge, *options, "--wait", "1s").returncode in (0, 3), (
        "its parts haven't heard of it, perhaps"
    )
    loki.stop()
    loki.start()
    done = agent.call(*purge, *options, "--wait", "30s")
    assert done.returncode == 0, done.stderr
    assert lines_of(loki, ANN, job_id) == ["kept"]
    assert len(lines_of(loki, BEN, job_id)) == 3


@pytest.mark.parametrize(
    ("user", "tenant"),
    [("ann", "ann"), ("4711", "uid!4711"), ("root", "root"), ("fake", None), ("Ann.O'Dd", None)],
)
def test_whose_tenant_it_is_where_the_node_doesn_t_know_the_job(
    tmp_path: Path, user: str, tenant: str | None
) -> None:
    """The purge never uses the tenant of unowned data. It would find nothing there and report
    success."""
    agent = NodeAgent(tmp_path, "http://127.0.0.1:9", cluster="c", loki={"tenant_by": "user"})
    purge = NodePurge(agent_config.load(str(agent.config)), "job1", pattern_of(None, "hunter2"))
    if tenant is None:
        with pytest.raises(ConfigError, match="isn't known here, nor its number: give the number"):
            purge.lokis(user, {})
    else:
        clients = purge.lokis(user, {})
        assert [place.tenant for place in clients] == [tenant]
        for client in clients.values():
            client.close()


@pytest.mark.parametrize("holder", ["node", "controller", "grafana", "neighbour", ""])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE"])
def test_nobody_else_deletes(deleting: tuple[LokiServer, Nginx], holder: str, method: str) -> None:
    loki, gateway = deleting
    job_id = uuid.uuid4().hex[:12]
    push(loki, ANN, job_id)
    target = f"{DELETE}?{_params(job_id)}"
    certificate: Pair | None = getattr(gateway.certificates, holder) if holder else None
    for port in (gateway.agents_port, gateway.port):
        headers = [("X-Scope-OrgID", ANN), ("X-Grafana-User", ANN)]
        answer = gateway.ask(target, headers, method=method, certificate=certificate, port=port)
        assert answer.status in (400, 401, 404, 405)
        assert b"<center>nginx" in answer.body
    assert not any(job_id in query for query in _requests(loki))


def _params(job_id: str) -> str:
    query = f'{ALL} | job_id="{job_id}"'
    return question(
        "delete", query=query, start=str(int(time.time()) - 3600), end=str(int(time.time()) - 1)
    ).split("?")[1]


def _requests(loki: LokiServer) -> list[str]:
    """Return the queries of ann's delete requests in Loki."""
    with LokiClient(ServerAccess(url=loki.url, tenant=ANN)) as client:
        answer = client.call("GET", DELETE)
    assert answer.status == 200
    return [request["query"] for request in json.loads(answer.body)]


def test_who_purges_does_nothing_else(deleting: tuple[LokiServer, Nginx]) -> None:
    loki, gateway = deleting
    job_id = uuid.uuid4().hex[:12]
    push(loki, ANN, job_id)
    entry = Entry(time.time_ns(), "forged", {"job_id": job_id})
    body = compress(encode_push({"service_name": "logshipper", "cluster": "site"}, [entry]))

    def ask(method: str, target: str, tenant: str = ANN, body: bytes = b"") -> int:
        headers = [
            ("X-Scope-OrgID", tenant),
            *([("Content-Type", "application/x-protobuf")] if body else []),
        ]
        certificate = gateway.certificates.purger
        return gateway.ask(
            target,
            headers,
            method=method,
            body=body,
            certificate=certificate,
            port=gateway.agents_port,
        ).status

    assert ask("POST", "/loki/api/v1/push", body=body) == 405
    assert ask("GET", DELETE) == 404
    assert ask("DELETE", f"{DELETE}?request_id=1&force=true") == 404
    assert ask("PUT", f"{DELETE}?{_params(job_id)}") == 404
    assert ask("POST", f"{DELETE}/?{_params(job_id)}") == 404
    assert ask("POST", f"{DELETE}?{_params(job_id)}", tenant="fake") == 403
    assert ask("POST", f"{DELETE}?{_params(job_id)}", tenant=f"{ANN}|{BEN}") == 403
    assert ask("GET", "/config") == 404
    assert ask("GET", question("query", query="vector(1)")) == 200
    assert ask("POST", f"{DELETE}?{_params(job_id)}") == 204
    assert "forged" not in lines_of(loki, ANN, job_id)
