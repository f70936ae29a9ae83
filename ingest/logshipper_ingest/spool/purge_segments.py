"""Purging of lines in segments: asterisks overwrite each, so that frames, times and noted offsets
stay valid, and the lines still count. Damaged places are purged as well.

The caller keeps others from reading meanwhile. A live capture may write on, since it only appends.
"""

import errno
import os
import stat
import zlib
from typing import NamedTuple

from logshipper.errors import SegmentCorrupt, StoreError, os_words
from logshipper.spool import segment
from logshipper.spool.live_status import LIVE_FILE
from logshipper_ingest.spool.capture_folder import IDENTITY, CaptureFolder, Life
from logshipper_ingest.spool.purge_masks import masked_json, masked_lines
from logshipper_ingest.spool.purge_pattern import LinePattern
from logshipper_ingest.spool.segment_reader import MAX_SEGMENT_BYTES, segment_name

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR, errno.ENOENT)
_OWN_LEVELS_OF_ATTRS = 2  # `runs`, `lines`, and the numbers of lines
_MAX_AT_ONCE = 256 << 20  # of a segment in memory; a writer's have 32 MiB


class PurgeResult(NamedTuple):
    """The result of a purge."""

    lines: int  # matching ones
    files: list[str]  # paths of files with matching lines


def purge_capture(folder: CaptureFolder, pattern: LinePattern, *, dry_run: bool) -> PurgeResult:
    """Purge a capture's identity (the job's name), segments and live status. dry_run only counts.
    Raises StoreError."""
    alive = folder.life() is Life.LIVE
    path = os.path.join(folder.path, IDENTITY)
    try:
        lines = folder.rewrite_identity(lambda text: masked_json(text, pattern), dry_run=dry_run)
    except OSError as error:
        raise StoreError(path, f"can't be purged: {os_words(error)}") from None
    files = [path] if lines else []
    names = [*map(segment_name, folder.segment_numbers()), LIVE_FILE]
    for name in names if folder.segments_fd >= 0 else ():
        path = os.path.join(folder.path, "segments", name)
        try:
            hit_count = _purge_segment(folder, name, path, pattern, alive=alive, dry_run=dry_run)
        except OSError as error:
            raise StoreError(path, f"can't be purged: {os_words(error)}") from None
        lines += hit_count
        files += [path] if hit_count else []
    return PurgeResult(lines, files)


def _purge_segment(
    folder: CaptureFolder, name: str, path: str, pattern: LinePattern, *, alive: bool, dry_run: bool
) -> int:
    try:
        flags = _FLAGS | (os.O_RDONLY if dry_run else os.O_RDWR)
        fd = os.open(name, flags, dir_fd=folder.segments_fd)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            return 0  # the agent doesn't read such files either
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != folder.writer:
            return 0
        if status.st_size > _MAX_AT_ONCE:
            words = f"has {status.st_size} bytes, more than any capture writes: it was not purged; remove it"
            raise StoreError(path, words)
        data = os.pread(fd, min(status.st_size, MAX_SEGMENT_BYTES), 0)
        lines, edits = _edits(data, pattern, alive=alive)
        if edits and not dry_run:
            for offset, new in edits:
                if os.pwrite(fd, new, offset) != len(new):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            os.fsync(fd)
        return lines
    finally:
        os.close(fd)


def _edits(
    data: bytes, pattern: LinePattern, *, alive: bool
) -> tuple[int, list[tuple[int, bytes]]]:
    """Return the number of matching lines, and the new bytes by offset."""
    try:
        at = segment.decode_file_header(data)
    except SegmentCorrupt:
        at = 0
    lines = 0
    edits: list[tuple[int, bytes]] = []
    while at < len(data):
        try:
            decoded = segment.decode_frame(data, at)
            if decoded is None and alive:
                break  # the sidecar is writing it
        except SegmentCorrupt:
            decoded = None
        if decoded is not None:
            frame, end = decoded
            attrs = data[at + segment.FRAME_HEADER_BYTES : end - len(frame.text)]
            payload, hit_count = _masked_frame(frame, attrs, pattern)
            if hit_count:
                edits.append((at, _frame_with(data[at:end], payload)))
        else:
            following = data.find(segment.FRAME_MAGIC, at + 1)
            end = following if following >= 0 else len(data)
            text, hit_count = masked_lines(data[at:end], pattern)
            if hit_count:
                edits.append((at, text))
        lines += hit_count
        at = end
    return lines, edits


def _masked_frame(frame: segment.Frame, attrs: bytes, pattern: LinePattern) -> tuple[bytes, int]:
    """Return masked attributes and text, and the number of matching lines."""
    if frame.type is segment.FrameType.LINES:
        masked_attrs = masked_json(attrs, pattern, _OWN_LEVELS_OF_ATTRS)
        text, hit_count = masked_lines(frame.text, pattern)
        return masked_attrs + text, hit_count or int(masked_attrs != attrs)
    if frame.type is segment.FrameType.RECORD:
        text = masked_json(frame.text, pattern)
        return text, int(text != frame.text)
    return frame.text, 0


def _frame_with(frame: bytes, payload: bytes) -> bytes:
    """Return a frame with another payload of the same length, and its checksum
    (docs/segment-format.md)."""
    head = frame[: segment.FRAME_HEADER_BYTES - 4]
    crc = zlib.crc32(payload, zlib.crc32(head))
    return head + crc.to_bytes(4, "little") + payload
