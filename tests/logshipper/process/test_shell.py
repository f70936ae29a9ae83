"""Recognition of commands that start an interactive shell."""

import pytest

from logshipper.process.shell import is_shell_to_type_into


@pytest.mark.parametrize(
    "command",
    ["bash", "/bin/bash", "-bash", "bash -i", "bash -l", "bash --norc --noprofile -i", "zsh -f",
     "bash --rcfile /etc/some.rc", "bash -o vi -O extglob +O failglob", "sh", "fish -C cd",
     "fish --init-command=ls", "env bash", "env -i A=b PATH=/bin bash -l", "bash -s one two",
     "/usr/bin/env zsh", "tcsh -f"],
)  # fmt: skip
def test_shells(command: str) -> None:
    assert is_shell_to_type_into(command.split())


@pytest.mark.parametrize(
    "command",
    ["bash train.sh", "bash -x train.sh --epochs 3", "bash -c ls", "bash -lc ls", "bash -ic ls",
     "sh -ec ls", "fish --command=ls", "fish --command ls", "bash -- train.sh", "bash --rcfile rc x",
     "python", "vim", "less", "bashful", "env", "env A=b", "env python train.py", "A=b", "true",
     "env -u A bash"],
)  # fmt: skip
def test_other_commands(command: str) -> None:
    assert not is_shell_to_type_into(command.split())


def test_odd_words() -> None:
    assert not is_shell_to_type_into([""])
    assert not is_shell_to_type_into(["bash", ""])
