"""The note that replaces repeats of a line, and quotes it. Pure."""

from collections.abc import Mapping

from logshipper.late_pattern import late_pattern
from logshipper.spool.segment import MAX_LINE_BYTES

NOTE_BEGIN = b"[repeated "
_MAX_QUOTE_BYTES = MAX_LINE_BYTES - 64  # keeps the note within the limit of a line
_NOTE = late_pattern(r"(?s)\[repeated [0-9]+ times: (.*)\]")


def repeat_note(line: bytes, times: int) -> bytes:
    """Return the note. line: without its LF; times: number of repeats after the first line."""
    quote = line[:_MAX_QUOTE_BYTES].decode(errors="ignore").encode()
    return b"[repeated %d times: %s]" % (times, quote)


def printed_line(text: str, attrs: Mapping[str, object]) -> str:
    """Return the line quoted by a note of repeats, or any other line unchanged."""
    note = _NOTE.fullmatch(text) if "repeat" in attrs else None
    return text if note is None else note[1]
