"""Processes of logshipper next to a job run at low CPU priority."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logshipper import background
from tests.tools.captures.captured_runs import wait_until

PROGRAM = """
import os
from logshipper.background import yield_to_jobs
os.setsid()
before = os.getpriority(os.PRIO_PROCESS, 0)
yield_to_jobs({nice})
group = open("/proc/self/autogroup").read() if os.path.exists("/proc/self/autogroup") else ""
print(before, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), group.rpartition(" ")[2].strip())
"""


@pytest.mark.parametrize("started_nice", [0, 7])
def test_nicer_and_batch(started_nice: int) -> None:
    program = PROGRAM.format(nice=background.JOB_END_NICE)
    words = ["nice", "-n", str(started_nice), sys.executable, "-c", program]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    before, after, policy = map(int, out[:3])
    assert after == max(before, background.JOB_END_NICE)
    assert policy == os.SCHED_BATCH
    # the kernel accepts one such change per tenth of a second from all users together
    assert not out[3:] or int(out[3]) in (0, after)


def test_the_job_itself_is_as_without_capture(tmp_path: Path) -> None:
    """The command and its relay keep their priority; the rendering process takes a lower one."""
    show = (
        "import os, sys\n"
        "print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), flush=True)\n"
        "sys.stdin.read()"
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "LOGSHIPPER_STORE": str(tmp_path / "store"),
        "LOGSHIPPER_AGENT": "off",
    }
    bare = [sys.executable, "-c", show]
    alone = subprocess.run(
        bare, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    words = [sys.executable, "-m", "logshipper", "run", "--", *bare]
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == alone.stdout
        assert os.sched_getscheduler(run.pid) == os.sched_getscheduler(0)
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")

        def sidecars() -> list[int]:
            return [
                int(pid)
                for pid in children.read_text().split()
                if Path(f"/proc/{pid}/comm").read_text().strip() == "logshipper-side"
            ]

        wait_until(  # the sidecar takes its name shortly after CMD has begun
            lambda: [os.sched_getscheduler(pid) for pid in sidecars()] == [os.SCHED_BATCH],
            "the rendering process yields",
        )
        (sidecar,) = sidecars()
        assert os.getpriority(os.PRIO_PROCESS, sidecar) >= background.JOB_END_NICE
        run.communicate()
    assert run.returncode == 0
