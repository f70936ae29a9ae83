"""Identity of the peer at a Unix socket: user, process, and the scheduler's job around it.

The kernel names the user (SO_PEERCRED) and the cgroups (/proc/PID/cgroup). Only cgroups that root
alone can create count, at the scheduler's places, so nobody can pose as part of another user's job.
"""

import os
import pwd
import re
import select
import socket
import struct
import threading
import time
from functools import partial
from itertools import islice
from typing import NamedTuple

from logshipper.errors import LogshipperError, os_words
from logshipper_ingest.open_files import opened

_SO_PEERPIDFD = 77  # Linux 6.5; `socket` lacks it
_PEERCRED = struct.Struct("iII")
_MAX_FILE_BYTES = 64 << 10
_MAX_READS = 64
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP = r"step_(?P<step>batch|extern|interactive|[0-9]{1,9}(?:\+[0-9]{1,4})?)"
# several slurmd on a host have their names in the path; the job may create groups below the task
_V1 = re.compile(
    rf"/slurm(?:_[^/]+)?/uid_(?P<uid>[0-9]{{1,10}})/job_(?P<job>[0-9]{{1,10}})/{_STEP}"
    r"(?:/task_(?P<task>[0-9]{1,9}))?(?:/.*)?"
)
# one slice deep, at the root: systemd delegates deeper folders to users, below user@UID.service
_V2 = re.compile(
    r"(?P<folder>/[^/]+\.slice/(?:[^/]+_)?slurmstepd\.scope/"
    rf"(?:job_(?P<job>[0-9]{{1,10}})|s[0-9A-HJKMNP-TV-Z]{{13}})/{_STEP})"  # the latter: from Slurm 26.05 on
    r"(?:/user/task_(?P<task>[0-9]{1,9}))?(?:/.*)?"
)
_PROC, _CGROUPS = "/proc", "/sys/fs/cgroup"
_MAX_STEPDS = 8
_TITLE = re.compile(rf"slurmstepd: \[(?P<job>[0-9]{{1,10}})\.{_STEP.removeprefix('step_')}[ \]]")

_JOB_VARIABLE = re.compile(r"\0LOGSHIPPER_JOB_ID=([^\0]{1,64})\0")


class PeerUnknown(LogshipperError):
    """The peer's identity is not certain."""


class SchedulerJob(NamedTuple):
    """A scheduler's job.

    step: `batch`, `extern`, `interactive`, a number, or `N+M` of a heterogeneous job; task: the
    scheduler's number on this node, None if its cgroups do not show it.
    """

    job_id: str
    step: str
    task: int | None


class Peer(NamedTuple):
    """The process that asks."""

    uid: int
    gid: int
    pid: int
    job: SchedulerJob | None  # None outside of a scheduler's job


def parse_cgroup(text: str, uid: int) -> SchedulerJob | None:
    """Return the Slurm job in the text of /proc/PID/cgroup (cgroups(7)), v1, v2 or both.

    uid: owner of the process. Returns None without a job, for a path of another user, and if two
    controllers name two jobs.
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
        job_id = match["job"] or _job_of_step(match["folder"], match["step"])
        if job_id is None:
            return None
        jobs.add((str(int(job_id)), match["step"]))
        if match["task"] is not None:
            tasks.add(int(match["task"]))
    if len(jobs) != 1:
        return None
    job_id, step = jobs.pop()
    return SchedulerJob(job_id, step, tasks.pop() if len(tasks) == 1 else None)


def _job_of_step(folder: str, step: str) -> str | None:
    """Return the number of the job that owns a step's cgroup, for paths with a SLUID.

    Root's slurmstepd sits in this cgroup and names the job in its title; only root can put
    processes there.
    """
    group = f"{folder}/slurm"
    try:
        pids = _text(f"{_CGROUPS}{group}/cgroup.procs").split()[:_MAX_STEPDS]
    except OSError:
        return None
    for pid in pids:
        try:
            title = _TITLE.match(_text(f"{_PROC}/{pid}/cmdline"))
            owners = _uids(_text(f"{_PROC}/{pid}/status"))
            # checked again: not a later process
            is_there = f"0::{group}\n" in _text(f"{_PROC}/{pid}/cgroup")
        except OSError:
            continue
        if title and title["step"] == step and owners == {0} and is_there:
            return title["job"]
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read(_MAX_FILE_BYTES)


def credentials(connection: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of the peer at the time of its connection.

    pid: 0 if this namespace cannot see the process.
    """
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, gid = _PEERCRED.unpack(data)
    return pid, uid, gid


def identify(connection: socket.socket, seen_ns: int) -> Peer:
    """Identify the peer.

    seen_ns: time of the accept (CLOCK_BOOTTIME); a younger process is not the peer. Raises
    PeerUnknown if the process has ended, has another user by now, or another process has its
    number.
    """
    pid, uid, gid = credentials(connection)
    if pid <= 0:
        raise PeerUnknown("the asking process can't be seen from the agent's PID namespace")
    process = _peer_pidfd(connection)
    try:
        # the folder still belongs to that process if another one gets the number
        with opened(f"/proc/{pid}", _FOLDER_FLAGS) as folder:
            if process >= 0 and _has_ended(process):
                raise PeerUnknown("the asking process has ended")
            if process < 0 and _started_ns(_read(folder, "stat")) > seen_ns:
                raise PeerUnknown("the asking process has ended, and another one has its number")
            if _uids(_read(folder, "status")) != {uid}:
                raise PeerUnknown("the asking process has changed its user, or runs set-user-ID")
            return Peer(uid, gid, pid, parse_cgroup(_read(folder, "cgroup"), uid))
    except OSError as error:
        raise PeerUnknown(f"the asking process can't be looked at: {os_words(error)}") from None
    finally:
        if process >= 0:
            os.close(process)


def job_ids_of(pid: int, uid: int, seen_ns: int) -> frozenset[str] | None:
    """Return the ids of the jobs that a process of the user uid may belong to.

    The scheduler's job comes first, else the job that the process claims, among the user's own.
    Empty for a process without a job; None if unknown, or if the process is younger than seen_ns
    (CLOCK_BOOTTIME).
    """
    try:
        with opened(f"/proc/{pid}", _FOLDER_FLAGS) as folder:
            is_younger = _started_ns(_read(folder, "stat")) > seen_ns
            if is_younger or _uids(_read(folder, "status")) != {uid}:
                return None
            job = parse_cgroup(_read(folder, "cgroup"), uid)
            if job is not None:
                return frozenset({job.job_id})
            variable = _JOB_VARIABLE.search("\0" + _read(folder, "environ"))
            return frozenset({variable[1]}) if variable else frozenset()
    except OSError:
        return None


def _peer_pidfd(connection: socket.socket) -> int:
    """Return a descriptor of the very process that connected; -1 if the kernel has none."""
    try:
        return connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        return -1


def _has_ended(process: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _read(folder: int, name: str) -> str:
    with opened(name, os.O_RDONLY, dir_fd=folder) as fd:
        # /proc returns about a page per read
        parts = islice(iter(partial(os.read, fd, _MAX_FILE_BYTES), b""), _MAX_READS)
        return b"".join(parts).decode("utf-8", "surrogateescape")


def _uids(status: str) -> set[int]:
    """Real and effective user (proc_pid_status(5)); empty where the text has none."""
    for line in status.splitlines():
        if line.startswith("Uid:"):
            return {int(number) for number in line.split()[1:3]}
    return set()


def _started_ns(stat: str) -> int:
    """Return the start time (CLOCK_BOOTTIME), rounded down to a clock tick: field 22 of
    proc_pid_stat(5)."""
    ticks = int(stat.rpartition(")")[2].split()[19])  # the name before may hold blanks
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class Accounts:
    """Names and primary groups of users. A directory service that hangs costs WAIT_SECS once, not
    each asker."""

    WAIT_SECS = 0.5
    KEEP_SECS = 600.0
    MAX_KEPT = 1024

    def __init__(self) -> None:
        self._entries: dict[int, tuple[float, str, int]] = {}  # by uid: expiry, name, gid
        self._asking: threading.Thread | None = None

    def look_up(self, uid: int, gid: int) -> tuple[str, int]:
        """Return a user's name and primary group; the uid's digits and gid if the lookup fails or
        takes too long."""
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
            entry = pwd.getpwuid(uid)
            name, group = entry.pw_name, entry.pw_gid
        except KeyError:
            name, group = str(uid), gid
        if len(self._entries) >= self.MAX_KEPT:
            self._entries.clear()
        self._entries[uid] = (time.monotonic() + self.KEEP_SECS, name, group)
