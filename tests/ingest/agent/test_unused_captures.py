"""The time after which the agent removes a capture's unused directory."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper_ingest.agent.node_agent import UNUSED_SECS, NodeAgent
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentConfig, parse

DAY_NS = 86_400 * 10**9


@pytest.fixture
def config(tmp_path: Path) -> AgentConfig:
    agent = {"cluster": "testing", "host": "n1", "socket": "", "spool_dir": str(tmp_path / "spool"),
             "state_dir": str(tmp_path / "state")}  # fmt: skip
    config, problems = parse({"agent": agent, "loki": {"url": "http://127.0.0.1:9"}})
    assert problems == []
    return config


@pytest.fixture
def agent(config: AgentConfig) -> Iterator[NodeAgent]:
    agent = NodeAgent(config, lambda _: None)
    yield agent
    agent._end()


@pytest.fixture
def capture(config: AgentConfig, agent: NodeAgent) -> Path:
    """Return the directory of a job whose sidecar is about to begin."""
    identity = NodeIdentity("42", 1, "", 0, "train.py", os.geteuid(), "me", gid=os.getegid())
    return Path(prepare_capture(config.agent, identity))


@pytest.mark.parametrize("by_ns", [DAY_NS, -DAY_NS])
def test_it_stays_where_the_clock_is_set(
    capture: Path, agent: NodeAgent, monkeypatch: pytest.MonkeyPatch, by_ns: int
) -> None:
    real_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + by_ns)
    agent._turn()
    assert capture.exists()


def test_it_is_removed_when_it_is_old(capture: Path, agent: NodeAgent) -> None:
    old_ns = time.time_ns() - int((UNUSED_SECS + 60) * 1e9)
    for path in (*capture.iterdir(), capture):
        os.utime(path, ns=(old_ns, old_ns))
    agent._turn()
    assert not capture.exists()
