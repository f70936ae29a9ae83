"""The HTTP server of `/metrics` and `/-/healthy`.

Anybody who reaches the port may abuse it, so the server is small: MAX_CONNECTIONS at a time, one
thread and one request per connection, HEAD_SECS for the request and DEADLINE_SECS in all. When it
is full, it ends a connection to make room: the oldest without a request, or else with a slow
reader, from the address with the most connections.
"""

import errno
import socket
import ssl
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client.exposition import gzip_accepted

from logshipper import __version__
from logshipper.errors import ConfigError, os_words
from logshipper_ingest.config.agent_config import listen_address
from logshipper_ingest.config.metrics_access import MetricsAccess, MetricsGuard
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics

MAX_CONNECTIONS = 16
HEAD_SECS = 2.0  # from the connection to the end of the request's head
DEADLINE_SECS = 15.0
SHARED_SECS = 1.0  # how long clients share one answer
# Ended connections count until their threads notice.
_MAX_THREADS = 4 * MAX_CONNECTIONS
RETRY_SECS = 2.0  # for an occupied port
_POLL_SECS = 1.0  # between two checks for late connections
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_OPENMETRICS = "application/openmetrics-text"
_TEXT = "text/plain; charset=utf-8"


class MetricsServer:
    """A server that answers from its own threads until `close`.

    If another process occupies the port, which any user can do, the server retries. Raises
    ConfigError if it can't listen for another reason, or can't use its files.
    """

    def __init__(
        self,
        listen: str,  # HOST:PORT; no HOST for all addresses, PORT 0 for a free one; "" for no server
        agent: AgentMetrics,
        jobs: JobMetrics | None,
        log: Callable[[str], None] = lambda _: None,
        access: MetricsAccess | None = None,
    ) -> None:
        self.port = 0  # 0 while it does not listen
        self.trouble = ""  # why it does not listen
        self._closed = threading.Event()
        self._port_waiter: threading.Thread | None = None
        self._server: _Server | None = None
        if not listen:
            return
        address = listen_address(listen)
        if address is None:
            raise ConfigError("[metrics] listen", [f"{listen!r} doesn't look like 127.0.0.1:9310"])
        guard = MetricsGuard(access or MetricsAccess(), log)

        def begin() -> None:
            self._server = server = _Server(address, agent, jobs, guard, log)
            self.port, self.trouble = server.server_port, ""
            self._thread = threading.Thread(
                target=server.serve_forever, args=(_POLL_SECS,), name="metrics server", daemon=True
            )
            self._thread.start()

        try:
            begin()
        except OSError as error:
            reason = f"can't listen on {listen}: {os_words(error)}"
            if error.errno != errno.EADDRINUSE:
                words = f"{reason}; choose another address"
                raise ConfigError("[metrics] listen", [words]) from None
            self.trouble = f"/metrics isn't served: [metrics] listen: {reason}"
            log(f"{self.trouble}; the agent tries again")
            self._port_waiter = threading.Thread(
                target=self._wait_for_port, args=(begin, log), daemon=True
            )
            self._port_waiter.start()

    def _wait_for_port(self, begin: Callable[[], None], log: Callable[[str], None]) -> None:
        while not self._closed.wait(RETRY_SECS):
            with suppress(OSError):
                begin()
                log(f"/metrics on port {self.port}")
                return

    def close(self) -> None:
        """Stop listening and end all connections; a second call does nothing."""
        self._closed.set()
        if self._port_waiter is not None:
            self._port_waiter.join()
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes the server's thread
            server.shutdown()
            self._thread.join()
            server.end_connections()
            server.server_close()


@dataclass
class _Connection:
    """A client's connection, until its thread ends."""

    socket: socket.socket
    peer: str
    since: float  # by the monotonic clock
    has_request: bool = False  # the request's head has arrived
    ended: bool = False  # its thread has not noticed yet

    def may_go(self, now: float) -> bool:
        return not self.has_request or now - self.since >= HEAD_SECS

    def is_late(self, now: float) -> bool:
        return now - self.since >= (DEADLINE_SECS if self.has_request else HEAD_SECS)

    def end(self) -> None:
        self.ended = True
        with suppress(OSError):  # the client closed it first
            # SSLSocket's own shutdown would make the writing thread continue in plain text.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        agent: AgentMetrics,
        jobs: JobMetrics | None,
        guard: MetricsGuard,
        log: Callable[[str], None],
    ) -> None:
        self.agent = agent
        self.jobs = jobs
        self.guard = guard
        self._log = log
        self._lock = threading.Lock()
        self._open: dict[int, _Connection] = {}  # by the socket's id, the oldest first
        self._render_lock = threading.Lock()
        # expiry, body, content type; by OpenMetrics or not, compressed or not
        self._answers: dict[tuple[bool, bool], tuple[float, bytes, str]] = {}
        host, port = address
        dual = not host and socket.has_dualstack_ipv6()
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.address_family = socket.AF_INET6 if dual else addresses[0][0]
        super().__init__((host or ("::" if dual else "0.0.0.0"), port), _Request)  # noqa: S104  asked for by ":PORT"

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            only_v6 = self.server_address[0] != "::"
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
        TCPServer.server_bind(self)  # HTTPServer's would ask the DNS for the machine's name
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of IP: str, int

    # ---- connections

    def get_request(self) -> tuple[socket.socket, Any]:  # Any: as socketserver has it
        """Accept a connection. Its own thread does the TLS handshake, so that a silent client
        delays nobody else."""
        request, address = super().get_request()
        context = self.guard.context
        if context is None:
            return request, address
        try:
            secure = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        except OSError:
            request.close()  # the client has gone
            raise
        return secure, address

    # Any: as socketserver has them, here and below
    def process_request(self, request: Any, client_address: Any) -> None:
        connection = _Connection(request, client_address[0], time.monotonic())
        with self._lock:
            has_room = self._make_room(connection.since)
            if has_room:
                self._open[id(request)] = connection
        if has_room:
            super().process_request(request, client_address)
        else:
            self.agent.scrapes_refused.labels("busy").inc()
            self._refuse(request)

    def _make_room(self, now: float) -> bool:
        connections = [connection for connection in self._open.values() if not connection.ended]
        if len(connections) < MAX_CONNECTIONS or len(self._open) >= _MAX_THREADS:
            return len(self._open) < _MAX_THREADS
        peer_counts = Counter(connection.peer for connection in connections)
        idle = [connection for connection in connections if not connection.has_request]
        candidates = idle or [each for each in connections if each.may_go(now)]
        if candidates:
            # `max` returns the first, so the oldest, of equals.
            self._end(max(candidates, key=lambda connection: peer_counts[connection.peer]), "busy")
        return bool(candidates)

    def _end(self, connection: _Connection, reason: str) -> None:
        if not connection.ended:
            self.agent.scrapes_refused.labels(reason).inc()
            connection.end()

    def note_request(self, request: socket.socket) -> None:
        with self._lock:
            if id(request) in self._open:
                self._open[id(request)].has_request = True

    def note_no_tls(self, request: socket.socket) -> None:
        with self._lock:
            if id(request) in self._open and not self._open[id(request)].ended:
                self.agent.scrapes_refused.labels("tls").inc()

    def _refuse(self, request: socket.socket) -> None:
        with suppress(OSError):  # the connection is closed either way
            request.setblocking(False)
            request.send(_BUSY)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        now = time.monotonic()
        with self._lock:
            for connection in self._open.values():
                if connection.is_late(now):
                    self._end(connection, "slow")

    def end_connections(self) -> None:
        """Close all connections; their threads notice and end."""
        with self._lock:
            for connection in self._open.values():
                connection.end()

    # ---- answers

    def render(self, accept: str, gzip: bool) -> tuple[bytes, str]:
        """Return the body of /metrics and its content type; clients share it for SHARED_SECS."""
        form = (_OPENMETRICS in accept, gzip)  # a client can't fill the cache by odd headers
        with self._render_lock:
            until, body, content_type = self._answers.get(form, (0.0, b"", ""))
            if time.monotonic() >= until:
                media_type = f"{_OPENMETRICS}; version=1.0.0" if form[0] else ""
                body, content_type = exposition(self.agent, self.jobs, media_type)
                if gzip:
                    # Series are so repetitive that higher levels cost time for nothing.
                    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
                    body = packer.compress(body) + packer.flush()
                self._answers[form] = time.monotonic() + SHARED_SECS, body, content_type
            return body, content_type

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a fault of the server; OSError only means that a connection ended."""
        error = sys.exception()
        if not isinstance(error, OSError):
            self._log(f"metrics: a request failed: {error!r}")


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = DEADLINE_SECS  # of one read or write; the server limits the whole request
    server_version = f"logshipper-agent/{__version__}"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        if isinstance(self.request, ssl.SSLSocket):
            try:
                self.request.do_handshake()
            except ssl.SSLError:
                self.server.note_no_tls(self.request)
                raise

    def parse_request(self) -> bool:
        is_valid = super().parse_request()
        self.server.note_request(self.connection)
        return is_valid

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._give_metrics()
        elif path == "/-/healthy":
            self._give(HTTPStatus.OK, b"healthy\n")
        else:
            self._give(HTTPStatus.NOT_FOUND, b"not here: /metrics, /-/healthy\n")

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def _give_metrics(self) -> None:
        if not self.server.guard.admits(self.headers.get("Authorization") or ""):
            self.server.agent.scrapes_refused.labels("unauthorized").inc()
            self._give(HTTPStatus.UNAUTHORIZED, b"/metrics needs a username and a password\n")
            return
        gzip = gzip_accepted(self.headers.get("Accept-Encoding") or "")
        try:
            body, content_type = self.server.render(self.headers.get("Accept") or "", gzip)
        except Exception:
            self._give(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the agent's log\n")
            raise  # handle_error logs it
        self._give(HTTPStatus.OK, body, content_type, "gzip" if gzip else "")

    def _give(
        self, status: HTTPStatus, body: bytes, content_type: str = _TEXT, encoding: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Basic realm="logshipper-agent"')
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log no line for each scrape."""
