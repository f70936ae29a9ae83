"""A terminal's last screen at the end of a stream, commands included. Pure: bytes in.

It does not draw plain lines that scroll off anyway: of very many, only the last ones count.
"""

from codecs import getincrementaldecoder

from logshipper.render.escape_parser import EscapeParser
from logshipper.render.final_lines import FinalLines
from logshipper.render.log_screen import LogScreen
from logshipper.render.plain_text import plain_text

_PLAIN_BYTES = 256 << 10  # looked at at once
_SCREEN_BYTES = 16 << 10


class LastScreen:
    """columns, rows: the terminal's size."""

    def __init__(self, columns: int, rows: int) -> None:
        self._lines = FinalLines()
        self._screen = LogScreen(columns, rows, self._lines)
        self._parser = EscapeParser(self._screen)
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        for at in range(0, len(data), _PLAIN_BYTES):
            piece = data[at : at + _PLAIN_BYTES]
            begin = self._behind_plain(piece)
            if begin:
                self._decoder.reset()
            for place in range(begin, len(piece), _SCREEN_BYTES):
                self._draw(self._decoder.decode(piece[place : place + _SCREEN_BYTES]))

    def rows(self) -> list[str]:
        """Return the rows from the top, without blanks at their ends, and without blank rows at the
        bottom.

        The stream is over: half a character is an invalid one.
        """
        self._draw(self._decoder.decode(b"", True))
        rows = ["".join(row.cells).rstrip(" ") for row in self._screen.rows]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    def _behind_plain(self, piece: bytes) -> int:
        """Return the LF in piece from which drawing must start; 0 for all of it.

        As many lines as the screen's rows bring the cursor to the bottom; as many again replace
        each row.
        """
        at = len(piece)
        for _ in range(2 * self._screen.height + 1):
            at = piece.rfind(b"\n", 0, at)
            if at <= 0:
                return 0
        if not (self._parser.is_ground and self._screen.has_default_modes()):
            return 0
        return 0 if plain_text(piece, self._screen.columns, bytearray()) is None else at

    def _draw(self, text: str) -> None:
        while (end := self._parser.feed(text)) >= 0:  # a command's line is a line like any other
            self._screen.line_feed()
            text = text[end:]
        self._lines.drop()  # scrolled lines are not needed
