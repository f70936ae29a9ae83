"""What a job sends to its capture's own Telegraf port, as metadata records for the sidecar.

A process of its own, at work before the command runs: who sends is looked up at once, since it can't be told any more
when the sender is gone; and a flood costs the sidecar nothing. It writes lines into a pipe: a record each; after a `#`,
the counts of what was left out; after a `?`, text of a sender that was gone, which is kept apart. Where the sidecar
doesn't read, it waits, and the kernel drops what comes.

Only the job's user counts, and the node's agent, which passes on what it was sent for this job (it is the owner of the
capture's directory).
"""

import json
import os
import select
import time
from collections import Counter
from typing import NamedTuple

from logshipper.background import detach
from logshipper.line_protocol import parse
from logshipper.telegraf import Listener, Sender, Sockets, count_lines

PORT_FILE = "telegraf"  # in `segments/`: the port, for the node's agent
PER_SEC = 20_000
COMM = "logshipper-tele"
LAST_WORDS_SECS = 2.0
MAX_APART_TEXT_BYTES = 4096  # of a batch
_COUNTS_SECS = 1.0  # between two lines of counts
_READ_BYTES = 256 << 10
_READY_SECS = 1.0
_MAX_APART_BYTES = 64 << 10  # of a capture
_COUNTS, _APART = b"#", b"?"
_OF_LISTENER = ("overflow", "crowded", "foreign", "too_long")


class Collector(NamedTuple):
    """As the sidecar has it. fd: of the pipe to read; control: closed when nothing more is wanted."""

    fd: int
    control: int
    port: int

    def close(self) -> None:
        os.close(self.fd)
        os.close(self.control)


def start_collector(sockets: Sockets, others: int) -> Collector:
    """Forks, and closes the sockets here; it is at work then. others: the user whose measurements count beside our
    own's. Raises OSError."""
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
                    _Collecting(sockets, {os.geteuid(), others}, write, stop).run()
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
    """In the process. write: the pipe's end; stop: at its end when the sidecar wants no more, or is gone."""

    def __init__(self, sockets: Sockets, trusted: set[int], write: int, stop: int) -> None:
        self._trusted = trusted
        self._write = write
        self._left_out: Counter[str] = Counter()
        self._told = ""
        self._tell_due = 0.0
        self._apart_bytes = 0
        self._listener = Listener(sockets, self._take, stop, per_sec=PER_SEC, trusted=trusted)

    def run(self) -> None:
        try:
            self._put(_COUNTS + b"{}\n")  # ready
            self._listener.serve()
            self._tell()
        except BrokenPipeError:
            pass  # the sidecar is gone

    def _take(self, sender: Sender, data: bytes) -> None:
        if sender.owner is None:
            self._left_out["unidentified"] += count_lines(data)
            self._keep_apart(data)
        elif sender.owner.uid not in self._trusted:
            self._left_out["foreign"] += count_lines(data)
        else:
            records = []
            for found in parse(data):
                if found.reason:
                    self._left_out[found.reason] += 1
                else:
                    records.append(found.record + b"\n")
            self._put(b"".join(records))
        if time.monotonic() >= self._tell_due:
            self._tell()

    def _keep_apart(self, data: bytes) -> None:
        text = json.dumps(data[:MAX_APART_TEXT_BYTES].decode("utf-8", "replace")).encode()
        self._apart_bytes += len(text)
        if self._apart_bytes <= _MAX_APART_BYTES:
            self._put(_APART + text + b"\n")

    def _tell(self) -> None:
        self._tell_due = time.monotonic() + _COUNTS_SECS
        counted = self._listener.counts
        found = self._left_out + Counter({name: counted[name] for name in _OF_LISTENER})
        text = json.dumps(found, sort_keys=True)
        if found and text != self._told:
            self._told = text
            self._put(_COUNTS + text.encode() + b"\n")

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write, data) :]


class Measurements:
    """In the sidecar. left_out: lines since the begin, by reason, `line_protocol.REASONS` among them; apart: texts
    whose senders can't be told, to be taken away; over: nothing more comes, as the process has died."""

    def __init__(self, collector: Collector) -> None:
        self.left_out: dict[str, int] = {}
        self.apart: list[str] = []
        self.over = False
        self.port = collector.port
        self.fd = collector.fd
        self._control = collector.control
        self._rest = b""
        os.set_blocking(self.fd, False)

    def take(self) -> list[bytes]:
        """Records that have come since the last call, some of them where there are many."""
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return []
        self.over = not data
        return self._records(data)

    def end(self) -> list[bytes]:
        """The last records: waits until all that has come is read, LAST_WORDS_SECS at most."""
        os.close(self._control)
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        until = time.monotonic() + LAST_WORDS_SECS
        records: list[bytes] = []
        while (left := until - time.monotonic()) > 0 and poll.poll(left * 1000):
            data = os.read(self.fd, _READ_BYTES)
            if not data:
                break
            records += self._records(data)
        os.close(self.fd)
        return records

    def _records(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line[:1] == _COUNTS:
                self.left_out = json.loads(line[1:])
            elif line[:1] == _APART:
                self.apart.append(json.loads(line[1:]))
        return [line for line in lines if line[:1] == b"{"]
