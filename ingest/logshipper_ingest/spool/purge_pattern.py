"""The pattern of purged lines, which Python's `re` (for files) and RE2 (for Loki) must read alike.
Pure.

Syntax that differs between them, or that RE2 lacks, is refused: else a purge would remove a line from
one place and keep it in another.
"""

import re
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

from logshipper.errors import ConfigError
from logshipper_ingest.servers.logql import quoted
from logshipper_ingest.spool.text_forms import forms

MAX_PATTERN_CHARS = 1000
_FLAGS = re.compile(r"\(\?([a-zA-Z]{0,9})-?([a-zA-Z]{0,9})[:)]")
_ODD = (
    (re.compile(r"(?<!\\)(?:\\\\)*\\[ZuUN]"), "an escape that RE2 lacks (\\Z, \\u, \\U, \\N)"),
    (re.compile(r"\[\[?[:.=]"), "a class such as [[:alpha:]], which Python reads differently"),
    (re.compile(r"\{,[0-9]"), "{,n}, which RE2 takes for text: write {0,n}"),
    (re.compile(r"\(\?#"), "a comment"),
)
_NOT_IN_RE2 = {
    "ASSERT": "a look-ahead or look-behind",
    "ASSERT_NOT": "a look-ahead or look-behind",
    "GROUPREF": "a reference to a group",
    "GROUPREF_EXISTS": "a reference to a group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive quantifier",
}


class LinePattern(NamedTuple):
    """The pattern of purged lines."""

    python: "re.Pattern[str]"  # searched for in each form of a line
    logql: str  # Loki's filter, which only sees the stored form of a line; "" for all lines
    is_anchored: bool = False  # a match depends on the text around it

    @property
    def without(self) -> str:
        """Loki's filter of lines whose stored form does not match."""
        return f" !{self.logql[2:]}"

    def has(self, line: bytes | str) -> bool:
        """Whether a line matches; masked lines never do."""
        text = line if isinstance(line, str) else line.decode("utf-8", "replace")
        return bool(text.strip("*")) and any(map(self.python.search, forms(text)))


EVERY_LINE = LinePattern(re.compile(""), "")


def pattern_of(grep: str | None, fixed: str | None) -> LinePattern:
    """Return the pattern of `--grep RE` or `--fixed TEXT`, else EVERY_LINE. Raises ConfigError."""
    if grep is None and fixed is None:
        return EVERY_LINE
    option, text = ("--grep", grep) if grep is not None else ("--fixed", fixed or "")
    problems = _problems(text)
    if not problems and grep is not None:
        problems = _regex_problems(grep)
    if problems:
        raise ConfigError(option, problems)
    if grep is None:
        return LinePattern(re.compile(re.escape(text)), f" |= {quoted(text)}")
    return LinePattern(
        re.compile(grep, re.ASCII), f" |~ {quoted(grep)}", is_anchored="AT" in _names(grep)
    )


def _problems(text: str) -> list[str]:
    if not text:
        return ["is empty: leave it out to purge the whole job"]
    if len(text) > MAX_PATTERN_CHARS:
        return [f"is longer than {MAX_PATTERN_CHARS} characters"]
    if not text.isprintable():
        return [
            "has unprintable characters, which no line has: leave them out, or put `.` in their place"
        ]
    return []


def _regex_problems(text: str) -> list[str]:
    odd = [words for pattern, words in _ODD if pattern.search(text)]
    flags = "".join(on + off for on, off in _FLAGS.findall(text))
    if set(flags) - set("ims"):
        odd.append("flags other than i, m, s")
    if "i" in flags and not text.isascii():
        odd.append("(?i) with letters that aren't ASCII")
    if odd:
        return [f"has {words}" for words in odd]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled = re.compile(text, re.ASCII)
            parts = _names(text)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        return [f"isn't a regular expression: {error}"]
    odd = sorted({_NOT_IN_RE2[part] for part in parts if part in _NOT_IN_RE2})
    if odd:
        return [f"has {words}, which RE2 (Loki's dialect) lacks" for words in odd]
    if compiled.search(""):
        return ["matches every line: leave it out to purge the whole job"]
    return []


def _names(text: str) -> set[str]:
    """Return the names of all elements of a regular expression."""
    return set(_parts(re._parser.parse(text, re.ASCII)))  # type: ignore[attr-defined]  # no other way in


def _parts(parsed: Any) -> Iterable[str]:  # Any: Python's own syntax tree, which has no types
    if isinstance(parsed, (tuple, list)) or hasattr(parsed, "data"):
        for part in parsed:
            yield from _parts(part)
    elif hasattr(parsed, "name"):
        yield parsed.name
