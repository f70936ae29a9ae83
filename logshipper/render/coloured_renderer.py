"""The renderer for `colors: keep`: its lines hold colours in normal form (colours.py). Pure.

Without their colours the lines equal those of `Renderer`, except the cuts of lines over
MAX_LINE_BYTES. Coloured text goes by the chunk if each character surely has the style in force at
its arrival. The screen handles the rest: tabs, joined characters, CR inside lines, commands.
"""

import re
from codecs import utf_8_decode

from logshipper.render import colours, command_prefix
from logshipper.render.cell_width import ZWJ, not_own_cells
from logshipper.render.coloured_screen import ColouredLine, ColouredScreen
from logshipper.render.escape_parser import EscapeParser
from logshipper.render.plain_text import plain_text
from logshipper.render.renderer import Renderer, Rendering, begin_of_last_lines, last_rows
from logshipper.spool.segment import MAX_LINE_BYTES

_PRINTABLE = bytes([*range(0x20, 0x7F), *range(0x80, 0x100), 0x0A])
_CUT_OFF = re.compile(rb"\x1b(?:\[[0-9;:]{0,64}|\()?\Z")
# "ASCII characters"; erasing to the right, where nothing is
_IGNORED = re.compile(rb"\x1b\(B|(?<!\r)\x1b\[0?K")
_MAX_REST = 256  # bytes
_ZWJ = ZWJ.encode()


def coloured_text(data: bytes, open_line: bytes) -> tuple[bytes, bytes] | None:
    """Return the result of plain_text, with SGR left in the text."""
    text, rest = data, b""
    if not data.isascii():
        decoded, size = utf_8_decode(data, "replace", False)
        if not_own_cells(decoded) is not None:
            return None
        text, rest = decoded.encode(), data[size:]
    cut_off = _CUT_OFF.match(text, text.rfind(b"\x1b")) if b"\x1b" in text else None
    if cut_off is not None:
        text, rest = text[: cut_off.start()], cut_off[0] + rest
    if b"\x1b(" in text or b"\x1b[K" in text or b"\x1b[0K" in text:
        text = _IGNORED.sub(b"", text)
    if b"\r" in text:
        line = text.rstrip(b"\r")
        text, rest = line, text[len(line) :] + rest
        text = text.replace(b"\r\n", b"\n").replace(b"\r\n", b"\n")
    plain = colours.SGR.sub(b"", text)
    if len(rest) > _MAX_REST or plain.translate(None, _PRINTABLE):
        return None
    border = open_line[-len(command_prefix.PREFIX) :] + plain[: len(command_prefix.PREFIX) + 1]
    return (text, rest) if max(map(command_prefix.find, (plain, border, open_line))) < 0 else None


class ColouredRenderer(Renderer):
    """See the module's docstring."""

    line_type = ColouredLine
    _screen: ColouredScreen
    _open: ColouredLine

    def _start_afresh(self, columns: int, rows: int) -> None:
        super()._start_afresh(columns, rows)
        self._pen = colours.PLAIN  # the plain tier's

    def _make_screen(self, columns: int, rows: int) -> None:
        self._screen = ColouredScreen(columns, rows, self._lines)
        self._parser = EscapeParser(self._screen, self._screen.select_style)

    def end_line(self, now: float) -> Rendering:
        is_coloured = not self._on_screen and b"\x1b" in self._open.text
        if is_coloured and command_prefix.find(self._open.plain()) >= 0:
            self._enter_screen()
        return super().end_line(now)

    def _plain_text(self, data: bytes, open_line: bytearray) -> tuple[bytes, bytes] | None:
        pen = self._screen.pen.style if self._on_screen else self._pen
        if pen == colours.PLAIN and b"\x1b" not in data and b"\x1b" not in open_line:
            return plain_text(data, self._screen.columns, open_line)
        if open_line.endswith(_ZWJ) or self._open.command:
            return None
        return coloured_text(data, colours.stripped(bytes(open_line)))

    def _feed_plain(self, data: bytes, text: bytes, rest: bytes) -> int:
        if self._pen == colours.PLAIN and b"\x1b" not in text and b"\x1b" not in self._open.text:
            return super()._feed_plain(data, text, rest)
        self._rest = rest
        self._last = data[: len(data) - len(rest)] or self._last
        lines_end = text.rfind(b"\n") + 1
        if lines_end:
            lines = colours.change(colours.PLAIN, self._pen) + text[:lines_end]
            if self._open.text or self._open.parts:
                lines = self._end_coloured(lines)
            lines, _, self._pen = colours.normalised(lines)
            self._give_out(lines, self._now)
        if lines_end < len(text):
            self._draw_open(colours.change(colours.PLAIN, self._pen) + text[lines_end:])
            self._pen = colours.style_of(text[lines_end:], self._pen)
        return len(data)

    def _end_coloured(self, lines: bytes) -> bytes:
        """End the open line with the first of lines; return the others, and the style in force
        then."""
        first = lines.index(b"\n")
        begin, pen = lines[:first], colours.style_of(lines[:first])
        line, style, _ = colours.normalised(begin, self._open.end_style)
        line += colours.change(style, colours.PLAIN)
        if self._open.parts or len(self._open.text) + len(line) > MAX_LINE_BYTES:
            self._draw_open(begin)
            self._keep(self._open.whole() + b"\n")
            self._open.end(self._lines, self._now)
        else:
            self._give_out(bytes(self._open.text) + line + b"\n", self._now)
            self._open = ColouredLine()
        return colours.change(colours.PLAIN, pen) + lines[first + 1 :]

    def _keep(self, lines: bytes) -> None:
        lines = lines[begin_of_last_lines(lines, self._screen.height) :]
        plain = colours.stripped(lines)
        size, count = last_rows(plain, self._screen.height)
        if size < len(plain):
            place = colours.place_of(lines, len(plain) - size)
            lines = colours.normalised(
                colours.change(colours.PLAIN, colours.style_of(lines[:place])) + lines[place:]
            )[0]
        self._remember(lines, count)

    def _enter_screen(self) -> None:
        super()._enter_screen()
        self._screen.pen.style = self._pen

    def _leave_screen(self) -> None:
        super()._leave_screen()
        self._pen = self._screen.pen.style
