"""A job's series as lines of Prometheus' text format (docs/metrics.md). Pure.

A node may have ten thousand series, so lines are built from texts that stay the same from scrape to
scrape: the labels of a job, a capture and a key. Label values are escaped; numbers are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isnan

from logshipper_ingest.model.capture_id import Source
from logshipper_ingest.model.courses import Trend
from logshipper_ingest.model.job import Json, derived_state
from logshipper_ingest.model.ledger import COLUMNS
from logshipper_ingest.model.metadata_keys import Number, Path
from logshipper_ingest.model.ranks import JobKeys, KeyLabels, escape, rank, thinning_digits
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.spool.capture_folder import Identity

SLURM_END = "logshipper_job_slurm_end_time_seconds"  # of a job, from the controller's agent
SLURM_START = "logshipper_job_slurm_start_time_seconds"
FAMILIES = {
    "logshipper_x_rank": "Rank of a key as X axis of its job's graphs: the rule, and the place in the alphabet.",
    "logshipper_key": "Metadata records with a number for the key.",
    "logshipper_records": "Metadata records.",
    "logshipper_keys_left_out": "Numeric keys that no series shows.",
    "logshipper_job_info": "A capture of a job: its owner and its node.",
    "logshipper_job_state": "The state of a capture of a job.",
    "logshipper_job_nodes": "Number of nodes of its job, by its scheduler.",
    "logshipper_job_time_limit_seconds": "The time limit of its job, by its scheduler.",
    "logshipper_job_mode": "The mode of a capture: the logged part of its output.",
    "logshipper_job_start_time_seconds": "Its start, since 1970.",
    "logshipper_job_end_time_seconds": "Its end, since 1970.",
    SLURM_START: "Start of an attempt of a job that Slurm has ended, since 1970.",
    SLURM_END: "State and time of the end of an attempt by Slurm, since 1970.",
    "logshipper_job_heartbeat_time_seconds": "Its last sign of life, since 1970.",
    "logshipper_job_exit_code": "Its exit code.",
    "logshipper_job_signal": "The signal that ended it.",
    "logshipper_job_lines": "Its ledger: lines by outcome.",
    "logshipper_job_bytes": "Bytes that it printed, and logged bytes of these.",
    "logshipper_metadata_value": "The latest number of a key.",
}
_STREAMS = ("stdout", "stderr")
_MAX_EXACT = 1 << 53  # floats hold all integers up to here exactly


@dataclass(frozen=True)
class CaptureView:
    """The present state of a capture. `JobMetrics` copies its mutable values: ledger, axis, latest.
    Times are ns since 1970."""

    key: str  # unique on this node
    identity: Identity
    state: str
    exit_code: int | None
    signal: int  # 0 for none
    started_ns: int
    ended_ns: int | None
    heartbeat_ns: int
    mode: str
    ledger: Json  # settled, {} before the first one
    lines: int
    records: int
    bytes_printed: int
    bytes_logged: int
    nodes: int  # of its job, 0 if unknown
    axis: XAxis
    latest: Mapping[Path, Number]  # the last number of each key
    over: bool  # everything is ingested, and nothing follows
    limit_secs: int = 0  # its job's time limit, 0 if unknown


@dataclass(slots=True)
class CaptureValues:
    """A capture as its series show it."""

    labels: tuple[str, str]  # from `capture_labels`
    view: CaptureView  # with copies of its mutable values, without its axis
    trends: Mapping[Path, Trend]  # of its keys, {} once merged into its job


@dataclass(slots=True)
class JobValues:
    """A job at one moment."""

    labels: str  # as text
    captures: list[CaptureValues]
    trends: dict[Path, Trend]
    records: int
    not_compared: int  # keys without room


def number_text(value: Number) -> str | None:
    """Return a number as Prometheus writes it, exactly up to 2^53. Larger integers are rounded to a
    float; None if no float is that large."""
    if type(value) is int:
        if -_MAX_EXACT <= value <= _MAX_EXACT:
            return repr(value)
        try:
            value = float(value)
        except OverflowError:
            return None
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def family_header(family: str) -> str:
    return f"# HELP {family} {FAMILIES[family]}\n# TYPE {family} gauge\n"


def capture_labels(job_labels: str, identity: Identity, host: str) -> tuple[str, str]:
    """Return the labels of a capture's series, and those of its logshipper_job_info."""
    place = f'step="{escape(identity.step)}",task="{identity.task}"'
    labels = f'{job_labels},attempt="{identity.attempt}",{place}'
    facts = {
        "user": identity.user,
        "account": identity.account,
        "partition": identity.partition,
        "name": identity.name,
        "host": host,
    }
    return labels, labels + "".join(f',{label}="{escape(value)}"' for label, value in facts.items())


def slurm_end_series(job_labels: str, attempt: int, state: str, end_secs: int) -> str:
    """Return the line for the end of an attempt."""
    return f'{SLURM_END}{{{job_labels},attempt="{attempt}",state="{escape(state)}"}} {end_secs}\n'


def slurm_start_series(job_labels: str, attempt: int, start_secs: int) -> str:
    """Return the line for the start of an attempt."""
    return f'{SLURM_START}{{{job_labels},attempt="{attempt}"}} {start_secs}\n'


def job_series(values: JobValues, keys: JobKeys, now_ns: int) -> dict[str, str]:
    """Return the job's lines by family."""
    lines: dict[str, list[str]] = {family: [] for family in FAMILIES}
    key_labels, left_out = keys.visible_keys(values.trends)
    if values.not_compared:
        left_out["too_many"] = left_out.get("too_many", 0) + values.not_compared
    _write_keys(lines, values, key_labels)
    by_key = {path: f',key="{labels.key}"}} ' for path, (labels, _) in key_labels.items()}
    too_large = set()
    for capture in _newest_of_each_source(values.captures):
        _write_capture(lines, capture, now_ns)
        begin = f"logshipper_metadata_value{{{capture.labels[0]}"
        value_lines = lines["logshipper_metadata_value"]
        for path, value in capture.view.latest.items():
            key = by_key.get(path)
            if key is None:
                continue
            text = number_text(value)
            if text is None:
                too_large.add(path)
            else:
                value_lines.append(f"{begin}{key}{text}\n")
    for path in too_large:
        left_out["too_large"] = len(too_large)
        keys.leave_out("too_large", path)
    lines["logshipper_keys_left_out"] = [
        f'logshipper_keys_left_out{{{values.labels},reason="{reason}"}} {count}\n'
        for reason, count in left_out.items()
    ]
    return {family: "".join(family_lines) for family, family_lines in lines.items() if family_lines}


def _write_keys(
    lines: dict[str, list[str]], values: JobValues, key_labels: Mapping[Path, tuple[KeyLabels, int]]
) -> None:
    ranks, records = lines["logshipper_x_rank"], lines["logshipper_key"]
    begin_rank = f"logshipper_x_rank{{{values.labels}"
    begin_key = f"logshipper_key{{{values.labels}"
    for path, (labels, rule) in key_labels.items():
        key = labels.key
        key_label = f'key="{key}",path="{labels.path}"}} '
        value = str(rank(rule, labels.code, labels.place))
        if rule:
            ranks.append(f'{begin_rank},choice="auto",{key_label}{value}\n')
        if key != "auto":  # its series would have the same labels as the automatic choice
            ranks.append(f'{begin_rank},choice="{key}",{key_label}{value}\n')
        trend = values.trends[path]
        x_axis = key_labels.get(trend.own_x[1])
        x = x_axis[0].key if x_axis else ""
        begin = f'{begin_key},dec="{thinning_digits(trend.records)}",x="{x}"'
        constant = "true" if trend.constant else ""
        records.append(f'{begin},constant="{constant}",{key_label}{trend.records}\n')
    if values.records:
        digits = thinning_digits(values.records)
        lines["logshipper_records"].append(
            f'logshipper_records{{{values.labels},dec="{digits}"}} {values.records}\n'
        )


def _newest_of_each_source(captures: list[CaptureValues]) -> list[CaptureValues]:
    """Return one capture per attempt, step and task: equal labels would spoil the scrape."""
    newest: dict[Source, CaptureValues] = {}
    for capture in captures:
        source = capture.view.identity.source
        if capture.view.started_ns >= newest.get(source, capture).view.started_ns:
            newest[source] = capture
    return list(newest.values())


def _secs(time_ns: int) -> float:
    """Return seconds to a millisecond: VictoriaMetrics may drop further digits."""
    return time_ns // 10**6 / 1000


def _write_capture(lines: dict[str, list[str]], capture: CaptureValues, now_ns: int) -> None:
    labels, info = capture.labels
    view = capture.view
    state = derived_state(view.state, view.heartbeat_ns, now_ns)
    for family, of_family in (
        ("logshipper_job_info", info),
        ("logshipper_job_state", f'{labels},state="{escape(state)}"'),
        ("logshipper_job_mode", f'{labels},mode="{escape(view.mode)}"'),
    ):
        lines[family].append(f"{family}{{{of_family}}} 1\n")
    facts = {
        "logshipper_job_nodes": view.nodes or None,
        "logshipper_job_time_limit_seconds": view.limit_secs or None,
        "logshipper_job_start_time_seconds": _secs(view.started_ns),
        "logshipper_job_end_time_seconds": None if view.ended_ns is None else _secs(view.ended_ns),
        "logshipper_job_heartbeat_time_seconds": _secs(view.heartbeat_ns),
        "logshipper_job_exit_code": view.exit_code,
        "logshipper_job_signal": view.signal or None,
    }
    for family, value in facts.items():
        if value is not None:
            lines[family].append(f"{family}{{{labels}}} {value!r}\n")
    for stream in _STREAMS:
        accounts = view.ledger.get(stream)
        if accounts is not None:
            begin = f'logshipper_job_lines{{{labels},stream="{stream}",outcome="'
            lines["logshipper_job_lines"] += [
                f'{begin}{column}"}} {accounts.get(column, 0)}\n' for column in COLUMNS
            ]
    lines["logshipper_job_bytes"] += [
        f'logshipper_job_bytes{{{labels},what="{subject}"}} {count}\n'
        for subject, count in (("printed", view.bytes_printed), ("logged", view.bytes_logged))
    ]
