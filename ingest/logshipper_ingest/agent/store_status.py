"""`logshipper-agent status`: spooled and ingested lines of a user's own store, per job."""

import json
import sys
from typing import TypedDict

from logshipper.safe_text import safe
from logshipper_ingest.agent_start import running_agent
from logshipper_ingest.console.text_table import printed_table, shown_size
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.store.intake import SpooledCapture
from logshipper_ingest.store.local_store import LocalStore

SCHEMA = "logshipper-agent.status/1"


class JobStatus(TypedDict):
    """One job of `status --json`."""

    job_id: str
    name: str
    state: str
    lines: int
    records: int
    lost: int
    captures_spooled: int
    captures_alive: int
    spooled_bytes: int  # of segments still in the spool


def status(root: str, *, as_json: bool) -> int:
    """Print the status and return the exit code. Raises StoreError."""
    with LocalStore(root) as store:
        jobs = _job_statuses(store)
        agent = running_agent(root)
    at_work = "not running" if agent is None else f"at work (process {agent})"
    if as_json:
        document = {"schema": SCHEMA, "store": root, "spool": store.spool, "agent_pid": agent}
        sys.stdout.write(json.dumps({**document, "jobs": jobs}, indent=2) + "\n")
        return 0
    sys.stdout.write(f"store  {safe(root)}\nspool  {safe(store.spool)}\nagent  {at_work}\n\n")
    if not jobs:
        sys.stdout.write("no jobs\n")
        return 0
    rows: list[tuple[str, ...]] = [
        ("JOB", "STATE", "LINES", "RECORDS", "LOST", "SPOOLED", "CAPTURES", "NAME")
    ]
    for job in jobs:
        alive = f"{job['captures_spooled']} ({job['captures_alive']} alive)"
        captures = alive if job["captures_spooled"] else "-"
        counts = (
            *map(str, (job["lines"], job["records"], job["lost"])),
            shown_size(job["spooled_bytes"]),
        )
        rows.append((job["job_id"], job["state"], *counts, captures, job["name"]))
    sys.stdout.write(printed_table(rows, right=range(2, 6)))
    return 0


def _job_statuses(store: LocalStore) -> list[JobStatus]:
    """Return the jobs: spooled ones first, then those of the store, newest first."""
    spooled: dict[str, list[SpooledCapture]] = {}
    for capture in store.spooled():
        spooled.setdefault(capture.job_id, []).append(capture)
    jobs = {job.job_id: job for job in store.jobs()}
    statuses: list[JobStatus] = []
    for job_id in dict.fromkeys([*spooled, *jobs]):
        job, captures = jobs.get(job_id), spooled.get(job_id, [])
        statuses.append(
            JobStatus(
                job_id=job_id or captures[0].folder,
                name=job.name if job else "",
                state=job.state if job else "NOT INGESTED",
                lines=job.lines if job else 0,
                records=job.records if job else 0,
                lost=job.lost if job else 0,
                captures_spooled=len(captures),
                captures_alive=sum(capture.life is not Life.DEAD for capture in captures),
                spooled_bytes=sum(capture.size for capture in captures),
            )
        )
    return statuses
