"""`logshipper-agent status --config FILE`: what is spooled, shipped and refused, per job, beside a running agent."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, TypedDict

from ingest.agent_config import AgentConfig
from ingest.capture_folder import CaptureFolder, Life, list_folders
from ingest.checkpoints import STATE_FILE, Shipped, read_state
from ingest.job import RUNNING, worst_state
from ingest.segment_reader import SpoolPosition
from ingest.text_table import printed_table, shown_size
from ingest.user_agent import running_agent
from logshipper.errors import LogshipperError, StoreError

SCHEMA = "logshipper-agent.node-status/1"


class NodeJob(TypedDict):
    """One job of `status --config FILE --json`. entries: acknowledged by Loki, by kind; refused: quarantined, by
    reason; spooled_bytes: of segments that aren't shipped yet; lag_secs: since the newest entry shipped, where
    something waits, else 0; captures, over: how many there are, and how many are shipped to the end."""

    job_id: str
    name: str
    user: str
    state: str
    captures: int
    over: int
    lines: int
    records: int
    lost: int
    entries: dict[str, int]
    refused: dict[str, int]
    spooled_bytes: int
    lag_secs: float


class _Spooled(TypedDict):
    folder: str
    job_id: str
    name: str
    user: str
    life: Life
    bytes: int


def status(config: AgentConfig, *, as_json: bool) -> int:
    """Prints it; returns the exit code. Raises StoreError where spool or state can't be read."""
    path = os.path.join(config.agent.state_dir, STATE_FILE)
    shipped, notes = read_state(path) if os.path.exists(path) else ([], {})
    positions = {one.folder: one.position for one in shipped}
    spooled = list(_spooled(config.agent.spool_dir, positions))
    document: dict[str, Any] = {  # Any: JSON
        "schema": SCHEMA,
        "config": config.path,
        "cluster": config.agent.cluster,
        "host": config.agent.host,
        "spool_dir": config.agent.spool_dir,
        "state_dir": config.agent.state_dir,
        "agent_pid": running_agent(config.agent.state_dir),
        "loki": _loki(config, notes),
        "last_refusal": _moment(notes.get("last_refusal")),
        "jobs": _jobs(shipped, spooled),
    }
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        _print(document)
    return 0


def _loki(config: AgentConfig, notes: dict[str, Any]) -> dict[str, object]:  # Any: JSON that the agent wrote
    known = notes.get("loki", {})
    trouble = _moment(known)
    return {"url": config.loki.access.url, "waiting": trouble is not None, "trouble": trouble}


def _moment(said: Any) -> dict[str, object] | None:  # Any: as above
    """The sink's word on an answer that wasn't 204; None where there was none."""
    if not said or not said.get("since_ns"):
        return None
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(said["since_ns"] / 1e9))
    return {"since": since, "status": said.get("status", 0), "words": said.get("words", "")}


def _spooled(spool: str, positions: dict[str, SpoolPosition]) -> Iterator[_Spooled]:
    """The captures in the spool, with the bytes that aren't shipped."""
    try:
        spool_fd = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(spool, f"can't be opened: {(error.strerror or str(error)).lower()}") from None
    try:
        for name in list_folders(spool_fd):
            try:
                with closing(CaptureFolder(spool_fd, spool, name, os.fstat(spool_fd).st_uid, node=True)) as folder:
                    identity = folder.identity(complete=True)
                    if identity is not None:
                        size = folder.bytes_from(positions.get(folder.key, SpoolPosition()))
                        yield _Spooled(folder=folder.key, job_id=identity.job_id, name=identity.name,
                                       user=identity.user, life=folder.life(), bytes=size)  # fmt: skip
            except (LogshipperError, OSError):
                continue  # the agent's log says why
    finally:
        os.close(spool_fd)


def _jobs(shipped: Sequence[Shipped], spooled: Sequence[_Spooled]) -> list[NodeJob]:
    """Those with something in the spool first, then the newest."""
    waiting = {one["folder"]: one for one in spooled}
    jobs: dict[str, list[Shipped]] = {}
    for one in sorted(shipped, key=lambda one: (one.folder in waiting, one.changed_ns), reverse=True):
        jobs.setdefault(one.identity.job_id, []).append(one)
    found = [_job(job_id, captures, waiting) for job_id, captures in jobs.items()]
    known = {one.folder for one in shipped}
    unread: dict[str, list[_Spooled]] = {}
    for here in spooled:
        if here["folder"] not in known:
            unread.setdefault(here["job_id"], []).append(here)
    for job in found:
        for here in unread.pop(job["job_id"], []):
            job["captures"] += 1
            job["spooled_bytes"] += here["bytes"]
    return [_unread(captures) for captures in unread.values()] + found


def _job(job_id: str, captures: Sequence[Shipped], waiting: dict[str, _Spooled]) -> NodeJob:
    entries: dict[str, int] = {}
    refused: dict[str, int] = {}
    for one in captures:
        for total, counts in ((entries, one.counts.entries), (refused, one.counts.refused)):
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
    here = [waiting[one.folder] for one in captures if one.folder in waiting]
    last_ns = max(one.counts.last_ns for one in captures)
    size = sum(one["bytes"] for one in here)
    attempt = max(one.identity.attempt for one in captures)
    states = [one.account.state for one in captures if one.identity.attempt == attempt]
    return NodeJob(
        job_id=job_id,
        name=captures[0].identity.name,
        user=captures[0].identity.user,
        state=worst_state(states),
        captures=len(captures),
        over=sum(one.done for one in captures),
        lines=sum(one.account.lines for one in captures),
        records=sum(one.account.records for one in captures),
        lost=sum(one.account.lost() for one in captures),
        entries=entries,
        refused=refused,
        spooled_bytes=size,
        lag_secs=round(max(0.0, time.time() - last_ns / 1e9), 1) if size and last_ns else 0.0,
    )


def _unread(captures: Sequence[_Spooled]) -> NodeJob:
    one, size = captures[0], sum(capture["bytes"] for capture in captures)
    return NodeJob(job_id=one["job_id"], name=one["name"], user=one["user"], state=RUNNING, captures=len(captures),
                   over=0, lines=0, records=0, lost=0, entries={}, refused={}, spooled_bytes=size,
                   lag_secs=0.0)  # fmt: skip


def _print(document: dict[str, Any]) -> None:  # Any: as made above
    agent = document["agent_pid"]
    trouble, refusal = document["loki"]["trouble"], document["last_refusal"]
    lines = [
        f"node   {document['cluster']}/{document['host']}",
        f"spool  {document['spool_dir']}",
        f"agent  {'not running' if agent is None else f'at work (process {agent})'}",
        f"loki   {document['loki']['url']}: {_words(trouble) if trouble else 'well, as far as is known'}",
    ]
    if refusal and not trouble:
        lines.append(f"       last answer but 204: {_words(refusal)}")
    sys.stdout.write("\n".join(lines) + "\n\n")
    if not document["jobs"]:
        sys.stdout.write("no jobs\n")
        return
    heading = ("JOB", "STATE", "LINES", "RECORDS", "LOST", "SHIPPED", "REFUSED", "SPOOLED", "LAG", "USER", "NAME")
    rows = [heading, *(_row(job) for job in document["jobs"])]
    sys.stdout.write(printed_table(rows, right=range(2, 9)))


def _words(said: dict[str, Any]) -> str:  # Any: as above
    status = f"HTTP {said['status']}: " if said["status"] else ""
    return f"since {said['since']}: {status}{said['words']}"


def _row(job: NodeJob) -> tuple[str, ...]:
    lag = f"{job['lag_secs']:.0f} s" if job["lag_secs"] else "-"
    shipped, refused = sum(job["entries"].values()), sum(job["refused"].values())
    counts = (job["lines"], job["records"], job["lost"], shipped, refused)
    return (job["job_id"], job["state"], *map(str, counts), shown_size(job["spooled_bytes"]), lag, job["user"],
            job["name"])  # fmt: skip
