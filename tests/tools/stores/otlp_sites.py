"""A node agent that ships to a server by OTLP, and a check of the numbered lines there."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from logshipper_ingest.config import agent_config
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.node_agents import NodeAgent
from tests.tools.stress import conservation

QUICK = {"batch_wait_secs": 0.1, "retry_min_secs": 0.05, "retry_max_secs": 0.2, "timeout_secs": 2}
KILLED_AT = ("attempt_noted", "pushed", "sent", "committed")  # fault points of the shipper


class OtlpSite:
    """A node agent that ships by OTLP. url: of [otlp]; options: further ones."""

    def __init__(self, folder: Path, loki_url: str, cluster: str, url: str, **options: Any) -> None:
        self.agent = NodeAgent(
            folder, loki_url, cluster=cluster, otlp={"url": url, **QUICK, **options}
        )
        self.line_counts: dict[conservation.Place, int] = {}

    def spool(self, job: str, lines: int, **options: Any) -> None:
        """Write a whole capture of numbered lines to the spool; the agent need not run."""
        section = agent_config.load(str(self.agent.config)).agent
        self.line_counts |= conservation.spool(section, job, lines, **options)

    def crash(self, point: str, times: int = 1) -> None:
        """Run the agent until it kills itself at the fault point."""
        flag = self.agent.folder / f"crashed-{point}"
        flag.unlink(missing_ok=True)
        self.agent.start(crash_at=point, times=times, wait=False)
        wait_until(
            self.agent.has_ended, f"it kills itself at {point}: {self.agent.log.read_text()}"
        )
        assert flag.exists(), self.agent.log.read_text()

    def sink(self, name: str = "otlp") -> dict[str, Any]:
        (state,) = [sink for sink in self.agent.status()["sinks"] if sink["name"] == name]
        return dict(state)

    def quarantine(self, name: str = "otlp") -> list[str]:
        folder = self.agent.state / "sinks" / name / "quarantine"
        return [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]

    def faults(self, streams: Mapping[tuple[str, str], list[int]]) -> list[str]:
        """Return the errors in the numbers from the server. streams: numbers by job and stream, in
        the server's order."""
        faults = []
        for place, count in self.line_counts.items():
            numbers = streams.get((place.job_id, place.stream), [])
            where = f"{place.job_id} {place.stream}"
            missing = sorted(set(range(count)) - set(numbers))
            if missing:
                faults.append(f"{where}: {len(missing)} of {count} missing, such as {missing[:3]}")
            if len(numbers) != len(set(numbers)):
                faults.append(f"{where}: {len(numbers) - len(set(numbers))} repeated")
            if numbers != sorted(numbers):
                faults.append(f"{where}: out of order")
        return faults


class NumberedLine(NamedTuple):
    job_id: str
    stream: str
    text: str


def by_stream(lines: Iterable[NumberedLine]) -> dict[tuple[str, str], list[int]]:
    """Return the numbers of `line N` by job and stream, in order."""
    streams: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in lines:
        if line.text.startswith("line "):
            streams[line.job_id, line.stream].append(int(line.text[5:]))
    return streams


def begin_ns() -> int:
    """Return a time before all spooled lines of a test."""
    return time.time_ns() - 2 * 3600 * 10**9
