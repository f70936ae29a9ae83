"""A plugin for pytest-xdist that keeps tests together that share something.

Tests of one group (tests/tiers.py: a file or a folder) run in one worker, one after another. A free
worker takes the next group. The longest groups come first.
"""

import functools
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from tests.tiers import rank_of, worker_of


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return _Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: rank_of(worker_of(item.path)))


@functools.cache
def _group(file: str) -> str:
    return worker_of(Path(file).resolve())
