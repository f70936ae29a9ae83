"""`loki` and `prometheus` for tests: one of each for the whole session. Where their programs aren't
there, tests are skipped and say so; in `make test-all`, which gets them beforehand, they fail."""

import os
from collections.abc import Iterator

import pytest

from tests.servers.build import SETTING
from tests.servers.otel_collector import OtelCollector, otel_collector_program
from tests.servers.places import ServerMissing
from tests.servers.running import (
    InfluxdbServer,
    LokiServer,
    PrometheusServer,
    influxdb_1_8_program,
    influxdb_program,
    loki_program,
    prometheus_program,
)
from tests.servers.victoria_metrics import victoria_metrics_program
from tests.tools.packages import are_installed

_WANTED = os.environ.get(SETTING, "")  # at import: tests see no setting of the caller's


@pytest.fixture(scope="session")
def servers() -> None:
    """For tests that start servers of their own: skips them where there are no programs."""
    if _WANTED == "off":
        pytest.skip(f"{SETTING}=off")
    problem = _problem()
    if problem and _WANTED == "required":
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)


@pytest.fixture(scope="session")
def loki(servers: None) -> Iterator[LokiServer]:
    """A running Loki. Tests share it: what they push has labels or ids of its own; one that is
    stopped is started again by whoever stopped it."""
    with LokiServer() as server:
        yield server


@pytest.fixture(scope="session")
def prometheus(servers: None) -> Iterator[PrometheusServer]:
    """A running Prometheus that scrapes nothing; tests share it, and set its targets."""
    with PrometheusServer() as server:
        yield server


@pytest.fixture(scope="session")
def victoria_metrics() -> None:
    """For tests that start a VictoriaMetrics of their own."""
    try:
        victoria_metrics_program()
    except ServerMissing as missing:
        if _WANTED == "required":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def influxdbs() -> None:
    """For tests that start an InfluxDB of their own. Only root on Debian gets it beforehand
    (requirements/system.sh)."""
    try:
        influxdb_program()
    except ServerMissing as missing:
        if are_installed():
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def influxdb_1_8() -> str:
    """The program of an InfluxDB that has the interface of 2.x for writing."""
    try:
        return influxdb_1_8_program()
    except ServerMissing as missing:
        if _WANTED == "required":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def otel_collectors() -> None:
    """For tests that start an OpenTelemetry collector of their own."""
    try:
        otel_collector_program()
    except ServerMissing as missing:
        if _WANTED == "required":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def collector(otel_collectors: None) -> Iterator[OtelCollector]:
    """A running one, the test's own."""
    with OtelCollector() as server:
        yield server


@pytest.fixture(scope="session")
def influxdb(influxdbs: None) -> Iterator[InfluxdbServer]:
    """A running InfluxDB; tests share it, and make databases of their own."""
    with InfluxdbServer() as server:
        yield server


def _problem() -> str:
    """Why servers aren't available here, "" where they can."""
    try:
        loki_program()
        prometheus_program()
    except ServerMissing as error:
        return str(error)
    return ""
