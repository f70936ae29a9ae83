"""Slurm's reasons for the end of a command that `logshipper run` captures."""

import signal
import time
from pathlib import Path

import pytest

from logshipper.sidecar.slurm_reason import slurm_reason
from tests.tools.captures.captured_runs import Home

TERM, KILL = signal.SIGTERM, signal.SIGKILL
IN_TIME, LATE = "in time", "late"  # the end of the job according to Slurm, relative to now


def moment(end: str) -> str:
    ahead_secs = {IN_TIME: 3600, LATE: -1}
    return str(int(time.time()) + ahead_secs[end]) if end in ahead_secs else end


@pytest.mark.parametrize(
    ("signo", "end", "is_cancelled", "is_short", "reason"),
    [
        (TERM, LATE, True, False, "killed: time limit (Slurm)"),
        (KILL, LATE, True, False, "killed: time limit (Slurm)"),
        (TERM, IN_TIME, True, False, "cancelled (Slurm)"),
        (TERM, "", True, False, "cancelled (Slurm)"),
        (TERM, "soon", True, False, "cancelled (Slurm)"),
        (KILL, IN_TIME, False, True, "killed: out of memory (Slurm)"),
        (KILL, LATE, True, True, "killed: out of memory (Slurm)"),
        (TERM, LATE, False, False, ""),  # the command's own kill
        (KILL, IN_TIME, False, False, ""),
        (0, LATE, True, True, ""),
        (signal.SIGSEGV, LATE, True, False, ""),
    ],
)
def test_reasons(signo: int, end: str, is_cancelled: bool, is_short: bool, reason: str) -> None:
    environment = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": moment(end)}
    flags = {"is_cancelled": is_cancelled, "is_short_of_memory": is_short}
    assert slurm_reason(signo, environment, **flags) == reason
    assert slurm_reason(signo, {"SLURM_JOB_END_TIME": moment(end)}, **flags) == ""


@pytest.mark.parametrize(
    ("end", "reason"), [(LATE, "killed: time limit (Slurm)"), (IN_TIME, "cancelled (Slurm)")]
)
def test_the_log_ends_with_it(tmp_path: Path, end: str, reason: str) -> None:
    home = Home(tmp_path)
    environment = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": moment(end)}
    process = home.start("run", "--", "sh", "-c", "echo begun; exec sleep 60", env=environment)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.terminate()
    assert home.show()["reason"] == reason
    assert home.logs() == ["begun", f"[logshipper: {reason}]"]
