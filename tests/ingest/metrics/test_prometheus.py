"""The Prometheus client against a real Prometheus that scrapes the test's server; faults come from
a fake one."""

import time
from collections.abc import Iterator

import pytest

from logshipper.errors import QueryError
from logshipper_ingest.metrics.prometheus import PrometheusClient, Target
from tests.servers.running import PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.fakes.faulty_server import FaultyServer, Said

METRICS = b'# TYPE steps gauge\nsteps{job_id="7",key="val/loss"} 3\nsteps{job_id="8",key="a\\"b\\\\\\n"} NaN\n'


@pytest.fixture
def exporter() -> Iterator[FaultyServer]:
    with FaultyServer(
        Said(200, METRICS, {"Content-Type": "text/plain; version=0.0.4"})
    ) as exporter:
        yield exporter


def test_what_is_scraped_is_what_is_asked(
    prometheus: PrometheusServer, exporter: FaultyServer
) -> None:
    address = exporter.url.removeprefix("http://")
    prometheus.set_targets([address])
    prometheus.wait_for_target(address)
    selector = f'{{__name__="steps",instance="{address}"}}'
    with PrometheusClient(prometheus.url) as client:
        begin_ns = time.time_ns()
        wait_until(lambda: len(client.query(selector)) == 2, "both series")
        (seven,) = client.query(f'steps{{job_id="7",instance="{address}"}}')
        assert (seven.labels["key"], [sample.value for sample in seven.samples]) == (
            "val/loss",
            [3.0],
        )
        assert abs(seven.samples[0].time_ns - begin_ns) < 60 * 10**9
        (eight,) = client.query(f'steps{{job_id="8",instance="{address}"}}')
        assert eight.labels["key"] == 'a"b\\\n'
        assert eight.samples[0].value != eight.samples[0].value, "NaN"
        end_ns = seven.samples[0].time_ns
        (over,) = client.query_range(seven_of(address), end_ns - 2 * 10**9, end_ns, step_secs=1)
        assert 1 <= len(over.samples) <= 3
        assert over.samples[-1] == (end_ns, 3.0)
        assert client.query(selector, time_ns=end_ns - 3600 * 10**9) == []
        series = client.series(selector, begin_ns=end_ns - 60 * 10**9, end_ns=end_ns)
        assert sorted(labels["job_id"] for labels in series) == ["7", "8"]
        (target,) = (target for target in client.targets() if target.labels["instance"] == address)
        assert target == Target(target.labels, f"{exporter.url}/metrics", "up", "", 1.0)


def seven_of(address: str) -> str:
    return f'steps{{job_id="7",instance="{address}"}}'


def test_about_the_server(prometheus: PrometheusServer) -> None:
    with PrometheusClient(prometheus.url) as client:
        assert client.name == f"Prometheus at {prometheus.url}"
        assert client.ready() is True
        assert client.build_info()["version"].startswith(prometheus.version)
        assert "storage.tsdb.retention.time" in client.flags()
        assert client.config()["scrape_configs"][0]["job_name"] == "logshipper-agent"
        (scalar,) = client.query("1 + 1")
        assert (scalar.labels, scalar.samples[0].value) == ({}, 2.0)
        assert client.answer_date_ns is not None
        with pytest.raises(QueryError, match="HTTP 400: invalid parameter"):
            client.query("sum(")


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"[]",
        b'{"status":"error"}',
        b'{"status":"success"}',
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["a"]}]}}',
        b'{"status":"success","data":{"resultType":"vector","result":7}}',
    ],
)
def test_answer_of_something_else(body: bytes) -> None:
    with (
        FaultyServer(Said(200, body)) as server,
        PrometheusClient(server.url) as client,
        pytest.raises(QueryError),
    ):
        client.query("up")


def test_native_histograms_have_no_samples() -> None:
    body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"histogram":[1,{}]}]}}'
    with FaultyServer(Said(200, body)) as server, PrometheusClient(server.url) as client:
        assert client.query("up") == [({"a": "b"}, [])]


def test_not_ready_and_forbidden() -> None:
    with (
        FaultyServer(Said(503), Said(403, b"no")) as server,
        PrometheusClient(server.url) as client,
    ):
        assert client.ready() is False
        for ask in (client.ready, client.targets, client.flags, client.config, client.build_info):
            with pytest.raises(QueryError, match="HTTP 403: no"):
                ask()


def test_targets_of_odd_shape() -> None:
    body = b'{"status":"success","data":{"activeTargets":[1,{},{"scrapeUrl":"http://x/","scrapeInterval":"often"}]}}'
    with FaultyServer(Said(200, body)) as server, PrometheusClient(server.url) as client:
        assert client.targets() == [
            Target({}, "", "unknown", "", None),
            Target({}, "http://x/", "unknown", "", None),
        ]
