"""Finds a job's end in the last text of its output: messages of Slurm, or a final traceback. Pure."""

import re
import signal
from typing import NamedTuple

from logshipper_ingest.model.job import UNKNOWN

_LINES_BEHIND = 5  # a traceback, at most: a program that goes on has caught it
_CANCELLED = re.compile(
    r"(?m)^slurmstepd[^\n]{0,200}? CANCELLED AT ([0-9T:-]{1,30})(?: DUE TO ([A-Z][A-Z ]{0,40}))?"
)
_BY_REASON = {
    "TIME LIMIT": ("TIMEOUT", "killed: time limit (Slurm)"),
    "PREEMPTION": ("PREEMPTED", "preempted (Slurm)"),
    "NODE FAILURE": ("NODE_FAIL", "its node failed (Slurm)"),
}
_OUT_OF_MEMORY = re.compile(
    r"^(?:slurmstepd|srun)\S*: error: .*(?:oom.kill event|oom_kill|out-of-memory|Out Of Memory)",
    re.MULTILINE | re.IGNORECASE,
)
_SRUN = re.compile(
    r"^srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code (\d{1,3})|([A-Z][a-z].*))$",
    re.MULTILINE,
)
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::.*)?")
_LAUNCHER = ("srun:", "slurmstepd:", "wandb:")
_SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
_MAX_REASON_CHARS = 200


class OutputEnd(NamedTuple):
    """time: as printed; "" without one."""

    state: str = UNKNOWN
    reason: str = ""
    exit_code: int | None = None
    signal: int = 0
    time: str = ""


def output_end(texts: list[str]) -> OutputEnd:
    """The end by the last texts of a job's files."""
    text = "\n".join(texts)
    cancelled = next(iter(reversed(list(_CANCELLED.finditer(text)))), None)
    time = cancelled[1] if cancelled else ""
    if _OUT_OF_MEMORY.search(text):
        return OutputEnd("OUT_OF_MEMORY", "killed: out of memory (Slurm)", time=time)
    if cancelled is not None:
        words = (cancelled[2] or "").strip()
        default = "CANCELLED", f"cancelled{words and f': {words.lower()}'} (Slurm)"
        state, reason = _BY_REASON.get(words, default)
        return OutputEnd(state, reason, time=time)
    exception = next(filter(None, map(_final_exception, texts)), "")
    failed = _SRUN.search(text)
    if failed is None:
        return OutputEnd("FAILED", exception) if exception else OutputEnd()
    words = (failed[2] or "").removesuffix(" (core dumped)")
    reason = exception or failed[0].removeprefix("srun: error: ")[:_MAX_REASON_CHARS]
    exit_code = int(failed[1]) if failed[1] else None
    return OutputEnd("FAILED", reason, exit_code, _SIGNALS.get(words, 0))


def _final_exception(text: str) -> str:
    """The exception of a traceback at the end; "" without one."""
    head, traceback, rest = text.rpartition(_TRACEBACK)
    lines = [line for line in rest.splitlines() if line.strip() and not line.startswith(_LAUNCHER)]
    # of a prefix such as `[rank0]: `, before each line
    prefix = head.rpartition("\n")[2]
    lines = [line.removeprefix(prefix) for line in lines]
    at = next((at for at, line in enumerate(lines) if _EXCEPTION.fullmatch(line)), None)
    if not traceback or at is None or len(lines) - at - 1 > _LINES_BEHIND:
        return ""
    return lines[at][:_MAX_REASON_CHARS]
