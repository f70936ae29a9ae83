"""Cost of series: a flood in `logshipper run` with and without them, lines and records by
themselves, memory, and a day of a progress bar by a virtual clock.

Rounds alternate the order of the two; the ratio is the median over the rounds.
"""

import argparse
import lzma
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

from benchmarks.rendering import LINE
from logshipper.classify.classifier import Classifier
from logshipper.classify.logged import LoggedLines
from logshipper.classify.series.recogniser import Recogniser
from logshipper.config import AUTO, JSON
from logshipper.spool.segment import Kind, Stream
from tests.logshipper.classify.series.test_memory import hostile

ROUNDS = 5
FLOOD_LINES = 3_000_000
LINES = 20_000  # of each kind, in the second part
OUTPUTS = Path(__file__).parents[1] / "tests" / "series"
REDRAWS_PER_SEC = 10
DAY_SECS = 86_400
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cost(rounds: int = ROUNDS, lines: int = FLOOD_LINES) -> None:
    print(f"\n### Series: {rounds} rounds\n")
    with tempfile.TemporaryDirectory() as folder:
        flood = Path(folder, "flood")
        flood.write_bytes(b"".join(LINE % number for number in range(lines)))
        ratios = []
        for round_ in range(rounds):
            order = (False, True) if round_ % 2 else (True, False)
            secs = {auto: _run(flood, auto=auto) for auto in order}
            ratios.append(secs[False] / secs[True])
    ratio = statistics.median(ratios)
    print(f"`logshipper run` of {lines:,} lines: {ratio:.2f} of the throughput without series.\n")
    print("| lines | us each |\n|---|---|")
    for name, text in _kinds().items():
        print(f"| {name} | {statistics.median(_each(text) for _ in range(rounds)):.1f} |")


def memory() -> None:
    """Print the largest state of one stream, for recorded outputs and a hostile one."""
    peaks = []
    for path in OUTPUTS.glob("*.txt.xz"):
        with lzma.open(path) as file:
            peaks.append(_peak_bytes(file.read().splitlines()))
    hostile_bytes = _peak_bytes(line.encode() for line in hostile())
    print("\n| output | KiB of a stream |\n|---|---|")
    print(f"| of {len(peaks)} programs, median | {statistics.median(peaks) / 1024:.0f} |")
    print(f"| ... the largest | {max(peaks) / 1024:.0f} |")
    print(f"| hostile | {hostile_bytes / 1024:.0f} |")


def bar(secs: float) -> None:
    """Print the cost of a job that only redraws a bar, with and without series."""
    print(f"\n{secs / 3600:g} hours of a bar, {REDRAWS_PER_SEC} redraws a second:\n")
    print("| | records | CPU s | resident KiB more |\n|---|---|---|---|")
    for kinds in ((JSON,), (JSON, AUTO)):
        begin, resident = time.process_time(), _resident_bytes()
        records = _redraw(secs, kinds)
        cpu_secs, more = time.process_time() - begin, (_resident_bytes() - resident) // 1024
        print(f"| {', '.join(kinds)} | {records:,} | {cpu_secs:.1f} | {more:,} |")


def _redraw(secs: float, kinds: tuple[str, ...]) -> int:
    """Return the number of records."""
    classifier = Classifier("enabled", metadata=kinds)
    form = "\rEpoch 1: {:3d}%|{:<10}| {}/{} [00:01<00:03, 9.1it/s, loss={:.4f}]"
    count = int(secs * REDRAWS_PER_SEC)
    records = 0
    for redraw in range(count):
        now = redraw / REDRAWS_PER_SEC
        share = redraw / count
        text = form.format(int(share * 100), "█" * int(share * 10), redraw, count, 1 / (redraw + 1))
        classifier.feed(Stream.STDERR, text.encode(), now)
        classifier.tick(now)
        records += sum(
            isinstance(item, LoggedLines) and item.kind is Kind.METADATA
            for item in classifier.take()
        )
    return records


def _peak_bytes(lines: Iterable[bytes]) -> int:
    peak = 0
    recogniser = Recogniser()
    tracemalloc.start()
    for line in lines:
        recogniser.feed((line,), 1.0)
        peak = max(peak, tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return peak


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def _run(flood: Path, *, auto: bool) -> float:
    """Return the seconds of a run that prints the flood."""
    home = flood.parent / f"home-{auto}"
    home.mkdir(exist_ok=True)
    (home / ".logoptin").write_text("metadata: [json, auto]\n" if auto else "metadata: [json]\n")
    variables = {**os.environ, "HOME": str(home), "LOGSHIPPER_STORE": str(home / "store")}
    begin = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "logshipper", "run", "--", "cat", str(flood)],
        env=variables,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.monotonic() - begin


def _kinds() -> dict[str, list[bytes]]:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefgh", k=8)) for _ in range(LINES)]
    return {
        "without numbers": [f"compiling {word} with all warnings".encode() for word in words],
        "each of another shape": [
            f"unpacking {word} ({at}) over ({at})".encode() for at, word in enumerate(words)
        ],
        "all of one shape that is no series": [
            f"GET /index.html 200 {at}".encode() for at in range(LINES)
        ],
        "records of 3 numbers": [
            f"step {at} loss={1 / (at + 1):.4f} acc={at / LINES:.3f}".encode()
            for at in range(LINES)
        ],
        "rows of a table with 6 columns": [
            b"a b c d e f",
            *(f"{at} 0.1 0.2 {1 / (at + 1):.4f} 0.4 0.5".encode() for at in range(LINES)),
        ],
    }


def _each(lines: list[bytes]) -> float:
    """Return the CPU microseconds per line."""
    recogniser = Recogniser()
    begin = time.process_time()
    recogniser.feed(lines, 1.0)
    return (time.process_time() - begin) / len(lines) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--lines", type=int, default=FLOOD_LINES)
    parser.add_argument("--bar-secs", type=float, default=DAY_SECS, help="of the virtual clock")
    arguments = parser.parse_args()
    cost(arguments.rounds, arguments.lines)
    memory()
    bar(arguments.bar_secs)


if __name__ == "__main__":
    main()
