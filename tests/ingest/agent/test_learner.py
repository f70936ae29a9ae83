"""The learner: every frame of a capture counts in /metrics once, independent of Loki and
restarts."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from logshipper_ingest.agent import learner
from logshipper_ingest.agent.learner import BATCH_BYTES, MUCH_BYTES, QUIET_LOOKS
from logshipper_ingest.metrics.agent_metrics import exposition
from logshipper_ingest.shipping.followed_capture import FollowedCapture, ShippedCapture
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.spool.segment_reader import FrameBatch, SegmentReader, SpoolPosition
from tests.tools.captures.segment_factory import CaptureWriter, make_ledger
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

SECOND_NS = 10**9


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def test_a_run_from_start_to_end_is_shown(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns(), user="ann", step="7") as capture:
        capture.start()
        capture.metadata({"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5})
        capture.heartbeat()
        node.learn()
        running = node.metrics.views[-1]
        assert (running.over, running.records, running.identity.user, running.identity.step) == (
            False,
            2,
            "ann",
            "7",
        )
        assert {"/".join(map(str, path)): value for path, value in running.latest.items()} == {
            "step": 2,
            "loss": 1.5,
        }
        capture.lines(["one"])
        capture.counters((100, 3))
        capture.end(ledger=make_ledger({"stored": 3, "bytes": 100}))
        capture.close()
    node.learn()
    view = node.metrics.views[-1]
    assert (view.state, view.exit_code, view.over, view.lines, view.bytes_printed) == (
        "COMPLETED",
        0,
        True,
        3,
        100,
    )
    assert view.ledger["stdout"]["stored"] == 3
    assert node.only_capture().knowledge.done
    assert node.loki.requests == [], "Loki isn't asked"


def test_nothing_new_is_not_shown_again(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        node.learn()
        view_count = len(node.metrics.views)
        for _ in range(5):
            node.learn()
        assert len(node.metrics.views) == view_count
        capture.lines(["one"])
        node.learn()
        assert len(node.metrics.views) == view_count + 1


class Clocked(NamedTuple):
    """now: the time of the monotonic clock; capture: begun, and not read yet."""

    node: ShippingNode
    now: list[float]
    writer: CaptureWriter
    capture: FollowedCapture


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    """Return a node that looks ten times a second, with a clock of the test's own."""
    node = ShippingNode(tmp_path)
    node.learner._poll_secs = 0.1
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with node.capture("job1", soon_ns()) as writer:
        writer.start()
        (capture,) = node.follow()
        yield Clocked(node, now, writer, capture)
    monkeypatch.undo()
    node.close()


def test_a_quiet_capture_is_left_alone_for_longer_and_longer(clocked: Clocked) -> None:
    node, now, writer, capture = clocked
    pauses = []
    for _ in range(8):
        node.learner.turn([capture])
        pauses.append(round(capture.next_look - now[0], 6))
        now[0] = capture.next_look
    assert pauses == [0.4, 0.8, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    writer.lines(["one"])
    node.learner.turn([capture])
    assert round(capture.next_look - now[0], 6) == 0.4
    assert not node.learner.turn([capture]), "its time hasn't come"


def test_a_quiet_capture_is_read_every_few_looks(
    clocked: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, now, writer, capture = clocked
    reads = []
    read = SegmentReader.read

    def noted(reader: SegmentReader, max_bytes: int, **options: Any) -> FrameBatch:
        reads.append(reader)
        return read(reader, max_bytes, **options)

    monkeypatch.setattr(SegmentReader, "read", noted)
    counts = []
    for _ in range(2 * (QUIET_LOOKS + 1)):
        now[0] = capture.next_look
        node.learner.turn([capture])
        counts.append(len(reads))
    assert counts == [1] * (QUIET_LOOKS + 1) + [2] * (QUIET_LOOKS + 1)
    writer.die()
    now[0] = capture.next_look
    node.learner.turn([capture])
    assert capture.knowledge.done, "a death needs no growth"


def _waits(sink: ShippedCapture) -> bool:
    return sink.waits


def test_little_output_waits_for_a_few_looks_and_wakes_shippers_at_once(clocked: Clocked) -> None:
    node, now, writer, capture = clocked
    node.learner.turn([capture])
    (sink,) = capture.sinks
    sink.reader.read(1 << 20, alive=True)
    assert not _waits(sink)
    learnt = capture.learn_reader.position
    for text in ("one", "two"):
        now[0] += 0.1
        writer.lines([text])
        assert node.learner.turn([capture]), "shippers are to look"
        assert capture.learn_reader.position == learnt
        assert _waits(sink)
        sink.reader.read(1 << 20, alive=True)
        assert not _waits(sink), "it has read more than the learner"
        assert not node.learner.turn([capture]), "they know"
    writer.lines(["three"])
    assert _waits(sink), "a shipper that is ahead looks for itself"
    sink.reader.read(1 << 20, alive=True)
    now[0] += 0.2
    assert node.learner.turn([capture])
    assert capture.learn_reader.position == sink.reader.position
    assert capture.knowledge.account.lines == 3
    writer.lines(["x" * 999] * (MUCH_BYTES // 500))
    node.learner.turn([capture])
    assert capture.knowledge.account.lines > 3, "much doesn't wait"
    writer.lines(["last"])
    writer.die()
    node.learner.turn([capture])
    assert capture.knowledge.done, "an end doesn't wait"


def test_a_backlog_is_gone_through_in_pieces(node: ShippingNode) -> None:
    with node.capture("big", soon_ns()) as big, node.capture("small", soon_ns()) as small:
        for _ in range(3 * BATCH_BYTES // 500_000):
            big.lines(["x" * 999] * 500)
        small.lines(["y"])
        captures = {capture.identity.job_id: capture for capture in node.follow()}
        assert node.learner.turn(captures.values())
        assert captures["small"].knowledge.account.lines == 1
        lines = captures["big"].knowledge.account.lines
        assert 0 < lines <= (BATCH_BYTES + (1 << 20)) // 1000
        node.learn()
        assert captures["big"].knowledge.account.lines == 500 * (3 * BATCH_BYTES // 500_000)


@pytest.mark.parametrize("save", [True, False])
def test_a_restart_counts_nothing_twice(save: bool, node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        for number in range(10):
            capture.metadata({"step": number, "loss": 1 / (number + 1)})
            capture.lines([f"{number}"])
            node.learn(save=number % 3 == 0)
            if number % 4 == 3:
                node.restart(save=save)
        node.learn()
        knowledge = node.only_capture().knowledge
    assert (knowledge.account.lines, knowledge.account.records) == (20, 10)
    assert knowledge.axis.records == 10
    assert knowledge.axis.choose().key == "step"


def test_what_is_printed_is_counted_by_user(node: ShippingNode) -> None:
    """Each byte and line counts once, also after a restart of the agent."""
    with (
        node.capture("job1", soon_ns(), user="ann") as ann,
        node.capture("job2", soon_ns(), user="bob") as bob,
    ):
        for capture, lines in ((ann, 3), (bob, 5)):
            capture.start()
            capture.lines(["x" * 9] * lines)
            capture.counters((lines * 10, lines))
            capture.heartbeat(ledger=make_ledger({"stored": lines, "bytes": lines * 10}))
        node.learn()
        node.learn()
        assert printed(node) == {
            ("ann", "lines"): 3,
            ("ann", "bytes"): 30,
            ("bob", "lines"): 5,
            ("bob", "bytes"): 50,
        }
        node.restart()
        assert printed(node) == {}
        ann.lines(["y" * 9])
        ann.counters((40, 4))
        ann.heartbeat(ledger=make_ledger({"stored": 4, "bytes": 40}))
        node.learn()
        assert printed(node) == {("ann", "lines"): 1, ("ann", "bytes"): 10}


def printed(node: ShippingNode) -> dict[tuple[str, str], float]:
    """Return counts of printed lines and bytes in /metrics, without zeros."""
    text = exposition(node.health, None)[0].decode()
    samples = re.findall(
        r'^logshipper_agent_(lines|bytes)_total\{(?:stream="stdout",|)user="(\w*)"(?:,what="printed"|)\} (\S+)$',
        text,
        re.M,
    )
    return {(user, kind): float(count) for kind, user, count in samples if float(count)}


@pytest.mark.parametrize(("max_users", "names_users"), [(1, True), (500, False)])
def test_users_without_a_name(
    max_users: int, names_users: bool, node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users beyond the limit have no name, and nobody has one if /metrics has no values of jobs."""
    monkeypatch.setattr(learner, "MAX_USERS", max_users)
    node.learner._names_users = names_users
    for user in ("ann", "bob"):
        with node.capture(user, soon_ns(), user=user) as capture:
            capture.start()
            capture.counters((10, 1))
            capture.lines(["x" * 9])
        node.learn()
    users = {user for user, _ in printed(node)}
    assert users == ({"ann", ""} if names_users else {""})
    assert sum(count for (_, kind), count in printed(node).items() if kind == "bytes") == 20


def test_saving_is_put_off_and_never_forgotten(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as writer:
        writer.lines(["one"])
        node.learn()  # with a checkpoint
        writer.lines(["two"])
        node.learn(save=False)
        (capture,) = node.follow()
        node.learner.save([capture])
        state = node.checkpoints.knowledge(capture.folder.key)
        assert state is not None
        assert state.account.lines == 1, "not so soon after the last time"
        node.learner.save([capture], at_once=True)
        state = node.checkpoints.knowledge(capture.folder.key)
        assert state is not None
        assert state.account.lines == 2


def test_what_is_over_and_removed_is_forgotten_with_the_next_save(node: ShippingNode) -> None:
    for name in ("job1", "job2"):
        with node.capture(name, soon_ns()) as capture:
            capture.start()
            capture.end()
            capture.close()
    node.ship()
    gone, there = node.follow()
    node.learner.save(node.captures.values(), at_once=True)
    node.learner.forget(gone)
    assert node.checkpoints.knowledge(gone.folder.key) is not None
    node.learner.save([there], at_once=True)
    assert node.checkpoints.knowledge(gone.folder.key) is None
    assert node.checkpoints.knowledge(there.folder.key) is not None


def test_a_dead_capture_is_over_with_what_is_lost(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as writer:
        writer.start()
        writer.lines(["one"])
        writer.counters((100, 5))
        node.learn()
        assert node.metrics.views[-1].state == "UNRESPONSIVE", "its last line is ten minutes old"
    node.learn()
    view = node.metrics.views[-1]
    assert (view.state, view.over) == ("FAILED", True)
    assert view.ledger["stdout"]["lost"] == 4
    assert node.health.registry.get_sample_value("logshipper_agent_lost_lines_total") == 4
    node.restart()
    node.learn()
    assert node.health.registry.get_sample_value("logshipper_agent_lost_lines_total") == 0, (
        "counted before"
    )


def test_an_orphan_is_not_over_while_its_relay_runs(node: ShippingNode) -> None:
    writer = node.capture("job1", soon_ns())
    with writer:
        writer.start()
        writer.counters((1, 1), pid=os.getpid())
        os.utime(writer.path / "identity.json")  # after the start of this process
        node.learn()
    node.learn()
    (capture,) = node.follow()
    assert capture.life is Life.ORPHANED
    assert not capture.knowledge.done
    assert "its output isn't logged" in capture.knowledge.account.reason
    writer.counters((1, 1))
    node.learn()
    assert capture.knowledge.done


def test_what_cannot_be_read_yet_is_said_once(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as writer:
        content = bytearray(writer.segment.read_bytes())
        content[8:10] = (99).to_bytes(2, "little")
        writer.segment.write_bytes(bytes(content))
        for _ in range(5):
            node.learn()
    (line,) = node.messages
    assert "upgrade" in line
    assert "waits in the spool" in line
    assert not node.only_capture().knowledge.done


def test_an_error_of_the_system_costs_no_frame(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process runs out of descriptors just when it opens the next segment."""
    with node.capture("job1", soon_ns()) as writer:
        writer.lines(["one"])
        writer.rotate()
        writer.lines(["two"])
        (capture,) = node.follow()
        real_open = os.open
        failing = [True]

        def limited(path: Any, flags: int, *more: Any, **options: Any) -> int:  # Any: os.open's
            if path == "0000000002.seg" and failing:
                failing.clear()
                raise OSError(24, "Too many open files")
            return real_open(path, flags, *more, **options)

        monkeypatch.setattr(os, "open", limited)
        with suppress(OSError):
            node.learn()
        assert not failing, "it was met with"
        capture.next_look = 0.0
        node.learn()
        assert capture.knowledge.account.lines == 2


def test_one_captures_error_leaves_the_others_followed(node: ShippingNode) -> None:
    for job_id in ("a-hostile", "b-honest"):
        with node.capture(job_id, soon_ns()) as writer:
            writer.lines(["one"])
    hostile, honest = node.follow()

    def refuse(max_bytes: int, *, alive: bool, until: SpoolPosition | None = None) -> FrameBatch:
        raise PermissionError(13, "Permission denied")

    hostile.learn_reader.read = refuse  # type: ignore[method-assign]
    for _ in range(3):
        with suppress(OSError):
            node.learner.turn([hostile, honest])
    assert honest.knowledge.account.lines == 1


def test_hostile_frames_stop_nothing(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as writer:
        writer.metadata(
            "{" * 5000, "[]", '{"a": 1e999}', '{"a": NaN}', "\x00", '{"' + "k" * 70_000 + '": 1}'
        )
        writer.lines([b"\xff\xfe"])
        writer.append(os.urandom(5000))
        writer.record({"type": "end", "state": "HACKED", "exit_code": 10**30, "ended_ns": -1})
        writer.lines(["at last"], time_ns=(1 << 64) - 1)
        node.learn()
        assert node.only_capture().knowledge.account.lines == 8
        assert any("left out" in line for line in node.messages)
    node.learn()
    assert node.only_capture().knowledge.done
    assert node.metrics.views[-1].exit_code is None


def test_what_was_over_before_a_restart_is_shown_while_it_waits_for_loki(
    node: ShippingNode,
) -> None:
    with node.capture("job1", soon_ns()) as writer:
        writer.start()
        writer.end()
        writer.close()
    node.learn()
    node.restart()
    node.metrics.views.clear()
    node.learn()
    assert [view.state for view in node.metrics.views[-1:]] == ["COMPLETED"]
