"""The cluster itself, without the plugin, behaves like Slurm and leaves nothing on the machine."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slurm.tools import machine
from tests.slurm.tools.cluster import PREFIX, JobEnd, SlurmCluster, SlurmFailed
from tests.slurm.tools.users import processes_of
from tests.tools.captures.captured_runs import wait_until
from tests.tools.sources import ROOT

KILLED = """
import sys, time
from tests.slurm.tools.cluster import SlurmCluster

with SlurmCluster(proctrack=sys.argv[1]) as cluster:
    user = cluster.add_user()
    job = cluster.sbatch(user, "sleep 1001 & setsid sleep 1000 & wait")
    cluster.wait_state(job, "RUNNING")
    print(cluster.folder, user.uid, flush=True)
    time.sleep(1000)
"""
KEEPS = """
mkdir kept && mount --bind kept kept && mount --make-private kept && touch kept/namespace
unshare --mount=kept/namespace true
code=$?; umount -R kept; rmdir kept; exit $code
"""


def test_jobs_of_two_users(slurm: SlurmCluster) -> None:
    ann, ben = slurm.add_user(), slurm.add_user()
    script = 'id -un; pwd; echo "to stderr" >&2; exit 7'
    jobs = [slurm.sbatch(user, script, "--output=%j.out", "--error=%j.err") for user in (ann, ben)]
    assert jobs[0] != jobs[1]
    for job, user in zip(jobs, (ann, ben), strict=True):
        assert slurm.wait(job) == JobEnd("FAILED", 7, 0)
        assert (user.home / f"{job}.out").read_text() == f"{user.name}\n{user.home}\n"
        assert (user.home / f"{job}.err").read_text() == "to stderr\n"
        assert (user.home / f"{job}.out").stat().st_uid == user.uid
    result = slurm.run_as(ben, "cat", str(ann.home / f"{jobs[0]}.out"))
    assert result.returncode == 1
    assert b"Permission denied" in result.stderr


def test_steps_run_on_both_nodes(slurm: SlurmCluster) -> None:
    user = slurm.add_user()
    command = ("bash", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME; exit $SLURM_PROCID")
    direct = slurm.run_as(user, "srun", "-N2", "-n2", *command)
    assert sorted(direct.stdout.splitlines()) == [b"0 n1", b"1 n2"]
    assert direct.returncode == 1
    job = slurm.sbatch(user, "srun bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME'", "-N2", "-n2")
    assert slurm.wait(job) == JobEnd("COMPLETED", 0, 0)
    assert sorted((user.home / f"slurm-{job}.out").read_text().splitlines()) == ["0 n1", "1 n2"]


def test_array(slurm: SlurmCluster) -> None:
    user = slurm.add_user()
    script = "echo $SLURM_ARRAY_TASK_ID $((SLURM_JOB_ID != SLURM_ARRAY_JOB_ID)); exit $SLURM_ARRAY_TASK_ID"
    job = slurm.sbatch(user, script, "--array=0-2")
    assert sorted(slurm.wait_all(job)) == [("COMPLETED", 0, 0), ("FAILED", 1, 0), ("FAILED", 2, 0)]
    outputs = [(user.home / f"slurm-{job}_{task}.out").read_text().split()[0] for task in range(3)]
    assert outputs == ["0", "1", "2"]


def test_heterogeneous_job(slurm: SlurmCluster) -> None:
    user = slurm.add_user()
    job = slurm.sbatch(
        user, "#!/bin/bash\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n2\nsrun --het-group=0,1 hostname"
    )
    assert [end.state for end in slurm.wait_all(job)] == ["COMPLETED", "COMPLETED"]
    assert (user.home / f"slurm-{job}.out").read_text() == "localhost\n" * 3


def test_ends(slurm: SlurmCluster) -> None:
    user = slurm.add_user()
    jobs = {signo: slurm.sbatch(user, f"kill -{signo} $$") for signo in (9, 11, 15)}
    sleeping = slurm.sbatch(user, "echo begun; sleep 1000")
    handling = slurm.sbatch(user, "trap 'echo caught; exit 5' USR1; echo begun; sleep 1000 & wait")
    for job in (sleeping, handling):
        wait_until((user.home / f"slurm-{job}.out").exists, "its output file")
        wait_until(
            lambda job=job: "begun" in (user.home / f"slurm-{job}.out").read_text(),  # type: ignore[misc]
            "it has begun",
        )
    slurm.scancel(user, sleeping)
    slurm.scancel(user, "--batch", "--signal=USR1", handling)
    assert slurm.wait(sleeping).state == "CANCELLED"
    assert "CANCELLED AT" in (user.home / f"slurm-{sleeping}.out").read_text()
    assert slurm.wait(handling) == JobEnd("FAILED", 5, 0)
    for signo, job in jobs.items():
        assert slurm.wait(job) == JobEnd("FAILED", 0, signo)
    stranger = slurm.add_user()
    with pytest.raises(SlurmFailed, match=r"Access/permission denied|Invalid job id"):
        slurm.scancel(stranger, slurm.sbatch(user, "sleep 2"))


def test_requeue(slurm: SlurmCluster) -> None:
    user = slurm.add_user()
    script = "echo run ${SLURM_RESTART_COUNT-0}; [ ${SLURM_RESTART_COUNT-0} = 1 ] || sleep 1000"
    job = slurm.sbatch(user, script, "--requeue", "--open-mode=append")
    output = user.home / f"slurm-{job}.out"
    wait_until(
        lambda: output.exists() and output.read_text().startswith("run 0\n"), "the first run prints"
    )
    slurm.requeue(job)
    assert slurm.wait(job).state == "COMPLETED"
    assert output.read_text().split("\n")[-2:] == ["run 1", ""]


def test_an_orphan_lives_on_under_linuxproc_alone(slurm: SlurmCluster) -> None:
    """Tests that use only linuxproc hide lost last lines because orphans survive their job."""
    user = slurm.add_user()
    job = slurm.sbatch(user, "setsid bash -c 'sleep 1000 & exit' & wait; echo over")
    assert slurm.wait(job).state == "COMPLETED"
    command_names = (
        ["sleep"] if "linuxproc" in slurm.as_root("scontrol", "show", "config").stdout else []
    )
    wait_until(
        lambda: list(processes_of(user.uid).values()) == command_names,
        f"processes are {command_names}",
    )


def test_a_node_fails_and_comes_back(slurm: SlurmCluster) -> None:
    slurm.signal_daemon("n2", signal.SIGTERM)
    slurm.start_daemon("n2")
    slurm.wait_idle()
    done = slurm.run_as(
        slurm.add_user(), "srun", "--nodelist=n2", "bash", "-c", "echo $SLURMD_NODENAME"
    )
    assert done.stdout == b"n2\n"


def test_namespaces_of_all_processors_can_be_kept(slurm: SlurmCluster) -> None:
    """job_container/tmpfs keeps the namespaces of jobs in the same way."""
    enter = [machine.program("nsenter"), "-t", str(slurm.first_pid), "--mount", "--pid", "--"]
    for processor in os.sched_getaffinity(0):
        script = f"cd {slurm.folder} && taskset -pc {processor} $$ && {KEEPS}"
        subprocess.run([*enter, "sh", "-c", script], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("proctrack", ["linuxproc", "cgroup"])
def test_nothing_is_left_of_a_killed_cluster(slurm_machine: None, proctrack: str) -> None:
    passwd = Path("/etc/passwd").read_bytes()
    command = [sys.executable, "-c", KILLED, proctrack]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        folder, uid = process.stdout.readline().split()
        wait_until(lambda: "sleep" in processes_of(int(uid)).values(), "its job runs")
        process.kill()
    wait_until(lambda: not processes_of(int(uid)), "all of it has ended")
    wait_until(lambda: folder not in Path("/proc/self/mounts").read_text(), "nothing is mounted")
    assert Path(folder).exists()
    with SlurmCluster():
        assert not Path(folder).exists()
    assert not list(machine.CGROUPS.glob(f"*/slurm_n?/uid_{uid}"))
    assert Path("/etc/passwd").read_bytes() == passwd
    assert re.fullmatch(rf"/tmp/{PREFIX}\w+", folder)


def test_errors_tell_the_ends_of_logs(slurm_machine: None) -> None:
    with pytest.raises(
        SlurmFailed,
        match=r"(?s)slurmctld ended with wait status.*the end of slurmctld.log:.*NoSuchKey",
    ):
        SlurmCluster(more="NoSuchKey=1").__enter__()


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(machine.SlurmMissing, match="needs root"):
        machine.check()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine, "SBIN", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        machine.SlurmMissing, match=r"slurmctld isn't installed; requirements/system.sh"
    ):
        machine.check()
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    with pytest.raises(
        machine.SlurmMissing, match=r"no cgroup controller freezer, memory below .* v1"
    ):
        machine.cgroup_version(("memory",))


def test_two_clusters_beside_each_other(slurm: SlurmCluster) -> None:
    with SlurmCluster() as second:
        assert second.run_as(second.add_user(), "srun", "hostname").stdout == b"localhost\n"
