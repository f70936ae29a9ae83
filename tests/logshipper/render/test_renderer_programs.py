"""Real programs run in a pty: the renderer logs the text that tmux shows (R29)."""

import shutil
import sys
from pathlib import Path

import pytest

from logshipper.render.renderer import Renderer
from tests.tools.captures.terminal_oracle import Tmux, log_lines, run_in_pty, run_python, tmux

__all__ = ["tmux"]  # a fixture

# no joined emoji in lines wider than the terminal: tmux shows them differently depending on its
# reads
PROGRAMS = {
    "tqdm": r"""
from tqdm import tqdm
for i in tqdm(range(2000), mininterval=0): pass
print("done")
""",
    "tqdm ascii, unknown total, narrow": r"""
from tqdm import tqdm
for i in tqdm(iter(range(300)), mininterval=0, ascii=True, ncols=60, desc="reading"): pass
for i in tqdm(range(300), mininterval=0, ascii=" .oO", ncols=60): pass
""",
    "tqdm nested": r"""
from tqdm import tqdm
for i in tqdm(range(3), desc="epochs"):
    for j in tqdm(range(50), desc="batches %d" % i, mininterval=0): pass
print("done")
""",
    "tqdm nested, leave=False": r"""
from tqdm import tqdm
for i in tqdm(range(3), desc="epochs"):
    for j in tqdm(range(50), desc="batches", leave=False, mininterval=0):
        for k in tqdm(range(3), desc="parts", leave=False, mininterval=0): pass
    print("after epoch", i)
""",
    "tqdm position=": r"""
from tqdm import tqdm
bars = [tqdm(total=30, position=p, desc="bar %d" % p, mininterval=0) for p in range(4)]
for i in range(30):
    for bar in reversed(bars): bar.update()
for bar in bars: bar.close()
print()
print("done")
""",
    "tqdm.write of JSON": r"""
import json
from tqdm import tqdm
for i in tqdm(range(30), mininterval=0):
    if i % 3 == 0: tqdm.write(json.dumps({"epoch": i, "loss": 1 / (i + 1)}))
""",
    "tqdm.write above nested bars": r"""
from tqdm import tqdm
for i in tqdm(range(4), mininterval=0):
    for j in tqdm(range(4), mininterval=0, leave=False): tqdm.write("i %d j %d" % (i, j))
""",
    "tqdm.write from threads": r"""
import threading
from tqdm import tqdm
def work(n):
    for i in tqdm(range(40), position=n, desc="thread %d" % n, mininterval=0):
        if i % 10 == 0: tqdm.write("thread %d at %d" % (n, i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("\n" * 3)
""",
    "tqdm.auto, postfix, unicode": r"""
from tqdm.auto import tqdm, trange
bar = trange(20, desc="训练 ⚠️", mininterval=0)
for i in bar: bar.set_postfix(loss=1 / (i + 1), emoji="💻")
""",
    "more bars than rows below": r"""
from tqdm import tqdm
print("\n".join("line %d" % i for i in range(70)))
for i in tqdm(range(3), mininterval=0):
    for j in tqdm(range(3), mininterval=0): pass
print("\n".join("line %d" % i for i in range(70)))
""",
    "rich Progress": r"""
from rich.progress import Progress
with Progress() as progress:
    tasks = [progress.add_task("task %d" % n, total=20) for n in range(3)]
    for i in range(20):
        for task in tasks: progress.update(task, advance=1, refresh=True)
        if i % 5 == 0: progress.console.print("[red]printed[/] above", i)
print("done")
""",
    "rich track, transient Status, Live": r"""
from rich.console import Console
from rich.live import Live
from rich.progress import track
from rich.table import Table
console = Console(force_terminal=True)
for i in track(range(10), console=console): pass
with console.status("working") as status:
    for i in range(3):
        console.log("did", i)
        status.update("working on %d" % i)
table = Table("n", "square")
with Live(table, console=console, auto_refresh=False) as live:
    for i in range(5):
        table.add_row(str(i), str(i * i))
        live.refresh()
with Live("gone", console=console, transient=True): pass
console.print({"a": [1, 2, 3]}, "x" * 400)
console.rule("end")
""",
    "rich screen()": r"""
from rich.console import Console
console = Console(force_terminal=True)
console.print("before")
with console.screen(): console.print("left out")
console.print("after")
""",
    "rich traceback and logging": r"""
import logging
from rich.console import Console
from rich.logging import RichHandler
console = Console(force_terminal=True)
logging.basicConfig(level="INFO", format="%(message)s", handlers=[RichHandler(console=console)])
logging.info("hello [1, 2]")
try: 1 / 0
except ZeroDivisionError: console.print_exception()
""",
    "Keras-like, with BS": r"""
import sys
for i in range(1, 31):
    text = "%2d/30 [%s>%s] - loss: %.4f" % (i, "=" * (i - 1), "." * (30 - i), 1 / i)
    sys.stdout.write("\b" * 60 + "\r" + text)
sys.stdout.write("\n")
for i in range(5): sys.stdout.write("\b" * (i > 0) + str(i))
print()
""",
    "pip-like": r"""
import sys
sys.stdout.write("Collecting numpy\n\x1b[?25l     \x1b[90m" + "━" * 40 + "\x1b[0m \x1b[32m0.0/1.0 MB\x1b[0m")
for i in range(10):
    sys.stdout.write("\r\x1b[2K     \x1b[91m%s\x1b[0m \x1b[32m%.1f/1.0 MB\x1b[0m" % ("━" * 4 * i, i / 10))
sys.stdout.write("\r\x1b[2K     \x1b[90m%s\x1b[0m \x1b[32m1.0/1.0 MB\x1b[0m\n" % ("━" * 40))
sys.stdout.write("\x1b[?25hInstalled\n")
""",
    "apt-like, with a scroll region": r"""
import sys
w = sys.stdout.write
w("Reading\r\n\n\x1b7\x1b[0;49r\x1b8\x1b[1A")
for i in range(60):
    w("Unpacking %d ...\r\n\x1b7\x1b[50;0f\x1b[42m\x1b[30mProgress: [%3d%%]\x1b[49m\x1b[39m [####]\x1b8" % (i, i))
w("\x1b7\x1b[0;50r\x1b8\x1b[1A\x1b[J\nDone\r\n")
""",
    "clear screen, titles, links, tabs": r"""
import sys
w = sys.stdout.write
w("one\ntwo\n\x1b[H\x1b[2Jthree\n\x1b]0;title\x07a\tb\tc\n")
w("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\ text\n" + "long " * 100 + "\n" + "宽" * 100 + "\n")
w("\x1b[H\x1b[Jfour\nend\n")
""",
    "docker-like layers": r"""
import sys
w = sys.stdout.write
names = ["layer%d" % n for n in range(4)]
w("\x1b[?25l")
w("".join("%s: waiting\n" % name for name in names))
for i in range(20):
    n = i % 4
    w("\x1b[%dA\x1b[2K\r%s: %d%%\r\x1b[%dB" % (4 - n, names[n], i * 5, 4 - n))
w("pulled\n")
""",
}
COMMANDS = {
    "dd status=progress": [
        "dd",
        "if=/dev/zero",
        "of=/dev/null",
        "bs=1M",
        "count=200",
        "status=progress",
    ],
    "pytest -v in colour": [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "--color=yes",
        "-p",
        "no:cacheprovider",
        "FILE",
    ],
    "git clone": [
        "sh",
        "-c",
        "cd FOLDER && git init -q from && cd from && seq 9999 | split -l 20 && git add . && "
        "git -c user.name=n -c user.email=e commit -qm one && cd .. && git clone --progress file://FOLDER/from to",
    ],
    "gcc": ["sh", "-c", "gcc -fdiagnostics-color=always -Wall -x c -c FILE.c -o /dev/null"],
    "less leaves the alternate screen": ["sh", "-c", "echo before; less +q FILE; echo after"],
    "curl": ["sh", "-c", "curl file://FILE -o /dev/null"],
}


def _compare(reads: list[tuple[bytes, float]], tmux: Tmux) -> None:
    data = b"".join(data for data, _ in reads)
    assert data
    lines = [line for line in tmux.lines(data) if line]
    assert log_lines(Renderer(), reads) == lines
    assert log_lines(Renderer(), [(data, 0.0)]) == lines
    assert (
        log_lines(
            Renderer(),
            [(data[at : at + 1], 0.0) for at in range(min(len(data), 20_000))]
            + [(data[20_000:], 0.0)],
        )
        == lines
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_as_tmux_shows_them(name: str, tmux: Tmux) -> None:
    for module in ("tqdm", "rich"):
        if module in PROGRAMS[name]:
            pytest.importorskip(module)
    _compare(run_python(PROGRAMS[name]), tmux)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_as_tmux_shows_them(name: str, tmux: Tmux, tmp_path: Path) -> None:
    if shutil.which(name.split(maxsplit=1)[0]) is None:
        pytest.skip(f"{name.split(maxsplit=1)[0]} isn't installed")
    file = tmp_path / "test_some.py"
    file.write_text(
        "import pytest\n\n@pytest.mark.parametrize('n', range(20))\ndef test_n(n):\n    assert n % 7\n"
        * 2
    )
    (tmp_path / "test_some.py.c").write_text("int main(void) { int unused; return wrong; }\n")
    words = [
        word.replace("FILE", str(file)).replace("FOLDER", str(tmp_path)) for word in COMMANDS[name]
    ]
    _compare(run_in_pty(["sh", "-c", '"$@" || true', "sh", *words]), tmux)
