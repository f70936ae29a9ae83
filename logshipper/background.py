"""Processes beside the job. They hold nothing that the job's caller may wait for: `x=$(logshipper
run ...)` ends when the last holder of its pipe has gone."""

import os
import signal

_OF_THE_JOB = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip  # what is sent to the job's group, or by an impatient user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Any

JOB_END_NICE = 5  # of processes that delay a job's end: they get a third of a busy core's time
NICE = 10  # of processes that nobody waits for
_LARGE_BYTES = 2 << 20  # more than any frequent block


def parse_words(
    argv: list[str], kinds: "Mapping[str, type]"
) -> "dict[str, Any]":  # Any: int or str, as its kind is
    """Parse the words NAME=VALUE of such a process. kinds: int or str, by name. Raises KeyError,
    ValueError for a missing or wrong one."""
    texts = dict(word.split("=", 1) for word in argv)
    return {name: texts[name] if kind is str else int(texts[name]) for name, kind in kinds.items()}


def detach(name: str, keep: "Collection[int]") -> None:
    """Give a forked process its own session, signals and descriptors. name: for `ps`, at most 15
    characters."""
    os.setsid()
    for signo in _OF_THE_JOB:
        signal.signal(signo, _do_nothing)  # not SIG_IGN, which executed programs would inherit
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    shed(name, keep)


def yield_to_jobs(nice: int) -> None:
    """Lower the priority of a process with its own session, before it has threads.

    Jobs precede it, and its wake-ups interrupt nobody (SCHED_BATCH). The kernel derives its I/O
    priority from nice. It still runs on a busy node, unlike with SCHED_IDLE. nice: the least; a
    nicer caller's value stays.
    """
    try:
        nice = max(nice, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        # if sessions share the processor, nice counts within one only
        with open("/proc/self/autogroup", "r+", encoding="ascii", buffering=1) as file:
            file.write(f"{nice}\n")
    except OSError:
        pass  # no such kernel, or no right: run as any other process


def forbid_core_files() -> None:
    """Forbid core files of a process with a job's output, which they would hold in clear text,
    unlogged parts included.

    Children inherit this, so CMD must start before.
    """
    try:
        import resource  # late: CMD's start does not wait for it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, MemoryError):
        pass  # out of fds or memory: the job matters more


def keep_freed_memory() -> None:
    """Keep freed memory, for a process with many short-lived blocks of about 100 KiB, as in floods.

    The C library would return each to the kernel, and pay for each page of the next one, until a
    larger one was freed (glibc: M_MMAP_THRESHOLD is dynamic). Children inherit this.
    """
    try:
        bytes(_LARGE_BYTES)
    except MemoryError:
        pass  # `ulimit -v`


def shed(name: str, keep: "Collection[int]") -> None:
    """Closes all fds but those to keep; fds 0 to 2 become /dev/null. No core files from here on."""
    forbid_core_files()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    _close(lambda fd: fd not in keep)
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(name)
    except OSError:
        pass  # only a name


def close_inherited() -> None:
    """Close the caller's descriptors besides 0 to 2: CMD has them, and whoever waits for their end
    waits for CMD's."""
    try:
        _close(os.get_inheritable)  # everything of our own is close-on-exec
    except OSError:
        pass  # out of fds


def _close(is_surplus: "Callable[[int], bool]") -> None:
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        try:
            if fd > 2 and is_surplus(fd):
                os.close(fd)
        except OSError:
            pass  # the listing's own


def _do_nothing(signo: int, frame: object) -> None:
    pass
