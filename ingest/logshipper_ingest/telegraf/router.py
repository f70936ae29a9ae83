"""The node agent's listener: receives measurements of all jobs of the node at one address.

It passes each to the port of its job's capture, which makes records of it under the job's mode
(logshipper/telegraf/measurements.py). The kernel names the sender, never the measurement: the user
by the socket, the job by the process. A capture gets only its own user's measurements, and its port
counts only while that user owns the socket. Measurements that precede their capture wait HOLD_SECS.
The capture learns the time of the wait, because the narrowest mode since the arrival applies. The
listener counts unidentified measurements, and keeps their text only if configured
(telegraf/unidentified.py).
"""

import math
import os
import select
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logshipper.errors import ConfigError, SpoolError, os_words
from logshipper.spool.captures import TELEGRAF_MARK
from logshipper.telegraf.line_protocol import MAX_LINE_BYTES
from logshipper.telegraf.listener import LOOPBACK, Listener, Sender, count_lines, open_sockets
from logshipper.telegraf.measurements import waited_line
from logshipper.telegraf.socket_owner import SocketOwner, SocketOwners
from logshipper_ingest.config.agent_config import AgentConfig
from logshipper_ingest.console.service_log import Notice
from logshipper_ingest.console.throttled_log import ThrottledLog
from logshipper_ingest.metrics.agent_metrics import TELEGRAF_OUTCOMES
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.sockets.socket_file import bind, unlink_own
from logshipper_ingest.spool.capture_folder import Life
from logshipper_ingest.telegraf.senders import Senders
from logshipper_ingest.telegraf.unidentified import UnidentifiedFile, remove_unidentified

HOLD_SECS = 5.0
MAX_HELD_BYTES = 1 << 20
MAX_USERS_HELD_BYTES = 64 << 10
HELD_BYTES = 256  # overhead of a held batch
RETRY_SECS = 0.1  # for held measurements
REOPEN_SECS = 2.0  # until the next attempt to open the address
PORT_LOOK_SECS = 1.0
DATAGRAM_BYTES = MAX_LINE_BYTES - 4096  # less than UDP takes
PASSED_ON, UNIDENTIFIED, AMBIGUOUS, NO_JOB, JOB_GONE, NOT_KEPT, *_OF_LISTENER = TELEGRAF_OUTCOMES


class _Target(NamedTuple):
    """A capture's own port. The first task's of a job is the job's."""

    task: int
    port: int


@dataclass
class _Batch:
    """Measurements of one sender."""

    until: float  # end of the wait (monotonic clock)
    came_ns: int  # when the first of it came (CLOCK_BOOTTIME)
    owner: SocketOwner
    sender: str
    lines: list[tuple[float, bytes]]  # when each arrived (monotonic clock), and its text

    @property
    def weight(self) -> int:
        return sum(HELD_BYTES + len(data) for _, data in self.lines)


class TelegrafRouter:
    """Receives measurements and routes them.

    counts: lines by outcome; for lost ones (`overflow`, `too_long`, `crowded`) datagrams and
    connections. trouble: the reason if it does not listen, else ""; it retries while the agent
    continues. Raises ConfigError, SpoolError if it can never work.
    """

    def __init__(self, config: AgentConfig, say: Callable[[str], None]) -> None:
        self._section = config.telegraf
        self._say = say
        self.trouble = ""
        self._outcomes: Counter[str] = Counter(dict.fromkeys(TELEGRAF_OUTCOMES, 0))
        self._trouble = ThrottledLog(say)
        # by user and job, in changing order
        self._targets: Mapping[int, Mapping[str, _Target]] = {}
        # by capture: its port, and the time of the lookup
        self._ports: dict[str, tuple[int, float]] = {}
        self._listener: Listener | None = None  # the last one
        self._listened = Counter(dict.fromkeys(_OF_LISTENER, 0))  # of all listeners
        try:
            self._owners = SocketOwners()
        except OSError as error:
            words = "the kernel can't be asked who sends (AF_NETLINK, sock_diag)"
            raise ConfigError("[telegraf] enabled", [f"{words}: {os_words(error)}"]) from None
        self._unidentified: UnidentifiedFile | None = None
        state_dir, max_bytes = config.agent.state_dir, config.telegraf.unidentified_max_bytes
        if max_bytes:
            self._unidentified = UnidentifiedFile(state_dir, max_bytes)
        elif remove_unidentified(state_dir):
            words = "text of measurements that an earlier agent kept is removed"
            say(f"{words} ([telegraf] unidentified_max_bytes = 0)")
        self._senders = Senders()
        self._held_batches: dict[SocketOwner, _Batch] = {}
        self._held_bytes: Counter[int] = Counter()  # held bytes by user
        self._retry_at = 0.0
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        self._out.bind((LOOPBACK, 0))
        self._out_address: tuple[str, int] = self._out.getsockname()
        self._stop, self._stopping = os.pipe()
        self._thread = threading.Thread(target=self._run, name="telegraf", daemon=True)

    @property
    def connections(self) -> int:
        return self._listener.connections if self._listener is not None else 0

    @property
    def counts(self) -> Counter[str]:
        return self._outcomes + Counter({name: self._listened[name] for name in _OF_LISTENER})

    # ---- in the agent's main thread

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        os.close(self._stopping)
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._stop)
        self._out.close()
        self._owners.close()

    def update(self, captures: Iterable[FollowedCapture]) -> None:
        """Set the current jobs and their ports."""
        now = time.monotonic()
        targets: dict[int, dict[str, _Target]] = defaultdict(dict)
        ports: dict[str, tuple[int, float]] = {}
        for capture in captures:
            if capture.life is not Life.LIVE:
                continue
            key = capture.folder.key
            port, looked_at = self._ports.get(key, (0, 0.0))
            if not port and now - looked_at >= PORT_LOOK_SECS:
                port, looked_at = capture.folder.telegraf_port(), now
            ports[key] = port, looked_at
            if port:
                identity = capture.identity
                target = _Target(identity.task, port)
                of_user = targets[identity.uid]
                of_user[identity.job_id] = min(target, of_user.get(identity.job_id, target))
        self._targets, self._ports = targets, ports

    # ---- in a separate thread

    def _run(self) -> None:
        """Run until stopped. A busy address, or a fault, does not end the agent."""
        stops = select.poll()
        stops.register(self._stop, select.POLLIN)
        while not stops.poll(0):
            trouble = "the agent takes no measurements"
            try:
                self._listen()
            except SpoolError as error:
                self.trouble = f"{trouble}: {error}"
            except OSError as error:
                self.trouble = f"{trouble}: {os_words(error)} ([telegraf] socket)"
            except Exception as error:  # a fault must not end it for good
                self.trouble = f"{trouble}, because of an internal error: {error!r}"
            if self.trouble:
                self._trouble.log(f"{self.trouble}; tried again")
                stops.poll(REOPEN_SECS * 1000)

    def _listen(self) -> None:
        """Open the address. Raises OSError, SpoolError."""
        section, socket_id = self._section, None
        try:
            sockets = open_sockets(*section.address)
        except OSError as error:
            words = f"{os_words(error)}; name another one ([telegraf] listen)"
            raise SpoolError(section.listen, words) from None
        try:
            if section.socket:
                unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                sockets = sockets._replace(unix=unix)
                socket_id = bind(unix, section.socket, "[telegraf] socket")
            per_sec = section.max_lines_per_sec
            listener = Listener(
                sockets, self._take, self._stop, per_sec=per_sec, between=self._between
            )
        except BaseException:
            unlink_own(section.socket, socket_id)
            sockets.close()
            raise
        if self.trouble:
            self._say(Notice(f"measurements are taken at {section.listen} now"))
            self._trouble.reset()
        self.trouble = ""
        listener.counts = self._listened
        self._listener = listener
        try:
            listener.serve()
        finally:
            listener.close()
            unlink_own(section.socket, socket_id)

    def _take(self, sender: Sender, data: bytes, arrived_at: float) -> None:
        try:
            owner = sender.owner
            if owner is None:
                self._keep_apart(UNIDENTIFIED, sender.address, -1, data)
                return
            now = time.monotonic()
            batch = self._held_batches.get(owner)
            if batch is None:
                came_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                lines = [(arrived_at, data)]
                self._route(_Batch(now + HOLD_SECS, came_ns, owner, sender.address, lines), now)
            elif self._has_room(owner.uid):  # in the order of arrival
                self._release(batch)
                batch.lines.append((arrived_at, data))
                self._route(batch, now)
            else:
                self._count(NO_JOB, data)
        except Exception as error:  # one sender's must not end the listener for all
            self._trouble.log(f"a measurement of {sender.address}: {error!r}")

    def _between(self) -> float:
        """Retry held measurements; return the seconds until the next retry."""
        now = time.monotonic()
        if self._held_batches and now >= self._retry_at:
            self._retry_at = now + RETRY_SECS
            for batch in list(self._held_batches.values()):
                self._release(batch)
                self._route(batch, now)
        return max(0.0, self._retry_at - now) if self._held_batches else math.inf

    def _route(self, batch: _Batch, now: float) -> None:
        uid = batch.owner.uid
        claim = self._senders.claim(batch.owner, batch.came_ns)
        of_user = self._targets.get(uid, {})
        matching_jobs = [
            job for job in of_user if claim is None or claim.jobs is None or job in claim.jobs
        ]
        may_wait = now < batch.until and self._has_room(uid)
        if claim is not None and len(matching_jobs) == 1:
            self._pass_on(batch, of_user[matching_jobs[0]])
        elif may_wait and (claim is None or (not matching_jobs and claim.jobs != frozenset())):
            self._held_batches[batch.owner] = batch
            self._held_bytes[uid] += batch.weight
        elif matching_jobs:
            for _, data in batch.lines:
                self._keep_apart(AMBIGUOUS, batch.sender, uid, data)
        else:
            self._count_all(NO_JOB, batch)

    def _release(self, batch: _Batch) -> None:
        del self._held_batches[batch.owner]
        self._held_bytes[batch.owner.uid] -= batch.weight
        if not self._held_bytes[batch.owner.uid]:
            del self._held_bytes[batch.owner.uid]

    def _has_room(self, uid: int) -> bool:
        user_bytes, total_bytes = self._held_bytes[uid], self._held_bytes.total()
        return user_bytes < MAX_USERS_HELD_BYTES and total_bytes < MAX_HELD_BYTES

    def _pass_on(self, batch: _Batch, target: _Target) -> None:
        address = (LOOPBACK, target.port)
        owner = self._owners.udp(address, self._out_address)
        # the port may belong to somebody else by now
        if owner is None or owner.uid != batch.owner.uid:
            self._count_all(JOB_GONE, batch)
            return
        for arrived_at, data in batch.lines:
            for piece in _pieces(data):
                outcome = PASSED_ON
                try:
                    self._out.sendto(waited_line(time.monotonic() - arrived_at) + piece, address)
                except OSError:
                    outcome = JOB_GONE
                self._count(outcome, piece)

    def _keep_apart(self, reason: str, sender: str, uid: int, data: bytes) -> None:
        self._count(reason, data)
        file = self._unidentified
        if file is not None and not file.keep(sender, uid, reason, data):
            self._count(NOT_KEPT, data)

    def _count_all(self, outcome: str, batch: _Batch) -> None:
        for _, data in batch.lines:
            self._count(outcome, data)

    def _count(self, outcome: str, data: bytes) -> None:
        self._outcomes[outcome] += count_lines(data)


def _pieces(data: bytes) -> list[bytes]:
    """Split data into at most DATAGRAM_BYTES each, between lines if possible."""
    pieces = []
    while len(data) > DATAGRAM_BYTES:
        end = data.rfind(b"\n", 0, DATAGRAM_BYTES) + 1 or DATAGRAM_BYTES
        pieces.append(data[:end])
        data = data[end:]
    return [*pieces, data] if data else pieces


def set_mark(spool_dir: str, *, enabled: bool) -> None:
    """Tell new captures whether to open their own ports. Raises SpoolError."""
    path = os.path.join(spool_dir, TELEGRAF_MARK)
    try:
        if enabled:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))
        elif os.path.lexists(path):
            os.unlink(path)
    except OSError as error:
        raise SpoolError(path, os_words(error)) from None
