"""Plain text by the chunk: lines without cursor movement look the same on a terminal. Pure.

Each step is one primitive over the whole chunk (docs/rendering.md has their costs), with no work
per line.
"""

from codecs import utf_8_decode

from logshipper.late_pattern import late_pattern
from logshipper.render.cell_width import shows_as_it_is

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

_PRINTABLE = bytes([*range(0x20, 0x7F), *range(0x80, 0x100), 0x0A])
_CONTROLS = [bytes([code]) for code in range(0x80) if code not in _PRINTABLE]
# SGR; "ASCII characters", the usual content
_COLOUR = late_pattern(rb"\x1b(?:\[[0-9;:]*m|\(B)")
_COLOUR_OR_ERASE = late_pattern(rb"\x1b(?:\[[0-9;:]*m|\(B|\[0?K)")
# to the right, where nothing is: compilers send it with colours
_ERASE = late_pattern(rb"(?<!\r)\x1b\[0?K")
_CUT_OFF = late_pattern(rb"\x1b(?:\[[0-9;:]{0,64}|\()?\Z")
_UNFINISHED = late_pattern(rb"\x1b[\[(]?[0-9;:]*\x1b")  # without the second one it might be whole
# moves the cursor, erases or sets a mode: looked for at the begin, so that little is done in vain
_MOVE = late_pattern(rb"\x1b\[[0-9;?]*[A-JLMPSTXdfhlr]")
_BEGIN_BYTES = 1024
_MAX_REST = 256  # bytes
_FEW_COLOURS = 16
_CONTROL = late_pattern(rb"[\x00-\x09\x0b-\x1f\x7f]")


def plain_text(data: bytes, columns: int, open_line: bytearray) -> tuple[bytes, bytes] | None:
    """Return printable text and line feeds that look the same as data, at the end of an unfinished
    line.

    columns: the terminal's width; open_line: the text of that line. Returns the text, valid UTF-8,
    and the rest of data that needs the following bytes (CR, half a character, half a sequence);
    None if data is more than plain text.
    """
    rest = b""
    if b"\x1b" in data and _MOVE.search(data, 0, _BEGIN_BYTES) is not None:
        return None
    if not data.isascii():
        try:
            text, size = utf_8_decode(data, "strict", False)
            valid = True
        except UnicodeDecodeError:
            text, size = utf_8_decode(data, "replace", False)
            valid = False
        if not shows_as_it_is(text):
            return None
        rest = data[size:]
        data = data[:size] if valid else text.encode()
    # 32 searches cost less than one look at each byte
    if True not in map(data.__contains__, _CONTROLS):
        return data, rest
    controls = data.translate(None, _PRINTABLE)
    if b"\x1b" in controls:
        cut_off = _CUT_OFF.match(data, data.rfind(b"\x1b"))
        if cut_off is not None:
            data, rest = data[: cut_off.start()], cut_off[0] + rest
        sequence = _COLOUR if b"\r" in controls else _COLOUR_OR_ERASE
        reduced = _without_few(sequence, data)
        if reduced is None:
            if _UNFINISHED.search(data) is not None:
                return None
            reduced = sequence.sub(b"", data)
        data = _ERASE.sub(b"", reduced) if b"\x1b" in reduced else reduced
    if b"\r" in controls:
        line = data.rstrip(b"\r")
        data, rest = line, data[len(line) :] + rest
        data = data.replace(b"\r\n", b"\n")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
    if len(rest) > _MAX_REST:
        return None
    controls = data.translate(None, _PRINTABLE)
    if not controls:
        return data, rest
    if controls.strip(b"\t"):
        return None
    return _without_tabs(data, rest, columns, open_line)


def _without_few(sequence: "re.Pattern[bytes]", data: bytes) -> bytes | None:
    """Remove a log's few colours, one pass for each; None if ESC begins anything else.

    So no sequence is incomplete.
    """
    escape_count = data.count(b"\x1b")
    text = data
    for _ in range(_FEW_COLOURS):
        match = sequence.match(text, text.find(b"\x1b"))
        if match is None:
            return None
        escape_count -= data.count(match[0])
        text = text.replace(match[0], b"")
        if not escape_count:
            return text
    return None


def _without_tabs(
    data: bytes, rest: bytes, columns: int, open_line: bytearray
) -> tuple[bytes, bytes] | None:
    if len(open_line) >= columns or not (data.isascii() and open_line.isascii()):
        return None
    expanded = (bytes(open_line) + data).expandtabs(8)
    if max(map(len, expanded.split(b"\n"))) >= columns:
        return None
    return expanded[len(open_line) :], rest


def plain_lines(data: bytes) -> int:
    """Size of the lines that data begins with and that have no control characters."""
    control = _CONTROL.search(data)
    return data.rfind(b"\n", 0, control.start() if control is not None else len(data)) + 1


def ends_with_text(data: bytes) -> bool:
    """Return whether plain data ends with a drawn character, not with a control function."""
    if data[-1:] < b" ":
        return False
    escape = data.rfind(b"\x1b")
    return escape < 0 or not any(
        match is not None and match.end() == len(data)
        for match in (_COLOUR.match(data, escape), _ERASE.match(data, escape))
    )
