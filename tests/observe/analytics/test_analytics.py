"""Throughput, utilization and available nodes: cases calculated by hand, and properties for any
events."""

import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper_observe.analytics.analytics import (
    Report,
    available_nodes,
    throughput_report,
    utilization_report,
)

T0 = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


class Event(NamedTuple):
    job_id: str
    timestamp: datetime
    from_state: str
    to_state: str
    data: Mapping[str, Any] = {}


class Allocation(NamedTuple):
    start_time: datetime | None
    end_time: datetime | None
    num_nodes: object = 1


def at(secs: float) -> datetime:
    return T0 + timedelta(seconds=secs)


def run(
    job: str, begin: float, end: float | None = None, state: str = "COMPLETED", **data: object
) -> list[Event]:
    """Return the events of a job's run."""
    events = [Event(job, at(begin), "QUEUED", "RUNNING", data)]
    return events if end is None else [*events, Event(job, at(end), "RUNNING", state)]


def seconds(xs: list[datetime]) -> list[float]:
    return [(x - T0).total_seconds() for x in xs]


# ---- throughput


def test_throughput_counts_the_ends_of_a_state() -> None:
    events = [*run("b", 1, 30), *run("a", 0, 10), *run("c", 2, 20, "FAILED"), *run("d", 3)]
    times, counts = throughput_report(events)
    assert (seconds(times), counts) == ([10, 30], [1, 2])
    times, counts = throughput_report(events, to_state="failed")
    assert (seconds(times), counts) == ([20], [1])
    times, counts = throughput_report(events, to_state="RUNNING")
    assert (seconds(times), counts) == ([0, 1, 2, 3], [1, 2, 3, 4])


def test_balsams_failed_comes_after_its_run_error_and_is_not_it() -> None:
    """A failed run can start again; a job in FAILED can't. The test uses Balsam's names and their
    imported form."""
    changes = [("RUNNING", "RUN_ERROR"), ("RUN_ERROR", "RESTART_READY"), ("RESTART_READY", "RUNNING"),
            ("RUNNING", "RUN_ERROR"), ("RUN_ERROR", "FAILED")]  # fmt: skip
    balsam_events = [
        Event("a", at(secs), before, after) for secs, (before, after) in enumerate(changes)
    ]
    imported_events = [
        Event("a", event.timestamp, "FAILED" if before == "RUN_ERROR" else "RUNNING",
              "FAILED" if after in ("RUN_ERROR", "FAILED") else after, {"source_from": before, "source_to": after})
        for event, (before, after) in zip(balsam_events, changes, strict=True)
    ]  # fmt: skip
    for events in (balsam_events, imported_events):
        assert seconds(throughput_report(events, to_state="RUN_ERROR")[0]) == [0, 3]
        assert seconds(throughput_report(events, to_state="failed")[0]) == [4]
    capture_events = [Event("b", at(1), "UNRESPONSIVE", "FAILED")]
    assert [
        throughput_report(capture_events, to_state=state)[1] for state in ("FAILED", "RUN_ERROR")
    ] == [[1], [1]]


def test_nothing_gives_nothing() -> None:
    reports: list[Report[datetime, Any]] = [
        throughput_report([]),
        utilization_report([]),
        available_nodes([]),
    ]
    for report in reports:
        assert tuple(report) == ([], [])
        assert report.notes == []


def test_names_of_states_that_are_one_here_are_told_apart_where_events_have_them() -> None:
    balsam = ["PREPROCESSED", "RUNNING", "RUN_DONE", "POSTPROCESSED", "STAGED_OUT", "JOB_FINISHED"]
    events = [Event("1", at(n), *pair) for n, pair in enumerate(pairwise(balsam))]
    for state, time in {"RUN_DONE": 1, "POSTPROCESSED": 2, "JOB_FINISHED": 4}.items():
        assert seconds(throughput_report(events, to_state=state)[0]) == [time]
    assert seconds(throughput_report(run("1", 0, 7), to_state="RUN_DONE")[0]) == [
        7
    ]  # a captured run
    for state in ("COMPLETED", "RUN_DONE", "FAILED"):
        assert throughput_report([Event("1", T0, state, state)], to_state=state) == ([], []), (
            "no change"
        )


def test_times_without_a_zone_are_utc_and_others_are_compared_as_what_they_are() -> None:
    east = timezone(timedelta(hours=2))
    events = [
        Event("1", datetime(2026, 5, 1, 12, 0, 5), "RUNNING", "RUN_DONE"),
        Event("2", datetime(2026, 5, 1, 14, 0, 3, tzinfo=east), "RUNNING", "RUN_DONE"),
    ]
    times, _ = throughput_report(events, to_state="RUN_DONE")
    assert seconds(times) == [3, 5]
    assert {time.tzinfo for time in times} == {UTC}


# ---- utilization


def test_utilization_is_the_sum_of_running_jobs_nodes() -> None:
    events = [
        *run("a", 0, 10, num_nodes=4),
        *run("b", 5, 20, num_nodes=2),
        *run("c", 8, num_nodes=1),
    ]
    times, nodes = utilization_report(events)
    assert (seconds(times), nodes) == ([0, 5, 8, 10, 20], [4, 6, 7, 3, 1])
    times, jobs = utilization_report(events, node_weighting=False)
    assert (seconds(times), jobs) == ([0, 5, 8, 10, 20], [1, 2, 3, 2, 1])


def test_at_equal_times_ends_come_before_starts() -> None:
    events = [*run("b", 10, 20), *run("c", 10, 20), *run("a", 0, 10), *run("d", 0, 10)]
    times, jobs = utilization_report(events)
    assert (seconds(times), jobs) == ([0, 0, 10, 10, 10, 10, 20, 20], [1, 2, 1, 0, 1, 2, 1, 0])


def test_jobs_that_share_a_node_are_parts_of_it() -> None:
    eight = [
        event for n in range(8) for event in run(str(n), n, 100, num_nodes=1, node_packing_count=8)
    ]
    _, nodes = utilization_report(eight)
    assert nodes[7] == 1.0  # 8/8
    three = [
        event for n in range(3) for event in run(str(n), n, 100 + n, num_nodes=1 / 3)
    ]  # as Balsam writes them
    assert utilization_report(three)[1] == [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3, 0]


@pytest.mark.parametrize("nodes", [None, 0, -1, math.nan, math.inf, "4", True, [2], 10**400])
def test_a_node_count_that_is_none_counts_as_one(
    nodes: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "logshipper.analytics"):
        report = utilization_report(run("a", 0, 10, num_nodes=nodes))
    assert report[1] == [1, 0]
    assert (
        report.notes
        == caplog.messages
        == ["of 1 job the number of nodes isn't known: each counts as 1"]
    )
    assert utilization_report(run("a", 0, 10), node_weighting=False).notes == []
    assert available_nodes([Allocation(T0, None, nodes)])[1] == [1]


def test_an_end_without_a_start_is_left_out_and_said() -> None:
    lone_ends = [Event("x", at(3), "RUNNING", "FAILED"), Event("a", at(-5), "RUNNING", "TIMEOUT")]
    report = utilization_report([*run("a", 0, 10, num_nodes=2), *lone_ends])
    assert (seconds(report[0]), report[1]) == ([0, 10], [2, 0])
    assert report.notes == ["2 ends without a start left out"]


def test_restarts_weigh_what_each_of_them_had() -> None:
    events = [
        *run("a", 0, 10, "REQUEUED", num_nodes=4),
        Event("a", at(10), "REQUEUED", "RUNNING", {"num_nodes": 2}),
        Event("a", at(30), "RUNNING", "COMPLETED"),
    ]
    times, nodes = utilization_report(events)
    assert (seconds(times), nodes) == ([0, 10, 10, 30], [4, 0, 2, 0])


def test_a_job_without_a_sign_of_life_still_has_its_nodes() -> None:
    events = [
        *run("a", 0, num_nodes=2),
        Event("a", at(30), "RUNNING", "UNRESPONSIVE"),
        Event("a", at(40), "UNRESPONSIVE", "RUNNING"),
        Event("a", at(70), "RUNNING", "UNRESPONSIVE"),
        Event("a", at(90), "UNRESPONSIVE", "NODE_FAIL"),
    ]
    times, nodes = utilization_report(events)
    assert (seconds(times), nodes) == ([0, 90], [2, 0])


def test_the_same_id_on_two_clusters_is_two_jobs() -> None:
    class OfCluster(NamedTuple):
        cluster: str
        job_id: str
        timestamp: datetime
        from_state: str
        to_state: str
        data: Mapping[str, Any]

    events = [
        OfCluster("alpha", "7", at(0), "QUEUED", "RUNNING", {"num_nodes": 8}),
        OfCluster("beta", "7", at(1), "QUEUED", "RUNNING", {"num_nodes": 1}),
        OfCluster("alpha", "7", at(2), "RUNNING", "COMPLETED", {}),
    ]
    assert utilization_report(events)[1] == [8, 9, 1]


# ---- available nodes


def test_available_nodes_are_those_of_allocations_that_run() -> None:
    allocations = [
        Allocation(at(0), at(10), 4),
        Allocation(at(10), at(30), 2),
        Allocation(at(5), None, 1),  # runs
        Allocation(None, None, 64),  # waits
    ]
    times, nodes = available_nodes(allocations)
    assert (seconds(times), nodes) == ([0, 5, 10, 10, 30], [4, 5, 1, 3, 1])


def test_an_allocation_that_ended_without_a_start_is_left_out_and_said() -> None:
    report = available_nodes([Allocation(None, at(5), 2), Allocation(at(5), at(1), 3)])
    assert (seconds(report[0]), report[1]) == ([5, 5], [-3, 0])  # one that never ran has no width
    assert report.notes == ["1 end without a start left out"]


# ---- properties for any events

JOBS = st.sampled_from("abcde")
SECS = st.integers(0, 30)
NODES = st.sampled_from([None, 1, 2, 16, 0.5, 1 / 3])
RUNS = st.lists(st.tuples(JOBS, SECS, st.one_of(st.none(), st.integers(1, 20)), NODES), max_size=12)


def events_of(runs: list[tuple[str, int, int | None, object]]) -> list[Event]:
    """Return the events of runs, each by a job of its own; some still run."""
    events: list[Event] = []
    for number, (job, begin, secs, nodes) in enumerate(runs):
        end = None if secs is None else begin + secs
        data = {} if nodes is None else {"num_nodes": nodes}
        events += run(f"{job}{number}", begin, end, "COMPLETED", **data)
    return events


@given(RUNS, st.randoms(use_true_random=False))
def test_utilization_is_never_negative_and_ends_with_what_still_runs(
    runs: list[tuple[str, int, int | None, Any]], random: Any
) -> None:
    events = events_of(runs)
    random.shuffle(events)
    times, nodes = utilization_report(events)
    assert len(times) == len(nodes) == len(events)
    assert times == sorted(times)
    assert min(nodes, default=0) >= 0
    last_weight = sum(weight or 1 for _, _, secs, weight in runs if secs is None)
    assert math.isclose(nodes[-1] if nodes else 0, last_weight, abs_tol=1e-9)
    for time in set(times):  # after all events of a moment: exactly the running jobs
        after = nodes[len(times) - 1 - times[::-1].index(time)]
        now = (time - T0).total_seconds()
        weight_now = sum(
            w or 1
            for _, begin, secs, w in runs
            if begin <= now and (secs is None or now < begin + secs)
        )
        assert math.isclose(after, weight_now, abs_tol=1e-9)


@given(RUNS)
def test_throughput_rises_by_one_and_leaves_none_out(
    runs: list[tuple[str, int, int | None, Any]],
) -> None:
    times, counts = throughput_report(events_of(runs))
    end_secs = sorted(begin + secs for _, begin, secs, _ in runs if secs is not None)
    assert (seconds(times), counts) == (end_secs, list(range(1, len(end_secs) + 1)))


@given(RUNS)
def test_allocations_sum_as_the_jobs_that_are_as_long(
    runs: list[tuple[str, int, int | None, Any]],
) -> None:
    runs_on_whole_nodes = [
        (job, begin, secs, int(nodes or 1) or 1) for job, begin, secs, nodes in runs
    ]
    allocations = [
        Allocation(at(begin), None if secs is None else at(begin + secs), n)
        for _, begin, secs, n in runs_on_whole_nodes
    ]
    assert available_nodes(allocations) == utilization_report(events_of(list(runs_on_whole_nodes)))


@given(st.lists(st.tuples(JOBS, SECS, st.sampled_from(["QUEUED", "RUNNING", "COMPLETED"]),
                          st.sampled_from(["RUNNING", "FAILED", "REQUEUED"])), max_size=20))  # fmt: skip
def test_incomplete_events_lose_nothing_but_ends_without_a_start(
    changes: list[tuple[str, int, str, str]],
) -> None:
    events = [Event(job, at(secs), before, after) for job, secs, before, after in changes]
    report = utilization_report(events)
    starts = sum(before != "RUNNING" and after == "RUNNING" for _, _, before, after in changes)
    ends = sum(before == "RUNNING" and after != "RUNNING" for _, _, before, after in changes)
    lone_ends = next(
        (int(note.split()[0]) for note in report.notes if "without a start" in note), 0
    )
    assert len(report[0]) == starts + ends - lone_ends
    assert (report[1][-1] if report[1] else 0) == starts - (ends - lone_ends) >= 0
