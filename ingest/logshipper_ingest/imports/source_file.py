"""Reads growing files of other programs line by line, in any encoding, as UTF-8.

Strategy: each `lines` continues at the end of the last one, so memory is flat for any length. The
file is open only during a call, because there may be more files than descriptors. If the text
before the position has changed, reading starts again. A last line without a line feed waits,
because its writer may not have finished. Unreadable text is a fault with file and line; reading
continues behind it.
"""

import codecs
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from logshipper.errors import LogshipperError, os_words
from logshipper_ingest.imports.faults import Faults, display_text

MAX_LINE_BYTES = 4 << 20
_READ_BYTES = 1 << 20
_TAIL_BYTES = 256  # identify a file again
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class SourceLine(NamedTuple):
    """number: from 1; text: UTF-8, without its line feed; ended: it had one."""

    number: int
    text: bytes
    ended: bool = True


class Unreadable(LogshipperError):
    """A file cannot be read. words: the reason, without the file's name."""

    def __init__(self, path: str, words: str) -> None:
        super().__init__(f"{display_text(path)}: {words}")
        self.path = path
        self.words = words

    def __reduce__(self) -> tuple[type["Unreadable"], tuple[str, str]]:
        return type(self), (self.path, self.words)  # from another process


class SourceFile:
    """A file.

    follow_link: whether path may be a link; size, changed_ns, owner: as of the last read. The
    constructor and all reads raise Unreadable for files that are unreadable or not regular.
    """

    def __init__(self, path: str, faults: Faults, *, follow_link: bool = True) -> None:
        self.path = path
        self._faults = faults
        self._flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        self._flags |= 0 if follow_link else os.O_NOFOLLOW
        self._fd = -1
        self._start()
        with self._reading():
            pass

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Open the file at the position, unless it is open."""
        if self._fd < 0:
            self._open()
        try:
            yield
        finally:
            self.close()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, self._flags)
            status = os.fstat(self._fd)
            if stat.S_ISREG(status.st_mode):
                self._look(status)
        except (OSError, ValueError) as error:
            self.close()
            is_link = self._flags & os.O_NOFOLLOW and os.path.islink(self.path)
            words = "is a link, which the import does not follow" if is_link else os_words(error)
            raise Unreadable(self.path, words) from None
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise Unreadable(self.path, "isn't a file")

    def _look(self, status: os.stat_result) -> None:
        """Start again if the file has changed; compares text, as systems reuse inodes."""
        is_shorter = status.st_size < self.offset
        tail_offset = self.offset - len(self._tail)
        if is_shorter or os.pread(self._fd, len(self._tail), tail_offset) != self._tail:
            words = "became shorter" if is_shorter else "is another file"
            self._faults.remark(self.path, 0, f"{words}: it is read again")
            self._start()
        self.size, self.changed_ns, self.owner = status.st_size, status.st_mtime_ns, status.st_uid
        os.lseek(self._fd, self.offset, os.SEEK_SET)

    def _start(self) -> None:
        self.offset = 0
        self._tail = b""  # text before the position
        self.number = 0
        self._rest = b""
        self._skipping = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ahead = b""

    def close(self) -> None:
        """Close the file and keep the position."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def lines(self, *, last: bool) -> Iterator[SourceLine]:
        """Yield the lines since the last call.

        last: includes a last line without a line feed, and repeats it once it has grown.
        """
        with self._reading():
            while data := self._read():
                yield from self._split(data)
        if last and self._rest and not self._skipping:
            yield SourceLine(self.number + 1, self._rest, ended=False)

    def head(self) -> bytes:
        """Return the next text without reading it; then read or close."""
        if self._fd < 0:
            self._open()
        self._ahead = self._ahead or self._read()
        return self._ahead

    def texts(self) -> Iterator[str]:
        """Yield the text since the last call in pieces, regardless of lines; replaces invalid
        UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in self.pieces():
            yield decoder.decode(data)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes since the last call in pieces; converts UTF-16 to UTF-8."""
        with self._reading():
            while data := self._read():
                yield data

    def _read(self) -> bytes:
        """The next piece, as UTF-8; empty at the end."""
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError as error:
                raise Unreadable(self.path, os_words(error)) from None
            if not data:
                return b""
            read, tail = len(data), (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
            if not self.offset:
                data = self._begin(data)
            self.offset += read
            self._tail = tail
            if self._decoder is not None:
                data = self._decoder.decode(data).encode("utf-8", "replace")
            if data:
                return data

    def _begin(self, data: bytes) -> bytes:
        """Remove a mark of the encoding, and remember the encoding."""
        mark, name = next((bom for bom in _BOMS if data.startswith(bom[0])), (b"", ""))
        if not name and len(data) > 1 and 0 in data[:2]:
            name = "utf-16-le" if data[1] == 0 else "utf-16-be"
        if name.startswith("utf-16"):
            self._decoder = codecs.getincrementaldecoder(name)("replace")
        return data[len(mark) :]

    def _split(self, data: bytes) -> Iterator[SourceLine]:
        pieces = data.split(b"\n")
        pieces[0] = self._rest + pieces[0]
        self._rest = pieces.pop()
        for text in pieces:
            self.number += 1
            if self._skipping or len(text) > MAX_LINE_BYTES:
                self._skipping = False
                words = f"is longer than {MAX_LINE_BYTES:,} bytes"
                self._faults.leave_out(self.path, self.number, words)
            elif text.strip():
                yield SourceLine(self.number, self._valid(text.removesuffix(b"\r")))
        if len(self._rest) > MAX_LINE_BYTES:
            self._skipping, self._rest = True, b""

    def _valid(self, text: bytes) -> bytes:
        try:
            text.decode()
        except UnicodeDecodeError:
            self._faults.remark(self.path, self.number, "isn't UTF-8: it is read as Latin-1")
            return text.decode("latin-1").encode()
        return text


def is_plain_file(path: str, faults: Faults) -> bool:
    """Return whether it is a file and no link; all else is a fault."""
    if os.path.islink(path) or not os.path.isfile(path):
        faults.leave_out_file(path, "is a link, or no file")
        return False
    return True


def open_source(path: str, faults: Faults, *, is_argument: bool) -> SourceFile | None:
    """Open a file. An unreadable one is a fault; an argument raises Unreadable, and may be a
    link."""
    try:
        return SourceFile(path, faults, follow_link=is_argument)
    except Unreadable as error:
        if is_argument:
            raise
        faults.leave_out_file(path, error.words)
        return None


class SourceFiles:
    """Growing sets of growing files.

    find: returns the present files, and whether they are arguments (only arguments may be links,
    and must be readable). It raises LogshipperError without any file; so does the constructor.
    """

    def __init__(self, find: Callable[[], list[tuple[str, bool]]], faults: Faults) -> None:
        self._find = find
        self._faults = faults
        self._files: dict[str, SourceFile] = {}
        self.look()

    def look(self) -> None:
        """Open files that have appeared since the last look."""
        try:
            sources = self._find()
        except LogshipperError:
            if not self._files:
                raise
            return  # they are away: reading them says so
        for path, is_argument in sources:
            if path not in self._files:
                file = open_source(path, self._faults, is_argument=is_argument)
                if file is not None:
                    self._files[path] = file

    def __iter__(self) -> Iterator[SourceFile]:
        return iter(self._files.values())

    def size(self) -> int:
        """Bytes, as of the last read."""
        return sum(file.size for file in self)

    def done(self) -> int:
        """Bytes read."""
        return sum(file.offset for file in self)
