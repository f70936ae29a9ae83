"""The page of a cluster: captured jobs, and the health of capture on its nodes."""

from logshipper_grafana.pages.cluster_analytics import (
    all_jobs,
    captured_jobs,
    interval_bars,
    utilization,
)
from logshipper_grafana.parts import (
    Json,
    colors,
    links,
    mappings,
    queries,
    records,
    run_queries,
    states,
    transforms,
    variables,
)
from logshipper_grafana.parts.panels import (
    colored,
    field,
    label_only,
    loki,
    place,
    prometheus,
    row,
    stat,
    table,
    time_column,
    time_graph,
)
from logshipper_grafana.parts.queries import CLUSTER, JOB_ENDED

_AGENTS = f"logshipper_agent_build_info{{{CLUSTER}, host=~`${{node:pipe}}`}}"
_OF_NODES = f"* on(instance, job) group_left(host) {_AGENTS}"
_RUNNING = f'logshipper_job_state{{{CLUSTER}, state="RUNNING"}}'
_JOB_STARTS = f"min by(job_id)({run_queries.run_starts()})"
_LAG_SECS, _SPOOL_BYTES = 60, 1 << 30  # beyond these, a node's capture needs attention
_MOST_NODES = 10  # in a graph
_OF_THIS_CLUSTER = 'cluster=~"|${cluster:regex}"'  # some alerts are of none


def dashboard() -> Json:
    agents = f"logshipper_agent_build_info{{{CLUSTER}}}"
    nodes = variables.labels_of("node", "Node", "Nodes with an agent.", agents, "host")
    lag = links.explore("prometheus", _by_node(_metric("lag_seconds")))
    return {
        "uid": links.CLUSTER,
        "title": "logshipper: cluster",
        "description": "Captured jobs of a cluster, what they print, and how capture does on each node.",
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [nodes, *variables.places()]},
        "links": [
            links.page_link("Jobs", "all captured jobs", links.JOBS),
            links.page_link("Compare", "several jobs over one key", links.COMPARE),
            links.explore_link("Lag in Explore", "the query", lag),
        ],
        "panels": place(
            [
                _wrong(),
                *_now(),
                row("Captured jobs"),
                *_jobs(),
                _events(),
                row("What they print"),
                *_lines(),
                row("Capture on each node"),
                *_health(),
                row("Captured jobs: throughput, run times, busy nodes", collapsed=captured_jobs()),
                row(
                    "All jobs that Slurm ended: needs the hook job-ended on Slurm's controller",
                    collapsed=all_jobs(),
                ),
            ]
        ),
    }


def _metric(name: str) -> str:
    return f"logshipper_agent_{name}"


def _by_node(series: str) -> str:
    """Return a series by node: an agent's other metrics have only its scrape address."""
    return f"sum by(host)(({series}) {_OF_NODES})"


def _increase(name: str) -> str:
    """Return a counter's increase by node, within the page's time."""
    return _by_node(f"sum by(instance, job)(increase({_metric(name)}[$__range]))")


def _lost() -> str:
    """Return exact lost lines by node, of the jobs that its agent shows."""
    return _by_node(f'sum by(instance, job)(logshipper_job_lines{{{CLUSTER}, outcome="lost"}})')


_ALL_IS_WELL = "nothing lost, nothing late, no alert"
_MOST_WORDS = 8  # sentences per line


def _wrong() -> Json:
    """Return the line of faults that need attention."""
    alerts = f'ALERTS{{alertname=~"Logshipper.*", alertstate="firing", {_OF_THIS_CLUSTER}}}'
    for label in ("instance", "host"):  # the second only if present
        alerts = f'label_replace({alerts}, "place", "$1", "{label}", "(.+)")'
    alerts = f'label_join({alerts}, "words", " on ", "alertname", "place")'
    alerts = f'label_replace({alerts}, "words", "$1", "words", "(.+) on ")'  # of no node
    lost = f"({_lost()} > 0) or on(host) round({_increase('lost_lines_total')}) > 0"
    late = f"ceil(({_by_node(_metric('lag_seconds'))} > {_LAG_SECS}) / 60)"
    by_rank = [
        alerts,
        _of_each_node(f"({lost})", "lines lost on $1"),
        _of_each_node(f"round({_increase('refused_entries_total')}) > 0", "entries refused on $1"),
        _of_each_node(f"round({_increase('left_out_total')}) > 0", "left out by limits on $1"),
        _of_each_node(late, "late on $1 min"),
    ]
    every = " or ".join(f"0 * {words} - {rank}" for rank, words in enumerate(by_rank))
    every = f"max by(words)({every})"
    well = f'label_replace(0 * group({_AGENTS}), "words", "{_ALL_IS_WELL}", "", "")'
    more = f'count_values("count", count({every}) - {_MOST_WORDS} > 0)'
    more = f'label_replace({more}, "words", "and $1 more, below", "count", "(.+)")'
    well_is_green = mappings.mapped({_ALL_IS_WELL: (_ALL_IS_WELL, colors.GREEN)})
    return stat(
        "What is wrong: alerts, losses, lag",
        "Firing alerts of Prometheus whose names begin with Logshipper; of each chosen node lines that were lost, "
        "entries that Loki refused and what limits left out, within the page's time, and lines that wait for Loki for "
        "over a minute at its end. Without alerts' rules in Prometheus there is no alert.",
        prometheus(f"topk({_MOST_WORDS}, {every}) or on() {well} or -9 * {more}", table=True),
        width=24,
        height=2,
        unit="string",
        options={**label_only("words"), "textMode": "value"},
        defaults={"mappings": [*well_is_green, mappings.matching(".+", colors.RED, index=1)]},
        transformations=[transforms.sort_by("Value", newest_first=True)],
        no_value="Prometheus knows no agent of this cluster",
    )


def _of_each_node(values: str, words: str) -> str:
    """Series with `words`, in which $1 is the node and its value."""
    counts = f'count_values by(host)("count", {values})'
    joined = f'label_join({counts}, "words", ": ", "host", "count")'
    return f'label_replace({joined}, "words", "{words}", "words", "(.+)")'


def _now() -> list[Json]:
    running = f"logshipper_job_info{{{CLUSTER}}} and on(job_id, attempt, step, task) {_RUNNING}"
    counts = {
        "Captured jobs running": (
            "Jobs of which at least one capture runs. Jobs that aren't captured are not known here.",
            f"count(group by(job_id)({_RUNNING}))",
        ),
        "Captured jobs started": (
            "In the page's time.",
            f"count({run_queries.in_page(_JOB_STARTS)})",
        ),
        "Nodes with an agent": (
            "Nodes whose agent Prometheus has scraped in the last minutes.",
            f"count(group by(host)({_AGENTS}))",
        ),
        "Nodes capturing": (
            "Nodes on which a capture runs. Others may be in use by jobs that aren't captured.",
            f"count(group by(host)({running}))",
        ),
    }
    return [
        stat(title, description, prometheus(expr, instant=True), width=6, height=3, no_value="0")
        for title, (description, expr) in counts.items()
    ]


def _jobs() -> list[Json]:
    started = run_queries.in_interval(run_queries.in_page(_JOB_STARTS))
    ends = run_queries.of_last_run(run_queries.run_states())
    ended = run_queries.in_interval(run_queries.in_page(ends))
    return [
        interval_bars(
            "Captured jobs started per interval",
            "Jobs whose first capture began in the interval that a bar stands for.",
            prometheus(f"count({started})", legend="started"),
            overrides=[colored("started", colors.ORANGE)],
            width=8,
            no_value="none started",
        ),
        interval_bars(
            "Captured jobs ended per interval, by state",
            "Jobs whose last capture ended in the interval that a bar stands for: of a job that was started again "
            "its newest run. The state is Slurm's, where the controller's agent tells it.",
            prometheus(f"count by(state)({ended})", legend="{{state}}"),
            width=8,
            overrides=states.SERIES,
            no_value="none ended",
        ),
        utilization(),
    ]


def _lines() -> list[Json]:
    lines = f"sum by(stream)(rate({_metric('lines_total')}[$__rate_interval]) {_OF_NODES})"
    volume = f"sum by(what)(rate({_metric('bytes_total')}[$__rate_interval]) {_OF_NODES})"
    users = f'sum by(user)(rate({_metric("bytes_total")}{{what="printed"}}[5m]) {_OF_NODES})'
    info = f"max by(job_id, user, name)(logshipper_job_info{{{CLUSTER}}})"
    talk = f'sum by(job_id)(rate(logshipper_job_bytes{{{CLUSTER}, what="printed"}}[5m]))'
    return [
        time_graph(
            "Lines per second",
            "Printed by captured jobs on the chosen nodes, as terminals show them; by stream.",
            [prometheus(lines, legend="{{stream}}")],
            width=5,
            overrides=[colored("stdout", colors.BLUE), colored("stderr", colors.ORANGE)],
            defaults={"min": 0},
        ),
        time_graph(
            "Bytes per second",
            "Printed by captured jobs on the chosen nodes, and logged of that: a progress bar prints much of which "
            "little is logged.",
            [prometheus(volume, legend="{{what}}")],
            width=5,
            unit="Bps",
            overrides=[colored("printed", colors.ORANGE), colored("logged", colors.BLUE)],
            defaults={"min": 0},
        ),
        _top_printers(
            "Users whose captured jobs print most",
            "Bytes per second in the last 5 minutes of the page's time, on the chosen nodes. Without a name: of users "
            "past the 500th of a node, or where jobs' values aren't shown.",
            f"topk(10, {users} > 0)",
            ["user"],
            width=6,
        ),
        _top_printers(
            "Captured jobs that print most",
            "Bytes per second in the last 5 minutes of the page's time. A click on a job opens it.",
            f"topk(10, ({talk} > 0) * on(job_id) group_left(user, name) {info})",
            ["job_id", "name", "user"],
            field("job_id", displayName="job", custom__minWidth=100, links=links.of_job()),
            field("name", custom__minWidth=80),
        ),
    ]


def _top_printers(
    title: str, description: str, promql: str, columns: list[str], *overrides: Json, width: int = 8
) -> Json:
    """Return a table of the largest printers, in descending order."""
    return table(
        title,
        description,
        [prometheus(promql, table=True)],
        width=width,
        height=8,
        transformations=[
            transforms.organize({"Value": "printed"}, order=[*columns, "Value"], hidden=["Time"]),
            transforms.sort_by("printed", newest_first=True),
        ],
        overrides=[
            *overrides,
            field("user", custom__minWidth=55, links=links.of_user()),
            field("printed", unit="Bps", custom__width=80),
        ],
        no_value="nothing is printed",
    )


def _health() -> list[Json]:
    captures = f"sum by(instance, job)({_metric('captures')})"
    version = f"max by(host, version)({_AGENTS})"
    columns = {
        "A": ("", version),
        "B": ("lag", _by_node(_metric("lag_seconds"))),
        "C": ("spool", _by_node(_metric("spool_bytes"))),
        "D": ("captures", _by_node(captures)),
        "E": ("refused entries", _increase("refused_entries_total")),
        "F": ("pushes tried again", _increase("retries_total")),
        # 0 without visible jobs
        "G": ("lines lost", f"{_lost()} or on(host) 0 * {_by_node(captures)}"),
        "H": ("left out by limits", _increase("left_out_total")),
        "I": ("clock ahead of Loki", _by_node(_metric("clock_skew_seconds"))),
    }
    renamed = {f"Value #{ref}": name for ref, (name, _) in columns.items() if name}
    clock_limits = colors.thresholds((None, colors.RED), (-30, colors.GREEN), (30, colors.RED))
    limits = {
        "lag": ("s", colors.limit(_LAG_SECS)),
        "spool": ("bytes", colors.limit(_SPOOL_BYTES)),
        "refused entries": ("none", colors.limit(1)),
        "lines lost": ("none", colors.limit(1)),
        "left out by limits": ("none", colors.limit(1)),
        "clock ahead of Loki": ("s", clock_limits),
    }
    entries = f"sum by(kind)(rate({_metric('entries_total')}[$__rate_interval]) {_OF_NODES})"
    return [
        table(
            "Capture health of each node",
            "Lag, spool, captures and lost lines: at the end of the page's time; refused entries (they are in "
            "the node's quarantine), retries and what limits left out: within the page's time.",
            [prometheus(expr, table=True, ref=ref) for ref, (_, expr) in columns.items()],
            height=9,
            transformations=[
                transforms.merge_rows(),
                transforms.organize(
                    renamed, order=["host", *renamed, "version"], hidden=["Time", "Value #A"]
                ),
                transforms.rows_with("version"),
                transforms.sort_by("lag", newest_first=True),
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
                        color={"mode": "thresholds"},
                        custom__displayMode="color-text",
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
            "Lag", "Age of the oldest line that Loki has not acknowledged.", "lag_seconds", "s"
        ),
        _of_nodes("Spool", "Bytes that Loki has not acknowledged.", "spool_bytes", "bytes"),
        time_graph(
            "Entries per second that Loki acknowledged",
            "Lines, records, events, heartbeats, bars; by kind.",
            [prometheus(entries, legend="{{kind}}")],
            width=12,
            overrides=[
                colored("log", colors.BLUE),
                colored("metadata", colors.ORANGE),
                colored("event", colors.GREEN),
                colored("status", colors.SKY),
                colored("command", colors.PURPLE),
            ],
        ),
        _alerts(),
    ]


def _min_width(heading: str) -> int:
    """Return a column's least width by its heading, so that a page of 1,300 pixels has all columns."""
    return 25 + 7 * max(len(heading), 8)


def _of_nodes(what: str, description: str, name: str, unit: str) -> Json:
    """Return a graph of the nodes with the highest values; nobody can tell more lines apart."""
    agents = f"group by(instance, job, host)({queries.seen(_AGENTS)})"
    most = f"max_over_time({_metric(name)}[$__range] @ end())"
    most = (
        f"topk({_MOST_NODES}, max by(host)({most} * on(instance, job) group_left(host) {agents}))"
    )
    return time_graph(
        f"{what} of each node: of more than {_MOST_NODES} those with the most",
        f"{description} Of the {_MOST_NODES} nodes that had most of it within the page's time; the table above has "
        "all nodes.",
        [prometheus(f"{_by_node(_metric(name))} and on(host) {most}", legend="{{host}}")],
        width=12,
        unit=unit,
        defaults={"min": 0},
        by_node=True,
    )


def _events() -> Json:
    """Return events of all jobs; the text filter drops heartbeats of earlier agents before any
    parsing."""
    names = f"heartbeat_lost|heartbeat_found|lines_lost|lines_left_out|segment_damaged|{JOB_ENDED}"
    events = f'{{{CLUSTER}, kind="event"}} |~ `^[{{]"event":"({names})"` | json event="event", message="message"'
    labels = records.label_fields("event", "job_id", "user", "host")
    line = f'{{{labels}{records.TIME}"message":"{records.text(".message")}"}}'
    return table(
        "Late heartbeats, losses and ends by the scheduler, newest first",
        "Of all captured jobs: what was silent for 20 seconds and what came back, lines that are missing, and how the "
        "scheduler ended jobs. The job's page has all its events.",
        [loki(f"{events} | line_format `{line}`", lines=200)],
        height=6,
        no_value="none in this time",
        transformations=[
            *transforms.decoded(newest_first=True),
            transforms.as_time("time"),
            transforms.organize(order=["time", "job_id", "event", "message", "user", "host"]),
        ],
        overrides=[
            time_column("time"),
            field("event", custom__width=150),
            field("message", custom__minWidth=300),
            field("job_id", custom__minWidth=100, links=links.of_job("Job ${__value.text}")),
        ],
    )


def _alerts() -> Json:
    return table(
        "Alerts of logshipper",
        "What Prometheus' rules whose names begin with Logshipper say at the end of the page's time: "
        "without such rules, or without an alert, there is no data.",
        [
            prometheus(
                "max by(alertname, alertstate, severity, host, instance)"
                f'(ALERTS{{alertname=~"Logshipper.*", {_OF_THIS_CLUSTER}}})',
                instant=True,
                table=True,
            )
        ],
        width=12,
        height=8,
        transformations=[
            transforms.organize(
                order=["alertstate", "alertname", "severity"], hidden=["Time", "Value"]
            )
        ],
    )
