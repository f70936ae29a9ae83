"""Users who forge, swap and spy: the records of a job contain Slurm's own facts, and other users'
captures stay intact."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import OUT, helpers, runs_whole
from tests.tools.captures.captured_runs import wait_until

FORGED = {
    "SLURM_JOB_ACCOUNT": "forged", "SLURM_JOB_PARTITION": "forged", "SLURM_JOB_NAME": "forged", "USER": "forged",
    "SLURM_JOB_USER": "forged", "SLURMD_NODENAME": "forged", "SLURM_CLUSTER_NAME": "forged", "LOGNAME": "forged",
    "SLURM_JOB_UID": "0", "SLURM_ARRAY_JOB_ID": "1", "SLURM_ARRAY_TASK_ID": "1", "SLURM_PROCID": "77",
    "SLURM_STEP_ID": "77", "SLURM_STEPID": "77", "HOSTNAME": "forged", "SLURM_JOB_NUM_NODES": "777",
}  # fmt: skip
OUT_SLOWLY = "for i in $(seq 300); do echo out $i; [ $((i % 30)) != 0 ] || sleep 0.4; done"
ROOTS_SECRET = "what root alone may read"  # noqa: S105  # made up


@pytest.fixture
def victim(cluster: CapturingCluster) -> Iterator[tuple[JobUser, str]]:
    """Yield another user and the id of that user's job. It runs with capture on n1 until the test
    ends."""
    victim_user = cluster.add_user()
    (victim_user.home / ".logoptin").touch()
    script = "echo first; until [ -e go ]; do sleep 0.1; done; echo last"
    job_id = cluster.sbatch(victim_user, script, "--nodelist=n1", *APART)
    wait_until(lambda: list(capture_of(cluster, job_id)), "its capture is there", 20.0)
    yield victim_user, job_id
    (victim_user.home / "go").touch()
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id) == {("1", "batch", "0", "stdout"): ["first", "last"]}
    assert {event["user"] for event in cluster.events(job_id)} == {victim_user.name}


def capture_of(cluster: CapturingCluster, job_id: str) -> list[Path]:
    return list((cluster.node_folder("n1") / "spool").glob(f"{job_id}@*"))


def is_true(cluster: CapturingCluster, job_id: str, user: JobUser, **fields: object) -> None:
    """Assert that Loki attributes the job to its real user."""
    facts = {"user": user.name, "uid": user.uid, "partition": "main", "account": "true", "name": "true",
             "host": "n1", "cluster": cluster.cluster, "label_host": "n1", "attempt": "1", "nodes": 1,
             **fields}  # fmt: skip
    (started,) = (event for event in cluster.events(job_id) if event["event"] == "started")
    assert {key: started.get(key) for key in facts} == facts
    assert "array_job_id" not in started


def test_nodes_of_a_job(cluster: CapturingCluster, user: JobUser) -> None:
    """A batch script on the first of its nodes also reports all nodes."""
    job_id = cluster.sbatch(user, "echo mine", "--nodes=2", "--overcommit", *APART)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    cluster.wait_closed([job_id], 1)
    (started,) = (event for event in cluster.events(job_id) if event["event"] == "started")
    assert started["nodes"] == 2


@pytest.mark.parametrize("origin", ["of_sbatch", "of_the_job"])
def test_forged_environment(
    cluster: CapturingCluster, user: JobUser, victim: tuple[JobUser, str], origin: str
) -> None:
    victim_id = victim[1]
    forged = {
        **FORGED,
        "SLURM_JOB_ID": victim_id,
        "SLURM_JOBID": victim_id,
        "LOGSHIPPER_JOB_ID": victim_id,
    }
    options = ["--account=true", "--job-name=true", "--nodelist=n1", *APART]
    if origin == "of_sbatch":
        job_id = cluster.sbatch(user, "echo mine", *options, env=forged)
    else:
        exports = ",".join(f"{name}={value}" for name, value in forged.items())
        job_id = cluster.sbatch(user, "echo mine", *options, f"--export=ALL,{exports}")
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id) == {("1", "batch", "0", "stdout"): ["mine"]}
    is_true(cluster, job_id, user)


def test_forged_environment_of_a_step(
    cluster: CapturingCluster, user: JobUser, victim: tuple[JobUser, str]
) -> None:
    forged = {**FORGED, "SLURM_JOB_ID": victim[1], "LOGSHIPPER_JOB_ID": victim[1]}
    exports = ",".join(f"{name}={value}" for name, value in forged.items())
    options = ("--account=true", "--job-name=true", "--nodelist=n1", f"--export=ALL,{exports}")
    done = cluster.run_as(user, "srun", *options, "echo", "mine")
    assert (done.returncode, done.stdout) == (0, b"mine\n")
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id) == {("1", "0", "0", "stdout"): ["mine"]}
    is_true(cluster, job_id, user)


def test_forged_restart(cluster: CapturingCluster, user: JobUser) -> None:
    """Without the plugin for identities, users can forge only the attempt number of their own
    jobs."""
    job_id = cluster.sbatch(
        user, "echo mine", "--nodelist=n1", *APART, env={"SLURM_RESTART_COUNT": "7"}
    )
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    cluster.wait_closed([job_id], 1)
    attempt = "1" if cluster.identity else "8"
    assert cluster.log_of(job_id) == {(attempt, "batch", "0", "stdout"): ["mine"]}


def test_a_name_is_what_it_is(cluster: CapturingCluster, user: JobUser) -> None:
    """Users choose any bytes as a job's name and account. The record quotes them, so they forge no
    field."""
    name = 'a","user":"root","x":"\\ \x1b[31m\u2028é\n'
    options = ("--nodelist=n1", f"--job-name={name}", '--account=b","uid":0')
    assert cluster.run_as(user, "srun", *options, "echo", "mine").stdout == b"mine\n"
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], 1)
    (started,) = (event for event in cluster.events(job_id) if event["event"] == "started")
    assert (started["user"], started["uid"], started["job_id"]) == (user.name, user.uid, job_id)
    assert started["name"].startswith('a","user":"root","x":"\\ ')


def test_what_a_user_puts_into_the_own_capture(
    cluster: CapturingCluster, user: JobUser, victim: tuple[JobUser, str]
) -> None:
    """The user plants links to root's files, FIFOs and folders, and races with the readers and
    writers of the capture."""
    secret = cluster.folder / "secret"
    secret.write_text(f'{ROOTS_SECRET}\n{{"loss": 1}}\n')
    secret.chmod(0o600)
    job_id = cluster.sbatch(user, OUT_SLOWLY, "--nodelist=n1", *APART)
    wait_until(lambda: list(capture_of(cluster, job_id)), "its capture is there", 20.0)
    (capture,) = capture_of(cluster, job_id)
    segments, dest = capture / "segments", capture_of(cluster, victim[1])[0]
    spoil = f"""cd {segments} || exit 1
        for round in $(seq 60); do
            ln -sf {secret} 00000001.seg; ln -sf {secret} 99999999.seg; ln -sf {secret} counters; mkfifo 00000007.seg
            mkdir -p 00000003.seg lock.d; ln -sf {dest}/identity.json {round}.seg; ln -sfn / root; mv counters c.$round
            [ $round != 30 ] || rm -f *.seg lock; ln -sf {secret} lock
            ln -sf {dest}/segments/00000001.seg 00000002.seg
            echo x >>{dest}/segments/00000001.seg; echo x >{capture}/identity.json; sleep 0.05
        done 2>/dev/null"""
    cluster.run_as(user, "bash", "-c", spoil.replace("{round}", "$round"))
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    assert (user.home / "job.out").read_text() == OUT
    following = cluster.add_user()
    (following.home / ".logoptin").touch()
    after = runs_whole(cluster, following)
    cluster.wait_closed([after], 1)
    assert cluster.log_of(after)["1", "batch", "0", "stdout"] == OUT.splitlines()
    wait_until(lambda: len(helpers(cluster).get("relay", [])) <= 1, "its helpers have ended", 30.0)
    assert secret.read_text() == f'{ROOTS_SECRET}\n{{"loss": 1}}\n'
    assert not [
        entry
        for some_id in (job_id, victim[1], after)
        for entry in cluster.entries(some_id)
        if ROOTS_SECRET in str(entry)
    ]
    assert "Traceback" not in cluster.agents["n1"].log.read_text()
    assert not cluster.agents["n1"].has_ended()


def test_modes_of_what_root_keeps(
    cluster: CapturingCluster, user: JobUser, victim: tuple[JobUser, str]
) -> None:
    spool = cluster.node_folder("n1") / "spool"
    paths = [spool / ".jobs", *(spool / ".jobs").iterdir()]
    assert [
        path for path in paths if path.stat().st_uid != 0 and not path.name.endswith(".modes")
    ] == []
    assert stat.S_IMODE((spool / ".jobs").stat().st_mode) == 0o700
    for path in paths:
        for attempt in (
            f"cat {path}",
            f"ls {path}",
            f"echo x >>{path}",
            f"rm -r {path}",
            f"mv {path} {path}.other",
        ):
            assert cluster.run_as(user, "bash", "-c", attempt).returncode, attempt
    result = cluster.run_as(
        user, "bash", "-c", f"touch {spool}/.jobs/1.0 || mkdir {spool}/1@1.aaaa || ls {spool}"
    )
    assert result.returncode


def test_a_users_own_helpers(
    cluster: CapturingCluster, user: JobUser, victim: tuple[JobUser, str]
) -> None:
    """Other users can neither inspect nor kill them. Their own user cannot inspect them either."""
    wait_until(
        lambda: {"keeper", "relay"} <= helpers(cluster).keys(), "the victim's are there", 20.0
    )
    keepers = helpers(cluster)
    for pid in [pid for pids in keepers.values() for pid in pids]:
        for attempt in (f"kill -9 {pid}", f"ls /proc/{pid}/fd", f"cat /proc/{pid}/mem"):
            assert cluster.run_as(user, "bash", "-c", attempt).returncode, attempt
    relay = keepers["relay"][0]
    for attempt in (f"ls /proc/{relay}/fd", f"cat /proc/{relay}/environ"):
        assert cluster.run_as(victim[0], "bash", "-c", attempt).returncode, attempt
