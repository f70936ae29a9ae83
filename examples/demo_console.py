"""Shared console of the demonstrations: it announces steps, runs commands as in a shell, and counts
missing results."""

import os
import pty
import shlex
import shutil
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

EXAMPLES = Path(__file__).resolve().parent


class Demo:
    """A demonstration's folder and console, and its missing results. settings: variables of
    logshipper's environment."""

    def __init__(self, folder: Path, settings: dict[str, str], *, fast: bool) -> None:
        self.folder = folder
        self.fast = fast
        self.job = ["python", os.path.relpath(EXAMPLES / "train.py"), *(["--fast"] if fast else [])]
        programs = Path(sys.executable).parent
        exported = "".join(f" {name}={shlex.quote(value)}" for name, value in settings.items())
        self.export = f'export PATH={shlex.quote(str(programs))}:"$PATH"{exported}'
        self.missing: list[str] = []
        self.terminal = sys.stdout.isatty()
        self.size = shutil.get_terminal_size((100, 30))
        self.console = Console(highlight=False, width=self.size.columns)
        outer = {name: value for name, value in os.environ.items() if name != "LOGSHIPPER_STORE"}
        self.environment = {
            **outer,
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            **settings,
            "HOME": str(folder / "home"),  # isolates the demonstration from your own ~/.logoptin
            "MPLCONFIGDIR": str(folder / "home"),
        }

    def say(self, text: str = "", style: str = "", *, exact: bool = False) -> None:
        """Print a paragraph, wrapped at words. exact: leave a command or another program's line
        unwrapped."""
        self.console.print(Text(text, style=style), soft_wrap=exact)
        sys.stdout.flush()

    def heading(self, text: str) -> None:
        self.say()
        self.say(f"=== {text} ".ljust(min(self.size.columns, 100), "="), "bold cyan")
        self.say()

    def check(self, holds: bool, text: str) -> None:
        """Print the outcome of an expectation, and record a failed one for the end."""
        self.say(f"  [{'ok' if holds else 'MISSING'}] {text}", "green" if holds else "bold red")
        if not holds:
            self.missing.append(text)

    def call(self, *words: str, rows: int = 0, quiet: bool = False) -> str:
        """Run `logshipper WORDS` and show its output; return the output without colours.

        rows: maximum of shown lines, 0 for all. quiet: show nothing.
        """
        command = ["logshipper", *words]
        if not quiet:
            self.say(f"$ {shlex.join(command)}", "bold", exact=True)
        if self.terminal and not quiet:
            pieces: list[bytes] = []
            status = run_in_terminal(command, self.environment, self.size, pieces.append)
            lines = Text.from_ansi(
                b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")
            ).split()
        else:
            environment = {**self.environment, "COLUMNS": str(self.size.columns)}
            done = subprocess.run(
                command, check=False, env=environment, stdin=subprocess.DEVNULL, capture_output=True
            )
            status = done.returncode
            sys.stderr.buffer.write(done.stderr)
            lines = Text(done.stdout.decode(errors="replace")).split()
        if not quiet:
            for line in list(lines)[: rows or None]:
                self.console.print(line, soft_wrap=True)
            if rows and len(lines) > rows:
                self.say(f"({len(lines) - rows} more lines)", "dim")
        if status:
            self.check(False, f"`{shlex.join(command)}` ends with exit code 0, not {status}")
        return "".join(f"{line.plain}\n" for line in lines)


def capture(demo: Demo) -> bytes:
    """Run the training under `logshipper run`; return all bytes sent to its terminal."""
    demo.heading("A training run under logshipper")
    demo.say(f"$ {demo.export}", "bold", exact=True)
    command = ["logshipper", "run", "-q", "--name", "demo", "--", *demo.job]
    demo.say(f"$ {shlex.join(command)}", "bold", exact=True)
    if not demo.terminal:
        demo.say(
            "(Standard output is no terminal here: an excerpt follows, instead of the live output.)",
            "dim",
        )
    pieces: list[bytes] = []

    def shown(data: bytes) -> None:
        pieces.append(data)
        if demo.terminal:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    status = run_in_terminal(command, demo.environment, demo.size, shown)
    if status:
        demo.check(False, f"the training run ends with exit code 0, not {status}")
    raw = b"".join(pieces)
    (demo.folder / "terminal.txt").write_bytes(raw)
    return raw


def run_in_terminal(
    command: Sequence[str],
    environment: dict[str, str],
    size: os.terminal_size,
    take: Callable[[bytes], object],
) -> int:
    """Run a command in a new terminal of this size, as if typed there. Pass its output to `take`.

    Return its exit code, or a signal's negative number.
    """
    child, terminal = pty.fork()
    if child == 0:
        try:
            termios.tcsetwinsize(0, (size.lines, size.columns))
            os.execvpe(command[0], list(command), environment)
        finally:
            os._exit(127)
    try:
        for data in _until_hung_up(terminal):
            take(data)
    finally:  # also after Ctrl-C: closing the terminal sends SIGHUP to the remaining processes
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _until_hung_up(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # EIO: no process holds the other end any more
            return


def finish(demo: Demo, begin: float) -> int:
    """Print missing results and the duration; return the exit code."""
    demo.say()
    if demo.missing:
        demo.say("Not as it should be:", "bold red")
        for text in demo.missing:
            demo.say(f"  {text}", "red")
        return 1
    demo.say(f"All of this took {time.monotonic() - begin:.0f} s.")
    return 0
