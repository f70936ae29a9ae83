"""The page that compares jobs over one key that they share."""

from logshipper_grafana.parts import links, loki_compared, queries, records, states, values
from logshipper_grafana.parts.loki_metrics import (
    OF_JOBS,
    SOURCE,
    either,
    events,
    known_jobs,
    source,
)
from logshipper_grafana.parts.panels import (
    JOB_COLORS,
    PAGE_WIDTH,
    Json,
    field,
    link,
    loki,
    place,
    row,
    swatches,
    table,
    xy_graph,
)
from logshipper_grafana.parts.queries import over_range, thinned
from logshipper_grafana.parts.transforms import (
    as_time,
    by_series,
    decode,
    different_columns,
    merge_rows,
    newest_of_each,
    order_by_time,
    organize,
    rows_as_columns,
    rows_as_one,
    rows_with,
    sort_by,
    without_empty_frames,
)
from logshipper_grafana.parts.variables import (
    ALPHABETICAL,
    HIDDEN,
    ON_LOAD,
    label_pattern,
    labels_of,
    places,
    query_variable,
)
from logshipper_grafana.parts.variables import values as values_source
from logshipper_grafana.parts.x_axis import CHOICE, X, over_x_or_number, x_choice
from logshipper_ingest.model.key_reports import VALUE
from logshipper_ingest.model.ranks import RULE_UNIT

_CLUSTER = 'cluster="${cluster:raw}"'
_JOBS = f"{_CLUSTER}, job_id=~`${{jobs:pipe}}`"
_SAFE_NAME = r"[\\pL\\pN _.:/+@,-]+"  # of a job, fit for a query
_NUMBER, _NAME = "#", "captured job"
_REPORTS, _RECORDS = (
    f'{{{_CLUSTER}, host=~`${{nodes:pipe}}`, kind="{kind}"}} | job_id=~`${{jobs:pipe}}`'
    for kind in (VALUE, "metadata")
)

# The job's name ($ls) from `names` (ID=NAME|ID=NAME), and its number ($lc), its place there, for
# the same number and colour everywhere.
_JOB_NAME = (
    '{{$lj := print .job_id}}{{$la := "${names:pipe}"}}'
    '{{$lb := regexReplaceAll (print "^((?:.*[|])?)" $lj "=.*$") $la "$1"}}'
    '{{$lc := add 1 (len (regexReplaceAllLiteral "[^|]" $lb ""))}}'
    '{{$ls := regexReplaceAll (print "^(?:.*[|])?" $lj "=([^|]*)(?:[|].*)?$") $la "$1"}}'
    "{{if or (not $ls) (eq $ls $la)}}{{$ls = $lj}}{{end}}"
)
# A series' name: the job's number and name, its attempt and task if several, and its tags.
_SERIES = (
    _JOB_NAME.replace("$ls :=", "$ls =") + '{{$ls = print $lc "·" $ls}}'
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
                _jobs_and_configuration(),
                row("Each key over ${x:raw} – ${rule}${thinned}"),
                _graph(),
                _comparison(),
                row("Last, least and largest of every key", collapsed=[_values()]),
            ]
        ),
    }


def _range_max(metric: str, *matchers: str) -> str:
    return over_range("max_over_time", f"{metric}{{{', '.join((_JOBS, *matchers))}}}")


def _variables() -> list[Json]:
    info = over_range("max_over_time", f"logshipper_job_info{{{_CLUSTER}, user=~`${{user:pipe}}`}}")
    title = f'label_join({info}, "title", " · ", "name", "job_id", "user")'
    hosts = f"group by(host)({_range_max('logshipper_job_info')})"
    return [
        labels_of(
            "user",
            "User",
            "Whose jobs can be chosen.",
            f"logshipper_job_info{{{_CLUSTER}}}",
            "user",
        ),
        source(name="lister"),
        query_variable(
            "jobs",
            "Jobs",
            "The jobs to compare, of those that were seen in the page's time.",
            either(f"group by(title)({title})", loki_compared.jobs(), by="lister"),
            '/[{,]title="(?<text>.* · (?<value>[^ ]+) · [^ ]*)"/',
            sort=ALPHABETICAL,
            multi=True,
            includes_all=False,
            source="${lister}",
        ),
        source(f"{known_jobs(_JOBS)} == on() {loki_compared.job_count()}"),
        query_variable(
            "nodes",
            "nodes",
            "The nodes that they ran on.",
            either(hosts, loki_compared.hosts()),
            label_pattern("host"),
            hide=HIDDEN,
            multi=True,
            refresh=ON_LOAD,
            source=SOURCE,
        ),
        query_variable(
            "names",
            "names",
            "What each job is called in legends, in the order of its number.",
            either(_names(), loki_compared.names()),
            label_pattern("called"),
            sort=ALPHABETICAL,
            hide=HIDDEN,
            multi=True,
            refresh=ON_LOAD,
            source=SOURCE,
        ),
        *x_choice(
            "The key that graphs have as X, of those that all jobs share; auto: chosen by the rules.",
            either(_shared_choices(), loki_compared.x_choices()),
            either(
                queries.or_else(
                    f"bottomk(1, {_shared_ranks()}) / {RULE_UNIT}", "key", records.RECORD_FIELD
                ),
                loki_compared.x_key(),
            ),
            no_key=queries.NO_SHARED_KEY,
        ),
        query_variable(
            "y",
            "Keys",
            "The keys that are drawn over X: those of which a job has more than one number.",
            either(
                queries.keys_to_draw(
                    queries.thinning_together(*_counts_and_captures(), by="key"),
                    counts=_counts_and_captures()[0],
                ),
                loki_compared.keys_to_draw(),
            ),
            queries.PICKED_PATTERN,
            sort=ALPHABETICAL,
            multi=True,
            source=SOURCE,
        ),
        query_variable(
            "thinned",
            "thinned",
            "How much is left out, in words.",
            either(
                queries.thinning_words(queries.thinning_together(*_counts_and_captures())),
                loki_compared.thinning_words(),
            ),
            label_pattern("words"),
            hide=HIDDEN,
            source=SOURCE,
        ),
        *places(),
        values_source(),
    ]


def _names() -> str:
    """Return ID=NAME (ID) for names that fit into queries, else ID=ID."""
    info = f"max by(job_id, name)({_range_max('logshipper_job_info')})"
    plain = f'label_join({info}, "called", "=", "job_id", "job_id")'
    pairs = f'label_join({plain}, "pair", "|", "job_id", "name")'
    names = f'label_replace({pairs}, "called", "$1=$2 ($1)", "pair", "([^|]+)[|]({_SAFE_NAME})")'
    return f"group by(called)({names})"


def _counts_and_captures() -> tuple[str, str]:
    """Return the number of records with drawable keys, and their captures."""
    counts = f"({_range_max('logshipper_key', f'key!=`{X}`', queries.NO_CONSTANT)} > 1)"
    return counts, _range_max("logshipper_metadata_value")


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
    auto = queries.constant("auto")
    return f"group by(choice)({ranks} and on(key) {_shared_keys()}) or on(choice) {auto}"


def _of_newest_attempt(series: str) -> str:
    """series: by job_id and attempt."""
    starts = queries.newest_of(
        events(OF_JOBS, "started", "started_ns"),
        " | unwrap started_ns",
        "job_id, attempt, host, task",
    )
    newest = f"topk by (job_id)(1, min by (job_id, attempt)({starts}))"
    return f"max by (job_id)({series} and on(job_id, attempt) {newest})"


def _comparison() -> Json:
    """Return the comparison from Loki's events, the same for jobs that Prometheus has forgotten."""
    place = "job_id, attempt, host, step, task"
    who = f"{place}, name, user, partition"
    starts = events(OF_JOBS, "started", "name", "user", "partition", "started_ns")
    started = queries.newest_of(starts, " | unwrap started_ns", who)
    info = f"topk by (job_id)(1, min by (job_id, attempt, name, user, partition)({started})) / 1e6"
    by_slurm = queries.newest_of(
        events(OF_JOBS, queries.JOB_ENDED, "event", "state"),
        f' | state!=""{queries.state_rank()}',
        place,
    )
    by_capture = queries.newest_of(
        events(OF_JOBS, queries.STATE_EVENTS, "event", "state"), queries.state_rank(), place
    )
    state = f"{_of_newest_attempt(by_slurm)} or {_of_newest_attempt(by_capture)}"
    records = queries.newest_of(
        events(OF_JOBS, queries.ACCOUNTS, "records"), " | unwrap records", place
    )
    columns = {"A": info, "B": state, "C": f"sum by (job_id)({records})"}
    to_job = links.page(links.JOB, job="${__value.text:percentencode}")
    return table(
        "Captured jobs compared",
        "The chosen jobs. A click on a job opens it, with the same time range.",
        [loki(expr, instant=True, ref=ref) for ref, expr in columns.items()],
        width=PAGE_WIDTH,
        height=7,
        transformations=[
            merge_rows(),
            organize(
                renamed={"Value #A": "started", "Value #B": "state", "Value #C": "records"},
                order=["job_id", "name", "user", "Value #B", "Value #A", "Value #C", "partition"],
                hidden=["Time", "attempt"],
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
                mappings=states.BY_NUMBER,
                custom__displayMode="color-text",
                custom__width=150,
            ),
            field("started", unit="dateTimeAsIso", custom__width=160),
            field("records", custom__width=75),
            field("partition", custom__width=85),
        ],
    )


def _jobs_and_configuration() -> Json:
    """Return a table with a row per job.

    Only all records together show the differences. So rows become columns, lose equal values, and
    become rows again. The first row is then the heading, and fields have the names 0, 1 and so on.
    """
    job = f'"{_NUMBER}":{{{{$lc}}}},"{_NAME}":"{{{{$lc}}}}·{{{{{records.as_text("$ls")}}}}}"'
    first_record = records.before(_JOB_NAME, records.flat(job))
    wrapped = ' | line_format `{"job":"{{.job_id}}","key":" ","row":{{__line__}}}`'
    all_keys, of_keys = 'eq "${y:text}" "All"', 'contains (print " + " $lk " + ") " + ${y:text} + "'
    is_shown = f"or ({all_keys}) ({of_keys})"
    return table(
        "Captured jobs, what differs in their first records (configuration), and what keys came to",
        "A row for each job that has records: its colour in all graphs, its number and name; of its first record, "
        "which is where programs print their configuration, each value that isn't the same in all jobs, nested keys "
        "by their full names; then of each key that is drawn the last number and the best, with X there, of the newest "
        "attempt's lowest task. Which is the best is guessed by the key's name (loss, acc, ...), else: least to "
        "largest.",
        [
            loki(f"{_RECORDS} | n=`1`{first_record}{wrapped}", lines=1000, ref="C"),
            *values.last_and_best(_REPORTS, _JOB_NAME, job, x=X, is_shown=is_shown),
        ],
        height=7,
        options={"showHeader": False},
        transformations=[
            *order_by_time(newest_first=True),
            decode(),
            merge_rows(),
            # of reports the newest last, of records the first
            sort_by(values.REPORTED_AT),
            sort_by("task", newest_first=True),
            sort_by("attempt"),
            *newest_of_each(["job", "key"], ["row"]),
            sort_by("key"),  # an empty one would be the last
            *rows_as_one("job", "key", row="row"),
            sort_by(_NUMBER),
            organize(order=[_NUMBER, _NAME]),
            *different_columns(always=(_NUMBER, _NAME)),
            *rows_as_columns(),
        ],
        overrides=[
            field(
                "0",
                custom__width=30,
                custom__displayMode="color-background-solid",
                mappings=swatches(),
            ),
            field("1", custom__minWidth=160),
        ],
        no_value="–",  # for each missing value,
    )


def _graph() -> Json:
    return xy_graph(
        "${y:text}",
        "A series for each job, after its number in the table above, and for each further attempt and task. X is a key "
        "that all of them share, by the same rule as on a job's page over what they share, or the chosen one; the rule "
        "stands above. Where no record of any job has both, over the record's number; where only some jobs have such "
        "records, the others are missing here: another X axis, above, shows them. Thinned so that all jobs together "
        "have at most about 5,000 points: of each its records whose number ends in so many zeros, and the first "
        "hundred of each set of keys.",
        over_x_or_number(
            _RECORDS + thinned("${y:raw}"),
            only="${y:text}",
            series=_SERIES + queries.DENSE_SERIES,
            nodes="nodes",
        ),
        width=PAGE_WIDTH,  # of both together
        height=8,
        repeat="y",
        per_row=2,
        colors=JOB_COLORS,
        transformations=[
            *order_by_time(),
            decode(),
            *by_series(),  # gives all graphs the same colours
            without_empty_frames(),
        ],
        no_value="no record has both",
    )


def _values() -> Json:
    """A row for each key, job, attempt and task."""
    return values.key_table(
        _REPORTS,
        "Of each key with numbers, of each job after its number in the table above.",
        suffix=_SERIES.removesuffix(records.TAGS).replace(
            'print $lc "·" $ls', 'print " · " $lc "·" $ls'
        ),
        height=12,
        width=PAGE_WIDTH,
    )
