"""`/LOGCOMMAND` under Slurm (R16): a secret after a narrowing command never reaches Loki,
regardless of the job's process that prints it."""

import pytest

from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.cases import APART, write
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import slow_python
from tests.tools.captures.captured_runs import wait_until

pytestmark = UNDER_CGROUP

SECRET = "hunter2-is-the-secret"  # noqa: S105  # made up
COMMAND = '/LOGCOMMAND {"mode":"disabled"}'
DISABLE = f"echo '{COMMAND}'"
# The job's own output shows that the relay has read the command. Before that, nothing orders the
# lines of one stream after those of the other (R17).
UNTIL_READ = "until grep -q LOGCOMMAND ~/job.out; do sleep 0.05; done"
TELL = f"echo {SECRET} $SLURM_PROCID; {UNTIL_READ}; echo {SECRET} err >&2"
PRINTF = 'printf "/LOGCOMMAND {\\"mode\\":\\"disabled\\"}\\n"'  # for use between apostrophes

BATCH = {
    "the_script": f"{DISABLE}; {TELL}",
    "nested_srun": f"{DISABLE}; srun -n2 bash -c '{TELL}'",
    "nested_on_two_nodes": f"{DISABLE}; srun -N2 -n2 bash -c '{TELL}'",
    "command_of_a_step": f"srun bash -c '{PRINTF}'; srun bash -c '{TELL}'; {TELL}",
    "rank_1": f"srun -n2 bash -c 'if [ $SLURM_PROCID = 0 ]; then {PRINTF}; else {UNTIL_READ}; {TELL}; fi'",
    "background": f"(until [ -e ~/go ]; do sleep 0.05; done; {TELL}) & {DISABLE}; touch ~/go; wait",
}
# Ranks with their own captures follow their own commands and those of earlier captures on their
# node.
OF_RANKS = {"the_script", "nested_srun", "background"}
KINDS = [(form, "") for form in BATCH] + [(form, "tty: false\n") for form in BATCH]
KINDS += [(form, "per_task: true\n") for form in sorted(OF_RANKS)]


def nowhere(cluster: CapturingCluster, job_id: str) -> None:
    """Assert that Loki has the earlier lines, and no line or label with the secret."""
    entries = [str(entry) for entry in cluster.entries(job_id)]
    assert not [entry for entry in entries if SECRET in entry]
    assert [entry for entry in entries if "first of all" in entry], entries


@pytest.mark.parametrize(
    ("form", "opt_in"), KINDS, ids=lambda word: word.partition(":")[0] or "terminals"
)
def test_secret_of_a_batch_job(
    cluster: CapturingCluster, user: JobUser, form: str, opt_in: str
) -> None:
    (user.home / ".logoptin").write_text(opt_in)
    nodes = "2" if "two_nodes" in form else "1"
    job_id = cluster.sbatch(user, f"echo first of all; {BATCH[form]}", f"-N{nodes}", "-n2", *APART)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    assert SECRET in (user.home / "job.out").read_text()
    assert SECRET in (user.home / "job.err").read_text()
    cluster.wait_closed([job_id], 3 if (form, opt_in[:8]) == ("nested_srun", "per_task") else 1)
    nowhere(cluster, job_id)


def next_step(cluster: CapturingCluster, user: JobUser) -> str:
    steps = f"""srun --quiet printf 'first of all\\n%s\\n' '{COMMAND}' | tee job.out
        srun --quiet bash -c '{TELL}'"""
    done = cluster.run_as(
        user, "salloc", "--quiet", "--nodes=1", "--nodelist=n1", "bash", "-c", steps
    )
    assert (
        done.returncode,
        done.stdout.decode().count(SECRET),
        done.stderr.decode().count(SECRET),
    ) == (0, 1, 1)
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], 2)
    return job_id


def test_secret_of_the_next_step(cluster: CapturingCluster, user: JobUser) -> None:
    nowhere(cluster, next_step(cluster, user))


@pytest.fixture
def first_is_slow(cluster: CapturingCluster, user: JobUser) -> None:
    """Delay the Python of the first capture by seconds. Its relay has read the command, but no
    sidecar has applied it."""
    script = cluster.folder / "python-once-slow"
    wait = f"mkdir {user.home}/begun 2>/dev/null && sleep 4"
    script.write_text(f'#!/bin/sh\n{wait}\nexec {cluster.python} "$@"\n')
    script.chmod(0o755)
    cluster.set_plugstack(f"{cluster.line} python={script}")


@pytest.mark.usefixtures("first_is_slow")
class TestFirstIsSlow:
    def test_secret_of_the_next_step(self, cluster: CapturingCluster, user: JobUser) -> None:
        nowhere(cluster, next_step(cluster, user))

    def test_secret_of_a_rank(self, cluster: CapturingCluster, user: JobUser) -> None:
        """The ranks have their own captures on the batch script's node."""
        (user.home / ".logoptin").write_text("per_task: true\n")
        job_id = cluster.sbatch(
            user, f"echo first of all; {BATCH['nested_srun']}", "-N1", "-n2", *APART
        )
        assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
        cluster.wait_closed([job_id], 3)
        nowhere(cluster, job_id)

    def test_secret_of_a_step_beside_it(self, cluster: CapturingCluster, user: JobUser) -> None:
        """The second step begins while the first one, already disabled, still runs."""
        write(
            user,
            "first.sh",
            f"echo first of all; {DISABLE}; until [ -e ~/over ]; do sleep 0.05; done",
        )
        steps = f"""srun --quiet --overlap --output=job.out bash first.sh & {UNTIL_READ}
            srun --quiet --overlap bash -c '{TELL}'; touch ~/over; wait"""
        done = cluster.run_as(user, "salloc", "--quiet", "--nodes=1", "bash", "-c", steps)
        assert (done.returncode, SECRET in done.stdout.decode()) == (0, True), done
        (job_id,) = cluster.job_ids(user.name)
        cluster.wait_closed([job_id], 2)
        nowhere(cluster, job_id)


def test_secret_before_python_has_begun(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"{cluster.line} {slow_python(cluster, 2.0)}")
    job_id = cluster.sbatch(user, f"echo first of all; {DISABLE}; {TELL}", *APART)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    cluster.wait_closed([job_id], 1)
    nowhere(cluster, job_id)


def test_a_step_may_widen_itself_alone(cluster: CapturingCluster, user: JobUser) -> None:
    (user.home / ".logoptin").write_text("mode: disabled\n")
    widen = """printf '/LOGCOMMAND {"mode":"enabled"}\\nfirst of all\\n'"""
    steps = f"srun --quiet {widen}; srun --quiet bash -c 'echo {SECRET}'"
    done = cluster.run_as(user, "salloc", "--quiet", "--nodes=1", "bash", "-c", steps)
    assert (done.returncode, SECRET in done.stdout.decode()) == (0, True), done
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], 2)
    wait_until(lambda: cluster.log_of(job_id), "its log is there", 20.0)
    nowhere(cluster, job_id)
