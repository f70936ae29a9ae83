"""Faults of the node's spool: jobs run, their own output is complete, and the node's log names the
fault."""

import os
from pathlib import Path

import pytest

from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import SLOWLY, helpers, plugin_lines, runs_whole
from tests.tools.captures.captured_runs import wait_until
from tests.tools.waiting import scaled

pytestmark = UNDER_CGROUP

FULL = "No space left on device"
FILL = "dd if=/dev/zero of={}/filler bs=4k 2>/dev/null; true"


def another_spool(cluster: CapturingCluster, spool: Path, more: str = "") -> None:
    """Configure a spool without an agent, so that its content stays."""
    cluster.set_plugstack(f"{cluster.line} spool={spool} {more}")


def says(cluster: CapturingCluster, user: JobUser, job_id: str, words: str) -> None:
    """Assert that the node's log contains `words`. The next step reports a fault that appears after
    slurmstepd has ended."""
    wait_until(lambda: "keeper" not in helpers(cluster), "its keeper has ended", 30.0)
    (user.home / ".logoptin").unlink()
    runs_whole(cluster, user)
    assert words in "\n".join(plugin_lines(cluster, job_id))


def test_full(cluster: CapturingCluster, user: JobUser) -> None:
    with cluster.mounted(cluster.folder / "full", "64k") as spool:
        another_spool(cluster, spool)
        cluster.as_root("sh", "-c", FILL.format(spool))
        says(cluster, user, runs_whole(cluster, user), FULL)


def test_full_of_files(cluster: CapturingCluster, user: JobUser) -> None:
    with cluster.mounted(cluster.folder / "full-of-files", "64k,nr_inodes=3") as spool:
        another_spool(cluster, spool)
        says(cluster, user, runs_whole(cluster, user), FULL)


def test_fills_up(cluster: CapturingCluster, user: JobUser) -> None:
    with cluster.mounted(cluster.folder / "filling", "1m") as spool:
        another_spool(cluster, spool)
        job_id = cluster.sbatch(
            user, SLOWLY, "--nodelist=n1", "--output=job.out", "--error=job.err"
        )
        output = user.home / "job.out"
        wait_until(
            lambda: output.exists() and "out 100\n" in output.read_text(),
            "it has printed a third",
            30.0,
        )
        cluster.as_root("sh", "-c", FILL.format(spool))
        assert cluster.wait(job_id).state == "COMPLETED"
        assert output.read_text() == "".join(f"out {n}\n" for n in range(1, 301))
        assert (user.home / "job.err").read_text() == "".join(f"err {n}\n" for n in range(1, 301))
        says(cluster, user, job_id, "no room left")


def test_read_only(cluster: CapturingCluster, user: JobUser) -> None:
    with cluster.mounted(cluster.folder / "read-only", "64k") as spool:
        cluster.as_root("mount", "-o", "remount,ro", str(spool))
        another_spool(cluster, spool)
        says(cluster, user, runs_whole(cluster, user), "Read-only file system")


def test_becomes_read_only(cluster: CapturingCluster, user: JobUser) -> None:
    """Later steps can read the decision, but cannot create a capture."""
    with cluster.mounted(cluster.folder / "becoming-read-only", "1m") as spool:
        another_spool(cluster, spool, "drain_secs=1")
        steps = "srun --quiet echo first; touch ready; until [ -e go ]; do sleep 0.1; done; srun --quiet echo second"
        with cluster.start_as(
            user, "salloc", "--quiet", "--nodelist=n1", "bash", "-c", steps
        ) as job:
            wait_until((user.home / "ready").exists, "its first step is over", 30.0)
            wait_until(lambda: not helpers(cluster), "the first capture is over", 30.0)
            remount = ("mount", "-o", "remount,ro", str(spool))
            wait_until(
                lambda: cluster.as_root(*remount).returncode == 0,
                "no file is open for writing",
                30.0,
            )
            (user.home / "go").touch()
            out, err = job.communicate(timeout=scaled(30.0))
        assert (job.returncode, out, err) == (0, b"first\nsecond\n", b"")
        (job_id,) = cluster.job_ids(user.name)
        wait_until(
            lambda: "Read-only file system" in str(plugin_lines(cluster, job_id)),
            "the node's log says it",
            20.0,
        )


def test_missing(cluster: CapturingCluster, user: JobUser) -> None:
    another_spool(cluster, cluster.folder / "nowhere")
    job_id = runs_whole(cluster, user)
    assert "nowhere" in str(plugin_lines(cluster, job_id))
    assert not (cluster.folder / "nowhere").exists()


def test_no_directory(cluster: CapturingCluster, user: JobUser) -> None:
    (cluster.folder / "file").touch()
    another_spool(cluster, cluster.folder / "file")
    assert plugin_lines(cluster, runs_whole(cluster, user))


def test_a_link(cluster: CapturingCluster, user: JobUser) -> None:
    link = cluster.folder / "link"
    if not link.is_symlink():
        link.symlink_to(cluster.node_folder("n1") / "spool")
    another_spool(cluster, link)
    assert plugin_lines(cluster, runs_whole(cluster, user))


@pytest.mark.parametrize("mode", [0o777, 0o700, 0o1777])
def test_wrong_mode(cluster: CapturingCluster, user: JobUser, mode: int) -> None:
    spool = cluster.folder / f"mode-{mode:o}"
    spool.mkdir(exist_ok=True)
    spool.chmod(mode)
    another_spool(cluster, spool)
    assert f"{mode & 0o777:04o}" in str(plugin_lines(cluster, runs_whole(cluster, user)))
    assert not list(spool.iterdir())


def test_of_somebody_else(cluster: CapturingCluster, user: JobUser) -> None:
    spool = cluster.folder / "somebody-elses"
    spool.mkdir(mode=0o711, exist_ok=True)
    os.chown(spool, user.uid, user.gid)
    another_spool(cluster, spool)
    assert f"belongs to uid {user.uid}" in str(plugin_lines(cluster, runs_whole(cluster, user)))
    assert not list(spool.iterdir())


def test_full_of_the_users_captures(cluster: CapturingCluster, user: JobUser) -> None:
    spool = cluster.folder / "two"
    spool.mkdir(mode=0o711, exist_ok=True)
    another_spool(cluster, spool, "max_captures=1")
    first, second = runs_whole(cluster, user), runs_whole(cluster, user)
    assert "max_captures" in str(plugin_lines(cluster, second))
    assert [path.name.partition("@")[0] for path in spool.glob("*@*")] == [first]
    another = cluster.add_user()
    (another.home / ".logoptin").touch()
    third = runs_whole(cluster, another)  # the limit applies per user
    assert list(spool.glob(f"{third}@*"))
