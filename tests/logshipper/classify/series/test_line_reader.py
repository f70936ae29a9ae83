"""An expression of a shape finds the same key and numbers as the search for numbers."""

import lzma
import random
import re
from pathlib import Path

import pytest

from logshipper.classify.series.line_reader import (
    LEAST_LINES,
    MARK,
    MAX_EXPRESSIONS,
    LineReader,
    expression_of,
)
from logshipper.classify.series.numbers import NUMBER
from logshipper.classify.series.shapes import shape_key

OUTPUTS = sorted((Path(__file__).parents[3] / "series").glob("**/*.txt.xz"))
NUMBERS = b"0 7 -7 +7 7. .7 7.5 -7.5e-3 1D+04 nan =nan inf 007 1e 1.2.3 1-2".split()
PIECES = [
    *NUMBERS,
    b"a",
    b"e",
    b"a-",
    b"-",
    b"+",
    b".",
    b"=",
    b": ",
    b" ",
    b"  ",
    b"\t",
    b"_",
    b"/",
    b"x1",
]


def same(line: bytes, other: bytes) -> bool:
    """Check a line by the expression of another; return whether the expression matches."""
    fullmatch = expression_of(other)
    match = fullmatch(line) if fullmatch is not None else None
    if match is None:
        return False
    assert shape_key(line) == shape_key(other), (line, other)
    assert list(match.groups()) == NUMBER.findall(line), (line, other)
    return True


def test_random_lines() -> None:
    dice = random.Random(1)
    matches = 0
    for _ in range(20_000):
        other = b"".join(dice.choices(PIECES, k=dice.randint(1, 8)))
        line = other
        for _ in range(3):
            line = re.sub(
                rb"[-+.0-9]+|\s+", lambda _: dice.choice(PIECES), line, count=dice.randint(0, 3)
            )
        matches += same(other, other) + same(line, other)
    assert matches > 5_000


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_lines_of_programs(path: Path) -> None:
    """Lines with the same key as one before match its expression, but for few."""
    expressions: dict[bytes, bytes] = {}
    with lzma.open(path) as file:
        lines = [line for line in file.read().splitlines() if len(line) < 400][:3_000]
    for line in lines:
        other = expressions.setdefault(shape_key(line), line)
        if other is not line:
            same(line, other)


def test_a_recurring_shape_is_read_by_its_expression() -> None:
    reader = LineReader()
    for step in range(LEAST_LINES):
        line = b"step %d  loss=%f" % (step, 1 / (step + 1))
        key, numbers = reader.read(line)
        assert numbers is None, "the caller searches"
        reader.count(key, line)
    assert reader.read(b"step 5 loss=-1e-3") == (b"step \1 loss=\1", (b"5", b"-1e-3"))
    assert reader.read(b"step 5 loss=nan") == (b"step \1 loss=\1", None)
    assert reader.read(b"step 5 less=0.1") == (b"step \1 less=\1", None)
    assert reader.read(b"no number") == (b"", None)


def test_shapes_with_the_same_letters_have_expressions() -> None:
    reader = LineReader()
    for layer in (b"a1", b"a2"):
        for _ in range(LEAST_LINES):
            reader.count(b"layer %b loss=\1" % layer, b"layer %b loss=0.5" % layer)
    assert reader.read(b"layer a1 loss=0.7")[1] == (b"0.7",)
    assert reader.read(b"layer a2 loss=0.7")[1] == (b"0.7",)


def test_expressions_are_limited() -> None:
    reader = LineReader()
    for shape in range(3 * MAX_EXPRESSIONS):
        line = b"%b loss=0.5" % (b"x" * shape)
        for _ in range(LEAST_LINES):
            reader.count(shape_key(line), line)
    count = sum(
        reader.read(b"%b loss=0.5" % (b"x" * shape))[1] is not None
        for shape in range(3 * MAX_EXPRESSIONS)
    )
    assert 0 < count <= MAX_EXPRESSIONS


def test_a_mark_in_the_text_has_no_expression() -> None:
    assert expression_of(b"a" + MARK + b" 5") is None
