"""Wait for conditions, with time-outs that scale with the speed of the machine.

Limits are for a quiet machine. The tests measure this machine's slowness at their start, and pass
it to their processes through the environment. The current load counts as well.
"""

import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable

WAIT_SECS = 60.0  # for conditions that hold at once unless the code is broken
# between two checks of a condition: the first pause, and the longest
LOOK_SECS, MOST_LOOK_SECS = (0.005, 0.05)
SLOWNESS = "LOGSHIPPER_TEST_SLOWNESS"
_START_SECS = 0.02  # start of a Python on the machine for which limits are written
_STARTS = 10
_MOST = 20.0
_OTHER_TESTS = 2.0  # other tests run next to these


def slowness() -> float:
    """Return the factor by which a quiet machine's limits grow, from 1 to 20.

    It is the larger of two: the slowness of process starts when the tests began, and the kernel's
    current load per CPU.
    """
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
    """Return a quiet machine's limit, scaled to this machine's current speed."""
    return secs * slowness()


def wait_until(
    condition: Callable[[], object], purpose: str, timeout_secs: float = WAIT_SECS
) -> None:
    """Check the condition every few milliseconds; a slow check may take half of the time.

    Raises AssertionError with the purpose. timeout_secs: on a quiet machine.
    """
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
