"""Feed the renderer random streams: `python -m tests.tools.stress.fuzz [--count N] [--seed N]`
(`make fuzz`).

Seeds count up from --seed. The run writes each stream that breaks the renderer to a file, with a
command that repeats it, and continues. The exit code is then 1.
"""

import argparse
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType

from tests.tools.stress.fuzz_streams import Case, check, make_case

HANG_SECS = 10  # of CPU; a stream takes some milliseconds
MAX_FAILURES = 20


class Hang(Exception):
    """A stream took longer than HANG_SECS."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--failures", type=Path, default=Path("fuzz-failures"), help="folder (default: %(default)s)"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGVTALRM, _hang)
    begin = last_report = time.monotonic()
    failed = 0
    for done, seed in enumerate(range(arguments.seed, arguments.seed + arguments.count), 1):
        if not _passes(seed, arguments.failures):
            failed += 1
            if failed == MAX_FAILURES:
                print(f"{failed} streams failed; that's enough")
                break
        now = time.monotonic()
        if now - last_report >= 10 or done == arguments.count:
            last_report = now
            rate = done / (now - begin)
            print(
                f"{done:,} of {arguments.count:,} streams, {rate:.0f} a second, {failed} failed",
                flush=True,
            )
    return int(failed > 0)


def _passes(seed: int, failures: Path) -> bool:
    case = make_case(seed)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_SECS)
    try:
        check(case)
    except Exception:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _report(seed, case, failures)
        return False
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return True


def _hang(signum: int, frame: FrameType | None) -> None:
    raise Hang


def _report(seed: int, case: Case, failures: Path) -> None:
    failures.mkdir(exist_ok=True)
    path = failures / f"{seed}.txt"
    repeat = f"{sys.executable} -m tests.tools.stress.fuzz --seed {seed} --count 1"
    path.write_text(f"{repeat}\n\n{case}\n\n{traceback.format_exc()}")
    print(
        f"seed {seed}: {traceback.format_exc(limit=0).splitlines()[-1][:200]}\n  {path}; again: {repeat}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
