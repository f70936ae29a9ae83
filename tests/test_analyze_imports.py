"""Analytics of what was imported: of a real run of QCG-PilotJob, beside its own report, and of Balsam's exports."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import observe
from logshipper.cli import main
from observe.job_tasks import tasks_of_jobs
from observe.task_analytics import Task, gantt, launch_overheads, statistics_of
from tests.import_tools import RECORDED
from tests.test_analytics_oracles import asked_of, bars, same_statistics

RAN = {"SUCCEED", "FAILED"}  # QCG's own reader stops at other ends


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOGSHIPPER_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def qcg(store: Path) -> Iterator[list[Task]]:
    assert main(["import", "qcg", str(RECORDED / "qcg"), "--timezone", "UTC"]) == 0
    with observe.Store.local(store) as opened:
        yield list(tasks_of_jobs(opened))


def report() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / "qcg" / "jobs.report").read_text().splitlines()]


def test_all_tasks_are_there_and_those_that_never_ran_stop_nothing(qcg: list[Task]) -> None:
    assert {task.name for task in qcg} == {entry["name"] for entry in report()} - {"sweep"}, "its iterations are tasks"
    found = {task.name: task for task in qcg}
    assert (found["never"].start, found["never"].run_time, found["never"].cores) == (None, None, {})
    assert found["long"].run_time == pytest.approx(0.111956)
    assert found["bad"].cores == {"node1": ["0", "1"]}


def test_they_are_as_qcgs_own_report_has_them(qcg: list[Task]) -> None:
    (theirs,) = asked_of("qcg", [{"report": [one for one in report() if one["state"] in RAN], "rtimes": {}}])
    names = {entry["name"] for entry in report() if entry["state"] in RAN}
    tasks = [task for task in qcg if task.name in names]
    assert same_statistics(statistics_of(task.run_time for task in tasks if task.run_time is not None),
                           theirs["run_times"])  # fmt: skip
    assert same_statistics(launch_overheads(tasks).launch, theirs["launch"])
    ours = [
        (core, moment(start), moment(end), name.removeprefix("qcg-")) for core, start, end, name in bars(gantt(tasks))
    ]
    assert ours == [tuple(bar) for bar in theirs["gantt_as_told"]]


def moment(secs: float) -> str:
    """As QCG-PilotJob prints it."""
    return str(datetime.fromtimestamp(round(secs, 6), UTC).replace(tzinfo=None))


def test_the_command_has_cores_and_launch_times(qcg: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["analyze", "overheads", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 11
    assert found["statistics"]["given_nodes_to_launched"]["number"] == 10
    assert [one["core"] for one in found["cores"]] == ["node1:0", "node1:1", "node2:0", "node2:1"]
    assert all(0 < one["busy"] <= one["efficiency"] <= 1 for one in found["cores"])
    assert main(["analyze", "overheads"]) == 0
    assert "4 cores busy" in capsys.readouterr().out


def test_allocations_of_balsam(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "balsam", str(RECORDED / "balsam")]) == 0
    times, nodes = observe.available_nodes(observe.BatchJob.objects.all())
    assert times == sorted(times)
    assert nodes[-1] == sum(one.num_nodes or 1 for one in observe.BatchJob.objects.filter(state="running"))


def test_iterations_count_and_their_parent_does_not(qcg: list[Task], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["analyze", "throughput", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    succeeded = [entry for entry in report() if entry["state"] == "SUCCEED"]
    assert found["title"].startswith(f"Imported jobs that became COMPLETED: {len(succeeded)}")
    ended = sorted(entry["history"][-1]["date"] for entry in succeeded)
    assert [x[:26] for x in found["series"][0]["x"]] == ended
    assert main(["analyze", "utilization", "--no-node-weighting", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["series"][0]["x"]) == 2 * sum(entry["runtime"] != {} for entry in report())
    assert found["series"][0]["y"][-1] == 0
