"""The demonstration of `make demo`: a training run under logshipper, and its log, metadata and
graphs afterwards.

It calls the command line, prints each command, and leaves all files in demo-out/. Exit code 1 if an
expected result is missing.
"""

import argparse
import json
import os
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import cramjam

from examples.demo_console import Demo, capture, finish

TOKEN = b"tok-4f1b77a2c9-not-a-real-one"  # train.py prints it between its two /LOGCOMMAND lines
LOGGED = b"of the held-out points are told apart"  # a control: the search for the token must find this logged text
WARNING = "DeprecationWarning"
BAR = re.compile(r"\d+%\|")
ROWS = 12  # of a table or an excerpt


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows what logshipper makes of a training run.")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder to use (default: %(default)s)"
    )
    parser.add_argument("--fast", action="store_true", help="a very short training run")
    options = parser.parse_args()
    begin = time.monotonic()
    out = options.out.resolve()
    demo = Demo(out, {"LOGSHIPPER_STORE": str(out / "store")}, fast=options.fast)
    shutil.rmtree(out / "store", ignore_errors=True)
    (demo.folder / "home").mkdir(parents=True, exist_ok=True)

    raw = capture(demo)
    show_terminal(demo, raw)
    show_log(demo, raw)
    show_metadata(demo)
    show_graph(demo)
    show_next(demo)
    return finish(demo, begin)


def show_terminal(demo: Demo, raw: bytes) -> None:
    demo.heading("What the terminal showed")
    redraws = len(BAR.findall(raw.decode(errors="replace")))
    lines = raw.decode(errors="replace").split("\n")
    demo.say(
        f"{len(raw):,} bytes: {len(lines):,} lines, progress bars drawn again {redraws:,} times, the same warning "
        f"{sum(line.count(WARNING) for line in lines):,} times. A piece of it, control characters made visible:"
    )
    demo.say()
    record = next((at for at, line in enumerate(lines) if '{"epoch": 2,' in line), 0)
    for line in lines[max(record - 3, 0) : record + 2]:
        demo.say(f"  {visible(line)}", "dim", exact=True)
    demo.say()
    demo.say(f"All of it: {os.path.relpath(demo.folder / 'terminal.txt')}")


def visible(line: str) -> str:
    """Return a line with control characters as text, long runs of one character shortened, and at
    most 300 characters."""
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
        0 < size < len(raw),
        f"{len(raw):,} bytes -> {size:,} bytes, {len(raw) / max(size, 1):.0f} times smaller",
    )
    bars = [line for line in lines if BAR.search(line)]
    demo.check(len(bars) == 1, f"progress bars: {len(bars)} line, the state it ended in")
    printed, kept = (
        raw.decode(errors="replace").count(WARNING),
        sum(WARNING in line for line in lines),
    )
    demo.check(
        0 < kept < printed / 5,
        f"the warning: printed {printed:,} times, in the log {kept:,}, with counts",
    )
    contents = list(store_contents(demo.folder / "store"))
    demo.check(TOKEN in raw, "the token: it is in what the terminal showed")
    demo.check(
        any(LOGGED in content for content in contents)
        and not any(TOKEN in content for content in contents),
        f"the token: it is nowhere in the store ({len(contents):,} files and values looked at; other text is found)",
    )


def store_contents(store: Path) -> Iterator[bytes]:
    """Yield the contents of a store: each raw file, and each decompressed value of its databases."""
    for path in store.rglob("*"):
        if path.is_file():
            yield path.read_bytes()
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as database:
                tables = [
                    name
                    for (name,) in database.execute(
                        "SELECT name FROM sqlite_master WHERE type = 'table'"
                    )
                ]
                for table in tables:
                    for row in database.execute(f'SELECT * FROM "{table}"'):  # noqa: S608  a name from the file itself
                        yield from (unpacked(value) for value in row)


def unpacked(value: object) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode(errors="replace")
    try:
        return bytes(cramjam.zstd.decompress(value))
    except cramjam.DecompressionError:
        return value


def show_metadata(demo: Demo) -> None:
    demo.heading("The metadata, newest first")
    demo.call("metadata", "demo", rows=ROWS)
    header, *rows = (
        line.split() for line in demo.call("metadata", "demo", quiet=True).splitlines() or [""]
    )
    at = header.index("epoch") if "epoch" in header else 0
    epochs = [int(row[at]) for row in rows if row[at].isdigit()]
    demo.say()
    holds = len(set(epochs)) > 1 and epochs == sorted(epochs, reverse=True)
    demo.check(
        holds, f"{len(rows)} records, of {len(set(epochs))} epochs; the last epoch stands first"
    )


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
        ("logshipper open demo", "the job's page in your browser: log, graphs, table"),
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
