"""The table of reported values, from Loki's answers to its queries."""

import json
from typing import Any

from logshipper_grafana.pages import job_graphs
from tests.grafana.tools.frames import Frame, loki_frame
from tests.grafana.tools.transformations import applied

TRANSFORMATIONS = job_graphs.reported_values()["transformations"]
NUMBERS = ("last", "last_at", "least", "least_at", "largest", "largest_at")


def row(
    minute: int, key: str, *numbers: float, task: int = 0, x: str = "step", text: str = ""
) -> dict[str, Any]:  # Any: JSON
    """Return a row in the format of the queries' template."""
    texts = {"capture": f"4711/1//{task}", "name": key, "key": text or key, "X": x}
    return {"reported at": minute * 60_000, **texts, **dict(zip(NUMBERS, numbers, strict=False))}


def answer(ref: str, *rows: dict[str, Any]) -> Frame:  # Any: JSON
    """Return a frame of rows, newest first."""
    newest_first = sorted(rows, key=lambda one: -one["reported at"])
    return loki_frame(ref, [(one["reported at"], json.dumps(one)) for one in newest_first])


def shown(*frames: Frame) -> list[dict[str, Any]]:  # Any: JSON
    return [line for frame in applied(TRANSFORMATIONS, frames) for line in frame.rows()]


def cells(key: str, *numbers: str, x: str = "step") -> dict[str, str]:
    names = (name.replace("_", " ") for name in NUMBERS)
    return {"key": key, **dict(zip(names, numbers, strict=False)), "X": x}


def test_the_newest_report_of_each_key_is_shown() -> None:
    running = answer(
        "A",
        row(1, "loss", 2, 10, 2, 10, 3, 1),
        row(2, "loss", 1.5, 20, 1.5, 20, 3, 1),
        row(1, "old", 7, 1, 7, 1, 7, 1),
    )
    assert shown(running, answer("B")) == [
        cells("loss", "1.5", "20", "1.5", "20", "3", "1"),
        cells("old", "7", "1", "7", "1", "7", "1"),
    ]


def test_what_the_end_reports_counts_most() -> None:
    running = answer("A", row(5, "loss", 2, 10, 2, 10, 3, 1), row(4, "loss", 9, 9, 9, 9, 9, 9))
    over = answer("B", row(5, "loss", 1, 20, 0.5, 15, 3, 1))
    assert shown(running, over) == [cells("loss", "1", "20", "0.5", "15", "3", "1")]
    assert shown(answer("A"), over) == shown(running, over)


def test_each_task_has_a_row_of_its_own() -> None:
    tasks = [
        row(1, "loss", task, 10, 2, 10, 3, 1, task=task, text=f"loss · task {task}")
        for task in (0, 1)
    ]
    assert [line["key"] for line in shown(answer("A", tasks[0]), answer("B", tasks[1]))] == [
        "loss · task 0",
        "loss · task 1",
    ]


def test_keys_that_are_left_out_are_the_last_row() -> None:
    rows = shown(
        answer("A"),
        answer(
            "B",
            row(1, "", text="… 7 more keys", x=""),
            row(1, "loss", 2, 10, 2, 10, 3, 1),
            row(1, "ünder", 2, 10, 2, 10, 3, 1),
        ),
    )
    assert [line["key"] for line in rows] == ["loss", "ünder", "… 7 more keys"]


def test_without_reports_there_is_no_row() -> None:
    assert shown(answer("A"), answer("B")) == []
    assert job_graphs.reported_values()["fieldConfig"]["defaults"]["noValue"].startswith(
        "no values"
    )
