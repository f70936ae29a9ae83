"""Run `logshipper`'s commands in forked processes, without a new Python for each.

A server process imports all commands and forks once per command. This saves a Python's start and
its imports (100 ms of CPU, thousands of times). Tests of the start or the imports, and tests of
`run`, start a Python instead.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import termios
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from tests.tools.sources import LOGSHIPPER, ROOT, SOURCES
from tests.tools.waiting import scaled

_MAX_REQUEST_BYTES = 1 << 20
_IMPORTED = ("logshipper_observe.commands", "logshipper_observe.query", "logshipper_ingest.store")


class ForkedCommand:
    """A running command. environment: all of it. Its locale and Python's own settings must equal
    those of the tests."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], stdin: int, out: int, err: int
    ) -> None:
        self._status, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = json.dumps([list(words), dict(environment), os.getcwd()]).encode()
        assert len(request) < _MAX_REQUEST_BYTES
        with theirs:
            socket.send_fds(_server(), [request], [stdin, out, err, theirs.fileno()])
        self.pid = int(self._status.recv(32))

    def wait(self, timeout_secs: float) -> int:
        """Return the exit code, or a negative signal number.

        After the time-out it kills the command and raises TimeoutError.
        """
        self._status.settimeout(timeout_secs)
        try:
            answer = self._status.recv(32)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            raise
        finally:
            self._status.close()
        return os.waitstatus_to_exitcode(int(answer))


def on_a_terminal(
    words: Sequence[str], environment: Mapping[str, str], rows: int, columns: int
) -> tuple[bytes, int]:
    """Return the output of a command on a terminal of that size, and its exit code."""
    controller, terminal = os.openpty()
    termios.tcsetwinsize(terminal, (rows, columns))
    command = ForkedCommand(words, environment, terminal, terminal, terminal)
    os.close(terminal)
    output = bytearray()
    with suppress(OSError):  # EIO: no process has it open any more
        while data := os.read(controller, 65536):
            output += data
    os.close(controller)
    return bytes(output), command.wait(scaled(60))


@functools.cache
def _server() -> socket.socket:
    """Return a socket to the process that forks commands. That process ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SOURCES}", "LC_ALL": "C.UTF-8"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=theirs.fileno(), cwd=ROOT, env=environment
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve() -> None:
    from logshipper.start.cli import build_parser

    build_parser()  # imports the modules of all commands
    for name in _IMPORTED:
        for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
            importlib.import_module(module.name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the parents of commands need no wait
    with socket.socket(fileno=0) as requests:
        while True:
            request, fds, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 4)
            if not request:
                return
            if os.fork() == 0:
                requests.detach()
                _run_and_tell(*json.loads(request), *fds)
            for fd in fds:
                os.close(fd)


def _run_and_tell(
    words: list[str],
    environment: dict[str, str],
    folder: str,
    stdin: int,
    out: int,
    err: int,
    status: int,
) -> NoReturn:
    """Run the command in a child, and report its pid and status; called in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for fd, standard in ((stdin, 0), (out, 1), (err, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        os._exit(_command(words, environment, folder))
    for standard in (0, 1, 2):  # so that readers see EOF at the command's end
        os.close(standard)
    os.write(status, b"%d" % pid)
    os.write(status, b"%d" % os.waitpid(pid, 0)[1])
    os._exit(0)


def _command(words: list[str], environment: dict[str, str], folder: str) -> int:
    """Run a command between a start and an end like Python's own; return the exit code."""
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    sys.argv = [str(LOGSHIPPER / "__main__.py"), *words]
    like: dict[str, Any] = {"encoding": sys.stdout.encoding, "closefd": False}  # Any: open's
    strict = sys.stdout.errors
    sys.stdin = open(0, errors=strict, **like)  # noqa: SIM115
    sys.stdout = open(1, "w", errors=strict, **like)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", **like)  # noqa: SIM115
    from logshipper.__main__ import main

    code: object
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except OSError:
        return 120
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    _serve()
