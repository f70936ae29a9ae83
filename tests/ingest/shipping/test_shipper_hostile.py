"""Hostile captures with forged times, many captures or full quarantines: other users' captures
don't suffer."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.modelled_loki import HOUR_NS
from tests.tools.stores.shipping_node import ShippingNode

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
YEAR_2100_NS = 130 * 365 * 86400 * SECOND_NS


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def quarantine_of(node: ShippingNode) -> list[dict[str, object]]:
    folder = node.folder / "state" / "quarantine"
    return [
        json.loads(line)
        for file in sorted(folder.iterdir())
        for line in file.read_text().splitlines()
    ]


def test_times_ahead_are_put_aside_unsent(node: ShippingNode) -> None:
    """Loki would refuse each line separately."""
    now_ns = time.time_ns()
    with node.capture("job1", now_ns - MINUTE_NS) as capture:
        capture.lines(["now"], time_ns=now_ns - SECOND_NS)
        capture.lines(["ahead"] * 5000, time_ns=YEAR_2100_NS)
        node.ship()
    assert node.loki.lines('kind="log"') == ["now"]
    assert all(len(entries) == 1 for _, entries in node.loki.requests)
    assert len(quarantine_of(node)) == 5000 + 1, "and that the heartbeat was back then"
    assert {entry["reason"] for entry in quarantine_of(node)} == {"too_new"}


def test_times_before_the_capture_open_no_streams(node: ShippingNode) -> None:
    """Otherwise each hour of the week would open a replay stream."""
    now_ns = time.time_ns()
    with node.capture("job1", now_ns) as capture:
        for hours in range(150, 2, -1):
            capture.lines([f"{hours} hours ago"], time_ns=now_ns - hours * HOUR_NS)
        capture.lines(["now"], time_ns=now_ns)
        node.ship()
    assert node.loki.lines('kind="log"') == ["now"]
    assert len({labels for labels, _ in node.loki.requests}) == 2, (
        "of lines, and of events: the heartbeat is back"
    )
    assert {(entry["reason"], entry["words"]) for entry in quarantine_of(node)} == {
        ("too_old", "before its capture")
    }


@needs_root
def test_a_user_with_many_captures_waits_for_the_others(node: ShippingNode) -> None:
    """A round goes user by user, so that one capture doesn't wait for another user's hundred."""
    now_ns = time.time_ns() - MINUTE_NS
    for number in range(60):
        with node.capture(f"flood{number}", now_ns, uid=12345, gid=12345) as capture:
            capture.lines(["x" * 90] * 2500)
            os.chown(capture.segment, 12345, 12345)
    with node.capture("quiet", now_ns, uid=12346, gid=12346) as capture:
        capture.lines(["here"])
        os.chown(capture.segment, 12346, 12346)
    node.learn()
    node.round()
    jobs = {dict(entry.metadata)["job_id"] for entry in node.loki.stored}
    assert "quiet" in jobs
    assert len(jobs) < 60, "a round has an end"


def test_captures_take_turns_over_rounds(node: ShippingNode) -> None:
    now_ns = time.time_ns() - MINUTE_NS
    for number in range(40):
        with node.capture(f"job{number:02d}", now_ns) as capture:
            capture.lines(["x" * 90] * 2500)
    node.learn()
    rounds = 0
    while len({dict(entry.metadata)["job_id"] for entry in node.loki.stored}) < 40:
        node.round()
        rounds += 1
        assert rounds < 40, "each has its turn before anybody has the second one"
    assert max(capture.sinks[0].served_turn for capture in node.captures.values()) == rounds


def test_a_capture_that_wrote_nothing_is_told_of(node: ShippingNode) -> None:
    """The job's relay ran, and died with all other processes. Its end still has a time."""
    begun_ns = time.time_ns() - MINUTE_NS
    with node.capture("job1", begun_ns) as capture:
        capture.counters((10, 1))
    node.ship()
    lost, closed = [json.loads(entry.line) for entry in node.loki.stored]
    assert lost["event"] == "lines_lost"
    assert (closed["event"], closed["lost"]) == ("closed", 1)
    assert [entry.time_ns for entry in node.loki.stored] == [begun_ns, begun_ns + 1]
    assert quarantine_of(node) == []
