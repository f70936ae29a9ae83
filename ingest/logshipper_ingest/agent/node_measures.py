"""Measures of the node agent itself for /metrics: captures, limits, disks, socket and listener."""

from collections import Counter
from collections.abc import Iterable

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
        self, agent: AgentSection, metrics: AgentMetrics, limits: SpoolLimits, overuse: SpoolOveruse
    ) -> None:
        self._metrics = metrics
        self._limits = limits
        self._overuse = overuse
        self._disks = DiskMetrics(metrics, {"spool": agent.spool_dir, "state": agent.state_dir})
        self._totals: Counter[tuple[str, str]] = Counter()  # already in the metrics

    def update(self, captures: Iterable[FollowedCapture]) -> None:
        """Count captures by life, limited captures, dropped items and free disk space."""
        lives = Counter(capture.life for capture in captures)
        for life in Life:
            self._metrics.captures.labels(life.value).set(lives[life])
        self._metrics.limited.labels("soft").set(self._limits.slow)
        self._metrics.limited.labels("hard").set(self._limits.stopped)
        dropped = {
            "captures_taken": self._overuse.taken_counts.total(),
            "log_lines": dropped_count(),
        }
        for reason, total in dropped.items():
            self._grow(self._metrics.left_out.labels(reason), ("dropped", reason), total)
        self._disks.measure()

    def add_telegraf(self, telegraf: TelegrafRouter) -> None:
        """Count the lines and connections of the listener for measurements."""
        for outcome, total in telegraf.counts.items():
            metric = self._metrics.telegraf_lines.labels(outcome)
            self._grow(metric, ("telegraf", outcome), total)
        self._metrics.telegraf_connections.set(telegraf.connections)
        self._metrics.telegraf_down.set(bool(telegraf.trouble))

    def add_socket(self, socket: JobSocket) -> None:
        """Count the directories and refusals of the socket's thread."""
        self._grow(self._metrics.socket_captures, ("socket", ""), socket.capture_count)
        for reason, total in socket.refusals.items():
            metric = self._metrics.socket_refusals.labels(reason)
            self._grow(metric, ("socket", reason), total)

    def _grow(self, metric: Metric, key: tuple[str, str], total: int) -> None:
        metric.inc(max(total - self._totals[key], 0))
        self._totals[key] = total
