"""Reads files that other programs write, line by line, while they grow: text as UTF-8, whatever it was written in.

Strategy: the file stays open, and each `lines` goes on where the last one ended, so that memory is flat however long it
is. A last line without its line feed waits, as it may still be being written. What can't be read is a fault with file
and line, and the lines behind it are read.
"""

import codecs
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from ingest.imports.faults import Faults, shown
from logshipper.errors import LogshipperError, os_words

MAX_LINE_BYTES = 4 << 20
_READ_BYTES = 1 << 20
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Line(NamedTuple):
    """number: from 1; text: UTF-8, without its line feed; ended: it had one."""

    number: int
    text: bytes
    ended: bool = True


class SourceFile:
    """A file, open. follow_link: whether path may be a link. Raises LogshipperError where it can't be read, or isn't a
    regular file."""

    def __init__(self, path: str, faults: Faults, *, follow_link: bool = True) -> None:
        self.path = path
        self._faults = faults
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_link else os.O_NOFOLLOW)
        try:
            self._fd = os.open(path, flags)
        except (OSError, ValueError) as error:
            words = "is a link, which isn't followed" if os.path.islink(path) and not follow_link else os_words(error)
            raise LogshipperError(f"{shown(path)}: {words}") from None
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            os.close(self._fd)
            raise LogshipperError(f"{shown(path)}: isn't a file")
        self.owner = found.st_uid
        self._start()

    def _start(self) -> None:
        self.offset = 0
        self.number = 0
        self._rest = b""
        self._skipping = False
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ahead = b""

    def close(self) -> None:
        os.close(self._fd)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def changed_ns(self) -> int:
        """When it was last written."""
        return os.fstat(self._fd).st_mtime_ns

    def lines(self, *, last: bool) -> Iterator[Line]:
        """What has come since the last call. last: also a last line without a line feed, which is given again when it
        has grown."""
        if self.size() < self.offset:
            self._faults.remark(self.path, 0, "became shorter: it is read anew")
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._start()
        while data := self._read():
            yield from self._split(data)
        if last and self._rest and not self._skipping:
            yield Line(self.number + 1, self._rest, ended=False)

    def head(self) -> bytes:
        """The beginning of what comes next, which is still to be read."""
        self._ahead = self._ahead or self._read()
        return self._ahead

    def texts(self) -> Iterator[str]:
        """What has come since the last call, by the piece, whatever its lines are. What isn't UTF-8 is replaced."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for data in self.pieces():
            yield decoder.decode(data)

    def pieces(self) -> Iterator[bytes]:
        """What has come since the last call, by the piece: UTF-8 of what is UTF-16, all else as it is."""
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
                raise LogshipperError(f"{shown(self.path)}: {os_words(error)}") from None
            if not data:
                return b""
            if not self.offset:
                data = self._begin(data)
            self.offset = os.lseek(self._fd, 0, os.SEEK_CUR)
            if self._decoder is not None:
                data = self._decoder.decode(data).encode("utf-8", "replace")
            if data:
                return data

    def _begin(self, data: bytes) -> bytes:
        """Takes away a mark of the encoding, and remembers what it says."""
        name = next((name for mark, name in _BOMS if data.startswith(mark)), "")
        mark = next((mark for mark, its in _BOMS if its == name and data.startswith(mark)), b"")
        if not name and len(data) > 1 and 0 in data[:2]:
            name = "utf-16-le" if data[1] == 0 else "utf-16-be"
        if name.startswith("utf-16"):
            self._decoder = codecs.getincrementaldecoder(name)("replace")
        return data[len(mark) :]

    def _split(self, data: bytes) -> Iterator[Line]:
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
                yield Line(self.number, self._valid(text.removesuffix(b"\r")))
        if len(self._rest) > MAX_LINE_BYTES:
            self._skipping, self._rest = True, b""

    def _valid(self, text: bytes) -> bytes:
        try:
            text.decode()
        except UnicodeDecodeError:
            self._faults.remark(self.path, self.number, "isn't UTF-8: it is read as Latin-1")
            return text.decode("latin-1").encode()
        return text
