"""The cluster page's analytics, in a real Prometheus with known series: half an hour of three nodes
and Slurm's controller, in their agents' format."""

import json
import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logshipper.start.cli import main
from logshipper_grafana.parts import links
from logshipper_observe.base.words import utc
from tests.grafana.tools.captured import CLUSTER, Fixture
from tests.grafana.tools.frames import NUMBER, TIME, Frame
from tests.grafana.tools.pages import Page
from tests.grafana.tools.sources import PrometheusSource, Range
from tests.servers.running import PrometheusServer
from tests.tools.waiting import scaled

STEP = 15  # seconds between scrapes
SECS = 1800
EXPIRE = 300  # seconds for which an agent exports an ended job
HOSTS = ("n1", "n2", "n3", "slurmctl")
# job, attempt, task, host, the scheduler's number of nodes (0: none), start, end (0: none), state
CAPTURES = (
    ("1", 1, 0, "n1", 4, 0, 600, "COMPLETED"),
    ("2", 1, 0, "n2", 0, 300, 900, "COMPLETED"),
    ("2", 1, 1, "n3", 0, 300, 900, "FAILED"),
    ("3", 1, 0, "n1", 0, 60, 120, "FAILED"),
    ("3", 2, 0, "n1", 0, 180, 0, ""),
)
BY_SLURM = (("1", 1, "TIMEOUT", -5, 602),)  # job, attempt, state, start, end
NOT_SCRAPED = range(1190, 1290)  # gap in the scrapes of Slurm's controller
# time, state, node-hours
SLURM_ENDED = ((600, "TIMEOUT", 4), (900, "COMPLETED", 10), (1200, "COMPLETED", 10))
# start, alert, state, labels
ALERTS = (
    (1200, "LogshipperLag", "firing", f'cluster="{CLUSTER}",host="n2"'),
    (1200, "LogshipperNoAgents", "firing", 'severity="critical"'),
    (1200, "LogshipperLeftOut", "pending", f'cluster="{CLUSTER}",host="n1"'),
    (1200, "LogshipperLag", "firing", 'cluster="another",host="n2"'),
    (1200, "DiskFull", "firing", f'cluster="{CLUSTER}",host="n1"'),
    *((1500, "LogshipperHolding", "firing", f'instance="m{node}:9310"') for node in range(6)),
)
# agents' metrics: start and value by host
AGENTS: dict[str, dict[str, tuple[int, int]]] = {
    "lag_seconds": {"n1": (0, 3), "n2": (1200, 150), "n3": (0, 59)},
    "lost_lines_total": {"n1": (1200, 7)},
    "refused_entries_total": {"n3": (1200, 2)},
    "left_out_total": {},
}
UNSEEN = ("FAILED", "NODE_FAIL")  # states without jobs
# time of the report, hour, node-seconds
HOURS = ((0, -3600, 7200), (900, 0, 1800), (1600, 0, 5400))
WAITS = ((300, 30), (310, 30), (320, 3000), (900, 200))  # of jobs: time of the report, seconds


def openmetrics(t0: int) -> Iterator[str]:
    """Yield lines of OpenMetrics, by family."""
    steps = range(0, SECS, STEP)
    families: dict[str, list[str]] = {}

    def add(name: str, labels: str, value: object, secs: int) -> None:
        families.setdefault(name, []).append(f"{name}{{{labels}}} {value} {t0 + secs}")

    for host in HOSTS:
        for at in steps:
            target = f'instance="{host}:9310",job="logshipper-agent"'
            add(
                "logshipper_agent_build_info",
                f'cluster="{CLUSTER}",host="{host}",version="1",{target}',
                1,
                at,
            )
        for name, by_host in AGENTS.items():
            since, value = by_host.get(host, (0, 0))
            for at in steps:
                target = f'instance="{host}:9310",job="logshipper-agent"'
                add(f"logshipper_agent_{name}", target, value if at >= since else 0, at)
    for since, alert, alert_state, labels in ALERTS:
        for at in (at for at in steps if at >= since):
            add("ALERTS", f'alertname="{alert}",alertstate="{alert_state}",{labels}', 1, at)
    for job, attempt, task, host, nodes, start, end, state in CAPTURES:
        target = f'instance="{host}:9310",job="logshipper-agent"'
        labels = (
            f'cluster="{CLUSTER}",job_id="{job}",attempt="{attempt}",step="",task="{task}",{target}'
        )
        for at in steps:
            if not start <= at < (end + EXPIRE if end else SECS):
                continue
            over = end and at >= end
            add("logshipper_job_info", f'{labels},host="{host}"', 1, at)
            add("logshipper_job_state", f'{labels},state="{state if over else "RUNNING"}"', 1, at)
            add("logshipper_job_start_time_seconds", labels, t0 + start, at)
            if nodes:
                add("logshipper_job_nodes", labels, nodes, at)
            if over:
                add("logshipper_job_end_time_seconds", labels, t0 + end, at)
    target = 'instance="slurmctl:9310",job="logshipper-agent"'
    by_controller = [at for at in steps if at not in NOT_SCRAPED]
    for job, attempt, state, start, end in BY_SLURM:
        labels = f'cluster="{CLUSTER}",job_id="{job}",attempt="{attempt}",{target}'
        for at in (at for at in by_controller if end <= at < end + EXPIRE):
            add("logshipper_job_slurm_start_time_seconds", labels, t0 + start, at)
            add("logshipper_job_slurm_end_time_seconds", f'{labels},state="{state}"', t0 + end, at)
    for state in ("TIMEOUT", "COMPLETED"):
        for at in by_controller:
            node_hours = [
                hours for when, end_state, hours in SLURM_ENDED if end_state == state and when <= at
            ]
            add(
                "logshipper_agent_slurm_jobs_total",
                f'state="{state}",{target}',
                len(node_hours),
                at,
            )
            add(
                "logshipper_agent_slurm_node_seconds_total",
                f'state="{state}",{target}',
                3600 * sum(node_hours),
                at,
            )
    for at in by_controller:
        for state in UNSEEN:
            add("logshipper_agent_slurm_jobs_total", f'state="{state}",{target}', 0, at)
        for hour, node_secs in {hour: secs for when, hour, secs in HOURS if when <= at}.items():
            begin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(t0 + hour))
            add(
                "logshipper_agent_slurm_hour_node_seconds",
                f'hour="{begin}",{target}',
                node_secs,
                at,
            )
            add(
                "logshipper_agent_slurm_hour_jobs",
                f'hour="{begin}",{target}',
                3 if hour == 0 else 0,
                at,
            )
        waits = [secs for when, secs in WAITS if when <= at]
        for bound in (60, 300, 3600, "+Inf"):
            below = sum(secs <= float(bound) for secs in waits)
            add("logshipper_agent_slurm_wait_seconds_bucket", f'le="{bound}",{target}', below, at)
    for name, lines in families.items():
        yield f"# TYPE {name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'gauge'}"
        yield from lines
    yield "# EOF\n"


@pytest.fixture(scope="module")
def page(jobs: Fixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The page at the end of the half hour."""
    t0 = (int(time.time()) - 2 * SECS) // 600 * 600
    text = tmp_path_factory.mktemp("series") / "series.txt"
    text.write_text("\n".join(openmetrics(t0)))
    # backfilled series have no staleness markers
    prometheus = PrometheusServer(flags=["--query.lookback-delta=20s"])
    backfill(prometheus, text)
    with prometheus:
        source = PrometheusSource(prometheus.url, scrape_ms=STEP * 1000)
        when = Range(t0 * 1000, (t0 + SECS - STEP) * 1000)
        yield Page(links.CLUSTER, {"loki": jobs.loki, "prometheus": source}, when, cluster=CLUSTER)


def backfill(prometheus: PrometheusServer, text: Path) -> None:
    """Write series into a server's data. promtool reads the whole text once per block, so blocks
    are long."""
    command = [
        str(prometheus.program.paths[1]),
        "tsdb",
        "create-blocks-from",
        "--max-block-duration=1440h",
        "openmetrics",
        str(text),
    ]
    done = subprocess.run(
        [*command, str(prometheus.folder / "data")],
        capture_output=True,
        text=True,
        timeout=scaled(60),
    )
    assert done.returncode == 0, done.stderr


def course(page: Page, frame: Frame) -> dict[int, float]:
    """Return a graph's values by seconds since the page's begin."""
    times, values = (field.values for field in frame.fields[:2])
    return {
        round((ms - page.when.begin_ms) / 1000): value
        for ms, value in zip(times, values, strict=True)
    }


def courses(page: Page, title: str) -> dict[str, dict[int, float]]:
    return {frame.fields[1].display_name: course(page, frame) for frame in page.show(title).frames}


def wrong(page: Page, secs: int) -> list[str]:
    """Return the reported problems at the end of a page of `secs` seconds."""
    begin = page.when.begin_ms
    when = Range(begin, begin + secs * 1000)
    early = Page(links.CLUSTER, page._sources, when, cluster=CLUSTER)
    return [row["words"] for row in early.show("What is wrong").rows()]


def test_what_is_wrong_is_named(page: Page) -> None:
    """The panel lists firing alerts of this cluster or of none, then losses, then lags."""
    assert wrong(page, 600) == ["nothing lost, nothing late, no alert"]
    alerts, others = wrong(page, 1290)[:2], wrong(page, 1290)[2:]
    assert sorted(alerts) == ["LogshipperLag on n2", "LogshipperNoAgents"]
    assert others == ["lines lost on n1: 7", "entries refused on n3: 2", "late on n2: 3 min"]


def test_of_much_that_is_wrong_the_worst_is_named(page: Page) -> None:
    *alerts, more = wrong(page, SECS - STEP)
    holding = {f"LogshipperHolding on m{node}:9310" for node in range(6)}
    assert {*alerts} == {"LogshipperLag on n2", "LogshipperNoAgents", *holding}
    assert more == "and 3 more, below"


def test_lag_names_each_node(page: Page) -> None:
    graph = courses(page, "Lag of each node")
    assert {node: max(values.values()) for node, values in graph.items()} == {
        "n1": 3, "n2": 150, "n3": 59, "slurmctl": 0,
    }  # fmt: skip


def test_throughput_is_a_sum_over_the_pages_time(page: Page) -> None:
    """A job counts by the worst end of its captures, unless Slurm reports its end. Each attempt
    counts separately."""
    by_state = courses(page, "Throughput")
    assert by_state.keys() == {"TIMEOUT", "FAILED"}
    assert {at: by_state["FAILED"][at] for at in (180, 840, 960, 1740)} == {
        180: 1,
        840: 1,
        960: 2,
        1740: 2,
    }
    assert {at: by_state["TIMEOUT"][at] for at in (660, 1740)} == {660: 1, 1740: 1}
    assert min(by_state["TIMEOUT"]) == 600
    assert all(list(values.values()) == sorted(values.values()) for values in by_state.values())


def test_utilization_beside_the_nodes_there_are(page: Page) -> None:
    """A job counts with the scheduler's number of nodes, else with its observed nodes."""
    graph = courses(page, "Utilization")
    assert set(graph["nodes with an agent"].values()) == {4}
    moments = (0, 60, 240, 420, 660, 1020)
    assert [graph["nodes of captured jobs"][at] for at in moments] == [4, 5, 5, 7, 3, 1]
    assert [graph["captured jobs"][at] for at in moments] == [1, 2, 2, 3, 2, 1]


def test_run_times_and_launch_overheads(page: Page) -> None:
    rows = {row["what"]: row for row in page.show("Run times").rows()}
    names = ("jobs", "mean", "median", "least", "most")
    assert [rows["run time"][name] for name in names] == [3, 420, 600, 60, 600]
    assert rows["run time"]["deviation"] == pytest.approx(254.558, abs=0.01)
    assert [rows["launched to started"][name] for name in names] == [1, 5, 5, 5, 5]
    assert [rows["ended to over"][name] for name in names] == [1, 2, 2, 2, 2]


def test_busy_nodes(page: Page) -> None:
    rows = page.show("Busy share").rows()
    busy = {row["host"]: row["busy"] for row in rows}
    assert busy == pytest.approx({"n1": 1, "n2": 1 / 3, "n3": 1 / 3, "slurmctl": 0}, abs=0.05)
    assert rows[0]["host"] == "n1"


def test_all_jobs_that_slurm_ended(page: Page) -> None:
    """Jobs without a capture count, too."""
    by_state = courses(page, "All jobs")
    assert by_state.keys() == {"TIMEOUT", "COMPLETED"}, "others would fill the legend"
    ends = {
        state: {at: count for at, count in values.items() if count}
        for state, values in by_state.items()
    }
    assert ends == {"TIMEOUT": {540: 1}, "COMPLETED": {840: 1, 1260: 1}}, (
        "by the interval that begins there; what nobody scraped comes later"
    )
    assert float(page.show("Node-hours").stat() or 0) == pytest.approx(24, rel=0.05)


def hours_shown(page: Page) -> dict[int, float]:
    panel = page.show("Utilization: nodes of all jobs")
    (frame,) = panel.frames
    assert [(field.display_name, field.kind) for field in frame.fields] == [
        ("hour", TIME),
        ("nodes on average", NUMBER),
    ]
    return course(page, frame)


def test_hours_of_all_jobs_are_shown_as_far_as_they_are_known_now(page: Page) -> None:
    """A page of the past also shows them, because a job of that time may have ended later."""
    assert hours_shown(page) == {-3600: 2, 0: 1.5}
    begin = page.when.begin_ms
    early = Page(links.CLUSTER, page._sources, Range(begin, begin + 1_200_000), cluster=CLUSTER)
    assert hours_shown(early) == {-3600: 2, 0: 1.5}


def test_the_command_asks_for_the_same_hours(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command counts only complete hours. All are complete here, except the newest if the half
    hour began late."""

    def document(report: str, *options: str) -> dict[str, Any]:
        where = (
            "--from",
            "loki",
            "--loki-url",
            "http://127.0.0.1:9",
            "--prometheus-url",
            page._sources["prometheus"].url,
        )
        assert (
            main(
                ["analyze", report, "--all-jobs", "--json", "--cluster", CLUSTER, *where, *options]
            )
            == 0
        )
        output: dict[str, Any] = json.loads(capsys.readouterr().out)
        return output

    t0 = page.when.begin_ms // 1000
    is_over = time.time() >= t0 + 3600
    (series,) = document("utilization")["series"]
    ends = [utc((t0 + hour * 3600) * 10**9) for hour in (-1, 0, 1)]
    assert (series["x"], series["y"]) == ((ends, [2, 1.5, 1.5]) if is_over else (ends[:2], [2, 2]))
    (series,) = document("throughput")["series"]
    assert (series["x"], series["y"]) == ((ends[2:], [3]) if is_over else ([], []))
    empty = document("utilization", "--before", utc((t0 - 7200) * 10**9))
    assert (empty["series"][0]["x"], empty["all_jobs"]) == ([], True)
    assert "Prometheus knows no ends" in empty["notes"][0]


def test_waits_of_all_jobs(page: Page) -> None:
    """Three jobs ended in the first ten minutes, one in the second. Their waits lie between the
    bounds of buckets."""
    graph = courses(page, "Waiting time")
    waits = {
        name: {at: secs for at, secs in values.items() if not math.isnan(secs)}
        for name, values in graph.items()
    }
    assert {at: secs < 60 for at, secs in waits["half of them"].items()} == {600: True, 1200: False}
    assert 300 < waits["9 of 10"][600] <= 3600
    assert 60 < waits["half of them"][1200] < waits["9 of 10"][1200] <= 300


def test_before_anything_there_is_nothing(page: Page) -> None:
    begin = page.when.begin_ms - 3_600_000
    before = Page(links.CLUSTER, page._sources, Range(begin, begin + 600_000), cluster=CLUSTER)
    assert before.show("Throughput").frames == []
    assert before.show("What is wrong").rows() == [], "nobody says that all is well"
    assert before.show("Run times").rows() == []
    assert set(courses(before, "Utilization")["nodes of captured jobs"].values()) == {0}
