"""Later captures of a job start no wider than its narrowest one on their node (R16), even if the
earlier ones have unread output. tests/tools/fakes/slurm_player.py plays slurmstepd."""

import contextlib
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.slurm_player import RELAY, SIDECAR, Logged, Node, Played, late_python, node

__all__ = ["node"]  # a fixture

COMMAND = '/LOGCOMMAND {"mode":"disabled"}'
ENABLE = '/LOGCOMMAND {"mode":"enabled"}'
PRINT_COMMAND = f"echo first; echo '{COMMAND}'; echo; echo first err >&2"
SLOT_BYTES = 64


def capture_of(node: Node, step: str, captures: int = 2) -> Logged:
    return next(capture for capture in node.logged(captures) if capture.identity["step"] == step)


def inherited(logged: Logged) -> str:
    """Return the reason for a narrower start. Assert that the capture reported it."""
    [event] = logged.records("event")
    assert (event["event"], event["from"], event["to"]) == ("mode_inherited", "enabled", "disabled")
    return str(event["message"])


def stored(logged: Logged) -> bytes:
    return b"".join(path.read_bytes() for path in (logged.path / "segments").iterdir())


def has_started(node: Node, step: str) -> bool:
    """Return whether a step's sidecar has begun to log. Captures without counters are still being
    created."""
    names = [
        name for name in node.names() if (node.spool / name / "segments" / "counters").exists()
    ]
    captures = [Logged(node.spool, name) for name in names]
    return any(
        capture.identity["step"] == step and capture.records("start") for capture in captures
    )


def test_command_that_nobody_has_read(node: Node) -> None:
    """The first step ends before its Python begins. The next step's sidecar waits for it."""
    setting, go = late_python(node)
    node.run("sh", "-c", PRINT_COMMAND, words=("step=0",), settings=(setting,))
    node.run("echo", "a secret", words=("step=1",))
    assert not has_started(node, "1")
    go.touch()
    later = capture_of(node, "1")
    assert later.lines() == []
    assert "no wider" in inherited(later)
    assert b"secret" not in stored(later)
    assert capture_of(node, "0").lines()[:1] == [b"first"]


def test_a_stale_command_opens_no_later_capture(node: Node) -> None:
    """stderr said `enabled` before stdout said `disabled`. The next capture starts disabled in
    either reading order."""
    node.run("sh", "-c", f"echo '{ENABLE}' >&2; echo '{COMMAND}'", words=("step=0",))
    node.run("echo", "a secret", words=("step=1",))
    later = capture_of(node, "1")
    assert later.lines() == []
    assert "no wider" in inherited(later)


def test_nothing_narrows_in_what_nobody_has_read(node: Node) -> None:
    setting, go = late_python(node)
    node.run("sh", "-c", "seq 1000; seq 1000 >&2", words=("step=0",), settings=(setting,))
    node.run("echo", "open", words=("step=1",))
    go.touch()
    later = capture_of(node, "1")
    assert (later.lines(), later.events()) == ([b"open"], [])


@contextlib.contextmanager
def earlier_step(node: Node) -> Iterator[Played]:
    """Yield a step that waits after its sidecar has read a first line. Close its stdin at the
    end."""
    code = "echo first; while read line; do echo $line; done"
    played = node.start("sh", "-c", code, words=("step=0",), stdin=-1, settings=("stall_secs=60",))
    assert played.process.stdin is not None
    assert played.process.stdout is not None
    assert played.process.stdout.readline() == b"first\n"
    wait_until(lambda: has_started(node, "0"), "its sidecar has begun")
    yield played
    played.finish()


def print_line(played: Played, line: str) -> None:
    """Print a line, and wait until the task's own output has it."""
    assert played.process.stdin is not None
    assert played.process.stdout is not None
    played.process.stdin.write(f"{line}\n".encode())
    played.process.stdin.flush()
    assert played.process.stdout.readline() == f"{line}\n".encode()


def test_earlier_sidecar_hangs(node: Node) -> None:
    """The wait is limited. Afterwards the later capture starts narrower and gives the doubt as its
    reason."""
    with earlier_step(node) as first:
        [hung] = node.process(SIDECAR)
        os.kill(hung, signal.SIGSTOP)
        print_line(first, COMMAND)
        began = time.monotonic()
        played = node.run("echo", "a secret", words=("step=1",), settings=("stall_secs=1",))
        assert played.out == b"a secret\n"
        wait_until(lambda: has_started(node, "1"), "the later one doesn't wait for ever", 20.0)
        assert time.monotonic() - began >= 1.0
        os.kill(hung, signal.SIGCONT)
    later = capture_of(node, "1")
    assert later.lines() == []
    assert "isn't read yet" in inherited(later)


def test_flood_is_not_slowed_down_for_long(node: Node) -> None:
    with earlier_step(node) as first:
        [hung] = node.process(SIDECAR)
        os.kill(hung, signal.SIGSTOP)
        print_line(first, COMMAND)
        played = node.run(
            "head", "-c", "4000000", "/dev/zero", words=("step=1",), settings=("stall_secs=600",)
        )
        assert len(played.out) == 4000000
        os.kill(hung, signal.SIGCONT)
    assert "isn't read yet" in inherited(capture_of(node, "1"))


@pytest.mark.parametrize("dead", [SIDECAR, "both"])
def test_earlier_sidecar_is_dead(node: Node, dead: str) -> None:
    """The later capture does not wait. The unread output may have contained a command."""
    until = f"until [ -e {node.folder}/$1 ]; do sleep 0.02; done"
    prints = f"echo '{COMMAND}'; touch {node.home}/printed"
    code = f"wait_for() {{ {until}; }}; echo first; wait_for print; {prints}; wait_for end"
    first = node.start("sh", "-c", code, words=("step=0",), settings=("stall_secs=60",))
    wait_until(lambda: has_started(node, "0"), "its sidecar has begun")
    pids = node.process(SIDECAR)
    os.kill(pids[0], signal.SIGSTOP)
    (node.folder / "print").touch()
    wait_until((node.home / "printed").exists, "it has printed")
    wait_until(lambda: taken_bytes(node) == [38], "its relay has read that")
    pids += node.process(RELAY) if dead == "both" else []
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not node.processes(SIDECAR), "it is dead")
    node.run("echo", "a secret", words=("step=1",), settings=("stall_secs=60",))
    wait_until(lambda: has_started(node, "1"), "nobody is waited for", 20.0)
    (node.folder / "end").touch()
    first.finish()
    later = next(capture for capture in node.readable() if capture.identity["step"] == "1")
    assert "died with some of it unread" in inherited(later)


def slots(node: Node) -> list[tuple[int, ...]]:
    """Return the used slots of the table: begun, taken, obeyed, mode, over."""
    table = (node.spool / ".jobs" / f"4711.{node.uid}.0.modes").read_bytes()[SLOT_BYTES:]
    return [words for words in struct.iter_unpack("<8Q", table) if words[0]]


def taken_bytes(node: Node) -> list[int]:
    return [words[1] for words in slots(node)]


def test_dead_sidecar_that_had_read_all(node: Node) -> None:
    with earlier_step(node):
        [pid] = node.process(SIDECAR)
        wait_until(lambda: [words[3] for words in slots(node)] == [6], "it has obeyed all")
        os.kill(pid, signal.SIGKILL)
        node.run("echo", "open", words=("step=1",))
        wait_until(lambda: has_started(node, "1"), "the later one has begun")
        [later] = [capture for capture in node.readable() if capture.identity["step"] == "1"]
        wait_until(
            lambda: Logged(node.spool, later.name).lines() == [b"open"], "its line is logged"
        )


def test_ranks_that_begin_together_wait_for_nobody(node: Node) -> None:
    """Late Pythons cause no wait because no rank had printed before."""
    setting, go = late_python(node)
    code = "touch $1/begun.$PLAY_TASK; while [ ! -e $1/all ]; do sleep 0.05; done; seq 100"
    played = node.start(
        "sh",
        "-c",
        code,
        "sh",
        str(node.home),
        words=("tasks=16",),
        settings=(setting, "stall_secs=1"),
    )
    wait_until(lambda: len(list(node.home.glob("begun.*"))) == 16, "all have begun")
    (node.home / "all").touch()
    played.finish()
    go.touch()
    for capture in node.logged(16):
        assert (len(capture.lines()), capture.events()) == (100, [])


@needs_root
def test_the_user_cannot_open_the_table(node: Node) -> None:
    """The sidecar, a process of the user, holds it open; a job could let it grow without limit."""
    with earlier_step(node):
        [pid] = node.process(SIDECAR)
        fds = [
            path
            for path in Path(f"/proc/{pid}/fd").iterdir()
            if os.readlink(path).endswith(".modes")
        ]
        assert fds
        for path in fds:
            done = subprocess.run(
                ["sh", "-c", f"echo more >>{path}"],
                user=node.uid,
                group=node.uid,
                extra_groups=(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert "Permission denied" in done.stderr


def test_slots_are_used_again(node: Node) -> None:
    """A job of many steps reuses them, and the last mode of each step remains in force."""
    for step in range(4):
        node.run("true", words=(f"step={step}",))
        node.logged(step + 1)
    assert len(slots(node)) == 1
    node.run("sh", "-c", PRINT_COMMAND, words=("step=7",))
    node.logged(5)
    for step in (8, 9):
        node.run("echo", "a secret", words=(f"step={step}",))
        assert "no wider" in inherited(capture_of(node, str(step), step - 2))
    assert len(slots(node)) == 1


@pytest.mark.parametrize("table", [b"4711@1.abcd disabled\n", b"\0" * 4096, b"x" * 8192])
def test_table_that_is_none(node: Node, table: bytes) -> None:
    """Without a readable table, the capture fails closed."""
    jobs = node.spool / ".jobs"
    jobs.mkdir(0o700)
    (jobs / f"4711.{node.uid}.0.modes").write_bytes(table)
    assert node.run("echo", "a secret").out == b"a secret\n"
    [logged] = node.logged()
    assert "can't be known" in inherited(logged)
