"""`~/.logoptin` decides about capture once per job, restart and node, at the job's first task
there."""

import os
import stat
import subprocess

import pytest

from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cluster import NODES, JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import wait_until
from tests.tools.waiting import scaled

OPT_IN, OPT_OUT = "touch ~/.logoptin", "rm ~/.logoptin"


def logged(cluster: CapturingCluster, job_id: str) -> list[str]:
    cluster.wait_shipped(job_id)
    return sorted(line for lines in cluster.log_of(job_id).values() for line in lines)


@pytest.mark.parametrize(
    ("before", "between", "log_lines"),
    [(OPT_IN, OPT_OUT, ["first", "second"]), (OPT_OUT, OPT_IN, [])],
    ids=["rm_between", "touch_between"],
)
def test_steps_obey_the_first_one(
    cluster: CapturingCluster, before: str, between: str, log_lines: list[str]
) -> None:
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    (user.home / ".logoptin").chmod(0o666)
    steps = f"{before}; srun --quiet echo first; {between}; srun --quiet echo second"
    done = cluster.run_as(user, "salloc", "--quiet", "--nodes=1", "bash", "-c", steps)
    assert done.stdout == b"first\nsecond\n"
    (job_id,) = cluster.job_ids(user.name)
    assert cluster.wait(job_id).state == "COMPLETED"
    if log_lines:
        cluster.wait_closed([job_id], 2)
    assert logged(cluster, job_id) == log_lines
    assert not [
        path
        for node in NODES
        for path in (cluster.node_folder(node) / "spool").glob(f".new*{job_id}*")
    ]


def test_each_node_decides_for_itself(cluster: CapturingCluster) -> None:
    user = cluster.add_user()
    step_command = (
        "srun --quiet --nodes=1 --ntasks=1 --nodelist={} bash -c 'echo $SLURMD_NODENAME {}'"
    )
    steps = [
        step_command.format("n1", 1),
        OPT_IN,
        step_command.format("n2", 2),
        step_command.format("n1", 3),
    ]
    done = cluster.run_as(user, "salloc", "--quiet", "--nodes=2", "bash", "-c", "; ".join(steps))
    assert done.stdout == b"n1 1\nn2 2\nn1 3\n"
    (job_id,) = cluster.job_ids(user.name)
    cluster.wait_closed([job_id], 1)
    assert logged(cluster, job_id) == ["n2 2"]
    assert {event["label_host"] for event in cluster.events(job_id)} == {"n2"}


def start_first_run(cluster: CapturingCluster) -> tuple[JobUser, str]:
    """Return a user who opted in, and the id of a job that has printed and waits for its
    requeue."""
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    script = (
        "echo run ${SLURM_RESTART_COUNT-0}; [ ${SLURM_RESTART_COUNT-0} = 1 ] || exec sleep 1000"
    )
    job_id = cluster.sbatch(user, script, "--requeue", "--open-mode=append", "--output=job.out")
    output = user.home / "job.out"
    wait_until(
        lambda: output.exists() and output.read_text().startswith("run 0\n"), "the first run prints"
    )
    return user, job_id


def run_again(cluster: CapturingCluster, user: JobUser, job_id: str) -> str:
    """Requeue the job. Return the output of both runs."""
    cluster.requeue(job_id)
    end = cluster.wait(job_id)
    output = (user.home / "job.out").read_text()
    assert end == JobEnd("COMPLETED", 0, 0), cluster.describe(job_id, f"{end}, {output!r}")
    return output


def test_requeued_job(cluster: CapturingCluster) -> None:
    user, job_id = start_first_run(cluster)
    output = run_again(cluster, user, job_id)
    assert output.split("\n")[-2:] == ["run 1", ""]
    cluster.wait_closed([job_id], 2)
    log = cluster.log_of(job_id)
    assert log == {
        ("1", "batch", "0", "stdout"): ["run 0"],
        ("2", "batch", "0", "stdout"): ["run 1"],
    }


def test_a_restart_decides_anew(cluster: CapturingCluster) -> None:
    user, job_id = start_first_run(cluster)
    (user.home / ".logoptin").unlink()
    run_again(cluster, user, job_id)
    cluster.wait_closed([job_id], 1)
    assert logged(cluster, job_id) == ["run 0"]


def test_streams_are_terminals(cluster: CapturingCluster) -> None:
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    script = "#!/usr/bin/python3\nimport os\nprint([os.isatty(fd) for fd in range(3)], os.get_terminal_size(1))"
    job_id = cluster.sbatch(user, script, "--output=job.out", "--error=job.err")
    assert cluster.wait(job_id).state == "COMPLETED"
    report = "[False, True, True] os.terminal_size(columns=160, lines=50)\n"
    assert ((user.home / "job.out").read_text(), (user.home / "job.err").read_text()) == (
        report,
        "",
    )


IN_A_TERMINAL = ("script", "--quiet", "--return", "--command")
INTERACTIVE = {
    # --pty requires a terminal on its stdin
    "srun_pty": (
        (*IN_A_TERMINAL, "srun --quiet --pty bash -c 'tty; echo typed'", "/dev/null"),
        b"",
    ),
    "salloc": (
        (*IN_A_TERMINAL, "salloc --quiet", "/dev/null"),
        b"tty; echo ty''ped; echo no$((1+1))tes >&2; exit\n",
    ),
    "salloc_srun_pty": (
        (*IN_A_TERMINAL, "salloc --quiet srun --pty bash -c 'tty; echo typed'", "/dev/null"),
        b"",
    ),
}


@pytest.mark.parametrize("form", INTERACTIVE)
def test_interactive_steps_are_left_alone(
    cluster: CapturingCluster, user: JobUser, form: str
) -> None:
    command, typed = INTERACTIVE[form]
    with cluster.start_as(user, *command, stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(typed, timeout=scaled(30.0))
    assert process.returncode == 0, out
    assert b"typed" in out
    assert b"/dev/pts/" in out
    (job_id,) = cluster.job_ids(user.name)
    assert cluster.wait(job_id).state == "COMPLETED"
    assert not logged(cluster, job_id)
    assert not cluster.entries(job_id)


def test_steps_of_an_interactive_one_are_captured(cluster: CapturingCluster, user: JobUser) -> None:
    typed = b"srun --quiet echo of a step; echo of the shell; exit\n"
    with cluster.start_as(
        user, *IN_A_TERMINAL, "salloc --quiet", "/dev/null", stdin=subprocess.PIPE
    ) as process:
        out, _ = process.communicate(typed, timeout=scaled(30.0))
    assert (process.returncode, b"of a step" in out) == (0, True), out
    (job_id,) = cluster.job_ids(user.name)
    assert cluster.wait(job_id).state == "COMPLETED"
    cluster.wait_closed([job_id], 1)
    assert logged(cluster, job_id) == ["of a step"]


def test_users_cannot_write_where_root_does(cluster: CapturingCluster) -> None:
    """Users cannot write into each other's captures either. Only the owner can access the
    segments."""
    ann, ben = cluster.add_user(), cluster.add_user()
    (ann.home / ".logoptin").touch()
    job_id = cluster.sbatch(ann, "echo first; sleep 4; echo last", "--nodelist=n1")
    spool = cluster.node_folder("n1") / "spool"
    wait_until(lambda: list(spool.glob(f"{job_id}@1.*/segments/*")), "its capture is there")
    (capture,) = spool.glob(f"{job_id}@1.*")
    modes = [
        stat.S_IMODE(os.stat(path).st_mode) for path in (spool, capture, capture / "identity.json")
    ]
    assert modes == [0o711, 0o711, 0o600]
    assert {os.stat(path).st_uid for path in (spool, capture, capture / "identity.json")} == {0}
    tries = [
        f"echo x >> {capture}/identity.json", f"mv {capture} {spool}/other", f"rm -r {capture}/identity.json",
        f"mkdir {spool}/99@1.mine", f"ln -s /tmp {spool}/99@1.mine", f"mv {capture}/segments {capture}/other",
        f"ln -sf /tmp {capture}/segments2", f"echo x > {spool}/.jobs/{job_id}.{ann.uid}.0", f"ls {spool}",
    ]  # fmt: skip
    for user in (ann, ben):
        for attempt in tries:
            assert cluster.run_as(user, "bash", "-c", attempt).returncode, (
                f"{user.name} can {attempt}"
            )
    for attempt in (
        f"ls {capture}/segments",
        f"cat {capture}/segments/*",
        f"echo x > {capture}/segments/x",
    ):
        assert cluster.run_as(ben, "bash", "-c", attempt).returncode, f"another user can {attempt}"
    assert cluster.wait(job_id).state == "COMPLETED"
    cluster.wait_closed([job_id], 1)
    assert logged(cluster, job_id) == ["first", "last"]
