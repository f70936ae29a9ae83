"""Measures of the node agent itself for /metrics: captures, limits, disks, socket and listener."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import Counter as Metric

from logshipper_ingest.agent.job_socket import JobSocket
from logshipper_ingest.agent.spool_limits import SpoolLimits
from logshipper_ingest.agent.spool_overuse import SpoolOveruse
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.console.service_log import dropped_count
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.shipping.disk_metrics import DiskMetrics
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.telegraf.router import TelegrafRouter


class NodeMeasures:
    """Copies the state of the agent's parts into its metrics."""

    def __init__(
        self,
        agent: AgentSection,
        metrics: AgentMetrics,
        limits: SpoolLimits,
        overuse: SpoolOveruse,
        socket: JobSocket | None,
        telegraf: TelegrafRouter | None,
    ) -> None:
        self._metrics = metrics
        self._limits = limits
        self._overuse = overuse
        self._socket = socket
        self._telegraf = telegraf
        self._disks = DiskMetrics(metrics, {"spool": agent.spool_dir, "state": agent.state_dir})
        self._totals: Counter[tuple[object, str]] = Counter()  # already in the metrics

    def update(self, captures: Iterable[FollowedCapture]) -> None:
        metrics, socket, telegraf = self._metrics, self._socket, self._telegraf
        lives = Counter(capture.life for capture in captures)
        for life in Life:
            metrics.captures.labels(life.value).set(lives[life])
        metrics.limited.labels("soft").set(self._limits.slow)
        metrics.limited.labels("hard").set(self._limits.stopped)
        taken_count = self._overuse.taken_counts.total()
        self._grow(metrics.left_out, {"captures_taken": taken_count, "log_lines": dropped_count()})
        self._disks.measure()
        if socket is not None:
            metrics.socket_captures.inc(socket.capture_count - self._totals[socket, ""])
            self._totals[socket, ""] = socket.capture_count
            self._grow(metrics.socket_refusals, socket.refusals)
        if telegraf is not None:
            self._grow(metrics.telegraf_lines, telegraf.counts)
            metrics.telegraf_connections.set(telegraf.connections)
            metrics.telegraf_down.set(bool(telegraf.trouble))

    def _grow(self, metric: Metric, totals: Mapping[str, int]) -> None:
        """Increase counters to their totals, by label."""
        for label, total in totals.items():
            metric.labels(label).inc(max(total - self._totals[metric, label], 0))
            self._totals[metric, label] = total
