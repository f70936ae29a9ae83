"""The page that lists captured jobs."""

from logshipper_grafana.parts import links, loki_jobs, queries, states
from logshipper_grafana.parts.loki_metrics import SOURCE, either, known_jobs, source
from logshipper_grafana.parts.panels import (
    BLUE,
    GREEN,
    RED,
    Json,
    field,
    link,
    loki,
    lost_lines,
    null_as,
    place,
    prometheus,
    stat,
    table,
    texts,
    thresholds,
    time_graph,
)
from logshipper_grafana.parts.records import as_text
from logshipper_grafana.parts.transforms import (
    as_time,
    decode,
    newest_of_each,
    order_by_time,
    organize,
    rows_with,
    sort_by,
)
from logshipper_grafana.parts.variables import (
    ALPHABETICAL,
    HIDDEN,
    ON_LOAD,
    ON_TIME_RANGE,
    choice_variable,
    label_pattern,
    places,
    query_variable,
    text_variable,
    values,
)

_CLUSTER = 'cluster="${cluster:raw}"'
_OF_INFO = ", ".join(
    (
        _CLUSTER,
        "user=~`${user:pipe}`",
        "partition=~`${partition:pipe}`",
        "name=~`(?i).*${name:regex}.*`",
    )
)
_STATE = "${state:pipe}"
_KEYS = ("key1", "key2", "key3")
_FIRST_KEYS = ("progress", "epoch", "loss")
# Seconds around a job, with a share of its duration, up to MAX_PAD_SECS; after its end come the
# messages of observers.
_PAD_BEFORE_SECS, _PAD_AFTER_SECS, _PAD_SHARE, _MAX_PAD_SECS = 2, 10, 0.05, 120
_INFO = "logshipper_job_info"
_FEW_HOSTS = 100  # naming more costs Loki more than reading all
_MAX_BARS = 1000  # entries: those of 100 running bars in 100 s
_LABELS = ("name", "user", "account", "partition", "state", "node", "bar")  # that are columns
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
                "Series in Explore",
                "the list's query",
                links.explore("prometheus", _info()),
            ),
        ],
        "panels": place([*_counts(), _list()]),
    }


def _variables() -> list[Json]:
    names = {state: state for state in queries.STATES}
    metadata_keys = (
        f"group by(key)(last_over_time(logshipper_metadata_value{{{_CLUSTER}}}[$__range]))"
    )
    always = " or ".join(f'label_replace(vector(0), "key", "{key}", "", "")' for key in _FIRST_KEYS)
    keys = [
        query_variable(
            name,
            f"Value {number}",
            "A key whose last value is a column of the list.",
            either(
                f"{metadata_keys} or on(key) ({always})",
                f"{loki_jobs.all_keys()} or on(key) ({always})",
            ),
            label_pattern("key"),
            sort=ALPHABETICAL,
            first=first,
            refresh=ON_LOAD,
            source=SOURCE,
        )
        for number, (name, first) in enumerate(zip(_KEYS, _FIRST_KEYS, strict=True), start=1)
    ]
    return [
        # also with each change of the page's time, as Prometheus may not reach back so far
        source(known_jobs(_CLUSTER), refresh=ON_TIME_RANGE),
        _labels("user", "User", "Whose jobs are listed."),
        choice_variable(
            "state",
            "State",
            "Only jobs whose newest attempt is in these states.",
            names,
            multi=True,
        ),
        _labels("partition", "Partition", "The scheduler's partition."),
        text_variable(
            "name", "Name", "Only jobs whose name contains this, in upper or lower case."
        ),
        *keys,
        _running_hosts(),
        *places(),
        values(),
    ]


def _running_hosts() -> Json:
    """Return the nodes with the listed bars, as a regular expression: the chosen users' few, or all."""
    running = f'logshipper_job_state{{{_CLUSTER}, state="RUNNING"}}'
    infos = f"last_over_time({_INFO}{{{_CLUSTER}, user=~`${{user:pipe}}`}}[$__range])"
    known = f"group by(host)({infos} and on(job_id) {running})"
    return query_variable(
        "running",
        "running",
        "The nodes whose bars are asked of Loki.",
        either(_few(known), _few(loki_jobs.running_hosts())),
        label_pattern("host"),
        hide=HIDDEN,
        multi=True,
        source=SOURCE,
    )


def _few(hosts: str) -> str:
    every = 'label_replace(vector(0), "host", ".+", "", "")'
    return f"{hosts} and on() (count({hosts}) <= {_FEW_HOSTS}) or {every} and on() (count({hosts}) > {_FEW_HOSTS})"


def _labels(name: str, label: str, description: str) -> Json:
    """Return a label's values; `All` includes jobs without the label."""
    known = f"group by({name})(last_over_time({_INFO}{{{_CLUSTER}}}[$__range]))"
    return query_variable(
        name,
        label,
        description,
        either(known, loki_jobs.labels(name)),
        label_pattern(name),
        sort=ALPHABETICAL,
        multi=True,
        all_value=".*",
        source=SOURCE,
    )


def _asked(promql: str, logql: str, *, ref: str = "A", table: bool = False) -> Json:
    """Return a query for the end of the page's time, to Loki if Prometheus knows none of the jobs."""
    return prometheus(either(promql, logql), instant=True, table=table, ref=ref, source=SOURCE)


def _info() -> str:
    infos = f"last_over_time({_INFO}{{{_OF_INFO}}}[$__range])"
    return f"topk by(job_id)(1, max by(job_id, name, user, account, partition)({infos}))"


def _states() -> str:
    return queries.where_label(queries.job_states(_CLUSTER), "state", _STATE)


def _newest(metric: str) -> str:
    """Per job, of its newest attempt."""
    return queries.of_newest_attempt(f"last_over_time({metric}{{{_CLUSTER}}}[$__range])", _CLUSTER)


def _of_listed(series: str) -> str:
    """Return series of listed jobs: a column without values disappears."""
    return f"({series}) and on(job_id) ({_info()}) and on(job_id) ({_states()})"


def _of_listed_by_loki(series: str) -> str:
    return f"({series}) and on(job_id) ({loki_jobs.infos()}) and on(job_id) ({_states_by_loki()})"


def _states_by_loki() -> str:
    return queries.where_label(loki_jobs.states(), "state", _STATE)


def _counts() -> list[Json]:
    jobs = f"({_states()}) and on(job_id) ({_info()})"
    running = f'count(group by(job_id)(logshipper_job_state{{{_CLUSTER}, state="RUNNING"}}) and on(job_id) ({_info()}))'
    lost = (
        f'sum(last_over_time(logshipper_job_lines{{{_CLUSTER}, outcome="lost"}}[$__range]) '
        f"and on(job_id) ({_info()}))"
    )
    failed = f"count({queries.where_label(queries.job_states(_CLUSTER), 'state', _BAD)} and on(job_id) ({_info()}))"
    fitting_by_loki = f"and on(job_id) ({loki_jobs.infos()})"
    jobs_by_loki = f"({_states_by_loki()}) {fitting_by_loki}"
    return [
        stat(
            "Captured jobs listed",
            "Captured jobs that were seen in the page's time and fit what is chosen above. Jobs that weren't captured "
            "are not known here.",
            _asked(f"count({jobs})", f"count({jobs_by_loki})"),
            width=4,
            no_value="0",
        ),
        stat(
            "Captured jobs running",
            "At the end of the page's time, of the chosen users, partitions and names.",
            _asked(running, f"count(({loki_jobs.running()}) {fitting_by_loki})"),
            width=4,
            no_value="0",
        ),
        stat(
            "Captured jobs failed",
            "Neither completed nor cancelled, preempted or requeued, of the chosen users, partitions and names.",
            _asked(
                failed,
                f"count({queries.where_label(loki_jobs.states(), 'state', _BAD)} {fitting_by_loki})",
            ),
            width=4,
            steps=thresholds((None, GREEN), (1, RED)),
            no_value="0",
        ),
        lost_lines(
            "Lines of these jobs that were printed and could not be logged: red when it isn't 0.",
            _asked(lost, f"sum(({loki_jobs.lost()}) {fitting_by_loki})"),
        ),
        time_graph(
            "Captured jobs running over time",
            "Of the chosen users, partitions and names.",
            [
                prometheus(
                    f'count(group by(job_id)(logshipper_job_state{{{_CLUSTER}, state="RUNNING"}}) and on(job_id) '
                    f"group by(job_id)({_INFO}{{{_OF_INFO}}}))",
                    legend="running",
                )
            ],
            width=8,
            height=4,
            defaults={"color": {"mode": "fixed", "fixedColor": BLUE}, "min": 0, "decimals": 0},
        ),
    ]


_BAD = "TIMEOUT|DEADLINE|OUT_OF_MEMORY|KILLED|FAILED|NODE_FAIL|BOOT_FAIL|UNRESPONSIVE"


def _pad(start: str, end: str, least_secs: int) -> str:
    """Return the seconds of margin on a job's page."""
    return f"clamp_max({least_secs} + {_PAD_SHARE} * ({end} - {start}), {_MAX_PAD_SECS})"


def _list() -> Json:
    start = f"min by(job_id)({_newest('logshipper_job_start_time_seconds')})"
    end = f"max by(job_id)({_newest('logshipper_job_end_time_seconds')})"
    sign = f"max by(job_id)({_newest('logshipper_job_heartbeat_time_seconds')})"
    over = queries.where_label(queries.job_states(_CLUSTER), "state", _OVER)
    attempts = f"last_over_time(logshipper_job_start_time_seconds{{{_CLUSTER}}}[$__range])"
    restarts = f"count by(job_id)(group by(job_id, attempt)({attempts})) - 1 > 0"
    lost = f'sum by(job_id)(last_over_time(logshipper_job_lines{{{_CLUSTER}, outcome="lost"}}[$__range]))'
    begin_by_loki, end_by_loki = loki_jobs.page_times()
    columns = {
        "A": ("", _info(), loki_jobs.infos()),
        "B": ("", _states(), _states_by_loki()),
        "C": ("started", f"{start} * 1000", f"{loki_jobs.starts()} / 1e6"),
        "D": (
            "duration",
            f"({end} and on(job_id) ({over}) or {sign}) - {start}",
            loki_jobs.durations(),
        ),
        "E": ("", queries.node_words(_CLUSTER), loki_jobs.node_words()),
        "F": ("lost", lost, loki_jobs.lost()),
        "G": (
            "from",
            f"({start} - ({_pad(start, end, _PAD_BEFORE_SECS)} or on(job_id) 0 * {start} + {_PAD_BEFORE_SECS})) * 1000",
            begin_by_loki,
        ),
        "H": (
            "to",
            f"({end} + {_pad(start, end, _PAD_AFTER_SECS)}) * 1000 and on(job_id) ({over})",
            end_by_loki,
        ),
    }
    for ref, key in zip("IJK", _KEYS, strict=True):
        value = f"logshipper_metadata_value{{{_CLUSTER}, key=`${{{key}:raw}}`}}"
        newest = queries.of_newest_attempt(f"last_over_time({value}[$__range])", _CLUSTER)
        columns[ref] = (
            key,
            _of_listed(f"max by(job_id)({newest})"),
            _of_listed_by_loki(loki_jobs.last_values(key)),
        )
    columns["L"] = ("ended by", queries.ends_by_number(_CLUSTER), loki_jobs.ends_by_number())
    columns["M"] = ("restarts", _of_listed(restarts), _of_listed_by_loki(loki_jobs.restarts()))
    renamed = {f"Value #{ref}": name for ref, (name, _, _) in columns.items() if name}
    order = ["state", "job_id", "name", "user", "Value #C", "Value #D", "Value #L", "Value #M", "node", "bar",
             "Value #F", "Value #I", "Value #J", "Value #K", "partition", "account"]  # fmt: skip
    when = 'from=${__data.fields["from"]}&to=${__data.fields["to"]}'
    to_job = links.page(links.JOB, job="${__data.fields.job_id:percentencode}", when=when)
    return table(
        "Captured jobs: newest first",
        "One row for each captured job that was seen in the page's time: its newest attempt. State: what Slurm says "
        "of its end, else RUNNING while one of its captures runs, then the worst end. Ended by: the worst of all "
        "captures. Node: where it began, and how many others it has. Running bar: what it shows now without its cells, "
        "of several the first. Values: the last ones, of several tasks the largest. A click on a job opens its page at "
        "the job's own time.",
        [
            *(
                _asked(promql, logql, table=True, ref=ref)
                for ref, (_, promql, logql) in columns.items()
            ),
            _bars(),
        ],
        height=_LIST_HEIGHT,
        transformations=[
            *order_by_time(),
            decode(),
            # an answer without jobs is dropped, as it shares no field with others; bars of other
            # jobs get rows without a user
            *newest_of_each(["job_id"], [*_LABELS, *renamed], merge=True),
            organize(renamed=renamed, order=order),
            rows_with("user", "state"),
            sort_by("started", newest_first=True),
            as_time("started"),
        ],
        overrides=[
            field(
                "state",
                mappings=states.BY_NAME,
                custom__displayMode="color-text",
                custom__width=130,
            ),
            field(
                "job_id",
                displayName="job",
                custom__minWidth=80,
                links=[link("Open this job at its own time", to_job)],
            ),
            field(
                "name", custom__minWidth=120, links=[link("Open this job at its own time", to_job)]
            ),
            field(
                "user",
                custom__width=80,
                links=[
                    link(
                        "Only jobs of ${__value.text}",
                        links.page(
                            links.JOBS,
                            kept=("state", "partition", "name", *_KEYS),
                            user="${__value.text:percentencode}",
                        ),
                    )
                ],
            ),
            field("started", unit="dateTimeAsIso", custom__width=155),
            field("duration", unit="s", custom__width=85),
            *(field(name, custom__width=85) for name in ("partition", "account")),
            field(
                "ended by",
                unit="prefix:exit code ",
                decimals=0,
                mappings=texts(queries.SIGNAL_WORDS),
                custom__width=100,
            ),
            field("restarts", unit="none", custom__width=70),
            field("node", custom__width=90),
            field("bar", displayName="running bar", custom__minWidth=190),
            field(
                "lost",
                unit="none",
                displayName="lost",
                color={"mode": "thresholds"},
                thresholds=thresholds((None, GREEN), (1, RED)),
                custom__displayMode="color-text",
                custom__width=60,
            ),
            *(
                field(key, displayName=f"${{{key}}}", unit="none", custom__width=80)
                for key in _KEYS
            ),
            field("from", unit="none", decimals=0, custom__hidden=True),
            field("to", unit="none", decimals=0, mappings=null_as("now"), custom__hidden=True),
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
    lines = (
        f'{{{_CLUSTER}, {hosts}, kind="status"}} | user=~`${{user:pipe}}` | line_format `{line}`'
    )
    return loki(lines, lines=_MAX_BARS, ref="N")


_OVER = "|".join(state for state in queries.STATES if state not in ("RUNNING", "UNRESPONSIVE"))
