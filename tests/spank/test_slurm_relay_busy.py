"""Busy nodes and small limits: a late Python loses no lines, and the helpers use none of the user's
resources (tests/tools/fakes/slurm_player.py plays slurmstepd)."""

import contextlib
import fcntl
import math
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from logshipper.spool.captures import NOT_CAPTURED
from tests.slurm.tools import gate
from tests.spank.test_slurm_channel import compiled
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.slurm_player import (
    RELAY,
    SIDECAR,
    Node,
    late_python,
    node,
    python,
    resident_bytes,
)
from tests.tools.waiting import scaled

__all__ = ["node"]  # a fixture

MOST_STALL_SECS = 5
STRANGER = 4_054_321  # a uid without other processes
# The limit allows three processes: the task itself and two more. The process that looked at
# ~/.logoptin counts until init reaps it.
LIMITED = f"""
import os, resource, time
resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))
def fork():
    deadline = time.monotonic() + {scaled(20)}
    while True:
        try: return os.fork()
        except BlockingIOError:
            if time.monotonic() > deadline: raise
            time.sleep(0.02)
for _ in range(2):
    if fork() == 0: os.read(0, 1); os._exit(0)
print('both')
"""


# ---- late Python


def test_who_keeps_nobody_waiting_is_not_given_up(node: Node) -> None:
    """The side pipe is full, but the relay's own buffer is not. The job continues, regardless of
    Python's delay."""
    setting, go = late_python(node)
    # also Python's time to begin once it runs; the test always waits for longer than that
    stall_secs = math.ceil(min(scaled(1), MOST_STALL_SECS))
    node.script(
        "prints",
        f"head -c 1100000 /dev/zero | tr '\\0' x; echo; sleep {2 * stall_secs + 1}; echo end",
    )
    played = node.run(
        str(node.folder / "prints"), settings=(setting, f"stall_secs={stall_secs}", "drain_secs=0")
    )
    assert len(played.out) == 1_100_005
    go.touch()
    [logged] = node.logged()
    assert (len(logged.lines()[0]), logged.lines()[1:], played.messages()) == (
        1_100_000,
        [b"end"],
        "",
    )


def test_end_does_not_wait_for_python(node: Node, tmp_path: Path) -> None:
    """The job's last output in its terminal has no room. It delays the step's end by at most
    drain_secs."""
    setting, go = late_python(node)
    settings = (setting, "stall_secs=60", "drain_secs=3")
    with (tmp_path / "slurm.out").open("wb") as file:
        played = node.start("head", "-c", "9000000", "/dev/zero", settings=settings, stdout=file)
    wait_until(lambda: relayed(node) >= 1_000_000, "the side pipe is full")
    [task] = (
        Path(f"/proc/{played.process.pid}/task/{played.process.pid}/children").read_text().split()
    )
    wait_until(lambda: is_waiting(int(task)), "the task waits for the relay")
    os.kill(int(task), signal.SIGKILL)
    played.finish()
    assert int(played.reports("drained")[0][1]) < 4_000_000
    assert (tmp_path / "slurm.out").stat().st_size == relayed(node)
    go.touch()


def is_waiting(pid: int) -> bool:
    """Return whether a writer sleeps at each of several checks."""
    states = set()
    for _ in range(20):
        states.add(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        time.sleep(0.01)
    return states == {"S"}


def relayed(node: Node) -> int:
    """Return the bytes of stdout that relays have read."""
    counts = [path.read_bytes() for path in node.spool.glob("*@*/segments/counters")]
    return sum(int.from_bytes(count[16:24], "little") for count in counts)


@needs_root
@pytest.mark.parametrize(("tasks", "kib"), [(16, 1024), (100, 256)])
def test_size_of_side_pipes(node: Node, binaries: Path, tasks: int, kib: int) -> None:
    """The kernel does not charge the pipes to the user, otherwise it would refuse the 65th of this
    size. All together have a cap."""
    node.keeper = binaries / "logshipper-keeper"  # the sanitizers' build takes too much memory
    node.python = Path("/bin/cat")  # any program: it only has to be visible
    setting, go = late_python(node)
    played = node.start(
        "sh",
        "-c",
        f"until [ -e {go} ]; do sleep 1; done",
        words=(f"tasks={tasks}",),
        settings=(setting,),
    )
    relays = node.process(RELAY, tasks)
    wait_until(lambda: len(played.reports("begin")) == tasks, "all have begun")
    assert {max(pipe_sizes(relay)) for relay in relays} == {kib << 10}
    go.touch()
    played.finish()


def pipe_sizes(pid: int) -> list[int]:
    """Return the sizes of a relay's pipes in bytes; it may close files meanwhile."""
    sizes = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path).startswith("pipe:"):
                fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                sizes.append(fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ))
                os.close(fd)
    return sizes


# ---- the user's processes


def may_have_namespaces() -> bool:
    release = tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])
    return (
        release >= (5, 14)
        and subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode == 0
    )


@needs_root
def test_small_limit_of_processes(node: Node) -> None:
    """Relay and sidecar do not count against the limit."""
    if not may_have_namespaces():
        gate.lacking("no user namespaces here, or Linux before 5.14")
    node.home.chmod(0o755)
    words = (f"uid={STRANGER}", f"gid={STRANGER}")
    played = node.start(*python(LIMITED), words=words, stdin=subprocess.PIPE)
    wait_until(lambda: node.processes(SIDECAR), "the sidecar has begun")
    played.finish(b"")
    assert (played.code, played.out, played.err, played.captured(), played.messages()) == (
        0,
        b"both\n",
        b"",
        [True],
        "",
    )
    [logged] = node.logged()
    assert logged.lines() == [b"both"]
    assert (logged.path / "segments" / "counters").stat().st_uid == STRANGER


@needs_root
def test_helpers_have_no_capabilities(node: Node) -> None:
    """They also have none in their own namespace, which all helpers of a step share."""
    played = node.start("cat", words=("tasks=3",), stdin=subprocess.PIPE)
    pids = node.process(RELAY, 3) + node.process(SIDECAR, 3)
    for pid in pids:
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
        assert status["Uid"].split() == [str(node.uid)] * 4
        assert (status["NoNewPrivs"], status["Groups"].strip()) == ("1", "")
    assert len({os.readlink(f"/proc/{pid}/ns/user") for pid in pids}) == 1
    played.finish(b"")
    assert [capture.lines() for capture in node.logged(3)] == [[]] * 3


# ---- many tasks


def test_64_tasks_at_once(node: Node, binaries: Path) -> None:
    """Each task has its own complete capture, and a relay needs little memory."""
    node.keeper = binaries / "logshipper-keeper"  # the installed build: sanitizers need more memory
    go = node.folder / "go"
    code = "for i in 1 2 3 4 5; do echo $PLAY_TASK $i; done; while [ ! -e $0 ]; do sleep 0.2; done; echo end"
    out = node.folder / "out"  # a pipe without a reader would block a task
    with out.open("wb") as file:
        played = node.start(
            "sh",
            "-c",
            code,
            str(go),
            words=("tasks=64",),
            settings=("stall_secs=600",),
            stdout=file,
        )
    # After a job's end, a sidecar has 2 min to begin. On a busy machine that is too short for 64
    # sidecars.
    try:
        wait_until(
            lambda: [len(capture.lines()) for capture in node.readable()] == [5] * 64,
            "all sidecars have begun",
        )
        resident = max(resident_bytes(pid) for pid in node.process(RELAY, 64))
    finally:
        go.touch()  # else the tasks would wait for ever
    played.finish()
    assert played.captured() == [True] * 64
    assert sorted(out.read_bytes().split(b"\n")) == sorted(
        [b"%d %d" % (task, n) for task in range(64) for n in range(1, 6)] + [b"end"] * 64 + [b""]
    )
    logged = node.logged(64)
    for task, capture in enumerate(logged):
        assert capture.lines() == [b"%d %d" % (task, n) for n in range(1, 6)] + [b"end"], (
            played.messages()
        )
    assert resident < 2 << 20, resident


# ---- late relay


def test_task_that_went_on_without_its_relay(node: Node, binaries: Path) -> None:
    """The task keeps its own output. The log reports this and the task's end, without lines."""
    hold = binaries / "test" / "faults" / "relay_made.wait"
    hold.touch()
    try:
        played = node.start("sh", "-c", "echo mine; exit 3", words=("tasks=2", "start_secs=1"))
        wait_until(lambda: len(played.reports("begin")) == 2, "both tasks have begun")
    finally:
        hold.unlink()
    played.finish()
    assert (played.out, played.captured(), played.code) == (b"mine\n" * 2, [False] * 2, 3)
    for logged in node.logged(2):
        [event] = [event for event in logged.records("event") if event["event"] == NOT_CAPTURED]
        assert event["message"] == "not captured: node too busy"
        assert logged.lines() == []
        assert logged.records("end")[0]["exit_code"] == 3
    assert played.messages().count("not captured: the node was too busy") == 2


PATIENCE = """
#include "task.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    (void)argc;
    printf("%u\\n", task_patience_secs((unsigned)atoi(argv[1]), argv[2], atol(argv[3])));
    return 0;
}
"""


@pytest.fixture(scope="module")
def patience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = ("task.c", "basics.c", "wire.c", "ends.c", "optin.c")
    return compiled(tmp_path_factory.mktemp("patience"), "patience", PATIENCE, parts=parts)


@pytest.mark.parametrize(
    ("load", "cores", "secs"),
    [
        ("0.05 0.10 0.20 1/300 4711\n", 8, 10),
        ("8.00 4.00 2.00 8/300 4711\n", 8, 10),
        ("12.00 4.00 2.00 3/300 4711\n", 8, 15),
        ("1.00 0.50 0.20 24/300 4711\n", 8, 30),  # the node has just become busy
        ("99999.99 1.00 1.00 2/300 4711\n", 2, 60),
        ("", 8, 10),
        ("nothing of this kind", 8, 10),
        ("8.00 4.00 2.00 8/300 4711\n", 0, 10),
    ],
)
def test_how_long_a_task_waits(patience: Path, load: str, cores: int, secs: int) -> None:
    done = subprocess.run([patience, "10", load, str(cores)], capture_output=True, check=True)
    assert int(done.stdout) == secs
