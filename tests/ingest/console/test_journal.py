"""The agent's lines with fields in the journal, at a datagram socket and in a real
systemd-journald."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logshipper_ingest.console import service_log
from logshipper_ingest.console.journal import MAX_FIELD_BYTES, MAX_MESSAGE_BYTES, Journal, encode
from logshipper_ingest.console.service_log import Kind, LastNotice, LogLine, Notice, write_line
from logshipper_ingest.console.throttled_log import ThrottledLog
from tests.ingest.console.test_service_log import stderr
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent

JOURNALD = Path("/lib/systemd/systemd-journald")
HOSTILE = "a job is called\nPRIORITY=0\n\x1b[1mLOGSHIPPER_JOB=9\n"
# a private journal in its own namespace; $1: a folder for its files; the rest runs like a service
SCRIPT = """set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/journal /run/systemd/journald.conf.d "$1/journal" /run/log/journal
mount --bind "$1/journal" /run/log/journal
printf '[Journal]\\nReadKMsg=no\\nStorage=volatile\\nRuntimeMaxUse=16M\\n' >/run/systemd/journald.conf.d/x.conf
/lib/systemd/systemd-journald 2>/dev/null & echo $! >"$1/journald.pid"
shift
for _ in $(seq 300); do [ ! -S /run/systemd/journal/stdout ] || break; sleep 0.1; done
exec systemd-cat -t logshipper-agent sh -c '
    JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"' sh "$@"
"""


@pytest.fixture
def log(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Return a function that logs a line like a service whose stderr is the journal."""
    monkeypatch.setattr(service_log, "_JOURNAL", Journal(listener.getsockname()))

    def write(line: str) -> None:
        with stderr(tmp_path / "stderr", monkeypatch, journal=True):
            write_line(line)

    return write


def receive(listener: socket.socket) -> dict[str, str]:
    """Return the fields of a datagram, parsed like journald-native.c."""
    data = listener.recv(1 << 18)
    fields = {}
    while data:
        line, _, rest = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (size,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        assert name.decode() not in fields
        fields[name.decode()] = value.decode()
        data = rest
    return fields


def test_fields(listener: socket.socket, log: Callable[[str], None], tmp_path: Path) -> None:
    log(Notice("ready", Kind.READY))
    log("somebody's fault")
    log(LogLine("it is damaged", Kind.DAMAGED, job="4711", capture="4711@1.ab", user="ann"))
    common = {"SYSLOG_IDENTIFIER": "logshipper-agent"}
    assert receive(listener) == common | {
        "MESSAGE": "ready",
        "PRIORITY": "6",
        "MESSAGE_ID": Kind.READY.value,
    }
    assert receive(listener) == common | {"MESSAGE": "somebody's fault", "PRIORITY": "4"}
    assert receive(listener) == common | {
        "MESSAGE": "it is damaged",
        "PRIORITY": "4",
        "MESSAGE_ID": Kind.DAMAGED.value,
        "LOGSHIPPER_JOB": "4711",
        "LOGSHIPPER_CAPTURE": "4711@1.ab",
        "LOGSHIPPER_USER": "ann",
    }
    assert (tmp_path / "stderr").read_text() == ""


def test_text_of_users_makes_no_field(listener: socket.socket, log: Callable[[str], None]) -> None:
    log(LogLine(HOSTILE, job="1\nLOGSHIPPER_USER=root"))
    fields = receive(listener)
    assert set(fields) == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "LOGSHIPPER_JOB"}
    assert fields["PRIORITY"] == "4"
    assert fields["MESSAGE"] == HOSTILE.replace("\x1b", "�")
    assert fields["LOGSHIPPER_JOB"] == "1�LOGSHIPPER_USER=root"


def test_a_long_line_is_cut(listener: socket.socket, log: Callable[[str], None]) -> None:
    log(LogLine("ä" * 10**6, user="€" * 10**5))
    fields = receive(listener)
    assert fields["MESSAGE"] == "ä" * (MAX_MESSAGE_BYTES // 2) + "…"
    assert fields["LOGSHIPPER_USER"] == "€" * (MAX_FIELD_BYTES // 3) + "…"


def test_a_lone_surrogate_is_no_fault() -> None:
    assert encode({"MESSAGE": "\udc80"}) == b"MESSAGE\n" + struct.pack("<Q", 1) + b"?\n"


def test_nobody_waits_for_a_journal_that_is_full(
    listener: socket.socket, log: Callable[[str], None]
) -> None:
    written = 0
    while not service_log.dropped_count():  # until the socket's buffers are full, at any size
        log(f"line {written}")
        written += 1
    log("one more")
    for number in range(written - 1):
        assert receive(listener)["MESSAGE"] == f"line {number}"
    assert service_log.dropped_count() == 2
    log(LogLine("there is room again", Kind.TAKEN, job="1"))
    gap = receive(listener)
    assert gap == {
        "MESSAGE": "2 messages are missing here: the journal had no room for them",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "logshipper-agent",
    }
    assert receive(listener)["MESSAGE"] == "there is room again"
    log("and now")
    assert receive(listener)["MESSAGE"] == "and now"


def test_a_journal_that_is_gone(
    listener: socket.socket, log: Callable[[str], None], tmp_path: Path
) -> None:
    log(Notice("ready"))
    journal = Path(listener.getsockname())
    listener.close()
    log("nobody listens")
    journal.unlink()
    log("nothing is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as next_listener:
        next_listener.bind(str(journal))
        log("it is there again")
        assert receive(next_listener)["MESSAGE"] == "it is there again"
    assert (tmp_path / "stderr").read_text() == "<4>nobody listens\n<4>nothing is there\n"
    assert service_log.dropped_count() == 0


def test_the_last_words_are_a_line_of_stderr(
    listener: socket.socket, log: Callable[[str], None], tmp_path: Path
) -> None:
    log(LastNotice("stopped"))
    assert (tmp_path / "stderr").read_text() == "<6>stopped\n"
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(1)


def test_fields_stay_where_words_change(
    listener: socket.socket, log: Callable[[str], None]
) -> None:
    now = [0.0]
    throttled = ThrottledLog(log, lambda: now[0])
    for now[0] in (0.0, 1.0, 1000.0):
        throttled.log(LogLine("it is full", Kind.TAKEN, job="7"))
    first, second = receive(listener), receive(listener)
    assert second["MESSAGE"] == "it is full (1 times more since this was said last)"
    assert first | {"MESSAGE": ""} == second | {"MESSAGE": ""}


def test_the_documentation_has_the_kinds() -> None:
    page = (ROOT / "docs" / "agent.md").read_text()
    assert set(re.findall(r"^\| `([0-9a-f]{32})` \|", page, re.MULTILINE)) == {
        kind.value for kind in Kind
    }


@needs_root
def test_in_systemd_journald(tmp_path: Path) -> None:
    """An agent logs to the journal while its Loki is away."""
    if not JOURNALD.exists():
        pytest.skip("systemd-journald isn't installed")
    agent = NodeAgent(tmp_path / "node", "http://127.0.0.1:9", cluster="c")
    by = ["unshare", "--mount", "sh", "-c", SCRIPT, "sh", str(tmp_path)]
    try:
        with agent.start(wait=False, by=[*by, sys.executable, "-m", "logshipper_ingest"]):
            wait_until(agent.socket.exists, f"the agent is ready: {agent.log.read_text()}")
            agent.run("echo", "one")
            wait_until(lambda: away_of(tmp_path), "the log says that Loki is away")
            (capture,) = agent.captures()
            identity = json.loads((capture / "identity.json").read_text())
            shutil.rmtree(capture)
            of_capture = f"LOGSHIPPER_CAPTURE={capture.name}"
            wait_until(lambda: messages(tmp_path, of_capture), "the log says that it was removed")
            assert agent.stop() == 0
        wait_until(lambda: messages(tmp_path, "MESSAGE=stopped"), "its last words are there")
    finally:
        os.kill(int((tmp_path / "journald.pid").read_text()), signal.SIGTERM)
    (ready,) = messages(tmp_path, f"MESSAGE_ID={Kind.READY.value}")
    assert ready["MESSAGE"].startswith("ready: ")
    assert (ready["PRIORITY"], ready["_TRANSPORT"]) == ("6", "journal")
    away = away_of(tmp_path)[0]
    assert (away["PRIORITY"], away["LOGSHIPPER_SINK"]) == ("4", "loki")
    (removed,) = messages(tmp_path, of_capture)
    assert removed["MESSAGE"].endswith("somebody removed it from the spool")
    assert removed["LOGSHIPPER_JOB"] == identity["job_id"]
    (stopped,) = messages(tmp_path, "MESSAGE=stopped")
    assert (stopped["PRIORITY"], stopped["_TRANSPORT"]) == ("6", "stdout")
    assert stopped["_PID"] == ready["_PID"]
    everything = messages(tmp_path, "SYSLOG_IDENTIFIER=logshipper-agent")
    assert [entry for entry in everything if entry["MESSAGE"].startswith(("<", "20"))] == []


def away_of(folder: Path) -> list[dict[str, str]]:
    return messages(folder, f"MESSAGE_ID={Kind.SINK_AWAY.value}")


def messages(folder: Path, match: str) -> list[dict[str, str]]:
    (place,) = (folder / "journal").iterdir()
    command = ["journalctl", "--quiet", f"--directory={place}", "--output=json", match]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECS)
    return [json.loads(line) for line in done.stdout.splitlines()]
