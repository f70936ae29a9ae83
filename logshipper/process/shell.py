"""Which commands are a shell for somebody to type into. Pure.

Such a shell gets one terminal for all three fds: bash does job control by the terminal of its
stderr, which has to be the session's; and prompts, what is typed, output and errors stay in order.
What any other command prints stays apart, stdout and stderr.
"""

import os

_NAMES = frozenset("ash bash csh dash fish ksh ksh93 mksh rbash rksh sh tcsh yash zsh".split())
_WITH_VALUE = ("--rcfile", "--init-file", "--init-command", "-C", "-O", "+O", "-o", "+o")


def is_shell_to_type_into(argv: list[str]) -> bool:
    """Whether CMD is a shell, perhaps behind `env NAME=VALUE`, without a script or a command of its
    own."""
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
            return True  # it reads commands from stdin, what follows are their arguments
        elif word[:2] != "--" and "c" in word:
            return False
    return True
