"""Jobs at their resource limits, under task/cgroup and task/affinity: they end as without capture,
and the helpers run outside the job's limits."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools import cases
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART, Case
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.table import COMPLETED, ended
from tests.slurm.tools.whole import helpers
from tests.tools.captures.captured_runs import wait_until

OOM = "OUT_OF_MEMORY"
GROWS = """#!/usr/bin/python3
import sys

for number in range(1, 501):
    print("out", number)
    print("err", number, file=sys.stderr)
sys.stdout.flush()
taken = [bytearray(b"x") * (1 << 20) for _ in range(256)]
print("out too late")
"""

# Fills memory to 98 % of the job's limit as the kernel counts it, and prints all processes in the
# same cgroup.
NEARLY_ALL = """#!/usr/bin/python3
import os, re, time

path = re.search(r":memory:(.*?/job_[0-9]+)", open("/proc/self/cgroup").read())[1]
group = "/sys/fs/cgroup/memory" + path

def told(name):
    return int(open(f"{group}/{name}").read())

for number in range(1, 301):
    print("out", number)
taken = []
limit = told("memory.limit_in_bytes")
while told("memory.usage_in_bytes") < 0.98 * limit:
    taken.append(bytearray(b"x") * (64 << 10))
for number in range(301, 2001):
    print("out", number)
names = set()
for folder, _, _ in os.walk(group):
    for pid in open(f"{folder}/cgroup.procs").read().split():
        names.add(open(f"/proc/{pid}/comm").read().strip())
print("out", *sorted(names))
"""

LIMITS = [
    Case("out_of_memory", GROWS, (*APART, "--mem=64"), ends=ended(0, 125, OOM)),
    Case("out_of_memory_step", command=("srun", "--quiet", "--mem=64", "./grows"), code=1, ends=ended(0, 125, OOM),
         before=lambda _, user: grows(user.home / "grows"),
         log={("1", "0", "0", f"std{name}"): [f"{name} {n}" for n in range(1, 501)] for name in ("out", "err")}),
    Case("nearly_all_memory", NEARLY_ALL, (*APART, "--mem=100")),
    Case("nearly_all_memory_flood", NEARLY_ALL.replace("2001", "40001"), (*APART, "--mem=100")),
    Case("one_core", "nproc; grep -c . /proc/self/cgroup; seq -f 'out %g' 20000; seq -f 'err %g' 20000 >&2",
         (*APART, "-n1", "-c1")),
]  # fmt: skip


def grows(place: Path) -> None:
    place.write_text(GROWS)
    place.chmod(0o755)


@pytest.fixture(scope="module")
def limited(slurm_machine: None, loki: LokiServer) -> Iterator[CapturingCluster]:
    """Yield a cluster of two nodes with the machine's real resources. Jobs get only the resources
    that they requested."""
    with unless_missing(
        lambda: CapturingCluster(loki, proctrack="cgroup", constrain=True, cpus=2)
    ) as running:
        yield running


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.name)
def test_ends_as_uncaptured(limited: CapturingCluster, limit: Case) -> None:
    cases.compare(limited, limit, *cases.run_pair(limited, limit))


def test_helpers_are_elsewhere(limited: CapturingCluster) -> None:
    """They are outside the job's cgroups, so they use neither its memory nor its core."""
    user = limited.add_user()
    (user.home / ".logoptin").touch()
    script = "taskset -cp $$ | grep -o '[^:]*$'; cat /proc/self/cgroup >&2; until [ -e go ]; do sleep 0.1; done"
    job_id = limited.sbatch(user, script, "--nodelist=n1", "-n1", "-c1", *APART)
    wait_until(lambda: len(helpers(limited)) == 3, "keeper, relay and sidecar are there", 20.0)
    wait_until(
        lambda: "memory" in cases.text_of(user, "job.err"), "the job has told its cgroups", 20.0
    )
    cores, groups = (cases.text_of(user, name) for name in ("job.out", "job.err"))
    assert len(cores.split(",")) == 1
    for controller in ("freezer", "memory", "cpuset"):
        assert f":{controller}:/slurm_n1/uid_{user.uid}/job_{job_id}" in groups
    for name, pids in helpers(limited).items():
        for pid in pids:
            assert f"job_{job_id}" not in Path(f"/proc/{pid}/cgroup").read_text(), name
            assert os.sched_getaffinity(pid) == os.sched_getaffinity(0), name
    (user.home / "go").touch()
    assert limited.wait(job_id) == COMPLETED == JobEnd("COMPLETED", 0, 0)
