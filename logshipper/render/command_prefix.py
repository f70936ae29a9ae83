"""How a line that may be a command (R14, R15) is seen while it is drawn: by its first word,
anywhere. Pure."""

from logshipper.late_pattern import late_pattern

PREFIX = b"/LOGCOMMAND"
_NAME = PREFIX[1:]
# no path, no other name
ANY_CASE = late_pattern(rb"/(?:%s(?![_/.])|(?i:%s)(?![\w/.-]))" % (_NAME, _NAME))
_LETTERS = ((b"g", b"G"), (b"m", b"M"), (b"c", b"C"), (b"d", b"D"), (b"n", b"N"))
AMID_LINE = "…".encode()  # stands for the parts of a line that are gone
MAX_BYTES = 64 << 10


def find(text: bytes | bytearray) -> int:
    """Where text may have its first command, in any case; -1: nowhere."""
    # a search for one byte takes a twentieth of the expression's time, and many texts lack a letter
    if b"/" not in text or not all(lower in text or upper in text for lower, upper in _LETTERS):
        return -1
    match = ANY_CASE.search(text)
    return match.start() if match is not None else -1


def size_of_half(text: bytes) -> int:
    """How many bytes at the end of text may be the begin of a command."""
    begin = find(text)
    if begin >= 0:
        return len(text) - begin
    end = text[-len(PREFIX) :].upper()
    return next((size for size in range(len(PREFIX), 0, -1) if end.endswith(PREFIX[:size])), 0)
