"""The sought lines: texts or regular expressions, matched in time linear in the text (RE2)."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from logshipper.errors import UsageError
from logshipper.spool.segment import Stream

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

COLOURS = re.compile(rb"\x1b\[[0-9;]{0,64}m")
_SURROGATES = re.compile("[\ud800-\udfff]")  # RE2 takes UTF-8, which has none
_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ENDS = {"A": "^", "Z": "$", "z": "$"}  # those of a text: here each line is one


class ExpressionRefusal(UsageError):
    """An invalid expression."""

    def __init__(self, given: str, reason: str) -> None:
        words = f"{given} isn't a regular expression of RE2: {reason}"
        super().__init__("PATTERN", [f"{words}; escape it by \\, or search for it as a text (-F)"])


class LineMatch(NamedTuple):
    """A matching line, or one around it."""

    job: "JobSummary"
    number: int  # in the job's log, from 1; 0 in Loki, which has no numbers
    time_ns: int
    stream: Stream
    text: str  # without colours
    printed: int = 1  # number of times: a note stands for several
    is_match: bool = True


class JobMatches(NamedTuple):
    """A searched job, with its matches in order, to be read once."""

    job: "JobSummary"
    matches: Iterator[LineMatch]


class LineSearch:
    """The sought lines, in the selected streams.

    patterns: a line matches if one of them does; fixed: they are texts; words: a match is between
    the ends of words; invert: selects all other lines; limit: the most matches of a job; before,
    after: number of lines around each match. Raises ExpressionRefusal.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        fixed: bool = False,
        ignore_case: bool = False,
        words: bool = False,
        invert: bool = False,
        streams: Collection[Stream] = (Stream.STDOUT, Stream.STDERR),
        limit: int | None = None,
        before: int = 0,
        after: int = 0,
    ) -> None:
        import re2  # late: few commands search

        self.invert = invert
        self.streams = frozenset((*streams, Stream.NONE))
        self.limit = limit
        self.before = before
        self.after = after
        self.ignore_case = ignore_case
        patterns = [_SURROGATES.sub("\ufffd", text) for text in patterns]
        is_text = len(patterns) == 1 and "\n" not in patterns[0]
        is_text = is_text and (fixed or not _META.search(patterns[0]))
        # without an expression: its search is the fastest
        self._needle = patterns[0].encode() if is_text and not ignore_case and not words else b""
        parts = [re2.escape(text) if fixed else _of_line(text) for text in patterns]
        self.expression = "|".join(f"(?:{part})" for part in parts)
        if words:
            self.expression = rf"\b(?:{self.expression})\b"
        options = re2.Options()
        options.log_errors = False
        options.never_nl = True  # a class such as [^a] stays within its line
        options.never_capture = True
        options.case_sensitive = not ignore_case
        try:
            for part in parts:
                re2.compile(part, options)  # each alone: `a)(b` is invalid
            self._regexp = re2.compile(f"(?m){self.expression}", options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
            raise ExpressionRefusal(" or ".join(map(repr, patterns)), reason) from None

    def lines_in(self, text: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield the number, from 0, the begin and the end of each selected line. text: lines, with an
        LF between them."""
        if self.invert:
            yield from self._others_in(text)
            return
        number = counted = 0
        for begin, end in self._spans_in(text):
            number += text.count(b"\n", counted, begin)
            counted = begin
            yield number, begin, end

    def _spans_in(self, text: bytes) -> Iterator[tuple[int, int]]:
        at = 0
        while at <= len(text):
            if self._needle:
                begin = text.find(self._needle, at)
            else:
                match = self._regexp.search(text, at)
                begin = -1 if match is None else match.start()
            if begin < 0:
                return
            end = text.find(b"\n", begin)
            end = len(text) if end < 0 else end
            yield text.rfind(b"\n", 0, begin) + 1, end
            at = end + 1

    def _others_in(self, text: bytes) -> Iterator[tuple[int, int, int]]:
        matching = {begin for begin, _ in self._spans_in(text)}
        begin = 0
        for number, line in enumerate(text.split(b"\n")):
            end = begin + len(line)
            if begin not in matching:
                yield number, begin, end
            begin = end + 1

    def has(self, line: str) -> bool:
        """Return whether a line is selected."""
        found = self._regexp.search(_SURROGATES.sub("\ufffd", line).encode())
        return (found is not None) is not self.invert

    def spans(self, line: str) -> list[tuple[int, int]]:
        """Return the non-empty matches within a line, in characters."""
        text = _SURROGATES.sub("\ufffd", line)
        found = [] if self.invert else [match.span() for match in self._regexp.finditer(text)]
        return [span for span in found if span[1] > span[0]]


def _of_line(expression: str) -> str:
    """Let the ends of a text stand for those of a line."""
    return _ESCAPE.sub(lambda escape: _ENDS.get(escape[1], escape[0]), expression)
