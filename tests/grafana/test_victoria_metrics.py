"""Prometheus and VictoriaMetrics, with the same samples, give the same answers to the dashboards'
and alerts' PromQL. docs/metrics.md names the exceptions."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from logshipper_grafana.parts import links
from tests.deploy.test_alerts import ALERTS, UNIT_TESTS, rules
from tests.grafana import test_cluster_analytics as analytics
from tests.grafana import test_job_resources as resources
from tests.grafana.tools.captured import CLUSTER, Fixture
from tests.grafana.tools.pages import Page, Sources
from tests.grafana.tools.sources import Range
from tests.grafana.tools.two_databases import (
    EVERY_SECS,
    BothSources,
    Comparison,
    Rounds,
    rounds_of,
    scraped_rounds,
    text_of,
    values_of,
)
from tests.ingest.metrics.test_remote_write import RECEIVER
from tests.servers.running import PrometheusServer
from tests.servers.victoria_metrics import VictoriaMetricsServer
from tests.tools.waiting import wait_until

STEP_MS = 15_000
_YOUNG_WINDOW = re.compile(r"rate\(|increase\(|^avg_over_time\(\(")
HOUR = 3600
# each kind of exporter; begin and end within the run, so that no window exceeds its series
JOBS = ("100", "200", "300", "400", "500", "600", "700")
WITHIN = (904, 3997)
ALERT_MINUTES = 151  # the longest test of an alert


class Both(BothSources):
    """samples: number of written samples by their purpose."""

    def __init__(self, prometheus: PrometheusServer, victoria: VictoriaMetricsServer) -> None:
        super().__init__(prometheus, victoria, scrape_ms=STEP_MS)
        self.victoria = victoria
        self.samples = Counter[str]()

    def fill(self, name: str, rounds: Rounds, *, end_step_ms: int = 0) -> None:
        """Write samples and wait until VictoriaMetrics finds the last series. It caches a
        selector's series for some seconds."""
        self.samples[name] = self.write(rounds, end_step_ms=end_step_ms)
        self.write({time.time_ns() // 10**6: [f'fills{{of="{name}"}} 1']})
        self.victoria.flush()
        params = {"query": "count(last_over_time(fills[1h]))"}
        wait_until(
            lambda: (
                [
                    series["value"][1]
                    for series in self._other.get("/api/v1/query", params)["result"]
                ]
                == [str(len(self.samples))]
            ),
            "all series are found",
        )


@pytest.fixture(scope="module")
def both(prometheuses: None, victoria_metrics: None) -> Iterator[Both]:
    window = {"storage": {"tsdb": {"out_of_order_time_window": "2d"}}}
    with (
        PrometheusServer(config=window, flags=RECEIVER) as prometheus,
        VictoriaMetricsServer() as victoria,
    ):
        yield Both(prometheus, victoria)


@pytest.fixture
def asked(both: Both) -> list[Comparison]:
    """Comparisons of one test."""
    both.comparisons = []
    return both.comparisons


def is_known(question: Comparison) -> bool:
    """VictoriaMetrics 1.79 leaves a key with a quote out of the choices of the list's columns."""
    return '"called"' in question.query and "it's" in question.difference


def agree(both: Both, asked: Iterable[Comparison]) -> None:
    questions = list(asked)
    longest = max(len(question.query) for question in questions)
    expressions = len({question.query for question in questions})
    print(f"{len(questions)} answers of {expressions} expressions of up to {longest} characters")
    differences = [
        (question.difference, question.path, question.query)
        for question in both.differing(questions, is_known)
    ]
    assert not differences, "\n\n".join("\n".join(lines) for lines in differences)


# ---- alerts


def test_recording_rules_and_alerts(both: Both, asked: list[Comparison]) -> None:
    """The samples are those of the alerts' own tests."""
    begin = (int(time.time()) - 24 * HOUR) // 60 * 60
    rounds = alert_rounds(begin)
    both.fill("alerts", rounds, end_step_ms=60_000)
    span = {"start": begin + 16 * 60, "end": begin + (ALERT_MINUTES - 1) * 60, "step": 60}
    for name, rule in rules("record").items():
        recorded = both.get("/api/v1/query_range", {"query": rule["expr"], **span})
        both.fill(name, recorded_rounds(name, recorded["result"]))
    for rule in ALERTS.values():
        both.get("/api/v1/query_range", {"query": rule["expr"], **span})
    agree(both, asked)


def alert_rounds(begin: int) -> Rounds:
    """Return the samples of the alerts' tests. Each test gets its own node and cluster; open series
    continue."""
    rounds: dict[int, list[str]] = {}
    for number, test in enumerate(yaml.safe_load(UNIT_TESTS.read_text())["tests"]):
        for series in test["input_series"]:
            text = re.sub(
                r'\b(instance|host|cluster)="',
                rf'\1="t{number}-',
                series["series"].replace(" ", ""),
            )
            values = list(values_of(str(series["values"])))
            values += [values[-1]] * (ALERT_MINUTES - len(values))
            for minute, value in enumerate(values):
                if value is not None:
                    at = (begin + 60 * minute) * 1000 + 7_000
                    rounds.setdefault(at, []).append(f"{text} {value}")
    return rounds


def recorded_rounds(name: str, result: Iterable[Mapping[str, Any]]) -> Rounds:  # Any: JSON
    rounds: dict[int, list[str]] = {}
    for series in result:
        text = text_of({**series["metric"], "__name__": name})
        for at, value in series["values"]:
            rounds.setdefault(int(at) * 1000, []).append(f"{text} {value}")
    return rounds


# ---- dashboards


def test_what_a_job_used(both: Both, asked: list[Comparison]) -> None:
    t0 = (int(time.time()) - 2 * resources.SECS) // 600 * 600
    both.fill("resources", rounds_of(resources.openmetrics(t0)), end_step_ms=STEP_MS)
    sources: Sources = {"loki": resources._ClusterSource(""), "prometheus": both}
    begin, end = WITHIN
    for job in JOBS:
        page = Page(
            links.JOB,
            sources,
            Range((t0 + begin) * 1000, (t0 + end) * 1000),
            cluster=CLUSTER,
            job=job,
        )
        for title in (resources.VERDICT, *resources.GRAPHS):
            page.show(title)
    agree(both, asked)


def test_the_cluster_s_pages(both: Both, jobs: Fixture, asked: list[Comparison]) -> None:
    t0 = (int(time.time()) - 2 * analytics.SECS) // 600 * 600
    lines = map(without_ties, analytics.openmetrics(t0))
    both.fill("cluster", rounds_of(lines), end_step_ms=STEP_MS)
    sources: Sources = {"loki": jobs.loki, "prometheus": both}
    when = Range((t0 + 4) * 1000, (t0 + analytics.SECS - 4) * 1000)
    for uid in (links.CLUSTER, links.JOBS):
        Page(uid, sources, when, cluster=CLUSTER).run_all()
    agree(both, asked)


def without_ties(line: str) -> str:
    """Shift the start of a job's second capture. Among equal values, `bottomk` picks an arbitrary
    one."""
    begun = re.match(r'(logshipper_job_start_time_seconds\{.*task="1".*\} \d+)( \d+)$', line)
    return f"{begun[1]}.5{begun[2]}" if begun else line


def test_pages_of_captured_jobs(both: Both, jobs: Fixture, asked: list[Comparison]) -> None:
    both.fill("jobs", scraped_rounds(jobs.prometheus, time.time()))
    both.scrape_ms = EVERY_SECS * 1000
    sources: Sources = {"loki": jobs.loki, "prometheus": both}
    for job in jobs.jobs.values():
        page = Page(links.JOB, sources, job.when, cluster=CLUSTER, job=job.job_id)
        for model, scope in page.panels():
            if any(target["datasource"]["type"] == "prometheus" for target in model["targets"]):
                page.run(model, scope)
    when = Range(
        min(job.begin_ms for job in jobs.jobs.values() if job.job.host not in ("late1", "old1")),
        jobs.today.end_ms,
    )
    names = ("ended", "three-nodes", "no-metadata", "odd-keys")
    compared = [jobs.jobs[name].job_id for name in names]
    for uid, selections in (
        (links.JOBS, {}),
        (links.CLUSTER, {}),
        (links.COMPARE, {"jobs": compared}),
    ):
        Page(uid, sources, when, cluster=CLUSTER, **selections).run_all()
    # these series are younger than the windows of such queries, which the tests above compare
    agree(both, (question for question in asked if not _YOUNG_WINDOW.search(question.query)))


# ---- differences listed in docs/metrics.md


def test_a_rate_of_a_series_that_has_begun_in_its_window(
    both: Both, asked: list[Comparison]
) -> None:
    begin = int(time.time()) // 60 * 60 - 1200
    rounds = {(begin + at) * 1000 + 1: [f"young_total {2 * at}"] for at in range(0, 600, 15)}
    both.fill("young", rounds, end_step_ms=STEP_MS)
    params = {"query": "rate(young_total[5m])", "start": begin + 60, "end": begin + 540, "step": 60}
    both.get("/api/v1/query_range", params)
    (question,) = asked
    ours, theirs = (
        [float(value) for _, value in answer["result"][0]["values"]]
        for answer in (question.ours, question.theirs)
    )
    assert theirs == pytest.approx([2.0] * 9, rel=1e-4)
    assert ours[4:] == pytest.approx([2.0] * 5, rel=1e-4)
    assert ours[:4] == sorted(ours[:4])
    assert ours[0] == pytest.approx(2.0 / 5, rel=0.2)


def test_what_is_no_number_is_not_kept(both: Both, asked: list[Comparison]) -> None:
    at = int(time.time()) - 60
    both.fill("numbers", {at * 1000: ["odd_number NaN", 'odd_number{a="b"} +Inf']})
    both.get("/api/v1/query", {"query": "odd_number", "time": at + 1})
    (question,) = asked
    ours, theirs = (
        sorted(series["value"][1] for series in answer["result"])
        for answer in (question.ours, question.theirs)
    )
    assert (ours, theirs) == (["+Inf", "NaN"], ["+Inf"])


def test_series_of_a_time_are_those_of_its_days(both: Both, asked: list[Comparison]) -> None:
    begin = int(time.time()) // 86400 * 86400 - 43200  # noon
    both.fill("noon", {begin * 1000: ["at_noon 1"]}, end_step_ms=STEP_MS)
    both.get("/api/v1/series", {"match[]": "at_noon", "start": begin + 7200, "end": begin + 7260})
    (question,) = asked
    assert (question.ours, question.theirs) == ([], [{"__name__": "at_noon"}])
