"""What the renderer gives out: blocks of final lines, in the order in which they became final."""

from logshipper.named_tuple import NamedTuple
from logshipper.render.command_prefix import AMID_LINE, MAX_BYTES, PREFIX, size_of_half
from logshipper.spool.segment import MAX_LINE_BYTES

_BEGIN_BYTES = 4096  # of a long line that begins like a command


class Block(NamedTuple):
    """Final lines.

    text: each line ended by LF; valid UTF-8 without control bytes (but SGR where colours are kept);
    blanks at a line's end are kept up to the cursor's place when the line ended (R20). part: "" or,
    where text is one part of a line over MAX_LINE_BYTES, its number; the last one's is "3/3". note:
    the renderer itself made the text.
    """

    text: bytes
    part: str = ""
    note: bool = False
    drawn_at: float = 0.0  # by the clock of `Renderer.feed`: when its lines were drawn upon last


class FinalLines:
    """Collects final lines until they are taken. No line is given as older than one before it."""

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

    def waits(self) -> bool:
        """Whether there is something to take."""
        return bool(self._blocks or self._lines)

    def size(self) -> tuple[int, int]:
        """How much was collected."""
        return len(self._blocks), len(self._lines)

    def take(self) -> list[Block]:
        """All that was collected since the last call."""
        self._end_lines()
        blocks, self._blocks = self._blocks, []
        return blocks

    def drop(self) -> None:
        """Forgets what was collected."""
        self._lines.clear()
        self._blocks = []

    def _end_lines(self) -> None:
        if self._lines:
            self._lines.append("")
            text = "\n".join(self._lines).encode()
            self._blocks.append(Block(text, drawn_at=self._drawn_at))
            self._lines.clear()


class LongLine:
    """A line that isn't ended: its text so far, without the parts that were given out because it
    grew too long.

    parts: how many were given out. command: the line's begin, if it begins like a command and parts
    are gone.

    Where it is cut depends on its text alone: after MAX_LINE_BYTES, less what would tear a
    character or a command.
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
        """What stands for the parts that are gone; None where there are none. AMID_LINE at its end:
        more follows."""
        if not self.parts:
            return None
        return self.command + AMID_LINE

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
