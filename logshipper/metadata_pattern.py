"""The allowed syntax of users' own patterns (`metadata` of ~/.logoptin).

The form alone must not make a pattern slow: no repetition of a repetition, an option or an
alternative. A slow match is stopped in any case (logshipper/classify/user_patterns.py).
"""

import importlib
import re
import warnings
from typing import Any

MAX_CHARS = 300
MAX_GROUPS = 20  # with names
MAX_CHOICES = 20  # optional parts, alternatives and repeats

_PLAIN = frozenset(("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"))
_REPEATS = frozenset(("MAX_REPEAT", "MIN_REPEAT"))


class _Refusal(Exception):
    """The reason against an expression."""


def problem_of(pattern: str) -> str:
    """Return the reason against an expression, and the remedy; "" for a valid one."""
    return _syntax_problem(pattern) or _groups_problem(pattern) or _form_problem(pattern)


def _syntax_problem(pattern: str) -> str:
    if len(pattern) > MAX_CHARS:
        return f"is over {MAX_CHARS} characters long"
    try:
        compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}"
    return ""


def _groups_problem(pattern: str) -> str:
    groups = compiled(pattern).groupindex
    if not groups:
        return "names no group: write `(?P<loss>[0-9.]+)`, and `loss` is the key of the number"
    if len(groups) > MAX_GROUPS:
        return f"names {len(groups)} groups; {MAX_GROUPS} is the limit"
    return ""


def _form_problem(pattern: str) -> str:
    try:
        choices = _choices(parsed(pattern), in_repeat=False)
    except _Refusal as refusal:
        return str(refusal)
    if choices > MAX_CHOICES:
        return f"has {choices} repeats, options and alternatives; {MAX_CHOICES} is the limit"
    return ""


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile an expression. Raises re.error, and other errors for counts and depths beyond
    Python's limits."""
    with warnings.catch_warnings():  # they would land in the job's output
        warnings.simplefilter("ignore")
        return re.compile(pattern, re.ASCII)


def parsed(pattern: str) -> Any:  # Any: from a private module without types
    """The parts of an expression, as Python's own parser has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("re._parser").parse(pattern, re.ASCII)


def _choices(nodes: Any, *, in_repeat: bool) -> int:
    """Count the places with several ways to match. Raises _Refusal."""
    choices = 0
    for operation, argument in nodes:
        name = str(operation)
        if name in _PLAIN:
            continue
        if name == "SUBPATTERN":
            choices += _choices(argument[-1], in_repeat=in_repeat)
            continue
        if name == "BRANCH":
            parts, several = argument[1], True
        elif name in _REPEATS:
            least, most, part = argument
            parts, several = [part], least != most
        else:
            raise _Refusal(
                "uses what isn't taken: looking ahead or behind, references to groups, "
                "atomic groups and possessive repeats"
            )
        if several and in_repeat:
            raise _Refusal(
                "repeats what is itself repeated, optional or an alternative, which may take "
                "forever: write the repeated part once"
            )
        choices += several
        repeats = name in _REPEATS and argument[1] > 1
        choices += sum(_choices(part, in_repeat=in_repeat or repeats) for part in parts)
    return choices
