"""`logshipper-agent drain`: waits until the agent has shipped all captures that are over, before a
node is taken down; says what is left, and why."""

import json
import os
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from logshipper.safe_text import safe
from logshipper_ingest.agent.node_status import Spooled, spooled_captures, trouble_of
from logshipper_ingest.agent.user_agent import running_agent
from logshipper_ingest.config.agent_config import AgentConfig
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
_TELL_SECS = 10.0  # between two lines, where no bar can be drawn
_RATE_LOOKS = 20
_SHOWN = 10  # captures that are named


class Look(NamedTuple):
    """What is in the spool. left: captures that are over, and not shipped; running: others;
    unreadable: directories that the agent can't take."""

    left: list[Spooled]
    running: list[Spooled]
    unreadable: list[str]
    states: list[SinkCheckpoints]

    @property
    def bytes(self) -> int:
        return sum(one["bytes"] for one in self.left)


def look(config: AgentConfig) -> Look:
    """Raises StoreError."""
    states = read_states(config)
    spool = config.agent.spool_dir
    names = _names(spool)
    found = list(spooled_captures(spool, least_positions(states)))
    over = [one for one in found if one["life"] is Life.DEAD]
    unreadable = names - {one["folder"] for one in found}
    return Look(
        left=[one for one in over if not one["unused"]],
        running=[one for one in found if one["life"] is not Life.DEAD and not one["unused"]],
        unreadable=sorted(unreadable & _names(spool)),  # and not those that have gone meanwhile
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
    """Returns the exit code: 0, or EXIT_LEFT. Raises StoreError."""
    found, why = _wait(config, timeout_secs)
    document = _document(config, found, why)
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        _print(document)
    return EXIT_LEFT if found.left or found.unreadable else 0


def _wait(config: AgentConfig, timeout_secs: float) -> tuple[Look, str]:
    """The last look, and why something is left."""
    deadline = time.monotonic() + timeout_secs
    progress = _Progress()
    try:
        while True:
            found = look(config)
            if not found.left:
                return found, ""
            if running_agent(config.agent.state_dir) is None:
                return found, "the agent doesn't run: start it, and call this again"
            if time.monotonic() >= deadline:
                return found, _why(found, timeout_secs)
            progress.show(found)
            time.sleep(_POLL_SECS)
    finally:
        progress.clear()


def _why(found: Look, timeout_secs: float) -> str:
    words = []
    for one in found.states:
        trouble = trouble_of(one)
        if trouble is not None:
            status = f"HTTP {trouble['status']}: " if trouble["status"] else ""
            name = "Loki" if one.config.is_first else one.config.label
            words.append(
                f"{name} doesn't take it, since {trouble['since']}: {status}{trouble['words']}"
            )
    return "; ".join(words) or f"the time was up, {timeout_secs:g} s: the agent is at work on it"


class _Progress:
    """Bytes left, the rate of the last seconds, and how long it may take."""

    def __init__(self) -> None:
        self._bar = Bar("Shipping", shown_size)
        self._most = 0
        self._looks: deque[tuple[float, int]] = deque(maxlen=_RATE_LOOKS)
        self._due = time.monotonic() + _TELL_SECS
        self._terminal = sys.stderr.isatty()

    def show(self, found: Look) -> None:
        now, left = time.monotonic(), found.bytes
        self._most = max(self._most, left)
        self._looks.append((now, left))
        note = self._note(left)
        self._bar(self._most - left, max(self._most, 1), note)
        if not self._terminal and now >= self._due:
            self._due = now + _TELL_SECS
            sys.stderr.write(
                f"logshipper-agent: {shown_size(left)} left in {plural(len(found.left), 'capture')}{note}\n"
            )

    def _note(self, left: int) -> str:
        (begin, before), (end, _) = self._looks[0], self._looks[-1]
        rate = (before - left) / (end - begin) if end > begin else 0.0
        return f", {shown_size(int(rate))}/s, {left / rate:.0f} s" if rate > 0 else ""

    def clear(self) -> None:
        self._bar.clear()


# ---- what is told


def _document(config: AgentConfig, found: Look, why: str) -> dict[str, Any]:  # Any: JSON
    ends = [os.path.join(one.folder, SLURM_FILE) for one in config.sinks]
    return {
        "schema": SCHEMA,
        "drained": not found.left and not found.unreadable,
        "why": why,
        "left_bytes": found.bytes,
        "left": [
            {"job_id": one["job_id"], "folder": one["folder"], "bytes": one["bytes"]}
            for one in found.left
        ],
        "unreadable": found.unreadable,
        "running": sorted({one["job_id"] for one in found.running}),
        "quarantine_bytes": sum(quarantine_files.size(one.folder) for one in config.sinks),
        "slurm_waiting": max(
            read_counts(path)["waiting"] if os.path.exists(path) else 0 for path in ends
        ),
    }


def _print(document: dict[str, Any]) -> None:  # Any: as made above
    lines = []
    if document["left"]:
        left = plural(len(document["left"]), "capture")
        lines.append(f"{shown_size(document['left_bytes'])} left in {left}:")
        lines += [
            f"  {one['folder']}: {shown_size(one['bytes'])}" for one in document["left"][:_SHOWN]
        ]
        lines.append(f"  {document['why']}")
    if document["unreadable"]:
        shown = ", ".join(document["unreadable"][:_SHOWN])
        lines.append(f"the agent can't take {shown}: `logshipper-agent fsck` says why")
    if document["drained"]:
        lines.append("all captures that are over are shipped")
    if document["running"]:
        shown = ", ".join(document["running"][:_SHOWN])
        lines.append(f"{len(document['running'])} jobs run, and go on being captured: {shown}")
    if document["quarantine_bytes"]:
        lines.append(
            f"{shown_size(document['quarantine_bytes'])} are in the quarantine, on this node's disk only: "
            "`logshipper-agent replay`"
        )
    if document["slurm_waiting"]:
        lines.append(
            f"{document['slurm_waiting']} ends of Slurm's jobs aren't told yet: they stay in state_dir"
        )
    sys.stdout.write("".join(f"{safe(line)}\n" for line in lines))
