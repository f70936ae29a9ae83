"""`logshipper-agent status --config FILE`: what is spooled, shipped and refused, per job, next to a
running agent."""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypedDict

from logshipper.errors import LogshipperError
from logshipper.safe_text import safe
from logshipper_ingest.agent.node_ledger import Ledger, ledger_line, ledger_of, sum_ledgers
from logshipper_ingest.agent_start import running_agent
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.console.text_table import plural, printed_table, shown_size
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.end_record import OUTCOMES
from logshipper_ingest.model.job import RUNNING, derived_state, worst_state
from logshipper_ingest.slurm.waiting import FILE as SLURM_FILE
from logshipper_ingest.slurm.waiting import read_counts
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life, list_folders, open_spool
from logshipper_ingest.spool.segment_reader import SegmentReader, SpoolPosition
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.checkpoints import CaptureCheckpoint, State
from logshipper_ingest.state.sink_states import (
    SinkCheckpoints,
    agent_notes,
    read_states,
    removed_sinks,
)

SCHEMA = "logshipper-agent.node-status/1"
_COUNTED_BYTES = 64 << 20  # of the quarantine
_MOST_ODD = 10
PREPARED = "PREPARED"  # a directory was made for it, and nobody writes there yet


class _Counts(TypedDict):
    lines: int
    records: int
    lost: int


class NodeJob(_Counts):
    """One job of `status --config FILE --json`."""

    job_id: str
    name: str
    user: str
    state: str
    captures: int
    over: int  # captures that are shipped to the end
    entries: dict[str, int]  # acknowledged by Loki, by kind
    refused: dict[str, int]  # entries in the quarantine, by reason
    spooled_bytes: int  # of segments that aren't shipped yet
    lag_secs: float  # the age of the oldest of spooled_bytes, 0 where there are none
    ledger: Ledger  # of its lines


class CaptureStatus(TypedDict):
    """A capture in the spool."""

    folder: str
    job_id: str
    name: str
    user: str
    life: Life
    unused: bool  # nobody writes there yet
    bytes: int  # that aren't shipped
    waiting_since_ns: int  # the time of the first of these bytes, 0 where there are none


def status(config: AgentConfig, *, as_json: bool) -> int:
    """Prints it; returns the exit code. Raises StoreError where spool or state can't be read."""
    states = read_states(config)
    spool = config.agent.spool_dir
    by_sink = [
        _jobs(
            sink.state,
            list(
                spooled_captures(
                    spool,
                    {progress.folder: progress.position for progress in sink.state.checkpoints},
                )
            ),
        )
        for sink in states
    ]
    sinks = [_sink(sink, jobs) for sink, jobs in zip(states, by_sink, strict=True)]
    first, jobs = sinks[0], _of_all(by_sink)
    document: dict[str, Any] = {  # Any: JSON
        "schema": SCHEMA,
        "config": config.path,
        "cluster": config.agent.cluster,
        "host": config.agent.host,
        "spool_dir": spool,
        "state_dir": config.agent.state_dir,
        "agent_pid": running_agent(config.agent.state_dir),
        "loki": first["loki"],
        "last_refusal": first["last_refusal"],
        "slurm": first["slurm"],
        "jobs": jobs,
        "ledger": first["ledger"],
        "spooled_bytes": sum(job["spooled_bytes"] for job in jobs),
        "lag_secs": max((job["lag_secs"] for job in jobs), default=0.0),
        "quarantine": first["quarantine"],
        "sinks": sinks,
        "removed_sinks": [name or FIRST_SINK for name in removed_sinks(config)],
        "remote_write": _remote_write(config, agent_notes(config)),
        "taken": agent_notes(config).get("taken", []),
        "metrics": agent_notes(config).get("metrics") if config.metrics.listen else None,
        "telegraf": agent_notes(config).get("telegraf") if config.telegraf.enabled else None,
    }
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        _print(document)
    return 0


def _of_all(by_sink: Sequence[Sequence[NodeJob]]) -> list[NodeJob]:
    """The first sink's jobs; what waits is what the sink that is the furthest behind has yet to
    get, and captures are over when all have them."""
    jobs = [NodeJob(**job) for job in by_sink[0]]
    for sink_jobs in by_sink[1:]:
        jobs_by_id = {job["job_id"]: job for job in sink_jobs}
        for job in jobs:
            counterpart = jobs_by_id.get(job["job_id"])
            if counterpart is not None:
                job["spooled_bytes"] = max(job["spooled_bytes"], counterpart["spooled_bytes"])
                job["lag_secs"] = max(job["lag_secs"], counterpart["lag_secs"])
                job["over"] = min(job["over"], counterpart["over"])
    return jobs


def _sink(sink: SinkCheckpoints, jobs: Sequence[NodeJob]) -> dict[str, Any]:  # Any: JSON
    """One Loki. jobs: as that has them."""
    return {
        "name": sink.config.label,
        "kind": sink.config.server.kind,
        "loki": _loki(sink),
        "last_refusal": moment_of(sink.state.notes.get("last_refusal")),
        "slurm": _slurm(sink.config),
        "ledger": sum_ledgers([job["ledger"] for job in jobs]),
        "spooled_bytes": sum(job["spooled_bytes"] for job in jobs),
        "lag_secs": max((job["lag_secs"] for job in jobs), default=0.0),
        "refused": sum(sum(job["refused"].values()) for job in jobs),
        "quarantine": _quarantine(sink.config),
        "differs": [
            f"job {job['job_id']}: {job['ledger']['differs']}"
            for job in jobs
            if not job["ledger"]["balances"]
        ][:_MOST_ODD],
    }


def _quarantine(config: SinkConfig[Server]) -> dict[str, object]:
    """What lies there now, by reason; entries: -1 where there is so much that counting would take a
    while."""
    folder = os.path.join(config.folder, quarantine_files.FOLDER)
    size = quarantine_files.size(config.folder)
    if size > _COUNTED_BYTES:
        return {"bytes": size, "entries": -1, "reasons": {}}
    reasons: Counter[str] = Counter()
    for name in quarantine_files.names(folder):
        reasons.update(
            line.entry.reason for line in quarantine_files.read_lines(folder, name) if line.entry
        )
    return {"bytes": size, "entries": reasons.total(), "reasons": dict(reasons)}


def _slurm(config: SinkConfig[Server]) -> dict[str, object] | None:
    """What became of records of how Slurm's jobs ended; None where this isn't the controller."""
    if not config.ended_dir:
        return None
    path = os.path.join(config.folder, SLURM_FILE)
    counts = read_counts(path) if os.path.exists(path) else dict.fromkeys((*OUTCOMES, "waiting"), 0)
    return {"ended_dir": config.ended_dir, **counts}


def _loki(sink: SinkCheckpoints) -> dict[str, object]:
    trouble = trouble_of(sink)
    return {"url": sink.config.url, "waiting": trouble is not None, "trouble": trouble}


def trouble_of(sink: SinkCheckpoints) -> dict[str, object] | None:
    """What the sink doesn't take, as the agent noted last; None where all is well."""
    delivery_state = sink.state.notes.get("loki", {})
    url = sink.config.url
    # the agent may have been at another one
    return moment_of(delivery_state) if delivery_state.get("url") == url else None


def _remote_write(config: AgentConfig, notes: dict[str, Any]) -> dict[str, object] | None:
    """As the agent noted it last; None where none is set up. Any: JSON that the agent wrote."""
    url = config.remote_write.access.url
    note = notes.get("remote_write", {})
    note = note if note.get("url") == url else {}  # the agent may have been at another one
    refusal = {
        "since_ns": note.get("refused_ns"),
        "status": note.get("status"),
        "words": note.get("words"),
    }
    taken_ns = note.get("taken_ns", 0)
    remote_write = {
        "url": url,
        "last_success": _time_text(taken_ns) if taken_ns else None,
        "waiting_bytes": note.get("waiting_bytes", 0),
        "dropped": note.get("dropped", {}),
        "last_refusal": moment_of(refusal),
    }
    return remote_write if url else None


def _time_text(time_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns / 1e9))


def moment_of(answer: Any) -> dict[str, object] | None:  # Any: as above
    """The sink's word on an answer that wasn't 204; None where there was none."""
    if not answer or not answer.get("since_ns"):
        return None
    return {
        "since": _time_text(answer["since_ns"]),
        "status": answer.get("status", 0),
        "words": answer.get("words", ""),
    }


def spooled_captures(spool: str, positions: dict[str, SpoolPosition]) -> Iterator[CaptureStatus]:
    """The captures in the spool, with the bytes that aren't shipped."""
    spool_fd = open_spool(spool)
    if spool_fd is None:
        return
    try:
        for name in list_folders(spool_fd):
            try:
                with closing(
                    CaptureFolder(spool_fd, spool, name, os.fstat(spool_fd).st_uid, node=True)
                ) as folder:
                    identity = folder.identity(complete=True)
                    if identity is not None:
                        position = positions.get(folder.key, SpoolPosition())
                        size = folder.bytes_from(position)
                        since_ns = _first_ns(folder, position) if size else 0
                        yield CaptureStatus(
                            folder=folder.key,
                            job_id=identity.job_id,
                            name=identity.name,
                            user=identity.user,
                            life=folder.life(),
                            unused=folder.is_unused(),
                            bytes=size,
                            waiting_since_ns=since_ns,
                        )
            except (LogshipperError, OSError):
                continue  # the agent's log says why
    finally:
        os.close(spool_fd)


def _first_ns(folder: CaptureFolder, position: SpoolPosition) -> int:
    """The time of the first frame from a position on, 0 where there is none."""
    path = os.path.join(folder.path, "segments")
    with closing(SegmentReader(folder.segments_fd, path, position, owner=folder.writer)) as reader:
        frames = reader.read(1, alive=True).frames
    return frames[0].time_ns if frames else 0


def _jobs(state: State, spooled: Sequence[CaptureStatus]) -> list[NodeJob]:
    """Those with something in the spool first, then the newest."""
    shipped_captures = state.checkpoints
    spooled_by_folder = {spooled_capture["folder"]: spooled_capture for spooled_capture in spooled}
    captures_by_job: dict[str, list[CaptureCheckpoint]] = {}
    for capture in sorted(
        shipped_captures,
        key=lambda capture: (capture.folder in spooled_by_folder, capture.changed_ns),
        reverse=True,
    ):
        captures_by_job.setdefault(capture.identity.job_id, []).append(capture)
    jobs = [
        _job(job_id, captures, spooled_by_folder, state.accounts)
        for job_id, captures in captures_by_job.items()
    ]
    folders = {capture.folder for capture in shipped_captures}
    unread: dict[str, list[CaptureStatus]] = {}
    for spooled_capture in spooled:
        if spooled_capture["folder"] not in folders:
            unread.setdefault(spooled_capture["job_id"], []).append(spooled_capture)
    for job in jobs:
        for spooled_capture in unread.pop(job["job_id"], []):
            job["captures"] += 1
            job["spooled_bytes"] += spooled_capture["bytes"]
            job["lag_secs"] = max(job["lag_secs"], _lag_secs([spooled_capture]))
    return [_unread_job(captures, state.accounts) for captures in unread.values()] + jobs


def _lag_secs(captures: Sequence[CaptureStatus]) -> float:
    oldest_ns = min(
        (capture["waiting_since_ns"] for capture in captures if capture["waiting_since_ns"]),
        default=0,
    )
    return round(max(0.0, time.time() - oldest_ns / 1e9), 1) if oldest_ns else 0.0


def _job(
    job_id: str,
    captures: Sequence[CaptureCheckpoint],
    spooled_by_folder: dict[str, CaptureStatus],
    known: Mapping[str, CaptureAccount],
) -> NodeJob:
    """What is known of its lines is the learner's word, which is ahead where Loki is away."""
    entries: dict[str, int] = {}
    refusal_counts: dict[str, int] = {}
    for capture in captures:
        for total, counts in (
            (entries, capture.counts.entries),
            (refusal_counts, capture.counts.refused),
        ):
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
    spooled = [
        spooled_by_folder[capture.folder]
        for capture in captures
        if capture.folder in spooled_by_folder
    ]
    accounts = [known.get(capture.folder, capture.account) for capture in captures]
    attempt = max(capture.identity.attempt for capture in captures)
    newest = [
        account
        for capture, account in zip(captures, accounts, strict=True)
        if capture.identity.attempt == attempt
    ]
    return NodeJob(
        job_id=job_id,
        name=captures[0].identity.name,
        user=captures[0].identity.user,
        state=_state(newest),
        captures=len(captures),
        over=sum(capture.done for capture in captures),
        entries=entries,
        refused=refusal_counts,
        spooled_bytes=sum(capture["bytes"] for capture in spooled),
        lag_secs=_lag_secs(spooled),
        ledger=ledger_of(zip(accounts, captures, strict=True)),
        **_counts(accounts),
    )


def _unread_job(captures: Sequence[CaptureStatus], known: Mapping[str, CaptureAccount]) -> NodeJob:
    """Nothing of it is shipped yet."""
    first = captures[0]
    accounts = [known[capture["folder"]] for capture in captures if capture["folder"] in known]
    prepared = all(capture["unused"] for capture in captures)
    return NodeJob(
        job_id=first["job_id"],
        name=first["name"],
        user=first["user"],
        state=PREPARED if prepared else _state(accounts),
        captures=len(captures),
        over=0,
        entries={},
        refused={},
        spooled_bytes=sum(capture["bytes"] for capture in captures),
        lag_secs=_lag_secs(captures),
        ledger=ledger_of((account, None) for account in accounts),
        **_counts(accounts),
    )


def _state(accounts: Sequence[CaptureAccount]) -> str:
    now_ns = time.time_ns()
    return worst_state(
        [derived_state(account.state, account.heartbeat_ns, now_ns) for account in accounts]
        or [RUNNING]
    )


def _counts(accounts: Sequence[CaptureAccount]) -> _Counts:
    return _Counts(
        lines=sum(account.lines for account in accounts),
        records=sum(account.records for account in accounts),
        lost=sum(account.lost() for account in accounts),
    )


def _print(document: dict[str, Any]) -> None:  # Any: as made above
    agent = document["agent_pid"]
    lines = [
        f"node   {document['cluster']}/{document['host']}",
        f"spool  {document['spool_dir']}: {_waiting_text(document)}",
        f"agent  {'not running' if agent is None else f'at work (process {agent})'}",
    ]
    lines += [
        f"       taken away, job {note['job_id']} of {note['user']}: {note['words']}"
        for note in document["taken"]
    ]
    several = len(document["sinks"]) > 1
    for sink in document["sinks"]:
        lines += _sink_lines(sink, several=several)
    names = document["removed_sinks"]
    lines += [f"       {name} was removed: `logshipper-agent forget {name}`" for name in names]
    if document["remote_write"]:
        lines += _remote_write_lines(document["remote_write"])
    if document["metrics"] and document["metrics"]["trouble"]:
        lines.append(f"metrics  {document['metrics']['trouble']}")
    if document["telegraf"]:
        counts = ", ".join(
            f"{count} {outcome}"
            for outcome, count in document["telegraf"]["lines"].items()
            if count
        )
        lines.append(
            f"telegraf {document['telegraf']['listen']}: lines since the agent's start: {counts or 'none'}"
        )
        trouble = document["telegraf"].get("trouble")
        lines += [f"         {trouble}"] if trouble else []
    sys.stdout.write("".join(f"{safe(line)}\n" for line in lines) + "\n")
    if not document["jobs"]:
        sys.stdout.write("no jobs\n")
        return
    heading = (
        "JOB",
        "STATE",
        "LINES",
        "RECORDS",
        "LOST",
        "SHIPPED",
        "REFUSED",
        "SPOOLED",
        "LAG",
        "USER",
        "NAME",
    )
    rows = [heading, *(_row(job) for job in document["jobs"])]
    sys.stdout.write(printed_table(rows, right=range(2, 9)))


def _sink_lines(sink: dict[str, Any], *, several: bool) -> list[str]:  # Any: as above
    """several: each has a name, and a line says what waits for it."""
    trouble, refusal = sink["loki"]["trouble"], sink["last_refusal"]
    name = f"{sink['name']}, " if several else ""
    kind = {"loki": "loki  ", "influxdb": "influx"}.get(sink["kind"], "otlp  ")
    lines = [
        f"{kind} {name}{sink['loki']['url']}: {_words(trouble) if trouble else 'no trouble known'}"
    ]
    if several:
        lines.append(f"       {_waiting_text(sink)}")
    if refusal and not trouble:
        lines.append(f"       its last refusal: {_words(refusal)}")
    if sink["quarantine"]["bytes"]:
        lines.append(f"       in quarantine: {_quarantine_text(sink['quarantine'])}")
    if sink["slurm"]:
        counts = {name: count for name, count in sink["slurm"].items() if type(count) is int}
        lines.append(
            f"slurm  ends of jobs: {', '.join(f'{count} {name}' for name, count in counts.items())}"
        )
    lines.append(f"ledger {ledger_line(sink['ledger'])}")
    return lines + [f"       {words}" for words in sink["differs"]]


def _remote_write_lines(remote_write: dict[str, Any]) -> list[str]:  # Any: as above
    success = (
        f"last taken {remote_write['last_success']}"
        if remote_write["last_success"]
        else "nothing taken yet"
    )
    lines = [
        f"remote {remote_write['url']}: {success}, {shown_size(remote_write['waiting_bytes'])} wait"
    ]
    if remote_write["dropped"]:
        counts = ", ".join(f"{count} {reason}" for reason, count in remote_write["dropped"].items())
        lines.append(f"       samples dropped since the agent's start: {counts}")
    if remote_write["last_refusal"]:
        lines.append(f"       its last refusal: {_words(remote_write['last_refusal'])}")
    return lines


def _waiting_text(document: dict[str, Any]) -> str:  # Any: as above
    lag = f", the oldest of it for {document['lag_secs']:.0f} s" if document["lag_secs"] else ""
    return f"{shown_size(document['spooled_bytes'])} wait{lag}"


def _quarantine_text(quarantine: dict[str, Any]) -> str:  # Any: as above
    if quarantine["entries"] < 0:
        return f"{shown_size(quarantine['bytes'])}; `logshipper-agent replay --dry-run` counts them"
    reasons = ", ".join(f"{count} {reason}" for reason, count in quarantine["reasons"].items())
    return f"{plural(quarantine['entries'], 'entry')} ({reasons}); `logshipper-agent replay` sends them once more"


def _words(moment: dict[str, Any]) -> str:  # Any: as above
    status = f"HTTP {moment['status']}: " if moment["status"] else ""
    return f"since {moment['since']}: {status}{moment['words']}"


def _row(job: NodeJob) -> tuple[str, ...]:
    lag = f"{job['lag_secs']:.0f} s" if job["lag_secs"] else "-"
    entry_count, refusal_count = sum(job["entries"].values()), sum(job["refused"].values())
    counts = (job["lines"], job["records"], job["lost"], entry_count, refusal_count)
    return (job["job_id"], job["state"], *map(str, counts), shown_size(job["spooled_bytes"]), lag, job["user"],
            job["name"])  # fmt: skip
