"""The page that compares jobs over one key that they share."""

from logshipper_grafana.parts import (
    Json,
    key_queries,
    links,
    loki_compared,
    mappings,
    queries,
    records,
    states,
    transforms,
    values,
    variables,
)
from logshipper_grafana.parts.key_queries import thinned
from logshipper_grafana.parts.loki_metrics import OF_JOBS, events, known_jobs, source
from logshipper_grafana.parts.panels import (
    PAGE_WIDTH,
    colored_text,
    field,
    loki,
    place,
    row,
    table,
    time_column,
    xy_graph,
)
from logshipper_grafana.parts.queries import CLUSTER, over_range
from logshipper_grafana.parts.x_axis import CHOICE, X, over_x_or_number, x_choice
from logshipper_ingest.model.key_reports import VALUE
from logshipper_ingest.model.ranks import RULE_UNIT

_JOBS = f"{CLUSTER}, job_id=~`${{jobs:pipe}}`"
_SAFE_NAME = r"[\\pL\\pN _.:/+@,-]+"  # of a job, fit for a query
_NUMBER, _NAME = "#", "captured job"
_REPORTS, _RECORDS = (
    f'{{{CLUSTER}, host=~`${{nodes:pipe}}`, kind="{kind}"}} | job_id=~`${{jobs:pipe}}`'
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
    info = over_range("max_over_time", f"logshipper_job_info{{{CLUSTER}, user=~`${{user:pipe}}`}}")
    title = f'label_join({info}, "title", " · ", "name", "job_id", "user")'
    hosts = f"group by(host)({_range_max('logshipper_job_info')})"
    # the number of records with drawable keys, and their captures
    counts = f"({_range_max('logshipper_key', f'key!=`{X}`', key_queries.NO_CONSTANT)} > 1)"
    captures = _range_max("logshipper_metadata_value")
    shared_ranks = f"bottomk(1, {_shared_ranks()}) / {RULE_UNIT}"
    return [
        variables.labels_of(
            "user",
            "User",
            "Whose jobs can be chosen.",
            f"logshipper_job_info{{{CLUSTER}}}",
            "user",
        ),
        source(name="lister"),
        variables.query(
            "jobs",
            "Jobs",
            "The jobs to compare, of those that were seen in the page's time.",
            f"group by(title)({title})",
            '/[{,]title="(?<text>.* · (?<value>[^ ]+) · [^ ]*)"/',
            sort=variables.ALPHABETICAL,
            multi=True,
            includes_all=False,
            logql=loki_compared.jobs(),
            by="lister",
        ),
        source(f"{known_jobs(_JOBS)} == on() {loki_compared.job_count()}"),
        variables.hidden(
            "nodes",
            "The nodes that they ran on.",
            hosts,
            variables.label_pattern("host"),
            multi=True,
            refresh=variables.ON_LOAD,
            logql=loki_compared.hosts(),
        ),
        variables.hidden(
            "names",
            "What each job is called in legends, in the order of its number.",
            _names(),
            variables.label_pattern("called"),
            sort=variables.ALPHABETICAL,
            multi=True,
            refresh=variables.ON_LOAD,
            logql=loki_compared.names(),
        ),
        *x_choice(
            "The key that graphs have as X, of those that all jobs share; auto: chosen by the rules.",
            (_shared_choices(), loki_compared.x_choices()),
            (queries.or_else(shared_ranks, "key", records.RECORD_FIELD), loki_compared.x_key()),
            no_key=key_queries.NO_SHARED_KEY,
        ),
        variables.query(
            "y",
            "Keys",
            "The keys that are drawn over X: those of which a job has more than one number.",
            key_queries.keys_to_draw(
                key_queries.thinning_together(counts, captures, by="key"), counts=counts
            ),
            key_queries.PICKED_PATTERN,
            logql=loki_compared.keys_to_draw(),
            sort=variables.ALPHABETICAL,
            multi=True,
        ),
        variables.hidden(
            "thinned",
            "How much is left out, in words.",
            key_queries.thinning_words(key_queries.thinning_together(counts, captures)),
            variables.label_pattern("words"),
            logql=loki_compared.thinning_words(),
        ),
        *variables.places(),
        variables.values(),
    ]


def _names() -> str:
    """Return ID=NAME (ID) for names that fit into queries, else ID=ID."""
    info = f"max by(job_id, name)({_range_max('logshipper_job_info')})"
    plain = f'label_join({info}, "called", "=", "job_id", "job_id")'
    pairs = f'label_join({plain}, "pair", "|", "job_id", "name")'
    names = f'label_replace({pairs}, "called", "$1=$2 ($1)", "pair", "([^|]+)[|]({_SAFE_NAME})")'
    return f"group by(called)({names})"


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
    return table(
        "Captured jobs compared",
        "The chosen jobs. A click on a job opens it, with the same time range.",
        [loki(expr, instant=True, ref=ref) for ref, expr in columns.items()],
        width=PAGE_WIDTH,
        height=7,
        transformations=[
            transforms.merge_rows(),
            transforms.organize(
                {"Value #A": "started", "Value #B": "state", "Value #C": "records"},
                order=["job_id", "name", "user", "Value #B", "Value #A", "Value #C", "partition"],
                hidden=["Time", "attempt"],
            ),
            transforms.rows_with("user"),
            transforms.as_time("started"),
        ],
        overrides=[
            field("job_id", displayName="job", custom__minWidth=80, links=links.of_job()),
            field("name", custom__minWidth=90),
            field("user", custom__width=75),
            colored_text("state", states.BY_NUMBER, 150),
            time_column("started"),
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
            *transforms.decoded(newest_first=True),
            transforms.merge_rows(),
            # of reports the newest last, of records the first
            transforms.sort_by(values.REPORTED_AT),
            transforms.sort_by("task", newest_first=True),
            transforms.sort_by("attempt"),
            *transforms.newest_of_each(["job", "key"], ["row"]),
            transforms.sort_by("key"),  # an empty one would be the last
            *transforms.rows_as_one("job", "key", row="row"),
            transforms.sort_by(_NUMBER),
            transforms.organize(order=[_NUMBER, _NAME]),
            *transforms.different_columns(always=(_NUMBER, _NAME)),
            *transforms.rows_as_columns(),
        ],
        overrides=[
            field(
                "0",
                custom__width=30,
                custom__displayMode="color-background-solid",
                mappings=mappings.swatches(),
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
            series=_SERIES + key_queries.DENSE_SERIES,
            nodes="nodes",
        ),
        width=PAGE_WIDTH,  # of both together
        height=8,
        repeat="y",
        per_row=2,
        by_job=True,
        transformations=transforms.of_graph(),  # with the same colours in all graphs
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
