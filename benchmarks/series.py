"""Cost of series: a flood in `logshipper run` with and without them, and lines and records by
themselves.

Rounds alternate the order of the two; the ratio is the median over the rounds.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rendering import LINE
from logshipper.classify.series.recogniser import Recogniser

ROUNDS = 5
FLOOD_LINES = 3_000_000
LINES = 20_000  # of each kind, in the second part


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
    arguments = parser.parse_args()
    cost(arguments.rounds, arguments.lines)


if __name__ == "__main__":
    main()
