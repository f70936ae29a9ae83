"""`run`, interactive case: fds 0, 1 and 2 are one terminal. Full-screen programs work as without
logshipper."""

import contextlib
import os
import re
import shutil
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.tools.captures.relay_tools import (
    WAIT_SECS,
    Driver,
    is_alive,
    nothing_left,
    python,
    state,
    wait_for,
)
from tests.tools.sources import ROOT

# a small full-screen program: sets raw mode by a given fd, reads keys from fd 0, reports each one
RAW = """
import os, sys, termios, tty
fd = int(sys.argv[1])
saved = termios.tcgetattr(fd)
tty.setraw(fd)
os.write(1, b'ready\\r\\n')
while (key := os.read(0, 1)) != b'q': os.write(1, b'key %d\\r\\n' % key[0])
termios.tcsetattr(fd, termios.TCSADRAIN, saved)
os.write(1, b'left\\n')
"""
SIZES = """
import os, signal
def tell(*_): os.write(1, (" ".join(str(os.get_terminal_size(fd)) for fd in range(3)) + "\\n").encode())
signal.signal(signal.SIGWINCH, tell); tell()
while True: signal.sigtimedwait([], 0.1)
"""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    with contextlib.closing(Driver(tmp_path)) as driver:
        yield driver


@pytest.fixture
def on_terminal(driver: Driver) -> Iterator["Starter"]:
    with contextlib.closing(Starter(driver)) as starter:
        yield starter


class Starter:
    """Starts jobs on terminals, and ends the remaining ones."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._spawned: list[pexpect.spawn[str]] = []

    def spawn(self, argv: list[str], **more: object) -> "pexpect.spawn[str]":
        environment = {**self._driver.environment(), "TERM": "xterm", "PS1": "$ "}
        job = pexpect.spawn(argv[0], argv[1:], cwd=str(ROOT), env=environment, timeout=WAIT_SECS,
                            dimensions=(30, 100), encoding="utf-8", **more)  # type: ignore[arg-type]  # fmt: skip  # pexpect's own options
        self._spawned.append(job)
        return job

    def job(
        self, *command: str, serve: str = "collect", options: tuple[str, ...] = ()
    ) -> "pexpect.spawn[str]":
        return self.spawn(self._driver.argv(*command, serve=serve, options=options))

    def bash(self) -> "pexpect.spawn[str]":
        """Return an interactive bash with job control; its prompt is PROMPT."""
        shell = self.spawn(["bash", "--norc", "--noprofile", "-i"], echo=False)
        shell.sendline(
            "bind 'set enable-bracketed-paste off' 2>/dev/null; PS1='PROM''PT '; stty -echo"
        )
        shell.expect("PROMPT ")
        return shell

    def close(self) -> None:
        for job in self._spawned:
            job.close(force=True)


def attributes(job: "pexpect.spawn[str]") -> list[object]:
    return termios.tcgetattr(job.child_fd)


def is_raw(job: "pexpect.spawn[str]") -> bool:
    return not attributes(job)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)  # type: ignore[operator]  # an int


def ended(job: "pexpect.spawn[str]") -> int:
    """Wait for the end, and return the exit code or the negative signal."""
    job.expect(pexpect.EOF)
    job.close()
    status = -job.signalstatus if job.signalstatus else job.exitstatus
    assert status is not None
    return status


def test_cmd_has_the_terminal(driver: Driver, on_terminal: Starter) -> None:
    """All three fds are terminals of the right size, and stderr is a separate one. CMD leads the
    foreground group of its own session."""
    code = """
import os
names = [os.ttyname(fd) for fd in range(3)]
print([os.isatty(fd) for fd in range(3)], names[0] == names[1] != names[2], *os.get_terminal_size(0))
print(os.tcgetpgrp(0) == os.getpgrp() == os.getpid(), os.getsid(0) == os.getppid(), os.open('/dev/tty', os.O_RDWR) > 2)
os.write(2, b'err\\n')
"""
    job = on_terminal.job(*python(code))
    assert ended(job) == 0
    # two terminals: the kernel decides which of two simultaneous lines comes first
    output = str(job.before)
    assert output.count("err\r\n") == 1
    assert output.replace("err\r\n", "") == "[True, True, True] True 100 30\r\nTrue True True\r\n"
    plan = driver.plan()
    assert (plan["interactive"], plan["columns"], plan["rows"]) == (True, 100, 30)
    assert driver.captured(1) == b"[True, True, True] True 100 30\r\nTrue True True\r\n"
    assert driver.captured(2) == b"err\r\n"


def test_one_fd_elsewhere_makes_it_batch(driver: Driver, on_terminal: Starter) -> None:
    job = on_terminal.spawn(["sh", "-c", '"$@" 2> /dev/null', "sh", *driver.argv("true")])
    assert ended(job) == 0
    assert driver.plan()["interactive"] is False


@pytest.mark.parametrize("fd", [0, 1])
def test_raw_keys(driver: Driver, on_terminal: Starter, fd: int) -> None:
    """With an inherited stdin, the real terminal would stay cooked and such programs would hang."""
    job = on_terminal.job(*python(RAW), str(fd))
    before = attributes(job)
    job.expect("ready")
    assert is_raw(job)
    for key in (b"a", b"\x03", b"\x1a", b"\x04", b"\x13", b"\r"):
        job.send(key.decode())
        job.expect(f"key {key[0]}\r\n")
    job.send("q")
    assert ended(job) == 0
    assert before[6] is not None


def test_keys_for_a_program_that_reads_stderr(on_terminal: Starter) -> None:
    """`vim -` reads keys from fd 2, a different terminal from stdin. Typed keys go to the one in
    raw mode."""
    code = RAW.replace("os.read(0, 1)", "os.read(2, 1)")
    job = on_terminal.job(*python(code), "2")
    job.expect("ready")
    job.send("a")
    job.expect("key 97")
    job.send("q")
    assert ended(job) == 0


def test_terminal_is_given_back(driver: Driver, on_terminal: Starter) -> None:
    """The terminal is exactly as before, after CMD ends well, dies, or can't run at all."""
    for command, code in (
        (["true"], 0),
        (["sh", "-c", "kill -9 $$"], 137),
        (["./no-such-command"], 127),
    ):
        shell = on_terminal.spawn(
            ["sh", "-c", 'stty -g; "$@"; echo code=$?; stty -g', "sh", *driver.argv(*command)]
        )
        shell.expect(pexpect.EOF)
        assert shell.before is not None
        words = shell.before.split()
        assert words[0] == words[-1]
        assert f"code={code}" in words


def test_line_input_and_end_of_file(driver: Driver, on_terminal: Starter) -> None:
    """For a program that reads lines, the pty echoes and edits, and Ctrl-D ends the input."""
    job = on_terminal.job("cat")
    driver.plan()
    job.send("wrong\x15right\r")
    job.expect("right\r\nright\r\n")
    job.send("\x04")
    assert ended(job) == 0


def test_typed_ahead(driver: Driver, on_terminal: Starter) -> None:
    """Keys typed before CMD's start reach it."""
    job = on_terminal.spawn(
        ["sh", "-c", 'read x; echo asked; "$@"', "sh", *driver.argv("head", "-n1")]
    )
    job.send("one\ntwo\n")
    job.expect("asked")
    job.expect("two\r\n")
    assert ended(job) == 0


def test_much_is_pasted(driver: Driver, on_terminal: Starter) -> None:
    """While CMD doesn't read, typed keys wait. Nothing is lost, and nothing hangs."""
    code = RAW.replace("while (key", "os.read(0, 1); n = 1\nwhile (key").replace(
        "os.write(1, b'key %d\\r\\n' % key[0])", "n += 1"
    )
    job = on_terminal.job(*python(code + "os.write(1, b'%d keys' % n)"), "0")
    job.expect("ready")
    for _ in range(20):
        job.send("x" * 1000)
    job.send("q")
    job.expect("20000 keys")
    assert ended(job) == 0


def test_ctrl_c_arrives_once(driver: Driver, on_terminal: Starter) -> None:
    code = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
signal.signal(signal.SIGINT, lambda *_: os.write(1, b'SIGINT\\n'))
os.write(1, b'ready\\n')
while not signal.sigtimedwait([signal.SIGRTMIN], 0.1): pass
"""
    job = on_terminal.job(*python(code))
    job.expect("ready")
    job.sendintr()
    job.expect("SIGINT")
    os.kill(driver.plan()["cmd_pid"], signal.SIGRTMIN)
    assert ended(job) == 0
    assert driver.captured().count(b"SIGINT") == 1


def test_ctrl_c_ends_cmd(on_terminal: Starter) -> None:
    job = on_terminal.job("sh", "-c", "echo ready; exec sleep 600")
    job.expect("ready")
    job.sendintr()
    assert ended(job) == -signal.SIGINT


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGHUP"])
def test_signal_of_a_process_is_sent_on(driver: Driver, on_terminal: Starter, name: str) -> None:
    job = on_terminal.job("sh", "-c", "echo ready; exec sleep 600")
    job.expect("ready")
    job.kill(signal.Signals[name])
    assert ended(job) == -signal.Signals[name]


def test_resize(driver: Driver, on_terminal: Starter) -> None:
    """CMD sees the new size with the last signal, on all three fds; the renderer learns it too."""
    job = on_terminal.job(*python(SIZES))
    job.expect("columns=100, lines=30")
    job.setwinsize(33, 77)
    size = "os.terminal_size(columns=77, lines=33)"
    job.expect(re.escape(" ".join([size] * 3)))
    wait_for(lambda: driver.events_of("size"), "the sidecar is told")
    assert driver.events_of("size")[-1]["size"] == [77, 33]
    job.sendintr()
    assert ended(job) == -signal.SIGINT


def test_terminal_is_closed(driver: Driver, on_terminal: Starter) -> None:
    """The user closes the window: CMD gets SIGHUP, as without logshipper, and the log survives."""
    job = on_terminal.job("sh", "-c", "echo ready; exec sleep 600")
    job.expect("ready")
    job.close(force=False)
    wait_for(lambda: driver.events_of("exit"), "CMD is hung up on")
    assert driver.events_of("exit")[0]["status"] == signal.SIGHUP


# ---- job control


def test_ctrl_z_and_fg(driver: Driver, on_terminal: Starter) -> None:
    """Stop and resume reach both CMD and the shell. The shell gets its terminal mode back in
    between, and CMD keeps its own."""
    shell = on_terminal.bash()
    script = driver.folder / "cmd.py"
    script.write_text(
        RAW.replace(
            "os.write(1, b'key",
            "print(end='', flush=True) if key != b'z' else os.kill(0, 20); os.write(1, b'key",
        )
    )
    cooked = attributes(shell)
    shell.sendline(" ".join([*driver.argv(sys.executable, str(script)), "0"]))
    shell.expect("ready")
    plan = driver.plan()
    for _ in range(2):
        shell.send("z")
        shell.expect("Stopped.*PROMPT ")
        assert [state(plan["cmd_pid"]), state(plan["relay_pid"])] == ["T", "T"]
        assert attributes(shell)[3] == cooked[3]
        shell.sendline("fg")
        shell.expect("key 122")
        shell.send("a")
        shell.expect("key 97")
    shell.send("q")
    shell.expect("left.*PROMPT ")
    shell.sendline("echo code=$?")
    shell.expect("code=0")


def test_ctrl_z_in_a_cooked_program(driver: Driver, on_terminal: Starter) -> None:
    """The log has all its output while the program is stopped."""
    shell = on_terminal.bash()
    shell.sendline(" ".join(driver.argv("cat")))
    driver.plan()
    shell.sendline("one")
    shell.expect("one\r\n")  # the echoes of the shell and of the pty are off
    shell.sendline("at once")
    shell.expect("at once\r\n")
    shell.send("\x1a")
    shell.expect("Stopped.*PROMPT ")
    wait_for(lambda: b"at once" in driver.captured(1), "the last line is logged")
    shell.sendline("fg")
    wait_for(lambda: state(driver.plan()["cmd_pid"]) != "T", "cat goes on")
    shell.sendline("two")
    shell.expect("two\r\n")
    shell.send("\x04")
    shell.expect("PROMPT ")


def test_bg_then_fg(driver: Driver, on_terminal: Starter) -> None:
    """In the background CMD prints on, and the shell has the terminal. `fg` gives it back to
    CMD."""
    shell = on_terminal.bash()
    script = driver.folder / "cmd.py"
    go = driver.folder / "go"
    os.mkfifo(go)
    script.write_text(
        f"print('ready'); print(open({str(go)!r}).read()); print('asked'); print('got', input())"
    )
    shell.sendline(" ".join(driver.argv(sys.executable, str(script))))
    shell.expect("ready")
    shell.send("\x1a")
    shell.expect("Stopped.*PROMPT ")
    shell.sendline("bg")
    shell.expect("PROMPT ")
    go.write_text("printed in the background")
    shell.expect("printed in the background")
    shell.sendline("echo the shell''s own")
    shell.expect("the shells own.*PROMPT ")
    shell.sendline("fg")
    shell.expect("relay_driver")  # bash names the job that it resumes
    wait_for(lambda: is_raw(shell), "it has the terminal")
    shell.sendline("typed")
    shell.expect("got typed.*PROMPT ")


def test_command_that_suspends_itself_without_a_shell(driver: Driver, on_terminal: Starter) -> None:
    """Without job control above, no shell could continue logshipper. So it doesn't stop, and CMD
    continues at once."""
    job = on_terminal.job("sh", "-c", "echo ready; kill -TSTP $$; echo on")
    job.expect("ready.*on")
    assert ended(job) == 0


# a job that reports its start, its continuation, and whether it is in the foreground
SLEEP = """
import os, signal, time
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'continued\\n'))
os.write(1, b'begun %d\\n' % (os.tcgetpgrp(0) == os.getpgrp()))
while True: time.sleep(100)
"""
SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-i"),
    "env": ("env", "A=b", "bash", "--norc", "--noprofile"),
    "dash": ("dash", "-i"),
    "zsh": ("zsh", "-f", "-i"),
    "tcsh": ("tcsh", "-f"),
    "fish": ("fish", "--no-config"),
}


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_has_job_control(driver: Driver, on_terminal: Starter, name: str) -> None:
    """Its user can stop, list, resume and interrupt jobs, as without logshipper."""
    command = SHELLS[name]
    need(command[0])
    script = driver.folder / "sleep.py"
    script.write_text(SLEEP)
    job = on_terminal.job(*command)
    plan = driver.plan()
    wait_for(lambda: _reads_terminal(plan["cmd_pid"]), "the shell's prompt")
    job.send(f"{sys.executable} {script}\r")
    job.expect("begun 1")
    for _ in range(2):
        job.send("\x1a")
        job.expect("(?i)stopped|suspended")
        job.send("jobs\r")
        job.expect("(?i)stopped|suspended")
        job.send("fg\r")
        job.expect("continued")
    job.send("\x03")
    wait_for(lambda: os.tcgetpgrp(job.child_fd) > 0 and _leads(plan["cmd_pid"]), "the shell again")
    job.send("\rexit 3\r")
    assert ended(job) == 3
    assert driver.captured(2) == b"", "prompts, output and errors are in order"
    assert b"no job control" not in driver.captured(1)
    assert plan["interactive"] is True


@pytest.mark.parametrize(("mode", "terminals"), [("enabled", 1), ("metadata", 2)])
def test_a_shell_has_two_terminals_in_metadata(
    driver: Driver, on_terminal: Starter, mode: str, terminals: int
) -> None:
    """R9: the capture must never recognise a line of stderr as a record."""
    store = ["--store", str(driver.folder / "store")]
    command = [sys.executable, "-m", "logshipper", "run", *store, "--mode", mode, "--"]
    job = on_terminal.spawn([*command, *SHELLS["bash"]])
    job.expect(r"\$ ")
    job.send("readlink /proc/$$/fd/1 /proc/$$/fd/2 | sort -u | wc -l; exit\r")
    job.expect(f"[\r\n]{terminals}\r\n")
    assert ended(job) == 0


def test_a_shell_in_a_shell(driver: Driver, on_terminal: Starter) -> None:
    """Ctrl-Z belongs to the inner shell; the outer one comes back when the inner one ends."""
    outer = on_terminal.bash()
    script = driver.folder / "sleep.py"
    script.write_text(SLEEP)
    outer.sendline(" ".join(driver.argv(*SHELLS["bash"])))
    plan = driver.plan()
    wait_for(lambda: _reads_terminal(plan["cmd_pid"]), "the shell's prompt")
    outer.send(f"{sys.executable} {script}\r")
    outer.expect("begun 1")
    outer.send("\x1a")
    outer.expect("Stopped")
    assert state(plan["relay_pid"]) != "T"
    outer.send("fg\r")
    outer.expect("continued")
    outer.send("\x03")
    outer.expect("KeyboardInterrupt")
    outer.send("exit 3\r")
    wait_for(lambda: not is_alive(plan["relay_pid"]), "the inner shell ends")
    outer.sendline("echo code=$?")
    outer.expect("code=3")
    assert not is_raw(outer)


def test_ctrl_z_freezes_no_shell_without_job_control(driver: Driver, on_terminal: Starter) -> None:
    """A shell started by another program has a stderr terminal outside of its session. Its child
    continues after Ctrl-Z."""
    script = driver.folder / "sleep.py"
    script.write_text(SLEEP)
    job = on_terminal.job(*python(f"import subprocess; subprocess.run({SHELLS['bash']})"))
    job.expect("no job control")
    job.expect(r"\$ ")
    job.send(f"{sys.executable} {script}\r")
    job.expect("begun 1")
    job.send("\x1a")
    job.expect("continued")
    job.send("\x03")
    job.expect("KeyboardInterrupt")
    job.send("echo $((6 * 7)); exit\r")
    job.expect("42\r\n")
    job.expect(pexpect.EOF)


def _reads_terminal(pid: int) -> bool:
    """Return whether a shell has made itself the foreground group and waits for a line."""
    return _leads(pid) and state(pid) == "S"


def _leads(pid: int) -> bool:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[5]) == int(fields[2]) == pid


# ---- deaths


def test_relay_is_killed(driver: Driver, on_terminal: Starter) -> None:
    """The sidecar restores the terminal and takes over; CMD goes on."""
    go = driver.folder / "go"
    os.mkfifo(go)
    shell = on_terminal.bash()
    cooked = attributes(shell)
    shell.sendline(" ".join(driver.argv("sh", "-c", f"'echo ready; read x < {go}; echo on'")))
    shell.expect("ready")
    driver.wait_captured(b"ready\r\n")  # the terminal may show it earlier
    assert is_raw(shell)
    plan = driver.plan()
    os.kill(plan["relay_pid"], signal.SIGKILL)
    shell.expect("Killed.*PROMPT ")
    wait_for(lambda: driver.events_of("take_over"), "the sidecar takes over")
    shell.sendline("echo the shell''s own")
    shell.expect("the shells own.*PROMPT ")
    assert is_alive(plan["cmd_pid"])
    go.write_text("\n")
    shell.expect("on\r+\n")
    wait_for(lambda: driver.events_of("over"), "CMD ends")
    assert driver.captured() == b"ready\r\non\r\n"
    shell.sendline("stty -a > /dev/null")
    shell.expect("PROMPT ")
    assert attributes(shell)[:2] == cooked[:2]


def test_relay_is_killed_without_a_shell(driver: Driver, on_terminal: Starter) -> None:
    """No shell restores the terminal, so the sidecar does."""
    job = on_terminal.spawn(
        [
            "sh",
            "-c",
            'stty -g; "$@"; stty -g',
            "sh",
            *driver.argv("sh", "-c", "echo ready; exec sleep 600"),
        ]
    )
    job.expect("ready")
    plan = driver.plan()
    os.kill(plan["relay_pid"], signal.SIGKILL)
    wait_for(lambda: not is_raw(job), "the terminal is restored")
    os.kill(plan["cmd_pid"], signal.SIGTERM)
    wait_for(lambda: driver.events_of("over"), "CMD ends")


def test_monitor_is_killed(driver: Driver, on_terminal: Starter) -> None:
    """The kernel hangs up on CMD. The relay passes its last output on, restores the terminal, and
    reports the unknown exit code."""
    code = """
import os, signal, time
def hung_up(*_): os.write(1, b'hung up\\n'); raise SystemExit(3)
signal.signal(signal.SIGHUP, hung_up); os.write(1, b'ready\\n')
while True: signal.sigtimedwait([], 0.1)
"""
    job = on_terminal.job(*python(code))
    job.expect("ready")
    monitor = int(
        Path(f"/proc/{driver.plan()['cmd_pid']}/stat").read_text().rpartition(")")[2].split()[1]
    )
    os.kill(monitor, signal.SIGKILL)
    job.expect("hung up")
    job.expect(
        "logshipper: the process that held CMD's terminal was killed: CMD's exit code is unknown"
    )
    assert ended(job) == 125


def test_sidecar_is_killed(driver: Driver, on_terminal: Starter) -> None:
    """The message appears after CMD has left the screen."""
    job = on_terminal.job(*python(RAW), "0")
    job.expect("ready")
    os.kill(driver.plan()["pid"], signal.SIGKILL)
    job.send("a")
    job.expect("key 97")
    job.send("q")
    job.expect(
        "left\r\nlogshipper: output is missing from the log, as the logging process was killed by signal 9\r\n"
    )
    assert ended(job) == 0


def test_left_behind_child(driver: Driver, on_terminal: Starter) -> None:
    """The child keeps a working terminal, and gets no SIGHUP when CMD's session ends."""
    go = driver.folder / "go"
    os.mkfifo(go)
    shell = on_terminal.bash()
    shell.sendline(" ".join(driver.argv("sh", "-c", f"'(read x < {go}; echo late) & echo early'")))
    shell.expect("early.*PROMPT ")
    go.write_text("\n")
    shell.expect("late\r+\n")
    wait_for(lambda: driver.events_of("over"), "its output ends")
    assert driver.captured() == b"early\r\nlate\r\n"


# ---- real programs


def need(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} isn't installed")
    return path


def test_less(driver: Driver, on_terminal: Starter) -> None:
    need("less")
    text = driver.folder / "text"
    text.write_text("".join(f"line {n}\n" for n in range(200)))
    job = on_terminal.job("less", str(text))
    job.expect("line 28")
    job.send("G")
    job.expect("line 199")
    job.send("q")
    assert ended(job) == 0


def test_ctrl_c_and_ctrl_z_in_less(driver: Driver, on_terminal: Starter) -> None:
    """`less` reads keys from the terminal of stderr. That terminal has no foreground group for the
    kernel to signal."""
    need("less")
    text = driver.folder / "text"
    text.write_text("".join(f"line {n}\n" for n in range(200)))
    shell = on_terminal.bash()
    shell.sendline(" ".join(driver.argv("less", str(text))))
    shell.expect("line 28")
    for _ in range(2):
        shell.send("\x1a")
        shell.expect("Stopped.*PROMPT ")
        shell.sendline("fg")
        shell.expect("line 28")
    shell.send("F")
    shell.expect("Waiting for data")
    shell.send("\x03")
    shell.send("g")
    shell.expect("line 0")
    shell.send("q")
    shell.expect("PROMPT ")


def test_less_at_the_end_of_a_pipe(driver: Driver, on_terminal: Starter) -> None:
    """`less` reads keys from /dev/tty."""
    need("less")
    job = on_terminal.job("sh", "-c", "seq 500 | less")
    job.expect("29\r\n")
    job.send("G")
    job.expect("500")
    job.send("q")
    assert ended(job) == 0


def test_vi(driver: Driver, on_terminal: Starter) -> None:
    need("vi")
    text = driver.folder / "text"
    text.write_text("hello\n")
    job = on_terminal.job("vi", "-u", "NONE", str(text))
    job.expect("hello")
    job.send("A world\x1b:wq\r")
    assert ended(job) == 0
    assert text.read_text() == "hello world\n"


def test_curses(driver: Driver, on_terminal: Starter) -> None:
    code = """
import curses
def main(screen):
    screen.addstr(0, 0, 'size %d %d' % screen.getmaxyx()); screen.refresh()
    while (key := screen.getkey()) != 'q': screen.addstr(1, 0, 'key ' + key); screen.refresh()
curses.wrapper(main)
"""
    job = on_terminal.job(*python(code))
    job.expect("size 30 100")
    job.send("\x1bOA")
    job.expect("KEY_UP")
    job.setwinsize(20, 90)
    job.expect("KEY_RESIZE")
    job.send("q")
    assert ended(job) == 0


def test_repl(driver: Driver, on_terminal: Starter) -> None:
    job = on_terminal.job(sys.executable, "-q", "-i", "-c", "")
    job.expect(">>> ")
    job.sendline("6 * 7")
    job.expect("42\r\n")
    job.expect(">>> ")
    job.sendintr()
    job.expect("KeyboardInterrupt")
    job.expect(">>> ")
    job.send("\x04")
    assert ended(job) == 0


def test_shell_inside(driver: Driver, on_terminal: Starter) -> None:
    job = on_terminal.job("bash", "--norc", "--noprofile")
    job.expect(r"\$ ")
    job.sendline("echo $((6 * 7)); exit 4")
    job.expect("42\r\n")
    assert ended(job) == 4
