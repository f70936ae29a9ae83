"""Guarded access to Loki: TLS with a private CA, client certificates, passwords, tokens and
tenants. It covers the agent, `check` and readers. Faults hold entries back, get a message, and
reveal no secret."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from logshipper.errors import RejectedPushError, RetryablePushError
from logshipper.start.cli import main
from logshipper_ingest.checks.check_loki import check_loki
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import Entry, LokiClient
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.tls_gateway import Gateway, Wire
from tests.tools.stores.access_setup import (
    BASIC,
    LABELS,
    NEXT_TOKEN,
    PAGE,
    PASSWORD,
    SECRETS,
    TOKEN,
    Certificates,
    certificates,
    plain_environment,
    secret,
    with_certificate,
)
from tests.tools.stores.node_agents import NodeAgent, entries_of

__all__ = ["certificates", "plain_environment"]  # fixtures


@pytest.fixture(scope="module")
def tenants(lokis: None) -> Iterator[LokiServer]:
    """Yield a Loki that requires a tenant in each request."""
    with LokiServer(auth_enabled=True) as server:
        yield server


@pytest.fixture
def cluster() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


def written_site(folder: Path, url: str, options: Mapping[str, Any]) -> str:
    path = folder / "site.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in {"url": url, **options}.items()]
    path.write_text("\n".join(["[loki]", *lines]) + "\n")
    return str(path)


def wrong_of_check(agent: NodeAgent) -> str:
    """Return the faults that `check` finds with Loki, and their fixes."""
    findings = [
        finding
        for finding in check_loki(agent_config.load(str(agent.config)).lokis[0])
        if finding.level == "wrong"
    ]
    return "; ".join(f"{finding.about}: {finding.words} {finding.fix}" for finding in findings)


# ---- valid access


@pytest.mark.parametrize("way", ["certificate", "token"])
def test_each_way_leads_to_its_tenant(
    way: str,
    certificates: Certificates,
    tenants: LokiServer,
    cluster: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Covers a job's lines, the push and query of `check`, and reading by a site file; another
    tenant sees nothing. The certificate comes with a password."""
    options: dict[str, str] = {"ca_file": str(certificates.ca), "tenant": f"{cluster}-{way}"}
    with Gateway(
        tenants.url, certificates.server, certificates.ca if way == "certificate" else None
    ) as gateway:
        gateway.tenant = options["tenant"]
        if way == "token":
            gateway.token = TOKEN
            options |= {"token_file": secret(tmp_path, "token", TOKEN)}
        else:
            gateway.basic = f"ann:{PASSWORD}"
            options |= {"username": "ann", "password_file": secret(tmp_path, "password", PASSWORD)}
            options |= with_certificate(certificates.client)
        with NodeAgent(tmp_path / "node", gateway.url, cluster=cluster, loki=options) as agent:
            assert agent.run("sh", "-c", "echo one; echo two").returncode == 0
            assert wrong_of_check(agent) == ""
            with LokiClient(ServerAccess(url=tenants.url, tenant=gateway.tenant)) as client:
                wait_until(lambda: len(entries_of(client, cluster, "log")) == 2, "the job's lines")
                job_id = entries_of(client, cluster, "log")[0].metadata["job_id"]
        site = written_site(tmp_path, gateway.url, options)
        assert main(["logs", job_id, "--from", "loki", "--site", site]) == 0
        assert capsys.readouterr().out.splitlines() == ["one", "two"]
        assert {request.status for request in gateway.requests} <= {200, 204}
        assert {request.tenant for request in gateway.requests} == {options["tenant"]}
        assert {request.subject for request in gateway.requests} == {
            "node7" if way == "certificate" else ""
        }
        assert gateway.failed == []
    with LokiClient(ServerAccess(url=tenants.url, tenant="somebody-else")) as stranger:
        assert entries_of(stranger, cluster) == []


def test_several_tenants_can_be_named_and_are_loki_s_to_allow(tenants: LokiServer) -> None:
    """Loki answers a push to several tenants with 400. Since the entries aren't the cause, the
    agent must not drop them."""
    access = ServerAccess(url=tenants.url, tenant="physics|biology")
    assert access.problems("loki") == []
    for tenant in ("physics|biology", "no blanks"):
        with (
            LokiClient(ServerAccess(url=tenants.url, tenant=tenant)) as client,
            pytest.raises(RetryablePushError) as caught,
        ):
            client.push(LABELS, [Entry(time.time_ns(), "x")])
        assert (caught.value.status, "HTTP 400" in str(caught.value)) == (0, True)
        assert str(caught.value).endswith("; look at tenant")
    with LokiClient(tenants.url) as client, pytest.raises(RejectedPushError) as refusal:
        client.push(LABELS, [Entry(time.time_ns(), "x")])
    assert (refusal.value.status, refusal.value.excerpt) == (401, "no org id; look at tenant")


# ---- faults


def test_all_waits_until_all_is_right_and_nothing_is_told_before(
    certificates: Certificates, loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    """One fault follows another, and each is fixed while the agent runs."""
    password = secret(tmp_path, "password", PASSWORD)
    options = {
        "ca_file": str(certificates.ca),
        "username": "ann",
        "password_file": password,
        **with_certificate(certificates.client),
    }
    soon = {"retry_max_secs": 0.2}
    line = f"private {uuid.uuid4().hex}"
    with Gateway(loki.url, certificates.strange_server) as gateway, Wire(gateway.url) as wire:
        gateway.basic = f"ann:{PASSWORD}"
        with NodeAgent(tmp_path / "node", wire.url, cluster=cluster, loki=options | soon) as agent:
            assert agent.run("sh", "-c", f"for n in 1 2 3; do echo {line} $n; done").returncode == 0

            def says(words: str) -> None:
                wait_until(
                    lambda: words in agent.log.read_text(),
                    f"the log says {words}: {agent.log.read_text()}",
                )
                assert words in wrong_of_check(agent)

            says("ca_file must hold the certificate of the CA")
            wait_until(
                lambda: "ca_file must hold" in str(agent.status()["loki"]["trouble"]),
                "`status` says it, too",
            )
            gateway.use(certificates.expired)
            says("certificate has expired; renew the server's certificate")
            gateway.use(certificates.misnamed)
            says("url must name the server as its certificate does")
            gateway.use(certificates.server, certificates.strange_ca)
            says("cert_file")
            assert gateway.requests == []
            for secret_word in (*SECRETS, line, "POST", cluster):
                assert secret_word.encode() not in wire.traffic, secret_word
            gateway.basic = "ann:another-password"
            gateway.use(certificates.server, certificates.ca)
            says("HTTP 401: who is there?; look at username, password_file, cert_file")
            wait_until(
                lambda: "HTTP 401: who is there?; look at username" in agent.call("status").stdout,
                "so does status",
            )
            status = agent.call("status")
            gateway.refusal = 403, {}, f"you aren't {BASIC} with {PASSWORD}".encode()
            says("HTTP 403: you aren't [hidden] with [hidden]; look at")
            gateway.refusal = 400, {"Content-Type": "text/html"}, PAGE
            says("HTTP 400, but not about the content: 400 No required SSL certificate was sent")
            Path(password).unlink()
            gateway.refusal = 401, {}, b"no"
            message = f"password_file: {password}: can't be read: no such file or directory"
            wait_until(lambda: message in agent.log.read_text(), "a file that is gone is said")
            assert set(gateway.statuses()) == {401, 403, 400}
            assert len(agent.captures()) == 1
            assert agent.process is not None
            command_line = Path(f"/proc/{agent.process.pid}/cmdline").read_bytes()
            secret(tmp_path, "password", "another-password")
            agent.wait_shipped()
            output = "".join(
                (
                    agent.log.read_text(),
                    status.stdout,
                    json.dumps(agent.status()),
                    command_line.decode(),
                )
            )
    with LokiClient(loki.url) as client:
        assert [entry.line for entry in entries_of(client, cluster, "log")] == [
            f"{line} {n}" for n in (1, 2, 3)
        ]
    contents = b"".join(
        path.read_bytes() for path in (tmp_path / "node").rglob("*") if path.is_file()
    )
    for word in (*SECRETS, "another-password"):
        assert word not in output
        assert word.encode() not in contents
    assert not list(agent.state.glob("quarantine/*"))
    for told_word in (PASSWORD, "another-password", BASIC, line):
        assert told_word.encode() not in wire.traffic


def test_a_token_that_changes_while_the_agent_runs(
    certificates: Certificates, loki: LokiServer, cluster: str, tmp_path: Path
) -> None:
    token = secret(tmp_path, "token", TOKEN)
    options = {"ca_file": str(certificates.ca), "token_file": token, "retry_max_secs": 0.2}
    with Gateway(loki.url, certificates.server) as gateway:
        gateway.token = TOKEN
        with NodeAgent(tmp_path / "node", gateway.url, cluster=cluster, loki=options) as agent:
            agent.run("echo", "before")
            wait_until(lambda: 204 in gateway.statuses(), "the first push")
            assert set(gateway.statuses()) <= {200, 204}, "it is asked what time it is, too"
            gateway.token = NEXT_TOKEN
            agent.run("echo", "after")
            wait_until(lambda: 401 in gateway.statuses(), "the old token is refused")
            assert agent.captures()
            Path(token).write_text("")  # empty, like during a rewrite
            wait_until(
                lambda: f"token_file: {token}: holds no secret" in agent.log.read_text(),
                "an empty file is said",
            )
            Path(token).write_text(NEXT_TOKEN)
            agent.wait_shipped()
            assert {
                request.authorization for request in gateway.requests if request.status == 204
            } == {f"Bearer {TOKEN}", f"Bearer {NEXT_TOKEN}"}
    with LokiClient(loki.url) as client:
        assert [entry.line for entry in entries_of(client, cluster, "log")] == ["before", "after"]


# ---- reading


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ca", "ca_file must hold the certificate of the CA"),
        ("host", "url must name the server as its certificate does"),
        ("expired", "certificate has expired"),
        ("certificate", "cert_file"),
        ("token", "HTTP 401: who is there?; look at token_file"),
        (
            "no token",
            "HTTP 401: who is there?; none of username and password_file, token_file, tenant is set",
        ),
        ("plain", "if it speaks TLS, url is https://"),
    ],
)
def test_what_a_reader_is_told(
    fault: str,
    words: str,
    certificates: Certificates,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"ca_file": str(certificates.strange_ca if fault == "ca" else certificates.ca)}
    if fault != "no token":
        options["token_file"] = secret(tmp_path, "token", TOKEN)
    certificate = {"host": certificates.misnamed, "expired": certificates.expired}.get(
        fault, certificates.server
    )
    with FaultyServer(Said(204)) as loki:
        with Gateway(
            loki.url, certificate, certificates.ca if fault == "certificate" else None
        ) as gateway:
            gateway.token = "another" if "token" in fault else TOKEN
            url = gateway.url.replace("https", "http") if fault == "plain" else gateway.url
            assert (
                main(["ls", "--from", "loki", "--site", written_site(tmp_path, url, options)]) == 1
            )
        assert loki.requests == []
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1
    assert TOKEN not in err
