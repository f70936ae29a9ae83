"""Number of Prometheus series of a large array job, and their cost in memory, CPU and disk.

A real Prometheus scrapes agents with the array's tasks; each task's values change between scrapes.
After the tasks and their series have ended, a second array starts: Prometheus keeps series in
memory for two to three hours after their last sample. The output is Markdown.
"""

import argparse
import gzip
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import requests

from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics.agent_metrics import AgentMetrics, exposition
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.model.ledger import COLUMNS
from tests.servers.progress import Progress
from tests.servers.running import PrometheusServer
from tests.tools.captures.captured_runs import wait_until
from tests.tools.stores.job_views import FakeCapture

TASKS, KEYS, NODES = 2500, 20, 25
SCRAPES, INTERVAL_SECS = 24, 10
_WAIT_SECS = 600.0
_RANDOM = random.Random(20)
_FACTS = ("prometheus_tsdb_head_series", "process_resident_memory_bytes", "go_memstats_heap_inuse_bytes",
          "process_cpu_seconds_total", "prometheus_tsdb_head_samples_appended_total")  # fmt: skip


class Facts(NamedTuple):
    """Prometheus' own metrics. heap: the lowest of several readings, to leave out garbage."""

    series: float
    resident: float
    heap: float
    cpu_secs: float
    samples: float


class Node:
    """An agent's /metrics with some tasks of an array."""

    def __init__(self, name: str, cluster: str = "c1") -> None:
        self.jobs = JobMetrics(MetricsSection(), cluster, name)
        self.agent = AgentMetrics(cluster, name)
        self.server = MetricsServer("127.0.0.1:0", self.agent, self.jobs)
        self.target = f"127.0.0.1:{self.server.port}"
        self._captures: list[FakeCapture] = []

    def begin(self, captures: Sequence[FakeCapture]) -> None:
        self._captures = list(captures)

    def go_on(self, keys: int, *, over: bool = False) -> None:
        """Add a record with new values to each task."""
        for capture in self._captures:
            step = capture.records + 1
            values = {f"metric_{key:02}": round(_RANDOM.random(), 6) for key in range(keys - 1)}
            ledger = dict.fromkeys(("stdout", "stderr"), dict.fromkeys(COLUMNS, step))
            now_ns = time.time_ns()
            view = capture.print({"step": step, **values}).view(
                over=over,
                heartbeat_ns=now_ns,
                started_ns=now_ns,
                ledger=ledger,
                bytes_printed=step * 900,
            )
            self.jobs.update(view)


class Bench:
    """tasks: of the array, over all nodes; one_job: the tasks belong to one job instead of one job
    each."""

    def __init__(
        self, tasks: int, keys: int, nodes: int, scrapes: int, interval_secs: int, *, one_job: bool
    ) -> None:
        self.tasks, self.keys, self.scrapes, self.interval_secs = (
            tasks,
            keys,
            scrapes,
            interval_secs,
        )
        self.one_job = one_job
        self.nodes = [Node(f"n{number}") for number in range(nodes)]

    def run(self) -> None:
        with ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.server.close)
            prometheus = stack.enter_context(
                PrometheusServer(scrape_interval=f"{self.interval_secs}s")
            )
            kind = "one job" if self.one_job else "an array"
            print(
                f"\n### {kind.capitalize()} of {self.tasks:,} tasks with {self.keys} keys, {len(self.nodes)} nodes\n"
            )
            print(f"Prometheus {prometheus.version}, {self.scrapes} scrapes\n")
            print("| | series | resident, MB | heap, MB | CPU of a scrape of all, s |")
            print("|---|---|---|---|---|")
            prometheus.set_targets([node.target for node in self.nodes])
            for node in self.nodes:
                prometheus.wait_for_target(node.target)
            idle = self._row("agents without jobs", prometheus)
            first = self._array(1, prometheus)
            size, packed = self._size()
            self._end(prometheus)
            self._array(2, prometheus)
            series = first.series - idle.series
            kib = (first.heap - idle.heap) / series / 1024
            print(
                f"\n{series / self.tasks:,.0f} series a task; {kib:.1f} KiB of heap a series. A scrape of one of the "
                f"{len(self.nodes)} nodes has {size / 1e6:.1f} MB, {packed / 1e6:.2f} packed.",
                flush=True,
            )

    def _array(self, number: int, prometheus: PrometheusServer) -> Facts:
        for at, node in enumerate(self.nodes):
            tasks = range(at, self.tasks, len(self.nodes))
            node.begin([self._task(number, task) for task in tasks])
        words = "its tasks run" if number == 1 else "they have ended, and as many more run"
        return self._row(words, prometheus, running=True)

    def _task(self, array: int, task: int) -> FakeCapture:
        job_id = f"{array}00000" if self.one_job else f"{array}{task:05}"
        return FakeCapture(key=f"{array}.{task}", job_id=job_id, task=task if self.one_job else 0)

    def _row(self, words: str, prometheus: PrometheusServer, *, running: bool = False) -> Facts:
        before = facts_of(prometheus)
        heaps = []
        scrapes = self.scrapes if running else 3
        with Progress(f"{words[0].upper()}{words[1:]}") as progress:
            for scrape in range(scrapes):
                progress.doing = f"scrape {scrape + 1} of {scrapes}"
                begin = time.monotonic()
                for node in self.nodes:
                    if running:
                        node.go_on(self.keys)
                time.sleep(max(0.0, self.interval_secs - (time.monotonic() - begin)))
                heaps.append(facts_of(prometheus).heap)
        after = facts_of(prometheus)._replace(heap=min(heaps[len(heaps) // 2 :]))
        cpu = (after.cpu_secs - before.cpu_secs) / scrapes
        print(
            f"| {words} | {after.series:,.0f} | {after.resident / 1e6:,.0f} | {after.heap / 1e6:,.0f} | {cpu:.2f} |",
            flush=True,
        )
        return after

    def _size(self) -> tuple[int, int]:
        text, _ = exposition(self.nodes[0].agent, self.nodes[0].jobs)
        return len(text), len(gzip.compress(text, 1))

    def _end(self, prometheus: PrometheusServer) -> None:
        """End all tasks and their series, and wait until Prometheus marks the series as stale."""
        for node in self.nodes:
            node.go_on(self.keys, over=True)
            node.jobs.expire(0)
            node.jobs.expire(10**9 * 86_400)
        wait_until(
            lambda: not _array_is_there(prometheus), "the first array's series are gone", _WAIT_SECS
        )


def _array_is_there(prometheus: PrometheusServer) -> bool:
    return bool(
        _ask(prometheus, "/api/v1/query", query="count(logshipper_job_info)").json()["data"][
            "result"
        ]
    )


def facts_of(prometheus: PrometheusServer) -> Facts:
    values: dict[str, float] = {}
    for line in _ask(prometheus, "/metrics").text.splitlines():
        name, _, value = line.rpartition(" ")
        if name.partition("{")[0] in _FACTS:
            values[name.partition("{")[0]] = values.get(name.partition("{")[0], 0.0) + float(value)
    return Facts(*(values[name] for name in _FACTS))


def _ask(prometheus: PrometheusServer, path: str, **parameters: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        return session.get(f"{prometheus.url}{path}", params=parameters, timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=TASKS, help=f"default {TASKS}")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"of each task (default {KEYS})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    parser.add_argument(
        "--scrapes", type=int, default=SCRAPES, help=f"of each array (default {SCRAPES})"
    )
    parser.add_argument(
        "--interval-secs", type=int, default=INTERVAL_SECS, help=f"default {INTERVAL_SECS}"
    )
    arguments = parser.parse_args()
    for one_job in (False, True):
        Bench(arguments.tasks, arguments.keys, arguments.nodes, arguments.scrapes, arguments.interval_secs,
              one_job=one_job).run()  # fmt: skip


if __name__ == "__main__":
    main()
