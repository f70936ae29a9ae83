"""`context: true` in ~/.logoptin: logshipper records the start of a job only then, and `diff` shows
it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logshipper.sidecar import context
from logshipper.spool import captures
from logshipper.spool.segment import MAX_RECORD_BYTES
from tests.tools.captures.captured_runs import Home

COUNT = "import sys; print(len(sys.argv))"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit and an uncommitted change."""
    folder = tmp_path / "work"
    folder.mkdir()
    commit = ("-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "first")
    (folder / "train.py").write_text("lr = 0.1\n")
    for words in (("init", "-q", "-b", "main"), ("add", "."), commit):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "train.py").write_text("lr = 0.2\n")
    return folder


def context_of(home: Home) -> dict[str, Any]:  # Any: JSON
    (event,) = [event for event in home.show()["events"] if event["event"] == "context"]
    details: dict[str, Any] = event["details"]
    return details


def test_command_environment_and_git_are_recorded(home: Home, repository: Path) -> None:
    home.opt_in(b"context: true\n")
    home.environment |= {
        "OMP_NUM_THREADS": "7",
        "SLURM_JOB_QOS": "normal",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
    }
    argv = [sys.executable, "-c", COUNT, "--lr", "0.1", "--api-key", "hunter2", "--hub-token=hunter2",
            "https://ann:hunter2@example.org/x"]  # fmt: skip
    assert home.run(*argv, cwd=repository).stdout.strip() == b"7"
    context = context_of(home)
    assert context["command"] == [*argv[:6], "***", "--hub-token=***", "https://***@example.org/x"]
    assert context["cwd"] == str(repository)
    assert context["cores"] == sorted(os.sched_getaffinity(0))
    assert context["environment"]["OMP_NUM_THREADS"] == "7"
    assert context["scheduler"] == {"SLURM_JOB_QOS": "normal"}
    assert (context["git"]["branch"], context["git"]["dirty"]) == ("main", True)
    assert "-lr = 0.1\n+lr = 0.2\n" in context["git"]["diff"]
    assert context["git"]["diff_bytes"] == len(context["git"]["diff"].encode())
    assert b"hunter2" not in home.stored_bytes()


def test_what_is_called_like_a_secret_is_recorded_nowhere(home: Home, repository: Path) -> None:
    """The secrets are in the command line, the environment, the folder's name, git's diff and
    branch."""
    home.opt_in(b"context: true\n")
    folder = repository / "api_key=hunter2"
    folder.mkdir()
    (repository / "train.py").write_text(
        "DB_PASSWORD = 'hunter2'\nurl = 'https://ann:hunter2@example.org'\nlr = 1\n"
    )
    subprocess.run(["git", "checkout", "-q", "-b", "token=hunter2"], cwd=repository, check=True)
    home.environment |= {
        "MASTER_ADDR": "tcp://ann:hunter2@node1",
        "LOADEDMODULES": "a:--dbpassword hunter2",
    }
    argv = ["env", "PGPASSWORD=hunter2", "true", "--dbpassword", "hunter2", "--apiToken=hunter2", "--password",
            "-hunter2", "--lr", "0.1", "x; API_KEY=hunter2 y"]  # fmt: skip
    home.run(*argv, cwd=folder)
    context = context_of(home)
    assert context["command"] == ["env", "PGPASSWORD=***", "true", "--dbpassword", "***", "--apiToken=***",
                                  "--password", "***", "--lr", "0.1", "x; API_KEY=***"]  # fmt: skip
    assert context["cwd"] == f"{repository}/api_key=***"
    assert context["environment"]["MASTER_ADDR"] == "tcp://***@node1"
    assert context["git"]["branch"] == "token=***"
    assert (
        "+DB_PASSWORD = ***\n+url = 'https://***@example.org'\n+lr = 1\n" in context["git"]["diff"]
    )
    assert b"hunter2" not in home.stored_bytes()


def test_a_command_that_is_an_assignment_names_no_job(home: Home) -> None:
    home.opt_in()
    assert home.run("PGPASSWORD=a/hunter2", "psql").returncode == 127
    assert captures.default_name(["PGPASSWORD=a/hunter2", "psql"]) == "PGPASSWORD=***"
    assert captures.default_name(["/opt/a=b/run", "x"]) == "run"
    assert b"hunter2" not in home.stored_bytes()


def test_half_a_line_of_a_diff_is_left_out(repository: Path) -> None:
    """Half of an address has no end of its password yet."""
    text = f"{'x' * (context.MAX_DIFF_BYTES - 1500)}\nu = 'https://ann:{'hunter2' * 400}@example.org'\n"
    (repository / "train.py").write_text(text)
    diff = context.git_state(str(repository))["diff"]
    assert diff.endswith("\n")
    assert "hunter" not in diff


def test_without_the_option_nothing_of_it_is(home: Home, repository: Path) -> None:
    home.opt_in()
    home.run("true", "--word-of-mine", cwd=repository)
    assert home.events() == []
    assert b"word-of-mine" not in home.stored_bytes()


def test_begun_disabled_nothing_of_before_is_told(home: Home, repository: Path) -> None:
    home.opt_in(b"context: true\nmode: disabled\n")
    script = """echo '/LOGCOMMAND {"mode":"enabled"}'; echo now"""
    home.run("sh", "-c", script, "word-of-mine", cwd=repository)
    assert home.logs()[-1] == "now"
    assert "context" not in home.events()
    assert b"word-of-mine" not in home.stored_bytes()


def test_diff_shows_what_differs(home: Home, repository: Path) -> None:
    home.opt_in(b"context: on\n")
    for lr in ("0.1", "0.2"):
        home.run("true", "--lr", lr, cwd=repository, options=("--job-id", f"lr{lr[-1]}"))
        (repository / "train.py").write_text("lr = 0.3\nmore = 1\n")
    table = home.call("diff", "lr1", "lr2", "--changed").stdout.decode()
    rows = {row.split()[1]: row for row in table.splitlines()[1:]}
    assert {"command", "git.diff"} <= rows.keys()
    assert not {"git.commit", "cwd", "git.branch"} & rows.keys()
    assert rows["command"].split() == ["!", "command", "true", "--lr", "0.1", "true", "--lr", "0.2"]
    assert "7 lines, sha256 " in rows["git.diff"]
    document = json.loads(home.call("diff", "lr1", "lr2", "--json").stdout)
    (diff,) = [option for option in document["options"] if option["option"] == "git.diff"]
    assert diff["differs"]
    assert "+lr = 0.3\n+more = 1\n" in diff["b"]


def test_a_git_that_hangs_holds_up_neither_job_nor_log(home: Home, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "bin" / "git").chmod(0o755)
    home.environment["PATH"] = f"{tmp_path / 'bin'}:{home.environment['PATH']}"
    home.opt_in(b"context: true\n")
    assert home.run("echo", "done").stdout.split() == [b"done"]
    assert context_of(home)["git"] == {"reason": "git took longer than 2 s"}
    job = home.show()
    (event,) = [event for event in job["events"] if event["event"] == "context"]
    assert job["ended_ns"] < event["time_ns"], "the job's end is its own, not git's"


def test_no_repository_and_no_git(home: Home, tmp_path: Path) -> None:
    home.opt_in(b"context: true\n")
    home.environment["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    home.run("true", cwd=tmp_path)
    assert context_of(home)["git"] == {}
    home.environment["PATH"] = str(tmp_path)
    home.run("/bin/true", cwd=tmp_path)
    assert context_of(home)["git"] == {"reason": "there is no git here"}


def test_giant_command_and_diff_are_cut(repository: Path) -> None:
    (repository / "train.py").write_text("ä\n" * 100_000)
    argv = ["python", *(["x" * 100] * 1000), "\udcff"]
    event = context.gather(context.JobStart(argv, str(repository)), {"LANG": "x" * 5000})
    assert len(json.dumps(event).encode()) < MAX_RECORD_BYTES
    assert event["command"][-1] == "..."
    assert len(event["environment"]["LANG"]) == context.MAX_VALUE_CHARS
    assert event["git"]["diff_bytes"] > 200_000
    assert 0 < len(event["git"]["diff"]) < context.MAX_DIFF_BYTES


def test_another_process_is_asked_where_nobody_else_knows(repository: Path) -> None:
    """Under Slurm, for example, the sidecar isn't the job's child."""
    environment = {**os.environ, "SLURM_NTASKS": "3"}
    with subprocess.Popen(["sleep", "60"], cwd=repository, env=environment) as process:
        event = context.gather(context.JobStart(None, None, process.pid), {})
        process.kill()
    assert (event["command"], event["cwd"]) == (["sleep", "60"], str(repository))
    assert event["scheduler"]["SLURM_NTASKS"] == "3"
    assert event["git"]["dirty"]


def test_what_cannot_be_gathered_is_said() -> None:
    gathering = context.Gathering(context.JobStart(None, None, 2**22 + 1))  # no process has this id
    try:
        assert gathering.wait() == context.MISSING
    finally:
        gathering.close()
