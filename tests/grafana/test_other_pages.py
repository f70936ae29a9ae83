"""The pages Jobs, Compare and Cluster: the right jobs in the right order, with the right numbers."""

import signal
from typing import Any

import pytest

from logshipper_grafana.parts import links, queries
from logshipper_grafana.parts.records import NOTHING
from logshipper_grafana.parts.run_queries import SIGNALLED
from tests.grafana.conftest import Pages
from tests.grafana.tools import printed
from tests.grafana.tools.captured import PARTITION, USER
from tests.grafana.tools.expected import DENSE, over, series_name
from tests.grafana.tools.frames import Json
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import Page
from tests.grafana.tools.sources import Range
from tests.tools.waiting import wait_until

LIST = "Captured jobs: newest first"
KNOWN = sorted(job.name for job in printed.EVERY if job is not printed.OLD)  # in Prometheus


def job_rows(pages: Pages, **selections: Text) -> list[Json]:
    return pages.page(links.JOBS, selections).show(LIST).rows()


# ---- jobs


def test_all_jobs_newest_first(asked: Pages) -> None:
    rows = job_rows(asked)
    assert sorted(row["name"] for row in rows) == KNOWN
    starts = [row["started"] for row in rows]
    assert starts == sorted(starts, reverse=True)
    assert rows[-1]["name"] == "late"


def test_what_is_said_of_a_job(asked: Pages) -> None:
    rows = {row["name"]: row for row in job_rows(asked)}
    assert {name: row["state"] for name, row in rows.items()} == {
        **dict.fromkeys(KNOWN, "COMPLETED"),
        "running": "RUNNING",
        "no-metadata": "FAILED",
        "killed": "KILLED",
        "timed-out": "TIMEOUT",  # by Slurm: its capture says FAILED
    }
    three = rows["three-nodes"]
    assert (three["user"], three["partition"]) == (USER, PARTITION)
    by_loki = asked.page(links.JOBS, {}).value("source") == "loki-values-uid"
    more = " others" if by_loki else "2"  # without a scheduler the number is unknown
    assert three["node"] in {f"{host} +{more}" for host in asked.fixture.jobs["three-nodes"].hosts}
    for name, row in rows.items():
        assert row["node"] in asked.fixture.jobs[name].hosts or name == "three-nodes"
    assert not any("lost" in row for row in rows.values()), "no line was lost"
    assert 5 <= rows["short"]["duration"] < 15
    assert rows["running"]["duration"] > 5


def test_how_a_job_ended_and_how_often_it_began(asked: Pages) -> None:
    """A running job has no end; a job with one start has no restarts."""
    rows = {row["name"]: row for row in job_rows(asked)}
    ends = {
        "running": None,
        "no-metadata": 3,
        "timed-out": 143,
        "killed": SIGNALLED + signal.SIGKILL,
    }
    assert {name: row.get("ended by") for name, row in rows.items()} == {
        **dict.fromkeys(KNOWN, 0),
        **ends,
    }
    restarts = {name: row["restarts"] for name, row in rows.items() if "restarts" in row}
    assert restarts == {"requeued": 1}


def test_a_running_jobs_bar(asked: Pages) -> None:
    bars = {row["name"]: row["bar"] for row in job_rows(asked) if "bar" in row}
    assert bars == {"running": "epoch 1/3:  33%  1/3 [00:40<01:20]"}, "the outer one, without cells"
    assert not any("bar" in row for row in job_rows(asked, user=[USER]))


def test_bars_are_read_of_the_nodes_that_run_a_listed_job(asked: Pages) -> None:
    hosts = list(asked.fixture.jobs["running"].hosts)
    for users, nodes in ((["root"], hosts), ([USER], [])):
        page = asked.page(links.JOBS, {"user": users})
        assert page.variables["running"].selected() == [(node, node) for node in nodes]
        (bars,) = (query for query in page.show(LIST).queries if 'kind="status"' in query.expr)
        assert f"host=~`{'|'.join(nodes)}`" in bars.expr


def test_columns_that_no_listed_job_has_a_value_in_are_not_there(asked: Pages) -> None:
    """Columns disappear even if other users' jobs have values in them."""
    page = asked.page(links.JOBS, {"user": [USER], "key1": "val/acc", "key2": "nobodys"})
    names = page.show(LIST).frame.names
    assert page.value("key3") == "loss"
    assert "key3" in names
    assert not {"key1", "key2", "restarts"} & {*names}
    running = asked.page(links.JOBS, {"state": ["RUNNING"], "key1": "val/acc", "key2": "step"})
    assert {"key1", "key2", "restarts"} & {*running.show(LIST).frame.names} == {"key2"}


def test_last_values_of_chosen_keys(asked: Pages) -> None:
    page = asked.page(links.JOBS, {"key1": "val/acc", "key2": "step"})
    rows = {row["name"]: row for row in page.show(LIST).rows()}
    assert rows["ended"]["key1"] == printed.ENDED.records[-1]["val/acc"]
    assert rows["requeued"]["key2"] == 5
    assert rows["long"]["key2"] == printed.LONG_RECORDS
    assert rows["three-nodes"]["key3"] == 205
    assert "key3" not in rows["no-metadata"]


def test_a_link_leads_to_the_jobs_own_time(pages: Pages) -> None:
    """The range adds some seconds and a twentieth of the duration on both sides, for late jobs,
    too. A running job has no end, so its range ends now."""
    for row in job_rows(pages):
        job = pages.fixture.jobs[row["name"]]
        share_ms = 50 * row["duration"]
        if job.end_ms is None:
            assert "to" not in row
            assert row["from"] == pytest.approx(row["started"] - 2000, abs=5)
        else:
            assert row["from"] == pytest.approx(row["started"] - 2000 - share_ms, abs=5), row
            end_ms = row["started"] + 1000 * row["duration"]
            assert row["to"] == pytest.approx(end_ms + 10_000 + share_ms, abs=5), row
            page = Page(
                links.JOB, pages.fixture.sources, Range(int(row["from"]), int(row["to"])),
                cluster="grafana-test", job=row["job_id"],
            )  # fmt: skip
            assert page.show("State").stat() is not None


def test_a_link_leads_to_the_jobs_own_time_without_prometheus(forgotten: Pages) -> None:
    for row in job_rows(forgotten):
        job = forgotten.fixture.jobs[row["name"]]
        end_ms = row["started"] + 1000 * row["duration"]
        assert row["from"] == pytest.approx(row["started"] - queries.PAD_MS, abs=5)
        assert ("to" in row) == (job.end_ms is not None)
        if "to" in row:
            assert row["to"] == pytest.approx(end_ms + queries.PAD_MS, abs=5)


def test_a_running_job_has_run_until_now(forgotten: Pages) -> None:
    """The page's time may extend into the future."""
    today = forgotten.fixture.today
    ahead = Range(today.begin_ms, today.end_ms + 36_000_000)
    rows = {row["name"]: row for row in forgotten.page(links.JOBS, {}, ahead).show(LIST).rows()}
    assert 0 < rows["running"]["duration"] < 36_000


def test_jobs_of_three_weeks_ago_are_listed(pages: Pages) -> None:
    """Prometheus has no data for the page's time."""
    job = pages.fixture.jobs["old"]
    page = pages.page(links.JOBS, {"key1": "loss"}, Range(job.begin_ms - 1000, job.when.end_ms))
    (row,) = page.show(LIST).rows()
    assert (row["job_id"], row["name"], row["state"]) == (job.job_id, "old", "COMPLETED")
    assert row["key1"] == printed.OLD.records[-1]["loss"]
    assert page.show("Captured jobs listed").stat() == 1


@pytest.mark.parametrize(
    ("selections", "names"),
    [
        ({"user": [USER]}, ["three-nodes", "timed-out"]),
        ({"partition": [PARTITION]}, ["three-nodes", "timed-out"]),
        ({"state": ["FAILED", "RUNNING"]}, ["no-metadata", "running"]),
        ({"state": ["KILLED"]}, ["killed"]),
        ({"name": "NO-"}, ["no-metadata", "no-numbers"]),
        ({"name": "no-", "state": ["FAILED"]}, ["no-metadata"]),
        ({"name": "(a+b)"}, []),
        ({"state": ["TIMEOUT"]}, ["timed-out"]),
        ({"state": ["NODE_FAIL"]}, []),
    ],
)
def test_jobs_are_chosen(selections: dict[str, Text], names: list[str], asked: Pages) -> None:
    page = asked.page(links.JOBS, selections)
    rows = page.show(LIST).rows()
    assert sorted(row.get("name", "?") for row in rows) == names
    assert (page.show("Captured jobs listed").stat() or 0) == len(names)


def test_numbers_above_the_list(asked: Pages) -> None:
    page = asked.page(links.JOBS, {})
    assert page.show("Captured jobs listed").stat() == len(KNOWN)
    assert page.show("Captured jobs running").stat() == 1
    assert page.show("Captured jobs failed").stat() == 3
    assert page.show("Lines lost").stat() == 0
    assert {text for text, _ in page.variables["user"].options} == {"root", USER}


# ---- compare


@pytest.fixture(scope="module")
def compared(pages: Pages) -> Page:
    jobs = [pages.fixture.jobs[name].job_id for name in ("ended", "three-nodes", "no-metadata")]
    return pages.page(links.COMPARE, {"jobs": jobs})


def test_jobs_share_x(compared: Page) -> None:
    """A job without metadata does not prevent a shared key."""
    assert (compared.value("x"), compared.value("rule")) == ("epoch", "chosen by its name")
    assert [text for text, _ in compared.variables["xsel"].options] == ["auto", "epoch", "loss"]
    assert [text for text, _ in compared.variables["y"].options] == ["loss", "val/acc"]


def test_jobs_over_x(compared: Page, pages: Pages) -> None:
    frame = compared.show("loss").frame
    assert frame.fields[0].name == "epoch"
    first = over("epoch", printed.ENDED.records, only="loss")
    name = series_name("02·ended")
    assert [row for row in frame.rows() if name in row] == [
        {"epoch": row["epoch"], name: row["loss"]} for row in first
    ]
    for rank, task in enumerate(printed.THREE_NODES.attempts):
        series = series_name("01·three-nodes" + (f" · task {rank}" if rank else ""))
        assert [row[series] for row in frame.rows() if series in row] == [
            float(record["loss"]) for record in task.records
        ]
    called = [
        *(series_name(f"01·three-nodes{task}") for task in ("", " · task 1", " · task 2")),
        name,
    ]
    assert frame.names == ["epoch", *called], (
        "in the order of names, so that colours are the same in all graphs"
    )


def values_of(page: Page) -> dict[str, Json]:
    rows = page.show("Last, least").rows()
    keys = [row["key"] for row in rows]
    assert keys == sorted(keys), "by key, then by job"
    return {row["key"]: row for row in rows}


def test_last_least_and_largest(compared: Page, pages: Pages) -> None:
    """Values have four digits, as texts, because Grafana would remove a digit from numbers."""
    rows = values_of(compared)
    values = [record["loss"] for record in printed.ENDED.records]
    job = "02·ended"
    row = rows[f"loss · {job}"]
    assert (row["last"], row["least"], row["largest"]) == tuple(
        f"{value:.4g}" for value in (values[-1], min(values), max(values))
    )
    row = rows["loss · 01·three-nodes · task 2"]
    assert (row["last"], row["least"], row["largest"]) == ("205", "201", "205")
    assert len(rows) == 3 + 2 * 3


def test_long_jobs_are_thinned_together(pages: Pages) -> None:
    """Thinning lets one answer hold the points of all jobs. Unthinned, 6,000 records would fill it
    and leave out older jobs."""
    jobs = [pages.fixture.jobs[name] for name in ("long", "running", "short")]
    page = pages.page(links.COMPARE, {"jobs": [job.job_id for job in jobs]})
    assert (page.value("x"), page.value("thinned")) == ("step", ", at least 1 of 10 records")
    with pages.fixture.loki.recorded() as queries:
        graph, bounds = page.show("loss"), values_of(page)
    names = sorted(f"{job.job_id}={job.job.name}" for job in jobs)
    numbers = {name.partition("=")[0]: number for number, name in enumerate(names, start=1)}
    series = {job.job_id: f"{numbers[job.job_id]:02}·{job.job.name}" for job in jobs}
    for job in jobs:
        name = series_name(series[job.job_id], DENSE)
        assert name in graph.frame.names
        points = {row["step"]: row[name] for row in graph.frame.rows() if name in row}
        every = {float(record["step"]): record["loss"] for record in job.job.records}
        assert points.items() <= every.items()
        assert (
            len(points) == len(every) if job.job is not printed.LONG else 600 <= len(points) <= 800
        )
        row = bounds[f"loss · {series[job.job_id]}"]
        assert float(row["largest"]) == pytest.approx(max(every.values()), rel=1e-3)
        assert float(row["last"]) == pytest.approx(job.job.records[-1]["loss"], rel=1e-3)
    records = [query.expr for query in queries if 'kind="metadata"' in query.expr]
    assert all("| n=~" in expr for expr in records if NOTHING not in expr)
    assert pages.page(links.COMPARE, {"jobs": [*series][1:]}).value("thinned") == " "


def test_each_job_has_a_row_with_what_differs(compared: Page, pages: Pages) -> None:
    """The first row is the heading. The job without records differs from the others in each key."""
    heading, *jobs = compared.show("Captured jobs: states").rows()
    rows = [
        {heading[place]: value for place, value in row.items() if value is not None} for row in jobs
    ]
    (without_records,) = [row for row in rows if "#" not in row]
    ids = {name: pages.fixture.jobs[name].job_id for name in ("ended", "no-metadata")}
    assert without_records == {"job": ids["no-metadata"], "state": "FAILED"}
    first, second = (row for row in rows if "#" in row)
    assert first.pop("loss") in (1, 101, 201), "of the task that printed first"
    assert first == {
        "#": "01",
        "captured job": "01·three-nodes",
        "job": "4711",
        "state": "COMPLETED",
        "epoch": 1,
        "last loss": "5 (best 1 at 1)",
        "last epoch": "5 (1 to 5)",
    }
    records = printed.ENDED.records
    losses = [record["loss"] for record in records]
    best = losses.index(min(losses))
    assert second == {
        "#": "02",
        "captured job": "02·ended",
        "job": ids["ended"],
        "state": "COMPLETED",
        "epoch": 1,
        "loss": losses[0],
        "val/acc": records[0]["val/acc"],
        "last loss": f"{losses[-1]:.4g} (best {losses[best]:.4g} at {best + 1})",
        "last epoch": "30 (1 to 30)",
        "last val/acc": "0.75 (best)",
    }


def test_chosen_keys_have_a_last_number(pages: Pages) -> None:
    jobs = [pages.fixture.jobs[name].job_id for name in ("ended", "running")]
    page = pages.page(links.COMPARE, {"jobs": jobs, "y": ["loss"]})
    heading, *_ = page.show("Captured jobs: states").rows()
    assert {text for text in heading.values() if text.startswith("last ")} == {"last loss"}


def test_of_one_job_there_is_a_row_too(pages: Pages) -> None:
    job_id = pages.fixture.jobs["configured"].job_id
    page = pages.page(links.COMPARE, {"jobs": [job_id]})
    _, row = page.show("Captured jobs: states").rows()
    assert row == {"0": "01", "1": "01·configured", "2": job_id, "3": "COMPLETED"}
    assert "hidden" not in {text for text, _ in page.variables["y"].options}, "printed once"


# ---- cluster


def test_what_happened_in_the_cluster(pages: Pages) -> None:
    rows = pages.page(links.CLUSTER, {}).show("Late heartbeats").rows()
    events = [(row["job_id"], row["event"]) for row in rows]
    assert [event for job_id, event in events if job_id == "eventful"] == [
        "lines_lost", "heartbeat_found", "heartbeat_lost",
    ]  # fmt: skip
    assert ("4712", "job_ended") in events
    assert [row["time"] for row in rows] == sorted((row["time"] for row in rows), reverse=True)


def test_the_cluster_now(pages: Pages) -> None:
    page = pages.page(
        links.CLUSTER, {}, Range(pages.fixture.today.end_ms - 3_600_000, pages.fixture.today.end_ms)
    )
    numbers = {title: page.show(title).stat() for title in (
        "Captured jobs running", "Captured jobs started", "Nodes with an agent", "Nodes capturing",
    )}  # fmt: skip
    assert numbers["Captured jobs running"] == 1
    assert numbers["Captured jobs started"] == len(KNOWN) - 1  # all but the late one
    assert numbers["Nodes with an agent"] == 6
    assert numbers["Nodes capturing"] == 1
    (wrong,) = page.show("What is wrong").rows()
    assert wrong["words"] == "nothing lost, nothing late, no alert"


def test_ends_by_state(pages: Pages) -> None:
    """Slurm's state replaces the state of its job's captures."""
    frames = pages.page(links.CLUSTER, {}).show("Captured jobs ended per interval").frames
    ends = {frame.fields[1].display_name: sum(frame.fields[1].values) for frame in frames}
    completed = len(KNOWN) - 4  # all but the running one and the other three here
    assert ends == {"TIMEOUT": 1, "FAILED": 1, "KILLED": 1, "COMPLETED": completed}


def test_throughput_has_all_that_ended(pages: Pages) -> None:
    """The series come from real agents. test_cluster_analytics.py tests the analytics of known
    series."""
    page = pages.page(
        links.CLUSTER, {}, Range(pages.fixture.today.end_ms - 3_600_000, pages.fixture.today.end_ms)
    )
    names = [name for name in KNOWN if name not in ("late", "running")]
    (times,) = [row for row in page.show("Run times").rows() if row["what"] == "run time"]
    assert times["jobs"] == len(names) + 1, "one more of the job that was requeued"
    assert 0 < times["least"] <= times["median"] <= times["most"] < 600
    busy = {row["host"]: row["busy"] for row in page.show("Busy share").rows()}
    assert busy.keys() == {"late1", "n1", "n10", "n2", "n4", "slurmctl"}
    assert busy["slurmctl"] == 0 < busy["n1"] <= 1


def test_what_is_printed(pages: Pages) -> None:
    """The agents' counters also include jobs of one second. The page ends with the newest 5 minutes
    of output, which are in the past on a busy machine."""
    printing = 'sum(rate(logshipper_agent_bytes_total{what="printed"}[5m])) > 0'
    newest = f"max_over_time(timestamp({printing})[1h:15s])"  # at the panels' step

    def answer() -> Any:  # Any: JSON
        return pages.fixture.prometheus.get("/api/v1/query", {"query": newest})["result"]

    wait_until(answer, "what was printed is seen by panels")
    end_ms = int(answer()[0]["value"][1]) * 1000
    page = pages.page(links.CLUSTER, {}, Range(end_ms - 3_600_000, end_ms))
    for title, series in (
        ("Lines per second", {"stdout", "stderr"}),
        ("Bytes per second", {"printed", "logged"}),
    ):
        frames = page.show(title).frames
        assert {frame.fields[1].display_name for frame in frames} == series
        assert max(value for frame in frames for value in frame.fields[1].values) > 0, title
    users = page.show("Users whose captured jobs print most").rows()
    assert users[0]["user"] == "root"
    assert all(row["printed"] > 0 for row in users)
    jobs = page.show("Captured jobs that print most").rows()
    assert {row["user"] for row in jobs} <= {"root", USER}
    assert all(row["printed"] > 0 for row in jobs)
    controller = pages.page(links.CLUSTER, {"node": ["slurmctl"]}, page.when)
    assert controller.show("Users whose captured jobs print most").rows() == []


def test_health_of_each_node(pages: Pages) -> None:
    rows = pages.page(links.CLUSTER, {}).show("Capture health").rows()
    assert sorted(row["host"] for row in rows) == ["late1", "n1", "n10", "n2", "n4", "slurmctl"]
    for row in rows:
        assert row["version"]
        assert (row["refused entries"], row["lines lost"], row["left out by limits"]) == (0, 0, 0)
    assert {row["host"]: row["captures"] for row in rows}["n1"] == 1


def test_some_nodes(pages: Pages) -> None:
    page = pages.page(links.CLUSTER, {"node": ["n1"]})
    assert [row["host"] for row in page.show("Capture health").rows()] == ["n1"]
    assert page.show("Nodes with an agent").stat() == 1
