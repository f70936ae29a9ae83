"""Private servers: Loki and Prometheus in a scratch folder, on free loopback ports, with the
configuration of `docker compose`.

They end with `close`, with this process, and with its death.
"""

import atexit
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from tests.servers.build import INFLUXDB
from tests.servers.debian_package import PROMETHEUS, PackageProgram
from tests.servers.loki import find_loki
from tests.servers.places import ServerMissing
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

COMPOSE = ROOT / "deploy" / "compose"
READY_TIMEOUT_SECS = scaled(60.0)
STOP_TIMEOUT_SECS = scaled(20.0)
ANSWER_TIMEOUT_SECS = scaled(10.0)
TAIL_LINES = 15
# below Linux's ephemeral ports: no connection takes a stopped server's port
PORTS = range(12000, 30000)
# Loki's parts look for each other more often than with `docker compose`: it is ready a second
# earlier
QUICK = {
    "frontend": {"scheduler_dns_lookup_period": "100ms"},
    "frontend_worker": {"dns_lookup_duration": "100ms"},
}
NOT_BUILT = "{} isn't there: python -m tests.servers.build gets it"


class ServerFailed(Exception):
    """A server didn't start, answer or stop. str: the failure, and the end of its log."""


class Server(ABC):
    """A server program and its scratch folder; `with` starts and closes it.

    folder: for its configuration, data and log; None for one that `close` removes. stay: it
    outlives this process, unless `close` ends it. Not for several threads.
    """

    name: str
    ready_path: str

    def __init__(self, folder: Path | None, *, stay: bool) -> None:
        self.own_folder = folder is None
        self.folder = (
            folder or Path(tempfile.mkdtemp(prefix=f"logshipper-{self.name}-"))
        ).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.stay = stay
        self.port = free_port()
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """The running server's process id. Raises ServerFailed."""
        if self._process is None:
            raise ServerFailed(f"{self.name} isn't running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, wait: bool = True) -> Self:
        """Start the server and wait until it is ready; a restart keeps ports and data. Raises
        ServerFailed."""
        assert self._process is None, f"{self.name} runs already"
        command = [*_dies_with_us(self.stay), *self._command()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **self._environment()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # only this process acts on Ctrl-C
            )
        if not self.stay:
            atexit.register(self._close_at_exit)
        if wait:
            self.wait_ready()
        return self

    def stop(self, signo: int = signal.SIGTERM) -> None:
        """Stop the server and keep its data. If it doesn't end in time, kill it and raise
        ServerFailed."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signo)
        try:
            process.wait(STOP_TIMEOUT_SECS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self._failed(f"didn't stop within {STOP_TIMEOUT_SECS:.0f} s") from None

    def close(self) -> None:
        """End the server and remove its own folder."""
        atexit.unregister(self._close_at_exit)
        try:
            self.stop(signal.SIGKILL if self.own_folder else signal.SIGTERM)
        finally:
            if self.own_folder:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _close_at_exit(self) -> None:
        if os.getpid() == self._owner:  # not in a test's fork
            self.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self, timeout_secs: float = READY_TIMEOUT_SECS) -> None:
        """Wait until the server is fully ready. Raises ServerFailed."""
        self._wait(lambda: self._get(self.ready_path).ok, "be ready", timeout_secs)

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _environment(self) -> Mapping[str, str]:
        return {}

    def _get(self, path: str, **parameters: str) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False  # no proxy for loopback
            return session.get(self.url + path, params=parameters, timeout=ANSWER_TIMEOUT_SECS)

    def _wait(self, condition: Callable[[], bool], action: str, timeout_secs: float) -> None:
        deadline = time.monotonic() + timeout_secs
        while time.monotonic() < deadline:
            with contextlib.suppress(requests.RequestException):
                if condition():
                    return
            if self._process is None or self._process.poll() is not None:
                ended = (
                    "isn't running"
                    if self._process is None
                    else f"ended with {self._process.returncode}"
                )
                raise self._failed(f"{ended} and won't {action}")
            time.sleep(0.05)
        raise self._failed(f"didn't {action} within {timeout_secs:.0f} s")

    def _failed(self, failure: str) -> ServerFailed:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        tail = "".join(f"\n  {line[:500]}" for line in lines[-TAIL_LINES:])
        return ServerFailed(f"{self.name} at {self.url} {failure}; the end of {self.log}:{tail}")


class InfluxdbServer(Server):
    """An InfluxDB 1.x. Raises ServerMissing.

    program: Debian's 1.6 by default; auth_enabled: each request needs a user (`auth`, after its
    creation); tls: certificate, key and CA, PEM files, for a server with TLS only.
    """

    name = "influxdb"
    ready_path = "/ping"

    def __init__(
        self, program: str = "", *, auth_enabled: bool = False, tls: Sequence[Path] = ()
    ) -> None:
        self.program = program or influxdb_program()
        super().__init__(None, stay=False)
        self._tls = tls
        self.auth: tuple[str, str] | None = None
        rpc_port = free_port(besides=self.port)
        lines = [
            "reporting-disabled = true",
            f'bind-address = "127.0.0.1:{rpc_port}"',
            *("[meta]", f'dir = "{self.folder}/meta"'),
            *("[data]", f'dir = "{self.folder}/data"', f'wal-dir = "{self.folder}/wal"'),
            *(
                "[http]",
                f'bind-address = "127.0.0.1:{self.port}"',
                f"auth-enabled = {str(auth_enabled).lower()}",
            ),
        ]
        if tls:
            lines += [
                "https-enabled = true",
                f'https-certificate = "{tls[0]}"',
                f'https-private-key = "{tls[1]}"',
            ]
        lines += ["[monitor]", "store-enabled = false"]
        (self.folder / "influxdb.conf").write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        return [self.program, "run", "-config", str(self.folder / "influxdb.conf")]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False  # no proxy for loopback
        session.verify = str(self._tls[2]) if self._tls else True
        return session

    def _get(self, path: str, **parameters: str) -> requests.Response:
        with self._session() as session:
            return session.get(self.url + path, params=parameters, timeout=ANSWER_TIMEOUT_SECS)

    def query(self, influxql: str, database: str = "") -> list[dict[str, Any]]:
        """Return rows of all series of an answer, with times in nanoseconds. Any: JSON."""
        with self._session() as session:
            parameters = {"q": influxql, "db": database, "epoch": "ns"}
            answer = session.post(
                f"{self.url}/query", data=parameters, auth=self.auth, timeout=ANSWER_TIMEOUT_SECS
            )
        document = answer.json()
        assert answer.ok, document
        assert "error" not in json.dumps(document), document
        rows = []
        for result in document["results"]:
            for series in result.get("series", []):
                tags = series.get("tags", {})
                rows += [
                    {**tags, **dict(zip(series["columns"], row, strict=True))}
                    for row in series["values"]
                ]
        return rows


def influxdb_1_8_program() -> str:
    """Return the path of an InfluxDB with the 2.x interface for writing. Raises ServerMissing."""
    program = INFLUXDB.path()
    if program is None:
        raise ServerMissing(NOT_BUILT.format(f"InfluxDB {INFLUXDB.version}"))
    return str(program)


def influxdb_program() -> str:
    """Return the path of Debian's InfluxDB. Raises ServerMissing."""
    program = shutil.which("influxd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/bin")
    if program is None:
        raise ServerMissing("InfluxDB isn't there: Debian's package influxdb has it")
    return program


class LokiServer(Server):
    """A Loki. Raises ServerMissing.

    - limits: override limits_config in deploy/compose/loki/loki.yaml
    - parts: override its tables, also nested ones
    - auth_enabled: each request must name a tenant (X-Scope-OrgID)
    - deletes: it has a delete API
    """

    name = "loki"
    ready_path = "/ready"

    def __init__(
        self,
        *,
        limits: Mapping[str, object] | None = None,
        auth_enabled: bool = False,
        deletes: bool = False,
        parts: Mapping[str, object] | None = None,
        folder: Path | None = None,
        stay: bool = False,
    ) -> None:
        self.program = find_loki()
        super().__init__(folder, stay=stay)
        self.grpc_port = free_port(besides=self.port)
        config = _read(COMPOSE / "loki" / "loki.yaml")
        config["limits_config"].update(limits or {})
        config["auth_enabled"] = auth_enabled
        if deletes:
            config["compactor"] = {"retention_enabled": True, "delete_request_store": "filesystem"}
        config = merged(merged(config, QUICK), parts or {})
        (self.folder / "loki.yaml").write_text(yaml.safe_dump(config, default_flow_style=False))

    @property
    def version(self) -> str:
        return self.program.version

    def set_limits(self, limits: Mapping[str, object]) -> None:
        """Override its limits from its next start on."""
        config = _read(self.folder / "loki.yaml")
        config["limits_config"].update(limits)
        (self.folder / "loki.yaml").write_text(yaml.safe_dump(config, default_flow_style=False))

    def wait_for_push(self, timeout_secs: float = READY_TIMEOUT_SECS) -> None:
        """Wait until it accepts pushes, which is before it is ready. Raises ServerFailed."""

        def takes() -> bool:
            services = self._get("/services").text
            return all(
                f"{part} => Running" in services for part in ("distributor", "ingester", "ring")
            )

        self._wait(takes, "take pushes", timeout_secs)

    def flush(self) -> None:
        """Write its chunks to disk. Raises ServerFailed."""
        self.post("/flush")

    def post(self, path: str, **parameters: str) -> None:
        """Send a request. Raises ServerFailed."""
        with requests.Session() as session:
            session.trust_env = False
            answer = session.post(self.url + path, params=parameters, timeout=ANSWER_TIMEOUT_SECS)
        if answer.status_code != requests.codes.no_content:
            raise self._failed(f"answered {path} by {answer.status_code}")

    def _command(self) -> list[str]:
        return [str(self.program.path), "-config.file=loki.yaml", "-config.expand-env=true"]

    def _environment(self) -> Mapping[str, str]:
        return {
            "LOKI_ADDRESS": "127.0.0.1",
            "LOKI_HTTP_PORT": str(self.port),
            "LOKI_GRPC_PORT": str(self.grpc_port),
            "LOKI_DATA": str(self.folder / "data"),
        }


class PrometheusServer(Server):
    """A Prometheus. Raises ServerMissing.

    targets: addresses to scrape, HOST:PORT; scrape_interval: as in its configuration; config:
    further parts of that; flags: of its command line.
    """

    name = "prometheus"
    ready_path = "/-/ready"

    def __init__(
        self,
        targets: Sequence[str] = (),
        *,
        scrape_interval: str = "1s",
        config: Mapping[str, object] | None = None,
        flags: Sequence[str] = (),
        folder: Path | None = None,
        stay: bool = False,
    ) -> None:
        self.program = prometheus_program()
        super().__init__(folder, stay=stay)
        self._flags = flags
        whole = _read(COMPOSE / "prometheus" / "prometheus.yml")
        whole["global"]["scrape_interval"] = scrape_interval
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump({**whole, **(config or {})}))
        (self.folder / "targets").mkdir(exist_ok=True)
        self.set_targets(targets)

    @property
    def version(self) -> str:
        return self.program.version

    def set_targets(self, targets: Sequence[str]) -> None:
        """Set the targets; Prometheus applies them within some seconds."""
        place = self.folder / "targets" / "agents.yml"
        scratch = place.with_suffix(".new")
        scratch.write_text(json.dumps([{"targets": list(targets)}]))
        scratch.rename(place)

    def wait_for_target(self, target: str, timeout_secs: float = READY_TIMEOUT_SECS) -> None:
        """Wait until a scrape of the target succeeds. Raises ServerFailed."""

        def up() -> bool:
            active = self._get("/api/v1/targets", state="active").json()["data"]["activeTargets"]
            return any(
                scrape_target["labels"]["instance"] == target and scrape_target["health"] == "up"
                for scrape_target in active
            )

        self._wait(up, f"scrape {target}", timeout_secs)

    def _command(self) -> list[str]:
        return [
            str(self.program.program),
            "--config.file=prometheus.yml",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
            *self._flags,
        ]


def prometheus_program() -> PackageProgram:
    """Return Prometheus from the PATH or from the cache. Raises ServerMissing."""
    program = PROMETHEUS.find()
    if program is None:
        raise ServerMissing(NOT_BUILT.format("Prometheus"))
    return program


def free_port(besides: int = 0) -> int:
    """Return a loopback port without a listener, other than `besides`."""
    with held_port(besides) as held:
        return int(held.getsockname()[1])


def held_port(besides: int = 0) -> socket.socket:
    """Return a socket at such a port, reserved until the socket closes. Raises ServerFailed."""
    for _ in range(100):
        port = random.choice(PORTS)
        if port == besides:
            continue
        held = socket.socket()
        try:
            held.bind(("127.0.0.1", port))
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return held
    raise ServerFailed(
        f"no free port from {PORTS.start} to {PORTS.stop - 1} was found in 100 tries"
    )


def _dies_with_us(stay: bool) -> list[str]:
    """Return a prefix of a command that makes the kernel kill it after any end of this process."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or stay:
        return []
    # the shell checks whether this process ended before the kernel got the setting
    still_there = '[ "$PPID" = "$0" ] && exec "$@"'
    return [setpriv, "--pdeathsig", "KILL", "--", "/bin/sh", "-c", still_there, str(os.getpid())]


# Any, here and below: our own YAML
def merged(config: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with `parts` in its tables, also in nested ones."""
    result = dict(config)
    for name, value in parts.items():
        before = result.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[name] = merged(before, value)
        else:
            result[name] = value
    return result


def _read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document
