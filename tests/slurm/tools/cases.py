"""Cases that are run twice, by a user who opted in and by one who didn't: what the job wrote itself
must be the same, and of the first one all must be in Loki, nothing twice.

A line of a script's says whose it is: `err...` is for stderr, all else for stdout.
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
# said on a busy machine: by srun, where Slurm hasn't noticed yet that the step before is over; by
# bash, where a process of the user's that has ended isn't reaped yet. Where one of capture's
# counted for good it would say so without `retry`
# they come in any order
OF_SLURM = re.compile(rb"^(?:(?:srun|slurmstepd-NODE): .*\n){2,}", re.MULTILINE)
BUSY = re.compile(
    rb"^srun: (Job \S+ step creation temporarily disabled|Step created for |job \S+ (queued and|has been allocated) )"
    rb"|: fork: retry: Resource temporarily"
)


class Controls(Protocol):
    """What is done to a job while it runs."""

    def scancel(self, user: JobUser, *words: str) -> None: ...

    def requeue(self, job_id: str) -> None: ...


@dataclass(frozen=True)
class Case:
    """script: of sbatch; or command: what the user calls instead, such as srun. options: of sbatch.

    opt_in: content of .logoptin. before, act: called with cluster, user and (act) job id before the
    job is submitted and when it has printed READY. ends: how the jobs end, sorted; or_ends: what
    Slurm says in its place where the node's end came to it before the script's. code: of command.
    sorted_lines: several tasks write into one file, so that only the order of each one's lines is
    certain. log: what Loki must have, by task and stream; None: what the job's files have,
    in the streams of one batch step; `{}`: not looked at. captures: of all jobs.
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
    """One of the two runs. files: outputs by name, in which what differs between any two runs is
    replaced."""

    user: JobUser
    job_id: str = ""
    job_ids: list[str] = field(default_factory=list)
    ends: list[JobEnd] = field(default_factory=list)
    code: int = 0
    files: dict[str, bytes] = field(default_factory=dict)


def compare(cluster: CapturingCluster, case: Case, plain: Run, captured: Run) -> None:
    """Both runs to their ends. Raises SlurmFailed, AssertionError where the captured one isn't as
    the plain one, or its log isn't whole."""
    for run in (plain, captured):
        finish(cluster, case, run)
    differences = difference(case, plain, captured)
    differences += log_difference(cluster, case, plain, captured)
    differences += nothing_logged(cluster, plain)
    assert not differences, "\n".join(differences)


def run_pair(cluster: CapturingCluster, case: Case) -> tuple[Run, Run]:
    """The plain and the captured run, begun next to each other."""
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
    """With JOB, HOME, USER, NODE and TIME for what no two runs have in common, and without what a
    busy machine adds."""

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
    """What is different in the two runs' own outputs and ends; empty where nothing is."""
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
    """Whether stdout and stderr have a file each; in one file their order isn't the kernel's any
    more."""
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
    """By what the uncaptured run wrote."""
    if case.log is not None:
        return {stream: list(lines) for stream, lines in case.log.items()}
    streams: dict[Stream, list[str]] = {}
    for name, content in plain.files.items():
        for line in content.decode(errors="replace").split("\n"):
            is_err = name.endswith(".err") if _apart(case) else line.startswith("err")
            if line and not line.startswith("slurmstepd"):  # which writes into the file itself
                streams.setdefault(
                    ("1", "batch", "0", "stderr" if is_err else "stdout"), []
                ).append(line)
    return streams


def log_difference(cluster: CapturingCluster, case: Case, plain: Run, captured: Run) -> list[str]:
    """What is missing from the log of the captured run, or too much there."""
    logs: dict[Stream, list[str]] = {}
    # what holds a terminal keeps a capture open: under linuxproc it lives on
    cluster.end_processes(captured.user)
    cluster.wait_closed(captured.job_ids, case.captures)
    for job_id in captured.job_ids:
        cluster.wait_shipped(job_id)  # also what is one capture too many
        for stream, lines in cluster.log_of(job_id).items():
            logs.setdefault(stream, []).extend(lines)
    differences = compare_logs(case, plain, captured, logs)
    if differences:
        differences.append(cluster.describe(captured.job_ids[0], "its log isn't whole"))
    return differences


def compare_logs(
    case: Case, plain: Run, captured: Run, logs: Mapping[Stream, Sequence[str]]
) -> list[str]:
    """What is missing from a log, or too much there; logs: what Loki has, by stream."""
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
    """Without the node's name, and what a busy machine adds."""
    encoded = (line.encode() for line in lines)
    return [_without_node(line).decode() for line in encoded if not BUSY.search(line)]


def nothing_logged(cluster: CapturingCluster, plain: Run) -> list[str]:
    """What was captured of a user who didn't opt in."""
    for job_id in plain.job_ids:
        cluster.wait_shipped(job_id)
    return [
        f"captured without opt-in: {entry}"
        for job_id in plain.job_ids
        for entry in cluster.entries(job_id)[:1]
    ]


def write(user: JobUser, name: str, content: str) -> None:
    """A file of the user's."""
    place: Path = user.home / name
    place.write_text(content)


def text_of(user: JobUser, name: str) -> str:
    """Of a file of the user's, "" where there is none yet."""
    place: Path = user.home / name
    return place.read_text() if place.exists() else ""
