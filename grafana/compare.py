"""The page that compares jobs over one key that they share."""

from grafana import links, queries, records, states
from grafana.panels import Json, field, link, loki, place, prometheus, row, table, xy_graph
from grafana.queries import MAX_ENTRIES, over_range, thinned
from grafana.transforms import (
    as_time,
    decoded,
    different_columns,
    first_row_of_each,
    merged,
    ordered_by_time,
    organized,
    rows_with,
    without_empty_frames,
)
from grafana.variables import ALPHABETICAL, HIDDEN, asked, label_pattern, labels_of, places

_CLUSTER = 'cluster="${cluster:raw}"'
_JOBS = f"{_CLUSTER}, job_id=~`${{jobs:pipe}}`"
_X = "${x:raw}"
_SAFE_NAME = r"[\\pL\\pN _.:/+@,-]+"  # of a job: as it may stand in a query
_RECORDS = f'{{{_CLUSTER}, host=~`${{host:pipe}}`, kind="metadata"}} | job_id=~`${{jobs:pipe}}`'

# A job's series is called as `names` says (ID=NAME|ID=NAME), and after its attempt and task, where it has several.
_SERIES = (
    '{{$lj := print .job_id}}{{$la := "${names:pipe}"}}'
    '{{$ls = regexReplaceAll (print "^(?:.*[|])?" $lj "=([^|]*)(?:[|].*)?$") $la "$1"}}'
    "{{if or (not $ls) (eq $ls $la)}}{{$ls = $lj}}{{end}}"
    '{{if ne .attempt "1"}}{{$ls = print $ls " · attempt " .attempt}}{{end}}'
    '{{if ne .task "0"}}{{$ls = print $ls " · task " .task}}{{end}}'
)


def dashboard() -> Json:
    return {
        "uid": links.COMPARE,
        "title": "logshipper: compare captured jobs",
        "description": "Several captured jobs over one key that they share, and how their configurations differ.",
        "tags": ["logshipper"],
        "time": {"from": "now-7d", "to": "now"},
        "refresh": "",
        "graphTooltip": 1,
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [
            links.dashboard_link("Jobs", "all captured jobs", links.page(links.JOBS)),
            links.dashboard_link(
                "X axis: auto",
                "X is chosen by the rules again",
                links.page(links.COMPARE, xsel="auto", same="${jobs:queryparam}&${user:queryparam}"),
                icon="bolt",
            ),
            links.dashboard_link("Records in Explore", "the query", links.explore("loki", _RECORDS), icon="doc"),
            links.dashboard_link("Cluster", "how capture does", links.page(links.CLUSTER)),
        ],
        "panels": place(
            [
                _compared(),
                _differences(),
                row("${y:text} over ${x} – ${rule}") | {"repeat": "y"},
                _graph(),
                _values(),
            ]
        ),
    }


def _seen(metric: str, *matchers: str) -> str:
    return over_range("max_over_time", f"{metric}{{{', '.join((_JOBS, *matchers))}}}")


def _variables() -> list[Json]:
    info = over_range("max_over_time", f"logshipper_job_info{{{_CLUSTER}, user=~`${{user:pipe}}`}}")
    label = 'label_join({}, "title", " · ", "name", "job_id", "user")'
    jobs = f'group by(title, value)(label_replace({label.format(info)}, "value", "$1", "job_id", "(.+)"))'
    hosts = f"group by(host)({_seen('logshipper_job_info')})"
    ranks = f"bottomk(1, {_shared_ranks()})"
    by_number = queries.or_else(ranks, "key", records.RECORD_FIELD)
    return [
        labels_of("user", "User", "Whose jobs can be chosen.", f"logshipper_job_info{{{_CLUSTER}}}", "user"),
        asked(
            "jobs",
            "Jobs",
            "The jobs to compare, of those that were seen in the page's time.",
            jobs,
            label_pattern("value", "title"),
            sort=ALPHABETICAL,
            multi=True,
            includes_all=False,
        ),
        asked("host", "Node", "The nodes that they ran on.", hosts, label_pattern("host"), hide=HIDDEN, multi=True),
        asked(
            "names",
            "names",
            "What each job is called in legends.",
            _names(),
            label_pattern("called"),
            hide=HIDDEN,
            multi=True,
        ),
        asked(
            "xsel",
            "X axis",
            "The key that graphs have as X, of those that all jobs share; auto: chosen by the rules.",
            f"group by(choice)({_shared_choices()}) or on(choice) {queries.constant('auto')}",
            label_pattern("choice"),
            sort=ALPHABETICAL,
            first="auto",
        ),
        asked("x", "x", "The key that is X.", by_number, label_pattern("key"), hide=HIDDEN),
        asked(
            "rule",
            "rule",
            "The rule that chose it, in words.",
            queries.rule_words(ranks, "${xsel:raw}"),
            label_pattern("words"),
            hide=HIDDEN,
        ),
        asked(
            "y",
            "Keys",
            "The keys that are drawn over X.",
            queries.keys_to_draw(_seen("logshipper_key", f"key!=`{_X}`")),
            label_pattern("picked", "key"),
            sort=ALPHABETICAL,
            multi=True,
        ),
        *places(),
    ]


def _names() -> str:
    """ID=NAME (ID) for names that may stand in a query, else ID=ID."""
    known = f"max by(job_id, name)({_seen('logshipper_job_info')})"
    plain = f'label_join({known}, "called", "=", "job_id", "job_id")'
    joined = f'label_join({plain}, "pair", "|", "job_id", "name")'
    named = f'label_replace({joined}, "called", "$1=$2 ($1)", "pair", "([^|]+)[|]({_SAFE_NAME})")'
    return f"group by(called)({named})"


def _with_records() -> str:
    return f"scalar(count(group by(job_id)({_seen('logshipper_records')})))"


def _shared_keys() -> str:
    """Keys that all jobs with records have."""
    return f"(count by(key)(group by(job_id, key)({_seen('logshipper_key')})) == {_with_records()})"


def _shared_ranks() -> str:
    ranks = _seen("logshipper_x_rank", 'choice="${xsel:raw}"')
    return f"max by(key)({ranks}) and on(key) {_shared_keys()}"


def _shared_choices() -> str:
    named = _seen("logshipper_x_rank", 'choice!="auto"')
    return f"{named} and on(key) {_shared_keys()}"


def _compared() -> Json:
    info = f"topk by(job_id)(1, max by(job_id, name, user, partition)({_seen('logshipper_job_info')}))"
    starts = _seen("logshipper_job_start_time_seconds")
    newest = f"min by(job_id)({queries.of_newest_attempt(starts, _JOBS)})"
    started = f"({newest} or on(job_id) min by(job_id)({starts})) * 1000"
    count = f"sum by(job_id)(max by(job_id, instance, job)({_seen('logshipper_records')}))"
    to_job = links.page(links.JOB, job="${__value.text:percentencode}")
    columns = {"A": info, "B": queries.job_states(_JOBS), "C": started, "D": count}
    return table(
        "Captured jobs compared",
        "The chosen jobs. A click on a job opens it, with the same time range.",
        [prometheus(expr, instant=True, table=True, ref=ref) for ref, expr in columns.items()],
        width=14,
        height=9,
        transformations=[
            merged(),
            organized(
                renamed={"Value #C": "started", "Value #D": "records"},
                order=["job_id", "name", "user", "state", "Value #C", "Value #D", "partition"],
                hidden=["Time", "Value #A", "Value #B"],
            ),
            rows_with("user"),
            as_time("started"),
        ],
        overrides=[
            field("job_id", displayName="job", custom__width=120, links=[link("Open ${__value.text}", to_job)]),
            field("name", custom__minWidth=100),
            field("user", custom__width=80),
            field("state", mappings=states.BY_NAME, custom__displayMode="color-text", custom__width=120),
            field("started", unit="dateTimeAsIso", custom__width=160),
            field("records", custom__width=75),
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
        width=10,
        height=9,
        transformations=[
            *ordered_by_time(),
            decoded(),
            *first_row_of_each("job"),
            organized(order=["job"], hidden=["started as"]),
            *different_columns(),
        ],
        overrides=[field("key", custom__width=130), field("different values", custom__hidden=True)],
    )


def _graph() -> Json:
    own = f"{_RECORDS}{thinned('${y:raw}')}"
    return xy_graph(
        "${y:text}",
        "A series for each job, and for each further attempt and task. X is a key that all of them share, by the same "
        "rule as on a job's page over what they share, or the chosen one; the rule stands above. Where no "
        "record has both, over the record's number.",
        [
            loki(own + records.over_x(_X, only="${y:text}", series=_SERIES), lines=MAX_ENTRIES),
            loki(own + records.without_x(_X, only="${y:text}", series=_SERIES), lines=MAX_ENTRIES, ref="B"),
        ],
        width=15,
        height=9,
        transformations=[*ordered_by_time(), decoded(), without_empty_frames()],
        no_value="no record has both",
    )


def _values() -> Json:
    number = f"{_RECORDS}{records.number_of('${y:text}')}"
    functions = {"A": ("last", "last_over_time"), "B": ("min", "min_over_time"), "C": ("max", "max_over_time")}
    targets = [
        loki(f"{function}({number} [$__range]) by (job_id, attempt, task)", instant=True, ref=ref)
        for ref, (_, function) in functions.items()
    ]
    return table(
        "${y:text}: last, least, largest",
        "Over all of its numbers, none left out.",
        targets,
        width=9,
        height=9,
        transformations=[
            merged(),
            organized(
                renamed={f"Value #{ref}": name for ref, (name, _) in functions.items()},
                order=["job_id", "attempt", "task", "Value #A", "Value #B", "Value #C"],
                hidden=["Time"],
            ),
        ],
        overrides=[
            field("job_id", displayName="job", custom__minWidth=80),
            field("attempt", custom__width=75),
            field("task", custom__width=50),
            *(field(name, custom__minWidth=70) for name, _ in functions.values()),
        ],
    )
