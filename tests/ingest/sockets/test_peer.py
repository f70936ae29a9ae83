"""The user, process and job of a socket's peer, with strict parsing of cgroup paths."""

import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logshipper_ingest.sockets import peer
from logshipper_ingest.sockets.peer import (
    Accounts,
    PeerUnknown,
    SchedulerJob,
    identify,
    parse_cgroup,
)

_V2 = "0::/system.slice/slurmstepd.scope"
_V1 = "/slurm/uid_1000/job_42"


@pytest.mark.parametrize(
    ("text", "job"),
    [
        (f"{_V2}/job_42/step_0/user/task_3\n", SchedulerJob("42", "0", 3)),
        (f"{_V2}/job_42/step_batch/user/task_0", SchedulerJob("42", "batch", 0)),
        (f"{_V2}/job_42/step_interactive/user/task_0/mine/deeper", SchedulerJob("42", "interactive", 0)),
        (f"{_V2}/job_42/step_extern/user/task_special", SchedulerJob("42", "extern", None)),
        (f"{_V2}/job_42/step_0/slurm", SchedulerJob("42", "0", None)),
        (f"{_V2}/job_42/step_1+2/user/task_0", SchedulerJob("42", "1+2", 0)),
        ("0::/system.slice/node7_slurmstepd.scope/job_42/step_0/user/task_1", SchedulerJob("42", "0", 1)),
        (f"9:freezer:{_V1}/step_batch\n4:memory:{_V1}/step_batch/task_0\n0::/\n", SchedulerJob("42", "batch", 0)),
        (f"5:cpu,cpuacct:{_V1}/step_0/task_7\n1:name=systemd:/system.slice/slurmd.service\n",
         SchedulerJob("42", "0", 7)),
        (f"3:devices:/slurm_node7/uid_1000/job_42/step_extern/task_0\n{_V2}/system", SchedulerJob("42", "extern", 0)),
        (f"3:devices:{_V1}/step_0/task_1\n4:memory:{_V1}/step_0/task_2", SchedulerJob("42", "0", None)),
        ("0::/system.slice/slurmstepd.scope/job_007/step_0", SchedulerJob("7", "0", None)),
    ],
)  # fmt: skip
def test_jobs(text: str, job: SchedulerJob) -> None:
    assert parse_cgroup(text, 1000) == job


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-3.scope",
        "0::/system.slice/slurmd.service",
        f"{_V2}/system",
        f"{_V2}/job_42",
        f"{_V2}/job_42/step_0 (deleted)",
        f"{_V2}/job_x/step_0/user/task_0",
        f"{_V2}/job_42/step_../user/task_0",
        f"{_V2}/job_42/step_99999999999/user/task_0",
        f"{_V2}/job_{'9' * 11}/step_0",
        # below systemd's delegation, users may make groups of any name
        "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_42/step_0/user/task_0",
        "0::/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_42/step_0",
        "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/slurm/uid_1000/job_42/step_0",
        "0::/../system.slice/slurmstepd.scope/job_42/step_0",
        "0::/x/slurm/uid_1000/job_42/step_0",
        "0::/slurm/uid_1000/job_42/step_0",  # the old form in the new hierarchy
        "9:freezer:/system.slice/slurmstepd.scope/job_42/step_0",  # and vice versa
        # another user's group, and two jobs at once
        "9:freezer:/slurm/uid_1001/job_42/step_0",
        f"9:freezer:{_V1}/step_0\n8:memory:/slurm/uid_1001/job_42/step_0",
        f"9:freezer:{_V1}/step_0\n8:memory:/slurm/uid_1000/job_43/step_0",
        # lines that the kernel never writes
        f"0::/a\n{_V2}/job_42/step_0",
        f"a\n{_V2}/job_42/step_0",
    ],
)
def test_no_jobs(text: str) -> None:
    assert parse_cgroup(text, 1000) is None


SLUID = "sEKNKTV3WPV500"
SLUID_STEP = f"/system.slice/slurmstepd.scope/{SLUID}/step_batch"


class Node:
    """A node's /proc and /sys/fs/cgroup with one step of Slurm 26.05. put: add a process of the
    user uid."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.slurm = self.cgroups / SLUID_STEP[1:] / "slurm"
        self.slurm.mkdir(parents=True)
        (self.slurm / "cgroup.procs").touch()

    def put(
        self, pid: int, title: str, *, uid: int = 0, group: str = f"{SLUID_STEP}/slurm"
    ) -> None:
        with (self.slurm / "cgroup.procs").open("a") as file:
            file.write(f"{pid}\n")
        place = self.proc / str(pid)
        place.mkdir(parents=True)
        (place / "cmdline").write_text(title)
        (place / "status").write_text(f"Name:\tslurmstepd\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        (place / "cgroup").write_text(f"0::{group}\n")

    def job(self, text: str) -> SchedulerJob | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer, "_PROC", str(self.proc))
            patch.setattr(peer, "_CGROUPS", str(self.cgroups))
            return parse_cgroup(text, 1000)


@pytest.mark.parametrize("title", ["slurmstepd: [42.batch]", "slurmstepd: [42.batch stepmgr]\0"])
def test_job_by_its_sluid(tmp_path: Path, title: str) -> None:
    node = Node(tmp_path)
    node.put(7, "sleep", uid=1000)
    node.put(8, title)
    task = f"0::{SLUID_STEP}/user/task_0\n"
    assert node.job(task) == SchedulerJob("42", "batch", 0)
    assert node.job(task.replace("batch", "0")) is None
    assert parse_cgroup(task, 1000) is None
    v1 = "9:freezer:/slurm/uid_1000/job_43/step_batch\n"
    assert node.job(task + v1) is None


@pytest.mark.parametrize(
    ("title", "options"),
    [
        ("slurmstepd: [42.0]", {}),
        ("slurmstepd: [42.extern]", {}),
        ("/usr/sbin/slurmstepd", {}),
        ("x slurmstepd: [42.batch]", {}),
        ("slurmstepd: [42.batch]", {"uid": 1000}),
        ("slurmstepd: [42.batch]", {"group": f"{SLUID_STEP}/user/task_0"}),
    ],
)
def test_no_job_by_a_sluid(tmp_path: Path, title: str, options: dict[str, Any]) -> None:
    node = Node(tmp_path)
    node.put(8, title, **options)
    assert node.job(f"0::{SLUID_STEP}/user/task_0\n") is None


def test_no_job_where_slurmstepd_is_gone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert node.job(f"0::{SLUID_STEP}/user/task_0\n") is None
    (node.slurm / "cgroup.procs").write_text("9\n")
    assert node.job(f"0::{SLUID_STEP}/user/task_0\n") is None


@given(
    st.text(st.sampled_from("0:/\n_ab1") | st.characters(), max_size=60), st.integers(0, 1 << 32)
)
def test_any_text(text: str, uid: int) -> None:
    assert parse_cgroup(text, uid) is None
    job = parse_cgroup(f"{_V2}/job_42/step_0/user/task_0/{text}", uid)
    # names of groups below the task never give another job
    assert job in (SchedulerJob("42", "0", 0), None)


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("option", [77, 9999])
def test_a_process(option: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer kernels name the process, older ones don't."""
    monkeypatch.setattr(peer, "_SO_PEERPIDFD", option)
    ours, theirs = _pair()
    with ours, theirs:
        identity = identify(ours, _now_ns())
        assert (identity.uid, identity.gid, identity.pid) == (os.getuid(), os.getgid(), os.getpid())
        assert identity.job is None


@pytest.mark.parametrize("option", [77, 9999])
def test_a_process_that_has_ended(option: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "_SO_PEERPIDFD", option)
    code = "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])"
    name = f"\0logshipper-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name)
        listener.listen()
        subprocess.run([sys.executable, "-c", code.replace("sys.argv[1]", repr(name))], check=True)
        connection, _ = listener.accept()
        with connection, pytest.raises(PeerUnknown, match="asking process"):
            identify(connection, _now_ns())


def test_a_number_that_was_given_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel can't name the process, a process younger than the connection isn't the
    peer."""
    monkeypatch.setattr(peer, "_SO_PEERPIDFD", 9999)
    ours, theirs = _pair()
    with ours, theirs, pytest.raises(PeerUnknown, match="another one has its number"):
        identify(ours, 1)


def test_another_user_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = _pair()
    monkeypatch.setattr(peer, "credentials", lambda _: (os.getpid(), os.getuid() + 1, 0))
    with ours, theirs, pytest.raises(PeerUnknown, match="set-user-ID"):
        identify(ours, _now_ns())


def _ann(uid: int) -> pwd.struct_passwd:
    if uid != 5:
        raise KeyError(uid)
    return pwd.struct_passwd(("ann", "x", 5, 50, "", "/", "/bin/sh"))


def test_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = []

    def find(uid: int) -> pwd.struct_passwd:
        lookups.append(uid)
        return _ann(uid)

    monkeypatch.setattr(pwd, "getpwuid", find)
    accounts = Accounts()
    assert [accounts.look_up(5, 7) for _ in range(3)] == [("ann", 50)] * 3
    assert accounts.look_up(6, 7) == ("6", 7)
    assert lookups == [5, 6]


def test_a_directory_service_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs one wait in all, not one for each client. The name comes with its answer."""
    monkeypatch.setattr(Accounts, "WAIT_SECS", 0.05)
    go = threading.Event()

    def find(uid: int) -> pwd.struct_passwd:
        assert go.wait(30)
        return _ann(uid)

    monkeypatch.setattr(pwd, "getpwuid", find)
    accounts = Accounts()
    start = time.monotonic()
    assert [accounts.look_up(5, 7) for _ in range(1000)] == [("5", 7)] * 1000
    assert time.monotonic() - start < 1
    go.set()
    assert accounts._asking is not None
    accounts._asking.join(30)
    assert accounts.look_up(5, 7) == ("ann", 50)
