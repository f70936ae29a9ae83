"""What a command line sets, by name: `--lr 0.3`, `--lr=0.3`, `lr=0.3`. Pure."""

import re
import shlex

MAX_ARGUMENTS = 64
_OPTION = re.compile(r"(--?[A-Za-z][\w.-]{0,63})=(.*)", re.DOTALL)
_SETTING = re.compile(r"(\+{0,2}[A-Za-z_][\w.@/-]{0,63})=(\S*)")
_FLAG = re.compile(r"--?[A-Za-z][\w.-]{0,63}")
FLAG_VALUE = "true"  # of an option that stands without a value


def arguments_of(command: str) -> dict[str, str]:
    """Values by name, in the order of the command line, of a name given twice the last. The word
    behind an option is its value unless it looks like an option or a setting: which options take
    none isn't known."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote without its end
        return {}
    values: dict[str, str] = {}
    for at, word in enumerate(words):
        if len(values) == MAX_ARGUMENTS:
            break
        match = _OPTION.fullmatch(word) or _SETTING.fullmatch(word)
        if match:
            values[match[1]] = match[2]
        elif _FLAG.fullmatch(word):
            following = words[at + 1] if at + 1 < len(words) else ""
            is_next = _FLAG.match(following) or _SETTING.fullmatch(following)
            has_value = following not in ("", "--") and not is_next
            values[word] = following if has_value else FLAG_VALUE
    return values


def bare_name(argument: str) -> str:
    """Of `--batch-size` the key that it mostly is: `batch_size`."""
    return argument.lstrip("-+").replace("-", "_")
