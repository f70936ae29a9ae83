"""The controller's agent as a process, killed at each point, with a real Loki: it stores a job's
end once."""

import json
import secrets
import time
from pathlib import Path

import pytest

from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import NodeAgent, entries_of

NS = 10**9
JOB = "4711"


def push_capture(client: LokiClient, cluster: str, began_ns: int) -> None:
    labels = {"cluster": cluster, "host": "n1", "service_name": "logshipper", "kind": "event"}
    metadata = {"job_id": JOB, "user": "ann", "step": "batch", "task": "0", "attempt": "1"}
    events = {"started": began_ns, "closed": began_ns + 30 * NS}
    lines = [
        Entry(
            at_ns,
            json.dumps({"event": name, "started_ns": began_ns, "state": "CANCELLED"}),
            metadata,
        )
        for name, at_ns in events.items()
    ]
    client.push(labels, lines)


def write_record(ended: Path, job_id: str, began_ns: int) -> None:
    start = began_ns // NS
    place = ended / f"{job_id}.{start + 30}.jobcomp.1"
    scratch = ended / f".new.{place.name}"
    scratch.write_text(
        f"logshipper-ended 1\nby=jobcomp\njob_id={job_id}\nstate=CANCELLED\nexit=0:15\nstart={start}\n"
        f"end={start + 30}\nrestarts=\nuser=ann\nnodes=n1\n.\n"
    )
    scratch.rename(place)


@pytest.mark.parametrize("crash_at", ["", "slurm_told", "slurm_sent", "slurm_committed"])
def test_killed_anywhere_it_is_told_once(crash_at: str, tmp_path: Path, loki: LokiServer) -> None:
    cluster = f"states{secrets.token_hex(4)}"
    client = LokiClient(loki.url)
    ended = tmp_path / "ended"
    ended.mkdir(mode=0o700)
    began_ns = time.time_ns() - 60 * NS
    push_capture(client, cluster, began_ns)
    write_record(ended, JOB, began_ns)
    write_record(ended, "4712", began_ns)  # a job without capture
    agent = NodeAgent(
        tmp_path, loki.url, cluster=cluster, host="ctl", slurm={"ended_dir": str(ended)}
    )
    if crash_at:
        with agent.start(crash_at=crash_at, wait=False):
            wait_until(agent.has_ended, "it has killed itself", 30.0)
    with agent:
        wait_until(lambda: agent.status()["slurm"]["shipped"] == 1, "it is shipped", 30.0)
        entries = [entry for entry in entries_of(client, cluster) if entry.labels["host"] == "ctl"]
        assert sorted(entry.labels["kind"] for entry in entries) == ["event", "log"]
        assert {entry.metadata["job_id"] for entry in entries} == {JOB}
        counts = agent.status()["slurm"]
        assert [counts[name] for name in ("taken", "shipped", "waiting")] == [2, 1, 1]
        assert 'slurm_records_total{outcome="taken"}' in agent.metrics()
        assert "slurm  ends of jobs: 2 taken, 1 shipped" in agent.call("status").stdout
