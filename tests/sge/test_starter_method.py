"""deploy/launchers/sge-starter-method on a real Grid Engine: jobs' files stay equal byte for byte,
and opted-in users' logs are complete."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.sge.cell import JOB_SECS, SgeCell
from tests.slurm.tools.users import JobUser
from tests.tools.captures.captured_runs import wait_until

Json = Any  # Any: JSON
SURROUNDINGS = r"""
tr '\0' '|' </proc/$$/cmdline | sed "s|[^|]*/job_scripts/[0-9]*|SCRIPT|"; echo " $#"
shopt -p login_shell 2>/dev/null; readlink /proc/self/fd/0 | sed 's|/.*/||; s|[0-9]*$||'; ls /proc/self/fd | cat
env | grep -v -e ^LOGSHIPPER -e ^_= -e ^SHLVL= | sed 's/=.*//' | sort
umask; ulimit -a; trap; jobs; echo to stderr >&2
"""


class Case(NamedTuple):
    """A job of one kind.

    - words: of qsub, besides output files
    - stdin: the script, for a job without a command
    - queue: without `plain` or `all`
    - code: of its end
    - log: lines of its stdout's log; None: those of its output file
    - tasks: of an array
    """

    name: str
    words: Sequence[str] = ()
    stdin: str = ""
    queue: str = ""
    code: str = "0"
    log: Sequence[str] | None = None
    tasks: Sequence[str] = ()


CASES = (
    Case("script", stdin="echo out; echo err >&2; exit 7", code="7"),
    Case("surroundings", stdin=SURROUNDINGS),
    Case("surroundings_sh", ("-S", "/bin/sh"), SURROUNDINGS.replace("shopt", ": shopt")),
    Case("surroundings_unix", stdin="#!/bin/bash\n" + SURROUNDINGS, queue="unix."),
    Case("surroundings_stdin", stdin=SURROUNDINGS, queue="stdin."),
    Case(
        "bytes",
        stdin=r"printf 'a\0b\r\n\377\033[31mred\033[0m\n no end'",
        log=["ab", "\ufffdred", " no end"],
    ),
    Case("merged", ("-j", "y"), "for i in 1 2 3; do echo out $i; done"),
    Case("flood", stdin="seq 20000"),
    Case(
        "array",
        ("-t", "1-3"),
        "echo task $SGE_TASK_ID of $JOB_ID | sed 's/of .*/of it/'",
        tasks=("1", "2", "3"),
    ),
    Case("binary", ("-b", "y", "echo", "a  b", "$LOGNAME;", "exit", "5"), code="5"),
    Case("binary_stdin", ("-b", "y", "/bin/echo", "a  b", "$SHELL"), queue="stdin."),
    Case("binary_no_shell", ("-b", "y", "-shell", "n", "/bin/echo", "a  b", "$HOME")),
    Case("signal", stdin="echo out; kill -TERM $$", code="143"),
    Case("child", stdin="(sleep 0.2; echo late) & echo out; wait"),
)


class Run(NamedTuple):
    user: JobUser
    job_id: str
    case: Case

    def files(self) -> dict[str, bytes]:
        """Return its output files, with placeholders for parts that differ between any two jobs."""
        contents = {}
        for path in sorted(self.user.home.glob(f"{self.case.name}.[oe]*")):
            content = path.read_bytes().replace(self.user.name.encode(), b"USER")
            contents[path.name.replace(self.job_id, "ID")] = content
        return contents


@pytest.fixture(scope="module")
def runs(cell: SgeCell) -> dict[str, tuple[Run, Run, Run]]:
    """Return three parallel runs of each case: without starter-method; with it, for a user without
    opt-in; and for an opted-in user."""
    plain, out, opted = (cell.add_user(opted_in=opted_in) for opted_in in (False, False, True))
    runs_of = {}
    for case in CASES:
        of_users = ((plain, "plain.q"), (out, "all.q"), (opted, "all.q"))
        case_runs = [
            Run(
                user,
                cell.qsub(
                    user, "-N", case.name, "-q", case.queue + queue, *case.words, stdin=case.stdin
                ),
                case,
            )
            for user, queue in of_users
        ]
        runs_of[case.name] = (case_runs[0], case_runs[1], case_runs[2])
    cell.wait(*(run.job_id for case_runs in runs_of.values() for run in case_runs))
    return runs_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_as_without_it(case: Case, cell: SgeCell, runs: dict[str, tuple[Run, Run, Run]]) -> None:
    plain, out, opted = runs[case.name]
    files = plain.files()
    assert files
    assert out.files() == files
    assert opted.files() == files
    ends, out_ends, opted_ends = (
        cell.ends(run.job_id, max(1, len(case.tasks))) for run in (plain, out, opted)
    )
    assert {code for _, code in ends} == {case.code}
    assert out_ends == opted_ends == ends


class Logged(NamedTuple):
    """Contents of the opted-in user's store: jobs as in `ls`, and lines of standard output, by
    job."""

    jobs: dict[str, Json]
    lines: dict[str, list[str]]


@pytest.fixture(scope="module")
def logged(cell: SgeCell, runs: dict[str, tuple[Run, Run, Run]]) -> Logged:
    user = runs["script"][2].user
    listing = cell.run_as(user, str(cell.program), "ls", "--all", "--json")
    jobs = {job["job_id"]: job for job in json.loads(listing.stdout)["jobs"]}
    words = ("export", "*", "--what", "logs", "--format", "jsonl", "--output", "logs.jsonl")
    result = cell.run_as(user, str(cell.program), *words)
    assert not result.returncode, result.stderr
    lines: dict[str, list[str]] = {job_id: [] for job_id in jobs}
    for row in map(json.loads, (user.home / "logs.jsonl").read_text().split("\n")[:-1]):
        assert (row["attempt"], row["step"], row["task"]) == (1, "", 0)
        if row["stream"] == "stdout":
            lines[row["job_id"]].append(row["text"])
    return Logged(jobs, lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_is_in_the_log(
    case: Case, runs: dict[str, tuple[Run, Run, Run]], logged: Logged
) -> None:
    run = runs[case.name][2]
    for task in case.tasks or ("",):
        job_id = f"{run.job_id}.{task}" if task else run.job_id
        job = logged.jobs[job_id]
        code = {"143": (None, 15)}.get(case.code, (int(case.code), 0))
        assert (job["name"], job["exit_code"], job["signal"], job["attempts"]) == (
            case.name,
            *code,
            1,
        )
        (path,) = run.user.home.glob(f"{case.name}.o{job_id}")
        lines = path.read_text().splitlines() if case.log is None else list(case.log)
        assert logged.lines[job_id] == lines


def test_nothing_of_who_did_not_opt_in(
    cell: SgeCell, runs: dict[str, tuple[Run, Run, Run]]
) -> None:
    user = runs["script"][1].user
    assert not (user.home / ".local").exists()
    assert all(run[2].user != user for run in runs.values())


def test_deleted(cell: SgeCell) -> None:
    """The log has the output, and the kill; `-notify` sends the job a signal (sometimes twice, also
    without logshipper)."""
    opted, plain = cell.add_user(opted_in=True), cell.add_user(opted_in=False)
    script = "trap 'echo told' USR2; echo ready; while :; do sleep 0.1; done"
    jobs = {
        user: cell.qsub(user, "-N", "del", "-notify", "-q", queue, stdin=script)
        for user, queue in ((opted, "all.q"), (plain, "plain.q"))
    }
    files = [user.home / f"del.o{job}" for user, job in jobs.items()]
    wait_until(
        lambda: all(file.exists() and file.read_text() == "ready\n" for file in files),
        "both run",
        JOB_SECS,
    )
    for user, job in jobs.items():
        assert not cell.run_as(user, "qdel", job).returncode
    cell.wait(*jobs.values())
    assert {code for job in jobs.values() for _, code in cell.ends(job)} == {"137"}
    for file in files:
        assert set(file.read_text().splitlines()[1:]) == {"told"}
    assert cell.logs(opted, jobs[opted], "--stream", "stdout")[:2] == ["ready", "told"]
    assert cell.show(opted, jobs[opted])["state"] != "COMPLETED"


def test_rescheduled(cell: SgeCell) -> None:
    """The run is the same job's next attempt."""
    user = cell.add_user(opted_in=True)
    script = 'echo run $RESTARTED; [ "$RESTARTED" != 0 ] || exec sleep 1000'
    job = cell.qsub(user, "-N", "again", "-r", "y", "-q", "all.q", stdin=script)
    file = user.home / f"again.o{job}"
    wait_until(lambda: file.exists() and "run 0" in file.read_text(), f"{job} runs", JOB_SECS)
    assert not cell.as_root("qmod", "-rj", job).returncode
    cell.wait(job)
    assert [
        (capture["attempt"], capture["step"]) for capture in cell.show(user, job)["captures"]
    ] == [(1, ""), (2, "")]
    assert cell.logs(user, job, "--stream", "stdout")[-1] == "run 1"


def test_broken_logshipper_harms_no_job(cell: SgeCell) -> None:
    """logshipper is missing, fails, or hangs: the job runs without it, and prints nothing about
    it."""
    user = cell.add_user(opted_in=True)
    jobs = {}
    for name, program in {"missing": "", "fails": "exit 1", "hangs": "exec sleep 1000"}.items():
        broken, starter = cell.folder / name, cell.folder / f"starter-{name}"
        if program:
            broken.write_text(f"#!/bin/sh\n{program}\n")
            broken.chmod(0o755)
        starter.write_text(cell.starter_for(broken))
        starter.chmod(0o755)
        cell.add_queue(f"{name}.q", str(starter))
        jobs[name] = cell.qsub(
            user, "-N", name, "-q", f"{name}.q", stdin="echo out; echo err >&2; exit 7"
        )
    cell.wait(*jobs.values())
    for name, job in jobs.items():
        assert (user.home / f"{name}.o{job}").read_bytes() == b"out\n"
        assert (user.home / f"{name}.e{job}").read_bytes() == b"err\n"
        assert [code for _, code in cell.ends(job)] == ["7"]
    assert not (user.home / ".local").exists()
