"""The listener for measurements and the search for their senders resist processes of other users:
passed descriptors, open connections and endless data."""

import array
import os
import resource
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logshipper.telegraf.listener import BATCH, BURST_SECS, LOOPBACK, Listener, Sender, open_sockets
from logshipper.telegraf.socket_owner import SocketOwner, processes_of
from logshipper_ingest.sockets.peer import job_ids_of
from logshipper_ingest.sockets.socket_file import bind
from logshipper_ingest.telegraf.senders import Senders
from tests.tools.captures.captured_runs import wait_until
from tests.tools.captures.other_users import ANN, BEN

PER_SEC = 20_000


class ListenerThread:
    """A listener that a thread serves from `start` on. packets: data with its sender, in order of
    arrival."""

    def __init__(self, folder: Path, *, per_sec: int = PER_SEC) -> None:
        sockets = open_sockets(LOOPBACK, 0)
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = str(folder / "unix.sock")
        unix.bind(self.path)
        self.address = (LOOPBACK, sockets.port)
        self.packets: list[tuple[Sender, bytes]] = []
        self.turns = 0
        self.turns_wanted = 0  # 0: without limit
        self._stop, self._stopping = os.pipe()
        self.listener = Listener(
            sockets._replace(unix=unix),
            self._take,
            self._stop,
            per_sec=per_sec,
            between=self._between,
        )
        self._thread = threading.Thread(target=self.listener.serve)

    def _take(self, sender: Sender, data: bytes, arrived_at: float) -> None:
        self.packets.append((sender, data))

    def _between(self) -> float:
        self.turns += 1
        if self.turns == self.turns_wanted:
            self.stop()
        return 1.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._stopping >= 0:
            os.close(self._stopping)
            self._stopping = -1

    def close(self) -> None:
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()
        self.listener.close()
        os.close(self._stop)

    def count(self) -> int:
        return sum(data.count(b"\n") for _, data in self.packets)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., ListenerThread]]:
    listeners: list[ListenerThread] = []

    def listening(per_sec: int = PER_SEC) -> ListenerThread:
        listeners.append(ListenerThread(tmp_path, per_sec=per_sec))
        return listeners[-1]

    yield listening
    for listener in listeners:
        listener.close()


def _open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_descriptors_that_are_passed_on_stay_outside(make: Callable[..., ListenerThread]) -> None:
    """This also holds for data that is too long."""
    listening = make()
    listening.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sender.fileno()] * 50))]
        sender.connect(listening.path)
        sender.sendmsg([b"m value=1i"], passed)
        wait_until(lambda: len(listening.packets) == 1, "it is taken")
        before = _open_fds()
        for _ in range(3):
            sender.sendmsg([b"m value=1i"], passed)
            sender.sendmsg([b"x" * 70_000], passed)
        wait_until(lambda: len(listening.packets) == 4, "all is taken")
        wait_until(
            lambda: listening.listener.counts["too_long"] == 3, "what is too long is counted"
        )
        assert _open_fds() == before
    (owner,) = {sender.owner for sender, _ in listening.packets}
    assert owner == SocketOwner(os.getuid(), pid=os.getpid())


def test_an_agents_sockets_refuse_descriptors_where_the_kernel_can() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        try:
            receiver.getsockopt(socket.SOL_SOCKET, 83)
        except OSError:
            pytest.skip("SO_PASSRIGHTS needs Linux 6.16")
        bind(receiver, f"{folder}/telegraf.sock", "[telegraf] socket")
        sender.connect(f"{folder}/telegraf.sock")
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sender.fileno()]))]
        with pytest.raises(PermissionError):
            sender.sendmsg([b"m value=1i"], passed)
        sender.send(b"m value=1i")


def test_without_room_for_connections_datagrams_go_on_and_nothing_spins(
    make: Callable[..., ListenerThread],
) -> None:
    listening = make()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with (
        udp,
        socket.create_connection(listening.address) as first,
        socket.create_connection(listening.address) as late,
    ):
        first.sendall(b"first value=1i\n")
        late.sendall(b"late value=1i\n")
        free = os.dup(udp.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # all lower fds are in use
        begin = time.monotonic()
        try:
            listening.start()
            for number in range(10):
                udp.sendto(b"beside value=%di\n" % number, listening.address)
                wait_until(lambda number=number: listening.count() > number, "a datagram is taken")  # type: ignore[misc]
            turns, secs = listening.turns, time.monotonic() - begin
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert turns < 20 + 2 * secs * PER_SEC / BATCH + 2 * 10
        wait_until(lambda: listening.count() == 12, "the connections are taken when there is room")


def test_connections_together_keep_to_the_rate_and_none_waits_for_busy_ones(
    make: Callable[..., ListenerThread],
) -> None:
    busy, per_sec, line = 16, 2000, b"busy value=1i\n"
    listening = make(per_sec)
    connections = [socket.create_connection(listening.address) for _ in range(busy + 1)]
    for connection in connections[:-1]:
        connection.sendall(line * 4000)
    connections[-1].sendall(b"quiet value=1i\n")
    begin = time.monotonic()
    listening.start()
    wait_until(
        lambda: any(data == b"quiet value=1i\n" for _, data in listening.packets),
        "the quiet one is taken",
    )
    size = sum(len(data) for _, data in listening.packets)
    secs = time.monotonic() - begin
    assert size / 128 <= per_sec * (BURST_SECS + secs) + 3 * BATCH
    (at,) = (at for at, (_, data) in enumerate(listening.packets) if data == b"quiet value=1i\n")
    assert at <= busy  # at most one read of each other connection came first
    for connection in connections:
        connection.close()


# ---- senders


def test_a_search_for_a_process_has_an_end() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        owner = SocketOwner(os.getuid(), os.fstat(sock.fileno()).st_ino)
        assert os.getpid() in processes_of(owner)
        assert processes_of(owner, budget=0) == []


def test_a_user_who_has_many_sockets_searched_for_holds_up_no_other() -> None:
    senders = Senders()
    assert any(
        senders.claim(SocketOwner(ANN, inode), 0) is None
        for inode in range(1 << 40, (1 << 40) + 100)
    )
    assert senders.claim(SocketOwner(BEN, 1 << 41), 0) is not None


def test_a_process_that_is_younger_than_what_was_sent_is_not_its_sender() -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    environment = {**os.environ, "LOGSHIPPER_JOB_ID": "4711"}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        try:
            now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**9
            wait_until(
                lambda: job_ids_of(process.pid, os.getuid(), now_ns) == frozenset({"4711"}),
                "it runs",
            )
            assert job_ids_of(process.pid, os.getuid(), before_ns - 10**9) is None
        finally:
            process.kill()
