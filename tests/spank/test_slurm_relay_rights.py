"""The helpers next to a task share only the user's uid (tests/tools/fakes/slurm_player.py plays
slurmstepd).

The user's own processes cannot inspect them, the kernel does not charge their resources to the
user, and they notice the sidecar's progress.
"""

import ctypes
import errno
import os
import resource
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.tools import gate
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import as_user, needs_root
from tests.tools.core_limits import core_limit, limit_of
from tests.tools.fakes.slurm_player import KEEPER, RELAY, SIDECAR, Node, node

__all__ = ["node"]  # a fixture

STRANGER = 4_054_322  # a uid without other processes
NOBODY = 65534  # the relay's real group, so no process of the user has all of its groups
PTRACE_SEIZE = 0x4206


# ---- the user's other processes


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _fails(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def attempts(pid: int) -> "dict[str, Callable[[], object]]":
    """Return the ways to inspect or control a process, by name."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    libc.process_vm_readv.argtypes = [
        ctypes.c_int, ctypes.POINTER(_Part), ctypes.c_ulong, ctypes.POINTER(_Part), ctypes.c_ulong, ctypes.c_ulong
    ]  # fmt: skip
    buffer = ctypes.create_string_buffer(16)
    local, remote = _Part(ctypes.addressof(buffer), 16), _Part(ctypes.addressof(buffer), 16)

    def take_fd() -> None:
        pidfd = os.pidfd_open(pid)
        try:
            _fails(libc.syscall(438, pidfd, 0, 0))  # pidfd_getfd has the same number everywhere
        finally:
            os.close(pidfd)

    return {
        "trace": lambda: _fails(libc.ptrace(PTRACE_SEIZE, pid, None, None)),
        "read mem": lambda: os.open(f"/proc/{pid}/mem", os.O_RDONLY),
        "write mem": lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR),
        "process_vm_readv": lambda: _fails(libc.process_vm_readv(pid, local, 1, remote, 1, 0)),
        "environ": lambda: os.open(f"/proc/{pid}/environ", os.O_RDONLY),
        "maps": Path(f"/proc/{pid}/maps").read_text,
        "fds": lambda: os.readlink(f"/proc/{pid}/fd/0"),
        "an fd": lambda: os.open(f"/proc/{pid}/fd/0", os.O_RDONLY),
        "pidfd_getfd": take_fd,
    }


def successes(pid: int) -> list[str]:
    """Return the successful attempts. An empty maps file does not count."""
    names = []
    for name, attempt in attempts(pid).items():
        try:
            if attempt() != "":
                names.append(name)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                names.append(f"{name}: {error!r}")
    return names


def without_namespaces(node: Node) -> None:
    """Run the keeper without user namespaces: the kernel refuses them in a root that differs from
    its mount namespace's."""
    root = node.folder / "root"
    root.mkdir()
    result = subprocess.run(
        ["unshare", "-m", "mount", "--rbind", "/", str(root)], capture_output=True, text=True
    )
    if result.returncode:
        gate.lacking(f"nothing can be mounted: {result.stderr.strip()}")
    inner = f'mount --rbind / {root} && exec chroot {root} {node.keeper} "$@"'
    node.keeper = node.script("keeper", f"""exec unshare -m sh -c '{inner}' sh "$@" """)


@needs_root
@pytest.mark.parametrize("gid", [STRANGER, NOBODY])
@pytest.mark.parametrize("namespaces", [True, False])
def test_processes_of_the_same_user_can_not_look_into_helpers(
    node: Node, *, namespaces: bool, gid: int
) -> None:
    if not namespaces:
        without_namespaces(node)
    played = node.start(
        "sh", "-c", "echo begun; read line", words=(f"uid={STRANGER}", f"gid={gid}"), stdin=-1
    )
    wait_until(lambda: any(capture.lines() for capture in node.readable()), "the sidecar has begun")
    [relay], [sidecar], [keeper] = node.process(RELAY), node.process(SIDECAR), node.process(KEEPER)
    own_namespace = os.readlink("/proc/self/ns/user")
    assert (os.readlink(f"/proc/{sidecar}/ns/user") != own_namespace) is namespaces
    [task] = (
        Path(f"/proc/{played.process.pid}/task/{played.process.pid}/children").read_text().split()
    )

    def look() -> list[list[str]]:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        return [successes(pid) for pid in (relay, sidecar, keeper, int(task))]

    *helpers, task_successes = as_user(0, look)
    assert helpers == [[], [], []]
    # proves that no general rule forbids all of this here
    assert {"trace", "read mem", "fds", "maps"} <= set(task_successes)
    played.finish(b"\n")
    assert node.logged()[0].lines() == [b"begun"]


# ---- core files


def test_helpers_leave_no_core_file_and_the_task_may(node: Node) -> None:
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    if limits[1] == 0:
        pytest.skip("core files are forbidden here (ulimit -Hc)")
    script = "ulimit -Sc $(ulimit -Hc); cat /proc/self/limits; echo begun; read line"
    played = node.start("sh", "-c", script, stdin=-1)
    wait_until(
        lambda: any(b"begun" in capture.lines() for capture in node.readable()),
        "the sidecar has begun",
    )
    [relay], [sidecar], [keeper] = node.process(RELAY), node.process(SIDECAR), node.process(KEEPER)
    assert [limit_of(pid) for pid in (relay, sidecar, keeper)] == [("0", "0")] * 3
    played.finish(b"\n")
    soft, hard = core_limit(b"\n".join(node.logged()[0].lines()).decode())
    assert soft == hard == ("unlimited" if limits[1] == resource.RLIM_INFINITY else str(limits[1]))


# ---- resources charged to the user


def send_fds(count: int) -> int:
    """Return the number of fds that a process may have in flight, at most `count`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for number in range(count):
        try:
            socket.send_fds(sender, [b"x"], [0])
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            return number
    receiver.close()
    return count


@needs_root
def test_fds_on_their_way_to_sidecars_are_not_the_users(node: Node, binaries: Path) -> None:
    """The limit of a user's fds in flight equals a process's limit of open files. Each capture has
    four of them in flight as long as it runs."""
    node.keeper = binaries / "logshipper-keeper"  # the sanitizers' build takes too much memory
    node.python = Path("/bin/cat")  # any program: it receives none of them
    go = node.folder / "go"
    waits = node.script(
        "waits", f'while [ ! -e {go} ]; do sleep 0.05; done; exec {node.python} "$@"'
    )
    words = (f"uid={STRANGER}", f"gid={STRANGER}", "tasks=40")
    command = ("sh", "-c", f"until [ -e {go} ]; do sleep 0.5; done")
    played = node.start(*command, words=words, settings=(f"python={waits}",))
    node.process(RELAY, 40)
    wait_until(lambda: played.captured() == [True] * 40, "all are captured")
    fd_count = as_user(STRANGER, lambda: send_fds(1000))
    go.touch()
    played.finish()
    # fewer: other users' fds count; more: this machine has no limit
    assert 60 <= fd_count < 1000


# ---- progress


SLOW_SIDECAR = """#!/usr/bin/python3
import os, sys, time
words = dict(word.split('=', 1) for word in sys.argv if '=' in word)
report, side_pipe = int(words['report']), int(words['side_pipe'])
os.write(report, b'ready\\n')
while not os.path.exists({ended!r}):
    time.sleep(0.02)
size = 0
while more := os.read(side_pipe, 64 << 10):
    size += len(more)
    time.sleep(0.25)
with open({done!r}, 'w') as file:
    file.write(str(size))
os.write(report, b'done\\n')
"""


def test_sidecar_that_is_slow_at_the_end_is_not_given_up(node: Node) -> None:
    """The sidecar takes longer than stall_secs and reports nothing. The level of the side pipe,
    which belongs to root, shows its progress."""
    ended, done = node.folder / "ended", node.home / "done"
    slow = node.folder / "slow"
    slow.write_text(SLOW_SIDECAR.format(ended=str(ended), done=str(done)))
    slow.chmod(0o755)
    node.opt_in(b"tty: false\n")
    played = node.run(
        "head", "-c", "800000", "/dev/zero", settings=(f"python={slow}", "stall_secs=1")
    )
    assert len(played.out) == 800_000
    ended.touch()
    wait_until(lambda: not node.processes(KEEPER), "the keeper ends", 30.0)
    assert int(done.read_text()) > 800_000
    # the next step would report late messages
    assert node.run("true", words=("job=5",)).messages() == ""
