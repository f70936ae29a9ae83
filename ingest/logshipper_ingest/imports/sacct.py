"""Asks Slurm's accounting, by `sacct`, about jobs whose output is imported."""

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from logshipper.errors import UsageError, os_words
from logshipper_ingest.imports.output_text import NS
from logshipper_ingest.model.job import OPEN_STATES, QUEUED, RUNNING, SLURM_STATES

_FIELDS = "JobID,JobName,User,State,ExitCode,Start,End,NNodes,AllocCPUS,Partition,NodeList"
_BATCH = 500  # jobs of a call
_TIMEOUT_SECS = 120.0


class SlurmJob(NamedTuple):
    """A job as Slurm knows it. Times in ns, 0 for none; exit_code: None for an open job."""

    name: str
    user: str
    state: str
    exit_code: int | None
    signal: int
    started_ns: int
    ended_ns: int
    nodes: int
    cores: int
    partition: str
    hosts: str


def slurm_jobs(job_ids: Sequence[str]) -> dict[str, SlurmJob]:
    """Jobs by their ids. Raises UsageError if `sacct` is missing or fails."""
    jobs: dict[str, SlurmJob] = {}
    for begin in range(0, len(job_ids), _BATCH):
        ids = ",".join(job_ids[begin : begin + _BATCH])
        for line in _ask(["sacct", "-nPX", "-o", _FIELDS, "-j", ids]).splitlines():
            job_id, *fields = line.split("|")
            if len(fields) == len(_FIELDS.split(",")) - 1:
                jobs[job_id] = _job(fields)
    return jobs


def _ask(command: list[str]) -> str:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment,
            timeout=_TIMEOUT_SECS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        fault = os_words(error)
    else:
        if answer.returncode == 0:
            return answer.stdout
        fault = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
    raise UsageError(
        "--sacct", [f"`sacct` fails here: {fault}; leave out --sacct, or run it where Slurm is"]
    )


def _job(fields: list[str]) -> SlurmJob:
    name, user, state, exit_code, start, end, nodes, cores, partition, hosts = fields
    state = state.partition(" ")[0]  # `CANCELLED by 1000`
    is_open = state in ("PENDING", *OPEN_STATES) or state not in SLURM_STATES
    code, _, signo = exit_code.partition(":")
    return SlurmJob(
        name,
        user,
        QUEUED if state == "PENDING" else RUNNING if is_open else state,
        None if is_open else _whole(code),
        _whole(signo),
        _whole(start) * NS,
        _whole(end) * NS,
        _whole(nodes),
        _whole(cores),
        partition,
        hosts,
    )


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
