"""CMD as the relay process runs it: batch or interactive.

Batch: CMD is a child in the same session and process group. The kernel's signals to the group
(Ctrl-C, Ctrl-Z) reach it anyway, so the relay forwards only signals that a process sent to it
alone. Interactive: CMD has its own session, so the relay forwards all signals, and passes stops and
resumes in both directions.
"""

import errno
import os
import select
import signal
import time

from logshipper.process import launch, monitor, signals, terminal
from logshipper.process.keyboard import Keyboard
from logshipper.process.process_group import waits_in_vain
from logshipper.process.signals import SignalArrival
from logshipper.spool.captures import stat_fields

# how often a job in the background looks whether it is in the foreground again
FOREGROUND_SECS = 0.25
_SUSPEND_SECS = 2.0  # after Ctrl-Z, the time and the number of checks for stuck processes
_GROUP_SIGNALLERS = ("sge_shepherd",)  # these always signal a job's whole process group
_NOT_SENT_ON = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGCONT)
_FROM_KERNEL_TOO = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from logshipper.relay.relay import Relay


class BatchCommand:
    """CMD as a child beside us.

    pid, pidfd: CMD's (pidfd -1 without kernel support). wait_status: None while it runs.
    stop_signal: for our own stop after all output, 0 for none. size: (columns, rows) of its
    terminals. lost: its end is unknown. masters: by stream, to set sizes; empty for pipes.
    cancelled: somebody sent or typed a signal that ends jobs. on_resize(columns, rows).
    """

    interactive = False

    def __init__(
        self,
        masters: dict[int, int],
        size: tuple[int, int],
        on_resize: "Callable[[int, int], None]",
    ) -> None:
        self.pid = 0
        self.pidfd = -1
        self.wait_status: int | None = None
        self.ended_ns = 0
        self.lost = False
        self.cancelled = False
        self.size = size
        self._masters = masters
        self._on_resize = on_resize
        self._stopped_by = 0  # CMD stopped
        self._stop_seen = 0  # and so should the whole group

    def start(
        self,
        argv: list[str],
        environment: "Mapping[str, str]",
        slaves: dict[int, int],
        inherited: signals.InheritedSignals,
    ) -> None:
        """Start CMD. Raises CaptureError if it cannot run, OSError without a process."""
        receive, failed = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                launch.become(argv, environment, slaves, inherited, failed)
        except OSError:
            os.close(receive)
            raise
        finally:
            os.close(failed)
        launch.await_exec(argv, self.pid, receive)
        self._open_pidfd()

    def _open_pidfd(self) -> None:
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            pass  # before Linux 5.3; or dead and reaped by the monitor

    def attach(self, relay: "Relay") -> None:
        """Watch CMD's events besides its output."""

    def changed(self, pid: int, status: int) -> None:
        """A child stopped, went on, or ended."""
        if pid != self.pid:
            return
        if os.WIFSTOPPED(status):
            self._stopped_by = os.WSTOPSIG(status)
        elif os.WIFCONTINUED(status):
            self._stopped_by = self._stop_seen = 0
        else:
            self._end(status)

    def _end(self, status: int) -> None:
        if self.wait_status is None:
            self.wait_status = status
            self.ended_ns = time.time_ns()

    def send(self, signo: int) -> None:
        """To CMD itself."""
        if self.wait_status is not None:
            return
        try:
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, signo)
            else:
                os.kill(self.pid, signo)
        except OSError:
            pass  # it just ended, or became another user's

    def arrived(self, arrival: SignalArrival) -> None:
        """Forward a signal that CMD has not received."""
        if arrival.signo == signal.SIGWINCH:
            self.update_size()
        elif arrival.signo == signal.SIGCONT:
            if _is_stopped(self.pid):  # sent to us alone
                self.send(signal.SIGCONT)
        elif arrival.pid in (os.getpid(), self.pid) or (
            arrival.by_process and _comm(arrival.pid) in _GROUP_SIGNALLERS
        ):
            pass  # our own, or to CMD's group, by CMD or the scheduler: it has it
        else:
            if arrival.signo in signals.JOB_CONTROL:
                self._stop_seen = arrival.signo
            if arrival.by_process and arrival.signo not in _NOT_SENT_ON:
                self.send(arrival.signo)

    @property
    def stop_signal(self) -> int:
        # a stop of CMD alone does not stop us: whoever continues CMD alone would find its output
        # stuck
        return self._stop_seen if self._stopped_by in signals.JOB_CONTROL else 0

    def stop(self, signal_pipe: signals.SignalPipe) -> None:
        """Stops with CMD; returns when the shell continues both."""
        signo = self._stop_seen
        self._stop_seen = self._stopped_by = 0
        signals.stop(signo)
        self.update_size()

    def update_size(self) -> None:
        """Resize CMD's terminals after the real one."""
        size = terminal.batch_size()
        if size != self.size:
            self._resize(size)
            os.killpg(0, signal.SIGWINCH)

    def _resize(self, size: tuple[int, int]) -> None:
        self.size = size
        # the controlling one last: it brings the signal
        for stream in sorted(self._masters, reverse=True):
            terminal.set_size(self._masters[stream], size)
        self._on_resize(*size)

    def forget(self, stream: int) -> None:
        """The stream's master is closed."""
        self._masters.pop(stream, None)

    @property
    def wait_secs(self) -> float | None:
        """Return the interval of `tick`; None for never."""
        return None

    def tick(self) -> None:
        """Handle time-dependent events."""

    def hang_up(self) -> None:
        """Restore the real terminal, after the delivery of all output."""


class InteractiveCommand(BatchCommand):
    """CMD in its own session, with the monitor in between; fds 0, 1, 2 are the real terminal, raw
    meanwhile."""

    interactive = True

    def __init__(
        self,
        masters: dict[int, int],
        size: tuple[int, int],
        on_resize: "Callable[[int, int], None]",
        real: terminal.RealTerminal,
    ) -> None:
        super().__init__(masters, size, on_resize)
        self._terminal = real
        self._monitor = 0
        self._report = -1
        self._background = False
        self._relay: Relay | None = None
        self._suspend_until = self._suspend_due = 0.0  # 0: not typed
        self._keyboard = Keyboard(
            masters, self._terminal_gone, self._look_at_foreground, self._take_signal_key
        )

    def start(
        self,
        argv: list[str],
        environment: "Mapping[str, str]",
        slaves: dict[int, int],
        inherited: signals.InheritedSignals,
    ) -> None:
        self._terminal.enter()
        receive, failed = os.pipe()
        self._report, send = os.pipe()
        try:
            self._monitor = monitor.start(argv, environment, slaves, inherited, failed, send)
        except OSError:
            os.close(receive)
            raise
        finally:
            os.close(failed)
            os.close(send)
        launch.await_exec(argv, self._monitor, receive)
        self._read_report()
        if not self.pid:
            raise OSError(errno.EAGAIN, "the terminal's session couldn't be made")
        self._open_pidfd()

    def attach(self, relay: "Relay") -> None:
        self._relay = relay
        self._keyboard.attach(relay)
        self._look_at_foreground()
        relay.watch(self._report, select.POLLIN, lambda _: self._read_report())

    def _read_report(self) -> None:
        records = os.read(self._report, monitor.REPORT.size * 64)
        for kind, value in monitor.REPORT.iter_unpack(records):
            if kind == monitor.STARTED:
                self.pid = value
            elif kind == monitor.STOPPED:
                self._stopped_by = value
            else:
                self._end(value)
        if not records and self._relay is not None:
            self._relay.unwatch(self._report)
            if self.wait_status is None:
                self._lose_monitor(self._relay)

    def _lose_monitor(self, relay: "Relay") -> None:
        """The kernel has hung up on CMD; whether that ends it, only its pidfd tells."""
        self.lost = True
        if self.pidfd >= 0:
            relay.watch(self.pidfd, select.POLLIN, lambda _: self._end(125 << 8))
        else:
            self._end(125 << 8)

    def changed(self, pid: int, status: int) -> None:
        if pid == self._monitor:  # it reports CMD's end itself, and its pipe's end shows the rest
            self._monitor = 0

    def arrived(self, arrival: SignalArrival) -> None:
        if arrival.signo == signal.SIGWINCH:
            self.update_size()
        elif arrival.signo == signal.SIGCONT:
            self._look_at_foreground()
        elif arrival.pid == os.getpid() or arrival.signo in _NOT_SENT_ON:
            pass
        elif arrival.by_process:
            self.send(arrival.signo)
        elif arrival.signo in _FROM_KERNEL_TOO:
            self._send_to_foreground(arrival.signo)

    def _send_to_foreground(self, signo: int) -> None:
        """To CMD's foreground group, as the kernel would do."""
        try:
            group = os.tcgetpgrp(self._masters[1])
            if group > 0:
                os.killpg(group, signo)
        except (OSError, KeyError):
            pass  # the pty is hung up, or the group is another user's

    def _terminal_gone(self) -> None:
        self._send_to_foreground(signal.SIGHUP)
        self._send_to_foreground(signal.SIGCONT)

    @property
    def stop_signal(self) -> int:
        return self._stopped_by

    def stop(self, signal_pipe: signals.SignalPipe) -> None:
        self._stopped_by = 0
        self._terminal.leave()
        self._keyboard.listen(False)
        # the kernel would: Ctrl-Z reached CMD's terminal only
        signal_pipe.tell_group(signal.SIGTSTP)
        signals.stop(signal.SIGTSTP)
        self._background = True
        self._look_at_foreground()
        self.update_size()
        if self._monitor:
            os.kill(self._monitor, signal.SIGCONT)

    def update_size(self) -> None:
        size = terminal.size_of(0)
        if size is not None and size != self.size:
            self._resize(size)
            self._send_to_foreground(signal.SIGWINCH)

    def forget(self, stream: int) -> None:
        super().forget(stream)
        self._keyboard.forget(stream)

    @property
    def wait_secs(self) -> float | None:
        return FOREGROUND_SECS if self._background or self._suspend_until else None

    def tick(self) -> None:
        if self._background:
            self._look_at_foreground()
        if self._suspend_until and (now := time.monotonic()) >= self._suspend_due:
            self._suspend_due = now + FOREGROUND_SECS
            self._suspend_until = self._suspend_until if now < self._suspend_until else 0.0
            self._continue_stopped()

    def _take_signal_key(self, signo: int, is_sent: bool) -> None:
        self.cancelled = self.cancelled or signo != signal.SIGTSTP
        if not is_sent:
            self._send_to_foreground(signo)
        if signo == signal.SIGTSTP:
            now = time.monotonic()
            self._suspend_until, self._suspend_due = now + _SUSPEND_SECS, now + FOREGROUND_SECS

    def _continue_stopped(self) -> None:
        """Continue stopped processes after Ctrl-Z if their shell has no job control.

        A shell whose stderr is not the session's terminal has none, and all keys would be useless.
        """
        try:
            group = os.tcgetpgrp(self._masters[1])
            if group > 0 and not self._stopped_by and waits_in_vain(group):
                os.killpg(group, signal.SIGCONT)
        except (OSError, KeyError):
            pass  # the pty is hung up, or the group has gone

    def _look_at_foreground(self) -> None:
        """Takes the terminal where the shell gave it to us; it signals `fg`, but not where we run
        on after `bg`."""
        self._background = not terminal.in_foreground()
        if not self._background:
            self._terminal.enter()
        self._keyboard.listen(not self._background)

    def hang_up(self) -> None:
        self._keyboard.close()
        self._terminal.leave()


def _comm(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return file.read().rstrip("\n")
    except OSError:
        return ""


def _is_stopped(pid: int) -> bool:
    try:
        return stat_fields(pid)[0] == b"T"
    except OSError:
        return False
