"""A reader of one capture's segments in order, from a position, while they may still grow
(docs/segment-format.md).

Segments are hostile input: a job could write them. The reader opens them by openat without following
links or blocking. They must be regular files of the right owner. It reads blocks, never maps files,
and checks every length.

The reader skips damage up to the next frame that decodes, and reports it as a value; no content of a
segment raises an error. While the capture lives, it waits for the rest of an incomplete frame; later
the frame counts as cut off. A segment is over after its END frame, when the capture is dead, or when
the next segment has frames. (The writer creates the next one early, but writes frames there only
after the END of this one.) Memory: one block, or one larger frame.

A read does at most READ_WORK_BYTES of work: scanned bytes, and a fixed cost for each name and place.
If more remains, its outcome is MORE and the next read continues there.
"""

import errno
import os
import re
import stat
from bisect import bisect_right
from enum import Enum
from itertools import islice
from typing import NamedTuple

from logshipper.errors import SegmentCorrupt
from logshipper.spool.segment import (
    FILE_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    Frame,
    FrameType,
    Kind,
    decode_file_header,
    decode_frame,
    frame_bytes,
)
from logshipper_ingest.spool.folder_entries import scanned

BLOCK_BYTES = 1 << 20
# the writer's have 32 MiB; the rest is skipped, and counts as that much at most
MAX_SEGMENT_BYTES = 1 << 30
READ_WORK_BYTES = 64 << 20  # of one read
SEARCH_BYTES = 256 << 20  # of a reader's searches for frames; later it skips a segment's rest
FRAME_COST_BYTES = 200  # of a frame, a run of lines, a line's attributes, besides their bytes
_RECORD_COST_BYTES = 5 * FRAME_COST_BYTES
_NAME_WORK_BYTES = 64 << 10  # cost of opening a file
_FIRST_STEP_BYTES = 4 << 10
_MAX_CANDIDATES = 1000  # possible frames after an incomplete one
_VERSION_OFFSET = 8  # where decode_file_header reports a newer version
_SEGMENT_NAME = re.compile(r"([0-9]{10})\.seg")
_MAX_NAMES = 1 << 16
_MAX_DAMAGES = 1000  # of one read
_NOT_A_SEGMENT = (errno.ELOOP, errno.ENXIO, errno.ENODEV)  # a link, a socket, a device
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class SpoolPosition(NamedTuple):
    """A place in a capture's segments; everything before it is done."""

    segment: int = 0  # its number, 0 before the first
    offset: int = 0  # in bytes, 0 before its header


class Outcome(Enum):
    """The reason why a read ended."""

    MORE = "more"  # enough for one read
    WAITING = "waiting"  # everything is read, but the capture lives
    CLOSED = "closed"  # the capture's last frame is read
    CUT = "cut"  # everything is read, and the capture is dead
    BLOCKED = "blocked"  # this version can't read the next segment


class Damage(NamedTuple):
    """Damage at one place."""

    error: SegmentCorrupt
    skipped: int  # bytes


class FrameBatch(NamedTuple):
    """The outcome of one read."""

    frames: list[Frame]
    damages: list[Damage]
    position: SpoolPosition  # where to go on
    outcome: Outcome
    size: int  # bytes of the frames and their cost
    frame_bytes: int = 0  # without their cost


def segment_name(number: int) -> str:
    return f"{number:010d}.seg"


def segment_number(name: str) -> int | None:
    """Return the number of a segment by its file name, None for other files."""
    match = _SEGMENT_NAME.fullmatch(name)
    return int(match[1]) if match else None


def list_segments(folder_fd: int) -> list[int]:
    """Return the numbers of a folder's segments in order, from at most _MAX_NAMES names."""
    with scanned(folder_fd) as entries:
        numbers = [segment_number(entry.name) for entry in islice(entries, _MAX_NAMES + 1)]
    return sorted(filter(None, numbers))


class SegmentReader:
    """A reader of a folder that the caller keeps open. Raises OSError if the system fails: a broken
    disk, no descriptors left."""

    def __init__(
        self, folder_fd: int, path: str, position: SpoolPosition, *, owner: int, line_bytes: int = 0
    ) -> None:
        self.position = position
        self._folder_fd = folder_fd
        self._path = path  # for reports
        self._owner = owner  # required of segments
        self._line_bytes = line_bytes  # extra cost of each line
        self._fd = -1
        self._closed = False  # the capture's last END is read
        self._searched = 0  # bytes scanned in search of frames
        self._step = BLOCK_BYTES  # of the next block: small after damage, then doubled
        # an incomplete frame, and the segment's size at which the next search is due
        self._tail = SpoolPosition(), 0
        self._begin_read()

    def _begin_read(self) -> None:
        self._frames: list[Frame] = []
        self._damages: list[Damage] = []
        self._size = 0
        self._frame_bytes = 0
        self._work = 0
        self._present: list[int] | None = None
        self._until: SpoolPosition | None = None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def is_open(self) -> bool:
        """Whether `grown_bytes` sees the next frames."""
        return self._fd >= 0

    def grown_bytes(self) -> int:
        """Return the unread bytes of the open segment: a cheap check between two reads."""
        return max(0, os.fstat(self._fd).st_size - self.position.offset) if self.is_open else 0

    def read(
        self, max_bytes: int, *, alive: bool, until: SpoolPosition | None = None
    ) -> FrameBatch:
        """Read about max_bytes of frames, or all that are there.

        alive: whether the capture lives, or lived when the caller last checked; once False,
        segments must not grow any more. until: where to stop (MORE), the end of an earlier read.
        """
        self._begin_read()
        self._until = until
        outcome: Outcome | None = None
        while outcome is None:
            if self._closed:
                outcome = Outcome.CLOSED
            elif (
                self._size >= max_bytes
                or len(self._damages) >= _MAX_DAMAGES
                or self._work >= READ_WORK_BYTES
                or (until is not None and self.position >= until)
            ):
                outcome = Outcome.MORE
            elif self._fd < 0:
                outcome = self._open(alive)
            elif self.position.offset == 0:
                outcome = self._read_header(alive)
            else:
                outcome = self._read_block(max_bytes, alive)
        batch = FrameBatch(
            self._frames, self._damages, self.position, outcome, self._size, self._frame_bytes
        )
        self._begin_read()  # free the frames: there are a thousand readers, and many won't read again
        return batch

    # ---- from segment to segment

    def _open(self, alive: bool) -> Outcome | None:
        """Open the position's segment, or go to the next one if it is missing or no segment."""
        number = self.position.segment
        self._work += _NAME_WORK_BYTES
        if number:
            try:
                fd = os.open(segment_name(number), _OPEN_FLAGS, dir_fd=self._folder_fd)
            except FileNotFoundError:
                pass
            except OSError as error:
                if error.errno not in _NOT_A_SEGMENT:
                    raise
                self._pass_over()
                return None
            else:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and status.st_uid == self._owner:
                    self._fd = fd
                    self._step = BLOCK_BYTES
                else:
                    os.close(fd)
                    self._pass_over()
                return None
        following = self._following()
        if following is None:
            return Outcome.WAITING if alive else Outcome.CUT
        if number or following > 1:
            self._report(0, f"segments before {segment_name(following)} are missing", 0)
        self.position = SpoolPosition(following, 0)
        return None

    def _pass_over(self) -> None:
        self._report(0, "this isn't a regular file of the capture's owner", 0)
        self.position = SpoolPosition(self.position.segment + 1, 0)

    def _following(self) -> int | None:
        """Return the first segment after the position's. The folder is listed once per read, since
        it may hold very many names."""
        if self._present is None:
            self._present = list_segments(self._folder_fd)
        at = bisect_right(self._present, self.position.segment)
        return self._present[at] if at < len(self._present) else None

    def _go_to_next(self) -> None:
        self.close()
        self.position = SpoolPosition(self.position.segment + 1, 0)

    def _is_over(self, alive: bool) -> bool:
        """Whether this segment no longer grows."""
        if not alive:
            return True
        try:
            name = segment_name(self.position.segment + 1)
            following = os.stat(name, dir_fd=self._folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return following.st_size > FILE_HEADER_BYTES

    def _file_bytes(self) -> int:
        return min(os.fstat(self._fd).st_size, MAX_SEGMENT_BYTES)

    def _read_header(self, alive: bool) -> Outcome | None:
        is_over = self._is_over(alive)
        head = _pread(self._fd, FILE_HEADER_BYTES, 0)
        if len(head) < FILE_HEADER_BYTES and not is_over:
            return Outcome.WAITING
        if not head:
            return self._end_without_mark(alive)
        try:
            first = decode_file_header(head, self._segment_path())
        except SegmentCorrupt as error:
            if error.offset == _VERSION_OFFSET:
                self._damages.append(Damage(error, 0))
                self.close()
                return Outcome.BLOCKED
            self._skip_to(self._find_magic(1), _reason(error))
            return None
        self.position = SpoolPosition(self.position.segment, first)
        return None

    # ---- frames

    def _read_block(self, max_bytes: int, alive: bool) -> Outcome | None:
        """Take the frames of one block; return None if there is more to do."""
        begin = self.position.offset
        if begin >= MAX_SEGMENT_BYTES:
            return self._leave_rest(alive)
        file_bytes = self._file_bytes()
        block = self._pread(min(self._step, max(file_bytes - begin, 0)), begin)
        self._step = min(2 * self._step, BLOCK_BYTES)
        return None if self._take_frames(block, max_bytes) else self._meet_obstacle(block, alive)

    def _take_frames(self, block: bytes, max_bytes: int) -> int:
        """Take complete frames from the block's begin, and advance the position. Return the offset
        of the first byte not taken."""
        at = 0
        number, begin = self.position
        end_limit = (
            len(block)
            if self._until is None or self._until.segment > number
            else self._until.offset - begin
        )
        while self._size < max_bytes and at < end_limit:
            try:
                decoded = decode_frame(block, at)
            except SegmentCorrupt:
                break
            if decoded is None:
                break
            frame, end = decoded
            if frame.type is FrameType.END:
                self.position = SpoolPosition(number, begin + end)
                self._closed = frame.count == 1
                if not self._closed:
                    self._go_to_next()
                return end
            self._frames.append(frame)
            self._size += end - at + self._line_bytes * frame.count + _cost(frame)
            self._frame_bytes += end - at
            at = end
        self.position = SpoolPosition(number, begin + at)
        return at

    def _meet_obstacle(self, block: bytes, alive: bool) -> Outcome | None:
        """Handle a position without a complete frame: damage, an incomplete or large frame, or the
        end."""
        begin = self.position.offset
        try:
            frame_size = frame_bytes(block, 0) or FRAME_HEADER_BYTES
        except SegmentCorrupt as error:
            self._skip_to(self._find_magic(begin + 1), _reason(error))
            return None
        is_over = self._is_over(alive)
        file_bytes = self._file_bytes()  # after is_over: now it can't grow
        if file_bytes - begin >= frame_size:
            self._take_large(frame_size)
            return None
        if file_bytes <= begin:
            return self._end_without_mark(alive) if is_over else Outcome.WAITING
        if not is_over and self._tail[0] == self.position and file_bytes < self._tail[1]:
            return Outcome.WAITING
        if self._work > READ_WORK_BYTES // 2:
            return Outcome.MORE  # the next read has room for the whole search
        frame_offset = self._find_frame(begin + 1, file_bytes, is_over)
        if frame_offset is not None:
            self._skip_to(frame_offset, "a frame is cut short")
        elif is_over:
            self._skip_to(file_bytes, "the last frame is cut short")
        else:
            # twice as long
            self._tail = self.position, file_bytes + max(file_bytes - begin, FRAME_HEADER_BYTES)
            return Outcome.WAITING
        return None

    def _end_without_mark(self, alive: bool) -> Outcome | None:
        """Leave a segment that is over without an END frame, as a dying capture's last one is."""
        if not alive and self._following() is None:
            return Outcome.CUT
        self._report(self.position.offset, "the end mark is missing", 0)
        self._go_to_next()
        return None

    def _leave_rest(self, alive: bool) -> Outcome | None:
        """Leave a segment that is longer than any writer's."""
        rest = os.fstat(self._fd).st_size - MAX_SEGMENT_BYTES
        if rest <= 0:
            return self._end_without_mark(alive) if self._is_over(alive) else Outcome.WAITING
        words = "the segment is longer than any writer's"
        error = SegmentCorrupt(self._segment_path(), MAX_SEGMENT_BYTES, words)
        self._note(Damage(error, min(rest, MAX_SEGMENT_BYTES)))
        self._go_to_next()
        return None

    def _take_large(self, frame_size: int) -> None:
        """Take one frame that may be larger than a block; skip it if it is damaged."""
        begin = self.position.offset
        block = self._pread(frame_size, begin)
        try:
            decode_frame(block, 0)
        except SegmentCorrupt as error:
            reason = _reason(error)
        else:
            # This takes none if the file has changed since; the next round checks it again.
            self._take_frames(block, self._size + 1)
            return
        self._searched += frame_size
        self._skip_to(self._find_magic(begin + 1), reason)

    # ---- damage

    def _find_magic(self, begin: int) -> int:
        """Return the next possible begin of a frame: a magic number, the end of the file, or the
        place at which this read's work is used up."""
        file_bytes = self._file_bytes()
        if self._searched > SEARCH_BYTES:
            return max(file_bytes, begin)
        at, step = begin, _FIRST_STEP_BYTES
        while at < file_bytes:
            block = self._pread(min(step, file_bytes - at), at)
            self._searched += len(block)
            magic_at = block.find(FRAME_MAGIC)
            if magic_at >= 0:
                return at + magic_at
            if not block or at + len(block) >= file_bytes:
                return max(file_bytes - _begun_magic(block), begin)
            at += len(block) - len(FRAME_MAGIC) + 1
            if self._work >= READ_WORK_BYTES:
                return at
            step = min(2 * step, BLOCK_BYTES)
        return max(file_bytes, begin)

    def _find_frame(self, begin: int, end: int, is_over: bool) -> int | None:
        """Return the begin of a complete frame after an incomplete one. If that is too much work,
        return None, or the end of the search in a segment that is over."""
        at = begin
        for _ in range(_MAX_CANDIDATES):
            at = self._find_magic(at)
            if at >= end or self._searched > SEARCH_BYTES:
                return None
            if self._work >= READ_WORK_BYTES:
                break
            try:
                frame_size = frame_bytes(self._pread(FRAME_HEADER_BYTES, at), 0)
                if frame_size is not None and at + frame_size <= end:
                    self._searched += frame_size
                    if decode_frame(self._pread(frame_size, at), 0) is not None:
                        return at
            except SegmentCorrupt:
                pass
            at += 1
        return at if is_over else None

    def _pread(self, size: int, offset: int) -> bytes:
        data = _pread(self._fd, size, offset)
        self._work += len(data)
        return data

    def _skip_to(self, offset: int, reason: str) -> None:
        begin = self.position.offset
        self._report(begin, reason, offset - begin)
        self.position = SpoolPosition(self.position.segment, offset)
        self._step = _FIRST_STEP_BYTES

    def _report(self, offset: int, reason: str, skipped: int) -> None:
        """Note damage, merged with an adjacent one."""
        path = self._segment_path()
        if self._damages and skipped:
            last = self._damages[-1]
            if last.error.path == path and last.error.offset + last.skipped == offset:
                self._damages[-1] = Damage(last.error, last.skipped + skipped)
                return
        self._note(Damage(SegmentCorrupt(path, offset, reason), skipped))

    def _note(self, damage: Damage) -> None:
        """Note damage, at the cost of a record: it becomes an event."""
        self._damages.append(damage)
        self._size += _RECORD_COST_BYTES

    def _segment_path(self) -> str:
        return os.path.join(self._path, segment_name(self.position.segment))


def _cost(frame: Frame) -> int:
    """Return the cost of ingesting a frame, besides its bytes."""
    if frame.type is not FrameType.LINES:
        return _RECORD_COST_BYTES
    records = sum(lines for kind, lines in frame.runs if kind is Kind.METADATA)
    return FRAME_COST_BYTES * (1 + len(frame.runs) + max(records, len(frame.attrs)))


def _reason(error: SegmentCorrupt) -> str:
    return error.reason.removeprefix(f"at byte {error.offset}: ")


def _begun_magic(block: bytes) -> int:
    """Return the number of bytes at the block's end that may begin a frame."""
    return next((size for size in (3, 2, 1) if block.endswith(FRAME_MAGIC[:size])), 0)


def _pread(fd: int, size: int, offset: int) -> bytes:
    """Read up to size bytes, repeating short reads."""
    data = os.pread(fd, size, offset) if size > 0 else b""
    while 0 < len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data
