"""`logshipper-agent`: what is spooled and taken in, and the per-user agent in the foreground."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TypedDict

from ingest import user_agent
from ingest.capture_folder import Life
from ingest.local_store import LocalStore, SpooledCapture
from logshipper import __version__
from logshipper.errors import LogshipperError
from logshipper.spool import store_root

_EXAMPLES = """examples:
  logshipper-agent status                       what waits in the spool, and what the store has
  logshipper-agent status --json | jq .jobs     the same for programs
  logshipper-agent run --store /scratch/logs    takes in until nothing is left to do
"""
_STATUS_EXAMPLES = """examples:
  logshipper-agent status
  logshipper-agent status --store /scratch/logs --json
"""
_RUN_EXAMPLES = """examples:
  logshipper-agent run                          ends 10 s after the last capture
  logshipper-agent run --idle-secs 3600         for a service that is started again when it ends
"""
STATUS_SCHEMA = "logshipper-agent.status/1"


class JobStatus(TypedDict):
    """One job of `status --json`. spooled_bytes: of segments not yet removed from the spool."""

    job_id: str
    name: str
    state: str
    lines: int
    records: int
    lost: int
    captures_spooled: int
    captures_alive: int
    spooled_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code: 0, 1 for an error, 2 for wrong usage (argparse)."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "status":
            return _status(store_root(options.store), as_json=options.json)
        return _run(store_root(options.store), options.idle_secs)
    except LogshipperError as error:
        sys.stderr.write(f"logshipper-agent: {error}\n")
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its end
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="logshipper-agent",
        description="Takes captured jobs' segments from the spool into the store.",
        epilog=_EXAMPLES,
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    status = commands.add_parser(
        "status",
        help="what is spooled and what is taken in, per job",
        description="Shows what is spooled and what is taken in, per job. Takes nothing in itself.",
        epilog=_STATUS_EXAMPLES,
        formatter_class=form,
    )
    status.add_argument("--json", action="store_true", help="for programs")
    run = commands.add_parser(
        "run",
        help="run the per-user agent in the foreground",
        description="Runs the per-user agent in the foreground: takes in what is spooled, until nothing is left to do. "
        "`logshipper run` starts one by itself.",
        epilog=_RUN_EXAMPLES,
        formatter_class=form,
    )
    run.add_argument(
        "--idle-secs",
        type=float,
        default=user_agent.IDLE_SECS,
        metavar="SECS",
        help="end when as long no capture was alive and nothing came (default: %(default)g)",
    )
    for command in (status, run):
        command.add_argument(
            "--store",
            metavar="DIR",
            help="the store's folder (default: $LOGSHIPPER_STORE, else the user's data folder)",
        )
    return parser


def _run(root: str, idle_secs: float) -> int:
    def say(problem: str) -> None:
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {problem}\n")
        sys.stderr.flush()

    if not user_agent.serve(root, say, idle_secs=idle_secs):
        sys.stderr.write(f"logshipper-agent: another agent is at work on {root}\n")
        return 1
    return 0


def _status(root: str, *, as_json: bool) -> int:
    with LocalStore(root) as store:
        jobs = _job_statuses(store)
        agent = user_agent.running_agent(root)
    at_work = "not running" if agent is None else f"at work (process {agent})"
    if as_json:
        document = {
            "schema": STATUS_SCHEMA,
            "store": root,
            "spool": store.spool,
            "agent_pid": agent,
            "jobs": jobs,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return 0
    sys.stdout.write(f"store  {root}\nspool  {store.spool}\nagent  {at_work}\n\n")
    if not jobs:
        sys.stdout.write("no jobs\n")
        return 0
    rows = [("JOB", "STATE", "LINES", "RECORDS", "LOST", "SPOOLED", "CAPTURES", "NAME")]
    for job in jobs:
        captures = f"{job['captures_spooled']} ({job['captures_alive']} alive)" if job["captures_spooled"] else "-"
        counts = (str(job["lines"]), str(job["records"]), str(job["lost"]), f"{job['spooled_bytes']:,} B")
        rows.append((job["job_id"], job["state"], *counts, captures, job["name"]))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if 2 <= column <= 5 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    return 0


def _job_statuses(store: LocalStore) -> list[JobStatus]:
    """Jobs with something in the spool first, then those that the store has, newest first."""
    spooled: dict[str, list[SpooledCapture]] = {}
    for capture in store.spooled():
        spooled.setdefault(capture.job_id, []).append(capture)
    known = {job.job_id: job for job in store.jobs()}
    found: list[JobStatus] = []
    for job_id in dict.fromkeys([*spooled, *known]):
        job, captures = known.get(job_id), spooled.get(job_id, [])
        found.append(
            JobStatus(
                job_id=job_id or captures[0].folder,
                name=job.name if job else "",
                state=job.state if job else "NOT TAKEN IN",
                lines=job.lines if job else 0,
                records=job.records if job else 0,
                lost=job.lost if job else 0,
                captures_spooled=len(captures),
                captures_alive=sum(capture.life is not Life.DEAD for capture in captures),
                spooled_bytes=sum(capture.size for capture in captures),
            )
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
