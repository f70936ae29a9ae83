"""/metrics over HTTP: content, access, and resistance to clients."""

import gzip
import http.client
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from logshipper import __version__
from logshipper.errors import ConfigError
from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics import metrics_server
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.job_views import FakeCapture, job_metrics

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@contextmanager
def serving(
    listen: str = "127.0.0.1:0", agent: AgentMetrics | None = None, jobs: JobMetrics | None = None
) -> Iterator[MetricsServer]:
    server = MetricsServer(listen, agent or AgentMetrics("c1", "n1"), jobs)
    try:
        yield server
    finally:
        server.close()


def get(
    server: MetricsServer,
    path: str = "/metrics",
    *,
    host: str = "127.0.0.1",
    method: str = "GET",
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, server.port, timeout=20)
    try:
        connection.request(
            method, path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return (
            answer.status,
            {name.lower(): value for name, value in answer.getheaders()},
            answer.read(),
        )
    finally:
        connection.close()


def jobs_with_one() -> JobMetrics:
    jobs = job_metrics()
    jobs.update(
        FakeCapture(identity={"name": 'a "name"\\'})
        .print({"loss": 1}, {"loss": 0.5, "$": 1})
        .view()
    )
    return jobs


# ---- content


def test_health_and_jobs() -> None:
    agent = AgentMetrics("c1", "n1")
    agent.pushes.labels("ok").inc()
    agent.push_seconds.observe(0.2)
    agent.lag_seconds.set(1.5)
    with serving(agent=agent, jobs=jobs_with_one()) as server:
        status, headers, body = get(server)
    text = body.decode()
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert int(headers["content-length"]) == len(body)
    assert "Python" not in headers["server"]
    python = ".".join(map(str, sys.version_info[:3]))
    for line in (
        'logshipper_agent_pushes_total{result="ok"} 1.0',
        'logshipper_agent_push_seconds_bucket{le="0.25"} 1.0',
        "logshipper_agent_lag_seconds 1.5",
        f'logshipper_agent_build_info{{cluster="c1",host="n1",python="{python}",version="{__version__}"}} 1.0',
        'logshipper_agent_keys_left_out_total{reason="characters"} 1.0',
        'logshipper_metadata_value{cluster="c1",job_id="4711",attempt="1",step="",task="0",key="loss"} 0.5',
    ):
        assert line in text.splitlines()
    assert "_created" not in text
    families = text_string_to_metric_families(text)
    assert {family.name for family in families} >= {
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "logshipper_job_info",
    }


def test_openmetrics_where_the_client_prefers_it() -> None:
    with serving(jobs=jobs_with_one()) as server:
        _, headers, body = get(server, Accept=OPENMETRICS)
        _, _, plain = get(server)
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert body.count(b"# EOF") == 1
    ours = {family.name: family for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]  # prometheus_client's
    assert ours["logshipper_metadata_value"].samples[0].value == 0.5
    jobs_lines = [
        line
        for line in plain.splitlines()
        if line.startswith((b"logshipper_job_", b"logshipper_x_rank"))
    ]
    assert jobs_lines
    assert set(jobs_lines) <= set(body.splitlines())


def test_gzip_where_the_client_takes_it() -> None:
    with serving(jobs=jobs_with_one()) as server:
        _, headers, body = get(server, Accept_Encoding="gzip")
    assert headers["content-encoding"] == "gzip"
    assert b"logshipper_job_info" in gzip.decompress(body)


def test_health_check_and_other_paths() -> None:
    with serving() as server:
        assert get(server, "/-/healthy")[0] == 200
        for path in ("/", "/metricsx", "/metrics/", "/-/healthy/..", "/%6detrics", "/favicon.ico"):
            assert get(server, path)[0] == 404
        assert get(server, "/metrics?name[]=x")[0] == 200
        assert get(server, method="HEAD")[2] == b""
        assert get(server, method="POST")[0] == 501


def test_without_job_values_and_without_jobs_only_health_is_served() -> None:
    jobs = job_metrics(MetricsSection(job_values=False))
    jobs.update(FakeCapture().print({"loss": 1}).view())
    for collector in (jobs, None):
        with serving(jobs=collector) as server:
            body = get(server)[2]
        assert b"logshipper_agent_build_info" in body
        assert b"logshipper_job" not in body
        assert b"4711" not in body


def test_a_fault_of_ours_is_a_500_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    jobs = job_metrics()
    monkeypatch.setattr(jobs, "text", lambda: 1 / 0)
    server = MetricsServer("127.0.0.1:0", AgentMetrics(), jobs, messages.append)
    try:
        assert get(server)[0] == 500
        wait_until(lambda: bool(messages), "the fault is said")
    finally:
        server.close()
    assert messages == ["metrics: a request failed: ZeroDivisionError('division by zero')"]


# ---- addresses


def test_no_server_where_none_is_asked_for() -> None:
    with serving("") as server:
        assert server.port == 0


def test_a_port_that_is_taken_is_served_at_when_it_is_free() -> None:
    messages: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as port_holder:
        listen = f"127.0.0.1:{port_holder.getsockname()[1]}"
        server = MetricsServer(listen, AgentMetrics(), None, messages.append)
        try:
            words = f"/metrics isn't served: [metrics] listen: can't listen on {listen}: address already in use"
            assert (server.port, server.trouble, messages) == (
                0,
                words,
                [f"{words}; the agent tries again"],
            )
            port_holder.close()
            wait_until(lambda: server.port, "the port is served at")
            assert get(server)[0] == 200
            wait_until(lambda: len(messages) == 2, "it is told of")
            assert (messages[1], server.trouble) == (f"/metrics on port {server.port}", "")
        finally:
            server.close()


def test_a_server_that_waits_for_a_port_ends_at_once() -> None:
    with serving() as server:
        second = MetricsServer(f"127.0.0.1:{server.port}", AgentMetrics(), None)
        second.close()
        second.close()
        assert (second.port, bool(second.trouble)) == (0, True)


@pytest.mark.parametrize("listen", ["192.0.2.1:9310", "no-such-host.invalid:9310", "nonsense"])
def test_addresses_that_are_not_ours_are_config_errors(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"\[metrics\] listen: .*" + listen):
        MetricsServer(listen, AgentMetrics(), None)


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_ipv6() -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving("[::1]:0") as server:
        assert get(server, "/-/healthy", host="::1")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            get(server, host="127.0.0.1")


def test_all_addresses_only_where_asked() -> None:
    with serving(":0") as server:
        assert get(server, "/-/healthy", host="127.0.0.1")[0] == 200
        if has_ipv6():
            assert get(server, "/-/healthy", host="::1")[0] == 200
    with serving("127.0.0.1:0") as server, pytest.raises(ConnectionRefusedError):
        get(server, host="127.0.0.2")


def test_close_frees_the_port_and_ends_connections() -> None:
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=5) as idle,
    ):
        idle.sendall(b"GET /met")
        wait_until(lambda: len(connections(server)) == 1, "the connection is taken")
        port = server.port
        server.close()
        assert idle.recv(1) == b""
        server.close()
    with serving(f"127.0.0.1:{port}") as again:
        assert again.port == port


# ---- clients that misbehave


def connections(server: MetricsServer) -> list[metrics_server._Connection]:
    assert server._server is not None
    return list(server._server._open.values())


def connect(server: MetricsServer, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", server.port), timeout=20, source_address=(source, 0)
    )


def is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_stuck_client_is_ended_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "HEAD_SECS", 0.5)
    with (
        serving() as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as stuck,
    ):
        began = time.monotonic()
        stuck.sendall(b"GET /metrics HTTP/1.0\r\n")
        stuck.settimeout(0.05)
        ended = False
        while not ended and time.monotonic() - began < 20:
            try:
                stuck.sendall(b"x")  # single bytes must not keep it open
                ended = stuck.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
        assert get(server)[0] == 200
        wait_until(lambda: not connections(server), "all connections are forgotten")


def test_idle_connections_shut_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(metrics_server, "HEAD_SECS", 60.0)
    with serving() as server, ExitStack() as stack:
        idle = [stack.enter_context(connect(server)) for _ in range(3)]
        wait_until(lambda: len(connections(server)) == 3, "three connections are taken")
        assert get(server)[0] == 200
        assert [is_ended(client) for client in idle] == [True, False, False]


def test_who_has_most_connections_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(metrics_server, "HEAD_SECS", 60.0)
    with serving() as server, ExitStack() as stack:
        newcomer = stack.enter_context(connect(server, "127.0.0.2"))
        wait_until(lambda: len(connections(server)) == 1, "the first one is taken")
        crowd = [stack.enter_context(connect(server)) for _ in range(6)]
        wait_until(
            lambda: [is_ended(client) for client in crowd] == [True] * 4 + [False] * 2,
            "all but two had to go",
        )
        assert not is_ended(newcomer)


def test_an_answer_that_nobody_takes_gives_way_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_server, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(metrics_server, "HEAD_SECS", 60.0)
    with serving() as server, ExitStack() as stack:
        assert server._server is not None
        large = b"x" * (64 << 20)  # more than the buffers of any socket
        monkeypatch.setattr(server._server, "render", lambda accept, gzip: (large, "text/plain"))
        slow = [stack.enter_context(connect(server)) for _ in range(2)]
        for client in slow:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        wait_until(
            lambda: [connection.has_request for connection in connections(server)] == [True] * 2,
            "both have asked",
        )
        assert get(server, "/-/healthy")[0] == 503
        monkeypatch.setattr(metrics_server, "HEAD_SECS", 1.0)
        wait_until(lambda: get(server, "/-/healthy")[0] == 200, "there is room for others")


def test_threads_have_a_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_MAX_THREADS", 2)
    with serving() as server, ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(connect(server))
        wait_until(lambda: len(connections(server)) == 2, "two connections are taken")
        assert get(server)[0] == 503


def test_one_rendering_serves_all_that_ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "SHARED_SECS", 600.0)
    jobs = jobs_with_one()
    rendered: list[str] = []
    text = jobs.text
    monkeypatch.setattr(jobs, "text", lambda: rendered.append("once") or text())  # type: ignore[func-returns-value]
    with serving(jobs=jobs) as server:
        bodies = {get(server)[2] for _ in range(5)}
        assert (len(bodies), len(rendered)) == (1, 1)
        for number in range(5):  # regardless of the requested version
            accept = f"application/openmetrics-text;version=1.0.{number}"
            assert get(server, Accept=accept)[1]["content-type"].startswith(
                "application/openmetrics-text; version=1.0.0"
            )
        assert len(rendered) == 2
        get(server, Accept_Encoding="gzip")
        assert len(rendered) == 3


def test_an_answer_is_not_given_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "SHARED_SECS", 0.0)
    agent = AgentMetrics("c1", "n1")
    with serving(agent=agent) as server:
        get(server)
        agent.lag_seconds.set(7)
        assert b"logshipper_agent_lag_seconds 7.0" in get(server)[2]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"A" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200,
    ],
)
def test_nonsense_is_answered_and_forgotten(request_bytes: bytes) -> None:
    messages: list[str] = []
    server = MetricsServer("127.0.0.1:0", AgentMetrics(), None, messages.append)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
            try:
                client.sendall(request_bytes)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except ConnectionError:
                pass  # the server closed it before all bytes were sent
        assert get(server)[0] == 200
        wait_until(lambda: not connections(server), "all connections are forgotten")
    finally:
        server.close()
    assert messages == []


def test_a_client_that_goes_away_is_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    messages: list[str] = []
    server = MetricsServer("127.0.0.1:0", AgentMetrics(), jobs_with_one(), messages.append)
    try:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
                # reset the connection
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        wait_until(lambda: not connections(server), "all connections are forgotten")
    finally:
        server.close()
    assert messages == []
    assert capfd.readouterr() == ("", "")


def test_no_machine_s_name_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str = "") -> str:
        raise AssertionError(name)

    monkeypatch.setattr(socket, "getfqdn", refuse)
    with serving() as server:
        assert get(server, "/-/healthy")[0] == 200


def test_a_further_loki_has_the_same_series_by_its_name() -> None:
    """The series of the first Loki stay the same."""
    agent = AgentMetrics("c1", "n1")
    alone = set(exposition(agent, None)[0].decode().splitlines())
    national = agent.of_sink("national")
    assert agent.of_sink("national") is national
    national.refused_entries.labels("too_old").inc(3)
    national.lag_seconds.set(7)
    for accept in ("", "application/openmetrics-text; version=1.0.0"):
        lines = exposition(agent, None, accept)[0].decode().splitlines()
        assert (
            'logshipper_agent_refused_entries_total{reason="too_old",sink="national"} 3.0' in lines
        )
        assert 'logshipper_agent_lag_seconds{sink="national"} 7.0' in lines
        assert 'logshipper_agent_refused_entries_total{reason="too_old"} 0.0' in lines
        assert not [line for line in lines if "sink=" in line and "_created" in line]
    now = {line for line in exposition(agent, None)[0].decode().splitlines() if "sink=" not in line}
    assert {line for line in alone ^ now if not line.startswith("process_")} == set()
    families = exposition(agent, None)[0].decode().count("# TYPE logshipper_agent_push_seconds ")
    assert families == 1, "a family stands there once"
