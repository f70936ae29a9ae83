"""A real nginx with deploy/gateway's configuration, and the addresses and certificates of a test."""

import http.client
import io
import shutil
import socket
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.servers.nginx import NginxServer
from tests.servers.running import free_port
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.fakes.tls_gateway import Authority, Pair
from tests.tools.sources import ROOT

DEPLOYED = ROOT / "deploy" / "gateway"
# names in deploy/gateway
GRAFANA, CONTROLLER, PURGER = "grafana.example.org", "slurmctld.example.org", "purge.example.org"
SECRET = "s3cretOfGrafanaAlone"  # noqa: S105  of these tests
QUESTION = "/loki/api/v1/query"


class SiteCertificates(NamedTuple):
    """A site's two CAs for the gateway, and certificates from them. neighbour: another client of
    Grafana's CA."""

    grafana_ca: Path
    agents_ca: Path
    server: Pair
    grafana: Pair
    neighbour: Pair
    node: Pair
    controller: Pair
    purger: Pair


def site_certificates(folder: Path) -> SiteCertificates:
    grafana, agents = Authority(folder / "grafana"), Authority(folder / "agents")
    return SiteCertificates(
        grafana.ca,
        agents.ca,
        grafana.issue("server", "IP:127.0.0.1"),
        grafana.issue(GRAFANA),
        grafana.issue("neighbour"),
        agents.issue("node7"),
        agents.issue(CONTROLLER),
        agents.issue(PURGER),
    )


class Answer(NamedTuple):
    """status: 0 if the connection closed without an answer."""

    status: int
    body: bytes


class Nginx(NginxServer):
    """The gateway. by: Grafana's credential, "certificate" or "secret". Raises ServerMissing."""

    def __init__(
        self, loki_url: str, certificates: SiteCertificates, *, by: str = "certificate"
    ) -> None:
        super().__init__(None, "logshipper.conf", level="notice")
        self.agents_port = free_port(besides=self.port)
        self.certificates = certificates
        self._configure({
            "/etc/nginx/": f"{self.folder}/",
            "server 127.0.0.1:3100;": f"server {urllib.parse.urlsplit(loki_url).netloc};",
            "listen 3443 ssl;": f"listen 127.0.0.1:{self.port} ssl;",
            "listen 3444 ssl;": f"listen 127.0.0.1:{self.agents_port} ssl;",
        }, by)  # fmt: skip

    def _configure(self, replaced: Mapping[str, str], by: str) -> None:
        folder = self.folder
        shutil.copytree(DEPLOYED, folder, dirs_exist_ok=True)
        whole = ""
        for path in folder.rglob("*.conf"):
            text = path.read_text()
            whole += text
            for old, new in replaced.items():
                text = text.replace(old, new)
            path.write_text(text)
        assert all(old in whole for old in replaced)
        if by == "secret":
            site = folder / "logshipper.conf"
            text = (
                site.read_text()
                .replace("grafana-by-certificate.conf", "none")
                .replace("\n#include", "\ninclude")
            )
            site.write_text("\n".join(line for line in text.splitlines() if "/none" not in line))
        pem_folder = folder / "logshipper"
        shutil.copy(self.certificates.server.cert, pem_folder / "server.pem")
        shutil.copy(self.certificates.server.key, pem_folder / "server.key")
        shutil.copy(self.certificates.grafana_ca, pem_folder / "grafana-ca.pem")
        shutil.copy(self.certificates.agents_ca, pem_folder / "agents-ca.pem")
        (pem_folder / "grafana.secret").write_text(f'"~^{SECRET}\\z" 1;\n')

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def agents_url(self) -> str:
        return f"https://127.0.0.1:{self.agents_port}"

    # ---- clients' requests

    def ask(
        self,
        target: str,
        headers: Sequence[tuple[str, str]] = (),
        *,
        method: str = "GET",
        body: bytes = b"",
        certificate: Pair | None = None,
        port: int = 0,
    ) -> Answer:
        """Send one request with its line and headers unchanged, and return the answer."""
        lines = [f"{method} {target} HTTP/1.1", "Host: loki", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body and not any(
            name.lower() in ("content-length", "transfer-encoding") for name, _ in headers
        ):
            lines.append(f"Content-Length: {len(body)}")
        return self.send(
            "\r\n".join([*lines, "", ""]).encode() + body, certificate, port or self.port
        )

    def send(self, request: bytes, certificate: Pair | None, port: int) -> Answer:
        """Send these bytes and return the answer. Further answers become part of its body."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.certificates.grafana_ca)
        if certificate is not None:
            context.load_cert_chain(certificate.cert, certificate.key)
        with (
            socket.create_connection(("127.0.0.1", port), TIMEOUT_SECS) as connection,
            context.wrap_socket(connection) as wrapped,
        ):
            wrapped.sendall(request)
            received = bytearray()
            while part := wrapped.recv(1 << 16):
                received += part
        return answer_of(bytes(received))

    def as_grafana(
        self,
        user: str | None,
        target: str,
        *more: tuple[str, str],
        method: str = "GET",
        body: bytes = b"",
    ) -> Answer:
        """Return the gateway's answer to Grafana for a user. None: Grafana names no user."""
        user_headers = [] if user is None else [("X-Grafana-User", user)]
        return self.ask(
            target,
            [*user_headers, *more],
            method=method,
            body=body,
            certificate=self.certificates.grafana,
        )


def answer_of(received: bytes) -> Answer:
    head, _, rest = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/"):
        return Answer(0, received)  # empty, or HTTP 0.9
    parsed = http.client.parse_headers(io.BytesIO(head.partition(b"\r\n")[2] + b"\r\n\r\n"))
    chunked = parsed.get("Transfer-Encoding", "") == "chunked"
    return Answer(int(head.split()[1]), _unchunked(rest) if chunked else rest)


def _unchunked(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return b"".join(parts) + rest.removeprefix(b"\r\n")
        parts.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(parts)


def question(path: str, **params: str) -> str:
    """Return a request target with parameters."""
    return f"/loki/api/v1/{path}?{urllib.parse.urlencode(params)}"
