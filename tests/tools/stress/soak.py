"""`make soak`: run many jobs with a real Loki under random faults for any time, and count all
lines.

Each minute has jobs and faults, then calm until all is shipped, then the count. In the first half
of the time, the soak also kills the agent. In the second half the agent lives on, and the soak
reports its memory at the start and the end of that half.

Exit code: 0, or 1 if a line was missing, repeated, out of order or not in the account.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from logshipper_ingest.config import agent_config
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.servers.server_access import ServerAccess
from logshipper_ingest.store.local_store import LocalStore
from tests.ingest.shipping.test_loki_side_faults import FAULTS
from tests.logshipper.test_fault_points import MAKING, SHIPPING
from tests.servers.running import LokiServer
from tests.tools.captures.captured_runs import comm_of, wait_until
from tests.tools.sources import ROOT
from tests.tools.stores.node_agents import NodeAgent, Proxy, entries_of
from tests.tools.stress import ring_soak
from tests.tools.stress.conservation import (
    Balance,
    Place,
    Verdict,
    all_problems,
    balances_in_loki,
    balances_in_store,
    line_of,
    numbering,
    places,
    spool,
    verdict,
)

EPOCH_SECS = 40.0  # of jobs and faults, before the calm
CALM_TIMEOUT_SECS = 300.0
JOB_LINES = (50, 4000)


class Running(NamedTuple):
    """A job. lines: number that it prints to each stream."""

    process: "subprocess.Popen[bytes]"
    job_id: str
    lines: int


class Soak:
    def __init__(self, folder: Path, loki: LokiServer, seed: int, at_once: int) -> None:
        self._folder = folder
        self._loki = loki
        self._chance = random.Random(seed)
        self._at_once = at_once
        self._cluster = f"soak{uuid.uuid4().hex[:8]}"
        self.proxy = Proxy(loki.url)
        options = {
            "timeout_secs": 1.0,
            "retry_min_secs": 0.05,
            "retry_max_secs": 1.0,
            "settle_secs": 10.0,
        }
        self.agent = NodeAgent(folder / "node", self.proxy.url, cluster=self._cluster, loki=options)
        self._section = agent_config.load(str(self.agent.config)).agent
        self.faults: Counter[str] = Counter()
        self.counts = Verdict(*[0] * len(Verdict._fields))
        self.jobs = 0
        self.problems: dict[str, list[str]] = {}
        self.store = folder / ".local/share/logshipper"

    # ---- jobs

    def _start_job(self) -> Running:
        self.jobs += 1
        job_id, lines = f"job{self.jobs}", self._chance.randint(*JOB_LINES)
        pause_secs = self._chance.choice((0.0, 0.01, 0.2))
        words = [sys.executable, "-m", "logshipper", "run", "--job-id", job_id, "--"]
        environment = {
            **self.agent.environment,
            "HOME": str(self._folder),
            "LOGSHIPPER_AGENT": "off",
        }
        null = subprocess.DEVNULL
        command = [*words, *numbering(lines, bursts=20, pause_secs=pause_secs)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=null, stdout=null, stderr=null
        )
        return Running(process, job_id, lines)

    # ---- faults

    def _kill_agent(self) -> None:
        self.agent.stop(9)
        self.agent.start()

    def _kill_agent_at_a_fault_point(self) -> None:
        point = self._chance.choice([*SHIPPING, *MAKING])
        flag = self.agent.folder / f"crashed-{point}"
        flag.unlink(missing_ok=True)
        self.agent.stop()
        self.agent.start(crash_at=point, times=self._chance.randint(1, 3), wait=False)
        time.sleep(self._chance.uniform(1, 5))
        if not self.agent.has_ended():
            self.agent.stop()
        self.agent.start()
        self.faults[f"agent killed at {point}"] += flag.exists()

    def _restart_agent(self) -> None:
        self.agent.stop()
        self.agent.start()

    def _kill_loki(self) -> None:
        self._loki.stop(9)
        time.sleep(self._chance.uniform(0, 10))
        self._loki.start(wait=False)
        # it reads its write-ahead log, which grows during the soak
        self._loki.wait_ready(CALM_TIMEOUT_SECS)

    def _break_the_way(self) -> None:
        name = self._chance.choice(list(FAULTS))
        self.proxy.broken(FAULTS[name])
        time.sleep(self._chance.uniform(0.5, 8))
        self.faults[f"Loki: {name}"] += self.proxy.faults > 0
        self.proxy.fixed()

    def _kill_of_a_job(self, running: list[Running], name: str) -> None:
        alive = [job for job in running if job.process.poll() is None and _sidecar(job.process.pid)]
        if alive:
            pid = self._chance.choice(alive).process.pid
            sidecar = _sidecar(pid)
            if sidecar:
                os.kill(sidecar if name == "sidecar" else pid, 9)
                self.faults[f"{name} killed"] += 1

    def _fault(self, running: list[Running], *, kills_agent: bool) -> None:
        faults: list[tuple[str, int, Callable[[], None]]] = [
            ("", 6, self._break_the_way),  # counts by itself, as do all faults without a name here
            ("", 2, lambda: self._kill_of_a_job(running, "sidecar")),
            ("", 2, lambda: self._kill_of_a_job(running, "relay")),
            ("Loki killed", 1, self._kill_loki),
        ]
        if kills_agent:
            faults += [
                ("agent killed", 2, self._kill_agent),
                ("agent restarted", 1, self._restart_agent),
                ("", 3, self._kill_agent_at_a_fault_point),
            ]
        ((name, _, fault),) = self._chance.choices(faults, [weight for _, weight, _ in faults])
        fault()
        if name:
            self.faults[name] += 1

    # ---- a minute

    def epoch(self, *, kills_agent: bool) -> None:
        """Run jobs and faults, then wait for the calm, and count."""
        running: list[Running] = []
        start = time.monotonic()
        fault_due = start + 1
        spooled: dict[Place, int] = {}
        while time.monotonic() < start + EPOCH_SECS:
            if sum(job.process.poll() is None for job in running) < self._at_once:
                running.append(self._start_job())
            if self._chance.random() < 0.2:
                self.jobs += 1
                spooled |= spool(
                    self._section, f"job{self.jobs}", self._chance.randint(100, 5000), ago_secs=30
                )
            if time.monotonic() >= fault_due:
                self._fault(running, kills_agent=kills_agent)
                fault_due = time.monotonic() + self._chance.uniform(0.5, 4)
            time.sleep(0.1)
        for job in running:
            job.process.wait(CALM_TIMEOUT_SECS)
        wait_until(lambda: not self._captures(), "all is shipped", CALM_TIMEOUT_SECS)
        self._count(running, spooled)

    def _captures(self) -> list[Path]:
        """Return all captures except those without any data, which the agent removes after an
        hour."""
        return [path for path in self.agent.captures() if (path / "segments" / "counters").exists()]

    def _count(self, running: list[Running], spooled: dict[Place, int]) -> None:
        with LocalStore(str(self.store), create=True) as store:
            store.ingest()
            local_ids = {job.job_id for job in store.jobs()}  # captured while no agent ran
            in_store = {
                place: count
                for job in running
                if job.job_id in local_ids
                for place, count in places(job.job_id, job.lines).items()
            }
            balances = balances_in_store(store, in_store)
        in_loki = dict(spooled)
        for job in running:
            if job.job_id not in local_ids:
                in_loki |= places(f"{job.job_id}.u{os.getuid()}", job.lines)
        with LokiClient(ServerAccess(self._loki.url, timeout_secs=CALM_TIMEOUT_SECS)) as client:
            entries = _entries(client, self._cluster, in_loki)
        balances |= balances_in_loki(entries, in_loki)
        problems = all_problems(balances)
        self.problems |= problems
        self._tell_repeated(entries, balances)
        self.counts = Verdict(*map(sum, zip(self.counts, verdict(balances.values()), strict=True)))

    def _tell_repeated(self, entries: Sequence[Entry], balances: dict[Place, Balance]) -> None:
        """Print where repeated lines are in Loki, for the investigation."""
        for place, balance in balances.items():
            twice = {
                line_of(number) for number, count in Counter(balance.numbers).items() if count > 1
            }
            for entry in entries if twice else ():
                of_entry = entry.metadata["job_id"], entry.labels.get("stream")
                if entry.line in twice and of_entry == (place.job_id, place.stream):
                    print(
                        f"{place.job_id}: {entry.line} at {entry.time_ns} {entry.labels} {entry.metadata}",
                        flush=True,
                    )

    def memory_mb(self) -> float:
        """Return the resident memory of the agent's process."""
        assert self.agent.process is not None
        status = Path(f"/proc/{self.agent.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _entries(client: LokiClient, cluster: str, line_counts: dict[Place, int]) -> list[Entry]:
    ids = "|".join(sorted({place.job_id.replace(".", "[.]") for place in line_counts}))
    return entries_of(client, cluster, hours=0.5, selector=f'| job_id=~"{ids}"')


def _sidecar(pid: int) -> int:
    """Return the pid of a relay's sidecar, 0 if there is none (yet)."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return next((int(child) for child in children if comm_of(int(child)) == "logshipper-side"), 0)


def run(minutes: float, seed: int, at_once: int) -> int:
    with tempfile.TemporaryDirectory(prefix="logshipper-soak-") as folder, LokiServer() as loki:
        soak = Soak(Path(folder), loki, seed, at_once)
        with soak.proxy, soak.agent:
            return _run(soak, minutes, seed)


def _run(soak: Soak, minutes: float, seed: int) -> int:
    start = time.monotonic()
    first_mb, last_mb, lived = 0.0, 0.0, 0
    print(f"seed {seed}", flush=True)
    while (passed := (time.monotonic() - start) / 60) < minutes or not lived:
        kills_agent = passed < minutes / 2 and not lived
        soak.epoch(kills_agent=kills_agent)
        last_mb = soak.memory_mb()
        if not kills_agent:
            first_mb = first_mb or last_mb
            lived += 1
        counts = soak.counts
        print(
            f"{(time.monotonic() - start) / 60:5.1f} min  {soak.jobs} jobs, "
            f"{counts.lines} lines sent, {soak.faults.total()} faults; "
            f"missing {counts.missing}, repeated {counts.repeated}, "
            f"out of order {counts.disordered}; lost and counted {counts.lost}; agent {last_mb:.0f} MB",
            flush=True,
        )
    for name, count in sorted(soak.faults.items()):
        print(f"{count:6} x {name}")
    print(
        f"agent's memory in {lived} rounds without a restart: {first_mb:.1f} MB, then {last_mb:.1f} MB"
    )
    for place, problems in soak.problems.items():
        print(f"{place}: {', '.join(problems)}")
    return 1 if soak.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.stress.soak", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument(
        "--minutes", type=float, default=30.0, metavar="N", help="(default: %(default)g)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the faults and jobs; 0: a new one")
    parser.add_argument(
        "--jobs", type=int, default=6, metavar="N", help="at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--ring", action="store_true", help="three Lokis in a ring: tests/tools/stress/ring_soak.py"
    )
    options = parser.parse_args()
    return (ring_soak.run if options.ring else run)(
        options.minutes, options.seed or random.SystemRandom().randint(1, 10**6), options.jobs
    )


if __name__ == "__main__":
    sys.exit(main())
