"""Recognises metadata: rendered lines that are one JSON object and nothing else (R18-R21). Also
writes such objects for records found in text. Pure.

orjson screens lines fast. It is imported with the first line that looks like an object: the import
takes a good part of a sidecar's start, and most short jobs print no object. The standard library
then parses the lines that orjson refuses: it accepts big integers, deep nesting, lone surrogates,
NaN, Infinity and -Infinity. Hostile input never raises and never stalls.
"""

import json
from functools import cache, lru_cache

from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_DEPTH = 512
GAPS = ("NaN", "Infinity", "-Infinity")  # not numbers: a gap in graphs
_GAPS = frozenset(GAPS)
_MAX_INT_DIGITS = 4000  # Python refuses longer ones: quadratic time
_LOOKS_LIKE_OBJECT = late_pattern(rb'\{[ \t]*["}]')
_LOOKS_LIKE_REPR = late_pattern(rb"\{'[^']*': ")
# also matches a string without an end, so that no quote in it is tried again
_STRINGS = late_pattern(rb'(?s)"(?:[^"\\]++|\\.)*+"?')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Hint(NamedTuple):
    """The reason why a line that was meant as metadata is none."""

    reason: str  # a stable word
    text: str  # the fix, for the user


NAN_HINT = Hint(
    "nan",
    "A record contains NaN or Infinity. Graphs show and mark a gap there; tables and the log show the printed text.",
)
REPR_HINT = Hint(
    "repr",
    "A line looks like a Python dict, which is not JSON, so logshipper logs it as an ordinary line. Print "
    "json.dumps(...), or enable such records in ~/.logoptin (metadata: [json, dict]).",
)


class KeysWithGaps(tuple[str, ...]):
    """The keys of a record that contains NaN or an infinity."""

    __slots__ = ()


def keys_of(line: bytes) -> tuple[str, ...] | Hint | None:
    """Return the keys of a line that is one JSON object (KeysWithGaps if it contains NaN), a Hint
    for a near miss, or None for any other line.

    line: as rendered, without LF, with the blanks before the cursor's position: a blank at either
    end is text (R20).
    """
    if line[:1] != b"{" or line[-1:] != b"}":
        return None
    try:
        value = _screen()(line)
    except ValueError:
        return _keys_by_standard_library(line)
    return tuple(value)  # a dict, as it begins with `{`


@cache
def _screen() -> "Callable[[bytes], Any]":  # Any: JSON
    try:
        from orjson import loads
    except ImportError:  # removed since this process started: the standard library remains

        def loads(line: bytes) -> "Any":  # type: ignore[misc]
            raise ValueError(line)

    return loads


def _keys_by_standard_library(line: bytes) -> tuple[str, ...] | Hint | None:
    if not _LOOKS_LIKE_OBJECT.match(line):
        return REPR_HINT if _LOOKS_LIKE_REPR.match(line) else None
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        return None
    gaps: list[str] = []
    try:
        value = json.loads(line, parse_int=_lenient_int, parse_constant=gaps.append)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return KeysWithGaps(value) if gaps else tuple(value)


def _lenient_int(digits: str) -> int | str:
    return int(digits) if len(digits) < _MAX_INT_DIGITS else digits


def _depth(line: bytes) -> int:
    """Return the deepest nesting outside of strings."""
    depth = deepest = 0
    for byte in _STRINGS.sub(b"", line).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def json_record(values: "Mapping[str, str]") -> tuple[tuple[str, ...], bytes]:
    """Return the keys and the JSON of a record. values: JSON numbers by key."""
    names = tuple(values)
    has_gaps = not _GAPS.isdisjoint(values.values())
    line = _form(names) % tuple(values.values())
    return KeysWithGaps(names) if has_gaps else names, line.encode()


@lru_cache(128)
def _form(keys: tuple[str, ...]) -> str:
    """Return JSON with `%s` for each value."""
    texts = (json.dumps(key, ensure_ascii=False).replace("%", "%%") for key in keys)
    return f"{{{', '.join(f'{text}: %s' for text in texts)}}}"
