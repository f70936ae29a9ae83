"""Parses metadata records without changing a digit: each value keeps its printed JSON text.

The capture has checked the lines: each is one JSON object, of any depth, with numbers of any
length; NaN, Infinity and -Infinity may replace numbers, as in Python's json.dumps.
"""

import re
from json.decoder import scanstring  # type: ignore[attr-defined]  # there, but missing in typeshed

from logshipper.classify.metadata import GAPS
from logshipper_observe.base.output import to_json
from logshipper_observe.base.words import DIGITS, number

Path = tuple[str, ...]

FLAT_DEPTH = 4  # keys below that stay JSON in a flat table

_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# a key and its value; the value is empty for objects and arrays
MEMBER = re.compile(rf"[{{,]\s*({_STRING})\s*:\s*({_STRING}|[^\s,\]}}{{\[\"]+|)\s*", re.DOTALL)
_NESTING = re.compile(rf"{_STRING}?|[\[\]{{}}]", re.DOTALL)
_EXPONENT = re.compile("[eE]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
# also without an end, so that no quote in it is tried again
_STRING_OR_GAP = re.compile(rf"{_STRING}?|NaN|-?Infinity", re.DOTALL)


def split(line: str) -> dict[str, str]:
    """The keys of a JSON object and their values' JSON texts, in order; the last of equal keys."""
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
    """Return the string of a JSON string."""
    return str(scanstring(value, 1)[0])


def is_number(value: str) -> bool:
    return _NUMBER.fullmatch(value) is not None


def valid_json(text: str) -> str:
    """A record's text, or a value's, as every parser reads it: null in the place of GAPS."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _STRING_OR_GAP.sub(lambda token: token[0] if token[0][0] == '"' else "null", text)


def record_fields(line: str) -> str:
    """Return the fields of a document with a record: `"record":...` as JSON, and `"line":...` with
    the exact text if GAPS became null."""
    record = valid_json(line)
    exact = "" if record == line else f',"line":{to_json(line)}'
    return f'"record":{record}{exact}'


def display_text(value: str) -> str:
    """Return a value for a table: a string as its text, or as JSON if ambiguous or unprintable."""
    if not value.startswith('"'):
        return value
    text = text_of(value)
    is_ambiguous = is_number(text) or text in ("", "-", "null", "true", "false", *GAPS)
    return text if text.isprintable() and text == text.strip() and not is_ambiguous else value


def table_text(value: str) -> str:
    """Return display_text for a table to read, with 6 significant digits of fractions."""
    if not is_number(value) or value.lstrip("-").isdecimal():
        return display_text(value)
    digits = _EXPONENT.split(value)[0].replace(".", "").lstrip("-0")
    return value if len(digits) <= DIGITS else number(float(value))


def cell(value: str) -> str:
    """Return a value for CSV: a string as its text, or as JSON if UTF-8 cannot encode it."""
    if not value.startswith('"'):
        return value
    text = text_of(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return value
    return text


def flat(line: str, above: Path = ()) -> dict[Path, str]:
    """Paths of keys and their values: nested objects are opened down to FLAT_DEPTH keys; arrays
    stay JSON. above: path of the object itself."""
    values: dict[Path, str] = {}
    for key, value in split(line).items():
        path = (*above, key)
        is_opened = value.startswith("{") and len(path) < FLAT_DEPTH
        if is_opened and (inner := flat(value, path)):
            values |= inner
        else:
            values[path] = value
    return values


def at_path(line: str, path: Path) -> str | None:
    """Return the JSON text at a path of keys, or None."""
    value: str | None = line
    for key in path:
        if value is None or not value.startswith("{"):
            return None
        value = split(value).get(key)
    return value


def rebuilt(values: dict[str, str]) -> str:
    """One line of JSON of keys and the JSON texts of their values."""
    return "{" + ", ".join(f"{to_json(key)}: {value}" for key, value in values.items()) + "}"
