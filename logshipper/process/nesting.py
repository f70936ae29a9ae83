"""Runs inside runs: detects streams that an outer capture already logs, so that each line is logged
once.

Each capture names CMD's stdout and stderr in $LOGSHIPPER_CAPTURED. A stream that still is one of
these, or a buffer that somebody prints there, is covered. A stream into a file, or into somebody's
own pipe, is not.

The variable outlives the run in a tmux server that the run started, and the server's next terminals
get numbers of their own. So it also names the relay, and is void once the relay has gone. (The
output of processes left by an ended run is then logged twice, rather than not at all.) On another
host or in another pid namespace the relay is invisible; there the variable counts.
"""

import os
import stat

from logshipper.process import terminal
from logshipper.spool.captures import boot_id, process_started

VARIABLE = "LOGSHIPPER_CAPTURED"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def mark(fds: "Iterable[int]") -> str:
    """The value of VARIABLE for a CMD that gets these for its stdout and stderr from this process:
    which one it is, `PID.STARTED@PLACE`, and `DEVICE:INODE` of each."""
    relay = f"{os.getpid()}.{process_started(os.getpid())}@{_place()}"
    return " ".join([relay, *sorted({_name(os.fstat(fd)) for fd in fds})])


def uncovered(
    environment: "Mapping[str, str]", is_gathered: "Callable[[Mapping[str, str]], bool]"
) -> tuple[int, ...]:
    """Return the streams (1 stdout, 2 stderr) of this process that no outer capture has.

    is_gathered: returns whether the launcher in an environment prints the output of its processes.
    """
    streams = tuple(stream for stream in (1, 2) if terminal.is_inherited(stream))
    marks = environment.get(VARIABLE, "").split()
    if not marks or any(_is_over(mark) for mark in marks):
        return streams
    gathered = is_gathered(environment)
    return tuple(stream for stream in streams if not _is_covered(os.fstat(stream), marks, gathered))


def _is_covered(file_stat: os.stat_result, marks: list[str], gathered: bool) -> bool:
    if _name(file_stat) in marks:
        return True
    if stat.S_ISREG(file_stat.st_mode):
        # a buffer: `parallel` and `make --output-sync` print it when the task is over
        return file_stat.st_nlink == 0
    if stat.S_ISCHR(file_stat.st_mode):
        # Open MPI gives its ranks a terminal for stdout
        return gathered and terminal.is_pty(file_stat)
    return gathered and (stat.S_ISFIFO(file_stat.st_mode) or stat.S_ISSOCK(file_stat.st_mode))


def _is_over(mark: str) -> bool:
    """Return whether a mark names a relay of this place that has gone; False for other marks
    (Slurm's plugin names no relay)."""
    process, _, place = mark.partition("@")
    pid, _, started = process.partition(".")
    if not (pid.isascii() and pid.isdigit() and len(pid) < 10) or place != _place():
        return False
    return str(process_started(int(pid))) != started


def _place() -> str:
    """Return the scope of process numbers: boot of the machine, and pid namespace."""
    try:
        return f"{boot_id()}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return boot_id()


def _name(file_stat: os.stat_result) -> str:
    return f"{file_stat.st_dev}:{file_stat.st_ino}"
