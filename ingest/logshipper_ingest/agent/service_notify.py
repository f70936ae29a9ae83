"""Reports of the service's state to systemd (sd_notify(3)): ready, alive, stopping, and a line for
`systemctl status`. Sends nothing without $NOTIFY_SOCKET and ignores errors."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

_MAX_STATUS_CHARS = 300


class ServiceNotifier:
    """The sender, for one thread. environment: from systemd."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name
        self._due = 0.0
        self._status = ""
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        # longest allowed silence, 0 for any time
        self.watchdog_secs = _watchdog_secs(environment)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ready(self) -> None:
        self._send("READY=1")

    def alive(self) -> None:
        """Send the watchdog's signal each third of its time; call this often."""
        now = time.monotonic()
        if self.watchdog_secs and now >= self._due:
            self._due = now + self.watchdog_secs / 3
            self._send("WATCHDOG=1")

    def status(self, words: str) -> None:
        """Send one line if it has changed."""
        line = " ".join(words.split())[:_MAX_STATUS_CHARS]
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        data = message.encode("utf-8", "replace")
        with suppress(OSError):  # a full queue, or systemd restarts: the next message may arrive
            self._socket.sendto(data, socket.MSG_NOSIGNAL, self._address)


def _watchdog_secs(environment: Mapping[str, str]) -> float:
    """Return the watchdog's time, 0 if it applies to another process."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    usecs = environment.get("WATCHDOG_USEC", "")
    return int(usecs) / 1e6 if usecs.isascii() and usecs.isdigit() and len(usecs) < 16 else 0.0
