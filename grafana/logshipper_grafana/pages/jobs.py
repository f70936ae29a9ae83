"""The page that lists captured jobs."""

from collections.abc import Sequence

from logshipper_grafana.parts import (
    Json,
    colors,
    links,
    loki_jobs,
    mappings,
    queries,
    run_queries,
    states,
    transforms,
    variables,
)
from logshipper_grafana.parts.loki_metrics import known_jobs, source
from logshipper_grafana.parts.panels import (
    colored_text,
    field,
    loki,
    lost_lines,
    place,
    prometheus,
    stat,
    table,
    time_column,
    time_graph,
)
from logshipper_grafana.parts.queries import CLUSTER
from logshipper_grafana.parts.records import as_text
from logshipper_grafana.parts.run_queries import last_values, newest_values

# Variables don't depend on the partition: Grafana up to 10 would ask for each of them once more.
_OF_USER = f"{CLUSTER}, user=~`${{user:pipe}}`, name=~`(?i).*${{name:regex}}.*`"
_OF_INFO = f"{_OF_USER}, partition=~`${{partition:pipe}}`"
_STATE = "${state:pipe}"
_KEYS = ("key1", "key2", "key3")
# Seconds around a job, with a share of its duration, up to MAX_PAD_SECS; after its end come the
# messages of observers.
_PAD_BEFORE_SECS, _PAD_AFTER_SECS, _PAD_SHARE, _MAX_PAD_SECS = 2, 10, 0.05, 120
_INFO = "logshipper_job_info"
_LOST = 'outcome="lost"'
_FEW_HOSTS = 100  # naming more costs Loki more than reading all
_MAX_BARS = 1000  # entries: those of 100 running bars in 100 s
_MAX_PRINTED = 5000  # entries: Loki's default limit
# that are columns
_LABELS = ("name", "user", "account", "partition", "state", "node", "bar", "printed")
# of bars as tqdm, Keras and rich draw them
_CELLS = r'"[|][█▏▎▍▌▋▊▉ #.]*[|]|\\x5b[=>.# -]{3,}\\x5d|[━╸╺─█#]{3,}"'
_LIST_HEIGHT = 20  # with the numbers above it, a screen of 1,080 lines


def dashboard() -> Json:
    return {
        "uid": links.JOBS,
        "title": "logshipper: captured jobs",
        "description": "Captured jobs of a cluster, by user, state, partition, name and time, each with its page.",
        "time": {"from": "now-24h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": _variables()},
        "links": [
            links.page_link("Compare", "several jobs over one key", links.COMPARE),
            links.page_link("Cluster", "how capture does", links.CLUSTER),
            links.explore_link(
                "Series in Explore", "the list's query", links.explore("prometheus", _info())
            ),
        ],
        "panels": place([*_counts(), _list()]),
    }


def _variables() -> list[Json]:
    names = {state: state for state in queries.STATES}
    keys = [
        variables.query(
            name,
            f"Value {number}",
            "A key whose last value is a column of the list: first losses, then scores, of at least half of the jobs.",
            _keys(_KEYS[: number - 1]),
            variables.label_pattern("key", loki_jobs.CALLED),
            logql=loki_jobs.keys_by_kind(_KEYS[: number - 1]),
            sort=variables.ALPHABETICAL,
            refresh=variables.ON_LOAD,
        )
        for number, name in enumerate(_KEYS, start=1)
    ]
    return [
        # also with each change of the page's time, as Prometheus may not reach back so far
        source(known_jobs(CLUSTER), refresh=variables.ON_TIME_RANGE),
        _labels("user", "User", "Whose jobs are listed."),
        variables.choice(
            "state",
            "State",
            "Only jobs whose newest attempt is in these states.",
            names,
            multi=True,
        ),
        _labels("partition", "Partition", "The scheduler's partition."),
        variables.text(
            "name", "Name", "Only jobs whose name contains this, in upper or lower case."
        ),
        variables.text(
            "printed",
            "Printed text",
            "Only jobs with a line that contains this, in upper or lower case, among the newest "
            f"{_MAX_PRINTED:,} such lines of the page's time. Empty: all jobs. The list is empty if no job printed it.",
        ),
        *keys,
        _running_hosts(),
        *variables.places(),
        variables.values(),
    ]


def _keys(columns: Sequence[str]) -> str:
    """Return the keys of the chosen users' jobs, in an order by `loki_jobs.CALLED`. columns: variables with
    keys that are left out."""
    of_listed = f"and on(job_id) last_over_time({_INFO}{{{_OF_USER}}}[$__range])"
    others = [f"key!=`${{{name}:raw}}`" for name in columns]

    def jobs_with(pattern: str) -> str:
        found = last_values("logshipper_metadata_value", *others, f'key=~"{pattern}"')
        return f"count by(key)(group by(job_id, key)({found}) {of_listed})"

    patterns = [*loki_jobs.TELLING_KEYS, ".+"]
    half = f"scalar(max({jobs_with('.+')})) / 2"
    parts = [f"{jobs_with(pattern)} >= {half}" for pattern in patterns] + [jobs_with(".+")]
    return " or on(key) ".join(
        f'label_replace({part}, "{loki_jobs.CALLED}", "{loki_jobs.LATER * place}$1", "key", "(.*)")'
        for place, part in enumerate(parts)
    )


def _running_hosts() -> Json:
    """Return the nodes with the listed bars, as a regular expression: the chosen users' few, or all."""
    running = f'logshipper_job_state{{{CLUSTER}, state="RUNNING"}}'
    known = f"group by(host)({last_values(_INFO, _OF_USER)} and on(job_id) {running})"
    return variables.hidden(
        "running",
        "The nodes whose bars are asked of Loki: none, if no listed job runs.",
        _few(known),
        variables.label_pattern("host"),
        multi=True,
        logql=_few(loki_jobs.running_hosts()),
    )


def _few(hosts: str) -> str:
    every = 'label_replace(vector(0), "host", ".+", "", "")'
    listed = run_queries.in_states('label_replace(vector(1), "state", "RUNNING", "", "")', _STATE)
    few = f"{hosts} and on() (count({hosts}) <= {_FEW_HOSTS}) or {every} and on() (count({hosts}) > {_FEW_HOSTS})"
    return f"({few}) and on() ({listed})"


def _labels(name: str, label: str, description: str) -> Json:
    """Return a label's values; `All` includes jobs without the label."""
    return variables.query(
        name,
        label,
        description,
        f"group by({name})({last_values(_INFO)})",
        variables.label_pattern(name),
        sort=variables.ALPHABETICAL,
        multi=True,
        all_value=".*",
        logql=loki_jobs.labels(name),
    )


def _asked(promql: str, logql: str, *, ref: str = "A", table: bool = False) -> Json:
    """Return a query for the end of the page's time, to Loki if Prometheus knows none of the jobs."""
    return prometheus(
        variables.either(promql, logql), instant=True, table=table, ref=ref, source=variables.SOURCE
    )


def _info() -> str:
    infos = f"last_over_time({_INFO}{{{_OF_INFO}}}[$__range])"
    return f"topk by(job_id)(1, max by(job_id, name, user, account, partition)({infos}))"


def _states() -> str:
    return run_queries.in_states(run_queries.job_states(), _STATE)


def _of_listed(promql: str, logql: str) -> tuple[str, str]:
    """Return series of listed jobs: a column without values disappears."""
    return (
        f"({promql}) and on(job_id) ({_info()}) and on(job_id) ({_states()})",
        f"({logql}) and on(job_id) ({loki_jobs.infos()}) and on(job_id) ({_states_by_loki()})",
    )


def _states_by_loki() -> str:
    return run_queries.in_states(loki_jobs.states(), _STATE)


def _of_fitting(function: str, promql: str, logql: str) -> Json:
    """Return a query for all jobs that fit the chosen users, partitions and names."""
    return _asked(
        f"{function}({promql} and on(job_id) ({_info()}))",
        f"{function}({logql} and on(job_id) ({loki_jobs.infos()}))",
    )


def _counts() -> list[Json]:
    running = f'group by(job_id)(logshipper_job_state{{{CLUSTER}, state="RUNNING"}})'
    failed = run_queries.in_states(run_queries.job_states(), _BAD)
    infos = f"group by(job_id)({_INFO}{{{_OF_INFO}}})"
    counts = (
        (
            "Captured jobs listed",
            "Captured jobs that were seen in the page's time and fit what is chosen above. Jobs that weren't captured "
            "are not known here.",
            _of_fitting("count", f"({_states()})", f"({_states_by_loki()})"),
            None,
        ),
        (
            "Captured jobs running",
            "At the end of the page's time, of the chosen users, partitions and names.",
            _of_fitting("count", running, f"({loki_jobs.running()})"),
            None,
        ),
        (
            "Captured jobs failed",
            "Neither completed nor cancelled, preempted or requeued, of the chosen users, partitions and names.",
            _of_fitting("count", failed, run_queries.in_states(loki_jobs.states(), _BAD)),
            colors.limit(1),
        ),
    )
    return [
        *(
            stat(title, description, target, width=4, steps=steps, no_value="0")
            for title, description, target, steps in counts
        ),
        lost_lines(
            "Lines of these jobs that were printed and could not be logged: red when it isn't 0.",
            _of_fitting("sum", last_values("logshipper_job_lines", _LOST), f"({loki_jobs.lost()})"),
        ),
        time_graph(
            "Captured jobs running over time",
            "Of the chosen users, partitions and names.",
            [prometheus(f"count({running} and on(job_id) {infos}) or vector(0)", legend="running")],
            width=8,
            height=4,
            defaults={"color": colors.fixed(colors.BLUE), "min": 0, "decimals": 0},
        ),
    ]


_BAD = "TIMEOUT|DEADLINE|OUT_OF_MEMORY|KILLED|FAILED|NODE_FAIL|BOOT_FAIL|UNRESPONSIVE"


def _pad(start: str, end: str, least_secs: int) -> str:
    """Return the seconds of margin on a job's page."""
    return f"clamp_max({least_secs} + {_PAD_SHARE} * ({end} - {start}), {_MAX_PAD_SECS})"


def _list() -> Json:
    start = f"min by(job_id)({newest_values('logshipper_job_start_time_seconds')})"
    end = f"max by(job_id)({newest_values('logshipper_job_end_time_seconds')})"
    sign = f"max by(job_id)({newest_values('logshipper_job_heartbeat_time_seconds')})"
    over = run_queries.in_states(run_queries.job_states(), _OVER)
    attempts = last_values("logshipper_job_start_time_seconds")
    restarts = f"count by(job_id)(group by(job_id, attempt)({attempts})) - 1 > 0"
    lost = f"sum by(job_id)({last_values('logshipper_job_lines', _LOST)})"
    until = f"{end} and on(job_id) ({over}) or {sign}"
    before = f"{_pad(start, end, _PAD_BEFORE_SECS)} or on(job_id) 0 * {start} + {_PAD_BEFORE_SECS}"
    after = _pad(start, end, _PAD_AFTER_SECS)
    begin_by_loki, end_by_loki = loki_jobs.page_times()
    columns = {
        "A": ("", _info(), loki_jobs.infos()),
        "B": ("", _states(), _states_by_loki()),
        "C": ("started", f"{start} * 1000", f"{loki_jobs.starts()} / 1e6"),
        "D": ("duration", f"({until}) - {start}", loki_jobs.durations()),
        "E": ("", run_queries.node_words(), loki_jobs.node_words()),
        "F": ("lost", *_of_listed(f"{lost} > 0", f"{loki_jobs.lost()} > 0")),
        "G": ("from", f"({start} - ({before})) * 1000", begin_by_loki),
        "H": ("to", f"({end} + {after}) * 1000 and on(job_id) ({over})", end_by_loki),
    }
    for ref, key in zip("IJK", _KEYS, strict=True):
        newest = newest_values("logshipper_metadata_value", f"key=`${{{key}:raw}}`")
        values_by_loki = loki_jobs.last_values(key)
        columns[ref] = (key, *_of_listed(f"max by(job_id)({newest})", values_by_loki))
    columns["L"] = ("ended by", run_queries.ends_by_number(), loki_jobs.ends_by_number())
    columns["M"] = ("restarts", *_of_listed(restarts, loki_jobs.restarts()))
    columns["O"] = ("", _unless_printed(_info()), _unless_printed(loki_jobs.infos()))
    renamed = {f"Value #{ref}": name for ref, (name, _, _) in columns.items() if name}
    order = ["state", "job_id", "name", "user", "Value #C", "Value #D", "bar", "Value #L", "Value #M", "node",
             "printed", "Value #F", "Value #I", "Value #J", "Value #K", "partition", "account"]  # fmt: skip
    when = 'from=${__data.fields["from"]}&to=${__data.fields["to"]}'
    to_job = links.page(links.JOB, job="${__data.fields.job_id:percentencode}", when=when)
    return table(
        "Captured jobs: newest first",
        "One row for each captured job that was seen in the page's time: its newest attempt. State: what Slurm says "
        "of its end, else RUNNING while one of its captures runs, then the worst end. Ended by: the worst of all "
        "captures. Node: where it began, and how many others it has. Progress: the bar of a running job, without its "
        "cells; of several bars the first. Printed text: the newest line with it. Values: the last ones, of several "
        "tasks the largest. A click on a job opens its page at the job's own time.",
        [
            *(
                _asked(promql, logql, table=True, ref=ref)
                for ref, (_, promql, logql) in columns.items()
            ),
            _bars(),
            _printed(),
        ],
        height=_LIST_HEIGHT,
        transformations=[
            *transforms.decoded(),
            # an answer without jobs is dropped, as it shares no field with others; bars of other
            # jobs get rows without a user
            *transforms.newest_of_each(["job_id"], [*_LABELS, *renamed, "Value #O"], merge=True),
            transforms.rows_with_any("Value #O", "printed"),
            transforms.organize(renamed, order=order, hidden=["Value #O"]),
            transforms.rows_with("user", "state"),
            transforms.sort_by("started", newest_first=True),
            transforms.as_time("started"),
        ],
        overrides=[
            colored_text("state", states.BY_NAME, 130),
            field(
                "job_id",
                displayName="job",
                custom__width=105,
                links=[links.link("Open this job at its own time", to_job)],
            ),
            field(
                "name",
                custom__minWidth=150,
                links=[links.link("Open this job at its own time", to_job)],
            ),
            field(
                "user",
                custom__width=80,
                links=links.of_user(
                    "Only jobs of ${__value.text}",
                    kept=("state", "partition", "name", "printed", *_KEYS),
                ),
            ),
            time_column("started", 170),
            field("duration", unit="s", custom__width=85),
            *(field(name, custom__width=85) for name in ("partition", "account")),
            field(
                "ended by",
                unit="prefix:exit code ",
                decimals=0,
                mappings=mappings.texts(run_queries.SIGNAL_WORDS),
                custom__width=100,
            ),
            field("restarts", unit="none", custom__width=70),
            field("node", custom__width=90),
            field("bar", displayName="progress", custom__minWidth=230),
            field("printed", displayName="printed text", custom__minWidth=190),
            field(
                "lost",
                unit="none",
                displayName="lost",
                color={"mode": "thresholds"},
                thresholds=colors.limit(1),
                custom__displayMode="color-text",
                custom__width=60,
            ),
            *(
                field(key, displayName=f"${{{key}}}", unit="none", custom__width=80)
                for key in _KEYS
            ),
            field("from", unit="none", decimals=0, custom__hidden=True),
            field(
                "to", unit="none", decimals=0, mappings=mappings.null_as("now"), custom__hidden=True
            ),
        ],
        options={"footer": {"show": False, "enablePagination": True, "fields": "", "reducer": []}},
    )


def _bars() -> Json:
    """Return the running bars by job."""
    first = r'(regexReplaceAll "(?s)\n.*" __line__ "")'  # of several: the outer one of nested bars
    without_cells = f'(regexReplaceAllLiteral {_CELLS} {first} " ")'
    bar = f"{{{{{as_text(without_cells)}}}}}"
    line = f'{{"job_id":"{{{{.job_id}}}}","bar":"{bar}"}}'
    hosts = "host=~`${running:pipe}`"
    lines = f'{{{CLUSTER}, {hosts}, kind="status"}} | user=~`${{user:pipe}}` | line_format `{line}`'
    return loki(lines, lines=_MAX_BARS, ref="N")


def _printed() -> Json:
    """Return the newest matching line of each job. No stream has a label `printed`, so a blank text
    selects none."""
    streams = f"{{{CLUSTER}, kind=~`log|metadata|command`, printed!=`${{printed:percentencode}}`}}"
    text = as_text('(regexReplaceAll "\\x1b[[][0-9;]*m" __line__ "")')
    line = f'{{"job_id":"{{{{.job_id}}}}","printed":"{{{{{text}}}}}"}}'
    matches = (
        f"{streams} |~ `(?i)${{printed:regex}}` | user=~`${{user:pipe}}` | line_format `{line}`"
    )
    return loki(matches, lines=_MAX_PRINTED, ref="P")


def _unless_printed(jobs: str) -> str:
    """Return a series for each job while the text is blank, in words of both servers."""
    text = 'label_replace(vector(1), "text", "${printed:percentencode}", "", "")'
    return f"max by(job_id)({jobs}) and on() (vector(1) and on(text) {text})"


_OVER = "|".join(state for state in queries.STATES if state not in ("RUNNING", "UNRESPONSIVE"))
