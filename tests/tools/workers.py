"""A plugin for pytest-xdist: all tests of a row of tests/tiers.py (a file, or a folder with what it shares) run in one
worker, one after another; the worker that is free takes the next row."""

from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling, Scheduling

from tests.tiers import row_of


class _ByRow(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return row_of(Path(nodeid.partition("::")[0]).resolve())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return _ByRow(config, log)
