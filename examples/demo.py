"""What `make demo` runs: a training run captured by logshipper, and what can be seen of it afterwards.

It calls the command line as you would, says each command, and leaves everything in demo-out/. Exit code 1 where
something that should be there isn't.
"""

import argparse
import json
import os
import pty
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import termios
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.text import Text

EXAMPLES = Path(__file__).resolve().parent
TOKEN = b"tok-4f1b77a2c9-not-a-real-one"  # what train.py prints between its two /LOGCOMMAND lines
LOGGED = b"of the held-out points are told apart"  # is in the log: so looking for the token would find it
WARNING = "DeprecationWarning"
BAR = re.compile(r"\d+%\|")
ROWS = 12  # of a table or an excerpt


class Demo:
    """The demonstration's folder and console, and what it found missing."""

    def __init__(self, folder: Path, *, fast: bool) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.job = ["python", os.path.relpath(EXAMPLES / "train.py"), *(["--fast"] if fast else [])]
        programs = Path(sys.executable).parent
        self.export = (
            f'export PATH={shlex.quote(str(programs))}:"$PATH" LOGSHIPPER_STORE={shlex.quote(str(self.store))}'
        )
        self.missing: list[str] = []
        self.terminal = sys.stdout.isatty()
        self.size = shutil.get_terminal_size((100, 30))
        self.console = Console(highlight=False, width=self.size.columns)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "LOGSHIPPER_STORE": str(self.store),
            "HOME": str(folder / "home"),  # your own ~/.logoptin has no part in this
            "MPLCONFIGDIR": str(folder / "home"),
        }

    def say(self, text: str = "", style: str = "", *, exact: bool = False) -> None:
        """Prints a paragraph, wrapped by words. exact: a command or another program's line, left as it is."""
        self.console.print(Text(text, style=style), soft_wrap=exact)
        sys.stdout.flush()

    def heading(self, text: str) -> None:
        self.say()
        self.say(f"=== {text} ".ljust(min(self.size.columns, 100), "="), "bold cyan")
        self.say()

    def check(self, holds: bool, text: str) -> None:
        """Says whether something is as it should be; what isn't counts at the end."""
        self.say(f"  [{'ok' if holds else 'MISSING'}] {text}", "green" if holds else "bold red")
        if not holds:
            self.missing.append(text)

    def call(self, *words: str, rows: int = 0, quiet: bool = False) -> str:
        """Runs `logshipper WORDS` and shows it as it looks here; returns what it printed, without colours.

        rows: how many lines of its output are shown, 0 for all. quiet: nothing is shown.
        """
        command = ["logshipper", *words]
        if not quiet:
            self.say(f"$ {shlex.join(command)}", "bold", exact=True)
        if self.terminal and not quiet:
            pieces: list[bytes] = []
            status = run_in_terminal(command, self.environment, self.size, pieces.append)
            lines = Text.from_ansi(b"".join(pieces).decode(errors="replace").replace("\r\n", "\n")).split()
        else:
            environment = {**self.environment, "COLUMNS": str(self.size.columns)}
            done = subprocess.run(command, check=False, env=environment, stdin=subprocess.DEVNULL, capture_output=True)
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


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows what logshipper makes of a training run.")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder to use (default: %(default)s)")
    parser.add_argument("--fast", action="store_true", help="a very short training run")
    options = parser.parse_args()
    begin = time.monotonic()
    demo = Demo(options.out.resolve(), fast=options.fast)
    shutil.rmtree(demo.store, ignore_errors=True)
    (demo.folder / "home").mkdir(parents=True, exist_ok=True)

    raw = capture(demo)
    show_terminal(demo, raw)
    show_log(demo, raw)
    show_metadata(demo)
    show_graph(demo)
    show_next(demo)
    demo.say()
    if demo.missing:
        demo.say("Not as it should be:", "bold red")
        for text in demo.missing:
            demo.say(f"  {text}", "red")
        return 1
    demo.say(f"All of this took {time.monotonic() - begin:.0f} s.")
    return 0


def capture(demo: Demo) -> bytes:
    """Runs the training under `logshipper run`; returns every byte that its terminal was sent."""
    demo.heading("A training run under logshipper")
    demo.say(f"$ {demo.export}", "bold", exact=True)
    command = ["logshipper", "run", "--name", "demo", "--", *demo.job]
    demo.say(f"$ {shlex.join(command)}", "bold", exact=True)
    if not demo.terminal:
        demo.say("(Standard output is no terminal here: an excerpt follows, instead of the live output.)", "dim")
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
    command: Sequence[str], environment: dict[str, str], size: os.terminal_size, take: Callable[[bytes], object]
) -> int:
    """Runs a command in a new terminal of this size, as if typed there; take gets what it prints.

    Returns its exit code, negative for a signal's number.
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
    finally:  # after Ctrl-C here as well: a terminal that is closed hangs up whoever is left in it
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _until_hung_up(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # EIO: nobody holds the other end any more
            return


def show_terminal(demo: Demo, raw: bytes) -> None:
    demo.heading("What the terminal showed")
    redraws = len(BAR.findall(raw.decode(errors="replace")))
    lines = raw.decode(errors="replace").split("\n")
    demo.say(
        f"{len(raw):,} bytes: {len(lines):,} lines, progress bars drawn anew {redraws:,} times, the same warning "
        f"{sum(line.count(WARNING) for line in lines):,} times. A piece of it, control characters made visible:"
    )
    demo.say()
    record = next((at for at, line in enumerate(lines) if '{"epoch": 2,' in line), 0)
    for line in lines[max(record - 3, 0) : record + 2]:
        demo.say(f"  {visible(line)}", "dim", exact=True)
    demo.say()
    demo.say(f"All of it: {os.path.relpath(demo.folder / 'terminal.txt')}")


def visible(line: str) -> str:
    """A line with its control characters as text, long runs of one character shortened, 300 characters at most."""
    text = line.replace("\r", "\\r").replace("\x1b", "\\e") + "\\n"
    text = re.sub(r"([ █])\1{7,}", r"\1\1...\1\1", text)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-100:]}"


def show_log(demo: Demo, raw: bytes) -> None:
    demo.heading("What was logged")
    log = demo.call("logs", "demo", "--stream", "both")
    lines = log.splitlines()
    demo.say()
    size = len(log.encode())
    demo.check(
        0 < size < len(raw), f"{len(raw):,} bytes -> {size:,} bytes, {len(raw) / max(size, 1):.0f} times smaller"
    )
    bars = [line for line in lines if BAR.search(line)]
    demo.check(len(bars) == 1, f"progress bars: {len(bars)} line, the state it ended in")
    printed, kept = raw.decode(errors="replace").count(WARNING), sum(WARNING in line for line in lines)
    demo.check(0 < kept < printed / 10, f"the warning: printed {printed:,} times, in the log {kept:,}, with a count")
    contents = list(store_contents(demo.store))
    demo.check(TOKEN in raw, "the token: it is in what the terminal showed")
    demo.check(
        any(LOGGED in content for content in contents) and not any(TOKEN in content for content in contents),
        f"the token: it is nowhere in the store ({len(contents):,} files and values looked at; other text is found)",
    )


def store_contents(store: Path) -> Iterator[bytes]:
    """All that a store holds: each file as it is, and each value of its databases, unpacked."""
    for path in store.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                for table in tables:
                    for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  a name from the file itself
                        yield from (unpacked(value) for value in row)


def unpacked(value: object) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode(errors="replace")
    try:
        return zlib.decompress(value)
    except zlib.error:
        return value


def show_metadata(demo: Demo) -> None:
    demo.heading("The metadata, newest first")
    demo.call("metadata", "demo", rows=ROWS)
    header, *rows = (line.split() for line in demo.call("metadata", "demo", quiet=True).splitlines() or [""])
    at = header.index("epoch") if "epoch" in header else 0
    epochs = [int(row[at]) for row in rows if row[at].isdigit()]
    demo.say()
    holds = len(set(epochs)) > 1 and epochs == sorted(epochs, reverse=True)
    demo.check(holds, f"{len(rows)} records, of {len(set(epochs))} epochs; the last epoch stands first")


def show_graph(demo: Demo) -> None:
    demo.heading("The graph")
    image = demo.folder / "loss.png"
    image.unlink(missing_ok=True)
    demo.call("plot", "demo", "--y", "loss")
    demo.call("plot", "demo", "--y", "loss", "--png", os.path.relpath(image))
    axis = json.loads(demo.call("show", "demo", "--json", quiet=True) or "{}").get("x_axis", {})
    demo.say()
    chosen = f"the X axis: {axis.get('words')} (rule {axis.get('rule')} of 7; a key `progress` would go before it)"
    demo.check(axis.get("key") == "epoch", chosen)
    is_image = image.is_file() and image.read_bytes().startswith(b"\x89PNG")
    demo.check(is_image, f"the same graph as an image: {os.path.relpath(image)}")


def show_next(demo: Demo) -> None:
    demo.heading("Where to go on")
    for command, what in (
        (demo.export, "so that these find the command and this store"),
        ("logshipper show demo", "how the job went: times, ledger, keys, X axis"),
        ("logshipper logs demo --grep told", "search in the log"),
        ("logshipper plot demo --x epoch --y val/acc", "another graph"),
        ("logshipper run -- YOUR COMMAND", "capture something of your own, then:"),
        ("logshipper logs last --follow", "watch it from another terminal"),
        ("logshipper --help", "everything else; docs/user-guide.md explains it"),
    ):
        demo.say(f"  {command}", exact=True)
        demo.say(f"      {what}", "dim")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `make demo | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
