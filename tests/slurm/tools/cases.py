"""Cases that run twice, once with opt-in and once without. Both runs must write the same output,
and Loki must have every line of the first run exactly once.

Each line of a script names its stream: `err...` goes to stderr, any other line to stdout.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.slurm.tools.capturing import CapturingCluster, Stream, read_files
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import wait_until

BOTH = "for i in $(seq {}); do echo out $i; echo err $i >&2; done\n"
APART = ("--output=job.out", "--error=job.err")
READY = "out ready"
JOB_SECS = 120.0
# Messages of a busy machine. srun prints them until Slurm notices the end of the previous step.
# bash prints them until an ended process of the user is reaped. If a process of the capture counted
# permanently, bash would print it without `retry`. The messages come in any order.
OF_SLURM = re.compile(rb"^(?:(?:srun|slurmstepd-NODE): .*\n){2,}", re.MULTILINE)
BUSY = re.compile(
    rb"^srun: (Job \S+ step creation temporarily disabled|Step created for |job \S+ (queued and|has been allocated) )"
    rb"|: fork: retry: Resource temporarily"
)


class Controls(Protocol):
    """Actions on a running job."""

    def scancel(self, user: JobUser, *words: str) -> None: ...

    def requeue(self, job_id: str) -> None: ...


@dataclass(frozen=True)
class Case:
    """One case. It has either `script`, for sbatch, or `command`, such as an srun.

    options: of sbatch. opt_in: content of .logoptin. before: called with cluster and user before
    the job starts. act: called with cluster, user and job id after READY.

    ends: sorted ends of the jobs. or_ends: Slurm's alternative if the node reports its end before
    the script's. code: exit code of `command`. captures: number of captures of all jobs.

    sorted_lines: several tasks write into one file, so only the order within each task is certain.
    log: expected lines in Loki, by task and stream. None stands for the lines of the job's files,
    in the streams of one batch step. `{}` skips the check.
    """

    name: str
    script: str = ""
    options: Sequence[str] = ()
    command: Sequence[str] = ()
    opt_in: str = ""
    before: Callable[[CapturingCluster, JobUser], object] | None = None
    act: Callable[[Controls, JobUser, str], object] | None = None
    ends: Sequence[JobEnd] = (JobEnd("COMPLETED", 0, 0),)
    or_ends: Sequence[JobEnd] = ()
    code: int = 0
    sorted_lines: bool = False
    log: Mapping[Stream, Sequence[str]] | None = None
    captures: int = 1


@dataclass
class Run:
    """One of the two runs. files: outputs by name, with placeholders for the differences between
    any two runs."""

    user: JobUser
    job_id: str = ""
    job_ids: list[str] = field(default_factory=list)
    ends: list[JobEnd] = field(default_factory=list)
    code: int = 0
    files: dict[str, bytes] = field(default_factory=dict)


def compare(cluster: CapturingCluster, case: Case, plain: Run, captured: Run) -> None:
    """Finish both runs. Raise SlurmFailed, or AssertionError if the captured run differs from the
    plain one or its log is incomplete."""
    for run in (plain, captured):
        finish(cluster, case, run)
    differences = difference(case, plain, captured)
    differences += log_difference(cluster, case, plain, captured)
    differences += nothing_logged(cluster, plain)
    assert not differences, "\n".join(differences)


def run_pair(cluster: CapturingCluster, case: Case) -> tuple[Run, Run]:
    """Start the plain and the captured run side by side."""
    return start(cluster, case, opted_in=False), start(cluster, case, opted_in=True)


def start(cluster: CapturingCluster, case: Case, *, opted_in: bool) -> Run:
    user = cluster.add_user()
    if opted_in:
        place = user.home / ".logoptin"
        place.write_text(case.opt_in)
        place.chmod(0o644)
    if case.before is not None:
        case.before(cluster, user)
    started = Run(user)
    if case.script:
        started.job_id = cluster.sbatch(user, case.script, *case.options)
    return started


def finish(cluster: CapturingCluster, case: Case, started: Run) -> None:
    user = started.user
    if case.command:
        done = cluster.run_as(user, *case.command)
        started.code = done.returncode
        (user.home / "command.out").write_bytes(done.stdout)
        (user.home / "command.err").write_bytes(done.stderr)
    if case.act is not None:
        wait_until(
            lambda: any(READY.encode() in content for content in read_files(user.home).values()),
            "it prints READY",
            30.0,
        )
        case.act(cluster, user, started.job_id)
    started.job_ids = cluster.job_ids(user.name)
    started.ends = sorted(
        end for job_id in started.job_ids for end in cluster.wait_all(job_id, JOB_SECS)
    )
    if case.script:
        started.ends = sorted(cluster.wait_all(started.job_id, JOB_SECS))
    started.files = normal(read_files(user.home), started.job_ids, user)


def normal(files: Mapping[str, bytes], job_ids: Sequence[str], user: JobUser) -> dict[str, bytes]:
    """Replace the differences between any two runs by JOB, HOME, USER, NODE and TIME. Remove the
    messages of a busy machine."""

    def replaced(text: bytes) -> bytes:
        for number, job_id in enumerate(job_ids):
            text = text.replace(job_id.encode(), b"JOB%d" % number)
        text = text.replace(str(user.home).encode(), b"HOME").replace(user.name.encode(), b"USER")
        text = _without_node(text)
        text = b"".join(line for line in text.splitlines(keepends=True) if not BUSY.search(line))
        text = OF_SLURM.sub(
            lambda match: b"".join(sorted(match[0].splitlines(keepends=True))), text
        )
        return re.sub(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?", b"TIME", text)

    return {replaced(name.encode()).decode(): replaced(content) for name, content in files.items()}


def _without_node(text: bytes) -> bytes:
    return re.sub(rb"\b(ON |slurmstepd-|srun: error: |slurm_)n[12]\b", rb"\1NODE", text)


def difference(case: Case, plain: Run, captured: Run) -> list[str]:
    """Return the differences between the two runs' own outputs and ends."""
    differences = []
    for run_ in (plain, captured):
        if list(run_.ends) not in (sorted(case.ends), sorted(case.or_ends or case.ends)):
            differences.append(
                f"{'captured' if run_ is captured else 'plain'}: ends {run_.ends}, not {sorted(case.ends)}"
            )
        if run_.code != case.code:
            differences.append(
                f"{'captured' if run_ is captured else 'plain'}: exit code {run_.code}, not {case.code}"
            )
    if plain.files.keys() != captured.files.keys():
        differences.append(f"files {sorted(captured.files)}, not {sorted(plain.files)}")
    for name in plain.files.keys() & captured.files.keys():
        ours, theirs = captured.files[name], plain.files[name]
        is_same = ours == theirs
        if not is_same and case.sorted_lines:
            is_same = sorted(ours.splitlines(keepends=True)) == sorted(
                theirs.splitlines(keepends=True)
            )
        elif not is_same and not _apart(case):
            is_same = _by_stream(ours) == _by_stream(theirs)
        if not is_same:
            differences.append(f"{name}: {_first_difference(ours, theirs)}")
    return differences


def _apart(case: Case) -> bool:
    """Return whether stdout and stderr have separate files. Capture does not keep the kernel's
    order within one file."""
    return bool(case.command) or any(option.startswith("--error") for option in case.options)


def _by_stream(content: bytes) -> tuple[list[bytes], list[bytes]]:
    lines = content.splitlines(keepends=True)
    return [line for line in lines if line[:3] != b"err"], [
        line for line in lines if line[:3] == b"err"
    ]


def _first_difference(ours: bytes, theirs: bytes) -> str:
    at = next(
        (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    part = slice(max(0, at - 40), at + 120)
    return (
        f"{len(ours)} bytes, not {len(theirs)}; at byte {at} {ours[part]!r}, not {theirs[part]!r}"
    )


def expected_log(case: Case, plain: Run) -> dict[Stream, list[str]]:
    """Return the expected log, derived from the uncaptured run's output."""
    if case.log is not None:
        return {stream: list(lines) for stream, lines in case.log.items()}
    streams: dict[Stream, list[str]] = {}
    for name, content in plain.files.items():
        for line in content.decode(errors="replace").split("\n"):
            is_err = name.endswith(".err") if _apart(case) else line.startswith("err")
            if line and not line.startswith("slurmstepd"):  # slurmstepd writes into the file itself
                streams.setdefault(
                    ("1", "batch", "0", "stderr" if is_err else "stdout"), []
                ).append(line)
    return streams


def log_difference(cluster: CapturingCluster, case: Case, plain: Run, captured: Run) -> list[str]:
    """Return the missing and the surplus lines of the captured run's log."""
    logs: dict[Stream, list[str]] = {}
    # A process that holds a terminal keeps a capture open. Under linuxproc it outlives the job.
    cluster.end_processes(captured.user)
    cluster.wait_closed(captured.job_ids, case.captures)
    for job_id in captured.job_ids:
        cluster.wait_shipped(job_id)  # finds surplus captures, too
        for stream, lines in cluster.log_of(job_id).items():
            logs.setdefault(stream, []).extend(lines)
    differences = compare_logs(case, plain, captured, logs)
    if differences:
        differences.append(cluster.describe(captured.job_ids[0], "its log isn't whole"))
    return differences


def compare_logs(
    case: Case, plain: Run, captured: Run, logs: Mapping[Stream, Sequence[str]]
) -> list[str]:
    """Return the missing and the surplus lines of a log. logs: Loki's lines by stream."""
    if case.log == {}:
        return []
    plain_logs = expected_log(case, plain)
    own_logs = {stream: _own_lines(lines) for stream, lines in logs.items()}
    differences = []
    for stream in sorted(plain_logs.keys() | own_logs.keys()):
        plain_lines, log_lines = plain_logs.get(stream, []), own_logs.get(stream, [])
        is_same = log_lines == plain_lines or (
            (case.sorted_lines or len(captured.job_ids) > 1)
            and sorted(log_lines) == sorted(plain_lines)
        )
        if not is_same:
            missing, more = (
                [line for line in plain_lines if line not in log_lines],
                [line for line in log_lines if line not in plain_lines],
            )
            differences.append(
                f"log of {stream}: {len(log_lines)} lines, not {len(plain_lines)}; "
                f"missing {missing[:5]}, too much {more[:5]}, "
                f"repeated {len(log_lines) - len(set(log_lines))}"
            )
    return differences


def _own_lines(lines: Sequence[str]) -> list[str]:
    """Remove the node's name and the messages of a busy machine."""
    encoded = (line.encode() for line in lines)
    return [_without_node(line).decode() for line in encoded if not BUSY.search(line)]


def nothing_logged(cluster: CapturingCluster, plain: Run) -> list[str]:
    """Return the captured entries of a user without opt-in."""
    for job_id in plain.job_ids:
        cluster.wait_shipped(job_id)
    first = cluster.entries(*plain.job_ids)[:1] if plain.job_ids else []
    return [f"captured without opt-in: {entry}" for entry in first]


def write(user: JobUser, name: str, content: str) -> None:
    """Write a file into the user's home."""
    place: Path = user.home / name
    place.write_text(content)


def text_of(user: JobUser, name: str) -> str:
    """Return the text of a user's file, "" if there is none yet."""
    place: Path = user.home / name
    return place.read_text() if place.exists() else ""
