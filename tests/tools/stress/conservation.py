"""Jobs that number their lines, and an oracle that reads them back.

The oracle counts missing, repeated and misplaced lines, and checks the account of each capture.
"""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from logshipper.spool.segment import Json, Stream
from logshipper_ingest.agent.node_spool import NodeIdentity, prepare_capture
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.model.ledger import LEDGER_COUNTS
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.store.local_store import LocalStore
from tests.tools.captures.segment_factory import HOUR_NS, SECOND_NS, CaptureWriter, make_ledger

STREAMS = ("stdout", "stderr")
# prints LINES numbers to stdout and to stderr, in BURSTS with a pause after each
NUMBERING = """
import sys, time
lines, bursts, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
for burst in range(bursts):
    for number in range(burst * lines // bursts, (burst + 1) * lines // bursts):
        print("line", number)
        print("line", number, file=sys.stderr)
    sys.stdout.flush()
    time.sleep(pause)
"""


def numbering(lines: int, *, bursts: int = 1, pause_secs: float = 0.0) -> list[str]:
    """Return the command of a job that prints so many lines to each of its streams."""
    return [sys.executable, "-c", NUMBERING, str(lines), str(bursts), str(pause_secs)]


def line_of(number: int) -> str:
    return f"line {number}"


def spool(
    agent: AgentSection,
    job_id: str,
    lines: int,
    *,
    ago_secs: float = 600,
    frames: int = 6,
    forged: int = 0,
) -> "dict[Place, int]":
    """Write a complete capture of such a job to a node's spool; return the number of its lines by
    stream.

    It has half as many segments as frames. forged: the first lines of stdout, so many, have times
    long before the capture, which makes the agent quarantine them.
    """
    start_ns = time.time_ns() - int(ago_secs * SECOND_NS)
    identity = NodeIdentity(job_id, 1, "", 0, "numbered", os.geteuid(), "me", gid=os.getegid())
    folder = Path(prepare_capture(agent, identity))
    capture = CaptureWriter.in_node_spool(folder, start_ns=start_ns, alive=True)
    try:
        _write(capture, lines, frames, forged)
    finally:
        capture.die()
    return places(job_id, lines)


def _write(capture: CaptureWriter, lines: int, frames: int, forged: int) -> None:
    if forged:
        capture.lines(map(line_of, range(forged)), time_ns=capture.now_ns - 2 * HOUR_NS)
    capture.start()
    for frame in range(frames):
        some = range(frame * lines // frames, (frame + 1) * lines // frames)
        capture.lines([line_of(number) for number in some if number >= forged])
        capture.lines(map(line_of, some), stream=Stream.STDERR)
        if frame % 2:
            capture.rotate()
    size = sum(len(line_of(number)) + 1 for number in range(lines))
    counts = {"stored": lines, "bytes": size}
    capture.counters((size, lines), (size, lines))
    capture.end(ledger=make_ledger(counts, counts))
    capture.close()


class Place(NamedTuple):
    """A stream of a capture."""

    job_id: str
    attempt: int
    task: int
    stream: str


@dataclass
class Balance:
    """The fate of a stream's lines.

    - numbers: of the lines that were read back, in order of time
    - lost, in_quarantine: counts by the capture's own account
    - faults: sentences about that account
    """

    lines: int
    numbers: list[int] = field(default_factory=list)
    lost: int = 0
    in_quarantine: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of lines that are nowhere, and in no account."""
        return (
            self.lines
            - len(set(self.numbers) & set(range(self.lines)))
            - self.lost
            - self.in_quarantine
        )

    @property
    def repeated(self) -> int:
        return len(self.numbers) - len(set(self.numbers))

    @property
    def disordered(self) -> int:
        """Number of lines after one with a larger number."""
        highest, count = -1, 0
        for number in self.numbers:
            count += number < highest
            highest = max(highest, number)
        return count

    def problems(self) -> list[str]:
        counts = {
            "missing": self.missing,
            "repeated": self.repeated,
            "out of order": self.disordered,
        }
        return [f"{count} {name}" for name, count in counts.items() if count] + self.faults


class Verdict(NamedTuple):
    """Sums over all streams. in_store: lines that were read back; missing: neither read back nor in
    an account."""

    lines: int
    in_store: int
    missing: int
    repeated: int
    disordered: int
    lost: int
    in_quarantine: int


def verdict(balances: Iterable[Balance]) -> Verdict:
    rows = [
        (
            balance.lines,
            len(set(balance.numbers)),
            balance.missing,
            balance.repeated,
            balance.disordered,
            balance.lost,
            balance.in_quarantine,
        )
        for balance in balances
    ]
    return Verdict(*(sum(column) for column in zip(*rows, strict=True)))


def balances_in_loki(
    entries: Sequence[Entry],
    line_counts: Mapping[Place, int],
    quarantine_counts: Mapping[Place, int] | None = None,
) -> dict[Place, Balance]:
    """Return the balances of numbered lines in Loki.

    entries: all of a cluster, in order of time; line_counts: printed lines, by stream;
    quarantine_counts: quarantined lines, by stream.

    A capture's account is its `closed` event. There must be exactly one, and its ledger must
    balance. Its `stored` must equal the lines in Loki and in the quarantine.
    """
    balances = {
        place: Balance(count, in_quarantine=(quarantine_counts or {}).get(place, 0))
        for place, count in line_counts.items()
    }
    closed: dict[tuple[str, int, int], list[Json]] = defaultdict(list)
    for entry in entries:
        about = entry.metadata
        capture = about["job_id"], int(about["attempt"]), int(about.get("task", 0))
        if entry.labels["kind"] == "event":
            event = json.loads(entry.line)
            if event["event"] == "closed":
                closed[capture].append(event)
        elif entry.labels["kind"] == "log" and entry.line.startswith("line "):
            place = Place(*capture, entry.labels["stream"])
            if place in balances:
                balances[place].numbers.append(int(entry.line[5:]))
    for place, balance in balances.items():
        accounts = closed[place[:3]]
        if len(accounts) != 1:
            balance.faults.append(f"{len(accounts)} closed events")
        for event in accounts[:1]:
            _take_ledger(balance, event["ledger"].get(place.stream))
    return balances


def balances_in_store(store: LocalStore, line_counts: Mapping[Place, int]) -> dict[Place, Balance]:
    """Return the same for a local store that has ingested the whole spool."""
    balances = {place: Balance(count) for place, count in line_counts.items()}
    for place, balance in balances.items():
        with store.open(place.job_id) as reader:
            stream = Stream(STREAMS.index(place.stream) + 1)
            captures = [
                capture
                for capture in reader.captures
                if (capture.attempt, capture.task) == (place.attempt, place.task)
            ]
            capture_ids = {capture.capture for capture in captures}
            lines = [
                line.text for line in reader.lines(streams=(stream,)) if line.capture in capture_ids
            ]
            balance.numbers += [int(line[5:]) for line in lines if line.startswith("line ")]
            if len(captures) != 1:
                balance.faults.append(f"{len(captures)} captures")
            for capture in captures[:1]:
                _take_ledger(balance, capture.ledger.get(place.stream))
    return balances


def refused_in(quarantine: Path, streams: Iterable[Place]) -> dict[Place, int]:
    """Return the number of lines of each stream in an agent's quarantine. Fail if a line is there
    twice."""
    counts = dict.fromkeys(streams, 0)
    counts_of_lines: Counter[tuple[Place, str]] = Counter()
    for file in sorted(quarantine.iterdir()):
        for document in map(json.loads, file.read_text().splitlines()):
            about = document["metadata"]
            place = Place(
                about["job_id"],
                int(about["attempt"]),
                int(about.get("task", 0)),
                document["stream"],
            )
            if document["line"].startswith("line ") and place in counts:
                counts[place] += 1
                counts_of_lines[place, document["line"]] += 1
    assert [line for line, count in counts_of_lines.items() if count > 1] == [], (
        "twice in the quarantine"
    )
    return counts


def _take_ledger(balance: Balance, ledger: Mapping[str, int] | None) -> None:
    if ledger is None:
        balance.faults.append("no ledger")
        return
    balance.lost = ledger["lost"]
    parts = Counter({name: ledger[name] for name in LEDGER_COUNTS[1:8]})
    if ledger["read"] != parts.total():
        balance.faults.append(f"the ledger doesn't balance: {dict(ledger)}")
    if ledger["read"] != balance.lines:
        balance.faults.append(f"the ledger knows of {ledger['read']} of {balance.lines} lines")
    if ledger["stored"] != len(set(balance.numbers)) + balance.in_quarantine:
        balance.faults.append(f"the ledger has {ledger['stored']} lines as stored")


def places(job_id: str, lines: int, *, attempt: int = 1, task: int = 0) -> dict[Place, int]:
    """Return the number of lines that a job of `numbering` prints, by stream."""
    return {Place(job_id, attempt, task, stream): lines for stream in STREAMS}


def all_problems(balances: Mapping[Place, Balance]) -> dict[str, list[str]]:
    """Return the problems by stream; empty if all lines arrived once, in order, and are accounted
    for."""
    problems_of = {
        "/".join(map(str, place)): balance.problems() for place, balance in balances.items()
    }
    return {place: problems for place, problems in problems_of.items() if problems}
