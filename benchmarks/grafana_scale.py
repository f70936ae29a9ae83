"""Times and read volumes of a job page's queries in a cluster's Loki (`make bench-grafana`).

A real Loki holds a day of 10, 100 and 1,000 hosts. The benchmark opens a job's page with the tests'
tools, then repeats each of its Loki queries, one by one. A real Prometheus supplies the job's nodes
and keys. The output is Markdown.
"""

import argparse
import contextlib
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests

from benchmarks.cluster_logs import (
    CLUSTER,
    CONTROLLER,
    HOUR_SECS,
    LIMITS,
    SECOND_NS,
    Filler,
    Job,
    host_name,
    usual_job,
)
from logshipper_grafana.parts import links
from logshipper_ingest.config.agent_config import MetricsSection
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.metrics.job_series import CaptureView
from logshipper_ingest.metrics.metrics_server import MetricsServer
from logshipper_ingest.model.metadata_keys import parse_record
from logshipper_ingest.model.x_axis import XAxis
from tests.grafana.tools.captured import PAD_AFTER_MS, PAD_BEFORE_MS
from tests.grafana.tools.pages import Page, Source
from tests.grafana.tools.sources import LokiSource, PrometheusSource, Range
from tests.servers.progress import Progress
from tests.servers.running import LokiServer, PrometheusServer
from tests.tools.captures.captured_runs import wait_until

HOSTS = (10, 100, 1000)
ROUNDS = 20
BEGIN_HOUR = 22  # of the day that ends when the benchmark starts
JOB_SECS = 2 * HOUR_SECS - 600
LINES, RECORDS = 20_000, 4000
FLOOD_LINE_BYTES = 87
SCRAPE_MS = 1000
SETTLE_SECS = 300.0
_KIND = re.compile(r"kind=~?[`\"]([a-z|]+)")
_SELECTOR = re.compile(r"\{cluster=[^{}]*\}")
# groups of queries, by the `kind` of their streams and the panel
GROUPS: Mapping[str, Callable[["Asked"], bool]] = {
    "header, tables of events, marks": lambda query: query.kind == "event",
    "running bar": lambda query: query.title.startswith("Running bars"),
    "table and graphs of metadata": lambda query: query.kind == "metadata",
    "console": lambda query: query.kind.startswith("log") and query.title.startswith("Console log"),
    "lines over time, as a table (closed rows)": lambda query: (
        query.kind.startswith("log") and not query.title.startswith(("Console log", "Running bars"))
    ),
}


@dataclass
class Asked:
    """Runs of one query. seconds: of each run, time-outs included; stats: Loki's statistics of the
    first answer."""

    title: str
    kind: str
    seconds: list[float] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON

    @property
    def lines(self) -> int:
        return int(self.stats["summary"]["totalLinesProcessed"]) if self.stats else 0

    @property
    def read_bytes(self) -> int:
        return int(self.stats["summary"]["totalBytesProcessed"]) if self.stats else 0

    @property
    def chunks(self) -> int:
        """Number of chunks read from disk, by any part of Loki, and from memory."""
        if not self.stats:
            return 0
        querier, ingester = self.stats["querier"], self.stats["ingester"]
        on_disk = (
            querier["store"]["totalChunksDownloaded"] + ingester["store"]["totalChunksDownloaded"]
        )
        return int(on_disk + ingester["totalChunksMatched"])


class TimedLoki(LokiSource):
    """Loki source that records each query's duration and Loki's own read statistics."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.title = ""
        self.query_of: dict[tuple[str, str], Asked] = {}
        self.selectors: set[str] = set()

    def get(
        self, path: str, params: Mapping[str, Any]
    ) -> Any:  # Any: JSON and values of a query string
        if "query" not in params:
            return super().get(path, params)
        logql = str(params["query"])
        kind = _KIND.search(logql)
        query = self.query_of.setdefault(
            (self.title, logql), Asked(self.title, kind[1] if kind else "")
        )
        self.selectors.update(_SELECTOR.findall(logql))
        begin = time.perf_counter()
        try:
            answer = super().get(path, params)
            query.stats = query.stats or answer["stats"]
        finally:
            query.seconds.append(time.perf_counter() - begin)
        return answer


@dataclass
class Measured:
    """Measurements of a job's page. streams: streams within reach of its queries; foreign: hosts of
    other jobs among them."""

    name: str
    hosts: int
    job: Job
    queries: list[Asked]
    streams: int
    foreign: set[str]


class Bench:
    """One run of the benchmark. hosts: numbers of hosts, one after the other; rounds: runs of each
    query."""

    def __init__(self, hosts: Sequence[int], rounds: int, flood_bytes: int) -> None:
        self.hosts = hosts
        self.rounds = rounds
        self.day_ns = (time.time_ns() // SECOND_NS - 24 * HOUR_SECS) * SECOND_NS
        self.begin_ns = self.day_ns + (BEGIN_HOUR * HOUR_SECS + 300) * SECOND_NS
        self.small = self._job("4711", 0)
        self.large = self._job("4712", 1, times=10)
        self.quiet = self._job("4713", 2)
        # in one stream with the flood: both ids end in the same digit
        self.alike = self._job("4724", 2)
        self.flood = Job(
            "4714",
            host_name(2),
            self.begin_ns,
            JOB_SECS,
            flood_bytes // FLOOD_LINE_BYTES,
            0,
            user="bob",
        )
        self.until_ms = 0  # end of the page's time range: Prometheus has all series by then

    def _job(self, job_id: str, host: int, *, times: int = 1) -> Job:
        return Job(job_id, host_name(host), self.begin_ns, JOB_SECS, LINES * times, RECORDS * times)

    def run(self) -> None:
        with LokiServer(limits=LIMITS) as loki, contextlib.ExitStack() as stack:
            print(
                f"A job's page in Loki {loki.version}, {os.cpu_count()} cores, {self.rounds} runs of each query\n"
            )
            targets = [
                stack.enter_context(_agent(host, jobs))
                for host, jobs in self._jobs_by_host().items()
            ]
            prometheus = stack.enter_context(
                PrometheusServer(targets, scrape_interval=f"{SCRAPE_MS // 1000}s")
            )
            source = PrometheusSource(prometheus.url, scrape_ms=SCRAPE_MS)
            promql = (
                "count(logshipper_records) == 4 and on() count(logshipper_agent_build_info) == 4"
            )
            wait_until(
                lambda: source.get("/api/v1/query", {"query": promql})["result"],
                "Prometheus knows",
                60.0,
            )
            self.until_ms = time.time_ns() // 10**6
            before = 0
            for number in self.hosts:
                further = (
                    (self.small, self.large, self.quiet, self.alike, self.flood)
                    if not before
                    else ()
                )
                self._fill(loki, before, number, further)
                self._measure("a job", number, self.small, loki, source)
                before = number
            self._measure("ten times the job", before, self.large, loki, source)
            self._measure("the job next to a flood", before, self.quiet, loki, source)
            self._measure(
                "the job next to a flood, in its stream", before, self.alike, loki, source
            )
            forgotten = usual_job(4, BEGIN_HOUR - 12, self.day_ns, 0)
            self._measure(
                "an hour's job that Prometheus has forgotten", before, forgotten, loki, source
            )

    def _jobs_by_host(self) -> dict[str, list[Job]]:
        """Return the jobs in Prometheus by node; the controller's agent has none."""
        jobs_of = {job.host: [job] for job in (self.small, self.large, self.quiet)}
        jobs_of[self.quiet.host] += [self.alike, self.flood]
        return {**jobs_of, CONTROLLER: []}

    def _fill(self, loki: LokiServer, first: int, last: int, further: Sequence[Job]) -> None:
        with Progress(f"Filling Loki with the day of {last - first} hosts") as progress:

            def say(words: str) -> None:
                progress.doing = words

            filler = Filler(loki, say)
            try:
                filler.hosts(first, last, self.day_ns, further)
            finally:
                filler.close()
            say("Loki writes its chunks")
            wait_flushed(loki)
        print(
            f"  {filler.entries:,} entries, {filler.line_bytes / 1e6:,.0f} MB of lines", flush=True
        )

    def _measure(
        self, name: str, hosts: int, job: Job, loki: LokiServer, prometheus: PrometheusSource
    ) -> None:
        source = TimedLoki(loki.url)
        is_known = any(job in jobs for jobs in self._jobs_by_host().values())
        end_ms = self.until_ms if is_known else job.end_ns // 10**6 + PAD_AFTER_MS
        when = Range(job.begin_ns // 10**6 - PAD_BEFORE_MS, end_ms)
        sources: dict[str, Source] = {"loki": source, "prometheus": prometheus}
        with Progress(f"Opening the page: {name}, {hosts:,} hosts") as progress:
            page = Page(links.JOB, sources, when, cluster=CLUSTER, job=job.job_id)
            for round_ in range(1 + self.rounds):
                progress.doing = f"round {round_} of {self.rounds}"
                for model, scope in page.panels():
                    if model["datasource"]["type"] == "loki":
                        source.title = page.text(model["title"], scope)
                        with contextlib.suppress(requests.Timeout):
                            page.run(model, scope)
                source.title = "marks"
                page.annotations()
        series = [
            labels for selector in source.selectors for labels in _streams(source, selector, when)
        ]
        streams = {tuple(sorted(labels.items())) for labels in series}
        foreign = {labels["host"] for labels in series} - {job.host, CONTROLLER}
        self._print(Measured(name, hosts, job, [*source.query_of.values()], len(streams), foreign))

    # ---- output

    def _print(self, page: Measured) -> None:
        print(f"\n### {page.name[0].upper()}{page.name[1:]}, {page.hosts:,} hosts\n")
        print(
            "| queries of | number | first, ms | p50, ms | p95, ms | lines read | MB read | chunks |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for words, is_of in GROUPS.items():
            self._print_group(words, [query for query in page.queries if is_of(query)])
        slowest = max(page.queries, key=lambda query: _p95(query.seconds[1:]))
        print(
            f"\n{page.streams:,} streams are in reach, of {len(page.foreign):,} nodes that aren't the job's; it has "
            f"{page.job.lines + page.job.records:,} lines. Slowest: {slowest.title}, p95 "
            f"{_p95(slowest.seconds[1:]) * 1000:,.0f} ms.\n",
            flush=True,
        )

    def _print_group(self, words: str, queries: Sequence[Asked]) -> None:
        """Print a row of a group. Lines, bytes and chunks are those of the query that reads most."""
        again = [seconds for query in queries for seconds in query.seconds[1:]]
        first = max(query.seconds[0] for query in queries)
        largest = max(queries, key=lambda query: query.lines)
        print(
            f"| {words} | {len(queries)} | {first * 1000:,.0f} "
            f"| {statistics.median(again) * 1000:,.0f} | {_p95(again) * 1000:,.0f} "
            f"| {largest.lines:,} | {largest.read_bytes / 1e6:,.1f} | {largest.chunks} |"
        )


@contextlib.contextmanager
def _agent(host: str, jobs: Sequence[Job]) -> Iterator[str]:
    """Serve an agent's metrics of these jobs and yield its address. The controller's agent has
    counters of Slurm records."""
    metrics = AgentMetrics(CLUSTER, host)
    if host == CONTROLLER:
        metrics.slurm_records.labels("taken").inc(1000)
    job_metrics = JobMetrics(MetricsSection(), CLUSTER, host)
    for job in jobs:
        job_metrics.update(_view(job))
    server = MetricsServer("127.0.0.1:0", metrics, job_metrics)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close()


def _view(job: Job) -> CaptureView:
    axis = XAxis()
    for number in range(1, job.records + 1):
        record = parse_record(str(job.record(number)).replace("'", '"').encode())
        assert record is not None
        axis.add(record)
    counts = {name: value for name, value in job.counts().items() if name != "lost"}
    return CaptureView(key=job.job_id, identity=job.identity, state=job.state, exit_code=0, signal=0,
                       started_ns=job.begin_ns, ended_ns=job.end_ns, heartbeat_ns=job.end_ns, mode="enabled",
                       axis=axis, latest=axis.latest(), over=True, **counts)  # fmt: skip


def _streams(loki: LokiSource, selector: str, when: Range) -> list[dict[str, str]]:
    span = {"start": when.begin_ms * 10**6, "end": when.end_ms * 10**6}
    series: list[dict[str, str]] = loki.get("/loki/api/v1/series", {"match[]": selector, **span})
    return series


def wait_flushed(loki: LokiServer) -> None:
    deadline = time.monotonic() + SETTLE_SECS
    while time.monotonic() < deadline:
        text = requests.get(f"{loki.url}/metrics", timeout=30).text
        lines = [
            line for line in text.splitlines() if line.startswith("loki_ingester_memory_chunks ")
        ]
        if not sum(float(line.rpartition(" ")[2]) for line in lines):
            return
        time.sleep(1)
    raise SystemExit(f"Loki didn't write its chunks within {SETTLE_SECS:.0f} s")


def _p95(seconds: Sequence[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--hosts", default=",".join(map(str, HOSTS)), help="how many, one after the other"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"runs of each query (default {ROUNDS})"
    )
    parser.add_argument(
        "--flood-mb", type=int, default=1000, help="what the flood prints (default 1000)"
    )
    arguments = parser.parse_args()
    Bench(
        [int(count) for count in arguments.hosts.split(",")],
        arguments.rounds,
        arguments.flood_mb * 10**6,
    ).run()


if __name__ == "__main__":
    main()
