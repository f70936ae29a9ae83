"""`logshipper-agent status --config FILE`: spooled, shipped and refused entries per job. Runs next
to a working agent."""

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Any, TypedDict

from logshipper.errors import LogshipperError
from logshipper_ingest.agent.node_ledger import Ledger, ledger_of, sum_ledgers
from logshipper_ingest.agent.node_status_text import print_status
from logshipper_ingest.agent_start import running_agent
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.config.loki_section import FIRST_SINK
from logshipper_ingest.config.sink_config import Server, SinkConfig
from logshipper_ingest.model.capture_account import CaptureAccount
from logshipper_ingest.model.end_record import OUTCOMES
from logshipper_ingest.model.job import RUNNING, derived_state, worst_state
from logshipper_ingest.shipping.followed_capture import segment_reader
from logshipper_ingest.slurm.waiting import FILE as SLURM_FILE
from logshipper_ingest.slurm.waiting import read_counts
from logshipper_ingest.spool.capture_folder import CaptureFolder, Life, list_folders, open_spool
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.checkpoints import CaptureCheckpoint, State
from logshipper_ingest.state.sink_states import (
    SinkCheckpoints,
    agent_notes,
    read_states,
    removed_sinks,
)

SCHEMA = "logshipper-agent.node-status/1"
_COUNTED_BYTES = 64 << 20  # the largest quarantine whose entries are counted
_MOST_ODD = 10
PREPARED = "PREPARED"  # state of a job whose directory has no writer yet


class NodeJob(TypedDict):
    """One job of `status --config FILE --json`."""

    job_id: str
    name: str
    user: str
    state: str
    captures: int
    over: int  # captures shipped to the end
    entries: dict[str, int]  # acknowledged by Loki, by kind
    refused: dict[str, int]  # entries in the quarantine, by reason
    spooled_bytes: int  # not yet shipped
    lag_secs: float  # age of the oldest unshipped byte, 0 without any
    ledger: Ledger  # account of its lines
    lines: int
    records: int
    lost: int


class CaptureStatus(TypedDict):
    """A capture in the spool."""

    folder: str
    job_id: str
    name: str
    user: str
    life: Life
    unused: bool  # without a writer so far
    bytes: int  # not yet shipped
    waiting_since_ns: int  # time of the first of these bytes, 0 without any


def status(config: AgentConfig, *, as_json: bool) -> int:
    """Print the status and return the exit code. Raises StoreError if spool or state is
    unreadable."""
    states = read_states(config)
    spool = config.agent.spool_dir
    by_sink = [_jobs(sink.state, spool) for sink in states]
    sinks = [_sink(sink, jobs) for sink, jobs in zip(states, by_sink, strict=True)]
    first, jobs = sinks[0], _merge_sinks(by_sink)
    notes = agent_notes(config)
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
        "remote_write": _remote_write(config, notes),
        "taken": notes.get("taken", []),
        "metrics": notes.get("metrics") if config.metrics.listen else None,
        "telegraf": notes.get("telegraf") if config.telegraf.enabled else None,
    }
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        print_status(document)
    return 0


def _merge_sinks(by_sink: Sequence[Sequence[NodeJob]]) -> list[NodeJob]:
    """Return the first sink's jobs with the backlog of the slowest sink. A capture is over when
    every sink has it."""
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
    """Return the status of one sink. jobs: as shipped to this sink."""
    trouble = trouble_of(sink)
    return {
        "name": sink.config.label,
        "kind": sink.config.server.kind,
        "loki": {"url": sink.config.url, "waiting": trouble is not None, "trouble": trouble},
        "last_refusal": _moment_of(sink.state.notes.get("last_refusal")),
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
    """Return size and entries of the quarantine by reason. entries: -1 if counting takes too
    long."""
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
    """Return the outcomes of Slurm's job ends, or None on other nodes than the controller."""
    if not config.ended_dir:
        return None
    path = os.path.join(config.folder, SLURM_FILE)
    counts = read_counts(path) if os.path.exists(path) else dict.fromkeys((*OUTCOMES, "waiting"), 0)
    return {"ended_dir": config.ended_dir, **counts}


def trouble_of(sink: SinkCheckpoints) -> dict[str, object] | None:
    """Return the sink's trouble from the agent's last note, or None."""
    note = sink.state.notes.get("loki", {})
    # it may be about an earlier address
    return _moment_of(note) if note.get("url") == sink.config.url else None


def _remote_write(config: AgentConfig, notes: dict[str, Any]) -> dict[str, object] | None:
    """Return the agent's last note on remote write, or None without one. Any: the agent's JSON."""
    url = config.remote_write.access.url
    if not url:
        return None
    note = notes.get("remote_write", {})
    note = note if note.get("url") == url else {}  # it may be about an earlier address
    taken_ns = note.get("taken_ns", 0)
    return {
        "url": url,
        "last_success": _time_text(taken_ns) if taken_ns else None,
        "waiting_bytes": note.get("waiting_bytes", 0),
        "dropped": note.get("dropped", {}),
        "last_refusal": _moment_of({**note, "since_ns": note.get("refused_ns")}),
    }


def _time_text(time_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns / 1e9))


def _moment_of(answer: Any) -> dict[str, object] | None:  # Any: as above
    """Return time, status and text of a sink's error answer, or None."""
    if not answer or not answer.get("since_ns"):
        return None
    return {
        "since": _time_text(answer["since_ns"]),
        "status": answer.get("status", 0),
        "words": answer.get("words", ""),
    }


def spooled_captures(spool: str, positions: dict[str, SpoolPosition]) -> Iterator[CaptureStatus]:
    """Yield the captures in the spool with their unshipped bytes."""
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
                continue  # the agent's log has the reason
    finally:
        os.close(spool_fd)


def _first_ns(folder: CaptureFolder, position: SpoolPosition) -> int:
    """Return the time of the first frame from a position on, or 0."""
    with closing(segment_reader(folder, position)) as reader:
        frames = reader.read(1, alive=True).frames
    return frames[0].time_ns if frames else 0


def _jobs(state: State, spool: str) -> list[NodeJob]:
    """Return the jobs: those in the spool first, then by time, newest first."""
    shipped = {progress.folder: progress for progress in state.checkpoints}
    positions = {folder: progress.position for folder, progress in shipped.items()}
    spooled = {capture["folder"]: capture for capture in spooled_captures(spool, positions)}
    unread: dict[str, list[CaptureStatus]] = defaultdict(list)
    for capture in spooled.values():
        if capture["folder"] not in shipped:
            unread[capture["job_id"]].append(capture)
    by_job: dict[str, list[CaptureCheckpoint]] = defaultdict(list)
    for progress in sorted(
        shipped.values(),
        key=lambda progress: (progress.folder in spooled, progress.changed_ns),
        reverse=True,
    ):
        by_job[progress.identity.job_id].append(progress)
    return [
        _job(job_id, by_job.get(job_id, []), unread.get(job_id, []), spooled, state.accounts)
        for job_id in (*(job_id for job_id in unread if job_id not in by_job), *by_job)
    ]


def _lag_secs(captures: Sequence[CaptureStatus]) -> float:
    oldest_ns = min(filter(None, (capture["waiting_since_ns"] for capture in captures)), default=0)
    return round(max(0.0, time.time() - oldest_ns / 1e9), 1) if oldest_ns else 0.0


def _job(
    job_id: str,
    captures: Sequence[CaptureCheckpoint],
    unread: Sequence[CaptureStatus],
    spooled_by_folder: Mapping[str, CaptureStatus],
    learner_accounts: Mapping[str, CaptureAccount],
) -> NodeJob:
    """Return the status of a job. The learner counts its lines, also while Loki is down.

    captures: those with shipped entries, the newest first; unread: those without.
    """
    entries, refused = Counter[str](), Counter[str]()
    for capture in captures:
        entries.update(capture.counts.entries)
        refused.update(capture.counts.refused)
    folders = [capture.folder for capture in captures]
    spooled = [spooled_by_folder[folder] for folder in folders if folder in spooled_by_folder]
    spooled += unread
    if captures:
        name, user = captures[0].identity.name, captures[0].identity.user
        accounts = [learner_accounts.get(capture.folder, capture.account) for capture in captures]
        attempt = max(capture.identity.attempt for capture in captures)
        pairs = zip(accounts, captures, strict=True)
        state = _state([account for account, of in pairs if of.identity.attempt == attempt])
    else:
        name, user = unread[0]["name"], unread[0]["user"]
        folders = [status["folder"] for status in unread]
        accounts = [learner_accounts[folder] for folder in folders if folder in learner_accounts]
        is_prepared = all(status["unused"] for status in unread)
        state = PREPARED if is_prepared else _state(accounts)
    return NodeJob(
        job_id=job_id,
        name=name,
        user=user,
        state=state,
        captures=len(captures) + len(unread),
        over=sum(capture.done for capture in captures),
        entries=entries,
        refused=refused,
        spooled_bytes=sum(status["bytes"] for status in spooled),
        lag_secs=_lag_secs(spooled),
        ledger=ledger_of(zip_longest(accounts, captures)),
        lines=sum(account.lines for account in accounts),
        records=sum(account.records for account in accounts),
        lost=sum(account.lost() for account in accounts),
    )


def _state(accounts: Sequence[CaptureAccount]) -> str:
    now_ns = time.time_ns()
    states = [derived_state(account.state, account.heartbeat_ns, now_ns) for account in accounts]
    return worst_state(states or [RUNNING])
