"""The node agent's Telegraf-compatible listener, fed by the real pytelegraf.

- Measurements belong to the sending job, regardless of their tags.
- The agent counts measurements of unidentified senders.
- A flood affects no other sender.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logshipper.telegraf.listener import LOOPBACK
from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer, free_port
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.other_users import ANN, Forked, as_user, needs_root
from tests.tools.fakes.telegraf_clients import PLACE, SETTLED, connected, needs_pytelegraf
from tests.tools.sources import SOURCES
from tests.tools.stores.node_agents import NodeAgent, client, cluster, entries_of

__all__ = ["client", "cluster"]  # fixtures
pytestmark = needs_pytelegraf
FLOOD_SECS = 4.0


class Site:
    """An agent that takes measurements. reached: a folder accessible to other users."""

    def __init__(self, folder: Path, reached: Path, loki: LokiServer, cluster: str) -> None:
        self.address = f"{LOOPBACK}:{free_port()}"
        self.socket = reached / "telegraf.sock"
        telegraf = {"enabled": True, "listen": self.address, "socket": str(self.socket)}
        self.agent = NodeAgent(folder, loki.url, cluster=cluster, telegraf=telegraf)

    def start(
        self, script: str, job: str, **options: Any
    ) -> "subprocess.Popen[bytes]":  # Any: of Popen
        script = f"{connected(repr(self.address))}\nsocket_path = {str(self.socket)!r}\n{script}\n{SETTLED}"
        words = [
            sys.executable,
            "-m",
            "logshipper",
            "run",
            "--job-id",
            job,
            "--",
            sys.executable,
            "-c",
            script,
        ]
        environment = {
            **self.agent.environment,
            "PYTHONPATH": f"{SOURCES}:{PLACE}",
            "HOME": str(self.agent.folder),
        }
        return subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **options
        )

    def send(self, script: str, job: str) -> None:
        with self.start(script, job) as process:
            process.communicate(timeout=TIMEOUT_SECS)
        assert process.returncode == 0

    def counts(self) -> dict[str, int]:
        """Return the counts other than 0, by outcome."""
        status = self.agent.status()["telegraf"]
        return {name: count for name, count in (status["lines"] if status else {}).items() if count}

    def records(self, client: LokiClient) -> dict[str, list[dict[str, Any]]]:
        """Return all records by the requested job id."""
        by_job: dict[str, list[dict[str, Any]]] = {}
        for entry in entries_of(client, self.agent.cluster, "metadata"):
            by_job.setdefault(entry.metadata["job_id"].partition(".u")[0], []).append(
                json.loads(entry.line)
            )
        return by_job


@pytest.fixture
def site(loki: LokiServer, cluster: str, tmp_path: Path, open_folder: Path) -> Iterator[Site]:
    site = Site(tmp_path, open_folder, loki, cluster)
    with site.agent:
        yield site


def test_what_a_job_sends_is_that_jobs_whatever_it_says_of_itself(
    site: Site, client: LokiClient
) -> None:
    """Two jobs of one user send to one address at once: by UDP, TCP and the Unix socket. Each also
    sends to its own port."""
    script = """
import socket, time
for i in range(50):
    client.metric('loss', {'i': i, 'of': NAME}, tags={'job_id': OTHER, 'user': 'root'})
    time.sleep(0.01)
unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
unix.sendto(f'unix,job_id={OTHER} of="{NAME}"'.encode(), socket_path)
stream = socket.create_connection((host, port))
stream.sendall(f'tcp,job_id={OTHER} of="{NAME}"\\n'.encode())
own = os.environ['LOGSHIPPER_TELEGRAF'].split(':')
of_job = TelegrafClient(host=own[0], port=int(own[1]))
of_job.metric('own', {'of': NAME})
time.sleep(1)
"""
    names = {"one": "two", "two": "one"}
    running = [
        site.start(f"NAME, OTHER = {name!r}, {neighbour!r}\n{script}", name)
        for name, neighbour in names.items()
    ]
    for process in running:
        process.communicate(timeout=TIMEOUT_SECS)
        assert process.returncode == 0
    site.agent.wait_shipped()
    records = site.records(client)
    assert records.keys() == names.keys()
    for name, of_job in records.items():
        assert Counter(next(iter(record)) for record in of_job) == {
            "loss": 50,
            "unix": 1,
            "tcp": 1,
            "own": 1,
        }
        assert {record[next(iter(record))]["of"] for record in of_job} == {name}
    assert "telegraf 127.0.0.1:" in site.agent.call("status").stdout
    assert 'logshipper_agent_telegraf_lines_total{outcome="passed_on"}' in site.agent.metrics()
    wait_until(
        lambda: _series(site, 'telegraf_lines_total{outcome="passed_on"}') >= 104,
        "/metrics tells of them",
    )


def _series(site: Site, name: str) -> float:
    lines = site.agent.metrics().splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"logshipper_agent_{name}")
    )


def test_what_is_sent_before_the_capture_is_known_is_held(site: Site, client: LokiClient) -> None:
    site.send("client.metric('first', 1)\nimport time\ntime.sleep(2)", "quick")
    site.agent.wait_shipped()
    assert site.records(client) == {"quick": [{"first": 1}]}


def test_a_sender_that_is_gone_is_counted_and_its_text_is_not_kept(
    site: Site, client: LokiClient
) -> None:
    process = site.agent.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{process.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stands still")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"whose value=1i", (LOOPBACK, int(site.address.partition(":")[2])))
    finally:
        process.send_signal(signal.SIGCONT)
    wait_until(lambda: site.counts().get("unidentified"), "it is counted")
    assert "not_kept" not in site.counts()
    files = [
        path
        for folder in (site.agent.state, site.agent.spool)
        for path in folder.rglob("*")
        if path.is_file()
    ]
    assert not [path for path in files if b"whose" in path.read_bytes()]
    assert site.records(client) == {}


@needs_root
def test_another_user_gets_into_no_job_and_leaves_nothing(site: Site, client: LokiClient) -> None:
    """The user has no captured job, so its environment and its tags have no effect."""
    ended = site.agent.folder / "ended"
    waits = "import time\nclient.metric('own', 1)\nprint('ready', flush=True)\n"
    waits += f"while not os.path.exists({str(ended)!r}): time.sleep(0.05)"
    with site.start(waits, "victim") as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        as_user(ANN, lambda: _forge(site))
        wait_until(lambda: site.counts().get("no_job", 0) >= 3, "it is counted")
        ended.touch()
        process.communicate(timeout=TIMEOUT_SECS)
    site.agent.wait_shipped()
    assert site.records(client) == {"victim": [{"own": 1}]}


def _forge(site: Site) -> None:
    """Send from a process whose environment names the victim's job."""
    forged = f"""
import socket, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
host, port = {site.address!r}.split(":")
udp.sendto(b"forged,job_id=victim,user=root value=1", (host, int(port)))
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"forged value=2", {str(site.socket)!r})
tcp = socket.create_connection((host, int(port)))
tcp.sendall(b"forged value=3\\n")
time.sleep(1)
"""
    environment = {"LOGSHIPPER_JOB_ID": "victim.u0", "PATH": os.environ["PATH"]}
    subprocess.run(["/usr/bin/env", "python3", "-c", forged], env=environment, check=True, cwd="/")


@needs_root
def test_a_flood_costs_nobody_else_anything(site: Site, client: LokiClient) -> None:
    """Another user sends garbage, giant packets, thousands of connections and endless lines at full
    speed. Meanwhile a job's own lines and measurements arrive, and /metrics answers."""
    lines = 500
    address = site.address
    floods = [
        Forked(ANN, partial(_flood, address, kind)) for kind in ("small", "giant", "connections")
    ]
    try:
        script = f"""
import socket, time
stream = socket.create_connection((host, port))
for i in range({lines}):
    print('line', i)
    if i % 20 == 0:
        stream.sendall(b'beside i=%di\\n' % i)
        time.sleep(0.02)
time.sleep(1)
"""
        answers = 0
        with site.start(script, "beside", stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            reading = threading.Thread(target=process.stdout.read)
            reading.start()
            while process.poll() is None:
                assert "logshipper_agent_build_info" in site.agent.metrics()
                answers += 1
            reading.join()
        assert (process.returncode, answers > 0) == (0, True)
    finally:
        counts = [flood.result() for flood in floods]
    site.agent.wait_shipped()
    printed = [entry.line for entry in entries_of(client, site.agent.cluster, "log")]
    assert printed == [f"line {number}" for number in range(lines)]
    assert site.records(client) == {
        "beside": [{"beside": {"i": number}} for number in range(0, lines, 20)]
    }
    outcomes = {"overflow", "crowded", "too_long", "no_job"}
    wait_until(
        lambda: outcomes <= site.counts().keys(),
        f"all of it is counted: {site.counts()}, {counts} were sent",
    )
    log = site.agent.log.read_text()
    assert "Traceback" not in log
    assert len(log.splitlines()) < 20
    assert not (site.agent.state / "telegraf").exists()


def _flood(address: str, kind: str) -> int:
    host, port = address.split(":")
    target = (host, int(port))
    count = 0
    until = time.monotonic() + FLOOD_SECS
    if kind == "connections":
        connections: list[socket.socket] = []
        while time.monotonic() < until:
            try:
                connection = socket.create_connection(target, timeout=0.2)
                connection.settimeout(0.2)
                connection.sendall(b"x" * 100_000 if count % 2 else b"garbage without end")
                connections.append(connection)
            except OSError:
                time.sleep(0.001)
            connections = connections[-900:]
            count += 1
        return count
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    data = b"\xff\x00 garbage,= \n" * 4000 if kind == "giant" else b"flood value=1i"
    while time.monotonic() < until:
        udp.sendto(data, target)
        count += 1
    return count


def test_an_address_that_somebody_has_costs_measurements_only(
    loki: LokiServer, cluster: str, client: LokiClient, tmp_path: Path, open_folder: Path
) -> None:
    """Any user can bind the address while no agent runs."""
    site = Site(tmp_path, open_folder, loki, cluster)
    squatter = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    squatter.bind((LOOPBACK, int(site.address.partition(":")[2])))
    with squatter, site.agent as agent:
        agent.run("echo", "printed", options=("--job-id", "without"))
        agent.wait_shipped()
        assert (
            "address already in use; name another one ([telegraf] listen)"
            in agent.call("status").stdout
        )
        assert f"{site.address}: address already in use" in agent.log.read_text()
        wait_until(
            lambda: "logshipper_agent_telegraf_down 1.0" in agent.metrics(), "metrics tell it, too"
        )
        squatter.close()
        wait_until(
            lambda: "measurements are taken at" in agent.log.read_text(), "it has the address"
        )
        site.send("client.metric('got', 1)\nimport time\ntime.sleep(2)", "after")
        agent.wait_shipped()
        wait_until(lambda: not agent.status()["telegraf"]["trouble"], "status tells of none")
        wait_until(
            lambda: "logshipper_agent_telegraf_down 0.0" in agent.metrics(), "nor do metrics"
        )
    assert [entry.line for entry in entries_of(client, cluster, "log")] == ["printed"]
    assert site.records(client) == {"after": [{"got": 1}]}
