"""A cluster's day in Loki and Prometheus, and the reads of its cluster-wide pages (`make
bench-cluster`; docs/scale.md).

The agent's own code encodes a made-up day of jobs on one and on several nodes, at the default
intervals. A real Loki takes the pushes. A real Prometheus scrapes agents with the captures of the
last three hours. The output is Markdown: each figure as measured and multiplied by --times.
"""

import argparse
import contextlib
import heapq
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import requests

from benchmarks.cluster_logs import (
    CLUSTER,
    HOUR_SECS,
    LIMITS,
    SECOND_NS,
    SLICE_SECS,
    Filler,
    Job,
    chunks_of_all,
    host_name,
)
from benchmarks.grafana_scale import TimedLoki, wait_flushed
from benchmarks.prometheus_series import Facts, Node, facts_of
from logshipper_grafana.parts import links
from logshipper_ingest.loki.client import LokiClient
from logshipper_ingest.metrics.remote_write_encoding import SeriesEncoder
from tests.grafana.tools.interpolation import Text
from tests.grafana.tools.pages import Page
from tests.grafana.tools.sources import PrometheusSource, Range
from tests.grafana.tools.two_databases import remote_write
from tests.ingest.metrics.test_remote_write import RECEIVER
from tests.servers.progress import Progress
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.stores.job_views import FakeCapture

NODES, JOBS, TIMES = 100, 1000, 50
LINES_PER_HOUR, RECORDS_PER_HOUR, KEYS = 1000, 360, 20
BAR_SECS, REPORT_SECS = 10, 60  # the agent's defaults
HEAD_HOURS = 3  # Prometheus keeps in memory all series with samples within these hours
PAGE_HOURS = 6
SPAN_HOURS = 26  # all of the day's jobs end within these hours
KINDS = ("log", "metadata", "event", "heartbeat", "status", "value", "command")


class Shape(NamedTuple):
    """A kind of job. share: fraction of all jobs."""

    share: float
    nodes: int
    secs: int


SHAPES = (Shape(0.8, 1, HOUR_SECS // 3), Shape(0.15, 4, HOUR_SECS), Shape(0.05, 8, 2 * HOUR_SECS))


@dataclass(frozen=True)
class Day:
    """A day's captures. captures: one per node of each job, sorted by their begin."""

    begin_ns: int
    nodes: int
    jobs: int
    captures: Sequence[Job]

    @property
    def hours(self) -> float:
        """The sum of all captures' durations in hours."""
        return sum(job.secs for job in self.captures) / HOUR_SECS

    def recent(self) -> list[Job]:
        """Return the captures that ran within the last HEAD_HOURS."""
        from_ns = self.begin_ns + (24 - HEAD_HOURS) * HOUR_SECS * SECOND_NS
        return [job for job in self.captures if job.end_ns > from_ns]


def made_up(begin_ns: int, nodes: int, jobs: int, keys: int, lines: int, records: int) -> Day:
    """Return a day of jobs in random order, each on the nodes that become free first.

    lines, records: of a capture, per hour. Raises SystemExit if the nodes can't run all jobs.
    """
    shapes = [shape for shape in SHAPES for _ in range(round(shape.share * jobs))]
    random.Random(26).shuffle(shapes)
    free = [(0, node) for node in range(nodes)]
    captures = []
    for number, shape in enumerate(shapes):
        places = [heapq.heappop(free) for _ in range(min(shape.nodes, nodes))]
        # spread evenly over the day if nodes are free
        at = max(places[-1][0], number * (24 * HOUR_SECS - shape.secs) // len(shapes))
        if at + shape.secs > SPAN_HOURS * HOUR_SECS:
            raise SystemExit(f"{nodes} nodes can't run {jobs} jobs in a day: fewer --jobs")
        for task, (_, node) in enumerate(places):
            heapq.heappush(free, (at + shape.secs, node))
            captures.append(
                Job(
                    job_id=f"{100_000 + number}",
                    host=host_name(node),
                    begin_ns=begin_ns + at * SECOND_NS,
                    secs=shape.secs - 5,
                    lines=max(lines * shape.secs // HOUR_SECS, 1),
                    records=max(records * shape.secs // HOUR_SECS, 1),
                    state="FAILED" if number % 10 == 0 else "COMPLETED",
                    user=f"user{number % 37}",
                    task=task,
                    keys=keys,
                    bar_secs=BAR_SECS,
                    report_secs=REPORT_SECS,
                )
            )
    return Day(begin_ns, nodes, len(shapes), sorted(captures, key=lambda job: job.begin_ns))


class Bench:
    """times: ratio of the cluster in question to the measured one."""

    def __init__(self, day: Day, times: int) -> None:
        self.day = day
        self.times = times

    def run(self) -> None:
        day = self.day
        print(
            f"{day.nodes:,} nodes, {day.jobs:,} jobs of {len(day.captures):,} captures, {day.hours:,.0f} hours of "
            f"captures in a day; each capture has {day.captures[0].keys} keys, a bar, heartbeats\n",
            flush=True,
        )
        with contextlib.ExitStack() as stack:
            loki = stack.enter_context(LokiServer(limits=LIMITS))
            nodes = [Node(host_name(number), CLUSTER) for number in range(day.nodes)]
            for node in nodes:
                stack.callback(node.server.close)
            prometheus = stack.enter_context(
                PrometheusServer(
                    scrape_interval="5s",
                    config={"storage": {"tsdb": {"out_of_order_time_window": "2d"}}},
                    flags=RECEIVER,
                )
            )
            self._series(nodes, prometheus)
            self._logs(loki)
            self._pages(loki, prometheus)

    # ---- Loki

    def _logs(self, loki: LokiServer) -> None:
        day = self.day
        active = 0
        with Progress("Filling Loki with the day") as progress:

            def say(words: str) -> None:
                progress.doing = words

            filler = Filler(loki, say)
            try:
                slices = groupby(
                    chunks_of_all(day.captures), lambda chunk: self._slice(chunk.times_ns[0])
                )
                for number, chunks in slices:
                    ends = [
                        job
                        for job in day.captures
                        if not job.task and self._slice(job.end_ns) == number
                    ]
                    filler.slice(
                        f"hour {number * SLICE_SECS // HOUR_SECS} of 24",
                        chunks,
                        sorted(ends, key=lambda job: job.end_ns),
                    )
                    active = max(active, int(_gauge(loki, "loki_ingester_memory_streams")))
            finally:
                filler.close()
            say("Loki writes its chunks")
            wait_flushed(loki)
        print(f"\n### Loki {loki.version}, a day\n")
        self._head("of kind")
        span = Range(day.begin_ns // 10**6, day.begin_ns // 10**6 + SPAN_HOURS * HOUR_SECS * 1000)
        client = LokiClient(loki.url)
        total = [0, 0, 0]
        for kind in KINDS:
            selector = f'{{cluster="{CLUSTER}", kind="{kind}"}}'
            stats = _json(
                loki,
                "/loki/api/v1/index/stats",
                query=selector,
                start=span.begin_ms * 10**6,
                end=span.end_ms * 10**6,
            )
            streams = client.series(
                selector, begin_ns=span.begin_ms * 10**6, end_ns=span.end_ms * 10**6
            )
            counts = [len(streams), stats["entries"], stats["bytes"]]
            total = [a + b for a, b in zip(total, counts, strict=True)]
            self._row(f"`{kind}`: streams", counts[0])
            self._row(f"`{kind}`: entries", counts[1])
            self._row(f"`{kind}`: MB, unpacked", counts[2] / 1e6)
        for words, count in zip(
            ("streams", "entries", "MB, unpacked"),
            (total[0], total[1], total[2] / 1e6),
            strict=True,
        ):
            self._row(f"all: {words}", count)
        self._row("streams with entries within two hours, at most", active)
        disk = sum(
            path.stat().st_size
            for path in Path(loki.folder, "data").rglob("*")
            if path.is_file() and "wal" not in path.parts
        )
        self._row("MB on its disk, chunks and index", disk / 1e6)
        self._row("entries a second, mean", total[1] / 86_400)
        print(flush=True)

    def _slice(self, time_ns: int) -> int:
        return (time_ns - self.day.begin_ns) // (SLICE_SECS * SECOND_NS)

    # ---- Prometheus

    def _series(self, nodes: Sequence[Node], prometheus: PrometheusServer) -> None:
        recent = self.day.recent()
        at = {host_name(number): node for number, node in enumerate(nodes)}
        captures: dict[str, list[FakeCapture]] = {host: [] for host in at}
        for number, job in enumerate(recent):
            captures[job.host].append(
                FakeCapture(key=f"c{number}", job_id=job.job_id, task=job.task)
            )
        for host, node in at.items():
            node.begin(captures[host])
        with Progress(
            f"Scraping {len(recent):,} captures of the last {HEAD_HOURS} hours"
        ) as progress:
            prometheus.set_targets([node.target for node in nodes])
            for node in nodes:
                prometheus.wait_for_target(node.target)
            before = facts_of(prometheus)
            heaps = []
            for scrape in range(12):
                progress.doing = f"scrape {scrape + 1} of 12"
                for node in nodes:
                    node.go_on(self.day.captures[0].keys)
                time.sleep(5)
                heaps.append(facts_of(prometheus).heap)
            facts = facts_of(prometheus)
        self._print_series(recent, before, facts, min(heaps[6:]))

    def _print_series(
        self, recent: Sequence[Job], before: Facts, facts: Facts, heap: float
    ) -> None:
        running = sum(job.secs for job in self.day.captures) / 86_400
        print(f"\n### Prometheus, what it has in memory: {HEAD_HOURS} hours\n")
        self._head("")
        self._row("captures that run at a time, mean", running)
        self._row(f"captures within {HEAD_HOURS} hours", len(recent))
        self._row("series", facts.series)
        self._row("MB of heap, without samples that gather", heap / 1e6)
        self._row("samples of a scrape of all", (facts.samples - before.samples) / 12)
        self._row("CPU s of a scrape of all", (facts.cpu_secs - before.cpu_secs) / 12)
        print(flush=True)

    # ---- pages

    def _pages(self, loki: LokiServer, prometheus: PrometheusServer) -> None:
        day_end_ms = self.day.begin_ns // 10**6 + 24 * HOUR_SECS * 1000
        recent = next(
            job for job in reversed(self.day.captures) if job.end_ns // 10**6 < day_end_ms
        )
        running = [
            job for job in self.day.captures if job.begin_ns <= day_end_ms * 10**6 < job.end_ns
        ]
        self._tell_running(running, prometheus, day_end_ms)
        pages: tuple[tuple[str, str, dict[str, Text], int], ...] = (
            ("list of jobs", links.JOBS, {}, PAGE_HOURS),
            ("list of jobs, of a user", links.JOBS, {"user": [running[-1].user]}, PAGE_HOURS),
            ("cluster", links.CLUSTER, {}, PAGE_HOURS),
            ("a job", links.JOB, {"job": recent.job_id}, 2),
        )
        print(f"\n### Pages, what they read of Loki: {PAGE_HOURS} hours, a job's two\n")
        print(
            "| page | questions of Loki | of Prometheus | entries read | MB read | ... the most by one question |"
        )
        print("|---|---|---|---|---|---|")
        for name, uid, selections, hours in pages:
            source = TimedLoki(loki.url)
            counted = CountedPrometheus(prometheus.url, scrape_ms=5000)
            when = Range(day_end_ms - hours * HOUR_SECS * 1000, day_end_ms)
            with Progress(f"Opening {name}"):
                page = Page(
                    uid,
                    {"loki": source, "prometheus": counted},
                    when,
                    cluster=CLUSTER,
                    **selections,
                )
                for model, scope in page.panels():
                    source.title = page.text(model["title"], scope)
                    page.run(model, scope)
                page.annotations()
            queries = [*source.query_of.values()]
            most = max(queries, key=lambda query: query.lines)
            print(
                f"| {name} | {len(queries)} | {counted.questions} | {sum(query.lines for query in queries):,} "
                f"| {sum(query.read_bytes for query in queries) / 1e6:,.1f} "
                f"| {most.title}: {most.lines:,}, {most.read_bytes / 1e6:,.1f} MB, {max(most.seconds):.2f} s |",
                flush=True,
            )

    def _tell_running(
        self, running: Sequence[Job], prometheus: PrometheusServer, at_ms: int
    ) -> None:
        """Write the series of running captures to Prometheus. The list of jobs needs them to select
        the bars that it reads."""
        captures = [
            f'job_id="{job.job_id}", attempt="1", step="batch", task="{job.task}", host="{job.host}", '
            f'cluster="{CLUSTER}", user="{job.user}"'
            for job in running
        ]
        lines = [f"logshipper_job_info{{{labels}}} 1" for labels in captures]
        lines += [f'logshipper_job_state{{{labels}, state="RUNNING"}} 1' for labels in captures]
        remote_write(prometheus.url, SeriesEncoder({}).encode("\n".join(lines), at_ms - 1000))

    # ---- output

    def _head(self, words: str) -> None:
        print(f"| {words} | measured | times {self.times} |\n|---|---|---|")

    def _row(self, words: str, measured: float) -> None:
        digits = 0 if measured >= 10 or measured == int(measured) else 2
        print(f"| {words} | {measured:,.{digits}f} | {measured * self.times:,.0f} |")


class CountedPrometheus(PrometheusSource):
    """Prometheus source that counts its queries."""

    questions = 0

    def get(
        self, path: str, params: Mapping[str, Any]
    ) -> Any:  # Any: JSON and values of a query string
        self.questions += 1
        return super().get(path, params)


def _json(loki: LokiServer, path: str, **parameters: object) -> dict[str, int]:
    answer = requests.get(
        loki.url + path, params={name: str(value) for name, value in parameters.items()}, timeout=60
    )
    answer.raise_for_status()
    counts: dict[str, int] = answer.json()
    return counts


def _gauge(loki: LokiServer, name: str) -> float:
    lines = requests.get(f"{loki.url}/metrics", timeout=30).text.splitlines()
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.partition("{")[0].split(" ")[0] == name
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="A day of 5,000 nodes and 50,000 jobs at 1/50: python -m benchmarks.cluster_day",
    )
    parser.add_argument("--nodes", type=int, default=NODES, help=f"default {NODES}")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"in the day (default {JOBS})")
    parser.add_argument(
        "--keys", type=int, default=KEYS, help=f"of each job's records (default {KEYS})"
    )
    parser.add_argument(
        "--lines",
        type=int,
        default=LINES_PER_HOUR,
        help=f"of a capture in an hour (default {LINES_PER_HOUR})",
    )
    parser.add_argument(
        "--records",
        type=int,
        default=RECORDS_PER_HOUR,
        help=f"likewise (default {RECORDS_PER_HOUR})",
    )
    parser.add_argument(
        "--times",
        type=int,
        default=TIMES,
        help=f"by which figures are multiplied (default {TIMES})",
    )
    arguments = parser.parse_args()
    begin_ns = (time.time_ns() // SECOND_NS - (SPAN_HOURS + 1) * HOUR_SECS) * SECOND_NS
    day = made_up(
        begin_ns,
        arguments.nodes,
        arguments.jobs,
        arguments.keys,
        arguments.lines,
        arguments.records,
    )
    Bench(day, arguments.times).run()


if __name__ == "__main__":
    main()
