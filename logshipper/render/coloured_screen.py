"""A screen whose cells have styles (`colors: keep`): SGR sets the style of drawing, and lines keep
it. Pure.

A row has one style for each cell; cells beyond the last one are plain. Erased, inserted and skipped
cells are plain, regardless of the background, as in tmux without `bce`.
"""

import re
from functools import partial
from itertools import groupby

from logshipper.render import colours
from logshipper.render.final_lines import FinalLines, LongLine
from logshipper.render.log_screen import LogScreen
from logshipper.render.row import Row
from logshipper.spool.segment import MAX_LINE_BYTES

_NUMBERS = re.compile("[0-9;:]*")
_BLANK = re.compile(rb"(?: |\x1b\[[0-9;]*m)*+\Z")


class Pen:
    """The style of drawing."""

    __slots__ = ("style",)

    def __init__(self) -> None:
        self.style = colours.PLAIN


class ColouredRow(Row):
    """styles: of the cells from the left edge; those that have none are plain."""

    __slots__ = ("_pen", "styles")

    def __init__(self, pen: Pen) -> None:
        super().__init__()
        self._pen = pen
        self.styles: list[colours.Style] = []

    def logged(self, text: str) -> str:
        if not self.styles:
            return text
        last_style = colours.PLAIN
        pieces: list[str] = []
        at = offset = 0
        for style, group in groupby(self.styles):
            begin, at = at, at + sum(1 for _ in group)
            piece = "".join(self.cells[begin:at])[: len(text) - offset]
            if piece:
                pieces += (colours.change(last_style, style).decode(), piece)
                offset += len(piece)
                last_style = style
        pieces += (colours.change(last_style, colours.PLAIN).decode(), text[offset:])
        return "".join(pieces)

    def put(self, x: int, text: str) -> None:
        super().put(x, text)
        self._paint(x, len(text), self._pen.style)

    def put_wide(self, x: int, text: str) -> None:
        super().put_wide(x, text)
        self._paint(x, 2 * len(text), self._pen.style)

    def put_blanks(self, x: int, count: int) -> None:
        super().put(x, " " * count)
        self._paint(x, count, colours.PLAIN)

    def erase(self, begin: int, end: int, columns: int) -> None:
        size = len(self.cells)
        super().erase(begin, end, columns)
        if end < size:
            self._paint(begin, end - begin, colours.PLAIN)
        else:
            del self.styles[begin:]

    def insert(self, x: int, count: int, columns: int) -> None:
        if x < len(self.styles):
            self.styles[x:x] = [colours.PLAIN] * count
            del self.styles[columns:]
        super().insert(x, count, columns)

    def delete(self, x: int, count: int) -> None:
        super().delete(x, count)
        del self.styles[x : x + count]

    def _paint(self, x: int, count: int, style: colours.Style) -> None:
        styles = self.styles
        if x < len(styles) or style != colours.PLAIN:
            styles += [colours.PLAIN] * (x - len(styles))
            styles[x : x + count] = [style] * count


class ColouredLine(LongLine):
    """Its text is in normal form, colours left on; end_style: the style it ends with. Colours count
    as text when it is cut.

    `add` takes text that begins plain.
    """

    __slots__ = ("end_style",)

    def __init__(self) -> None:
        super().__init__()
        self.end_style = colours.PLAIN

    def is_blank(self) -> bool:
        return not self.parts and _BLANK.match(self.text) is not None

    def plain(self) -> bytes:
        return colours.stripped(bytes(self.text))

    def whole(self) -> bytes:
        return bytes(self.text) + colours.change(self.end_style, colours.PLAIN)

    def add(self, text: bytes, lines: FinalLines, drawn_at: float) -> None:
        text, self.end_style, _ = colours.normalised(text, self.end_style)
        self.text += text
        while len(self.text) > MAX_LINE_BYTES:
            self._split_off_part(lines, drawn_at)

    def end(self, lines: FinalLines, drawn_at: float) -> None:
        if self.end_style != colours.PLAIN:
            if len(self.text) + len(colours.RESET) > MAX_LINE_BYTES:
                self._split_off_part(lines, drawn_at)
            self.text += colours.RESET
            self.end_style = colours.PLAIN
        super().end(lines, drawn_at)

    def _split_off_part(self, lines: FinalLines, drawn_at: float) -> None:
        text = self.text
        end = MAX_LINE_BYTES
        if colours.is_open(bytes(text[:end])):
            end -= len(colours.RESET)
        while text[end] & 0xC0 == 0x80:
            end -= 1
        last = text.rfind(b"\x1b", 0, end)
        if (
            last >= 0
            and (match := colours.SGR.match(text, last)) is not None
            and match.end() >= end
        ):
            end = last
        part, rest = bytes(text[:end]), bytes(text[end:])
        style = colours.style_of(part)
        self._note_command()
        self.parts += 1
        lines.block(part + colours.change(style, colours.PLAIN) + b"\n", drawn_at, str(self.parts))
        if (match := colours.SGR.match(rest)) is not None:
            style = colours.styled(style, match[1].decode())
            rest = rest[match.end() :]
        self.text = bytearray(colours.change(colours.PLAIN, style) + rest)


class ColouredScreen(LogScreen):
    """pen: shared with all rows."""

    line_type = ColouredLine

    def __init__(self, columns: int, height: int, lines: FinalLines) -> None:
        self.pen = Pen()
        self.new_row = partial(ColouredRow, self.pen)
        self._saved_styles: dict[
            bool, colours.Style
        ] = {}  # by whether the alternate screen is visible
        super().__init__(columns, height, lines)

    def select_style(self, parameters: str) -> None:
        """Apply an SGR sequence."""
        if _NUMBERS.fullmatch(parameters):
            self.pen.style = colours.styled(self.pen.style, parameters)

    def reset_modes(self) -> None:
        super().reset_modes()
        self.pen.style = colours.PLAIN
        self._saved_styles.clear()

    def save_cursor(self) -> None:
        super().save_cursor()
        self._saved_styles[self.is_alternate] = self.pen.style

    def restore_cursor(self, *, behind: bool = False) -> None:
        super().restore_cursor(behind=behind)
        self.pen.style = self._saved_styles.get(self.is_alternate, colours.PLAIN)

    def open_line(self) -> str:
        return self.rows[self.y].logged(super().open_line())

    def _draw_again(self, text: str) -> None:
        self.pen.style = colours.PLAIN
        for piece in filter(None, colours.SEQUENCES.split(text)):
            if piece[0] == "\x1b":
                self.select_style(piece[2:-1])
            else:
                self.draw(piece)
