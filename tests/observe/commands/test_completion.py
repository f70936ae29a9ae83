"""What real shells complete: bash, zsh and fish with the script that `logshipper completion`
prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from logshipper_observe.commands.completion import SHELLS
from tests.tools.captured_runs import TIMEOUT_SECS
from tests.tools.packages import are_installed
from tests.tools.reading_store import training
from tests.tools.sources import SOURCES

LINES = {
    "logshipper ev": "events",
    "logshipper info tr": "train.py",
    "logshipper ls --columns id,ep": "id,epoch",
    "logshipper ls --sort dur": "duration_secs",
    "logshipper events last --to-state nod": "node_fail",
    "logshipper analyze ut": "utilization",
    "logshipper analyze throughput --from-state req": "requeued",
    "logshipper allocations --state unr": "unresponsive",
    "logshipper allocations --hi": "--history",
    "logshipper plot last --facet loss,job.h": "loss,job.host",
    "logshipper info last --primary lo": "loss",
    "logshipper import ba": "balsam",
    "logshipper-agent pu": "purge",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With the commands on PATH, and a job in the store."""
    home = tmp_path_factory.mktemp("home")
    for name, module in (("logshipper", "logshipper"), ("logshipper-agent", "logshipper_ingest")):
        program = home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        program.chmod(0o755)
    training(home / "store", name="train.py")
    return {
        "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home), "PYTHONPATH": SOURCES,
        "LOGSHIPPER_STORE": str(home / "store"), "TERM": "dumb", "LC_ALL": "C.UTF-8",
    }  # fmt: skip


def shell_is_there(shell: str) -> None:
    if shutil.which(shell) is None:
        if are_installed():
            pytest.fail(f"{shell} isn't installed: requirements/system.sh does it")
        pytest.skip(f"{shell} isn't installed")


def test_fish(environment: dict[str, str]) -> None:
    shell_is_there("fish")
    script = "logshipper completion fish | source\n" + "".join(
        f"echo LINE; complete -C '{line}'\n" for line in LINES
    )
    process = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
    )
    assert process.stderr == ""
    answers = [answer.split("\n")[1:-1] for answer in process.stdout.split("LINE")[1:]]
    completions = {
        line: [word.split("\t")[0] for word in answer]
        for line, answer in zip(LINES, answers, strict=True)
    }
    assert completions == {line: [word] for line, word in LINES.items()}


def test_bash(environment: dict[str, str]) -> None:
    """As bash calls a function for the word before the cursor."""
    calls = "".join(
        f"COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=($COMP_LINE)\n"
        f"COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); COMP_TYPE=9; COMPREPLY=()\n"
        f'_python_argcomplete {line.split()[0]}; echo "${{COMPREPLY[@]}}"\n'
        for line in LINES
    )
    process = subprocess.run(
        ["bash", "--norc", "-c", f'eval "$(logshipper completion bash)"; compopt() {{ :; }}\n{calls}'],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECS,
    )  # fmt: skip
    assert process.stderr == ""
    assert [line.strip() for line in process.stdout.splitlines()] == list(LINES.values())


@pytest.mark.parametrize("line", list(LINES)[:3])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key(shell: str, line: str, environment: dict[str, str], tmp_path: Path) -> None:
    shell_is_there(shell)
    start = {"bash": "PS1='> '", "zsh": "autoload -U compinit; compinit -u -D; PROMPT='> '"}
    words = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
    child = pexpect.spawn(
        shell, words[shell], env=environment, cwd=str(tmp_path), encoding="utf-8", timeout=TIMEOUT_SECS,
        dimensions=(40, 120),
    )  # fmt: skip
    child.sendline(f"{start[shell]}; eval \"$(logshipper completion {shell})\"; echo 'REA''DY'")
    child.expect_exact("READY\r\n")
    child.expect_exact("> ")  # keys are read one by one from here on
    child.send(f"{line}\t")
    child.expect_exact(f"{line.rpartition(' ')[0]} {LINES[line]}")
    child.close(force=True)


def test_each_shell_is_tried() -> None:
    assert SHELLS == ("bash", "zsh", "fish")
