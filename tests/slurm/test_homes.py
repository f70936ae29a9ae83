"""Homes and opt-in files that are hostile, missing or hang: the job runs, captures only with an
opt-in, and root never reads the file itself."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.tools import gate
from tests.slurm.tools.capturing import UNDER_CGROUP, CapturingCluster
from tests.slurm.tools.cases import APART
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.slurm.tools.whole import OUT, PRINTS, helpers, plugin_lines, runs_whole
from tests.tools.captures.captured_runs import wait_until
from tests.tools.waiting import scaled

pytestmark = UNDER_CGROUP

FUSE = Path("/dev/fuse")
SERVER = Path(__file__).with_name("tools") / "fuse_home.py"


def fifo(place: Path) -> None:
    os.mkfifo(place, 0o666)


def dangling(place: Path) -> None:
    place.symlink_to("nowhere")


def to_a_fifo(place: Path) -> None:
    os.mkfifo(place.with_name("pipe"), 0o666)
    place.symlink_to("pipe")


def to_zeros(place: Path) -> None:
    place.symlink_to("/dev/zero")


def to_a_terminal(place: Path) -> None:
    place.symlink_to("/dev/ptmx")


def to_itself(place: Path) -> None:
    place.symlink_to(".logoptin")


def folder(place: Path) -> None:
    place.mkdir(0o755)


def huge(place: Path) -> None:
    place.write_bytes(b"#" * ((64 << 10) + 1))


def unreadable(place: Path) -> None:
    place.touch(0o000)


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        folder_fd = os.open(place.parent, os.O_RDONLY)  # as a socket's path it may be too long
        bound.bind(f"/proc/self/fd/{folder_fd}/{place.name}")
        os.close(folder_fd)


def no_yaml(place: Path) -> None:
    place.write_text("mode: [enabled\n")


def off(place: Path) -> None:
    place.write_text("mode: off\n")


HOSTILE = [
    fifo,
    dangling,
    to_a_fifo,
    to_zeros,
    to_a_terminal,
    to_itself,
    folder,
    huge,
    unreadable,
    a_socket,
    no_yaml,
    off,
]


def test_hostile_opt_in_files(cluster: CapturingCluster) -> None:
    """Capture fails closed: it logs nothing, and one event gives the reason (R13)."""
    job_ids = {}
    for spoil in HOSTILE:
        user = cluster.add_user()
        spoil(user.home / ".logoptin")
        for path in user.home.iterdir():
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
        job_ids[spoil.__name__] = runs_whole(cluster, user)
    cluster.wait_closed(list(job_ids.values()), len(job_ids), 60.0)
    for name, job_id in job_ids.items():
        events = [event["event"] for event in cluster.events(job_id)]
        assert (name, events.count("config_refused"), cluster.log_of(job_id)) == (name, 1, {})


def test_largest_opt_in_file(cluster: CapturingCluster, user: JobUser) -> None:
    (user.home / ".logoptin").write_text("# " + "x" * ((64 << 10) - 3) + "\n")
    job_id = runs_whole(cluster, user)
    cluster.wait_closed([job_id], 1)
    assert cluster.log_of(job_id)["1", "batch", "0", "stdout"] == OUT.splitlines()


@pytest.fixture
def away(cluster: CapturingCluster, user: JobUser) -> JobUser:
    """Return the user with a working folder outside the home. Combine it with `at_home`."""
    elsewhere = cluster.folder / f"scratch-{user.name}"
    elsewhere.mkdir(0o700)
    os.chown(elsewhere, user.uid, user.gid)
    return user._replace(home=elsewhere)


def at_home(user: JobUser) -> dict[str, str]:
    """Return sbatch's environment with the user's home. `--export` would make slurmd log in there
    first, with or without capture."""
    return {"HOME": str(user.home)}


def runs_at_home(cluster: CapturingCluster, user: JobUser, away: JobUser) -> str:
    return runs_whole(cluster, away, PRINTS, at_home(user))


def test_no_home(cluster: CapturingCluster, user: JobUser, away: JobUser) -> None:
    shutil.rmtree(user.home)
    job_id = runs_at_home(cluster, user, away)
    cluster.wait_shipped(job_id)
    assert not cluster.entries(job_id)


@contextlib.contextmanager
def fuse(
    cluster: CapturingCluster, user: JobUser, mode: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Mount a FUSE home in the given mode on all nodes. Yield the server's process."""
    if not FUSE.exists():
        gate.lacking(
            f"there is no {FUSE}: a home that hangs is played by FUSE (modprobe fuse; a container: --device)"
        )
    command = [
        os.path.realpath(sys.executable),
        "-I",
        "-S",
        str(SERVER),
        str(user.home),
        str(user.uid),
        mode,
    ]
    with cluster.start_as_root(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"mounted\n"
            yield server
        finally:
            server.kill()  # waiting processes get an error
            cluster.as_root("umount", "--lazy", str(user.home))


@pytest.mark.parametrize("mode", ["stopped", "silent"])
def test_home_that_hangs(
    cluster: CapturingCluster, user: JobUser, away: JobUser, mode: str
) -> None:
    """The job runs without capture. stopped: waiting processes can be killed, as after the loss of
    an NFS server. silent: they cannot be killed."""
    with fuse(cluster, user, "serve" if mode == "stopped" else "hang") as server:
        if mode == "stopped":
            server.send_signal(signal.SIGSTOP)
        try:
            hanging_home(cluster, user, away)
        except BaseException:
            server.kill()
            cluster.resume_nodes()  # Slurm drains a node if it cannot kill a process
            raise
    wait_until(lambda: not helpers(cluster), "nobody of logshipper's is left", 30.0)


def hanging_home(cluster: CapturingCluster, user: JobUser, away: JobUser) -> None:
    job_id = cluster.sbatch(away, PRINTS, "--nodelist=n1", *APART, env=at_home(user))
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)  # the home hangs until then
    assert (away.home / "job.out").read_text() == OUT
    script = "echo first; srun echo second; srun echo third"
    steps = cluster.sbatch(
        away, script, "--nodelist=n1", "--output=s.out", "--error=s.err", env=at_home(user)
    )
    assert cluster.wait(steps) == JobEnd("COMPLETED", 0, 0)
    assert (away.home / "s.out").read_text() == "first\nsecond\nthird\n"
    for job in (job_id, steps):
        wait_until(
            lambda job=job: ".logoptin couldn't be looked at" in str(plugin_lines(cluster, job)),  # type: ignore[misc]
            "it is told",
            10.0,
        )
        assert not cluster.entries(job)
    cluster.wait_idle()
    # later steps of a job follow the decision and don't look again
    assert str(plugin_lines(cluster, steps)).count(".logoptin couldn't be looked at") == 1


def test_home_that_root_may_not_see(
    cluster: CapturingCluster, user: JobUser, away: JobUser
) -> None:
    """NFS with root_squash behaves like this. Only the user requests the file, once for all steps
    of a job."""
    with fuse(cluster, user, "serve") as server:
        job_id = runs_at_home(cluster, user, away)
        steps = "srun --quiet echo first; srun --quiet echo second"
        salloc = (
            "salloc",
            "--quiet",
            "--nodelist=n1",
            "env",
            f"HOME={user.home}",
            "bash",
            "-c",
            steps,
        )
        assert cluster.run_as(away, *salloc).stdout == b"first\nsecond\n"
        (two_steps,) = set(cluster.job_ids(user.name)) - {job_id}
        cluster.wait_closed([job_id, two_steps], 3)
        cluster.as_root("umount", "--lazy", str(user.home))
        output, _ = server.communicate(timeout=scaled(10.0))
    requests = [line.split() for line in output.decode().splitlines()]
    assert {int(uid) for _, uid in requests} == {user.uid}
    assert [operation for operation, _ in requests].count("open") == 2
    assert cluster.log_of(job_id)["1", "batch", "0", "stdout"] == OUT.splitlines()
    assert sorted(line for lines in cluster.log_of(two_steps).values() for line in lines) == [
        "first",
        "second",
    ]
