"""Reads the key of a line's shape and the line's numbers. Pure.

A shape that recurs often gets an expression of its own. It finds both several times faster than the
search for numbers, and leaves every line in doubt to that search.
"""

import re
from collections.abc import Callable, Sequence

from logshipper.classify.series.numbers import NUMBER
from logshipper.named_tuple import NamedTuple

MARK = b"\x01"  # stands for a number; rendered lines contain no control characters
LEAST_LINES = 100  # of a shape with an expression, which costs as much as 200 lines
# the memory of all stays below 0.4 MiB
MAX_COUNTED = 256  # shapes whose lines are counted
MAX_EXPRESSIONS = 24
MAX_NUMBERS = 24  # in an expression
MAX_KEY_BYTES = 512
_ALTERNATIVES = 4  # shapes with the same letters: `layer1 loss=0.5`, `layer2 loss=0.5`
_VARYING = b"0123456789.+-eEdD \t"  # characters of numbers and gaps
# A number without a dot at its begin. It never gives back a digit, so a line takes linear time.
# Python before 3.11.5 takes `(?:e5)?+` wrongly, so only repetitions of one character are possessive
_LITERAL = rb"([-+]?+[0-9]{1,400}+\.?+[0-9]{0,400}+(?:[eEdD][-+]?+[0-9]{1,9}+)?)"
# In a text between numbers: no text; an exponent of the number before; a sign of the number behind,
# if no digit stands before it; NaN
_DOUBT = re.compile(rb"(?s)\A(?:\Z|[eEdD])|.[-+.]\Z|[=:]\s*+[-+]?(?i:nan|inf)").search
_SIGNED = re.compile(rb"\\?[-+.]").match


def folded(key: bytes) -> bytes:
    """Return a key with single blanks, and none behind a bracket: `[ 5/30]`."""
    return b" ".join(key.split()).replace(b"[ ", b"[").replace(b"( ", b"(")


class _Expression(NamedTuple):
    """An expression of one shape's lines."""

    fullmatch: Callable[[bytes], "re.Match[bytes] | None"]
    key: bytes


class LineReader:
    """Reads the lines of one stream."""

    def __init__(self) -> None:
        self._expressions: dict[bytes, tuple[_Expression, ...]] = {}  # by their lines' letters
        self._count = 0  # of them
        self._lines: dict[bytes, int] = {}  # of each shape without one

    def read(self, line: bytes) -> tuple[bytes, Sequence[bytes] | None]:
        """Return the key and the numbers of a line.

        The key has MARK for each number, and single blanks; it is b"" without numbers. None instead
        of the numbers: no expression matches, and the caller searches for them."""
        expressions = self._expressions.get(line.translate(None, _VARYING))
        if expressions is not None:
            for expression in expressions:
                match = expression.fullmatch(line)
                if match is not None:
                    return expression.key, match.groups()
        key = NUMBER.sub(MARK, line)
        return (b"", None) if key == line else (folded(key), None)

    def count(self, key: bytes, line: bytes) -> None:
        """Count a line without an expression. Its shape recurs."""
        if len(key) > MAX_KEY_BYTES:
            return
        lines = self._lines[key] = self._lines.get(key, 0) + 1
        if lines == LEAST_LINES:
            self._add(key, line)
        elif len(self._lines) > MAX_COUNTED:
            self._lines.clear()

    def _add(self, key: bytes, line: bytes) -> None:
        fullmatch = expression_of(line)
        if fullmatch is None:
            return
        if self._count >= MAX_EXPRESSIONS:
            self._expressions.clear()
            self._count = 0
        letters = line.translate(None, _VARYING)
        others = self._expressions.get(letters, ())
        self._expressions[letters] = (_Expression(fullmatch, key), *others[: _ALTERNATIVES - 1])
        self._count += len(others) < _ALTERNATIVES


def expression_of(line: bytes) -> Callable[[bytes], "re.Match[bytes] | None"] | None:
    """Return an expression for lines of the same shape, with a group for each number; None if it
    might find other numbers in such a line than NUMBER does."""
    texts, numbers = NUMBER.split(line), NUMBER.findall(line)
    first, last = b" " + texts[0], texts[-1] + b" "
    if len(numbers) > MAX_NUMBERS or MARK in line or any(map(_DOUBT, (first, *texts[1:-1], last))):
        return None
    gaps = [rb"\s++".join(map(re.escape, re.split(rb"\s+", text))) for text in texts]
    # a number may end with a dot; the sign or dot behind it would then begin another number
    gaps[1:] = [rb"(?<!\.)" + gap if _SIGNED(gap) else gap for gap in gaps[1:]]
    gaps[0] = rb"\s*+" + gaps[0].removeprefix(rb"\s++")
    gaps[-1] = gaps[-1].removesuffix(rb"\s++") + rb"\s*+"
    fullmatch = re.compile(_LITERAL.join(gaps)).fullmatch
    match = fullmatch(line)
    return fullmatch if match is not None and list(match.groups()) == numbers else None
