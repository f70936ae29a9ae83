"""Processes next to the job. They hold nothing that the job's caller may wait for: `x=$(logshipper
run ...)` ends when the last holder of its pipe is gone."""

import os
import signal

_OF_THE_JOB = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP,
    signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip  # what is sent to the job's group, or by an impatient user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

JOB_END_NICE = 5  # of what somebody waits for at a job's end: it has a third of a busy core's time
NICE = 10  # of what nobody waits for
_LARGE_BYTES = 2 << 20  # more than any block that is taken often


def parse_words(
    argv: list[str], kinds: "Mapping[str, type]"
) -> "dict[str, Any]":  # Any: int or str, as its kind is
    """The values of words NAME=VALUE that such a process is started with. kinds: int or str, by
    name. Raises KeyError, ValueError where a word is missing or wrong."""
    texts = dict(word.split("=", 1) for word in argv)
    return {name: texts[name] if kind is str else int(texts[name]) for name, kind in kinds.items()}


def detach(name: str, keep: "Collection[int]") -> None:
    """In a forked process: session, signals and fds of its own. name: as `ps` shows it, 15
    characters at most."""
    os.setsid()
    for signo in _OF_THE_JOB:
        signal.signal(signo, _do_nothing)  # not SIG_IGN: what they exec would inherit that
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    shed(name, keep)


def yield_to_jobs(nice: int) -> None:
    """For a process in a session of its own, before it has threads: where jobs want the processor
    it gets less of it, and being woken it interrupts nobody (SCHED_BATCH). The kernel derives its
    I/O priority from nice. Nothing here can stop it: SCHED_IDLE would, on a busy node. nice: at
    least; what a nicer caller gave stays."""
    try:
        nice = max(nice, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        # where sessions share the processor, nice counts within one only
        with open("/proc/self/autogroup", "r+", encoding="ascii", buffering=1) as file:
            file.write(f"{nice}\n")
    except OSError:
        pass  # no such kernel, no such right: as any other process, then


def forbid_core_files() -> None:
    """For a process that holds a job's output: a core file would have it in clear text, also what
    isn't logged. What it starts inherits that, so CMD has to run before."""
    try:
        import resource  # late: CMD's start doesn't wait for it

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, MemoryError):
        pass  # out of fds or memory: the job matters more


def keep_freed_memory() -> None:
    """For a process that takes and gives back many blocks of some 100 KiB, as floods have them: the
    C library gives each back to the kernel, and pays for each page of the next one, until a larger
    one was freed (glibc: M_MMAP_THRESHOLD is dynamic). What it forks inherits that."""
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
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        if fd > 2 and fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass  # the listing's own
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(name)
    except OSError:
        pass  # only a name


def close_inherited() -> None:
    """Closes what the caller passed on besides fds 0 to 2: CMD has it, and who waits for its end
    waits for CMD's."""
    try:
        entries = os.listdir("/proc/self/fd")
    except OSError:
        return  # out of fds
    for entry in entries:
        fd = int(entry)
        try:
            if fd > 2 and os.get_inheritable(fd):  # everything of our own is close-on-exec
                os.close(fd)
        except OSError:
            pass  # the listing's own


def _do_nothing(signo: int, frame: object) -> None:
    pass
