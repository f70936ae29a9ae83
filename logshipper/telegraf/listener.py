"""Receives measurements as Telegraf's socket listener does (Influx line protocol by UDP, TCP, a
Unix datagram socket), with their senders by the kernel's word. The caller handles them.

Limits: per_sec lines a second (a long one counts as several, and so does a connection), BURST_SECS
of these at once. Faster data stays with the kernel, which drops datagrams (counted) and slows
connections. Beyond MAX_CONNECTIONS, the user with the most loses the oldest. A line or datagram has
at most MAX_LINE_BYTES.

The listener refuses descriptors passed with a datagram: their number is unlimited, and closing one
may take as long as its sender likes.

An arrival time is never later than the true one, even if this process did not run. For datagrams it
is the kernel's time (of the first of a batch, the oldest). For a connection it is the last time the
listener saw it empty, at most TCP_LOOK_SECS earlier while this process runs.
"""

import errno
import math
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from logshipper.telegraf.line_protocol import MAX_LINE_BYTES
from logshipper.telegraf.socket_owner import SocketOwner, SocketOwners

MAX_CONNECTIONS = 256
BURST_SECS = 0.2
BATCH = 256  # lines of each kind of socket, in turn
_USUAL_LINE_BYTES = 128
_READ_BYTES = 16 << 10  # of a connection at a time
_CONNECTION_COST = 8  # in usual lines: for the look-up of its owner
RECEIVE_BYTES = 4 << 20  # desired size of a socket's buffer
TCP_LOOK_SECS = 0.25  # between two looks at connections
LOOPBACK = "127.0.0.1"
_SO_MEMINFO = 55  # sock_diag(7), SK_MEMINFO_VARS: the last one counts drops
_MEMINFO = struct.Struct("=9I")
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid: unix(7)
# socket(7): of each datagram, when it came; its control message has the same number
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@ll")
_TIME_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
# room for these, after the time, and nothing else
_ANCILLARY_BYTES = socket.CMSG_LEN(_CREDENTIALS.size)
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TRIES = 32  # for a port that is free for UDP and TCP
_NOBODY = SocketOwner(-1)

Address = tuple[str, int]
Take = Callable[["Sender", bytes, float], None]


class Sender(NamedTuple):
    """owner: None if unknown; address: for people."""

    owner: SocketOwner | None
    address: str


class Sockets(NamedTuple):
    """Bound and listening sockets; tcp, unix: None without one."""

    udp: socket.socket
    tcp: socket.socket | None = None
    unix: socket.socket | None = None

    @property
    def port(self) -> int:
        return int(self.udp.getsockname()[1])

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.udp.getsockname())

    @property
    def endpoints(self) -> list[socket.socket]:
        return [endpoint for endpoint in self if endpoint is not None]

    @property
    def fds(self) -> set[int]:
        return {endpoint.fileno() for endpoint in self.endpoints}

    def close(self) -> None:
        for endpoint in self.endpoints:
            endpoint.close()


def open_sockets(host: str, port: int) -> Sockets:
    """UDP and TCP at an address of IPv4's loopback; port 0: one that is free for both. Raises
    OSError."""
    for attempt in range(_TRIES):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            udp.bind((host, port))
            # connections of the last agent may linger
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind((host, udp.getsockname()[1]))
            tcp.listen(128)
            return Sockets(udp, tcp)
        except OSError:
            udp.close()
            tcp.close()
            if port or attempt == _TRIES - 1:
                raise
    raise AssertionError


class _Connection:
    """rest: an unfinished line, and the arrival of its first byte; empty_at: when the connection
    was last empty; skips: until the next line feed."""

    def __init__(self, connected: socket.socket, sender: Sender, empty_at: float) -> None:
        self.socket = connected
        self.sender = sender
        self.empty_at = empty_at
        self.rest = b""
        self.rest_arrived_at = 0.0
        self.skips = False
        self.read_at = 0  # the number of its last read, of all reads

    @property
    def uid(self) -> int:
        return (self.sender.owner or _NOBODY).uid


class Listener:
    """Serves measurements.

    take(sender, lines, arrived_at): called by `serve`; arrived_at: an earliest time of arrival,
    monotonic clock. between(): called, too; returns the seconds until its next call. stop_fd: the
    caller's; readable, or at its end, to stop `serve`.

    trusted: users whose connections are accepted; None: everybody's.

    counts: datagrams, and reads of connections (`received`), and omissions: `overflow` (dropped by
    the kernel), `too_long`, `crowded` and `foreign` (connections). connections: their present
    number. Raises OSError if the kernel cannot name owners of sockets.
    """

    def __init__(
        self,
        sockets: Sockets,
        take: Take,
        stop_fd: int,
        *,
        per_sec: int,
        trusted: Collection[int] | None = None,
        between: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.counts: Counter[str] = Counter(
            received=0, overflow=0, too_long=0, crowded=0, foreign=0
        )
        self._sockets = sockets
        self._take = take
        self._between = between
        self._per_sec = per_sec
        self._trusted = trusted
        self._budget = self._burst = per_sec * BURST_SECS
        self._filled_at = time.monotonic()
        self._connections: dict[int, _Connection] = {}  # by fd, the oldest first
        self._reads = 0
        self._accepted_at = 0.0  # when no connection waited to be accepted
        self._timed: set[int] = set()  # fds of sockets whose datagrams have times
        self._dropped_count = 0  # as the kernel counts
        self._own_address: Address = sockets.udp.getsockname()
        self._stop_fd = stop_fd
        self._stops = select.poll()
        self._stops.register(stop_fd, select.POLLIN)
        self._poll = select.poll()
        self._prepare()
        self._owners = SocketOwners()

    @property
    def connections(self) -> int:
        return len(self._connections)

    def _prepare(self) -> None:
        if self._sockets.unix is not None:
            self._sockets.unix.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        for endpoint in self._sockets.endpoints:
            if endpoint is not self._sockets.tcp:
                endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                try:
                    endpoint.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                    self._timed.add(endpoint.fileno())
                except OSError:
                    pass  # without it, data arrives when it is read
            endpoint.setblocking(False)
            self._poll.register(endpoint, select.POLLIN)
        self._poll.register(self._stop_fd, select.POLLIN)

    def serve(self) -> None:
        """Serve until stopped; then take the data that has arrived, as far as the rate allows."""
        while True:
            wait_secs = self._between()
            self._refill()
            if self._stops.poll(0):
                break
            if self._budget < 0:
                self._stops.poll(_milliseconds(min(wait_secs, -self._budget / self._per_sec)))
                continue
            if self._connections:
                wait_secs = min(wait_secs, TCP_LOOK_SECS)
            self._turn(self._ready(wait_secs))
        while self._budget > 0 and self._turn(self._ready(0.0)):
            pass

    def close(self) -> None:
        """Close the sockets, after `serve` or instead of it."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._sockets.close()
        self._owners.close()

    def _ready(self, wait_secs: float) -> set[int]:
        """Fds with something to read; of the others it is noted that they were empty."""
        begin = time.monotonic()
        # checked first: a constant sender would end each wait
        ready = {fd for fd, _ in self._poll.poll(0)}
        for fd, connection in self._connections.items():
            if fd not in ready:
                connection.empty_at = begin
        if self._sockets.tcp is not None and self._sockets.tcp.fileno() not in ready:
            self._accepted_at = begin
        return ready or {fd for fd, _ in self._poll.poll(_milliseconds(wait_secs))}

    def _turn(self, ready: set[int]) -> int:
        """Run one turn; return its cost in usual lines."""
        udp, tcp, unix = self._sockets
        cost = 0
        if udp.fileno() in ready:
            cost += self._take_datagrams(udp)
        if unix is not None and unix.fileno() in ready:
            cost += self._take_credited(unix)
        cost += self._read_connections(ready)
        if tcp is not None and tcp.fileno() in ready:
            cost += self._accept(tcp)
        self._budget -= cost
        return cost

    def _refill(self) -> None:
        now = time.monotonic()
        self._budget = min(self._burst, self._budget + (now - self._filled_at) * self._per_sec)
        self._filled_at = now

    def _take_datagrams(self, udp: socket.socket) -> int:
        """Take datagrams, with one look-up of the owner for a sender's batch."""
        by_sender: dict[Address, list[bytes]] = {}
        cost = 0
        arrived_at = 0.0
        while cost < BATCH:
            try:
                if cost:
                    data, address = udp.recvfrom(MAX_LINE_BYTES)  # UDP has no longer ones
                else:
                    data, ancillary, _, address = udp.recvmsg(MAX_LINE_BYTES, _TIME_BYTES)
                    arrived_at = _arrived_at(ancillary)
            except OSError:
                break  # nothing more
            cost += self._count_cost(data)
            by_sender.setdefault(address, []).append(data)
        self._note_dropped()
        for address, lines in by_sender.items():
            owner = self._owners.udp(address, self._own_address)
            sender = Sender(owner, f"udp {address[0]}:{address[1]}")
            self._take(sender, b"\n".join(lines), arrived_at)
        return cost

    def _count_cost(self, data: bytes) -> int:
        """Return the cost in usual lines."""
        self.counts["received"] += 1
        return 1 + len(data) // _USUAL_LINE_BYTES

    def _note_dropped(self) -> None:
        try:
            meminfo = self._sockets.udp.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        except OSError:
            return  # before Linux 4.12
        dropped_count: int = _MEMINFO.unpack(meminfo)[-1]
        self.counts["overflow"] += (dropped_count - self._dropped_count) % (1 << 32)
        self._dropped_count = dropped_count

    def _take_credited(self, unix: socket.socket) -> int:
        cost = 0
        room = _ANCILLARY_BYTES + (_TIME_BYTES if unix.fileno() in self._timed else 0)
        while cost < BATCH:
            try:
                data, ancillary, flags, _ = unix.recvmsg(MAX_LINE_BYTES, room)
            except OSError:
                break
            cost += self._count_cost(data)
            if flags & socket.MSG_TRUNC:
                self.counts["too_long"] += 1
                continue
            owner = None
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid, uid, _ = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])
                    owner = SocketOwner(uid, pid=pid)
            sender = Sender(owner, f"unix, process {owner.pid if owner else 0}")
            self._take(sender, data, _arrived_at(ancillary))
        return cost

    # ---- connections

    def _accept(self, tcp: socket.socket) -> int:
        """Accept a connection; return the cost in usual lines."""
        cost = 0
        while cost < BATCH:
            try:
                connected, address = tcp.accept()
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    return cost  # nothing more
                self._make_room()
                return cost + BATCH  # it is ready all the same: not at once again
            cost += _CONNECTION_COST
            owner = self._owners.tcp(address, self._own_address)
            if self._trusted is not None and owner is not None and owner.uid not in self._trusted:
                self.counts["foreign"] += 1
                connected.close()
                continue
            if len(self._connections) >= MAX_CONNECTIONS:
                self._make_room()
            connected.setblocking(False)
            empty_at = max(self._accepted_at, time.monotonic() - TCP_LOOK_SECS)
            self._connections[connected.fileno()] = _Connection(
                connected, Sender(owner, f"tcp {address[0]}:{address[1]}"), empty_at
            )
            self._poll.register(connected, select.POLLIN)
        return cost

    def _make_room(self) -> None:
        """Drop the oldest connection of the user with the most."""
        connections = self._connections.values()
        for uid, _ in Counter(connection.uid for connection in connections).most_common(1):
            self.counts["crowded"] += 1
            self._drop(next(connection for connection in connections if connection.uid == uid))

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        self._poll.unregister(connection.socket)
        connection.socket.close()

    def _read_connections(self, ready: set[int]) -> int:
        """Read one batch from connections, the least recently read first; return the cost in usual
        lines."""
        cost = 0
        readable = [self._connections[fd] for fd in ready & self._connections.keys()]
        for connection in sorted(readable, key=lambda connection: connection.read_at):
            if cost >= BATCH:
                break
            self._reads += 1
            connection.read_at = self._reads
            cost += self._read(connection)
        return cost

    def _read(self, connection: _Connection) -> int:
        arrived_at = connection.rest_arrived_at if connection.rest else connection.empty_at
        try:
            data = connection.socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        lines, connection.rest = _whole_lines(connection, data) if data else (connection.rest, b"")
        connection.rest_arrived_at = connection.empty_at if lines else arrived_at
        if len(connection.rest) > MAX_LINE_BYTES:
            connection.rest, connection.skips = b"", True
            self.counts["too_long"] += 1
        if lines:
            self._take(connection.sender, lines, arrived_at)
        if not data:
            self._drop(connection)
        return self._count_cost(data) if data else 0


def _arrived_at(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Return a datagram's arrival by the monotonic clock; now, if the kernel gives no time."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            secs, nanoseconds = _TIMESPEC.unpack(value[: _TIMESPEC.size])
            age_secs: float = time.time() - secs - nanoseconds / 1e9
            return time.monotonic() - max(0.0, age_secs)
    return time.monotonic()


def _milliseconds(secs: float) -> float | None:
    """Convert for `poll`; None waits forever."""
    return None if secs == math.inf else secs * 1000


def _whole_lines(connection: _Connection, data: bytes) -> tuple[bytes, bytes]:
    """Split off the whole lines from an unfinished one."""
    if connection.skips:
        _, ended, data = data.partition(b"\n")
        connection.skips = not ended
    head, feed, rest = data.rpartition(b"\n")
    return (connection.rest + head + feed, rest) if feed else (b"", connection.rest + rest)


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n"))
