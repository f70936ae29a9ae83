"""The reason of Slurm for ending a command that `logshipper run` captures in a job. slurmstepd's
own messages go into the job's output file, past the command's streams."""

import time
from signal import SIGKILL, SIGTERM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def slurm_reason(
    signo: int, environment: "Mapping[str, str]", *, is_cancelled: bool, is_short_of_memory: bool
) -> str:
    """Return the reason for the log's last line; "" unless Slurm surely ended the command.

    is_cancelled: the relay got the signal, too, as Slurm signals all of a step. is_short_of_memory:
    the kernel killed processes of the job's control group.
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
