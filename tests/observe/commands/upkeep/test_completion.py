"""Completion in real shells: bash, zsh and fish with the script from `logshipper completion`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pexpect
import pytest

from logshipper_observe.commands.upkeep.completion import SHELLS
from tests.tools.captures.captured_runs import TIMEOUT_SECS
from tests.tools.packages import are_installed
from tests.tools.sources import SOURCES
from tests.tools.stores.reading_store import training

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
    """Return the environment, with the commands on PATH, and a job in the store."""
    home = tmp_path_factory.mktemp("home")
    for name, module in (("logshipper", "logshipper"), ("logshipper-agent", "logshipper_ingest")):
        program = home / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        program.chmod(0o755)
    (home / "bin" / "zz-train").symlink_to("/bin/true")
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
    """The script calls the function as bash does for the word before the cursor."""
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


class Terminal:
    """A shell at a terminal, with the script from `logshipper completion`.

    Its folder has a file `zz-config.yaml`. PATH has a command `zz-train`.
    """

    STARTS = MappingProxyType(
        {
            "bash": (["--norc", "--noprofile", "-i"], "PS1='> '; {}"),
            "zsh": (["-f", "-i"], "autoload -U compinit; compinit -u -D; PROMPT='> '; {}"),
        }
    )

    def __init__(self, shell: str, environment: dict[str, str], folder: Path) -> None:
        shell_is_there(shell)
        (folder / "zz-config.yaml").touch()
        words, start = self.STARTS[shell]
        self.child = pexpect.spawn(
            shell, words, env=environment, cwd=str(folder), encoding="utf-8", timeout=TIMEOUT_SECS,
            dimensions=(40, 120),
        )  # fmt: skip
        script = f'eval "$(logshipper completion {shell})"'
        self.child.sendline(f"{start.format(script)}; echo 'REA''DY'")
        self.child.expect_exact("READY\r\n")
        self.child.expect_exact("> ")  # the shell reads single keys from here on

    def completes(self, line: str, text: str) -> None:
        self.child.send(f"{line}\t")
        self.child.expect_exact(text)
        self.child.close(force=True)


@pytest.mark.parametrize("line", list(LINES)[:3])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key(shell: str, line: str, environment: dict[str, str], tmp_path: Path) -> None:
    terminal = Terminal(shell, environment, tmp_path)
    terminal.completes(line, f"{line.rpartition(' ')[0]} {LINES[line]}")


BEHIND_RUN = {
    "logshipper run -- zz-t": "zz-train",
    "logshipper run --name 'a b' --no-context -- zz-t": "zz-train",
    "logshipper run -- zz-train --file zz-c": "zz-config.yaml",
    "logshipper run -- ./zz-c": "./zz-config.yaml",
    "logshipper run --no-conte": "--no-context",
    # CMD's own completion, not ours: the words after `--` belong to CMD
    "logshipper run -- logshipper ev": "events",
}


@pytest.mark.parametrize("line", list(BEHIND_RUN)[:5])
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_behind_run_the_shell_completes(
    shell: str, line: str, environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "zz-config.yaml").touch()
    (tmp_path / "zz-config.yaml").chmod(0o755)  # so that it is also a command
    terminal = Terminal(shell, environment, tmp_path)
    terminal.completes(line, f"{line.rpartition(' ')[0]} {BEHIND_RUN[line]} ")


@pytest.mark.parametrize("line", list(BEHIND_RUN))
def test_behind_run_fish_completes(line: str, environment: dict[str, str], tmp_path: Path) -> None:
    shell_is_there("fish")
    (tmp_path / "zz-config.yaml").touch(0o755)
    process = subprocess.run(
        ["fish", "--no-config", "-c", f'logshipper completion fish | source; complete -C "{line}"'],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_SECS,
    )  # fmt: skip
    assert (process.stderr, [row.split("\t")[0] for row in process.stdout.splitlines()]) == (
        "",
        [BEHIND_RUN[line]],
    )


def test_behind_run_bash_asks_the_commands_own_completion(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """bash-completion's function gets the place of CMD."""
    terminal = Terminal("bash", environment, tmp_path)
    terminal.child.sendline('_command_offset() { COMPREPLY=("place-$1"); }')
    terminal.child.expect_exact("> ")
    terminal.completes("logshipper run -q -- zz-train --f", "place-4 ")


def test_each_shell_is_tried() -> None:
    assert SHELLS == ("bash", "zsh", "fish")
