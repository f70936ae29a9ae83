"""Many clients ask at once while a job prints: each answer is complete, and lines keep their
order."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logshipper_observe.page.server import PageServer
from tests.observe.page.test_access import Client
from tests.tools.stores.reading_store import SpooledCapture
from tests.tools.waiting import scaled

JOB = "r5t8aa"
LINES, ROUND = 3_000, 100
THREADS = 8
JOIN_SECS = scaled(60.0)


class Reader(threading.Thread):
    """Requests everything again and again, and collects wrong answers in `faults`."""

    def __init__(self, client: Client, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.faults: list[str] = []
        self.rounds = 0
        self._client = client
        self._over = over

    def run(self) -> None:
        while not self._over.is_set():
            self.rounds += 1
            self._look_at("jobs", lambda answer: len(answer["jobs"]) == 1)
            self._look_at(f"jobs/{JOB}", lambda answer: answer["job_id"] == JOB)
            self._look_at(f"jobs/{JOB}/lines?from=-50&count=50", _is_in_order)
            self._look_at(f"jobs/{JOB}/lines?from=40&count=100&streams=stdout", _is_in_order)
            self._look_at(
                f"jobs/{JOB}/search?q=line", lambda answer: answer["hits"] <= answer["total"]
            )

    def _look_at(self, path: str, holds: Callable[[dict[str, Any]], object]) -> None:  # Any: JSON
        answer = self._client.ask(f"api/{path}")
        if answer.status != 200 or not holds(json.loads(answer.body)):
            self.faults.append(f"{path}: {answer.status} {answer.body[:300]!r}")


def _is_in_order(answer: dict[str, Any]) -> bool:  # Any: JSON
    numbers = [int(line[3].split()[1]) for line in answer["lines"]]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


def test_many_at_once(serve: Callable[[Path], PageServer], tmp_path: Path) -> None:
    over = threading.Event()
    with SpooledCapture(tmp_path / "store", JOB, started_ns=time.time_ns()) as job:
        job.lines("line 0")
        job.beat()
        client = Client(serve(tmp_path / "store"))
        readers = [Reader(client, over) for _ in range(THREADS)]
        for reader in readers:
            reader.start()
        for first in range(1, LINES, ROUND):
            job.lines(*(f"line {number}" for number in range(first, first + ROUND)))
            job.beat()
            client.ask("api/jobs")
        job.end()
        over.set()
        for reader in readers:
            reader.join(JOIN_SECS)
    assert [fault for reader in readers for fault in reader.faults] == []
    assert all(reader.rounds for reader in readers)
    answer = json.loads(client.ask(f"api/jobs/{JOB}/lines?from=-1&count=1").body)
    deadline = time.monotonic() + JOIN_SECS
    while (
        answer["total"] < LINES + 1 and time.monotonic() < deadline
    ):  # the last lines are ingested a little later
        answer = json.loads(client.ask(f"api/jobs/{JOB}/lines?from=-1&count=1").body)
    assert answer["total"] == LINES + 1
    assert json.loads(client.ask(f"api/jobs/{JOB}/search?q=line").body)["hits"] == LINES + 1
