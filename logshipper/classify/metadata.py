"""Is a rendered line metadata: one JSON object and nothing else (R18-R21)? Pure.

orjson screens fast, and is imported with the first line that looks like an object: it takes a good
part of a sidecar's start, and most short jobs print none. What it refuses goes to the standard
library, which knows big integers, deep nesting and lone surrogates, and reads NaN, Infinity and
-Infinity as its json.dumps writes them; hostile input never raises and never stalls.
"""

import json
from functools import cache

from logshipper.late_pattern import late_pattern
from logshipper.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_DEPTH = 512
GAPS = ("NaN", "Infinity", "-Infinity")  # values that are no numbers: graphs have a gap there
_MAX_INT_DIGITS = 4000  # Python refuses longer ones: quadratic time
_LOOKS_LIKE_OBJECT = late_pattern(rb'\{[ \t]*["}]')
_LOOKS_LIKE_REPR = late_pattern(rb"\{'[^']*': ")
# one that has no end, too: no quote in it is tried again
_STRINGS = late_pattern(rb'(?s)"(?:[^"\\]++|\\.)*+"?')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Hint(NamedTuple):
    """Why a line that was surely meant as metadata isn't. reason: a stable word; text: the fix, in
    plain words."""

    reason: str
    text: str


NAN_HINT = Hint(
    "nan",
    "A record holds NaN or Infinity, which are no numbers: graphs have a gap there and mark it; tables and the log "
    "show what was printed.",
)
REPR_HINT = Hint(
    "repr",
    "A line looks like a Python dict; that isn't JSON: it is logged as an ordinary line. Print json.dumps(...), "
    "or ask for such lines in ~/.logoptin (metadata: [json, dict]).",
)


class KeysWithGaps(tuple[str, ...]):
    """The keys of a record in which NaN or an infinity stands."""

    __slots__ = ()


def keys_of(line: bytes) -> tuple[str, ...] | Hint | None:
    """The keys of the one JSON object that a line is (KeysWithGaps with NaN in it); a Hint where it
    nearly is one; None for any other line.

    line: as rendered, with the blanks before the cursor's place, without LF: a blank at either end
    is text (R20).
    """
    if line[:1] != b"{" or line[-1:] != b"}":
        return None
    try:
        value = _screen()(line)
    except ValueError:
        return _keys_the_slow_way(line)
    return tuple(value)  # it begins with `{`: a dict


@cache
def _screen() -> "Callable[[bytes], Any]":  # Any: JSON
    try:
        from orjson import loads
    except ImportError:  # taken away since this process began: as if it refused each line

        def loads(line: bytes) -> "Any":  # type: ignore[misc]
            raise ValueError(line)

    return loads


def _keys_the_slow_way(line: bytes) -> tuple[str, ...] | Hint | None:
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
    """The deepest nesting, strings left aside."""
    depth = deepest = 0
    for byte in _STRINGS.sub(b"", line).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
