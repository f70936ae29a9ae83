"""Asks Slurm's accounting, by `sacct`, about jobs whose output is imported."""

import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from logshipper.errors import UsageError, os_words
from logshipper_ingest.imports.values import NS
from logshipper_ingest.model.job import QUEUED, RUNNING, SLURM_STATES

_BATCH = 500  # jobs of a call
_TIMEOUT_SECS = 120.0


class SlurmJob(NamedTuple):
    """A job's fields, as `sacct` prints them."""

    JobID: str
    JobName: str
    User: str
    State: str
    ExitCode: str
    Start: str
    End: str
    NNodes: str
    AllocCPUS: str
    Partition: str
    NodeList: str

    @property
    def state(self) -> str:
        word = self.State.partition(" ")[0]  # of `CANCELLED by 1000`
        return word if word in SLURM_STATES else QUEUED if word == "PENDING" else RUNNING


def slurm_jobs(job_ids: Sequence[str]) -> dict[str, SlurmJob]:
    """Jobs by their ids. Raises UsageError if `sacct` is missing or fails."""
    jobs: dict[str, SlurmJob] = {}
    for begin in range(0, len(job_ids), _BATCH):
        ids = ",".join(job_ids[begin : begin + _BATCH])
        answer = _ask(["sacct", "-nPX", "-o", ",".join(SlurmJob._fields), "-j", ids])
        rows = (line.split("|") for line in answer.splitlines())
        jobs |= {row[0]: SlurmJob(*row) for row in rows if len(row) == len(SlurmJob._fields)}
    return jobs


def whole(text: str) -> int:
    """A number; 0 for `Unknown`."""
    return int(text) if text.isascii() and text.isdigit() else 0


def time_ns(text: str) -> int:
    return whole(text) * NS


def _ask(command: list[str]) -> str:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env=environment,
            timeout=_TIMEOUT_SECS, check=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        fault = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        fault = os_words(error)
    else:
        return answer.stdout
    remedy = "leave out --sacct, or run it where Slurm is"
    raise UsageError("--sacct", [f"`sacct` fails here: {fault}; {remedy}"])
