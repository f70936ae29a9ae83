"""Growth of an agent with the number of captures: each finished capture leaves only one row. Many
small captures need as few pushes and commits as few large ones."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logshipper import fault_points
from logshipper_ingest.agent.node_spool import NodeIdentity, NodeSpool
from logshipper_ingest.config.agent_config import AgentSection
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import CaptureWriter, make_ledger
from tests.tools.fakes.faulty_server import FaultyServer, Said
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.stores.shipping_node import ShippingNode, soon_ns

WAVE = 40  # captures
SHOWN = 30  # the most in /metrics
STREAMS = 14  # at Loki: lines of two streams in ten shards, records, events, values
LINES = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShippingNode]:
    shipping_node = ShippingNode(tmp_path)
    yield shipping_node
    shipping_node.close()


def write_whole(capture: CaptureWriter, lines: int) -> None:
    capture.start()
    capture.lines([f"line {line}" for line in range(lines)])
    capture.metadata({"step": 1, "loss": 0.5})
    capture.end(ledger=make_ledger({"stored": lines + 1, "bytes": 100 * lines}))
    capture.close()
    capture.die()


def open_files(agent: NodeAgent) -> list[str]:
    """Return the agent's open files in its spool."""
    assert agent.process is not None
    names = []
    for number in os.listdir(f"/proc/{agent.process.pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{agent.process.pid}/fd/{number}"))
        except FileNotFoundError:  # closed meanwhile
            pass
    return [name for name in names if name.startswith(f"{agent.spool}/")]


def send_wave(agent: NodeAgent, first: int) -> None:
    """Run captures that the agent follows until they end; return when it has closed all their
    files."""
    section = AgentSection(cluster="growth", host="n1", spool_dir=str(agent.spool))
    captures = []
    with NodeSpool(section) as spool:
        for number in range(first, first + WAVE):
            name = spool.make(
                NodeIdentity(f"job{number}", 1, "0", 0, "train.py", os.getuid(), "me")
            )
            captures.append(
                CaptureWriter.in_node_spool(agent.spool / name, start_ns=soon_ns(), alive=True)
            )
    wait_until(lambda: len(open_files(agent)) >= WAVE, "they are followed")
    for capture in captures:
        write_whole(capture, LINES)
    agent.wait_shipped()
    wait_until(lambda: not open_files(agent), "no file of theirs is open")


def test_captures_leave_a_row_each_and_no_file(tmp_path: Path) -> None:
    with (
        FaultyServer(Said(204)) as server,
        NodeAgent(tmp_path, server.url, cluster="growth", metrics={"max_captures": SHOWN}) as agent,
    ):
        files = sorted(path.name for path in agent.state.iterdir())
        send_wave(agent, 0)
        send_wave(agent, WAVE)
        assert sorted(path.name for path in agent.state.iterdir()) == files
        lines = agent.metrics().splitlines()
        assert sum(line.startswith("logshipper_job_info{") for line in lines) == SHOWN
        agent.stop()
        with closing(sqlite3.connect(agent.state / "state.db")) as state:
            assert state.execute("SELECT count(*), sum(done) FROM shipped").fetchone() == (
                2 * WAVE,
                2 * WAVE,
            )
            assert state.execute("SELECT count(*) FROM learnt").fetchone() == (0,)


@pytest.mark.parametrize(("captures", "lines"), [(4, 250), (200, 5)])
def test_small_captures_take_no_more_pushes_and_commits_than_large_ones(
    captures: int, lines: int, node: ShippingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(captures):
        write_whole(node.capture(f"job{number}", soon_ns()), lines)
    points: Counter[str] = Counter()
    monkeypatch.setattr(fault_points, "on_reached", lambda name: points.update([name]))
    node.ship()
    assert len(node.loki.find('kind="log"')) == captures * lines
    rounds = points["committed"]
    assert rounds <= 3
    assert points["attempt_noted"] <= rounds
    assert points["pushed"] == len(node.loki.requests) <= STREAMS * rounds
