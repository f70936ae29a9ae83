"""Run times, gantt, gaps, busy shares, efficiency and the text chart of tasks: cases calculated by
hand, and tasks with incomplete or impossible reports."""

import math

import pytest

from logshipper_observe.analytics.task_analytics import (
    Span,
    Task,
    busy_share,
    by_node,
    clipped,
    efficiency,
    gantt,
    gaps,
    launch_overheads,
    left_out_note,
    overhead_report,
    queue_waits,
    run_times,
    statistics_of,
)
from logshipper_observe.base.output import Output
from logshipper_observe.graphs.gantt_chart import GanttChart

A0, A1, B0 = ("a", "0"), ("a", "1"), ("b", "0")
TASKS = [  # the third needs both nodes: a's core waits for b's from 4 to 6
    Task("first", 0, 4, {"a": ["0"]}),
    Task("second", 0, 6, {"b": ["0"]}),
    Task("third", 7, 10, {"a": ["0"], "b": ["0"]}),
    Task("fourth", 2, 3, {"a": ["1"]}),
]
ODD = [
    Task("back", 10, 5, {"a": ["0"]}, 9, 10, 5),  # its clock went back
    Task("no number", math.nan, 5, {"a": ["0"]}, math.nan, math.nan, 5),
    Task("for ever", 0, math.inf, {"a": ["0"]}, 0, 0, math.inf),
    Task("since ever", -math.inf, 1, {"a": ["0"]}, 0, 0, 1),
    Task("nowhere", 0, 1),
    Task("waits"),
]


def test_gantt_gaps_and_shares_by_core() -> None:
    assert gantt(TASKS) == [
        Span(A0, 0, 4, "first"), Span(A0, 7, 10, "third"), Span(A1, 2, 3, "fourth"),
        Span(B0, 0, 6, "second"), Span(B0, 7, 10, "third"),
    ]  # fmt: skip
    assert gaps(TASKS) == [Span(A0, 4, 7), Span(A1, 0, 2), Span(A1, 3, 10), Span(B0, 6, 7)]
    assert busy_share(TASKS) == (["a:0", "a:1", "b:0"], [0.7, 0.1, 0.9])
    assert efficiency(TASKS) == (["a:0", "a:1", "b:0"], [0.9, 0.8, 0.9])


def test_by_node() -> None:
    assert busy_share(by_node(TASKS)) == (["a", "b"], [0.7, 0.9])
    assert [span.place for span in gaps(by_node(TASKS))] == [("a", ""), ("b", "")]


def test_between_two_times() -> None:
    tasks = list(clipped([*TASKS, *ODD], 3.5, 8))
    assert [(task.name, task.start, task.end) for task in tasks[:3]] == [
        ("first", 3.5, 4), ("second", 3.5, 6), ("third", 7, 8)
    ]  # fmt: skip
    assert [task.name for task in tasks[3:]] == [
        "back",
        "no number",
        "for ever",
        "since ever",
        "waits",
    ]
    assert list(clipped(TASKS, None, None)) == TASKS


def test_what_is_no_time_is_left_out_and_nothing_else_suffers() -> None:
    assert gantt([*TASKS, *ODD]) == gantt(TASKS)
    assert busy_share([*TASKS, *ODD]) == busy_share(TASKS)
    assert efficiency([*TASKS, *ODD]) == efficiency(TASKS)
    assert run_times([*TASKS, *ODD])[1] == [4, 6, 3, 1, 1]
    assert left_out_note([*TASKS, *ODD]) == ["6 runs left out: it isn't known where or when"]
    overheads = launch_overheads([*ODD, Task("good", 2, 6, {}, 0, 1, 6.5)])
    assert (overheads.tasks, overheads.share) == (1, 0.375)
    assert overheads.start is not None
    assert overheads.start.mean == 1
    assert overheads.launch is not None
    assert (overheads.launch.number, overheads.launch.mean) == (4, 0.5)
    assert overhead_report(ODD) == ([], [])
    assert statistics_of([math.nan, math.inf]) is None


def test_waits_in_the_queue() -> None:
    """A wait ends when the task gets cores or, without that time, at its launch."""
    tasks = [
        Task("slurm", 11, 20, queued=3, launched=10),
        Task("qcg", 11, 20, queued=3, scheduled=8, launched=10),
        Task("at once", 11, 20, queued=10, launched=10),
        Task("back", 11, 20, queued=12, launched=10),
        Task("nobody told", 11, 20, launched=10),
        Task("never began", queued=3),
    ]
    assert queue_waits(tasks) == (["slurm", "qcg", "at once"], [7, 5, 0])


def test_a_core_that_is_told_twice_is_one() -> None:
    (span,) = gantt([Task("a", 0, 1, {"n": ["1", "1"]})])
    assert span == Span(("n", "1"), 0, 1, "a")


@pytest.mark.parametrize(
    ("columns", "course"), [("60", "##############+.....x########"), ("30", "##########....######")]
)
def test_a_chart_of_characters(
    columns: str, course: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    tasks = [Task("x", 1000, 1005, {"n": ()}), Task("y", 1007, 1010, {"n": ()})]
    out = Output()
    out.unicode = False
    GanttChart(gantt(tasks), gaps(tasks), {"n": 0.8}).print(out)
    head, row, note = capsys.readouterr().out.splitlines()
    assert head.split() == ["on", "runs", "busy", "gaps", "longest", "course"]
    assert row.split()[:-1] == ["n", "2", "80", "%", "1", "2.00s"]
    assert row.split()[-1] == course
    assert note.startswith("course: from 1970-01-01T")


def test_what_is_short_is_seen_in_the_chart_and_so_is_no_time_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tasks = [
        Task("x", 0, 0, {"n": ()}),
        Task("y", 500, 500.001, {"n": ()}),
        Task("z", 1000, 1000, {"n": ()}),
    ]
    out = Output()
    out.unicode = False
    GanttChart(gantt(tasks), gaps(tasks), {"n": 0.0}).print(out)
    course = capsys.readouterr().out.splitlines()[1].split()[-1]
    assert (course[0], course[-1], course.count("-"), set(course)) == ("-", "-", 3, {"-", "."})
    first_task = tasks[:1]
    GanttChart(gantt(first_task), gaps(first_task), {"n": 0.0}).print(out)
    assert capsys.readouterr().out.splitlines()[1].split()[-1].startswith("-")
