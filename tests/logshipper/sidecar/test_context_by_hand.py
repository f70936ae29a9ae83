"""Context of a run by hand: recorded by default in mode `enabled`, unless the user's file or
`--no-context` disables it. Nothing waits for it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from logshipper.sidecar import context
from logshipper.sidecar.command_python import python_of
from tests.tools.captures.captured_runs import Home, wait_until
from tests.tools.waiting import scaled

SLURM = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.environment["LOGSHIPPER_CONTEXT"] = "on"
    return home


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one commit on the branch `lr/warm`, and an uncommitted change."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("lr = 0.1\n")
    git(folder, "init", "-q", "-b", "lr/warm")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "train.py").write_text("password = 'hunter2'\n")
    return folder


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    command = ["git", *names, *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def contexts(home: Home) -> list[dict[str, Any]]:  # Any: JSON
    events = home.show()["events"]
    return [event["details"] for event in events if event["event"] == "context"]


def test_command_folder_commit_and_python_are_recorded(home: Home, repository: Path) -> None:
    # the program reads a line, so git has answered before its end
    script = "import sys; input(); print('done')"
    command = [sys.executable, "-c", script, "--lr", "0.1", "--api-key", "hunter2"]
    read, write = os.pipe()
    with home.start("run", "--", *command, cwd=repository, stdin=read) as process:
        home_shows_context(home)
        os.write(write, b"\n")
        assert process.wait() == 0
    os.close(read)
    os.close(write)
    (event,) = contexts(home)
    assert event["command"] == [*command[:-1], "***"]
    assert event["cwd"] == str(repository)
    commit = git(repository, "rev-parse", "HEAD").strip()
    assert event["git"] == {"commit": commit, "branch": "lr/warm", "dirty": True}
    version = ".".join(map(str, sys.version_info[:2]))
    assert event["python"]["prefix"] == sys.prefix
    assert event["python"]["version"].startswith(version)
    assert not {"environment", "scheduler", "cores"} & event.keys()
    assert b"hunter2" not in home.stored_bytes()


def home_shows_context(home: Home) -> None:
    def is_there() -> bool:
        result = home.call("show", "last", "--json")
        return result.returncode == 0 and b'"dirty"' in result.stdout

    wait_until(is_there, "git's answer")


def test_nobody_waits_for_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts from files are available before git has answered."""
    commit = git(repository, "rev-parse", "HEAD").strip()
    hold = tmp_path / "hold"
    hold.touch()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "git"
    program.write_text(f"#!/bin/sh\nwhile [ -e {hold} ]; do sleep 0.1; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    for name in ("GATHER_SECS", "_GIT_SECS", "BRIEF_SECS"):
        monkeypatch.setattr(context, name, scaled(60.0))
    start = context.JobStart(["train", "--pan=1"], str(repository), by_default=True)
    gathering = context.Gathering(start)
    try:
        event = gathering.wait()
        assert gathering.take() is None, "git hasn't answered"
    finally:
        hold.unlink()
        gathering.close()
    assert event["command"] == ["train", "--pan=1"]
    assert event["git"] == {"commit": commit, "branch": "lr/warm"}


def test_of_what_nobody_could_look_at_the_command_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "BRIEF_SECS", 0.0)
    gathering = context.Gathering(context.JobStart(["train"], "/", by_default=True))
    try:
        assert gathering.wait()["command"] == ["train"]
    finally:
        gathering.close()


@pytest.mark.parametrize(
    ("options", "logoptin", "environment"),
    [
        (("--no-context",), None, {}),
        ((), b"context: false\n", {}),
        ((), None, {"LOGSHIPPER_CONTEXT": "off"}),
        (("--mode", "metadata"), None, {}),
        (("--mode", "disabled"), None, {}),
        ((), b"mode: metadata\n", {}),
        (("--if-opted-in",), b"", {}),
        ((), None, SLURM),
        ((), b"colour: x\n", {}),
    ],
    ids=str,
)
def test_where_it_is_not_recorded(
    home: Home,
    tmp_path: Path,
    options: tuple[str, ...],
    logoptin: bytes | None,
    environment: dict[str, str],
) -> None:
    if logoptin is not None:
        home.opt_in(logoptin)
    home.environment |= environment
    home.run("true", "--word-of-mine", options=options, cwd=tmp_path)
    assert "context" not in home.events()
    assert b"word-of-mine" not in home.stored_bytes()


@pytest.mark.parametrize(
    ("options", "logoptin"),
    [((), b""), ((), b"snapshots: 30s\n"), (("--mode", "enabled"), b"mode: metadata\n")],
    ids=str,
)
def test_where_it_is_recorded(
    home: Home, tmp_path: Path, options: tuple[str, ...], logoptin: bytes
) -> None:
    home.opt_in(logoptin)
    home.run("true", "--word-of-mine", options=options, cwd=tmp_path)
    (event,) = contexts(home)
    assert event["command"] == ["true", "--word-of-mine"]


# ---- pure parts


def test_the_commit_is_read_without_git(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD").strip()
    (repository / "deep").mkdir()
    on_branch = {"commit": commit, "branch": "lr/warm"}
    assert context.git_head(str(repository / "deep")) == on_branch
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "lr" / "warm").exists()
    assert context.git_head(str(repository)) == on_branch
    git(repository, "worktree", "add", "-q", "-b", "other", str(repository.parent / "tree"))
    in_worktree = context.git_head(str(repository.parent / "tree"))
    assert in_worktree == {"commit": commit, "branch": "other"}
    git(repository, "checkout", "-q", "--detach", "-f")
    assert context.git_head(str(repository)) == {"commit": commit, "branch": "HEAD"}
    assert context.git_head("/") == {}


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    assert context.git_head(str(tmp_path)) == {"branch": "main"}


def test_the_python_of_a_command(tmp_path: Path) -> None:
    bin_folder = tmp_path / "env" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(sys.executable)
    (tmp_path / "env" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\n")
    for name, line in (
        ("torchrun", f"#!{bin_folder}/python -u"),
        ("tool", "#!/usr/bin/env python"),
        ("script", "#!/bin/sh"),
        ("python3", "#!/usr/bin/env bash"),  # a shim
    ):
        (bin_folder / name).write_text(f"{line}\n")
        (bin_folder / name).chmod(0o755)
    expected = {"prefix": str(tmp_path / "env"), "version": "3.12.4"}
    for argv in (["python", "x.py"], ["torchrun", "x.py"], ["tool"], ["env/bin/python"]):
        assert python_of(argv, str(tmp_path), f"/nowhere:{bin_folder}") == expected
    for argv in (["script"], ["python3", "x.py"], ["nothing"], [], ["/bin/sh"]):
        assert python_of(argv, str(tmp_path), str(bin_folder)) == {}
