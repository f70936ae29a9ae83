"""What a command line sets, by name: `--lr 0.3`, `--lr=0.3`, `lr=0.3`. Pure."""

import re
import shlex

MAX_ARGUMENTS = 64
_NAMED = re.compile(r"(--?[A-Za-z][\w.-]{0,63}|\+{0,2}[A-Za-z_][\w.@/-]{0,63})=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]{0,63}")
FLAG_VALUE = "true"  # of an option that stands without a value


def arguments_of(command: str) -> dict[str, str]:
    """Values by name, in the order of the command line, of a name given twice the last. The word
    behind an option is its value unless it begins as an option does: which options take none isn't
    known."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its end
        return {}
    values: dict[str, str] = {}
    for at, word in enumerate(words):
        if len(values) == MAX_ARGUMENTS:
            break
        named = _NAMED.fullmatch(word)
        if named:
            values[named[1]] = named[2]
        elif _FLAG.fullmatch(word):
            following = words[at + 1] if at + 1 < len(words) else ""
            has_value = following != "" and not _FLAG.match(following) and following != "--"
            values[word] = following if has_value else FLAG_VALUE
    return values
