"""The cluster page's analytics: throughput, utilization beside the available nodes, run times and
launch overheads, busy nodes.

They cover captured jobs, except for the counts of all jobs by Slurm's controller; titles say which.
"""

from typing import Any

from logshipper_grafana.parts import Json, colors, queries, run_queries, states, transforms
from logshipper_grafana.parts.panels import (
    BARS,
    BARS_FROM_POINTS,
    colored,
    field,
    prometheus,
    stat,
    table,
    time_graph,
)
from logshipper_grafana.parts.queries import CLUSTER
from logshipper_grafana.parts.run_queries import last_values

_OF_CAPTURE = "job_id, attempt, step, task"
_AGENTS = f"logshipper_agent_build_info{{{CLUSTER}}}"
_OF_CLUSTER = (
    f"* on(instance, job) group_left(host) {_AGENTS}"  # an agent's counters have only its address
)
_STEP = "1m"  # at least, of a point

_RUNNING = f'logshipper_job_state{{{CLUSTER}, state=~"RUNNING|UNRESPONSIVE"}}'
_INFO = f"logshipper_job_info{{{CLUSTER}}}"
_INFO_RUNNING = f"{_INFO} and on({_OF_CAPTURE}) {_RUNNING}"


_ENDED = run_queries.in_page(run_queries.run_ends())
_START = run_queries.run_starts()
_SLURM_END = f"max by(job_id, attempt)({last_values(run_queries.SLURM_END)})"
_SLURM_START = f"max by(job_id, attempt)({last_values('logshipper_job_slurm_start_time_seconds')})"
_MEASURES = {
    "run time": f"({_ENDED}) - on(job_id, attempt) {_START}",
    "launched to started": f"({_START} and on(job_id, attempt) ({_ENDED})) - on(job_id, attempt) {_SLURM_START}",
    "ended to over": f"{_SLURM_END} - on(job_id, attempt) ({_ENDED})",
}
_STATISTICS = {
    "jobs": "count({})",
    "mean": "avg({})",
    "median": "quantile(0.5, {})",
    "deviation": "stddev({})",
    "least": "min({})",
    "most": "max({})",
}


def captured_jobs() -> list[Json]:
    return [_throughput(), _busy_nodes(), _run_times()]


def all_jobs() -> list[Json]:
    """Return the panels that need Slurm's controller."""
    return [_ended(), _node_hours(), _hours(), _waits()]


def interval_bars(title: str, description: str, target: Json, **more: Any) -> Json:
    """Counts of jobs by interval. more: as for `panel`. Any: those differ in type."""
    more |= {"interval": _STEP, "points": BARS, "custom": BARS_FROM_POINTS, "defaults": {"min": 0}}
    return time_graph(title, description, [target], **more)


def _throughput() -> Json:
    ends = f"{run_queries.in_page(run_queries.run_states())} <= time()"
    return time_graph(
        "Throughput: captured jobs that had ended, by state",
        "Since the begin of the page's time; each run of a restarted job by itself. The state is Slurm's, where the "
        "controller's agent tells it. `logshipper analyze throughput` has the exact steps.",
        [prometheus(f"count by(state)({ends})", legend="{{state}}")],
        width=16,
        interval=_STEP,
        overrides=states.SERIES,
        defaults={"min": 0},
        custom={"lineInterpolation": "stepAfter"},
        no_value="none ended",
    )


def utilization() -> Json:
    node_counts = (
        f"max by(job_id)(logshipper_job_nodes{{{CLUSTER}}} and on({_OF_CAPTURE}) {_RUNNING})"
    )
    hosts = f"count by(job_id)(group by(job_id, host)({_INFO_RUNNING}))"
    node_counts = f"clamp_max({node_counts}, scalar(count(group by(host)({_AGENTS}))))"  # it is the job's own word
    nodes = f"({node_counts} > {hosts}) or {hosts}"
    return time_graph(
        "Utilization: nodes of running captured jobs",
        "A job counts as the nodes that its scheduler gave it, and at least those on which it is captured, but not "
        "more than there are nodes with an agent, which are the whole: the axis on the left goes up to them. Jobs have "
        "the axis on the right. Nodes of jobs that aren't captured don't count.",
        [
            prometheus(f"count(group by(host)({_AGENTS}))", legend="nodes with an agent", ref="A"),
            prometheus(f"sum({nodes}) or vector(0)", legend="nodes of captured jobs", ref="B"),
            prometheus(
                f"count(group by(job_id)({_RUNNING})) or vector(0)", legend="captured jobs", ref="C"
            ),
        ],
        width=8,
        interval=_STEP,
        overrides=[
            colored("nodes with an agent", colors.GREY),
            colored("nodes of captured jobs", colors.BLUE),
            field(
                "captured jobs",
                color={"mode": "fixed", "fixedColor": colors.ORANGE},
                custom__axisPlacement="right",
            ),
        ],
        defaults={"min": 0},
        custom={"lineInterpolation": "stepAfter"},
    )


def _ended() -> Json:
    counter = "logshipper_agent_slurm_jobs_total"
    within = f"{counter}[$__interval] offset -$__interval"  # of the interval beginning at a point
    # a controller without a scrape hides no end, nor does a new one
    before = f"(last_over_time({counter}[1h]) or min_over_time({within}))"
    agents = f"group by(instance, job, host)({queries.seen(_AGENTS)})"
    grown = f"clamp_min(max_over_time({within}) - {before}, 0)"
    ended = f"sum by(state)({grown} * on(instance, job) group_left(host) {agents})"
    return interval_bars(
        "All jobs that Slurm ended per interval, by state",
        "Captured or not, as the hook job-ended on Slurm's controller told its agent: their number and nothing else. "
        "Without it there is no data.",
        prometheus(f"{ended} > 0", legend="{{state}}"),
        width=16,
        overrides=states.SERIES,
        no_value="none ended, or nobody tells",
    )


def _hours() -> Json:
    sums = "logshipper_agent_slurm_hour_node_seconds"
    # a job counts at its end: the last interval takes late reports, then the page's end, then its
    # time
    later = f"last_over_time({sums}[2w:5m] offset -2w)"
    node_seconds = f"{later} or {sums} or last_over_time({sums}[$__range:1h])"
    agents = f"group by(instance, job, host)({last_values('logshipper_agent_build_info')})"
    by_hour = f"sum by(hour)(max by(host, hour)(({node_seconds}) * on(instance, job) group_left(host) {agents})) / 3600"
    return time_graph(
        "Utilization: nodes of all jobs that Slurm ended, by hour",
        "Captured or not: nodes in use on average in each hour, as the hook job-ended on Slurm's controller told its "
        "agent. A job counts when it is over, so the last hours lack what still runs. Without the hook no data.",
        [prometheus(by_hour, table=True)],
        width=12,
        custom=BARS_FROM_POINTS,
        transformations=[
            transforms.organize(
                {"Value": "nodes on average"}, order=["hour", "Value"], hidden=["Time"]
            ),
            transforms.as_time("hour"),
            transforms.sort_by("hour"),
        ],
        overrides=[colored("nodes on average", colors.BLUE)],
        defaults={"min": 0},
        no_value="nobody tells",
    )


def _waits() -> Json:
    buckets = "logshipper_agent_slurm_wait_seconds_bucket"
    ended = f"sum by(le)(increase({buckets}[$__interval]) {_OF_CLUSTER})"
    return time_graph(
        "Waiting time in the queue: all jobs that Slurm ended",
        "Captured or not, from being submitted to their start: what half of the jobs, and 9 of 10, stayed below, of "
        "those that ended in the interval that a point stands for; between the bounds of a histogram. Slurm's hook "
        "EpilogSlurmctld doesn't tell when jobs were submitted.",
        [
            prometheus(f"histogram_quantile({share}, {ended})", legend=legend, ref=ref)
            for share, legend, ref in ((0.5, "half of them", "A"), (0.9, "9 of 10", "B"))
        ],
        width=12,
        unit="s",
        interval="10m",
        overrides=[colored("half of them", colors.BLUE), colored("9 of 10", colors.ORANGE)],
        defaults={"min": 0},
        no_value="none ended, or nobody tells",
    )


def _run_times() -> Json:
    targets = [
        prometheus(_by_measure(function), table=True, ref=ref)
        for ref, function in zip("ABCDEF", _STATISTICS.values(), strict=True)
    ]
    renamed = {f"Value #{ref}": name for ref, name in zip("ABCDEF", _STATISTICS, strict=True)}
    return table(
        "Run times and launch overheads of captured jobs",
        "Of runs that ended within the page's time: from the first capture's start to the last one's end; and where "
        "Slurm's controller tells when a job was launched and over (to the second), what that took besides.",
        targets,
        height=6,
        transformations=[
            transforms.merge_rows(),
            transforms.organize(renamed, order=["what", *renamed], hidden=["Time"]),
        ],
        overrides=[
            field("what", displayName="seconds", custom__minWidth=150),
            field("jobs", unit="none", decimals=0, custom__width=50),
            *(
                field(name, unit="s", decimals=2, custom__minWidth=75)
                for name in _STATISTICS
                if name != "jobs"
            ),
        ],
    )


def _by_measure(function: str) -> str:
    """Return the statistic of each measure, with its name as `what`."""
    return " or ".join(
        f'label_replace({function.format(series)}, "what", "{name}", "", "")'
        for name, series in _MEASURES.items()
    )


def _busy_nodes() -> Json:
    captures = f"count by(host)({_INFO_RUNNING}) > bool 0"
    busy = f"({captures}) or on(host) 0 * group by(host)({_AGENTS})"
    return table(
        "Busy share of each node",
        "How much of the page's time a captured job ran on it, while Prometheus scraped its agent.",
        [prometheus(f"avg_over_time(({busy})[$__range:$__interval])", table=True)],
        width=8,
        height=8,
        transformations=[
            transforms.organize({"Value": "busy"}, order=["host", "Value"], hidden=["Time"]),
            transforms.sort_by("busy", newest_first=True),
        ],
        overrides=[
            field("host", displayName="node", custom__minWidth=80),
            field(
                "busy",
                unit="percentunit",
                decimals=1,
                min=0,
                max=1,
                color={"mode": "fixed", "fixedColor": colors.SKY},
            ),
        ],
    )


def _node_hours() -> Json:
    seconds = "increase(logshipper_agent_slurm_node_seconds_total[$__range])"
    seconds = f"{seconds} {_OF_CLUSTER}"
    return stat(
        "Node-hours of all jobs that Slurm ended",
        "Captured or not; within the page's time, of the whole run of each job, nodes times hours.",
        prometheus(f"sum({seconds}) / 3600", instant=True),
        width=8,
        height=8,
        no_value="nobody tells",
        defaults={"decimals": 1},
    )
