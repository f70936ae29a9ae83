"""deploy/slurm/hooks/job-ended: it writes a record that the agent can parse, and never fails
Slurm's controller."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from logshipper_ingest.model.end_record import EndRecord, parse_end
from tests.tools.sources import ROOT
from tests.tools.waiting import scaled

HOOK = ROOT / "deploy" / "slurm" / "hooks" / "job-ended"
JOBCOMP = {
    "JOBID": "4711", "JOBSTATE": "FAILED", "EXITCODE": "7:0", "START": "1700000000", "END": "1700000060",
    "USERNAME": "ann", "NODES": "n[1-2]", "JOBNAME": "a\n.\nby=epilog", "UID": "1000",
    "SUBMIT": "1699999000",
}  # fmt: skip
EPILOG = {
    "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld", "SLURM_JOB_ID": "4711", "SLURM_JOB_EXIT_CODE2": "0:125",
    "SLURM_JOB_USER": "ann", "SLURM_JOB_NODELIST": "n1", "SUBMIT": "1", "SLURM_JOB_RESTART_COUNT": "1",
}  # fmt: skip
TIMEOUT_SECS = scaled(30.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "ended"
    place.mkdir(mode=0o700)
    return place


def run(
    place: Path, environment: dict[str, str], *, hook: Path = HOOK, path: str = "/usr/bin:/bin"
) -> int:
    result = subprocess.run(
        [hook, place], env={"PATH": path, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=TIMEOUT_SECS,
    )  # fmt: skip
    assert (result.stdout, result.stderr) == (b"", b"")
    return result.returncode


def record(place: Path) -> EndRecord:
    (file,) = place.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    return parse_end(file.read_bytes(), int(file.stat().st_mtime))


def test_jobcomp(folder: Path) -> None:
    assert run(folder, JOBCOMP) == 0
    assert record(folder) == EndRecord(
        "jobcomp/script",
        "4711",
        "FAILED",
        7,
        0,
        1700000000,
        1700000060,
        -1,
        "ann",
        ("n1", "n2"),
        2,
        1699999000,
    )


def test_epilog_of_an_old_slurm_ends_when_it_runs(folder: Path) -> None:
    before = int(time.time())
    assert run(folder, EPILOG) == 0
    end_record = record(folder)
    assert end_record._replace(end=0) == EndRecord(
        "EpilogSlurmctld", "4711", "OUT_OF_MEMORY", None, 9, 0, 0, 1, "ann", ("n1",), 1
    )
    assert before <= end_record.end <= time.time()


def test_epilog_of_a_newer_slurm(folder: Path) -> None:
    more = {"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700000060"}
    assert run(folder, {**EPILOG, **more}) == 0
    assert record(folder)[5:7] == (1700000000, 1700000060)


@pytest.mark.parametrize(
    "environment",
    [
        {**JOBCOMP, "START": "0", "JOBSTATE": "CANCELLED"},
        {**JOBCOMP, "START": ""},
        {**JOBCOMP, "JOBSTATE": "RESIZING"},
        {**JOBCOMP, "JOBID": ""},
        {**JOBCOMP, "JOBID": "../x"},
        {**EPILOG, "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"},
        {},
    ],
)
def test_what_is_of_no_interest(folder: Path, environment: dict[str, str]) -> None:
    assert run(folder, environment) == 0
    assert list(folder.iterdir()) == []


def fake(place: Path, name: str, script: str) -> str:
    """Return a search path with a program of the test's own."""
    place.mkdir(exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)
    return f"{place}:/usr/bin:/bin"


def test_missing_folder_is_one_line_in_syslog(tmp_path: Path) -> None:
    path = fake(tmp_path / "bin", "logger", f'echo "$@" >>{tmp_path}/syslog')
    assert run(tmp_path / "missing", JOBCOMP, path=path) == 0
    log = (tmp_path / "syslog").read_text()
    assert log == f"-t logshipper-job-ended job 4711: can't write to {tmp_path}/missing\n"


def test_full_folder(tmp_path: Path, folder: Path) -> None:
    """A limit on the size of files simulates a full disk."""
    path = fake(tmp_path / "bin", "logger", f"touch {tmp_path}/syslog")
    full = tmp_path / "full"
    full.write_text(f'#!/bin/sh\nulimit -f 0\nexec {HOOK} "$@"\n')
    full.chmod(0o755)
    marker = tmp_path / "syslog"
    marker.touch()
    os.utime(marker, (0, 0))
    assert run(folder, JOBCOMP, hook=full, path=path) == 0
    assert marker.stat().st_mtime > 0
    assert [name for name in os.listdir(folder) if not name.startswith(".")] == []


def test_a_disk_that_hangs_is_given_up(tmp_path: Path, folder: Path) -> None:
    hook = tmp_path / "hook"
    text = HOOK.read_text()
    assert "\nsecs=5 " in text
    hook.write_text(text.replace("\nsecs=5 ", "\nsecs=0.3 "))
    hook.chmod(0o755)
    begin = time.monotonic()
    assert run(folder, JOBCOMP, hook=hook, path=fake(tmp_path / "bin", "mv", "exec sleep 600")) == 0
    assert time.monotonic() - begin < scaled(10)
