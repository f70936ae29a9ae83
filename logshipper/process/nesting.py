"""Runs inside of runs: what the capture around this process has anyway, so that no line is logged
twice.

Each capture tells CMD by $LOGSHIPPER_CAPTURED what it gave it for stdout and stderr. A stream that
still is one of these, or a buffer whose content somebody will print there, is covered; one that
leads into a file, or to somebody who asked for it with a pipe, isn't.

The variable outlives the run, in a tmux server that it started, and the next terminals get the
numbers of its own: so it names the relay, too, and counts no more once that is gone. (What a run
that is over has left behind is logged twice then, rather than not at all.) Of another host, or from
another pid namespace, that can't be seen: there it counts.
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
    """Which of stdout and stderr (1, 2), as this process was given them, no capture around it has.
    is_gathered: whether the launcher that an environment names prints what its processes print."""
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
    """Whether it names a relay of this place that is gone; False of other marks (Slurm's plugin
    names no relay)."""
    process, _, place = mark.partition("@")
    pid, _, started = process.partition(".")
    if not (pid.isascii() and pid.isdigit() and len(pid) < 10) or place != _place():
        return False
    return str(process_started(int(pid))) != started


def _place() -> str:
    """Where a process' number means something: which boot of which machine, which pid namespace."""
    try:
        return f"{boot_id()}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return boot_id()


def _name(file_stat: os.stat_result) -> str:
    return f"{file_stat.st_dev}:{file_stat.st_ino}"
