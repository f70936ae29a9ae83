"""Detects lines that may be commands (R14, R15) during their drawing, by their first word anywhere
in the line. Pure."""

from logshipper.late_pattern import late_pattern

PREFIX = b"/LOGCOMMAND"
_NAME = PREFIX[1:]
# no path, no other name
ANY_CASE = late_pattern(rb"/(?:%s(?![_/.])|(?i:%s)(?![\w/.-]))" % (_NAME, _NAME))
_LETTERS = ((b"g", b"G"), (b"m", b"M"), (b"c", b"C"), (b"d", b"D"), (b"n", b"N"))
AMID_LINE = "…".encode()  # replaces missing parts of a line
MAX_BYTES = 64 << 10


def find(text: bytes | bytearray) -> int:
    """Return the first possible place of a command in text, in any case; -1 without one."""
    # a search for one byte takes a twentieth of the expression's time, and many texts lack a letter
    if b"/" not in text or not all(lower in text or upper in text for lower, upper in _LETTERS):
        return -1
    match = ANY_CASE.search(text)
    return match.start() if match is not None else -1


def size_of_half(text: bytes) -> int:
    """Return the number of bytes at the end of text that may begin a command."""
    begin = find(text)
    if begin >= 0:
        return len(text) - begin
    end = text[-len(PREFIX) :].upper()
    return next((size for size in range(len(PREFIX), 0, -1) if end.endswith(PREFIX[:size])), 0)
