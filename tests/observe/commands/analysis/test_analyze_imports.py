"""Analytics of imported jobs: a real run of QCG-PilotJob, compared with its own report, and
Balsam's exports."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import logshipper
from logshipper.start.cli import main
from logshipper_observe.analytics.batch_jobs import NO_ALLOCATION
from logshipper_observe.analytics.job_tasks import tasks_of_jobs
from logshipper_observe.analytics.task_analytics import Task, gantt, launch_overheads, statistics_of
from tests.observe.analytics.test_analytics_oracles import (
    bars,
    is_same,
    oracle_answers,
    same_statistics,
)
from tests.tools.stores.import_tools import RECORDED
from tests.tools.tools_of_others import needs_program_of_others

RAN = {"SUCCEED", "FAILED"}  # QCG's own reader fails at other end states


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGSHIPPER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def qcg(store: Path) -> Iterator[list[Task]]:
    assert main(["import", "qcg", str(RECORDED / "qcg"), "--timezone", "UTC"]) == 0
    with logshipper.Store.local(store) as local_store:
        yield list(tasks_of_jobs(local_store))


def report() -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (RECORDED / "qcg" / "jobs.report").read_text().splitlines()
    ]


def test_all_tasks_are_there_and_those_that_never_ran_stop_nothing(qcg: list[Task]) -> None:
    assert {task.name for task in qcg} == {entry["name"] for entry in report()} - {"sweep"}, (
        "its iterations are tasks"
    )
    tasks = {task.name: task for task in qcg}
    assert (tasks["never"].start, tasks["never"].run_time, tasks["never"].cores) == (None, None, {})
    assert tasks["long"].run_time == pytest.approx(0.111956)
    assert tasks["bad"].cores == {"node1": ["0", "1"]}


@needs_program_of_others
def test_they_are_as_qcgs_own_report_has_them(qcg: list[Task]) -> None:
    (answer,) = oracle_answers(
        "qcg", [{"report": [entry for entry in report() if entry["state"] in RAN], "rtimes": {}}]
    )
    names = {entry["name"] for entry in report() if entry["state"] in RAN}
    tasks = [task for task in qcg if task.name in names]
    assert same_statistics(statistics_of(task.run_time for task in tasks if task.run_time is not None),
                           answer["run_times"])  # fmt: skip
    assert same_statistics(launch_overheads(tasks).launch, answer["launch"])
    chart_rows = [
        (core, moment(start), moment(end), name.removeprefix("qcg-"))
        for core, start, end, name in bars(gantt(tasks))
    ]
    assert chart_rows == [tuple(bar) for bar in answer["gantt_as_told"]]


def moment(secs: float) -> str:
    """Return a time as QCG-PilotJob prints it."""
    return str(datetime.fromtimestamp(round(secs, 6), UTC).replace(tzinfo=None))


def test_the_command_has_cores_and_launch_times(
    qcg: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["analyze", "overheads", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["runs"] == 11
    waits = answer["statistics"]["waited_in_the_queue"]
    assert (waits["number"], waits["min"], waits["max"]) == pytest.approx(qcg_waits(), abs=1e-6)
    assert answer["statistics"]["given_nodes_to_launched"]["number"] == 10
    assert [row["core"] for row in answer["cores"]] == ["node1:0", "node1:1", "node2:0", "node2:1"]
    assert all(0 < row["busy"] <= row["efficiency"] <= 1 for row in answer["cores"])
    assert main(["analyze", "overheads"]) == 0
    assert "4 cores busy" in capsys.readouterr().out


def qcg_waits() -> tuple[int, float, float]:
    """Return the number of waiting tasks, and the shortest and longest wait for cores, by QCG's own
    report."""
    waits = []
    for entry in report():
        at = {row["state"]: datetime.fromisoformat(row["date"]) for row in entry["history"]}
        if at.keys() >= {"QUEUED", "SCHEDULED", "EXECUTING"}:
            waits.append((at["SCHEDULED"] - at["QUEUED"]).total_seconds())
    return len(waits), min(waits), max(waits)


@pytest.fixture
def balsam(store: Path) -> list[dict[str, Any]]:
    """Import Balsam's events; return them as its API does."""
    assert main(["import", "balsam", str(RECORDED / "balsam")]) == 0
    events: list[dict[str, Any]] = json.loads((RECORDED / "balsam" / "events.json").read_text())[
        "results"
    ]
    return events


def secs(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@needs_program_of_others
def test_reports_of_imported_events_are_as_balsams_own(balsam: list[dict[str, Any]]) -> None:
    events = [
        [row["job_id"], secs(row["timestamp"]), row["from_state"], row["to_state"], row["data"]]
        for row in balsam
    ]
    states = [
        "JOB_FINISHED",
        "RUN_DONE",
        "POSTPROCESSED",
        "RUNNING",
        "RESTART_READY",
        "RUN_ERROR",
        "RUN_TIMEOUT",
    ]
    cases: list[dict[str, Any]] = [
        {"ask": "throughput", "events": events, "to_state": state} for state in states
    ]
    cases += [{"ask": ask, "events": events} for ask in ("utilization", "jobs")]
    query = logshipper.EventLog.objects.filter()
    for case, answer in zip(cases, oracle_answers("balsam", cases), strict=True):
        if case["ask"] == "throughput":
            event_report: logshipper.Report[datetime, Any] = logshipper.throughput_report(
                query, to_state=case["to_state"]
            )
        else:
            event_report = logshipper.utilization_report(
                query, node_weighting=case["ask"] == "utilization"
            )
        assert answer[0], case
        assert is_same(event_report, answer), case
    job_report = logshipper.utilization_report(
        logshipper.EventLog.objects.filter(tags={"experiment": "foo", "n": "102"})
    )
    assert job_report[1] == [0.125, 0], "one of eight on its node"


def test_waits_of_balsams_jobs_are_from_their_first_state_or_their_last_run_to_the_next(
    balsam: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    durations: list[float] = []
    wait_starts: dict[int, float | None] = {}
    for event in sorted(balsam, key=lambda event: str(event["timestamp"])):
        job, time = event["job_id"], secs(event["timestamp"])
        since = wait_starts.setdefault(job, time)
        if event["to_state"] == "RUNNING" and since is not None:
            durations.append(time - since)
            wait_starts[job] = None
        elif event["to_state"] == "RESTART_READY":
            wait_starts[job] = time
    capsys.readouterr()
    assert main(["analyze", "overheads", "--json"]) == 0
    waits = json.loads(capsys.readouterr().out)["statistics"]["waited_in_the_queue"]
    assert (waits["number"], waits["min"], waits["max"], waits["mean"]) == pytest.approx(
        (len(durations), min(durations), max(durations), sum(durations) / len(durations)), abs=1e-3
    )


def test_allocations_of_balsam(
    balsam: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """One allocation has ended, one runs, one waits."""
    allocations = logshipper.BatchJob.objects.filter(filter_tags={"experiment": "foo"}).order_by(
        "start_time"
    )
    assert [(job.scheduler_id, job.num_nodes, job.is_running) for job in allocations] == [
        ("456", 8, False), ("457", 4, True), ("", 2, False)
    ]  # fmt: skip
    times, nodes = logshipper.available_nodes(allocations)
    assert [time.strftime("%H:%M") for time in times] == ["09:30", "10:00", "10:30"]
    assert nodes == [8, 12, 4]
    assert logshipper.BatchJob.objects.filter(scheduler_id=456)[0].state == "COMPLETED"
    assert logshipper.BatchJob.objects.filter(filter_tags={"experiment": "bar"}).count() == 0
    capsys.readouterr()
    until = ["--before", "2026-05-04T09:40:00Z"]
    assert main(["analyze", "nodes", "--json", *until]) == 0
    answer = json.loads(capsys.readouterr().out)
    # 8 from 9:30 on; of these, 101 has 2 for 7.101 s, 104 has 4 for 7.104 s twice, 102 and 103 have
    # an eighth for 56.102 s and 56.103 s, 105 has one for the last 324.475 s: 409.535 / 564.495
    assert answer["title"] == (
        "Nodes of imported jobs: 8 at most, 8 on average in 10m00s; "
        "that ran one: 4 at most, 0.7255 on average in 9m24s"
    )


def test_the_allocation_of_a_job_is_the_one_that_it_ran_in(
    balsam: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    jobs = {job.job_id: job.summary.allocation for job in logshipper.Store.default().jobs()}
    for job_id in ("balsam-102", "balsam-103"):
        assert main(["allocations", job_id, "--history", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)["allocations"]
        assert [allocation["id"] for allocation in answer] == [jobs[job_id]] != [""]
    until = ["--before", "2026-05-04T09:40:00Z"]
    assert main(["analyze", "nodes", "balsam-102", "balsam-103", "--json", *until]) == 0
    answer = json.loads(capsys.readouterr().out)
    available, in_use = answer["series"]
    assert (available["name"], available["y"]) == ("available", [8, 8])
    assert (in_use["name"], max(in_use["y"])) == ("in use", 0.125)
    assert answer["title"].startswith("Nodes of imported jobs: 8 at most, 8 on average in 10m00s; ")


def test_where_no_allocation_is_known_that_is_said(
    qcg: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    """A manager's files list the cores of each task, but not those of its allocation."""
    capsys.readouterr()
    assert main(["analyze", "nodes", "qcg-long", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["notes"] == [NO_ALLOCATION]
    assert answer["title"].startswith("Nodes of imported jobs: not known; that ran one: 1 at most")
    assert main(["allocations", "qcg-long", "--history"]) == 0
    assert capsys.readouterr().err == f"logshipper: {NO_ALLOCATION}\n"


def test_iterations_count_and_their_parent_does_not(
    qcg: list[Task], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["analyze", "throughput", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    successes = [entry for entry in report() if entry["state"] == "SUCCEED"]
    assert answer["title"].startswith(f"Imported jobs that became COMPLETED: {len(successes)}")
    end_dates = sorted(entry["history"][-1]["date"] for entry in successes)
    assert [x[:26] for x in answer["series"][0]["x"]] == end_dates
    assert main(["analyze", "utilization", "--no-node-weighting", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["series"][0]["x"]) == 2 * sum(entry["runtime"] != {} for entry in report())
    assert answer["series"][0]["y"][-1] == 0
