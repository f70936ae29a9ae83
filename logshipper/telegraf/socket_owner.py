"""The owner of a socket on this machine, by its address and the kernel's word (sock_diag(7)), while
the socket lives.

A datagram from 127.0.0.1 shows only a port. The kernel names the port's present owner; a closed
socket has none. An answer counts only for a socket of exactly this address with an inode: the
kernel reports sockets that their process has closed as root's.
"""

import os
import socket
import struct
from itertools import islice
from typing import NamedTuple

_SOCK_DIAG = 4  # NETLINK_SOCK_DIAG
_BY_FAMILY = 20
_REQUEST = 1  # NLM_F_REQUEST
_ERROR = 2
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_ID = struct.Struct("!HH16s16s")
_ID_REST = struct.Struct("=III")
_ANSWER = struct.Struct("=BBBB")
_ANSWER_REST = struct.Struct("=IIIII")  # expires, rqueue, wqueue, uid, inode
_ALL_STATES = NO_COOKIE = 0xFFFFFFFF
_MAPPED = bytes(10) + b"\xff\xff"
_WAIT_SECS = 1.0


class SocketOwner(NamedTuple):
    """uid: of the user who created the socket; inode: the socket's, as in /proc/PID/fd; pid: 0 if
    unknown."""

    uid: int
    inode: int = 0
    pid: int = 0


class SocketOwners:
    """Asks the kernel; close it. Use it in one thread. Raises OSError if the kernel cannot answer."""

    def __init__(self) -> None:
        self._netlink = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG
        )
        self._netlink.settimeout(_WAIT_SECS)
        self._number = 0

    def close(self) -> None:
        self._netlink.close()

    def udp(self, sender: tuple[str, int], own_address: tuple[str, int]) -> SocketOwner | None:
        """Return the sender of a datagram from an address (IPv4, port) to own_address; None for
        closed sockets and other network namespaces."""
        # the receiver's view: sent to the sender's port
        return self._ask(socket.IPPROTO_UDP, own_address, sender, sender)

    def tcp(self, peer: tuple[str, int], own_address: tuple[str, int]) -> SocketOwner | None:
        """Return the owner of the other end of a connection."""
        return self._ask(socket.IPPROTO_TCP, peer, own_address, peer)

    def _ask(
        self,
        protocol: int,
        source: tuple[str, int],
        target: tuple[str, int],
        address: tuple[str, int],
    ) -> SocketOwner | None:
        self._number += 1
        addresses = [
            socket.inet_aton(endpoint[0]).ljust(16, b"\0") for endpoint in (source, target)
        ]
        body = _ASKED.pack(socket.AF_INET, protocol, 0, _ALL_STATES)
        body += _ID.pack(source[1], target[1], *addresses) + _ID_REST.pack(0, NO_COOKIE, NO_COOKIE)
        size = _HEADER.size + len(body)
        try:
            self._netlink.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST, self._number, 0) + body)
            while True:
                answer = self._netlink.recv(4096)
                if len(answer) >= _HEADER.size and _HEADER.unpack_from(answer)[3] == self._number:
                    return _owner(answer, address)
        except OSError:
            return None


def _owner(answer: bytes, owned_address: tuple[str, int]) -> SocketOwner | None:
    if _HEADER.unpack_from(answer)[1] == _ERROR:
        return None
    at = _HEADER.size
    family = _ANSWER.unpack_from(answer, at)[0]
    port, _, address, _ = _ID.unpack_from(answer, at + _ANSWER.size)
    *_, uid, inode = _ANSWER_REST.unpack_from(answer, at + _ANSWER.size + _ID.size + _ID_REST.size)
    ip = socket.inet_aton(owned_address[0])
    # a socket of IPv6 may speak IPv4, too
    addresses = (
        {ip + bytes(12), bytes(16)} if family == socket.AF_INET else {_MAPPED + ip, bytes(16)}
    )
    return (
        SocketOwner(uid, inode)
        if address in addresses and port == owned_address[1] and inode
        else None
    )


def processes_of(owner: SocketOwner, budget: int = 65_536) -> list[int]:
    """Return the user's processes that hold the socket open, as far as they are visible.

    budget: descriptors to check, with one more for each process.
    """
    socket_name = f"socket:[{owner.inode}]"
    pids: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != owner.uid:
                continue
            budget -= 1
            with os.scandir(f"/proc/{name}/fd") as entries:
                for fd in islice(entries, max(budget, 0)):
                    budget -= 1
                    if _link(fd.path) == socket_name:
                        pids.append(int(name))
                        break
        except OSError:
            continue  # gone, or not ours to look at
        if budget <= 0:
            break
    return pids


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
