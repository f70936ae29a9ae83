"""Run tests many times, to find those that pass by luck: `python -m tests.tools.stress.repeat
[--times N] [--busy N] [--shuffle] TEST...`.

Each TEST is a test or file in pytest's notation, or a tier (check, core, all). It runs N times, in
a process of its own, next to busy loops if you ask for them. build/tests/repeat has the logs of
failed runs. The exit code is 1 if a run failed.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tests.tiers import MARKERS, TESTS

ROOT = TESTS.parent
KEPT = ROOT / "build" / "tests" / "repeat"
_LOOP = "while True: pass"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.stress.repeat", description="runs tests many times"
    )
    parser.add_argument("tests", nargs="+", metavar="TEST", help="as pytest names it, or a tier")
    parser.add_argument(
        "--times", type=int, default=50, metavar="N", help="how often each (default: 50)"
    )
    parser.add_argument(
        "--busy", type=int, default=0, metavar="N", help="busy loops next to them (default: none)"
    )
    parser.add_argument(
        "--shuffle", action="store_true", help="in random order, by a seed that is printed"
    )
    options = parser.parse_args(words)
    failed = 0
    with _busy(options.busy):
        for test in options.tests:
            failed += _repeat(test, options.times, shuffle=options.shuffle)
    return 1 if failed else 0


def _repeat(test: str, times: int, *, shuffle: bool) -> int:
    """Return the number of failed runs."""
    failed, seconds = 0, []
    for number in range(1, times + 1):
        order = (
            ["-p", "tests.tools.stress.shuffle", "--shuffle", str(random.randrange(2**32))]
            if shuffle
            else []
        )
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "tests/run.py", test, *order],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        seconds.append(time.monotonic() - begin)
        if done.returncode:
            failed += 1
            KEPT.mkdir(parents=True, exist_ok=True)
            log = KEPT / f"{test.replace('/', '-')[:100]}-{number}.log"
            log.write_bytes(done.stdout)
            print(f"  failed: {log.relative_to(ROOT)} {' '.join(order)}", flush=True)
        elif test in MARKERS or order:
            print(f"  passed, {seconds[-1]:.0f} s {' '.join(order)}", flush=True)
    print(
        f"{test}: passed {times - failed} of {times}, {min(seconds):.1f} to {max(seconds):.1f} s",
        flush=True,
    )
    return failed


@contextlib.contextmanager
def _busy(loops: int) -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-I", "-S", "-c", _LOOP]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
