"""Frames of the side pipe from relay to sidecar, version 1 (docs/side-pipe.md); a C relay also
writes them.

A frame has an 8-byte header (type, stream, flags, payload length; little-endian) and its payload.
The relay ignores the bytes' meaning. It adds the facts that the sidecar cannot know: the streams
that it saw empty.
"""

import fcntl
import struct
import termios
from enum import IntEnum, IntFlag

HEADER = struct.Struct("<BBHI")
MAX_PAYLOAD_BYTES = 1 << 20
_INT = struct.Struct("i")


class SideType(IntEnum):
    DATA = 1  # payload: bytes of a stream, as the job wrote them
    EMPTY = 2  # flags: the streams that were empty after all that was sent before
    SIZE = 3  # payload: columns, rows as two u16: the terminal was resized
    CLOSED = 4  # stream: nobody holds it any more, or its reader has gone: release it
    # payload: wait status of CMD as i32; flags: Ending; open streams continue: the sidecar relays
    # them
    EXIT = 5
    MISSED = 6  # CMD did not wait for its relay: its output is not captured


class Empty(IntFlag):
    """Streams that the poll before this frame's bytes found empty."""

    STDOUT = 1
    STDERR = 2


class Ending(IntFlag):
    """The relay's facts about CMD's end besides the wait status."""

    UNCANCELLED = 1  # no signal that cancels a job came to the relay, nor was one typed


def encode(kind: SideType, stream: int = 0, flags: int = 0, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, stream, flags, len(payload)) + payload


def encode_size(columns: int, rows: int) -> bytes:
    return encode(SideType.SIZE, payload=struct.pack("<HH", columns, rows))


def encode_exit(wait_status: int, flags: int = 0) -> bytes:
    return encode(SideType.EXIT, 0, flags, payload=struct.pack("<i", wait_status))


def unread_bytes(pipe: int) -> int:
    """Return the number of bytes that wait in a pipe."""
    return int(_INT.unpack(fcntl.ioctl(pipe, termios.FIONREAD, bytes(_INT.size)))[0])
