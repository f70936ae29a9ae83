"""The jobs of the page's tests."""

import time
from pathlib import Path

from tests.tools.captures.segment_factory import SECOND_NS as NS
from tests.tools.stores.reading_store import SpooledCapture, training

TRAINED, FAILED, LONG = "k3f9x2", "p7q1zz", "m4n8bb"
STARTED_NS = time.time_ns() - 3 * 3600 * NS
LONG_LINES = 30_000


def fixture_jobs(root: Path) -> None:
    """Make a completed job, a failed one, and a long one with both streams, colours and records."""
    training(root, job_id=TRAINED, started_ns=STARTED_NS)
    with SpooledCapture(
        root, FAILED, name="prepare data.sh", started_ns=STARTED_NS - 3600 * NS
    ) as job:
        job.lines("reading", "half of it is there")
        job.stderr("cannot open /data/images: No such file or directory")
        job.end(exit_code=2)
    with SpooledCapture(root, LONG, name="simulate", started_ns=STARTED_NS - 7200 * NS) as job:
        for thousand in range(LONG_LINES // 1000):
            job.lines(*(long_line(1000 * thousand + number) for number in range(998)))
            job.stderr(
                f"warning {thousand}: \x1b[1;31mresidual\x1b[0m is \x1b[38;5;208mhigh\x1b[0m"
            )
            job.metadata({"step": 1000 * thousand, "residual": 1 / (thousand + 1)})
        job.end()


def long_line(number: int) -> str:
    return f"step {number} of {LONG_LINES}" + (", checkpoint written" if number % 5000 == 0 else "")
