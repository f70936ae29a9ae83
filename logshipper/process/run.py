"""Wiring of the relay process, P0: `logshipper run` while CMD runs.

CMD comes first: it runs before the sidecar's fork, and survives all faults of the sidecar and the
relay. Order of the end: CMD ends; its terminals are emptied; the real terminal is restored; the
sidecar reports that all is synced; the relay ends as CMD did. Forks precede the signals' thread,
because threads and forks do not mix.
"""

import errno
import os
import select
import signal
import termios
import time

from logshipper.background import close_inherited, detach, forbid_core_files, keep_freed_memory
from logshipper.errors import CaptureError
from logshipper.fault_points import fault_point
from logshipper.named_tuple import NamedTuple
from logshipper.process import launch, nesting, signals, terminal
from logshipper.process.job import BatchCommand, InteractiveCommand
from logshipper.process.shell import is_shell_to_type_into
from logshipper.process.signals import SignalPipe
from logshipper.process.streams import STREAMS, Streams
from logshipper.relay.channel import Channel
from logshipper.relay.handover import STALL_SECS, SidecarLink, SidecarPlan
from logshipper.relay.relay import Owner, Relay, RelaySink
from logshipper.relay.side_pipe import Ending
from logshipper.relay.unsent import Unsent
from logshipper.spool.captures import give_up, note_end, note_relay

_FOREVER_SECS = 3600.0
_CARE_SECS = 0.5
_FINISH_SECS = 0.1
# how long a line of our own waits for the end of a line, or for room in stderr
_BOUNDARY_SECS = 1.0
_IMPATIENT_SECS = 1.0  # after CMD's end; later signals are meant for the relay
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
_HELPER_COMM = "logshipper-rest"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from logshipper.spool.captures import CaptureDirectory
    from logshipper.telegraf.measurements import Collector


class RunOptions(NamedTuple):
    """Command and options of `run`."""

    argv: list[str]  # CMD and its arguments
    tty: bool  # ptys, else pipes
    capture: "CaptureDirectory | None"  # None: nothing can be logged, the job is only relayed
    serve: "Callable[[SidecarPlan], None]"  # the sidecar process' work, to its end
    stall_secs: float = STALL_SECS  # without progress of the sidecar before the relay gives it up
    telegraf: "Collector | None" = None  # takes measurements that CMD sends, for the sidecar
    leave: tuple[int, ...] = ()  # streams (1, 2) that CMD gets as they are
    apart: bool = False  # stdout and stderr of a shell, too
    farewell: str = ""  # a line at the end, where stderr is a terminal; "": none


def run(options: RunOptions) -> int:
    """Run CMD to its end, and relay and capture its output.

    Returns its exit code, or dies of its signal. Raises CaptureError if CMD cannot run (126, 127).
    """
    terminal.fill_standard_fds()
    inherited = signals.InheritedSignals()
    try:
        process = RelayProcess(options)
        process.start(inherited)
    except CaptureError as error:
        if options.capture is not None:
            give_up(options.capture, error.exit_code)
        raise
    except (OSError, MemoryError, termios.error) as error:
        # no fd, process, memory or terminal available: the job matters more
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        _write_at_once(_own_lines([f"nothing of this run is logged: {reason}"], True))
        inherited.restore()
        failure = launch.exec_command(options.argv, os.environ)
        raise launch.refusal(options.argv, failure.errno or errno.EIO) from None
    try:
        process.begin()
        return process.finish()
    finally:
        process.job.hang_up()  # on every way out


class RelayProcess(Owner):
    """P0. __init__ and start raise OSError for a missing resource; CMD does not run yet then."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._started_ns = 0  # when CMD was about to
        self._notices: list[str] = []  # lines of our own, waiting for the end of a line on stderr
        self._notices_due = 0.0
        self._ended_at = 0.0
        self._impatient = False
        self._counters = None if options.capture is None else options.capture.counters
        self._sidecar = SidecarLink(self._say, options.stall_secs)
        self._unsent: Unsent | None = None
        self._signals = SignalPipe()
        is_one = not options.apart and is_shell_to_type_into(options.argv)
        streams = Streams(
            options.tty, self._counters, self._say, options.leave, one_terminal=is_one
        )
        self._streams = streams
        self._channels = streams.channels
        on_resize = self._sidecar.resized
        self.job = (
            BatchCommand(streams.ptys, streams.size, on_resize)
            if streams.real is None
            else InteractiveCommand(streams.ptys, streams.size, on_resize, streams.real)
        )

    # ---- start

    def start(self, inherited: signals.InheritedSignals) -> None:
        """Start CMD. Raises CaptureError if it cannot run."""
        job = self.job
        environment = dict(os.environ)
        if self._options.capture is not None:
            environment["LOGSHIPPER_JOB_ID"] = self._options.capture.job_id
            fds = [*self._streams.slaves.values(), *self._options.leave]
            environment[nesting.VARIABLE] = nesting.mark(fds)
        if self._options.telegraf is not None:
            environment["LOGSHIPPER_TELEGRAF"] = f"127.0.0.1:{self._options.telegraf.port}"
        self._started_ns = time.time_ns()  # on a busy node CMD runs for a while before we do again
        try:
            job.start(self._options.argv, environment, self._streams.slaves, inherited)
        except BaseException:
            job.hang_up()
            raise

    def begin(self) -> None:
        """Start the capture; CMD runs, and missing resources do not affect it."""
        forbid_core_files()
        keep_freed_memory()
        for fd in self._streams.slaves.values():
            os.close(fd)
        close_inherited()
        _let_go_of_pipes()
        if self._options.capture is not None:
            self._start_sidecar()
        self._signals.start()
        self._relay = Relay(
            self._channels,
            self._sidecar if self._sidecar.alive else RelaySink(),
            self,
            self._unsent,
        )
        self._relay.watch(self._signals.fd, select.POLLIN, lambda _: self._take_signals())
        self._sidecar.attach(self._relay)
        self.job.attach(self._relay)

    def _start_sidecar(self) -> None:
        job, streams, telegraf = self.job, self._streams, self._options.telegraf
        if self._counters is not None:
            note_relay(self._counters)
        plan = SidecarPlan(
            masters={channel.stream: channel.master for channel in self._channels},
            outs={channel.stream: channel.out.fd for channel in self._channels},
            cmd_pid=job.pid,
            cmd_pidfd=job.pidfd,
            columns=job.size[0],
            rows=job.size[1],
            tty=streams.tty,
            relay_pid=os.getpid(),
            started_ns=self._started_ns,
            counters=self._counters,
            interactive=job.interactive,
            saved_termios=None if streams.real is None else streams.real.saved_attributes,
            raw_now=None if streams.real is None else streams.real.raw_now,
            telegraf=telegraf or (),
        )
        try:
            self._unsent = Unsent()
            self._sidecar.start(self._options.serve, plan._replace(unsent=self._unsent))
        except OSError as error:
            self._say(f"nothing of this run is logged: {error.strerror or error}")
        if telegraf is not None:
            telegraf.close()  # the sidecar's alone: it ends with that
        for stream in STREAMS:
            if stream not in plan.masters:
                self._sidecar.closed(stream)

    # ---- the course

    def finish(self) -> int:
        """Relay until CMD has ended and all is delivered and logged.

        Returns the exit code, or dies as CMD did.
        """
        self._relay_until_end()
        self.job.hang_up()
        self._end_sidecar()
        self._leave_the_rest()
        if self._options.farewell and os.isatty(2):
            self._say(self._options.farewell)
        self._tell_the_rest()
        code = os.waitstatus_to_exitcode(self.job.wait_status or 0)
        if code < 0:
            signals.die_of(-code)
            return 128 - code
        return code

    def _relay_until_end(self) -> None:
        job = self.job
        while job.wait_status is None:
            self._turn(_FOREVER_SECS)
            if job.stop_signal:
                self._stop()
        fault_point("relay_cmd_ended")
        if self._counters is not None:
            note_end(self._counters, job.wait_status, job.ended_ns)
            fault_point("relay_end_noted")
        if job.lost:
            self._say("the process that held CMD's terminal was killed: CMD's exit code is unknown")
        self._ended_at = time.monotonic()
        self._relay.begin_drain()
        while not (self._relay.is_drained() or self._impatient):
            self._turn(_FOREVER_SECS)
        self._relay.stop()

    def _turn(self, wait_secs: float) -> None:
        """Run one turn of the relay, and its periodic checks."""
        if self._sidecar.needs_care:
            wait_secs = min(wait_secs, _CARE_SECS)
        if self.job.wait_secs is not None:
            wait_secs = min(wait_secs, self.job.wait_secs)
        if self._signals.polled:
            wait_secs = min(wait_secs, signals.POLL_SECS)
        if self._notices and not self.job.interactive:
            wait_secs = min(wait_secs, max(0.0, self._notices_due - time.monotonic()))
        self._relay.turn(wait_secs)
        self._sidecar.check()
        self.job.tick()
        if self._signals.polled:
            self._take_signals()
        if self._notices and not self.job.interactive:
            self._tell()

    def _take_signals(self) -> None:
        for arrival in self._signals.take():
            if arrival.signo == signal.SIGCHLD:
                self._reap()
            elif self.job.wait_status is None:
                self.job.cancelled = self.job.cancelled or arrival.signo in _ENDING
                self.job.arrived(arrival)
            elif arrival.signo in _ENDING and time.monotonic() > self._ended_at + _IMPATIENT_SECS:
                # somebody waits for the relay, which waits for a slow reader
                self._impatient = True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid != self._sidecar.pid:
                self.job.changed(pid, status)
            elif not (os.WIFSTOPPED(status) or os.WIFCONTINUED(status)):
                self._sidecar.reaped(status)

    def _stop(self) -> None:
        """CMD stopped by job control: so do we, once the user has seen all that it printed, and the
        sidecar has it."""
        until = time.monotonic() + _CARE_SECS
        self._relay.begin_drain()
        while not self._relay.is_drained() and time.monotonic() < until:
            self._turn(_FINISH_SECS)
        self._relay.end_drain()
        self._sidecar.send()
        self.job.stop(self._signals)

    # ---- the relay's reports

    def output_gone(self, channel: Channel) -> None:
        if channel.gone_errno == errno.EPIPE:
            # a terminal that has gone gives EIO, with and without the relay
            self.job.send(signal.SIGPIPE)

    def output_failed(self, channel: Channel) -> None:
        name = "standard output" if channel.stream == 1 else "standard error"
        reason = os.strerror(channel.out.fault)
        self._say(
            f"{name} can't be written, bytes are missing there (CMD and its log go on): {reason}"
        )

    def stream_closed(self, channel: Channel) -> None:
        self.job.forget(channel.stream)

    # ---- lines of our own

    def _say(self, text: str) -> None:
        self._notices.append(text)
        self._notices_due = time.monotonic() + _BOUNDARY_SECS

    def _tell(self) -> None:
        """Print a message at a line's end on stderr, or on a new line."""
        for channel in self._channels:
            if channel.stream == 2 and not (channel.closed or channel.gone_errno):
                break
        else:
            self._tell_the_rest()
            return
        is_between_lines = channel.at_line_start and not channel.pending
        if is_between_lines or time.monotonic() >= self._notices_due:
            self._relay.inject(channel, _own_lines(self._notices, channel.at_line_start))
            self._notices = []

    def _tell_the_rest(self) -> None:
        if self._notices:
            at_line_start = all(
                channel.at_line_start for channel in self._channels if channel.stream == 2
            )
            _write_at_once(_own_lines(self._notices, at_line_start))
            self._notices = []

    # ---- the end

    def _end_sidecar(self) -> None:
        sidecar = self._sidecar
        is_open = self.job.cancelled or self.job.lost
        sidecar.exited(self.job.wait_status or 0, 0 if is_open else Ending.UNCANCELLED)
        fault_point("relay_end_told")
        while sidecar.alive and not sidecar.is_flushed and not self._impatient:
            self._turn(_CARE_SECS)
        sidecar.hang_up()
        while sidecar.may_finish() and not self._impatient:
            self._turn(_FINISH_SECS)

    def _leave_the_rest(self) -> None:
        """Leave streams that CMD's children still hold to the sidecar, or to a helper without one."""
        open_channels = [channel for channel in self._channels if not channel.closed]
        if open_channels and not self._sidecar.alive:
            self._signals.end()
            try:
                if os.fork() == 0:
                    _be_helper(open_channels)
            except OSError as error:
                self._say(f"processes that CMD left behind lose their output: {error.strerror}")
        self._relay.release()


def _be_helper(channels: list[Channel]) -> "NoReturn":
    fds = {fd for channel in channels for fd in (channel.master, channel.out.fd)}
    try:
        detach(_HELPER_COMM, fds)
        relay = Relay(channels, RelaySink(), Owner())
        while not relay.is_over():
            relay.turn(_FOREVER_SECS)
    finally:
        os._exit(0)


def _let_go_of_pipes() -> None:
    """Close stdin and stdout, so that a reader of their end waits for CMD's only.

    Terminals stay open for their size, stderr for messages.
    """
    try:
        null = os.open(os.devnull, os.O_RDWR)
    except OSError:
        return  # out of fds
    for fd in (0, 1):
        if terminal.is_inherited(fd) and not os.isatty(fd):
            os.dup2(null, fd)
    os.close(null)


def _own_lines(texts: list[str], at_line_start: bool) -> bytes:
    lines = "".join(f"logshipper: {text}\n" for text in texts)
    return (lines if at_line_start else "\n" + lines).encode("utf-8", "replace")


def _write_at_once(lines: bytes) -> None:
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    try:
        if terminal.is_inherited(2) and poll.poll(_BOUNDARY_SECS * 1000):
            os.write(2, lines)
    except OSError:
        pass  # no reader for the message
