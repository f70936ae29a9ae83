"""PromQL for the runs of a cluster's jobs: starts, ends, states and nodes."""

from logshipper_grafana.parts.queries import (
    ALIVE,
    CLUSTER,
    OF_ATTEMPT,
    OF_JOB,
    SIGNALS,
    STATES,
    seen,
)

SLURM_END = "logshipper_job_slurm_end_time_seconds"  # by Slurm's controller
_VANISHED_SECS = 120  # since a capture's last sign of life, as scraped each minute
_CAPTURE = "cluster, job_id, attempt, step, task"
_RANKS = {state: rank for state, rank in STATES.items() if state not in ALIVE}  # of ends
# numbers of ends_by_number that stand for a signal
SIGNALLED = 1000
SIGNAL_WORDS = {
    SIGNALLED + number: SIGNALS.get(number, f"signal {number}") for number in range(1, 65)
}


def run_starts(matchers: str = CLUSTER) -> str:
    """Return the start of each run of a job: an attempt, by its first capture."""
    return f"min by(job_id, attempt)({seen(f'logshipper_job_start_time_seconds{{{matchers}}}')})"


def run_ends(matchers: str = CLUSTER) -> str:
    """Return the end of each run of a job: an attempt without running or vanished captures."""
    ends = seen(f"logshipper_job_end_time_seconds{{{matchers}}}")
    starts = seen(f"logshipper_job_start_time_seconds{{{matchers}}}")
    open_captures = f"{starts} unless on(job_id, attempt, step, task) {ends}"
    return f"(max by(job_id, attempt)({ends}) unless on(job_id, attempt) ({open_captures}))"


def run_states() -> str:
    """Return the end of each run, with `state`: Slurm's by the controller's agent, else the worst
    of its captures."""
    by_slurm = f"max by(job_id, attempt, state)({seen(f'{SLURM_END}{{{CLUSTER}}}')})"
    ranks = " or ".join(
        seen(f'logshipper_job_state{{{CLUSTER}, state="{state}"}}') + f" * {rank}"
        for state, rank in _RANKS.items()
    )
    by_capture = f"max by(job_id, attempt, state)({ranks})"
    states = f"topk by(job_id, attempt)(1, {by_slurm}) or on(job_id, attempt) topk by(job_id, attempt)(1, {by_capture})"
    return f"(0 * ({states}) + on(job_id, attempt) group_left() {run_ends()})"


def of_last_run(runs: str) -> str:
    """Return the job's newest runs."""
    return f"({runs} and on(job_id, attempt) topk by(job_id)(1, {run_starts()}))"


def in_page(times: str) -> str:
    """Those of the times that lie within the page's."""
    return f"(({times}) >= ${{__from}} / 1000 <= ${{__to}} / 1000)"


def in_interval(times: str) -> str:
    """Those of the times that lie within the interval that begins at a graph's point."""
    return f"(({times}) >= time() < time() + $__interval_ms / 1000)"


def last_values(metric: str, *matchers: str) -> str:
    """Return a metric's last values within the page's time up to a point."""
    return f"last_over_time({metric}{{{', '.join((CLUSTER, *matchers))}}}[$__range])"


def of_newest_attempt(series: str) -> str:
    """Return the series of each job's newest attempt."""
    starts = last_values("logshipper_job_start_time_seconds")
    newest = f"topk by(job_id)(1, max by(job_id, attempt)({starts}))"
    return f"({series}) and on(job_id, attempt) {newest}"


def newest_values(metric: str, *matchers: str) -> str:
    """Return a metric's last values, of each job's newest attempt."""
    return of_newest_attempt(last_values(metric, *matchers))


def ends_by_number() -> str:
    """Return the end of each job's newest attempt as one number: an exit code, or a signal and
    SIGNALLED; the worst of all captures."""
    number, code = newest_values("logshipper_job_signal"), newest_values("logshipper_job_exit_code")
    return f"max by(job_id)({SIGNALLED} + ({number}) or {code})"


def node_words() -> str:
    """Return, as the label `node`, the node of the newest attempt's first capture, with the number
    of other nodes, by the scheduler or by captures."""
    info = newest_values("logshipper_job_info")
    begun = f"bottomk by(job_id)(1, {newest_values('logshipper_job_start_time_seconds')})"
    first = f"group by(job_id, host)({info} and on(job_id, attempt, step, task, instance) {begun})"
    count = f"count by(job_id)(group by(job_id, host)({info}))"
    count = f"{count} or {newest_values('logshipper_job_nodes')}"
    others = f'count_values by(job_id)("more", max by(job_id)({count}) - 1 > 0)'
    several = f"{first} * on(job_id) group_left(more) {others}"
    several = f'label_join({several}, "node", " +", "host", "more")'
    single = f'label_replace({first}, "node", "$1", "host", "(.+)")'
    return f"max by(job_id, node)({several} or on(job_id) {single})"


def job_states() -> str:
    """Return one series per job, with the `state` of its newest attempt: Slurm's end; else RUNNING
    or UNRESPONSIVE while one capture is so, then the worst end.

    An ended state stays in the time range. So of each capture an end precedes running, and running
    counts only at the end of the range: a capture that vanished without an end is UNRESPONSIVE.
    """

    def of_state(state: str) -> str:
        return f'logshipper_job_state{{{CLUSTER}, state="{state}"}}'

    ends = " or ".join(
        f"last_over_time({of_state(state)}[$__range]) * {rank}" for state, rank in _RANKS.items()
    )
    now = " or ".join(f"{of_state(state)} * {STATES[state]}" for state in ALIVE)
    recent = f'logshipper_job_state{{{CLUSTER}, state=~"{"|".join(ALIVE)}"}}'
    recent = f"max by({_CAPTURE})(last_over_time({recent}[$__range]))"
    silent = f'label_replace({recent} * {STATES["UNRESPONSIVE"]}, "state", "UNRESPONSIVE", "", "")'
    captures = f"{ends} or on({_CAPTURE}) ({now}) or on({_CAPTURE}) {silent}"
    per_job = (
        f"topk by(job_id)(1, max by(job_id, state)({of_newest_attempt(series)}))"
        for series in (last_values(SLURM_END), captures)  # the first has Slurm's last word
    )
    return " or on(job_id) ".join(per_job)


def in_states(series: str, pattern: str) -> str:
    """Keep series whose label `state`, perhaps made by the query itself, matches the pattern."""
    matches = f'label_replace({series}, "lsfits", "yes", "state", "{pattern}")'
    return f'{matches} and on(lsfits) label_replace(vector(1), "lsfits", "yes", "", "")'


def span() -> str:
    """Return `begin` and `end` of the chosen attempt, in seconds since 1970.

    The end is +Inf during the run, and its last sign of life without a reported end. Nothing lies
    between them if Prometheus does not know the job.
    """
    matchers = f"{OF_JOB}, {OF_ATTEMPT}"
    starts = run_starts(matchers)
    signs = seen(f"logshipper_job_heartbeat_time_seconds{{{matchers}}}")
    silent = f"max by(job_id, attempt)({signs}) < time() - {_VANISHED_SECS}"
    ends = " or on(job_id, attempt) ".join((run_ends(matchers), silent, f"{starts} + Inf"))
    begin, end = f'count_values("begin", min({starts}))', f'count_values("end", max({ends}))'
    never = 'label_replace(label_replace(vector(0), "begin", "Inf", "", ""), "end", "0", "", "")'
    return f"{begin} * on() group_left(end) {end} or on() {never}"
