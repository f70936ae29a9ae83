"""Parses metadata records: exact numbers, nested keys, names of keys. Pure.

A tuple of strings, the path, identifies a key. Its name is for people, and no two paths share one.
Paths of series (docs/series.md) begin with AUTO_ROOT, so that they share no key with other records.
NaN, Infinity and -Infinity are infinite floats: gaps in graphs, no numbers. Untrusted input never
raises and never stalls: the parser counts values that it cannot keep exact.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from typing import TypeAlias

import orjson

from logshipper.config import AUTO

Path: TypeAlias = tuple[str, ...]
Number: TypeAlias = int | float
Record: TypeAlias = dict[str, object]

AUTO_ROOT, AUTO_MARK = "~auto", f" ({AUTO})"  # in paths and in names of series
MAX_DEPTH = 4
MAX_KEY_BYTES = 256  # of one key, in UTF-8
MAX_INT_DIGITS = 4000  # Python cannot print integers of more than 4300 digits
_MAY_BE_BIG = re.compile(rb"[0-9]{19}")  # orjson turns integers of more than 64 bits into floats


class Oversized(str):
    """A number that is too long, or too large for a float, to be worked with: its text."""

    __slots__ = ()


@dataclass(slots=True)
class Leaves:
    """A record's values for graphs."""

    # by path, down to MAX_DEPTH keys
    numbers: dict[Path, Number] = field(default_factory=dict)
    # top-level keys without a number, and those of gaps at any depth
    non_numbers: list[Path] = field(default_factory=list)
    # NaN, inf and -inf by path
    gaps: dict[Path, float] = field(default_factory=dict)
    deeper: int = 0  # objects below that depth, left out
    oversized: int = 0  # omitted numbers beyond the limits
    long_keys: int = 0  # values of keys over MAX_KEY_BYTES, left out


def parse_record(line: bytes) -> Record | None:
    """Parse a metadata line with exact integers; None for lines too deep for Python."""
    if line[:1] != b"{" or line[-1:] != b"}":
        return None  # a hostile one: trying both parsers would cost
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        value = _parse_exactly(line)
    else:
        if _MAY_BE_BIG.search(line):
            exact = _parse_exactly(line)
            value = value if exact is None else exact
    return value if isinstance(value, dict) else None


def _parse_exactly(line: bytes) -> object:
    try:
        return json.loads(line, parse_int=_exact_int, parse_float=_finite_float)
    except (ValueError, RecursionError):
        return None


def _exact_int(digits: str) -> int | Oversized:
    try:
        return int(digits) if len(digits) <= MAX_INT_DIGITS else Oversized(digits)
    except ValueError:  # PYTHONINTMAXSTRDIGITS may be lower
        return Oversized(digits)


def _finite_float(text: str) -> float | Oversized:
    value = float(text)
    return value if isfinite(value) else Oversized(text)


def by_origin(record: Record, origin: str) -> Record:
    """Return the record as paths see it: that of a series below AUTO_ROOT."""
    return {AUTO_ROOT: record} if origin == AUTO else record


def line_by_origin(line: str, origin: str) -> str:
    """Return a record's line as `by_origin` returns the record."""
    return f'{{"{AUTO_ROOT}":{line}}}' if origin == AUTO else line


def is_auto(path: Path) -> bool:
    """Return whether the key is one of a series."""
    return path[:1] == (AUTO_ROOT,) and len(path) > 1


def printed_path(path: Path) -> Path:
    """Return the path within the printed record."""
    return path[1:] if is_auto(path) else path


def leaves_of(record: Record) -> Leaves:
    """Numbers by path and the other top-level keys. Booleans and strings are no numbers (R22)."""
    leaves = Leaves()
    numbers = leaves.numbers
    for key, value in record.items():
        kind = type(value)
        if len(key) > _SURELY_SHORT and _is_long(key):
            leaves.long_keys += 1
        elif kind is int:
            numbers[(key,)] = value  # type: ignore[assignment]  # mypy doesn't narrow by type(): 3 times as fast
        elif kind is float and isfinite(value):  # type: ignore[arg-type]
            numbers[(key,)] = value  # type: ignore[assignment]
        elif kind is dict:
            before = len(numbers) + len(leaves.gaps)
            _gather(value, (key,), leaves)  # type: ignore[arg-type]
            if len(numbers) + len(leaves.gaps) == before:
                leaves.non_numbers.append((key,))
        elif kind is float:
            _take_gap((key,), value, leaves)  # type: ignore[arg-type]
        else:
            leaves.oversized += kind is Oversized
            leaves.non_numbers.append((key,))
    return leaves


def number_columns(records: Sequence[Record]) -> list[tuple[Number, ...]] | None:
    """Return the numbers of records with the same keys, key by key; None if some value is no finite
    number."""
    columns = list(zip(*(record.values() for record in records), strict=True))
    for column in columns:
        kinds = set(map(type, column))
        if not kinds <= {int, float} or not all(
            isfinite(value) for value in column if type(value) is float
        ):
            return None
    return columns


def _gather(nested: Record, above: Path, leaves: Leaves) -> None:
    if len(above) >= MAX_DEPTH:
        leaves.deeper += 1
        return
    for key, value in nested.items():
        kind = type(value)
        path = (*above, key)
        if len(key) > _SURELY_SHORT and _is_long(key):
            leaves.long_keys += 1
        elif kind is int or (kind is float and isfinite(value)):  # type: ignore[arg-type]
            leaves.numbers[path] = value  # type: ignore[assignment]
        elif kind is dict:
            _gather(value, path, leaves)  # type: ignore[arg-type]
        elif kind is float:
            _take_gap(path, value, leaves)  # type: ignore[arg-type]
        elif kind is Oversized:
            leaves.oversized += 1


def _take_gap(path: Path, value: float, leaves: Leaves) -> None:
    leaves.gaps[path] = value
    leaves.non_numbers.append(path)


_SURELY_SHORT = MAX_KEY_BYTES // 4  # characters


def _is_long(key: str) -> bool:
    return len(key) > MAX_KEY_BYTES or len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES


def raw_value(line: str, path: Path) -> str | None:
    """Return the JSON text of the value at a path, unchanged; None without one."""
    text: str | None = line
    try:
        for key in path:
            text = None if text is None else _raw_members(text).get(key)
    except (ValueError, RecursionError, IndexError):
        return None
    return text


_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
_BLANKS = re.compile(r"[ \t\n\r]*")


@lru_cache(maxsize=8)  # callers ask for the keys of a record one after another
def _raw_members(text: str) -> dict[str, str]:
    """The texts of all members of the object that the text is; of a key that stands there twice the
    last one."""
    members: dict[str, str] = {}
    at = _skip_blanks(text, 0)
    if text[at] != "{":
        return members
    at = _skip_blanks(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        begin = _skip_blanks(text, _skip_blanks(text, at) + 1)  # over the colon
        _, end = _DECODER.raw_decode(text, begin)
        members[key] = text[begin:end]
        at = _skip_blanks(text, end)
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)
    return members


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def order(path: Path) -> tuple[bool, str, Path]:
    """Sorts paths by name, in alphabetical order, those of series last."""
    return is_auto(path), ".".join(path), path


def past_limit(paths: Iterable[Path], limit: int, named: Container[Path]) -> list[Path]:
    """Return the last paths of each origin beyond a limit, in order. named: paths without a
    limit."""
    ranked = sorted((path for path in paths if path not in named), key=order)
    auto_at = bisect_left(ranked, True, key=is_auto)
    return ranked[limit:auto_at] + ranked[auto_at:][limit:]


def names_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return a unique name for each path: `a.b`.

    Keys with dots that would share the name of a nested key, and unprintable keys, stand in quotes,
    as in JSON: `"a.b".c`. Names of series end with AUTO_MARK.
    """
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        by_name.setdefault(plain_name(path), []).append(path)
    names = {}
    for sharing in by_name.values():
        for path in sharing:
            texts = [_key_text(key, len(sharing) > 1) for key in printed_path(path)]
            names[path] = ".".join(texts) + (AUTO_MARK if is_auto(path) else "")
    return names


def plain_name(path: Path) -> str:
    """Return a key's name without quotes, which several paths may share."""
    return ".".join(printed_path(path)) + (AUTO_MARK if is_auto(path) else "")


def full_name(name: str, keys: Container[str]) -> str:
    """Return a name with the mark of series if only such a key has it."""
    marked = name + AUTO_MARK
    return marked if name not in keys and marked in keys else name


def _key_text(key: str, shared: bool) -> str:
    needs_quotes = '"' in key or not key.isprintable() or (shared and "." in key)
    return json.dumps(key) if needs_quotes else key


def pack_number(value: Number) -> object:
    """Big integers as hexadecimal text: Python limits the decimal digits that it converts."""
    return hex(value) if type(value) is int and value.bit_length() > 64 else value


def unpack_number(packed: object) -> Number:
    if isinstance(packed, str):
        return int(packed, 16)
    if type(packed) is int or type(packed) is float:
        return packed
    raise ValueError(f"not a number: {packed!r}")
