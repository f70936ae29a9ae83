"""Spool limits of jobs and users, and a full disk: the agent reports and counts the losses, and the
job runs on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logshipper.spool.segment import Stream
from logshipper.spool.spool_room import (
    LIMITS_BYTES,
    LIMITS_FILE,
    SpoolMarks,
    SpoolRoom,
    parse_marks,
)
from logshipper_ingest.agent.spool_limits import SpoolLimits
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.small_disk import fill, small_disk
from tests.tools.stores.node_agents import NodeAgent, Proxy, entries_of
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns

MB = 1_000_000
LIMITS = AgentSection(
    job_spool_soft_max_bytes=2 * MB,
    job_spool_hard_max_bytes=4 * MB,
    user_spool_soft_max_bytes=3 * MB,
    user_spool_hard_max_bytes=6 * MB,
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def grown(capture: NodeCapture, size: int) -> NodeCapture:
    """Return the capture with segments of about size bytes."""
    with capture.segment.open("ab") as file:
        file.truncate(size)
    return capture


def marks_of(capture: NodeCapture) -> SpoolMarks:
    marks = parse_marks((capture.path / LIMITS_FILE).read_bytes())
    assert marks is not None
    return marks


# ---- the agent's marks


def test_a_capture_alone_has_its_job_s_limits(node: ShippingNode) -> None:
    capture = node.capture("job1", soon_ns())
    SpoolLimits(LIMITS, node.messages.append).turn(node.follow())
    marks = marks_of(capture)
    assert (marks.slow_at, marks.stop_at, marks.scope) == (2 * MB, 4 * MB, "job")
    file_stat = (capture.path / LIMITS_FILE).stat()
    assert (file_stat.st_uid, file_stat.st_mode & 0o777, file_stat.st_size) == (
        os.geteuid(),
        0o644,
        LIMITS_BYTES,
    )


def test_what_others_of_the_job_and_the_user_have_is_taken_off(node: ShippingNode) -> None:
    first = grown(node.capture("job1", soon_ns(), task=0), MB)
    two = grown(node.capture("job1", soon_ns(), task=1), MB // 2)
    second = grown(node.capture("job2", soon_ns()), MB // 4)
    stranger = node.capture("job3", soon_ns(), uid=12345, gid=12345) if os.geteuid() == 0 else None
    SpoolLimits(LIMITS, node.messages.append).turn(node.follow())
    assert (marks_of(first).slow_at, marks_of(first).stop_at) == (
        2 * MB - MB // 2,
        4 * MB - MB // 2,
    )
    assert (marks_of(two).slow_at, marks_of(two).stop_at) == (MB, 3 * MB)
    marks = marks_of(second)
    assert (marks.slow_at, marks.stop_at, marks.scope) == (MB + MB // 2, 4 * MB, "user")
    if stranger is not None:
        assert marks_of(stranger).stop_at == 4 * MB


def test_limits_that_are_passed_stop_all_captures_they_are_of(node: ShippingNode) -> None:
    flood = grown(node.capture("job1", soon_ns()), 7 * MB)
    quiet = grown(node.capture("job2", soon_ns()), 100)
    limits = SpoolLimits(LIMITS, node.messages.append)
    limits.turn(node.follow())
    assert (limits.slow, limits.stopped) == (0, 2)
    assert marks_of(quiet).scope == "user"
    grown(flood, 5 * MB)
    limits.turn(node.follow())
    assert (limits.slow, limits.stopped) == (1, 1), "the user's soft limit, and the job's hard one"


def test_marks_are_written_when_they_tell_something_new(node: ShippingNode) -> None:
    captures = [node.capture(f"job{number}", soon_ns()) for number in range(3)]
    limits = SpoolLimits(replace(LIMITS, user_spool_hard_max_bytes=0), node.messages.append)
    limits.turn(node.follow())
    file = captures[0].path / LIMITS_FILE
    before = file.stat().st_mtime_ns
    os.utime(file, ns=(1, 1))
    grown(captures[1], 10_000)
    limits.turn(node.follow())
    assert file.stat().st_mtime_ns == 1 < before
    grown(captures[1], MB + MB // 2)
    limits.turn(node.follow())
    assert file.stat().st_mtime_ns != 1


def test_no_limits_are_no_limits(node: ShippingNode) -> None:
    capture = grown(node.capture("job1", soon_ns()), 7 * MB)
    none = replace(LIMITS, job_spool_soft_max_bytes=0, job_spool_hard_max_bytes=0)
    none = replace(none, user_spool_soft_max_bytes=0, user_spool_hard_max_bytes=0)
    SpoolLimits(none, node.messages.append).turn(node.follow())
    assert (marks_of(capture).slow_at, marks_of(capture).stop_at) == (0, 0)


# ---- the sidecar's reaction


@pytest.mark.parametrize(
    "data",
    [b"", b"1", b"2 1 1 job\n", b"1 -1 5 job\n", b"1 x y job\n", b"\xff" * 64, b"1 1 1 job more\n"],
)
def test_marks_that_are_none(data: bytes) -> None:
    assert parse_marks(data) is None


def room(folder: Path, marks: SpoolMarks | None = None) -> SpoolRoom:
    (folder / "segments").mkdir(exist_ok=True)
    if marks is not None:
        (folder / LIMITS_FILE).write_bytes(marks.encode())
    return SpoolRoom(str(folder))


def test_marks_slow_then_stop_and_let_go_with_a_tenth_more_room(tmp_path: Path) -> None:
    spool_room = room(tmp_path, SpoolMarks(1000, 2000, "user"))
    states = []
    for second, size in enumerate((999, 1000, 950, 1500, 2000, 1900, 1850, 1799, 901, 899)):
        changed = spool_room.look(float(second), lambda size=size: size)  # type: ignore[misc]
        states.append((size, spool_room.slow, len(spool_room.left_out), changed))
    assert states == [
        (999, False, 0, False),
        (1000, True, 0, True),
        (950, True, 0, False),
        (1500, True, 0, False),
        (2000, False, 2, True),
        (1900, False, 2, False),
        (1850, False, 2, False),
        (1799, True, 0, True),
        (901, True, 0, False),
        (899, False, 0, True),
    ]
    assert not spool_room.look(9.4, lambda: 5000), "not each time"


@pytest.mark.parametrize(
    ("whole", "free", "left_out"),
    [
        (1 << 40, 65 << 20, set()),
        (1 << 40, 63 << 20, {Stream.STDERR}),
        (1 << 40, 31 << 20, {Stream.STDERR, Stream.STDOUT}),
        (1 << 20, 60_000, set()),
        (1 << 20, 50_000, {Stream.STDERR}),
        (1 << 20, 25_000, {Stream.STDERR, Stream.STDOUT}),
    ],
)
def test_a_disk_that_is_nearly_full_leaves_out_stderr_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int, free: int, left_out: set[Stream]
) -> None:
    statvfs = SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=whole)
    monkeypatch.setattr(os, "statvfs", lambda path: statvfs)
    spool_room = room(tmp_path)
    spool_room.look(0.0, lambda: 0)
    assert spool_room.left_out == left_out


# ---- whole runs, with an agent and a real Loki


def away(number: int) -> tuple[int, Mapping[str, str], bytes]:
    return 503, {}, b"away"


def texts(entries: list[Entry], **metadata: str) -> list[str]:
    return [entry.line for entry in entries if metadata.items() <= entry.metadata.items()]


def events_of(client: LokiClient, cluster: str) -> dict[str, dict[str, Any]]:  # Any: JSON
    """Return the last event of each type."""
    events = [json.loads(entry.line) for entry in entries_of(client, cluster, "event")]
    return {event["event"]: event for event in events}


FLOOD = """
import json, sys, time
for n in range(160):
    print(*["%06d %03d %s" % (n, i, "x" * 90) for i in range(500)], sep="\\n")
    print(json.dumps({"n": n}), flush=True)
    time.sleep(0.02)
"""


def test_a_job_that_spools_too_much_is_slowed_then_its_lines_stop_and_all_is_told(
    loki: LokiServer, tmp_path: Path
) -> None:
    limits = {"job_spool_soft_max_bytes": 1 * MB, "job_spool_hard_max_bytes": 3 * MB}
    with Proxy(loki.url) as proxy, LokiClient(loki.url) as client:
        proxy.answer = away
        with NodeAgent(tmp_path, proxy.url, cluster="limits", agent=limits) as agent:
            done = agent.run("python3", "-c", FLOOD)
            assert done.returncode == 0
            assert done.stdout.count(b"\n") == 160 * 501, "the job's own output is whole"
            spooled = sum(path.stat().st_size for path in agent.spool.glob("*/segments/*.seg"))
            proxy.answer = lambda _: None
            agent.wait_shipped(60)
            events = events_of(client, "limits")
            records = [
                json.loads(line)["n"] for line in texts(entries_of(client, "limits", "metadata"))
            ]
            lines = entries_of(client, "limits", "log")
    assert spooled < 8 * MB
    assert records == list(range(160)), "metadata goes on"
    ended = events["closed"]
    ledger = ended["ledger"]["stdout"]
    assert ended["state"] == "COMPLETED"
    assert ended["slowed_secs"] >= 1
    assert ledger["lost"] == ended["lost"] == events["lines_lost"]["lines"] > 0
    assert (
        ledger["read"]
        == 160 * 501
        == sum(ledger[name] for name in ("stored", "lost", "collapsed", "blank"))
    )
    assert len(lines) + len(records) - len(texts(lines, note="1")) == ledger["stored"]
    notes = texts(lines, note="1")
    assert any(
        note.startswith("[output is taken at 1 MiB/s at most from here on: this job's logs")
        for note in notes
    )
    assert any(
        note.startswith("[log lines of stdout and stderr are left out from here on: this job")
        for note in notes
    )
    assert any(note.endswith(" lines lost here: this job's logs fill what a job may have of the node's spool]")
               for note in notes)  # fmt: skip


DISK = """
import json, os, sys, time
n = 0
def both():
    global n
    n += 1
    print("%06d %s" % (n, os.urandom(1000).hex()))
    print("%06d %s" % (n, os.urandom(1000).hex()), file=sys.stderr)
    print(json.dumps({"n": n}), flush=True)
    time.sleep(0.005)
while not os.path.exists(sys.argv[1]):
    both()
while time.time() < os.stat(sys.argv[1]).st_mtime + 2:
    both()
print("last")
print("last", file=sys.stderr)
"""


@needs_root
def test_a_full_spool_costs_stderr_first_metadata_last_and_fixes_itself(
    loki: LokiServer, tmp_path: Path
) -> None:
    release = tmp_path / "release"
    with (
        small_disk(tmp_path / "spool", 64 << 20, 0o711) as disk,
        Proxy(loki.url) as proxy,
        LokiClient(loki.url) as client,
    ):
        proxy.answer = away
        with NodeAgent(tmp_path, proxy.url, cluster="disk") as agent:
            filler = fill(disk, 5 << 20)
            command = [
                sys.executable,
                "-m",
                "logshipper",
                "run",
                "--",
                "python3",
                "-c",
                DISK,
                str(release),
            ]
            nowhere = subprocess.DEVNULL
            process = subprocess.Popen(
                command, env=agent.environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
            )
            wait_until(
                lambda: b"stdout and stderr are left out" in spooled_bytes(agent),
                "both streams stop",
                60,
            )
            filler.unlink()
            release.touch()
            assert process.wait(60) == 0
            proxy.answer = lambda _: None
            agent.wait_shipped(60)
            events = events_of(client, "disk")
            records = [
                json.loads(line)["n"] for line in texts(entries_of(client, "disk", "metadata"))
            ]
            lines = entries_of(client, "disk", "log")
    out, err = (
        [entry.line for entry in lines if entry.labels["stream"] == name]
        for name in ("stdout", "stderr")
    )
    assert records == list(range(1, len(records) + 1)), "metadata goes on"
    assert out[-1] == err[-1] == "last", "there is room again"
    gaps = {name: first_missing(lines) for name, lines in (("stdout", out), ("stderr", err))}
    assert gaps["stderr"] < gaps["stdout"], "stderr first"
    lost = " lines lost here: no room left there: the spool's disk is full]"
    assert all(any(text.endswith(lost) for text in of_stream) for of_stream in (out, err))
    for stream in ("stdout", "stderr"):
        ledger = events["closed"]["ledger"][stream]
        assert ledger["lost"] > 0
        assert (
            ledger["read"]
            == ledger["stored"] + ledger["lost"] + ledger["collapsed"] + ledger["blank"]
        )


def spooled_bytes(agent: NodeAgent) -> bytes:
    return b"".join(path.read_bytes()[-200_000:] for path in agent.spool.glob("*/segments/*.seg"))


def first_missing(lines: list[str]) -> int:
    numbers = {int(line[:6]) for line in lines if line[:6].isdigit()}
    return next(number for number in range(1, max(numbers) + 2) if number not in numbers)


@needs_root
def test_a_full_disk_of_checkpoints_holds_and_nothing_is_sent_twice(
    loki: LokiServer, tmp_path: Path
) -> None:
    with (
        small_disk(tmp_path / "state", 4 << 20, 0o700) as disk,
        Proxy(loki.url) as proxy,
        LokiClient(loki.url) as client,
        NodeAgent(tmp_path, proxy.url, cluster="checkpoints") as agent,
    ):
        filler = fill(disk, 0)
        assert agent.run("seq", "3000").returncode == 0
        wait_until(lambda: "no room left on the disk" in agent.log.read_text(), "it says so", 60)
        failure_count = agent.log.read_text().count("shipping failed")
        assert agent.run("true").returncode == 0, "jobs go on"
        assert len(agent.captures()) == 2, "nothing is given up that no checkpoint holds"
        filler.unlink()
        agent.wait_shipped(60)
        assert agent.log.read_text().count("shipping failed") <= failure_count + 1, "said once"
        lines = [entry.line for entry in entries_of(client, "checkpoints", "log")]
    assert lines == [str(number) for number in range(1, 3001)]
    assert proxy.pushes < 30


@needs_root
def test_an_agent_that_finds_no_room_for_its_checkpoints_says_so_and_starts_once_there_is(
    loki: LokiServer, tmp_path: Path
) -> None:
    agent = NodeAgent(tmp_path, loki.url, cluster="startless")
    with small_disk(tmp_path / "state", 1 << 20, 0o700) as disk:
        filler = fill(disk, 0)
        agent.start(wait=False)
        assert agent.process is not None
        assert agent.process.wait(60) != 0
        (line,) = agent.log.read_text().splitlines()
        assert "agent.lock: no space left on device: free some room there" in line
        filler.unlink()
        with agent.start():
            assert agent.run("echo", "one").returncode == 0
            agent.wait_shipped(60)
