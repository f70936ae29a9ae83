"""The node agent's `/metrics`: its own health, and its jobs' series where they are shown (docs/metrics.md).

The server is small on purpose, since anybody who reaches the port may try it: MAX_CONNECTIONS at a time, each with its
own thread and DEADLINE_SECS from the first byte to the last, one request per connection.
"""

import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ingest.agent_config import listen_address
from ingest.job_metrics import JobMetrics
from logshipper import __version__
from logshipper.errors import ConfigError

MAX_CONNECTIONS = 16
DEADLINE_SECS = 15.0
_POLL_SECS = 0.25
_PUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_END = b"# EOF\n"  # of OpenMetrics


class AgentMetrics:
    """The agent's own health: prometheus_client's counters and gauges, in a registry of their own."""

    def __init__(self, cluster: str = "", host: str = "") -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"logshipper_agent_{name}", words, labels, registry=registry)

        def gauge(name: str, words: str, *labels: str) -> Gauge:
            return Gauge(f"logshipper_agent_{name}", words, labels, registry=registry)

        ProcessCollector(registry=registry)
        build = gauge("build_info", "The agent, and where it runs.", "version", "python", "cluster", "host")
        build.labels(__version__, ".".join(map(str, sys.version_info[:3])), cluster, host).set(1)
        self.start_time_seconds = gauge("start_time_seconds", "When the agent started, since 1970.")
        self.start_time_seconds.set_to_current_time()
        self.pushes = counter("pushes", "Pushes to Loki.", "result")
        self.push_seconds = Histogram(
            "logshipper_agent_push_seconds", "How long a push took.", buckets=_PUSH_BUCKETS, registry=registry
        )
        self.entries = counter("entries", "Entries that Loki acknowledged.", "kind")
        self.pushed_bytes = counter("pushed_bytes", "Bytes of pushes that Loki acknowledged, compressed.")
        self.retries = counter("retries", "Pushes that were tried again.", "reason")
        self.refused_entries = counter("refused_entries", "Entries that Loki refused for good.", "reason")
        self.lag_seconds = gauge("lag_seconds", "Age of the oldest spooled line that Loki has not acknowledged.")
        self.clock_skew_seconds = gauge("clock_skew_seconds", "The node's clock less Loki's, to a second.")
        self.spool_bytes = gauge("spool_bytes", "Bytes in the spool that Loki has not acknowledged.")
        self.captures = gauge("captures", "Captures in the spool.", "life")
        self.left_out = counter("left_out", "What a limit of the agent left out.", "reason")
        self.damaged_bytes = counter("damaged_bytes", "Damaged bytes of segments that were skipped.")


class _Health(Collector):
    """What is exported besides the jobs' series. prometheus_client's `_created` series are of no use to anybody."""

    def __init__(self, agent: AgentMetrics, jobs: JobMetrics | None) -> None:
        self._agent = agent
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        yield from map(_without_created, self._agent.registry.collect())
        if self._jobs is not None:
            yield from map(_without_created, self._jobs.counters())


def _without_created(metric: Metric) -> Metric:
    metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return metric


def exposition(agent: AgentMetrics, jobs: JobMetrics | None, accept: str = "") -> tuple[bytes, str]:
    """All that is exported, and its content type. accept: the request's header: OpenMetrics or the text format."""
    encoder, content_type = choose_encoder(accept)
    text = b"" if jobs is None else jobs.text().encode()  # first: writing it counts what is left out
    body = encoder(_Health(agent, jobs))
    return (body[: -len(_END)] + text + _END if body.endswith(_END) else body + text), content_type


class MetricsServer:
    """Serves `/metrics` and `/-/healthy` from threads of its own until `close`.

    listen: `HOST:PORT`; HOST "" for all addresses, PORT 0 for a free one (`port` tells); "" for no server at all, then
    port is 0. say: told of faults of the server's own. Raises ConfigError where it can't listen there.
    """

    def __init__(
        self, listen: str, agent: AgentMetrics, jobs: JobMetrics | None, say: Callable[[str], None] | None = None
    ) -> None:
        self.port = 0
        self._server: _Server | None = None
        if not listen:
            return
        address = listen_address(listen)
        if address is None:
            raise ConfigError("[metrics] listen", [f"{listen!r} doesn't look like 127.0.0.1:9310"])
        try:
            self._server = server = _Server(address, agent, jobs, say)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError("[metrics] listen", [f"can't listen on {listen}: {reason}; name another one"]) from None
        self.port = server.server_port
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_SECS,), name="metrics server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening and ends all connections. May be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            self._thread.join()
            server.end_connections(0.0)
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        agent: AgentMetrics,
        jobs: JobMetrics | None,
        say: Callable[[str], None] | None,
    ) -> None:
        self.agent = agent
        self.jobs = jobs
        self._say = say
        self._lock = threading.Lock()
        self._open: dict[int, tuple[socket.socket, float]] = {}  # by id; since when (monotonic)
        host, port = address
        dual = not host and socket.has_dualstack_ipv6()
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = socket.AF_INET6 if dual else found[0][0]
        super().__init__((host or ("::" if dual else "0.0.0.0"), port), _Request)  # noqa: S104  asked for by ":PORT"

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            only_v6 = self.server_address[0] != "::"
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_v6)
        TCPServer.server_bind(self)  # not HTTPServer's, which asks the DNS for the machine's name
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of IP: str, int

    # ---- connections

    def process_request(self, request: Any, client_address: Any) -> None:  # Any: as socketserver has them
        with self._lock:
            full = len(self._open) >= MAX_CONNECTIONS
            if not full:
                self._open[id(request)] = request, time.monotonic()
        if full:
            self._refuse(request)
        else:
            super().process_request(request, client_address)

    def _refuse(self, request: socket.socket) -> None:
        try:
            request.setblocking(False)
            request.send(_BUSY)
        except OSError:
            pass  # it is closed either way
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:  # Any: as socketserver has it
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.end_connections(DEADLINE_SECS)

    def end_connections(self, older_than_secs: float) -> None:
        """Their threads find the connection closed, and end."""
        now = time.monotonic()
        with self._lock:
            for request, since in self._open.values():
                if now - since >= older_than_secs:
                    try:
                        request.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass  # the other side was first

    def handle_error(self, request: Any, client_address: Any) -> None:  # Any: as socketserver has them
        """A client that goes away, or a connection that was ended, is no fault of ours."""
        error = sys.exception()
        if self._say is not None and not isinstance(error, OSError):
            self._say(f"metrics: a request failed: {error!r}")


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = DEADLINE_SECS  # for one read or write; the server watches over the whole
    server_version = f"logshipper-agent/{__version__}"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._give_metrics()
        elif path == "/-/healthy":
            self._give(HTTPStatus.OK, b"healthy\n", "text/plain; charset=utf-8")
        else:
            self._give(HTTPStatus.NOT_FOUND, b"not here: /metrics, /-/healthy\n", "text/plain; charset=utf-8")

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def _give_metrics(self) -> None:
        try:
            body, content_type = exposition(self.server.agent, self.server.jobs, self.headers.get("Accept") or "")
        except Exception:
            self._give(HTTPStatus.INTERNAL_SERVER_ERROR, b"see the agent's log\n", "text/plain; charset=utf-8")
            raise  # handle_error says it
        if gzip_accepted(self.headers.get("Accept-Encoding") or ""):
            # level 1: series repeat themselves so much that better ones only cost time
            packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            body = packer.compress(body) + packer.flush()
            self._give(HTTPStatus.OK, body, content_type, "gzip")
        else:
            self._give(HTTPStatus.OK, body, content_type)

    def _give(self, status: HTTPStatus, body: bytes, content_type: str, encoding: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants a line for each scrape."""
