"""Pages of jobs without series in Prometheus, expired or never scraped: Loki has all that they
need."""

import json
import time
from collections.abc import Sequence
from operator import itemgetter
from urllib.parse import parse_qs

import pytest
import requests

from logshipper_grafana.parts import key_queries, links, queries
from logshipper_grafana.parts.records import RECORD_FIELD
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed
from tests.grafana.tools.captured import CLUSTER, PARTITION, SCRAPE_MS, Fixture
from tests.grafana.tools.expected import numbered
from tests.grafana.tools.frames import Json
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import LenientPage, Page, Panel, Sources
from tests.grafana.tools.printed import Job
from tests.grafana.tools.sources import PrometheusSource, QueryFailed, Range, loki_metrics

# variables that a job's page gets from Loki for a job without series in Prometheus
OF_JOB = ("host", "attempt", "attempts", "task", "tasks", "xsel", "x", "rule", "record_count", "dec", "thinned",
          "y", "graph")  # fmt: skip
COMPARED = ("names", "xsel", "x", "rule", "y", "thinned")
OF_PROMETHEUS_ALONE = {"What the job used: verdict", "CPU", "Memory", "GPUs", "GPU memory",
                       "Captured jobs of the same user in this time"}  # fmt: skip
KNOWN = [job for job in printed.EVERY if job is not printed.OLD]


def shown(page: Page, name: str) -> tuple[object, ...]:
    """Return a variable's choice, its texts in order, and its options: those of one text have none."""
    variable = page.variables[name]
    texts = [text for text, _ in variable.options]
    return variable.value, variable.text, texts, sorted(variable.options)


@pytest.mark.parametrize("job", KNOWN, ids=lambda job: job.name)
def test_variables_are_the_same_without_prometheus(
    job: Job, pages: Pages, forgotten: Pages
) -> None:
    known, page = pages.job(job.name), forgotten.job(job.name)
    assert known.value("source") == "prometheus-uid" or job is printed.LATE
    assert page.value("source") == "loki-values-uid"
    for name in OF_JOB:
        assert shown(page, name) == shown(known, name), name
    more = str(known.text("${more_keys:text}"))
    assert page.text("${more_keys:text}").strip()[:14] == more.strip()[:14]
    assert page.text("${more_keys:raw}") == known.text("${more_keys:raw}")


@pytest.mark.parametrize("key", ["loss", "it's", "val/acc", "no such key"])
def test_somebody_s_choice_holds(key: str, pages: Pages, forgotten: Pages) -> None:
    name = "ended" if key == "val/acc" else "odd-keys"
    for selections in ({"xsel": key}, {"y": [key]}, {"y": [key, "opt.beta"], "xsel": "auto"}):
        known, page = (opened.job(name, **selections) for opened in (pages, forgotten))
        for variable in OF_JOB:
            assert shown(page, variable) == shown(known, variable), variable


def shown_by(panel: Panel) -> object:
    return [
        (frame.ref, [(field.name, list(field.values)) for field in frame.fields])
        for frame in panel.frames
    ]


def x_of(panel: Panel) -> str:
    """Return the X of a graph: graphs with different X may have the same title."""
    return panel.frame.names[0] if panel.model["type"] == "xychart" else ""


@pytest.mark.parametrize("name", ["ended", "three-nodes", "requeued", "timed-out", "validation"])
def test_panels_are_the_same_without_prometheus(name: str, pages: Pages, forgotten: Pages) -> None:
    selections: dict[str, Text] = {"attempt": "all", "task": "all"}
    known, page = (opened.job(name, **selections) for opened in (pages, forgotten))
    before, panels = (
        {(panel.title, panel.model["id"], x_of(panel)): shown_by(panel) for panel in shown}
        for shown in (known.run_all(), page.run_all())
    )
    assert panels.keys() == before.keys()
    for label, frames in before.items():
        if label[0] not in OF_PROMETHEUS_ALONE:
            assert panels[label] == frames, label


def test_a_job_of_three_weeks_ago(pages: Pages) -> None:
    """Prometheus never scraped this job."""
    page = pages.job("old")
    assert (page.value("x"), page.value("rule")) == ("step", key_queries.RULES[3])
    assert page.value("host") == ["$__all"]
    assert page.variables["host"].options == [("old1", "old1")]
    graph = page.show("loss")
    numbers = [(record["step"], record["loss"]) for record in printed.OLD.records]
    assert [*zip(*(field.values for field in graph.frames[0].fields), strict=True)] == numbers


def test_a_page_of_ninety_days_leads_to_the_jobs_own_time(jobs: Fixture) -> None:
    """Loki refuses all but the plainest queries over more than a month."""
    job, now_ms = jobs.jobs["old"], jobs.today.end_ms
    when = Range(now_ms - 90 * 86_400_000, now_ms)
    page = LenientPage(links.JOB, jobs.sources, when, cluster=CLUSTER, job=job.job_id)
    with pytest.raises(QueryFailed, match="time range exceeds the limit"):
        page.show("Console log")
    (link,) = (link for link in page.model["links"] if link["title"] == "The job's own time")
    address = parse_qs(page.text(link["url"]).partition("?")[2])
    begin_ms, end_ms = (int(address[name][0]) for name in ("from", "to"))
    assert begin_ms + queries.PAD_MS >= job.begin_ms
    own_time = Page(
        links.JOB, jobs.sources, Range(begin_ms, end_ms), cluster=CLUSTER, job=job.job_id
    )
    assert own_time.show("loss").frames[0].column("step") == [
        record["step"] for record in printed.OLD.records
    ]


@pytest.mark.parametrize("name", ["ended", "three-nodes", "requeued"])
def test_the_jobs_own_time_is_the_same_without_prometheus(
    name: str, pages: Pages, forgotten: Pages
) -> None:
    """They differ slightly: Prometheus has the last heartbeat, Loki the end."""
    for variable in ("begin", "end"):
        known, loki = (int(str(opened.job(name).value(variable))) for opened in (pages, forgotten))
        assert abs(known - loki) < 30_000


def test_without_the_data_source_for_it_graphs_go_over_the_records_number(jobs: Fixture) -> None:
    job = jobs.jobs["old"]
    sources: Sources = {"loki": jobs.loki, "prometheus": jobs.prometheus}
    page = Page(links.JOB, sources, job.when, cluster=CLUSTER, job=job.job_id)
    assert (page.value("x"), page.value("rule")) == (RECORD_FIELD, key_queries.NO_RULE)
    assert page.value("thinned") == key_queries.NEWEST_ONLY
    panel = page.show("All keys over record")
    assert panel.rows() == panel.frame.rows() == numbered("record number", printed.OLD.records)


def test_without_any_prometheus(jobs: Fixture) -> None:
    """Both data sources of the type Prometheus point to Loki."""
    values = loki_metrics(jobs.loki.url)
    twice = PrometheusSource(values.url, scrape_ms=SCRAPE_MS)
    sources: Sources = {"loki": jobs.loki, "prometheus": twice, "values": values}
    job = jobs.jobs["three-nodes"]
    page = LenientPage(links.JOB, sources, job.when, cluster=CLUSTER, job=job.job_id)
    assert (page.value("x"), page.value("rule")) == ("epoch", key_queries.RULES[2])
    assert page.show("loss").frames


# ---- Compare


@pytest.mark.parametrize("names", [["ended", "three-nodes"], ["validation", "odd-keys"], ["long"]])
def test_comparisons_are_the_same_without_prometheus(
    names: list[str], pages: Pages, forgotten: Pages, jobs: Fixture
) -> None:
    ids = [jobs.jobs[name].job_id for name in names]
    known, page = (
        opened.page(links.COMPARE, {"jobs": ids}, jobs.today) for opened in (pages, forgotten)
    )
    assert known.value("source") == "prometheus-uid"
    assert page.value("source") == "loki-values-uid"
    assert page.value("jobs") == known.value("jobs")
    for name in COMPARED:
        assert shown(page, name) == shown(known, name), name
    before, panels = (
        {panel.title: shown_by(panel) for panel in opened.run_all()} for opened in (known, page)
    )
    assert panels == before


def test_a_forgotten_job_is_compared_with_one_that_is_known(jobs: Fixture) -> None:
    ids = [jobs.jobs[name].job_id for name in ("old", "short")]
    when = Range(jobs.jobs["old"].when.begin_ms, jobs.today.end_ms)
    page = Page(links.COMPARE, jobs.sources, when, cluster=CLUSTER, jobs=ids)
    assert page.value("source") == "loki-values-uid"
    assert (page.value("x"), page.value("rule")) == ("step", key_queries.RULES[3])
    assert [text for text, _ in page.variables["y"].options] == ["loss"]
    _, *rows = page.show("Captured jobs: states").rows()
    assert [(row["2"], row["3"]) for row in rows] == [(job, "COMPLETED") for job in sorted(ids)]


# ---- agents' entries


def test_the_end_of_a_capture_says_whose_it_is_and_when_it_ran(jobs: Fixture) -> None:
    job = jobs.jobs["three-nodes"]
    query = f'{{cluster="{CLUSTER}", kind="event"}} | job_id="{job.job_id}" |= `"closed"`'
    frame = jobs.loki.answer({"refId": "A"}, query, job.when, None).frames[0]
    events = [json.loads(line) for line in frame.column("Line")]
    assert sorted(event["hosts"][0] for event in events) == sorted(job.hosts)
    for event in events:
        assert (event["name"], event["partition"]) == (job.job.name, PARTITION)
        assert job.begin_ms <= event["started_ns"] / 1e6 <= event["ended_ns"] / 1e6 <= job.end_ms


def push(fixture: Fixture, labels: Json, entries: Sequence[tuple[int, Json, Json]]) -> None:
    """Push entries as agents write them. entries: times in ns since 1970, lines, and metadata."""
    values = [
        [str(time_ns), json.dumps(line, separators=(",", ":")), metadata]
        for time_ns, line, metadata in entries
    ]
    stream = {"stream": {"service_name": "logshipper", **labels}, "values": values}
    requests.post(
        f"{fixture.loki.url}/loki/api/v1/push", json={"streams": [stream]}, timeout=30
    ).raise_for_status()


HOUR_NS = 3600 * 10**9


@pytest.fixture(scope="module")
def long_runs(empty: Fixture) -> str:
    """A cluster whose jobs began two days ago, with their agent's hourly reports. One job runs, one
    has an ended step, one ended ten minutes ago, and one 40 minutes ago."""
    cluster, now_ns = f"{CLUSTER}-long", time.time_ns()
    began_ns = now_ns - 48 * HOUR_NS - 1800 * 10**9
    told: list[tuple[int, Json, Json]] = []

    def tell(job: str, time_ns: int, event: str, facts: Json, step: str = "0") -> None:
        whose = {"job_id": job, "attempt": "1", "step": step, "task": "0", "user": f"{job}-user"}
        told.append((time_ns, {"event": event, **facts}, whose))

    for job, runs_secs in (("runs", 0), ("steps", 0), ("ended", 600), ("earlier", 2400)):
        facts = {"name": job, "user": f"{job}-user", "partition": "gpu", "started_ns": began_ns}
        end_ns = now_ns - runs_secs * 10**9
        tell(job, began_ns, "started", facts)
        for hour in range(1, 49):
            if began_ns + hour * HOUR_NS < end_ns:
                tell(job, began_ns + hour * HOUR_NS, "still_running", facts)
        if runs_secs:
            ended = {"state": "COMPLETED", "exit_code": 0, "ended_ns": end_ns}
            tell(job, end_ns, "closed", {**ended, **facts})
    facts = {"name": "steps", "user": "steps-user", "started_ns": now_ns - 900 * 10**9}
    ended = {"state": "FAILED", "exit_code": 1, "ended_ns": now_ns - 300 * 10**9}
    tell("steps", now_ns - 300 * 10**9, "closed", {**ended, **facts}, step="1")
    push(
        empty, {"cluster": cluster, "host": "n9", "kind": "event"}, sorted(told, key=itemgetter(0))
    )
    return cluster


@pytest.mark.parametrize("mins", [15, 600, 1440])
def test_jobs_that_began_before_the_page_s_time_are_listed(
    mins: int, empty: Fixture, long_runs: str
) -> None:
    """The list has all jobs that ran within the page's time, with their first start. A step's end
    does not end its job."""
    end_ms = time.time_ns() // 10**6
    when = Range(end_ms - mins * 60_000, end_ms)
    page = Page(links.JOBS, empty.sources, when, cluster=long_runs)
    rows = {row["job_id"]: row for row in page.show("Captured jobs: newest first").rows()}
    running = dict.fromkeys(("runs", "steps"), "RUNNING")
    ended = {"ended": "COMPLETED"} | ({} if mins == 15 else {"earlier": "COMPLETED"})
    assert {job: row["state"] for job, row in rows.items()} == running | ended
    for job, row in rows.items():
        assert (row["name"], row["user"], row["node"]) == (job, f"{job}-user", "n9")
        assert row["partition"] == "gpu" or job == "steps"
        assert row["duration"] == pytest.approx(48.5 * 3600, abs=3000)
        assert ("to" in row) == (job in ended)
    assert page.show("Captured jobs running").stat() == 2
    assert page.variables["running"].selected() == [("n9", "n9")]
    chosen = Page(links.JOBS, empty.sources, when, cluster=long_runs, user=["steps-user"])
    assert [row["job_id"] for row in chosen.show("Captured jobs: newest first").rows()] == ["steps"]


def test_where_a_job_runs_is_known_without_its_start(empty: Fixture, long_runs: str) -> None:
    end_ms = time.time_ns() // 10**6
    page = Page(
        links.JOB, empty.sources, Range(end_ms - 900_000, end_ms), cluster=long_runs, job="runs"
    )
    assert page.value("nodes") == "n9"


def test_a_job_of_an_earlier_agent_is_shown_as_before(empty: Fixture) -> None:
    """Reports of an earlier agent have no ranks."""
    cluster, now_ns = f"{CLUSTER}-earlier", time.time_ns()
    reported = {"key": "loss", "count": 3, "x": "step", "last": 1, "least": 1, "largest": 3}
    lines: dict[str, list[Json]] = {
        "event": [
            {"event": "started", "started_ns": now_ns},
            {"event": "closed", "records": 3, "state": "FAILED", "exit_code": 4},
        ],
        "value": [reported | {"last_at": 3, "least_at": 3, "largest_at": 1}],
        "metadata": [{"step": step, "loss": 4 - step} for step in (1, 2, 3)],
    }
    place = {"job_id": "earlier", "attempt": "1", "step": "0", "task": "0", "user": "root"}
    for kind, entries in lines.items():
        told = [
            (now_ns + number, line, {**place, "n": str(number)})
            for number, line in enumerate(entries, start=1)
        ]
        push(empty, {"cluster": cluster, "host": "n9", "kind": kind}, told)
    when = Range(now_ns // 10**6 - 60_000, now_ns // 10**6 + 60_000)
    page = Page(links.JOB, empty.sources, when, cluster=cluster, job="earlier")
    assert page.variables["host"].options == [("n9", "n9")]
    assert (page.value("x"), page.value("rule")) == (RECORD_FIELD, key_queries.NO_RULE)
    assert page.show("All keys over record").rows() == numbered("record number", lines["metadata"])
    assert page.show("Last, least and largest").rows()[0]["last"] == "1"
    listed = Page(links.JOBS, empty.sources, when, cluster=cluster, key1="loss")
    rows = {row["job_id"]: row for row in listed.show("Captured jobs: newest first").rows()}
    assert [rows["earlier"][name] for name in ("state", "ended by", "key1")] == ["FAILED", 4, 1]
