"""A site's gateway before Loki: it ends TLS and demands credentials.

The module also makes certificates for it, and has a wire or proxy that keeps each byte from an
agent.
"""

import base64
import contextlib
import http.server
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.fakes.server_thread import ServerThread, forwarded

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_PASSED_ON = ("Content-Type", "X-Scope-OrgID", "X-Loki-Response-Encoding-Flags")
_RELAYED_BYTES = 1 << 16


class Pair(NamedTuple):
    """Paths of a certificate and its key, PEM files."""

    cert: Path
    key: Path


class Authority:
    """A CA in a folder; issues certificates with the `openssl` command. Without it the test is
    skipped."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("there is no `openssl` command to make certificates with")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca = folder / "ca.pem"
        self._key = folder / "ca.key"
        _openssl(
            "req", "-x509", *_KEY, "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={folder.name}", "-days", "2",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def issue(self, name: str, alternative: str = "", *, days: int = 2) -> Pair:
        """Return a new certificate and its key. alternative: its subject, such as "IP:127.0.0.1";
        days: of its validity, -1 for an expired one."""
        pair = Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, more = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        _openssl("req", *_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        more.write_text(
            f"subjectAltName={alternative}\n" if alternative else "basicConstraints=CA:FALSE\n"
        )
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", days,
                 "-extfile", more, "-out", pair.cert)  # fmt: skip
        pair.key.chmod(0o600)
        return pair


def locked(key: Path, to: Path) -> Path:
    """Write a copy of a key that is protected by a passphrase; return its path."""
    _openssl("pkey", "-in", key, "-aes256", "-passout", "pass:passphrase", "-out", to)
    return to


def _openssl(*words: object) -> None:
    result = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    assert result.returncode == 0, result.stderr.decode()


class Seen(NamedTuple):
    """A request. subject: common name of the client's certificate, "" without one; status: of the
    answer."""

    method: str
    path: str
    authorization: str
    tenant: str
    subject: str
    status: int


class Gateway(ServerThread):
    """Ends TLS before a Loki. certificate: its own; clients: the CA for certificates of clients,
    None to demand none.

    These may change while it runs:

    - basic (user and password) or token: the credentials that it demands, if any
    - tenant: the only tenant that it admits
    - refusal: status, headers and body for a rejected request

    requests: all requests that came through TLS; failed: OpenSSL's messages for failed handshakes.
    """

    def __init__(self, target: str, certificate: Pair, clients: Path | None = None) -> None:
        self.basic = self.token = self.tenant = ""
        self.refusal: tuple[int, Mapping[str, str], bytes] = (401, {}, b"who is there?")
        self.requests: list[Seen] = []
        self.failed: list[str] = []
        self._target = urllib.parse.urlsplit(target)
        self.use(certificate, clients)
        server = _TlsServer(("127.0.0.1", 0), _GatewayRequest)
        server.gateway = self
        super().__init__(server)

    def use(self, certificate: Pair, clients: Path | None = None) -> None:
        """Use these certificates for connections from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        self.context = context

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def lets_in(self, authorization: str, tenant: str) -> bool:
        credentials = ""
        if self.basic:
            credentials = "Basic " + base64.b64encode(self.basic.encode()).decode()
        elif self.token:
            credentials = f"Bearer {self.token}"
        return authorization == credentials and tenant == self.tenant

    def statuses(self) -> list[int]:
        return [request.status for request in self.requests]

    def pass_on(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        passed = {name: headers[name] for name in _PASSED_ON if name in headers}
        status, content_type, text = forwarded(self._target, method, path, passed, body)
        return status, {"Content-Type": content_type}, text


class _TlsServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    gateway: Gateway

    def finish_request(
        self, request: Any, client_address: Any
    ) -> None:  # Any: as socketserver has them
        """Shake hands in the connection's own thread, so that a slow client does not block
        others."""
        request.settimeout(TIMEOUT_SECS)
        try:
            with self.gateway.context.wrap_socket(request, server_side=True) as shaken:
                super().finish_request(shaken, client_address)
        except (OSError, ValueError) as error:
            self.gateway.failed.append(str(error))


class _GatewayRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _TlsServer
    connection: ssl.SSLSocket

    def do_POST(self) -> None:
        gateway = self.server.gateway
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        authorization, tenant = (
            self.headers.get("Authorization", ""),
            self.headers.get("X-Scope-OrgID", ""),
        )
        if gateway.lets_in(authorization, tenant):
            status, headers, words = gateway.pass_on(
                self.command, self.path, dict(self.headers), body
            )
        else:
            status, headers, words = gateway.refusal
        gateway.requests.append(
            Seen(self.command, self.path, authorization, tenant, self._subject(), status)
        )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words)

    do_GET = do_POST  # noqa: N815  http.server's name

    def _subject(self) -> str:
        # Any: as ssl has it
        certificate: dict[str, Any] = dict(self.connection.getpeercert() or {})
        return "".join(
            value for ((name, value),) in certificate.get("subject", ()) if name == "commonName"
        )

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Wire(ServerThread):
    """A wire between an agent and a server; keeps every byte that the agent sends.

    target: URL of the server; "" for a proxy, whose clients name it by CONNECT. request_lines: of
    these CONNECTs; traffic: all bytes after them.
    """

    def __init__(self, target: str = "") -> None:
        self.traffic = bytearray()
        self.request_lines: list[str] = []
        self.heads: list[str] = []
        self.answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self._target = urllib.parse.urlsplit(target)
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _WireConnection)
        server.daemon_threads = True
        server.wire = self  # type: ignore[attr-defined]  # for the connections
        super().__init__(server)

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self._target.scheme or 'http'}://127.0.0.1:{self.port}"

    def relay(self, near: socket.socket) -> None:
        address = (
            (self._target.hostname or "", self._target.port or 0)
            if self._target.netloc
            else self._connect_target(near)
        )
        if not address:
            return
        with socket.create_connection(address, TIMEOUT_SECS) as far:
            back = threading.Thread(target=_copy, args=(far, near, bytearray()), daemon=True)
            back.start()
            _copy(near, far, self.traffic)
            back.join(TIMEOUT_SECS)

    def _connect_target(self, near: socket.socket) -> tuple[str, int] | None:
        """Return the address in a CONNECT. Keep any other request without an answer, and return
        None."""
        head = b""
        while b"\r\n\r\n" not in head:
            part = near.recv(_RELAYED_BYTES)
            if not part:
                break
            head += part
        self.heads.append(head.decode("latin-1"))
        line = self.heads[-1].partition("\r\n")[0]
        self.request_lines.append(line)
        if not line.startswith("CONNECT "):
            self.traffic += head
            return None
        near.sendall(self.answer)
        if b" 200 " not in self.answer:
            return None
        host, _, port = line.split()[1].rpartition(":")
        return host, int(port)


class _WireConnection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(TIMEOUT_SECS)
        with contextlib.suppress(OSError):  # either side may hang up first
            self.server.wire.relay(self.request)  # type: ignore[attr-defined]  # set above


def _copy(source: socket.socket, sink: socket.socket, copy: bytearray) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(_RELAYED_BYTES):
            copy += part
            sink.sendall(part)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
