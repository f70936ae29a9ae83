"""Parts of queries about a job, in LogQL for Loki and PromQL for Prometheus. Variables are
Grafana's.

A dashboard's variables hold text for queries: `raw` keeps Grafana from escaping it, `pipe` gives
a|b.
"""

import signal

from logshipper_grafana.parts.records import DENSE, RECORD_FIELD
from logshipper_ingest.model.job import RUNNING, SHIPPED_UNRESPONSIVE_NS, SLURM_STATES, UNRESPONSIVE
from logshipper_ingest.model.ranks import MAX_POINTS, RULE_UNIT

# The job's nodes in the selector, so that Loki reads no other node's streams; the id is structured
# metadata.
_CLUSTER = 'cluster="${cluster:raw}"'
_HOSTS = "host=~`${host:pipe}`"
_HOSTS_AND_SLURM = "host=~`${host:pipe}|${slurm:pipe}`"
_SHARD = "job_shard=~`|${shard:raw}`"  # of lines; streams without one belong to each job
# typed text: ids stay unchanged, and a backtick would end the query's text
_JOB = " | job_id=`${job:percentencode}`"
_JOB_ID = "job_id=`${job:percentencode}`"  # PromQL's, as OF_ATTEMPT
OF_JOB = f"{_CLUSTER}, {_JOB_ID}"
ATTEMPTS = " | attempt=~`${attempts:raw}`"
TASKS = " | task=~`${tasks:raw}`"
OF_ATTEMPT = "attempt=~`${attempts:raw}`"
MAX_ENTRIES = 5000  # of an answer: Loki's default of max_entries_limit_per_query
FIRST_RECORDS = 99  # of each set of keys, kept by `thinned`
MAX_GRAPHS = 24  # of a page: browsers draw more too slowly
MAX_DIGITS = 6  # of a number for thinning: 4.5 billion records
JOB_ENDED = "job_ended"  # the report of Slurm's controller about a job's end
SLURM_END = "logshipper_job_slurm_end_time_seconds"  # the same in Prometheus
PAD_MS = 60_000  # around a job: for late entries, and the samples around a short one
LATE = "1d"  # how much later than the page's time a job may have come to Prometheus

STATES = {
    state: rank for rank, state in enumerate((*SLURM_STATES, UNRESPONSIVE, RUNNING))
}  # by how bad
_ALIVE = ("UNRESPONSIVE", "RUNNING")
# in templates: the end of the page's time, or now for a future one; a capture's end or last sign of
# life, in nanoseconds since 1970
PAGE_END_SECS = "min (int (unixEpoch now)) (div ${__to} 1000)"
END_NS = "{{if .ended_ns}}{{.ended_ns}}{{else}}{{unixEpochNanos __timestamp__}}{{end}}"
_SILENT_SECS = SHIPPED_UNRESPONSIVE_NS // 10**9
_VANISHED_SECS = 120  # since a capture's last sign of life, as scraped each minute
_PLACE = "cluster, job_id, attempt, step, task"


# ---- LogQL


def job_lines(kinds: str, *, streams: str = "", slurm: bool = False) -> str:
    """Return the job's entries on the chosen nodes.

    kinds, streams: regular expressions for `kind` and `stream`; slurm: includes reports of Slurm's
    controller, whose agent has another host.
    """
    stream = f", stream=~`{streams}`" if streams else ""
    kind = f'kind="{kinds}"' if kinds.isalpha() else f"kind=~`{kinds}`"
    shard = f", {_SHARD}" if "log" in kinds.split("|") else ""
    return f"{{{_CLUSTER}, {_HOSTS_AND_SLURM if slurm else _HOSTS}, {kind}{stream}{shard}}}{_JOB}"


def any_event(nodes: str) -> str:
    """An event of the nodes that a variable has, whichever job it is of: for queries that must have
    an answer."""
    return f'{{{_CLUSTER}, host=~`${{{nodes}:pipe}}`, kind="event"}}'


def job_records() -> str:
    """The metadata records of the chosen attempt and task."""
    return job_lines("metadata") + ATTEMPTS + TASKS


def thinned(digits: str) -> str:
    """Keep records whose number ends in the digits, and the first hundred of each set of keys."""
    return f' | n=~"[0-9]{{1,2}}|[0-9]*{digits}"'


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
        if state not in _ALIVE
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


_SIGNALS = {int(number): number.name for number in signal.Signals}
# numbers of ends_by_number that stand for a signal
SIGNALLED = 1000
SIGNAL_WORDS = {
    SIGNALLED + number: _SIGNALS.get(number, f"signal {number}") for number in range(1, 65)
}
NOT_ENDED = "not yet"
# one of four cells of a bar, so that percentage, rate and remaining time are visible
SHORTER_BARS = "".join(f' | replace "{cell * 4}" "{cell}"' for cell in "█━─╸#=-. ")


def end_words() -> str:
    """Return the chosen attempt's end in words as the label `end`: the worst signal or exit code,
    with its reason.

    NOT_ENDED without an end, no series without a known capture.
    """
    names = "".join(
        f'{{{{else if eq .signal "{number}"}}}}{name}' for number, name in _SIGNALS.items()
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


def run_starts(matchers: str) -> str:
    """Return the start of each run of a job: an attempt, by its first capture."""
    return f"min by(job_id, attempt)({seen(f'logshipper_job_start_time_seconds{{{matchers}}}')})"


def run_ends(matchers: str) -> str:
    """Return the end of each run of a job: an attempt without running or vanished captures."""
    ends = seen(f"logshipper_job_end_time_seconds{{{matchers}}}")
    starts = seen(f"logshipper_job_start_time_seconds{{{matchers}}}")
    open_captures = f"{starts} unless on(job_id, attempt, step, task) {ends}"
    return f"(max by(job_id, attempt)({ends}) unless on(job_id, attempt) ({open_captures}))"


def run_states(matchers: str) -> str:
    """Return the end of each run, with `state`: Slurm's by the controller's agent, else the worst
    of its captures."""
    by_slurm = f"max by(job_id, attempt, state)({seen(f'{SLURM_END}{{{matchers}}}')})"
    ranks = " or ".join(
        seen(f'logshipper_job_state{{{matchers}, state="{state}"}}') + f" * {rank}"
        for state, rank in STATES.items()
        if state not in _ALIVE
    )
    by_capture = f"max by(job_id, attempt, state)({ranks})"
    states = f"topk by(job_id, attempt)(1, {by_slurm}) or on(job_id, attempt) topk by(job_id, attempt)(1, {by_capture})"
    return f"(0 * ({states}) + on(job_id, attempt) group_left() {run_ends(matchers)})"


def of_last_run(runs: str, matchers: str) -> str:
    """Return the job's newest runs."""
    return f"({runs} and on(job_id, attempt) topk by(job_id)(1, {run_starts(matchers)}))"


def in_page(times: str) -> str:
    """Those of the times that lie within the page's."""
    return f"(({times}) >= ${{__from}} / 1000 <= ${{__to}} / 1000)"


def in_interval(times: str) -> str:
    """Those of the times that lie within the interval that begins at a graph's point."""
    return f"(({times}) >= time() < time() + $__interval_ms / 1000)"


def job_metric(name: str, *matchers: str) -> str:
    return f"{name}{{{', '.join((_CLUSTER, _JOB_ID, *matchers))}}}"


def job_max(name: str, *matchers: str) -> str:
    return over_range("max_over_time", job_metric(name, *matchers))


def span() -> str:
    """Return `begin` and `end` of the chosen attempt, in seconds since 1970.

    The end is +Inf during the run, and its last sign of life without a reported end. Nothing lies
    between them if Prometheus does not know the job.
    """
    matchers = f"{_CLUSTER}, {_JOB_ID}, {OF_ATTEMPT}"
    starts = run_starts(matchers)
    signs = seen(f"logshipper_job_heartbeat_time_seconds{{{matchers}}}")
    silent = f"max by(job_id, attempt)({signs}) < time() - {_VANISHED_SECS}"
    ends = " or on(job_id, attempt) ".join((run_ends(matchers), silent, f"{starts} + Inf"))
    begin, end = f'count_values("begin", min({starts}))', f'count_values("end", max({ends}))'
    never = 'label_replace(label_replace(vector(0), "begin", "Inf", "", ""), "end", "0", "", "")'
    return f"{begin} * on() group_left(end) {end} or on() {never}"


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


def x_choices() -> str:
    """`auto`, and each key as `choice`."""
    ranks = job_max("logshipper_x_rank")
    return f"group by(choice)({ranks}) or on(choice) {constant('auto')}"


def x_key(choice: str) -> str:
    """Return the key of X, with its rule and a fraction.

    RECORD_FIELD replaces it: -1 for a job with a single key, which would have nothing to draw, 0
    without a known key.
    """
    count = f"count(group by(key)({job_max('logshipper_key')}))"
    ranks = job_max("logshipper_x_rank", f'choice="{choice}"')
    ranks = f"bottomk(1, max by(key)({ranks})) / {RULE_UNIT}"
    only = f'label_replace(-1 * ({count} == 1), "key", "{RECORD_FIELD}", "", "")'
    return or_else(f"{ranks} and on() ({count} > 1) or on() {only}", "key", RECORD_FIELD)


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
    agents = over_range("max_over_time", f"logshipper_agent_build_info{{{_CLUSTER}}}")
    return or_else(
        f"group by(host)({record_counts} * on(instance, job) group_left(host) {agents})",
        "host",
        "-",
    )


def or_else(series: str, label: str, value: str) -> str:
    """Return the series, or a value of the label without them."""
    return f'{series} or on() label_replace(vector(0), "{label}", "{value}", "", "")'


# The rules in words (model.x_axis), by a rank's rule; RULE_BY_HAND for a user's choice.
RULES = {
    1: "the key progress",
    2: "the key epoch",
    3: "integers that never fall",
    4: "numbers that never fall",
    5: "integers that only rise or only fall",
    6: "numbers that only rise or only fall",
    7: "the first key with numbers",
}
RULE_BY_HAND = "chosen by hand"
NO_RULE = "no key with numbers is known"
NO_SHARED_KEY = "no key with numbers is shared"
ONLY_KEY = "only one key has numbers"


def rule_words(*, otherwise: str = NO_RULE) -> str:
    """Return the rule as the label `words`, from the variables `xsel` and `x`, whose text is the
    integer part of x_key.

    otherwise: the words without a key. Loki reads it, too.
    """
    series = 'label_replace(vector(0), "rule", "${xsel:raw}/${x:text}/${x:raw}", "", "")'
    words = {".*": RULE_BY_HAND, "auto/.*": otherwise}
    words |= {f"auto/{rule}/.*": phrase for rule, phrase in RULES.items()}
    words |= {f".*/0/{RECORD_FIELD}": otherwise, f".*/-1/{RECORD_FIELD}": ONLY_KEY}
    for pattern, phrase in words.items():
        series = f'label_replace({series}, "words", "{phrase}", "rule", "{pattern}")'
    return series


def record_count() -> str:
    """Return the job's number of records on the node with the most; -1 for an unknown job."""
    known = f"0 * group({job_max('logshipper_job_info')})"
    return f"max({job_max('logshipper_records')}) or on() {known} or on() (vector(0) - 1)"


_COUNT = "(${record_count:raw} * vector(1))"  # of record_count


def thinning() -> str:
    """The digits to thin by, as `dec`, of the variable record_count. Loki reads it, too."""
    return " or on() ".join(
        _if_more_records(MAX_POINTS * 10 ** (digits - 1), "dec", "0" * digits)
        for digits in range(MAX_DIGITS, 0, -1)
    )


def count_words() -> str:
    """Return the omission of `thinning`, as `thinning_words` does. Loki reads it, too."""
    words = [
        _if_more_records(MAX_POINTS * 10 ** (digits - 1), "words", one_of(digits))
        for digits in range(MAX_DIGITS, 0, -1)
    ]
    any_records = _if_more_records(-1, "words", " ")
    return or_else(" or on() ".join([*words, any_records]), "words", NEWEST_ONLY)


def _if_more_records(number: int, label: str, value: str) -> str:
    """Return a value if there are more records.

    An empty comparison is a series for VictoriaMetrics' `or`, which fills its gaps from the other
    side: `and` makes it empty.
    """
    return f'label_replace({_COUNT} > {number} and on() vector(0), "{label}", "{value}", "", "")'


def one_of(digits: int, at_least: str = "") -> str:
    return f", {at_least}1 of {10**digits:,} records"


NEWEST_ONLY = f", the newest {MAX_ENTRIES:,} records"


def thinning_together(counts: str, captures: str, *, by: str = "") -> str:
    """Return the digits for thinning, as `dec`, so that the rest of several jobs fits into one
    answer, besides the first hundred of each capture.

    The most of all keys, or by key. counts: series of logshipper_key; captures: of
    logshipper_metadata_value.
    """
    first = f"{FIRST_RECORDS} * scalar(count(group by(job_id, attempt, step, task)({captures})))"
    room = f"clamp_min(vector({MAX_ENTRIES} - {first}), {FIRST_RECORDS})"
    ratios = f"sum by(key)(max by(key, job_id, instance, job)({counts})) / on() group_left {room}"
    digits = f"clamp_min(ceil(log10({ratios if by else f'max({ratios})'})), 0)"
    series = f'count_values{f" by({by})" if by else ""}("digits", {digits})'
    for number in range(1, MAX_DIGITS + 1):
        series = f'label_replace({series}, "dec", "{"0" * number}", "digits", "{number}")'
    return series


def thinning_words(metric: str) -> str:
    """Return the least omission as the label `words`, for the end of a title: ", 1 of 10 records"
    and so on; a blank without one.

    metric: series with `dec`.
    """
    words = f'label_replace(topk(1, max by(dec)({metric})), "words", " ", "", "")'
    for digits in range(1, MAX_DIGITS + 1):
        phrase = one_of(digits, "at least ")
        words = f'label_replace({words}, "words", "{phrase}", "dec", "{"0" * digits}")'
    return or_else(f"group by(words)({words})", "words", NEWEST_ONLY)


# `${y:raw}` in a query holds the digits that thin a key's graph, the end of that filter, a filter
# that always holds and names the key, a label for the key's own X, and one with DENSE for many
# points. One variable repeats the panels, and each key has its own digits and X.
NO_GRAPH = "No key has two numbers yet: print them as JSON objects, one in a line"
NO_CONSTANT = "constant!=`true`"  # of logshipper_key: equal numbers are no graph
OWN_X = "lsown"
DENSE_MARK = "lsdense"
PICKED = f'", lskey!="{{key}}" | label_format {OWN_X}="{{own_x}}'
PICKED_END = f'", {DENSE_MARK}="{{dense}}'
PICKED_PATTERN = (
    f'/[{{,]picked="(?<value>0*", lskey!="(?<text>[^"]*)"[^"]*"[^"]*", {DENSE_MARK}="[^"]*)"/'
)
DENSE_SERIES = f"{{{{$ls = print $ls .{DENSE_MARK}}}}}"  # for a template that has names in $ls
MANY_POINTS = 60  # of a graph: more of them hide its line


def keys_to_draw(metric: str, *, counts: str = "") -> str:
    """Return keys as `picked`: digits, PICKED and PICKED_END.

    metric: logshipper_key's series, whose largest is the newest, or others with `key` and `dec`;
    counts: logshipper_key's then.
    """
    largest = f"topk by(key)(1, max by(dec, key, x)({metric}))"
    many = f"{largest} and on(key) max by(key)({counts or metric}) > {MANY_POINTS}"
    dense = f'label_replace({many}, "lsdense", "{DENSE}", "", "")'
    keys = f"{dense} or on(key) {largest}"
    before_key, after_key, _ = PICKED.replace("{own_x}", "{key}").split("{key}")
    before_dense, _ = PICKED_END.split("{dense}")
    for label, text in (
        ("lsfilter", before_key),
        ("lslabel", after_key),
        ("lsmark", before_dense),
    ):
        keys = f'label_replace({keys}, "{label}", \'{text}\', "", "")'
    parts = ("dec", "lsfilter", "key", "lslabel", "x", "lsmark", "lsdense")
    joined = ", ".join(f'"{part}"' for part in parts)
    return f'max by(picked)(label_join({keys}, "picked", "", {joined}))'


def first_by_name(series: str, ranks: str) -> str:
    """Return series of the first MAX_GRAPHS keys. ranks: of logshipper_x_rank, whose remainder is a
    key's place in the alphabet."""
    places = f"max by(key)({ranks})"
    return (
        f"({series}) and on(key) bottomk({MAX_GRAPHS}, {places} % {RULE_UNIT} and on(key) {series})"
    )


def or_no_graph(keys: str) -> str:
    """Return `keys_to_draw`, or NO_GRAPH as the title of a panel."""
    none = PICKED.format(key=NO_GRAPH, own_x="") + PICKED_END.format(dense="")
    return f'{keys} or on() label_replace(vector(0), "picked", \'{none}\', "", "")'


def more_keys_words(series: str) -> str:
    """Return the number of keys beyond MAX_GRAPHS as the label `words`; else one blank."""
    count = f"count(group by(key)({series})) > {MAX_GRAPHS}"
    words = f" – the first {MAX_GRAPHS} of $1 keys, by name: others by Keys, above"
    words = f'label_replace(count_values("count", {count}), "words", "{words}", "count", "(.+)")'
    return or_else(words, "words", " ")


def own_time() -> tuple[str, str]:
    """Return the job's begin and end, or last sign of life, in ms since 1970, with a margin."""
    starts = over_range("min_over_time", job_metric("logshipper_job_start_time_seconds"))
    signs = job_max("logshipper_job_heartbeat_time_seconds")
    return f"min({starts}) * 1000 - {PAD_MS}", f"max({signs}) * 1000 + {PAD_MS}"


def start_of_newest_attempt(matchers: str) -> str:
    """Return the start of each job's newest attempt, with `attempt`."""
    started = f"last_over_time(logshipper_job_start_time_seconds{{{matchers}}}[$__range])"
    return f"topk by(job_id)(1, max by(job_id, attempt)({started}))"


def of_newest_attempt(series: str, matchers: str) -> str:
    return f"({series}) and on(job_id, attempt) {start_of_newest_attempt(matchers)}"


def ends_by_number(matchers: str) -> str:
    """Return the end of each job's newest attempt as one number: an exit code, or a signal and
    SIGNALLED; the worst of all captures."""
    code, number = (
        of_newest_attempt(f"last_over_time({metric}{{{matchers}}}[$__range])", matchers)
        for metric in ("logshipper_job_exit_code", "logshipper_job_signal")
    )
    return f"max by(job_id)({SIGNALLED} + ({number}) or {code})"


def node_words(matchers: str) -> str:
    """Return, as the label `node`, the node of the newest attempt's first capture, with the number
    of other nodes, by the scheduler or by captures."""
    info, count, start = (
        of_newest_attempt(f"last_over_time({metric}{{{matchers}}}[$__range])", matchers)
        for metric in (
            "logshipper_job_info",
            "logshipper_job_nodes",
            "logshipper_job_start_time_seconds",
        )
    )
    begun = f"bottomk by(job_id)(1, {start})"
    first = f"group by(job_id, host)({info} and on(job_id, attempt, step, task, instance) {begun})"
    seen = f"count by(job_id)(group by(job_id, host)({info}))"
    others = f'count_values by(job_id)("more", max by(job_id)({seen} or {count}) - 1 > 0)'
    several = (
        f'label_join({first} * on(job_id) group_left(more) {others}, "node", " +", "host", "more")'
    )
    single = f'label_replace({first}, "node", "$1", "host", "(.+)")'
    return f"max by(job_id, node)({several} or on(job_id) {single})"


def job_states(matchers: str) -> str:
    """Return one series per job, with the `state` of its newest attempt: Slurm's end; else RUNNING
    or UNRESPONSIVE while one capture is so, then the worst end.

    An ended state stays in the time range. So of each capture an end precedes running, and running
    counts only at the end of the range: a capture that vanished without an end is UNRESPONSIVE.
    """
    metric = "logshipper_job_state"
    ends = " or ".join(
        f'last_over_time({metric}{{{matchers}, state="{state}"}}[$__range]) * {rank}'
        for state, rank in STATES.items()
        if state not in _ALIVE
    )
    now = " or ".join(
        f'{metric}{{{matchers}, state="{state}"}} * {STATES[state]}' for state in _ALIVE
    )
    recent = f'max by({_PLACE})(last_over_time({metric}{{{matchers}, state=~"{"|".join(_ALIVE)}"}}[$__range]))'
    silent = f'label_replace({recent} * {STATES["UNRESPONSIVE"]}, "state", "UNRESPONSIVE", "", "")'
    captures = f"{ends} or on({_PLACE}) ({now}) or on({_PLACE}) {silent}"
    by_slurm = f"last_over_time({SLURM_END}{{{matchers}}}[$__range])"  # its last word: the value is when it ended
    per_job = (
        f"topk by(job_id)(1, max by(job_id, state)({of_newest_attempt(series, matchers)}))"
        for series in (by_slurm, captures)
    )
    return " or on(job_id) ".join(per_job)


def where_label(series: str, label: str, pattern: str) -> str:
    """Keep series whose label, perhaps made by the query itself, matches the regular expression."""
    matches = f'label_replace({series}, "lsfits", "yes", "{label}", "{pattern}")'
    return f'{matches} and on(lsfits) label_replace(vector(1), "lsfits", "yes", "", "")'
