"""Hooks and entrypoints change only the job's output. The environment is the launcher's, and the
job runs despite any fault of theirs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.captures.captured_runs import Home
from tests.tools.sources import ROOT, SOURCES
from tests.tools.waiting import scaled

HOOKS = ROOT / "deploy" / "launchers"
# names that scripts like to use, names that a shell can't have, an exported function of bash,
# quotes and line feeds
GIVEN = {
    **dict.fromkeys(
        ("capture", "command", "direct", "here", "home", "logshipper", "mode", "name"),
        "the job's own",
    ),
    "BASH_FUNC_module%%": '() {  echo "it\'s"\n}',
    "a.b": "1\n'2'\n",
    "my-var": '$(exit 1) `x` \\ "',
    "2nd": "",
}
PRINT = [
    sys.executable,
    "-c",
    "import os, sys; sys.stdout.buffer.write(open('/proc/self/environ', 'rb').read())",
]
SGE = {
    "SGE_STARTER_SHELL_PATH": "/bin/sh",
    "SGE_STARTER_SHELL_START_MODE": "unix_behavior",
    "JOB_ID": "7",
    "JOB_SCRIPT": "/x/job_scripts/7",
    "JOB_NAME": "-odd name",
}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    program = tmp_path / "logshipper"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom logshipper.__main__ import main\nsys.exit(main())\n"
    )
    program.chmod(0o755)
    home.environment["LOGSHIPPER"] = str(program)
    bash_env = tmp_path / "bash_env"
    bash_env.write_text("echo read >&2\n")
    home.environment["BASH_ENV"] = str(bash_env)
    return home


def call(home: Home, *command: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        command, env={**home.environment, **GIVEN, **environment}, cwd=home.folder, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=scaled(60),
    )  # fmt: skip


def environment_of(output: bytes) -> dict[str, str]:
    entries = output.decode().rstrip("\0").split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


@pytest.mark.parametrize("opted_in", [False, True])
@pytest.mark.parametrize("hook", ["capture-job", "condor-job-wrapper", "sge-starter-method"])
def test_the_jobs_environment_is_what_its_launcher_gave_it(
    hook: str, opted_in: bool, home: Home
) -> None:
    if opted_in:
        home.opt_in()
    options = ["--if-opted-in", "--"] if hook == "capture-job" else []
    variables = SGE if hook == "sge-starter-method" else {}
    for name in ("PWD", "OLDPWD"):
        home.environment.pop(name, None)
    done = call(home, str(HOOKS / hook), *options, *PRINT, **variables)
    assert (done.returncode, done.stderr) == (0, b"")
    environment = {**home.environment, **GIVEN, **variables}
    # Grid Engine removes its own variables too; a shell always sets the last three
    removals = {"LOGSHIPPER", "SGE_STARTER_SHELL_PATH", "SGE_STARTER_SHELL_START_MODE"}
    loose = {*removals, "PWD", "SHLVL", "_"}
    job_environment = environment_of(done.stdout)
    assert not removals & job_environment.keys()
    additions = {"LOGSHIPPER_CAPTURED", "LOGSHIPPER_JOB_ID"}
    assert (
        job_environment.keys() >= additions if opted_in else not job_environment.keys() & additions
    )
    differs = {
        name
        for name in environment.keys() | job_environment.keys()
        if environment.get(name) != job_environment.get(name)
    }
    assert differs <= loose | additions
    assert len(home.captures()) == opted_in


def test_a_command_whose_name_looks_like_a_variable(home: Home) -> None:
    """`env` restores variables that sh has removed, and could mistake the command for one."""
    program = home.folder / "lr=0.1"
    program.write_text("#!/bin/sh\necho ran $1; exit 6\n")
    program.chmod(0o755)
    done = call(home, str(HOOKS / "capture-job"), "--if-opted-in", "--", str(program), "a  b")
    assert (done.returncode, done.stdout, done.stderr) == (6, b"ran a b\n", b"")


@pytest.mark.parametrize("fault", ["capture-job", "right to execute it"])
@pytest.mark.parametrize("hook", ["condor-job-wrapper", "sge-starter-method"])
def test_a_hook_whose_other_part_is_missing(hook: str, fault: str, home: Home) -> None:
    home.opt_in()
    folder = home.folder / "hooks"
    folder.mkdir()
    shutil.copy(HOOKS / hook, folder)
    if fault != "capture-job":
        shutil.copy(HOOKS / "capture-job", folder)
        (folder / "capture-job").chmod(0o644)
    done = call(home, str(folder / hook), "sh", "-c", "echo ran; exit 6", **SGE)
    assert (done.returncode, done.stdout, done.stderr) == (6, b"ran\n", b"")


@pytest.mark.parametrize(
    "option", [["--mode", "bogus"], ["--name"], ["--nothing"], ["--job-id", "a/b"]]
)
def test_a_mistake_in_a_hook_costs_no_job(option: list[str], home: Home) -> None:
    """A message reports it and the command runs; by hand it is an error."""
    home.opt_in()
    done = home.run("sh", "-c", "exit 6", options=["--if-opted-in", *option])
    assert done.returncode == 6
    assert option[0] in done.stderr.decode()
    assert home.run("true", options=option).returncode == 125


def test_a_fault_of_ours_costs_no_job_by_hand_either(home: Home) -> None:
    broken = home.folder / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import logshipper.spool.captures as s\ns.create_capture = lambda *_: 1 / 0\n"
    )
    done = home.run("sh", "-c", "echo out; exit 7", env={"PYTHONPATH": f"{broken}:{SOURCES}"})
    assert (done.returncode, done.stdout) == (7, b"out\n")
    assert (
        done.stderr
        == b"logshipper: nothing of this run is logged: ZeroDivisionError: division by zero\n"
    )


@pytest.mark.parametrize(
    ("options", "opted_in", "store"),
    [
        ([], b"", "/dev/null"),
        ([], b"mode: bogus\n", ""),
        (["--if-opted-in", "--mode", "bogus"], b"", ""),
        (["--if-opted-in", "--job-id", "a/b"], b"", ""),
    ],
)
@pytest.mark.parametrize("stderr", ["full", "closed", "without a reader"])
def test_words_that_nobody_gets_cost_no_job(
    stderr: str, options: list[str], opted_in: bytes, store: str, home: Home
) -> None:
    """The job's stderr is on a full disk, closed, or without a reader. The store may have no
    room."""
    home.opt_in(opted_in)
    del home.environment["BASH_ENV"]
    run = [
        sys.executable,
        "-m",
        "logshipper",
        "run",
        *options,
        "--",
        "sh",
        "-c",
        "echo ran; exit 6",
    ]
    read, write = os.pipe()
    os.close(read)
    try:
        shell = [
            "bash",
            "-c",
            'exec "$@"' + {"full": " 2>/dev/full", "closed": " 2>&-"}.get(stderr, ""),
            "bash",
        ]
        done = subprocess.run(
            [*shell, *run], env={**home.environment, "LOGSHIPPER_STORE": store or str(home.store)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=write, timeout=scaled(60),
        )  # fmt: skip
    finally:
        os.close(write)
    assert (done.returncode, done.stdout) == (6, b"ran\n")


@pytest.mark.parametrize("options", [[], ["--if-opted-in"]])
@pytest.mark.parametrize(
    "locale", [{}, {"LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}]
)
def test_a_locale_of_pythons_own_stays_python_s(
    options: list[str], locale: dict[str, str], home: Home
) -> None:
    """Python sets LC_CTYPE in the C locale; CMD gets the caller's value."""
    for name in [name for name in home.environment if name.startswith(("LC_", "LANG"))]:
        del home.environment[name]
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))
    }
    command = [sys.executable, "-m", "logshipper", "run", *options, "--", "env"]
    done = subprocess.run(
        command,
        env={**clean, **home.environment, **locale},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=scaled(60),
    )
    lines = {line for line in done.stdout.decode().splitlines() if line.startswith(("LC_", "LANG"))}
    assert lines == {f"{name}={value}" for name, value in locale.items()}
