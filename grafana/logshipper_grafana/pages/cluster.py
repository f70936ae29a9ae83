"""The page of a cluster: what is captured, and how capture does on its nodes."""

from typing import Any

from logshipper_grafana.pages.cluster_analytics import analytics
from logshipper_grafana.parts import links, queries
from logshipper_grafana.parts.panels import (
    BARS,
    BARS_FROM_POINTS,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    Json,
    colored,
    field,
    link,
    loki,
    lost_lines,
    place,
    prometheus,
    row,
    stat,
    table,
    thresholds,
    time_graph,
)
from logshipper_grafana.parts.queries import JOB_ENDED
from logshipper_grafana.parts.records import as_text as clean_text
from logshipper_grafana.parts.states import COLORS
from logshipper_grafana.parts.transforms import (
    as_time,
    decode,
    merge_rows,
    order_by_time,
    organize,
    rows_with,
    sort_by,
)
from logshipper_grafana.parts.variables import labels_of, places

_CLUSTER = 'cluster="${cluster:raw}"'
_AGENTS = f"logshipper_agent_build_info{{{_CLUSTER}, host=~`${{node:pipe}}`}}"
_RUNNING = f'logshipper_job_state{{{_CLUSTER}, state="RUNNING"}}'
_JOBS_RUNNING = f"count(group by(job_id)({_RUNNING}))"
_NODES_WITH_AGENT = f"count(group by(host)({_AGENTS}))"
_INFO_RUNNING = f"logshipper_job_info{{{_CLUSTER}}} and on(job_id, attempt, step, task) {_RUNNING}"
_NODES_CAPTURING = f"count(group by(host)({_INFO_RUNNING}))"
_JOB_STARTS = f"min by(job_id)({queries.run_starts(_CLUSTER)})"
_STEP = "1m"  # of a bar, at least
_LAG_SECS, _SPOOL_BYTES = 60, 1 << 30  # from here on a node's capture is worth a look


def dashboard() -> Json:
    return {
        "uid": links.CLUSTER,
        "title": "logshipper: cluster",
        "description": "Captured jobs of a cluster, what they print, and how capture does on each node.",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [
                labels_of(
                    "node",
                    "Node",
                    "Nodes with an agent.",
                    f"logshipper_agent_build_info{{{_CLUSTER}}}",
                    "host",
                ),
                *places(),
            ]
        },
        "links": [
            links.page_link("Jobs", "all captured jobs", links.JOBS),
            links.page_link("Compare", "several jobs over one key", links.COMPARE),
            links.explore_link(
                "Lag in Explore",
                "the query",
                links.explore("prometheus", _by_node(_metric("lag_seconds"))),
            ),
        ],
        "panels": place(
            [
                *_now(),
                row("Captured jobs"),
                *_jobs(),
                _events(),
                row("Analytics"),
                *analytics(),
                row("What they print"),
                *_lines(),
                row("Capture on each node"),
                *_health(),
            ]
        ),
    }


def _metric(name: str) -> str:
    return f"logshipper_agent_{name}"


def _by_node(series: str) -> str:
    """Of each node: an agent's other metrics have only the address it was scraped at."""
    return f"sum by(host)(({series}) * on(instance, job) group_left(host) {_AGENTS})"


def _rate(name: str) -> str:
    return _by_node(f"sum by(instance, job)(rate({_metric(name)}[$__rate_interval]))")


def _now() -> list[Json]:
    lost = f'sum(logshipper_job_lines{{{_CLUSTER}, outcome="lost"}})'
    started = f"count({queries.in_page(_JOB_STARTS)})"
    return [
        stat(
            "Captured jobs running",
            "Jobs of which at least one capture runs. Jobs that aren't captured are not known here.",
            prometheus(_JOBS_RUNNING, instant=True),
            width=4,
            no_value="0",
        ),
        stat(
            "Captured jobs started",
            "In the page's time.",
            prometheus(started, instant=True),
            width=4,
            no_value="0",
        ),
        stat(
            "Nodes with an agent",
            "Nodes whose agent Prometheus has scraped in the last minutes.",
            prometheus(_NODES_WITH_AGENT, instant=True),
            width=4,
            no_value="0",
        ),
        stat(
            "Nodes capturing",
            "Nodes on which a capture runs. Others may be in use by jobs that aren't captured.",
            prometheus(_NODES_CAPTURING, instant=True),
            width=4,
            no_value="0",
        ),
        lost_lines(
            "Of the jobs that agents show now (up to 5 minutes after their end): red when it isn't 0.",
            prometheus(lost, instant=True),
        ),
        stat(
            "Largest lag",
            "Age of the oldest line on any node that Loki has not acknowledged.",
            prometheus(f"max({_by_node(_metric('lag_seconds'))})", instant=True),
            width=4,
            unit="s",
            steps=thresholds((None, GREEN), (_LAG_SECS, RED)),
            no_value="–",
        ),
    ]


def _jobs() -> list[Json]:
    started = queries.in_interval(queries.in_page(_JOB_STARTS))
    ends = queries.of_last_run(queries.run_states(_CLUSTER), _CLUSTER)
    ended = queries.in_interval(queries.in_page(ends))
    return [
        _bars(
            "Captured jobs started per interval",
            "Jobs whose first capture began in the interval that a bar stands for.",
            prometheus(f"count({started})", legend="started"),
            overrides=[colored("started", ORANGE)],
            no_value="none started",
        ),
        _bars(
            "Captured jobs ended per interval, by state",
            "Jobs whose last capture ended in the interval that a bar stands for: of a job that was started again "
            "its newest run. The state is Slurm's, where the controller's agent tells it.",
            prometheus(f"count by(state)({ended})", legend="{{state}}"),
            overrides=[colored(state, color) for state, color in COLORS.items()],
            no_value="none ended",
        ),
        time_graph(
            "Nodes with an agent, and with captured jobs",
            "Nodes without captured jobs may be in use by jobs that aren't captured.",
            [
                prometheus(_NODES_WITH_AGENT, legend="with an agent", ref="A"),
                prometheus(
                    f"{_NODES_CAPTURING} or vector(0)", legend="with captured jobs", ref="B"
                ),
            ],
            width=8,
            overrides=[colored("with an agent", SKY), colored("with captured jobs", BLUE)],
            defaults={"min": 0},
        ),
    ]


def _bars(title: str, description: str, target: Json, **more: Any) -> Json:
    """Counts of jobs by interval. more: as for `panel`. Any: those differ in type."""
    return time_graph(
        title,
        description,
        [target],
        width=8,
        interval=_STEP,
        points=BARS,
        custom=BARS_FROM_POINTS,
        defaults={"min": 0},
        **more,
    )


def _lines() -> list[Json]:
    of_nodes = f"* on(instance, job) group_left(host) {_AGENTS}"
    lines = f"sum by(stream)(rate({_metric('lines_total')}[$__rate_interval]) {of_nodes})"
    volume = f"sum by(what)(rate({_metric('bytes_total')}[$__rate_interval]) {of_nodes})"
    users = f'sum by(user)(rate({_metric("bytes_total")}{{what="printed"}}[5m]) {of_nodes})'
    info = f"max by(job_id, user, name)(logshipper_job_info{{{_CLUSTER}}})"
    talk = f'sum by(job_id)(rate(logshipper_job_bytes{{{_CLUSTER}, what="printed"}}[5m]))'
    to_job = links.page(links.JOB, job="${__value.text:percentencode}")
    return [
        time_graph(
            "Lines per second",
            "Printed by captured jobs on the chosen nodes, as terminals show them; by stream.",
            [prometheus(lines, legend="{{stream}}")],
            width=6,
            overrides=[colored("stdout", BLUE), colored("stderr", ORANGE)],
            defaults={"min": 0},
        ),
        time_graph(
            "Bytes per second",
            "Printed by captured jobs on the chosen nodes, and logged of that: a progress bar prints much of which "
            "little is logged.",
            [prometheus(volume, legend="{{what}}")],
            width=6,
            unit="Bps",
            overrides=[colored("printed", ORANGE), colored("logged", BLUE)],
            defaults={"min": 0},
        ),
        _top_printers(
            "Users whose captured jobs print most",
            "Bytes per second in the last 5 minutes of the page's time, on the chosen nodes. Without a name: of users "
            "past the 500th of a node, or where jobs' values aren't shown.",
            f"topk(10, {users} > 0)",
            ["user"],
        ),
        _top_printers(
            "Captured jobs that print most",
            "Bytes per second in the last 5 minutes of the page's time. A click on a job opens it.",
            f"topk(10, ({talk} > 0) * on(job_id) group_left(user, name) {info})",
            ["job_id", "name", "user"],
            field(
                "job_id",
                displayName="job",
                custom__minWidth=60,
                links=[link("Open ${__value.text}", to_job)],
            ),
            field("name", custom__minWidth=80),
        ),
    ]


def _top_printers(
    title: str, description: str, promql: str, columns: list[str], *overrides: Json
) -> Json:
    """What prints most, the most first."""
    of_user = links.page(links.JOBS, user="${__value.text:percentencode}")
    return table(
        title,
        description,
        [prometheus(promql, instant=True, table=True)],
        width=6,
        height=8,
        transformations=[
            organize(renamed={"Value": "printed"}, order=[*columns, "Value"], hidden=["Time"]),
            sort_by("printed", newest_first=True),
        ],
        overrides=[
            *overrides,
            field("user", custom__minWidth=55, links=[link("Jobs of ${__value.text}", of_user)]),
            field("printed", unit="Bps", custom__width=80),
        ],
    )


def _health() -> list[Json]:
    refusals = f"sum by(instance, job)(increase({_metric('refused_entries_total')}[$__range]))"
    retried = f"sum by(instance, job)(increase({_metric('retries_total')}[$__range]))"
    left_out = f"sum by(instance, job)(increase({_metric('left_out_total')}[$__range]))"
    captures = f"sum by(instance, job)({_metric('captures')})"
    lost = f'sum by(instance, job)(logshipper_job_lines{{{_CLUSTER}, outcome="lost"}})'
    version = f"max by(host, version)({_AGENTS})"
    columns = {
        "A": ("", version),
        "B": ("lag", _by_node(_metric("lag_seconds"))),
        "C": ("spool", _by_node(_metric("spool_bytes"))),
        "D": ("captures", _by_node(captures)),
        "E": ("refused entries", _by_node(refusals)),
        "F": ("pushes tried again", _by_node(retried)),
        "G": (
            "lines lost",
            f"{_by_node(lost)} or on(host) 0 * {_by_node(captures)}",
        ),  # 0 where no job is shown
        "H": ("left out by limits", _by_node(left_out)),
        "I": ("clock ahead of Loki", _by_node(_metric("clock_skew_seconds"))),
    }
    renamed = {f"Value #{ref}": name for ref, (name, _) in columns.items() if name}
    worth_a_look = {"color": {"mode": "thresholds"}, "custom__displayMode": "color-text"}
    steps = thresholds((None, GREEN), (1, RED))
    limits = {
        "lag": ("s", thresholds((None, GREEN), (_LAG_SECS, RED))),
        "spool": ("bytes", thresholds((None, GREEN), (_SPOOL_BYTES, RED))),
        "refused entries": ("none", steps),
        "lines lost": ("none", steps),
        "left out by limits": ("none", steps),
        "clock ahead of Loki": ("s", thresholds((None, RED), (-30, GREEN), (30, RED))),
    }
    return [
        table(
            "Capture health of each node",
            "Lag, spool, captures and lost lines: at the end of the page's time; refused entries (they are in "
            "the node's quarantine), retries and what limits left out: within the page's time.",
            [
                prometheus(expr, instant=True, table=True, ref=ref)
                for ref, (_, expr) in columns.items()
            ],
            height=9,
            transformations=[
                merge_rows(),
                organize(
                    renamed=renamed,
                    order=["host", *renamed, "version"],
                    hidden=["Time", "Value #A"],
                ),
                rows_with("version"),
                sort_by("lag", newest_first=True),
            ],
            overrides=[
                field("host", displayName="node", custom__minWidth=80),
                field("version", custom__minWidth=80),
                *(
                    field(
                        name,
                        unit=unit,
                        thresholds=steps,
                        decimals=0,
                        custom__minWidth=_min_width(name),
                        **worth_a_look,
                    )
                    for name, (unit, steps) in limits.items()
                ),
                *(
                    field(name, unit="none", decimals=0, custom__minWidth=_min_width(name))
                    for name in ("captures", "pushes tried again")
                ),
            ],
        ),
        _of_nodes(
            "Lag of each node",
            "Age of the oldest line that Loki has not acknowledged.",
            "lag_seconds",
            "s",
        ),
        _of_nodes(
            "Spool of each node", "Bytes that Loki has not acknowledged.", "spool_bytes", "bytes"
        ),
        time_graph(
            "Entries per second that Loki acknowledged",
            "Lines, records, events, heartbeats, bars; by kind.",
            [
                prometheus(
                    f"sum by(kind)(rate({_metric('entries_total')}[$__rate_interval]) "
                    f"* on(instance, job) group_left(host) {_AGENTS})",
                    legend="{{kind}}",
                )
            ],
            width=8,
            overrides=[
                colored(kind, color)
                for kind, color in zip(
                    ("log", "metadata", "event", "status", "command"),
                    (BLUE, ORANGE, GREEN, SKY, PURPLE),
                    strict=True,
                )
            ],
        ),
        _alerts(),
    ]


def _min_width(heading: str) -> int:
    """Of a column: by its heading, so that a page of 1,300 pixels has all of them."""
    return 25 + 7 * max(len(heading), 8)


def _of_nodes(title: str, description: str, name: str, unit: str) -> Json:
    return time_graph(
        title,
        description,
        [prometheus(_by_node(_metric(name)), legend="{{host}}")],
        width=8,
        unit=unit,
        defaults={"min": 0},
    )


def _events() -> Json:
    """Of all jobs; heartbeats, which are most of the events, are left out by their text before
    anything is parsed."""
    names = "|".join(
        (
            "heartbeat_lost",
            "heartbeat_found",
            "lines_lost",
            "lines_left_out",
            "segment_damaged",
            JOB_ENDED,
        )
    )
    events = f'{{{_CLUSTER}, kind="event"}} |~ `^[{{]"event":"({names})"` | json event="event", message="message"'
    labels = "".join(
        f'"{label}":"{{{{.{label}}}}}",' for label in ("event", "job_id", "user", "host")
    )
    line = f'{{{labels}"time":{{{{unixEpochMillis __timestamp__}}}},"message":"{{{{{clean_text(".message")}}}}}"}}'
    return table(
        "Late heartbeats, losses and ends by the scheduler, newest first",
        "Of all captured jobs: what was silent for 20 seconds and what came back, lines that are missing, and how the "
        "scheduler ended jobs. The job's page has all its events.",
        [loki(f"{events} | line_format `{line}`", lines=200)],
        height=6,
        transformations=[
            *order_by_time(newest_first=True),
            decode(),
            as_time("time"),
            organize(order=["time", "job_id", "event", "message", "user", "host"]),
        ],
        overrides=[
            field("time", unit="dateTimeAsIso", custom__width=160),
            field("event", custom__width=150),
            field("message", custom__minWidth=300),
            field(
                "job_id",
                custom__minWidth=100,
                links=[
                    link(
                        "Job ${__value.text}",
                        links.page(links.JOB, job="${__value.text:percentencode}"),
                    )
                ],
            ),
        ],
    )


def _alerts() -> Json:
    return table(
        "Alerts of logshipper",
        "What Prometheus' rules whose names begin with Logshipper say at the end of the page's time: "
        "without such rules, or without an alert, there is no data.",
        [
            prometheus(
                'max by(alertname, alertstate, severity, host, instance)(ALERTS{alertname=~"Logshipper.*"})',
                instant=True,
                table=True,
            )
        ],
        height=6,
        transformations=[
            organize(order=["alertstate", "alertname", "severity"], hidden=["Time", "Value"])
        ],
    )
