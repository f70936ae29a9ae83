"""Runs inside of runs: what the capture around this process takes in anyway, so that no line is logged twice.

Each capture tells CMD by $LOGSHIPPER_CAPTURED what it gave it for stdout and stderr. A stream that still is one of
these, or a buffer whose content somebody will print there, is covered; one that leads into a file, or to somebody who
asked for it with a pipe, isn't.
"""

import os
import stat

from logshipper import terminal

VARIABLE = "LOGSHIPPER_CAPTURED"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def mark(fds: "Iterable[int]") -> str:
    """The value of VARIABLE for a CMD that gets these for its stdout and stderr: `DEVICE:INODE` of each."""
    return " ".join(sorted({_name(os.fstat(fd)) for fd in fds}))


def uncovered(environment: "Mapping[str, str]") -> tuple[int, ...]:
    """Which of stdout and stderr (1, 2), as this process was given them, no capture around it takes in."""
    given = tuple(stream for stream in (1, 2) if terminal.given(stream))
    marks = environment.get(VARIABLE, "").split()
    if not marks:
        return given
    from logshipper import launchers

    gathered = launchers.is_gathered(environment)
    return tuple(stream for stream in given if not _is_covered(os.fstat(stream), marks, gathered))


def _is_covered(found: os.stat_result, marks: list[str], gathered: bool) -> bool:
    if _name(found) in marks:
        return True
    if stat.S_ISREG(found.st_mode):
        return found.st_nlink == 0  # a buffer: `parallel` and `make --output-sync` print it when the task is over
    return gathered and (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode))


def _name(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}"
