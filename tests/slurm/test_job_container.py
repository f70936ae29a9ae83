"""Jobs with a private /tmp and /dev/shm (job_container/tmpfs): captured jobs end like others, and
logshipper keeps nothing open in the folders that Slurm unmounts and removes."""

import contextlib
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools import cases
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART, BOTH, READY, Case
from tests.slurm.tools.cluster import NODES, PLACES
from tests.slurm.tools.machine import SlurmMissing
from tests.slurm.tools.table import COMPLETED, ended
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import helpers, helpers_outside, late_python, ready_job
from tests.tools.captures.captured_runs import wait_until

PLUGIN = "/usr/lib/*/slurm*/job_container_tmpfs.so"
CONF = "JobContainerType=job_container/tmpfs\nPrologFlags=Contain"
END_SECS = 30.0
# The job cannot see the node's /tmp, and each step finds the files of earlier steps.
PRIVATE = """
echo out $(ls /tmp /dev/shm | grep -c logshipper) of the others
for place in /tmp /dev/shm; do
    for i in $(seq 300); do echo $i; done > $place/own
    echo out $(wc -l < $place/own) in $place
    echo err $place is $(stat -c %a $place/own) >&2
done
"""
STEPS = PRIVATE + "srun --quiet bash -c 'echo out again $(wc -l < /tmp/own)'\n" + BOTH.format(2000)
HOLDS = PRIVATE + f"cd /tmp; sleep 1000 > /tmp/held 2>&1 & disown\necho {READY}\n"
CASES = [
    Case("batch", PRIVATE + BOTH.format(2000), APART),
    Case("steps", STEPS, APART),
    Case("code", f"{PRIVATE}exit 3", APART, ends=ended(3, 0)),
    Case("no_terminal", PRIVATE + BOTH.format(2000), APART, opt_in="tty: false\n"),
    Case("left_in_it", HOLDS, APART),
    Case("scancel", f"{PRIVATE}echo {READY}; sleep 1000", APART, ends=ended(0, 15, "CANCELLED"),
         act=lambda cluster, user, job_id: cluster.scancel(user, job_id)),
    Case("srun", command=("srun", "--quiet", "bash", "-c", PRIVATE),
         log={("1", "0", "0", "stdout"): ["out 0 of the others", "out 300 in /tmp", "out 300 in /dev/shm"],
              ("1", "0", "0", "stderr"): ["err /tmp is 644", "err /dev/shm is 644"]}),
]  # fmt: skip


class PrivateCluster(CapturingCluster):
    """A cluster whose jobs have their folders in `NODE/containers/JOBID`. The cluster itself is
    outside /tmp because jobs would not see their homes there."""

    def __init__(self, loki: LokiServer) -> None:
        if not glob.glob(PLUGIN):
            raise SlurmMissing(f"there is no {PLUGIN} (Debian: slurm-wlm-basic-plugins)")
        super().__init__(loki, proctrack="cgroup", more=CONF, place=PLACES[1])
        for node in NODES:
            (self.node_folder(node) / "job_container.conf").write_text(
                f"AutoBasePath=true\nBasePath={self.containers(node)}\n"
            )
        login = self.node_folder("login") / "job_container.conf"
        login.write_text((self.node_folder("n1") / login.name).read_text())

    def containers(self, node: str) -> Path:
        return self.node_folder(node) / "containers"

    def kept(self) -> list[str]:
        """Return the remains of jobs' containers: folders, and mounts in the nodes' namespace."""
        mounts = Path(f"/proc/{self.first_pid}/mounts").read_text().splitlines()
        return [
            *(str(path) for node in NODES for path in self.containers(node).glob("[0-9]*")),
            *(line for line in mounts if "/containers/" in line),
        ]


@pytest.fixture(scope="module")
def private(slurm_machine: None, loki: LokiServer) -> Iterator[PrivateCluster]:
    with unless_missing(lambda: PrivateCluster(loki)) as running:
        yield running


def removed(cluster: PrivateCluster) -> None:
    wait_until(lambda: not cluster.kept(), "jobs' containers are removed", END_SECS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ends_as_uncaptured(private: PrivateCluster, case: Case) -> None:
    plain, captured = cases.run_pair(private, case)
    for run in (plain, captured):
        cases.finish(private, case, run)
    removed(private)  # before the test kills the job's remaining processes
    assert cases.difference(case, plain, captured) == []
    assert cases.log_difference(private, case, plain, captured) == []
    assert cases.nothing_logged(private, plain) == []
    assert of_containers(private, captured) == of_containers(private, plain)


def of_containers(cluster: PrivateCluster, run: cases.Run) -> set[str]:
    """Return the nodes' log lines about a job's container, without the job's id. Exclude
    slurmstepd's messages about a container that it reached too late."""
    about = ("mount", "rmdir", "unlink", "busy")
    (job_id,) = run.job_ids
    lines = [line for node in NODES for line in cluster.log(node).splitlines() if job_id in line]
    said = [re.sub(rf"^\[\S+\] |{job_id}|/n[12]/", "", line) for line in lines]
    return {line for line in said if any(word in line for word in about)}


def test_nothing_of_ours_is_in_it(private: PrivateCluster) -> None:
    """Keeper, relay and sidecar share slurmd's mount namespace, and hold no file of the job's /tmp
    open."""
    user, job_id = waiting_job(private)
    for pid in helpers_outside(private):
        held = []
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            with contextlib.suppress(FileNotFoundError):  # closed in the meantime
                held.append(os.readlink(path))
        assert not [path for path in held if path.startswith(("/tmp/", "/dev/shm/"))], pid
    (user.home / "go").touch()
    assert private.wait(job_id) == COMPLETED
    removed(private)


def test_is_removed_while_python_has_not_begun(private: PrivateCluster) -> None:
    """A sidecar can outlive its job by the duration of its own start."""
    late, go = late_python(private)
    private.set_plugstack(f"{private.line} {late} drain_secs=0")
    try:
        user, job_id = waiting_job(private)
        (user.home / "go").touch()
        assert private.wait(job_id) == COMPLETED
        removed(private)
        assert helpers(private), "what captures lives on"
    finally:
        go.touch()
        private.set_plugstack(private.line)
    private.wait_closed([job_id], 1)
    assert private.log_of(job_id)["1", "batch", "0", "stdout"][-1] == READY


def waiting_job(cluster: PrivateCluster) -> tuple[JobUser, str]:
    """Start a captured job that runs until `go` exists. Return its user and id."""
    script = f"{PRIVATE}exec 5< /tmp/own; echo {READY}; until [ -e go ]; do sleep 0.1; done"
    user = cluster.add_user()
    return user, ready_job(cluster, user, script)
