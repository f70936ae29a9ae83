"""The current running bars, in a file beside a capture's segments that each change overwrites
(docs/segment-format.md): readers see the newest state, and a bar that runs for days leaves no more
behind."""

import errno
import os
from collections.abc import Mapping

from logshipper.errors import SegmentCorrupt
from logshipper.spool import segment

LIVE_FILE = "live"  # in `segments/`
MAX_LIVE_BYTES = 10_000  # of the file: a frame for each stream, at its longest


class LiveStatusFile:
    """Writes a capture's live status. The file is made when there is something to show."""

    def __init__(self, segments: str) -> None:
        self._path = os.path.join(segments, LIVE_FILE)
        self._fd = -1
        self._texts: dict[segment.Stream, bytes] = {}
        self._frames: dict[segment.Stream, bytes] = {}
        self._size = 0  # of the file; overwrites the rest of a longer text

    def show(self, texts: Mapping[segment.Stream, bytes], now_ns: int) -> None:
        """Show bars. texts: by stream, each a STATUS line of at most MAX_STATUS_BYTES; b"" for
        none.

        Writes changes only; after a failure, shows nothing until the next change.
        """
        changed = [stream for stream, text in texts.items() if text != self._texts.get(stream, b"")]
        if not changed:
            return
        for stream in changed:
            self._texts[stream] = texts[stream]
            self._frames[stream] = segment.encode_lines(
                stream, now_ns, texts[stream] + b"\n", [(segment.Kind.STATUS, 1)]
            )
        try:
            self._write(b"".join(self._frames.values()))
        except OSError:
            self._clear()

    def _write(self, frames: bytes) -> None:
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
        frames = frames.ljust(self._size, b"\0")
        # a reader inside the write finds a wrong checksum
        if os.pwrite(self._fd, frames, 0) != len(frames):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size = len(frames)

    def _clear(self) -> None:
        """Nothing old may stay."""
        self._size = 0
        try:
            if self._fd >= 0:
                os.ftruncate(self._fd, 0)
        except OSError:
            pass  # the disk fails: nothing on it can be changed

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def decode_live(data: bytes) -> dict[segment.Stream, tuple[int, bytes]]:
    """Parse the file: (time in ns, bars separated by LF) by stream; empty during a write. Untrusted
    input: never raises."""
    live: dict[segment.Stream, tuple[int, bytes]] = {}
    data = data[:MAX_LIVE_BYTES].rstrip(b"\0")
    at = 0
    try:
        while at < len(data):
            decoded = segment.decode_frame(data, at)
            if decoded is None:
                return {}
            frame, at = decoded
            if frame.type is not segment.FrameType.LINES or frame.runs != (
                (segment.Kind.STATUS, 1),
            ):
                return {}
            text = frame.text[: segment.MAX_STATUS_BYTES].rstrip(b"\n")
            live[frame.stream] = frame.time_ns, text.replace(segment.STATUS_BREAK, b"\n")
    except SegmentCorrupt:
        return {}
    return live
