"""Line expressions match like Python's own `re`, if that has enough time."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logshipper_observe.page.log import line_expression
from logshipper_observe.page.log.line_expression import (
    MAX_MATCHED,
    ExpressionRefusal,
    LineExpression,
)

ATOMS = ["a", "b", "A", ".", r"\d", r"\W", r"\b", r"\B", "^", "$", "[ab]", "[^a]", "[A-C1]", r"[^\w]", " ", "(?i:a)",
         "é", "ß", "İ"]  # fmt: skip
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"]
PARTS = st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPEATS)).map("".join)
BRANCHES = st.lists(PARTS, min_size=1, max_size=4).map("".join)
PATTERNS = st.lists(BRANCHES, min_size=1, max_size=3).map("|".join)
LINES = st.text("aAbB1 .é", max_size=12)


def accepted(pattern: str) -> bool:
    try:
        LineExpression(pattern, exact=True)
    except ExpressionRefusal:
        return False
    return True


@given(PATTERNS.filter(accepted), st.lists(LINES, min_size=1), st.booleans())
@example("b*a$|^1", ["bba", "", "a1", "1"], False)
@example("[^a]", ["A"], False)
def test_lines_match_as_with_re(pattern: str, lines: list[str], exact: bool) -> None:
    expression = LineExpression(pattern, exact=exact)
    # with re.ASCII only ASCII letters have cases; our expressions ignore the case of all letters,
    # like the search for texts
    flags = re.ASCII if exact else re.IGNORECASE | re.ASCII
    if not exact and not pattern.isascii():
        return
    peer = re.compile(pattern, flags)
    for line in lines:
        if not line and r"\B" in pattern:  # Python 3.14 changed the result of these
            continue
        if not exact and not line.isascii():
            continue
        assert expression.search(line) == (peer.search(line) is not None), line
        spans = list(expression.spans(line, time.monotonic() + 60))
        if not re.search(r"[\^$]|\\[bB]", pattern):  # these depend on the text around the span
            assert all(peer.fullmatch(line, begin, end) for begin, end in spans)


def test_states_are_forgotten_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_expression, "MAX_STEPS", 3)
    expression = LineExpression("c[ab]*d$", exact=True)
    for _ in range(3):
        assert expression.search("xxcababd")
        assert not expression.search("xxcababde")
        assert len(expression._states) <= 5


@pytest.mark.parametrize(
    "pattern", [".*" * 20 + "x", "a.{0,20}b.{0,20}c.{0,20}d.{0,20}$", "[ab].{400}z"]
)
def test_time_is_linear_whatever_the_expression_is(pattern: str) -> None:
    """Count steps instead of seconds: matching looks at each character of a line once."""
    expression = LineExpression(pattern, exact=True)
    steps = 0
    make_step = expression.step

    def count(*values: object) -> object:
        nonlocal steps
        steps += 1
        return make_step(*values)  # type: ignore[arg-type]

    expression.step = count  # type: ignore[method-assign, assignment]
    assert not expression.search("abc" * 1000)
    assert steps <= 3000


def test_the_begin_of_a_long_line_is_matched() -> None:
    expression = LineExpression("x$", exact=True)
    assert expression.search("a" * (MAX_MATCHED - 1) + "xyz")
    assert not expression.search("a" * MAX_MATCHED + "x")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(", "is no regular expression: missing )"),
        ("(a+)+b", "repeats what is itself repeated"),
        ("(?=a)", "looking ahead"),
        (r"(a)\1", "references to groups"),
        ("a{600}", "use smaller numbers in {}"),
        ("(?:a{100}){100}", "use smaller numbers in {}"),
        ("a" * 301, "over 300 characters"),
        ("a?" * 21, "has 21 repeats"),
    ],
)
def test_what_is_refused_and_why(pattern: str, words: str) -> None:
    with pytest.raises(ExpressionRefusal, match=re.escape(words)):
        LineExpression(pattern, exact=True)


def test_empty_repeats_end() -> None:
    assert LineExpression("(?:){4000000000}a", exact=True).search("a")


def test_places() -> None:
    def spans(pattern: str, line: str, exact: bool = False) -> list[tuple[int, int]]:
        return list(LineExpression(pattern, exact=exact).spans(line, time.monotonic() + 60))

    assert spans(r"\d+", "step 12 of 300") == [(5, 7), (11, 14)]
    assert spans("error|err", "an ERROR, an err") == [(3, 8), (13, 16)]
    assert spans("a*", "baab") == [(1, 3)]
    assert spans("^a", "aa") == [(0, 1)]
    assert list(LineExpression("a", exact=True).spans("a", time.monotonic() - 1)) == []
