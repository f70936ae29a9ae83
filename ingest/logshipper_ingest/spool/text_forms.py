"""Forms of a line: as it is, without colours, with JSON's escapes resolved, and both again for JSON
within JSON. Pure.

A secret in colours, or escaped in JSON, is not in the line as a plain sequence of bytes. Purges therefore
search each form, and map each match back to its place in the line.
"""

import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

MAX_LEVELS = 4  # of JSON within JSON: the quarantine's file, an entry, and the job's own levels
MAY_DIFFER = r"[\x1b\\]"  # matches lines with other forms, in RE2 as well
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|["\\/bfnrt])')


class Form(NamedTuple):
    """A form of a line."""

    text: str
    at: Sequence[int]  # offset in the line of each character, and of the line's end


def forms(line: str) -> Iterator[str]:
    """Yield each form once; most lines have only one."""
    yield line
    for _ in range(MAX_LEVELS):
        if "\x1b" in line:
            line = _COLOUR.sub("", line)
            yield line
        if "\\" not in line:
            return
        line = _ESCAPE.sub(_character, line)
        yield line


def spans(line: str, pattern: "re.Pattern[str]") -> Iterator[str]:
    """Yield the pieces of the line whose forms match the pattern."""
    form = Form(line, range(len(line) + 1))
    yield from (match[0] for match in pattern.finditer(line))
    for step, value in ((_COLOUR, lambda _: ""), (_ESCAPE, _character)) * MAX_LEVELS:
        resolved = _replaced(form, step, value)
        if resolved is form:
            continue
        form = resolved
        for match in pattern.finditer(form.text):
            yield line[form.at[match.start()] : form.at[match.end()]]


def _replaced(form: Form, step: "re.Pattern[str]", value: "Callable[[re.Match[str]], str]") -> Form:
    parts: list[str] = []
    at = array("q")
    last = 0
    for match in step.finditer(form.text):
        new = value(match)
        parts += [form.text[last : match.start()], new]
        at.extend(form.at[last : match.start()])
        at.extend([form.at[match.start()]] * len(new))
        last = match.end()
    if not parts:
        return form
    at.extend(form.at[last:])
    return Form("".join(parts) + form.text[last:], at)


def _character(match: "re.Match[str]") -> str:
    return str(json.loads(f'"{match[0]}"'))
