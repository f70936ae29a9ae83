"""Sends messages with fields to systemd's journal, by its native protocol
(https://systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram each.

Messages may contain text of users, so each value that could start a new field carries its length.
The module cuts messages to less than any socket's buffer, so that they need no memory file.
"""

import errno
import socket
import struct
import threading
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
MAX_MESSAGE_BYTES = 16 << 10
MAX_FIELD_BYTES = 1 << 10
_FULL = (errno.EAGAIN, errno.ENOBUFS)  # full now; the caller does not wait


class Journal:
    """path: of the journal's socket. dropped_count: messages that it had no room for. Any
    thread's."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.dropped_count = 0
        self._reported_count = 0  # the reported part of these

    def send(self, fields: Mapping[str, str]) -> bool:
        """Send a message; return False if the journal cannot be reached.

        Field names consist of A to Z, 0 to 9 and `_`.
        """
        with self._lock:
            try:
                if count := self.dropped_count - self._reported_count:
                    words = f"{count} messages are missing here: the journal had no room for them"
                    identifier = fields["SYSLOG_IDENTIFIER"]
                    facts = {"MESSAGE": words, "PRIORITY": "4", "SYSLOG_IDENTIFIER": identifier}
                    self._send(facts)
                    self._reported_count += count
                self._send(fields)
            except OSError as error:
                if error.errno not in _FULL:
                    return False
                self.dropped_count += 1
        return True

    def _send(self, fields: Mapping[str, str]) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto(encode(fields), socket.MSG_NOSIGNAL, self._path)


def encode(fields: Mapping[str, str]) -> bytes:
    """One datagram."""
    parts = []
    for name, text in fields.items():
        cap = MAX_MESSAGE_BYTES if name == "MESSAGE" else MAX_FIELD_BYTES
        value = text.encode("utf-8", "replace")
        if len(value) > cap:
            value = value[:cap].decode("utf-8", "ignore").encode() + "…".encode()
        length = struct.pack("<Q", len(value))
        parts.append(name.encode("ascii") + b"\n" + length + value + b"\n")
    return b"".join(parts)
