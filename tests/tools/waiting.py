"""Waits for conditions. Limits are for a quiet machine; how much longer things take here is
measured at the start of the tests, which the processes that they start find in their environment;
others that begin to run later count, too."""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable

WAIT_SECS = 60.0  # for what happens at once unless something is broken
# between two looks at a condition: the first pause, and the longest
LOOK_SECS, MOST_LOOK_SECS = (0.005, 0.05)
SLOWNESS = "LOGSHIPPER_TEST_SLOWNESS"
_START_SECS = 0.02  # a Python's start, on the machine that limits are written for
_STARTS = 10
_MOST = 20.0
_OTHER_TESTS = 2.0  # other tests run next to these


def slowness() -> float:
    """How many times longer than on a quiet machine things may take: by the start of processes when
    the tests began, and by what runs next to us now, according to the kernel. At least 1, at most
    20."""
    crowd = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(_slowness_at_start(), crowd, 1.0), _MOST)


@functools.cache
def _slowness_at_start() -> float:
    if SLOWNESS in os.environ:
        return float(os.environ[SLOWNESS])
    begin = time.monotonic()
    for _ in range(_STARTS):
        subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True)
    return _OTHER_TESTS * (time.monotonic() - begin) / _STARTS / _START_SECS


def scaled(secs: float) -> float:
    """A limit for this machine, now."""
    return secs * slowness()


def wait_until(
    condition: Callable[[], object], purpose: str, timeout_secs: float = WAIT_SECS
) -> None:
    """Looks every few milliseconds, where looking takes longer half of the time. Raises
    AssertionError that names what was waited for. timeout_secs: of a quiet machine."""
    limit = scaled(timeout_secs)
    deadline = time.monotonic() + limit
    pause_secs = LOOK_SECS
    while True:
        begin = time.monotonic()
        if condition():
            return
        end = time.monotonic()
        assert end < deadline, f"not within {limit:g} s: {purpose}"
        time.sleep(max(pause_secs, end - begin))
        pause_secs = min(2 * pause_secs, MOST_LOOK_SECS)
