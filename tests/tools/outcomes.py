"""A plugin of pytest for tests/run.py that records outcomes and times in a folder (`--outcomes`).

The folder receives the ids of tests that were skipped, failed or await a Loki, and a table of
times. The plugin prints a failed test at once, with the first line of the reason.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from _pytest.fixtures import FixtureDef, SubRequest
from _pytest.terminal import TerminalReporter

from tests.servers import loki

OPTION = "--outcomes"
SKIPPED, AWAITING, FAILED, TIMES = "skipped", "awaiting", "failed", "times"  # files of the folder
SLOWEST = 40
_REASON_CHARS = 200
# one place for all tests that await a Loki, so that pytest folds their skips into one line
_ONE_PLACE = (loki.__file__, 1, loki.AWAITS)
_PROPERTY = "fixture"  # of a test's report: name and seconds of a fixture's set-up for it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        OPTION, type=Path, help="a folder for the ids of skipped and failed tests, and their times"
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption(OPTION)
    if folder is not None and not hasattr(
        config, "workerinput"
    ):  # a worker reports to the main process
        config.pluginmanager.register(_Outcomes(folder, config), "outcomes")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: "FixtureDef[object]", request: SubRequest) -> Iterator[None]:
    begin = time.monotonic()
    try:
        return (yield)
    finally:
        took = (fixturedef.argname, time.monotonic() - begin)
        request._pyfuncitem.user_properties.append((_PROPERTY, took))


def _reason(report: pytest.TestReport) -> str:
    """Return the first line of the reason why a test failed."""
    reasons = (line[1:].strip() for line in report.longreprtext.splitlines() if line[:1] == "E")
    return next(reasons, "")[:_REASON_CHARS]


class _Outcomes:
    def __init__(self, folder: Path, config: pytest.Config) -> None:
        self._folder = folder
        self._plugins = config.pluginmanager
        self._skipped: list[str] = []  # except those that await a Loki
        self._awaiting: list[str] = []
        self._failed: dict[str, None] = {}  # each once, although its teardown may fail too
        self._tests: dict[str, float] = defaultdict(float)
        self._fixtures: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            if loki.AWAITS in report.longreprtext:
                report.longrepr = _ONE_PLACE
                self._awaiting.append(report.nodeid)
            else:
                self._skipped.append(report.nodeid)
        if report.failed:
            self._failed[report.nodeid] = None
            terminal: TerminalReporter | None = self._plugins.get_plugin("terminalreporter")
            if terminal is not None:
                terminal.write_line(f"\nfailed: {report.nodeid}: {_reason(report)}")
        self._tests[report.nodeid] += report.duration
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    assert isinstance(value, tuple)
                    self._fixtures[f"{value[0]} of {_file(report.nodeid)}"] += value[1]

    def pytest_sessionfinish(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for outcome, tests in (
            (SKIPPED, self._skipped),
            (AWAITING, self._awaiting),
            (FAILED, self._failed),
        ):
            (self._folder / outcome).write_text("".join(f"{nodeid}\n" for nodeid in tests))
        files: dict[str, float] = defaultdict(float)
        for nodeid, secs in self._tests.items():
            files[_file(nodeid)] += secs
        parts = (
            _table("Seconds of files, with their fixtures", files, len(files)),
            _table(
                f"Seconds of the {SLOWEST} slowest tests, with their fixtures", self._tests, SLOWEST
            ),
            _table(f"Seconds of the {SLOWEST} slowest fixtures", self._fixtures, SLOWEST),
        )
        (self._folder / TIMES).write_text("\n".join(parts))


def _table(title: str, seconds: Mapping[str, float], rows: int) -> str:
    slowest = sorted(seconds.items(), key=lambda row: -row[1])[:rows]
    return f"# {title}\n" + "".join(f"{secs:9.2f}  {name}\n" for name, secs in slowest)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
