"""No death of a helper process hurts the job: sidecar, relay or monitor crash, hang or are killed
(R28)."""

import contextlib
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import comm_of
from tests.tools.captures.relay_tools import (
    WAIT_SECS,
    Driver,
    is_alive,
    nothing_left,
    python,
    state,
    wait_for,
)

# prints, waits for a line on its stdin, prints on; both streams
WAITING = """
import os, sys
print('before', flush=True)
os.write(2, b'err before\\n')
while os.read(0, 1) not in (b'\\n', b''): pass
for n in range(5000): print('after', n)
os.write(2, b'err after\\n')
sys.exit(7)
"""
AFTER = "".join(f"after {n}\n" for n in range(5000)).encode()


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with contextlib.closing(Driver(tmp_path)) as driver:
        yield driver


@pytest.fixture(params=["tty", "pipe"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--no-tty",) if request.param == "pipe" else ()


def start(
    driver: Driver, *, serve: str = "collect", options: tuple[str, ...] = ()
) -> "subprocess.Popen[bytes]":
    return driver.start(
        *python(WAITING), serve=serve, options=options,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


# ---- the sidecar


def test_sidecar_is_killed(driver: Driver, options: tuple[str, ...]) -> None:
    """CMD's output and exit code stay its own. One line on stderr reports the missing output."""
    process = start(driver, options=options)
    driver.wait_captured(b"before")
    pid = driver.plan()["pid"]
    assert comm_of(pid) == "logshipper-side"
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid), "the sidecar dies")
    out, err = process.communicate(b"\n", timeout=WAIT_SECS)
    assert (process.returncode, out) == (7, b"before\n" + AFTER)
    line = b"logshipper: output is missing from the log, as the logging process was killed by signal 9\n"
    assert sorted(err.splitlines(True)) == sorted([b"err before\n", b"err after\n", line])


def test_account_goes_on_without_a_sidecar(driver: Driver) -> None:
    """The counters go on, so output that a dead sidecar never synced counts as lost."""
    process = start(driver)
    driver.wait_captured(b"before")
    os.kill(driver.plan()["pid"], signal.SIGKILL)
    out, _ = process.communicate(b"\n", timeout=WAIT_SECS)
    assert driver.printed_counts() == (len(out), 5001, 21, 2)


def test_sidecar_crashes_at_its_start(driver: Driver, options: tuple[str, ...]) -> None:
    process = start(driver, serve="crash", options=options)
    out, err = process.communicate(b"\n", timeout=WAIT_SECS)
    assert (process.returncode, out) == (7, b"before\n" + AFTER)
    assert err.count(b"logshipper: ") == 1
    assert b"RuntimeError: made to crash\n" in err


def test_sidecar_ends_without_a_word(driver: Driver) -> None:
    process = start(driver, serve="die")
    out, err = process.communicate(b"\n", timeout=WAIT_SECS)
    assert (process.returncode, out) == (7, b"before\n" + AFTER)
    assert err.count(b"logshipper: ") == 1


@pytest.mark.parametrize("kind", ["hang", "stop"])
def test_hung_sidecar_is_given_up(driver: Driver, kind: str) -> None:
    """A full side pipe slows the job. The relay gives up a sidecar that reads nothing for some
    seconds, and the job runs on."""
    code = "import sys\nfor n in range(200000): print('x' * 20)"
    done = driver.run(*python(code), serve=kind, options=("--stall-secs", "0.7"))
    assert done.returncode == 0
    assert done.stdout == (b"x" * 20 + b"\n") * 200000
    assert done.stderr.count(b"\n") == 1
    assert b"took nothing for 0.7 s and was given up" in done.stderr
    assert not is_alive(driver.plan()["pid"])


@pytest.mark.parametrize("kind", ["hang", "stop"])
def test_hung_sidecar_does_not_hang_the_end(driver: Driver, kind: str) -> None:
    """`x=$(logshipper run ...)`: the hung process would hold the caller's pipe, so the relay kills
    it."""
    done = driver.run("echo", "hi", serve=kind, options=("--stall-secs", "0.5"))
    assert (done.returncode, done.stdout) == (0, b"hi\n")
    assert b"didn't finish within 0.5 s and was given up" in done.stderr


def test_slow_sidecar_slows_the_job_and_gets_all(driver: Driver) -> None:
    """R28: a slow sidecar slows the job, and truncates nothing. The relay does not give it up."""
    done = driver.run("seq", "400000", serve="slow", options=("--stall-secs", "1"))
    assert done.returncode == 0
    assert done.stderr == b""
    assert driver.events_of("digest")[0]["1"] == hashlib.sha256(done.stdout).hexdigest()


def test_sidecar_tells_of_its_troubles(driver: Driver) -> None:
    """The message appears at the next end of a line, in the middle of the job's own stderr."""
    process = driver.start(
        *python("import os; os.write(2, b'half'); os.read(0, 1); os.write(2, b' whole\\n'); os.read(0, 1)"),
        serve="degrade", stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert process.stderr.readline() == b"half whole\n"
    assert process.stderr.readline() == b"logshipper: the disk is full\n"
    process.communicate(b"\n", timeout=WAIT_SECS)
    assert process.returncode == 0


def test_own_line_where_no_line_ends(driver: Driver) -> None:
    """A running bar never ends its line, so after a second the message begins a new one."""
    process = driver.start(
        *python("import os; os.write(2, b'bar'); os.read(0, 1)"),
        serve="degrade", stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    assert process.stderr.readline() == b"bar\n"
    assert process.stderr.readline() == b"logshipper: the disk is full\n"
    process.communicate(b"\n", timeout=WAIT_SECS)
    assert driver.captured(2) == b"bar"  # the message isn't part of the job's output


def test_sidecar_is_beside_the_job(driver: Driver) -> None:
    """The sidecar has a session of its own and no fd of the caller's. Signals to the job's group do
    not end it."""
    process = driver.start("sleep", "600", stdout=subprocess.PIPE, start_new_session=True)
    plan = driver.plan()
    pid = plan["pid"]
    assert os.getsid(pid) == pid
    for fd in range(3):
        assert os.readlink(f"/proc/{pid}/fd/{fd}") == os.devnull
    for signo in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGTSTP,
    ):
        os.kill(pid, signo)
    os.kill(plan["cmd_pid"], signal.SIGTERM)
    process.communicate(timeout=WAIT_SECS)
    assert process.returncode == -signal.SIGTERM
    assert driver.events_of("exit")


# ---- the relay


def test_relay_is_killed(driver: Driver, options: tuple[str, ...]) -> None:
    """The sidecar takes over: no write of CMD's meets EIO, every byte arrives, and the log goes
    on."""
    out = driver.folder / "out"
    with out.open("wb") as file:
        process = driver.start(
            *python(WAITING), options=options, stdin=subprocess.PIPE, stdout=file, stderr=file
        )
    driver.wait_captured(b"err before", 2)
    plan = driver.plan()
    process.kill()
    process.wait(WAIT_SECS)
    wait_for(lambda: driver.events_of("take_over"), "the sidecar takes over")
    assert is_alive(plan["cmd_pid"])
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.close()
    wait_for(lambda: driver.events_of("over"), "CMD ends")
    lines = out.read_bytes().splitlines(True)
    assert [line for line in lines if b"err" not in line] == (b"before\n" + AFTER).splitlines(True)
    assert driver.captured(1) == b"before\n" + AFTER
    assert driver.captured(2) == b"err before\nerr after\n"
    assert driver.printed_counts() == (len(driver.captured(1)), 5001, 21, 2)


def test_relay_is_killed_in_a_flood(driver: Driver) -> None:
    """Bytes that the relay had read but not passed on may be missing. Nothing else is missing or
    duplicated."""
    out = driver.folder / "out"
    with out.open("wb") as file:
        process = driver.start("seq", "300000", serve="digest", stdout=file, stderr=file)
        wait_for(lambda: out.stat().st_size > 300_000, "the flood begins")
        process.kill()
        process.wait(WAIT_SECS)
    wait_for(lambda: driver.events_of("digest"), "the flood ends")
    output = out.read_bytes()
    whole = "".join(f"{n}\n" for n in range(1, 300001)).encode()
    gap = next((at for at in range(len(output)) if output[at] != whole[at]), len(output))
    rest = output[gap:]
    assert whole.endswith(rest)
    assert len(whole) - len(output) <= 128 << 10


def test_relay_and_reader_are_gone(driver: Driver) -> None:
    """After the take-over, `| head` still ends a flood."""
    read, write = os.pipe()
    process = driver.start("yes", serve="digest", stdout=write)
    os.close(write)
    plan = driver.plan()
    os.read(read, 100)
    process.kill()
    process.wait(WAIT_SECS)
    wait_for(lambda: driver.events_of("take_over"), "the sidecar takes over")
    os.close(read)
    wait_for(lambda: not is_alive(plan["cmd_pid"]), "yes ends")


def test_suspended_relay_does_not_blame_the_sidecar(driver: Driver) -> None:
    """A stop of the relay (a suspended job, a stopped shell) doesn't count as a stall of the
    sidecar."""
    process = driver.start(
        "yes", serve="stop", options=("--stall-secs", "2"), stdout=subprocess.DEVNULL
    )
    pid = driver.plan()["pid"]
    wait_for(lambda: state(pid) == "T", "the sidecar stops")
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: state(process.pid) == "T", "the relay stops")
    time.sleep(2.5)  # the pause itself is under test
    os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: state(process.pid) != "T", "the relay goes on")
    assert is_alive(pid)
    os.kill(driver.plan()["cmd_pid"], signal.SIGTERM)
    assert process.wait(WAIT_SECS) == -signal.SIGTERM
