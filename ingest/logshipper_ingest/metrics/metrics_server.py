"""The node agent's `/metrics`: its own health, and its jobs' series where they are shown
(docs/metrics.md).

The server is small on purpose, since anybody who reaches the port may try it: MAX_CONNECTIONS at a
time, each with its own thread, HEAD_SECS for the request and DEADLINE_SECS in all, one request per
connection. Where there is no room for one more, the oldest that has asked for nothing yet goes, or
that takes its answer slowly, of the address that has most.
"""

import errno
import socket
import ssl
import sys
import threading
import time
import zlib
from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from logshipper import __version__
from logshipper.errors import ConfigError, os_words
from logshipper_ingest.config.agent_config import listen_address
from logshipper_ingest.config.metrics_access import MetricsAccess, MetricsGuard
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.model.end_record import OUTCOMES as SLURM_OUTCOMES
from logshipper_ingest.model.slurm_hours import HOUR_SECS, HourSums
from logshipper_ingest.servers.refusals import REASONS, THROTTLES

# why a request at the job socket gets no directory
SOCKET_REFUSALS = (
    "silent",
    "gone",
    "crowded",
    "too_often",
    "malformed",
    "unknown_peer",
    "too_many_captures",
    "spool",
    "fault",
)
MAX_CONNECTIONS = 16
HEAD_SECS = 2.0  # from the connection to the end of the request's head
DEADLINE_SECS = 15.0
SHARED_SECS = 1.0  # how long one answer is given to all that ask
# connections that had to go included, until their threads have noticed
_MAX_THREADS = 4 * MAX_CONNECTIONS
RETRY_SECS = 2.0  # for a port that somebody else has
_POLL_SECS = 1.0  # between two looks for connections that are late
RETRY_REASONS = ("no_connection", "429", "500", "503")
WAITING_RESULTS = (*RETRY_REASONS, "401", "403", "404")  # others are there once they have come
SCRAPE_REASONS = ("busy", "slow", "tls", "unauthorized")
TELEGRAF_OUTCOMES = (  # of logshipper_ingest/telegraf/router.py
    *(
        "passed_on",
        "unidentified",
        "ambiguous",
        "no_job",
        "job_gone",
        "not_kept",
        "overflow",
        "too_long",
        "crowded",
    ),
)
PARTIAL_SUCCESS = "partial_success"
LEFT_OUT_REASONS = ("quarantine_full", "slurm_ends", "captures_taken", "log_lines", PARTIAL_SUCCESS)
_PUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS = (
    1,
    10,
    60,
    300,
    900,
    3600,
    4 * 3600,
    12 * 3600,
    24 * 3600,
    3 * 24 * 3600,
    7 * 24 * 3600,
)
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_OPENMETRICS = "application/openmetrics-text"
_END = b"# EOF\n"  # of OpenMetrics


class SinkMetrics:
    """What is of one Loki: how the agent gets on with it. In a registry that its maker may add
    to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.pushes = self._counter("pushes", "Pushes to Loki.", "result")
        self.push_seconds = Histogram(
            "logshipper_agent_push_seconds",
            "How long a push took.",
            buckets=_PUSH_BUCKETS,
            registry=self.registry,
        )
        self.entries = self._counter("entries", "Entries that Loki acknowledged.", "kind")
        self.pushed_bytes = self._counter(
            "pushed_bytes", "Bytes of pushes that Loki acknowledged, compressed."
        )
        self.retries = self._counter("retries", "Pushes that were tried again.", "reason")
        self.throttled = self._counter(
            "throttled", "Pushes that a limit of Loki's put off.", "limit"
        )
        self.refused_entries = self._counter(
            "refused_entries", "Entries that Loki refused for good.", "reason"
        )
        self.lag_seconds = self._gauge(
            "lag_seconds", "Age of the oldest spooled line that Loki has not acknowledged."
        )
        self.clock_skew_seconds = self._gauge(
            "clock_skew_seconds", "The node's clock less Loki's, to a second."
        )
        self.spool_bytes = self._gauge(
            "spool_bytes", "Bytes in the spool that Loki has not acknowledged."
        )
        self.waiting_streams = self._gauge(
            "waiting_streams", "Streams to Loki that wait, by the last answer.", "result"
        )
        self.quarantine_bytes = self._gauge("quarantine_bytes", "Bytes in the quarantine.")
        self.quarantine_max_bytes = self._gauge(
            "quarantine_max_bytes", "Bytes that the quarantine may have."
        )
        self.left_out = self._counter("left_out", "What a limit of the agent left out.", "reason")
        self.values_left_out = self._counter(
            "influxdb_values_left_out",
            "Values that can't be fields in InfluxDB, or points by OTLP.",
        )
        self.slurm_records = self._counter(
            "slurm_records", "Records of how Slurm ended jobs.", "outcome"
        )
        self.slurm_jobs = self._counter(
            "slurm_jobs", "Jobs that Slurm ended, captured or not.", "state"
        )
        self.slurm_node_seconds = self._counter(
            "slurm_node_seconds",
            "Seconds of nodes that jobs had which Slurm ended, captured or not.",
            "state",
        )
        self.slurm_wait_seconds = Histogram(
            "logshipper_agent_slurm_wait_seconds",
            "How long jobs that Slurm ended, captured or not, had waited in its queue.",
            buckets=_WAIT_BUCKETS,
            registry=self.registry,
        )
        self._slurm_hours = (
            self._gauge(
                "slurm_hour_node_seconds", "Seconds of nodes that such jobs had in an hour.", "hour"
            ),
            self._gauge("slurm_hour_jobs", "Such jobs that ended in an hour.", "hour"),
        )
        self._hours: set[str] = set()
        self.slurm_waiting = self._gauge(
            "slurm_waiting", "Records of how Slurm ended jobs that are looked at again."
        )
        for reason in REASONS:  # at 0 from the start: rate() sees the first ones, too
            self.refused_entries.labels(reason)
        for reason in RETRY_REASONS:
            self.retries.labels(reason)
        self._waiting_results = set(WAITING_RESULTS)
        self.set_waiting({})
        for reason in THROTTLES:
            self.throttled.labels(reason)
        for reason in LEFT_OUT_REASONS:
            self.left_out.labels(reason)
        for outcome in SLURM_OUTCOMES:
            self.slurm_records.labels(outcome)

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"logshipper_agent_{name}", words, labels, registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"logshipper_agent_{name}", words, labels, registry=self.registry)

    def set_slurm_hours(self, sums: Mapping[int, HourSums]) -> None:
        """sums: of all hours that are shown, by hours since 1970."""
        sums_by_hour = {utc_hour(hour): hour_sums for hour, hour_sums in sums.items()}
        for at, gauge in enumerate(self._slurm_hours):
            for hour, hour_sums in sums_by_hour.items():
                gauge.labels(hour).set(hour_sums[at])
            for hour in self._hours - sums_by_hour.keys():
                gauge.remove(hour)
        self._hours = set(sums_by_hour)

    def set_waiting(self, streams: Mapping[str, int]) -> None:
        """streams: how many wait now, by result; all others are 0."""
        self._waiting_results |= streams.keys()
        for result in self._waiting_results:
            self.waiting_streams.labels(result).set(streams.get(result, 0))


def utc_hour(hour: int) -> str:
    """An hour since 1970 as label: `2026-05-01T12:00:00Z`."""
    return datetime.fromtimestamp(hour * HOUR_SECS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class AgentMetrics(SinkMetrics):
    """The agent's own health, and what is of the first Loki: prometheus_client's counters and
    gauges. further: what is of others, by the label `sink`, which the first has none of."""

    def __init__(self, cluster: str = "", host: str = "") -> None:
        super().__init__()
        counter, gauge = self._counter, self._gauge
        self.further: dict[str, SinkMetrics] = {}
        ProcessCollector(registry=self.registry)
        build = gauge(
            "build_info", "The agent, and where it runs.", "version", "python", "cluster", "host"
        )
        build.labels(__version__, ".".join(map(str, sys.version_info[:3])), cluster, host).set(1)
        self.start_time_seconds = gauge("start_time_seconds", "When the agent started, since 1970.")
        self.start_time_seconds.set_to_current_time()
        self.disk_free_bytes = gauge(
            "disk_free_bytes", "Room where a folder of the agent lies.", "folder"
        )
        self.disk_size_bytes = gauge(
            "disk_size_bytes", "Size of the file system that a folder lies in.", "folder"
        )
        self.disk_free_files = gauge(
            "disk_free_files", "Files that can be made where a folder lies.", "folder"
        )
        self.disk_size_files = gauge(
            "disk_size_files", "Files that the file system may have.", "folder"
        )
        self.captures = gauge("captures", "Captures in the spool.", "life")
        self.limited = gauge(
            "limited_captures", "Captures that a limit of spool bytes slows or stops.", "limit"
        )
        self.lines = counter("lines", "Lines that captured jobs printed.", "user", "stream")
        self.bytes = counter(
            "bytes", "Bytes that captured jobs printed, and that were logged of it.", "user", "what"
        )
        self.lost_lines = counter(
            "lost_lines", "Lines that captured jobs printed and that are lost."
        )
        self.damages = counter(
            "damages", "Places in segments where something was damaged, or no segment, and skipped."
        )
        self.damaged_bytes = counter(
            "damaged_bytes", "Damaged bytes of segments that were skipped."
        )
        self.socket_captures = counter("socket_captures", "Directories given to `logshipper run`.")
        self.socket_refusals = counter(
            "socket_refusals", "Requests at the socket that were refused.", "reason"
        )
        self.scrapes_refused = counter(
            "scrapes_refused", "Connections to /metrics that got nothing.", "reason"
        )
        self.telegraf_lines = counter(
            "telegraf_lines", "Lines of measurements that were sent to the agent.", "outcome"
        )
        self.telegraf_connections = gauge(
            "telegraf_connections", "Connections that send measurements."
        )
        self.telegraf_down = gauge(
            "telegraf_down", "1 where measurements are to be taken, and can't be."
        )
        for outcome in TELEGRAF_OUTCOMES:
            self.telegraf_lines.labels(outcome)
        for limit in ("soft", "hard"):
            self.limited.labels(limit)
        for reason in SCRAPE_REASONS:
            self.scrapes_refused.labels(reason)
        for reason in SOCKET_REFUSALS:
            self.socket_refusals.labels(reason)

    def of_sink(self, name: str) -> SinkMetrics:
        """name: of a further Loki."""
        return self.further.setdefault(name, SinkMetrics())


class _Health(Collector):
    """What is exported besides the jobs' series. prometheus_client's `_created` series are of no
    use to anybody."""

    def __init__(self, agent: AgentMetrics, jobs: JobMetrics | None) -> None:
        self._agent = agent
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        further: dict[str, list[Sample]] = defaultdict(list)
        for sink, metrics in list(self._agent.further.items()):
            for metric in metrics.registry.collect():
                further[metric.name] += (
                    sample._replace(labels={**sample.labels, "sink": sink})
                    for sample in metric.samples
                )
        for metric in self._agent.registry.collect():
            metric.samples = [*metric.samples, *further[metric.name]]
            yield _drop_created(metric)
        if self._jobs is not None:
            yield from map(_drop_created, self._jobs.counters())


def _drop_created(metric: Metric) -> Metric:
    metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return metric


def exposition(agent: AgentMetrics, jobs: JobMetrics | None, accept: str = "") -> tuple[bytes, str]:
    """All that is exported, and its content type. accept: the request's header: OpenMetrics or the
    text format."""
    encoder, content_type = choose_encoder(accept)
    # first: writing it counts what is left out
    text = b"" if jobs is None else jobs.text().encode()
    body = encoder(_Health(agent, jobs))
    return (body[: -len(_END)] + text + _END if body.endswith(_END) else body + text), content_type


class MetricsServer:
    """Serves `/metrics` and `/-/healthy` from threads of its own until `close`.

    listen: `HOST:PORT`; HOST "" for all addresses, PORT 0 for a free one (`port` has it); "" for no
    server at all, then port is 0. say: logs faults of the server's own. access: who may read
    /metrics. Where somebody else listens there, as any user may who comes first, port is 0 and
    `trouble` says so; it is tried again. Raises ConfigError where it can't listen there for another
    reason, or files can't be used.
    """

    def __init__(
        self,
        listen: str,
        agent: AgentMetrics,
        jobs: JobMetrics | None,
        say: Callable[[str], None] | None = None,
        access: MetricsAccess | None = None,
    ) -> None:
        self.port = 0
        self.trouble = ""
        self._closed = threading.Event()
        self._port_waiter: threading.Thread | None = None
        self._server: _Server | None = None
        if not listen:
            return
        address = listen_address(listen)
        if address is None:
            raise ConfigError("[metrics] listen", [f"{listen!r} doesn't look like 127.0.0.1:9310"])
        guard = MetricsGuard(access or MetricsAccess(), say)

        def begin() -> None:
            self._server = server = _Server(address, agent, jobs, guard, say)
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
                raise ConfigError("[metrics] listen", [f"{reason}; name another one"]) from None
            self.trouble = f"/metrics isn't served: [metrics] listen: {reason}"
            tell = say or (lambda _: None)
            tell(f"{self.trouble}; tried again")
            self._port_waiter = threading.Thread(
                target=self._wait_for_port, args=(begin, tell), daemon=True
            )
            self._port_waiter.start()

    def _wait_for_port(self, begin: Callable[[], None], tell: Callable[[str], None]) -> None:
        while not self._closed.wait(RETRY_SECS):
            with suppress(OSError):
                begin()
                tell(f"/metrics on port {self.port}")
                return

    def close(self) -> None:
        """Stops listening and ends all connections. May be called twice."""
        self._closed.set()
        if self._port_waiter is not None:
            self._port_waiter.join()
        server, self._server = self._server, None
        if server is not None:
            with suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes its thread
            server.shutdown()
            self._thread.join()
            server.end_connections()
            server.server_close()


@dataclass
class _Connection:
    """A client's connection, until its thread has ended."""

    socket: socket.socket
    peer: str
    since: float  # by the monotonic clock
    has_request: bool = False  # the request's head is here
    ended: bool = False  # its thread is yet to notice

    def may_go(self, now: float) -> bool:
        return not self.has_request or now - self.since >= HEAD_SECS

    def is_late(self, now: float) -> bool:
        return now - self.since >= (DEADLINE_SECS if self.has_request else HEAD_SECS)

    def end(self) -> None:
        self.ended = True
        try:
            # not SSLSocket's own, which has the thread that writes go on in plain text
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was first


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
        say: Callable[[str], None] | None,
    ) -> None:
        self.agent = agent
        self.jobs = jobs
        self.guard = guard
        self._say = say
        self._lock = threading.Lock()
        self._open: dict[int, _Connection] = {}  # by the socket's id, the oldest first
        self._render_lock = threading.Lock()
        # until when, body, content type
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
        TCPServer.server_bind(self)  # not HTTPServer's, which asks the DNS for the machine's name
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # of IP: str, int

    # ---- connections

    def get_request(self) -> tuple[socket.socket, Any]:  # Any: as socketserver has it
        """With TLS the connection's own thread shakes hands: nobody else waits for a client that
        doesn't."""
        request, address = super().get_request()
        context = self.guard.context
        if context is None:
            return request, address
        try:
            return context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ), address
        except OSError:
            request.close()  # it has gone already
            raise

    def process_request(
        self, request: Any, client_address: Any
    ) -> None:  # Any: as socketserver has them
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
        of_peer = Counted(connection.peer for connection in connections)
        candidates = [connection for connection in connections if not connection.has_request] or [
            connection for connection in connections if connection.may_go(now)
        ]
        if candidates:
            # of equals the first: the oldest
            self._end(max(candidates, key=lambda connection: of_peer[connection.peer]), "busy")
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
        now = time.monotonic()
        with self._lock:
            for connection in self._open.values():
                if connection.is_late(now):
                    self._end(connection, "slow")

    def end_connections(self) -> None:
        """Their threads find the connection closed, and end."""
        with self._lock:
            for connection in self._open.values():
                connection.end()

    # ---- answers

    def render(self, accept: str, gzip: bool) -> tuple[bytes, str]:
        """What `exposition` gives, packed where gzip: the same bytes for all that ask within
        SHARED_SECS."""
        form = (_OPENMETRICS in accept, gzip)  # two content types, whatever else somebody thinks of
        with self._render_lock:
            until, body, content_type = self._answers.get(form, (0.0, b"", ""))
            if time.monotonic() >= until:
                media_type = f"{_OPENMETRICS}; version=1.0.0" if form[0] else ""
                body, content_type = exposition(self.agent, self.jobs, media_type)
                if gzip:
                    # level 1: series repeat themselves so much that better ones only cost time
                    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
                    body = packer.compress(body) + packer.flush()
                self._answers[form] = time.monotonic() + SHARED_SECS, body, content_type
            return body, content_type

    def handle_error(
        self, request: Any, client_address: Any
    ) -> None:  # Any: as socketserver has them
        """A client that goes away, or a connection that was ended, is no fault of ours."""
        error = sys.exception()
        if self._say is not None and not isinstance(error, OSError):
            self._say(f"metrics: a request failed: {error!r}")


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = DEADLINE_SECS  # for one read or write; the server watches over the whole
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
            self._give(HTTPStatus.OK, b"healthy\n", "text/plain; charset=utf-8")
        else:
            self._give(
                HTTPStatus.NOT_FOUND,
                b"not here: /metrics, /-/healthy\n",
                "text/plain; charset=utf-8",
            )

    do_HEAD = do_GET  # noqa: N815  http.server's name

    def _give_metrics(self) -> None:
        if not self.server.guard.admits(self.headers.get("Authorization") or ""):
            self.server.agent.scrapes_refused.labels("unauthorized").inc()
            self._give(
                HTTPStatus.UNAUTHORIZED,
                b"username and password are wanted\n",
                "text/plain; charset=utf-8",
            )
            return
        gzip = gzip_accepted(self.headers.get("Accept-Encoding") or "")
        try:
            body, content_type = self.server.render(self.headers.get("Accept") or "", gzip)
        except Exception:
            self._give(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                b"see the agent's log\n",
                "text/plain; charset=utf-8",
            )
            raise  # handle_error says it
        self._give(HTTPStatus.OK, body, content_type, "gzip" if gzip else "")

    def _give(self, status: HTTPStatus, body: bytes, content_type: str, encoding: str = "") -> None:
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
        """Nobody wants a line for each scrape."""
