"""Signals in the batch case: each reaches CMD once. logshipper survives them, and stops as shells
expect."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.tools.captures.relay_tools import (
    WAIT_SECS,
    Driver,
    nothing_left,
    python,
    state,
    wait_for,
)
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

# prints the name of each signal; ends at SIGRTMIN, which the kernel delivers after all of these
TELLING = """
import os, signal, sys
def tell(signo, frame): os.write(1, signal.Signals(signo).name.encode() + b'\\n')
for signo in (1, 2, 3, 10, 12, 15, 18, 28): signal.signal(signo, tell)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
os.write(1, b'ready\\n')
while True:
    if signal.sigtimedwait([signal.SIGRTMIN], 0.1): break
os.write(1, b'end\\n')
"""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with contextlib.closing(Driver(tmp_path)) as driver:
        yield driver


def lines(driver: Driver) -> list[bytes]:
    return driver.captured().split()


def end(driver: Driver, process: "subprocess.Popen[bytes]") -> list[bytes]:
    """End TELLING, and return its output.

    The kernel delivers the last signal after all others, so a duplicate would have arrived by then.
    """
    os.kill(driver.plan()["cmd_pid"], signal.SIGRTMIN)
    assert process.wait(30) == 0
    return lines(driver)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGINT"])
def test_signal_of_a_process_is_sent_on(driver: Driver, name: str) -> None:
    """`kill` or a scheduler sends a signal: logshipper survives, and CMD gets it once."""
    process = driver.start(*python(TELLING), stdout=subprocess.DEVNULL)
    driver.wait_captured(b"ready")
    os.kill(process.pid, signal.Signals[name])
    driver.wait_captured(name.encode())
    assert end(driver, process) == [b"ready", name.encode(), b"end"]


def test_death_by_a_signal_that_was_sent_on(driver: Driver) -> None:
    process = driver.start("sleep", "600")
    driver.plan()
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM


def terminal_job(driver: Driver, *command: str) -> "pexpect.spawn[str]":
    """Start CMD in a batch case on a terminal (stdin is /dev/null), without job control."""
    script = 'exec "$@" < /dev/null'
    argv = ["-c", script, "sh", *driver.argv(*command)]
    return pexpect.spawn(
        "sh",
        argv,
        cwd=str(ROOT),
        env=os.environ,
        timeout=WAIT_SECS,
        dimensions=(30, 100),
        encoding="utf-8",
    )


def test_ctrl_c_arrives_once(driver: Driver) -> None:
    """The kernel sends it to the whole foreground group; forwarding would make it arrive twice."""
    job = terminal_job(driver, *python(TELLING))
    job.expect("ready")
    assert driver.plan()["interactive"] is False
    job.sendintr()
    job.expect("SIGINT")
    os.kill(driver.plan()["cmd_pid"], signal.SIGRTMIN)
    job.expect(pexpect.EOF)
    job.close()
    assert lines(driver) == [b"ready", b"SIGINT", b"end"]
    assert job.exitstatus == 0


def test_resize_in_a_batch_job(driver: Driver) -> None:
    """The terminal has its new size before the last signal; the child once saw the previous
    size."""
    code = """
import os, signal, sys
def tell(*_): os.write(1, b'%dx%d\\n' % os.get_terminal_size(1))
signal.signal(signal.SIGWINCH, tell); tell()
while True: signal.sigtimedwait([], 0.1)
"""
    job = terminal_job(driver, *python(code))
    job.expect("160x30")
    job.setwinsize(40, 200)
    job.expect("200x40")
    wait_for(lambda: driver.events_of("size"), "the sidecar is told")
    assert driver.events_of("size")[-1]["size"] == [200, 40]
    job.sendintr()
    job.expect(pexpect.EOF)
    job.close()


@pytest.fixture
def bash(driver: Driver) -> "Iterator[pexpect.spawn[str]]":
    """Yield an interactive bash with job control on a terminal."""
    environment = {**driver.environment(), "PS1": "$ ", "TERM": "dumb"}
    shell = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=environment, timeout=WAIT_SECS, echo=False,
                          dimensions=(30, 100), encoding="utf-8")  # fmt: skip
    shell.sendline("bind 'set enable-bracketed-paste off' 2>/dev/null; PS1='PROM''PT '; stty -echo")
    shell.expect("PROMPT ")
    yield shell
    shell.sendline("kill -9 $(jobs -p) 2>/dev/null; exit")
    shell.close(force=True)


def test_ctrl_z_and_fg_in_a_batch_job(driver: Driver, bash: "pexpect.spawn[str]") -> None:
    """CMD and logshipper stop and continue together, as the shell expects. CMD gets one SIGCONT."""
    code = """
import os, signal
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'continued\\n'))
os.write(1, b'ready\\n')
while True: signal.sigtimedwait([], 0.1)
"""
    script = driver.folder / "cmd.py"
    script.write_text(code)
    bash.sendline(f"{shlex.join(driver.argv(sys.executable, str(script)))} < /dev/null")
    bash.expect("ready")
    plan = driver.plan()
    for _ in range(2):
        bash.send("\x1a")
        bash.expect("Stopped.*PROMPT ")
        assert [state(plan["cmd_pid"]), state(plan["relay_pid"])] == ["T", "T"]
        bash.sendline("fg")
        bash.expect("continued")
    wait_for(lambda: driver.captured().count(b"continued") >= 2, "the sidecar has it all")
    assert driver.captured().count(b"continued") == 2
    bash.send("\x1a")
    bash.expect("Stopped.*PROMPT ")
    bash.sendline("bg")
    bash.expect("continued")
    bash.sendline("kill %1; wait %1; echo code=$?")
    bash.expect("code=143")


def test_batch_job_in_the_background_reads_the_terminal(
    driver: Driver, bash: "pexpect.spawn[str]"
) -> None:
    """SIGTTIN stops CMD as without logshipper. The shell shows the job as stopped, and `fg` lets it
    read."""
    script = driver.folder / "cmd.py"
    script.write_text("print('got', input())")
    command = shlex.join(driver.argv(sys.executable, str(script)))
    bash.sendline(f"{command} > {driver.folder}/out & wait %1; jobs -l; echo ''seen")
    bash.expect("Stopped.*seen.*PROMPT ")
    bash.sendline("fg")
    wait_for(lambda: state(driver.plan()["cmd_pid"]) != "T", "CMD goes on")
    bash.sendline("typed")
    bash.expect("PROMPT ")
    assert (driver.folder / "out").read_text() == "got typed\n"


def test_background_under_tostop(driver: Driver, bash: "pexpect.spawn[str]") -> None:
    """`tostop` once stopped a relay in the background."""
    bash.sendline(
        f"stty tostop; {shlex.join(driver.argv('sh', '-c', 'echo out; echo err >&2'))} & wait %1; echo code=$?"
    )
    bash.expect("code=0")
    assert (driver.captured(1), driver.captured(2)) == (b"out\n", b"err\n")


def test_stop_of_cmd_alone_does_not_stop_the_relay(driver: Driver) -> None:
    """A checkpoint tool that stops and continues CMD alone must not find its output stuck."""
    process = driver.start("yes", serve="digest", stdout=subprocess.DEVNULL)
    cmd = driver.plan()["cmd_pid"]
    for signo in (signal.SIGSTOP, signal.SIGTSTP):
        os.kill(cmd, signo)
        wait_for(lambda: state(cmd) == "T", "CMD stops")
        assert state(process.pid) != "T"
        os.kill(cmd, signal.SIGCONT)
        wait_for(lambda: state(cmd) != "T", "CMD goes on")
    os.kill(cmd, signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


def test_continue_sent_to_logshipper_alone(driver: Driver) -> None:
    process = driver.start("sleep", "600")
    cmd = driver.plan()["cmd_pid"]
    os.kill(cmd, signal.SIGSTOP)
    wait_for(lambda: state(cmd) == "T", "CMD stops")
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: state(cmd) != "T", "CMD goes on")
    process.terminate()
    assert process.wait(30) == -signal.SIGTERM


def test_impatient_caller(driver: Driver) -> None:
    """CMD has ended, and nobody reads its output. A signal ends the wait, unless it comes within a
    second and so is meant for CMD."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)  # until the pipe is full
    os.set_blocking(write, True)
    process = driver.start("echo", "hi", stdout=write)
    os.close(write)
    wait_for(lambda: state(driver.plan()["cmd_pid"]) in "XZ", "CMD ends")

    def ended() -> bool:
        process.send_signal(signal.SIGTERM)
        return process.poll() is not None

    wait_for(ended, "run returns")
    assert process.returncode == 0
    os.close(read)


def test_without_a_thread_signals_are_polled() -> None:
    """`ulimit -u` allows no thread, so the loop itself polls for signals."""
    code = """
import _thread, os, signal, sys
def refuse(*_): raise RuntimeError("can't start new thread")
_thread.start_new_thread = refuse
from logshipper.process.run import RunOptions, run
sys.exit(run(RunOptions(['sh', '-c', '(kill -USR1 $PPID); exec sleep 600'], True, None, print)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=scaled(60))
    assert done.returncode == -signal.SIGUSR1
