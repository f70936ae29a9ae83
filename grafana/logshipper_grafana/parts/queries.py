"""Parts of queries about a job, in LogQL for Loki and PromQL for Prometheus. Variables are
Grafana's.

A dashboard's variables hold text for queries: `raw` keeps Grafana from escaping it, `pipe` gives
a|b.
"""

import signal

from logshipper_ingest.model.job import RUNNING, SHIPPED_UNRESPONSIVE_NS, SLURM_STATES, UNRESPONSIVE

# The job's nodes in the selector, so that Loki reads no other node's streams; the id is structured
# metadata.
CLUSTER = 'cluster="${cluster:raw}"'
_HOSTS = "host=~`${host:pipe}`"
_HOSTS_AND_SLURM = "host=~`${host:pipe}|${slurm:pipe}`"
_SHARD = "job_shard=~`|${shard:raw}`"  # of lines; streams without one belong to each job
# typed text: ids stay unchanged, and a backtick would end the query's text
_JOB = " | job_id=`${job:percentencode}`"
_JOB_ID = "job_id=`${job:percentencode}`"  # PromQL's, as OF_ATTEMPT
OF_JOB = f"{CLUSTER}, {_JOB_ID}"
ATTEMPTS = " | attempt=~`${attempts:raw}`"
TASKS = " | task=~`${tasks:raw}`"
OF_ATTEMPT = "attempt=~`${attempts:raw}`"
MAX_ENTRIES = 5000  # of an answer: Loki's default of max_entries_limit_per_query
JOB_ENDED = "job_ended"  # the report of Slurm's controller about a job's end
PAD_MS = 60_000  # around a job: for late entries, and the samples around a short one
LATE = "1d"  # how much later than the page's time a job may have come to Prometheus

STATES = {
    state: rank for rank, state in enumerate((*SLURM_STATES, UNRESPONSIVE, RUNNING))
}  # by how bad
ALIVE = ("UNRESPONSIVE", "RUNNING")
# in templates: the end of the page's time, or now for a future one; a capture's end or last sign of
# life, in nanoseconds since 1970
PAGE_END_SECS = "min (int (unixEpoch now)) (div ${__to} 1000)"
END_NS = "{{if .ended_ns}}{{.ended_ns}}{{else}}{{unixEpochNanos __timestamp__}}{{end}}"
_SILENT_SECS = SHIPPED_UNRESPONSIVE_NS // 10**9


# ---- LogQL


def job_lines(kinds: str, *, streams: str = "", slurm: bool = False) -> str:
    """Return the job's entries on the chosen nodes.

    kinds, streams: regular expressions for `kind` and `stream`; slurm: includes reports of Slurm's
    controller, whose agent has another host.
    """
    stream = f", stream=~`{streams}`" if streams else ""
    kind = f'kind="{kinds}"' if kinds.isalpha() else f"kind=~`{kinds}`"
    shard = f", {_SHARD}" if "log" in kinds.split("|") else ""
    return f"{{{CLUSTER}, {_HOSTS_AND_SLURM if slurm else _HOSTS}, {kind}{stream}{shard}}}{_JOB}"


def any_event() -> str:
    """An event of the chosen nodes, of any job: for queries that must have an answer."""
    return f'{{{CLUSTER}, host=~`${{host:pipe}}`, kind="event"}}'


def job_records() -> str:
    """The metadata records of the chosen attempt and task."""
    return job_lines("metadata") + ATTEMPTS + TASKS


def kinds_of(names: str) -> str:
    """A regular expression for the kinds of the entries that have events of these names."""
    return "event|heartbeat" if "heartbeat" in names.split("|") else "event"


def job_events(names: str, *fields: str, attempts: str = "") -> str:
    """The job's events of these names (a regular expression), with fields of theirs as labels:
    NAME, or LABEL=PATH. attempts: ATTEMPTS for the chosen ones."""
    pairs = (field.partition("=") for field in ("event", *fields))
    expressions = ", ".join(f'{label}="{path or label}"' for label, _, path in pairs)
    lines = job_lines(kinds_of(names), slurm=JOB_ENDED in names)
    return f"{lines}{attempts} | json {expressions} | event=~`^({names})$`"


CAPTURE = ("host", "attempt", "step", "task")  # the labels of one of a job's captures
DROPS = (
    "lines_lost|lines_left_out|segment_damaged|record_left_out|events_left_out|user_events_left_out"
    "|measurements_left_out|records_lost"
)
HEARTBEATS = {
    "heartbeat_lost": "UNRESPONSIVE",
    "heartbeat_found": "RUNNING",
}  # reports of a node's agent about a capture
ACCOUNTS = "heartbeat|ended|closed"  # the events that show how a capture does


def newest(value: str, names: str, *fields: str, attempts: str = ATTEMPTS) -> str:
    """Return the newest event's value of each capture. value: its unwrap expression; events without
    one are dropped."""
    return newest_of(job_events(names, *fields, attempts=attempts), value)


def newest_of(events: str, value: str, by: str = "host, attempt, step, task") -> str:
    """Return the same for any events."""
    return f'last_over_time({events}{value} | __error__="" [$__range]) by ({by})'


def state_rank() -> str:
    """Unwraps the state that an event says, as a number, as in STATES; its field `state` is a
    label."""
    silent = f"gt (sub ({PAGE_END_SECS}) (int (unixEpoch __timestamp__))) {_SILENT_SECS}"
    ranks = "".join(
        f'{{{{else if eq .state "{state}"}}}}{rank}'
        for state, rank in STATES.items()
        if state not in ALIVE
    )
    alive = f"{{{{if {silent}}}}}{STATES['UNRESPONSIVE']}{{{{else}}}}{STATES['RUNNING']}{{{{end}}}}"
    words = "".join(
        f'{{{{else if eq .event "{event}"}}}}{STATES[state]}' for event, state in HEARTBEATS.items()
    )
    template = f'{{{{if eq .event "heartbeat"}}}}{alive}{words}{ranks}{{{{else}}}}{STATES["FAILED"]}{{{{end}}}}'
    return f" | label_format lsstate=`{template}` | unwrap lsstate"


STATE_EVENTS = "|".join((ACCOUNTS, *HEARTBEATS))


def newest_state() -> str:
    """Return the chosen attempt's state as a number of STATES: Slurm's end, else RUNNING while one
    capture runs at the end of the page's time, then the worst end."""
    by_slurm = newest(f' | state!=""{state_rank()}', JOB_ENDED, "state")
    return f"max({by_slurm}) or max({newest(state_rank(), STATE_EVENTS, 'state')})"


SIGNALS = {int(number): number.name for number in signal.Signals}
NOT_ENDED = "not yet"
# one of four cells of a bar, so that percentage, rate and remaining time are visible
SHORTER_BARS = "".join(f' | replace "{cell * 4}" "{cell}"' for cell in "█━─╸#=-. ")


def end_words() -> str:
    """Return the chosen attempt's end in words as the label `end`: the worst signal or exit code,
    with its reason.

    NOT_ENDED without an end, no series without a known capture.
    """
    names = "".join(
        f'{{{{else if eq .signal "{number}"}}}}{name}' for number, name in SIGNALS.items()
    )
    words = (
        f'{{{{if eq .signal ""}}}}{names}{{{{else if ne .signal "0"}}}}signal {{{{.signal}}}}'
        "{{else if .exit_code}}exit code {{.exit_code}}{{else}}no exit code{{end}}"
        "{{if .reason}}: {{.reason}}{{end}}"
    )
    rank = (
        '{{if and .signal (ne .signal "0")}}1000{{else if .exit_code}}{{.exit_code}}'
        "{{else}}999{{end}}"
    )
    ended = job_events("ended|closed", "exit_code", "signal", "reason", attempts=ATTEMPTS)
    ended += f" | label_format end=`{words}`, lsrank=`{rank}` | unwrap lsrank | __error__=``"
    ends = f"max by (end)(last_over_time({ended} [$__range]) by (host, attempt, step, task, end))"
    seen = job_events(f"started|{ACCOUNTS}", attempts=ATTEMPTS)
    seen = f"sum(count_over_time({seen} [$__range])) * 0 - 1"
    return f'topk(1, {ends} or label_replace({seen}, "end", "{NOT_ENDED}", "", ""))'


def records_with_gaps() -> str:
    """Count records of the chosen attempt and task with NaN or an infinity, which no graph draws;
    similar texts do not count."""
    text = r'{{$lr := regexReplaceAll "\"(?:[^\"\\\\]|\\\\.)*\"" __line__ ""}}'
    found = '{{if or (contains "NaN" $lr) (contains "Infinity" $lr)}}yes{{end}}'
    records = (
        f"{job_records()} |~ `NaN|Infinity` | label_format lsgap=`{text}{found}` | lsgap=`yes`"
    )
    return f"sum(count_over_time({records} [$__range]))"


def duration() -> str:
    """Seconds from the first start to the last sign of life, or the end."""
    unwrapped = f" | label_format lsat=`{END_NS}` | unwrap lsat"
    last = f"max({newest(unwrapped, ACCOUNTS, 'ended_ns')})"
    return f"({last} - min({newest(' | unwrap started_ns', 'started', 'started_ns')})) / 1e9"


def name_words() -> str:
    """Return the job's name and its user as the label `who`."""
    started = job_events("started|still_running", "name", "user", "started_ns", attempts=ATTEMPTS)
    who = "{{or .name .job_id}}{{if .user}} – {{.user}}{{end}}"
    started += f" | label_format who=`{who}` | unwrap started_ns | __error__=``"
    return f"topk(1, max by (who)(last_over_time({started} [$__range]) by (host, who)))"


def limit_words() -> str:
    """Return the chosen attempt's time limit as the label `limit`: `of 2 h`; no series if unknown."""
    parts = (("div $ls 86400", "d"), ("mod (div $ls 3600) 24", "h"), ("mod (div $ls 60) 60", "min"),
             ("mod $ls 60", "s"))  # fmt: skip
    words = "".join(f"{{{{with {part}}}}} {{{{.}}}} {unit}{{{{end}}}}" for part, unit in parts)
    started = job_events("started", "limit_secs", attempts=ATTEMPTS) + ' | limit_secs!=""'
    started += (
        f" | label_format limit=`{{{{$ls := int .limit_secs}}}}of{words}` | unwrap limit_secs"
    )
    newest_limits = f'last_over_time({started} | __error__="" [$__range])'
    return f"topk(1, max by (limit)({newest_limits} by (host, attempt, step, task, limit)))"


# ---- PromQL


def over_range(function: str, selector: str) -> str:
    """The function over the page's time, or, of a job that was shipped late, over the day after
    it."""
    return f"({function}({selector}[$__range]) or {function}({selector}[{LATE}] offset -{LATE}))"


def seen(series: str) -> str:
    """Return the last values of the page's time, or of the following day, for jobs shipped late.

    All points of a graph have the same, at the cost of one.
    """
    return f"(last_over_time({series}[$__range] @ end()) or last_over_time({series}[{LATE}] @ end() offset -{LATE}))"


def job_metric(name: str, *matchers: str) -> str:
    return f"{name}{{{', '.join((CLUSTER, _JOB_ID, *matchers))}}}"


def job_max(name: str, *matchers: str) -> str:
    return over_range("max_over_time", job_metric(name, *matchers))


def attempt_choices() -> str:
    """`last`, `all` and each attempt as `choice`, with a regular expression for it as `attempt`."""
    started = job_max("logshipper_job_start_time_seconds")
    last = f'label_replace(topk(1, max by(attempt)({started})), "choice", "last", "", "")'
    single_attempts = (
        f'label_replace(group by(attempt)({started}), "choice", "$1", "attempt", "(.+)")'
    )
    never = f"on(choice) {constant('last', 'attempt')}"  # the choice must stay if Prometheus knows nothing
    return f"{last} or {never} or {constant('all', 'attempt')} or {single_attempts}"


def task_choices() -> str:
    """Return `lowest`, `all` and each task with numbers as `choice`, with its regular expression as
    `task`.

    A histogram finds the lowest number among labels: with equal buckets, its quantile is the lowest
    bound.
    """
    tasks = f"group by(task)({job_max('logshipper_metadata_value', OF_ATTEMPT)})"
    bounds = (
        f'max by(le)(label_replace({tasks}, "le", "$1", "task", "(.+)") '
        'or label_replace(vector(1), "le", "+Inf", "", ""))'
    )
    lowest = f'count_values("task", histogram_quantile(1, {bounds}) and on() {tasks})'
    single_tasks = f'label_replace({tasks}, "choice", "$1", "task", "(.+)")'
    lowest = f'label_replace({lowest}, "choice", "lowest", "", "")'
    return f"{lowest} or on(choice) {constant('lowest', 'task')} or {constant('all', 'task')} or {single_tasks}"


def constant(choice: str, label: str = "", value: str = "vector(0)") -> str:
    """Return a series with this choice; label: its wildcard; value: a series without labels. Loki
    reads it, too."""
    series = f'label_replace({value}, "choice", "{choice}", "", "")'
    return f'label_replace({series}, "{label}", ".*", "", "")' if label else series


def choice_or_everything(choices: str, choice: str, label: str) -> str:
    """Return the choice of a variable; a wildcard if nothing is known. Loki reads it, too."""
    return or_else(f"({choices}) and on(choice) {constant(choice)}", label, ".*")


def hosts() -> str:
    """The job's nodes; all nodes where Prometheus has forgotten the job, none where no job is
    named."""
    job_hosts = f"group by(host)({job_max('logshipper_job_info')})"
    job = 'label_replace(vector(0), "named", `${job:percentencode}`, "", "")'
    return f'{job_hosts} or on() label_replace({job}, "host", ".+", "named", ".+")'


def shard() -> str:
    """The label of the job's lines that tells them from most other jobs'
    (logshipper_ingest.model.job.job_shard)."""
    job = 'label_replace(label_replace(vector(0), "job_id", `${job:percentencode}`, "", ""), "shard", "x", "", "")'
    return f'label_replace({job}, "shard", "$1", "job_id", ".*([0-9])")'


def search_with_backtick() -> str:
    """Handle a backtick in `search`, which would end a text of LogQL.

    Returns, as `stage`, a stage that searches for the decoded text, and comments out the rest of
    its line. Other searches get no series: a regular expression is several times as fast for them.
    """
    words = 'label_replace(vector(0), "words", "${search:percentencode}", "", "")'
    contains = r"contains (ToLower (urldecode \"$1\")) (ToLower __line__)"
    stage = f" | label_format lsfound=`{{{{{contains}}}}}` | lsfound=`true` | drop lsfound #"
    return f'label_replace({words}, "stage", "{stage}", "words", "(.*%60.*)")'


# the words of `search`, after a stage of search_with_backtick on its own line
SEARCH = "${backtick:raw} |~ `(?i)${search:regex}`\n"
SEARCH_STAGE = '/[{,]stage="(?<value>.*)",words="/'


def slurm_hosts() -> str:
    """Return the nodes whose agents report Slurm's ends; without any `-`, which no host is called."""
    records = 'logshipper_agent_slurm_records_total{outcome="taken"}'
    record_counts = f"(sum by(instance, job)({over_range('max_over_time', records)}) > 0)"
    agents = over_range("max_over_time", f"logshipper_agent_build_info{{{CLUSTER}}}")
    return or_else(
        f"group by(host)({record_counts} * on(instance, job) group_left(host) {agents})",
        "host",
        "-",
    )


def or_else(series: str, label: str, value: str) -> str:
    """Return the series, or a value of the label without them."""
    return f'{series} or on() label_replace(vector(0), "{label}", "{value}", "", "")'


def own_time() -> tuple[str, str]:
    """Return the job's begin and end, or last sign of life, in ms since 1970, with a margin."""
    starts = over_range("min_over_time", job_metric("logshipper_job_start_time_seconds"))
    signs = job_max("logshipper_job_heartbeat_time_seconds")
    return f"min({starts}) * 1000 - {PAD_MS}", f"max({signs}) * 1000 + {PAD_MS}"
