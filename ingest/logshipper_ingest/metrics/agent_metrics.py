"""The node agent's own metrics, and the text that /metrics shows (docs/metrics.md)."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from logshipper import __version__
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.model.end_record import OUTCOMES as SLURM_OUTCOMES
from logshipper_ingest.model.slurm_hours import HOUR_SECS, HourSums
from logshipper_ingest.servers.refusals import REASONS, THROTTLES

# reasons for refused requests at the job socket
SOCKET_REFUSALS = tuple(
    "silent gone crowded too_often malformed unknown_peer too_many_captures spool fault".split()
)
RETRY_REASONS = ("no_connection", "429", "500", "503")
WAITING_RESULTS = (*RETRY_REASONS, "401", "403", "404")  # others appear when they first occur
SCRAPE_REASONS = ("busy", "slow", "tls", "unauthorized")
TELEGRAF_OUTCOMES = tuple(  # of logshipper_ingest/telegraf/router.py
    "passed_on unidentified ambiguous no_job job_gone not_kept overflow too_long crowded".split()
)
PARTIAL_SUCCESS = "partial_success"
LEFT_OUT_REASONS = ("quarantine_full", "slurm_ends", "captures_taken", "log_lines", PARTIAL_SUCCESS)
_HOUR, _DAY = 3600, 86400
_PUSH_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS = (1, 10, 60, 300, 900, _HOUR, 4 * _HOUR, 12 * _HOUR, _DAY, 3 * _DAY, 7 * _DAY)
_END = b"# EOF\n"  # of OpenMetrics


def add_counter(
    registry: CollectorRegistry,
    name: str,
    help_text: str,
    *labels: str,
    at_zero: Iterable[str] = (),
) -> Counter:
    """Add a counter. at_zero: values of its label that show 0 from the start, so that `rate()`
    counts the first events, too."""
    counter = Counter(f"logshipper_agent_{name}", help_text, labels, registry=registry)
    for value in at_zero:
        counter.labels(value)
    return counter


def add_gauge(registry: CollectorRegistry, name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(f"logshipper_agent_{name}", help_text, labels, registry=registry)


class SinkMetrics:
    """Metrics of one sink, in a registry that its maker may add to."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(add_counter, self.registry), partial(add_gauge, self.registry)
        self.pushes = counter("pushes", "Pushes to Loki.", "result")
        self.push_seconds = self._histogram("push_seconds", "Duration of a push.", _PUSH_BUCKETS)
        self.entries = counter("entries", "Entries that Loki acknowledged.", "kind")
        self.pushed_bytes = counter("pushed_bytes", "Acknowledged bytes, compressed.")
        self.retries = counter("retries", "Retried pushes.", "reason", at_zero=RETRY_REASONS)
        self.throttled = counter("throttled", "Delayed pushes.", "limit", at_zero=THROTTLES)
        self.refused_entries = counter(
            "refused_entries", "Refused entries.", "reason", at_zero=REASONS
        )
        self.lag_seconds = gauge("lag_seconds", "Age of the oldest unacknowledged line.")
        self.clock_skew_seconds = gauge("clock_skew_seconds", "The node's clock less Loki's.")
        self.spool_bytes = gauge("spool_bytes", "Unacknowledged bytes in the spool.")
        self.waiting_streams = gauge("waiting_streams", "Waiting streams to Loki.", "result")
        self.quarantine_bytes = gauge("quarantine_bytes", "Bytes in the quarantine.")
        self.quarantine_max_bytes = gauge("quarantine_max_bytes", "Limit of the quarantine.")
        self.left_out = counter("left_out", "Dropped items.", "reason", at_zero=LEFT_OUT_REASONS)
        self.values_left_out = counter("influxdb_values_left_out", "Unsupported values.")
        self.slurm_records = counter(
            "slurm_records", "Records of how Slurm ended jobs.", "outcome", at_zero=SLURM_OUTCOMES
        )
        self.slurm_jobs = counter("slurm_jobs", "Jobs that Slurm ended, captured or not.", "state")
        self.slurm_node_seconds = counter(
            "slurm_node_seconds", "Node seconds of jobs that Slurm ended, captured or not.", "state"
        )
        self.slurm_wait_seconds = self._histogram(
            "slurm_wait_seconds",
            "Queue time of jobs that Slurm ended, captured or not.",
            _WAIT_BUCKETS,
        )
        self._slurm_hours = (
            gauge("slurm_hour_node_seconds", "Node seconds of jobs in an hour.", "hour"),
            gauge("slurm_hour_jobs", "Jobs that ended in an hour.", "hour"),
        )
        self._hours: set[str] = set()
        self.slurm_waiting = gauge(
            "slurm_waiting", "Records of how Slurm ended jobs that the agent will try again."
        )
        self._waiting_results = set(WAITING_RESULTS)
        self.set_waiting({})

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"logshipper_agent_{name}", help_text, buckets=buckets, registry=self.registry
        )

    def set_slurm_hours(self, sums: Mapping[int, HourSums]) -> None:
        """Show these sums, by hours since 1970, and no others."""
        sums_by_hour = {utc_hour(hour): hour_sums for hour, hour_sums in sums.items()}
        for at, gauge in enumerate(self._slurm_hours):
            for hour, hour_sums in sums_by_hour.items():
                gauge.labels(hour).set(hour_sums[at])
            for hour in self._hours - sums_by_hour.keys():
                gauge.remove(hour)
        self._hours = set(sums_by_hour)

    def set_waiting(self, streams: Mapping[str, int]) -> None:
        """Set the numbers of waiting streams by result; all other results become 0."""
        self._waiting_results |= streams.keys()
        for result in self._waiting_results:
            self.waiting_streams.labels(result).set(streams.get(result, 0))


def utc_hour(hour: int) -> str:
    """Return the label of an hour since 1970: `2026-05-01T12:00:00Z`."""
    return datetime.fromtimestamp(hour * HOUR_SECS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class AgentMetrics(SinkMetrics):
    """The agent's own health, and the metrics of its first sink."""

    def __init__(self, cluster: str = "", host: str = "") -> None:
        super().__init__()
        counter, gauge = partial(add_counter, self.registry), partial(add_gauge, self.registry)
        # Metrics of further sinks, by the label `sink`; the first sink has no such label.
        self.further: dict[str, SinkMetrics] = {}
        ProcessCollector(registry=self.registry)
        build = gauge(
            "build_info", "The agent, and its node.", "version", "python", "cluster", "host"
        )
        build.labels(__version__, ".".join(map(str, sys.version_info[:3])), cluster, host).set(1)
        self.start_time_seconds = gauge("start_time_seconds", "Start of the agent, since 1970.")
        self.start_time_seconds.set_to_current_time()
        self.disk_free_bytes = gauge("disk_free_bytes", "Free bytes of a folder's disk.", "folder")
        self.disk_size_bytes = gauge("disk_size_bytes", "Size of a folder's disk.", "folder")
        self.disk_free_files = gauge("disk_free_files", "Free inodes of a folder's disk.", "folder")
        self.disk_size_files = gauge("disk_size_files", "Inodes of a folder's disk.", "folder")
        self.captures = gauge("captures", "Captures in the spool.", "life")
        self.limited = gauge("limited_captures", "Captures over a limit of spool bytes.", "limit")
        for limit in ("soft", "hard"):
            self.limited.labels(limit)
        self.lines = counter("lines", "Lines that captured jobs printed.", "user", "stream")
        self.bytes = counter("bytes", "Bytes that captured jobs printed.", "user", "what")
        self.lost_lines = counter("lost_lines", "Lost lines of captured jobs.")
        self.damages = counter("damages", "Skipped places with damaged or missing segments.")
        self.damaged_bytes = counter("damaged_bytes", "Skipped bytes of damaged segments.")
        self.socket_captures = counter("socket_captures", "Directories given to `logshipper run`.")
        self.socket_refusals = counter(
            "socket_refusals",
            "Refused requests at the job socket.",
            "reason",
            at_zero=SOCKET_REFUSALS,
        )
        self.scrapes_refused = counter(
            "scrapes_refused", "Refused connections to /metrics.", "reason", at_zero=SCRAPE_REASONS
        )
        self.telegraf_lines = counter(
            "telegraf_lines",
            "Lines of measurements sent to the agent.",
            "outcome",
            at_zero=TELEGRAF_OUTCOMES,
        )
        self.telegraf_connections = gauge("telegraf_connections", "Connections of senders.")
        self.telegraf_down = gauge(
            "telegraf_down", "1 while the agent can't accept measurements but should."
        )

    def of_sink(self, name: str) -> SinkMetrics:
        """Return the metrics of a further sink."""
        return self.further.setdefault(name, SinkMetrics())


class _Health(Collector):
    """Everything exported besides the jobs' series, without prometheus_client's `_created`
    series, which nobody needs."""

    def __init__(self, agent: AgentMetrics, jobs: JobMetrics | None) -> None:
        self._agent = agent
        self._jobs = jobs

    def collect(self) -> Iterator[Metric]:
        further: dict[str, list[Sample]] = defaultdict(list)
        for sink, metrics in list(self._agent.further.items()):
            for metric in metrics.registry.collect():
                further[metric.name] += (
                    sample._replace(labels={**sample.labels, "sink": sink})
                    for sample in metric.samples
                )
        for metric in self._agent.registry.collect():
            metric.samples = [*metric.samples, *further[metric.name]]
            yield _drop_created(metric)
        if self._jobs is not None:
            yield from map(_drop_created, self._jobs.counters())


def _drop_created(metric: Metric) -> Metric:
    metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    return metric


def exposition(agent: AgentMetrics, jobs: JobMetrics | None, accept: str = "") -> tuple[bytes, str]:
    """Return the body of /metrics and its content type: OpenMetrics or the text format, as the
    request's `Accept` header asks."""
    encoder, content_type = choose_encoder(accept)
    # Write the jobs first: this counts omitted keys.
    text = b"" if jobs is None else jobs.text().encode()
    body = encoder(_Health(agent, jobs))
    return (body[: -len(_END)] + text + _END if body.endswith(_END) else body + text), content_type
