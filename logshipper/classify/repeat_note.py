"""The note that stands for repeats of a line, and quotes it. Pure."""

from collections.abc import Mapping

from logshipper.late_pattern import late_pattern
from logshipper.spool.segment import MAX_LINE_BYTES

NOTE_BEGIN = b"[repeated "
_MAX_QUOTE_BYTES = MAX_LINE_BYTES - 64  # with all of a longer one the note would be no line
_NOTE = late_pattern(r"(?s)\[repeated [0-9]+ times: (.*)\]")


def repeat_note(line: bytes, times: int) -> bytes:
    """line: without its LF; times: how often it came again."""
    quote = line[:_MAX_QUOTE_BYTES].decode(errors="ignore").encode()
    return b"[repeated %d times: %s]" % (times, quote)


def printed_line(text: str, attrs: Mapping[str, object]) -> str:
    """The line that a note of repeats stands for; any other line itself. attrs: of the line."""
    note = _NOTE.fullmatch(text) if "repeat" in attrs else None
    return text if note is None else note[1]
