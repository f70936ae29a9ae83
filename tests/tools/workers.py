"""A plugin for pytest-xdist that keeps tests together that share something.

Tests of one group (tests/tiers.py: a file or a folder) run in one worker, one after another. A free
worker takes the next group. Folders come first, because they take longest.
"""

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from tests.tiers import TOGETHER, worker_of


class _Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return worker_of(Path(nodeid.partition("::")[0]).resolve())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return _Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: worker_of(item.path) not in TOGETHER)
