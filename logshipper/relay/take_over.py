"""Relays in place of a relay process that died or returned."""

import errno
import os
import select
import signal
import termios

from logshipper.relay.channel import Channel
from logshipper.relay.output import JobOutput
from logshipper.relay.relay import Owner, Relay, RelaySink

_WAIT_SECS = 0.2  # of a turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from logshipper.relay.handover import SidecarPlan


class CommandWatch(Owner):
    """CMD, seen by another process than its parent. pidfd: of CMD, or -1 before Linux 5.3."""

    def __init__(self, pidfd: int, pid: int) -> None:
        self._pidfd = pidfd
        self._pid = pid
        self._poll = select.poll()
        if pidfd >= 0:
            self._poll.register(pidfd, select.POLLIN)

    def is_dead(self) -> bool:
        if self._pidfd >= 0:
            return bool(self._poll.poll(0))
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def output_gone(self, channel: Channel) -> None:
        if channel.gone_errno == errno.EPIPE and self._pidfd >= 0:
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGPIPE)
            except OSError:
                pass  # dead already, or another user's

    def relay_to_end(self, relay: Relay) -> None:
        """Relay until nobody holds the streams and CMD is dead."""
        while not (relay.is_over() and self.is_dead()):
            relay.turn(_WAIT_SECS)


def duplicate_channels(plan: "SidecarPlan", streams: "Iterable[int]") -> list[Channel]:
    """Return channels of the plan's streams through duplicates, because a sink may close the plan's
    descriptors in `closed`."""
    return [
        Channel(
            stream,
            os.dup(plan.masters[stream]),
            JobOutput(os.dup(plan.outs[stream])),
            plan.counters,
        )
        for stream in streams
        if stream in plan.masters and stream in plan.outs
    ]


def take_over(plan: "SidecarPlan", sink: RelaySink) -> None:
    """Relay until nobody holds the streams and CMD is dead.

    The caller has removed streams that the relay had closed from the plan. Restores a terminal that
    the relay left raw.
    """
    if (
        plan.raw_now is not None
        and plan.raw_now[0]
        and plan.saved_termios is not None
        and 1 in plan.outs
    ):
        try:
            termios.tcsetattr(plan.outs[1], termios.TCSADRAIN, plan.saved_termios)
        except (OSError, termios.error):
            pass  # the terminal has gone
        plan.raw_now[0] = 0
    channels = duplicate_channels(plan, sorted(plan.masters))
    command = CommandWatch(plan.cmd_pidfd, plan.cmd_pid)
    relay = Relay(channels, sink, command, gathers=False)
    if plan.unsent is not None:
        for channel in channels:
            if read := plan.unsent.uncounted(channel.stream, channel.byte_count):
                relay.make_up(channel, read)
    command.relay_to_end(relay)
