"""What root keeps of each job on a node, SPOOL/.jobs: written by a job's steps and its prolog, forgotten at its epilog.
Prolog and epilog are run as slurmd runs them, by the real slurmstepd. And how the keeper leaves a job's cgroups."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import slurm_player
from tests.slurm import gate
from tests.slurm_player import Node

SLURMSTEPD = "/usr/sbin/slurmstepd"
SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost
ProctrackType=proctrack/linuxproc
NodeName=n1 NodeHostname=localhost
PartitionName=p Nodes=n1
"""


@pytest.fixture(scope="module")
def binaries() -> Iterator[Path]:
    yield from slurm_player.built()


@pytest.fixture
def node(binaries: Path) -> Iterator[Node]:
    for node in slurm_player.checked_node(binaries):
        plugstack = node.folder / "plugstack.conf"
        lines = [
            f"optional {binaries}/{name} spool={node.spool}" for name in ("logshipper.so", "logshipper-identity.so")
        ]
        plugstack.write_text("\n".join(lines) + "\n")
        (node.folder / "slurm.conf").write_text(f"{SLURM_CONF}PlugStackConfig={plugstack}\n")
        yield node


def job_script(node: Node, kind: str, job: int, restarts: int | None, **more: str) -> str:
    """A job's prolog or epilog, with what slurmd puts into its environment. Returns what it says."""
    if not os.path.exists(SLURMSTEPD):
        gate.lacking("slurmd isn't installed")
    environment = {
        "SLURM_CONF": str(node.folder / "slurm.conf"), "SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job),
        "SLURM_UID": str(node.uid), "SLURM_JOB_UID": str(node.uid), "SLURM_JOB_GID": str(node.uid), **more,
    }  # fmt: skip
    if restarts is not None:
        environment["SLURM_JOB_RESTART_COUNT"] = str(restarts)
    ran = subprocess.run(
        [SLURMSTEPD, "spank", kind], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    return ran.stderr


def kept(node: Node) -> set[str]:
    return {path.name for path in (node.spool / ".jobs").iterdir() if not path.name.startswith(".")}


def put(node: Node, *names: str) -> None:
    (node.spool / ".jobs").mkdir(0o700, exist_ok=True)
    for name in names:
        (node.spool / ".jobs" / name).write_text("out absent\n")


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


# ---- the epilog


def test_epilog_forgets_the_job(node: Node) -> None:
    assert node.run("true").captured() == [True]
    node.logged()
    assert kept(node) == {"4711.0", "4711.0.modes", "4711.slurm"}
    put(node, "47110.0", "471.0", "4712.0.modes")
    assert job_script(node, "epilog", 4711, 0) == ""
    assert kept(node) == {"47110.0", "471.0", "4712.0.modes"}


def test_epilog_of_a_run_leaves_the_next_one(node: Node) -> None:
    """It may have decided here already. What no run can have made, as its number was forged, goes."""
    put(node, "5.0", "5.0.modes", "5.1", "5.2", "5.2.modes", "5.3", "5.999")
    job_script(node, "prolog", 5, 2)
    job_script(node, "epilog", 5, 1)
    assert kept(node) == {"5.2", "5.2.modes", "5.slurm"}
    job_script(node, "epilog", 5, 2)
    assert kept(node) == set()


def test_epilog_that_isnt_told_the_run_forgets_all(node: Node) -> None:
    put(node, "5.0", "5.1.modes", "5.slurm", "6.0")
    job_script(node, "epilog", 5, None)
    assert kept(node) == {"6.0"}


@pytest.mark.parametrize("fault", ["missing", "mode"])
def test_epilog_and_prolog_never_fail(node: Node, fault: str) -> None:
    if fault == "missing":
        shutil.rmtree(node.spool)
    else:
        node.spool.chmod(0o777)
    assert job_script(node, "epilog", 5, 0) == ""
    assert "the spool" in job_script(node, "prolog", 5, 0)
    assert not (node.spool / ".jobs").exists()


# ---- jobs whose end nobody saw


def test_old_files_are_swept_once_a_day(node: Node) -> None:
    node.run("true", words=("job=1",))
    put(node, "2.0", "3.0")
    age(node.spool / ".jobs" / "2.0", 61)
    age(node.spool / ".jobs" / "3.0", 59)
    job_script(node, "epilog", 9, 0)
    assert {"2.0", "3.0"} <= kept(node)
    age(node.spool / ".jobs" / ".boot", 1.1)
    job_script(node, "epilog", 9, 0)
    assert {"1.0", "3.0"} <= kept(node)
    assert "2.0" not in kept(node)


def test_what_an_earlier_boot_left_counts_no_more(node: Node) -> None:
    """A decision of then isn't one of this job, whose number may be given again."""
    node.optin.unlink()
    assert node.run("true").captured() == [False]
    node.opt_in()
    assert node.run("true").captured() == [False]
    jobs = node.spool / ".jobs"
    (jobs / ".boot").write_text("0" * 36)
    for path in jobs.iterdir():
        age(path, 0.01)
    assert node.run("true").captured() == [True]
    assert node.run("true", words=("step=1",)).captured() == [True]
    assert (jobs / ".boot").read_text() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# ---- what Slurm says of a job


def test_prolog_records_what_a_step_might_forge(node: Node) -> None:
    told = {"SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "gpu", "SPANK_SLURM_JOB_ACCOUNT": "mine"}
    assert job_script(node, "prolog", 4711, 3, **told) == ""
    node.run("true", words=("step=0", "account=forged", "restarts=0"))
    [logged] = node.logged()
    identity = logged.identity
    assert (identity["account"], identity["partition"], identity["attempt"]) == ("physics", "gpu", 4)
    assert "4711.3" in kept(node)


def test_record_is_renewed_by_the_next_run(node: Node) -> None:
    job_script(node, "prolog", 4711, 0, SLURM_JOB_ACCOUNT="physics")
    job_script(node, "prolog", 4711, 1, SLURM_JOB_ACCOUNT="chemistry")
    node.run("true", words=("late_restarts=7", "account=forged"))
    [logged] = node.logged()
    assert (logged.identity["account"], logged.identity["attempt"]) == ("chemistry", 2)


def test_batch_script_tells_later_steps(node: Node) -> None:
    """Without a prolog: slurmd has made its environment, a step's comes from the user."""
    node.run("true", words=("account=physics",))
    node.logged()
    node.run("true", words=("step=0", "account=forged"))
    assert [one.identity["account"] for one in node.logged(2)] == ["physics", "physics"]
    node.run("true", words=("step=0", "account=forged", "job=5"))
    assert next(one for one in node.logged(3) if one.identity["job_id"] == "5").identity["account"] == "forged"


# ---- out of the job's cgroups

V1 = """30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
"""
V2 = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
SCOPE = "system.slice/slurmstepd.scope"


def cgroups(folder: Path, mounts: str, own: str, *groups: str) -> Path:
    """A tree like /proc/self and /sys/fs/cgroup."""
    root = folder / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    for group in groups:
        path = root / "sys/fs/cgroup" / group
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.procs").touch()
    return root


def leave(binaries: Path, root: Path) -> tuple[int, str]:
    argv = [str(binaries / "test" / "play-step"), "leave-cgroups", str(root)]
    ran = subprocess.run(argv, capture_output=True, text=True)
    return ran.returncode, ran.stdout


def joined(root: Path) -> list[str]:
    base = root / "sys/fs/cgroup"
    return [str(path.parent.relative_to(base)) for path in sorted(base.rglob("cgroup.procs")) if path.read_text()]


def test_cgroup_v1_roots(tmp_path: Path, binaries: Path) -> None:
    own = "7:memory:/slurm_n1/uid_1000/job_5/step_0/task_0\n6:cpu,cpuacct:/slurm_n1/uid_1000/job_5/step_0\n1:pids:/a\n"
    root = cgroups(tmp_path, V1, own, "memory", "cpu,cpuacct", "memory/slurm_n1/uid_1000/job_5/step_0/task_0")
    assert leave(binaries, root) == (0, "")
    assert joined(root) == ["cpu,cpuacct", "memory"]


@pytest.mark.parametrize("where", ["step_0/slurm", "step_batch/user/task_0", ""])
def test_cgroup_v2_leaf_in_the_delegated_scope(tmp_path: Path, binaries: Path, where: str) -> None:
    """Never the scope itself: its children have controllers."""
    root = cgroups(tmp_path, V2, f"0::/{SCOPE}/job_5/{where}\n".replace("/\n", "\n"), "", SCOPE, f"{SCOPE}/job_5")
    leaf = root / "sys/fs/cgroup" / SCOPE / "logshipper"
    leaf.mkdir()
    (leaf / "cgroup.procs").touch()  # the kernel makes it with the folder
    assert leave(binaries, root) == (0, "")
    assert joined(root) == [f"{SCOPE}/logshipper"]


def test_cgroup_v2_root_where_there_can_be_no_leaf(tmp_path: Path, binaries: Path) -> None:
    root = cgroups(tmp_path, V2, f"0::/{SCOPE}/job_5/step_0/slurm\n", "", SCOPE)
    (root / "sys/fs/cgroup" / SCOPE / "logshipper").write_text("no folder")
    assert leave(binaries, root) == (0, "")
    assert joined(root) == ["."]


def test_cgroup_v2_that_cant_be_left_is_told(tmp_path: Path, binaries: Path) -> None:
    root = cgroups(tmp_path, V2, f"0::/{SCOPE}/job_5/step_0/slurm\n", SCOPE)
    (root / "sys/fs/cgroup" / SCOPE / "logshipper").write_text("no folder")
    assert leave(binaries, root) == (1, "the job's (v2) cgroup can't be left: No such file or directory\n")


@pytest.mark.parametrize("own", ["0::/system.slice/slurmd.service\n", f"0::/{SCOPE}/system\n", "0::/job_x/y\n", ""])
def test_no_jobs_cgroup_is_not_left(tmp_path: Path, binaries: Path, own: str) -> None:
    root = cgroups(tmp_path, V2, own, "", SCOPE)
    assert leave(binaries, root) == (0, "")
    assert joined(root) == []
