"""Limits objects of other systems to values that all parts of a store can hold. Pure.

No NaN, no infinity, no integer beyond 64 bits, no lone surrogate, only JSON's types, no deep
nesting.
"""

import ast
import json
import math
import re
from typing import Any

from logshipper_ingest.model.job import Json

MAX_DEPTH = 64
MAX_REPR_CHARS = 65_536  # of a printed Python dict
_MAX_WHOLE = 1 << 63
_UNUSUAL = re.compile(r"NaN|Infinity|[0-9]{17}|[eE]\+?[0-9]{3}|\\u[dD]|[\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class TooDeep(ValueError):
    """Nesting exceeds MAX_DEPTH."""


def plain(text: str, value: Any) -> Any:  # Any: JSON, or Python's literals
    """Return the storable form of a value parsed from the text. Raises TooDeep."""
    if text.count("{") + text.count("[") <= MAX_DEPTH and _UNUSUAL.search(text) is None:
        return value  # as nearly all are: this is much quicker
    return _cleaned(value, MAX_DEPTH)


def parse_object(text: str) -> Json | None:
    """Parse a JSON object; None for other texts."""
    try:
        value = json.loads(text)
        return plain(text, value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def parse_any(text: str) -> Json | list[Any] | None:  # Any: JSON
    """An object or an array, of JSON or as Python prints a dict or a list; None for all else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _parse_repr(text)
    try:
        return plain(text, value) if isinstance(value, dict | list) else None
    except TooDeep:
        return None


def _parse_repr(text: str) -> Json | list[Any] | None:
    if len(text) > MAX_REPR_CHARS:
        return None
    try:
        value = ast.literal_eval(text)
        return _cleaned(value, MAX_DEPTH) if isinstance(value, dict | list) else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _cleaned(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_MAX_WHOLE <= value < _MAX_WHOLE else _rounded(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not depth:
        raise TooDeep
    if isinstance(value, dict):
        return {
            _SURROGATE.sub("\ufffd", str(name)): _cleaned(inner, depth - 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [_cleaned(inner, depth - 1) for inner in value]
    return str(value)  # Python's types: bytes, a complex number


def _rounded(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None
