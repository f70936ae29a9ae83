"""Job, attempt, step and rank of a run, from the environments of launchers and with real ones: GNU
parallel, make, xargs, tmux."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logshipper.process import nesting
from logshipper.spool import captures
from logshipper.start import launchers
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.sources import ROOT, SOURCES
from tests.tools.waiting import scaled

RUN = f"{sys.executable} -m logshipper run --"

PlaceFields = tuple[str, int | None, str, int | None, bool]
SLURM = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}
SGE = {"JOB_ID": "4711", "SGE_TASK_ID": "undefined", "RESTARTED": "0"}
CASES: list[tuple[dict[str, str], PlaceFields]] = [
    (SLURM, ("4711", 1, "", None, False)),
    (
        {**SLURM, "SLURM_STEP_ID": "2", "SLURM_PROCID": "5", "SLURM_RESTART_COUNT": "3"},
        ("4711", 4, "2", 5, False),
    ),
    (SGE, ("4711", 1, "", None, False)),
    ({**SGE, "SGE_TASK_ID": "3", "RESTARTED": "1"}, ("4711.3", 2, "", None, False)),
    ({**SGE, "OMPI_COMM_WORLD_RANK": "7"}, ("4711", 1, "", 7, False)),
    ({"PBS_JOBID": "4711.head.example.org"}, ("4711", 1, "", None, False)),
    ({"PBS_JOBID": "4711[3].head", "PBS_ARRAY_INDEX": "3"}, ("4711_3", 1, "", None, False)),
    ({"LSB_JOBID": "4711", "LSB_JOBINDEX": "0"}, ("4711", 1, "", None, False)),
    ({"LSB_JOBID": "4711", "LSB_JOBINDEX": "3", "PMI_RANK": "1"}, ("4711_3", 1, "", 1, False)),
    ({"FLUX_JOB_ID": "\u01922oLkTLb", "FLUX_TASK_RANK": "2"}, ("f2oLkTLb", 1, "", 2, False)),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "train-0-x7k2p"}, ("train-0-x7k2p", None, "", None, False)),
    ({**SLURM, "QCG_PM_STEP_ID": "5d" * 16}, ("5d" * 16, 1, "", None, True)),
    (
        {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "night",
         "TORCHELASTIC_RESTART_COUNT": "2"},
        ("torchrun-night", 3, "", 3, False),
    ),
    ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "prterun-n1-77@1"}, ("openmpi-prterun-n1-77_1", 1, "", 1, False)),
    ({"PALS_RANKID": "4", "PALS_APID": "a-b"}, ("pals-a-b", 1, "", 4, False)),
]  # fmt: skip


def place_of(environment: dict[str, str]) -> PlaceFields | None:
    place = launchers.find(environment)
    return (
        None
        if place is None
        else (place.job_id, place.attempt, place.step, place.task, place.apart)
    )


@pytest.mark.parametrize(("environment", "place"), CASES)
def test_place(environment: dict[str, str], place: PlaceFields) -> None:
    assert place_of(environment) == place


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"JOB_ID": "4711"},  # common variable name
        {"RANK": "1"},
        {"SLURM_JOB_ID": ""},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        {"PARALLEL_SEQ": "1", "PARALLEL_PID": "999999999"},  # from another host
        {"PARALLEL_SEQ": "1", "PARALLEL_PID": "x"},
        {"_CONDOR_JOB_AD": "/nonexistent"},
    ],
)
def test_no_place(environment: dict[str, str]) -> None:
    assert place_of(environment) is None


@pytest.mark.parametrize(
    "hostile", ["../../x", "." * 100, "a" * 1000, "a\nb", "\udc80", "/", "\u0661"]
)
def test_hostile_environments_make_an_id_or_none(hostile: str) -> None:
    for name in ("SLURM_JOB_ID", "QCG_PM_STEP_ID", "PBS_JOBID", "FLUX_JOB_ID"):
        place = launchers.find({name: hostile, "SLURM_STEP_ID": hostile, "SLURM_PROCID": hostile})
        if place is not None:
            captures.check_job_id(place.job_id)
            captures.check_job_id(f"{place.job_id}.u4294967295")
            assert "/" not in place.step


TIMES = {"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": "1700007200"}
YEAR_SECS = 365 * 86400


@pytest.mark.parametrize(
    ("environment", "limit"),
    [
        ({**SLURM, **TIMES}, 7200),
        ({**SLURM, **TIMES, "SLURM_STEP_ID": "2", "OMPI_COMM_WORLD_RANK": "1"}, 7200),
        ({"PBS_JOBID": "4711.head", "PBS_WALLTIME": "90"}, 90),
        # variables of the surrounding allocation; the inner job has no limit of its own
        ({**SLURM, **TIMES, "QCG_PM_STEP_ID": "5d"}, 0),
        ({**SLURM, **TIMES, "FLUX_JOB_ID": "f2o"}, 0),
        (TIMES, 0),  # leftovers in a shell
        ({"LSB_JOBID": "4711", "PBS_WALLTIME": "90"}, 0),
        ({**SLURM, "PBS_WALLTIME": "90"}, 0),
        # Slurm reports a year for a job without a limit
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": str(1700000000 + YEAR_SECS)}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": str(1700000000 + YEAR_SECS - 1)}, YEAR_SECS - 1),
        ({**SLURM, "SLURM_JOB_END_TIME": "1700007200"}, 0),
        ({**SLURM, "SLURM_JOB_START_TIME": "1700000000"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_START_TIME": "0"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "1700000000"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "1600000000"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "-1"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "Unknown"}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "9" * 30}, 0),
        ({**SLURM, **TIMES, "SLURM_JOB_END_TIME": "\u0661700007200"}, 0),
        ({"PBS_JOBID": "4711.head", "PBS_WALLTIME": "1:30:00"}, 0),
        ({"PBS_JOBID": "4711.head", "PBS_WALLTIME": "0"}, 0),
    ],
)
def test_time_limit(environment: dict[str, str], limit: int) -> None:
    assert launchers.limit_secs(environment, launchers.find(environment)) == limit


def test_ranks_of_one_process_are_one_job() -> None:
    """Without a name for the run (torchrun without --rdzv-id), children of one parent process form
    a job."""
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    first, second = launchers.find(environment), launchers.find({**environment, "RANK": "1"})
    assert first is not None
    assert second is not None
    assert (
        first.job_id
        == second.job_id
        == f"torchrun-{os.getppid()}-{captures.process_started(os.getppid())}"
    )
    assert (first.task, second.task) == (0, 1)


def test_condor(tmp_path: Path) -> None:
    """The job's ClassAd has its id: `.job.ad`, in the form that condor_starter writes."""
    ad = tmp_path / ".job.ad"
    ad.write_text('Args = "a = b"\nClusterId = 12\nProcId = 3\nNumJobStarts = 1\n')
    assert place_of({"_CONDOR_JOB_AD": str(ad)}) == ("12.3", 2, "", None, False)
    ad.write_bytes(b"\xff" * 1000)
    assert place_of({"_CONDOR_JOB_AD": str(ad)}) is None
    ad.unlink()
    os.mkfifo(ad)  # must not block
    assert place_of({"_CONDOR_JOB_AD": str(ad)}) is None


# ---- captured runs


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def places(home: Home) -> list[tuple[str, int, str, int]]:
    identities = [json.loads((path / "identity.json").read_bytes()) for path in home.captures()]
    return sorted(
        (identity["job_id"], identity["attempt"], identity["step"], identity["task"])
        for identity in identities
    )


def sh(home: Home, script: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    done = subprocess.run(
        ["bash", "-c", script], env={**home.environment, **environment}, cwd=home.folder, capture_output=True,
        stdin=subprocess.DEVNULL, timeout=scaled(60),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def test_ranks(home: Home) -> None:
    """Each rank has a stream in one job and attempt. A failed rank determines the end of the
    job."""
    rank = "RANK=$r LOCAL_RANK=$r WORLD_SIZE=3 TORCHELASTIC_RUN_ID=night"
    sh(
        home,
        f"for r in 0 1 2; do env {rank} {RUN} sh -c 'echo of rank $RANK; exit $RANK' & done; wait",
    )
    job = "torchrun-night"
    assert places(home) == [(job, 1, "", rank) for rank in range(3)]
    for number in range(3):
        assert home.logs(job, "--task", str(number)) == [f"of rank {number}"]
    assert home.show(job)["state"] == "FAILED"
    sh(
        home,
        f"env {rank.replace('$r', '1')} TORCHELASTIC_RESTART_COUNT=1 {RUN} true; exit 0",
        r="1",
    )
    assert home.show(job)["attempts"] == 2


@pytest.mark.parametrize("user", ["x" * 100_000, b"\xff/../\n"])
def test_a_name_of_any_bytes_is_read(home: Home, user: str | bytes) -> None:
    """Names of the program and of the user: old homes contain names that aren't UTF-8."""
    program = os.fsencode(home.folder) + b"/caf\xe9"
    with open(program, "wb") as file:
        file.write(b"#!/bin/sh\necho ran\n")
    os.chmod(program, 0o700)
    environment = {**home.environment, "LOGNAME": os.fsdecode(user)}
    subprocess.run(
        [sys.executable, "-m", "logshipper", "run", "--", program],
        env=environment,
        check=True,
        timeout=scaled(60),
    )
    assert home.logs() == ["ran"]
    assert home.show()["name"] == "caf?"


def test_an_id_of_the_users_own_for_ranks(home: Home) -> None:
    """The ranks form one job with one attempt. Without ranks, reuse of an id starts the next
    attempt."""
    run = RUN.replace("run --", "run --job-id mine --")
    sh(home, f"for r in 0 1; do env OMPI_COMM_WORLD_RANK=$r {run} echo rank $r; done")
    assert places(home) == [("mine", 1, "", 0), ("mine", 1, "", 1)]


def test_several_runs_in_one_job(home: Home) -> None:
    sh(
        home,
        f"{RUN} echo one; {RUN} echo two; {RUN.replace('run --', 'run --job-id own --')} echo three",
        **SGE,
    )
    assert places(home) == [("4711", 1, "", 0), ("4711", 1, "run2", 0), ("own", 1, "", 0)]
    assert home.logs("4711") == ["one", "two"]


def test_what_comes_after_a_job_was_removed_is_kept(home: Home) -> None:
    """A scheduler's job keeps its id after its logs are removed: later output is the next
    attempt."""
    sh(home, f"{RUN} echo one; {RUN} echo two", **SGE)
    assert home.call("rm", "4711", "--yes").returncode == 0
    sh(home, f"{RUN} echo three", **SGE)
    assert home.logs("4711") == ["three"]
    assert [capture["attempt"] for capture in home.show("4711")["captures"]] == [2]


needs_parallel = pytest.mark.skipif(
    shutil.which("parallel") is None, reason="GNU parallel isn't installed"
)


@needs_parallel
def test_parallel(home: Home) -> None:
    """Each task is a job of its own, and a retry is the same job's next attempt."""
    count = home.folder / "tries"
    task = home.folder / "task"
    task.write_text(f"echo x >> {count}; echo $1; test $1 != b || test $(wc -l < {count}) -gt 2")
    done = sh(home, f"parallel --will-cite -j1 --retries 2 {RUN} sh {task} ::: a b c")
    assert sorted(done.stdout.split()) == [b"a", b"b", b"c"]
    tasks = places(home)
    assert len({job for job, *_ in tasks}) == 3
    assert sorted((job.rpartition(".")[2], attempt) for job, attempt, *_ in tasks) == [
        ("1", 1), ("2", 1), ("2", 2), ("3", 1)
    ]  # fmt: skip
    assert all(job.startswith("parallel-") for job, *_ in tasks)


@needs_parallel
@pytest.mark.parametrize("grouping", ["", "--ungroup", "--line-buffer"])
def test_parallel_in_a_run_is_logged_once(home: Home, grouping: str) -> None:
    script = f"parallel --will-cite {grouping} \"{RUN} sh -c 'echo {{}}; echo err >&2'\" ::: a b c"
    sh(home, f"{RUN} bash -c '{script.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'")
    (capture,) = places(home)
    assert "parallel" not in capture[0]
    assert sorted(home.logs("last", "--stream", "stdout")) == ["a", "b", "c"]


def test_make(home: Home) -> None:
    """`make -j`: one job for each wrapped recipe. Inside a run they belong to it, also with
    --output-sync."""
    rules = "".join(f"{name}:\n\t@{RUN} sh -c 'echo {name}; exit 0'\n" for name in "abc")
    (home.folder / "Makefile").write_text(f"all: a b c\n{rules}")
    sh(home, "make -s -j3")
    assert len({job for job, *_ in places(home)}) == 3
    for option in ("--output-sync", "--no-print-directory"):
        home.environment["LOGSHIPPER_STORE"] = str(home.folder / f"store{option}")
        sh(home, f"{RUN} make -s -j3 {option}")
        assert sorted(home.logs()) == ["a", "b", "c"]
        # a heading, and one job
        assert len(home.call("ls", "--columns", "id").stdout.splitlines()) == 2


# ---- runs inside of runs


def test_run_inside_run(home: Home) -> None:
    """The log has the output once, with the exit code."""
    script = f"{RUN} sh -c 'echo out; echo err >&2; exit 3'; echo code $?"
    assert sh(home, f"{RUN} sh -c '{script.replace(chr(39), chr(34))}'").stdout == b"out\ncode 3\n"
    assert len(home.captures()) == 1
    assert sorted(home.logs()) == ["code 3", "err", "out"]


@pytest.mark.parametrize("outer", ["run --", "run --no-tty --"])
def test_what_the_outer_run_does_not_see(home: Home, outer: str) -> None:
    """Standard output into a file or pipe belongs to the inner run. Standard error belongs to the
    outer run, and appears once."""
    inner = f'{RUN} sh -c "echo out; echo err >&2" > file'
    sh(home, f"{RUN.replace('run --', outer)} sh -c '{inner}; {RUN} echo piped | cat > other'")
    assert (home.folder / "file").read_text() == "out\n"
    assert (home.folder / "other").read_text() == "piped\n"
    logs = sorted(tuple(home.logs(job)) for job, *_ in places(home))
    assert logs == [("err",), ("out",), ("piped",)]


def test_ranks_in_a_run_write_into_pipes_of_their_launcher(home: Home) -> None:
    """srun and mpirun print the output of ranks, so it belongs to the outer run."""
    rank = f"OMPI_COMM_WORLD_RANK=1 {RUN} echo of rank 1 2>&1 | cat"
    sh(home, f"{RUN} bash -c '{rank}'")
    assert len(home.captures()) == 1
    assert home.logs() == ["of rank 1"]


def test_per_task_captures_inner_runs_too(home: Home) -> None:
    home.opt_in(b"per_task: true\n")
    sh(home, f"{RUN} sh -c '{RUN} echo out'")
    assert len(home.captures()) == 2


def test_who_names_a_job_wants_it(home: Home) -> None:
    sh(home, f"{RUN} sh -c '{RUN.replace('run --', 'run --job-id mine --')} echo out'")
    assert home.logs("mine") == ["out"]


def test_what_outlives_a_run_is_in_it_no_more(home: Home) -> None:
    """A tmux server passes on the environment of a run that has ended. By then other terminals may
    have its terminals' numbers."""
    relay = captures.process_started(os.getpid())
    master, slave = os.openpty()
    try:
        mark = nesting.mark([slave])
        assert mark.startswith(f"{os.getpid()}.{relay}@")
        of_another = mark.replace(f"{os.getpid()}.{relay}@", f"{os.getpid()}.{relay + 1}@")
        elsewhere = of_another.replace("@", "@another-boot")
        for value, number in (
            (mark, 0),
            (elsewhere, 0),
            (mark.partition(" ")[2], 0),
            (of_another, 1),
        ):
            command = [sys.executable, "-m", "logshipper", "run", "--", "true"]
            environment = {**home.environment, nesting.VARIABLE: value}
            subprocess.run(
                command,
                env=environment,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                check=True,
                timeout=scaled(60),
            )
            assert len(home.captures()) == number, value
    finally:
        os.close(master)
        os.close(slave)


# ---- hooks fail open


def test_a_fault_of_ours_in_a_hook_runs_the_command(home: Home) -> None:
    """`--if-opted-in` is for wrappers: the job runs despite any fault of logshipper."""
    home.opt_in()
    broken = home.folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import logshipper.start.launchers as l\nl.find = lambda _: 1 / 0\n"
    )
    path = f"{broken}:{SOURCES}"
    done = home.run(
        "sh", "-c", "echo out; exit 7", options=["--if-opted-in"], env={"PYTHONPATH": path}
    )
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert (
        done.stderr
        == b"logshipper: nothing of this run is logged: ZeroDivisionError: division by zero\n"
    )


def test_tmux(home: Home) -> None:
    """In a detached session, the window's run goes on and is captured after its starter has
    ended."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux isn't installed")
    server = ["tmux", "-L", "logshipper", "-f", "/dev/null"]
    environment = {
        **home.environment,
        "TMUX_TMPDIR": str(home.folder),
        "TERM": "xterm",
        "SHELL": "/bin/sh",
    }
    command = (
        f"{RUN.replace('run --', 'run --job-id mine --')} sh -c 'tty; "
        f"echo out; exit 5'; echo $? > {home.folder}/code"
    )
    subprocess.run(
        [*server, "new-session", "-d", command], env=environment, check=True, timeout=scaled(60)
    )
    code = home.folder / "code"
    wait_until(lambda: code.exists() and code.read_text(), "the window's command ends")
    assert code.read_text() == "5\n"
    assert home.logs("mine")[1] == "out"
    assert home.show("mine")["exit_code"] == 5


# ---- ssh


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield `ssh ... HOST` for a real sshd on loopback, with its own keys, as this user."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("openssh-server or openssh-client isn't installed")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
    )
    if os.getuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    options = [
        f"-oIdentityFile={folder}/user",
        "-oStrictHostKeyChecking=no",
        "-oBatchMode=yes",
        "-oIdentitiesOnly=yes",
    ]
    client = [
        "ssh",
        "-F",
        "none",
        "-q",
        f"-p{port}",
        *options,
        f"-oUserKnownHostsFile={folder}/known",
        "127.0.0.1",
    ]
    log = folder / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [sshd, "-D", "-e", "-f", str(config)], stdin=subprocess.DEVNULL, stderr=file
        )
    try:
        wait_until(
            lambda: "Server listening" in log.read_text() or server.poll() is not None,
            "sshd listens",
        )
        probe = subprocess.run([*client, "true"], stdin=subprocess.DEVNULL, timeout=scaled(60))
        if probe.returncode:
            pytest.skip(f"sshd lets nobody in here: {log.read_text()}")
        yield client
    finally:
        server.terminate()
        server.wait()


def over_ssh(home: Home, words: str) -> str:
    names = ("HOME", "LOGSHIPPER_STORE", "LOGSHIPPER_AGENT", "PYTHONPATH")
    return " ".join(f"{name}={home.environment[name]}" for name in names) + f" {words}"


def test_ssh(home: Home, ssh: list[str]) -> None:
    """The same as without ssh: both streams, stdin, exit code."""
    command = over_ssh(home, f"{RUN} sh -c 'cat; echo err >&2; exit 9'")
    done = subprocess.run([*ssh, command], input=b"in\n", capture_output=True, timeout=scaled(60))
    assert (done.returncode, done.stdout, done.stderr) == (9, b"in\n", b"err\n")
    assert sorted(home.logs()) == ["err", "in"]
    assert home.show()["exit_code"] == 9


@pytest.mark.parametrize("option", ["-T", "-tt"])
def test_ssh_that_breaks_off(option: str, home: Home, ssh: list[str]) -> None:
    """The log has the printed output and the end of the job. On ssh's terminal the job ends by
    SIGHUP, without one at its next output."""
    script = "echo begun; while sleep 0.2; do echo more; done"
    command = over_ssh(home, f"{RUN} sh -c '{script}'")
    client = [*ssh[:1], option, *ssh[1:]]
    with subprocess.Popen(
        [*client, command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"begun"
        process.kill()
    home.await_known()
    wait_until(lambda: home.show()["state"] != "RUNNING", "the job ends")
    job = home.show()
    assert (job["exit_code"], job["signal"]) == (None, 1 if option == "-tt" else 13)
    assert home.logs()[0] == "begun"


# ---- hooks


def test_grid_engines_signals_arrive_once(home: Home) -> None:
    """The shepherd signals the whole process group, so CMD already has the signal, and logshipper
    forwards nothing."""
    script = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('told', flush=True))\n"
    script += (
        "signal.signal(signal.SIGUSR2, lambda *_: exit(5))\nprint('ready', "
        "flush=True)\nwhile True: signal.pause()"
    )
    shepherd = "import os, sys\nopen('/proc/self/comm', 'w').write('sge_shepherd')\nos.kill(int(sys.argv[1]), 10)"
    with home.start("run", "--", sys.executable, "-c", script, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        subprocess.run(
            [sys.executable, "-c", shepherd, str(process.pid)], check=True, timeout=scaled(60)
        )
        # only to the relay, so it arrives after all forwarded signals
        process.send_signal(signal.SIGUSR2)
        assert process.stdout.read() == b""
        assert process.wait(60) == 5


HOOKS = ROOT / "deploy" / "launchers"


@pytest.mark.parametrize("opted_in", [False, True])
def test_condor_job_wrapper(opted_in: bool, home: Home) -> None:
    """The call has the form of condor_starter's, with the job's ClassAd next to the job. Debian has
    no HTCondor for a real test."""
    if opted_in:
        home.opt_in()
    (home.folder / ".job.ad").write_text("ClusterId = 12\nProcId = 3\n")
    program = home.folder / "logshipper"
    program.write_text(
        f'#!/bin/sh\ntouch {home.folder}/began\nexec {sys.executable} -m logshipper "$@"\n'
    )
    program.chmod(0o755)
    environment = {
        **home.environment,
        "_CONDOR_JOB_AD": str(home.folder / ".job.ad"),
        "LOGSHIPPER": str(program),
    }
    command = [
        str(HOOKS / "condor-job-wrapper"),
        "sh",
        "-c",
        'echo "$1"; echo ${LOGSHIPPER-none}; exit 4',
        "sh",
        "a  b",
    ]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=scaled(60)
    )
    assert (done.returncode, done.stdout, done.stderr) == (4, b"a  b\nnone\n", b"")
    assert places(home) == ([("12.3", 1, "", 0)] if opted_in else [])
    assert (home.folder / "began").exists() == opted_in  # no Python starts without opt-in


@pytest.mark.parametrize("program", ["/no/such/program", "/bin/false"])
def test_capture_job_without_logshipper(program: str, home: Home) -> None:
    """The command runs with its own words, even if one of them is `--`."""
    home.opt_in()
    for options in ([], ["--if-opted-in"], ["--name", "x"]):
        done = subprocess.run(
            [str(HOOKS / "capture-job"), *options, "--", "printf", "%s|", "a  b", "--", "c"],
            env={**home.environment, "LOGSHIPPER": program},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=scaled(60),
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"a  b|--|c|", b"")
