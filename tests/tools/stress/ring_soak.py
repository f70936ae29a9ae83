"""`make soak RING=1`: the soak with a cluster's setup of Loki.

In each round, jobs print at their own pace, and a random fault hits one of the three processes. In
one round of four the agent is killed too. Each process then reads all lines back.

Exit code: 0, or 1 if a line was missing, repeated, out of order or not in the account.
"""

import os
import random
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.loki_ring import MEMBERS, LokiRing
from tests.tools.fakes.small_disk import small_disk
from tests.tools.stress import ring_load
from tests.tools.stress.conservation import Verdict, all_problems, verdict
from tests.tools.stress.ring_load import FAULTS, FULL_DISK, RingNode, meet

DISK_BYTES = 64 << 20
LINES = (300, 3000)  # to ship before, during and after a fault
PAUSES_SECS = (0.002, 0.01, 0.05, 0.2)


class Round(NamedTuple):
    counts: Verdict
    secs: float


class RingSoak:
    def __init__(self, node: RingNode, seed: int, at_once: int, *, has_disk: bool) -> None:
        self._node = node
        self._chance = random.Random(seed)
        self._at_once = at_once
        self._faults = {**FAULTS, **({FULL_DISK: ring_load.fill_disk} if has_disk else {})}
        self.rounds: dict[str, list[Round]] = defaultdict(list)
        self.problems: list[str] = []

    def round(self) -> str:
        """Run one fault; return its name."""
        members = self._node.ring.members
        name = self._chance.choice(list(self._faults))
        member = members[-1] if name == FULL_DISK else self._chance.choice(members)
        kill_agent = self._chance.random() < 0.25
        pauses = [self._chance.choice(PAUSES_SECS) for _ in range(self._at_once)]
        lines = self._chance.randint(*LINES)
        outcome = meet(
            self._node,
            self._faults[name],
            member,
            pauses=pauses,
            lines=lines,
            kill_agent=kill_agent,
        )
        if kill_agent:
            name = f"{name}, the agent is killed"
        balances_of = self._node.balances(outcome.line_counts)
        for reader, balances in balances_of.items():
            self.problems += [
                f"{name}: {place}, read by {reader}: {', '.join(problems)}"
                for place, problems in all_problems(balances).items()
            ]
        worst = max(
            (verdict(balances.values()) for balances in balances_of.values()),
            key=lambda counts: counts.missing + counts.repeated + counts.disordered,
        )
        self.rounds[name].append(Round(worst, outcome.secs))
        return name

    def table(self) -> str:
        rows = ["fault | times | lines | missing | lost | repeated | out of order | s to catch up"]
        for name, rounds in sorted(self.rounds.items()):
            counts = Verdict(*map(sum, zip(*(each.counts for each in rounds), strict=True)))
            secs = [each.secs for each in rounds]
            rows.append(
                f"{name} | {len(rounds)} | {counts.lines} | {counts.missing} | {counts.lost} | "
                f"{counts.repeated} | {counts.disordered} | "
                f"{statistics.median(secs):.1f}, at most {max(secs):.1f}"
            )
        return "\n".join(rows)


def run(minutes: float, seed: int, at_once: int) -> int:
    with ExitStack() as until:
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="logshipper-soak-")))
        wals = {}
        if not os.geteuid():
            try:
                disk = until.enter_context(small_disk(folder / "disk", DISK_BYTES, 0o700))
                wals = {MEMBERS - 1: disk / "wal"}
            except pytest.skip.Exception as error:
                print(f"no disk is filled: {error}")
        ring = until.enter_context(LokiRing(wals=wals, read_secs=60))
        cluster = f"soak{uuid.uuid4().hex[:8]}"
        node = until.enter_context(RingNode(ring, folder, cluster))
        soak = RingSoak(node, seed, at_once, has_disk=bool(wals))
        print(f"seed {seed}", flush=True)
        start = time.monotonic()
        while (passed := (time.monotonic() - start) / 60) < minutes:
            name = soak.round()
            last = soak.rounds[name][-1]
            print(
                f"{passed:5.1f} min  {name}: {last.counts.lines} lines, {last.secs:.1f} s to catch up",
                flush=True,
            )
        print(soak.table())
        print(*soak.problems, sep="\n")
        return 1 if soak.problems else 0
