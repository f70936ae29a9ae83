"""The table of compared jobs, from Loki's answers to its queries."""

import json
from typing import Any

from logshipper_grafana.pages import compare
from logshipper_grafana.parts.values import JOB_ID
from tests.grafana.tools.frames import NUMBER, STRING, Field, Frame, loki_frame
from tests.grafana.tools.transformations import applied

TRANSFORMATIONS = next(
    panel["transformations"]
    for panel in compare.dashboard()["panels"]
    if panel["title"].startswith("Captured jobs: states")
)
Json = dict[str, Any]  # Any: JSON


def answer(ref: str, *lines: Json) -> Frame:
    """Return a frame of lines, newest first. `minute` is a line's time."""
    rows = [(60_000 * int(line.pop("minute")), json.dumps(line)) for line in lines]
    return loki_frame(ref, sorted(rows, key=lambda row: -row[0]))


def record(minute: int, job: str, **values: object) -> Json:
    begin = {"#": f"0{job}", "captured job": f"0{job}·job{job}"}
    return {"minute": minute, JOB_ID: job, "key": " ", "row": {**begin, **values}}


def report(minute: int, job: str, key: str, text: str, attempt: int = 1, task: int = 0) -> Json:
    row = record(minute, job, **{f"last {key}": text})
    return {**row, "key": key, "attempt": attempt, "task": task, "reported at": minute * 60_000}


def states(**by_job: str) -> Frame:
    columns = {
        JOB_ID: [name.removeprefix("job") for name in by_job],
        "key": ["state"] * len(by_job),
        "row": [json.dumps({"lsstate": state}) for state in by_job.values()],
    }
    fields = [Field(name, STRING, values) for name, values in columns.items()]
    fields.append(Field("Value #D", NUMBER, [1.0] * len(by_job)))
    return Frame(tuple(fields), len(by_job), "D")


def shown(running: list[Json], over: list[Json], *records: Json, **by_job: str) -> list[Json]:
    frames = [answer("C", *records), answer("A", *running), answer("B", *over), states(**by_job)]
    heading, *rows = (line for frame in applied(TRANSFORMATIONS, frames) for line in frame.rows())
    return [
        {str(heading[place]): value for place, value in row.items() if value is not None}
        for row in rows
    ]


def test_what_a_capture_reported_while_it_ran_and_at_its_end_is_one_row() -> None:
    rows = shown(
        [report(2, "1", "loss", "3"), report(3, "1", "loss", "2"), report(3, "2", "loss", "9")],
        [report(4, "1", "loss", "1"), report(4, "1", "acc", "0.5")],
        record(1, "1", lr=0.1),
        record(1, "2", lr=0.2),
    )
    assert rows == [
        {
            "#": "01",
            "captured job": "01·job1",
            "job": "1",
            "lr": 0.1,
            "last acc": "0.5",
            "last loss": "1",
        },
        {"#": "02", "captured job": "02·job2", "job": "2", "lr": 0.2, "last loss": "9"},
    ]


def test_the_first_record_counts_and_the_newest_attempts_lowest_task() -> None:
    (row,) = shown(
        [report(5, "1", "loss", "running", attempt=1, task=0)],
        [
            report(3, "1", "loss", "second", attempt=2, task=1),
            report(2, "1", "loss", "first", attempt=2, task=0),
        ],
        record(1, "1", lr=0.1, late=1),
        record(2, "1", lr=0.3),
    )
    assert row == {"#": "01", "captured job": "01·job1", "job": "1"}, (
        "what all have the same of is left out"
    )
    rows = shown(
        [report(5, "1", "loss", "running", attempt=1, task=0)],
        [
            report(3, "1", "loss", "second", attempt=2, task=1),
            report(2, "1", "loss", "first", attempt=2, task=0),
        ],
        record(1, "1", lr=0.1),
        record(2, "1", lr=0.3),
        record(2, "2", lr=0.2),
    )
    assert rows[0] == {
        "#": "01",
        "captured job": "01·job1",
        "job": "1",
        "lr": 0.1,
        "last loss": "first",
    }


def test_without_reports_there_are_the_first_records() -> None:
    rows = shown([], [], record(1, "2", lr=0.2), record(1, "1", lr=0.1))
    assert [row["lr"] for row in rows] == [0.1, 0.2]


def test_each_job_has_its_id_and_state() -> None:
    """Also a job without records. A program's own key `state` stays a column of its own."""
    rows = shown(
        [], [], record(1, "1", state="x"), record(1, "2", state="y"),
        job1="COMPLETED", job2="KILLED", job3="FAILED",
    )  # fmt: skip
    assert [(row["job"], row.get("#")) for row in rows if "#" in row] == [("1", "01"), ("2", "02")]
    frames = [
        answer("C", record(1, "1")),
        answer("A"),
        answer("B"),
        states(job1="OK", job3="FAILED"),
    ]
    heading, *lines = (line for frame in applied(TRANSFORMATIONS, frames) for line in frame.rows())
    assert list(heading.values()) == ["#", "captured job", "job", "state"]
    assert {(line["2"], line["3"]) for line in lines} == {("1", "OK"), ("3", "FAILED")}
