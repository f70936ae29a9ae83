"""Is a rendered line metadata: one JSON object and nothing else (R18-R21)? Pure.

orjson screens fast, and is imported with the first line that looks like an object: it takes a good
part of a sidecar's start, and most short jobs print none. What it refuses goes to the standard
library, which knows big integers, deep nesting and lone surrogates; hostile input never raises and
never stalls.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

MAX_DEPTH = 512
_MAX_INT_DIGITS = 4000  # Python refuses longer ones: quadratic time
_LOOKS_LIKE_OBJECT = re.compile(rb'\{[ \t]*["}]')
_LOOKS_LIKE_REPR = re.compile(rb"\{'[^']*': ")
# one that has no end, too: no quote in it is tried again
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Hint(NamedTuple):
    """Why a line that was surely meant as metadata isn't. reason: a stable word; text: the fix, in
    plain words."""

    reason: str
    text: str


NAN_HINT = Hint(
    "nan",
    "A line looks like metadata but holds NaN or Infinity, which JSON doesn't know: it is logged as an ordinary line. "
    "Print null, or leave the key out.",
)
REPR_HINT = Hint(
    "repr",
    "A line looks like a Python dict; that isn't JSON: it is logged as an ordinary line. Print json.dumps(...).",
)


class _NotFiniteError(ValueError):
    pass


def keys_of(line: bytes) -> tuple[str, ...] | Hint | None:
    """The keys of the one JSON object that a line is; a Hint where it nearly is one; None for any
    other line.

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
def _screen() -> Callable[[bytes], Any]:  # Any: JSON
    try:
        from orjson import loads
    except ImportError:  # taken away since this process began: as if it refused each line

        def loads(line: bytes) -> Any:  # type: ignore[misc]
            raise ValueError(line)

    return loads


def _keys_the_slow_way(line: bytes) -> tuple[str, ...] | Hint | None:
    if not _LOOKS_LIKE_OBJECT.match(line):
        return REPR_HINT if _LOOKS_LIKE_REPR.match(line) else None
    if line.count(b"{") + line.count(b"[") > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        return None
    try:
        value = json.loads(line, parse_constant=_refuse_constant, parse_int=_lenient_int)
    except _NotFiniteError:
        return NAN_HINT if _is_json_but_for_constants(line) else None
    except (ValueError, RecursionError):
        return None
    return tuple(value) if isinstance(value, dict) else None


def _refuse_constant(name: str) -> Any:  # Any: json's own signature
    raise _NotFiniteError(name)


def _lenient_int(digits: str) -> int | str:
    return int(digits) if len(digits) < _MAX_INT_DIGITS else digits


def _is_json_but_for_constants(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line, parse_int=_lenient_int), dict)
    except (ValueError, RecursionError):
        return False


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
