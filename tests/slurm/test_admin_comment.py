"""The hook writes the address of a job's page into its AdminComment while the job runs, without
delaying the job's start."""

import contextlib
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.conftest import unless_missing
from tests.slurm.tools.cluster import SlurmCluster
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT

HOOK = ROOT / "deploy" / "slurm" / "hooks" / "admin-comment"
PAGE = "https://grafana.example.org/g/d/logshipper-job?orgId=2&var-cluster=alpha&var-job="
SITE = """
[loki]
url = "https://loki.example.org"
cluster = "nobody's"

[grafana]            # where pages are
url = "https://grafana.example.org/g/"  # with a path
org_id = 2 # ours
cluster = 'alpha'

[prometheus]
url = "https://prometheus.example.org"
"""
CALLER = """#!/bin/sh
export SLURM_CONF={folder}/login/slurm.conf LOGSHIPPER_SITE={folder}/site.toml
exec {folder}/admin-comment
"""
MANY = 40


@pytest.fixture(scope="module")
def cluster(slurm_machine: None) -> Iterator[SlurmCluster]:
    name = f"comments{secrets.token_hex(4)}"
    running = unless_missing(lambda: SlurmCluster(cluster=name))
    caller = running.folder / "prolog"
    shutil.copy2(HOOK, running.folder / "admin-comment")
    (running.folder / "site.toml").write_text(SITE)
    caller.write_text(CALLER.format(folder=running.folder))
    caller.chmod(0o755)
    with (running.folder / "slurm.conf").open("a") as file:
        file.write(f"PrologSlurmctld={caller}\n")
    with running:
        yield running
    shutil.rmtree(f"/tmp/logshipper-admin-comment-{name}-0")


def comments(cluster: SlurmCluster, job_id: str) -> dict[str, str]:
    """Return the AdminComment by job id, for all tasks of an array."""
    return {job["JobId"]: job.get("AdminComment", "") for job in cluster.show(job_id)}


def wait_idle(cluster: SlurmCluster) -> None:
    """Wait until the hook has no running processes. It continues after the prolog has ended."""
    hook = str(cluster.folder / "admin-comment").encode()

    def is_idle() -> bool:
        matches = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                matches.append(hook in path.read_bytes())
        return not any(matches)

    wait_until(is_idle, "the hook has asked about all jobs", 40.0)


def test_a_job_has_its_address(cluster: SlurmCluster) -> None:
    user = cluster.add_user()
    job_id = cluster.sbatch(user, "sleep 1000", "--time=10")
    wait_until(lambda: comments(cluster, job_id)[job_id] != "", "the job has a comment")
    page, _, times = comments(cluster, job_id)[job_id].partition("&from=")
    assert page == PAGE + job_id
    begin_ms, end_ms = map(int, times.split("&to="))
    assert abs(begin_ms + 60_000 - time.time() * 1000) < 60_000
    # Slurm starts to count the limit slightly later
    assert 0 <= end_ms - begin_ms - (10 * 60 + 120) * 1000 <= 5000
    cluster.scancel(user, job_id)


def test_a_comment_that_is_there_stays(cluster: SlurmCluster) -> None:
    user = cluster.add_user()
    job_id = cluster.sbatch(user, "sleep 1000", "--hold")
    assert (
        cluster.as_root("scontrol", "update", f"jobid={job_id}", "AdminComment=mine").returncode
        == 0
    )
    assert cluster.run_as(user, "scontrol", "release", job_id).returncode == 0
    cluster.wait_state(job_id, "RUNNING")
    later = cluster.sbatch(user, "sleep 1000")
    wait_until(lambda: comments(cluster, later)[later] != "", "a later job has a comment")
    assert comments(cluster, job_id) == {job_id: "mine"}
    cluster.scancel(user, job_id, later)


def test_each_of_many_tasks_has_its_own(cluster: SlurmCluster) -> None:
    """The hook runs one scontrol at a time, and no task waits for it."""
    user = cluster.add_user()
    job_id = cluster.sbatch(user, "sleep 1000", f"--array=0-{MANY - 1}", "--time=10")
    cluster.wait_state(job_id, "RUNNING")
    wait_until(lambda: all(comments(cluster, job_id).values()), "all tasks have comments")
    comment_of = comments(cluster, job_id)
    assert len(comment_of) == MANY
    for task_id, page in comment_of.items():
        assert page.startswith(f"{PAGE}{task_id}&from=")
    cluster.scancel(user, job_id)


def test_the_parts_of_a_heterogeneous_job(cluster: SlurmCluster) -> None:
    user = cluster.add_user()
    job_id = cluster.sbatch(user, "sleep 1000", "--ntasks=1", ":", "--ntasks=1")
    wait_until(lambda: all(comments(cluster, job_id).values()), "both parts have comments")
    for part_id, page in comments(cluster, job_id).items():
        assert page.startswith(f"{PAGE}{part_id}&from=")
    cluster.scancel(user, job_id)


def test_without_an_address_jobs_run(cluster: SlurmCluster) -> None:
    user = cluster.add_user()
    site = cluster.folder / "site.toml"
    for text in ("", '[grafana]\nurl = ""\n', '[grafana]\nurl = "ftp://x"\n', None):
        site.unlink() if text is None else site.write_text(text)
        job_id = cluster.sbatch(user, "echo one", "--output=job.out")
        assert cluster.wait(job_id).state == "COMPLETED"
        wait_idle(cluster)
        assert comments(cluster, job_id) == {job_id: ""}
    site.write_text(SITE)


def test_a_job_waits_for_no_scontrol(cluster: SlurmCluster) -> None:
    """A slow slurmctld delays no job. A slow scontrol, the first one on the hook's PATH, stands in
    for it."""
    user = cluster.add_user()
    hook = cluster.folder / "admin-comment"
    text = hook.read_text()
    slow = cluster.folder / "slow"
    slow.mkdir()
    request_log = slow / "asked"
    request_log.touch()
    wait_idle(cluster)  # running hooks keep the PATH that they started with
    (slow / "scontrol").write_text(
        f"#!/bin/sh\necho $4 >>{request_log}\nuntil [ -e {slow}/go ]; do sleep 0.1; done\nexit 1\n"
    )
    (slow / "scontrol").chmod(0o755)
    jobs = []
    try:
        for secs in (
            1000,
            1,
        ):  # the first job runs during its query, and the hook kills the second job's scontrol
            first = f"PATH={slow}:/usr/local/bin"
            hook.write_text(
                text.replace("PATH=/usr/local/bin", first).replace("secs=10", f"secs={secs}")
            )
            jobs.append(cluster.sbatch(user, "sleep 1000", "--output=job.out"))
            cluster.wait_state(jobs[-1], "RUNNING")
            wait_until(lambda: request_log.read_text().split() == jobs, "the hook has asked")
            if secs > 1:
                (slow / "go").touch()
            wait_idle(cluster)
            (slow / "go").unlink(missing_ok=True)
        for job_id in jobs:
            assert comments(cluster, job_id) == {job_id: ""}
        cluster.scancel(user, *jobs)
    finally:
        hook.write_text(text)
