"""What Prometheus answers of a cluster's jobs, asked of Loki: the list of jobs where Prometheus
knows none of them; as loki_metrics, which see.

Only events are read, and reports of keys; heartbeats, most of all entries, aren't: a job runs
whose end nobody told.
"""

from logshipper_grafana.parts import queries
from logshipper_grafana.parts.loki_metrics import count, events
from logshipper_ingest.model.key_reports import VALUE

_CAPTURE = "job_id, host, attempt, step, task"
_RANGE = "[$__range]"
_NAMED = '{{if contains (lower (urldecode "${name:percentencode}")) (lower .name)}}yes{{end}}'
_FITS = "started|closed"  # each says whose the job is


def _where(template: str) -> str:
    """Entries of which the template says yes."""
    return f" | label_format lsfits=`{template}` | lsfits=`yes`"


def _chosen(name: str) -> str:
    """Of all, Grafana says All until 10, and $__all later."""
    fits = " ".join(
        (
            f'(contains "&var-{name}=All&" $lc)',
            f'(contains "&var-{name}=$__all&" $lc)',
            f'(contains (print "&var-{name}=" .{name} "&") $lc)',
        )
    )
    chosen = f'{{{{$lc := urldecode "&${{{name}:queryparam}}&"}}}}'
    return _where(f"{chosen}{{{{if or {fits}}}}}yes{{{{end}}}}")


_OF_USER = _chosen("user")


def _of_any_user(names: str, *fields: str) -> str:
    """Lines are left out before they are parsed."""
    return events(f' |~ `"event":"({names})"`', names, *fields, every_node=True)


def _events(names: str, *fields: str) -> str:
    """Of the chosen users' jobs."""
    return _of_any_user(names, *fields) + _OF_USER


def _reports(of: str = "") -> str:
    """Of keys with numbers."""
    return f'{{cluster=`${{cluster:raw}}`, kind="{VALUE}"}}{of} | json key=`key`, last=`last` | last!=``'


def labels(name: str) -> str:
    """Of users, or partitions, those whose jobs were there."""
    return count(_of_any_user(_FITS, *(() if name == "user" else (name,))), name)


def all_keys() -> str:
    """The keys that have numbers, as `key`."""
    return count(_reports(), "key")


# ---- jobs


def infos() -> str:
    """A series for each job that fits what is chosen, with what its columns are."""
    entries = _events(_FITS, "name", "account", "partition")
    entries += _where(_NAMED) + _chosen("partition")
    return f"topk by(job_id)(1, {count(entries, 'job_id, name, user, account, partition')})"


def _starts(by: str = "job_id, attempt") -> str:
    """Nanoseconds since 1970."""
    return (
        f"min by({by})(min_over_time({_events(_FITS, 'started_ns')} | unwrap started_ns {_RANGE}))"
    )


def _of_newest_attempt(series: str) -> str:
    return f"(({series}) and on(job_id, attempt) topk by(job_id)(1, {_starts()}))"


def starts() -> str:
    """Of each job's newest attempt, in nanoseconds since 1970."""
    return f"min by(job_id)({_of_newest_attempt(_starts())})"


def _open() -> str:
    """Captures that nobody closed."""
    began, over = count(_events("started"), _CAPTURE), count(_events("closed"), _CAPTURE)
    return f"{began} unless on({_CAPTURE}) {over}"


def running() -> str:
    """Jobs of which a capture is open that isn't silent, with `state`."""
    return _alive(f"({_open()}) unless on({_CAPTURE}) ({_silent()})", "RUNNING")


def running_hosts() -> str:
    """The nodes of captures that are open, as `host`."""
    return f"max by(host)({_open()})"


def _silent() -> str:
    """Captures of which their node's agent said last that they are silent."""
    silence = '{{if eq .lsevent "heartbeat_lost"}}1{{else}}0{{end}}'
    said = _events("|".join(queries.HEARTBEATS)) + f" | label_format lssilent=`{silence}`"
    return f"last_over_time({said} | unwrap lssilent {_RANGE}) by ({_CAPTURE}) > 0"


def _alive(captures: str, state: str) -> str:
    return f"label_replace(max by(job_id, attempt)({captures}), `state`, `{state}`, ``, ``)"


def states() -> str:
    """As queries.job_states, but that what vanished with its node runs."""
    ranks = "".join(
        f'{{{{else if eq .state "{state}"}}}}{rank}' for state, rank in queries.STATES.items()
    )
    rank = f'{{{{if eq .state ""}}}}0{ranks}{{{{else}}}}0{{{{end}}}}'
    ends = f"{_events('closed', 'state')} | label_format lsrank=`{rank}` | unwrap lsrank"
    by_slurm = f"{_events(queries.JOB_ENDED, 'state', 'ended_ns')} | state!=`` | unwrap ended_ns"
    by_state = "max by(job_id, attempt, state)(max_over_time({entries} " + _RANGE + "))"
    silent = f"({_open()}) and on({_CAPTURE}) ({_silent()})"
    series = (
        f"topk by(job_id)(1, {_of_newest_attempt(by_state.format(entries=by_slurm))})",
        _of_newest_attempt(running()),
        _of_newest_attempt(_alive(silent, "UNRESPONSIVE")),
        f"topk by(job_id)(1, {_of_newest_attempt(by_state.format(entries=ends))})",
    )
    return " or on(job_id) ".join(series)


def ends() -> str:
    """Of each job's newest attempt, in nanoseconds since 1970; of captures that were killed when it
    was found."""
    end = "{{if .ended_ns}}{{.ended_ns}}{{else}}{{unixEpochNanos __timestamp__}}{{end}}"
    entries = f"{_events('closed', 'ended_ns')} | label_format lsend=`{end}` | unwrap lsend"
    series = f"max by(job_id, attempt)(max_over_time({entries} {_RANGE}))"
    return f"max by(job_id)({_of_newest_attempt(series)})"


def durations() -> str:
    """Seconds; of a job that runs until the end of the page's time."""
    until = f"0 * {starts()} + ${{__to}} * 1e6"
    until_now = f"({until} and on(job_id) ({running()}))"
    return f"(({until_now} or on(job_id) {ends()}) - {starts()}) / 1e9"


def page_times() -> tuple[str, str]:
    """From when and until when a job's page is shown, in ms; no end of one that runs."""
    over = f"{ends()} unless on(job_id) ({running()})"
    return f"{starts()} / 1e6 - {queries.PAD_MS}", f"({over}) / 1e6 + {queries.PAD_MS}"


def node_words() -> str:
    """As queries.node_words; of a job whose scheduler says no number of nodes, `+ others`."""
    node = "{{.host}}{{if .nodes}}{{if gt (int .nodes) 1}} +{{sub (int .nodes) 1}}{{end}}{{end}}"
    entries = f"{_events(_FITS, 'started_ns', 'nodes')} | label_format node=`{node}`"
    begun = f"min by(job_id, node)(min_over_time({entries} | unwrap started_ns {_RANGE}))"
    first = f"bottomk by(job_id)(1, {begun})"
    several = f"count by(job_id)({count(_events(_FITS), 'job_id, host')}) > 1"
    others = f"label_replace({first} and on(job_id) ({several}), `node`, `$1 + others`, `node`, `([^ ]+)`)"
    return f"{others} or on(job_id) {first}"


def lost() -> str:
    """Lines of each job."""
    newest = f"last_over_time({_events('closed', 'lost')} | unwrap lost {_RANGE}) by ({_CAPTURE})"
    return f"sum by(job_id)({newest})"


def last_values(key: str) -> str:
    """The last number of the key that the variable names, of each job's newest attempt."""
    named = f'{{{{if eq .key (urldecode "${{{key}:percentencode}}")}}}}yes{{{{end}}}}'
    newest = f"last_over_time({_reports(_OF_USER)}{_where(named)} | unwrap last {_RANGE}) by ({_CAPTURE})"
    return f"max by(job_id)({_of_newest_attempt(newest)})"


def ends_by_number() -> str:
    """As queries.ends_by_number."""
    number = (
        f'{{{{if and .signal (ne .signal "0")}}}}{{{{add {queries.SIGNALLED} (int .signal)}}}}'
        "{{else}}{{.exit_code}}{{end}}"
    )
    entries = f"{_events('closed', 'exit_code', 'signal')} | label_format lsend=`{number}`"
    entries += " | lsend!=`` | unwrap lsend"
    series = f"max by(job_id, attempt)(max_over_time({entries} {_RANGE}))"
    return f"max by(job_id)({_of_newest_attempt(series)})"


def restarts() -> str:
    return f"count by(job_id)({count(_events(_FITS), 'job_id, attempt')}) - 1 > 0"
