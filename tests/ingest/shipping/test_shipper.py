"""The shipper in one process with a modelled Loki: entries, their order and checkpoints. Hostile
captures don't affect others."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logshipper import fault_points
from logshipper.errors import QueryError, StoreError
from logshipper.spool import segment
from logshipper.spool.segment import Kind, Stream
from logshipper_ingest.model.job import STILL_RUNNING_SECS
from logshipper_ingest.shipping import shares
from logshipper_ingest.shipping.delivery import Stopped
from logshipper_ingest.shipping.ship_loop import FULL_ROUND_BYTES, ship_until, wait_share
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome, SegmentReader, SpoolPosition
from logshipper_ingest.state.checkpoints import CaptureCheckpoint, read_state
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import SECOND_NS, make_ledger
from tests.tools.fakes.modelled_loki import HOUR_NS, unreachable
from tests.tools.fakes.push_decoder import Pushed
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns
from tests.tools.waiting import scaled

REPLAY = 'replay="'
YEAR_2200_NS = 230 * 365 * 86400 * SECOND_NS


class Killed(BaseException):
    """Acts like SIGKILL."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def whole(
    node: ShippingNode, job_id: str, lines: list[str], start_ns: int | None = None, **more: Any
) -> NodeCapture:
    # Any: fields of an identity
    """Spool a capture from START to END."""
    capture = node.capture(job_id, soon_ns() if start_ns is None else start_ns, **more)
    capture.start()
    if lines:
        capture.lines(lines)
    size = sum(len(line) + 1 for line in lines)
    capture.counters((size, len(lines)))
    capture.end(ledger=make_ledger({"stored": len(lines), "bytes": size}))
    capture.close()
    return capture


def at_fault(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    monkeypatch.setattr(fault_points, "on_reached", lambda at: act() if at == name else None)


def kill() -> None:
    raise Killed


# ---- entries


def test_a_whole_capture_is_in_loki_as_the_contract_says(node: ShippingNode) -> None:
    capture = node.capture(
        "job7", soon_ns(), user="ann", step="3", task=2, attempt=4, account="phys", partition="gpu"
    )
    capture.start(version="0.9")
    lines_ns = capture.lines(["one", "two"])
    capture.lines(["oops"], stream=Stream.STDERR)
    capture.metadata({"loss": 1.5}, {"loss": 1.25})
    capture.mixed([(Kind.LOG, "three"), (Kind.NOTE, "(repeated 5 times)"), (Kind.COMMAND, "/LOGENABLE")],
                  at1={"repeat": 5})  # fmt: skip
    capture.status("50 %")
    capture.event("mode_changed", to="metadata")
    capture.heartbeat()
    capture.counters((100, 7))
    capture.end()
    capture.close()
    node.ship()
    entries = node.loki.find()
    job_labels = {
        ("job_id", "job7"),
        ("user", "ann"),
        ("step", "3"),
        ("task", "2"),
        ("attempt", "4"),
    }
    assert all(job_labels <= set(entry.metadata) for entry in entries)
    assert all(
        'cluster="testing"' in entry.labels and 'host="n1"' in entry.labels for entry in entries
    )
    assert all('service_name="logshipper"' in entry.labels for entry in entries)
    assert not any(REPLAY in labels for labels in node.loki.streams())
    assert node.loki.lines('kind="log"', 'stream="stdout"') == [
        "one",
        "two",
        "three",
        "(repeated 5 times)",
    ]
    assert node.loki.lines('kind="log"', 'stream="stderr"') == ["oops"]
    assert node.loki.lines('kind="metadata"') == ['{"loss": 1.5}', '{"loss": 1.25}']
    assert node.loki.lines('kind="command"') == ["/LOGENABLE"]
    assert node.loki.lines('kind="status"') == ["50 %"]
    extra = {entry.line: dict(set(entry.metadata) - job_labels) for entry in entries}
    assert extra[b'{"loss": 1.25}'] == {"n": "2"}
    assert extra[b"(repeated 5 times)"] == {"repeat": "5", "note": "1"}
    assert extra[b"one"] == {}
    times = {entry.line: entry.time_ns for entry in entries}
    assert (times[b"one"], times[b"two"]) == (lines_ns, lines_ns + 1)
    assert not any(
        "stream=" in labels for labels in node.loki.streams() if 'kind="event"' in labels
    )
    (heartbeat,) = node.loki.lines('kind="heartbeat"')
    assert json.loads(heartbeat)["event"] == "heartbeat"
    events = node.events()
    assert [event["event"] for event in events] == [
        "started",
        "mode_changed",
        "heartbeat",
        "ended",
        "closed",
    ]
    identity = {
        "user": "ann",
        "account": "phys",
        "partition": "gpu",
        "host": "n1",
        "cluster": "testing",
        "version": "0.9",
    }
    assert {name: events[0][name] for name in identity} == identity
    assert (events[-1]["state"], events[-1]["hosts"], events[-1]["lines"]) == (
        "COMPLETED",
        ["n1"],
        6,
    )
    assert set(events[-1]["x_axis"]) == {"key", "rule", "words", "path"}
    assert node.quarantined() == []
    assert node.messages == []


def test_counts_are_those_of_the_entries_that_loki_has(node: ShippingNode) -> None:
    whole(node, "job1", ["one", "two", "three"])
    node.ship()
    (checkpoint,) = node.checkpoints.shipped()
    assert checkpoint.done
    assert checkpoint.counts.entries == {"log": 3, "event": 3}
    entries = node.loki.find()
    assert checkpoint.counts.bytes == sum(len(entry.line) for entry in entries)
    assert checkpoint.counts.last_ns == max(entry.time_ns for entry in entries)
    assert node.only_capture().is_over


def test_a_capture_that_died_has_a_closed_event_only(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.lines(["one"])
        capture.counters((8, 2))
        node.ship()
        assert [event["event"] for event in node.events()] == ["started"]
    node.ship()
    closed = node.events()[-1]
    assert (closed["event"], closed["state"], closed["lost"]) == ("closed", "FAILED", 1)
    assert node.only_capture().is_over


def test_an_empty_status_is_a_blank(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.status("")
        node.ship()
    assert node.loki.lines('kind="status"') == [" "]


def test_heartbeats_go_out_as_often_as_is_said_across_rounds_and_restarts(tmp_path: Path) -> None:
    node = ShippingNode(tmp_path, heartbeat_secs=10.0)
    with node.capture("job1", soon_ns()) as capture:
        for number in range(60):  # a second apart
            capture.heartbeat()
            if number % 7 == 0:
                node.ship()
            if number % 20 == 0:
                node.restart()
        node.ship()
    heartbeats = node.loki.find('kind="heartbeat"')
    gaps = [(later.time_ns - earlier.time_ns) / 1e9 for earlier, later in pairwise(heartbeats)]
    assert gaps == [10.0] * 5
    node.close()


def test_a_capture_that_runs_for_hours_says_whose_it_is_again(tmp_path: Path) -> None:
    """A list of jobs finds it without its start. A kill in between changes nothing."""
    start_ns = time.time_ns() - 5 * HOUR_NS
    shipped: list[list[tuple[int, bytes]]] = []
    for number, restarts in enumerate((False, True)):
        (tmp_path / str(number)).mkdir()
        node = ShippingNode(tmp_path / str(number), heartbeat_secs=60.0)
        with node.capture("job1", start_ns) as capture:
            capture.start()
            for beat in range(400):
                capture.now_ns += 16 * SECOND_NS
                capture.heartbeat()
                if beat % 50 == 0 and restarts:
                    node.ship()
                    node.restart(save=False)
            node.ship()
        node.close()
        shipped.append([(entry.time_ns, entry.line) for entry in node.loki.find('kind="event"')])
    once, again = shipped
    assert once == again
    events = [json.loads(line) for _, line in once]
    assert [event.pop("event") for event in events] == ["started", *["still_running"] * 2]
    del events[0]["mode"]
    assert events == [events[0]] * 3
    assert events[0]["user"] == "me"
    period_ns = STILL_RUNNING_SECS * SECOND_NS
    assert [(time_ns - start_ns) // period_ns for time_ns, _ in once] == [0, 1, 2]


# ---- clocks ahead


def test_times_of_a_node_that_is_hours_ahead_are_set_back(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loki would refuse them all. After a kill and another measurement of the clocks, the bytes are
    the same."""
    node.loki.behind_ns = 3 * HOUR_NS
    start_ns = soon_ns()
    whole(node, "job1", [f"a {number}" for number in range(500)], start_ns)
    node.learn()
    with monkeypatch.context() as patch:
        at_fault(patch, "sent", kill)
        with pytest.raises(Killed):
            node.round()
    first = sorted(node.loki.bodies)
    node.loki.bodies.clear()
    node.loki.behind_ns += 2 * SECOND_NS
    node.restart(save=False)
    node.ship()
    assert sorted(node.loki.bodies) == first
    assert node.loki.lines('kind="log"') == [f"a {number}" for number in range(500)]
    (entry, *_) = node.loki.find('kind="log"')
    assert abs(entry.time_ns - (start_ns - 3 * HOUR_NS)) < 5 * SECOND_NS
    started, *_, closed = node.events("job1")
    assert started["clock_ahead_secs"] == pytest.approx(3 * 3600, abs=1)
    assert abs(started["started_ns"] - (start_ns - 3 * HOUR_NS)) < 5 * SECOND_NS
    assert 0 <= closed["ended_ns"] - started["started_ns"] < 5 * SECOND_NS
    assert node.quarantined() == []
    assert len([message for message in node.messages if "s ahead of Loki's" in message]) == 1


def test_a_clock_that_is_set_while_the_agent_runs(node: ShippingNode) -> None:
    """Each capture keeps the clock of its begin. A clock that is minutes ahead stays, since Loki
    accepts it."""
    for ahead_ns in (0, 4 * 60 * SECOND_NS, 24 * HOUR_NS, 0):
        node.loki.behind_ns = ahead_ns
        node.delivery.clock.note(time.time_ns() - ahead_ns)
        whole(node, f"ahead{ahead_ns}-{len(node.captures)}", ["one", "two"])
        node.ship()
    assert len(node.loki.find('kind="log"')) == 8
    set_back = {event["event"] for event in node.events() if "clock_ahead_secs" in event}
    assert set_back == {"started", "ended", "closed"}
    assert sum("clock_ahead_secs" in event for event in node.events()) == 3
    assert node.quarantined() == []


def test_a_gateway_that_lets_only_pushes_through_tells_the_time_all_the_same(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = node.loki.ready

    def forbidden() -> bool:
        raise QueryError("Loki", 403 if ready() else 0, "pushes only")

    monkeypatch.setattr(node.loki, "ready", forbidden)
    node.loki.behind_ns = 24 * HOUR_NS
    whole(node, "job1", ["one"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["one"]
    assert node.quarantined() == []


def test_a_server_that_tells_no_time_changes_none(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[bool] = []

    def silent() -> bool:
        requests.append(True)
        raise QueryError("Loki", 0, "no answer")

    monkeypatch.setattr(node.loki, "ready", silent)
    for number in range(9):
        whole(node, f"job{number}", ["one"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["one"] * 9
    assert len(requests) == 1, "nine captures don't wait nine times for who doesn't answer"


# ---- only acknowledged entries count


def test_nothing_is_remembered_before_all_of_a_round_is_acknowledged(node: ShippingNode) -> None:
    whole(node, "job1", ["one"])
    whole(node, "job2", ["two"])
    node.learn()
    remembered: list[list[CaptureCheckpoint]] = []

    def answer(labels: str) -> None:
        remembered.append(node.checkpoints.shipped())
        raise unreachable()

    node.loki.script = [
        answer,
        answer,
        answer,
        lambda labels: remembered.append(node.checkpoints.shipped()),
    ]
    node.round()
    assert remembered == [[], [], [], []]
    assert len(node.checkpoints.shipped()) == 2


@pytest.mark.parametrize("place", ["sent", "committed"])
@pytest.mark.parametrize("learnt", [True, False])
def test_kill_at_a_fault_point_loses_nothing_and_doubles_nothing(
    place: str, learnt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ShippingNode(tmp_path)
    whole(node, "job1", [f"a {number}" for number in range(3000)])
    whole(node, "job2", [f"b {number}" for number in range(10)])
    node.learn(save=learnt)
    with monkeypatch.context() as patch:
        at_fault(patch, place, kill)
        with pytest.raises(Killed):
            node.round()
    entries_sent = {
        (labels, entry)
        for labels, entries in node.loki.requests
        for entry in map(_hashable, entries)
    }
    first = sorted(node.loki.bodies)
    node.restart(save=False)
    assert len(node.checkpoints.shipped()) == (2 if place == "committed" else 0)
    node.loki.requests.clear()
    node.loki.bodies.clear()
    node.ship()
    again = {
        (labels, entry)
        for labels, entries in node.loki.requests
        for entry in map(_hashable, entries)
    }
    assert again == (entries_sent if place == "sent" else set()), "byte for byte"
    assert sorted(node.loki.bodies) == (first if place == "sent" else [])
    assert len(node.loki.find('kind="log"')) == 3010
    assert node.loki.doubles() == []
    assert [event["event"] for event in node.events("job1")] == ["started", "ended", "closed"]
    node.close()


def test_a_commit_waits_for_the_next_note(node: ShippingNode) -> None:
    """The disk has the acknowledged position with the next note, or after an idle round."""

    def offset() -> int:
        return read_state(node.checkpoints.path).checkpoints[0].position.offset

    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one"])
        node.ship()
        first = offset()
        capture.lines(["two"])
        node.learn()
        assert node.round() is False
        second = node.only_capture().sinks[0].progress.position.offset
        assert offset() == first < second
        capture.lines(["three"])
        node.learn()
        node.round()
        assert offset() == second
        node.round()
        assert offset() == node.only_capture().sinks[0].progress.position.offset > second


def test_a_kill_before_a_waiting_commit_doubles_nothing(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one"])
        node.ship()
        capture.lines(["two"])
        node.learn()
        node.round()
        monkeypatch.setattr(node.checkpoints, "flush", lambda: None)
        node.restart(save=False)
        assert node.checkpoints.shipped()[0].counts.entries["log"] == 1
        capture.lines(["three"])
        node.ship()
    assert node.loki.lines('kind="log"') == ["one", "two", "three"]
    assert node.loki.doubles() == []
    assert node.only_capture().sinks[0].progress.counts.entries["log"] == 3


def test_what_grew_meanwhile_makes_no_doubles_of_what_was_sent_before_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = ShippingNode(tmp_path)
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        for number in range(20):
            capture.lines([f"{number}.{line}" for line in range(3)])
            capture.heartbeat()
        node.learn()
        with monkeypatch.context() as patch:
            at_fault(patch, "sent", kill)
            with pytest.raises(Killed):
                node.round()
        for number in range(20, 40):
            capture.lines([f"{number}.{line}" for line in range(3)])
            capture.heartbeat()
        # the relay's counters are further ahead now
        capture.counters((10**6, 10**5), pid=os.getpid())
        node.restart(save=False)
        node.ship()
    lines = node.loki.lines('kind="log"')
    assert lines == [f"{number}.{line}" for number in range(40) for line in range(3)]
    times = [entry.time_ns for entry in node.loki.find('kind="heartbeat"')]
    assert 1 < len(times) == len(set(times))
    node.close()


def test_an_error_of_our_own_goes_back_to_the_checkpoint(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(node, "job1", ["one", "two"])
    node.learn()
    with monkeypatch.context() as patch:

        def fail() -> None:
            raise ZeroDivisionError

        at_fault(patch, "sent", fail)
        with pytest.raises(ZeroDivisionError):
            node.round()
    capture = node.only_capture()
    assert capture.sinks[0].progress.position == (0, 0)
    assert capture.sinks[0].progress.account.lines == 0
    node.ship()
    assert node.loki.lines('kind="log"') == ["one", "two"]
    assert node.loki.doubles() == []
    assert capture.sinks[0].progress.counts.entries == {"log": 2, "event": 3}
    assert node.checkpoints.shipped()[0].account.lines == 2


def test_a_commit_without_room_is_made_up_for(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(node, "job1", ["one"])
    whole(node, "job2", ["two"])
    node.learn()
    commit = node.checkpoints.commit

    def full(*_: object, **__: object) -> None:
        monkeypatch.setattr(node.checkpoints, "commit", commit)
        raise StoreError("state.db", "no room left on the disk")

    monkeypatch.setattr(node.checkpoints, "commit", full)
    with pytest.raises(StoreError):
        node.round()
    node.ship()
    assert node.loki.lines('kind="log"') == ["one", "two"]
    assert [checkpoint.counts.entries for checkpoint in node.checkpoints.shipped()] == [
        {"log": 1, "event": 3}
    ] * 2


def test_going_back_that_fails_as_well_loses_nothing(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails for a while: neither the commit nor the last checkpoint works."""
    whole(node, "job1", ["one"])
    whole(node, "job2", ["two"])
    node.learn()
    with monkeypatch.context() as patch:

        def failing(*_: object, **__: object) -> Any:
            raise StoreError("state.db", "reading or writing failed")

        def broken(labels: str) -> None:
            raise ZeroDivisionError  # Loki accepts nothing of this round

        node.loki.script = [broken] * 10
        patch.setattr(node.checkpoints, "shipped", failing)
        with pytest.raises((StoreError, ZeroDivisionError)):
            node.round()
    node.loki.script = []
    wait_until_shipped(node)
    assert node.loki.lines('kind="log"') == ["one", "two"]


def wait_until_shipped(node: ShippingNode) -> None:
    """Do rounds like `ship_until`, which continues after errors."""
    node.learn()
    for _ in range(20):
        try:
            node.round()
        except StoreError:
            continue
    assert not any(capture.sinks[0].waits for capture in node.captures.values())


def test_stop_in_an_outage_ends_a_round_and_the_next_agent_sends_all(tmp_path: Path) -> None:
    node = ShippingNode(tmp_path, retry_min_secs=30.0, retry_max_secs=30.0)
    whole(node, "job1", ["one"])
    node.learn()
    node.loki.script = [unreachable()] * 1000
    raised: list[BaseException] = []

    def round_() -> None:
        try:
            node.round()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=round_)
    thread.start()
    wait_until(lambda: node.loki.requests, "the first try")
    node.stop.set()
    thread.join(scaled(20))
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [Stopped]
    node.stop.clear()
    node.loki.script = []
    node.restart()
    node.ship()
    assert node.loki.lines('kind="log"') == ["one"]
    node.close()


def test_the_shippers_thread_survives_what_a_round_raises(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(node, "job1", ["one"])
    node.learn()
    round_ = node.shipper.round
    fails = [ZeroDivisionError("oh"), OSError(28, "No space left on device")]

    def failing(captures: Any) -> bool:
        if fails:
            raise fails.pop()
        return round_(captures)

    monkeypatch.setattr(node.shipper, "round", failing)
    words = (node.shipper, node.to_ship, node.stop, 0.01, node.messages.append, threading.Event())
    thread = threading.Thread(target=ship_until, args=words)
    thread.start()
    try:
        wait_until(
            lambda: node.loki.lines('kind="log"') == ["one"], "it is shipped all the same", 15
        )
    finally:
        node.stop.set()
        thread.join(scaled(10))
    assert (
        sum("the agent tries again from the last checkpoint" in words for words in node.messages)
        == 2
    )


def waits(node: ShippingNode) -> list[str]:
    return [capture.identity.job_id for capture in node.captures.values() if capture.sinks[0].waits]


def test_what_comes_after_a_silence_is_shipped_at_once(node: ShippingNode) -> None:
    """The second capture right behind it goes at once as well. The third one waits for more
    frames."""
    wake = threading.Event()
    words = (node.shipper, node.to_ship, node.stop, 600.0, node.messages.append, wake)
    thread = threading.Thread(target=ship_until, args=words)
    thread.start()
    try:
        whole(node, "job1", ["one"])
        node.learn()
        wake.set()
        wait_until(lambda: not waits(node), "the first is shipped, long before its time", 15)
        whole(node, "job2", ["one"])
        node.learn()
        wake.set()
        wait_until(lambda: not waits(node), "the second is shipped, too", 15)
        whole(node, "job3", ["one"])
        node.learn()
        wake.set()
        assert waits(node) == ["job3"]
    finally:
        node.stop.set()
        wake.set()
        thread.join(scaled(10))
    assert not thread.is_alive()


def test_little_of_few_streams_waits_for_a_part_of_the_time_and_of_many_for_all_of_it() -> None:
    little = FULL_ROUND_BYTES // 100
    assert wait_share(little, 1) == wait_share(little, 3) == 0.3
    assert wait_share(little, 5) == 0.5
    assert wait_share(little, 100) == 1 - little / FULL_ROUND_BYTES
    assert wait_share(FULL_ROUND_BYTES // 2, 100) == 0.5
    assert wait_share(FULL_ROUND_BYTES, 1) == wait_share(10 * FULL_ROUND_BYTES, 100) == 0.25


def test_a_round_says_how_many_streams_it_was_for(node: ShippingNode) -> None:
    for number in range(5):
        node.capture(f"job{number}", soon_ns()).lines(["one", "two"])
    node.learn()
    node.round()
    shards = len(node.loki.requests)
    assert node.shipper.round_streams == shards == len(node.loki.streams())
    node.round()
    assert node.shipper.round_streams == 0


# ---- order, and late lines


def test_streams_are_sent_oldest_first_across_captures(node: ShippingNode) -> None:
    begin_ns = soon_ns(30)
    for number in range(4):
        with node.capture(f"job{number}", begin_ns) as capture:
            for line in range(20):
                capture.lines([f"{line}"], time_ns=begin_ns + (line * 4 + number) * SECOND_NS)
    node.ship()
    for labels, entries in node.loki.requests:
        times = [entry.time_ns for entry in entries]
        is_event = 'kind="event"' in labels or 'kind="heartbeat"' in labels
        assert is_event or times == sorted(times)
    assert not any(REPLAY in labels for labels in node.loki.streams())


def test_a_quiet_jobs_news_leave_anothers_backlog_acceptable(node: ShippingNode) -> None:
    with node.capture("news", soon_ns(1)) as news:
        news.lines(["new"])
        node.ship()
        with node.capture("late", soon_ns(20)) as late:
            late.lines(["a bit late"])
            node.ship()
        with node.capture("later", soon_ns(300)) as later:
            later.lines(["hours late"])
            node.ship()
    assert node.loki.lines('kind="log"') == ["hours late", "a bit late", "new"]
    assert node.loki.lines('kind="log"', REPLAY) == ["hours late"]
    assert node.quarantined() == []


def test_replay_streams_take_a_week_in_any_order(node: ShippingNode) -> None:
    now_ns = time.time_ns()
    with node.capture("news", now_ns) as news:
        news.lines(["new"])
        node.ship()
        hours = [5, 150, 30, 31, 2, 99, 149, 3]
        for hour in hours:
            with node.capture(f"job{hour}x", now_ns - hour * HOUR_NS) as capture:
                capture.lines([f"{hour} first", f"{hour} second"])
                capture.lines(
                    [f"{hour} later"], time_ns=now_ns - hour * HOUR_NS + 40 * 60 * SECOND_NS
                )
            node.ship()
    assert len(node.loki.lines('kind="log"', REPLAY)) == 3 * len(hours)
    assert node.quarantined() == []
    assert node.loki.doubles() == []


def test_two_quiet_jobs_after_an_outage_of_hours_are_stored_once(node: ShippingNode) -> None:
    """Heartbeats of both jobs are hours old and share a stream. Neither job may put the other's too
    far behind."""
    begin_ns = soon_ns(5 * 60)
    captures = []
    for number in range(2):
        with node.capture(f"job{number}", begin_ns + number * SECOND_NS) as capture:
            for _ in range(240):
                capture.now_ns += 60 * SECOND_NS
                capture.heartbeat()
            captures.append(capture)
    node.ship()
    beats = node.loki.find('kind="heartbeat"')
    assert len({entry[1:] for entry in beats}) == 2 * 240
    assert node.loki.doubles() == [], "a query of all streams shows each once"
    assert node.quarantined() == []


def test_what_loki_alone_knows_to_be_late_goes_to_a_replay_stream(node: ShippingNode) -> None:
    """Its newest entry came from another agent of the same name, or from this one before it lost
    state.db."""
    whole(node, "news", ["new"], soon_ns(1))
    node.ship()
    node.lose_state()
    with node.capture("late", soon_ns(200)) as late:
        late.lines([f"late {number}" for number in range(50)])
        late.lines([f"in time {number}" for number in range(3)], time_ns=soon_ns(30))
    node.ship()
    assert len(node.loki.lines('kind="log"', REPLAY)) == 50
    assert len(node.loki.find('kind="log"')) == 54
    assert node.loki.doubles() == []
    assert node.quarantined() == []


def test_the_last_late_entry_before_ones_in_time_makes_no_double(node: ShippingNode) -> None:
    whole(node, "news", ["new"], soon_ns(1))
    node.ship()
    node.lose_state()
    with node.capture("late", soon_ns(200)) as late:
        late.lines(["late"])
        late.lines(["in time"], time_ns=soon_ns(30))
    node.ship()
    assert node.loki.lines('kind="log"', REPLAY) == ["late"]
    assert node.loki.doubles() == []


def test_many_late_entries_are_dealt_with_in_time(node: ShippingNode) -> None:
    whole(node, "news", ["new"], soon_ns(1))
    node.ship()
    node.lose_state()
    with node.capture("late", soon_ns(200)) as late:
        late.lines([f"{number}" for number in range(16_000)])
    node.learn()
    begin = time.process_time()
    node.ship()
    assert time.process_time() - begin < scaled(5.0), "no work that grows by the square"
    assert len(node.loki.lines('kind="log"', REPLAY)) == 16_000


def test_what_is_too_old_lies_in_the_quarantine_and_the_rest_in_loki(tmp_path: Path) -> None:
    node = ShippingNode(tmp_path, max_age_hours=24)
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["ancient", "old"], time_ns=time.time_ns() - 30 * HOUR_NS)
        capture.lines(["young"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["young"]
    assert [(entry["line"], entry["reason"], entry["status"]) for entry in node.quarantined()] == [
        ("ancient", "too_old", 0),
        ("old", "too_old", 0),
        ('{"event":"heartbeat_lost","message":"no heartbeat for 20 seconds"}', "too_old", 0),
    ]
    (checkpoint,) = node.checkpoints.shipped()
    assert checkpoint.counts.refused == {"too_old": 3}
    assert checkpoint.counts.entries["log"] == 1
    assert checkpoint.done
    assert sum("too_old" in words for words in node.messages) == 1
    node.close()


def test_refusals_are_synced_before_they_count_as_dealt_with(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["old"], time_ns=time.time_ns() - 170 * HOUR_NS)
    node.learn()
    put = node.quarantine.put

    def full(refusals: Any) -> int:
        monkeypatch.setattr(node.quarantine, "put", put)
        raise StoreError("quarantine", "no space left on device")

    monkeypatch.setattr(node.quarantine, "put", full)
    with pytest.raises(StoreError):
        node.round()
    assert node.checkpoints.shipped() == []
    node.ship()
    assert [entry["line"] for entry in node.quarantined() if entry["kind"] == "log"] == ["old"]
    assert node.only_capture().sinks[0].progress.counts.refused == {"too_old": 1}


def test_what_is_shipped_or_refused_counts_once_however_often_the_disk_is_full(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["old", "older"], time_ns=time.time_ns() - 170 * HOUR_NS)
        capture.lines(["young"])
    node.learn()
    commit, failures = node.checkpoints.commit, 0

    def full(*about: Any, later: bool) -> None:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise StoreError("state.db", "no room left on the disk")
        commit(*about, later=later)

    monkeypatch.setattr(node.checkpoints, "commit", full)
    for _ in range(3):
        with pytest.raises(StoreError):
            node.round()
    assert sum("too_old" in words for words in node.messages) == 0
    node.ship()
    counts = node.only_capture().sinks[0].progress.counts
    assert (failures, counts.entries["log"], counts.refused) == (3, 1, {"too_old": 3})
    value = node.health.registry.get_sample_value
    assert value("logshipper_agent_entries_total", {"kind": "log"}) == 1, (
        "what was refused isn't acknowledged"
    )
    assert value("logshipper_agent_refused_entries_total", {"reason": "too_old"}) == 3
    assert sum("too_old" in words for words in node.messages) == 1


# ---- the learner first


def test_the_last_event_waits_for_the_learner(node: ShippingNode) -> None:
    whole(node, "job1", ["one"])
    capture = node.only_capture()
    capture.life = Life.DEAD
    for _ in range(3):
        # the learner is ahead, but not at the end
        capture.learn_reader.read(1, alive=True)
        node.round()
        assert capture.sinks[0].pending_batch is not None
        assert node.loki.stored == []
    capture.learn_reader.close()
    capture.learn_reader = SegmentReader(
        capture.folder.segments_fd,
        str(capture.folder.path),
        capture.knowledge.position,
        owner=os.geteuid(),
    )
    node.ship()
    assert [event["event"] for event in node.events()] == ["started", "ended", "closed"]
    assert node.loki.lines('kind="log"') == ["one"]


def test_held_frames_are_kept_over_an_error_of_another_capture(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(node, "held", ["one"])
    node.follow()
    holder = node.only_capture()
    holder.life = Life.DEAD
    holder.learn_reader.read(1, alive=True)
    node.round()
    assert holder.sinks[0].pending_batch is not None
    with node.capture("other", soon_ns()) as neighbour:
        neighbour.lines(["two"])
        (captured,) = (capture for capture in node.follow() if capture is not holder)
        node.learner.turn([captured])
        with monkeypatch.context() as patch:
            at_fault(patch, "sent", kill)
            with pytest.raises(Killed):
                node.round()
        holder.learn_reader.close()
        holder.learn_reader = SegmentReader(
            holder.folder.segments_fd,
            str(holder.folder.path),
            holder.knowledge.position,
            owner=os.geteuid(),
        )
        node.ship()
    assert sorted(node.loki.lines('kind="log"')) == ["one", "two"]


def test_a_capture_that_dies_between_two_looks_is_closed_when_the_learner_knows(
    node: ShippingNode,
) -> None:
    """The learner's thread may change `life` at any time, even just after the shipper's read."""
    with node.capture("job1", soon_ns()) as writer:
        writer.start()
        writer.lines(["one"])
        node.learn()
    (capture,) = node.follow()
    capture.life = Life.ORPHANED
    read = capture.sinks[0].reader.read

    class Dying(list):  # type: ignore[type-arg]  # its items don't matter
        """Frames of a capture that dies during their iteration."""

        def __iter__(self) -> Iterator[Any]:
            capture.life = Life.DEAD
            return super().__iter__()

    def reading(max_bytes: int, *, alive: bool, until: SpoolPosition | None = None) -> FrameBatch:
        batch = read(max_bytes, alive=alive, until=until)
        assert batch.outcome is Outcome.CUT
        return batch._replace(frames=Dying(batch.frames))

    capture.sinks[0].reader.read = reading  # type: ignore[method-assign]
    node.round()
    assert not capture.knowledge.done
    assert not capture.sinks[0].progress.done, "the learner hasn't said that it is over"


# ---- entries that may have been sent before


def round_killed(node: ShippingNode, monkeypatch: pytest.MonkeyPatch, fault: str = "sent") -> None:
    with monkeypatch.context() as patch:
        at_fault(patch, fault, kill)
        with pytest.raises(Killed):
            node.round()


def after_hours(node: ShippingNode) -> NodeCapture:
    """Return a living capture of a quiet job, with lines of five hours without Loki, all learnt."""
    capture = node.capture("quiet", soon_ns(301))
    capture.__enter__()
    for hour in range(5):
        capture.lines([f"hour {hour}"], time_ns=soon_ns(300 - 60 * hour))
    capture.lines(["now"], time_ns=soon_ns(1))
    node.learn()
    return capture


ALL_HOURS = [*(f"hour {hour}" for hour in range(5)), "now"]


def test_an_answer_that_gets_lost_after_an_outage_of_hours_doubles_nothing(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated, all but the newest line would be too far behind it."""
    after_hours(node).die()
    take = node.loki._take
    lost: list[str] = []

    def losing(labels: str, entries: list[Pushed]) -> None:
        take(labels, entries)
        if labels not in lost:
            lost.append(labels)
            raise unreachable()

    monkeypatch.setattr(node.loki, "_take", losing)
    node.ship()
    assert len(lost) > 3
    assert node.loki.doubles() == []
    assert node.loki.lines('kind="log"') == ALL_HOURS


@pytest.mark.parametrize("fault", ["sent", "committed"])
def test_a_kill_after_an_outage_of_hours_doubles_nothing(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The next agent finds newer lines of this job and of another one. A repeat still goes to the
    same streams."""
    capture = after_hours(node)
    round_killed(node, monkeypatch, fault)
    streams_before = node.loki.streams()
    capture.lines(["later"], time_ns=time.time_ns())
    whole(node, "news1", ["new"], time.time_ns())
    node.restart(save=False)
    node.ship()
    assert node.loki.doubles() == []
    assert [line for line in node.loki.lines('kind="log"') if line != "new"] == [
        *ALL_HOURS,
        "later",
    ]
    assert streams_before <= node.loki.streams()
    capture.die()


def test_what_was_sent_once_and_is_old_by_now_goes_to_the_same_stream(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was away for hours after the kill. Lines that it sent in time are far behind
    now."""
    with node.capture("quiet", soon_ns(200)) as capture:
        capture.lines(["then"])
        node.learn()
        round_killed(node, monkeypatch)
        capture.lines(["now"], time_ns=soon_ns(1))
    node.restart(save=False)
    node.ship()
    assert node.loki.doubles() == []
    assert node.loki.lines('kind="log"') == ["then", "now"]
    assert not any(REPLAY in labels for labels in node.loki.streams() if 'kind="log"' in labels)


def test_others_wait_for_what_may_have_been_sent_but_not_for_ever(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.capture("first", soon_ns(20)) as first:
        first.lines(["first"])
        node.learn()
        round_killed(node, monkeypatch)
        node.restart(save=False)
        whole(node, "second", ["second"])
        node.learn()
        read = SegmentReader.read

        def refuse(
            reader: SegmentReader, *arguments: Any, **options: Any
        ) -> FrameBatch:  # Any: the method's own
            if "/first@" in reader._path:
                raise PermissionError(13, "Permission denied")
            return read(reader, *arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(SegmentReader, "read", refuse)
            node.round()
            assert node.loki.lines('kind="log"') == ["first"]
            patch.setattr(node.shipper, "_resend_until", 0.0)
            node.round()
            assert node.loki.lines('kind="log"') == ["first", "second"]
        node.ship()
    assert node.loki.doubles() == []


def test_a_capture_that_died_is_closed_also_where_the_agent_was_restarted_in_between(
    node: ShippingNode,
) -> None:
    """The learner had seen its end, and Loki nothing yet."""
    node.capture("job1", soon_ns()).lines(["last words"])
    node.learn()
    node.restart()
    node.ship()
    assert [event["event"] for event in node.events("job1")] == ["closed"]
    assert node.only_capture().is_over


EARLIER = """
UPDATE shipped SET account = json_remove(account, '$.marked_ns', '$.unparsed', '$.marks');
UPDATE learnt SET account = json_remove(account, '$.marked_ns', '$.unparsed', '$.marks');
UPDATE stream SET labels = 'stdout/log' WHERE labels LIKE 'stdout/log/%';
DELETE FROM note"""
LATER = """
UPDATE shipped SET account = json_set(account, '$.mood', 'good'), counts = json_set(counts, '$.mood', 1);
UPDATE shipped SET identity = json_set(identity, '$.mood', 'good');
UPDATE learnt SET account = json_set(account, '$.mood', 'good');
INSERT INTO stream VALUES ('stdout/log//n1//1/more/still', 5);
INSERT INTO note VALUES ('mood', '"good"')"""


@pytest.mark.parametrize("version", [EARLIER, LATER], ids=["earlier", "later"])
def test_another_versions_state_is_gone_on_with(node: ShippingNode, version: str) -> None:
    """The version changes up or down while a job runs, and the agent repeats no entry."""
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.lines(["before"])
        node.ship()
        node.end(save=False)
        with closing(sqlite3.connect(node.folder / "state" / "state.db")) as connection:
            connection.executescript(version)
        node.begin()
        node.loki.requests.clear()
        capture.lines(["after"])
        capture.close()
        node.ship()
    lines = [entry.line for _, entries in node.loki.requests for entry in entries]
    assert lines[0] == b"after"
    assert [json.loads(line)["event"] for line in lines[1:]] == ["closed"]
    assert node.loki.lines('kind="log"') == ["before", "after"]
    assert node.events("job1")[-1]["lines"] == 2


# ---- fairness


def test_no_capture_waits_for_anothers_flood(node: ShippingNode) -> None:
    with node.capture("flood", soon_ns()) as flood, node.capture("quiet", soon_ns()) as quiet:
        text = ["x" * 1000] * 500
        for _ in range(20):  # 10 MB
            flood.lines(text)
        quiet.lines(["here I am"])
        node.learn()
        for _ in range(2):
            node.round()
        assert "here I am" in node.loki.lines('kind="log"')
        first = len(node.loki.find('kind="log"'))
        assert first <= 2 * (shares.MAX_SHARE_BYTES // 1000 + 501) + 1
        node.ship()
    assert len(node.loki.find('kind="log"')) == 10_001


def test_more_floods_than_a_round_holds_take_turns(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "SHARE_BYTES", 10_000)
    monkeypatch.setattr(shares, "MAX_SHARE_BYTES", 10_000)
    monkeypatch.setattr(shares, "ROUND_BYTES", 30_000)
    writers = [node.capture(f"job{number}", soon_ns()) for number in range(9)]
    for writer in writers:
        writer.__enter__()
        for _ in range(10):
            writer.lines(["x" * 100] * 100)
    node.learn()
    for _ in range(9):
        node.round()
    offsets = [capture.sinks[0].progress.position.offset for capture in node.captures.values()]
    assert min(offsets) > 0, "nobody has waited for all others to end"
    node.ship()
    for writer in writers:
        writer.die()
    assert len(node.loki.find('kind="log"')) == 9000


def test_lines_of_few_bytes_do_not_make_a_round_a_flood(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each entry costs Loki a hundred bytes for any line. A share limits the sent bytes, not the
    read ones."""
    share = 50_000
    monkeypatch.setattr(shares, "SHARE_BYTES", share)
    monkeypatch.setattr(shares, "MAX_SHARE_BYTES", share)
    with node.capture("job1", soon_ns()) as capture:
        for _ in range(100):
            capture.lines(["x"] * 500)
        node.learn()
        node.round()
    assert sum(len(entries) for _, entries in node.loki.requests) * 90 < 5 * share


# ---- removal of segments that all readers have finished


def test_segments_are_removed_behind_both_and_only_there(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one"])
        capture.rotate()
        capture.lines(["two"])
        capture.rotate()
        capture.lines(["three"])

        def numbers() -> list[int]:
            return sorted(int(path.name[:10]) for path in capture.segments.glob("*.seg"))

        node.learn(save=False)
        node.round()
        assert node.loki.lines('kind="log"') == ["one", "two", "three"]
        assert numbers() == [1, 2, 3], "the learner's checkpoint is still before them"
        node.learn(save=True)
        capture.lines(["four"])
        node.ship()
        assert numbers() == [3]
    node.restart(save=False)
    node.ship()
    assert (
        node.only_capture().knowledge.account.lines
        == node.only_capture().sinks[0].progress.account.lines
        == 4
    )
    assert node.loki.doubles() == []


def test_segments_stay_while_loki_takes_nothing(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        for number in range(5):
            capture.lines([str(number)])
            capture.rotate()
        node.learn()
        node.loki.script = [_fail]
        with pytest.raises(ZeroDivisionError):
            node.round()
        assert len(list(capture.segments.glob("*.seg"))) == 6
        node.ship()
        assert len(list(capture.segments.glob("*.seg"))) == 1


def _fail(labels: str) -> None:
    raise ZeroDivisionError


# ---- hostile captures


def test_bytes_that_are_no_text_go_out_as_text(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines([b"\xff\xfe bad", b"nul \0 nul", b"\x1b[31mred", b"cut \xe2\x82", b""])
        capture.lines([b"\xff{"], kind=Kind.METADATA, attrs={0: {"n": 1}})
        capture.lines([b"\xff" * 10], kind=Kind.STATUS)
    node.ship()
    assert node.loki.lines('kind="log"') == [
        "\ufffd\ufffd bad",
        "nul \0 nul",
        "\x1b[31mred",
        "cut \ufffd",
        "",
    ]
    assert node.loki.lines('kind="status"') == ["\ufffd" * 10]


def test_a_long_line_of_bad_bytes_is_split_by_what_it_becomes(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines([b"\xff" * 200_000])
    node.ship()
    assert node.quarantined() == []
    assert "".join(entry.line.decode() for entry in _parts(node)) == "\ufffd" * 200_000
    assert max(len(entry.line) for entry in node.loki.find()) <= node.config.loki.max_line_bytes


def _parts(node: ShippingNode) -> list[Any]:
    return sorted(node.loki.find('kind="log"'), key=lambda entry: dict(entry.metadata)["part"])


@pytest.mark.parametrize(
    "attrs",
    [
        {"n": -1, "repeat": True, "part": "x"},
        {"n": 10**30, "repeat": "5", "part": {"a": []}},
        {"n": None, "part": "1/2\n", "job_id": "forged", "user": "root", "note": "1"},
        {"part": "9" * 100, "repeat": [1], "n": 1.5},
        {"part": "\u0661/\u0662"},
    ],
)
def test_attributes_that_are_no_attributes_are_left_out(
    node: ShippingNode, attrs: dict[str, Any]
) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.lines(["one", "two"], attrs={0: attrs, 77: {"n": 3}, -1: {"n": 3}})
    node.ship()
    assert node.loki.lines('kind="log"') == ["one", "two"]
    for entry in node.loki.find('kind="log"'):
        assert dict(entry.metadata) == {"job_id": "job1", "user": "me", "task": "0", "attempt": "1"}


def test_one_captures_impossible_times_leave_others_alone(node: ShippingNode) -> None:
    with node.capture("hostile", soon_ns()) as hostile:
        hostile.lines(["then"], time_ns=5)
        hostile.lines(["some day"], time_ns=YEAR_2200_NS)
        hostile.lines(["overflow"], time_ns=(1 << 64) - 1)
        hostile.now_ns = YEAR_2200_NS
        hostile.heartbeat()
        hostile.event("mode_changed", to="metadata")
        node.ship()
        assert {entry["reason"] for entry in node.quarantined()} == {"too_old", "too_new"}
        with node.capture("honest", soon_ns(1)) as honest:
            honest.lines(["good day"])
            node.ship()
        assert node.loki.lines('kind="log"', '"}') == ["good day"]
        assert not any(REPLAY in labels for labels in node.loki.streams()), (
            "refused entries are nobody's newest"
        )
    node.restart()
    with node.capture("honest2", soon_ns(1)) as honest:
        honest.lines(["good night"])
        node.ship()
    assert not any(REPLAY in labels for labels in node.loki.streams())


def test_events_of_any_depth_stop_nobody(node: ShippingNode) -> None:
    """json.loads accepts a depth that json.dumps refuses if called a few frames deeper."""
    with node.capture("hostile", soon_ns()) as hostile:
        for depth in [*range(100, 1000, 50), *range(900, 1000)]:
            nested = b"[" * depth + b"]" * depth
            text = b'{"type":"event","event":"x","nested":' + nested + b"}"
            hostile.append(_record(hostile.tick(), text))
    whole(node, "honest", ["good day"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["good day"]
    assert all(capture.sinks[0].progress.done for capture in node.captures.values())


def _record(time_ns: int, text: bytes) -> bytes:
    """Return a RECORD frame of any bytes."""
    return segment._encode(segment.FrameType.RECORD, Stream.NONE, time_ns, 1, b"", text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"event","event":"x","v":' + b"9" * 4000 + b"}",
        b'{"type":"event","event":"x","v":NaN,"w":' + b"9" * 40 + b"}",
        b'{"type":"event","event":"\\ud800","v":"\\udfff"}',
        b'{"type":"event","event":{"a":[1]}}',
        b'{"type":["event"],"event":1}',
        b'{"type":"end","state":["COMPLETED"],"exit_code":"0","signal":-1,"ended_ns":1e300,"ledger":[]}',
        b'{"type":"start","started_ns":-5,"columns":1e9,"version":{},"mode":[],"host":"\\ud800"}',
        b'{"type":"heartbeat","ledger":{"stdout":{"stored":99999999999999999999}}}',
        b"[1,2]",
        b"\xff\xfe",
        b"",
        b'{"type":"ledger","ledger":{"stdout":[]}}',
    ],
)
def test_records_of_any_kind_stop_nobody_and_are_json(node: ShippingNode, text: bytes) -> None:
    with node.capture("hostile", soon_ns()) as hostile:
        hostile.append(_record(hostile.tick(), text))
    whole(node, "honest", ["good day"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["good day"]
    for entry in node.loki.find('kind="event"'):
        json.loads(entry.line, parse_constant=_no_constant)
    assert all(capture.sinks[0].progress.done for capture in node.captures.values())


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} isn't JSON")


def test_millions_of_tiny_frames_pass(node: ShippingNode) -> None:
    with node.capture("hostile", soon_ns()) as hostile:
        empty = segment.encode_lines(Stream.STDOUT, soon_ns(), b"", [(Kind.LOG, 0)])
        hostile.append(empty * ((5 << 18) // len(empty)))
        hostile.append(_record(hostile.tick(), b"{}") * 3000)
        hostile.lines(["at last"])
        with node.capture("honest", soon_ns()) as honest:
            honest.lines(["good day"])
            node.learn()
            node.round()
        assert "good day" in node.loki.lines('kind="log"')
        node.ship()
    assert "at last" in node.loki.lines('kind="log"')


def test_starts_heartbeats_and_ends_without_number_do_not_multiply(node: ShippingNode) -> None:
    """A frame of 60 bytes becomes an event of 600, but a capture has only one start and one end."""
    begin_ns = soon_ns()
    with node.capture("hostile", begin_ns) as hostile:
        for record in (b'{"type":"start"}', b'{"type":"end"}'):
            frames = b"".join(_record(begin_ns + number, record) for number in range(3000))
            hostile.append(frames)
        node.ship()
    spooled = sum(path.stat().st_size for path in hostile.segments.glob("*.seg"))
    byte_count = sum(len(entry.line) for entry in node.loki.find('kind="event"'))
    assert byte_count < 2 * spooled


def test_damage_is_said_in_loki_and_stops_nobody(node: ShippingNode) -> None:
    with node.capture("hurt", soon_ns()) as hurt:
        hurt.lines(["before"])
        hurt.append(b"\0garbage" * 100)
        hurt.lines(["after"])
    whole(node, "honest", ["good day"])
    node.ship()
    assert sorted(node.loki.lines('kind="log"')) == ["after", "before", "good day"]
    assert [event["event"] for event in node.events("hurt")] == ["segment_damaged", "closed"]


def test_a_newer_segment_waits_and_others_go_on(node: ShippingNode) -> None:
    with node.capture("newer", soon_ns()) as newer:
        content = bytearray(newer.segment.read_bytes())
        content[8:10] = (99).to_bytes(2, "little")
        newer.segment.write_bytes(bytes(content))
        newer.lines(["from the future"])
    whole(node, "honest", ["good day"])
    node.ship()
    assert node.loki.lines('kind="log"') == ["good day"]
    assert not all(capture.sinks[0].progress.done for capture in node.captures.values())
    pushes = len(node.loki.requests)
    node.ship()
    assert len(node.loki.requests) == pushes


def test_a_capture_that_the_system_refuses_to_read_stops_nobody(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount of the user's own may hide a segment, even from root."""
    whole(node, "hostile", ["evil"])
    whole(node, "honest", ["good day"])
    node.learn()
    read = SegmentReader.read

    def refuse(
        reader: SegmentReader, max_bytes: int, *, alive: bool, until: SpoolPosition | None = None
    ) -> FrameBatch:
        if "/hostile@" in reader._path:
            raise PermissionError(13, "Permission denied")
        return read(reader, max_bytes, alive=alive, until=until)

    monkeypatch.setattr(SegmentReader, "read", refuse)
    for _ in range(5):
        try:
            node.round()
        except OSError:
            continue
    assert node.loki.lines('kind="log"') == ["good day"]


def test_segments_that_are_something_else_stop_nobody(node: ShippingNode, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's")
    makers: list[Callable[[Path], None]] = [
        lambda path: path.mkdir(),
        os.mkfifo,
        lambda path: path.symlink_to(secret),
        lambda path: path.symlink_to("/dev/zero"),
    ]
    for number, make in enumerate(makers):
        with node.capture(f"hostile{number}", soon_ns()) as hostile:
            hostile.lines(["before"])
            make(hostile.segments / "0000000002.seg")
            make(hostile.segments / "counters")
    whole(node, "honest", ["good day"])
    node.ship()
    assert "good day" in node.loki.lines('kind="log"')
    assert all(capture.sinks[0].progress.done for capture in node.captures.values())
    assert "root's" not in " ".join(node.loki.lines())


def _hashable(entry: Any) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    return (entry.time_ns, entry.line, tuple(entry.metadata))
