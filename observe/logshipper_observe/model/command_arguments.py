"""Settings of a command line by name: `--lr 0.3`, `--lr=0.3`, `lr=0.3`. Pure."""

import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

MAX_ARGUMENTS = 64
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]{0,63})=(.*)", re.DOTALL)
_SETTING = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]{0,63})=(\S*)")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]{0,63}")
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_SHELL_COMMAND = re.compile("-[a-z]*c")
FLAG_VALUE = "true"  # of an option without a value


class Arguments(NamedTuple):
    """The settings of a command line, and its other words."""

    values: dict[str, str]
    words: list[str]


def arguments_of(command: str) -> dict[str, str]:
    """Return values by name, in the order of the command line; the last of a repeated name.

    The word behind an option is its value, unless it looks like an option or a setting: nobody
    knows which options have none.
    """
    try:
        return split_arguments(shlex.split(command)).values
    except ValueError:  # a quote without its end
        return {}


def split_arguments(words: Sequence[str]) -> Arguments:
    """Return the settings and the other words."""
    values: dict[str, str] = {}
    others: list[str] = []
    at = 0
    while at < len(words) and len(values) < MAX_ARGUMENTS:
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 1
        match = _OPTION.fullmatch(word) or _SETTING.fullmatch(word)
        if match:
            values[match[1]] = match[2]
        elif _FLAG.fullmatch(word):
            is_next = _FLAG.match(following) or _SETTING.fullmatch(following)
            is_taken = following not in ("", "--") and not is_next
            values[word] = following if is_taken else FLAG_VALUE
            at += is_taken
        else:
            others.append(word)
    return Arguments(values, [*others, *words[at:]])


def words_of(command: str) -> list[str]:
    """A command line's words; of a shell's `-c` those of its script."""
    try:
        words = shlex.split(command)
        if words and os.path.basename(words[0]) in _SHELLS:
            for at, word in enumerate(words[1:-1], 1):
                if _SHELL_COMMAND.fullmatch(word):
                    return [*shlex.split(words[at + 1]), *words[at + 2 :]]
        return words
    except ValueError:  # command lines are untrusted
        return command.split()


def bare_name(argument: str) -> str:
    """Return the usual key of an option: `batch_size` for `--batch-size`."""
    return argument.lstrip("-+").replace("-", "_")
