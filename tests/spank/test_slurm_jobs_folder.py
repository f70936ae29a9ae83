"""SPOOL/.jobs holds root's records of each job on a node: steps and prolog write them, the epilog
deletes them.

The real slurmstepd runs prolog and epilog as slurmd does. Further tests cover the keeper's exit
from a job's cgroups.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.tools import gate
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.slurm_player import Node, checked_node
from tests.tools.waiting import scaled

SLURMSTEPD = "/usr/sbin/slurmstepd"
SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost
ProctrackType=proctrack/linuxproc
NodeName=n1 NodeHostname=localhost
PartitionName=p Nodes=n1
"""


@pytest.fixture
def node(binaries: Path) -> Iterator[Node]:
    for node in checked_node(binaries):
        plugstack = node.folder / "plugstack.conf"
        lines = [
            f"optional {binaries}/{name} spool={node.spool}"
            for name in ("logshipper.so", "logshipper-identity.so")
        ]
        plugstack.write_text("\n".join(lines) + "\n")
        (node.folder / "slurm.conf").write_text(f"{SLURM_CONF}PlugStackConfig={plugstack}\n")
        yield node


def job_script(node: Node, kind: str, job: int, restarts: int | None, **more: str) -> str:
    """Run a job's prolog or epilog with slurmd's environment. Return its messages."""
    if not os.path.exists(SLURMSTEPD):
        gate.lacking("slurmd isn't installed")
    environment = {
        "SLURM_CONF": str(node.folder / "slurm.conf"), "SLURM_JOB_ID": str(job), "SLURM_JOBID": str(job),
        "SLURM_UID": str(node.uid), "SLURM_JOB_UID": str(node.uid), "SLURM_JOB_GID": str(node.uid), **more,
    }  # fmt: skip
    if restarts is not None:
        environment["SLURM_JOB_RESTART_COUNT"] = str(restarts)
    ran = subprocess.run(
        [SLURMSTEPD, "spank", kind],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    return ran.stderr


def job_files(node: Node) -> set[str]:
    return {path.name for path in (node.spool / ".jobs").iterdir() if not path.name.startswith(".")}


def file_name(node: Node, name: str, *, uid: int | None = None) -> str:
    job, _, rest = name.partition(".")
    return f"{job}.{node.uid if uid is None else uid}.{rest}"


def all_named(node: Node, *names: str) -> set[str]:
    return {file_name(node, name) for name in names}


def put(node: Node, *names: str, uid: int | None = None) -> None:
    """Write files of jobs, named without the user's id: `5.0` is the first run of job 5."""
    (node.spool / ".jobs").mkdir(0o700, exist_ok=True)
    for name in names:
        (node.spool / ".jobs" / file_name(node, name, uid=uid)).write_text("out absent\n")


def age(path: Path, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


# ---- the epilog


def test_epilog_forgets_the_job(node: Node) -> None:
    assert node.run("true").captured() == [True]
    node.logged()
    assert job_files(node) == all_named(node, "4711.0", "4711.0.modes", "4711.slurm")
    put(node, "47110.0", "471.0", "4712.0.modes")
    assert job_script(node, "epilog", 4711, 0) == ""
    assert job_files(node) == all_named(node, "47110.0", "471.0", "4712.0.modes")


def test_epilog_of_a_run_leaves_the_next_one(node: Node) -> None:
    """The next run may have decided here already. The epilog deletes files with a forged run
    number."""
    put(node, "5.0", "5.0.modes", "5.1", "5.2", "5.2.modes", "5.3", "5.999")
    job_script(node, "prolog", 5, 2)
    job_script(node, "epilog", 5, 1)
    assert job_files(node) == all_named(node, "5.2", "5.2.modes", "5.slurm")
    job_script(node, "epilog", 5, 2)
    assert job_files(node) == set()


def test_epilog_that_isnt_told_the_run_forgets_all(node: Node) -> None:
    put(node, "5.0", "5.1.modes", "5.slurm", "6.0")
    job_script(node, "epilog", 5, None)
    assert job_files(node) == all_named(node, "6.0")


FORGED = 1000  # MOST_RESTARTS of jobs_folder.h
CROWD = 30_000


def crowd(node: Node) -> None:
    """Create more files of other jobs than an epilog scans. They are hard links because a file
    system takes seconds to create so many inodes."""
    first, *paths = (
        node.spool / ".jobs" / file_name(node, f"6.{number}") for number in range(CROWD)
    )
    first.touch()
    for path in paths:
        os.link(first, path)


@pytest.mark.parametrize("restarts", [1, None])
def test_epilog_finds_its_own_among_all_others(node: Node, restarts: int | None) -> None:
    """Neither other jobs' files nor this job's forged ones hide them."""
    job_names = [f"5.{run}{rest}" for run in (0, 1, 2, 3, FORGED) for rest in ("", ".modes")] + [
        "5.slurm"
    ]
    put(node, *job_names[::2])
    crowd(node)
    put(node, *job_names[1::2])
    order = [entry.name for entry in os.scandir(node.spool / ".jobs")]
    assert all_named(node, *job_names) & set(order[20_000:])
    job_script(node, "epilog", 5, restarts)
    rest = {name for name in job_files(node) if name.startswith("5.")}
    assert rest == (set() if restarts is None else all_named(node, "5.2", "5.2.modes"))
    assert len(job_files(node) - rest) == CROWD


def test_epilog_forgets_earlier_jobs_of_its_number(node: Node) -> None:
    put(node, "5.0", "5.1", "5.slurm", "55.0", uid=node.uid + 1)
    for name in ("5.0", "5.0.modes", "5.slurm"):  # written by a release without user ids in names
        (node.spool / ".jobs" / name).write_text("out absent\n")
    put(node, "5.1")
    job_script(node, "epilog", 5, 0)
    assert job_files(node) == {file_name(node, "5.1"), file_name(node, "55.0", uid=node.uid + 1)}


@pytest.mark.parametrize("fault", ["missing", "mode"])
def test_epilog_and_prolog_never_fail(node: Node, fault: str) -> None:
    if fault == "missing":
        shutil.rmtree(node.spool)
    else:
        node.spool.chmod(0o777)
    assert job_script(node, "epilog", 5, 0) == ""
    assert "the spool" in job_script(node, "prolog", 5, 0)
    assert not (node.spool / ".jobs").exists()


# ---- jobs whose end went unnoticed


def test_old_files_are_swept_once_a_day(node: Node) -> None:
    node.run("true", words=("job=1",))
    put(node, "2.0", "3.0")
    age(node.spool / ".jobs" / file_name(node, "2.0"), 61)
    age(node.spool / ".jobs" / file_name(node, "3.0"), 59)
    job_script(node, "epilog", 9, 0)
    assert all_named(node, "2.0", "3.0") <= job_files(node)
    age(node.spool / ".jobs" / ".boot", 1.1)
    job_script(node, "epilog", 9, 0)
    assert all_named(node, "1.0", "3.0") <= job_files(node)
    assert file_name(node, "2.0") not in job_files(node)


def test_old_files_are_swept_however_many_there_are(node: Node) -> None:
    old = [f"2.{number}" for number in range(40)]
    put(node, *old[::2])
    crowd(node)
    put(node, *old[1::2])
    for name in all_named(node, *old):
        age(node.spool / ".jobs" / name, 61)
    (node.spool / ".jobs" / ".boot").touch()
    age(node.spool / ".jobs" / ".boot", 1.1)
    job_script(node, "epilog", 9, 0)
    assert len(job_files(node)) == CROWD


def test_what_an_earlier_boot_left_counts_no_more(node: Node) -> None:
    """The number may belong to another job since then, so its old decision is void."""
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
    assert (jobs / ".boot").read_text() == Path(
        "/proc/sys/kernel/random/boot_id"
    ).read_text().strip()


# ---- files of other users


def test_decision_of_another_users_job_of_that_number_counts_no_more(node: Node) -> None:
    """Slurm reuses job numbers. A decision without a user id is void, too."""
    jobs = node.spool / ".jobs"
    put(node, "4711.0", uid=node.uid + 1)
    (jobs / "4711.0").write_text("out absent\n")
    assert node.run("echo", "out").captured() == [True]
    assert (jobs / file_name(node, "4711.0")).read_text().startswith("in present")
    assert node.logged()[0].lines() == [b"out"]
    node.optin.unlink()
    (jobs / file_name(node, "5.0", uid=node.uid + 1)).write_text("in present\n")
    (jobs / "5.0").write_text("in present\n")
    assert node.run("true", words=("job=5",)).captured() == [False]


def test_modes_of_another_users_job_of_that_number_count_no_more(node: Node) -> None:
    node.run(
        "sh", "-c", """echo first; echo '/LOGCOMMAND {"mode":"disabled"}'""", words=("step=0",)
    )
    node.logged()
    jobs = node.spool / ".jobs"
    for name in ("4711.0.modes", file_name(node, "4711.0.modes", uid=node.uid + 1)):
        shutil.copy(jobs / file_name(node, "4711.0.modes"), jobs / name)
    (jobs / file_name(node, "4711.0.modes")).unlink()
    node.run("echo", "open", words=("step=1",))
    assert next(
        capture for capture in node.logged(2) if capture.identity["step"] == "1"
    ).lines() == [b"open"]


def test_record_of_another_users_job_of_that_number_counts_no_more(node: Node) -> None:
    (node.spool / ".jobs").mkdir(0o700)
    for name in ("4711.slurm", file_name(node, "4711.slurm", uid=node.uid + 1)):
        (node.spool / ".jobs" / name).write_text("restarts=7\naccount=physics\npartition=gpu\n")
    node.run("true", words=("step=0", "account=own"))
    [logged] = node.logged()
    assert (logged.identity["account"], logged.identity["attempt"]) == ("own", 1)


# ---- Slurm's facts about a job


def test_prolog_records_what_a_step_might_forge(node: Node) -> None:
    variables = {
        "SLURM_JOB_ACCOUNT": "physics",
        "SLURM_JOB_PARTITION": "gpu",
        "SPANK_SLURM_JOB_ACCOUNT": "mine",
    }
    assert job_script(node, "prolog", 4711, 3, **variables) == ""
    node.run("true", words=("step=0", "account=forged", "restarts=0"))
    [logged] = node.logged()
    identity = logged.identity
    assert (identity["account"], identity["partition"], identity["attempt"]) == (
        "physics",
        "gpu",
        4,
    )
    assert file_name(node, "4711.3") in job_files(node)


def test_record_is_renewed_by_the_next_run(node: Node) -> None:
    job_script(node, "prolog", 4711, 0, SLURM_JOB_ACCOUNT="physics")
    job_script(node, "prolog", 4711, 1, SLURM_JOB_ACCOUNT="chemistry")
    node.run("true", words=("late_restarts=7", "account=forged"))
    [logged] = node.logged()
    assert (logged.identity["account"], logged.identity["attempt"]) == ("chemistry", 2)


def test_batch_script_tells_later_steps(node: Node) -> None:
    """There is no prolog. slurmd creates the batch script's environment, but a step's comes from
    the user."""
    node.run("true", words=("account=physics",))
    node.logged()
    node.run("true", words=("step=0", "account=forged"))
    assert [capture.identity["account"] for capture in node.logged(2)] == ["physics", "physics"]
    node.run("true", words=("step=0", "account=forged", "job=5"))
    assert (
        next(capture for capture in node.logged(3) if capture.identity["job_id"] == "5").identity[
            "account"
        ]
        == "forged"
    )


# ---- exit from the job's cgroups

V1 = """30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
"""
V2 = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
SCOPE = "system.slice/slurmstepd.scope"


def cgroups(folder: Path, mounts: str, memberships: str, *groups: str) -> Path:
    """Create a tree like /proc/self and /sys/fs/cgroup. Return its root."""
    root = folder / "root"
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/self/cgroup").write_text(memberships)
    for group in groups:
        path = root / "sys/fs/cgroup" / group
        path.mkdir(parents=True, exist_ok=True)
        (path / "cgroup.procs").touch()
    return root


def leave(binaries: Path, root: Path) -> tuple[int, str]:
    argv = [str(binaries / "test" / "play-step"), "leave-cgroups", str(root)]
    ran = subprocess.run(argv, capture_output=True, text=True)
    return ran.returncode, ran.stdout


def occupied_groups(root: Path) -> list[str]:
    base = root / "sys/fs/cgroup"
    return [
        str(path.parent.relative_to(base))
        for path in sorted(base.rglob("cgroup.procs"))
        if path.read_text()
    ]


def test_cgroup_v1_roots(tmp_path: Path, binaries: Path) -> None:
    memberships = (
        "7:memory:/slurm_n1/uid_1000/job_5/step_0/task_0\n"
        "6:cpu,cpuacct:/slurm_n1/uid_1000/job_5/step_0\n"
        "1:pids:/a\n"
    )
    root = cgroups(
        tmp_path,
        V1,
        memberships,
        "memory",
        "cpu,cpuacct",
        "memory/slurm_n1/uid_1000/job_5/step_0/task_0",
    )
    assert leave(binaries, root) == (0, "")
    assert occupied_groups(root) == ["cpu,cpuacct", "memory"]


SLUID = "sEKNKTV3WPV500"  # name of a job's cgroup from Slurm 26.05 on
LAYOUTS = {
    "job_5/step_0/slurm": SCOPE,
    "job_5/step_batch/user/task_0": SCOPE,
    "job_5": SCOPE,
    f"{SLUID}/step_0/slurm": SCOPE,
    f"{SLUID}/step_extern/user/task_special": SCOPE,
    "job_5/step_0/user/job_6": "system.slice/node7_slurmstepd.scope",  # several slurmd on one host
    f"{SLUID}/step_batch/slurm": "hpc.slice/slurmstepd.scope",  # CgroupSlice=
}


def leaf_in(root: Path, scope: str) -> None:
    leaf = root / "sys/fs/cgroup" / scope / "logshipper"
    leaf.mkdir(parents=True)
    (leaf / "cgroup.procs").touch()  # the kernel creates it with the folder


@pytest.mark.parametrize("where", LAYOUTS)
def test_cgroup_v2_leaf_in_the_delegated_scope(tmp_path: Path, binaries: Path, where: str) -> None:
    """The keeper never joins the scope itself because the scope's children have controllers."""
    scope = LAYOUTS[where]
    root = cgroups(tmp_path, V2, f"0::/{scope}/{where}\n", "", scope, f"{scope}/{where}")
    leaf_in(root, scope)
    assert leave(binaries, root) == (0, "")
    assert occupied_groups(root) == [f"{scope}/logshipper"]


def test_cgroup_v2_of_a_container(tmp_path: Path, binaries: Path) -> None:
    """IgnoreSystemd=yes in a container with the host's cgroup namespace. The mounted folder is not
    the root, and no process can join it."""
    mounts = (
        "29 25 0:26 /../other /mnt rw - cgroup2 cgroup2 rw\n"
        "30 25 0:26 /docker/8f2 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    root = cgroups(tmp_path, mounts, f"0::/docker/8f2/{SCOPE}/{SLUID}/step_0/slurm\n", SCOPE)
    leaf_in(root, SCOPE)
    assert leave(binaries, root) == (0, "")
    assert occupied_groups(root) == [f"{SCOPE}/logshipper"]


def test_cgroup_v2_root_where_there_can_be_no_leaf(tmp_path: Path, binaries: Path) -> None:
    root = cgroups(tmp_path, V2, f"0::/{SCOPE}/job_5/step_0/slurm\n", "", SCOPE)
    (root / "sys/fs/cgroup" / SCOPE / "logshipper").write_text("no folder")
    assert leave(binaries, root) == (0, "")
    assert occupied_groups(root) == ["."]


def test_cgroup_v2_that_cant_be_left_is_told(tmp_path: Path, binaries: Path) -> None:
    root = cgroups(tmp_path, V2, f"0::/{SCOPE}/job_5/step_0/slurm\n", SCOPE)
    (root / "sys/fs/cgroup" / SCOPE / "logshipper").write_text("no folder")
    assert leave(binaries, root) == (
        1,
        "the job's (v2) cgroup can't be left: No such file or directory\n",
    )


class Looker:
    """A process in a job's cgroup that looks at ~/.logoptin for a long time, and the processes that
    move it."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.process = subprocess.Popen(["sleep", "1000"])
        self.started = int(
            Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        )
        self.root = cgroups(folder, V1, "", "memory", "memory/slurm_n1/uid_1000/job_5/step_0")
        self.procs = self.root / "sys/fs/cgroup/memory/cgroup.procs"
        process_folder = self.root / "proc" / str(self.process.pid)
        process_folder.mkdir()
        (process_folder / "cgroup").write_text("7:memory:/slurm_n1/uid_1000/job_5/step_0\n")
        self._play = str(binaries / "test" / "play-step")
        self._movers: list[subprocess.Popen[str]] = []

    def hold_movers(self) -> None:
        """Block movers in the middle of a move until a reader opens cgroup.procs."""
        self.procs.unlink()
        os.mkfifo(self.procs)

    def start_mover(self, started: int | None = None) -> "subprocess.Popen[str]":
        numbers = [
            str(number)
            for number in (self.process.pid, self.started if started is None else started)
        ]
        argv = [self._play, "move-looker", str(self.root), *numbers]
        self._movers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return self._movers[-1]

    def move(self, started: int | None = None) -> str:
        """Return the mover's output."""
        return self.start_mover(started).communicate(timeout=scaled(20))[0]

    def status(self) -> str:
        return Path(f"/proc/{self.process.pid}/status").read_text()

    def close(self) -> None:
        self.process.kill()
        for mover in self._movers:
            mover.kill()
            mover.communicate()
        self.process.wait()


@pytest.fixture
def looker(tmp_path: Path, binaries: Path) -> Iterator[Looker]:
    process = Looker(tmp_path, binaries)
    yield process
    process.close()


@needs_root
def test_who_looks_is_moved_and_looks_on(looker: Looker) -> None:
    assert looker.move() == ""
    assert looker.procs.read_text() == str(looker.process.pid)
    assert looker.process.poll() is None
    assert "TracerPid:\t0\n" in looker.status()


def test_number_that_is_anothers_by_now_is_not_moved(looker: Looker) -> None:
    assert looker.move(looker.started - 1) == ""
    looker.process.kill()
    os.waitid(os.P_PID, looker.process.pid, os.WEXITED | os.WNOWAIT)
    assert looker.move() == ""  # it is dead, but not reaped
    looker.process.wait()
    assert looker.move() == ""
    assert looker.procs.read_text() == ""


@needs_root
@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_number_of_who_looks_is_nobody_elses_while_it_is_moved(looker: Looker, signo: int) -> None:
    """Its user kills it at that moment, so that another process could get its number and escape the
    job's limits."""
    looker.hold_movers()
    mover = looker.start_mover()
    wait_until(lambda: f"TracerPid:\t{mover.pid}\n" in looker.status(), "it is traced")
    looker.process.send_signal(signo)
    if signo == signal.SIGKILL:
        wait_until(lambda: "State:\tZ" in looker.status(), "it is dead")
    assert os.waitpid(looker.process.pid, os.WNOHANG) == (0, 0)
    assert looker.procs.read_text() == str(looker.process.pid)
    assert mover.communicate(timeout=scaled(20))[0] == ""
    assert looker.process.wait(scaled(20)) == -signo


@needs_root
def test_who_cannot_be_traced_is_not_moved(looker: Looker) -> None:
    """Another process already traces it. Without tracing, the mover cannot be sure of the number's
    owner."""
    looker.hold_movers()
    first = looker.start_mover()
    wait_until(lambda: f"TracerPid:\t{first.pid}\n" in looker.status(), "it is traced")
    message = "who looks at ~/.logoptin stays in the job's cgroups: it can't be traced: Operation not permitted\n"
    assert looker.move() == message


@pytest.mark.parametrize(
    "memberships",
    [
        "0::/system.slice/slurmd.service\n",
        f"0::/{SCOPE}/system\n",
        "0::/job_x/y\n",
        f"0::/{SCOPE}/slurmd/step_0\n",
        f"0::/{SCOPE}/{SLUID}\n",
        f"0::/{SCOPE}/{SLUID.lower()}/step_0\n",
        f"0::/{SCOPE}/{SLUID}0/step_0\n",
        "",
    ],
)
def test_no_jobs_cgroup_is_not_left(tmp_path: Path, binaries: Path, memberships: str) -> None:
    root = cgroups(tmp_path, V2, memberships, "", SCOPE)
    assert leave(binaries, root) == (0, "")
    assert occupied_groups(root) == []
