"""The relay: reads CMD's stdout and stderr, writes them unchanged and first, then hands them to a
sink.

It ignores the bytes' meaning. One loop turn is one poll; the relay reads, writes, counts and hands
over at most 64 KiB of each readable stream. Invariants:
- It does not read a stream with blocked output, so CMD waits as it would without the relay. The
  other stream continues.
- It calls a stream empty only if a poll of that stream said so. It does not poll streams that it
  leaves unread on purpose.
- It leaves many small writes into a file in their terminal for a moment, while nothing else
  happens: a wake-up for each costs the job more than their processing.
- Only `turn` waits, and its caller sets the limit.
"""

import os
import select
import time

from logshipper.fault_points import fault_point
from logshipper.relay.channel import HELD_BYTES, PTY_READ_BYTES, Channel, pair
from logshipper.relay.unsent import BUFFER_BYTES

TURN_BYTES = 60 << 10  # then it is the other stream's turn
# in a flood, streams count as idle after this silence; small reads gather meanwhile
GATHER_SECS = 0.002
GATHER_BYTES = 16 << 10  # since the last silence: that is a flood. Less is handed over at once
SINK_SECS = 0.01  # interval of the sink's calls under constant flow
LEFT_BEHIND_BYTES = 256 << 10  # of a stream that never falls silent, after CMD's end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from logshipper.relay.unsent import Unsent


class RelaySink:
    """Receiver of the relay's bytes. This one ignores them.

    flags in all methods: bits of streams (1 << stream - 1) seen empty.
    """

    def data(self, stream: int, data: bytes, flags: int) -> None:
        """flags: the other stream, if the poll before these bytes found it empty; their own, if
        the other one now has bytes that may be older."""

    def empty(self, flags: int) -> None:
        """All that was written to these streams has been handed over."""

    def closed(self, stream: int) -> None:
        """Note that nobody writes to the stream any more, or reads its output: it brings nothing
        more."""

    def idle(self) -> None:
        """Handle time: called after a moment of silence, and now and then during floods."""

    def wait_secs(self, *, untold: bool) -> float | None:
        """Return the longest time until the next `idle`; None for any. untold: and until the next
        report of empty streams."""
        return None


class Owner:
    """The relay's owner, which gets reports about outputs. This one ignores them."""

    def output_gone(self, channel: Channel) -> None:
        """Note that the output's reader has gone (channel.gone_errno). The stream closes right
        afterwards."""

    def output_failed(self, channel: Channel) -> None:
        """Note that the output refused bytes for the first time (channel.out.fault: errno); the
        relay drops them."""

    def stream_closed(self, channel: Channel) -> None:
        """The stream is over, and delivered."""


class Relay:
    """Relays channels until they are hung up.

    The same poll watches descriptors of others. unsent: memory for the sink's missing bytes;
    gathers: small writes into files gather.
    """

    def __init__(
        self,
        channels: list[Channel],
        sink: RelaySink,
        owner: Owner,
        unsent: "Unsent | None" = None,
        *,
        gathers: bool = True,
    ) -> None:
        self.channels = channels
        self._gathers = gathers
        self._sink = sink
        self._owner = owner
        self._poll = select.poll()
        self._by_master = {channel.master: channel for channel in channels}
        self._watched: dict[int, Callable[[int], None]] = {}
        self._paused = self._stopped = False
        # one for all reads: a fresh object of 64 KiB for each of the pty's 4 KiB costs page faults
        self._unsent = unsent
        self._buffer = memoryview(bytearray(BUFFER_BYTES)) if unsent is None else unsent.buffer
        # something was handed over, or listened to again, since the last empty notice
        self._fresh = True
        self._drains = False  # somebody waits for silence
        self._burst = 0  # bytes since silence was last looked for
        self._floods = False  # such an amount leaves no silence
        self._sink_due = 0.0
        self._shared = pair(channels)
        self._order = _order_of_arrival(channels)
        self._alone = {channel.stream: _poll_of(channel) for channel in channels}  # one fd each
        for channel in channels:
            self._listen(channel)

    # ---- fds

    def watch(self, fd: int, events: int, call: "Callable[[int], None]") -> None:
        """Calls call(events) in a turn in which fd has one of events (select.POLLIN, POLLOUT;
        errors always)."""
        self._watched[fd] = call
        self._poll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def pause(self, paused: bool) -> None:
        """Stop or resume reading all streams, for a full sink."""
        self._paused = paused
        for channel in self.channels:
            self._listen(channel)

    def _listen(self, channel: Channel) -> None:
        closed = channel.at_end or channel.gone_errno or channel.closed
        full = channel.blocked or len(channel.pending) >= HELD_BYTES
        listens = not (self._paused or self._stopped or closed or full)
        if listens != channel.listening:
            channel.listening = listens
            if listens:
                self._poll.register(channel.master, select.POLLIN)
                self._fresh = True
            else:
                self._poll.unregister(channel.master)

    # ---- the loop

    def turn(self, wait_secs: float) -> None:
        """Poll once, for at most wait_secs, and handle the result."""
        self._let_gather(wait_secs)
        events = self._poll.poll(self._bounded(wait_secs) * 1000)
        ready = [self._by_master[fd] for fd, _ in events if fd in self._by_master]
        if len(ready) == 2 and self._arrived_last() == ready[0].master:
            ready.reverse()
        for channel in self.channels:
            channel.ready = channel in ready
            if channel.listening and not channel.ready:
                channel.drained = True
        now = time.monotonic()
        if self._shared:
            for channel in self.channels:
                if channel.listening:
                    channel.polled(now)
        if ready:
            self._floods = self._burst >= GATHER_BYTES
            # before any read: reads take time, in which the other stream may fill
            flags = [self._flags_beside(channel) for channel in ready]
            for channel, seen_empty in zip(ready, flags, strict=True):
                self._read(channel, seen_empty, now)
        else:
            self._rest(now)
        if not ready or now >= self._sink_due:
            self._sink_due = now + SINK_SECS
            self._sink.idle()
        if self._shared:
            for channel in self.channels:
                if channel.due and now >= channel.due:
                    channel.deliver(now)
                    self._settle(channel, now)
        if len(events) > len(ready):
            for fd, event in events:
                call = self._watched.get(fd)
                if call is not None:
                    call(event)

    def _let_gather(self, wait_secs: float) -> None:
        """Leave a stream of small writes alone until it is due, or anything else is ready: bytes of
        the other stream end it, to keep their order known."""
        if self._drains or not self._gathers:
            return
        for channel in self.channels:
            if channel.listening and channel.small_writes.gather and channel.out.is_file:
                secs = min(channel.small_writes.due - time.monotonic(), self._bounded(wait_secs))
                if secs > 0:
                    self._poll.unregister(channel.master)
                    self._poll.poll(secs * 1000)
                    self._poll.register(channel.master, select.POLLIN)
                return

    def _arrived_last(self) -> int:
        """Return the stream that last became readable since the last call; -1 if unknown.

        Other readable streams became so earlier.
        """
        arrived = self._order.poll(0, 2) if self._order is not None else ()
        return arrived[-1][0] if arrived else -1

    def _bounded(self, wait_secs: float) -> float:
        """Limit the next poll's wait.

        The sink's schedule limits the notice of silence: a second poll after each write would cost
        as much as the write.
        """
        if (sink_secs := self._sink.wait_secs(untold=self._fresh)) is not None:
            wait_secs = min(wait_secs, sink_secs)
        if self._fresh:
            if self._floods:
                wait_secs = min(wait_secs, GATHER_SECS)
            elif self._burst >= GATHER_BYTES:
                wait_secs = 0.0  # a flood, or small writes with silence between them
            elif self._drains or any(channel.waits_for_other for channel in self.channels):
                wait_secs = 0.0
        if self._shared:
            for channel in self.channels:
                if channel.due:
                    wait_secs = min(wait_secs, max(0.0, channel.due - time.monotonic()))
        return wait_secs

    def _flags_beside(self, channel: Channel) -> int:
        sibling = channel.sibling
        if sibling is None or not (sibling.closed or (sibling.listening and not sibling.ready)):
            return 0
        return sibling.bit

    def _read(self, channel: Channel, flags: int, now: float) -> None:
        size = 0
        hung_up = False
        buffer = self._buffer
        if self._unsent is not None:
            self._unsent.begin(channel.stream, channel.byte_count)
        while size < TURN_BYTES:
            try:
                last = os.readv(channel.master, [buffer[size:]])
            except BlockingIOError:
                if size and self._goes_on(channel, now):
                    continue
                break
            except OSError:  # EIO: a pty's end; Linux may give the last bytes that were written before it after it
                if not hung_up:
                    hung_up = True
                    continue
                last = 0
            if not last:
                channel.at_end = True  # a pipe's end, too
                break
            size += last
            if last < PTY_READ_BYTES and not self._floods:
                break  # all read; the next poll reports new bytes
        self._arrived_last()  # arrivals during the read say nothing about the order
        if size:
            channel.small_writes.note(size, now)
            data = bytes(buffer[:size])
            fault_point("relay_read")
            if self._unsent is not None:
                self._unsent.keep(channel.stream, channel.byte_count, data)
            channel.count(data)
            fault_point("relay_counted")
            if self._unsent is not None:
                self._unsent.clear(size)
            sibling = channel.sibling
            # a separate poll: only this waits for bytes on the kernel's way to its terminal
            if sibling is not None and sibling.listening and self._alone[sibling.stream].poll(0):
                flags |= channel.bit
            self._pass_on(channel, data, flags, now)
        self._settle(channel, now)

    def _goes_on(self, channel: Channel, now: float) -> bool:
        """Return whether a flooding stream brings more soon, and nothing else before.

        A terminal holds a few KiB; passing on each by itself takes longer than reading it.
        """
        if not self._floods or time.monotonic() - now >= GATHER_SECS:
            return False
        return self._poll.poll(GATHER_SECS * 1000) == [(channel.master, select.POLLIN)]

    def make_up(self, channel: Channel, data: bytes) -> None:
        """Relay a dead relay's last read."""
        now = time.monotonic()
        channel.count(data)
        self._pass_on(channel, data, 0, now)
        self._settle(channel, now)

    def _pass_on(self, channel: Channel, data: bytes, flags: int, now: float) -> None:
        channel.may_continue = len(data) >= PTY_READ_BYTES
        channel.put(data, now)
        self._fresh = True
        self._burst += len(data)
        fault_point("relay_passed_on")
        self._sink.data(channel.stream, data, flags)

    def _rest(self, now: float) -> None:
        """No stream had anything to read."""
        # as of the poll: delivery may make room for a stream outside it
        flags = 0
        for channel in self.channels:
            if channel.closed or channel.listening:
                flags |= channel.bit
        untold, self._fresh = self._fresh, False
        self._burst = 0
        self._floods = False
        for channel in self.channels:
            if channel.waits_for_other:
                channel.deliver(now)  # which says nothing
                self._settle(channel, now)
        if untold and not self._stopped:  # EXIT may have been told: nothing follows it
            self._sink.empty(flags)

    # ---- outputs

    def inject(self, channel: Channel, text: bytes) -> None:
        """Puts a line of logshipper's own into a stream's output; it is neither counted nor handed
        to the sink."""
        if not (channel.closed or channel.gone_errno):
            now = time.monotonic()
            channel.put(text, now)
            self._settle(channel, now)

    def _settle(self, channel: Channel, now: float) -> None:
        """Update poll, owner and the other channel after a channel's read or write."""
        if channel.closed:
            return
        if channel.blocked and channel.out.fd not in self._watched:
            self.watch(channel.out.fd, select.POLLOUT, lambda _: self._unblock(channel))
        elif not channel.blocked:
            self.unwatch(channel.out.fd)
        self._listen(channel)
        if channel.out.fault and not channel.failed:
            channel.failed = True
            self._owner.output_failed(channel)
        if channel.gone_errno:
            # SIGPIPE first: once the pty is closed, CMD's write fails with EIO
            self._owner.output_gone(channel)
        if channel.gone_errno or (channel.at_end and not channel.pending):
            self._close(channel, now)

    def _unblock(self, channel: Channel) -> None:
        now = time.monotonic()
        channel.deliver(now)
        self._settle(channel, now)
        self._deliver_other(channel, now)

    def _close(self, channel: Channel, now: float) -> None:
        del self._by_master[channel.master]
        if self._order is not None:
            self._order.unregister(channel.master)
        channel.close()
        self._fresh = True
        self._sink.closed(channel.stream)
        self._owner.stream_closed(channel)
        self._deliver_other(channel, now)

    def _deliver_other(self, channel: Channel, now: float) -> None:
        """Write the bytes that waited for this channel."""
        sibling = channel.sibling
        if self._shared and sibling is not None and sibling.pending and not sibling.blocked:
            sibling.deliver(now)
            self._settle(sibling, now)

    # ---- the end

    def is_over(self) -> bool:
        """Whether every stream is hung up and delivered."""
        return all(channel.closed for channel in self.channels)

    def begin_drain(self) -> None:
        """Start the drain after CMD's end or stop: from now on `is_drained` counts."""
        self._fresh = self._drains = True
        for channel in self.channels:
            channel.drained = channel.closed
            channel.after_exit = 0

    def end_drain(self) -> None:
        """CMD, which was stopped, may go on."""
        self._drains = False

    def is_drained(self) -> bool:
        """Whether all of CMD's bytes in its terminals are delivered; others relay an endlessly
        writing child."""
        return all(
            not channel.pending and (channel.drained or channel.after_exit >= LEFT_BEHIND_BYTES)
            for channel in self.channels
        )

    def stop(self) -> None:
        """Reads and writes no stream any more; fds of others are still watched."""
        self._stopped = True
        for channel in self.channels:
            self._listen(channel)
            if channel.blocked:
                self.unwatch(channel.out.fd)

    def release(self) -> None:
        """Close the streams that are still open here; they continue if others hold them."""
        if self._order is not None:
            self._order.close()
            self._order = None
        for channel in self.channels:
            if not channel.closed:
                channel.close()
        self._by_master.clear()


def _poll_of(channel: Channel) -> "select.poll":
    poll = select.poll()
    poll.register(channel.master, select.POLLIN)
    return poll


def _order_of_arrival(channels: list[Channel]) -> "select.epoll | None":
    """Return an epoll whose events come in the order in which the streams became readable.

    This is the best approximation of CMD's writing order (right in 997 of 1,000 cases for two lines
    at once; poll's order says nothing). Only poll makes the kernel hand on pending bytes, so this
    epoll never proves that a stream is empty.
    """
    if len(channels) != 2:
        return None
    try:
        order = select.epoll()
    except OSError:
        return None  # out of fds
    for channel in channels:
        order.register(channel.master, select.EPOLLIN | select.EPOLLET)
    return order
