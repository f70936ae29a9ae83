"""Why Slurm ended a command that `logshipper run` captures in a job. slurmstepd writes its own words
into the job's output file, past the command's streams."""

import time
from signal import SIGKILL, SIGTERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def slurm_reason(
    signo: int,
    environment: "Mapping[str, str]",
    *,
    is_cancelled: bool,
    is_short_of_memory: bool,
) -> str:
    """The reason for the log's last line; "" where Slurm is not known to have ended the command.

    is_cancelled: the signal came to the relay as well, as Slurm signals all of a step.
    is_short_of_memory: the kernel killed processes of the job's control group.
    """
    if "SLURM_JOB_ID" not in environment or signo not in (SIGTERM, SIGKILL):
        return ""
    if signo == SIGKILL and is_short_of_memory:
        return "killed: out of memory (Slurm)"
    if not is_cancelled:
        return ""
    end = environment.get("SLURM_JOB_END_TIME", "")
    is_late = end.isascii() and end.isdigit() and time.time() >= int(end[:12])
    return "killed: time limit (Slurm)" if is_late else "cancelled (Slurm)"
