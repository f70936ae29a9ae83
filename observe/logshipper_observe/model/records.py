"""Metadata records taken apart without changing a digit: every value stays the JSON text that the
job printed.

Lines were checked when they were captured: each is one JSON object, of any depth, numbers of any
length; in the place of a number stands NaN, Infinity or -Infinity where Python's json.dumps wrote
that.
"""

import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # there, but missing in typeshed

from logshipper.classify.metadata import GAPS
from logshipper_observe.base.output import to_json
from logshipper_observe.base.words import DIGITS, number

Path = tuple[str, ...]

FLAT_DEPTH = 4  # keys below that stay JSON in a flat table

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# a key and its value; the value is empty where it is an object or an array
MEMBER = re.compile(rf"[{{,]\s*({_STRING})\s*:\s*({_STRING}|[^\s,\]}}{{\[\"]+|)\s*", re.DOTALL)
_NESTING = re.compile(rf"{_STRING}?|[\[\]{{}}]", re.DOTALL)
_EXPONENT = re.compile("[eE]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# one that has no end, too: no quote in it is tried again
_STRING_OR_GAP = re.compile(rf"{_STRING}?|NaN|-?Infinity", re.DOTALL)


def split(line: str) -> dict[str, str]:
    """The keys of a JSON object and the JSON text of each one's value, in order; of a key given
    twice the last."""
    values: dict[str, str] = {}
    at = line.index("{")
    while member := MEMBER.match(line, at):
        key, value = member.groups()
        at = member.end()
        if not value:
            begin = at
            at = _nested_end(line, begin)
            value = line[begin:at]
            while at < len(line) and line[at].isspace():
                at += 1
        values[text_of(key) if "\\" in key else key[1:-1]] = value
    return values


def _nested_end(line: str, begin: int) -> int:
    depth = 0
    for token in _NESTING.finditer(line, begin):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
            if not depth:
                return token.end()
    return len(line)


def text_of(value: str) -> str:
    """The string that a JSON string stands for."""
    return str(scanstring(value, 1)[0])


def is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None


def valid_json(text: str) -> str:
    """A record's text, or a value's, as every parser reads it: null in the place of GAPS."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _STRING_OR_GAP.sub(lambda token: token[0] if token[0][0] == '"' else "null", text)


def record_fields(line: str) -> str:
    """The fields of a document that hold a record: `"record":...` as JSON; where that has null for
    GAPS, `"line":...` with the exact text as well."""
    record = valid_json(line)
    exact = "" if record == line else f',"line":{to_json(line)}'
    return f'"record":{record}{exact}'


def display_text(value: str) -> str:
    """A value for a table: a string as its text, or as JSON where that would be mistaken or can't
    be printed."""
    if not value.startswith('"'):
        return value
    text = text_of(value)
    plain = (
        text.isprintable()
        and text == text.strip()
        and text not in ("", "-", "null", "true", "false", *GAPS)
    )
    return text if plain and not is_number(text) else value


def table_text(value: str) -> str:
    """As display_text, for a table to read: of a fraction 6 significant digits."""
    if not is_number(value) or value.lstrip("-").isdecimal():
        return display_text(value)
    digits = _EXPONENT.split(value)[0].replace(".", "").lstrip("-0")
    return value if len(digits) <= DIGITS else number(float(value))


def cell(value: str) -> str:
    """A value for CSV: a string as its text; one that UTF-8 can't encode as JSON."""
    if not value.startswith('"'):
        return value
    text = text_of(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return value
    return text


def flat(line: str) -> dict[Path, str]:
    """Paths of keys and their values: nested objects are opened down to FLAT_DEPTH keys; arrays
    stay JSON."""
    return dict(_leaves(line, ()))


def _leaves(line: str, above: Path) -> Iterator[tuple[Path, str]]:
    for key, value in split(line).items():
        path = (*above, key)
        if (
            value.startswith("{")
            and len(path) < FLAT_DEPTH
            and (inner := list(_leaves(value, path)))
        ):
            yield from inner
        else:
            yield path, value


def at_path(line: str, path: Path) -> str | None:
    """The JSON text at a path of keys; None where there is nothing."""
    value: str | None = line
    for key in path:
        if value is None or not value.startswith("{"):
            return None
        value = split(value).get(key)
    return value


def rebuilt(values: dict[str, str]) -> str:
    """One line of JSON of keys and the JSON texts of their values."""
    return "{" + ", ".join(f"{to_json(key)}: {value}" for key, value in values.items()) + "}"
