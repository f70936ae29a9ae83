"""The interactive case's process between relay and CMD: leads the session, whose controlling
terminal is a pty.

CMD cannot lead it: its process group would be orphaned, and the kernel would ignore Ctrl-Z. The
monitor holds the ptys open for CMD's whole life (a program may close and reopen its terminal),
reports its stops and its end, and sends SIGCONT on the relay's request: only within the session may
that reach a program of another user (`su`).
"""

import fcntl
import os
import signal
import struct
import termios

from logshipper.background import shed
from logshipper.process import launch, signals

STARTED, STOPPED, ENDED = range(3)  # with CMD's pid; the signal; the wait status
REPORT = struct.Struct("<ii")
COMM = "logshipper-tty"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import NoReturn


def start(
    argv: list[str],
    environment: "Mapping[str, str]",
    slaves: dict[int, int],
    inherited: signals.InheritedSignals,
    failed: int,
    report: int,
) -> int:
    """Forks the monitor, and CMD from it, with slaves (by stream) as terminals; returns the
    monitor's pid.

    failed: as `launch.become` has it; report: pipe for REPORT records. Signals must be blocked.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        fcntl.ioctl(slaves[1], termios.TIOCSCTTY, 0)
        cmd = os.fork()
        if cmd == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(slaves[1], os.getpid())
            fds = {0: slaves[1], 1: slaves[1], 2: slaves.get(2, slaves[1])}
            launch.become(argv, environment, fds, inherited, failed)
        shed(COMM, {*slaves.values(), report})
        os.write(report, REPORT.pack(STARTED, cmd))
        _watch(cmd, slaves, report)
    finally:
        os._exit(125)


def _watch(cmd: int, slaves: dict[int, int], report: int) -> "NoReturn":
    relay = os.getppid()
    while True:
        siginfo = signal.sigwaitinfo(signals.WATCHED)
        if siginfo.si_signo == signal.SIGCONT and siginfo.si_pid == relay:
            _ignore_errors(os.killpg, cmd, signal.SIGCONT)
        if siginfo.si_signo != signal.SIGCHLD:
            continue
        pid, status = os.waitpid(cmd, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            continue
        if os.WIFSTOPPED(status):
            _tell(report, STOPPED, os.WSTOPSIG(status))
            continue
        # the kernel hangs up on the foreground group when we go: that mustn't be one that CMD left
        # behind
        _ignore_errors(os.tcsetpgrp, slaves[1], os.getpgrp())
        for fd in slaves.values():
            os.close(fd)
        _tell(report, ENDED, status)
        os._exit(0)


def _tell(report: int, kind: int, value: int) -> None:
    try:
        os.write(report, REPORT.pack(kind, value))
    except OSError:
        pass  # the relay is dead; CMD lives and needs its session


def _ignore_errors(call: "Callable[[int, int], None]", first: int, second: int) -> None:
    try:
        call(first, second)
    except OSError:
        pass  # CMD's group has gone, or belongs to another user; the terminal was hung up
