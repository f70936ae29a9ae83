"""Searches match like Python's own `re`, line by line, and take linear time."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logshipper_observe.search.line_search import ExpressionRefusal, LineSearch

ATOMS = ["a", "b", "A", ".", r"\d", r"\W", r"\b", r"\s", "^", "$", "[ab]", "[^a]", "[A-C1]", r"[^\w]", " ", "(?i:a)",
         "é", "ß", "İ"]  # fmt: skip
REPEATS = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"]
PARTS = st.tuples(st.sampled_from(ATOMS), st.sampled_from(REPEATS)).map("".join)
BRANCHES = st.lists(PARTS, min_size=1, max_size=4).map("".join)
PATTERNS = st.lists(BRANCHES, min_size=1, max_size=3).map("|".join)
LINES = st.text("aAbB1 .é", max_size=12)


def is_valid(pattern: str) -> bool:
    """Python repeats no place such as `^`."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def lines_of(search: LineSearch, lines: list[str]) -> list[str]:
    text = "\n".join(lines).encode()
    found = [(number, text[begin:end].decode()) for number, begin, end in search.lines_in(text)]
    assert found == [(number, lines[number]) for number, _ in found]
    return [line for _, line in found]


@given(PATTERNS.filter(is_valid), st.lists(LINES, min_size=1), st.booleans(), st.booleans())
@example("b*a$|^1", ["bba", "", "a1", "1"], False, False)
@example("[^a]", ["A", "", ""], False, False)
def test_lines_match_as_with_re(
    pattern: str, lines: list[str], ignore_case: bool, invert: bool
) -> None:
    # with re.ASCII only ASCII letters have cases; RE2 ignores the case of all letters
    if ignore_case and not (pattern + "".join(lines)).isascii():
        return
    peer = re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    search = LineSearch([pattern], ignore_case=ignore_case, invert=invert)
    selected = [line for line in lines if (peer.search(line) is not None) is not invert]
    assert lines_of(search, lines) == selected
    assert [line for line in lines if search.has(line)] == selected
    if not invert and not re.search(r"[\^$]|\\b", pattern):  # these depend on the text around it
        for line in lines:
            assert all(peer.fullmatch(line, begin, end) for begin, end in search.spans(line))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(?:a|aa)+$|b" * 3, "(x+x+)+y", "(.*){20}z"])
def test_time_is_linear_whatever_the_expression_is(pattern: str) -> None:
    """A matcher that backtracks would take for ever here."""
    assert not LineSearch([pattern]).has("ax" * 20_000 + "!")


def test_texts_and_words() -> None:
    lines = ["a.b", "aXb", "nan", "banana", "a+b (x)", ""]
    assert lines_of(LineSearch(["a.b"], fixed=True), lines) == ["a.b"]
    assert lines_of(LineSearch(["A.B"], fixed=True, ignore_case=True), lines) == ["a.b"]
    assert lines_of(LineSearch(["+b (", "nan"], fixed=True), lines) == ["nan", "banana", "a+b (x)"]
    assert lines_of(LineSearch(["nan"], words=True), lines) == ["nan"]
    assert lines_of(LineSearch(["nan"]), lines) == ["nan", "banana"]
    assert lines_of(LineSearch([""]), lines) == lines
    assert lines_of(LineSearch(["\udcff"]), ["\ufffd", "?"]) == ["\ufffd"], "not UTF-8"


def test_no_match_goes_beyond_its_line() -> None:
    for pattern in (r"a\sb", "a[^x]b", "(?s)a.b", "a\nb"):
        assert lines_of(LineSearch([pattern]), ["a", "b"]) == [], pattern
    assert lines_of(LineSearch([r"\Ab\z"]), ["a", "b"]) == ["b"], "a line is a text"
    assert lines_of(LineSearch([r"\\A"]), ["A", r"x\A"]) == [r"x\A"]


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{2000}", "[b"])
def test_an_invalid_expression_is_refused(pattern: str) -> None:
    with pytest.raises(ExpressionRefusal, match="isn't a regular expression of RE2") as error:
        LineSearch([pattern])
    assert repr(pattern) in str(error.value)
    LineSearch([pattern], fixed=True)


def test_places() -> None:
    def spans(pattern: str, line: str) -> list[tuple[int, int]]:
        return LineSearch([pattern], ignore_case=True).spans(line)

    assert spans(r"\d+", "step 12 of 300") == [(5, 7), (11, 14)]
    assert spans("error|err", "an ERROR, an err") == [(3, 8), (13, 16)]
    assert spans("a*", "baab") == [(1, 3)]
    assert spans("^a", "aa") == [(0, 1)]
    assert spans("x", "größe x \ud800x") == [(6, 7), (9, 10)]
