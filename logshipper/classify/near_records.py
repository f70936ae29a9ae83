"""Hints for near misses: JSON objects that are no records, because other text stands on their line
or because they are on standard error. Pure; a line costs some microseconds, so callers check few."""

import json

from logshipper.classify.metadata import MAX_DEPTH, Hint
from logshipper.late_pattern import late_pattern
from logshipper.render import command_prefix
from logshipper.spool.segment import Stream

OBJECT_BEGIN = b'{"'
MAX_BYTES = 1 << 14  # longer lines get no hint
QUOTED_BYTES = 200  # of a line, in its hint

_NUMBER = late_pattern(r":[ \t]*(?:-?[0-9]|NaN|-?Infinity)")
_RULE = (
    "logshipper takes a line of stdout as a record only if it is one JSON object and nothing else."
)
BEFORE_HINT = Hint(
    "text_before",
    f"Text or blanks stand before a JSON object. {_RULE} Print the object on a line of its own.",
)
AFTER_HINT = Hint(
    "text_after",
    f"Text or blanks stand behind a JSON object. {_RULE} Print the object on a line of its own.",
)
STDERR_HINT = Hint(
    "stderr",
    f"A JSON object stands on stderr. {_RULE} Print it on stdout; Python's logging writes to stderr.",
)
REASONS = frozenset(hint.reason for hint in (BEFORE_HINT, AFTER_HINT, STDERR_HINT))
_DECODER = json.JSONDecoder(parse_int=len)  # accepts any number of digits


def hint_at(line: bytes, stream: Stream) -> Hint | None:
    """Return the reason why a rendered line with a JSON object of numbers is no record; None for
    records and for lines without such an object."""
    begin = line.find(OBJECT_BEGIN)
    if begin < 0 or len(line) > MAX_BYTES or line.count(b"{") + line.count(b"[") > MAX_DEPTH:
        return None
    if command_prefix.find(line) >= 0:
        return None  # commands have their own events, and may contain a token
    is_stdout = stream is Stream.STDOUT
    if is_stdout and not begin and line.endswith(b"}"):
        return None  # a record, or no object at all
    text = line[begin:].decode("utf-8", "replace")
    try:
        _, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if not _NUMBER.search(text, 0, end):
        return None
    if not is_stdout:
        return STDERR_HINT
    return BEFORE_HINT if begin else AFTER_HINT


def quoted(hint: Hint, line: bytes) -> str:
    """Return the hint's text with a quote of the line."""
    text = line.decode("utf-8", "replace")
    short = line[:QUOTED_BYTES].decode("utf-8", "ignore")
    return f"{hint.text} The line: {text if len(short) == len(text) else short + '…'}"
