"""What a job sends to its capture's own Telegraf port, as metadata records for the sidecar.

A process of its own, at work before the command runs: who sends is looked up at once, since it
can't be known any more when the sender is gone; and a flood costs the sidecar nothing. It writes
lines into a pipe: after a `@`, when the records that follow arrived; a record each; after a `#`,
the counts of what was left out. Where the sidecar doesn't read, it waits, and the kernel drops what
comes.

Only the job's user counts, and the node's agent, which passes on what it was sent for this job (it
is the owner of the capture's directory), and says how long that has waited. Of senders that can't
be identified only a count is kept: they may be anybody.

A record counts under the narrowest mode from its arrival until it is written. What the job had
printed before may still be on its way, a command that disables among it: so each record waits for
HOLD_SECS, until the relay has read all that was printed, and until the sidecar has taken what the
relay read. After MAX_WAIT_SECS it is left out.
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
HOLD_SECS = 0.05  # before it is looked for what was printed, which may take the relay 0.1 s
MAX_WAIT_SECS = 10.0
MAX_WAITING_BYTES = 4 << 20  # then no more is read
_COUNTS_SECS = 1.0  # between two lines of counts
_READ_BYTES = 256 << 10
_READY_SECS = 1.0
_COUNTS, _ARRIVED = b"#", b"@"
_WAITED_NS = re.compile(rb"^#logshipper waited_ns=([0-9]{1,19})$", re.M)  # to all others a comment
_OF_LISTENER = ("overflow", "crowded", "foreign", "too_long")


def waited_line(secs: float) -> bytes:
    """What the agent says before measurements that waited with it."""
    return b"#logshipper waited_ns=%d\n" % max(0, secs * 1e9)


def _by_arrival(data: bytes, arrived_at: float) -> Iterator[tuple[bytes, float]]:
    """Lines that came at a time, and those that had waited then. Whoever else says so makes his own
    older, never younger."""
    before, *more = _WAITED_NS.split(data)
    yield before, arrived_at
    for waited_ns, lines in zip(more[::2], more[1::2], strict=True):
        yield lines, arrived_at - int(waited_ns) / 1e9


class Collector(NamedTuple):
    """As the sidecar has it. fd: of the pipe to read; control: closed when nothing more is
    wanted."""

    fd: int
    control: int
    port: int

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.control)


def start_collector(sockets: Sockets, other_uid: int) -> Collector:
    """Forks, and closes the sockets here; it is at work then. other_uid: the user whose
    measurements count besides our own's. Raises OSError."""
    port = sockets.port
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
        read, write, stop, control = fds
        child = os.fork()
        if child == 0:
            try:
                if os.fork() == 0:  # nobody's child: who forked this waits for others
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
        pass  # the caller ignores SIGCHLD: nobody has to wait
    os.close(write)
    os.close(stop)
    poll = select.poll()
    poll.register(read, select.POLLIN)
    poll.poll(_READY_SECS * 1000)
    return Collector(read, control, port)


class _Collecting:
    """In the process. write: the pipe's end; stop: at its end when the sidecar wants no more, or is
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
            pass  # the sidecar is gone

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
    """Records that arrived together. due: when to look again; mark: how many bytes of each stream
    the relay had read when it had read all; undecided: the sidecar hasn't taken these, until
    give_up_at."""

    __slots__ = ("arrived_at", "due", "give_up_at", "mark", "records", "size", "undecided")

    def __init__(self, arrived_at: float, now: float) -> None:
        self.arrived_at = arrived_at
        self.due = now + HOLD_SECS
        self.give_up_at = now + MAX_WAIT_SECS
        self.mark: tuple[int, ...] | None = None
        self.records: list[bytes] = []
        self.size = 0
        self.undecided = False


class Measurements:
    """In the sidecar. over: the process has died, nothing more comes."""

    def __init__(self, collector: Collector) -> None:
        self.over = False
        self.port = collector.port
        self.fd = collector.fd
        self._control = collector.control
        self._rest = b""
        self._arrived_at = 0.0  # of the records that are read next
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
        """When the first that wait may be ready."""
        return self._batches[0].due if self._batches else float("inf")

    def drop(self, records: int, reason: str) -> None:
        """Counts what the sidecar leaves out. reason: `disabled`, `undecided`."""
        self._dropped_counts[reason] += records

    def read(self, now: float) -> None:
        """What has come since the last call, some of it where there is much."""
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
        """Those that waited long enough. read: bytes of each stream that the relay has read, None
        where it hasn't read all that was printed; received: that the sidecar has, whose commands
        it knows."""
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
        """Those that wait: all is taken that was printed before."""
        return [self._pop() for _ in range(len(self._batches))]

    def end(self) -> list[Batch]:
        """The last ones: waits until all that has come is read, LAST_WORDS_SECS at most."""
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
