"""`logshipper-agent check`: healthy servers are real, faults come from a fake one and from
tables."""

import email.utils
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.checks.check_loki import check_loki
from logshipper_ingest.checks.check_node import check_node
from logshipper_ingest.checks.check_prometheus import check_prometheus, is_own
from logshipper_ingest.checks.findings import Finding, as_document, exit_code, print_findings
from logshipper_ingest.checks.server_check import check
from logshipper_ingest.config.agent_config import (
    AgentConfig,
    AgentSection,
    MetricsSection,
    PrometheusSection,
    RemoteWriteSection,
    parse,
)
from logshipper_ingest.config.loki_section import LokiSection
from logshipper_ingest.config.metrics_access import MetricsAccess
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.prometheus import Target
from logshipper_ingest.servers.server_access import ServerAccess
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.fakes.tls_gateway import Authority

OK_METRICS = Said(200, b"x 1\n", {"Content-Type": "text/plain; version=0.0.4"})


def config_for(
    folder: Path, *, loki: str = "", prometheus: str = "", listen: str = "127.0.0.1:1"
) -> AgentConfig:
    agent = AgentSection(
        "local", "n1", str(folder / "spool"), str(folder / "state"), str(folder / "agent.sock")
    )
    access = ServerAccess(url=loki, timeout_secs=5)
    return AgentConfig(
        agent,
        LokiSection(access),
        MetricsSection(listen),
        PrometheusSection(ServerAccess(url=prometheus, timeout_secs=5)),
    )


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"listen": ":9310", "job_values": True}, "whoever reaches :9310 reads jobs' ids"),
        ({"listen": "10.1.2.3:9310"}, "is off: 10.1.2.3:9310 asks for no password"),
        ({"listen": ":9310", "username": "prometheus"}, ""),
        ({"listen": "[::1]:9310"}, ""),
        ({"listen": ""}, ""),
    ],
)
def test_it_says_who_reads_the_jobs(metrics: dict[str, Any], words: str) -> None:
    config, _ = parse({"loki": {"url": "http://x"}, "metrics": metrics})
    findings = [
        finding for finding in check_node(config) if finding.about == "[metrics] job_values"
    ]
    assert [finding.level for finding in findings] == ["note"] * bool(words)
    assert not words or (words in findings[0].words and "password_file" in findings[0].fix)


def make_folder(path: str, mode: int) -> None:
    os.mkdir(path)
    os.chmod(path, mode)  # regardless of the umask


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.about: finding.level for finding in findings}


def the(findings: list[Finding], about: str) -> Finding:
    (match,) = (finding for finding in findings if finding.about == about)
    return match


# ---- real servers


def test_a_node_where_all_is_well(
    loki: LokiServer, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    with FaultyServer(OK_METRICS) as exporter:
        listen = exporter.url.removeprefix("http://")
        prometheus.set_targets([listen])
        prometheus.wait_for_target(listen)
        config = config_for(tmp_path, loki=loki.url, prometheus=prometheus.url, listen=listen)
        for path, mode in ((config.agent.spool_dir, 0o711), (config.agent.state_dir, 0o700)):
            make_folder(path, mode)
        with answering(
            config.agent.socket, b'{"error":"this agent answers requests of version 1"}'
        ):
            findings = check(config)
    assert [finding for finding in findings if finding.level == "wrong"] == []
    assert exit_code(findings) == 0
    level_of = levels(findings)
    for about in (
        "loki",
        "loki push",
        "loki query",
        "clock",
        "loki schema_config",
        "loki max_line_size",
        "prometheus",
    ):
        assert level_of[about] == "ok", about
    for about in (
        "prometheus retention",
        "prometheus scrape",
        "[agent] socket",
        "[metrics] listen",
    ):
        assert level_of[about] == "ok", about
    assert "every 1 s" in the(findings, "prometheus scrape").words
    assert level_of.get("loki grpc_server_max_recv_msg_size", "ok") == "ok"
    with LokiClient(loki.url) as client:
        now_ns = time.time_ns()
        selector = '{service_name="logshipper",kind="event",host="n1"} |= "checked"'
        newest = next(client.entries(selector, now_ns - 600 * 10**9, now_ns, direction="backward"))
        assert json.loads(newest.line)["event"] == "checked"
        assert newest.labels == {
            "cluster": "local",
            "host": "n1",
            "service_name": "logshipper",
            "kind": "event",
        }


def test_target_that_is_down_or_somebody_elses(
    prometheus: PrometheusServer, tmp_path: Path
) -> None:
    with FaultyServer(OK_METRICS) as stranger, FaultyServer(Said(500)) as broken:
        up, down = (server.url.removeprefix("http://") for server in (stranger, broken))
        prometheus.set_targets([up, down])
        prometheus.wait_for_target(up)
        none = the(
            check_prometheus(config_for(tmp_path, prometheus=prometheus.url)), "prometheus scrape"
        )
        assert (none.level, none.words) == (
            "wrong",
            "nothing at 127.0.0.1:1 is scraped, of 2 targets",
        )
        config = config_for(tmp_path, prometheus=prometheus.url, listen=down)
        wait_until(
            lambda: the(check_prometheus(config), "prometheus scrape").level == "wrong",
            "a scrape that fails",
        )
        assert (
            "is down: server returned HTTP status 500"
            in the(check_prometheus(config), "prometheus scrape").words
        )
        config = config_for(tmp_path, prometheus=prometheus.url, listen=up)
        slow = replace(config, metrics=replace(config.metrics, expire_secs=2.0))
        short = the(check_prometheus(slow), "prometheus scrape")
        assert (short.level, short.fix) == (
            "wrong",
            "[metrics] expire_secs = 3, so that 3 scrapes see a job's last values.",
        )


# ---- Loki with faults


@pytest.fixture
def fake() -> Iterator[FaultyServer]:
    with FaultyServer(Said(403, b"forbidden")) as server:
        yield server


def test_no_loki(tmp_path: Path) -> None:
    with socket.socket() as port_holder:
        port_holder.bind(("127.0.0.1", 0))
        findings = check_loki(
            config_for(tmp_path, loki=f"http://127.0.0.1:{port_holder.getsockname()[1]}").lokis[0]
        )
    (finding,) = findings
    assert (finding.level, finding.about) == ("wrong", "loki")
    assert "Connection refused" in finding.words


def test_gateway_that_forbids_all(fake: FaultyServer, tmp_path: Path) -> None:
    findings = check_loki(config_for(tmp_path, loki=fake.url).lokis[0])
    level_of = levels(findings)
    assert level_of["loki"] == level_of["loki version"] == level_of["loki limits"] == "note"
    push = the(findings, "loki push")
    assert (push.level, push.words) == (
        "wrong",
        f"Loki at {fake.url}: HTTP 403: forbidden; none of username and password_file, token_file, tenant is set",
    )
    assert "token_file" in push.fix


@pytest.mark.parametrize(
    ("reply", "fix"),
    [
        (Said(404, b"404 page not found"), "There is no Loki at this address"),
        (Said(400, b"structured metadata is not allowed"), "allow_structured_metadata: true"),
        (Said(260, b"blocked"), "block_ingestion_until"),
        (Said(301, b"", {"Location": "https://loki/"}), "put in the address that it leads to"),
        (Said(400, b"entry has timestamp too new"), "see to NTP"),
    ],
)
def test_refused_pushes_and_their_fixs(
    fake: FaultyServer, tmp_path: Path, reply: Said, fix: str
) -> None:
    fake.answer(Said(200, b"ready"), Said(200, b'{"version":"3.7.6"}'), reply, Said(403))
    findings = check_loki(config_for(tmp_path, loki=fake.url).lokis[0])
    assert the(findings, "loki version") == Finding("ok", "loki version", "3.7.6")
    assert the(findings, "loki push").level == "wrong"
    assert fix in the(findings, "loki push").fix


def test_pushes_without_reading(fake: FaultyServer, tmp_path: Path) -> None:
    fake.answer(
        Said(503, b"starting"),
        Said(200, b'{"version":"2.9.1"}'),
        Said(204),
        Said(403, b"forbidden"),
    )
    findings = check_loki(config_for(tmp_path, loki=fake.url).lokis[0])
    assert levels(findings) == {
        "loki": "note",
        "loki version": "wrong",
        "loki push": "ok",
        "loki query": "note",
        "clock": "ok",
        "loki limits": "note",
    }


def test_entry_that_never_shows(
    fake: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logshipper_ingest.checks.check_loki.READ_BACK_SECS", 0.2)
    no_entries = b'{"status":"success","data":{"resultType":"streams","result":[]}}'
    fake.answer(Said(200), Said(200, b"{}"), Said(204), Said(200, no_entries))
    finding = the(check_loki(config_for(tmp_path, loki=fake.url).lokis[0]), "loki query")
    assert (finding.level, finding.words) == (
        "wrong",
        "the entry that was accepted didn't show within 0.2 s",
    )


def test_entry_without_its_metadata(fake: FaultyServer, tmp_path: Path) -> None:
    values = [["1", "another line"]]
    stream = {
        "status": "success",
        "data": {"resultType": "streams", "result": [{"stream": {}, "values": values}]},
    }
    fake.answer(Said(200), Said(200, b"{}"), Said(204), Said(200, json.dumps(stream).encode()))
    finding = the(check_loki(config_for(tmp_path, loki=fake.url).lokis[0]), "loki query")
    assert (finding.level, "without its structured metadata" in finding.words) == ("wrong", True)


@pytest.mark.parametrize(
    ("secs", "level", "words"),
    [(0, "ok", ""), (30, "note", "behind"), (-1200, "wrong", "ahead of")],
)
def test_clocks(fake: FaultyServer, tmp_path: Path, secs: int, level: str, words: str) -> None:
    fake.answer(Said(403, b"", {"Date": email.utils.formatdate(time.time() + secs, usegmt=True)}))
    finding = the(check_loki(config_for(tmp_path, loki=fake.url).lokis[0]), "clock")
    assert finding.level == level
    assert words in finding.words


# ---- Prometheus


def test_remote_write(prometheus: PrometheusServer, tmp_path: Path) -> None:
    """The shared Prometheus accepts no remote write, and scrapes other agents."""
    config = config_for(tmp_path, prometheus=prometheus.url)
    remote = RemoteWriteSection(ServerAccess(url=f"{prometheus.url}/api/v1/write", timeout_secs=5))
    findings = check_prometheus(replace(config, remote_write=remote))
    refusal = the(findings, "remote write")
    assert (refusal.level, "remote-write-receiver" in refusal.fix) == ("wrong", True)
    assert "HTTP 404" in refusal.words
    assert the(findings, "prometheus scrape") == Finding(
        "note", "prometheus scrape", "this node isn't scraped: it has [remote_write]"
    )
    with FaultyServer(Said(204)) as server:
        remote = RemoteWriteSection(ServerAccess(url=f"{server.url}/write", timeout_secs=5))
        config = replace(config_for(tmp_path), remote_write=remote)
        assert levels(check_prometheus(config)) == {"remote write": "ok", "prometheus": "note"}
        assert [request.path for request in server.requests] == ["/write"] * 2
        server.answer(
            Said(204, headers={"Date": email.utils.formatdate(time.time() - 3 * 3600, usegmt=True)})
        )
        off = the(check_prometheus(config), "remote write")
        assert (off.level, "clock is 108" in off.words) == ("wrong", True)
        assert len(server.requests) == 3, "no sample from the future is sent"


def test_prometheus_that_isnt_asked(tmp_path: Path) -> None:
    assert levels(check_prometheus(config_for(tmp_path))) == {"prometheus": "note"}
    assert levels(check_prometheus(config_for(tmp_path, prometheus="http://127.0.0.1:1", listen=""))) == {
        "prometheus": "note"}  # fmt: skip
    (finding,) = check_prometheus(config_for(tmp_path, prometheus="http://127.0.0.1:1"))
    assert (finding.level, "Connection refused" in finding.words) == ("wrong", True)


@pytest.mark.parametrize(
    ("url", "is_ours"),
    [
        ("http://n1:9310/metrics", True),
        ("http://n1.example.org:9310/metrics", True),
        ("http://127.0.0.1:9310/metrics", True),
        ("https://[::1]:9310/metrics", True),
        ("http://n1:9311/metrics", False),
        ("http://n2:9310/metrics", False),
        ("http://192.0.2.1:9310/metrics", False),
        ("http://n1/metrics", False),
        ("http://n1:none/metrics", False),
        ("", False),
    ],
)
def test_own_target(tmp_path: Path, url: str, is_ours: bool) -> None:
    target = Target({}, url, "up", "", 1.0)
    assert is_own(target, config_for(tmp_path, listen="0.0.0.0:9310")) is is_ours


# ---- this node


class answering:  # noqa: N801  reads as a verb
    """A socket that gives each request the same answer."""

    def __init__(self, path: str, answer: bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(path)
        self._socket.listen()
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        peer, _ = self._socket.accept()
        with peer:
            peer.recv(4096)
            if self._answer:
                peer.send(self._answer)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()


def test_folders(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    assert the(check_node(config), "[agent] spool_dir").level == "note", "the agent makes it"
    spool, state = Path(config.agent.spool_dir), Path(config.agent.state_dir)
    state.write_text("")
    spool.mkdir()
    spool.chmod(0o755)
    findings = check_node(config)
    assert next((f.level, f.fix) for f in findings if f.about == "[agent] spool_dir") == (
        "wrong",
        f"`chmod 711 {spool}`",
    )
    assert (
        the(findings, "[agent] state_dir").words
        == f"{state} isn't a folder (nor may it be a link to one)"
    )
    spool.chmod(0o1777)
    first = next(finding for finding in check_node(config) if finding.about == "[agent] spool_dir")
    assert (first.level, "name a folder of its own" in first.fix) == ("wrong", True), (
        "it isn't for us to change"
    )


@needs_root
def test_folder_of_somebody_else(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    os.mkdir(config.agent.state_dir, 0o700)
    os.chown(config.agent.state_dir, 12345, -1)
    finding = next(
        finding for finding in check_node(config) if finding.about == "[agent] state_dir"
    )
    assert (finding.level, f"{config.agent.state_dir} belongs to uid 12345" in finding.words) == (
        "wrong",
        True,
    )


def test_folder_without_room_or_on_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(tmp_path)
    make_folder(config.agent.spool_dir, 0o711)
    real = os.statvfs(tmp_path)
    for free, files, level in (
        (100 << 20, 10**6, "wrong"),
        (1 << 30, 10**6, "note"),
        (5 << 30, 10, "wrong"),
        (5 << 30, 10**6, "ok"),
    ):
        fields = list(real)
        fields[1], fields[4], fields[5], fields[7] = 1, free, 10**7, files
        figures = os.statvfs_result(fields)
        monkeypatch.setattr("os.statvfs", lambda _, figures=figures: figures)
        assert check_node(config)[1].level == level, (free, files)
    monkeypatch.setattr("logshipper_ingest.checks.check_node.network_type", lambda _: "nfs4")
    assert check_node(config)[0].words == f"{config.agent.spool_dir} is on nfs4"


def test_socket(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    path = config.agent.socket
    assert the(check_node(config), "[agent] socket").level == "note", "no agent"
    for answer, level in ((b'{"error":"version"}', "ok"), (b"220 mail", "wrong"), (b"", "wrong")):
        with answering(path, answer):
            assert the(check_node(config), "[agent] socket").level == level
        os.unlink(path)
    none = replace(config, agent=replace(config.agent, socket=""))
    assert the(check_node(none), "[agent] socket").level == "note"


def test_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = config_for(tmp_path, listen=f"127.0.0.1:{server.getsockname()[1]}")
        assert the(check_node(config), "[metrics] listen").level == "ok"
    assert the(check_node(config), "[metrics] listen").level == "note"
    assert "[metrics] listen" not in levels(check_node(config_for(tmp_path, listen="")))


# ---- output


def test_who_may_read_metrics(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "own")
    first, second = authority.issue("one"), authority.issue("other")

    def finding_for(cert: Path, key: Path) -> Finding:
        access = MetricsAccess(cert_file=str(cert), key_file=str(key))
        return the(
            check_node(replace(config_for(tmp_path), metrics=MetricsSection("", access))),
            "/metrics",
        )

    assert finding_for(first.cert, first.key).level == "ok"
    wrong = finding_for(first.cert, second.key)
    assert (wrong.level, wrong.words.startswith(f"[metrics] key_file: {second.key}: ")) == (
        "wrong",
        True,
    )
    assert "/metrics" not in levels(check_node(config_for(tmp_path)))


def test_findings_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("wrong", "a", "is broken", "fix " * 40),
        Finding("ok", "b", "fine"),
        Finding("note", "c", "known"),
    ]
    print_findings(findings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["ok    b: fine", "note  c: known", "wrong a: is broken"]
    assert all(len(line) <= 108 and line.startswith("        fix") for line in lines[3:-1])
    assert lines[-1] == "1 ok, 1 to note, 1 wrong"
    assert exit_code(findings) == 1
    assert exit_code(findings[1:]) == 0
    assert as_document(findings[1:2]) == {
        "wrong": 0,
        "findings": [{"level": "ok", "about": "b", "words": "fine", "mend": ""}],
    }
    assert json.dumps(as_document(findings))
