"""The page that compares jobs over one key that they share."""

from logshipper_grafana.parts import links, queries, records, states
from logshipper_grafana.parts.panels import (
    Json,
    field,
    link,
    loki,
    place,
    prometheus,
    row,
    table,
    xy_graph,
)
from logshipper_grafana.parts.queries import over_range, thinned
from logshipper_grafana.parts.transforms import (
    as_time,
    decode,
    different_columns,
    first_row_of_each,
    merge_rows,
    order_by_time,
    organize,
    rows_with,
    sort_by,
    without_empty_frames,
)
from logshipper_grafana.parts.variables import (
    ALPHABETICAL,
    HIDDEN,
    label_pattern,
    labels_of,
    places,
    query_variable,
)
from logshipper_grafana.parts.x_axis import CHOICE, X, over_x_or_number, x_choice

_CLUSTER = 'cluster="${cluster:raw}"'
_JOBS = f"{_CLUSTER}, job_id=~`${{jobs:pipe}}`"
_SAFE_NAME = r"[\\pL\\pN _.:/+@,-]+"  # of a job: as it may stand in a query
_RECORDS = f'{{{_CLUSTER}, host=~`${{host:pipe}}`, kind="metadata"}} | job_id=~`${{jobs:pipe}}`'

# A job's series is called as `names` says (ID=NAME|ID=NAME), and after its attempt and task, where
# it has several, and its tags.
_SERIES = (
    '{{$lj := print .job_id}}{{$la := "${names:pipe}"}}'
    '{{$ls = regexReplaceAll (print "^(?:.*[|])?" $lj "=([^|]*)(?:[|].*)?$") $la "$1"}}'
    "{{if or (not $ls) (eq $ls $la)}}{{$ls = $lj}}{{end}}"
    '{{if ne .attempt "1"}}{{$ls = print $ls " · attempt " .attempt}}{{end}}'
    '{{if ne .task "0"}}{{$ls = print $ls " · task " .task}}{{end}}' + records.TAGS
)


def dashboard() -> Json:
    return {
        "uid": links.COMPARE,
        "title": "logshipper: compare captured jobs",
        "description": "Several captured jobs over one key that they share, and how their configurations differ.",
        "time": {"from": "now-7d", "to": "now"},
        "refresh": "",
        "templating": {"list": _variables()},
        "links": [
            links.page_link("Jobs", "all captured jobs", links.JOBS),
            links.page_link(
                "X axis: auto",
                "X is chosen by the rules again",
                links.COMPARE,
                icon="bolt",
                kept=("jobs", "user", "y"),
                xsel="auto",
            ),
            links.explore_link("Records in Explore", "the query", links.explore("loki", _RECORDS)),
            links.page_link("Cluster", "how capture does", links.CLUSTER),
        ],
        "panels": place(
            [
                _comparison(),
                _differences(),
                row("${y:text} (X: ${x} – ${rule}; the longest key: ${thinned})") | {"repeat": "y"},
                _graph(),
                _last(),
                _least_and_largest(),
            ]
        ),
    }


def _range_max(metric: str, *matchers: str) -> str:
    return over_range("max_over_time", f"{metric}{{{', '.join((_JOBS, *matchers))}}}")


def _variables() -> list[Json]:
    info = over_range("max_over_time", f"logshipper_job_info{{{_CLUSTER}, user=~`${{user:pipe}}`}}")
    label = 'label_join({}, "title", " · ", "name", "job_id", "user")'
    jobs = f'group by(title, value)(label_replace({label.format(info)}, "value", "$1", "job_id", "(.+)"))'
    hosts = f"group by(host)({_range_max('logshipper_job_info')})"
    return [
        labels_of(
            "user",
            "User",
            "Whose jobs can be chosen.",
            f"logshipper_job_info{{{_CLUSTER}}}",
            "user",
        ),
        query_variable(
            "jobs",
            "Jobs",
            "The jobs to compare, of those that were seen in the page's time.",
            jobs,
            label_pattern("value", "title"),
            sort=ALPHABETICAL,
            multi=True,
            includes_all=False,
        ),
        query_variable(
            "host",
            "Node",
            "The nodes that they ran on.",
            hosts,
            label_pattern("host"),
            hide=HIDDEN,
            multi=True,
        ),
        query_variable(
            "names",
            "names",
            "What each job is called in legends.",
            _names(),
            label_pattern("called"),
            hide=HIDDEN,
            multi=True,
        ),
        *x_choice(
            "The key that graphs have as X, of those that all jobs share; auto: chosen by the rules.",
            _shared_choices(),
            f"bottomk(1, {_shared_ranks()})",
            queries.rule_words(f"bottomk(1, {_shared_ranks()})", CHOICE),
        ),
        query_variable(
            "y",
            "Keys",
            "The keys that are drawn over X.",
            queries.keys_to_draw(queries.thinning_together(*_counts_and_captures(), by="key")),
            label_pattern("picked", "key"),
            sort=ALPHABETICAL,
            multi=True,
        ),
        query_variable(
            "thinned",
            "thinned",
            "How much is left out, in words.",
            queries.thinning_words(
                queries.thinning_together(*_counts_and_captures()), at_least="at least "
            ),
            label_pattern("words"),
            hide=HIDDEN,
        ),
        *places(),
    ]


def _names() -> str:
    """ID=NAME (ID) for names that may stand in a query, else ID=ID."""
    info = f"max by(job_id, name)({_range_max('logshipper_job_info')})"
    plain = f'label_join({info}, "called", "=", "job_id", "job_id")'
    pairs = f'label_join({plain}, "pair", "|", "job_id", "name")'
    names = f'label_replace({pairs}, "called", "$1=$2 ($1)", "pair", "([^|]+)[|]({_SAFE_NAME})")'
    return f"group by(called)({names})"


def _counts_and_captures() -> tuple[str, str]:
    """How many records the keys have that may be drawn, and the captures that they are of."""
    return _range_max("logshipper_key", f"key!=`{X}`"), _range_max("logshipper_metadata_value")


def _shared_keys() -> str:
    """Keys that all jobs have which have two: a job with one has nothing to draw over X."""
    keys = f"group by(job_id, key)({_range_max('logshipper_key')})"
    jobs = f"count by(job_id)({keys}) > 1"
    return f"(count by(key)({keys} and on(job_id) ({jobs})) == scalar(count({jobs})))"


def _shared_ranks() -> str:
    ranks = _range_max("logshipper_x_rank", f'choice="{CHOICE}"')
    return f"max by(key)({ranks}) and on(key) {_shared_keys()}"


def _shared_choices() -> str:
    ranks = _range_max("logshipper_x_rank", 'choice!="auto"')
    return f"{ranks} and on(key) {_shared_keys()}"


def _comparison() -> Json:
    info = f"topk by(job_id)(1, max by(job_id, name, user, partition)({_range_max('logshipper_job_info')}))"
    starts = _range_max("logshipper_job_start_time_seconds")
    newest = f"min by(job_id)({queries.of_newest_attempt(starts, _JOBS)})"
    started = f"({newest} or on(job_id) min by(job_id)({starts})) * 1000"
    count = f"sum by(job_id)(max by(job_id, instance, job)({_range_max('logshipper_records')}))"
    to_job = links.page(links.JOB, job="${__value.text:percentencode}")
    columns = {"A": info, "B": queries.job_states(_JOBS), "C": started, "D": count}
    return table(
        "Captured jobs compared",
        "The chosen jobs. A click on a job opens it, with the same time range.",
        [prometheus(expr, instant=True, table=True, ref=ref) for ref, expr in columns.items()],
        width=15,
        height=9,
        transformations=[
            merge_rows(),
            organize(
                renamed={"Value #C": "started", "Value #D": "records"},
                order=["job_id", "name", "user", "state", "Value #C", "Value #D", "partition"],
                hidden=["Time", "Value #A", "Value #B"],
            ),
            rows_with("user"),
            as_time("started"),
        ],
        overrides=[
            field(
                "job_id",
                displayName="job",
                custom__minWidth=80,
                links=[link("Open ${__value.text}", to_job)],
            ),
            field("name", custom__minWidth=90),
            field("user", custom__width=75),
            field(
                "state",
                mappings=states.BY_NAME,
                custom__displayMode="color-text",
                custom__width=150,
            ),
            field("started", unit="dateTimeAsIso", custom__width=160),
            field("records", custom__width=75),
            field("partition", custom__width=85),
        ],
    )


def _differences() -> Json:
    template = records.flat('"job":"{{.job_id}}","started as":"{{.attempt}}"')
    return table(
        "What differs in their first records (configuration)",
        "Of each job the first metadata record of this time, nested keys by their full names; keys that all jobs have "
        "with the same value are left out: with no row but the jobs, nothing "
        "differs. Values stand in the order of the first row, the jobs.",
        [loki(f"{_RECORDS} | n=`1`{template}", lines=1000)],
        width=9,
        height=9,
        transformations=[
            *order_by_time(),
            decode(),
            *first_row_of_each("job"),
            organize(order=["job"], hidden=["started as"]),
            *different_columns(),
        ],
        overrides=[field("key", custom__width=130), field("different values", custom__hidden=True)],
    )


def _graph() -> Json:
    return xy_graph(
        "${y:text}",
        "A series for each job, and for each further attempt and task. X is a key that all of them share, by the same "
        "rule as on a job's page over what they share, or the chosen one; the rule stands above. Where no "
        "record of any job has both, over the record's number; where only some jobs have such records, the others are "
        "missing here: another X axis, above, shows them. Thinned so that all jobs together have at most about 5,000 "
        "points: of each its records whose number ends in so many zeros, and the first hundred of each set of keys.",
        over_x_or_number(_RECORDS + thinned("${y:raw}"), only="${y:text}", series=_SERIES),
        width=11,
        height=9,
        transformations=[
            *order_by_time(),
            decode(),
            sort_by(
                records.SERIES_FIELD
            ),  # colours go by the columns' order, and columns by their first rows
            decode(records.POINT_FIELD),
            without_empty_frames(),
        ],
        no_value="no record has both",
    )


def _last() -> Json:
    value = over_range("last_over_time", f"logshipper_metadata_value{{{_JOBS}, key=`${{y:text}}`}}")
    return _by_capture(
        "${y:text}: last",
        "The last number of each job, attempt and task, as its agent showed it: whatever is thinned.",
        [prometheus(f"max by(job_id, attempt, task)({value})", instant=True, table=True)],
        {"Value": "last"},
        width=6,
    )


def _least_and_largest() -> Json:
    """All records of long jobs would be minutes of Loki's work: each is taken apart."""
    numbers = f"{_RECORDS}{thinned('${y:raw}')}{records.number_of('${y:text}')}"
    functions = {"A": "min", "B": "max"}
    return _by_capture(
        "${y:text}: least, largest",
        "Of the records that the graph has: of a job that is thinned, others may be less or larger.",
        [
            loki(
                f"{name}_over_time({numbers} [$__range]) by (job_id, attempt, task)",
                instant=True,
                ref=ref,
            )
            for ref, name in functions.items()
        ],
        {f"Value #{ref}": name for ref, name in functions.items()},
        width=7,
    )


def _by_capture(
    title: str, description: str, targets: list[Json], columns: dict[str, str], *, width: int
) -> Json:
    """columns: what values are called, by their fields' names."""
    return table(
        title,
        description,
        targets,
        width=width,
        height=9,
        transformations=[
            merge_rows(),
            organize(
                renamed=columns, order=["job_id", "attempt", "task", *columns], hidden=["Time"]
            ),
            sort_by("job_id"),
        ],
        overrides=[
            field("job_id", displayName="job", custom__minWidth=70),
            field("attempt", custom__width=70),
            field("task", custom__width=50),
            *(field(name, custom__minWidth=60) for name in columns.values()),
        ],
    )
