"""Measurements that a job sends to its own port with the real pytelegraf become its metadata, like
printed records."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from logshipper.telegraf.listener import LOOPBACK, MAX_CONNECTIONS, open_sockets
from logshipper.telegraf.measurements import COMM
from logshipper.telegraf.socket_owner import SocketOwners
from tests.servers.running import free_port
from tests.tools.captures.captured_runs import Home, comm_of, wait_until
from tests.tools.captures.other_users import ANN, as_user, needs_root
from tests.tools.fakes.telegraf_clients import (
    INVALID,
    SETTLED,
    SNIPPETS,
    connected,
    needs_pytelegraf,
)
from tests.tools.sources import ROOT, SOURCES
from tests.tools.waiting import scaled

pytestmark = needs_pytelegraf


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environment["PYTHONPATH"] = f"{SOURCES}:{ROOT / '.venv' / 'telegraf'}"
    return home


def records(home: Home, job: str = "last") -> list[dict[str, Any]]:
    """Return the job's records, the oldest first."""
    process = home.call("metadata", job, "--format", "jsonl")
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def left_out(home: Home) -> dict[str, int]:
    events = [event for event in home.show()["events"] if event["event"] == "measurements_left_out"]
    return dict(events[-1]["details"]["reasons"]) if events else {}


def collector_of(home: Home) -> int:
    """Return the process that collects measurements of this home's only capture."""

    def is_ours(pid: int) -> bool:
        try:
            return (
                comm_of(pid) == COMM
                and os.fsencode(home.store) in Path(f"/proc/{pid}/environ").read_bytes()
            )
        except OSError:  # another process, which has ended
            return False

    [pid] = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_ours(int(name))]
    return pid


def test_the_sources_snippets_run_as_they_stand(home: Home) -> None:
    """The instructions for MLO's users, except for the port, which this machine has only once."""
    port = str(free_port())
    script = SNIPPETS.replace("8092", port) + SETTLED
    done = home.run(sys.executable, "-c", script, options=("--telegraf-port", port))
    assert (done.returncode, done.stderr) == (0, b"")
    assert records(home) == [
        {"training_loss": 0.46},
        {"test_metric": 123},
        {"test_metric": {"value_a": 100, "value_b": 100, "value_c": True}},
        {"test_metric": 123, "tags": {"server_name": "my-server"}},
        {"training_loss": {"iteration": 1, "value": 0.45},
         "tags": {"host": "iccluster45", "user": "vogels", "experiment_id": "10"}},
    ]  # fmt: skip
    job = home.show()
    assert (job["state"], job["records"], left_out(home)) == ("COMPLETED", 5, {})


def test_invalid_lines_of_pytelegraf_are_survived_and_counted(home: Home) -> None:
    script = f"{connected()}\n{INVALID}\nclient.metric('last', 1){SETTLED}"
    done = home.run(sys.executable, "-c", script, options=("--telegraf",))
    assert done.returncode == 0, done.stderr
    assert records(home) == [{"last": 1}]
    assert left_out(home) == {"no_fields": 1, "not_finite": 2, "string": 1, "tags": 1, "value": 1}


def test_graphs_know_what_was_sent_and_lines_balance(home: Home) -> None:
    sends = (
        "for i in range(500): client.metric('loss', {'step': i, 'train': 1 / (i + 1)}); print(i)"
    )
    script = f"{connected()}\n{sends}\n{SETTLED}"
    assert home.run(sys.executable, "-c", script, options=("--telegraf",)).returncode == 0
    job = home.show()
    assert (job["records"], left_out(home)) == (500, {})
    assert job["x_axis"]["key"] == "loss.step"
    ledger = job["ledger"]["stdout"]
    assert (ledger["read"], ledger["stored"], ledger["lost"]) == (1000, 1000, 0)
    assert [line for line in home.logs() if line[:1] != "{"] == [
        str(number) for number in range(500)
    ]


def test_a_collector_that_is_killed_is_said_and_the_log_goes_on(home: Home) -> None:
    script = f"""{connected()}
client.metric('before', 1)
print('begun', flush=True)
{SETTLED}
input()
print('the end')
"""
    with home.start(
        "run", "--telegraf", "--", sys.executable, "-c", script, stdin=subprocess.PIPE
    ) as process:
        wait_until(lambda: b"begun" in home.call("logs", "last").stdout, "it runs")
        wait_until(lambda: records(home) == [{"before": 1}], "its measurement is there")
        os.kill(collector_of(home), signal.SIGKILL)
        wait_until(lambda: "measurements_ended" in home.events(), "it is said")
        process.communicate(b"\n", timeout=scaled(60))
    *first, last = home.logs()
    assert (sorted(first), last) == (["begun", '{"before":1}'], "the end")
    assert home.show()["state"] == "COMPLETED"


def test_lines_by_tcp_are_taken_whole_and_endless_ones_are_not(home: Home) -> None:
    script = f"""{connected()}
import socket
with socket.create_connection((host, port)) as stream:
    for piece in (b'a value=1i\\nb val', b'ue=2i\\n', b'x' * 300_000, b'\\nc value=3i\\nd value=4i'):
        stream.sendall(piece)
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)  # until all of it was read
"""
    done = home.run(sys.executable, "-c", script, options=("--telegraf",))
    assert (done.returncode, done.stderr) == (0, b"")
    assert records(home) == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]
    assert left_out(home)["too_long"] >= 1


def test_a_port_that_is_taken_is_told_before_the_command_runs(home: Home) -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = str(server.getsockname()[1])
        done = home.run("echo", "ran", options=("--telegraf-port", port))
    assert (done.returncode, done.stdout) == (125, b"")
    assert (
        f"--telegraf-port: {port} isn't available: address already in use; another one, or"
        in done.stderr.decode()
    )
    assert home.captures() == []
    assert home.run("echo", options=("--telegraf-port", "0")).returncode == 125


def test_without_the_option_there_is_no_port(home: Home) -> None:
    done = home.run("sh", "-c", "echo port=$LOGSHIPPER_TELEGRAF")
    assert done.stdout.strip() == b"port="


@needs_root
def test_what_another_user_sends_is_left_out_and_counted(home: Home) -> None:
    waits = f"""{connected()}
import socket, sys
stream = socket.create_connection((host, port))
print(port, flush=True)
sys.stdin.read()
stream.sendall(b'by_stream value=1i\\n')
client.metric('own', 1){SETTLED}"""
    with home.start(
        "run", "--telegraf", "--no-tty", "--", sys.executable, "-c", waits, stdin=-1
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = int(process.stdout.readline())
        as_user(ANN, lambda: _send_and_stay(port))
        process.stdin.close()
        assert process.wait() == 0
    assert sorted(map(str, records(home))) == ["{'by_stream': 1}", "{'own': 1}"]
    assert left_out(home) == {"foreign": 1 + MAX_CONNECTIONS}


def _send_and_stay(port: int) -> None:
    """Send by UDP and by the maximum of connections, then stay until the listener has found the
    sender."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"forged,job_id=last value=1", (LOOPBACK, port))
        for _ in range(MAX_CONNECTIONS):
            with (
                socket.create_connection((LOOPBACK, port)) as tcp,
                contextlib.suppress(ConnectionError),
            ):
                tcp.sendall(b"forged value=2\n")
                assert tcp.recv(1) == b""
        time.sleep(scaled(1.0))


# ---- owners of sockets


def test_the_kernel_says_whose_a_socket_is_while_it_lives() -> None:
    sockets = open_sockets(LOOPBACK, 0)
    owners = SocketOwners()
    target = (LOOPBACK, sockets.port)
    assert sockets.tcp is not None
    try:
        for bound in ("", LOOPBACK):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.bind((bound, 0))
            sender.sendto(b"x", target)
            address = sockets.udp.recvfrom(1)[1]
            owner = owners.udp(address, target)
            assert owner is not None
            assert (owner.uid, owner.inode) == (os.getuid(), os.fstat(sender.fileno()).st_ino)
            assert owners.udp(("127.0.0.2", address[1]), target) is None or not bound
            sender.close()
            assert owners.udp(address, target) is None  # not the receiving one
        peer = socket.create_connection(target)
        accepted, address = sockets.tcp.accept()
        owner = owners.tcp(address, target)
        assert owner is not None
        assert (owner.uid, owner.inode) == (os.getuid(), os.fstat(peer.fileno()).st_ino)
        peer.close()
        assert owners.tcp(address, target) is None  # the kernel would report root
        accepted.close()
    finally:
        owners.close()
        sockets.close()


@needs_root
def test_another_users_socket_is_that_users() -> None:
    sockets = open_sockets(LOOPBACK, 0)
    owners = SocketOwners()
    try:

        def send() -> int:
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.sendto(b"x", (LOOPBACK, sockets.port))
            address = sockets.udp.recvfrom(1)[1]
            owner = owners.udp(address, (LOOPBACK, sockets.port))
            return -1 if owner is None else owner.uid

        assert as_user(ANN, send) == ANN
    finally:
        owners.close()
        sockets.close()
