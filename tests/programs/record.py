"""Record the terminal output of programs into tests/captures: `python -m tests.programs.record
[NAME...]`.

Programs run in the empty folder /tmp/x, which is also their home, as root under their own host
name. Their PATH begins with LOGSHIPPER_PROGRAMS, folders of programs outside the repository's own
environment. tmux shows the bytes, and the capture also stores tmux's lines. The recorder refuses
output that names this machine, its user or its paths, and output above MAX_SIZE compressed bytes.

--shown: ask tmux again for its lines of the existing captures.
"""

import argparse
import dataclasses
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from codecs import getincrementaldecoder
from collections.abc import Sequence
from pathlib import Path

from logshipper.render.escape_parser import EscapeParser
from logshipper.render.final_lines import FinalLines
from logshipper.render.log_screen import LogScreen
from tests.programs import capture
from tests.programs.table import PROGRAMS, Program
from tests.tools.captures.terminal_oracle import Tmux

FOLDER = Path("/tmp/x")
SOURCES = Path(__file__).resolve().parent / "sources"
MAX_SIZE = 30_000
PROGRAM_SECS = 60.0
_QUERY = re.compile(r"\x1b\[(?:6n|c)")  # queries that programs expect an answer to
_PASSED_ON = re.compile(
    r"(?i:https?_proxy|no_proxy)|(PIP_CERT|PIP_INDEX_URL|SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|CARGO_HOME|RUSTUP_HOME|GOPATH|GOCACHE|GOPROXY|GOSUMDB|GOFLAGS)"
)
_RENAMED = {
    b"deb.debian.org": b"deb.example.org",
    b"crates.io": b"example.org",
}  # sources of packages
_PRIVATE = re.compile(rb"/(?:home|root|work|opt|mnt|srv|etc)/[\w.-]+|/Users/|/tmp/(?!x\b)[\w.-]+")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs.record")
    parser.add_argument("--shown", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(PROGRAMS)
    if unknown:
        parser.error(f"tests/programs/table.py has no {', '.join(sorted(unknown))}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        tmux = Tmux(Path(folder))
        try:
            for name in options.names or (_recorded() if options.shown else PROGRAMS):
                try:
                    recording = (
                        capture.read(name) if options.shown else _record(name, PROGRAMS[name])
                    )
                    print(_show(recording, tmux), flush=True)
                except (OSError, ValueError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"{name}: {error}", flush=True)
        finally:
            tmux.stop()
    return int(failed > 0)


def _recorded() -> list[str]:
    return [*capture.names(), *capture.names("two-streams/")]


def _show(recording: capture.Capture, tmux: Tmux) -> str:
    version = subprocess.run(
        ["tmux", "-V"], capture_output=True, text=True, check=True
    ).stdout.strip()
    lines = [line for line in tmux.lines(recording.data, recording.columns, recording.rows) if line]
    size = capture.write(dataclasses.replace(recording, shown=lines, tmux=version))
    if size > MAX_SIZE:
        capture.path_of(recording.name).unlink()
        raise ValueError(f"{size} bytes, compressed, are too many")
    return f"{recording.name}: {recording.version}; {len(recording.data)} bytes, {size} compressed, {len(lines)} lines"


def _record(name: str, program: Program) -> capture.Capture:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    try:
        (FOLDER / "program.py").write_text(program.python)
        if program.setup:
            subprocess.run(
                ["sh", "-ec", program.setup],
                cwd=FOLDER,
                env=_environment(),
                check=True,
                capture_output=True,
            )
        process = subprocess.run(
            ["sh", "-c", program.version],
            cwd=FOLDER,
            env=_environment(),
            capture_output=True,
            text=True,
        )
        first = next(iter((process.stdout or process.stderr).strip().splitlines()), "")
        version = first.partition(" - Copyright")[0][:80]
        reads = [(_renamed(data), now, stream) for data, now, stream in _run(program)]
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    data = b"".join(data for data, _, _ in reads)
    private = _PRIVATE.search(data)
    words = {os.uname().nodename, os.environ.get("USER", ""), os.environ.get("LOGNAME", "")} - {
        "",
        "root",
    }
    private_word = next(
        (word for word in [*words, *map(bytes.decode, _RENAMED)] if word.encode() in data), None
    )
    if private or private_word:
        raise ValueError(
            f"output names {data[max(private.start() - 80, 0) : private.end()] if private else private_word!r}"
        )
    timed = [(round(now - reads[0][1], 3), len(data)) for data, now, _ in reads]
    streams = [stream for _, _, stream in reads] if program.two_streams else []
    return capture.Capture(
        name, program.program, version, program.columns, program.rows, "", [], timed, data, streams
    )


def _renamed(data: bytes) -> bytes:
    for name, replacement in _RENAMED.items():
        data = data.replace(name, replacement)
    return data


def _environment() -> dict[str, str]:
    path = os.pathsep.join([os.environ.get("LOGSHIPPER_PROGRAMS", ""), os.environ["PATH"]]).strip(
        os.pathsep
    )
    env = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    env |= {
        "PATH": path,
        "HOME": str(FOLDER),
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "SHELL": "/bin/sh",
        "SOURCES": str(SOURCES),
    }
    return env


class _Answers:
    """Answer queries for the cursor's position and the terminal's type like a terminal."""

    def __init__(self, columns: int, rows: int) -> None:
        self._screen = LogScreen(columns, rows, FinalLines())
        self._parser = EscapeParser(self._screen)
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def to(self, data: bytes) -> bytes:
        text = self._decoder.decode(data)
        answers = ""
        at = 0
        for query in _QUERY.finditer(text):
            self._parser.feed(text[at : query.end()])
            at = query.end()
            place = f"\x1b[{self._screen.y + 1};{min(self._screen.x + 1, self._screen.columns)}R"
            answers += place if query[0].endswith("n") else "\x1b[?1;2c"
        self._parser.feed(text[at:])
        return answers.encode()


def _run(program: Program) -> list[tuple[bytes, float, int]]:
    """Run a program like run_in_pty, but press keys, in its own session with this terminal. Return
    its reads, each with its stream."""
    error_master, error_slave = pty.openpty() if program.two_streams else (-1, -1)
    child, master = pty.fork()
    if child == 0:
        os.chdir(FOLDER)
        if program.two_streams:
            os.dup2(error_slave, 2)
        for fd in (1, 2):
            attributes = termios.tcgetattr(fd)
            attributes[1] &= ~termios.OPOST
            termios.tcsetattr(fd, termios.TCSANOW, attributes)
            size = struct.pack("HHHH", program.rows, program.columns, 0, 0)
            fcntl.ioctl(fd, termios.TIOCSWINSZ, size)
        command = program.command or "exec python program.py"
        words = ["sh", "-c", command]
        if os.geteuid() == 0:
            words = [
                "unshare",
                "--uts",
                "--pid",
                "--fork",
                "--mount-proc",
                "sh",
                "-c",
                f"hostname host; {command}",
            ]
        os.execvpe(words[0], words, _environment())
    reads: list[tuple[bytes, float, int]] = []
    streams = {master: 1}
    if program.two_streams:
        os.close(error_slave)
        streams[error_master] = 2
    # events arrive in the order in which streams became readable
    poll = select.epoll()
    for fd in streams:
        poll.register(fd, select.EPOLLIN | select.EPOLLET)
        os.set_blocking(fd, False)
    keys = list(program.keys)
    answers = _Answers(program.columns, program.rows)
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + PROGRAM_SECS:
            wait = (
                begin + keys[0][0] - time.monotonic()
                if keys
                else begin + PROGRAM_SECS - time.monotonic()
            )
            events = poll.poll(max(wait, 0))
            for fd, event in events:
                while data := _read(fd):
                    reads.append((data, time.monotonic(), streams[fd]))
                    if fd == master:
                        os.write(fd, answers.to(data))
                if event & select.EPOLLHUP:
                    poll.unregister(fd)
                    del streams[fd]
            if not streams:
                break
            if not events and keys:
                os.write(master, keys.pop(0)[1])
        else:
            raise ValueError(f"it still ran after {PROGRAM_SECS} s")
    finally:
        for fd in {master, error_master} - {-1}:
            os.close(fd)
        if time.monotonic() > begin + PROGRAM_SECS:
            os.killpg(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    if not reads or (status and not program.fails):
        raise ValueError(
            f"status {status}, and {b''.join(data for data, _, _ in reads[-5:])[-600:]!r}"
        )
    return reads


def _read(fd: int) -> bytes:
    """Return the next bytes, or b"" if there are none or the terminal is closed."""
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
