"""The reports of `logshipper analyze --all-jobs`: throughput and utilization by hour of all jobs
that Slurm ended, by the sums that its controller's agent reported to Prometheus
(logshipper_ingest/model/slurm_hours.py)."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING

from logshipper_ingest.servers.logql import quoted
from logshipper_observe.base.words import count
from logshipper_observe.commands.analysis.analyze_answer import Analysis, Between, mean_words

if TYPE_CHECKING:
    from logshipper_ingest.loki.finding import Metrics, SeriesValue

HOUR = timedelta(hours=1)
NODE_SECS, JOBS = "logshipper_agent_slurm_hour_node_seconds", "logshipper_agent_slurm_hour_jobs"
_STILL_RUNS = "jobs count at their end: running ones are missing in the last hours"
_NOTHING = "Prometheus knows no ends from Slurm: see docs/slurm-ends.md"


def hours_utilization(
    ask: "Metrics", cluster: str | None, since_secs: float, between: Between, now: datetime
) -> Analysis:
    """Nodes in use on average in each hour that is over."""
    sums = _hours(ask(_query(NODE_SECS, cluster, since_secs)), between, now)
    xs: list[datetime] = []
    ys: list[float] = []
    if sums:
        hours = round((max(sums) - min(sums)) / HOUR) + 1
        xs = [min(sums) + number * HOUR for number in range(hours + 1)]
        ys = [sums.get(hour, 0.0) / 3600 for hour in xs[:-1]]
        ys.append(ys[-1])  # until the last hour's end
    words = f"Nodes of all jobs that Slurm ended, by hour: {mean_words(xs, ys)}"
    notes = [_STILL_RUNS] if sums else [_NOTHING]
    return Analysis(words, "nodes", {"nodes": (xs, ys)}, notes, document={"all_jobs": True})


def hours_throughput(
    ask: "Metrics", cluster: str | None, since_secs: float, between: Between, now: datetime
) -> Analysis:
    """Count ended jobs at the end of each hour with any."""
    sums = _hours(ask(_query(JOBS, cluster, since_secs)), between, now)
    ended = {hour: round(sums[hour]) for hour in sorted(sums) if sums[hour] >= 1}
    counts = list(accumulate(ended.values()))
    words = f"Jobs that Slurm ended, captured or not, by hour: {count(counts[-1] if counts else 0)}"
    curve = [hour + HOUR for hour in ended], counts
    return Analysis(
        words, "jobs", {"jobs": curve}, [] if sums else [_NOTHING], document={"all_jobs": True}
    )


def _query(metric: str, cluster: str | None, since_secs: float) -> str:
    """The newest word on each hour: of an agent's series the greatest (it is scraped at another
    address, or twice), of several controllers the sum."""
    back = f"[{max(round(since_secs), 3600)}s:5m]"
    of_cluster = f"{{cluster={quoted(cluster)}}}" if cluster is not None else ""
    agents = f"group by(instance, job, cluster, host)(last_over_time(logshipper_agent_build_info{of_cluster}{back}))"
    series = f"({metric} or last_over_time({metric}{back})) * on(instance, job) group_left(cluster, host) {agents}"
    return f"sum by(hour)(max by(cluster, host, hour)({series}))"


def _hours(
    all_series: "Iterable[SeriesValue]", between: Between, now: datetime
) -> dict[datetime, float]:
    """Sums of hours that are over, and wholly between two times."""
    after, before = between
    hours: dict[datetime, float] = {}
    for series in all_series:
        try:
            hour = datetime.strptime(series.labels.get("hour", ""), "%Y-%m-%dT%H:%M:%SZ").replace(
                tzinfo=UTC
            )
        except ValueError:
            continue  # another program's series
        if hour + HOUR <= (now if before is None else min(before, now)) and (
            after is None or hour >= after
        ):
            hours[hour] = series.value
    return hours
