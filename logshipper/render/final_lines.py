"""The renderer's output: blocks of final lines, in the order of their completion."""

from logshipper.named_tuple import NamedTuple
from logshipper.render.command_prefix import AMID_LINE, MAX_BYTES, PREFIX, size_of_half
from logshipper.spool.segment import MAX_LINE_BYTES

_BEGIN_BYTES = 4096  # of a long line that begins like a command


class Block(NamedTuple):
    """Final lines.

    text: each line ended by LF; valid UTF-8 without control bytes (except SGR with kept colours);
    blanks at a line's end stay up to the cursor's place at its end (R20). part: "", or the number
    of a part of a line over MAX_LINE_BYTES; the last one's is "3/3". note: the renderer made the
    text.
    """

    text: bytes
    part: str = ""
    note: bool = False
    drawn_at: float = 0.0  # last drawing of its lines, by the clock of `Renderer.feed`


class FinalLines:
    """Collects final lines; no line is older than the one before."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._lines: list[str] = []
        self._drawn_at = float("-inf")  # of these, and the newest so far

    def line(self, text: str, drawn_at: float) -> None:
        """Takes one line, without its LF."""
        if drawn_at > self._drawn_at:
            self._end_lines()
            self._drawn_at = drawn_at
        self._lines.append(text)

    def block(self, text: bytes, drawn_at: float, part: str = "", *, note: bool = False) -> None:
        """Takes whole lines."""
        self._end_lines()
        self._drawn_at = max(self._drawn_at, drawn_at)
        self._blocks.append(Block(text, part, note, self._drawn_at))

    def size(self) -> tuple[int, int]:
        """Size of the collected lines."""
        return len(self._blocks), len(self._lines)

    def take(self) -> list[Block]:
        """All that was collected since the last call."""
        self._end_lines()
        blocks, self._blocks = self._blocks, []
        return blocks

    def drop(self) -> None:
        """Drop the collected lines."""
        self._lines.clear()
        self._blocks = []

    def _end_lines(self) -> None:
        if self._lines:
            self._lines.append("")
            text = "\n".join(self._lines).encode()
            self._blocks.append(Block(text, drawn_at=self._drawn_at))
            self._lines.clear()


class LongLine:
    """An unfinished line: its text so far, without parts given out because of its length.

    parts: their number. command: the line's begin, if it looks like a command and parts have gone.
    Cuts depend on the text alone: after MAX_LINE_BYTES, or before a character or command that would
    be torn.
    """

    __slots__ = ("command", "parts", "text")

    def __init__(self) -> None:
        self.text = bytearray()
        self.parts = 0
        self.command = b""

    def is_blank(self) -> bool:
        return not self.parts and not self.text.strip(b" ")

    def plain(self) -> bytes:
        """Its text without colours."""
        return bytes(self.text)

    def whole(self) -> bytes:
        """Its text as a line that ends here."""
        return bytes(self.text)

    def part(self) -> bytes | None:
        """Return the mark of missing parts; None without any. It ends with AMID_LINE if more
        follows."""
        return self.command + AMID_LINE if self.parts else None

    def _note_command(self) -> None:
        if not self.parts:
            begin = bytes(self.text[:_BEGIN_BYTES])
            self.command = begin if begin.lstrip()[: len(PREFIX)].upper() == PREFIX else b""

    def add(self, text: bytes, lines: FinalLines, drawn_at: float) -> None:
        self.text += text
        while len(self.text) > MAX_LINE_BYTES:
            end = MAX_LINE_BYTES
            while self.text[end] & 0xC0 == 0x80:
                end -= 1
            end = end - size_of_half(bytes(self.text[max(end - MAX_BYTES, 0) : end])) or end
            self._note_command()
            part, self.text = self.text, self.text[end:]
            part[end:] = b"\n"
            self.parts += 1
            lines.block(bytes(part), drawn_at, str(self.parts))

    def end(self, lines: FinalLines, drawn_at: float) -> None:
        """The line is final; starts afresh."""
        part = f"{self.parts + 1}/{self.parts + 1}" if self.parts else ""
        lines.block(bytes(self.text) + b"\n", drawn_at, part)
        self.text.clear()
        self.parts = 0
        self.command = b""
