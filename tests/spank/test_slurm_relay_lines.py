"""The Slurm plugin in C, without Slurm: two streams into one file, and the check of ~/.logoptin
next to the job."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.tools import gate
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import needs_root
from tests.tools.fakes.slurm_player import KEEPER, RELAY, SIDECAR, Node, hung_folder, node, python
from tests.tools.waiting import scaled

__all__ = ["node"]  # a fixture


# ---- one file for both streams


@pytest.mark.parametrize("content", [b"", b"tty: false\n"])
def test_lines_of_two_processes_are_not_torn(node: Node, tmp_path: Path, content: bytes) -> None:
    """All processes wait for the processor, and long lines come in many pieces. A line can tear
    only if its writer pauses within it for longer than the relay waits."""
    code = """
import os, sys, time
name, fd = (b'err', 2) if os.fork() == 0 else (b'out', 1)
paused = 0
for n in range(2000):
    line = b'%s %d %s|\\n' % (name, n, b'x' * (60_000 if n % 400 == 250 else n % 400))
    longest, last = 0, time.monotonic()
    while line:
        line = line[os.write(fd, line):]
        now = time.monotonic()
        longest, last = max(longest, now - last), now
    paused += longest > 0.1
with open(os.path.join(sys.argv[1], 'paused.' + name.decode()), 'w') as file: file.write(str(paused))
if fd == 1: os.wait()
"""
    node.opt_in(content)
    busy = [subprocess.Popen([*python("while True: pass")]) for _ in range(8)]
    try:
        with (tmp_path / "slurm.out").open("wb") as file:
            node.run(*python(code), str(node.home), stdout=file, stderr=file)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    lines = (tmp_path / "slurm.out").read_bytes().split(b"\n")
    torn = [line[:80] for line in lines if not re.fullmatch(rb"(out|err) \d+ x*\||", line)]
    paused = [int((node.home / f"paused.{name}").read_text()) for name in ("out", "err")]
    assert len(torn) <= 2 * sum(paused), (torn, paused)
    if torn:
        return
    for name in (b"out", b"err"):
        assert [int(line.split()[1]) for line in lines if line.startswith(name)] == list(
            range(2000)
        )


def test_line_without_an_end_does_not_slow_the_other_stream_down(
    node: Node, tmp_path: Path
) -> None:
    """One stream prints endless dots. The other prints more than any buffer on the way holds."""
    code = """
import os, time
pid = os.fork()
if pid == 0:
    for n in range(10_000):
        os.write(2, b'err %d %s\\n' % (n, b'x' * 90))
    os._exit(0)
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    os.write(1, b'.')
    time.sleep(0.001)
"""
    began = time.monotonic()
    with (tmp_path / "slurm.out").open("wb") as file:
        node.run(*python(code), stdout=file, stderr=file)
    assert time.monotonic() - began < scaled(20.0)
    assert (tmp_path / "slurm.out").read_bytes().count(b"err") == 10_000


# ---- a check that hangs


def until(path: Path) -> str:
    """Return a script that ends when the path exists."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


@pytest.fixture
def job_cgroup() -> Iterator[Path]:
    """Yield a job's cgroup in Slurm's layout. Skip the test if this machine cannot create one."""
    yield from made_group("freezer", "cgroup2", job="job_1")


@pytest.fixture
def sluid_cgroup() -> Iterator[Path]:
    """Yield a job's cgroup of Slurm 26.05, which names it by the job's SLUID under cgroup v2."""
    yield from made_group("cgroup2", job="sEKNKTV3WPV500")


def made_group(*kinds: str, job: str) -> Iterator[Path]:
    """Create a job's cgroup in the first matching hierarchy. kinds: controllers of version 1, or
    cgroup2."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    mounts = [
        Path(words[4])
        for words in lines
        if not {*words[-1].split(","), *words[-3:]}.isdisjoint(kinds)
    ]
    if not mounts:
        gate.lacking("there is no cgroup hierarchy here")
    base = mounts[0] / f"logshipper-test-{os.getpid()}"
    folders = [base, base / job, base / job / "step_0"]
    try:
        for folder in folders:
            folder.mkdir()
    except OSError as error:
        gate.lacking(f"no cgroup can be made: {error.strerror}")
    try:
        yield folders[-1]
    finally:
        for folder in [*reversed(folders[1:]), base / "logshipper", base]:
            wait_until(lambda folder=folder: is_removed(folder), f"{folder} is empty")  # type: ignore[misc]  # mypy infers no type for a default


def is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def lookers(node: Node) -> list[int]:
    """Return the checking processes of the job's user outside the job's cgroup."""
    pids = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            status, cgroup = (
                Path(f"/proc/{pid}/{name}").read_text() for name in ("status", "cgroup")
            )
        except OSError:
            continue
        if (
            status.startswith("Name:\tplay-step\n")
            and f"\nUid:\t{node.uid}\t" in status
            and "/job_1/" not in cgroup
        ):
            pids.append(pid)
    return pids


@needs_root
def test_look_that_hangs_is_taken_out_of_the_job(node: Node, job_cgroup: Path) -> None:
    """Slurm waits until the job's cgroup is empty. No process waits forever."""
    with hung_folder(node.home):
        played = node.start(
            "echo",
            "out",
            preexec_fn=lambda: (job_cgroup / "cgroup.procs").write_text(str(os.getpid())),
        )
        wait_until(lambda: lookers(node), "the looker is out of the job's cgroup", 2.0)
        assert played.finish().out == b"out\n"
        wait_until(
            lambda: not (job_cgroup / "cgroup.procs").read_text(),
            "nobody is left in the job's cgroup",
            0.5,
        )
        wait_until(lambda: not lookers(node), "the looker ends though the home hangs on")


@needs_root
def test_what_captures_is_next_to_a_job_that_is_called_by_its_sluid(
    node: Node, sluid_cgroup: Path
) -> None:
    end = node.folder / "end"
    played = node.start(
        "sh",
        "-c",
        until(end),
        preexec_fn=lambda: (sluid_cgroup / "cgroup.procs").write_text(str(os.getpid())),
    )
    place = f"/{sluid_cgroup.parents[1].name}/logshipper\n"
    try:
        for name in (KEEPER, RELAY, SIDECAR):
            (pid,) = node.process(name)
            group = Path(f"/proc/{pid}/cgroup")
            wait_until(lambda group=group: place in group.read_text(), f"{name} is there")  # type: ignore[misc]  # as above
    finally:
        end.touch()
    assert (played.finish().code, played.captured()) == (0, [True])


@needs_root
def test_job_whose_cgroup_cannot_be_left_is_not_captured(node: Node, job_cgroup: Path) -> None:
    """The helpers would count against the job's memory, and delay its end."""
    groups = job_cgroup.parents[2]
    script = f'mount --bind {groups} {groups} && mount -o remount,bind,ro {groups} && exec "$@"'
    read_only = node.script("read-only", script)
    node.keeper = node.script(
        "keeper", f'exec unshare --mount --propagation private {read_only} {node.keeper} "$@"'
    )
    played = node.run(
        "echo", "out", preexec_fn=lambda: (job_cgroup / "cgroup.procs").write_text(str(os.getpid()))
    )
    assert (played.code, played.out, played.captured()) == (0, b"out\n", [False])
    left, consequence = played.messages().splitlines()
    assert re.fullmatch(r"job \d+: the job's \S+ cgroup can't be left: Read-only file system", left)
    assert consequence.endswith(": not captured: what captures it would count against the job")
    wait_until(lambda: not (job_cgroup / "cgroup.procs").read_text(), "the job's cgroup is empty")
    assert node.names() == []


# ---- reports in the node's log


@pytest.mark.parametrize("opted_in", [True, False])
@pytest.mark.parametrize(
    ("content", "reason"), [("text\n", "Exec format error"), ("", "No such file or directory")]
)
def test_keeper_that_is_no_program_is_told(
    node: Node, content: str, reason: str, opted_in: bool
) -> None:
    """The exec fails before or after the first message to the keeper."""
    node.keeper = node.folder / "no-keeper"
    if content:
        node.keeper.write_text(content)
        node.keeper.chmod(0o755)
    if not opted_in:
        node.optin.unlink()
    for job in range(20):
        played = node.run("echo", "out", words=(f"job={job + 1}",))
        assert (played.code, played.out, played.captured()) == (0, b"out\n", [False])
        assert played.messages() == f"{node.keeper} doesn't run: {reason}"


def test_words_that_slurmstepd_did_not_read_are_kept(node: Node) -> None:
    go, end = node.folder / "go", node.folder / "end"
    broken = node.script(
        "broken", f"{until(go)}; echo 'ModuleNotFoundError: no such module' >&2; exit 1"
    )
    played = node.start("sh", "-c", until(end), settings=(f"python={broken}",))
    wait_until(lambda: played.reports("begin"), "the task has begun")
    os.kill(played.process.pid, signal.SIGSTOP)
    go.touch()
    wait_until(lambda: not node.processes("broken"), "its Python has failed")
    played.process.kill()
    end.touch()
    wait_until(lambda: not node.processes(KEEPER), "the keeper ends")
    node.optin.unlink()
    later = [node.run("true", words=(f"job={job}",)).messages() for job in (1, 2)]
    assert later == [
        "job 4711: task 0: output is missing from the log: ModuleNotFoundError: no such module",
        "",
    ]
