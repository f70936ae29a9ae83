"""The journal of a killed C relay (deploy/slurm/spank/journal.h, docs/side-pipe.md): bytes of the
job's streams that it had read and not yet written, or not yet handed over, and its progress."""

import mmap
import os
import struct
from enum import IntEnum
from typing import NamedTuple

from logshipper.relay.side_pipe import unread_bytes

MAGIC = b"LOGJNL\r\n"
VERSION = 1
MARKS_BYTES = 4096
_HEAD = struct.Struct("<8sII")
_ENTRY = struct.Struct("<QQQQQqIIQQQQQ")
_ENTRIES_AT = 128
_ENTRY_BYTES = 128
_MARKS_AT = 4096
_COUNTERS = struct.Struct("<QQ")


class Intent(IntEnum):
    """The relay's action at its death. The number of bytes written shows by..."""

    NONE = 0
    FILE = 1  # ...the offset of the file
    STAGING = 2  # none did
    STAGED = 3  # ...the rest in the relay's own pipe, from which they move on
    BLIND = 4  # nothing: they count as not written


class JournalEntry(NamedTuple):
    """One stream's entry. Positions count its bytes from the beginning."""

    read: int
    marked: int
    written: int
    intent_from: int
    intent_size: int
    intent_offset: int
    intent: int
    counted_in: int
    bytes_0: int
    feeds_0: int
    bytes_1: int
    feeds_1: int
    closed: int


class Remains:
    """One stream of a dead relay, as of its creation.

    stage: the relay's own pipe (an fd), out: the stream's output, each -1 without one. read:
    position of the relay's reading. owed: the unwritten bytes before it.
    """

    def __init__(self, journal: "Journal", stream: int, stage: int, out: int) -> None:
        self._journal = journal
        self._stream = stream
        entry = journal.entry(stream)
        self._entry = entry
        self.read = entry.read + journal.uncounted(stream, entry)
        written_position = self._written_position(stage, out)
        self.owed = journal.bytes(stream, written_position, self.read)
        self.line_is_open = (
            written_position > 0
            and journal.bytes(stream, written_position - 1, written_position) != b"\n"
        )

    def _written_position(self, stage: int, out: int) -> int:
        entry = self._entry
        if entry.intent == Intent.NONE:
            return entry.written
        going = self._journal.bytes(
            self._stream, entry.intent_from, entry.intent_from + entry.intent_size
        )
        written_bytes = 0
        if entry.intent == Intent.FILE and out >= 0:
            written_bytes = written_to_file(out, entry.intent_offset, going)
        elif entry.intent == Intent.STAGED and stage >= 0:
            written_bytes = len(going) - unread_bytes(stage)
        return entry.intent_from + written_bytes

    def after(self, position: int) -> bytes:
        """Return the bytes read from a position on, as far as the ring has them: the relay keeps
        more than it owes."""
        return self._journal.bytes(
            self._stream, max(position, self.read - self._journal.ring_bytes), self.read
        )

    def counts(self) -> tuple[int, int]:
        """Return bytes and line feeds of everything read."""
        entry = self._entry
        counts = (entry.bytes_0, entry.feeds_0), (entry.bytes_1, entry.feeds_1)
        byte_count, feeds = counts[entry.counted_in & 1]
        return self.read, feeds + self.after(byte_count).count(b"\n")


class Journal:
    """The shared memory. Raises ValueError if a relay of another build made it."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        magic, version, self.ring_bytes = _HEAD.unpack_from(self._map)
        if (
            magic != MAGIC
            or version != VERSION
            or len(self._map) != _MARKS_AT + MARKS_BYTES + 2 * self.ring_bytes
        ):
            raise ValueError("the relay's journal is of another build")

    def entry(self, stream: int) -> JournalEntry:
        return JournalEntry(
            *_ENTRY.unpack_from(self._map, _ENTRIES_AT + (stream - 1) * _ENTRY_BYTES)
        )

    def bytes(self, stream: int, start: int, end: int) -> bytes:
        """Return the ring's bytes from position start up to end."""
        size = end - start
        at = start % self.ring_bytes
        ring = _MARKS_AT + MARKS_BYTES + (stream - 1) * self.ring_bytes
        first = self._map[ring + at : ring + min(at + size, self.ring_bytes)]
        return first + self._map[ring : ring + max(0, at + size - self.ring_bytes)]

    def uncounted(self, stream: int, entry: JournalEntry) -> int:
        """Return the bytes of a last, uncounted read: up to the first intact mark."""
        ahead = self.bytes(stream, entry.read, max(entry.read, entry.marked))
        marks = self._map[_MARKS_AT : _MARKS_AT + MARKS_BYTES]
        start = entry.read % MARKS_BYTES
        untouched = (marks[start:] + marks * (len(ahead) // MARKS_BYTES + 1))[: len(ahead)]
        if ahead == untouched:
            return 0
        return next(at for at in range(len(ahead), 0, -1) if ahead[at - 1] != untouched[at - 1])


def written_to_file(fd: int, start: int, going: bytes) -> int:
    """Return the number of `going`'s bytes in the file at an offset.

    The relay shares the offset, so it has moved with any written byte. If others write by it as
    well, the file's content tells, as far as its user may read it. At worst bytes are written
    twice, never lost.
    """
    end = os.lseek(fd, 0, os.SEEK_CUR)
    if end <= start:
        return 0
    try:
        read_fd = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return min(len(going), end - start)
    try:
        content = os.pread(read_fd, min(end - start, len(going) << 2), start)
    except OSError:
        return min(len(going), end - start)
    finally:
        os.close(read_fd)
    if going in content:
        return len(going)
    pairs = enumerate(zip(going, content, strict=False))
    return next(
        (at for at, (byte, file_byte) in pairs if byte != file_byte), min(len(going), len(content))
    )


def correct_counters(counters: mmap.mmap, stream: int, remains: Remains) -> None:
    """Set the capture's shared account to the relay's reading."""
    _COUNTERS.pack_into(counters, 16 * stream, *remains.counts())
