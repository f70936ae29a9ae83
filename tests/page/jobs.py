"""The jobs of the page's tests."""

import time
from pathlib import Path

from tests.reading_store import SpooledCapture, training
from tests.segment_factory import SECOND_NS as NS

TRAINED, FAILED, RUNNING = "k3f9x2", "p7q1zz", "r5t8aa"
STARTED_NS = time.time_ns() - 3 * 3600 * NS


def fixture_jobs(root: Path) -> None:
    """A job that has run, one that failed, and one that is as good as running."""
    training(root, job_id=TRAINED, started_ns=STARTED_NS)
    with SpooledCapture(root, FAILED, name="prepare data.sh", started_ns=STARTED_NS - 3600 * NS) as job:
        job.lines("reading", "half of it is there")
        job.stderr("cannot open /data/images: No such file or directory")
        job.end(exit_code=2)
    with SpooledCapture(root, RUNNING, name="simulate", started_ns=STARTED_NS + 3600 * NS) as job:
        job.lines(*(f"step {step} of 1000" for step in range(1, 201)))
        job.status("step 200/1000  20%|██        | [01:40<06:40]")
        job.beat()
