"""Run the node agent as an admin does, with its own spool and state, before Loki or a scripted
proxy."""

import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.fakes.faulty_server import Said, say
from tests.tools.fakes.server_thread import ServerThread, forwarded
from tests.tools.sources import ROOT, SOURCES
from tests.tools.stress import crashing


@pytest.fixture
def cluster() -> str:
    """Return a cluster of the test's own, because tests share one Loki."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def client(loki: LokiServer) -> Iterator[LokiClient]:
    with LokiClient(loki.url) as client:
        yield client


class NodeAgent:
    """An agent's folder, configuration and process. cluster, host: its labels; options: of tables,
    as in `loki={...}`.

    `with` starts it, and stops it at the end.
    """

    def __init__(
        self,
        folder: Path,
        loki_url: str,
        *,
        cluster: str,
        host: str = "n1",
        **options: Mapping[str, Any],
    ):
        self.folder = folder
        self.cluster = cluster
        self.host = host
        self.spool = folder / "spool"
        self.state = folder / "state"
        self.socket = folder / "agent.sock"
        self.config = folder / "agent.toml"
        self.log = folder / "agent.log"
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        tables: dict[str, dict[str, Any]] = {
            "agent": {"cluster": cluster, "host": host, "spool_dir": str(self.spool), "state_dir": str(self.state),
                      "socket": str(self.socket), "poll_secs": 0.05},
            "loki": {"url": loki_url, "batch_wait_secs": 0.1, "retry_min_secs": 0.1, "retry_max_secs": 0.5,
                     "settle_secs": 0},
            "metrics": {"listen": "127.0.0.1:0"},
        }  # fmt: skip
        for name, table in options.items():
            tables.setdefault(name, {}).update(table)
        lines = []
        for name, table in tables.items():
            lines += [
                f"[{name}]",
                *(f"{option} = {json.dumps(value)}" for option, value in table.items()),
            ]
        self.config.write_text("\n".join(lines) + "\n")

    @property
    def environment(self) -> dict[str, str]:
        """Environment of jobs for this agent to capture."""
        environment = {
            **os.environ,
            "PYTHONPATH": SOURCES,
            "LOGSHIPPER_AGENT_SOCKET": str(self.socket),
        }
        environment.pop("LOGSHIPPER_STORE", None)
        return environment

    # ---- its life

    def start(
        self,
        *,
        crash_at: str = "",
        times: int = 1,
        wait: bool = True,
        by: Sequence[str] = (),
        path: Path = ROOT,
    ) -> "NodeAgent":
        """Start the agent, and wait until it is ready.

        - crash_at: a fault point at which it kills itself, the n-th time (`times`) that it gets
          there
        - by: runs it instead of Python's `-m logshipper_ingest`
        - path: folder of its packages
        """
        words = ["run", "--config", str(self.config)]
        command = [*(by or (sys.executable, "-m", "logshipper_ingest")), *words]
        if crash_at:
            command = crashing.command(
                crash_at, times, self.folder / f"crashed-{crash_at}", "logshipper-agent", *words
            )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=path,
                env={**os.environ, "PYTHONPATH": str(path)},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        ready_count = self.log.read_text().count("ready:")
        if wait:
            wait_until(
                lambda: self.log.read_text().count("ready:") > ready_count or self.has_ended(),
                "the agent is ready",
            )
            assert not self.has_ended(), self.log.read_text()
        return self

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def stop(self, signo: int = signal.SIGTERM) -> int:
        """Send the signal; return the exit code."""
        assert self.process is not None
        self.process.send_signal(signo)
        return self.process.wait(TIMEOUT_SECS)

    def __enter__(self) -> "NodeAgent":
        return self.start() if self.has_ended() else self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT_SECS)

    # ---- what it does

    def run(
        self, *command: str, options: tuple[str, ...] = (), **more: Any
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run `logshipper run` with this agent's capture. more: options of subprocess.run."""
        words = [sys.executable, "-m", "logshipper", "run", *options, "--", *command]
        environment = {**self.environment, "HOME": str(self.folder), **more.pop("env", {})}
        more = {
            "capture_output": True,
            "stdin": subprocess.DEVNULL,
            "timeout": TIMEOUT_SECS,
            **more,
        }
        return subprocess.run(words, env=environment, **more)

    def call(self, *words: str, crash_at: str = "") -> "subprocess.CompletedProcess[str]":
        """Run `logshipper-agent WORDS --config ...`. crash_at: a fault point at which it kills
        itself."""
        words = (*words, "--config", str(self.config))
        command = [sys.executable, "-m", "logshipper_ingest", *words]
        if crash_at:
            command = crashing.command(
                crash_at, 1, self.folder / f"crashed-{crash_at}", "logshipper-agent", *words
            )
        environment = {**os.environ, "PYTHONPATH": SOURCES}
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECS,
        )

    def status(self) -> dict[str, Any]:
        result = self.call("status", "--json")
        assert result.returncode == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document

    def captures(self) -> list[Path]:
        return sorted(path for path in self.spool.glob("*@*") if path.is_dir())

    def wait_shipped(self, timeout_secs: float = TIMEOUT_SECS) -> None:
        """Wait until the spool is empty."""
        wait_until(
            lambda: not self.captures(), f"all is shipped: {self.log.read_text()}", timeout_secs
        )

    @property
    def metrics_url(self) -> str:
        """URL of the running agent's metrics."""
        ready = [line for line in self.log.read_text().splitlines() if "ready:" in line][-1]
        return f"http://127.0.0.1:{ready.rpartition(' ')[2]}/metrics"

    def metrics(self) -> str:
        import requests

        with requests.Session() as session:
            session.trust_env = False
            return session.get(self.metrics_url, timeout=TIMEOUT_SECS).text


def entries_of(
    client: LokiClient, cluster: str, kinds: str = ".+", *, hours: float = 1, selector: str = ""
) -> list[Entry]:
    """Return all entries of a cluster in Loki, in order of time.

    Their times range from `hours` ago to ten minutes ahead.
    """
    now_ns = time.time_ns()
    logql = f'{{cluster="{cluster}", kind=~"{kinds}"}} {selector}'
    return list(client.entries(logql, now_ns - int(hours * 3600 * 10**9), now_ns + 600 * 10**9))


class _ProxyServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *about: Any) -> None:  # Any: as in the base
        if not isinstance(
            sys.exception(), OSError
        ):  # not worth a report if the agent was killed during a push
            super().handle_error(*about)


class Proxy(ServerThread):
    """A proxy between an agent and Loki.

    - answer: gets a push's number (from 1). Its result (status, headers, body) replaces Loki's
      answer; None lets the push through.
    - after: Loki gets the push first; the agent still gets the result of `answer`.
    - pushes: number of pushes so far
    - fault: gets the first half of a push's body, and returns the answer, or None. Long answers end
      at `fixed`. If the answer is 204, Loki gets the push first.
    - look: gets each body
    - shift_secs: offset of the time in its answers
    """

    def __init__(self, target: str, *, shift_secs: int = 0) -> None:
        self.answer: Callable[[int], tuple[int, Mapping[str, str], bytes] | None] = lambda _: None
        self.fault: Callable[[bytes], Said | None] = lambda _: None
        self.look: Callable[[bytes], object] = lambda _: None
        self.faults = 0
        self._fixed = threading.Event()
        self.after = False
        self.pushes = 0
        self._target = urllib.parse.urlsplit(target)
        proxy = self

        class Request(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def date_time_string(self, timestamp: float | None = None) -> str:
                return super().date_time_string((timestamp or time.time()) + shift_secs)

            def do_POST(self) -> None:
                try:
                    self.answer()
                except (OSError, http.client.HTTPException):  # Loki or the agent has gone
                    self.close_connection = True

            def answer(self) -> None:
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size // 2)
                fault = proxy.fault(body)
                if fault is None or not fault.hang_up:
                    body += self.rfile.read(size - len(body))
                    proxy.look(body)
                if fault is not None:
                    proxy.faults += 1
                    if (
                        fault.status == 204
                        and proxy.pass_on(self.path, dict(self.headers), body)[0] != 204
                    ):
                        raise ConnectionError
                    say(self, fault, proxy._fixed)
                    return
                proxy.pushes += 1
                reply = proxy.answer(proxy.pushes)
                fallback = (
                    proxy.pass_on(self.path, dict(self.headers), body)
                    if reply is None or proxy.after
                    else None
                )
                status, headers, text = reply or fallback or (500, {}, b"")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        super().__init__(_ProxyServer(("127.0.0.1", 0), Request))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def broken(self, fault: Callable[[bytes], Said | None]) -> None:
        """Answer pushes by fault from now on."""
        self.faults = 0
        self._fixed.clear()
        self.fault = fault

    def fixed(self) -> None:
        """Let pushes through from now on, and end the long answers."""
        self.fault = lambda _: None
        self._fixed.set()

    def pass_on(
        self, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        passed = {"Content-Type": headers["Content-Type"]}
        status, _, text = forwarded(self._target, "POST", path, passed, body)
        return status, {}, text
