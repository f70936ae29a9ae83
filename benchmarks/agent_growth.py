"""Growth of a node agent over a day's captures: memory, descriptors, state files and CPU of each
capture. A second part measures the catch-up after an outage of Loki, with the same bytes in few and
in many captures.

    make bench-agent COUNT=20000            # a quarter of an hour
    .venv/bin/python -m benchmarks.agent_growth --captures 2000 --backlog 200
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.agent_load import LINE, cpu_secs, default_agent, resident, samples
from benchmarks.shipping import WAIT_SECS, Sink
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.loki.client import LokiClient
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.segment_factory import CaptureWriter, make_ledger
from tests.tools.stores.node_agents import NodeAgent

WAVE = 200  # captures that run at once
LINES, RECORDS = 20, 5  # of each capture
STEP = 1000  # captures between two readings
FEW = 20  # captures that share the backlog in the first comparison
BACKLOG_LINES = 100  # lines of each capture in the second comparison
LATE_SECS = 600 * 4
SETTLE_SECS = 2.0  # lets the agent release finished captures


class Look(NamedTuple):
    """One reading of an agent's resources."""

    resident: float  # MiB
    descriptors: int
    state_files: int
    state_bytes: int
    cpu: float  # seconds since the start
    pushes: float


def begin_capture(agent: NodeAgent, number: int, lines: int, stack: ExitStack) -> CaptureWriter:
    """Begin a capture with `lines` lines, as a sidecar does. Its sidecar dies with the stack or
    with the capture."""
    section = AgentSection(cluster="bench", host="n1", spool_dir=str(agent.spool))
    identity = NodeIdentity(f"job{number}", 1, "0", 0, "bench", os.getuid(), "me")
    folder = Path(prepare_capture(section, identity))
    start_ns = time.time_ns() - 100 * 10**9  # the writer's clock advances by a second per frame
    capture = CaptureWriter.in_node_spool(folder, start_ns=start_ns, alive=True)
    stack.callback(capture.die)
    capture.start()
    capture.lines([(LINE % line)[:-1] for line in range(lines)])
    return capture


def end_capture(capture: CaptureWriter, lines: int, records: int) -> None:
    if records:
        capture.metadata(
            *({"step": step, "loss": 1 / (step + 1), "lr": 1e-4} for step in range(records))
        )
    capture.heartbeat()
    capture.end(ledger=make_ledger({"stored": lines + records, "bytes": lines * len(LINE % 0)}))
    capture.close()
    capture.die()


def growth(folder: Path, count: int) -> None:
    """Print the agent's resources while captures begin, run and end, WAVE at once."""
    print(f"\n### {count:,} captures through one agent, {WAVE} at a time\n")
    print(
        "| captures | resident, MiB | descriptors | state files | MiB | CPU ms each | pushes each |"
    )
    print("|---|---|---|---|---|---|---|")
    sink = Sink()
    try:
        with default_agent(folder / "growth", sink.url) as agent:
            earlier = _look_and_print(agent, 0, 0, None)
            begun = 0
            for first in range(0, count, WAVE):
                done = min(first + WAVE, count)
                _wave(agent, range(first, done))
                if done % STEP == 0 or done == count:
                    time.sleep(SETTLE_SECS)
                    earlier = _look_and_print(agent, done, done - begun, earlier)
                    begun = done
    finally:
        sink.close()


def _look_and_print(agent: NodeAgent, done: int, new: int, earlier: Look | None) -> Look:
    """Print and return a reading. new: captures since the earlier reading."""
    look = look_at(agent)
    cpu_ms = (look.cpu - earlier.cpu) / new * 1000 if earlier else 0.0
    pushes = (look.pushes - earlier.pushes) / new if earlier else 0.0
    print(
        f"| {done:,} | {look.resident:.1f} | {look.descriptors} | {look.state_files} "
        f"| {look.state_bytes / 2**20:.2f} | {cpu_ms:.2f} | {pushes:.2f} |",
        flush=True,
    )
    return look


def _wave(agent: NodeAgent, numbers: Sequence[int]) -> None:
    with ExitStack() as stack:
        captures = [begin_capture(agent, number, LINES, stack) for number in numbers]
        time.sleep(1.0)  # lets the agent read the captures while they run
        for capture in captures:
            end_capture(capture, LINES, RECORDS)
        agent.wait_shipped(WAIT_SECS)


def look_at(agent: NodeAgent) -> Look:
    assert agent.process is not None
    pid = agent.process.pid
    files = [path for path in agent.state.rglob("*") if path.is_file()]
    sizes = sum(path.stat().st_size for path in files)
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    pushes = pushes_of(agent)
    return Look(resident(pid), descriptors, len(files), sizes, cpu_secs(pid), pushes)


def pushes_of(agent: NodeAgent) -> float:
    pushes = samples(agent, "logshipper_agent_pushes_total")
    return sum(count for labels, count in pushes.items() if '"204"' in labels)


def outage(folder: Path, count: int) -> None:
    """Print the catch-up after an outage of Loki, for one backlog in few and in many captures."""
    print(f"\n### Catching up with {count * BACKLOG_LINES:,} lines after an outage of Loki\n")
    print(
        "| captures | s | CPU s | of it a capture, ms | pushes | lines found |\n|---|---|---|---|---|---|"
    )
    for captures in (FEW, count):
        lines = count * BACKLOG_LINES // captures
        with LokiServer() as loki:
            loki.stop()
            with default_agent(folder / f"outage-{captures}", loki.url) as agent:
                _catch_up(agent, loki, captures, lines)


def _catch_up(agent: NodeAgent, loki: LokiServer, captures: int, lines: int) -> None:
    assert agent.process is not None
    with ExitStack() as stack:
        for number in range(captures):
            end_capture(begin_capture(agent, number, lines, stack), lines, 0)
    name = "logshipper_agent_lines_total"
    wait_until(
        lambda: sum(samples(agent, name).values()) >= captures * lines, "all is learnt", WAIT_SECS
    )
    cpu = cpu_secs(agent.process.pid)
    loki.start()
    begin = time.monotonic()
    agent.wait_shipped(LATE_SECS)
    secs, cpu = time.monotonic() - begin, cpu_secs(agent.process.pid) - cpu
    with LokiClient(loki.url) as client:
        results = client.query('sum(count_over_time({cluster="bench",kind="log"}[2h]))')
        found = sum(result.samples[0].value for result in results)
    print(
        f"| {captures:,} | {secs:.0f} | {cpu:.1f} | {cpu / captures * 1000:.1f} "
        f"| {pushes_of(agent):.0f} | {found:,.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--captures", type=int, default=20_000, help="through one agent; 0: none")
    parser.add_argument(
        "--backlog", type=int, default=2_000, help="captures of the outage; 0: none"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="logshipper-growth-") as folder:
        if options.captures:
            growth(Path(folder), options.captures)
        if options.backlog:
            outage(Path(folder), options.backlog)


if __name__ == "__main__":
    main()
