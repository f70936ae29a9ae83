"""The page that compares jobs over one key that they share."""

from logshipper_grafana.parts import (
    Json,
    colors,
    key_queries,
    links,
    loki_compared,
    loki_jobs,
    mappings,
    queries,
    records,
    run_queries,
    states,
    transforms,
    values,
    variables,
)
from logshipper_grafana.parts.key_queries import thinned
from logshipper_grafana.parts.loki_metrics import known_jobs, source
from logshipper_grafana.parts.panels import (
    PAGE_WIDTH,
    colored_text,
    field,
    loki,
    override,
    place,
    prometheus,
    row,
    table,
    xy_graph,
)
from logshipper_grafana.parts.queries import CLUSTER, over_range
from logshipper_grafana.parts.x_axis import CHOICE, X, over_x_or_number, x_choice
from logshipper_ingest.model.key_reports import VALUE
from logshipper_ingest.model.ranks import RULE_UNIT

_JOBS = f"{CLUSTER}, job_id=~`${{jobs:pipe}}`"
_SAFE_NAME = r"[\\pL\\pN _.:/+@,-]+"  # of a job, fit for a query
_NUMBER, _NAME = "#", "captured job"
_SHOWN = {values.JOB_ID: "job", "lsstate": "state"}
_REPORTS, _RECORDS = (
    f'{{{CLUSTER}, host=~`${{nodes:pipe}}`, kind="{kind}"}} | job_id=~`${{jobs:pipe}}`'
    for kind in (VALUE, "metadata")
)

# The job's name ($ls) from `names` (ID=NAME|ID=NAME), and its number ($lc), its place there, for
# the same number and colour everywhere.
_JOB_NAME = (
    '{{$lj := print .job_id}}{{$la := "${names:pipe}"}}'
    '{{$lb := regexReplaceAll (print "^((?:.*[|])?)" $lj "=.*$") $la "$1"}}'
    '{{$lc := printf "%02d" (add 1 (len (regexReplaceAllLiteral "[^|]" $lb "")))}}'
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
            "user", "User", "Whose jobs can be chosen.", f"logshipper_job_info{{{CLUSTER}}}", "user"
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
    """Return ID=NAME for names that fit into queries, else ID=ID."""
    info = f"max by(job_id, name)({_range_max('logshipper_job_info')})"
    plain = f'label_join({info}, "called", "=", "job_id", "job_id")'
    pairs = f'label_join({plain}, "pair", "|", "job_id", "name")'
    names = f'label_replace({pairs}, "called", "$1=$2", "pair", "([^|]+)[|]({_SAFE_NAME})")'
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


def _states() -> Json:
    """Return the query for each job's state, as a row of the table."""
    of_jobs = f"group by(job_id)(last_over_time(logshipper_job_info{{{_JOBS}}}[$__range]))"

    def rows(states: str) -> str:
        row = f'label_replace({states}, "row", `{{"lsstate":"$1"}}`, "state", "(.*)")'
        job = f'label_replace({row}, "{values.JOB_ID}", "$1", "job_id", "(.*)")'
        return f'label_replace(max by({values.JOB_ID}, row)({job}), "key", "state", "", "")'

    of_loki = f"({loki_jobs.states()}) and on(job_id) ({loki_compared.ids()})"
    promql = f"({run_queries.job_states()}) and on(job_id) {of_jobs}"
    query = variables.either(rows(promql), rows(of_loki))
    return prometheus(query, table=True, ref="D", source=variables.SOURCE)


def _jobs_and_configuration() -> Json:
    """Return a table with a row per job.

    Only all records together show the differences. So rows become columns, lose equal values, and
    become rows again. The first row is then the heading, and fields have the names 0, 1 and so on.
    """
    job = f'"{_NUMBER}":"{{{{$lc}}}}","{_NAME}":"{{{{$lc}}}}·{{{{{records.as_text("$ls")}}}}}"'
    first_record = records.before(_JOB_NAME, records.flat(job))
    wrapped = (
        f' | line_format `{{"{values.JOB_ID}":"{{{{.job_id}}}}","key":" ","row":{{{{__line__}}}}}}`'
    )
    all_keys, of_keys = 'eq "${y:text}" "All"', 'contains (print " + " $lk " + ") " + ${y:text} + "'
    is_shown = f"or ({all_keys}) ({of_keys})"
    return table(
        "Captured jobs: states, differing configuration, last and best values",
        "A row for each job: its colour in all graphs, its number, name, id and state. A click on the id opens the "
        "job. Then each value of its first record that isn't the same in all jobs: programs print their configuration "
        "there. Then the last and the best number of each drawn key, with X of the best, of the newest attempt's "
        "lowest task. The key's name (loss, acc, ...) tells the best; other keys have the least and the largest.",
        [
            loki(f"{_RECORDS} | n=`1`{first_record}{wrapped}", lines=1000, ref="C"),
            *values.last_and_best(_REPORTS, _JOB_NAME, job, x=X, is_shown=is_shown),
            _states(),
        ],
        height=12,
        options={"showHeader": False},
        transformations=[
            *transforms.decoded(newest_first=True),
            transforms.merge_rows(),
            # of reports the newest last, of records the first
            transforms.sort_by(values.REPORTED_AT),
            transforms.sort_by("task", newest_first=True),
            transforms.sort_by("attempt"),
            *transforms.newest_of_each([values.JOB_ID, "key"], ["row"]),
            transforms.sort_by("key"),  # an empty one would be the last
            *transforms.rows_as_one(values.JOB_ID, "key", row="row"),
            transforms.sort_by(_NUMBER),
            transforms.organize(_SHOWN, order=[_NUMBER, _NAME, *_SHOWN]),
            *transforms.different_columns(always=(_NUMBER, _NAME, *_SHOWN.values())),
            *transforms.rows_as_columns(),
        ],
        overrides=[
            field(
                "0",
                custom__width=30,
                custom__displayMode="color-background-solid",
                mappings=mappings.swatches(),
            ),
            override("byRegexp", "/^[1-9]/", custom__minWidth=185),
            field("2", custom__width=115, links=links.of_job()),
            colored_text("3", states.BY_NAME, 130),
            field("3", color=colors.fixed("text")),  # of the heading
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
