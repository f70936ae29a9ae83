"""Detects commands that are interactive shells. Pure.

Such a shell gets one terminal for all three descriptors. bash controls jobs by the terminal of its
stderr, which must be the session's; and prompts, input, output and errors keep their order. Stdout
and stderr of all other commands stay apart.
"""

import os

_NAMES = frozenset("ash bash csh dash fish ksh ksh93 mksh rbash rksh sh tcsh yash zsh".split())
_WITH_VALUE = ("--rcfile", "--init-file", "--init-command", "-C", "-O", "+O", "-o", "+o")


def is_shell_to_type_into(argv: list[str]) -> bool:
    """Return whether CMD is a shell, perhaps behind `env NAME=VALUE`, without a script or a
    command."""
    words = iter(argv)
    program = next(words)
    if os.path.basename(program) == "env":
        program = next((word for word in words if word[:1] != "-" and "=" not in word), "")
    # a login shell's begins with `-`
    if os.path.basename(program).removeprefix("-") not in _NAMES:
        return False
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif word[:1] not in ("-", "+") or word.startswith("--command"):
            return False
        elif word[:2] != "--" and "s" in word:
            return True  # it reads commands from stdin; the next words are their arguments
        elif word[:2] != "--" and "c" in word:
            return False
    return True
