"""A running job with a late heartbeat: a local store and Loki report it once, and also its
return."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import logshipper
from logshipper_ingest.model.job import UNRESPONSIVE_NS
from logshipper_ingest.spool.segment_reader import SegmentReader
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.captures.segment_factory import SECOND_NS, CaptureWriter
from tests.tools.stores.node_agents import NodeAgent, cluster
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.waiting import scaled

__all__ = ["cluster"]  # a fixture
LATE_SECS = UNRESPONSIVE_NS / 1e9 + 1


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def wait_out(node: ShippingNode, secs: float = LATE_SECS) -> None:
    """Let some seconds without new data pass by the agent's own clock."""
    for capture in node.captures.values():
        for sink in capture.sinks:
            sink.read_at -= secs


def event_names(node: ShippingNode, job_id: str) -> list[str]:
    return [
        event["event"]
        for event in node.events(job_id)
        if str(event["event"]).startswith("heartbeat_")
    ]


def silent_capture(node: ShippingNode, job_id: str) -> CaptureWriter:
    capture = node.capture(job_id, soon_ns()).__enter__()
    capture.start()
    capture.lines(["one"])
    node.ship()
    return capture


def test_the_agent_says_it_while_it_lasts_and_only_once(node: ShippingNode) -> None:
    capture = silent_capture(node, "job1")
    wait_out(node, LATE_SECS - 3)
    node.ship()
    assert event_names(node, "job1") == []
    for _ in range(3):
        wait_out(node, 5)
        node.ship()
    assert event_names(node, "job1") == ["heartbeat_lost"]
    capture.now_ns += 60 * SECOND_NS
    capture.lines(["two"])
    node.ship()
    assert event_names(node, "job1") == ["heartbeat_lost", "heartbeat_found"]
    wait_out(node)
    node.ship()
    assert event_names(node, "job1") == ["heartbeat_lost", "heartbeat_found", "heartbeat_lost"], (
        "another silence"
    )
    capture.die()
    assert node.loki.doubles() == []


def test_an_agent_that_begins_anew_says_it_no_second_time(node: ShippingNode) -> None:
    capture = silent_capture(node, "job1")
    wait_out(node)
    node.ship()
    node.restart()
    wait_out(node)
    node.ship()
    assert event_names(node, "job1") == ["heartbeat_lost"]
    assert node.loki.doubles() == []
    capture.die()


def test_what_is_there_to_be_read_is_no_silence(node: ShippingNode) -> None:
    """The agent was stopped for a minute, but the job ran."""
    capture = silent_capture(node, "job1")
    for _ in range(12):
        capture.now_ns += 5 * SECOND_NS
        capture.heartbeat()
    wait_out(node, 60)
    node.ship()
    assert event_names(node, "job1") == ["heartbeat"] * len(event_names(node, "job1"))
    capture.die()


def test_a_stepped_clock_is_no_silence(node: ShippingNode, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = silent_capture(node, "job1")
    real_ns = time.time_ns
    for hours in (1, -1):
        monkeypatch.setattr(
            time, "time_ns", lambda hours=hours: real_ns() + hours * 3600 * SECOND_NS
        )
        node.ship()
    assert event_names(node, "job1") == []
    capture.die()


def test_a_dead_capture_has_ended_and_is_not_late(node: ShippingNode) -> None:
    capture = silent_capture(node, "job1")
    capture.die()
    wait_out(node)
    node.ship()
    assert event_names(node, "job1") == []
    assert [event["state"] for event in node.events("job1") if event["event"] == "closed"] == [
        "FAILED"
    ]


def test_an_orphans_heartbeat_is_late(node: ShippingNode) -> None:
    """The sidecar is dead, while the job and its relay run."""
    capture = silent_capture(node, "job1")
    capture.counters((4, 1), pid=os.getpid())
    os.utime(capture.path / "identity.json")  # after the start of this process
    capture.die()
    wait_out(node)
    node.ship()
    assert event_names(node, "job1") == ["heartbeat_lost"]
    capture.counters((4, 1))
    node.ship()
    closed = node.events("job1")[-1]
    assert (closed["event"], closed["state"]) == ("closed", "FAILED"), (
        "and nothing comes after that"
    )


def test_a_segment_that_cannot_be_read_is_no_silence(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = silent_capture(node, "job1")
    with monkeypatch.context() as patch:
        patch.setattr(
            SegmentReader, "read", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "no"))
        )
        wait_out(node)
        node.round()
    assert event_names(node, "job1") == []
    capture.die()


# ---- a sidecar that is stopped for real


def sidecar_of(captures: Path) -> int:
    """Return the process that holds the capture's lock."""
    (lock,) = captures.glob("*@*/segments/lock")
    inode = lock.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            return int(words[4])
    return 0


@contextmanager
def running(home: Home, **more: Any) -> Iterator[None]:
    command = (
        "run",
        "--name",
        "sleeper",
        "--job-id",
        "s1",
        "--",
        "sh",
        "-c",
        "echo begun; exec sleep 600",
    )
    with home.start(*command, start_new_session=True, **more) as process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=scaled(60))


def states_of(store: logshipper.Store) -> list[tuple[str, str]]:
    events = logshipper.EventLog(store).filter(job_id=store.job("s1").job_id).order_by("timestamp")
    return [(event.from_state, event.to_state) for event in events]


def is_in(store: logshipper.Store, state: str) -> bool:
    return store.job("s1").state == state


def has_been_found(store: logshipper.Store) -> bool:
    return states_of(store) == FOUND


LOST = [("QUEUED", "RUNNING"), ("RUNNING", "UNRESPONSIVE")]
FOUND = [*LOST, ("UNRESPONSIVE", "RUNNING")]


def test_a_stopped_sidecar_is_unresponsive_and_comes_back(
    tmp_path: Path, loki: LokiServer, cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "home").mkdir()
    home = Home(tmp_path / "home")
    with ExitStack() as stack:
        agent = stack.enter_context(NodeAgent(tmp_path / "node", loki.url, cluster=cluster))
        stack.enter_context(running(home))
        by_agent = {
            key: value for key, value in agent.environment.items() if key.startswith("LOGSHIPPER")
        }
        second_home = Home(tmp_path / "home")
        second_home.environment.pop("LOGSHIPPER_STORE")
        stack.enter_context(running(second_home, env=by_agent))
        spools = (home.store / "spool", agent.spool)
        wait_until(
            lambda: all(any(spool.glob("*@*/segments/lock")) for spool in spools),
            "both captures have begun",
        )
        sidecars = [sidecar_of(spool) for spool in spools]
        assert all(sidecars)
        local = stack.enter_context(logshipper.Store.local(home.store))
        loki_store = stack.enter_context(logshipper.Store.loki(loki.url, cluster=cluster))
        stores = (local, loki_store)
        wait_until(
            lambda: [job.state for job in loki_store.jobs("s1*")] == ["RUNNING"],
            "Loki knows the job",
        )
        for pid in sidecars:
            os.kill(pid, signal.SIGSTOP)
        try:
            for store in stores:
                wait_until(partial(is_in, store, "UNRESPONSIVE"), "its heartbeat is late")
                assert states_of(store) == LOST
                assert states_of(store) == LOST, "said once"
            jobs = json.loads(home.call("ls", "--json").stdout)["jobs"]
            assert [job["state"] for job in jobs] == ["UNRESPONSIVE"]
        finally:
            for pid in sidecars:
                os.kill(pid, signal.SIGCONT)
        for store in stores:
            wait_until(partial(is_in, store, "RUNNING"), "its heartbeat is back")
            wait_until(partial(has_been_found, store), "and that is an event")
            lost_event, found_event = (
                logshipper.EventLog(store).filter(kind=kind)[0]
                for kind in ("heartbeat_lost", "heartbeat_found")
            )
            assert 0 < (found_event.time_ns - lost_event.time_ns) / SECOND_NS < 60
            assert found_event.data["secs"] == pytest.approx(
                (found_event.time_ns - lost_event.time_ns) / SECOND_NS + 20, abs=0.01
            )
