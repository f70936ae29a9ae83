"""The renderer alone, next to pyte: one process, no pipes, chunks of 64 KiB. Also measures the cost
of floods."""

import statistics
import time
from collections.abc import Callable

from logshipper.render.renderer import Renderer
from tests.tools.captures.terminal_oracle import run_python

LINE = b"epoch 12 step %07d: loss 0.123456 acc 0.98765 lr 1.0e-04 grad 0.5432 time 0.123 s/it ok\n"
CHUNK_BYTES = 64 << 10
PEER_BYTES = 300_000  # limit of each stream for pyte, at a second per megabyte
# output of real programs at full speed, recorded in a pty, once for each run
PROGRAMS = {
    "tqdm at full speed (CR)": """
from tqdm import tqdm
for i in tqdm(range(30000), mininterval=0, miniters=1): pass
""",
    "tqdm with `tqdm.write`": """
from tqdm import tqdm
for i in tqdm(range(10000), mininterval=0, miniters=1):
    if i % 10 == 0: tqdm.write("epoch %d loss 0.1234" % i)
""",
    "rich Progress, three bars (cursor up)": """
from rich.progress import Progress
with Progress(auto_refresh=False) as progress:
    tasks = [progress.add_task("task %d" % n, total=400) for n in range(3)]
    for i in range(400):
        for task in tasks: progress.update(task, advance=1, refresh=True)
""",
    "coloured log lines (rich), CJK and emoji": """
from rich.console import Console
console = Console()
for n in range(8000):
    console.print("[green]INFO[/] [dim]12:00:%02d[/] 训练 step %d ✅ loss=[bold cyan]0.123[/] 日本語 🚀" % (n % 60, n))
""",
}
FLOODS = {
    "OSC without end": (b"\x1b]0;", b"x" * 65536),
    "CSI without end": (b"\x1b[", b"1;" * 32768),
    "a line without end": (b"", b"x" * 65536),
    "combining characters": (b"x", "\u0301".encode() * 16384),
    "cursor movement": (b"", b"\x1b[A\x1b[B\x1b[5C\x1b[2D" * 2000),
    "cursor saved and restored": (b"", b"\x1b7\x1b8" * 8000),
    "scroll regions": (b"", b"\x1b[2;5r\x1b[5Hx\n\x1b[r" * 2000),
    "tabs and tab stops": (b"", b"\x1b[C\x1bH\t\x1b[9999Z\x1b[9999I" * 1500),
    "alternate screen": (b"", b"\x1b[?1049hx\x1b[?1049l" * 2000),
    "REP": (b"", b"x\x1b[9999b\n" * 4000),
    "cleared screens": (b"", b"x\x1b[2J" * 3000),
    "alignment patterns": (b"", b"\x1b#8" * 3000),
    "alignment patterns, cleared": (b"", b"\x1b#8\x1b[2J" * 1000),
    "inserted and deleted characters": (b"", b"xy\x1b[D\x1b[9999@\x1b[9999P\x1b[9999X" * 1500),
    "inserted and deleted lines": (b"", b"x\x1b[9999L\x1b[9999M" * 2000),
    "scrolling up and down": (b"", b"x\x1b[9999S\x1b[9999T" * 2000),
    "erasing": (b"", b"x\x1b[J\x1b[1J\x1b[K\x1b[1K" * 2000),
    "resets": (b"", b"x\x1bc\x1b[!p" * 2000),
    "/LOGCOMMAND lines": (b"", b"/LOGCOMMAND x\n" * 3000),
}


def beside_pyte(medians: Callable[..., dict[str, tuple[float, float]]]) -> None:
    """Print the throughput of each workload, with our renderer and pyte in turn."""
    streams = {"plain lines of 90 bytes": b"".join(LINE % number for number in range(200_000))}
    for name, program in PROGRAMS.items():
        streams[name] = b"".join(data for data, _ in run_python(program))
    print(
        "\n### The renderer alone, next to pyte\n\n| | MB | MB/s | pyte's MB/s | times pyte |\n|---|---|---|---|---|"
    )
    for name, data in streams.items():
        part = data[:PEER_BYTES]
        medians_of = medians(
            ours=lambda data=data: (0.0, _ours(data)), pyte=lambda part=part: (0.0, _pyte(part))
        )
        ours, pyte = (
            len(data) / medians_of["ours"][1] / 1e6,
            len(part) / medians_of["pyte"][1] / 1e6,
        )
        print(f"| {name} | {len(data) / 1e6:.1f} | {ours:.0f} | {pyte:.2f} | {ours / pyte:.0f} |")


def _ours(data: bytes) -> float:
    renderer = Renderer()
    begin = time.process_time()
    for at in range(0, len(data), CHUNK_BYTES):
        renderer.feed(data[at : at + CHUNK_BYTES], at / 1e7)
    return time.process_time() - begin


def _pyte(data: bytes) -> float:
    import pyte

    stream = pyte.ByteStream(pyte.Screen(160, 50))
    data = data.replace(b"\n", b"\r\n")  # no terminal driver runs before pyte
    begin = time.process_time()
    for at in range(0, len(data), CHUNK_BYTES):
        stream.feed(data[at : at + CHUNK_BYTES])
    return time.process_time() - begin


def floods(rounds: int) -> None:
    """Print the time per byte for one and for four parts of each flood. It must not grow with
    earlier output."""
    print("\n### Floods: microseconds a byte\n\n| | 1 part | 4 parts |\n|---|---|---|")
    for name, (start, piece) in FLOODS.items():
        single, four = (
            statistics.median(_flood(start, piece, parts) for _ in range(rounds))
            / parts
            / len(piece)
            * 1e6
            for parts in (1, 4)
        )
        print(f"| {name} | {single:.3f} | {four:.3f} |")


def _flood(start: bytes, piece: bytes, parts: int) -> float:
    renderer = Renderer()
    renderer.feed(start, 0.0)
    begin = time.process_time()
    for part in range(parts):
        at = 0
        while at < len(piece):
            fed = renderer.feed(piece, float(part), at)
            at = fed.consumed
            if fed.command is not None:
                renderer.keep_command()
    return time.process_time() - begin
