"""Cost of many captured ranks on one node that print a line every ten seconds: CPU time of all our
processes, and memory per rank. The node agent ships to a sink that answers at once.

`RANKS=8 SECS=20 python -m benchmarks.ranks` is a shorter run.
"""

import os
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.agent_load import cpu_secs, default_agent, resident
from benchmarks.job_cost import LOGSHIPPER
from benchmarks.shipping import Sink
from tests.tools.captures.captured_runs import sidecar_of, wait_until

RANKS, SECS = 64, 60.0
PROGRAM = "step=0; while sleep 10; do step=$((step + 1)); echo step $step: loss 0.1234; done"


def measure(folder: Path, ranks: int, secs: float) -> None:
    """Print CPU time and memory by kind of process."""
    sink = Sink()
    with ExitStack() as stack:
        stack.callback(sink.close)
        agent = stack.enter_context(default_agent(folder / "node", sink.url))
        assert agent.process is not None
        environment = {**agent.environment, "HOME": str(folder)}
        relays = []
        for rank in range(ranks):
            command = [LOGSHIPPER, "run", "--job-id", f"rank-{rank}", "--", "sh", "-c", PROGRAM]
            relay = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            stack.callback(relay.wait)
            stack.callback(relay.terminate)
            relays.append(relay.pid)
            # one after another: their start is another benchmark's
            wait_until(lambda: len(agent.captures()) == len(relays), "the rank is captured")
        time.sleep(20.0)
        sidecars = [sidecar_of(relay) for relay in relays]
        pids = {"relays": relays, "sidecars": sidecars, "node agent": [agent.process.pid]}
        before = {kind: sum(map(cpu_secs, of_kind)) for kind, of_kind in pids.items()}
        begin = time.monotonic()
        time.sleep(secs)
        passed_secs = time.monotonic() - begin
        print(f"\n### {ranks} ranks, each with a line every 10 s\n")
        print("| | CPU, % of a core | own memory of a process, MiB | resident, MiB |")
        print("|---|---|---|---|")
        for kind, of_kind in pids.items():
            share = (sum(map(cpu_secs, of_kind)) - before[kind]) / passed_secs * 100
            own = sum(map(_own_mib, of_kind)) / len(of_kind)
            print(f"| {kind} | {share:.2f} | {own:.1f} | {resident(of_kind[0]):.0f} |")


def _own_mib(pid: int) -> float:
    """Return a process's memory: its own pages, and its share of pages that others have, too."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="logshipper-bench-") as folder:
        ranks, secs = int(os.environ.get("RANKS", RANKS)), float(os.environ.get("SECS", SECS))
        measure(Path(folder), ranks, secs)


if __name__ == "__main__":
    main()
