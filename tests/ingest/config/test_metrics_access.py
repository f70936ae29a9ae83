"""/metrics over TLS and with a password: access, renewed certificates, clients without a handshake;
with a real Prometheus."""

import base64
import http.client
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from logshipper.errors import ConfigError
from logshipper_ingest.config import metrics_access
from logshipper_ingest.config.metrics_access import MetricsAccess
from logshipper_ingest.metrics import metrics_server
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.tls_gateway import Pair, locked
from tests.tools.stores.access_setup import (
    BASIC,
    PASSWORD,
    Certificates,
    certificates,
    plain_environment,
    secret,
)
from tests.tools.waiting import scaled

__all__ = ["certificates", "plain_environment"]  # fixtures


class Served:
    """A server and its messages, with requests to it."""

    def __init__(self, access: MetricsAccess) -> None:
        self.messages: list[str] = []
        self.agent = AgentMetrics("c1", "n1")
        self.server = MetricsServer("127.0.0.1:0", self.agent, None, self.messages.append, access)

    def get(
        self,
        ca: Path | None,
        client: Pair | None = None,
        path: str = "/metrics",
        *,
        authorization: str = "",
    ) -> tuple[int, str]:
        """Return status and body. ca: None for plain HTTP."""
        connection: http.client.HTTPConnection
        if ca is None:
            connection = http.client.HTTPConnection(
                "127.0.0.1", self.server.port, timeout=scaled(20)
            )
        else:
            context = ssl.create_default_context(cafile=str(ca))
            if client is not None:
                context.load_cert_chain(client.cert, client.key)
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.server.port, timeout=scaled(20), context=context
            )
        try:
            connection.request(
                "GET", path, headers={"Authorization": authorization} if authorization else {}
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def refusals(self, reason: str) -> float:
        count = self.agent.registry.get_sample_value(
            "logshipper_agent_scrapes_refused_total", {"reason": reason}
        )
        assert count is not None
        return count

    def certificate(self) -> bytes:
        """Return the server's present certificate."""
        return ssl.get_server_certificate(
            ("127.0.0.1", self.server.port), timeout=scaled(20)
        ).encode()


@contextmanager
def serving(**options: str) -> Iterator[Served]:
    served = Served(MetricsAccess(**options))
    try:
        yield served
    finally:
        served.server.close()


def tls(certificates: Certificates, **more: str) -> dict[str, str]:
    return {
        "cert_file": str(certificates.server.cert),
        "key_file": str(certificates.server.key),
        **more,
    }


def test_a_password_is_wanted_for_metrics_and_not_for_health(tmp_path: Path) -> None:
    with serving(username="ann", password_file=secret(tmp_path, "password", PASSWORD)) as served:
        assert served.get(None, path="/-/healthy")[0] == 200
        wrong = base64.b64encode(b"ann:wrong").decode()
        for header in (
            "",
            "Basic",
            f"Basic {wrong}",
            f"Bearer {BASIC}",
            BASIC,
            "Basic \xfc\xff",
            f"Basic {BASIC}x",
        ):
            status, body = served.get(None, authorization=header)
            assert (status, "logshipper_agent" in body) == (401, False), header
        assert served.refusals("unauthorized") == 7
        for header in (f"Basic {BASIC}", f"basic  {BASIC} "):
            assert served.get(None, authorization=header)[0] == 200, header
        connection = http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=scaled(20))
        connection.request("GET", "/metrics")
        assert (
            connection.getresponse().getheader("WWW-Authenticate")
            == 'Basic realm="logshipper-agent"'
        )
        connection.close()
        assert served.messages == []


def test_tls_for_those_with_a_certificate_only(certificates: Certificates) -> None:
    with serving(**tls(certificates, client_ca_file=str(certificates.ca))) as served:
        assert served.get(certificates.ca, certificates.client)[0] == 200
        assert served.get(certificates.ca, certificates.client, "/-/healthy")[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            served.get(certificates.strange_ca, certificates.client)
        for client in (None, certificates.stranger):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                served.get(certificates.ca, client)
        with pytest.raises((OSError, http.client.HTTPException)):
            served.get(None)
        wait_until(lambda: served.refusals("tls") == 4, "all four are counted")
        assert served.messages == []


@pytest.mark.parametrize("left_out", ["key", "cert"])
def test_a_renewed_certificate_is_shown_and_one_that_is_no_good_is_not(
    left_out: str, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_access, "LOOK_SECS", 0.0)
    place = Pair(tmp_path / "own.pem", tmp_path / "own.key")

    def put(part: str, source: Pair) -> None:
        target = getattr(place, part)
        scratch = target.with_suffix(".new")
        shutil.copy(getattr(source, part), scratch)
        os.replace(scratch, target)

    for part in ("cert", "key"):
        put(part, certificates.server)
    with serving(cert_file=str(place.cert), key_file=str(place.key)) as served:
        first = served.certificate()
        assert first.strip() == certificates.server.cert.read_bytes().strip()
        put("cert" if left_out == "key" else "key", certificates.misnamed)
        assert served.certificate() == first
        assert served.certificate() == first
        (message,) = served.messages  # the server logs it once
        assert f"[metrics] key_file: {place.key}: cert_file must be" in message
        assert "goes on with what it had" in message
        put(left_out, certificates.misnamed)
        assert served.certificate().strip() == certificates.misnamed.cert.read_bytes().strip()
        place.key.chmod(0o604)
        put("cert", certificates.server)
        put("key", certificates.server)
        place.key.chmod(0o604)
        assert served.certificate().strip() == certificates.misnamed.cert.read_bytes().strip()
        assert "everybody may read it" in served.messages[-1]


def test_a_changed_password_counts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_access, "LOOK_SECS", 0.0)
    with serving(
        username="ann", password_file=secret(tmp_path, "password", "the first one")
    ) as served:
        assert served.get(None, authorization=f"Basic {BASIC}")[0] == 401
        secret(tmp_path, "password", PASSWORD)
        assert served.get(None, authorization=f"Basic {BASIC}")[0] == 200
        (tmp_path / "password").unlink()
        assert served.get(None, authorization=f"Basic {BASIC}")[0] == 200
        assert served.get(None)[0] == 401
        assert [words for words in served.messages if "password_file" in words]
        assert not [words for words in served.messages if PASSWORD in words or "first one" in words]


def test_who_does_not_shake_hands_holds_nobody_up(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 2)
    with serving(**tls(certificates)) as served:
        monkeypatch.setattr(metrics_server, "HEAD_SECS", 60.0)
        mute = [
            socket.create_connection(("127.0.0.1", served.server.port), timeout=scaled(20))
            for _ in range(4)
        ]
        assert served.get(certificates.ca)[0] == 200
        assert served.refusals("busy") >= 2
        monkeypatch.setattr(metrics_server, "HEAD_SECS", 0.2)
        for client in mute:
            try:
                assert client.recv(1) == b"", "ended without a word"
            except ConnectionResetError:
                pass
            client.close()
        assert served.refusals("slow") >= 1
        assert served.refusals("tls") == 0
        assert served.get(certificates.ca)[0] == 200


def test_who_does_not_take_an_answer_over_tls_is_ended(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(**tls(certificates)) as served:
        assert served.server._server is not None
        large = b"x" * (64 << 20)  # more than the buffers of any socket
        monkeypatch.setattr(
            served.server._server, "render", lambda accept, gzip: (large, "text/plain")
        )
        context = ssl.create_default_context(cafile=str(certificates.ca))
        with (
            socket.create_connection(
                ("127.0.0.1", served.server.port), timeout=scaled(20)
            ) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as slow,
        ):
            slow.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert slow.recv(1) == b"H"
            monkeypatch.setattr(metrics_server, "DEADLINE_SECS", 0.2)
            wait_until(lambda: served.refusals("slow") == 1, "it is ended")
            byte_count = 0
            with suppress(OSError):
                while part := slow.recv(1 << 20):
                    byte_count += len(part)
            assert byte_count < len(large)
        assert served.messages == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key_file": "KEY"}, "key_file: needs a cert_file"),
        ({"client_ca_file": "CA"}, "client_ca_file: needs a cert_file"),
        ({"username": "ann"}, "username and password_file belong together"),
        ({"username": "a:b", "password_file": "KEY"}, "username: 'a:b' can't be sent"),
        ({"cert_file": "gone.pem"}, "cert_file: 'gone.pem' must be an absolute path"),
        (
            {"cert_file": "CA", "key_file": "KEY"},
            "cert_file must be a certificate in PEM, and this its key",
        ),
        (
            {"cert_file": "CA", "key_file": "LOCKED"},
            "cert_file must be a certificate in PEM, and this its key",
        ),
        (
            {"cert_file": "CERT", "key_file": "KEY", "client_ca_file": "KEY"},
            "holds no certificate in PEM",
        ),
        ({"cert_file": "CERT", "key_file": "OPEN"}, "everybody may read it"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(
    options: dict[str, str], words: str, certificates: Certificates, tmp_path: Path
) -> None:
    open_key = tmp_path / "open.key"
    shutil.copy(certificates.server.key, open_key)
    open_key.chmod(0o644)
    places = {
        "CA": certificates.ca,
        "CERT": certificates.server.cert,
        "KEY": certificates.server.key,
        "OPEN": open_key,
        "LOCKED": locked(certificates.server.key, tmp_path / "locked.key"),
    }
    (tmp_path / "locked.key").chmod(0o600)
    with (
        pytest.raises(ConfigError) as error,
        serving(**{name: str(places.get(at, at)) for name, at in options.items()}),
    ):
        pass
    assert any(line.startswith("[metrics] ") and words in line for line in error.value.problems), (
        error.value.problems
    )
