"""Queries to Loki that replace Prometheus', for jobs that Prometheus does not know (any more).

A dashboard's variable can send any query to Prometheus, but only queries about labels to Loki. Loki
answers an instant LogQL query as Prometheus does. So a data source of the type Prometheus with
Loki's address (`http://loki:3100/loki`) lets variables query Loki. The variable `source` decides:
its value is the data source, and its text the switch of `variables.either`.

The numbers come from entries of kind `value` (docs/in-loki.md), and from events. Loki prints labels
in no order, so only one label of a series is read. Queries contain no single quote and no
backslash, because they are text in one of Prometheus' queries (`variables.either`): names are
percent-encoded.
"""

from collections.abc import Sequence

from logshipper_grafana.parts import Json, key_names, key_queries, queries, variables
from logshipper_grafana.parts.records import BLANK, DENSE, RECORD_FIELD
from logshipper_ingest.model.job import CLOSED, STARTED, STILL_RUNNING, STILL_RUNNING_SECS
from logshipper_ingest.model.key_reports import VALUE
from logshipper_ingest.model.ranks import MAX_POINTS, RULE_UNIT

SOURCE_PATTERN = '/[{,]v="(?<value>[^|"]*)[|](?<text>[^"]*)"/'
_CLUSTER = "cluster=`${cluster:raw}`"
OF_JOB = " | job_id=`${job:percentencode}`"
OF_JOBS = " | job_id=~`${jobs:pipe}`"
CAPTURE = "job_id, host, attempt, step, task"
RANGE = "[$__range]"
STARTS = f"{STARTED}|{STILL_RUNNING}"  # events with the job's identity and begin
# A running job has reported itself once before the page's time: with the first heartbeat after this
# interval. 30 days are less than Loki's default max_query_length.
LOOK_BACK = f"[{STILL_RUNNING_SECS // 60 + 10}m${{__range_s}}s]"
_NOTHING = "vector(0) unless vector(0)"  # VictoriaMetrics would keep the labels of a comparison
# Prometheus treats the rest, up to a single quote, as an unread text.
_ONLY_TEXT = f"label_replace({_NOTHING}, 'z', '"
_X_NAME, _CHOICE_NAME = (f'(urldecode "${{{name}:percentencode}}")' for name in ("x", "xsel"))


def source(
    known: str = _NOTHING, *, name: str = "source", refresh: int = variables.ON_LOAD
) -> Json:
    """Return the variable with the data source: Prometheus if it knows the jobs, or without another
    source; else Loki.

    known: a query with an answer in the first case; Loki reads it, too, if there is no Prometheus.
    """
    prometheus = f"${{prometheus:raw}}|{_ONLY_TEXT}"
    loki = 'label_replace(vector(0), "v", "${values:raw}| ", "", "")'
    loki_or_prometheus = f'label_replace({loki}, "v", "{prometheus}", "v", "[|] ")'
    knows = f'label_replace({known}, "v", "{prometheus}", "", "")'
    return variables.hidden(
        name,
        "Which data source is asked for keys and nodes: Prometheus, or Loki.",
        f"{knows} or on() {loki_or_prometheus}",
        SOURCE_PATTERN,
        refresh=refresh,
    )


def known_jobs(matchers: str) -> str:
    """Return the number of jobs with these labels at Prometheus, in words that Loki reads, too."""
    infos = f'{{{matchers}, __name__="logshipper_job_info"}}'  # in LogQL a label like others
    return f"count(max by (job_id)(count_over_time({infos}[$__range])))"


# ---- entries


def entries(jobs: str, kind: str, *, every_node: bool = False) -> str:
    nodes = "" if every_node else ", host=~`${nodes:pipe}`"
    return f"{{{_CLUSTER}, kind=~`{kind}`{nodes}}}{jobs}"


def events(jobs: str, names: str, *fields: str, every_node: bool = False) -> str:
    """names: a regular expression; fields: NAME or LABEL=NAME, which become labels."""
    pairs = (field.partition("=") for field in fields)
    labels = "".join(f", {label}=`{name or label}`" for label, _, name in pairs)
    read = entries(jobs, queries.kinds_of(names), every_node=every_node)
    return f"{read} | json lsevent=`event`{labels} | lsevent=~`{names}`"


def keys(jobs: str, *, numbers: str = "") -> str:
    """The reports of keys that a graph may have. numbers: a label for a number of theirs."""
    more = f", lsnumber=`{numbers}`" if numbers else ""
    fields = f"key=`key`, lsrank=`rank`, own_x=`own_x`, constant=`constant`{more}"
    return f"{entries(jobs, VALUE)} | json {fields} | lsrank!=``"


def count(selector: str, by: str, span: str = RANGE) -> str:
    return f"max by ({by})(count_over_time({selector} {span}))"


def where(condition: str) -> str:
    """Keep entries that meet a template's condition."""
    return f" | label_format lsfits=`{{{{if {condition}}}}}yes{{{{end}}}}` | lsfits=`yes`"


def in_choice(variable: str, label: str) -> str:
    """Keep entries whose label is in the variable's choice. For all, Grafana up to 10 gives All,
    and later $__all."""
    chosen = f' | label_format lschosen=`{{{{urldecode "&${{{variable}:queryparam}}&"}}}}`'
    return chosen + where(
        f'or (contains "&var-{variable}=All&" .lschosen) (contains "&var-{variable}=$__all&" .lschosen) '
        f'(contains (print "&var-{variable}=" .{label} "&") .lschosen)'
    )


# ---- nodes, attempts, tasks


def nodes() -> list[Json]:
    """Return the variable `nodes`, the job's nodes, so that no other query reads all nodes, and its
    source `started`.

    `started` is the job's begin, or its report that it still runs, within the page's time or
    shortly before; without it any node may have entries. It reads no heartbeats, which are most
    entries. It is asked once, or each refresh would ask all others again; and it is so plain that
    Loki accepts it for any length of time.
    """
    starts = entries(saying(STARTS) + OF_JOB, "event", every_node=True)
    started = 'label_replace(vector(0), "started", "${started:pipe}", "", "")'
    host = f'label_replace({started}, "host", ".+", "", "")'
    return [
        variables.hidden(
            "started",
            "The nodes where the job began, or said that it still runs, where Loki is asked for keys.",
            _NOTHING,
            variables.label_pattern("host"),
            multi=True,
            refresh=variables.ON_LOAD,
            logql=count(starts, "host", LOOK_BACK),
        ),
        variables.hidden(
            "nodes",
            "The nodes whose events and keys are asked of Loki.",
            f'label_replace({host}, "host", "$1", "started", "(.+)")',
            variables.label_pattern("host"),
            refresh=variables.ON_LOAD,
            datasource={"type": "prometheus", "uid": variables.SOURCE},
        ),
    ]


def saying(names: str) -> str:
    """Leaves lines out before they are parsed. names: a regular expression."""
    return f' |~ `"event":"({names})"`'


def every_event(jobs: str) -> str:
    return entries(jobs, "event", every_node=True)


def hosts() -> str:
    """Return hosts as queries.hosts does."""
    job_hosts = count(events(OF_JOB, f"started|{queries.ACCOUNTS}"), "host")
    job = "label_replace(vector(0), `named`, `${job:percentencode}`, ``, ``)"
    return f"{job_hosts} or on() label_replace({job}, `host`, `.+`, `named`, `.+`)"


def slurm_hosts() -> str:
    """Return the nodes whose agents report Slurm's end of the job."""
    ends = events(saying(queries.JOB_ENDED) + OF_JOB, queries.JOB_ENDED, every_node=True)
    return queries.or_else(count(ends, "host"), "host", "-")


def attempt_choices() -> str:
    """Return attempts as queries.attempt_choices does."""
    starts = events(OF_JOB, STARTS, "started_ns")
    started = f"max by (attempt)(max_over_time({starts} | unwrap started_ns {RANGE}))"
    single = f"label_replace({count(starts, 'attempt')}, `choice`, `$1`, `attempt`, `(.+)`)"
    last = f"label_replace(topk(1, {started}), `choice`, `last`, ``, ``)"
    return _choices(last, single, "last", "attempt")


def task_choices() -> str:
    """Return tasks as queries.task_choices does."""
    tasks = keys(OF_JOB) + queries.ATTEMPTS
    number = f"{tasks} | label_format lstask=`{{{{.task}}}}` | unwrap lstask"
    lowest = f"bottomk(1, max by (task)(max_over_time({number} {RANGE})))"
    lowest = f"label_replace({lowest}, `choice`, `lowest`, ``, ``)"
    single = f"label_replace({count(tasks, 'task')}, `choice`, `$1`, `task`, `(.+)`)"
    return _choices(lowest, single, "lowest", "task")


def _choices(first: str, single: str, name: str, label: str) -> str:
    """Return choices in order, which Loki's series lack: the first one, `all`, the single ones."""
    first_or_any = f"{first} or on(choice) {queries.constant(name, label)}"
    every = queries.constant("all", label, "(vector(0) - 1)")
    return f"sort_desc({first_or_any} or {every} or {single})"


def own_time() -> tuple[str, str]:
    """Return the time as queries.own_time does."""
    starts = events(OF_JOB, f"{STARTS}|{CLOSED}", "started_ns")
    ends = events(OF_JOB, queries.ACCOUNTS, "ended_ns") + (
        f" | label_format lsend=`{queries.END_NS}`"
    )
    begin = f"min(min_over_time({starts} | started_ns!=`` | unwrap started_ns {RANGE}))"
    end = f"max(max_over_time({ends} | unwrap lsend {RANGE}))"
    return f"{begin} / 1e6 - {queries.PAD_MS}", f"{end} / 1e6 + {queries.PAD_MS}"


# ---- X


def x_choices() -> str:
    """`auto`, and each key as `choice`."""
    selector = f"{keys(OF_JOB)} | label_format choice=`{{{{.key}}}}`"
    return f"{count(selector, 'choice')} or on(choice) {queries.constant('auto')}"


def ranks(jobs: str) -> str:
    """Return the worst rank of each possible X over all captures, by the user's choice."""
    fits = (
        f'{{{{$lc := {_CHOICE_NAME}}}}}{{{{if eq $lc "auto"}}}}auto'
        "{{else if eq $lc .key}}yes{{end}}"
    )
    selector = f"{keys(jobs)} | label_format lsfits=`{fits}`"
    selector += f" | lsfits=`yes` or (lsfits=`auto` and lsrank >= {RULE_UNIT})"
    return f"max by (key)(max_over_time({selector} | unwrap lsrank {RANGE}))"


def x_key() -> str:
    """Return X as key_queries.x_key does."""
    key_count = f"count({count(keys(OF_JOB), 'key')})"
    chosen = f"bottomk(1, {ranks(OF_JOB)}) / {RULE_UNIT} and on() ({key_count} > 1)"
    only = f"label_replace(-1 * ({key_count} == 1), `key`, `{RECORD_FIELD}`, ``, ``)"
    return queries.or_else(f"{chosen} or on() {only}", "key", RECORD_FIELD)


# ---- keys to draw

_CHANGING = " | constant!=`true`"  # as key_queries.NO_CONSTANT
_NOT_X = where(f"ne .key {_X_NAME}")
_IN_CHOICE = in_choice("y", "key")
# the parts of keys_to_draw's result besides digits and DENSE
_PICKED = (
    f" | label_format family=`{key_names.family('.key')}`"
    f" | label_format lspicked=`{key_queries.PICKED.format(key='{{.family}}', own_x='{{.own_x}}')}`"
)


def changing_numbers(jobs: str, *labels: str, stages: str = "") -> str:
    """Count the records of each job and node with a number, for keys besides X with different
    numbers.

    labels: `key`, and those that stages set.
    """
    selector = keys(jobs, numbers="count") + _CHANGING + _NOT_X + stages
    by = ", ".join(labels)
    newest = f"last_over_time({selector} | unwrap lsnumber {RANGE}) by ({CAPTURE}, {by})"
    return f"sum by (job_id, host, {by})({newest})"


def _job_numbers(stages: str, *labels: str) -> str:
    return f"max by ({', '.join(labels)})({changing_numbers(OF_JOB, *labels, stages=stages)})"


def drawable_keys() -> str:
    """The keys that may have a graph, as `key`."""
    return f"{_job_numbers('', 'key')} > 1"


def keys_to_draw() -> tuple[str, str]:
    """Return the chosen keys as key_queries.keys_to_draw of key_queries.graphs_and_found does, the
    first ones with key_queries.or_no_graph."""
    counts = _job_numbers(_IN_CHOICE + _PICKED, "key", "family", "lspicked")
    largest = _by_digits(f"max by (family, lspicked)({counts})", _DIGITS)
    worst = f"max by (key)(max_over_time({keys(OF_JOB)} | unwrap lsrank {RANGE}))"
    x_of = _job_numbers(" | own_x!=`` | label_format x=`{{.own_x}}`", "x")
    several = f"{_job_numbers(_IN_CHOICE, 'key')} > 1"
    graphs, found = (
        f"max by (picked)(({largest}) * 0 + on(family) group_left() min by (family)({key_names.with_family(keys)}))"
        for keys in key_queries.graphs_and_found(several, worst, x_of, _series())
    )
    return _or_no_graph(graphs, key_queries.NO_GRAPH), _or_no_graph(found, BLANK)


def _or_no_graph(keys: str, title: str) -> str:
    none = key_queries.PICKED.format(key=title, own_x="") + key_queries.PICKED_END.format(dense="")
    return f"sort({keys} or on() label_replace(vector(0), `picked`, `{none}`, ``, ``))"


def _series() -> str:
    return _job_numbers(f" | {key_queries.OF_SERIES}", "key")


# above how many records, which digits, and whether points hide the line; no more digits, as Loki
# reads the reports again for each
_DIGITS = (
    *((MAX_POINTS * 10 ** (digits - 1), "0" * digits, DENSE) for digits in range(4, 0, -1)),
    (key_queries.MANY_POINTS, "", DENSE),
    (1, "", ""),
)


def _by_digits(series: str, levels: Sequence[tuple[int, str, str]]) -> str:
    """Add `picked` for the first level that the value exceeds."""
    parts = (
        f"label_replace({series} > {above}, `picked`, "
        f"`{digits}$1{key_queries.PICKED_END.format(dense=dense)}`, `lspicked`, `(.*)`)"
        for above, digits, dense in levels
    )
    return " or on(family, lspicked) ".join(parts)


def more_keys_words() -> str:
    """Return words as key_queries.more_keys_words does, without the number."""
    several = f"{_job_numbers(_IN_CHOICE, 'key')} > 1"
    words = f" – the first {key_queries.MAX_GRAPHS} keys: others by Keys, above"
    more = f"label_replace(count({several}) > {key_queries.MAX_GRAPHS}, `words`, `{words}`, ``, ``)"
    return key_queries.with_headings(more, several, _series())


def record_count() -> str:
    """Return the count as key_queries.record_count does."""
    accounts = events(OF_JOB, queries.ACCOUNTS, "records")
    newest = f"last_over_time({accounts} | unwrap records {RANGE}) by ({CAPTURE})"
    return f"max(sum by (host)({newest})) or on() (vector(0) - 1)"
