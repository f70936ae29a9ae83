"""Lines of a job's log as they are printed: as text, on a terminal in colours and with a running
bar, or as JSON."""

import re
import sys
from typing import TYPE_CHECKING

import orjson

from logshipper.safe_text import safe, safe_json
from logshipper.spool.segment import Kind, Stream
from logshipper_observe.base.bar_width import shortened
from logshipper_observe.base.output import Output, cells_wide
from logshipper_observe.base.words import is_further_part, local, safe_coloured, uncoloured
from logshipper_observe.model.documents import Document, line_document

if TYPE_CHECKING:
    from logshipper_ingest.model.job import LogLine

_WRITE_CHARS = 1 << 16
_RESET = "\x1b[0m"
_DIM = "2"
_RED = "31"
_MATCH = "\x1b[1;7m"
_CLEAR_LINE = "\r\x1b[K"
_CLEAR_LINE_ABOVE = "\x1b[A\x1b[K"


class Writer:
    """Gathers text into few writes."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0

    def write(self, line: "LogLine", whose: str = "") -> None:
        """whose: the node's name, if there are several."""
        raise NotImplementedError

    def show_status(self, status: dict[Stream, tuple[int, str]]) -> None:
        """Show the running bars, if the output allows."""

    def flush(self) -> None:
        if self._pieces:
            sys.stdout.write("".join(self._pieces))
            self._pieces.clear()
            self._chars = 0
        sys.stdout.flush()

    def clear(self) -> None:
        """Flushes, and leaves the cursor at the beginning of an empty line."""
        self.flush()

    def _put(self, text: str) -> None:
        self._pieces.append(text)
        self._chars += len(text)
        if self._chars > _WRITE_CHARS:
            Writer.flush(self)


class JsonWriter(Writer):
    """One JSON document a line."""

    def __init__(self) -> None:
        super().__init__()
        self.job_fields: Document = {}  # of the lines' job, if there are several
        self._terminal = sys.stdout.isatty()

    def write(self, line: "LogLine", whose: str = "") -> None:
        document = line_document(line) | self.job_fields
        text = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE).decode()
        self._put(safe_json(text) if self._terminal else text)


class TextWriter(Writer):
    """Writes text without its colours; on a terminal safe and with colours, stderr in red,
    logshipper's own lines dimmed."""

    def __init__(self, out: Output, *, times: bool, pattern: "re.Pattern[str] | None") -> None:
        super().__init__()
        self._out = out
        self._times = times
        self._pattern = pattern if out.colour else None
        self._open: tuple[Stream, int] | None = None  # an unfinished line: a part may follow
        self._status: list[str] = []  # the last rows of the terminal

    def write(self, line: "LogLine", whose: str = "") -> None:
        self._clear_status()
        source = (line.stream, line.capture)
        if self._open == source and is_further_part(str(line.attrs.get("part", ""))):
            self._put(self._styled_text(line))
            return
        self._end_line()
        stamp = f"{whose}: " if whose else ""
        stamp += f"{local(line.time_ns, millis=True)} " if self._times else ""
        stamp = safe(stamp)
        if stamp and self._out.colour:
            stamp = f"\x1b[{_DIM}m{stamp}{_RESET}"
        self._put(stamp + self._styled_text(line))
        self._open = source

    def _styled_text(self, line: "LogLine") -> str:
        if not self._out.colour:
            text = uncoloured(line.text)
            return safe(text) if self._out.terminal else text
        code = _RED if line.stream is Stream.STDERR else ""
        if line.kind in (Kind.COMMAND, Kind.NOTE):
            code = _DIM
        if self._pattern is None:
            return safe_coloured(line.text, code)
        style = f"\x1b[{code}m" if code else ""
        text = self._pattern.sub(
            lambda match: f"{_MATCH}{match[0]}{_RESET}{style}" if match[0] else "",
            safe(uncoloured(line.text)),
        )
        return f"{style}{text}{_RESET}" if style else text

    def _end_line(self) -> None:
        if self._open is not None:
            self._put("\n")
            self._open = None

    def flush(self) -> None:
        self._end_line()
        super().flush()

    def clear(self) -> None:
        self._clear_status()
        self.flush()

    def show_status(self, status: dict[Stream, tuple[int, str]]) -> None:
        terminal = Output()  # asked again: it may have been resized
        texts = [text for _, (_, text) in sorted(status.items()) if text]
        bars = [safe(bar) for text in texts for bar in text.split("\n")]
        bars = bars[-max(terminal.rows - 1, 1) :]
        if not self._out.ansi or bars == self._status:
            return
        self._clear_status()
        columns = max(terminal.columns - 1, 1)
        rows = "\n".join(self._status_row(bar, columns) for bar in bars)
        self._status = bars  # set first: an interrupt after it clears the rows
        self._put(rows)
        super().flush()

    def _status_row(self, text: str, columns: int) -> str:
        """One row of the terminal, dimmed; a bar that wrapped couldn't be cleared any more."""
        text = shortened(text, cells_wide(text) - columns)
        if cells_wide(text) > columns:
            from rich.cells import set_cell_size

            text = set_cell_size(text, columns - 1) + "…"
        return f"\x1b[{_DIM}m{text}{_RESET}" if self._out.colour else text

    def _clear_status(self) -> None:
        if self._status:
            self._put(_CLEAR_LINE + _CLEAR_LINE_ABOVE * (len(self._status) - 1))
            self._status = []
