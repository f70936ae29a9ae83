"""Measurements at a capture's own Telegraf port, as metadata records for the sidecar.

A separate process, started before the command, looks up senders at once, because they vanish; and a
flood costs the sidecar nothing. It writes lines into a pipe: `@` with the arrival of the next
records; one line per record; `#` with counts of omissions. If the sidecar does not read, the
process waits, and the kernel drops data.

Only the job's user counts, and the node's agent (owner of the capture's folder), which forwards
this job's measurements with the time they waited. Unidentified senders may be anybody, so only
their number is kept.

A record counts under the narrowest mode between its arrival and its writing. Earlier output of the
job, with a disabling command perhaps, may still be on its way. So each record waits for HOLD_SECS,
until the relay has read all output, and until the sidecar has processed it. After MAX_WAIT_SECS the
record is dropped.
"""

import json
import os
import re
import select
import time
from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from logshipper.background import detach
from logshipper.telegraf.line_protocol import parse
from logshipper.telegraf.listener import Listener, Sender, Sockets, count_lines

PER_SEC = 20_000
COMM = "logshipper-tele"
LAST_WORDS_SECS = 2.0
HOLD_SECS = 0.05  # before the check of earlier output, which may take the relay 0.25 s
MAX_WAIT_SECS = 10.0
MAX_WAITING_BYTES = 4 << 20  # beyond this, reading stops
_COUNTS_SECS = 1.0  # between two lines of counts
_READ_BYTES = 256 << 10
_READY_SECS = 1.0
_COUNTS, _ARRIVED = b"#", b"@"
_WAITED_NS = re.compile(rb"^#logshipper waited_ns=([0-9]{1,19})$", re.M)  # to all others a comment
_OF_LISTENER = ("overflow", "crowded", "foreign", "too_long")


def waited_line(secs: float) -> bytes:
    """Return the agent's line about the wait of the next measurements."""
    return b"#logshipper waited_ns=%d\n" % max(0, secs * 1e9)


def _by_arrival(data: bytes, arrived_at: float) -> Iterator[tuple[bytes, float]]:
    """Yield lines of a read, with the arrival of each group.

    A sender that forges a wait makes its own measurements older, never younger.
    """
    before, *more = _WAITED_NS.split(data)
    yield before, arrived_at
    for waited_ns, lines in zip(more[::2], more[1::2], strict=True):
        yield lines, arrived_at - int(waited_ns) / 1e9


class Collector(NamedTuple):
    """The sidecar's end. fd: of the pipe to read; control: close it to stop the process."""

    fd: int
    control: int
    port: int

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.control)


def start_collector(sockets: Sockets, other_uid: int) -> Collector:
    """Fork the process, which then works, and close the sockets here.

    other_uid: a user whose measurements count besides our own's. Raises OSError.
    """
    port = sockets.port
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        read, write, stop, control = fds
        child = os.fork()
        if child == 0:
            try:
                if os.fork() == 0:  # nobody's child: the forking process waits for others
                    detach(COMM, {write, stop, *sockets.fds})
                    _Collecting(sockets, {os.geteuid(), other_uid}, write, stop).run()
            finally:
                os._exit(0)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    finally:
        sockets.close()
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        pass  # the caller ignores SIGCHLD, and needs no wait
    os.close(write)
    os.close(stop)
    poll = select.poll()
    poll.register(read, select.POLLIN)
    poll.poll(_READY_SECS * 1000)
    return Collector(read, control, port)


class _Collecting:
    """The process' state. write: the pipe's end; stop: at its end when the sidecar stops or has
    gone."""

    def __init__(self, sockets: Sockets, trusted: set[int], write: int, stop: int) -> None:
        self._trusted = trusted
        self._write = write
        self._left_out: Counter[str] = Counter()
        self._reported_counts = ""
        self._tell_due = 0.0
        self._listener = Listener(sockets, self._take, stop, per_sec=PER_SEC, trusted=trusted)

    def run(self) -> None:
        try:
            self._put(_COUNTS + b"{}\n")  # ready
            self._listener.serve()
            self._tell()
        except BrokenPipeError:
            pass  # the sidecar has gone

    def _take(self, sender: Sender, data: bytes, arrived_at: float) -> None:
        if sender.owner is None:
            self._left_out["unidentified"] += count_lines(data)
        elif sender.owner.uid not in self._trusted:
            self._left_out["foreign"] += count_lines(data)
        else:
            for lines, since in _by_arrival(data, arrived_at):
                self._put_records(lines, since)
        if time.monotonic() >= self._tell_due:
            self._tell()

    def _put_records(self, data: bytes, arrived_at: float) -> None:
        records = [b"%b%.6f\n" % (_ARRIVED, arrived_at)]
        for measurement in parse(data):
            if measurement.reason:
                self._left_out[measurement.reason] += 1
            else:
                records.append(measurement.record + b"\n")
        if len(records) > 1:
            self._put(b"".join(records))

    def _tell(self) -> None:
        self._tell_due = time.monotonic() + _COUNTS_SECS
        listener_counts = self._listener.counts
        counts = self._left_out + Counter({name: listener_counts[name] for name in _OF_LISTENER})
        text = json.dumps(counts, sort_keys=True)
        if counts and text != self._reported_counts:
            self._reported_counts = text
            self._put(_COUNTS + text.encode() + b"\n")

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]


class Batch:
    """Records that arrived together.

    due: time of the next check; mark: bytes of each stream at the relay when it had read all;
    undecided: the sidecar has not processed these, until give_up_at.
    """

    def __init__(self, arrived_at: float, now: float) -> None:
        self.arrived_at = arrived_at
        self.due = now + HOLD_SECS
        self.give_up_at = now + MAX_WAIT_SECS
        self.mark: tuple[int, ...] | None = None
        self.records: list[bytes] = []
        self.size = 0
        self.undecided = False


class Measurements:
    """Records in the sidecar. over: the process has died."""

    def __init__(self, collector: Collector) -> None:
        self.over = False
        self.port = collector.port
        self.fd = collector.fd
        self._control = collector.control
        self._rest = b""
        self._arrived_at = 0.0  # of the next records
        self._batches: deque[Batch] = deque()
        self._waiting_bytes = 0
        self._collected: dict[str, int] = {}
        self._dropped_counts: Counter[str] = Counter()
        os.set_blocking(self.fd, False)

    @property
    def left_out(self) -> dict[str, int]:
        """Lines since the begin, by reason, `line_protocol.REASONS` among them."""
        return {**self._collected, **self._dropped_counts}

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes >= MAX_WAITING_BYTES

    @property
    def is_done(self) -> bool:
        """Nothing comes, and nothing waits."""
        return self.over and not self._batches

    @property
    def due(self) -> float:
        """The time when the first waiting records may be ready."""
        return self._batches[0].due if self._batches else float("inf")

    def drop(self, records: int, reason: str) -> None:
        """Count records that the sidecar drops. reason: `disabled`, `undecided`."""
        self._dropped_counts[reason] += records

    def read(self, now: float) -> None:
        """Read new data, a part of it if there is much."""
        if self.over or self.is_full:
            return
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return
        self.over = not data
        self._sort(data, now)

    def ready(
        self, now: float, read: tuple[int, ...] | None, received: tuple[int, ...]
    ) -> list[Batch]:
        """Return the batches that have waited long enough.

        read: bytes of each stream at the relay, None while it has unread output; received: bytes at
        the sidecar, which knows their commands.
        """
        for batch in self._batches:
            if batch.due > now:
                break
            batch.mark = batch.mark or read
        batches = []
        while self._batches and (first := self._batches[0]).due <= now:
            mark = first.mark
            if mark is None or any(
                size < mark_size for size, mark_size in zip(received, mark, strict=True)
            ):
                if now < first.give_up_at:
                    first.due = now + HOLD_SECS
                    break
                first.undecided = True
            batches.append(self._pop())
        return batches

    def all(self) -> list[Batch]:
        """Return all waiting batches: the sidecar has processed all earlier output."""
        return [self._pop() for _ in range(len(self._batches))]

    def end(self) -> list[Batch]:
        """Return the last batches: reads everything that has arrived, for at most LAST_WORDS_SECS."""
        os.close(self._control)
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        until = time.monotonic() + LAST_WORDS_SECS
        while (rest_secs := until - time.monotonic()) > 0 and poll.poll(rest_secs * 1000):
            data = os.read(self.fd, _READ_BYTES)
            if not data:
                break
            self._sort(data, time.monotonic())
        os.close(self.fd)
        return self.all()

    def _pop(self) -> Batch:
        first = self._batches.popleft()
        self._waiting_bytes -= first.size
        return first

    def _sort(self, data: bytes, now: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        batch = Batch(self._arrived_at, now)
        for line in lines:
            if line[:1] == _COUNTS:
                self._collected = json.loads(line[1:])
            elif line[:1] == _ARRIVED:
                self._keep(batch)
                self._arrived_at = float(line[1:])
                batch = Batch(self._arrived_at, now)
            elif line:
                batch.records.append(line)
        self._keep(batch)

    def _keep(self, batch: Batch) -> None:
        if batch.records:
            batch.size = sum(map(len, batch.records))
            self._batches.append(batch)
            self._waiting_bytes += batch.size
