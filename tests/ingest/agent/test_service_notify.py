"""Notices to systemd that the agent is ready, alive or stopping. A real agent sends them to the
test's socket."""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from logshipper_ingest.agent.service_notify import ServiceNotifier
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent

UNIT = ROOT / "deploy" / "systemd" / "logshipper-agent.service"


def receive_notice(listener: socket.socket) -> str:
    return listener.recv(4096).decode()


def test_ready_alive_and_stopping(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    agent = NodeAgent(tmp_path / "agent", "http://127.0.0.1:9", cluster="c")
    with agent:
        assert receive_notice(listener) == "READY=1"
        assert agent.socket.exists(), "captures can ask it"
        notices: list[str] = []
        while notices.count("WATCHDOG=1") < 3:
            notices.append(receive_notice(listener))
        assert set(notices) == {"WATCHDOG=1", "STATUS=0 captures; Loki accepts everything"}
        assert agent.stop() == 0
    last = [receive_notice(listener)]
    while last[-1] != "STOPPING=1":
        last.append(receive_notice(listener))


def test_status_tells_loki_s_words(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())
    with NodeAgent(tmp_path / "agent", "http://127.0.0.1:9", cluster="c") as agent:
        agent.run("echo", "one")
        notice = receive_notice(listener)
        while "Loki doesn't accept" not in notice:
            assert notice != "WATCHDOG=1", "nobody asked for that"
            notice = receive_notice(listener)
    assert notice.startswith("STATUS=1 capture; Loki doesn't accept pushes: ")
    assert "\n" not in notice


def test_a_watchdog_is_told_in_time_and_not_too_often(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    name = listener.getsockname()
    environment = {
        "NOTIFY_SOCKET": name,
        "WATCHDOG_USEC": "9000000",
        "WATCHDOG_PID": str(os.getpid()),
    }
    notifier = ServiceNotifier(environment)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for now[0] in (100.0, 101.0, 102.9, 103.0, 105.9, 106.0):
        notifier.alive()
    notifier.stopping()
    assert [receive_notice(listener) for _ in range(4)] == ["WATCHDOG=1"] * 3 + ["STOPPING=1"]
    notifier.close()
    notifier.ready()  # no notice after the end, and no error


def test_a_name_in_the_abstract_namespace() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("")  # the kernel chooses one
        listener.settimeout(TIMEOUT_SECS)
        name = listener.getsockname().decode().replace("\0", "@", 1)
        notifier = ServiceNotifier({"NOTIFY_SOCKET": name})
        notifier.ready()
        notifier.status("two\nlines \x1b[1m")
        notifier.status("two lines \x1b[1m")
        notifier.stopping()
        assert [receive_notice(listener) for _ in range(3)] == [
            "READY=1",
            "STATUS=two lines \x1b[1m",
            "STOPPING=1",
        ]
        notifier.close()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere/at/all"},
        {"NOTIFY_SOCKET": "x" * 300},
        {"WATCHDOG_USEC": "no number"},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},
    ],
)
def test_nobody_listens(environment: dict[str, str]) -> None:
    notifier = ServiceNotifier(environment)
    assert notifier.watchdog_secs == 0.0
    notifier.ready()
    notifier.alive()
    notifier.status("well")
    notifier.stopping()
    notifier.close()


def test_a_full_queue_holds_up_nothing(listener: socket.socket) -> None:
    notifier = ServiceNotifier({"NOTIFY_SOCKET": listener.getsockname()})

    def send() -> None:
        for n in range(5000):
            notifier.status(str(n))

    sender = threading.Thread(target=send)
    sender.start()
    sender.join(TIMEOUT_SECS)
    assert not sender.is_alive()
    assert receive_notice(listener) == "STATUS=0"
    notifier.close()


def test_the_unit_waits_for_it() -> None:
    lines = UNIT.read_text().splitlines()
    assert {"Type=notify", "NotifyAccess=main", "Restart=always"} <= set(lines)
    (secs,) = (
        int(match[1]) for line in lines if (match := re.fullmatch(r"WatchdogSec=(\d+)", line))
    )
    assert secs >= 60, "a disk may stall for seconds"


needs_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)


@needs_analyze
def test_systemd_understands_all_of_the_unit(tmp_path: Path) -> None:
    """systemd only warns about unknown options."""
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub("^ExecStart=[^ ]+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.M))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECS)
    about_ours = [line for line in result.stderr.splitlines() if UNIT.name in line]
    assert (result.returncode, about_ours) == (0, [])


@needs_analyze
def test_the_unit_is_hardened(tmp_path: Path) -> None:
    """systemd 252 gives 2.4; lower is better, and 2.5 is the limit."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text())
    command = [
        "systemd-analyze",
        "security",
        "--offline=true",
        "--no-pager",
        "--threshold=25",
        str(unit),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECS)
    overall = re.search(r"Overall exposure level for .*: ([0-9.]+)", result.stdout)
    if overall is None and "nrecognized option" in result.stderr:
        pytest.skip("this systemd-analyze can't look at a file")
    assert overall is not None, result.stderr
    assert float(overall[1]) < 2.5
