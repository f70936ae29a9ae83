"""Slurm clusters for the tests of this folder. gate.py skips the tests with a reason if the machine
cannot run a cluster."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.servers.running import LokiServer
from tests.slurm.tools import cases, gate, machine
from tests.slurm.tools.capturing import CapturingCluster
from tests.slurm.tools.cluster import SlurmCluster
from tests.slurm.tools.machine import SlurmMissing
from tests.slurm.tools.users import JobUser

T = TypeVar("T")
INTERACTIVE = "LaunchParameters=use_interactive_step"


@pytest.fixture(scope="session", autouse=True)
def slurm_wanted() -> None:
    gate.skip_if_off()


@pytest.fixture(scope="session")
def slurm_machine(slurm_wanted: None) -> None:
    """Skip tests that start their own clusters if the machine cannot run one."""
    unless_missing(machine.check)


@pytest.fixture(scope="package", params=["linuxproc", "cgroup"])
def slurm(request: pytest.FixtureRequest, slurm_machine: None) -> Iterator[SlurmCluster]:
    """Yield a running cluster under each proctrack. Tests share it, and each test adds its own
    users (`add_user`)."""
    with unless_missing(lambda: SlurmCluster(proctrack=request.param)) as cluster:
        yield cluster


@pytest.fixture(scope="package", params=["linuxproc", "cgroup"])
def cluster(
    request: pytest.FixtureRequest, slurm_machine: None, loki: LokiServer
) -> Iterator[CapturingCluster]:
    """Yield a running cluster with the plugin, under each proctrack. Tests share it and add their
    own users. The cluster under proctrack/cgroup also has the plugin for identities."""
    proctrack, identity = request.param, request.param == "cgroup"
    with unless_missing(
        lambda: CapturingCluster(loki, proctrack=proctrack, identity=identity, more=INTERACTIVE)
    ) as running:
        yield running


@pytest.fixture
def user(cluster: CapturingCluster) -> Iterator[JobUser]:
    """Yield a user who opted in. Restore the plugin's arguments afterwards."""
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    yield user
    cluster.set_plugstack(cluster.line)


@pytest.fixture(scope="package")
def limited_job(cluster: CapturingCluster) -> tuple[JobUser, str]:
    """Return a user with messages about time limits, and the id of a running job that has one.

    Slurm 22.05 tells a job no limit: the sidecar asks the controller, by the usual configuration.
    """
    cluster.as_root("mount", "--bind", str(cluster.folder / "n1"), "/etc/slurm")
    user = cluster.add_user()
    cases.write(user, ".logoptin", "notify: {to: 'cmd:cat >> received', on: limit}\n")
    return user, cluster.sbatch(user, "sleep 600", "--time=1", *cases.APART)


@pytest.fixture(scope="package")
def case_runs(
    request: pytest.FixtureRequest, cluster: CapturingCluster, limited_job: tuple[JobUser, str]
) -> dict[str, tuple[cases.Run, cases.Run]]:
    """Return the plain and the captured run of each case of the table. All selected cases run side
    by side.

    limited_job: requested so that its minute passes next to these runs.
    """
    params = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and "case_runs" in item.fixturenames
    ]
    case_of = {
        case.name: case for param in params if isinstance(case := param.get("case"), cases.Case)
    }
    return {case.name: cases.run_pair(cluster, case) for case in case_of.values()}


def unless_missing(get: Callable[[], T]) -> T:
    """Return the result of `get`. If the machine lacks something, skip the test, or fail it if all
    tests must run."""
    try:
        return get()
    except SlurmMissing as error:
        gate.lacking(str(error))
