"""Shared set-up of all tests: an isolated home and store, markers of tiers (tests/tiers.py), and time
limits scaled to this machine (tests/tools/waiting.py)."""

import gc
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from logshipper.start import launchers
from tests.programs.score import pytest_terminal_summary
from tests.servers.fixtures import (
    alertmanagers,
    collector,
    influxdb,
    influxdb_1_8,
    influxdbs,
    loki,
    lokis,
    otel_collectors,
    prometheus,
    prometheuses,
    victoria_metrics,
)
from tests.tiers import MARKERS, tier_of
from tests.tools.captures.other_users import open_folder
from tests.tools.fakes.slurm_player import binaries
from tests.tools.stress.model_settings import MANY_EXAMPLES
from tests.tools.waiting import SLOWNESS, slowness

# fixtures for all tests, and a hook
__all__ = [
    "alertmanagers",
    "binaries",
    "collector",
    "influxdb",
    "influxdb_1_8",
    "influxdbs",
    "loki",
    "lokis",
    "open_folder",
    "otel_collectors",
    "prometheus",
    "prometheuses",
    "pytest_terminal_summary",
    "victoria_metrics",
]

GOGC = "400"  # servers in Go collect garbage less often, and need a fifth less CPU time
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# No deadline, because parallel tests slow each other down. Examples are the same each time, except
# in the long run (`make model`).
hypothesis.settings.register_profile("tests", deadline=None, derandomize=not MANY_EXAMPLES)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the test session its own home and store, and remove the caller's settings from the
    environment."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [
            name for name in os.environ if name.startswith(("LOGSHIPPER_", "SLURM_", "XDG_"))
        ]:
            patch.delenv(name)
        for name in launchers.VARIABLES:  # set inside a scheduler's job or a pod
            patch.delenv(name, raising=False)
        for name in (
            "NO_COLOR",
            "FORCE_COLOR",
            "COLUMNS",
            "LINES",
            "PYTHONUNBUFFERED",
            "PYTHONWARNINGS",
        ):
            patch.delenv(name, raising=False)
        patch.setenv(SLOWNESS, str(slowness()))
        patch.setenv("HOME", str(home))
        patch.setenv("LOGSHIPPER_STORE", str(home / "store"))
        patch.setenv("LOGSHIPPER_CONTEXT", "off")
        patch.setenv("GOGC", GOGC)
        yield


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Fail a test that leaves a signal handler behind, so Ctrl-C always ends the tests."""
    before = [signal.getsignal(signo) for signo in ENDING]
    yield
    assert [signal.getsignal(signo) for signo in ENDING] == before, (
        "a signal's handler was left behind"
    )


@pytest.fixture(scope="session")
def root_user() -> None:
    """Skip tests that need root."""
    if os.geteuid() != 0:
        pytest.skip("only root can do this")


@pytest.fixture(scope="session")
def program_of_others() -> None:
    """Mark tests that run a third-party program in its own environment
    (tests/tools/tools_of_others.py)."""


def pytest_configure(config: pytest.Config) -> None:
    for tier, description in MARKERS.items():
        config.addinivalue_line("markers", f"{tier}: {description}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage during the import of all tests, and skip these objects ever after: they
    live until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add each test's tier as a marker. A file without a row gets none, and
    tests/project/test_tiers.py fails."""
    factor = slowness()
    limits = config.getoption("timeout") is None
    for item in items:
        tier = tier_of(item.path, getattr(item, "fixturenames", ()))
        if tier is not None:
            item.add_marker(tier)
        if limits:
            marker = item.get_closest_marker("timeout")
            limit = marker.args[0] if marker else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(limit * factor), append=False)
