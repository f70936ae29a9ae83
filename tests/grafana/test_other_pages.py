"""The pages Jobs, Compare and Cluster: the right jobs, in the right order, with the right
numbers."""

import pytest

from logshipper_grafana.parts import links
from tests.grafana import printed
from tests.grafana.captured import PAD_AFTER_MS, PAD_BEFORE_MS, PARTITION, USER
from tests.grafana.conftest import Opened
from tests.grafana.expected import over
from tests.grafana.frames import Json
from tests.grafana.interpolation import Text
from tests.grafana.pages import Page
from tests.grafana.sources import Range

LIST = "Captured jobs: newest first"
KNOWN = sorted(job.name for job in printed.EVERY if job is not printed.OLD)  # to Prometheus


def listed(opened: Opened, **chosen: Text) -> list[Json]:
    return opened.page(links.JOBS, chosen).show(LIST).rows()


# ---- jobs


def test_all_jobs_newest_first(opened: Opened) -> None:
    rows = listed(opened)
    assert sorted(row["name"] for row in rows) == KNOWN
    starts = [row["started"] for row in rows]
    assert starts == sorted(starts, reverse=True)
    assert rows[-1]["name"] == "late"


def test_what_is_said_of_a_job(opened: Opened) -> None:
    rows = {row["name"]: row for row in listed(opened)}
    assert {name: row["state"] for name, row in rows.items()} == {
        **dict.fromkeys(KNOWN, "COMPLETED"),
        "running": "RUNNING",
        "no-metadata": "FAILED",
        "timed-out": "TIMEOUT",  # by Slurm: its capture says FAILED
    }
    three = rows["three-nodes"]
    assert (three["user"], three["partition"], three["nodes"]) == (USER, PARTITION, 3)
    assert {row["nodes"] for name, row in rows.items() if name != "three-nodes"} == {1}
    assert {row["lost"] for row in rows.values()} == {0}
    assert 5 <= rows["short"]["duration"] < 15
    assert rows["running"]["duration"] > 5


def test_last_values_of_chosen_keys(opened: Opened) -> None:
    page = opened.page(links.JOBS, {"key1": "val/acc", "key2": "step"})
    rows = {row["name"]: row for row in page.show(LIST).rows()}
    assert rows["ended"]["key1"] == printed.ENDED.records[-1]["val/acc"]
    assert rows["requeued"]["key2"] == 5
    assert rows["long"]["key2"] == printed.LONG_RECORDS
    assert rows["three-nodes"]["key3"] == 205
    assert "key3" not in rows["no-metadata"]


def test_a_link_leads_to_the_jobs_own_time(opened: Opened) -> None:
    """Late jobs, too; a job that runs has no end, which means now."""
    for row in listed(opened):
        job = opened.fixture.jobs[row["name"]]
        assert (
            job.begin_ms - PAD_BEFORE_MS - 1000 <= row["from"] <= row["started"] - PAD_BEFORE_MS + 1
        ), row
        if job.end_ms is None:
            assert "to" not in row
        else:
            assert row["started"] < row["to"] <= job.end_ms + PAD_AFTER_MS + 1000, row
            page = Page(
                links.JOB, opened.fixture.sources, Range(int(row["from"]), int(row["to"])),
                cluster="grafana-test", job=row["job_id"],
            )  # fmt: skip
            assert page.show("State").stat() is not None


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({"user": [USER]}, ["three-nodes", "timed-out"]),
        ({"partition": [PARTITION]}, ["three-nodes", "timed-out"]),
        ({"state": ["FAILED", "RUNNING"]}, ["no-metadata", "running"]),
        ({"name": "NO-"}, ["no-metadata", "no-numbers"]),
        ({"name": "no-", "state": ["FAILED"]}, ["no-metadata"]),
        ({"name": "(a+b)"}, []),
        ({"state": ["TIMEOUT"]}, ["timed-out"]),
        ({"state": ["NODE_FAIL"]}, []),
    ],
)
def test_jobs_are_chosen(chosen: dict[str, Text], names: list[str], opened: Opened) -> None:
    page = opened.page(links.JOBS, chosen)
    rows = page.show(LIST).rows()
    assert sorted(row.get("name", "?") for row in rows) == names
    assert (page.show("Captured jobs listed").stat() or 0) == len(names)


def test_numbers_above_the_list(opened: Opened) -> None:
    page = opened.page(links.JOBS, {})
    assert page.show("Captured jobs listed").stat() == len(KNOWN)
    assert page.show("Captured jobs running").stat() == 1
    assert page.show("Captured jobs failed").stat() == 2
    assert page.show("Lines lost").stat() == 0
    assert {text for text, _ in page.variables["user"].options} == {"root", USER}


# ---- compare


@pytest.fixture(scope="module")
def compared(opened: Opened) -> Page:
    jobs = [opened.fixture.jobs[name].job_id for name in ("ended", "three-nodes", "no-metadata")]
    return opened.page(links.COMPARE, {"jobs": jobs})


def test_jobs_share_x(compared: Page) -> None:
    """A job without metadata keeps no key from being shared."""
    assert (compared.value("x"), compared.value("rule")) == ("epoch", "the key epoch")
    assert [text for text, _ in compared.variables["xsel"].options] == ["auto", "epoch", "loss"]
    assert [text for text, _ in compared.variables["y"].options] == ["loss", "val/acc"]


def test_jobs_over_x(compared: Page, opened: Opened) -> None:
    frame = compared.show("loss").frame
    assert frame.fields[0].name == "epoch"
    ended = opened.fixture.jobs["ended"].job_id
    first = over("epoch", printed.ENDED.records, only="loss")
    assert [row for row in frame.rows() if f"ended ({ended})" in row] == [
        {"epoch": row["epoch"], f"ended ({ended})": row["loss"]} for row in first
    ]
    for rank, task in enumerate(printed.THREE_NODES.attempts):
        series = "three-nodes (4711)" + (f" · task {rank}" if rank else "")
        assert [row[series] for row in frame.rows() if series in row] == [
            float(record["loss"]) for record in task.records
        ]
    called = [
        f"ended ({ended})",
        "three-nodes (4711)",
        *(f"three-nodes (4711) · task {rank}" for rank in (1, 2)),
    ]
    assert frame.names == ["epoch", *called], (
        "in the order of names, so that colours are the same in all graphs"
    )


def test_last_least_and_largest(compared: Page, opened: Opened) -> None:
    rows: dict[tuple[str, str], Json] = {}
    for title in ("loss: last", "loss: least"):
        shown = compared.show(title).rows()
        assert [row["job_id"] for row in shown] == sorted(row["job_id"] for row in shown)
        for row in shown:
            rows.setdefault((row["job_id"], row["task"]), {}).update(row)
    values = [record["loss"] for record in printed.ENDED.records]
    row = rows[opened.fixture.jobs["ended"].job_id, "0"]
    assert (row["last"], row["min"], row["max"]) == (values[-1], min(values), max(values))
    assert (rows["4711", "2"]["last"], rows["4711", "2"]["min"], rows["4711", "2"]["max"]) == (
        205,
        201,
        205,
    )
    assert len(rows) == 4


def test_long_jobs_are_thinned_together(opened: Opened) -> None:
    """So that one answer holds the points of all jobs: 6,000 records would fill it, and older jobs
    be left out."""
    jobs = [opened.fixture.jobs[name] for name in ("long", "running", "short")]
    page = opened.page(links.COMPARE, {"jobs": [job.job_id for job in jobs]})
    assert (page.value("x"), page.value("thinned")) == ("step", "at least 1 of 10 records")
    with opened.fixture.loki.recorded() as asked:
        graph, last, bounds = (page.show(title) for title in ("loss", "loss: last", "loss: least"))
    series = {job.job_id: f"{job.job.name} ({job.job_id})" for job in jobs}
    for job in jobs:
        points = {
            row["step"]: row[series[job.job_id]]
            for row in graph.frame.rows()
            if series[job.job_id] in row
        }
        every = {float(record["step"]): record["loss"] for record in job.job.records}
        assert points.items() <= every.items()
        assert (
            len(points) == len(every) if job.job is not printed.LONG else 600 <= len(points) <= 800
        )
        (ends,) = [row["last"] for row in last.rows() if row["job_id"] == job.job_id]
        assert ends == job.job.records[-1]["loss"]
        (row,) = [row for row in bounds.rows() if row["job_id"] == job.job_id]
        assert (row["min"], row["max"]) == (min(points.values()), max(points.values()))
    assert all("| n=~" in one.expr for one in asked)
    assert opened.page(links.COMPARE, {"jobs": [*series][1:]}).value("thinned") == ("every record")


def test_what_differs_at_first(compared: Page, opened: Opened) -> None:
    rows = {row["key"]: row["values"] for row in compared.show("What differs").rows()}
    ended = opened.fixture.jobs["ended"].job_id
    assert rows["job"] == [ended, "4711"]
    assert rows["loss"][0] == printed.ENDED.records[0]["loss"]
    assert rows["val/acc"] == [printed.ENDED.records[0]["val/acc"], None]
    assert "epoch" not in rows


def test_the_compared_jobs(compared: Page, opened: Opened) -> None:
    rows = {row["name"]: row for row in compared.show("Captured jobs compared").rows()}
    assert {name: row["state"] for name, row in rows.items()} == {
        "ended": "COMPLETED",
        "three-nodes": "COMPLETED",
        "no-metadata": "FAILED",
    }
    assert rows["three-nodes"]["records"] == 15
    assert rows["ended"]["records"] == 30
    started = {row["name"]: row["started"] for row in listed(opened)}
    assert {name: row["started"] for name, row in rows.items()} == {
        name: started[name] for name in rows
    }


def test_the_records_of_a_thinned_job_are_counted_once(opened: Opened) -> None:
    page = opened.page(links.COMPARE, {"jobs": [opened.fixture.jobs["long"].job_id]})
    assert [row["records"] for row in page.show("Captured jobs compared").rows()] == [
        printed.LONG_RECORDS
    ]


# ---- cluster


def test_what_happened_in_the_cluster(opened: Opened) -> None:
    rows = opened.page(links.CLUSTER, {}).show("Late heartbeats").rows()
    found = [(row["job_id"], row["event"]) for row in rows]
    assert [event for job_id, event in found if job_id == "eventful"] == [
        "lines_lost", "heartbeat_found", "heartbeat_lost",
    ]  # fmt: skip
    assert ("4712", "job_ended") in found
    assert [row["time"] for row in rows] == sorted((row["time"] for row in rows), reverse=True)


def test_the_cluster_now(opened: Opened) -> None:
    page = opened.page(
        links.CLUSTER,
        {},
        Range(opened.fixture.today.end_ms - 3_600_000, opened.fixture.today.end_ms),
    )
    numbers = {title: page.show(title).stat() for title in (
        "Captured jobs running", "Captured jobs started", "Nodes with an agent", "Nodes capturing",
        "Lines lost", "Largest lag",
    )}  # fmt: skip
    assert numbers["Captured jobs running"] == 1
    assert numbers["Captured jobs started"] == len(KNOWN) - 1  # all but the late one
    assert numbers["Nodes with an agent"] == 6
    assert numbers["Nodes capturing"] == 1
    assert numbers["Lines lost"] == 0


def test_ends_by_state(opened: Opened) -> None:
    """Slurm's word stands for its captures'. At one point of the graph, chosen so that no end falls
    between the end of its interval and the next scrape."""
    page = opened.page(links.CLUSTER, {})
    model = next(
        model for model, _ in page.panels() if model["title"].startswith("Captured jobs ended")
    )
    expr = (
        page.text(model["targets"][0]["expr"])
        .replace("$__interval_ms", "60000")
        .replace("$__interval", "60s")
    )
    ended_ms = opened.fixture.jobs["timed-out"].end_ms
    assert ended_ms is not None
    answer = opened.fixture.prometheus.get(
        "/api/v1/query", {"query": expr, "time": ended_ms / 1000 + 20}
    )["result"]
    ends = {one["metric"]["state"]: float(one["value"][1]) for one in answer}
    assert ends["TIMEOUT"] == 1
    assert ends["COMPLETED"] > 0
    assert ends.get("FAILED", 0) <= 2  # a job, and the first attempt of another


def test_throughput_has_all_that_ended(opened: Opened) -> None:
    """Of what agents really export. What the analytics make of known series:
    test_cluster_analytics.py."""
    page = opened.page(
        links.CLUSTER,
        {},
        Range(opened.fixture.today.end_ms - 3_600_000, opened.fixture.today.end_ms),
    )
    known = [name for name in KNOWN if name not in ("late", "running")]
    (times,) = [row for row in page.show("Run times").rows() if row["what"] == "run time"]
    assert times["jobs"] == len(known) + 1, "one more of the job that was requeued"
    assert 0 < times["least"] <= times["median"] <= times["most"] < 600
    busy = {row["host"]: row["busy"] for row in page.show("Busy share").rows()}
    assert busy.keys() == {"late1", "n1", "n10", "n2", "n4", "slurmctl"}
    assert busy["slurmctl"] == 0 < busy["n1"] <= 1


def test_what_is_printed(opened: Opened) -> None:
    """By the agents' counters, so that jobs of a second count as well."""
    page = opened.page(
        links.CLUSTER, {}, Range(opened.fixture.today.end_ms - 600_000, opened.fixture.today.end_ms)
    )
    for title, series in (
        ("Lines per second", {"stdout", "stderr"}),
        ("Bytes per second", {"printed", "logged"}),
    ):
        frames = page.show(title).frames
        assert {frame.fields[1].shown for frame in frames} == series
        assert max(value for frame in frames for value in frame.fields[1].values) > 0, title
    users = page.show("Users whose captured jobs print most").rows()
    assert users[0]["user"] == "root"
    assert all(row["printed"] > 0 for row in users)
    jobs = page.show("Captured jobs that print most").rows()
    assert {row["user"] for row in jobs} <= {"root", USER}
    assert all(row["printed"] > 0 for row in jobs)
    other = opened.page(links.CLUSTER, {"node": ["slurmctl"]}, page.when)
    assert other.show("Users whose captured jobs print most").rows() == []


def test_health_of_each_node(opened: Opened) -> None:
    rows = opened.page(links.CLUSTER, {}).show("Capture health").rows()
    assert sorted(row["host"] for row in rows) == ["late1", "n1", "n10", "n2", "n4", "slurmctl"]
    for row in rows:
        assert row["version"]
        assert (row["refused entries"], row["lines lost"], row["left out by limits"]) == (0, 0, 0)
    assert {row["host"]: row["captures"] for row in rows}["n1"] == 1


def test_some_nodes(opened: Opened) -> None:
    page = opened.page(links.CLUSTER, {"node": ["n1"]})
    assert [row["host"] for row in page.show("Capture health").rows()] == ["n1"]
    assert page.show("Nodes with an agent").stat() == 1
