"""`python -m tests.tools.fakes.stepped_clock FILE PROGRAM WORD...`: run a program of
tests.tools.stress.crashing with a wrong wall clock.

FILE contains the clock's offset in seconds, and may change at any time. The monotonic clock is not
affected, as when an admin or NTP sets a clock.
"""

import sys
import time
from pathlib import Path

from tests.tools.stress.crashing import PROGRAMS


def main(file: str, program: str, *words: str) -> int:
    place, real_ns = Path(file), time.time_ns

    def stepped_ns() -> int:
        return real_ns() + int(place.read_text() or 0) * 10**9

    time.time_ns = stepped_ns
    time.time = lambda: stepped_ns() / 1e9
    return PROGRAMS[program](list(words))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
