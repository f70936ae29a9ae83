"""Counts of captured jobs on the cluster's page: equal in each panel and in the list of jobs, for
pages of any length. A real Prometheus holds a month of jobs."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from logshipper_grafana.parts import links
from tests.grafana.test_cluster_analytics import backfill
from tests.grafana.tools.captured import CLUSTER, Fixture
from tests.grafana.tools.pages import Page
from tests.grafana.tools.sources import PrometheusSource, Range
from tests.servers.running import PrometheusServer

STEP = 15  # seconds between scrapes
EXPIRE = 300  # seconds for which an agent exports an ended job
HOUR = 3600
RANGES = {"1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 168 * HOUR, "30d": 720 * HOUR}
LATE = 5400  # seconds from the end of a late job to its first scrape
HOST = "n1"
STATES = ("COMPLETED", "COMPLETED", "FAILED", "COMPLETED", "KILLED", "TIMEOUT")


class Run(NamedTuple):
    """An attempt of a job. start, end: seconds before the page's end; end 0: it runs."""

    job: str
    attempt: int
    tasks: tuple[str, ...]  # the state of each
    start: int
    end: int
    late: int = 0  # seconds from its end to its first scrape


def runs() -> list[Run]:
    """Return the runs. Some begin or end between two scrapes, or just before a page's begin or end."""
    moments = [
        40,
        70,
        400,
        1801,
        2999,
        3550,
        3700,
        9000,
        21_500,
        21_700,
        40_000,
        70_000,
        86_300,
        86_500,
    ]
    moments += [86_400 * day + 7_777 for day in range(1, 7)] + [604_700, 604_900]
    moments += [86_400 * day + 55_551 for day in range(8, 30, 3)] + [2_591_900, 2_592_200]
    single = [
        Run(f"{number}", 1, (STATES[number % len(STATES)],), before + 30 * (number % 3) + 7, before)
        for number, before in enumerate(moments)
    ]
    return [
        *single,
        Run("tasks", 1, ("COMPLETED", "FAILED", "COMPLETED"), 5_000, 4_000),
        Run("again", 1, ("FAILED",), 30_000, 29_000),
        Run("again", 2, ("COMPLETED",), 28_900, 28_000),
        Run("late", 1, ("COMPLETED",), 12_000, 11_000, LATE),
        Run("runs", 1, ("RUNNING",), 2_000, 0),
    ]


def openmetrics(end: int) -> Iterator[str]:
    """Yield lines of OpenMetrics, by family."""
    families: dict[str, list[str]] = {}

    def add(name: str, labels: str, value: object, at: int) -> None:
        families.setdefault(name, []).append(f"{name}{{{labels}}} {value} {at}")

    target = f'instance="{HOST}:9310",job="logshipper-agent"'
    agent = f'cluster="{CLUSTER}",host="{HOST}",version="1",{target}'
    slurm = Counter[str]()
    agent_steps = range(end // 300 * 300 - RANGES["30d"] - 86_400, end, 300)
    told = sorted((end - run.end, run.tasks[0]) for run in runs() if run.end)
    for at in agent_steps:
        while told and told[0][0] <= at:
            slurm[told.pop(0)[1]] += 1
        add("logshipper_agent_build_info", agent, 1, at)
        for state in sorted({*STATES}):
            add("logshipper_agent_slurm_jobs_total", f'state="{state}",{target}', slurm[state], at)
    for run in runs():
        for task, state in enumerate(run.tasks):
            labels = f'cluster="{CLUSTER}",job_id="{run.job}",attempt="{run.attempt}",step="",task="{task}",{target}'
            start = end - run.start
            over = end - run.end + 3 * task - 3 * len(run.tasks) if run.end else 0
            # the first scrape after the start, and the last one before the agent drops the series
            first = math.ceil((over + run.late if run.late else start) / STEP) * STEP
            for at in range(first, (over + run.late + EXPIRE) if over else end, STEP):
                if at >= end:
                    break
                is_over = over and at >= over
                add(
                    "logshipper_job_info",
                    f'{labels},host="{HOST}",user="u",name="{run.job}"',
                    1,
                    at,
                )
                add(
                    "logshipper_job_state",
                    f'{labels},state="{state if is_over else "RUNNING"}"',
                    1,
                    at,
                )
                add("logshipper_job_start_time_seconds", labels, start, at)
                if is_over:
                    add("logshipper_job_end_time_seconds", labels, over, at)
    for name, lines in families.items():
        yield f"# TYPE {name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'gauge'}"
        yield from lines
    yield "# EOF\n"


class Month(NamedTuple):
    """The series of a month. end: of the page, seconds since 1970."""

    source: PrometheusSource
    end: int


@pytest.fixture(scope="module")
def month(jobs: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Month]:
    end = int(time.time()) // 300 * 300 - 7123  # no multiple of a graph's interval
    text = tmp_path_factory.mktemp("month") / "series.txt"
    text.write_text("\n".join(openmetrics(end)))
    flags = ["--query.lookback-delta=310s", "--storage.tsdb.retention.time=60d"]
    prometheus = PrometheusServer(flags=flags)
    backfill(prometheus, text)
    with prometheus:
        yield Month(PrometheusSource(prometheus.url, scrape_ms=STEP * 1000), end)


@pytest.fixture(params=RANGES)
def secs(request: pytest.FixtureRequest) -> int:
    return RANGES[str(request.param)]


def page(uid: str, month: Month, secs: int, jobs: Fixture) -> Page:
    when = Range((month.end - secs) * 1000, month.end * 1000)
    return Page(uid, {"loki": jobs.loki, "prometheus": month.source}, when, cluster=CLUSTER)


def sums(page: Page, title: str) -> dict[str, float]:
    """Return the sums of a graph's series."""
    frames = page.show(title).frames
    return {frame.fields[1].display_name: sum(frame.fields[1].values) for frame in frames}


def test_every_panel_counts_the_jobs_of_the_list(month: Month, secs: int, jobs: Fixture) -> None:
    listed = page(links.JOBS, month, secs, jobs).show("Captured jobs: newest first").rows()
    cluster = page(links.CLUSTER, month, secs, jobs)
    begin_ms, end_ms = cluster.when
    started = [row for row in listed if begin_ms <= row["started"] <= end_ms]
    newest = {run.job: run for run in runs()}
    ends = {
        row["job_id"]: (month.end - newest[row["job_id"]].end) * 1000
        for row in listed
        if newest[row["job_id"]].end
    }
    # the last capture ends some seconds before the run
    ended = Counter(
        row["state"] for row in listed if begin_ms <= ends.get(row["job_id"], 0) - 3000 <= end_ms
    )
    first_start = {
        run.job: max(other.start for other in runs() if other.job == run.job) for run in runs()
    }
    in_time = sum(secs >= start for start in first_start.values())
    assert sums(cluster, "Captured jobs started per interval") == {"started": in_time}
    assert cluster.show("Captured jobs started").stat() == in_time
    assert len(started) in (in_time, in_time + 1), (
        "one more where a job's newest run only is of this time"
    )
    assert sums(cluster, "Captured jobs ended per interval") == ended
    earlier = sum(run.end + 3 <= secs for run in runs() if run != newest[run.job])
    throughput = cluster.show("Throughput").frames
    interval = cluster.when.interval_ms(60_000)
    last = end_ms // interval * interval  # the graph leaves out later ends
    drawn = sum(begin_ms <= ends.get(row["job_id"], 0) - 3000 <= last for row in listed)
    assert sum(frame.fields[1].values[-1] for frame in throughput) == drawn + earlier
    (times,) = [row for row in cluster.show("Run times").rows() if row["what"] == "run time"]
    assert times["jobs"] == ended.total() + earlier


def test_what_slurm_told_is_counted_once(month: Month, secs: int, jobs: Fixture) -> None:
    """The counter's value before the page's time does not count. The agent reports within 5 minutes
    here."""
    cluster = page(links.CLUSTER, month, secs, jobs)
    told = sums(cluster, "All jobs that Slurm ended per interval")
    scraped = month.end - (month.end - 1) // 300 * 300
    low = sum(scraped <= run.end <= secs - 300 for run in runs() if run.end)
    high = sum(
        run.end <= secs + 300 + cluster.when.interval_ms(60_000, 48) / 1000
        for run in runs()
        if run.end
    )
    assert low <= sum(told.values()) <= high
    assert sum(told.values()) > 0


def test_bars_are_wide_enough_to_tell_their_colours(month: Month, secs: int, jobs: Fixture) -> None:
    """A third of a page of 1300 pixels has some 400 for the bars."""
    cluster = page(links.CLUSTER, month, secs, jobs)
    for title in (
        "Captured jobs started per",
        "Captured jobs ended per",
        "All jobs that Slurm ended per",
    ):
        for frame in cluster.show(title).frames:
            times = frame.fields[0].values
            assert len(times) <= 60, title
            assert all(later - earlier >= secs * 1000 / 96 for earlier, later in pairwise(times))
