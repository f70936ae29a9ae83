"""The job survives the death or hang of sidecar, relay and keeper at any point
(tests/tools/fakes/slurm_player.py plays slurmstepd)."""

import contextlib
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.spool.captures import COUNTERS_BYTES
from logshipper.spool.segment import Stream
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.slurm_player import (
    KEEPER,
    RELAY,
    SIDECAR,
    Node,
    Played,
    late_python,
    node,
    python,
)
from tests.tools.waiting import scaled

__all__ = ["node"]  # a fixture

# Prints on both streams, waits for a line on its stdin, and prints again.
WAITING = """
import os, sys
print('before', flush=True)
os.write(2, b'err before\\n')
while os.read(0, 1) not in (b'\\n', b''): pass
for n in range(5000): print('after', n)
os.write(2, b'err after\\n')
sys.exit(7)
"""
AFTER = [b"before"] + [b"after %d" % n for n in range(5000)]
AFTER_BYTES = b"".join(line + b"\n" for line in AFTER)
ERR_BYTES = b"err before\nerr after\n"


def start_waiting(node: Node, *settings: str) -> Played:
    """Start WAITING, and return it after its first line."""
    played = node.start(*python(WAITING), settings=settings, stdin=subprocess.PIPE)
    assert played.process.stdout is not None
    assert played.process.stdout.readline() == b"before\n"
    return played


def finish_waiting(played: Played) -> None:
    """Finish WAITING. Assert that it ends as without capture, with every byte in its place."""
    played.finish(b"\n")
    assert (played.code, b"before\n" + played.out, played.err) == (7, AFTER_BYTES, ERR_BYTES)


# ---- deaths that leave the job intact


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
def test_sidecar_is_killed(node: Node, content: bytes) -> None:
    node.opt_in(content)
    played = start_waiting(node)
    [pid] = node.process(SIDECAR)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not node.processes(SIDECAR), "the sidecar dies, while the task runs")
    finish_waiting(played)
    wait_until(lambda: not node.processes(KEEPER), "the keeper ends")
    [logged] = node.readable()
    assert logged.counters is not None
    assert logged.counters.printed == {"stdout": len(AFTER_BYTES), "stderr": len(ERR_BYTES)}
    assert (
        "output is missing from the log, as the logging process was killed by signal 9"
        in played.messages()
    )


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
def test_relay_is_killed(node: Node, content: bytes) -> None:
    """The sidecar takes over without EIO, lost bytes or lost lines."""
    node.opt_in(content)
    played = start_waiting(node)
    wait_until(
        lambda: any(b"before" in capture.lines() for capture in node.readable()),
        "the sidecar has begun",
    )
    [pid] = node.process(RELAY)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not node.processes(RELAY), "the relay is dead")
    finish_waiting(played)
    [logged] = node.logged()
    assert logged.lines() == AFTER
    assert logged.lines(Stream.STDERR) == [b"err before", b"err after"]
    assert "the relay was killed by signal 9; the sidecar relays on" in played.messages()
    assert logged.records("end")[-1]["ledger"]["stdout"]["lost"] == 0


def test_relay_is_killed_before_python_runs(node: Node) -> None:
    """The streams wait for the sidecar in a socket, which keeps them open."""
    setting, go = late_python(node)
    played = start_waiting(node, setting)
    [pid] = node.process(RELAY)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not node.processes(RELAY), "the relay is dead")
    go.touch()
    finish_waiting(played)
    [logged] = node.logged()
    assert logged.lines() == AFTER


@pytest.mark.parametrize("state", ["not begun", "begun"])
@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_asked_to_end(node: Node, state: str, signo: int) -> None:
    """systemd sends such signals when it stops slurmstepd's scope. All helpers end with the task,
    after they have written its log."""
    setting, go = late_python(node)
    sidecar = SIDECAR if state == "begun" else Path(setting.partition("=")[2]).name
    played = start_waiting(node, *([setting] if state == "not begun" else []))
    wait_until(lambda: bool(node.processes(sidecar)), "its process is there")
    for name in (KEEPER, RELAY, sidecar):
        for pid in node.process(name):
            os.kill(pid, signo)
    go.touch()
    finish_waiting(played)
    [logged] = node.logged()
    assert logged.lines() == AFTER
    assert logged.lines(Stream.STDERR) == [b"err before", b"err after"]
    assert logged.ledger()["stdout"]["lost"] == 0


FLOOD = 200_000  # numbered lines, 1.3 MB: more than pipes and terminals hold
FLOOD_LINES = [b"%d" % n for n in range(1, FLOOD + 1)]
FLOOD_BYTES = b"".join(line + b"\n" for line in FLOOD_LINES)
LONG_FLOOD = 1_000_000  # 6.9 MB: more than a relay takes before its sidecar reads


def relayed(node: Node) -> int:
    """Return the bytes of both streams that the newest capture's relay has read."""
    for path in node.spool.glob("*@*/segments/counters"):
        if len(counts := path.read_bytes()) == COUNTERS_BYTES:
            return sum(struct.unpack_from("<QxxxxxxxxQ", counts, 16))
    return 0


def once_told(node: Node, code: str) -> str:
    """Return a script that delays `code` until the test knows its relay. Without the delay, it
    might end within milliseconds."""
    return f"while [ ! -e {node.folder}/begin ]; do sleep 0.01; done; {code}"


def kill_relay(node: Node, after: int) -> None:
    """Release a `once_told` task. Kill its relay after it has read `after` bytes."""
    [pid] = node.process(RELAY)
    (node.folder / "begin").touch()
    deadline = time.monotonic() + scaled(60)
    while relayed(node) < after:  # without a pause, which could outlast the task
        assert time.monotonic() < deadline, f"the relay hasn't read {after} bytes"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not node.processes(RELAY), "the relay is dead")
    (node.folder / "begin").unlink()


@contextlib.contextmanager
def own_output(kind: str, path: Path) -> Iterator[int]:
    """Yield a task's output: a file, a file opened for appending, or a pipe. The pipe's reader
    writes to the file."""
    if kind != "pipe":
        path.write_bytes(b"" if kind == "file" else b"before\n")
        with path.open("r+b" if kind == "file" else "ab") as file:
            yield file.fileno()
        return
    with (
        path.open("wb") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as reader,
    ):
        assert reader.stdin is not None
        yield reader.stdin.fileno()
        reader.stdin.close()


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
@pytest.mark.parametrize("kind", ["file", "append", "pipe"])
def test_relay_is_killed_in_a_flood(node: Node, binaries: Path, kind: str, content: bytes) -> None:
    """At any moment, the task's own output and the log keep every byte and line exactly once."""
    # the installed build, because sanitizers change the timing
    node.keeper = binaries / "logshipper-keeper"
    node.opt_in(content)
    rng = random.Random(f"{kind} {content!r}")
    path = node.folder / "own"
    for job in range(1, 6):
        with own_output(kind, path) as out:
            task = once_told(node, f"seq {FLOOD}; exit 7")
            played = node.start("sh", "-c", task, stdout=out, words=(f"job={job}",))
            kill_relay(node, rng.randrange(FLOOD))
            assert played.finish().code == 7
        [logged] = node.logged()
        output = path.read_bytes()
        assert output == (b"before\n" if kind == "append" else b"") + FLOOD_BYTES
        assert logged.lines() == FLOOD_LINES
        assert logged.ledger()["stdout"]["lost"] == 0
        assert logged.counters is not None
        assert (logged.counters.printed["stdout"], logged.counters.feeds["stdout"]) == (
            len(FLOOD_BYTES),
            FLOOD,
        )
        shutil.rmtree(logged.path)


def test_relay_is_killed_between_streams_that_are_one_file(node: Node, binaries: Path) -> None:
    """sbatch sends both streams to one file. It has each stream's bytes once and in order: one
    stream prints digits, the other letters."""
    node.keeper = binaries / "logshipper-keeper"
    path = node.folder / "own"
    digits = b"".join(FLOOD_LINES[:60000])
    letters = digits.translate(bytes.maketrans(b"0123456789", b"abcdefghij"))
    for job, after in enumerate([100_000, 300_000, 500_000], 1):
        with own_output("file", path) as out:
            code = once_told(node, "seq 60000 & seq 60000 | tr 0-9 a-j >&2; wait")
            played = node.start("sh", "-c", code, stdout=out, stderr=out, words=(f"job={job}",))
            kill_relay(node, after)
            assert played.finish().code == 0
        [logged] = node.logged()
        output = path.read_bytes()
        assert output.translate(None, b"\nabcdefghij") == digits
        assert output.translate(None, b"\n0123456789") == letters
        assert output.count(b"\n") == 120000
        assert (len(logged.lines()), len(logged.lines(Stream.STDERR))) == (60000, 60000)
        shutil.rmtree(logged.path)


def test_relay_is_killed_in_a_flood_before_python_runs(node: Node) -> None:
    """The task's writes wait for the sidecar instead of failing."""
    setting, go = late_python(node)
    with own_output("pipe", node.folder / "own") as out:
        task = once_told(node, f"seq {LONG_FLOOD}; exit 7")
        played = node.start("sh", "-c", task, stdout=out, settings=(setting,))
        kill_relay(node, 100_000)
        assert played.process.poll() is None
        go.touch()
        assert played.finish().code == 7
    [logged] = node.logged()
    lines = [b"%d" % n for n in range(1, LONG_FLOOD + 1)]
    assert (node.folder / "own").read_bytes() == b"".join(line + b"\n" for line in lines)
    assert logged.lines() == lines


def test_keeper_is_killed(node: Node) -> None:
    played = start_waiting(node)
    [pid] = node.process(KEEPER)
    os.kill(pid, signal.SIGKILL)
    finish_waiting(played)
    [logged] = node.logged()
    assert logged.lines() == AFTER


def test_hung_sidecar_is_given_up(node: Node) -> None:
    """A full side pipe slows the job. After some seconds without a read, the relay gives the
    sidecar up, and the job continues. A sidecar that has not begun has three times as long."""
    hangs = node.script("hangs", "exec sleep 1000")
    flood = python("for n in range(100000): print('x' * 40)")
    played = node.run(*flood, settings=(f"python={hangs}", "stall_secs=1", "drain_secs=5"))
    assert (played.code, played.out) == (0, (b"x" * 40 + b"\n") * 100000)
    assert "took nothing for 3 s and was given up" in played.messages()
    wait_until(lambda: not node.processes(RELAY), "the relay ends")


def test_python_that_fails_is_told_with_its_reason(node: Node) -> None:
    broken = node.script("broken", "echo 'ModuleNotFoundError: no such module' >&2; exit 1")
    played = start_waiting(node, f"python={broken}")
    [pid] = node.process(RELAY)
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: not children.read_text(), "the relay has seen its sidecar's end")
    finish_waiting(played)
    assert (
        "output is missing from the log: ModuleNotFoundError: no such module" in played.messages()
    )


def test_what_is_said_too_late_the_next_step_tells(node: Node) -> None:
    """Python fails after the end of the step, which did not wait for it."""
    go = node.folder / "go"
    code = f"while [ ! -e {go} ]; do sleep 0.02; done; echo 'ModuleNotFoundError: no such module' >&2; exit 1"
    played = node.run("echo", "out", settings=(f"python={node.script('broken', code)}",))
    assert (played.out, played.messages()) == (b"out\n", "")
    go.touch()
    wait_until(lambda: not node.processes(KEEPER), "the keeper ends")
    node.optin.unlink()
    later = [node.run("true", words=(f"job={job}",)).messages() for job in (1, 2)]
    assert later == [
        "job 4711: task 0: output is missing from the log: ModuleNotFoundError: no such module",
        "",
    ]


def test_missing_python_leaves_the_task_untouched(node: Node) -> None:
    played = node.run(
        *python("import os; print(os.isatty(1))"), settings=("python=/nonexistent/python",)
    )
    assert (played.code, played.out, played.captured()) == (0, b"False\n", [False])
    assert "python=/nonexistent/python can't be run" in played.messages()
    assert node.names() == []


def test_missing_keeper_leaves_the_task_untouched(node: Node) -> None:
    node.keeper = Path("/nonexistent/keeper")
    played = node.run("echo", "out")
    assert (played.code, played.out, played.captured()) == (0, b"out\n", [False])


# ---- no wait for a hanging sidecar


END_SECS = scaled(3.0)


def stop_sidecar(node: Node) -> int:
    [pid] = node.process(SIDECAR)
    os.kill(pid, signal.SIGSTOP)
    return pid


def ends_in_time(played: Played, since: float) -> None:
    """Assert that the step ends in time, and readers of its output see its end."""
    played.finish()
    assert time.monotonic() - since < END_SECS


def test_hung_sidecar_and_a_quiet_end(node: Node) -> None:
    """After the sidecar resumes, the log is complete."""
    played = start_waiting(node)
    pid = stop_sidecar(node)
    since = time.monotonic()
    try:
        finish_waiting(played)
        assert time.monotonic() - since < END_SECS
    finally:
        os.kill(pid, signal.SIGCONT)
    assert node.logged()[0].lines() == AFTER


# Prints until no bytes have been read for a while, then ends and reports the number of bytes.
FILLING = """
import os, select, sys, time
os.write(1, b'begun\\n')
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
os.set_blocking(1, False)
room = select.poll()
room.register(1, select.POLLOUT)
written = 0
while room.poll(500): written += os.write(1, bytes(4096))
os.write(2, b'%d' % written)
"""


def test_hung_sidecar_and_a_full_side_pipe(node: Node) -> None:
    """The relay cannot store more for the sidecar and gives it up at the end. The remaining bytes
    of the pipes still arrive."""
    go = node.folder / "go"
    node.opt_in(b"tty: false\n")
    with own_output("pipe", node.folder / "own") as out:
        played = node.start(
            *python(FILLING), str(go), stdout=out, settings=("stall_secs=20", "drain_secs=10")
        )
        wait_until(
            lambda: any(b"begun" in capture.lines() for capture in node.readable()),
            "the sidecar has begun",
        )
        stop_sidecar(node)
        go.touch()
        wait_until(lambda: played.reports("exit"), "the task has ended")
        ends_in_time(played, time.monotonic())
    assert int(played.err) > 1 << 20
    assert (node.folder / "own").read_bytes() == b"begun\n" + bytes(int(played.err))
    wait_until(lambda: not node.processes(SIDECAR), "it is given up")


@pytest.mark.parametrize("state", ["hung", "not begun"])
def test_hung_sidecar_and_what_the_task_left_behind(node: Node, state: str) -> None:
    """A remaining background process ends, and readers of the output see that at once. After the
    sidecar resumes, the log is complete."""
    later = node.folder / "later"
    setting, go = late_python(node)
    code = f"echo now; (while [ ! -e {later} ]; do sleep 0.02; done; echo later) &"
    settings = (setting,) if state == "not begun" else ()
    node.optin.touch()
    played = node.start("sh", "-c", f"sleep 0.01; while [ ! -e {node.folder / 'end'} ]; do sleep 0.02; done; {code}",
                        settings=settings)  # fmt: skip
    pid = 0
    if state == "hung":
        wait_until(
            lambda: any(capture.records("start") for capture in node.readable()),
            "the sidecar has begun",
        )
        pid = stop_sidecar(node)
    (node.folder / "end").touch()
    wait_until(lambda: played.reports("drained"), "the task has ended")
    later.touch()
    ends_in_time(played, time.monotonic())
    assert played.out == b"now\nlater\n"
    if state == "hung":
        os.kill(pid, signal.SIGCONT)
    go.touch()
    assert node.logged()[0].lines() == [b"now", b"later"]
