"""Parse the machine's answers, and find their faults: text in, values out."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from logshipper_ingest.model.ledger import LEDGER_COUNTS, STREAM_NAMES
from tests.slurm.tools.capturing import Stream
from tests.slurm.tools.cluster import OVER, JobEnd

OUTCOMES = LEDGER_COUNTS[1:8]  # possible outcomes of lines that were read


class Job(NamedTuple):
    """A job as `scontrol show job` reports it. group: the job id from sbatch, shared by an array or
    a heterogeneous job."""

    job_id: str
    group: str
    user: str
    end: JobEnd

    @property
    def is_over(self) -> bool:
        return self.end.state in OVER


class Account(NamedTuple):
    """Loki's data about a job. logs: its lines without logshipper's own. closed: the final events
    of its captures."""

    logs: dict[Stream, list[str]]
    closed: list[dict[str, Any]]  # Any: JSON
    events: list[dict[str, Any]]


def jobs_of(text: str) -> list[Job]:
    """Parse the output of `scontrol --oneliner show job`."""
    jobs = []
    for line in text.splitlines():
        about = dict(re.findall(r"(\S+?)=(\S*)", line))
        if "JobId" in about and "JobState" in about:
            code, signal = map(int, about["ExitCode"].split(":"))
            group = about.get("ArrayJobId") or about.get("HetJobId") or about["JobId"]
            user = about["UserId"].partition("(")[0]
            jobs.append(Job(about["JobId"], group, user, JobEnd(about["JobState"], code, signal)))
    return jobs


def files_of(text: str) -> dict[str, dict[str, bytes]]:
    """Return file contents by user and name. text: one line per file, `USER CONTENT NAME`, with the
    content in base64."""
    files: dict[str, dict[str, bytes]] = {}
    for line in text.splitlines():
        user, content, name = line.split(" ", 2)
        files.setdefault(user, {})[name] = base64.b64decode(content)
    return files


def accounts_of(text: str) -> dict[str, Account]:
    """Return accounts by job id. text: output of guest/entries.py."""
    accounts: dict[str, Account] = {}
    for metadata, labels, line in map(json.loads, text.splitlines()):
        account = accounts.setdefault(metadata["job_id"], Account({}, [], []))
        if labels["kind"] == "event":
            event = {**metadata, **json.loads(line)}
            account.events.append(event)
            if event["event"] == "closed":
                account.closed.append(event)
        elif "note" not in metadata:
            place = metadata["attempt"], metadata.get("step", ""), metadata.get("task", "0")
            account.logs.setdefault((*place, labels["stream"]), []).append(line)
    return accounts


def ledger_faults(account: Account) -> list[str]:
    """Return messages about faulty captures. Their ledger does not balance, differs from Loki's
    number of lines, or counts lost lines."""
    faults = []
    for event in account.closed:
        for stream in STREAM_NAMES.values():
            ledger = event["ledger"].get(stream, {})
            place = event["attempt"], event.get("step", ""), event.get("task", "0")
            count = len(account.logs.get((*place, stream), ()))
            faults += [
                f"{'/'.join(place)} {stream}: {fault}" for fault in _stream_faults(ledger, count)
            ]
    return faults


def _stream_faults(ledger: Mapping[str, int], count: int) -> Iterable[str]:
    if not ledger:
        return
    if ledger["read"] != sum(ledger[name] for name in OUTCOMES):
        yield f"the ledger doesn't balance: {dict(ledger)}"
    if ledger["stored"] != count:
        yield f"the ledger has {ledger['stored']} lines as stored, Loki {count}"
    if ledger["lost"] or ledger["pending"]:
        yield f"{ledger['lost']} lines are lost, {ledger['pending']} pending"


def event_words(account: Account) -> list[str]:
    """Return the text of a job's events, without those that every capture has."""
    keys = ("event", "step", "task", "state", "reason", "message", "lines", "lost")
    return [
        " ".join(f"{key}={event[key]}" for key in keys if key in event)
        for event in account.events
        if event["event"] not in {"started", "heartbeat"}
    ]


class Result(NamedTuple):
    """Result of a case. problems: empty if it passed. note: an optional figure."""

    name: str
    secs: float
    problems: Sequence[str]
    note: str = ""

    def line(self, number: int, count: int) -> str:
        """Return the report of the result."""
        word = "failed" if self.problems else "ok"
        head = f"[{number}/{count}] {self.name}: {word}, {self.secs:.0f} s"
        return "\n".join(
            [f"{head}; {self.note}" if self.note else head, *(f"    {problem}" for problem in self.problems)]
        )  # fmt: skip


def summary(results: Sequence[Result], facts: Mapping[str, str], minutes: float) -> str:
    """Return the final report: counts, minutes, and facts about the machine."""
    failed = [result.name for result in results if result.problems]
    words = [f"{len(results)} cases, {len(failed)} failed, {minutes:.1f} minutes"]
    words += [f"{name} {value}" for name, value in facts.items()]
    return "; ".join(words) + (f"\nfailed: {', '.join(failed)}" if failed else "")
