"""`loki`, `prometheus` and others for tests: one of each for the whole session.

Without their programs, LOGSHIPPER_TEST_SERVERS decides whether tests are skipped with a message, or
fail.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.servers import setting
from tests.servers.alertmanager import alertmanager_program
from tests.servers.loki import find_loki
from tests.servers.otel_collector import OtelCollector, otel_collector_program
from tests.servers.places import ServerMissing
from tests.servers.running import (
    InfluxdbServer,
    LokiServer,
    PrometheusServer,
    influxdb_1_8_program,
    influxdb_program,
    prometheus_program,
)
from tests.servers.victoria_metrics import victoria_metrics_program
from tests.tools.packages import are_installed

T = TypeVar("T")


def _found(find: Callable[[], T], *, required: bool = setting.MUST_FETCHED) -> T:
    """Return a program; without one, skip the test, or fail it."""
    if setting.ARE_OFF:
        pytest.skip(f"{setting.SETTING}={setting.OFF}")
    try:
        return find()
    except ServerMissing as missing:
        if required:
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def lokis() -> None:
    """For tests that start a Loki of their own."""
    _found(find_loki, required=setting.MUST_LOKI)


@pytest.fixture(scope="session")
def prometheuses() -> None:
    """For tests that start a Prometheus of their own."""
    _found(prometheus_program)


@pytest.fixture(scope="session")
def alertmanagers() -> None:
    """For tests that start an Alertmanager of their own. Only root on Debian installs it beforehand
    (requirements/system.sh)."""
    _found(alertmanager_program, required=are_installed())


@pytest.fixture(scope="session")
def loki(lokis: None) -> Iterator[LokiServer]:
    """Yield a running Loki.

    Tests share it, so their pushes need labels or ids of their own. A test that stops it starts it
    again.
    """
    with LokiServer() as server:
        yield server


@pytest.fixture(scope="session")
def prometheus(prometheuses: None) -> Iterator[PrometheusServer]:
    """Yield a running Prometheus that scrapes nothing; tests share it, and set its targets."""
    with PrometheusServer() as server:
        yield server


@pytest.fixture(scope="session")
def victoria_metrics() -> None:
    """For tests that start a VictoriaMetrics of their own."""
    _found(victoria_metrics_program)


@pytest.fixture(scope="session")
def influxdbs() -> None:
    """For tests that start an InfluxDB of their own. Only root on Debian installs it beforehand
    (requirements/system.sh)."""
    _found(influxdb_program, required=are_installed())


@pytest.fixture(scope="session")
def influxdb_1_8() -> str:
    """Return the program of an InfluxDB with the 2.x interface for writing."""
    return _found(influxdb_1_8_program)


@pytest.fixture(scope="session")
def otel_collectors() -> None:
    """For tests that start an OpenTelemetry collector of their own."""
    _found(otel_collector_program)


@pytest.fixture
def collector(otel_collectors: None) -> Iterator[OtelCollector]:
    """Yield a running collector for one test."""
    with OtelCollector() as server:
        yield server


@pytest.fixture(scope="session")
def influxdb(influxdbs: None) -> Iterator[InfluxdbServer]:
    """Yield a running InfluxDB; tests share it, and make databases of their own."""
    with InfluxdbServer() as server:
        yield server
