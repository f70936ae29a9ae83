"""A secret right after a command on the other stream reaches neither Loki nor the node's spool:
from a batch script, a step, and `srun` of four simultaneous tasks."""

import os
from pathlib import Path

import pytest

from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.stress import secret_stress

# Secrets per task. LOGSHIPPER_SECRETS=36 and LOGSHIPPER_SECRET_JOBS=72 make 2,592 of each kind.
SECRETS = int(os.environ.get("LOGSHIPPER_SECRETS", "6"))
JOBS = int(os.environ.get("LOGSHIPPER_SECRET_JOBS", "4"))
AT_ONCE = 4
TASKS = 4
PYTHON = "/usr/bin/python3"
STRESS_SECS = 400.0


def a_task(home: Path, name: str, files: str) -> str:
    """Return a shell command. files: name of its output files without suffix."""
    job = home / "task.py"
    job.write_text(secret_stress.JOB)
    return f"{PYTHON} -S -E {job} {name} {SECRETS} {home}/{files}.out {home}/{files}.err"


def the_script(home: Path, number: int) -> str:
    return "exec " + a_task(home, f"batch{number}", f"{number}")


def a_step(home: Path, number: int) -> str:
    """Return a step of a job without captured output. Otherwise, the step would belong to the job's
    capture."""
    return f"srun -n1 --output=s{number}.out --error=s{number}.err " + a_task(
        home, f"step{number}", f"s{number}"
    )


def four_tasks(home: Path, number: int) -> str:
    command = a_task(home, f"of{number}-$SLURM_PROCID", f"t{number}-$SLURM_PROCID")
    return f"srun -n{TASKS} --output=t{number}-%t.out --error=t{number}-%t.err bash -c '{command}'"


KINDS = {"batch": (the_script, 1), "step": (a_step, 1), "four tasks": (four_tasks, TASKS)}


@UNDER_CGROUP
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_secret_right_after_the_other_streams_command(
    cluster: CapturingCluster, user: JobUser, kind: str
) -> None:
    series = "metadata: [json, auto]\n"
    (user.home / ".logoptin").write_text(series + ("per_task: true\n" if kind != "batch" else ""))
    script, tasks = KINDS[kind]
    jobs = JOBS if tasks == 1 else max(1, JOBS // tasks)
    job_ids: list[str] = []
    for first in range(0, jobs, AT_ONCE):
        wave = [
            cluster.sbatch(
                user,
                script(user.home, number),
                f"-n{tasks}",
                f"--output={number}.out",
                f"--error={number}.err",
            )
            for number in range(first, min(first + AT_ONCE, jobs))
        ]
        for job_id in wave:
            end = cluster.wait(job_id, STRESS_SECS)
            assert end == JobEnd("COMPLETED", 0, 0), cluster.describe(job_id, str(end))
        job_ids += wave
    captures = jobs if kind == "batch" else jobs * (tasks + 1)  # the script also has its own
    cluster.wait_closed(job_ids, captures, STRESS_SECS)
    printed = b"".join(path.read_bytes() for path in user.home.glob("*.out")) + b"".join(
        path.read_bytes() for path in user.home.glob("*.err")
    )
    stored = "\n".join(map(str, cluster.entries(*job_ids))).encode()
    assert printed.count(b"this is secret-") == jobs * tasks * SECRETS * secret_stress.LINES
    assert stored.count(b"this is secret-") == 0
    assert b"open " in stored
