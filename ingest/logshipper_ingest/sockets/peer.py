"""Who asks at a Unix socket: user, process, and the scheduler's job that it runs in.

The kernel says who (SO_PEERCRED) and where (/proc/PID/cgroup). Only what root alone can have made
counts: a scheduler's cgroups are taken at the places where a user can't make any, so nobody can be
in another user's job.
"""

import os
import pwd
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from logshipper.errors import LogshipperError, os_words

_SO_PEERPIDFD = 77  # Linux 6.5; `socket` doesn't name it yet
_PEERCRED = struct.Struct("iII")
_MAX_FILE_BYTES = 64 << 10
_MAX_READS = 64
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP = r"step_(?P<step>batch|extern|interactive|[0-9]{1,9}(?:\+[0-9]{1,4})?)"
# with several slurmd on a host their name is in the path; below the task the job may have made
# groups of its own
_V1 = re.compile(
    rf"/slurm(?:_[^/]+)?/uid_(?P<uid>[0-9]{{1,10}})/job_(?P<job>[0-9]{{1,10}})/{_STEP}"
    r"(?:/task_(?P<task>[0-9]{1,9}))?(?:/.*)?"
)
# one slice deep, at the root: what systemd delegates to users lies deeper, below user@UID.service
_V2 = re.compile(
    r"(?P<folder>/[^/]+\.slice/(?:[^/]+_)?slurmstepd\.scope/"
    rf"(?:job_(?P<job>[0-9]{{1,10}})|s[0-9A-HJKMNP-TV-Z]{{13}})/{_STEP})"  # the latter: from Slurm 26.05 on
    r"(?:/user/task_(?P<task>[0-9]{1,9}))?(?:/.*)?"
)
_CGROUPS = "/sys/fs/cgroup"
_MAX_STEPDS = 8
_TITLE = re.compile(rf"slurmstepd: \[(?P<job>[0-9]{{1,10}})\.{_STEP.removeprefix('step_')}[ \]]")

_JOB_VARIABLE = re.compile(r"\0LOGSHIPPER_JOB_ID=([^\0]{1,64})\0")


class PeerUnknown(LogshipperError):
    """Who asks isn't known for certain."""


class SchedulerJob(NamedTuple):
    """step: `batch`, `extern`, `interactive`, a number, or `N+M` of a heterogeneous job. task: as
    the scheduler counts it on this node, None where its cgroups don't say."""

    job_id: str
    step: str
    task: int | None


class Peer(NamedTuple):
    """The process that asks."""

    uid: int
    gid: int
    pid: int
    job: SchedulerJob | None  # None outside of a scheduler's job


def parse_cgroup(
    text: str, uid: int, job_of_step: Callable[[str, str], str | None] | None = None
) -> SchedulerJob | None:
    """The Slurm job by the text of /proc/PID/cgroup (cgroups(7)), v1, v2 or both, of a process of
    the user uid. job_of_step: the job's number by the step's cgroup and name, where the path has
    the job's SLUID instead; without it such a path is nobody's.

    None where there is none, where the path names another user, or where two controllers name two
    jobs.
    """
    jobs: set[tuple[str, str]] = set()
    tasks: set[int] = set()
    hierarchies: set[str] = set()
    for line in text.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or hierarchy in hierarchies:
            return None  # not the kernel's text
        hierarchies.add(hierarchy)
        is_v2 = hierarchy == "0" and not controllers
        match = (_V2 if is_v2 else _V1).fullmatch(path)
        if match is None:
            continue
        if not is_v2 and int(match["uid"]) != uid:
            return None
        job_id = match["job"]
        if job_id is None:
            job_id = job_of_step(match["folder"], match["step"]) if job_of_step else None
        if job_id is None:
            return None
        jobs.add((str(int(job_id)), match["step"]))
        if match["task"] is not None:
            tasks.add(int(match["task"]))
    if len(jobs) != 1:
        return None
    job_id, step = jobs.pop()
    return SchedulerJob(job_id, step, tasks.pop() if len(tasks) == 1 else None)


def job_of_step(folder: str, step: str, proc: str = "/proc", cgroups: str = _CGROUPS) -> str | None:
    """The number of the job that a step's cgroup is of, by the title of root's slurmstepd, which
    sits in there where root alone can put anything; None where there is none."""
    group = f"{folder}/slurm"
    try:
        pids = _text(f"{cgroups}{group}/cgroup.procs").split()[:_MAX_STEPDS]
    except OSError:
        return None
    for pid in pids:
        try:
            title = _TITLE.match(_text(f"{proc}/{pid}/cmdline"))
            owners = _uids(_text(f"{proc}/{pid}/status"))
            is_there = f"0::{group}\n" in _text(
                f"{proc}/{pid}/cgroup"
            )  # still: it isn't a later process
        except OSError:
            continue
        if title and title["step"] == step and owners == {0} and is_there:
            return title["job"]
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_MAX_FILE_BYTES)


def credentials(connection: socket.socket) -> tuple[int, int, int]:
    """pid, uid and gid of who connected, as they were then. pid: 0 where it can't be seen from
    here."""
    pid, uid, gid = _PEERCRED.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    )
    return pid, uid, gid


def identify(connection: socket.socket, seen_ns: int) -> Peer:
    """Who connected. seen_ns: when it was accepted (CLOCK_BOOTTIME): a process that is younger
    isn't the one that did.

    Raises PeerUnknown where the process is gone, has another user by now, or another process has
    its number.
    """
    pid, uid, gid = credentials(connection)
    if pid <= 0:
        raise PeerUnknown("the asking process can't be seen from the agent's PID namespace")
    process = _peer_pidfd(connection)
    try:
        # the folder stays that process's, also when the number is given to another
        folder = os.open(f"/proc/{pid}", _FOLDER_FLAGS)
        try:
            if process >= 0 and _has_ended(process):
                raise PeerUnknown("the asking process has ended")
            if process < 0 and _started_ns(_read(folder, "stat")) > seen_ns:
                raise PeerUnknown("the asking process has ended, and another one has its number")
            if _uids(_read(folder, "status")) != {uid}:
                raise PeerUnknown("the asking process has changed its user, or runs set-user-ID")
            return Peer(uid, gid, pid, parse_cgroup(_read(folder, "cgroup"), uid, job_of_step))
        finally:
            os.close(folder)
    except OSError as error:
        raise PeerUnknown(f"the asking process can't be looked at: {os_words(error)}") from None
    finally:
        if process >= 0:
            os.close(process)


def job_ids_of(pid: int, uid: int, seen_ns: int) -> frozenset[str] | None:
    """Ids of the jobs that a process of the user uid may be in: the scheduler's, else the one that
    it says it was started in, which counts among the user's own only. Empty where it is in none;
    None where that isn't known, or the process is younger than seen_ns (CLOCK_BOOTTIME)."""
    try:
        folder = os.open(f"/proc/{pid}", _FOLDER_FLAGS)
    except OSError:
        return None
    try:
        if _uids(_read(folder, "status")) != {uid} or _started_ns(_read(folder, "stat")) > seen_ns:
            return None
        job = parse_cgroup(_read(folder, "cgroup"), uid, job_of_step)
        if job is not None:
            return frozenset({job.job_id})
        variable = _JOB_VARIABLE.search("\0" + _read(folder, "environ"))
        return frozenset({variable[1]}) if variable else frozenset()
    except OSError:
        return None
    finally:
        os.close(folder)


def _peer_pidfd(connection: socket.socket) -> int:
    """A descriptor of the very process that connected; -1 where the kernel can't give one."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return -1


def _has_ended(process: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _read(folder: int, name: str) -> str:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        parts: list[bytes] = []
        while len(parts) < _MAX_READS and (
            part := os.read(fd, _MAX_FILE_BYTES)
        ):  # /proc gives a page or so at a time
            parts.append(part)
        return b"".join(parts).decode("utf-8", "surrogateescape")
    finally:
        os.close(fd)


def _uids(status: str) -> set[int]:
    """Real and effective user (proc_pid_status(5)); empty where the text has none."""
    for line in status.splitlines():
        if line.startswith("Uid:"):
            return {int(number) for number in line.split()[1:3]}
    return set()


def _started_ns(stat: str) -> int:
    """When it began (CLOCK_BOOTTIME), rounded down to the clock's tick: field 22 of
    proc_pid_stat(5)."""
    ticks = int(stat.rpartition(")")[2].split()[19])  # the name before may hold blanks
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Accounts:
    """Names and primary groups of users. A directory service that hangs costs WAIT_SECS once, not
    each asker."""

    WAIT_SECS = 0.5
    KEEP_SECS = 600.0
    MAX_KEPT = 1024

    def __init__(self, find: Callable[[int], pwd.struct_passwd] = pwd.getpwuid) -> None:
        self._find = find
        self._entries: dict[
            int, tuple[float, str, int]
        ] = {}  # by uid: until when it counts, name, gid
        self._asking: threading.Thread | None = None

    def look_up(self, uid: int, gid: int) -> tuple[str, int]:
        """A user's name and primary group; the uid's digits and gid where the user isn't known, or
        not in time."""
        entry = self._entries.get(uid)
        if entry is None or time.monotonic() > entry[0]:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(
                    target=self._ask, args=(uid, gid), name="account", daemon=True
                )
                self._asking.start()
                self._asking.join(self.WAIT_SECS)
            entry = self._entries.get(uid)
        return (str(uid), gid) if entry is None else entry[1:]

    def _ask(self, uid: int, gid: int) -> None:
        try:
            entry = self._find(uid)
            name, group = entry.pw_name, entry.pw_gid
        except KeyError:
            name, group = str(uid), gid
        if len(self._entries) >= self.MAX_KEPT:
            self._entries.clear()
        self._entries[uid] = (time.monotonic() + self.KEEP_SECS, name, group)
