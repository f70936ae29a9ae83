"""Renders a stream to final lines, as a terminal would show it (R29, R20, docs/rendering.md). Pure:
bytes and a clock in.

Two tiers agree on every line: plain text goes by the chunk (plain_text), the rest through a
terminal's screen (escape_parser, screen, finality). The renderer leaves the plain tier at the first
control function besides line ends and colours. It returns once the screen has settled: nothing is
live, and the cursor stands behind the last line. The screen keeps its content, and gets the last
plain lines at its next use, so that the cursor may rise into them.

Invariants: the output depends on the bytes and on their times, not on their cuts. After flush and
discard, earlier bytes have no effect. Memory is bounded: a line by MAX_LINE_BYTES, the screen by
its size, a sequence by a few hundred bytes.
"""

from codecs import getincrementaldecoder
from collections import deque

from logshipper import line_feeds
from logshipper.named_tuple import NamedTuple
from logshipper.render import command_prefix
from logshipper.render.carriage_returns import fold
from logshipper.render.command_prefix import AMID_LINE
from logshipper.render.escape_parser import EscapeParser
from logshipper.render.final_lines import Block, FinalLines, LongLine
from logshipper.render.log_screen import LogScreen
from logshipper.render.plain_text import ends_with_text, plain_lines, plain_text
from logshipper.spool.segment import MAX_LINE_BYTES

__all__ = ["Block", "Renderer", "Rendering"]

_PLAIN_BYTES = 64 << 10  # looked at at once
# likewise, right behind a command; twice as much each time that none follows
_AFTER_COMMAND_BYTES = 1 << 10
_HELD_PIECES = 16
_SCREEN_BYTES = 64 << 10
_MIN_PLAIN_BYTES = 2 << 10  # smaller texts do not repay leaving the screen
_TAIL_BYTES = 64 << 10  # kept of a block for the screen
FIRST_SECS = 1.0
_STATUS_BYTES = 16 << 10  # more than is shown of a line


class Rendering(NamedTuple):
    """Result of rendering bytes."""

    blocks: list[Block]  # lines that became final
    consumed: int  # place in data behind the rendered bytes
    # the text of a line with /LOGCOMMAND, in any case, that ended at `consumed`, up to the cursor's
    # place: call keep_command or take_command before the next feed
    command: bytes | None
    # the line can only be kept, because its begin has gone (it exceeds MAX_LINE_BYTES), or it is
    # not the log's (on the alternate screen). Then its begin is the command, or else the end behind
    # other text.
    is_part: bool = False


class Renderer:
    """Renders one stream. columns, rows: the terminal's size; first_secs: of a stream in which
    lines may be redrawn without a hint."""

    has_plain_tier = True  # tests let the screen do it all
    line_type = LongLine

    def __init__(self, columns: int = 160, rows: int = 50, first_secs: float = 0.0) -> None:
        self.line_feeds = 0  # raw LFs fed so far
        self._first_secs = first_secs
        self._now = float("-inf")
        self._lines = FinalLines()
        self._piece_bytes = _PLAIN_BYTES
        self._start_afresh(columns, rows)

    def _start_afresh(self, columns: int, rows: int) -> None:
        self._make_screen(columns, rows)
        self._screen.now = self._now
        self._has_begun = False
        self._decoder = getincrementaldecoder("utf-8")("replace")
        self._on_screen = not self.has_plain_tier
        self._command: bytes | None = None
        # The plain tier's:
        self._open = self.line_type()  # the unfinished line
        self._open_since = self._now  # ... when it was drawn upon last
        self._rest = b""  # raw bytes behind it that need the following ones
        self._last = b""  # raw bytes before it
        # the last lines that the screen lacks, and their number
        self._tail: deque[tuple[bytes, int]] = deque()
        self._tail_lines = 0

    def _make_screen(self, columns: int, rows: int) -> None:
        self._screen = LogScreen(columns, rows, self._lines)
        self._parser = EscapeParser(self._screen)

    # ---- input

    def feed(self, data: bytes, now: float, begin: int = 0) -> Rendering:
        """Render data[begin:]; stop behind the LF that ends a line with /LOGCOMMAND.

        now: seconds of a monotonic clock.
        """
        self._advance(now)
        if not self._has_begun:
            self._has_begun = True
            self._screen.young_until = self._now + self._first_secs
        at = begin
        self._command = None
        while at < len(data) and self._command is None:
            limit = self._piece_bytes
            if self._screen.holds():  # each piece's last lines go through the screen
                limit *= _HELD_PIECES
            piece = data if at == 0 and len(data) <= limit else data[at : at + limit]
            size = self._feed_piece(piece)
            # each command leads to a new check of the following text, which is short if commands
            # are frequent
            self._piece_bytes = (
                _AFTER_COMMAND_BYTES
                if self._command is not None
                else min(2 * self._piece_bytes, _PLAIN_BYTES)
            )
            self.line_feeds += line_feeds.count(piece if size == len(piece) else piece[:size])
            at += size
        return self._rendering(at)

    def _rendering(self, consumed: int) -> Rendering:
        blocks, command = self._lines.take(), self._command
        if command is None:
            return Rendering(blocks, consumed, None)
        part = self._screen.part() if self._on_screen else self._open.part()
        return Rendering(blocks, consumed, (part or b"") + command, part is not None)

    def keep_command(self) -> list[Block]:
        """The command's line is a line like any other."""
        if self._on_screen:
            self._screen.line_feed()
        elif self._open.parts:
            self._end_long()
        elif self._command is not None:
            self._give_out(self._command + b"\n", self._now)
        self._command = None
        return self._lines.take()

    def take_command(self) -> list[Block]:
        """Remove the command's line without a trace; as `release`."""
        if self._on_screen:
            self._screen.take_line()
        self._command = None
        return self.release()

    def release(self) -> list[Block]:
        """Give out lines that only waited for a redraw without a hint."""
        if self._on_screen:
            self._screen.release()
        return self._lines.take()

    def end_line(self, now: float) -> Rendering:
        """End the stream: an unfinished line ends, and may be a command, as in `feed`."""
        self._advance(now)
        self._end_characters()
        self._command = None
        if self._on_screen:
            if self._screen.has_half_line():
                command = self._screen.command()
                if command is None:
                    self._screen.end_half_line()
                else:
                    self._command = command.encode()
        elif self._open.command or command_prefix.find(self._open.text) >= 0:
            self._command = self._open.whole()
            if not self._open.parts:
                self._open = self.line_type()
        elif self._open.parts:
            self._open.end(self._lines, self._open_since)
        elif not self._open.is_blank():
            line = self._open
            self._open = self.line_type()
            self._give_out(line.whole() + b"\n", self._open_since)
        return self._rendering(0)

    def flush(self) -> list[Block]:
        """Everything shown or held is final; starts afresh."""
        self._end_characters()
        if self._on_screen:
            self._screen.finish()
        elif not self._open.is_blank():
            self._open.end(self._lines, self._open_since)
        self._start_afresh(self._screen.columns, self._screen.height)
        return self._lines.take()

    def discard(self) -> None:
        """Drop everything that was not returned, and start afresh (R11)."""
        self._lines.drop()
        self._start_afresh(self._screen.columns, self._screen.height)

    def drop_half_line(self) -> None:
        """Drop drawings without LF; ended lines stay."""
        self._decoder.reset()
        self._rest = b""
        self._open = self.line_type()
        if self._on_screen:
            self._screen.drop_half_lines()

    def take_half_command(self) -> tuple[bytes, bytes]:
        """Remove the unfinished line if it may be a command; return the text before it, and the
        command's bytes."""
        if self._command is not None:
            return b"", b""
        text = b"" if self._open.parts else self._open.plain()
        if self._on_screen:
            text = self._screen.half_line().encode()
        begin = len(text) - command_prefix.size_of_half(text)
        if begin == len(text):
            return b"", b""
        rest = self._rest
        if self._on_screen:
            self._screen.take_line()
        else:
            self._open = self.line_type()
            self._rest = self._last = b""
        before = text[:begin]
        return before, (AMID_LINE if before.strip() else before) + text[begin:] + rest

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._screen.columns, self._screen.height

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size."""
        self._screen.resize(columns, rows)

    # ---- time

    def tick(self, now: float) -> list[Block]:
        """Rows that became final by being left alone."""
        self._advance(now)
        if self._on_screen:
            self._screen.settle()
        return self._lines.take()

    def next_tick(self) -> float | None:
        """Return the time of the next useful tick, by feed's clock; None if nothing waits."""
        if any(self._lines.size()):
            return self._now
        return self._screen.next_settle() if self._on_screen else None

    def _advance(self, now: float) -> None:
        if now > self._now:
            self._now = self._screen.now = now
            if self._on_screen:
                self._screen.settle()

    # ---- visible text that is not final

    def status(self) -> bytes:
        """The lines that are shown, not blank and not final, LF between them: running bars, from
        the top, or a prompt. b"" if there is none."""
        if not self._on_screen:
            lines = [b"" if self._open.parts else self._open.plain()]
        elif self._screen.is_alternate:
            return b""
        else:
            lines = [text.encode() for text, _ in self._screen.running_lines()]
        texts = (line[:_STATUS_BYTES].decode(errors="ignore").rstrip(" ") for line in lines)
        return "\n".join(texts).encode()

    def held(self) -> bytes:
        """Return all lines that are shown and not final, a finished bar above the running one among
        them."""
        if not self._on_screen:
            return self.status()
        return b"\n".join(text.encode() for text, *_ in self._screen.held_lines())

    @property
    def is_on_screen(self) -> bool:
        """Whether rows and cells were drawn, more than lines of text."""
        return self._on_screen

    def status_drawn_at(self) -> float:
        """Return the last drawing of the lines in `status`."""
        if not self._on_screen:
            return self._open_since
        return max((drawn_at for _, drawn_at in self._screen.running_lines()), default=self._now)

    def pending(self) -> int:
        """Lines that are shown, not blank and not final."""
        if self._on_screen:
            return len(self._screen.held_lines())
        return int(not self._open.parts and not self._open.is_blank())

    def held_line_feeds(self) -> int:
        """Count the LFs whose lines are not final."""
        return self._screen.held_line_feeds() if self._on_screen else 0

    # ---- tiers

    def _feed_piece(self, piece: bytes) -> int:
        """Renders a piece, or the begin of it; returns how much. Sets _command where a command's
        line ended there."""
        if self._on_screen and not (
            self.has_plain_tier and self._parser.is_ground and self._screen.is_plain()
        ):
            return self._feed_screen(piece)
        rest = self._decoder.getstate()[0] if self._on_screen else self._rest
        open_line = (
            bytearray(self._screen.open_line().encode()) if self._on_screen else self._open.text
        )
        data = rest + piece if rest else piece
        if self._screen.holds():
            # text that scrolls off at once needs no screen, everything else does
            data = data[: begin_of_last_lines(data, self._screen.height)]
        plain = self._plain_text(data, open_line) if data else None
        if plain is None:
            size = plain_lines(data)
            if size > (_MIN_PLAIN_BYTES if self._on_screen else 0):
                data = data[:size]
                plain = self._plain_text(data, open_line)
        if plain is None:
            if not self._on_screen:
                self._enter_screen()
            return self._feed_screen(piece)
        if self._on_screen:
            self._screen.release()
            self._leave_screen()
        return self._feed_plain(data, *plain) - len(rest)

    def _plain_text(self, data: bytes, open_line: bytearray) -> tuple[bytes, bytes] | None:
        return plain_text(data, self._screen.columns, open_line)

    def _feed_screen(self, piece: bytes) -> int:
        piece = piece[:_SCREEN_BYTES]
        text = self._decoder.decode(piece)
        if b"\x1b" not in piece and self._parser.is_ground and not self._screen.insert_mode:
            text = fold(text, piece, self._screen.columns)
        end = self._parser.feed(text)
        if end < 0:
            return len(piece)
        command = self._screen.command()
        self._command = command.encode() if command is not None else b""
        self._decoder.reset()
        return _place_behind(piece, text.count("\n", 0, end))

    def _feed_plain(self, data: bytes, text: bytes, rest: bytes) -> int:
        """Apply plain text; text, rest: plain_text's result for data. Returns the rendered bytes of
        data."""
        self._rest = rest
        self._last = data[: len(data) - len(rest)] or self._last
        lines_end = text.rfind(b"\n") + 1
        if not lines_end:
            if text:
                self._draw_open(text)
            return len(data)
        lines = text[:lines_end]
        begin = 0
        if self._open.text:
            lines, begin = self._end_open(lines)
            if self._command is not None:
                self._rest = self._last = b""
                return _place_behind(data, 1)
        place = command_prefix.find(lines)
        if place >= 0:
            command = lines.rfind(b"\n", 0, place) + 1
            end = lines.index(b"\n", place)
            self._command = lines[command:end]
            self._give_out(lines[:command], self._now)
            self._rest = self._last = b""
            return _place_behind(data, begin + lines.count(b"\n", 0, end + 1))
        self._give_out(lines, self._now)
        if lines_end < len(text):
            self._draw_open(text[lines_end:])
        return len(data)

    def _draw_open(self, text: bytes) -> None:
        self._open.add(text, self._lines, self._now)
        self._open_since = self._now

    def _end_open(self, lines: bytes) -> tuple[bytes, int]:
        """End the open line with the first of lines; return the others, and the number of lines
        given out.

        Sets _command if a long line's last part may be one; the line stays open then.
        """
        first = lines.index(b"\n")
        if self._open.parts or len(self._open.text) + first > MAX_LINE_BYTES:
            self._draw_open(lines[:first])
            if self._open.command or command_prefix.find(self._open.text) >= 0:
                self._command = bytes(self._open.text)
            else:
                self._end_long()
            return lines[first + 1 :], 1
        lines = bytes(self._open.text) + lines
        self._open.text.clear()
        return lines, 0

    def _end_long(self) -> None:
        self._keep(bytes(self._open.text[-_TAIL_BYTES:]) + b"\n")
        self._open.end(self._lines, self._open_since)

    def _give_out(self, lines: bytes, drawn_at: float) -> None:
        if lines:
            self._lines.block(lines, drawn_at)
            self._keep(lines)

    def _keep(self, lines: bytes) -> None:
        """Remembers as many of the last lines as the screen has rows."""
        size, count = last_rows(lines, self._screen.height)
        self._remember(lines[-size:], count)

    def _remember(self, lines: bytes, count: int) -> None:
        self._tail.append((lines, count))
        self._tail_lines += count
        while self._tail_lines - self._tail[0][1] >= self._screen.height:
            self._tail_lines -= self._tail.popleft()[1]

    def _enter_screen(self) -> None:
        """Draw the last plain lines on the screen, then the raw rest."""
        last_lines = b"".join(lines for lines, _ in self._tail).decode().split("\n")
        last_lines = last_lines[-self._screen.height - 1 : -1]
        self._screen.replay(last_lines, self._open, self._open_since)
        is_text_last = self._open.text and ends_with_text(self._last)
        self._parser.drew(self._open.text[-4:].decode(errors="ignore")[-1:] if is_text_last else "")
        rest = self._rest
        self._open = self.line_type()
        self._rest = self._last = b""
        self._tail.clear()
        self._tail_lines = 0
        self._on_screen = True
        self._parser.feed(self._decoder.decode(rest))

    def _leave_screen(self) -> None:
        """Keep the screen's content without the unfinished line."""
        text, self._open_since = self._screen.take_open_line()
        self._open.add(text.encode(), self._lines, self._open_since)
        self._last = b"." if self._parser.ends_with_text else b""
        self._decoder.reset()
        self._on_screen = False

    def _end_characters(self) -> None:
        """End the input: half a character is an invalid one."""
        if not self._on_screen and not self._rest.isascii():
            self._enter_screen()
        if self._on_screen:
            self._parser.feed(self._decoder.decode(b"", True))
        self._rest = b""


def last_rows(lines: bytes, rows: int) -> tuple[int, int]:
    """Return the bytes at the end of lines that a screen of so many rows keeps, and the number of
    these lines."""
    for size in (_TAIL_BYTES // 8, _TAIL_BYTES):
        if len(lines) > size:
            last = lines[-size:]
            count = last.count(b"\n")
            if count > rows or size == _TAIL_BYTES:
                return len(last.decode(errors="ignore").encode()), count
    return len(lines), lines.count(b"\n")


def begin_of_last_lines(data: bytes, count: int) -> int:
    """Return the begin of the last `count` ended lines of data; 0 if there are no more."""
    at = data.rfind(b"\n")
    for _ in range(count):
        if at <= 0:
            return 0
        at = data.rfind(b"\n", 0, at)
    return at + 1


def _place_behind(data: bytes, line_feeds: int) -> int:
    at = 0
    for _ in range(line_feeds):
        at = data.index(b"\n", at) + 1
    return at
