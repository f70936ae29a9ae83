"""Data survives SIGKILL at every fault point (logshipper/fault_points.py) of relay, sidecar, agent
and store.

Each test checks that the kill happened, and starts everything again. Then an oracle counts the
lines: no line is missing without being counted as lost, none is stored twice, and none is out of
order.
"""

import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

from logshipper.fault_points import NAMES
from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.store.local_store import LocalStore
from tests.ingest.agent.test_sinks import BETWEEN_SINKS
from tests.ingest.imports.test_import_killed import IMPORTING
from tests.ingest.store.test_local_store_faults import REMOVING, TAKING_IN
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import TIMEOUT_SECS, wait_until
from tests.tools.captures.segment_factory import age
from tests.tools.sources import INGEST, LOGSHIPPER, ROOT
from tests.tools.stores.node_agents import NodeAgent, client, cluster, entries_of
from tests.tools.stress.conservation import (
    Place,
    all_problems,
    balances_in_loki,
    balances_in_store,
    line_of,
    numbering,
    places,
    refused_in,
    spool,
)
from tests.tools.stress.crashing import command

__all__ = ["client", "cluster"]  # fixtures
# values: the number of the visit at which the process is killed
RELAY = {"relay_read": 3, "relay_counted": 3, "relay_passed_on": 3, "relay_cmd_ended": 1, "relay_end_noted": 1,
         "relay_end_told": 1}  # fmt: skip
SIDECAR = {"sidecar_locked": 1, "segment_created": 1, "segment_begun": 1, "next_segment_made": 1, "segment_sealed": 1,
           "frames_written": 4, "frames_synced": 2, "lines_without_ledger": 2, "lines_refused": 1, "end_written": 1,
           "capture_closed": 1, "capture_synced": 1}  # fmt: skip
MAKING = {"capture_made": 1, "capture_named": 1}
SHIPPING = {"attempt_noted": 1, "pushed": 2, "quarantine_written": 1, "set_aside": 1, "sent": 1, "committed": 1,
            "shipped_segments_removed": 1, "learnt": 1, "segments_moved": 1, "entry_removed": 2, "identity_removed": 1,
            "capture_removed": 1}  # fmt: skip
SLURM = {
    "slurm_taken": 1,
    "slurm_file_removed": 1,
    "slurm_told": 1,
    "slurm_sent": 1,
    "slurm_committed": 1,
}
REPLAY = {"replay_sent": 1, "replay_rewritten": 1}
LINES, BURSTS, PAUSE_SECS = 600, 6, 0.1  # for more than two beats, so for two syncs
FORGED = 7  # lines of each capture that go to the quarantine
AT_ONCE = 4


def test_every_fault_point_is_one_that_something_is_killed_at() -> None:
    of_store = [*TAKING_IN, *REMOVING, *IMPORTING]
    killed_at = [*RELAY, *SIDECAR, *MAKING, *SHIPPING, *SLURM, *REPLAY, *BETWEEN_SINKS, *of_store]
    assert sorted(killed_at) == sorted(NAMES)


def test_the_code_has_every_fault_point_once_and_no_other() -> None:
    sources = [path for package in (LOGSHIPPER, INGEST) for path in sorted(package.rglob("*.py"))]
    names = Counter(
        name
        for path in sources
        for name in re.findall(r'\bfault_point\("(\w+)"\)', path.read_text())
    )
    assert names == Counter(list(NAMES))


def run_numbered(
    agent: NodeAgent, home: Path, job_id: str, crash: tuple[str, int, Path]
) -> "subprocess.Popen[bytes]":
    """Start `logshipper run`, killed at a fault point (its name, the number of the visit, the
    flag)."""
    words = [
        "run",
        "--job-id",
        job_id,
        "--",
        *numbering(LINES, bursts=BURSTS, pause_secs=PAUSE_SECS),
    ]
    environment = {**agent.environment, "HOME": str(home), "LOGSHIPPER_AGENT": "off"}
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command(*crash, "logshipper", *words),
        cwd=ROOT,
        env=environment,
        stdin=null,
        stdout=null,
        stderr=null,
    )


def test_a_capture_that_is_killed(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Kill relay or sidecar: Loki has all written lines. Lines printed after the sidecar's death
    are counted."""
    line_counts: dict[Place, int] = {}
    running: list[subprocess.Popen[bytes]] = []
    points = {**RELAY, **SIDECAR}
    with NodeAgent(tmp_path / "node", loki.url, cluster=cluster) as agent:
        for point, times in points.items():
            job_id = point.replace("_", "-")
            running.append(run_numbered(agent, tmp_path, job_id, (point, times, tmp_path / point)))
            line_counts |= places(f"{job_id}.u{os.getuid()}", LINES)
            if len(running) == AT_ONCE:
                running.pop(0).wait(TIMEOUT_SECS)
        for process in running:
            process.wait(TIMEOUT_SECS)
        assert [point for point in points if not (tmp_path / point).exists()] == [], "never reached"
        agent.wait_shipped()
    balances = balances_in_loki(entries_of(client, cluster), line_counts)
    assert all_problems(balances) == {}
    lost = {
        place.job_id.partition(".")[0].replace("-", "_")
        for place, balance in balances.items()
        if balance.lost
    }
    assert {"sidecar_locked", "segment_created", "segment_begun"} <= lost
    assert lost <= SIDECAR.keys() - {"end_written", "capture_closed", "capture_synced"}


def test_an_agent_that_is_killed(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Kill one agent at one point after another, with new captures before each death."""
    ended = tmp_path / "ended"
    ended.mkdir(mode=0o700)
    agent = NodeAgent(tmp_path / "node", loki.url, cluster=cluster, slurm={"ended_dir": str(ended)})
    section = agent_config.load(str(agent.config)).agent
    line_counts: dict[Place, int] = {}
    with agent:
        agent.stop()
        for point, times in SHIPPING.items():
            line_counts |= spool(section, point.replace("_", "-"), 200, forged=FORGED)
            agent.start(crash_at=point, times=times, wait=False)
            wait_until(agent.has_ended, f"it kills itself at {point}: {agent.log.read_text()}")
        for number, (point, times) in enumerate(SLURM.items(), start=4711):
            line_counts |= spool(section, str(number), 200)
            agent.start()
            agent.wait_shipped()
            agent.stop()
            write_end(ended, str(number))
            agent.start(crash_at=point, times=times, wait=False)
            wait_until(agent.has_ended, f"it kills itself at {point}: {agent.log.read_text()}")
        store_counts: dict[Place, int] = {}
        for attempt, (point, times) in enumerate(MAKING.items(), start=1):
            agent.start(crash_at=point, times=times)
            ran = agent.run(
                *numbering(LINES), options=("--job-id", "own"), env={"LOGSHIPPER_AGENT": "off"}
            )
            assert b"is kept in" in ran.stderr
            store_counts |= places("own", LINES, attempt=attempt)
            wait_until(agent.has_ended, f"it kills itself at {point}: {agent.log.read_text()}")
        for capture in agent.captures():
            age(capture, 7200)  # the agent removes a capture without segments after an hour
        agent.start()
        agent.wait_shipped()
        wait_until(lambda: agent.status()["slurm"]["waiting"] == 0, "all ends are told")
    points = {**SHIPPING, **SLURM, **MAKING}
    assert [
        point for point in points if not (tmp_path / "node" / f"crashed-{point}").exists()
    ] == [], "never reached"
    entries = entries_of(client, cluster)
    refusals = refused_in(agent.state / "quarantine", line_counts)
    assert all_problems(balances_in_loki(entries, line_counts, refusals)) == {}
    assert {refusals[place] for place in line_counts if place.stream == "stdout"} == {0, FORGED}
    with LocalStore(str(agent.folder / ".local/share/logshipper"), create=True) as store:
        assert store.ingest().problems == []
        assert all_problems(balances_in_store(store, store_counts)) == {}
    ends = [entry.metadata["job_id"] for entry in entries if '"job_ended"' in entry.line]
    assert sorted(ends) == [str(number) for number in range(4711, 4711 + len(SLURM))]


def test_a_replay_that_is_killed(
    loki: LokiServer, client: LokiClient, cluster: str, tmp_path: Path
) -> None:
    """Loki has the lines of the quarantine once."""
    with NodeAgent(tmp_path / "node", loki.url, cluster=cluster) as agent:
        spool(agent_config.load(str(agent.config)).agent, "replayed", 200, forged=FORGED)
        agent.wait_shipped()
        for point, times in REPLAY.items():
            words = command(
                point,
                times,
                tmp_path / point,
                "logshipper-agent",
                "replay",
                "--config",
                str(agent.config),
            )
            killed = subprocess.run(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECS
            )
            assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert agent.call("replay").returncode == 0
    lines = [
        entry.line
        for entry in entries_of(client, cluster, "log", hours=6, selector='| job_id="replayed"')
    ]
    assert Counter(lines)[line_of(0)] == 2, "of stdout and stderr"
    assert set(Counter(lines).values()) == {2}
    assert len(lines) == 400


def write_end(folder: Path, job_id: str) -> None:
    """Write the end of a job some minutes ago, as the hook job-ended does."""
    end = int(time.time()) - 300
    fields = {"by": "jobcomp", "job_id": job_id, "state": "TIMEOUT", "exit": "0:0", "start": end - 300, "end": end,
            "restarts": "", "user": "me", "nodes": "n1"}  # fmt: skip
    place = folder / f"{job_id}.{end}.jobcomp.17"
    place.write_text(
        "logshipper-ended 1\n"
        + "".join(f"{name}={value}\n" for name, value in fields.items())
        + ".\n"
    )
    place.chmod(0o600)
