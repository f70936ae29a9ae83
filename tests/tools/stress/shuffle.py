"""A plugin of pytest that shuffles files, and the tests in each, by the seed of `--shuffle
SEED`."""

import random
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, required=True, metavar="SEED", help="in random order")


@pytest.hookimpl(trylast=True)  # tests of one file stay together, because they share their set-up
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chance = random.Random(config.getoption("--shuffle"))
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = list(files.values())
    chance.shuffle(order)
    for tests in order:
        chance.shuffle(tests)
    items[:] = [item for tests in order for item in tests]
