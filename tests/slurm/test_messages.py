"""Messages about jobs under Slurm's plugin: the sidecar sends as the job's user, after the job."""

import os

import pytest

from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART, text_of
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import wait_until

HOOK = "cmd:{ id -un; cat; } >> received; chmod 600 received"


def test_the_batch_script_sends_one_message(cluster: CapturingCluster, user: JobUser) -> None:
    """Its step on two nodes sends none, and secret targets reach neither Loki nor the spool."""
    targets = user.home / "targets"
    (user.home / ".logoptin").write_text("notify: ['file:~/targets', 'cmd:no-such-program']\n")
    targets.write_text(f"{HOOK}\n")
    targets.chmod(0o600)
    os.chown(targets, user.uid, user.gid)
    script = "srun -N2 -n2 echo '{\"loss\": 0.5}'; echo wrong >&2; exit 3"
    job_id = cluster.sbatch(user, script, "-N2", "-n2", *APART)
    assert cluster.wait(job_id) == JobEnd("FAILED", 3, 0)
    received = user.home / "received"
    wait_until(lambda: received.exists() and "wrong" in received.read_text(), "a message")
    message = received.read_text()
    assert message.startswith(f"{user.name}\n")
    assert f"({job_id}): FAILED, exit code 3\n" in message
    assert "last values: loss 0.5\n" in message
    assert "last lines of standard error:\n  wrong" in message
    cluster.wait_closed([job_id], 1)
    faults = [e["message"] for e in cluster.events(job_id) if e["event"] == "notification_failed"]
    assert (
        "messages cannot reach cmd: there is no program no-such-program; check the command"
        in faults
    )
    assert "received" not in str(cluster.entries(job_id))
    assert message.count("exit code 3\n") == 2, "title and reason of one message"


@pytest.mark.timeout(240)  # Slurm checks limits twice a minute
def test_an_approaching_time_limit_is_reported_once(
    cluster: CapturingCluster, limited_job: tuple[JobUser, str]
) -> None:
    user, job_id = limited_job
    assert cluster.wait(job_id).state == "TIMEOUT"
    cluster.wait_closed([job_id], 1)
    assert text_of(user, "received").count("s left until the time limit") == 2, "title and reason"
