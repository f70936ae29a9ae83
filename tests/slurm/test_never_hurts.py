"""Whatever is wrong with the plugin's surroundings: the job runs, its own output is whole, and a node's log says why
nothing, or not all, was captured."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.captured_runs import comm_of, wait_until
from tests.servers.running import LokiServer
from tests.slurm.capturing import CapturingCluster
from tests.slurm.cases import APART, BOTH
from tests.slurm.cluster import JobEnd
from tests.slurm.conftest import unless_missing
from tests.slurm.users import JobUser

LINES = 300
OUT, ERR = ("".join(f"{name} {n}\n" for n in range(1, LINES + 1)) for name in ("out", "err"))
SLOWLY = """
for i in $(seq 300); do
    echo out $i; echo err $i >&2
    [ $i != 100 ] || sleep 3
done
"""


@pytest.fixture(scope="module", params=["linuxproc", "cgroup"])
def cluster(request: pytest.FixtureRequest, slurm_machine: None, loki: LokiServer) -> Iterator[CapturingCluster]:
    with unless_missing(lambda: CapturingCluster(loki, proctrack=request.param)) as running:
        yield running


@pytest.fixture
def user(cluster: CapturingCluster) -> Iterator[JobUser]:
    """One who opted in."""
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    yield user
    cluster.set_plugstack(cluster.line)


def runs_whole(cluster: CapturingCluster, user: JobUser, script: str = BOTH.format(LINES)) -> str:
    """Runs a job on n1 whose output must be whole; returns its id."""
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *APART)
    end = cluster.wait(job_id)
    assert end == JobEnd("COMPLETED", 0, 0), cluster.told(job_id, str(end))
    assert ((user.home / "job.out").read_text(), (user.home / "job.err").read_text()) == (OUT, ERR)
    return job_id


def told(cluster: CapturingCluster, job_id: str) -> list[str]:
    """What the node's log has of the plugin's about a job."""
    lines = [line for line in cluster.log("n1").splitlines() if job_id in line]
    return [line for line in lines if "logshipper" in line.partition(job_id)[2] or "spank" in line]


def test_missing_plugin(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"optional {cluster.folder}/missing.so spool=$folder/spool")
    runs_whole(cluster, user)
    assert "missing.so" in cluster.log("n1")


@pytest.mark.parametrize("argument", ["colour=blue", "columns=many", "spool=relative"])
def test_wrong_argument(cluster: CapturingCluster, user: JobUser, argument: str) -> None:
    cluster.set_plugstack(f"{cluster.line} {argument}")
    assert told(cluster, runs_whole(cluster, user))


def test_missing_spool(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"{cluster.line} spool={cluster.folder}/nowhere")
    job_id = runs_whole(cluster, user)
    assert "nowhere" in str(told(cluster, job_id))
    assert not (cluster.folder / "nowhere").exists()


def test_spool_that_is_no_directory(cluster: CapturingCluster, user: JobUser) -> None:
    (cluster.folder / "file").touch()
    cluster.set_plugstack(f"{cluster.line} spool={cluster.folder}/file")
    assert told(cluster, runs_whole(cluster, user))


def test_spool_that_others_may_write(cluster: CapturingCluster, user: JobUser) -> None:
    spool = cluster.folder / "open"
    spool.mkdir(exist_ok=True)
    spool.chmod(0o777)
    cluster.set_plugstack(f"{cluster.line} spool={spool}")
    assert told(cluster, runs_whole(cluster, user))
    assert not list(spool.glob("*@*"))


def test_missing_python(cluster: CapturingCluster, user: JobUser) -> None:
    cluster.set_plugstack(f"{cluster.line} python={cluster.folder}/no-python")
    assert "no-python" in str(told(cluster, runs_whole(cluster, user)))


def test_python_without_the_package(cluster: CapturingCluster, user: JobUser) -> None:
    """The job's own slurmstepd tells it; where that ended before Python did, that of the next step on the node."""
    cluster.set_plugstack(f"{cluster.line} python=/usr/bin/python3")
    assert "No module named" in str(told(cluster, runs_whole(cluster, user, SLOWLY)))
    job_id = runs_whole(cluster, user)
    wait_until(lambda: "keeper" not in helpers(cluster), "its keeper has ended", 30.0)
    runs_whole(cluster, cluster.add_user())  # who didn't opt in: nothing more is left to be told
    assert "No module named" in str(told(cluster, job_id))


def fifo(place: Path) -> None:
    place.unlink()
    os.mkfifo(place, 0o666)


def dangling(place: Path) -> None:
    place.unlink()
    place.symlink_to("nowhere")


def folder(place: Path) -> None:
    place.unlink()
    place.mkdir(0o755)


def huge(place: Path) -> None:
    place.write_bytes(b"#" * (1 << 20))


@pytest.mark.parametrize("spoil", [fifo, dangling, folder, huge])
def test_hostile_opt_in_file(cluster: CapturingCluster, user: JobUser, spoil: Callable[[Path], None]) -> None:
    """It fails closed: nothing is logged, and one event says why (R13)."""
    spoil(user.home / ".logoptin")
    job_id = runs_whole(cluster, user)
    cluster.wait_closed([job_id], 1)
    events = [event["event"] for event in cluster.events(job_id)]
    assert (events.count("config_refused"), cluster.log_of(job_id)) == (1, {})


def test_opted_out_costs_nothing(cluster: CapturingCluster) -> None:
    user = cluster.add_user()
    before = cluster.log("n1")
    script = 'pgrep -u "$(id -u)" -c . ; ls -l /proc/$$/fd/1 | grep -c job.out; env | grep -c LOGSHIPPER'
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *APART)
    assert cluster.wait(job_id).state in {"COMPLETED", "FAILED"}  # as grep ends
    processes, is_file, marked = (user.home / "job.out").read_text().split()
    assert (int(processes) <= 3, is_file, marked) == (True, "1", "0")
    assert not cluster.entries(job_id)
    assert not list((cluster.node_folder("n1") / "spool").glob(f"{job_id}@*"))
    assert "logshipper" not in cluster.log("n1")[len(before) :]


def helpers(cluster: CapturingCluster) -> dict[str, list[int]]:
    """Processes of the plugin's on this cluster, by what they are."""
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "logshipper.slurm_sidecar" in words and str(cluster.folder) in "".join(words):
            found.setdefault("sidecar", []).append(int(path.name))
        elif "logshipper-keeper" in words[0] and str(cluster.folder) in "".join(words):
            found.setdefault(comm_of(int(path.name)).removeprefix("logship-"), []).append(int(path.name))
    return found


@pytest.mark.parametrize("victim", ["sidecar", "relay", "keeper"])
def test_killed_helper(cluster: CapturingCluster, user: JobUser, victim: str) -> None:
    job_id = cluster.sbatch(user, SLOWLY, "--nodelist=n1", *APART)
    wait_until(lambda: "out 100\n" in _text(user.home / "job.out"), "it has printed a third", 30.0)
    wait_until(lambda: helpers(cluster).get(victim), f"there is a {victim}: {helpers(cluster)}", 5.0)
    for pid in helpers(cluster)[victim]:
        os.kill(pid, signal.SIGKILL)
    assert cluster.wait(job_id) == JobEnd("COMPLETED", 0, 0)
    wait_until(lambda: _text(user.home / "job.out") == OUT, "its own output is whole", 10.0)
    assert _text(user.home / "job.err") == ERR
    wait_until(lambda: not helpers(cluster), f"nobody of logshipper's is left: {helpers(cluster)}", 30.0)


def _text(place: Path) -> str:
    return place.read_text() if place.exists() else ""


def test_agent_down_and_up_again(cluster: CapturingCluster, user: JobUser) -> None:
    agent = cluster.agents["n1"]
    agent.stop()
    try:
        job_id = runs_whole(cluster, user)
    finally:
        agent.start()
    cluster.wait_closed([job_id], 1)
    log = cluster.log_of(job_id)
    assert log["1", "batch", "0", "stdout"] == OUT.splitlines()
    assert log["1", "batch", "0", "stderr"] == ERR.splitlines()
