"""What all tests share: nothing of the user's own home and store is read or written, and `make test` (tests/run.py)
learns what was skipped or failed, to run it once more."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from logshipper import launchers
from tests.programs.score import pytest_terminal_summary
from tests.servers.fixtures import influxdb, influxdb_1_8, influxdbs, loki, prometheus, servers
from tests.slurm_player import binaries

# fixtures for all tests, and a hook
__all__ = [
    "binaries",
    "influxdb",
    "influxdb_1_8",
    "influxdbs",
    "loki",
    "prometheus",
    "pytest_terminal_summary",
    "servers",
]

OUTCOMES_PATH = "LOGSHIPPER_TEST_OUTCOMES"  # path; with `.skipped`, `.failed` behind it: these tests' ids, one a line

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_skipped: list[str] = []
_failed: dict[str, None] = {}

hypothesis.settings.register_profile("busy", deadline=None)  # no machine is quiet while tests run
hypothesis.settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A home and a store of the test session's own; no setting of the caller's reaches a test."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LOGSHIPPER_", "SLURM_", "XDG_"))]:
            patch.delenv(name)
        for name in launchers.VARIABLES:  # where a scheduler's job, or a pod, runs the tests
            patch.delenv(name, raising=False)
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PYTHONUNBUFFERED", "PYTHONWARNINGS"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.setenv("LOGSHIPPER_STORE", str(home / "store"))
        yield


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Ctrl-C ends the tests, whatever a test called in this process."""
    before = [signal.getsignal(signo) for signo in ENDING]
    yield
    assert [signal.getsignal(signo) for signo in ENDING] == before, "a signal's handler was left behind"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)
    if report.failed:
        _failed[report.nodeid] = None  # once, though its end may fail, too


def pytest_sessionfinish() -> None:
    path = os.environ.get(OUTCOMES_PATH)
    if path:
        for outcome, tests in (("skipped", _skipped), ("failed", _failed)):
            Path(f"{path}.{outcome}").write_text("".join(f"{nodeid}\n" for nodeid in tests))
