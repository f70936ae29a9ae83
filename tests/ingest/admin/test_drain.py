"""`logshipper-agent drain`: before a node goes down, it waits until Loki has the logs of all ended
jobs, or reports the rest with reasons."""

import json
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from logshipper_ingest.admin import drain
from logshipper_ingest.cli import main
from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import NodeAgent, Proxy, entries_of
from tests.tools.stores.shipping_node import NodeCapture, ShippingNode, soon_ns

PRINTS = r"""
import json
for n in range(500): print("line", n)
print("\n\nthe same\nthe same\nthe same")
print(json.dumps({"step": 1}), "x" * 600_000, sep="\n")
print('/LOGCOMMAND {"mode": "metadata"}\ndropped')
"""


def test_it_waits_for_what_is_over_and_names_what_runs(loki: LokiServer, tmp_path: Path) -> None:
    cluster = f"c{uuid.uuid4().hex[:12]}"
    away = True

    def answer(number: int) -> tuple[int, Mapping[str, str], bytes] | None:
        return (503, {}, b"Loki is away") if away else None

    with Proxy(loki.url) as proxy, NodeAgent(tmp_path, proxy.url, cluster=cluster) as agent:
        proxy.answer = answer
        agent.run(sys.executable, "-c", PRINTS)
        wait_until(lambda: agent.status()["loki"]["waiting"], "status tells that Loki is away")
        early = agent.call("drain", "--timeout", "1s", "--json")
        report = json.loads(early.stdout)
        assert (early.returncode, report["drained"], len(report["left"])) == (3, False, 1)
        assert report["left_bytes"] > 3000
        assert "HTTP 503: Loki is away" in report["why"]
        away = False
        done = agent.call("drain")
        assert (done.returncode, done.stdout) == (0, "all captures that are over are shipped\n"), (
            done.stderr
        )
        assert agent.captures() == []
        with LokiClient(loki.url) as client:
            lines = [entry.line for entry in entries_of(client, cluster, "log")]
        assert lines[:500] == [f"line {n}" for n in range(500)]
        ledger = agent.status()["ledger"]
        assert (ledger["balances"], ledger["differs"], ledger["waiting"]) == (True, "", 0)
        assert (ledger["stored"], ledger["shipped"], ledger["collapsed"], ledger["lost"]) == (
            504,
            504,
            2,
            0,
        )
        assert all(ledger[name] for name in ("blank", "dropped", "commands"))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the configuration of a node whose agent doesn't run."""
    return NodeAgent(tmp_path, "http://loki.invalid", cluster="c").config


def test_a_node_without_an_agent(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["drain", "--config", str(config)]
    assert main(words) == 0, "nothing was ever there"
    capsys.readouterr()
    node = ShippingNode(tmp_path)
    try:
        capture = NodeCapture(node, "job1", soon_ns())
        capture.lines(["one"])
        capture.close()
        with NodeCapture(node, "job2", soon_ns()) as running:
            running.lines(["two"])
            (node.folder / "spool" / "odd@1.aaaa").mkdir()
            assert main(words) == 3
    finally:
        node.close()
    output = capsys.readouterr().out
    assert "left in 1 capture:" in output
    assert "the agent doesn't run: start it" in output
    assert "the agent can't take odd@1.aaaa: `logshipper-agent fsck` says why" in output
    assert "1 jobs run, and go on being captured: job2" in output
    assert "quarantine" not in output


def test_the_quarantine_is_mentioned(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state" / "quarantine"
    folder.mkdir(parents=True)
    (folder / "2026-01-01.u0.jsonl").write_text("12345\n")
    assert main(["drain", "--config", str(config)]) == 0
    assert "6 B are in the quarantine, on this node's disk only" in capsys.readouterr().out


def test_rate_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = drain._Progress()
    for clock[0], size in ((0.0, 4000), (6.0, 2500), (12.0, 1000)):
        capture = {"bytes": size}
        progress.show(drain.Look([capture], [], [], []))  # type: ignore[list-item]  # no more is needed
    assert capsys.readouterr().err == "logshipper-agent: 1,000 B left in 1 capture, 250 B/s, 4 s\n"
