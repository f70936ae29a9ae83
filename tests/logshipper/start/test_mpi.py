"""Ranks of a real mpirun: one stream each, nothing twice, and mpirun's exit code, both by hand and
inside a run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import Home
from tests.tools.packages import are_installed
from tests.tools.waiting import scaled

RUN = [sys.executable, "-m", "logshipper", "run", "--"]
RANKS = 3
# mpirun kills the other ranks when one fails, so all wait until every rank is done
TOGETHER = (
    '"$@"; code=$?; touch "$HOME/done.$OMPI_COMM_WORLD_RANK"; '
    f'until [ "$(ls "$HOME" | grep -c ^done)" = {RANKS} ]; do sleep 0.05; done; exit $code'
)
SCRIPT = "echo of $OMPI_COMM_WORLD_RANK; echo err $OMPI_COMM_WORLD_RANK >&2"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def mpirun() -> list[str]:
    program = shutil.which("mpirun.openmpi")
    if program is None:
        words = "Open MPI's mpirun isn't installed: requirements/system.sh installs it"
        if are_installed():
            pytest.fail(words)
        pytest.skip(words)
    return [program, "--allow-run-as-root", "--oversubscribe", "-np", str(RANKS)]


def call(home: Home, command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    # for the sandbox of the tests: no network, and a short folder for sockets
    environment = {
        **home.environment,
        "OMPI_MCA_btl": "self,vader",
        "OMPI_MCA_plm": "isolated",
        "TMPDIR": "/tmp",
    }
    return subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=scaled(60)
    )


def printed() -> list[bytes]:
    return sorted(f"{word} {rank}".encode() for word in ("of", "err") for rank in range(RANKS))


def test_a_stream_for_each_rank(home: Home, mpirun: list[str]) -> None:
    ranks = [*mpirun, "sh", "-c", TOGETHER, "sh", *RUN]
    done = call(home, [*ranks, "sh", "-c", f"{SCRIPT}; [ $OMPI_COMM_WORLD_RANK != 1 ] || exit 9"])
    assert done.returncode == 9
    job = home.show()
    assert (job["state"], job["exit_code"], job["attempts"]) == ("FAILED", 9, 1)
    assert job["job_id"].startswith("openmpi-")
    for rank in range(RANKS):
        assert sorted(home.logs("last", "--task", str(rank))) == [f"err {rank}", f"of {rank}"]


def test_in_a_run_it_is_logged_once(home: Home, mpirun: list[str]) -> None:
    """mpirun gives each rank a terminal for stdout and a pipe for stderr. It prints their output,
    which the outer run captures."""
    done = call(home, [*RUN, *mpirun, *RUN, "sh", "-c", SCRIPT])
    assert done.returncode == 0
    assert sorted((done.stdout + done.stderr).splitlines()) == printed()
    assert len(home.captures()) == 1
    assert sorted(line.encode() for line in home.logs()) == printed()
