"""Clusters for the tests here. Where there can be none, tests are skipped and say why; see gate.py."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.slurm import gate, machine
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import SlurmMissing

T = TypeVar("T")


@pytest.fixture(scope="session", autouse=True)
def slurm_wanted() -> None:
    gate.skip_if_off()


@pytest.fixture(scope="session")
def slurm_machine(slurm_wanted: None) -> None:
    """For tests that start clusters of their own: skips them where there can be none."""
    unless_missing(machine.check)


@pytest.fixture(scope="session", params=["linuxproc", "cgroup"])
def slurm(request: pytest.FixtureRequest, slurm_machine: None) -> Iterator[SlurmCluster]:
    """A running cluster under each proctrack, which tests share: a test adds users of its own (`add_user`)."""
    with unless_missing(lambda: SlurmCluster(proctrack=request.param)) as cluster:
        yield cluster


def unless_missing(get: Callable[[], T]) -> T:
    """Skips a test where the machine lacks what is needed, or fails it where all must run."""
    try:
        return get()
    except SlurmMissing as why:
        gate.lacking(str(why))
