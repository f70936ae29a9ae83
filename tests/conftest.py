"""What all tests share: nothing of the user's own home and store is read or written, each test has
the marker of its tier (tests/tiers.py), and limits are those of this machine
(tests/tools/waiting.py)."""

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from logshipper.start import launchers
from tests.programs.score import pytest_terminal_summary
from tests.servers.fixtures import (
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
from tests.tools.waiting import SLOWNESS, scaled, slowness

# fixtures for all tests, and a hook
__all__ = [
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

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# no machine is quiet while tests run; the same examples each time, but where many are wanted (`make
# model`)
hypothesis.settings.register_profile("tests", deadline=None, derandomize=not MANY_EXAMPLES)
hypothesis.settings.load_profile("tests")


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home and a store of the test session's own; no setting of the caller's reaches a test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [
            name for name in os.environ if name.startswith(("LOGSHIPPER_", "SLURM_", "XDG_"))
        ]:
            patch.delenv(name)
        for name in launchers.VARIABLES:  # where a scheduler's job, or a pod, runs the tests
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
        yield


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Ctrl-C ends the tests, whatever a test called in this process."""
    before = [signal.getsignal(signo) for signo in ENDING]
    yield
    assert [signal.getsignal(signo) for signo in ENDING] == before, (
        "a signal's handler was left behind"
    )


@pytest.fixture(scope="session")
def root_user() -> None:
    """For what only root can do."""
    if os.geteuid() != 0:
        pytest.skip("only root can do this")


@pytest.fixture(scope="session")
def program_of_others() -> None:
    """For tests that run a program of others', in an environment of its own
    (tests/tools/tools_of_others.py)."""


def pytest_configure(config: pytest.Config) -> None:
    for tier, description in MARKERS.items():
        config.addinivalue_line("markers", f"{tier}: {description}")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One in a file that stands in no row has no marker, and tests/project/test_tiers.py fails."""
    for item in items:
        tier = tier_of(item.path, getattr(item, "fixturenames", ()))
        if tier is not None:
            item.add_marker(tier)
        if config.getoption("timeout") is None:
            marker = item.get_closest_marker("timeout")
            limit = marker.args[0] if marker else float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(scaled(limit)), append=False)
