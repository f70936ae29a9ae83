"""Translation of other systems' states."""

from collections.abc import Mapping

from logshipper_ingest.model.job import OPEN_STATES, QUEUED, RUNNING, UNKNOWN

QCG = {
    "QUEUED": QUEUED, "SCHEDULED": QUEUED, "EXECUTING": RUNNING, "SUCCEED": "COMPLETED", "FAILED": "FAILED",
    "CANCELED": "CANCELLED", "OMITTED": "CANCELLED",
}  # fmt: skip
BALSAM = {
    "CREATED": QUEUED, "AWAITING_PARENTS": QUEUED, "READY": QUEUED, "STAGED_IN": QUEUED, "PREPROCESSED": QUEUED,
    "RUNNING": RUNNING, "RUN_DONE": "COMPLETED", "POSTPROCESSED": "COMPLETED", "STAGED_OUT": "COMPLETED",
    "JOB_FINISHED": "COMPLETED", "RUN_ERROR": "FAILED", "RUN_TIMEOUT": "TIMEOUT", "RESTART_READY": "REQUEUED",
    "FAILED": "FAILED", UNKNOWN: UNKNOWN,
}  # fmt: skip
XT = {
    "created": QUEUED, "allocating": QUEUED, "spawning": QUEUED, "queued": QUEUED, "submitted": QUEUED,
    "running": RUNNING, "started": RUNNING, "restarted": RUNNING, "completed": "COMPLETED",
    "success": "COMPLETED", "error": "FAILED", "failed": "FAILED", "aborted": "FAILED", "cancelled": "CANCELLED",
    "killed": "CANCELLED", "terminated": "CANCELLED",
}  # fmt: skip
_BY_ORIGIN: Mapping[str, Mapping[str, str]] = {"qcg": QCG, "balsam": BALSAM, "xt": XT}


def is_known(origin: str, state: str) -> bool:
    return state in _BY_ORIGIN[origin]


def state_of(origin: str, state: str) -> str:
    """The state here; QUEUED before the first one. Files have no states of their own."""
    if not state:
        return QUEUED
    return _BY_ORIGIN[origin][state] if origin in _BY_ORIGIN else state


def is_over(state: str) -> bool:
    """Return whether a state is an end; a queued job continues."""
    return state not in (*OPEN_STATES, "REQUEUED")
