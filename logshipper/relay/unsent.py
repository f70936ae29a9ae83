"""Bytes that the relay of `logshipper run` has read and the sidecar may lack, in memory that
outlives the relay: the log of a job with a killed relay has no gap.

The relay reads into `buffer`, copies to its stream's ring, counts the bytes, and clears the buffer.
A byte's place in its ring is its number in the stream, as the capture's counters count. So a
sidecar that knows its own count finds the rest there, and uncounted bytes in the buffer. Their
number is recorded nowhere: they end with the last non-zero byte, because the buffer is cleared.
Rings hold more than the relay holds back (RING_BYTES).
"""

import mmap
import struct

BUFFER_BYTES = 64 << 10  # of one turn's read
# of a stream; more than handover.BUFFER_BYTES and a turn's bytes of both streams
RING_BYTES = 512 << 10
# of the buffer: its stream, 0 for none; bytes counted before
_HEAD = struct.Struct("<QQ")
_RINGS_AT = _HEAD.size + BUFFER_BYTES
_NULLS = memoryview(bytes(BUFFER_BYTES))


class Unsent:
    """Made by the relay's process before it forks the sidecar. Raises OSError."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _RINGS_AT + 2 * RING_BYTES)
        self._view = memoryview(self._map)
        self.buffer = self._view[_HEAD.size : _RINGS_AT]

    # ---- the relay's

    def begin(self, stream: int, byte_count: int) -> None:
        """Prepare a read into buffer. byte_count: bytes of the stream so far."""
        _HEAD.pack_into(self._map, 0, stream, byte_count)

    def keep(self, stream: int, byte_count: int, data: bytes) -> None:
        """Before data, BUFFER_BYTES at most, is counted."""
        begin = byte_count % RING_BYTES
        ring = _RINGS_AT + (stream - 1) * RING_BYTES
        first = min(len(data), RING_BYTES - begin)
        self._map[ring + begin : ring + begin + first] = data[:first] if first < len(data) else data
        if first < len(data):
            self._map[ring : ring + len(data) - first] = data[first:]

    def clear(self, size: int) -> None:
        """Once the first size bytes of buffer are counted."""
        self.buffer[:size] = _NULLS[:size]

    # ---- the sidecar's, when the relay is gone

    def unreceived(self, stream: int, received: int, byte_count: int) -> bytes:
        """Bytes of the stream that were counted and not received, RING_BYTES at most. received,
        byte_count: how many."""
        begin = max(received, byte_count - RING_BYTES)
        ring = _RINGS_AT + (stream - 1) * RING_BYTES
        whole = bytes(self._view[ring : ring + RING_BYTES])
        at, size = begin % RING_BYTES, byte_count - begin
        return (whole[at:] + whole[:at])[:size] if size > 0 else b""

    def uncounted(self, stream: int, byte_count: int) -> bytes:
        """Return bytes of the stream that were only read. byte_count: bytes of it so far."""
        of, before = _HEAD.unpack_from(self._map)
        return bytes(self.buffer).rstrip(b"\0") if (of, before) == (stream, byte_count) else b""
