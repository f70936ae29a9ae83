"""Run programs in a pty, and let tmux display their bytes as a terminal does."""

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from logshipper.render.renderer import Renderer
from tests.tools.waiting import scaled

COLUMNS, ROWS = 160, 50
PROGRAM_SECS = scaled(60.0)
TMUX_SECS = scaled(30.0)
_END = "all shown"
_ATTRIBUTES = re.compile(r"\x1b\[[0-9;:]*m|\x1b\]8;[^\x1b\x07]*(?:\x07|\x1b\\)")
_SHIFT = re.compile("([\x0e\x0f])")
_LINE_DRAWING = str.maketrans(
    "_`abcdefghijklmnopqrstuvwxyz{|}~", " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
)


def run_in_pty(
    command: Sequence[str], environment: dict[str, str] | None = None
) -> list[tuple[bytes, float]]:
    """Return a command's output on a terminal with logshipper's settings (OPOST off).

    One item per read: its bytes and its time.
    """
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "HOME": os.devnull,
    }
    reads = []
    deadline = time.monotonic() + PROGRAM_SECS
    try:
        with subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**env, **(environment or {})}
        ) as run:
            os.close(slave)
            try:
                while select.select([master], [], [], max(deadline - time.monotonic(), 0))[0]:
                    data = os.read(master, 65536)
                    if not data:
                        break
                    reads.append((data, time.monotonic()))
                else:
                    pytest.fail(f"{command} still ran after {PROGRAM_SECS} s")
            except OSError:  # EIO: no process holds the terminal any more
                pass
            finally:
                if time.monotonic() > deadline:
                    run.kill()
            assert run.wait() == 0, reads
    finally:
        os.close(master)
    return reads


def run_python(code: str) -> list[tuple[bytes, float]]:
    """Return the output of a piece of Python on a terminal, as `run_in_pty`."""
    return run_in_pty([sys.executable, "-c", code])


def _text(screen: str) -> str:
    """Return a screen's text without colours and links.

    Line drawing characters are ASCII between SO and SI; the result has their Unicode equivalents.
    """
    pieces = _SHIFT.split(_ATTRIBUTES.sub("", screen))
    # in turn: text, SO or SI, text, ...
    shifts = ["\x0f", *pieces[1::2]]
    texts = zip(shifts, pieces[::2], strict=True)
    return "".join(
        text.translate(_LINE_DRAWING) if shift == "\x0e" else text for shift, text in texts
    )


class Tmux:
    """A tmux server of its own. folder: for its socket and files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions = 0
        # the server ends with its last session
        self._call("new-session", "-d", "-s", "keeper", "exec sleep 1000")

    def _call(self, *words: str) -> str:
        command = ["tmux", "-u", "-S", str(self._folder / "tmux"), "-f", os.devnull, *words]
        env = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
        }
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=True, timeout=TMUX_SECS
        ).stdout

    def lines(self, data: bytes, columns: int = COLUMNS, rows: int = ROWS) -> list[str]:
        """Return all lines on the terminal after data, with its history, without trailing
        blanks."""
        return self._capture_screen(data, columns, rows, "-J", "-S", "-")

    def screen(self, data: bytes, columns: int, rows: int) -> list[str]:
        """Return the rows on the terminal after data, without trailing blanks and blank rows at the
        bottom."""
        screen = self._capture_screen(data, columns, rows)
        while screen and not screen[-1]:
            screen.pop()
        return screen

    def _capture_screen(self, data: bytes, columns: int, rows: int, *options: str) -> list[str]:
        self._sessions += 1
        name = f"s{self._sessions}"
        file = self._folder / name
        file.write_bytes(data + f"\x1b]2;{_END}\x07".encode())
        size = ("-x", str(columns), "-y", str(rows))
        # -echo: tmux's answers to queries are not output of the program
        self._call(
            "new-session", "-d", "-s", name, *size, f"stty -echo; cat {file}; exec sleep 1000"
        )
        deadline = time.monotonic() + TMUX_SECS
        while (
            self._call("display-message", "-p", "-t", f"={name}:", "#{pane_title}").strip() != _END
        ):
            assert time.monotonic() < deadline, f"tmux hasn't shown {file} after {TMUX_SECS} s"
            time.sleep(0.01)
        screen = self._call("capture-pane", "-p", "-e", "-t", f"={name}:", *options)
        self._call("kill-session", "-t", f"={name}")
        return [line.rstrip(" ") for line in _text(screen).split("\n")]

    def stop(self) -> None:
        self._call("kill-server")


def has_tmux() -> bool:
    return shutil.which("tmux") is not None


@pytest.fixture(scope="module")
def tmux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tmux]:
    if not has_tmux():
        pytest.skip("tmux isn't installed: there is nothing to compare with")
    server = Tmux(tmp_path_factory.mktemp("tmux"))
    yield server
    server.stop()


def log_lines(renderer: Renderer, reads: list[tuple[bytes, float]]) -> list[str]:
    """Return the renderer's lines without blank lines, trailing blanks and its own notes."""
    blocks = []
    for data, now in reads:
        blocks += renderer.feed(data, now).blocks
    blocks += renderer.flush()
    text = b"".join(block.text for block in blocks if not block.note).decode()
    return [line.rstrip(" ") for line in text.split("\n") if line.strip(" ")]
