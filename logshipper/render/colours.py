"""Colours in a log's text (`colors: keep`): SGR sequences in one normal form, around runs of
characters. Pure.

Normal form: each line begins and ends without colours, so that it can stand alone. A sequence
before a character changes the style of the one before to its own, and no sequence is without
effect. So the text depends only on the characters and their styles. Blinking, hiding and fonts are
dropped.
"""

import re
from functools import lru_cache
from typing import NamedTuple

MAX_PARAMETERS = 256  # characters of a sequence; a longer one is ignored

RESET = b"\x1b[0m"
SGR = re.compile(rb"\x1b\[([0-9;:]*+)m")
SEQUENCES = re.compile("(\x1b\\[[0-9;]{0,64}m)")  # as they are in normal form

_BOLD, _DIM, _ITALIC, _UNDERLINE, _REVERSE, _STRUCK, _OVERLINE = (1 << bit for bit in range(7))
_ON = {1: _BOLD, 2: _DIM, 3: _ITALIC, 4: _UNDERLINE, 7: _REVERSE, 9: _STRUCK, 53: _OVERLINE}
_CODES = {bit: str(code) for code, bit in _ON.items()}
_ON[21] = _UNDERLINE  # a double one
_OFF = {22: _BOLD | _DIM, 23: _ITALIC, 24: _UNDERLINE, 27: _REVERSE, 29: _STRUCK, 55: _OVERLINE}


class Style(NamedTuple):
    """attributes: bits; foreground, background: the parameters that set them, "" for the terminal's
    own."""

    attributes: int = 0
    foreground: str = ""
    background: str = ""


PLAIN = Style()


@lru_cache(maxsize=4096)
def styled(style: Style, parameters: str) -> Style:
    """Return the style after an SGR sequence with these parameters; unknown ones change nothing."""
    words = parameters.split(";") if len(parameters) <= MAX_PARAMETERS else []
    at = 0
    while at < len(words):
        code, *more = [int(number[:5] or 0) for number in words[at].split(":")]
        at += 1
        if code not in (38, 48, 58):
            style = _with(style, code, more)
            continue
        if not more:  # the common form, by semicolons: as many words as the kind of colour takes
            word_count = {"5": 2, "2": 4}.get(words[at].lstrip("0") if at < len(words) else "", 1)
            more = [int(word[:5]) if word.isdigit() else 0 for word in words[at : at + word_count]]
            at += word_count
        elif more[0] == 2 and len(more) > 4:
            del more[1]  # the colour space
        colour = _colour(more)
        if colour and code == 38:
            style = style._replace(foreground=f"38;{colour}")
        elif colour and code == 48:
            style = style._replace(background=f"48;{colour}")
    return style


def _colour(numbers: list[int]) -> str:
    """Return one of 256 colours, or red, green and blue; "" for other numbers."""
    kind, *values = numbers or [0]
    count = {5: 1, 2: 3}.get(kind, 0)
    if not count or len(values) < count or max(values[:count]) > 255:
        return ""
    return ";".join(map(str, [kind, *values[:count]]))


def _with(style: Style, code: int, more: list[int]) -> Style:
    if code == 0:
        return PLAIN
    if code == 4 and more[:1] == [0]:
        code = 24
    if code in _ON:
        return style._replace(attributes=style.attributes | _ON[code])
    if code in _OFF:
        return style._replace(attributes=style.attributes & ~_OFF[code])
    if 30 <= code <= 37 or 90 <= code <= 97:
        return style._replace(foreground=str(code))
    if 40 <= code <= 47 or 100 <= code <= 107:
        return style._replace(background=str(code))
    if code == 39:
        return style._replace(foreground="")
    return style._replace(background="") if code == 49 else style


@lru_cache(maxsize=4096)
def change(before: Style, after: Style) -> bytes:
    """The sequence, if any, that a character in one style needs after one in another."""
    if before == after:
        return b""
    if after == PLAIN:
        return RESET
    attributes, foreground, background = after
    words = []
    if (
        before.attributes & ~attributes
        or (before.foreground and not foreground)
        or (before.background and not background)
    ):
        words.append("0")
        before = PLAIN
    words += [code for bit, code in _CODES.items() if attributes & ~before.attributes & bit]
    if foreground != before.foreground:
        words.append(foreground)
    if background != before.background:
        words.append(background)
    return f"\x1b[{';'.join(words)}m".encode()


def normalised(text: bytes, last_style: Style = PLAIN) -> tuple[bytes, Style, Style]:
    """Return a text in normal form.

    text: lines without control functions besides SGR, beginning without colours; last_style: the
    style of the line that it continues. Returns the text, whose last line may stay coloured; its
    style; and the style of further drawing.
    """
    pieces = SGR.split(text)
    out: list[bytes] = []
    pen = PLAIN
    for at in range(0, len(pieces), 2):
        if at:
            pen = styled(pen, pieces[at - 1].decode())
        piece = pieces[at]
        if not piece:
            continue
        if pen is PLAIN and last_style is PLAIN:
            out.append(piece)
            continue
        first, *rest_lines = piece.split(b"\n")
        if first:
            out += (change(last_style, pen), first)
            last_style = pen
        for line in rest_lines:
            out.append(b"\n" if last_style == PLAIN else RESET + b"\n")
            last_style = PLAIN
            if line:
                out += (change(PLAIN, pen), line)
                last_style = pen
    return b"".join(out), last_style, pen


def stripped(text: bytes) -> bytes:
    """Text in normal form without its colours."""
    return SGR.sub(b"", text) if b"\x1b" in text else text


def is_open(text: bytes) -> bool:
    """Return whether a piece of a line, in normal form, leaves colours on."""
    last = text.rfind(b"\x1b")
    return last >= 0 and not text.startswith(RESET, last)


def style_of(text: bytes, style: Style = PLAIN) -> Style:
    """The style after a text. style: before it."""
    for match in SGR.finditer(text, max(text.rfind(RESET), 0)):
        style = styled(style, match[1].decode())
    return style


def place_of(text: bytes, size: int) -> int:
    """Return the place after `size` bytes of the text without its colours; a sequence may follow."""
    for match in SGR.finditer(text):
        if match.start() >= size:
            break
        size += len(match[0])
    return size


def beginning(line: bytes, size: int) -> bytes:
    """A line's first bytes, counted without colours, in normal form."""
    head = line[: place_of(line, size)]
    return head + RESET if is_open(head) else head
