"""Steps and scripts in containers of Pyxis and enroot: captured ones end like others, and the
helpers stay outside the container.

The tests need both installed by an admin, and enroot's folders in places that users can write to.
"""

import glob
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.tools import cases, machine
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cases import APART, BOTH, READY, Case
from tests.slurm.tools.cluster import PLACES
from tests.slurm.tools.table import COMPLETED, ended
from tests.slurm.tools.whole import helpers_outside, ready_job

PLUGINS = (
    "/usr/lib/*/slurm*/spank_pyxis.so",
    "/usr/lib64/slurm/spank_pyxis.so",
    "/usr/local/lib/slurm/spank_pyxis.so",
)
PROGRAMS = ("bash", "cat", "env", "grep", "id", "ls", "seq", "sh", "sleep", "true")
MARK = "/of-the-image"
# the step runs in the container, and the container has no files of logshipper
INSIDE = f"cat {MARK}; ls /opt/logshipper 2>/dev/null; env | grep -c PYTHON\n"
IMAGE = "--container-image={image}"
SAID = ["of the image", "0"]


def step(*options: str, script: str) -> tuple[str, ...]:
    return ("srun", "--quiet", IMAGE, *options, "bash", "-c", script)


def printed(count: int) -> dict[tuple[str, str, str, str], list[str]]:
    return {
        ("1", "0", "0", "stdout"): [*SAID, *(f"out {n}" for n in range(1, count + 1))],
        ("1", "0", "0", "stderr"): [f"err {n}" for n in range(1, count + 1)],
    }


CASES = [
    Case("step", command=step(script=INSIDE + BOTH.format(2000)), log=printed(2000)),
    Case("code", command=step(script=f"{INSIDE}{BOTH.format(20)}exit 3"), code=3, ends=ended(3, 0), log=printed(20)),
    Case("signal", command=step(script="kill -9 $$"), code=137, ends=ended(0, 9), log={}),
    Case("tasks", command=step("-N1", "-n4", script=f"cat {MARK}"), captures=4,
         log={("1", "0", str(task), "stdout"): ["of the image"] for task in range(4)}),
    Case("writable", command=step("--container-writable", script="ls / > /new; cat /new | grep -c new"),
         log={("1", "0", "0", "stdout"): ["1"]}),
    Case("in_a_batch_script", f"echo before\nsrun --quiet {IMAGE} bash -c '{INSIDE}'\n{BOTH.format(2000)}", APART),
    Case("whole_batch_script", INSIDE + BOTH.format(2000), (*APART, IMAGE)),
    Case("no_such_image", code=1, ends=ended(1, 0), log={},
         command=("bash", "-c", "srun --quiet --container-image=/nowhere.sqsh true 2>/dev/null")),
]  # fmt: skip


class PyxisCluster(CapturingCluster):
    """A cluster with Pyxis. image: a container with some of this machine's programs."""

    def __init__(self, loki: LokiServer, plugin: str) -> None:
        super().__init__(loki, proctrack="cgroup", place=PLACES[1])
        self.line += f"\nrequired {plugin} runtime_path=$folder/pyxis"
        self.set_plugstack(self.line)
        self.image = self.folder / "image.sqsh"
        _make_image(self.folder / "image", self.image)


def _make_image(root: Path, image: Path) -> None:
    for name in ("etc", "proc", "sys", "dev", "tmp", "run", "root", "home", "var"):
        (root / name).mkdir(parents=True)
    (root / MARK[1:]).write_text("of the image\n")
    (root / "etc/os-release").write_text("ID=test\n")
    for program in PROGRAMS:
        path = machine.program(program)
        told = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
        libraries = [word for word in told.split() if word.startswith("/")]
        for source in (path, *libraries):
            target = root / source[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(source), target)
    if not (root / "bin/bash").exists():
        (root / "bin").symlink_to("usr/bin")
    command = ["mksquashfs", str(root), str(image), "-quiet", "-no-progress"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def pyxis(slurm_machine: None, loki: LokiServer) -> Iterator[PyxisCluster]:
    # no registry has Pyxis, so machines that must have Slurm may still lack it
    found = [path for pattern in PLUGINS for path in sorted(glob.glob(pattern))]
    if not found:
        pytest.skip(f"there is no spank_pyxis.so: {', '.join(PLUGINS)}")
    for program in ("enroot", "mksquashfs"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} isn't installed")
    with unless_missing(lambda: PyxisCluster(loki, found[0])) as running:
        yield running


def with_image(cluster: PyxisCluster, case: Case) -> Case:
    def filled(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.replace("{image}", str(cluster.image)) for word in words)

    (script,) = filled((case.script,))
    return Case(
        **{
            **vars(case),
            "script": script,
            "options": filled(tuple(case.options)),
            "command": filled(tuple(case.command)),
        }
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ends_as_uncaptured(pyxis: PyxisCluster, case: Case) -> None:
    given = with_image(pyxis, case)
    cases.compare(pyxis, given, *cases.run_pair(pyxis, given))


def test_what_captures_is_outside(pyxis: PyxisCluster) -> None:
    user = pyxis.add_user()
    script = f"cat {MARK}; echo {READY}; until [ -e {user.home}/go ]; do sleep 0.1; done"
    options = (f"--container-image={pyxis.image}", "--container-mount-home")
    job_id = ready_job(pyxis, user, script, *options)
    helpers_outside(pyxis)
    (user.home / "go").touch()
    assert pyxis.wait(job_id) == COMPLETED
    pyxis.wait_closed([job_id], 1)
    assert pyxis.log_of(job_id) == {("1", "batch", "0", "stdout"): ["of the image", READY]}
