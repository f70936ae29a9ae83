"""Queries to Loki that replace Prometheus' for a cluster's list of jobs, if Prometheus knows none
of them; see loki_metrics.

They read only events, and reports of keys, without heartbeats, which are most entries: a job
without a reported end runs. The reading begins before the page's time, because a job that ran then
has said so shortly before (LOOK_BACK).
"""

from collections.abc import Sequence

from logshipper_grafana.parts import queries, run_queries
from logshipper_grafana.parts.loki_metrics import (
    CAPTURE,
    LOOK_BACK,
    RANGE,
    STARTS,
    entries,
    events,
    in_choice,
    saying,
    where,
)
from logshipper_grafana.parts.loki_metrics import count as count_over
from logshipper_grafana.parts.values import BEST_IS_LARGEST, BEST_IS_LEAST
from logshipper_ingest.model.job import CLOSED
from logshipper_ingest.model.key_reports import VALUE

_NAMED = 'contains (lower (urldecode "${name:percentencode}")) (lower .name)'
_FITS = f"{STARTS}|{CLOSED}"  # each names the job

_OF_USER = in_choice("user", "user")
# Patterns of keys, the most telling ones first. CALLED is a key after an invisible character for
# each kind before its own, so that its alphabetical order is that of kinds, then names.
TELLING_KEYS = (f"(?i:.*({BEST_IS_LEAST}).*)", f"(?i:.*({BEST_IS_LARGEST}).*)")
CALLED, LATER = "called", "\u200b"


def count(selector: str, by: str) -> str:
    return count_over(selector, by, LOOK_BACK)


def _of_any_user(names: str, *fields: str) -> str:
    return events(saying(names), names, *fields, every_node=True)


def _events(names: str, *fields: str) -> str:
    """Return events of the chosen users' jobs."""
    return _of_any_user(names, *fields) + _OF_USER


def _reports() -> str:
    """Return reports of the chosen users' keys with numbers."""
    return f"{entries(_OF_USER, VALUE, every_node=True)} | json key=`key`, last=`last` | last!=``"


def labels(name: str) -> str:
    """Return the users, or partitions, of the present jobs."""
    return count(_of_any_user(_FITS, *(() if name == "user" else (name,))), name)


def keys_by_kind(columns: Sequence[str]) -> str:
    """Return the keys that have numbers, as `key`, in an order by CALLED. columns: variables with
    keys that are left out."""
    others = "".join(where(f'ne .key (urldecode "${{{name}:percentencode}}")') for name in columns)
    prefix = "".join(
        f'{{{{if eq (regexReplaceAll "^{pattern}$" .key "") ""}}}}{LATER * place}{{{{else}}}}'
        for place, pattern in enumerate(TELLING_KEYS)
    )
    prefix += LATER * len(TELLING_KEYS) + "{{end}}" * len(TELLING_KEYS)
    return count(
        f"{_reports()}{others} | label_format {CALLED}=`{prefix}{{{{.key}}}}`", f"{CALLED}, key"
    )


def _over_range(function: str, entries: str, label: str) -> str:
    """Apply a function to a label's numbers; entries without one, as of earlier agents, are
    dropped."""
    return (
        f"{function}_over_time({entries} | {label}!=`` | unwrap {label} | __error__=`` {LOOK_BACK})"
    )


# ---- jobs


def infos() -> str:
    """Return a series for each matching job in the page's time, with its columns."""
    fitting = _events(_FITS, "name", "account", "partition")
    fitting += where(_NAMED) + in_choice("partition", "partition")
    ended = count_over(_events(CLOSED), "job_id", RANGE)
    there = f"{ended} or on(job_id) max by(job_id)({_open()})"
    jobs = count(fitting, "job_id, name, user, account, partition")
    return f"topk by(job_id)(1, {jobs} and on(job_id) ({there}))"


def _starts() -> str:
    """Return starts of attempts, in nanoseconds since 1970."""
    return (
        f"min by(job_id, attempt)({_over_range('min', _events(_FITS, 'started_ns'), 'started_ns')})"
    )


def _of_newest_attempt(series: str) -> str:
    return f"(({series}) and on(job_id, attempt) topk by(job_id)(1, {_starts()}))"


def starts() -> str:
    """Return the start of each job's newest attempt, in nanoseconds since 1970."""
    return f"min by(job_id)({_of_newest_attempt(_starts())})"


def _open(began: str = "") -> str:
    """Return open captures. began: their starts, all of the chosen users' by default."""
    began, over = count(began or _events(STARTS), CAPTURE), count(_events(CLOSED), CAPTURE)
    return f"{began} unless on({CAPTURE}) {over}"


def running() -> str:
    """Return jobs whose newest attempt has an open, audible capture, with `state`."""
    alive = f"({_open()}) unless on({CAPTURE}) ({_silent()})"
    return _of_newest_attempt(_alive(alive, "RUNNING"))


def running_hosts() -> str:
    """The nodes of open captures of jobs with such a name, as `host`."""
    return f"max by(host)({_open(_events(STARTS, 'name') + where(_NAMED))})"


def _silent() -> str:
    """Return captures that their node's agent last reported as silent."""
    silence = '{{if eq .lsevent "heartbeat_lost"}}1{{else}}0{{end}}'
    said = _events("|".join(queries.HEARTBEATS)) + f" | label_format lssilent=`{silence}`"
    return f"{_over_range('last', said, 'lssilent')} by ({CAPTURE}) > 0"


def _alive(captures: str, state: str) -> str:
    return f"label_replace(max by(job_id, attempt)({captures}), `state`, `{state}`, ``, ``)"


def states() -> str:
    """Return states as run_queries.job_states does, but jobs that vanished with their nodes run."""
    rank = "".join(
        f'{{{{if eq .state "{state}"}}}}{rank}{{{{end}}}}' for state, rank in queries.STATES.items()
    )
    ranked = f"{_events(CLOSED, 'state')} | state!=`` | label_format lsrank=`{rank}`"
    told = f"{_events(queries.JOB_ENDED, 'state', 'ended_ns')} | state!=``"
    by_state = "max by(job_id, attempt, state)"
    by_slurm = f"{by_state}({_over_range('max', told, 'ended_ns')})"
    by_capture = f"{by_state}({_over_range('max', ranked, 'lsrank')})"
    silent = f"({_open()}) and on({CAPTURE}) ({_silent()})"
    series = (
        f"topk by(job_id)(1, {_of_newest_attempt(by_slurm)})",
        running(),
        _of_newest_attempt(_alive(silent, "UNRESPONSIVE")),
        f"topk by(job_id)(1, {_of_newest_attempt(by_capture)})",
    )
    return " or on(job_id) ".join(series)


def ends() -> str:
    """Return the end of each job's newest attempt, in nanoseconds since 1970; for killed captures,
    the time of the discovery."""
    ended = f"{_events(CLOSED, 'ended_ns')} | label_format lsend=`{queries.END_NS}`"
    series = f"max by(job_id, attempt)({_over_range('max', ended, 'lsend')})"
    return f"max by(job_id)({_of_newest_attempt(series)})"


def _open_jobs() -> str:
    """Return jobs whose newest attempt has an open capture."""
    return _of_newest_attempt(f"max by(job_id, attempt)({_open()})")


def durations() -> str:
    """Seconds; of a job that runs until the end of the page's time, or now."""
    began = f"{_events(STARTS)} | label_format lsuntil=`{{{{{queries.PAGE_END_SECS}}}}}`"
    until = f"max by(job_id)({_over_range('max', began, 'lsuntil')}) * 1e9"
    until_now = f"({until} and on(job_id) {_open_jobs()})"
    return f"(({until_now} or on(job_id) {ends()}) - {starts()}) / 1e9"


def page_times() -> tuple[str, str]:
    """Return begin and end of a job's page, in ms; no end for running jobs."""
    over = f"{ends()} unless on(job_id) {_open_jobs()}"
    return f"{starts()} / 1e6 - {queries.PAD_MS}", f"({over}) / 1e6 + {queries.PAD_MS}"


def node_words() -> str:
    """Return nodes as run_queries.node_words does; `+ others` if the scheduler gives no number of
    nodes."""
    node = "{{.host}}{{if .nodes}}{{if gt (int .nodes) 1}} +{{sub (int .nodes) 1}}{{end}}{{end}}"
    with_node = f"{_events(_FITS, 'started_ns', 'nodes')} | label_format node=`{node}`"
    begins = f"min by(job_id, attempt, node)({_over_range('min', with_node, 'started_ns')})"
    first = f"bottomk by(job_id)(1, {_of_newest_attempt(begins)})"
    nodes = _of_newest_attempt(count(_events(_FITS), "job_id, attempt, host"))
    several = f"count by(job_id)({nodes}) > 1"
    others = f"label_replace({first} and on(job_id) ({several}), `node`, `$1 + others`, `node`, `([^ ]+)`)"
    return f"{others} or on(job_id) {first}"


def lost() -> str:
    """Lines of each job."""
    newest = f"{_over_range('last', _events(CLOSED, 'lost'), 'lost')} by ({CAPTURE})"
    return f"sum by(job_id)({newest})"


def last_values(key: str) -> str:
    """The last number of the key that the variable names, of each job's newest attempt."""
    named = f'eq .key (urldecode "${{{key}:percentencode}}")'
    newest = f"{_over_range('last', _reports() + where(named), 'last')} by ({CAPTURE})"
    return f"max by(job_id)({_of_newest_attempt(newest)})"


def ends_by_number() -> str:
    """Return ends as run_queries.ends_by_number does."""
    number = (
        f'{{{{if and .signal (ne .signal "0")}}}}{{{{add {run_queries.SIGNALLED} (int .signal)}}}}'
        "{{else}}{{.exit_code}}{{end}}"
    )
    ended = f"{_events(CLOSED, 'exit_code', 'signal')} | label_format lsend=`{number}`"
    series = f"max by(job_id, attempt)({_over_range('max', ended, 'lsend')})"
    return f"max by(job_id)({_of_newest_attempt(series)})"


def restarts() -> str:
    return f"count by(job_id)({count(_events(_FITS), 'job_id, attempt')}) - 1 > 0"
