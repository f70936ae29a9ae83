"""TaskProlog and TaskEpilog capture bash batch scripts without the compiled plugin, and leave
everything else unchanged."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.running import LokiServer
from tests.slurm.conftest import unless_missing
from tests.slurm.test_homes import fuse
from tests.slurm.tools.capturing import UNDER_BOTH, UNDER_CGROUP
from tests.slurm.tools.cluster import JobEnd
from tests.slurm.tools.fallback import FallbackCluster
from tests.slurm.tools.users import JobUser, processes_of
from tests.slurm.tools.whole import text
from tests.tools.captures.captured_runs import wait_until

COMPLETED = JobEnd("COMPLETED", 0, 0)
APART = ("--output=job.out", "--error=job.err")
LINES = 20_000
# Everything that a shell can see of its start. Two runs of the same job differ in Slurm's own
# variables.
SHELL = r"""
echo "options $- $(umask)"; shopt; set -o; trap; declare -F; jobs; ulimit -a
compgen -v | grep -v ^SLURM | sort; env | grep -v -e ^SLURM -e ^TMPDIR= | sort
for fd in /proc/$$/fd/*; do [ ${fd##*/} -lt 3 ] || echo "open ${fd##*/}"; done
echo "[${!-}] [$0]" "$@" "$(pgrep -P $$ | wc -l)"
"""


class Case(NamedTuple):
    """One script. end: the job's. logged: whether the job has a log. options: arguments of sbatch;
    `$HOME` stands for the user's home."""

    script: str
    end: JobEnd = COMPLETED
    logged: bool = True
    options: tuple[str, ...] = ()


CASES = {
    "lines": Case(f"for i in $(seq {LINES}); do echo line $i; done; seq -f 'err %.0f' 3000 >&2"),
    "bytes": Case(r"printf 'no end\r\n\0\xff\x1b[31m\t'; printf 'half' >&2; head -c 300000 /bin/bash"),
    "shell": Case(f"{SHELL}"),
    "shell_eu": Case(f"#!/bin/bash -eu\n{SHELL.replace('${!-}', '')}"),
    "shell_x": Case("#!/bin/bash -x\necho traced; bash -c 'echo $-'; echo $-"),
    "shell_by_env": Case(f"#!/usr/bin/env bash\n{SHELL}"),
    "shell_set": Case("set -euo pipefail; echo one; false | true; echo never", JobEnd("FAILED", 1, 0)),
    "unbound": Case("set -u; echo one; echo $!; echo never", JobEnd("FAILED", 1, 0)),
    "own_bash_env": Case("echo $GREETING; bash -c 'echo $GREETING'", options=("--export=ALL,BASH_ENV=$HOME/env",)),
    "expanded_bash_env": Case("echo $GREETING $BASH_ENV", options=("--export=ALL,BASH_ENV=$${HOME}/env",)),
    "exec": Case("echo before; exec python3 -c 'import sys; print(1); print(2, file=sys.stderr); sys.exit(7)'",
                 JobEnd("FAILED", 7, 0)),
    "exit_255": Case("echo one; exit 255", JobEnd("FAILED", 255, 0)),
    "trap": Case("trap 'echo at the end' EXIT; echo one; exit 3", JobEnd("FAILED", 3, 0)),
    "killed_9": Case("echo one; kill -9 $$", JobEnd("FAILED", 0, 9)),
    "killed_11": Case("ulimit -c 0; echo one; kill -11 $$", JobEnd("FAILED", 0, 11)),
    "killed_15": Case("echo one; kill $$", JobEnd("FAILED", 0, 15)),
    "wait": Case("sleep 0.2 & wait; echo $?; wait -n; echo $?; sleep 0.1 & wait $!; echo all"),
    "nested": Case("srun --quiet --label --ntasks=2 bash -c 'echo step' | sort; bash -c 'echo [${BASH_ENV-}]'; true"),
    "no_tty": Case("[ -t 1 ] || echo none; [ -t 2 ] || echo none; python3 -c 'import sys; print(sys.stdout.isatty())'"),
    "redirected": Case("exec >own.out 2>&1; echo elsewhere"),
    "empty": Case(":"),
    "removed_at_once": Case("rm -f ~/.logoptin; echo one; sleep 0.5; echo two"),
    "sh": Case("#!/bin/sh\necho from sh; bash -c 'echo nested [${BASH_ENV-}${LOGSHIPPER_BATCH-}]'", logged=False),
    "python": Case("#!/usr/bin/env python3\nimport subprocess\nprint('python', flush=True)\n"
                   "subprocess.run(['bash', '-c', 'echo nested $BASH_ENV'])", logged=False),
    "privileged_shell": Case("#!/bin/bash -p\necho privileged", logged=False),
}  # fmt: skip


class Run(NamedTuple):
    """One run of a case. log_id: the job's name in the log."""

    user: JobUser
    job_id: str
    log_id: str


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, slurm_machine: None, loki: LokiServer
) -> Iterator[FallbackCluster]:
    with unless_missing(lambda: FallbackCluster(loki, proctrack=request.param)) as running:
        yield running


def opted_in(cluster: FallbackCluster) -> JobUser:
    user = cluster.add_user()
    (user.home / ".logoptin").touch()
    return user


def begin(cluster: FallbackCluster, user: JobUser, script: str, *options: str) -> Run:
    job_id = cluster.sbatch(user, script, "--nodelist=n1", *options)
    return Run(user, job_id, cluster.log_id(job_id, user))


def output(run: Run) -> tuple[bytes, bytes]:
    return (run.user.home / "job.out").read_bytes(), (run.user.home / "job.err").read_bytes()


def lines(cluster: FallbackCluster, run: Run, stream: str = "stdout") -> list[str]:
    """Return the log's lines of one stream, across all attempts."""
    log = cluster.log_of(run.log_id)
    return [line for key in sorted(log) if key[3] == stream for line in log[key]]


def start_case(cluster: FallbackCluster, case: Case, *, plain: bool) -> Run:
    user = opted_in(cluster)
    (user.home / "env").write_text("GREETING=hello\n")
    options = [
        option.replace("$HOME", str(user.home)).replace("$$", "$") for option in case.options
    ]
    if plain:
        (user.home / ".logoptin").unlink()
    return begin(cluster, user, case.script, *APART, *options)


@pytest.fixture(scope="module")
def runs(cluster: FallbackCluster) -> dict[str, tuple[Run, Run]]:
    """Start a plain run and a run with opt-in for each case, all at once. Return both by name."""
    return {name: (start_case(cluster, case, plain=True), start_case(cluster, case, plain=False))
            for name, case in CASES.items()}  # fmt: skip


@UNDER_CGROUP
@pytest.mark.parametrize("name", CASES)
def test_the_job_is_what_it_is_without(
    name: str, cluster: FallbackCluster, runs: dict[str, tuple[Run, Run]]
) -> None:
    case, (plain, captured) = CASES[name], runs[name]
    for run in (plain, captured):
        assert cluster.wait(run.job_id) == case.end
    plain_output, captured_output = output(plain), output(captured)
    home = {
        str(plain.user.home).encode(): b"HOME",
        plain.user.name.encode(): b"NAME",
        plain.job_id.encode(): b"ID",
    }
    own_names = {str(captured.user.home).encode(): b"HOME", captured.user.name.encode(): b"NAME",
           captured.job_id.encode(): b"ID"}  # fmt: skip
    for ours, theirs in zip(captured_output, plain_output, strict=True):
        assert replaced(ours, own_names).splitlines(keepends=True) == replaced(
            theirs, home
        ).splitlines(keepends=True)
    if not case.logged:
        cluster.wait_shipped(captured.log_id)
        assert not cluster.entries(captured.log_id)
        return
    cluster.wait_closed([captured.log_id], 1)
    if name != "bytes":
        for stream, text in zip(("stdout", "stderr"), captured_output, strict=True):
            assert squeezed(lines(cluster, captured, stream)) == squeezed(
                text.decode().splitlines()
            )
    (closed,) = (event for event in cluster.events(captured.log_id) if event["event"] == "closed")
    assert closed["lost"] == 0
    assert closed["exit_code"] is None
    assert "isn't known here" in closed["reason"]
    assert not cluster.entries(cluster.log_id(plain.job_id, plain.user))


def replaced(text: bytes, words: dict[bytes, bytes]) -> bytes:
    for word, by in words.items():
        text = text.replace(word, by)
    return text


def squeezed(texts: list[str]) -> list[str]:
    """Drop empty lines and repeats because the log stores them differently."""
    lines = [text.expandtabs().rstrip() for text in texts if text]
    return [text for at, text in enumerate(lines) if not at or lines[at - 1] != text]


@UNDER_CGROUP
def test_who_did_not_opt_in_is_not_touched(cluster: FallbackCluster) -> None:
    """An opt-in during a job applies to the next job."""
    user = cluster.add_user()
    step = "srun --quiet bash -c 'env | grep -c -e BASH_ENV -e LOGSHIPPER || :'"
    script = f"touch ~/.logoptin\n{SHELL}\n{step}\nps -u $(id -u) -o args"
    run = begin(cluster, user, script, *APART)
    assert cluster.wait(run.job_id) == COMPLETED
    out, _ = output(run)
    assert not [line for line in out.splitlines() if line.startswith((b"LOGSHIPPER", b"BASH_ENV"))]
    assert b"batch_output" not in out
    assert b"\n0\n" in out
    assert not cluster.captures_left(run.job_id)
    assert not cluster.entries(run.log_id)


@UNDER_BOTH
def test_arrays_and_requeues(cluster: FallbackCluster) -> None:
    user = opted_in(cluster)
    array = cluster.sbatch(user, "echo task $SLURM_ARRAY_TASK_ID", "--array=0-4", "--output=%a.out")
    script = "echo run ${SLURM_RESTART_COUNT-0}; [ ${SLURM_RESTART_COUNT-0} = 1 ] || sleep 1000"
    run = begin(cluster, user, script, "--requeue", "--open-mode=append", *APART)
    out = user.home / "job.out"
    wait_until(lambda: out.exists() and out.read_bytes() == b"run 0\n", "the first run prints")
    cluster.requeue(run.job_id)
    assert cluster.wait(run.job_id) == COMPLETED
    assert out.read_bytes() == b"run 0\nrun 1\n"
    assert set(cluster.wait_all(array)) == {COMPLETED}
    cluster.wait_closed([run.log_id], 2)
    assert lines(cluster, run) == ["run 0", "run 1"]
    assert {key[0] for key in cluster.log_of(run.log_id)} == {"1", "2"}
    tasks = [job_id for job_id in cluster.job_ids(user.name) if job_id != run.job_id]
    cluster.wait_closed([cluster.log_id(job_id, user) for job_id in tasks], 5)
    logged = [
        line
        for job_id in tasks
        for line in lines(cluster, Run(user, job_id, cluster.log_id(job_id, user)))
    ]
    assert sorted(logged) == [f"task {task}" for task in range(5)]


@UNDER_BOTH
def test_scancel_loses_nothing(cluster: FallbackCluster) -> None:
    """The log includes the script's last words."""
    user = opted_in(cluster)
    script = "trap 'seq 3000; echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    run = begin(cluster, user, script, *APART)
    wait_until(lambda: text(user.home / "job.out") == "ready\n", "the script is ready")
    cluster.scancel(user, "--batch", "--signal=TERM", run.job_id)
    assert cluster.wait(run.job_id) == JobEnd("FAILED", 5, 0)
    output_lines = ["ready", *map(str, range(1, 3001)), "bye"]
    assert output(run)[0].decode().splitlines() == output_lines
    cluster.wait_closed([run.log_id], 1)
    assert lines(cluster, run) == output_lines


@UNDER_BOTH
def test_scancel_of_all_of_it(cluster: FallbackCluster) -> None:
    user = opted_in(cluster)
    run = begin(cluster, user, "seq 3000; sleep 1000", *APART)
    wait_until(lambda: text(user.home / "job.out").endswith("\n3000\n"), "it has printed")
    cluster.scancel(user, run.job_id)
    assert cluster.wait(run.job_id).state == "CANCELLED"
    cluster.wait_closed([run.log_id], 1)
    assert lines(cluster, run) == list(map(str, range(1, 3001)))


@UNDER_BOTH
def test_what_a_script_leaves_behind_holds_nobody_up(cluster: FallbackCluster) -> None:
    user = opted_in(cluster)
    run = begin(cluster, user, "echo one; setsid sleep 1000 & disown; echo two", *APART)
    assert cluster.wait(run.job_id) == COMPLETED
    assert output(run)[0] == b"one\ntwo\n"
    wait_until(lambda: lines(cluster, run) == ["one", "two"], "its log is in Loki")
    cluster.end_processes(user)
    cluster.wait_closed([run.log_id], 1)


@UNDER_CGROUP
@pytest.mark.parametrize(
    "python", ["/bin/false", "/bin/true", "#!/bin/sh\nsleep 2; exit 1", "#!/bin/sh\nkill -9 $$"]
)
def test_without_python_every_byte_arrives(python: str, cluster: FallbackCluster) -> None:
    script = Path(python)
    if python.startswith("#!"):
        script = cluster.folder / "no-python"
        script.write_text(python + "\n")
        script.chmod(0o755)
    cluster.use_python(script)
    try:
        user = opted_in(cluster)
        run = begin(cluster, user, "seq 50000; echo err >&2; exit 4", *APART)
        assert cluster.wait(run.job_id) == JobEnd("FAILED", 4, 0)
    finally:
        cluster.use_python(cluster.python)
    assert output(run) == ("".join(f"{n}\n" for n in range(1, 50_001)).encode(), b"err\n")
    assert not cluster.entries(run.log_id)
    assert not Path(f"/tmp/logshipper-batch-{run.job_id}").exists()


@UNDER_CGROUP
@pytest.mark.parametrize("victim", ["logship-batch", "logshipper-side"])
def test_a_killed_process_costs_the_job_nothing(victim: str, cluster: FallbackCluster) -> None:
    user = opted_in(cluster)
    script = "for i in $(seq 100); do echo $i; sleep 0.02; done; echo err >&2"
    run = begin(cluster, user, script, *APART)
    wait_until(lambda: lines(cluster, run)[:1] == ["1"], "its log begins")
    (pid,) = (pid for pid, name in processes_of(user.uid).items() if name == victim)
    os.kill(pid, signal.SIGKILL)
    assert cluster.wait(run.job_id) == COMPLETED
    assert output(run) == ("".join(f"{n}\n" for n in range(1, 101)).encode(), b"err\n")


@UNDER_CGROUP
@pytest.mark.parametrize("kind", ["fifo", "folder", "malformed", "dangling"])
def test_a_file_that_cannot_be_used_fails_closed(kind: str, cluster: FallbackCluster) -> None:
    user = cluster.add_user()
    place = user.home / ".logoptin"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "dangling":
        place.symlink_to("/nowhere/at/all")
    else:
        place.write_text("mode: on\n")
    run = begin(cluster, user, "echo a secret", *APART)
    assert cluster.wait(run.job_id) == COMPLETED
    assert output(run) == (b"a secret\n", b"")
    cluster.wait_closed([run.log_id], 1)
    assert lines(cluster, run) == []
    assert "config_refused" in [event["event"] for event in cluster.events(run.log_id)]


@UNDER_CGROUP
def test_modes_and_commands(cluster: FallbackCluster) -> None:
    user = opted_in(cluster)
    (user.home / ".logoptin").write_text("mode: disabled\n")
    script = 'echo a secret; echo \'/LOGCOMMAND {"mode":"enabled"}\'; echo public'
    run = begin(cluster, user, script, *APART)
    assert cluster.wait(run.job_id) == COMPLETED
    cluster.wait_closed([run.log_id], 1)
    assert lines(cluster, run) == ["public"]


@UNDER_CGROUP
def test_a_note_of_somebody_elses_is_left_alone(cluster: FallbackCluster) -> None:
    """The job then runs without capture because no process could wait for its log."""
    ann, ben = opted_in(cluster), cluster.add_user()
    job_id = cluster.sbatch(ann, "echo one", "--hold", "--nodelist=n1", *APART)
    note = Path(f"/tmp/logshipper-batch-{job_id}")
    assert cluster.run_as(ben, "bash", "-c", f"echo 1 >{note}").returncode == 0
    try:
        assert cluster.run_as(ann, "scontrol", "release", job_id).returncode == 0
        assert cluster.wait(job_id) == COMPLETED
        run = Run(ann, job_id, cluster.log_id(job_id, ann))
        assert output(run) == (b"one\n", b"")
        assert not cluster.entries(run.log_id)
        assert note.read_text() == "1\n"
    finally:
        note.unlink()


@UNDER_CGROUP
def test_a_home_that_hangs(cluster: FallbackCluster) -> None:
    """The job runs without capture after the time limit for the look has passed."""
    user, scratch = opted_in(cluster), cluster.add_user()
    os.chown(scratch.home, user.uid, user.gid)
    away = user._replace(home=scratch.home)
    job_id = cluster.sbatch(
        away, "seq 10", "--hold", "--nodelist=n1", *APART, env={"HOME": str(user.home)}
    )
    with fuse(cluster, user, "serve") as server:
        server.send_signal(signal.SIGSTOP)
        assert cluster.as_root("scontrol", "release", job_id).returncode == 0
        assert cluster.wait(job_id) == COMPLETED  # the home hangs until then
    run = Run(away, job_id, cluster.log_id(job_id, user))
    assert output(run) == (b"".join(b"%d\n" % n for n in range(1, 11)), b"")
    assert cluster.show(job_id)[0]["RunTime"] >= "00:00:02"
    assert not cluster.entries(run.log_id)
