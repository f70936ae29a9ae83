"""Queries to Loki that replace Prometheus' for several jobs; see loki_metrics."""

from logshipper_grafana.parts import key_queries, queries
from logshipper_grafana.parts.loki_metrics import (
    OF_JOBS,
    STARTS,
    changing_numbers,
    count,
    events,
    every_event,
    keys,
    ranks,
)
from logshipper_grafana.parts.records import DENSE, RECORD_FIELD
from logshipper_ingest.model.job import CLOSED
from logshipper_ingest.model.ranks import RULE_UNIT

# of a job's name: fit for a query
_SAFE = "[0-9A-Za-zÀ-￿ _.:/+@,-]+"


MAX_JOBS = 20  # with a known number: Loki counts more


def job_count() -> str:
    """Return the number of chosen jobs, in words for Prometheus and Loki."""
    ids = 'label_replace(vector({}), "ids", "${{jobs:pipe}}", "", "")'
    counts = " or ".join(
        f'label_replace({ids.format(count)}, "fits", "yes", "ids", "[^|]*(?:[|][^|]*){{{count - 1}}}")'
        for count in range(1, MAX_JOBS + 1)
    )
    return f'max(({counts}) and on(fits) label_replace(vector(0), "fits", "yes", "", ""))'


def jobs() -> str:
    """Return, as `title`, the chosen users' jobs in the page's time: names, ids and users. Reads
    all nodes' events."""
    starts = events(" | user=~`${user:pipe}`", f"{STARTS}|{CLOSED}", "name", every_node=True)
    title = " | label_format title=`{{.name}} · {{.job_id}} · {{.user}}`"
    return count(starts + title, "title")


def hosts() -> str:
    """The nodes that the chosen jobs ran on."""
    return count(every_event(OF_JOBS), "host")


def ids() -> str:
    return count(every_event(OF_JOBS), "job_id")


def names() -> str:
    """Return, as `called`, ID=NAME for names that fit into queries, else ID=ID."""
    is_safe = f'eq (regexReplaceAll "^{_SAFE}$" .name "") ""'
    called = f"{{{{.job_id}}}}={{{{if and .name ({is_safe})}}}}{{{{.name}}}}{{{{else}}}}{{{{.job_id}}}}{{{{end}}}}"
    starts = events(OF_JOBS, f"{STARTS}|{CLOSED}", "name")
    return count(f"{starts} | label_format called=`{called}`", "called")


# ---- X


def _shared_keys() -> str:
    """Keys that all jobs have which have two: a job with one has nothing to draw over X."""
    of_jobs = count(keys(OF_JOBS), "job_id, key")
    with_two = f"count by (job_id)({of_jobs}) > 1"
    shared = f"count by (key)({of_jobs} and on(job_id) ({with_two}))"
    return f"({shared} == on() group_left() count({with_two}))"


def x_choices() -> str:
    """`auto`, and as `choice` each key that the jobs share."""
    shared = f"label_replace({_shared_keys()}, `choice`, `$1`, `key`, `(.+)`)"
    return f"max by (choice)({shared}) or on(choice) {queries.constant('auto')}"


def x_key() -> str:
    """The key that is X, as key_queries.x_key, else RECORD_FIELD with 0."""
    return queries.or_else(
        f"bottomk(1, {ranks(OF_JOBS)} and on(key) {_shared_keys()}) / {RULE_UNIT}",
        "key",
        RECORD_FIELD,
    )


# ---- keys to draw


def _ratios(*labels: str) -> str:
    """Return the number of answers for a key's records of all jobs, besides the first hundred of
    each capture."""
    captures = count(keys(OF_JOBS), "job_id, attempt, step, task")
    first = f"{key_queries.FIRST_RECORDS} * count({captures})"
    room = f"({queries.MAX_ENTRIES} - {first} > {key_queries.FIRST_RECORDS})"
    room = f"({room} or on() vector({key_queries.FIRST_RECORDS}))"
    of_jobs = (
        f"max by (job_id, host, {', '.join(labels)})({changing_numbers(OF_JOBS, *labels)} > 1)"
    )
    return f"sum by ({', '.join(labels)})({of_jobs}) / on() group_left() {room}"


def keys_to_draw() -> str:
    """Return `picked` as key_queries.keys_to_draw does, without a key's own X."""
    end = key_queries.PICKED_END.format(dense=DENSE)
    start = key_queries.PICKED.format(key="$1", own_x="")
    parts = [
        f"label_replace({_ratios('key')} > {10 ** (digits - 1)}, `picked`, `{'0' * digits}{start}{end}`, `key`, `(.*)`)"
        for digits in range(key_queries.MAX_DIGITS, 0, -1)
    ]
    numbers = f"max by (key)({changing_numbers(OF_JOBS, 'key')})"
    for above, dense in ((key_queries.MANY_POINTS, DENSE), (1, "")):
        end = key_queries.PICKED_END.format(dense=dense)
        parts.append(f"label_replace({numbers} > {above}, `picked`, `{start}{end}`, `key`, `(.*)`)")
    return f"max by (picked)({' or on(key) '.join(parts)})"


def thinning_words() -> str:
    """Return words as key_queries.thinning_words does."""
    most = f"max({_ratios('key')})"
    parts = [
        f"label_replace({most} > {10 ** (digits - 1)}, `words`, `{key_queries.one_of(digits, 'at least ')}`, ``, ``)"
        for digits in range(key_queries.MAX_DIGITS, 0, -1)
    ]
    parts.append(f"label_replace({most}, `words`, ` `, ``, ``)")
    return queries.or_else(" or on() ".join(parts), "words", key_queries.NEWEST_ONLY)
