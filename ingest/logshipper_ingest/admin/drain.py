"""`logshipper-agent drain`: waits until the agent has shipped all finished captures, before a
node goes down. Prints the rest with reasons."""

import json
import os
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from logshipper.safe_text import safe
from logshipper_ingest.agent.node_status import CaptureStatus, spooled_captures, trouble_of
from logshipper_ingest.agent_start import running_agent
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.console.console_script import warn
from logshipper_ingest.console.progress_bar import Bar
from logshipper_ingest.console.text_table import plural, shown_size
from logshipper_ingest.slurm.waiting import FILE as SLURM_FILE
from logshipper_ingest.slurm.waiting import read_counts
from logshipper_ingest.spool.capture_folder import Life, list_folders, open_spool
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.sink_states import SinkCheckpoints, least_positions, read_states

SCHEMA = "logshipper-agent.drain/1"
EXIT_LEFT = 3
_POLL_SECS = 0.5
_TELL_SECS = 10.0  # between two lines, without a progress bar
_RATE_LOOKS = 20
_SHOWN = 10  # captures named in the output


class Look(NamedTuple):
    """Content of the spool."""

    backlog: list[CaptureStatus]  # finished, unshipped captures
    running: list[CaptureStatus]  # all others
    unreadable: list[str]  # directories that the agent can't ship
    states: list[SinkCheckpoints]

    @property
    def bytes(self) -> int:
        return sum(capture["bytes"] for capture in self.backlog)


def look(config: AgentConfig) -> Look:
    """Inspect the spool. Raises StoreError."""
    states = read_states(config)
    spool = config.agent.spool_dir
    names = _names(spool)
    captures = list(spooled_captures(spool, least_positions(states)))
    unreadable = names - {capture["folder"] for capture in captures}
    used = [capture for capture in captures if not capture["unused"]]
    return Look(
        backlog=[capture for capture in used if capture["life"] is Life.DEAD],
        running=[capture for capture in used if capture["life"] is not Life.DEAD],
        unreadable=sorted(unreadable & _names(spool)),  # without those removed meanwhile
        states=states,
    )


def _names(spool: str) -> set[str]:
    fd = open_spool(spool)
    if fd is None:
        return set()
    try:
        return {name.encode("utf-8", "backslashreplace").decode() for name in list_folders(fd)}
    finally:
        os.close(fd)


def call(config: AgentConfig, timeout_secs: float, *, as_json: bool) -> int:
    """Drain and return the exit code: 0 or EXIT_LEFT. Raises StoreError."""
    last_look, reason = _wait(config, timeout_secs)
    document = _document(config, last_look, reason)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        _print(document)
    return EXIT_LEFT if last_look.backlog or last_look.unreadable else 0


def _wait(config: AgentConfig, timeout_secs: float) -> tuple[Look, str]:
    """Return the last look, and the reason for a remainder."""
    deadline = time.monotonic() + timeout_secs
    progress = _Progress()
    try:
        while True:
            last_look = look(config)
            if not last_look.backlog:
                return last_look, ""
            if running_agent(config.agent.state_dir) is None:
                return last_look, "the agent doesn't run: start it, and call this again"
            if time.monotonic() >= deadline:
                return last_look, _reason(last_look, timeout_secs)
            progress.show(last_look)
            time.sleep(_POLL_SECS)
    finally:
        progress.bar.clear()


def _reason(last_look: Look, timeout_secs: float) -> str:
    words = []
    for sink in last_look.states:
        trouble = trouble_of(sink)
        if trouble is not None:
            status = f"HTTP {trouble['status']}: " if trouble["status"] else ""
            name = "Loki" if sink.config.is_first else sink.config.label
            since = f"{name} doesn't take it, since {trouble['since']}"
            words.append(f"{since}: {status}{trouble['words']}")
    return "; ".join(words) or f"the time was up, {timeout_secs:g} s: the agent is at work on it"


class _Progress:
    """Remaining bytes, the recent rate, and the expected time."""

    def __init__(self) -> None:
        self.bar = Bar("Shipping", shown_size)
        self._max_bytes = 0
        self._looks: deque[tuple[float, int]] = deque(maxlen=_RATE_LOOKS)
        self._due = time.monotonic() + _TELL_SECS
        self._terminal = sys.stderr.isatty()

    def show(self, last_look: Look) -> None:
        now, rest_bytes = time.monotonic(), last_look.bytes
        self._max_bytes = max(self._max_bytes, rest_bytes)
        self._looks.append((now, rest_bytes))
        note = self._note(rest_bytes)
        self.bar(self._max_bytes - rest_bytes, max(self._max_bytes, 1), note)
        if not self._terminal and now >= self._due:
            self._due = now + _TELL_SECS
            captures_text = plural(len(last_look.backlog), "capture")
            warn(f"{shown_size(rest_bytes)} left in {captures_text}{note}")

    def _note(self, rest_bytes: int) -> str:
        (begin, before), (end, _) = self._looks[0], self._looks[-1]
        rate = (before - rest_bytes) / (end - begin) if end > begin else 0.0
        return f", {shown_size(int(rate))}/s, {rest_bytes / rate:.0f} s" if rate > 0 else ""


# ---- what is printed


def _document(config: AgentConfig, last_look: Look, reason: str) -> dict[str, Any]:  # Any: JSON
    ends = [os.path.join(sink.folder, SLURM_FILE) for sink in config.sinks]
    return {
        "schema": SCHEMA,
        "drained": not last_look.backlog and not last_look.unreadable,
        "why": reason,
        "left_bytes": last_look.bytes,
        "left": [
            {"job_id": capture["job_id"], "folder": capture["folder"], "bytes": capture["bytes"]}
            for capture in last_look.backlog
        ],
        "unreadable": last_look.unreadable,
        "running": sorted({capture["job_id"] for capture in last_look.running}),
        "quarantine_bytes": sum(quarantine_files.size(sink.folder) for sink in config.sinks),
        "slurm_waiting": max(
            read_counts(path)["waiting"] if os.path.exists(path) else 0 for path in ends
        ),
    }


def _print(document: dict[str, Any]) -> None:  # Any: as made above
    lines = []
    if document["left"]:
        captures_text = plural(len(document["left"]), "capture")
        lines.append(f"{shown_size(document['left_bytes'])} left in {captures_text}:")
        lines += [
            f"  {capture['folder']}: {shown_size(capture['bytes'])}"
            for capture in document["left"][:_SHOWN]
        ]
        lines.append(f"  {document['why']}")
    if document["unreadable"]:
        names = ", ".join(document["unreadable"][:_SHOWN])
        lines.append(f"the agent can't take {names}: `logshipper-agent fsck` says why")
    if document["drained"]:
        lines.append("all captures that are over are shipped")
    if document["running"]:
        names = ", ".join(document["running"][:_SHOWN])
        lines.append(f"{len(document['running'])} jobs run, and go on being captured: {names}")
    if document["quarantine_bytes"]:
        place = "in the quarantine, on this node's disk only: `logshipper-agent replay`"
        lines.append(f"{shown_size(document['quarantine_bytes'])} are {place}")
    if document["slurm_waiting"]:
        words = "ends of Slurm's jobs aren't told yet: they stay in state_dir"
        lines.append(f"{document['slurm_waiting']} {words}")
    sys.stdout.write("".join(f"{safe(line)}\n" for line in lines))
