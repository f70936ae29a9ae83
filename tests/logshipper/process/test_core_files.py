"""Processes next to a command keep its output in memory and leave no core file with it. The
command's own limit stays as its caller set it."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.tools.captures.captured_runs import Home, comm_of, kill, sidecar_of, wait_until
from tests.tools.core_limits import core_limit, limit_of
from tests.tools.waiting import scaled

LIMIT = 1 << 20  # the caller's limit
NONE = ("0", "0")
OWN = (str(LIMIT), str(2 * LIMIT))
WAITS = "cat /proc/self/limits; echo begun >&2; read line"


def allow() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (LIMIT, 2 * LIMIT))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard != resource.RLIM_INFINITY and hard < 2 * LIMIT:
        pytest.skip("core files are forbidden here (ulimit -Hc)")
    home = Home(tmp_path)
    yield home
    for pid in processes(home).values():
        kill(pid)


def processes(home: Home) -> dict[str, int]:
    """Return all processes of this home, by their short names."""
    pids = {}
    mark = f"LOGSHIPPER_STORE={home.store}\0".encode()
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes():
                pids[comm_of(int(folder.name))] = int(folder.name)
        except OSError:
            pass  # the process ended
    return pids


def agent_of(home: Home) -> int:
    """Return the process of the store's agent, once it works."""
    lock = home.store / "agent.lock"
    wait_until(lambda: lock.exists() and lock.read_text().strip(), "an agent runs")
    return int(lock.read_text())


def assert_none_but(home: Home, command_names: set[str], least: set[str]) -> None:
    """Only processes in `command_names` may leave a core file. least: names that must be
    running."""
    wait_until(lambda: least <= processes(home).keys(), f"{least} run")
    pids = processes(home)
    assert {name: limit_of(pid) for name, pid in pids.items()} == {
        name: OWN if name in command_names else NONE for name in pids
    }


def test_of_a_run_only_the_command_may_leave_one(home: Home) -> None:
    options = {"stdin": subprocess.PIPE, "preexec_fn": allow, "cwd": home.folder}
    with home.start("run", "--telegraf", "--", "sh", "-c", WAITS, **options) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == b"begun\n"
        sidecar = sidecar_of(run.pid)
        assert_none_but(
            home, {"sh"}, {"sh", "logshipper-side", "logshipper-tele", comm_of(run.pid)}
        )
        kill(sidecar, signal.SIGABRT)
        wait_until(lambda: not os.path.exists(f"/proc/{sidecar}"), "the sidecar is gone")
        out, _ = run.communicate(b"\n", timeout=scaled(60))
        assert core_limit(out.decode()) == OWN
    assert not list(home.folder.glob("core*"))


def test_on_a_terminal_as_well(home: Home) -> None:
    words = [
        "-m",
        "logshipper",
        "run",
        "--",
        "sh",
        "-c",
        "cat /proc/self/limits; echo begun; read line",
    ]
    run: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable, words, env=home.environment, preexec_fn=allow
    )
    try:
        run.expect_exact("begun")
        assert core_limit((run.before or b"").decode()) == OWN
        assert_none_but(
            home, {"sh"}, {"sh", "logshipper-side", "logshipper-tty", comm_of(run.pid or 0)}
        )
        run.sendline("")
        run.expect(pexpect.EOF)
    finally:
        run.close(force=True)


def test_what_relays_for_processes_that_were_left_behind_as_well(home: Home) -> None:
    """Without a sidecar, a helper process relays."""
    script = "echo begun >&2; read line; (read line <fifo) & exit 0"
    os.mkfifo(home.folder / "fifo")
    options = {"stdin": subprocess.PIPE, "preexec_fn": allow, "cwd": home.folder}
    with home.start("run", "--", "sh", "-c", script, **options) as run:
        assert run.stderr is not None
        assert run.stderr.readline() == b"begun\n"
        sidecar = sidecar_of(run.pid)
        kill(sidecar)
        wait_until(lambda: not os.path.exists(f"/proc/{sidecar}"), "the sidecar is gone")
        assert run.stdin is not None
        run.stdin.write(b"\n")
        run.stdin.close()
        assert run.wait(timeout=scaled(60)) == 0
        assert_none_but(home, {"sh"}, {"sh", "logshipper-rest"})
        (home.folder / "fifo").write_text("\n")


def test_the_users_agent_as_well(tmp_path: Path, home: Home) -> None:
    agents = Home(tmp_path, agent=True)
    assert agents.run("true", preexec_fn=allow).returncode == 0
    assert limit_of(agent_of(home)) == NONE


def test_an_agent_whose_caller_may_leave_one_as_well(home: Home) -> None:
    code = f"from logshipper_ingest.agent_start import start; start({str(home.store)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env=home.environment, preexec_fn=allow)
    assert limit_of(agent_of(home)) == NONE
