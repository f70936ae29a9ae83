"""One stream on its way from CMD to the job's own output; pending bytes wait here for their write.

Two outputs into one file never tear each other's lines. They switch at line ends:
- The channel holds back the tail of an open line while the other stream has whole lines, for at
  most HOLD_SECS and HELD_BYTES.
- An open line in the file (its owner's) holds back the other stream until it ends, or its writer is
  idle: since the line last grew, polls have found the owner's stream empty for HOLD_SECS. For a
  line in pieces the limit is PIECES_SECS: it has PIECE_BYTES, or the last read filled as much as a
  terminal holds, so its writer is inside a write and waits for the processor.
- Polls measure the time: each counts its intended length, at most HOLD_SECS, if it ended in time
  (POLL_SECS); otherwise, and without a wait, POLL_SECS. If the relay did not run, the writer may
  not have run either.
- A wait lasts at most MOST_SECS in all. After such a wait, the same line causes no further one, so
  a row of dots does not slow the other stream down.
- On a terminal, only lines that our own reading has cut are held. An open prompt there is followed
  on the screen by the other stream's output.
The C relay (deploy/slurm/spank/channel.c) has the same rule.
"""

import os
import struct

from logshipper import line_feeds
from logshipper.relay.output import JobOutput, OutputGone, same_file

HELD_BYTES = 64 << 10
HOLD_SECS = 0.02
PIECES_SECS = 0.2
PIECE_BYTES = 1024
MOST_SECS = 1.0
POLL_SECS = 0.005
PTY_READ_BYTES = 4095  # the kernel's limit for a read from a pty
# a stream comes in small writes where so many reads in a row were small, and close to each other
SMALL_READS = 10
SMALL_BYTES = PTY_READ_BYTES - 1
CLOSE_SECS = 0.2
SMALL_GATHER_SECS = 0.125
# Between two times at which the sidecar is woken for few bytes. These are multiples of it by the
# monotonic clock. So the node's agent, which looks soon after them, delays no line by both, and what
# is read at a beat waits no more
BEAT_SECS = 0.25
# a terminal holds 12 KiB: after as much at once its writer may have waited, which mustn't come often
FULL_BYTES = 8 << 10
FULL_SECS = 60.0
# bytes and line feeds of one stream; docs/segment-format.md has the file
_COUNTERS = struct.Struct("<QQ")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mmap import mmap


def next_beat(now: float, secs: float = BEAT_SECS) -> float:
    """Return the first multiple of secs after now: a time that all captures of a node share."""
    return (now // secs + 1) * secs


class SharedLine:
    """The one file of two channels.

    owner: of the open line; size: of that line so far; in_pieces: its writer is inside a write;
    polled: time of its last growth or poll; idle: polled seconds since it last grew; waited: those
    in which the other channel waited.
    """

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.open(None, 0.0)

    def open(self, owner: "Channel | None", now: float) -> None:
        """A line of owner's begins; None: no line is open."""
        self.owner = owner
        self.size = 0
        self.in_pieces = False
        self.polled = now
        self.idle = self.waited = 0.0

    def patience(self) -> float:
        """How long the owner may be idle before the other channel continues."""
        return PIECES_SECS if self.in_pieces else HOLD_SECS


class SmallWrites:
    """Detects small writes that are frequent enough to gather."""

    def __init__(self) -> None:
        self._count = 0
        self._read_at = self._not_before = 0.0

    def note(self, size: int, now: float) -> None:
        """Count the bytes of a read."""
        if size >= FULL_BYTES:
            self._not_before = now + FULL_SECS
        are_close = size <= SMALL_BYTES and now - self._read_at <= CLOSE_SECS
        self._count = self._count + 1 if are_close else 0
        self._read_at = now

    @property
    def gather(self) -> bool:
        return self._count >= SMALL_READS and self._read_at >= self._not_before

    @property
    def due(self) -> float:
        """The time for the next read."""
        return min(self._read_at + SMALL_GATHER_SECS, next_beat(self._read_at))


class Channel:
    """One stream on its way; owns master and out. counters: the capture's shared account, or
    None."""

    def __init__(
        self, stream: int, master: int, out: JobOutput, counters: "mmap | None" = None
    ) -> None:
        self.stream = stream  # 1 or 2
        self.bit = 1 << (stream - 1)
        self.master = master  # to read from, made non-blocking
        self.out = out  # to write to
        self.sibling: Channel | None = None  # the other stream's
        self.small_writes = SmallWrites()
        self.pending = b""  # read, but not written yet
        self.held_since = 0.0
        self.due = 0.0  # when pending must be tried again though nothing new came; 0: it needn't
        self.at_line_start = True
        # its last turn read as much as a full terminal gives: more of the same write may follow
        self.may_continue = False
        self.tiring = False  # a wait for its open line has timed out
        self.blocked = False  # out takes nothing now
        self.gone_errno = 0  # reason why out is closed
        self.failed = False
        # the relay sets these, down to after_exit
        self.listening = False
        self.ready = False
        self.at_end = False
        self.closed = False
        self.drained = False
        self.after_exit = 0
        self._line: SharedLine | None = None
        self._counters = counters
        self._tally = (0, 0) if counters is None else _COUNTERS.unpack_from(counters, 16 * stream)
        os.set_blocking(master, False)

    @property
    def byte_count(self) -> int:
        """Bytes so far."""
        return int(self._tally[0])

    @property
    def waits_for_other(self) -> bool:
        """Whether bytes wait because of the other channel."""
        return bool(self.pending) and not self.blocked

    def count(self, data: bytes) -> None:
        """Into the account that survives everybody: bytes and line feeds, as read."""
        self.after_exit += len(data)
        self._tally = (self._tally[0] + len(data), self._tally[1] + line_feeds.count(data))
        if self._counters is not None:
            _COUNTERS.pack_into(self._counters, 16 * self.stream, *self._tally)

    def put(self, data: bytes, now: float) -> None:
        """Write data as far as allowed; the rest stays pending."""
        if self.pending:
            self.pending += data
        else:
            self.pending = data
            self.held_since = now
        self.deliver(now)

    def deliver(self, now: float) -> None:
        """Write pending bytes, as far as allowed and as `out` accepts."""
        self.due = 0.0
        pending = self.pending
        limit = len(pending) if self._line is None else self._allowance(self._line, now)
        if not limit:
            return
        try:
            rest = self.out.write(pending if limit == len(pending) else pending[:limit])
        except OutputGone as error:
            self.gone_errno = error.errno
            self.pending = b""
            self.blocked = False
            return
        self.blocked = bool(rest)
        written_bytes = limit - len(rest)
        if not written_bytes:
            return
        self.pending = pending[written_bytes:]
        self.held_since = now
        self._note_line(pending, written_bytes, now)
        if self.pending and not self.blocked:
            self.due = now + HOLD_SECS

    def _allowance(self, line: SharedLine, now: float) -> int:
        """Return the number of pending bytes that tear no line."""
        pending, sibling = self.pending, self.sibling
        if sibling is None or sibling.closed or not pending:
            return len(pending)
        if line.owner is sibling:
            if sibling.pending:
                return 0  # it is blocked, in this very file
            if sibling._is_given_up(line) or (line.is_terminal and not sibling.may_continue):
                return len(pending)
            left = min(line.patience() - line.idle, MOST_SECS - line.waited)
            self.due = now + min(HOLD_SECS, max(POLL_SECS, left))
            return 0
        if (
            self.at_end
            or not (sibling.pending or sibling.ready)
            or (line.is_terminal and not self.may_continue)
        ):
            return len(pending)
        complete = pending.rfind(b"\n") + 1
        if complete:
            return complete
        if line.owner is self or len(pending) >= HELD_BYTES or now >= self.held_since + HOLD_SECS:
            return len(pending)
        self.due = self.held_since + HOLD_SECS
        return 0

    def polled(self, now: float) -> None:
        """A poll has asked for the channel, and found it `ready` or not."""
        line = self._line
        if line is None or line.owner is not self or self.sibling is None:
            return
        in_time = now <= self.sibling.due + POLL_SECS
        passed = min(now - line.polled, HOLD_SECS if in_time else POLL_SECS)
        line.polled = now
        line.idle = 0.0 if self.ready else line.idle + passed
        if self.sibling.pending:
            line.waited += passed

    def _is_given_up(self, line: SharedLine) -> bool:
        """Return whether nobody waits for our open line any more."""
        if line.waited >= MOST_SECS:
            self.tiring = True
        return self.tiring or line.idle >= line.patience()

    def _note_line(self, pending: bytes, written_bytes: int, now: float) -> None:
        ended = pending[written_bytes - 1] == 10
        self.at_line_start = ended
        line = self._line
        if line is None or self.sibling is None:
            return
        self.sibling.at_line_start = ended
        end = pending.rfind(b"\n", 0, written_bytes)
        if end >= 0:
            self.tiring = False
        if end >= 0 or line.owner is not self:
            line.open(None if ended else self, now)
        line.size += written_bytes - end - 1
        line.in_pieces = line.in_pieces or self.may_continue or line.size >= PIECE_BYTES
        line.polled = now
        line.idle = 0.0

    def stands_open(self, now: float) -> None:
        """Mark the last line of a dead relay as open: lines of the other stream wait for its end."""
        self.at_line_start = False
        if self._line is not None and self.sibling is not None:
            self.sibling.at_line_start = False
            self._line.open(self, now)
            self._line.in_pieces = True

    def close(self) -> None:
        self.closed = self.drained = True
        self.pending = b""
        self.blocked = False
        if self._line is not None and self._line.owner is self:
            self._line.owner = None
        os.close(self.master)
        self.out.close()


def pair(channels: list[Channel]) -> bool:
    """Makes two channels know each other. Returns whether they write to one file."""
    if len(channels) != 2:
        return False
    first, second = channels
    first.sibling, second.sibling = second, first
    shared = same_file(first.out.fd, second.out.fd)
    if shared:
        first._line = second._line = SharedLine(os.isatty(first.out.fd))
    return shared
