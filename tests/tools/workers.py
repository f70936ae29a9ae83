"""A plugin for pytest-xdist that keeps tests together that share something.

Tests of one group (tests/tiers.py: a file, a folder or a cluster) run in one worker, one after
another. A free worker takes the next group. The longest groups come first.
"""

import functools
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from tests.tiers import rank_of, worker_of


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    @functools.cached_property
    def _groups(self) -> dict[str, str]:
        return {}

    def _split_scope(self, nodeid: str) -> str:
        if nodeid not in self._groups:  # xdist asks for each test several times
            self._groups[nodeid] = _group(nodeid)
        return self._groups[nodeid]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return _Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank_of(worker_of(item.path, item.name)))


def _group(nodeid: str) -> str:
    file, _, name = nodeid.partition("::")
    return worker_of(_absolute(file), name)


@functools.cache
def _absolute(file: str) -> Path:
    return Path(file).resolve()
