"""Credentials, certificates, redirects and proxies of one client: their recipients, and its
messages."""

import base64
import os
import shutil
from pathlib import Path

import pytest

from logshipper.errors import PushError, QueryError, RejectedPushError, RetryablePushError
from logshipper_ingest.loki.client import Entry, LokiClient
from logshipper_ingest.servers.call_failures import hidden
from logshipper_ingest.servers.server_access import ServerAccess
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.tls_gateway import Gateway, Wire, locked
from tests.tools.stores.access_setup import (
    LABELS,
    NEXT_TOKEN,
    PAGE,
    PASSWORD,
    PROXY_PASSWORD,
    TOKEN,
    Certificates,
    certificates,
    plain_environment,
    secret,
)

__all__ = ["certificates", "plain_environment"]  # fixtures


@pytest.mark.parametrize(
    "tenant", ["a b", "a:b", ".", "..", "ü", "a||b", "x" * 151, "a\nX-Other: b"]
)
def test_a_tenant_that_loki_would_not_take_is_refused_beforehand(tenant: str) -> None:
    (problem,) = ServerAccess(url="http://loki:3100", tenant=tenant).problems("loki")
    assert problem.startswith("[loki] tenant: ")


@pytest.mark.parametrize("status", [401, 403])
def test_a_token_is_read_again_after_a_refusal_only(status: int, tmp_path: Path) -> None:
    token = secret(tmp_path, "token", TOKEN)
    with (
        FaultyServer(Said(204)) as server,
        LokiClient(ServerAccess(url=server.url, token_file=token)) as client,
    ):
        client.push(LABELS, [Entry(1, "x")])
        Path(token).write_text(NEXT_TOKEN)
        client.push(LABELS, [Entry(1, "x")])
        server.answer(Said(status), Said(204))
        with pytest.raises(
            RejectedPushError, match=f"HTTP {status}: \\(no words\\); look at token_file"
        ):
            client.push(LABELS, [Entry(1, "x")])
        client.push(LABELS, [Entry(1, "x")])
        tokens = [
            request.headers["Authorization"].removeprefix("Bearer ") for request in server.requests
        ]
    assert tokens == [TOKEN, TOKEN, TOKEN, NEXT_TOKEN]


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (PAGE, "check cert_file and key_file"),
        (b"Client sent an HTTP request to an HTTPS server.\n", "url must begin with https://"),
        (
            b"<html><title>400 The plain HTTP request was sent to HTTPS port</title>",
            "url must begin with https://",
        ),
        (b"<html><body><h1>Bad Request</h1></body></html>", "Bad Request"),
        (b"tenant ID 'a b' contains unsupported character ' '", "look at tenant"),
    ],
)
def test_a_400_that_is_not_about_the_entries_is_tried_again(words: bytes, fix: str) -> None:
    with FaultyServer(Said(400, words)) as server, LokiClient(server.url) as client:
        with pytest.raises(RetryablePushError) as caught:
            client.push(LABELS, [Entry(1, "x")])
        assert caught.value.status == 0
        assert fix in caught.value.excerpt
        server.answer(
            Said(
                400,
                b"entry for stream '{cluster=\"a\"}' has timestamp too old: 2020-01-01T00:00:00Z",
            )
        )
        with pytest.raises(RejectedPushError) as refusal:
            client.push(LABELS, [Entry(1, "x")])
        assert refusal.value.status == 400


def test_credentials_do_not_follow_a_redirect(certificates: Certificates, tmp_path: Path) -> None:
    token = secret(tmp_path, "token", TOKEN)
    with (
        FaultyServer(Said(204)) as elsewhere,
        Gateway(elsewhere.url, certificates.server) as gateway,
    ):
        for status in (301, 302, 303, 307, 308):
            gateway.refusal = (
                status,
                {"Location": f"{elsewhere.url}/loki/api/v1/push?was={TOKEN}"},
                b"",
            )
            with LokiClient(
                ServerAccess(url=gateway.url, ca_file=str(certificates.ca), token_file=token)
            ) as client:
                with pytest.raises(PushError) as caught:
                    client.push(LABELS, [Entry(1, "x")])
                assert caught.value.status == status
                assert f"a redirect to {elsewhere.url}" in caught.value.excerpt
                assert TOKEN not in str(caught.value)
                with pytest.raises(QueryError, match="a redirect to"):
                    client.labels()
        assert elsewhere.requests == []
        assert {request.authorization for request in gateway.requests} == {f"Bearer {TOKEN}"}


def test_secrets_that_are_echoed_are_hidden_unless_they_are_in_every_word() -> None:
    assert hidden(f"no: {TOKEN}!".encode(), (TOKEN,)) == b"no: [hidden]!"
    assert hidden(b"a word", ("a", "")) == b"a word"


def test_an_address_with_a_password_is_not_shown() -> None:
    for url in (
        f"ftp://ann:{PROXY_PASSWORD}@loki",
        f"ann:{PROXY_PASSWORD}@loki:3100",
        f"https://ann:{PROXY_PASSWORD}@l",
    ):
        problems = ServerAccess(url=url).problems("loki")
        assert len(problems) == 1
        assert PROXY_PASSWORD not in problems[0]


def unusable(certificates: Certificates, folder: Path) -> dict[str, dict[str, str]]:
    """Return options with unusable certificates and keys, by the error's text."""
    broken = folder / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    key = locked(certificates.client.key, folder / "locked.key")
    return {
        f"ca_file: {certificates.client.key}: holds no certificate": {
            "ca_file": str(certificates.client.key)
        },
        f"ca_file: {broken}: holds no certificate": {"ca_file": str(broken)},
        "ca_file: /nowhere: no such file": {"ca_file": "/nowhere"},
        f"key_file: {certificates.stranger.key}: cert_file must be": {
            "cert_file": str(certificates.client.cert),
            "key_file": str(certificates.stranger.key),
        },
        f"key_file: {key}: cert_file must be": {
            "cert_file": str(certificates.client.cert),
            "key_file": str(key),
        },
        "cert_file: /nowhere: no such file": {
            "cert_file": "/nowhere",
            "key_file": str(certificates.client.key),
        },
        f"cert_file: {certificates.client.cert}: cert_file must be": {
            "cert_file": str(certificates.client.cert)
        },
    }


def test_certificates_that_cannot_be_used_name_their_option_and_nobody_is_asked(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Nothing asks for a passphrase, and the client sends nothing without the certificate."""
    with FaultyServer(Said(204)) as server:
        for words, options in unusable(certificates, tmp_path).items():
            access = ServerAccess(url=server.url, **options)  # type: ignore[arg-type]  # all are strings
            with LokiClient(access) as client, pytest.raises(RetryablePushError) as caught:
                client.push(LABELS, [Entry(1, "x")])
            assert words in caught.value.excerpt, options
        assert server.requests == []


def test_a_certificate_with_its_key_inside_is_a_secret(
    certificates: Certificates, tmp_path: Path
) -> None:
    bundle = tmp_path / "both.pem"
    bundle.write_bytes(certificates.client.cert.read_bytes() + certificates.client.key.read_bytes())
    bundle.chmod(0o644)
    access = ServerAccess(url="https://loki", cert_file=str(bundle))
    assert access.problems("loki") == [
        f"[loki] cert_file: {bundle}: everybody may read it; `chmod o= {bundle}`"
    ]
    bundle.chmod(0o600)
    assert access.problems("loki") == []
    with (
        FaultyServer(Said(204)) as loki,
        Gateway(loki.url, certificates.server, certificates.ca) as gateway,
    ):
        with LokiClient(
            ServerAccess(url=gateway.url, ca_file=str(certificates.ca), cert_file=str(bundle))
        ) as client:
            client.push(LABELS, [Entry(1, "x")])
        assert [request.subject for request in gateway.requests] == ["node7"]


def test_a_pipe_in_place_of_a_secret_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    access = ServerAccess(url="http://127.0.0.1:1", token_file=str(tmp_path / "pipe"))
    assert access.problems("loki") == []
    with LokiClient(access) as client, pytest.raises(PushError, match="holds no secret"):
        client.push(LABELS, [Entry(1, "x")])


# ---- proxies and certificates of the environment


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_carries_what_it_cannot_read(
    name: str, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = secret(tmp_path, "token", TOKEN)
    with (
        FaultyServer(Said(204)) as loki,
        Gateway(loki.url, certificates.server) as gateway,
        Wire() as proxy,
    ):
        gateway.token = TOKEN
        access = ServerAccess(url=gateway.url, ca_file=str(certificates.ca), token_file=token)
        monkeypatch.setenv(name, f"http://ann:{PROXY_PASSWORD}@127.0.0.1:{proxy.port}")
        with LokiClient(access) as client:
            client.push(LABELS, [Entry(1, "a private line")])
        assert proxy.request_lines == [f"CONNECT 127.0.0.1:{gateway.port} HTTP/1.0"]
        login = base64.b64encode(f"ann:{PROXY_PASSWORD}".encode()).decode()
        assert f"Proxy-Authorization: Basic {login}" in proxy.heads[0]
        assert TOKEN not in proxy.heads[0]
        for secret_word in (TOKEN, "a private line", PROXY_PASSWORD, login):
            assert secret_word.encode() not in proxy.traffic
        for bypass in (
            "elsewhere.example.org, 127.0.0.1",
            "elsewhere.example.org,127.0.0.0/8",
            "*",
        ):
            monkeypatch.setenv("no_proxy", bypass)
            with LokiClient(access) as client:
                client.push(LABELS, [Entry(1, "x")])
        assert len(proxy.request_lines) == 1
        assert gateway.statuses() == [204] * 4


def test_a_proxy_that_refuses_is_named_without_its_password(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words(proxy: str) -> str:
        monkeypatch.setenv("https_proxy", proxy)
        access = ServerAccess(url="https://127.0.0.1:1", ca_file=str(certificates.ca))
        with LokiClient(access) as client, pytest.raises(RetryablePushError) as caught:
            client.push(LABELS, [Entry(1, "x")])
        assert PROXY_PASSWORD not in str(caught.value)
        return caught.value.excerpt

    with Wire() as proxy:
        proxy.answer = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
        assert "https_proxy needs a user and a password" in words(
            f"http://ann:{PROXY_PASSWORD}@127.0.0.1:{proxy.port}"
        )
    assert "the environment's proxy: Connection refused" in words(
        f"http://ann:{PROXY_PASSWORD}@127.0.0.1:1"
    )
    for odd in (f"http://ann:x/{PROXY_PASSWORD}@127.0.0.1:1", f"http:/ann:{PROXY_PASSWORD}@"):
        assert (
            "https_proxy, http_proxy or all_proxy in the environment is no proxy's address"
            in words(odd)
        )
    assert "https_proxy and all_proxy must be http://" in words(
        f"socks5://ann:{PROXY_PASSWORD}@127.0.0.1:1"
    )


def test_the_environments_certificates_count_only_without_a_ca_file(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyServer(Said(204)) as loki, Gateway(loki.url, certificates.server) as gateway:

        def pushes(ca_file: str) -> bool:
            with LokiClient(ServerAccess(url=gateway.url, ca_file=ca_file)) as client:
                try:
                    return client.push(LABELS, [Entry(1, "x")]).status == 204
                except RetryablePushError:
                    return False

        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
            monkeypatch.setenv(name, str(certificates.ca))
            assert (pushes(""), pushes(str(certificates.strange_ca))) == (True, False)
            monkeypatch.setenv(name, str(certificates.strange_ca))
            assert (pushes(""), pushes(str(certificates.ca))) == (False, True)
            monkeypatch.delenv(name)
        assert len(loki.requests) == 4


def test_a_ca_that_is_exchanged_is_used_at_the_next_connection(
    certificates: Certificates, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    shutil.copy(certificates.strange_ca, ca)
    with FaultyServer(Said(204)) as loki, Gateway(loki.url, certificates.server) as gateway:
        client = LokiClient(ServerAccess(url=gateway.url, ca_file=str(ca)))
        with pytest.raises(RetryablePushError):
            client.push(LABELS, [Entry(1, "x")])
        shutil.copy(certificates.ca, ca)
        assert client.push(LABELS, [Entry(1, "x")]).status == 204
        client.close()


def test_netrc_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login ann password {PASSWORD}\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    with FaultyServer(Said(204)) as server, LokiClient(server.url) as client:
        client.push(LABELS, [Entry(1, "x")])
        assert "Authorization" not in server.requests[0].headers
