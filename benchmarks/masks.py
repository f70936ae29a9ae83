"""Cost of masks by shape: one process renders and sorts floods with and without them.

Rounds alternate the order of the two; the ratio is the median over the rounds.
"""

import argparse
import statistics
import time

from benchmarks.rendering import CHUNK_BYTES, LINE
from logshipper.classify.classifier import Classifier
from logshipper.spool.segment import Stream

ROUNDS = 15
LINES = 200_000
FLOODS = {
    "plain lines": LINE,
    "coloured lines": b"\x1b[32mINFO\x1b[0m " + LINE,
    "coloured lines, `colors: keep`": b"\x1b[32mINFO\x1b[0m " + LINE,
    "JSON lines": b'{"step": %d, "loss": 0.123, "lr": 1e-4}\n',
    "lines with a hash": b"%07d 9fceb02d0ae598e95dc970b74767f19372d61af8 train.py: Fix the loader\n",
    "lines with an address": b"GET https://files.example.org/data/part-%07d.bin?n=1 200 in 0.12 s\n",
    "lines that say `key` and `token`": b"%07d tokens: key=value, 512 tokens/s, login ok\n",
    "each line has a secret": b"%07d remote said ghp_" + b"A1b2" * 9 + b" is old\n",
}


def cost(rounds: int = ROUNDS, lines: int = LINES) -> None:
    print(f"\n### Masks by shape: {lines:,} lines, {rounds} rounds, one core\n")
    print("| | MB/s without | MB/s with | cost |\n|---|---|---|---|")
    for name, line in FLOODS.items():
        data = b"".join(line % number for number in range(lines))
        keep_colours = "keep" in name
        without, with_masks, ratios = [], [], []
        for round_ in range(rounds):
            pair = {
                mask: _seconds(data, mask=mask, keep_colours=keep_colours)
                for mask in ((False, True) if round_ % 2 else (True, False))
            }
            without.append(pair[False])
            with_masks.append(pair[True])
            ratios.append(pair[True] / pair[False])
        speeds = [len(data) / 1e6 / statistics.median(secs) for secs in (without, with_masks)]
        more = statistics.median(ratios) - 1
        print(f"| {name} | {speeds[0]:.0f} | {speeds[1]:.0f} | {more:+.1%} |")


def _seconds(data: bytes, *, mask: bool, keep_colours: bool) -> float:
    """Return the CPU seconds of feeding the data."""
    classifier = Classifier("enabled", keep_colours=keep_colours, mask=mask)
    begin = time.process_time()
    for at in range(0, len(data), CHUNK_BYTES):
        classifier.feed(Stream.STDOUT, data[at : at + CHUNK_BYTES], 1.0)
        classifier.take()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--lines", type=int, default=LINES)
    arguments = parser.parse_args()
    cost(arguments.rounds, arguments.lines)


if __name__ == "__main__":
    main()
