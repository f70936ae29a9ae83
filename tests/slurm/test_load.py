"""Many simultaneous jobs or tasks: the log has each line exactly once, and nothing remains
afterwards."""

from collections import Counter

import pytest

from tests.slurm.tools import machine
from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.cases import APART
from tests.slurm.tools.cluster import NODES, JobEnd
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import helpers, late_python, slow_python
from tests.tools.captures.captured_runs import wait_until

MANY = 200  # simultaneous jobs
JOBS_LINES, RANKS_LINES = 20, 200
LOAD_SECS = 150.0


def cgroups_of(user: JobUser) -> list[str]:
    return [
        str(path)
        for node in NODES
        for path in machine.CGROUPS.glob(f"*/slurm_{node}/uid_{user.uid}/job_*")
    ]


def nothing_is_left(cluster: CapturingCluster, user: JobUser) -> None:
    wait_until(lambda: not helpers(cluster), "nobody of logshipper's is left", 30.0)
    wait_until(lambda: not cgroups_of(user), f"no cgroup is left: {cgroups_of(user)}", 30.0)
    spools = [cluster.node_folder(node) / "spool" for node in NODES]
    assert not [path for spool in spools for path in spool.glob(".new-*")]


@pytest.mark.timeout(600)
def test_many_jobs(cluster: CapturingCluster, user: JobUser) -> None:
    script = f"for i in $(seq {JOBS_LINES}); do echo $SLURM_ARRAY_TASK_ID $i; done"
    job_id = cluster.sbatch(user, script, f"--array=0-{MANY - 1}", "--output=%a.out")
    assert {end.state for end in cluster.wait_all(job_id, LOAD_SECS)} == {"COMPLETED"}
    for task in range(MANY):
        assert (user.home / f"{task}.out").read_text() == "".join(
            f"{task} {n}\n" for n in range(1, JOBS_LINES + 1)
        )
    job_ids = cluster.job_ids(user.name)
    assert len(job_ids) == MANY
    cluster.wait_closed(job_ids, MANY, LOAD_SECS)
    logs = cluster.logs_of(*job_ids)
    missing = [
        job_id
        for job_id in job_ids
        if list(logs.get(job_id, ())) != [("1", "batch", "0", "stdout")]
    ]
    assert not missing, cluster.describe(
        missing[0], f"one of {len(missing)} that aren't in the log"
    )
    lines = [line for log in logs.values() for line in log["1", "batch", "0", "stdout"]]
    assert sorted(lines) == sorted(
        f"{task} {n}" for task in range(MANY) for n in range(1, JOBS_LINES + 1)
    )
    nothing_is_left(cluster, user)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [32, 64])
def test_many_ranks(cluster: CapturingCluster, user: JobUser, ranks: int) -> None:
    """All ranks share one node, one socket and one keeper, and start to print together."""
    script = f"""touch begun.$SLURM_PROCID; until [ $(ls begun.* | wc -l) = {ranks} ]; do sleep 0.1; done
        for i in $(seq {RANKS_LINES}); do echo out $SLURM_PROCID $i; echo err $SLURM_PROCID $i >&2; done"""
    lines_of = {name: [f"{name} {rank} {n}" for rank in range(ranks) for n in range(1, RANKS_LINES + 1)]
              for name in ("out", "err")}  # fmt: skip
    files = ("--output=%t.out", "--error=%t.err")
    done = cluster.run_as(
        user,
        "srun",
        "--nodelist=n1",
        f"-n{ranks}",
        *files,
        "bash",
        "-c",
        script,
        timeout_secs=100.0,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
    for name, lines in lines_of.items():
        output = "".join((user.home / f"{rank}.{name}").read_text() for rank in range(ranks))
        assert output.splitlines() == lines
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], ranks, LOAD_SECS)
    log = cluster.log_of(job_id)
    for name, lines in lines_of.items():
        logged = [
            line
            for rank in range(ranks)
            for line in log.get(("1", "0", str(rank), f"std{name}"), [])
        ]
        missing, more = Counter(lines) - Counter(logged), Counter(logged) - Counter(lines)
        assert not missing + more, cluster.describe(
            job_id, f"{len(missing)} {name} missing: {list(missing)[:9]}, {more}"
        )
        assert logged == lines
    assert len(log) == 2 * ranks
    nothing_is_left(cluster, user)


@UNDER_CGROUP
def test_a_job_does_not_wait_for_python(cluster: CapturingCluster, user: JobUser) -> None:
    setting, go = late_python(cluster)
    cluster.set_plugstack(f"{cluster.line} {setting}")
    job_id = cluster.sbatch(user, "for i in $(seq 3000); do echo out $i; done", *APART)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    assert not cluster.entries(job_id, kinds="log")
    go.touch()
    assert (user.home / "job.out").read_text() == "".join(f"out {n}\n" for n in range(1, 3001))
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id)["1", "batch", "0", "stdout"] == [
        f"out {n}" for n in range(1, 3001)
    ]


@UNDER_CGROUP
def test_a_flood_waits_for_python(cluster: CapturingCluster, user: JobUser) -> None:
    """The output exceeds the buffers of relay and pipe. The job slows down until a reader starts,
    and the log is complete."""
    cluster.set_plugstack(f"{cluster.line} {slow_python(cluster, 4.0)}")
    script = "seq -f 'out %.0f of a flood that nobody reads for some seconds' 100000"
    job_id = cluster.sbatch(user, script, *APART)
    cluster.wait(job_id)
    flood = [f"out {n} of a flood that nobody reads for some seconds" for n in range(1, 100_001)]
    assert (user.home / "job.out").read_text().splitlines() == flood
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id)["1", "batch", "0", "stdout"] == flood
