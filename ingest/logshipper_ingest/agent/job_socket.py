"""The socket that gives `logshipper run` a directory in the node's spool
(docs/segment-format.md, "Folders").

One thread polls, and no connection waits for another. It drops a silent connection after
PEER_SECS. At MAX_CONNECTIONS it drops the oldest of the user with most connections. It refuses too
frequent requests before it parses them. The kernel identifies the peer (sockets/peer.py), never the
request. Outside of a scheduler's job, a requested job id gets the uid as a suffix, so users cannot
take each other's ids.
"""

import os
import re
import select
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from logshipper.errors import ConfigError, LogshipperError, SpoolError, os_words
from logshipper.spool.captures import JOB_ID_MAX_CHARS, check_job_id, run_step
from logshipper_ingest.agent.node_spool import (
    NodeIdentity,
    NodeSpool,
    TooManyCaptures,
    sync_capture,
)
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.metrics.agent_metrics import SOCKET_REFUSALS
from logshipper_ingest.sockets.peer import Accounts, Peer, PeerUnknown, credentials, identify
from logshipper_ingest.sockets.socket_file import bind, unlink_own

PEER_SECS = 2.0
MAX_REQUEST_BYTES = 4096
MAX_CONNECTIONS = 256
BURST = 600  # requests of a user at once: tasks of a whole node start together
REQUESTS_PER_SEC = 20.0  # of a user, after the burst
SAY_SECS = 10.0  # between two log lines with one reason
_MAX_UNSYNCED = 64
_MAX_WHOLE = (1 << 31) - 1
_STEP = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,31})?")

GREETING = b'{"version":0}'  # a probe: answered by an uncounted refusal


class _Refusal(Exception):
    """A refused request. reason: one of SOCKET_REFUSALS, "" for a greeting; sentence: the
    answer."""

    def __init__(self, reason: str, sentence: str) -> None:
        self.reason = reason
        self.sentence = sentence
        super().__init__(sentence)


class Request(NamedTuple):
    """A client's request; None for absent fields."""

    name: str
    job_id: str | None
    attempt: int | None
    task: int | None
    step: str | None = None  # of a launcher that names job, attempt and rank
    apart: bool = False  # job_id is no scheduler's job, even if it runs in one


def parse_request(data: bytes) -> Request:
    """Parse a request of version 1 and ignore unknown fields. Raises ValueError with a
    sentence."""
    if len(data) > MAX_REQUEST_BYTES:
        raise ValueError(f"a request has at most {MAX_REQUEST_BYTES} bytes")
    try:
        fields: Any = orjson.loads(data)  # Any: JSON, each field of which is checked
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError("a request is one JSON object")
    if type(fields.get("version")) is not int or fields["version"] != 1:
        raise ValueError("this agent answers requests of version 1")
    name, job_id = fields.get("name"), fields.get("job_id")
    if not isinstance(name, str):
        raise ValueError("a request needs a name")
    if job_id is not None:
        if not isinstance(job_id, str):
            raise ValueError("job_id must be a string or null")
        try:
            check_job_id(job_id)
        except ConfigError as error:
            raise ValueError("; ".join(error.problems)) from None
    step = fields.get("step")
    if step is not None and not (isinstance(step, str) and _STEP.fullmatch(step)):
        raise ValueError("step must be at most 32 letters, digits, `.`, `_`, `-`, or null")
    apart = fields.get("apart") is True and job_id is not None
    return Request(
        name, job_id, _whole(fields, "attempt", 1), _whole(fields, "task", 0), step, apart
    )


def _whole(fields: Mapping[str, object], key: str, least: int) -> int | None:
    value = fields.get(key)
    if value is not None and not (type(value) is int and least <= value <= _MAX_WHOLE):
        raise ValueError(f"{key} must be a whole number from {least} on, or null")
    return value if type(value) is int else None


class _Connection(NamedTuple):
    socket: socket.socket
    uid: int
    seen_ns: int  # CLOCK_BOOTTIME
    due: float  # CLOCK_MONOTONIC


class JobSocket:
    """Server of agent.socket from `start` to `close`. say: receives log lines, in the socket's
    thread.

    capture_count: created directories; refusals: refused requests by reason (SOCKET_REFUSALS).
    """

    def __init__(self, agent: AgentSection, say: Callable[[str], None]) -> None:
        self.capture_count = 0
        self.refusals: Counter[str] = Counter(dict.fromkeys(SOCKET_REFUSALS, 0))
        self._agent = agent
        self._say = say
        self._accounts = Accounts()
        self._allowance = _Allowance()
        # by reason: time of the last log line, number of refusals since
        self._last_lines: dict[str, tuple[float, int]] = {}
        self._connections: dict[int, _Connection] = {}  # by fd, the oldest first
        self._unsynced: deque[str] = deque()  # captures to be synced to disk
        self._socket_id: tuple[int, int] | None = None  # device and inode of our socket
        self._thread: threading.Thread | None = None

    # ---- start and end

    def start(self) -> None:
        """Create the socket and start the thread. Raises SpoolError, also if another agent
        listens."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket_id = bind(self._listener, self._agent.socket, "[agent] socket")
        except BaseException as error:
            self._listener.close()
            if not isinstance(error, OSError):
                raise
            words = f"{os_words(error)}; change [agent] socket, or set it to none"
            raise SpoolError(self._agent.socket, words) from None
        self._listener.setblocking(False)
        self._woken, self._wake = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._thread = threading.Thread(target=self._serve, name="job-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and remove the socket. Does nothing if not started or already closed."""
        if self._thread is None:
            return
        os.close(self._wake)
        self._thread.join()
        self._thread = None
        os.close(self._woken)
        unlink_own(self._agent.socket, self._socket_id)
        self._listener.close()

    # ---- the thread

    def _serve(self) -> None:
        while self._turn():
            pass
        while self._unsynced:
            self._sync_one()
        for connection in list(self._connections.values()):
            self._drop(connection)

    def _turn(self) -> bool:
        """Serve the ready connections. Return False if the socket should close."""
        ready = [fd for fd, _ in self._poll.poll(self._wait_ms())]
        if self._woken in ready:
            return False
        requesting = [self._connections[fd] for fd in ready if fd in self._connections]
        if self._listener.fileno() in ready:
            self._accept()
        for connection in requesting:
            # A new connection may have the descriptor of a dropped one.
            if self._connections.get(connection.socket.fileno()) is connection:
                self._serve_one(connection)
        self._drop_silent()
        if self._unsynced and (not ready or len(self._unsynced) > _MAX_UNSYNCED):
            self._sync_one()
        return True

    def _wait_ms(self) -> int | None:
        if self._unsynced:
            return 0  # serve requests before syncing
        if not self._connections:
            return None
        first = next(iter(self._connections.values()))
        return max(0, int((first.due - time.monotonic()) * 1000) + 1)

    def _accept(self) -> None:
        for _ in range(MAX_CONNECTIONS):
            try:
                accepted, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:  # out of descriptors: free the oldest connection's
                self._count("crowded", f"can't accept connections: {error.strerror or error}")
                if self._connections:
                    self._drop(next(iter(self._connections.values())))
                else:
                    select.select([self._woken], [], [], 0.1)  # or the loop would spin
                return
            accepted.setblocking(False)
            due = time.monotonic() + PEER_SECS
            seen_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            if len(self._connections) >= MAX_CONNECTIONS:
                self._make_room()
            connection = _Connection(accepted, credentials(accepted)[1], seen_ns, due)
            self._connections[accepted.fileno()] = connection
            self._poll.register(accepted, select.POLLIN)

    def _make_room(self) -> None:
        """Drop the oldest connection of the user with most connections, so that one user cannot
        shut out others."""
        counts = Counter(connection.uid for connection in self._connections.values())
        uid = counts.most_common(1)[0][0]
        oldest = next(each for each in self._connections.values() if each.uid == uid)
        self._refuse(oldest, _Refusal("crowded", "too many requests at once; try again"))

    def _drop_silent(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if connection.due > now:
                return
            if _has_request(connection.socket):
                continue  # its request arrived meanwhile: the next turn serves it
            words = f"no request came within {PEER_SECS:g} s"
            self._refuse(connection, _Refusal("silent", words))

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.socket.fileno()]
        self._poll.unregister(connection.socket)
        connection.socket.close()

    def _sync_one(self) -> None:
        name = self._unsynced.popleft()
        try:
            sync_capture(self._agent, name)
        except SpoolError as error:
            self._log("spool", f"{name} may not be on the disk: {error}")

    # ---- one request

    def _serve_one(self, connection: _Connection) -> None:
        name = ""
        try:
            name, answer = self._answer(connection)
        except _Refusal as refusal:
            self._refuse(connection, refusal)
            return
        except BrokenPipeError:  # closed without a request
            self._drop(connection)
            return
        except Exception as error:  # one request must not end the socket for all
            words = f"the agent failed: {type(error).__name__}: {error}"
            self._refuse(connection, _Refusal("fault", words))
            return
        try:
            connection.socket.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            self.capture_count += 1
            self._unsynced.append(name)
        except OSError:
            self._count("gone", f"uid {connection.uid} disconnected before the answer")
            self._unmake(name)
        self._drop(connection)

    def _answer(self, connection: _Connection) -> tuple[str, bytes]:
        """Create the requested directory; return its name and the answer. Raises _Refusal."""
        data = _read(connection.socket)
        if not data:
            raise BrokenPipeError
        agent_uid = os.geteuid()
        if agent_uid not in (0, connection.uid):
            raise _Refusal("unknown_peer", f"this agent serves uid {agent_uid} only")
        if not self._allowance.take(connection.uid, time.monotonic()):
            words = f"uid {connection.uid} sends too many requests; try again in seconds"
            raise _Refusal("too_often", words)
        try:
            request = parse_request(data)
            peer = identify(connection.socket, connection.seen_ns)
            with NodeSpool(self._agent) as spool:
                spool.check_room(peer.uid)
                identity = self._identify(spool, peer, request)
                name = spool.make(identity)
        except ValueError as error:
            raise _Refusal("" if data == GREETING else "malformed", str(error)) from None
        except PeerUnknown as error:
            raise _Refusal("unknown_peer", str(error)) from None
        except TooManyCaptures as error:
            raise _Refusal("too_many_captures", error.reason) from None
        except LogshipperError as error:
            raise _Refusal("spool", str(error)) from None
        answer = {"path": os.path.join(self._agent.spool_dir, name)}
        for field in ("job_id", "attempt", "step", "task"):
            answer[field] = getattr(identity, field)
        return name, orjson.dumps(answer)

    def _identify(self, spool: NodeSpool, peer: Peer, request: Request) -> NodeIdentity:
        """Return the capture's identity: from the kernel, and from the request's harmless
        fields."""
        user, gid = self._accounts.look_up(peer.uid, peer.gid)
        step, task = "", 0
        if peer.job is not None and not request.apart:
            job_id, attempt = peer.job.job_id, request.attempt or 1
            # Prefer the request's rank: cgroups may count only this node's tasks, or none.
            task = request.task if request.task is not None else peer.job.task or 0
            runs = spool.next_number(peer.uid, f"{job_id}@{attempt}.{peer.job.step}.{task}")
            step = f"{peer.job.step}.run{runs}"
        elif request.job_id is not None:
            suffix = f".u{peer.uid}"
            job_id = request.job_id.removesuffix(suffix) + suffix
            if len(job_id) > JOB_ID_MAX_CHARS:
                raise ValueError(
                    f"job_id: becomes {job_id}, but a job id has at most {JOB_ID_MAX_CHARS} characters"
                )
            task = 0 if request.step is None else request.task or 0
            if request.step is None or request.attempt is None:
                attempt = spool.next_number(peer.uid, job_id)
            else:
                attempt = request.attempt
                runs = spool.next_number(peer.uid, f"{job_id}@{attempt}.{request.step}.{task}")
                step = run_step(request.step, runs)
        else:
            job_id, attempt = spool.new_job_id(), 1
        return NodeIdentity(job_id, attempt, step, task, request.name, peer.uid, user, gid=gid)

    def _unmake(self, name: str) -> None:
        try:
            with NodeSpool(self._agent) as spool:
                spool.unmake(name)
        except SpoolError as error:
            self._log("spool", str(error))

    # ---- refusals

    def _refuse(self, connection: _Connection, refusal: _Refusal) -> None:
        if refusal.reason:
            words = f"uid {connection.uid} gets no directory: {refusal.sentence}"
            self._count(refusal.reason, words)
        _read(connection.socket)  # closing with an unread request would discard the answer
        with suppress(OSError, orjson.JSONEncodeError):  # closed, or not reading
            answer = orjson.dumps({"error": refusal.sentence})
            connection.socket.send(answer, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        self._drop(connection)

    def _count(self, reason: str, line: str) -> None:
        self.refusals[reason] += 1
        self._log(reason, line)

    def _log(self, reason: str, line: str) -> None:
        now = time.monotonic()
        last, unlogged_count = self._last_lines.get(reason, (-SAY_SECS, 0))
        if now - last < SAY_SECS:
            self._last_lines[reason] = (last, unlogged_count + 1)
            return
        self._last_lines[reason] = (now, 0)
        more = f" (and {unlogged_count} more of this kind since the last line)"
        self._say(f"{self._agent.socket}: {line}{more if unlogged_count else ''}")


def _has_request(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except OSError:
        return False


def _read(connection: socket.socket) -> bytes:
    """Return a request's bytes, at most one above the limit, or none. One packet is one request."""
    try:
        return connection.recv(MAX_REQUEST_BYTES + 1, socket.MSG_DONTWAIT)
    except OSError:
        return b""


class _Allowance:
    """Token buckets of the users: BURST, refilled with REQUESTS_PER_SEC."""

    MAX_USERS = 4096

    def __init__(self) -> None:
        self._balances: dict[int, tuple[float, float]] = {}  # by uid: tokens, monotonic time

    def take(self, uid: int, now: float) -> bool:
        balance, since = self._balances.get(uid, (float(BURST), now))
        balance = min(float(BURST), balance + (now - since) * REQUESTS_PER_SEC)
        if len(self._balances) >= self.MAX_USERS:
            self._balances.clear()
        self._balances[uid] = (max(0.0, balance - 1), now)
        return balance >= 1
