"""The start of a job: command line, folder, git's commit, Python; with `context: true` in
~/.logoptin also some environment, and git's changes.

A separate process gathers it for at most GATHER_SECS, so that git on a slow disk, or a hanging
home, delays neither the job nor its log. With `context: true`, the end of a shorter job's capture
waits for it. Without, it waits for at most BRIEF_SECS and drops the missing rest; data without
another program comes first. Values with names of secrets are masked (logshipper/masks/masking.py), and
the environment is an allow-list. The command line and git's diff are recorded otherwise unchanged,
as the documentation of the option says.
"""

import json
import os
import select
import signal
import time

from logshipper.background import detach
from logshipper.masks.masking import masked_lines, masked_text, masked_words
from logshipper.named_tuple import NamedTuple
from logshipper.sidecar.small_files import begin_of
from logshipper.spool.captures import stat_fields
from logshipper.spool.segment import MAX_RECORD_BYTES, Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

EVENT = "context"
MISSING: Json = {"event": "context_missing", "message": "how the job was started isn't known"}
GATHER_SECS = 5.0
BRIEF_SECS = 0.005
MAX_COMMAND_BYTES = 16 << 10
MAX_DIFF_BYTES = 32 << 10
MAX_VALUE_CHARS = 1000
_GIT_SECS = 2.0
_GIT_AFTER_SECS = 0.05
_NICE = 10  # the job's own cores are the job's
_MAX_REFS_BYTES = 4 << 20
_EXEC_SECS = 2.0  # how long a scheduler's daemon may take from its fork to the task's own program
_COMM = "logshipper-ctx"
ENVIRONMENT = (
    "CONDA_DEFAULT_ENV", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LANG", "LC_ALL", "LOADEDMODULES",
    "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MKL_NUM_THREADS", "NCCL_DEBUG", "OMP_NUM_THREADS", "OMP_PROC_BIND",
    "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "RANK", "ROCR_VISIBLE_DEVICES", "TZ", "VIRTUAL_ENV", "WORLD_SIZE",
)  # fmt: skip
SCHEDULER = (
    "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_JOB_ACCOUNT", "SLURM_JOB_CONSTRAINTS",
    "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE",
    "SLURM_SUBMIT_DIR", "SLURM_TASKS_PER_NODE", "QCG_PM_NLIST", "QCG_PM_NNODES", "QCG_PM_NODELIST", "QCG_PM_NPROCS",
    "QCG_PM_NTASKS", "QCG_PM_TASKS_PER_NODE",
)  # fmt: skip


class JobStart(NamedTuple):
    """The start of a job."""

    # None if they come from the process `pid`, which a scheduler's daemon is about to turn into the
    # job
    argv: "Sequence[str] | None"
    cwd: str | None
    pid: int = 0
    by_default: bool = False  # nobody asked for it, so nobody waits


class Gathering:
    """A context that is being gathered. Close it."""

    def __init__(self, job_start: JobStart) -> None:
        """Fork. Raises OSError."""
        self._start = job_start
        self._deadline = time.monotonic() + GATHER_SECS
        self._answer = b""  # a line for each event; the last has the most
        self._fd, send = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                _serve(job_start, send)
            os.waitpid(pid, 0)  # its child continues without a parent that reaps it
        except OSError:
            os.close(self._fd)
            raise
        finally:
            os.close(send)
        os.set_blocking(self._fd, False)

    def take(self) -> Json | None:
        """Return the complete event, or MISSING if none will come; else None. Never waits."""
        try:
            while more := os.read(self._fd, MAX_RECORD_BYTES):
                self._answer += more
        except BlockingIOError:
            if time.monotonic() < self._deadline:
                return None
        except OSError:
            pass
        return self._last_event()

    def wait(self) -> Json:
        """Wait for `take` until the time limit, or for BRIEF_SECS by default."""
        by_default = self._start.by_default
        until = min(self._deadline, time.monotonic() + BRIEF_SECS) if by_default else self._deadline
        while (event := self.take()) is None:
            rest_secs = until - time.monotonic()
            if rest_secs <= 0 or (by_default and b"\n" in self._answer):
                return self._last_event()
            select.select([self._fd], [], [], rest_secs)
        return event

    def _last_event(self) -> Json:
        event = parse(self._answer.rpartition(b"\n")[0].rpartition(b"\n")[2])
        if event is MISSING and self._start.by_default:
            return start_event(self._start.argv, self._start.cwd)
        return event

    def close(self) -> None:
        os.close(self._fd)


def parse(answer: bytes) -> Json:
    try:
        event = json.loads(answer)
    except ValueError:
        return MISSING
    return event if isinstance(event, dict) else MISSING


def gather(job_start: JobStart, environment: "Mapping[str, str]") -> Json:
    """Gather the whole event. It runs git and reads /proc, so call it in a separate process."""
    argv, cwd = job_start.argv, job_start.cwd
    if job_start.pid:
        _await_exec(job_start.pid)
        argv, cwd, environment = _of_process(job_start.pid)
    event = {**start_event(argv, cwd), **_python(argv, cwd, environment)}
    event["cores"] = sorted(os.sched_getaffinity(job_start.pid))
    event["environment"] = _pick_variables(environment, ENVIRONMENT)
    event["scheduler"] = _pick_variables(environment, SCHEDULER)
    if cwd:
        event["git"] = git_state(cwd)
    return fitted(event)


def gather_in_brief(job_start: JobStart, environment: "Mapping[str, str]") -> "Iterator[Json]":
    """Yield the event of a run by hand: from files, then with git's data. As `gather`."""
    cwd = job_start.cwd
    event = {**start_event(job_start.argv, cwd), **_python(job_start.argv, cwd, environment)}
    head = git_head(cwd) if cwd else {}
    yield fitted({**event, "git": head})
    if cwd and head:
        yield fitted({**event, "git": {**head, **git_state(cwd, with_diff=False)}})


def start_event(argv: "Sequence[str] | None", cwd: str | None) -> Json:
    """Return the data known without a look anywhere."""
    command = masked_command(argv or ())
    return {
        "event": EVENT,
        "message": f"started as: {' '.join(command)[:MAX_VALUE_CHARS]}",
        "command": command,
        "cwd": _masked(cwd or ""),
    }


def _python(
    argv: "Sequence[str] | None", cwd: str | None, environment: "Mapping[str, str]"
) -> Json:
    from logshipper.sidecar.command_python import python_of

    python = python_of(argv or (), cwd or "", environment.get("PATH", os.defpath))
    masked = {key: _masked(text) for key, text in python.items()}
    return {"python": masked} if masked else {}


def masked_command(argv: "Sequence[str]") -> list[str]:
    """The command line, masked, cut to MAX_COMMAND_BYTES."""
    command: list[str] = []
    room = MAX_COMMAND_BYTES
    for word in masked_words(argv):
        text = _text(word)
        room -= len(text.encode()) + 1
        if room < 0:
            return [*command, "..."]
        command.append(text)
    return command


def git_head(cwd: str) -> Json:
    """Return commit and branch from the repository's files alone; empty outside repositories."""
    folder = os.path.realpath(cwd)
    while not os.path.lexists(os.path.join(folder, ".git")):
        if folder == (folder := os.path.dirname(folder)):
            return {}
    repository = os.path.join(folder, ".git")
    pointer = _small_file(repository)  # a worktree's or submodule's file that names its folder
    if pointer.startswith("gitdir: "):
        repository = os.path.join(folder, pointer.removeprefix("gitdir: "))
    head = _small_file(os.path.join(repository, "HEAD"))
    if not head.startswith("ref: refs/heads/"):
        return {"commit": head, "branch": "HEAD"} if _is_commit(head) else {"branch": ""}
    reference = head.removeprefix("ref: ")
    state = {"branch": _masked(reference.removeprefix("refs/heads/"))}
    common = os.path.join(repository, _small_file(os.path.join(repository, "commondir")))
    for path in (repository, common):
        if _is_commit(commit := _small_file(os.path.join(path, reference))):
            return {"commit": commit, **state}
    for line in _small_file(os.path.join(common, "packed-refs")).split("\n"):
        commit, _, name = line.partition(" ")
        if name == reference and _is_commit(commit):
            return {"commit": commit, **state}
    return state


def _small_file(path: str) -> str:
    return begin_of(path, _MAX_REFS_BYTES).strip()


def _is_commit(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def git_state(cwd: str, *, with_diff: bool = True) -> Json:
    """Return commit, branch, dirty, and with_diff diff (of tracked files, cut to MAX_DIFF_BYTES)
    and diff_bytes.

    `reason` replaces them if git fails; empty outside repositories.
    """
    import subprocess

    until = time.monotonic() + _GIT_SECS
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}

    def git(*words: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            ["git", "-C", cwd, "-c", "core.fsmonitor=false", "-c", "core.pager=cat", *words],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **quiet},
            timeout=max(until - time.monotonic(), 0.1),
        )

    try:
        commit = git("rev-parse", "--verify", "HEAD")
        if commit.returncode:
            is_repository = b"not a git repository" not in commit.stderr
            reason = _masked(os.fsdecode(commit.stderr.strip()))[:200]
            return {"reason": reason} if is_repository else {}
        branch = git("rev-parse", "--abbrev-ref", "HEAD").stdout.strip()
        state: Json = {
            "commit": commit.stdout.decode().strip(),
            "branch": _masked(os.fsdecode(branch)),
        }
        if not with_diff:
            words = ("--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
            return {**state, "dirty": bool(git("status", *words).stdout)}
        diff = git("diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--").stdout
    except FileNotFoundError:
        return {"reason": "there is no git here"}
    except subprocess.TimeoutExpired:
        return {"reason": f"git took longer than {_GIT_SECS:g} s"}
    except (OSError, subprocess.SubprocessError) as error:
        return {"reason": f"git can't be asked: {error}"}
    kept = diff
    if len(diff) > MAX_DIFF_BYTES:  # whole lines: masks do not recognise half a password
        kept = diff[: diff.rfind(b"\n", 0, MAX_DIFF_BYTES) + 1]
    text = masked_lines(kept.decode("utf-8", "replace"))
    return {**state, "dirty": bool(diff), "diff": text, "diff_bytes": len(diff)}


def fitted(event: Json) -> Json:
    """Fit the event into a record, with as much of the diff as possible."""
    while len(json.dumps(event).encode()) > MAX_RECORD_BYTES - 1024:
        git = event.get("git", {})
        if not git.get("diff"):
            return {**event, "environment": {}, "scheduler": {}}
        git["diff"] = git["diff"][: len(git["diff"]) // 2]
    return event


def _serve(job_start: JobStart, send: int) -> None:
    """Serve in the forked process, which forks again, so that nobody must reap the worker; it holds
    only the pipe's end."""
    try:
        if os.fork() == 0:
            detach(_COMM, {send})
            # SIGALRM ends any wait
            signal.setitimer(signal.ITIMER_REAL, GATHER_SECS)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            if job_start.by_default:
                events = gather_in_brief(job_start, os.environ)
            else:
                events = iter((gather(job_start, os.environ),))
            for event in events:
                data = json.dumps(event).encode() + b"\n"
                while data:
                    data = data[os.write(send, data) :]
                if job_start.by_default:
                    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
                    if _is_unread(send):
                        break
    finally:
        os._exit(0)


def _is_unread(fd: int) -> bool:
    """Return whether the pipe's reader goes within _GIT_AFTER_SECS: such short commands do not
    repay git."""
    poll = select.poll()
    poll.register(fd, 0)  # POLLERR comes unasked
    return bool(poll.poll(_GIT_AFTER_SECS * 1000))


def _await_exec(pid: int) -> None:
    """Wait until the process is the job's program: before, it has the name of the forking daemon,
    and inside an exec no command line."""
    until = time.monotonic() + _EXEC_SECS
    try:
        while time.monotonic() < until:
            parent = int(stat_fields(pid)[1])
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if _comm(pid) != _comm(parent) and file.read(1):
                    return
            time.sleep(0.005)
    except OSError:
        pass  # it has gone: nothing to wait for


def _comm(pid: int) -> bytes:
    with open(f"/proc/{pid}/comm", "rb") as file:
        return file.read()


def _of_process(pid: int) -> tuple[list[str], str, dict[str, str]]:
    """Return command line, folder and environment; the last two are empty if invisible: the sidecar
    of Slurm's plugin has its own user namespace."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        argv = [os.fsdecode(word) for word in file.read(MAX_COMMAND_BYTES).split(b"\0")[:-1]]
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [os.fsdecode(pair).partition("=") for pair in file.read(1 << 20).split(b"\0")]
        return argv, os.readlink(f"/proc/{pid}/cwd"), {name: value for name, _, value in pairs}
    except PermissionError:
        return argv, "", {}


def _pick_variables(environment: "Mapping[str, str]", names: "Sequence[str]") -> dict[str, str]:
    return {
        name: _masked(environment[name])[:MAX_VALUE_CHARS] for name in names if name in environment
    }


def _masked(text: str) -> str:
    return masked_text(_text(text))


def _text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
