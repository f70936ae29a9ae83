"""An agent without free file descriptors: it takes no capture for dead, counts nothing twice, and
ships captures beyond its limit."""

import errno
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logshipper.spool.captures import Counters
from logshipper.spool.segment import Json
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.agent_metrics import exposition
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life
from logshipper_ingest.spool.relay_process import relay_runs
from tests.servers.running import LokiServer
from tests.tools.captures.segment_factory import make_ledger
from tests.tools.stores.node_agents import NodeAgent, client, cluster, entries_of
from tests.tools.stores.shipping_node import ShippingNode, soon_ns
from tests.tools.stress.conservation import Place, all_problems, balances_in_loki, spool

__all__ = ["client", "cluster"]  # fixtures
CAPTURES, LINES = 60, 10
LIMIT, AT_ONCE = 128, 16  # half of the descriptors are for captures, four each


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Keep open files open, and let every further open fail."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_cannot_be_looked_at_is_not_taken_for_missing(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.counters((10, 2), pid=os.getpid())
        folder = node.only_capture().folder
        with no_descriptors():
            for look in (folder.life, folder.counters, folder.identity, folder.is_unused):
                with pytest.raises(OSError, match="Too many open files"):
                    look()
            with pytest.raises(OSError, match="Too many open files"):
                relay_runs(os.getpid(), 0, os.getuid())
            assert folder.telegraf_port() == 0
        assert folder.life() is Life.LIVE


def test_a_living_capture_goes_on_after_a_shortage(node: ShippingNode) -> None:
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.lines(["one"])
        node.ship()
        captures = node.follow()
        capture.lines(["two"])
        captures[0].next_look = 0.0
        with no_descriptors():
            node.learner.turn(captures)
        assert "Too many open files" in node.messages[-1]
        captures[0].next_look = 0.0
        capture.lines(["three"])
        capture.end(ledger=make_ledger({"stored": 3, "bytes": 14}))
        capture.close()
    node.ship()
    assert [entry.line for entry in node.loki.find('kind="log"')] == [b"one", b"two", b"three"]
    (closed,) = [event for event in node.events("job1") if event["event"] == "closed"]
    assert (closed["state"], closed["lines"]) == ("COMPLETED", 3)


def test_what_the_relay_counted_is_read_later_and_frames_count_once(
    node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner and the shipper read a capture that died, and whose last lines are lost."""
    with node.capture("job1", soon_ns()) as capture:
        capture.start()
        capture.lines(["one", "two"])
        capture.counters((100, 5))
    counters, failures = CaptureFolder.counters, 0

    def short(folder: CaptureFolder) -> Counters | None:
        nonlocal failures
        if sys._getframe(1).f_code.co_name == "learn" and failures in (0, 2):
            failures += 1
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        failures += sys._getframe(1).f_code.co_name == "learn"
        return counters(folder)

    monkeypatch.setattr(CaptureFolder, "counters", short)
    captures = node.follow()
    for _ in range(2):
        captures[0].next_look = 0.0
        node.learner.turn(captures)
    assert captures[0].knowledge.done
    for _ in range(2):
        node.round()
    (closed,) = [event for event in node.events("job1") if event["event"] == "closed"]
    ledger: Json = {name: closed["ledger"]["stdout"][name] for name in ("read", "stored", "lost")}
    assert (failures, ledger, closed["lines"]) == (4, {"read": 5, "stored": 2, "lost": 3}, 2)
    assert [
        words.partition("1@1")[2].partition(": ")[2]
        for words in node.messages
        if "the agent retries" in words
    ] == ["can't be read: [Errno 23] Too many open files in system; the agent retries"] * 2
    text = exposition(node.health, node.metrics)[0].decode()
    assert 'logshipper_agent_lines_total{stream="stdout",user="me"} 5.0' in text, (
        "of those that died as well"
    )


def test_more_captures_than_there_are_descriptors_for(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    agent = NodeAgent(tmp_path / "node", loki.url, cluster=cluster)
    section = agent_config.load(str(agent.config)).agent
    line_counts: dict[Place, int] = {}
    for number in range(CAPTURES):
        line_counts |= spool(section, f"job{number}", LINES)
    with agent.start(
        by=("prlimit", f"--nofile={LIMIT}:{LIMIT}", sys.executable, "-m", "logshipper_ingest")
    ):
        agent.wait_shipped()
        assert agent.stop() == 0
    assert all_problems(balances_in_loki(entries_of(client, cluster), line_counts)) == {}
    log = agent.log.read_text()
    assert log.count(f"file descriptors suffice for {AT_ONCE} captures") == 1
    assert "Too many open files" not in log
