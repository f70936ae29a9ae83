"""Hours of all jobs that Slurm ended: sums by hand, the agent's file and its metrics."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.model.end_record import EndRecord
from logshipper_ingest.model.slurm_hours import HOUR_SECS, MAX_HOURS, Hours, HourSums, oldest_hour
from logshipper_ingest.slurm.waiting import WaitingEnd, WaitingEnds

HOUR = 480_000
T0 = HOUR * HOUR_SECS
NOW = T0 + 5 * HOUR_SECS


def ended(start: int, end: int, nodes: int) -> EndRecord:
    begin = T0 + start if start else 0
    return EndRecord(
        "jobcomp/script", "1", "COMPLETED", 0, 0, begin, T0 + end, -1, "ann", (), nodes
    )


@pytest.mark.parametrize(
    ("start", "end", "nodes", "sums"),
    [
        (600, 1200, 4, {0: (2400, 1)}),
        (1800, 9000, 2, {0: (3600, 0), 1: (7200, 0), 2: (3600, 1)}),
        (1800, 3600, 1, {0: (1800, 0), 1: (0, 1)}),  # it ended at the start of the next hour
        (600, 600, 4, {0: (0, 1)}),
        (600, 1200, 0, {0: (600, 1)}),  # with an unknown number of nodes
        (0, 1200, 4, {0: (0, 1)}),  # with an unknown start
        (4 * 3600, 99 * 3600, 1, {4: (3600, 0), 5: (0, 1)}),  # by a clock that is ahead
        (-30 * 24 * 3600, -20 * 24 * 3600, 1, {}),
    ],
)
def test_hours_of_a_job(start: int, end: int, nodes: int, sums: dict[int, tuple[int, int]]) -> None:
    hours = Hours()
    hours.add(ended(start, end, nodes), NOW)
    assert {hour - HOUR: tuple(hour_sums) for hour, hour_sums in hours.sums.items()} == sums


def test_of_a_job_without_end_the_last_days_count() -> None:
    hours = Hours()
    hours.add(ended(-(1 << 30), 3600, 2), NOW)
    assert len(hours.sums) == MAX_HOURS - 4
    assert min(hours.sums) == oldest_hour(NOW)


def test_they_are_kept_with_the_records_once_and_forgotten(tmp_path: Path) -> None:
    def hours_of(records: Sequence[EndRecord]) -> dict[int, HourSums]:
        hours = Hours()
        for record in records:
            hours.add(record, NOW)
        return hours.sums

    path = str(tmp_path / "slurm.db")
    ends = [WaitingEnd("1", ended(600, 1200, 1), 0, 0), WaitingEnd("2", ended(1800, 5400, 1), 0, 0)]
    queue = WaitingEnds(path)
    queue.put(ends, 10, hours_of)
    queue.close()
    queue = WaitingEnds(path)
    queue.put([*ends, WaitingEnd("3", ended(3600, 3700, 2), 0, 0)], 10, hours_of)
    assert queue.hours(0) == {HOUR: HourSums(600 + 1800, 1), HOUR + 1: HourSums(1800 + 200, 2)}
    assert queue.hours(HOUR + 1).keys() == {HOUR + 1}
    assert queue.hours(0).keys() == {HOUR + 1}
    queue.close()


def test_a_file_of_an_older_agent_gets_them(tmp_path: Path) -> None:
    path = str(tmp_path / "slurm.db")
    WaitingEnds(path).close()
    with closing(sqlite3.connect(path)) as older:
        older.execute("DROP TABLE hour")
    queue = WaitingEnds(path)
    assert queue.hours(0) == {}
    queue.close()


def test_metrics_have_the_hours_that_are_kept() -> None:
    agent = AgentMetrics()
    agent.set_slurm_hours({HOUR: HourSums(60, 1), HOUR + 1: HourSums(30, 0)})
    agent.set_slurm_hours({HOUR + 1: HourSums(40, 2)})
    text = exposition(agent, None)[0].decode()
    assert [
        line for line in text.splitlines() if line.startswith("logshipper_agent_slurm_hour")
    ] == [
        'logshipper_agent_slurm_hour_node_seconds{hour="2024-10-04T01:00:00Z"} 40.0',
        'logshipper_agent_slurm_hour_jobs{hour="2024-10-04T01:00:00Z"} 2.0',
    ]
