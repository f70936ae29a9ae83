"""`logshipper run` in a task that the plugin captures logs every line once."""

from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.users import JobUser


@UNDER_CGROUP
def test_in_a_captured_script(cluster: CapturingCluster, user: JobUser) -> None:
    """Lines that pass through the script's own output belong to the script. A run into a file is a
    step of the job."""
    run = f"{cluster.python} -m logshipper run --"
    script = f"""
echo begin
{run} sh -c 'echo inner; exit 3'; echo code $?
srun -n2 {run} sh -c 'echo rank $SLURM_PROCID'
{run} echo filed > filed.txt
"""
    environment = {"LOGSHIPPER_AGENT_SOCKET": "", "LOGSHIPPER_AGENT": "off"}
    job_id = cluster.sbatch(user, script, "-n2", "--output=job.out", env=environment)
    cluster.wait(job_id)
    cluster.wait_closed([job_id], 1)
    (stream,) = cluster.log_of(job_id).items()
    assert stream[0][1:] == ("batch", "0", "stdout")
    assert stream[1][:3] == ["begin", "inner", "code 3"]
    assert sorted(stream[1][3:]) == ["rank 0", "rank 1"]
    assert (user.home / "filed.txt").read_text() == "filed\n"
    identities = list((user.home / ".local/share/logshipper/spool").glob("*@*/identity.json"))
    assert len(identities) == 1
    assert f'"job_id": "{job_id}"' in identities[0].read_text()
