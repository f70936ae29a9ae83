"""The queries' parts: what of a job is asked of Loki (LogQL) and of Prometheus (PromQL). Variables
are Grafana's.

A dashboard's variables hold text that goes into queries as it is: `raw`, where Grafana would
escape, `pipe` for a|b.
"""

import signal

from logshipper_grafana.parts.records import DENSE, RECORD_FIELD
from logshipper_ingest.model.job import RUNNING, SHIPPED_UNRESPONSIVE_NS, SLURM_STATES, UNRESPONSIVE
from logshipper_ingest.model.ranks import MAX_POINTS, RULE_UNIT

# The job's nodes in the selector, so that no other node's streams are read; its id is structured
# metadata.
_CLUSTER = 'cluster="${cluster:raw}"'
_HOSTS = "host=~`${host:pipe}`"
_HOSTS_AND_SLURM = "host=~`${host:pipe}|${slurm:pipe}`"
_SHARD = "job_shard=~`|${shard:raw}`"  # of lines; streams without one belong to each job
# somebody types it: ids stay as they are, and a backtick would end the query's text
_JOB = " | job_id=`${job:percentencode}`"
_JOB_ID = "job_id=`${job:percentencode}`"  # PromQL's, as OF_ATTEMPT
OF_JOB = f"{_CLUSTER}, {_JOB_ID}"
ATTEMPTS = " | attempt=~`${attempts:raw}`"
TASKS = " | task=~`${tasks:raw}`"
OF_ATTEMPT = "attempt=~`${attempts:raw}`"
MAX_ENTRIES = 5000  # of an answer: Loki's max_entries_limit_per_query, unless an admin changed it
FIRST_RECORDS = 99  # of each set of keys, which `thinned` keeps
MAX_GRAPHS = 24  # of a page: a browser draws more slowly than anyone looks
MAX_DIGITS = 6  # of a number to thin by: 4.5 billion records
JOB_ENDED = "job_ended"  # what Slurm's controller says of a job's end
SLURM_END = "logshipper_job_slurm_end_time_seconds"  # the same in Prometheus
PAD_MS = 60_000  # around a job: what came a little late, and the samples around a short one
LATE = "1d"  # how much later than the page's time a job may have come to Prometheus

STATES = {
    state: rank for rank, state in enumerate((*SLURM_STATES, UNRESPONSIVE, RUNNING))
}  # by how bad
_ALIVE = ("UNRESPONSIVE", "RUNNING")
# in templates: the end of the page's time, or now where that lies ahead; when an event's capture
# ended, or was seen last, in nanoseconds since 1970
PAGE_END_SECS = "min (int (unixEpoch now)) (div ${__to} 1000)"
END_NS = "{{if .ended_ns}}{{.ended_ns}}{{else}}{{unixEpochNanos __timestamp__}}{{end}}"
_SILENT_SECS = SHIPPED_UNRESPONSIVE_NS // 10**9
_VANISHED_SECS = 120  # since a capture's last sign of life, as scraped each minute
_PLACE = "cluster, job_id, attempt, step, task"


# ---- LogQL


def job_lines(kinds: str, *, streams: str = "", slurm: bool = False) -> str:
    """The job's entries on the chosen nodes. kinds, streams: regular expressions for `kind` and
    `stream`; slurm: also what Slurm's controller says of the job, whose agent has another host."""
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
    """Of many records those whose number ends in the digits, and the first hundred of each set of
    keys."""
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
}  # what a node's agent says of a capture
ACCOUNTS = "heartbeat|ended|closed"  # the events that show how a capture does


def newest(value: str, names: str, *fields: str, attempts: str = ATTEMPTS) -> str:
    """Of each capture the newest event's value. value: what unwraps it; events without one are left
    out."""
    return newest_of(job_events(names, *fields, attempts=attempts), value)


def newest_of(events: str, value: str, by: str = "host, attempt, step, task") -> str:
    """The same of any events."""
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
    """The state of the chosen attempt as a number, as in STATES: what Slurm says of its end, else
    RUNNING while one capture runs at the end of the page's time, then the worst end."""
    by_slurm = newest(f' | state!=""{state_rank()}', JOB_ENDED, "state")
    return f"max({by_slurm}) or max({newest(state_rank(), STATE_EVENTS, 'state')})"


_SIGNALS = {int(number): number.name for number in signal.Signals}
# of the numbers of ends_by_number, those that stand for a signal
SIGNALLED = 1000
SIGNAL_WORDS = {
    SIGNALLED + number: _SIGNALS.get(number, f"signal {number}") for number in range(1, 65)
}
NOT_ENDED = "not yet"
# of four cells of a bar one, so that percentage, rate and remaining time are seen
SHORTER_BARS = "".join(f' | replace "{cell * 4}" "{cell}"' for cell in "█━─╸#=-. ")


def end_words() -> str:
    """How the chosen attempt ended, in words as the label `end`: signal or exit code, and the
    reason where there is one; the worst of all captures. NOT_ENDED where none has, no series where
    no capture is known."""
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
    """How many records of the chosen attempt and task have NaN or an infinity, which no graph
    draws; texts that look like it don't count."""
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
    """How long the chosen attempt may run, as the label `limit`: `of 2 h`; no series where nobody
    said it."""
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
    """The last values of the page's time, or of the day after it, of jobs that were shipped late:
    the same at each point of a graph, which costs no more than at one."""
    return f"(last_over_time({series}[$__range] @ end()) or last_over_time({series}[{LATE}] @ end() offset -{LATE}))"


def run_starts(matchers: str) -> str:
    """When each run of a job started: an attempt, by its first capture."""
    return f"min by(job_id, attempt)({seen(f'logshipper_job_start_time_seconds{{{matchers}}}')})"


def run_ends(matchers: str) -> str:
    """When each run of a job ended: an attempt of which no capture runs or vanished."""
    ends = seen(f"logshipper_job_end_time_seconds{{{matchers}}}")
    starts = seen(f"logshipper_job_start_time_seconds{{{matchers}}}")
    open_captures = f"{starts} unless on(job_id, attempt, step, task) {ends}"
    return f"(max by(job_id, attempt)({ends}) unless on(job_id, attempt) ({open_captures}))"


def run_states(matchers: str) -> str:
    """When each run ended, with `state`: Slurm's, where the controller's agent tells it, else the
    worst of its captures'."""
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
    """Of runs those that are the job's newest."""
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
    """When the chosen attempt began and ended, as `begin` and `end`, seconds since 1970; +Inf while
    it runs, its last sign of life where nobody told its end, nothing between them where Prometheus
    doesn't know the job."""
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
    never = f"on(choice) {constant('last', 'attempt')}"  # where Prometheus knows nothing: the choice must outlast that
    return f"{last} or {never} or {constant('all', 'attempt')} or {single_attempts}"


def task_choices() -> str:
    """`lowest`, `all` and each task that has numbers as `choice`, with a regular expression for it
    as `task`.

    The lowest number among labels: a histogram whose buckets all hold the same has its quantile at
    the lowest bound.
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
    """A series with this choice; label: what stands for everything there; value: a series without
    labels. Loki reads it, too."""
    series = f'label_replace({value}, "choice", "{choice}", "", "")'
    return f'label_replace({series}, "{label}", ".*", "", "")' if label else series


def choice_or_everything(choices: str, choice: str, label: str) -> str:
    """The choice that a variable names; what fits everything where nothing is known of it. Loki
    reads it, too."""
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
    """The key that is X, with its rule, and a fraction; else RECORD_FIELD: -1 for a job with one key only, over
    which nothing would be drawn, 0 where no key is known."""
    count = f"count(group by(key)({job_max('logshipper_key')}))"
    ranks = job_max("logshipper_x_rank", f'choice="{choice}"')
    ranks = f"bottomk(1, max by(key)({ranks})) / {RULE_UNIT}"
    only = f'label_replace(-1 * ({count} == 1), "key", "{RECORD_FIELD}", "", "")'
    return or_else(f"{ranks} and on() ({count} > 1) or on() {only}", "key", RECORD_FIELD)


def search_with_backtick() -> str:
    """Where `search` has a backtick, which would end a text of LogQL: as `stage`, a stage that looks
    for it decoded, and takes what follows on its line as a comment. No series for other searches,
    which a regular expression finds several times as fast."""
    words = 'label_replace(vector(0), "words", "${search:percentencode}", "", "")'
    contains = r"contains (ToLower (urldecode \"$1\")) (ToLower __line__)"
    stage = f" | label_format lsfound=`{{{{{contains}}}}}` | lsfound=`true` | drop lsfound #"
    return f'label_replace({words}, "stage", "{stage}", "words", "(.*%60.*)")'


# the words of `search`, with a stage of search_with_backtick before them, on a line of its own
SEARCH = "${backtick:raw} |~ `(?i)${search:regex}`\n"
SEARCH_STAGE = '/[{,]stage="(?<value>.*)",words="/'


def slurm_hosts() -> str:
    """The nodes whose agents report how Slurm ended jobs; `-`, which no host is called, where there
    are none."""
    records = 'logshipper_agent_slurm_records_total{outcome="taken"}'
    record_counts = f"(sum by(instance, job)({over_range('max_over_time', records)}) > 0)"
    agents = over_range("max_over_time", f"logshipper_agent_build_info{{{_CLUSTER}}}")
    return or_else(
        f"group by(host)({record_counts} * on(instance, job) group_left(host) {agents})",
        "host",
        "-",
    )


def or_else(series: str, label: str, value: str) -> str:
    """A value of the label where there are no series."""
    return f'{series} or on() label_replace(vector(0), "{label}", "{value}", "", "")'


# The rules in words (metadata.x_axis), by a rank's rule; RULE_BY_HAND for all that
# somebody chose.
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
    """The rule as the label `words`, of the variables `xsel` and `x`, whose text is the integer
    part of x_key. otherwise: the words where there is no key. Loki reads it, too."""
    series = 'label_replace(vector(0), "rule", "${xsel:raw}/${x:text}/${x:raw}", "", "")'
    words = {".*": RULE_BY_HAND, "auto/.*": otherwise}
    words |= {f"auto/{rule}/.*": phrase for rule, phrase in RULES.items()}
    words |= {f".*/0/{RECORD_FIELD}": otherwise, f".*/-1/{RECORD_FIELD}": ONLY_KEY}
    for pattern, phrase in words.items():
        series = f'label_replace({series}, "words", "{phrase}", "rule", "{pattern}")'
    return series


def record_count() -> str:
    """How many records the job has on the node that has most; -1 where the job isn't known."""
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
    """What `thinning` leaves out, as `thinning_words` has it. Loki reads it, too."""
    words = [
        _if_more_records(MAX_POINTS * 10 ** (digits - 1), "words", one_of(digits))
        for digits in range(MAX_DIGITS, 0, -1)
    ]
    any_records = _if_more_records(-1, "words", " ")
    return or_else(" or on() ".join([*words, any_records]), "words", NEWEST_ONLY)


def _if_more_records(number: int, label: str, value: str) -> str:
    """A comparison without a result isn't nothing for VictoriaMetrics' `or`, but a series whose
    gaps it fills from the other side: `and` makes it nothing."""
    return f'label_replace({_COUNT} > {number} and on() vector(0), "{label}", "{value}", "", "")'


def one_of(digits: int, at_least: str = "") -> str:
    return f", {at_least}1 of {10**digits:,} records"


NEWEST_ONLY = f", the newest {MAX_ENTRIES:,} records"


def thinning_together(counts: str, captures: str, *, by: str = "") -> str:
    """The digits to thin by, as `dec`, so that what remains of several jobs fits into one answer,
    and the first hundred of each capture besides; the most of all keys, or by key. counts: series
    of logshipper_key; captures: of logshipper_metadata_value."""
    first = f"{FIRST_RECORDS} * scalar(count(group by(job_id, attempt, step, task)({captures})))"
    room = f"clamp_min(vector({MAX_ENTRIES} - {first}), {FIRST_RECORDS})"
    ratios = f"sum by(key)(max by(key, job_id, instance, job)({counts})) / on() group_left {room}"
    digits = f"clamp_min(ceil(log10({ratios if by else f'max({ratios})'})), 0)"
    series = f'count_values{f" by({by})" if by else ""}("digits", {digits})'
    for number in range(1, MAX_DIGITS + 1):
        series = f'label_replace({series}, "dec", "{"0" * number}", "digits", "{number}")'
    return series


def thinning_words(metric: str) -> str:
    """What is left out at least, as the label `words`, for the end of a title: ", 1 of 10 records",
    and so on; a blank where none is. metric: series with `dec`."""
    words = f'label_replace(topk(1, max by(dec)({metric})), "words", " ", "", "")'
    for digits in range(1, MAX_DIGITS + 1):
        phrase = one_of(digits, "at least ")
        words = f'label_replace({words}, "words", "{phrase}", "dec", "{"0" * digits}")'
    return or_else(f"group by(words)({words})", "words", NEWEST_ONLY)


# In a query `${y:raw}` is the digits by which a key's own graph is thinned, the end of that filter,
# a filter that always holds and names the key, a label for the X that the key has of its own, and
# one with DENSE where there are many points: one variable repeats the panels, and each key has
# digits and an X of its own.
NO_GRAPH = "No key has two numbers yet: print them as JSON objects, one in a line"
NO_CONSTANT = "constant!=`true`"  # of logshipper_key: numbers that are all the same are no graph
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
    """As `picked`, keys: digits, PICKED and PICKED_END. metric: logshipper_key's series, of which the
    largest is the newest, or others with `key` and `dec`; counts: logshipper_key's then."""
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
    """Of series with `key` those of the first MAX_GRAPHS keys. ranks: of logshipper_x_rank, whose
    remainder is a key's place in the alphabet."""
    places = f"max by(key)({ranks})"
    return (
        f"({series}) and on(key) bottomk({MAX_GRAPHS}, {places} % {RULE_UNIT} and on(key) {series})"
    )


def or_no_graph(keys: str) -> str:
    """`keys_to_draw`, or NO_GRAPH, so that a panel with this title says what is missing."""
    none = PICKED.format(key=NO_GRAPH, own_x="") + PICKED_END.format(dense="")
    return f'{keys} or on() label_replace(vector(0), "picked", \'{none}\', "", "")'


def more_keys_words(series: str) -> str:
    """As the label `words`: how many keys there are, where these are more than MAX_GRAPHS; else one
    blank."""
    count = f"count(group by(key)({series})) > {MAX_GRAPHS}"
    words = f" – the first {MAX_GRAPHS} of $1 keys, by name: others by Keys, above"
    words = f'label_replace(count_values("count", {count}), "words", "{words}", "count", "(.+)")'
    return or_else(words, "words", " ")


def own_time() -> tuple[str, str]:
    """When the job began and ended, or gave its last sign of life, in ms since 1970, with some time
    around it."""
    starts = over_range("min_over_time", job_metric("logshipper_job_start_time_seconds"))
    signs = job_max("logshipper_job_heartbeat_time_seconds")
    return f"min({starts}) * 1000 - {PAD_MS}", f"max({signs}) * 1000 + {PAD_MS}"


def start_of_newest_attempt(matchers: str) -> str:
    """Of each job the start of the attempt that started last, with `attempt`."""
    started = f"last_over_time(logshipper_job_start_time_seconds{{{matchers}}}[$__range])"
    return f"topk by(job_id)(1, max by(job_id, attempt)({started}))"


def of_newest_attempt(series: str, matchers: str) -> str:
    return f"({series}) and on(job_id, attempt) {start_of_newest_attempt(matchers)}"


def ends_by_number(matchers: str) -> str:
    """Of each job how its newest attempt ended, as one number: an exit code, or a signal and
    SIGNALLED; the worst of all captures."""
    code, number = (
        of_newest_attempt(f"last_over_time({metric}{{{matchers}}}[$__range])", matchers)
        for metric in ("logshipper_job_exit_code", "logshipper_job_signal")
    )
    return f"max by(job_id)({SIGNALLED} + ({number}) or {code})"


def node_words(matchers: str) -> str:
    """Of each job, as the label `node`, the node of the capture of its newest attempt that began
    first, with how many more there are: those that the scheduler says, or that were seen."""
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
    """One series per job, with `state`, of its newest attempt: what Slurm says of its end; else
    RUNNING or UNRESPONSIVE while one capture is so, then the worst end.

    A state that is over stays in the time range; so of each capture an end counts before what runs,
    and what runs only where it is so at the end of the range: what has vanished without an end is
    UNRESPONSIVE.
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
    """The series whose label, which the query itself may have made, fits the regular expression."""
    matches = f'label_replace({series}, "lsfits", "yes", "{label}", "{pattern}")'
    return f'{matches} and on(lsfits) label_replace(vector(1), "lsfits", "yes", "", "")'
