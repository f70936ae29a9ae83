"""The document of `logshipper-agent status --config FILE` as text for a terminal."""

import sys
from collections.abc import Mapping
from typing import Any

from logshipper.safe_text import safe
from logshipper_ingest.agent.node_ledger import ledger_line
from logshipper_ingest.console.text_table import plural, printed_table, shown_size


def print_status(document: dict[str, Any]) -> None:  # Any: JSON, made by node_status.py
    """Print the status as lines and a table of jobs."""
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
    telegraf = document["telegraf"]
    if telegraf:
        counts = _listed({name: count for name, count in telegraf["lines"].items() if count})
        words = f"lines since the agent's start: {counts or 'none'}"
        lines.append(f"telegraf {telegraf['listen']}: {words}")
        lines += [f"         {telegraf['trouble']}"] if telegraf.get("trouble") else []
    sys.stdout.write("".join(f"{safe(line)}\n" for line in lines) + "\n")
    if not document["jobs"]:
        sys.stdout.write("no jobs\n")
        return
    heading = "JOB STATE LINES RECORDS LOST SHIPPED REFUSED SPOOLED LAG USER NAME"
    rows = [tuple(heading.split()), *map(_row, document["jobs"])]
    sys.stdout.write(printed_table(rows, right=range(2, 9)))


def _sink_lines(sink: dict[str, Any], *, several: bool) -> list[str]:  # Any: as above
    """several: name the sink and add a line with its backlog."""
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
        lines.append(f"slurm  ends of jobs: {_listed(counts)}")
    lines.append(f"ledger {ledger_line(sink['ledger'])}")
    return lines + [f"       {words}" for words in sink["differs"]]


def _remote_write_lines(remote_write: dict[str, Any]) -> list[str]:  # Any: as above
    last, waiting = remote_write["last_success"], shown_size(remote_write["waiting_bytes"])
    success = f"last taken {last}" if last else "nothing taken yet"
    lines = [f"remote {remote_write['url']}: {success}, {waiting} wait"]
    if remote_write["dropped"]:
        counts = _listed(remote_write["dropped"])
        lines.append(f"       samples dropped since the agent's start: {counts}")
    if remote_write["last_refusal"]:
        lines.append(f"       its last refusal: {_words(remote_write['last_refusal'])}")
    return lines


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _waiting_text(document: dict[str, Any]) -> str:  # Any: as above
    lag = f", the oldest of it for {document['lag_secs']:.0f} s" if document["lag_secs"] else ""
    return f"{shown_size(document['spooled_bytes'])} wait{lag}"


def _quarantine_text(quarantine: dict[str, Any]) -> str:  # Any: as above
    if quarantine["entries"] < 0:
        return f"{shown_size(quarantine['bytes'])}; `logshipper-agent replay --dry-run` counts them"
    entries, reasons = plural(quarantine["entries"], "entry"), _listed(quarantine["reasons"])
    return f"{entries} ({reasons}); `logshipper-agent replay` sends them once more"


def _words(moment: dict[str, Any]) -> str:  # Any: as above
    status = f"HTTP {moment['status']}: " if moment["status"] else ""
    return f"since {moment['since']}: {status}{moment['words']}"


def _row(job: Mapping[str, Any]) -> tuple[str, ...]:
    lag = f"{job['lag_secs']:.0f} s" if job["lag_secs"] else "-"
    entry_count, refusal_count = sum(job["entries"].values()), sum(job["refused"].values())
    counts = (job["lines"], job["records"], job["lost"], entry_count, refusal_count)
    first, last = (job["job_id"], job["state"]), (job["user"], job["name"])
    return (*first, *map(str, counts), shown_size(job["spooled_bytes"]), lag, *last)
