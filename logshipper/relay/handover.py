"""From relay to sidecar: the start plan, the process, the side pipe, and reports.

The relay forks the sidecar, never waits for it, and protects the job from it. A full side pipe
slows the job (R28), but a sidecar that accepts nothing for STALL_SECS is given up. Small writes
gather for BEAT_SECS, because a wake-up costs the sidecar more than a line. Frames that others may
wait for do not gather: commands, a stream's end, CMD's end. Bytes that may be newer than the other
stream's (`flags` of `data`) wait for these, so that a command there goes first. Reports are lines
from sidecar to relay: `ready`; `degraded REASON` (for people); `failed REASON` (last words); `done`
(all is synced, the relay may return). Each is a sign of life.
"""

import fcntl
import os
import select
import signal
import time

from logshipper.background import detach
from logshipper.errors import LogshipperError
from logshipper.named_tuple import NamedTuple
from logshipper.relay import side_pipe
from logshipper.relay.channel import next_beat
from logshipper.relay.relay import Relay, RelaySink
from logshipper.relay.side_pipe import SideType

# wished for; any size is accepted (the user's 65th pipe of this size is refused or shrunk)
SIDE_PIPE_BYTES = 1 << 20
FRAME_BYTES = 64 << 10
BUFFER_BYTES = 256 << 10  # waiting beside a full pipe; then the streams are not read
# As much does not wait, and is not searched for commands if it is read at once
MUCH_BYTES = 16 << 10
STALL_SECS = 10.0
# as in render/command_prefix.py. Commands do not wait: after a relay's death, the rest comes stream
# by stream
_COMMAND = b"/LOGCOMMAND"
_BOTH = 3  # bits of streams
COMM = "logshipper-side"  # as ps shows it; 15 characters at most
_MAX_REPORT_BYTES = 64 << 10
_MOURNING_SECS = 1.0
_MAX_PIECES = 256  # of one writev, well below IOV_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from typing import Any, NoReturn, TypeAlias

    from logshipper.relay.unsent import Unsent

    # of a terminal. Any: the standard library's own type of it: six ints and a list of bytes
    Attributes: TypeAlias = list[Any]


class SidecarPlan(NamedTuple):
    """File descriptors and data for a sidecar.

    The process closes its other inherited descriptors itself; objects that own one must not close
    it again.
    """

    # by stream (1, 2), to relay after the relay's death; a stream that the caller had closed is in
    # neither
    masters: dict[int, int]
    outs: dict[int, int]
    cmd_pid: int
    cmd_pidfd: int  # -1 without one
    columns: int
    rows: int
    tty: bool
    relay_pid: int
    started_ns: int
    counters: "mmap | None" = None  # shared, of the capture
    interactive: bool = False
    saved_termios: "Attributes | None" = None  # of the real terminal, None in batch
    raw_now: "mmap | None" = None  # likewise
    # bytes that a dying relay may not have handed over; None: it keeps no account of them
    unsent: "Unsent | None" = None
    telegraf: tuple[int, ...] = ()  # of the job's `measurements.Collector`; () without one
    side_pipe: int = -1  # read end, made when the sidecar is forked
    report: int = -1  # write end, made when the sidecar is forked

    def fds(self) -> set[int]:
        pipes = {self.side_pipe, self.report, self.cmd_pidfd} - {-1}
        return pipes.union(self.masters.values(), self.outs.values(), self.telegraf[:2])


class SidecarLink(RelaySink):
    """The relay's view of the sidecar, and its sink.

    on_trouble(reason): gets each fault once, in plain words; the job continues with less of a log.
    alive: it accepts bytes. done: all sent bytes are synced. pid: 0 once reaped.
    """

    def __init__(self, on_trouble: "Callable[[str], None]", stall_secs: float = STALL_SECS) -> None:
        self.pid = 0
        self.alive = False
        self.done = False
        self._on_trouble = on_trouble
        self._stall_secs = stall_secs
        self._relay: Relay
        self._pipe = self._report = self._rest = -1
        self._half_report = b""
        self._failed = ""
        self._mourned_until = 0.0  # lost, its exit status not known yet
        self._frames: list[bytes] = []  # headers and payloads that wait, in order
        self._waiting_bytes = 0  # of these
        self._open_frame = (0, 0)  # stream and flags of the DATA frame that still grows
        self._payload: list[bytes] = []
        self._payload_bytes = 0
        self._held: tuple[int, int, bytes] = (0, 0, b"")  # waits for the other stream's commands
        self._empty = 0  # streams seen empty after all of it; sent with it
        # streams that may still bring output from before a command; news of their emptiness goes at
        # once
        self._doubtful = 0
        self._open = _BOTH
        self._send_due = 0.0  # not before; 0: at once
        self._ends = {1: b"", 2: b""}  # of the bytes read: a command may come in pieces
        self._blocked = False
        self._paused = False
        # when progress was last looked for; how long there has been none
        self._looked_at = self._still = 0.0
        self._unread = 0

    def start(self, serve: "Callable[[SidecarPlan], None]", plan: SidecarPlan) -> None:
        """Fork the sidecar. plan: without the two pipes. Raises OSError."""
        fds: list[int] = []
        try:
            fds += os.pipe()
            fds += os.pipe()
            read, write, report, send = fds
            try:
                fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, SIDE_PIPE_BYTES)
            except OSError:
                pass  # as it is, then
            pid = os.fork()
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        if pid == 0:
            plan = plan._replace(side_pipe=read, report=send)
            be_sidecar(plan.fds, send, lambda: serve(plan))
        os.close(read)
        os.close(send)
        os.set_blocking(write, False)
        os.set_blocking(report, False)
        self.pid, self._pipe, self._report = pid, write, report
        self.alive = True

    def attach(self, relay: "Relay") -> None:
        self._relay = relay
        if self.alive:
            relay.watch(self._report, select.POLLIN, lambda _: self._read_report())

    # ---- sink

    def data(self, stream: int, data: bytes, flags: int) -> None:
        if not self.alive:
            return
        own = 1 << (stream - 1)
        held_stream = self._held[0]
        commands = self._look_for_command(stream, data)
        self._empty = 0  # not to be told is always right
        if self._waiting_bytes + self._payload_bytes >= FRAME_BYTES:
            self.send()
        if commands and held_stream == 3 - stream:
            # an earlier emptiness means nothing in this order
            self._gather(stream, data[:commands], 0)
            data, flags = data[commands:], flags & own
            self._held = (held_stream, 0, self._held[2])
        if held_stream and (held_stream != stream or not flags & own):
            self._settle()
        if data and flags & own:
            _, held_flags, held = self._held
            if len(held) + len(data) > FRAME_BYTES:
                self._settle()
                held = b""
            held_flags = flags if not held else held_flags & flags
            self._held = (stream, held_flags, held + data)
        elif data:
            self._gather(stream, data, flags)
        if self._waiting_bytes + self._payload_bytes >= MUCH_BYTES:
            self._send_due = 0.0  # the sidecar would need too long for all of a beat

    def _settle(self) -> None:
        """Stop waiting for the other stream."""
        stream, flags, data = self._held
        self._held = (0, 0, b"")
        if data and self.alive:
            self._gather(stream, data, flags & ~(1 << (stream - 1)))

    def _gather(self, stream: int, data: bytes, flags: int) -> None:
        open_stream, open_flags = self._open_frame
        # one frame may say less than two, never more
        if (
            open_stream != stream
            or flags & ~open_flags
            or self._payload_bytes + len(data) > FRAME_BYTES
        ):
            self._end_frame()
            self._open_frame = (stream, flags)
        self._payload.append(data)
        self._payload_bytes += len(data)

    def empty(self, flags: int) -> None:
        self._settle()
        self._empty = flags
        if self._doubtful:
            self._doubtful &= ~flags
            self._say_empty()
            self._send_due = 0.0

    def closed(self, stream: int) -> None:
        self._open &= ~(1 << (stream - 1))
        self._doubtful &= self._open
        self._add(side_pipe.encode(SideType.CLOSED, stream))

    def idle(self) -> None:
        if not self._send_due or time.monotonic() >= self._send_due:
            self.send()

    def wait_secs(self, *, untold: bool) -> float | None:
        """Return the time until the next beat if anything waits or is unreported; an empty stream
        waits for it, too.

        None if nothing waits, or the pipe is full.
        """
        if self._blocked or not self.alive:
            return None
        if untold and self._doubtful:
            return 0.0
        if untold or not self.is_flushed:
            return max(0.0, self._send_due - time.monotonic())
        return None

    def resized(self, columns: int, rows: int) -> None:
        self._add(side_pipe.encode_size(columns, rows))

    def exited(self, wait_status: int, flags: int = 0) -> None:
        self._add(side_pipe.encode_exit(wait_status, flags))

    def _look_for_command(self, stream: int, data: bytes) -> int:
        """Return the number of bytes to the end of the last command's line; 0 without a command.

        Large text does not wait either, because it may contain a command.
        """
        is_much = len(data) >= MUCH_BYTES
        before = self._ends[stream]
        text = before + data
        at = text.upper().rfind(_COMMAND) if is_much or b"/" in text else -1
        if is_much or at >= 0:
            self._say_empty()
            self._doubtful = self._open
            self._send_due = 0.0
        self._ends[stream] = text[1 - len(_COMMAND) :]
        return 0 if at < 0 else (text.find(b"\n", at) + 1 or len(text)) - len(before)

    def _add(self, frame: bytes) -> None:
        """Add a frame that does not gather."""
        if self.alive:
            self._settle()
            self._say_empty()
            self._append(frame)
            self._send_due = 0.0

    def _say_empty(self) -> None:
        if self._empty and self.alive:
            self._append(side_pipe.encode(SideType.EMPTY, 0, self._empty))
        self._empty = 0

    def _append(self, frame: bytes) -> None:
        self._end_frame()
        self._frames.append(frame)
        self._waiting_bytes += len(frame)

    def _end_frame(self) -> None:
        if self._payload:
            stream, flags = self._open_frame
            self._frames.append(
                side_pipe.HEADER.pack(SideType.DATA, stream, flags, self._payload_bytes)
            )
            self._frames += self._payload
            self._waiting_bytes += side_pipe.HEADER.size + self._payload_bytes
            self._payload = []
            self._payload_bytes = 0
        self._open_frame = (0, 0)

    # ---- pipe

    def send(self) -> None:
        """Write to the pipe; when it is full, poll reports room."""
        if not self.alive:
            return
        self._say_empty()
        self._end_frame()
        if not self._blocked:
            self._write()
        paused = self._waiting_bytes >= BUFFER_BYTES
        if paused != self._paused:
            self._paused = paused
            self._relay.pause(paused)

    def _write(self) -> None:
        if not self._frames:
            return
        self._send_due = next_beat(time.monotonic())
        if len(self._frames) > _MAX_PIECES:
            self._frames = [b"".join(self._frames)]
        try:
            sent_bytes = os.writev(self._pipe, self._frames)
        except BlockingIOError:
            sent_bytes = 0
        except OSError:  # EPIPE
            self.lose()
            return
        self._waiting_bytes -= sent_bytes
        self._frames = [b"".join(self._frames)[sent_bytes:]] if self._waiting_bytes else []
        if self._frames:
            self._blocked = True
            self._still, self._looked_at = 0.0, time.monotonic()
            self._relay.watch(self._pipe, select.POLLOUT, lambda _: self._unblock())

    def _unblock(self) -> None:
        self._relay.unwatch(self._pipe)
        self._blocked = False
        self.send()

    @property
    def needs_care(self) -> bool:
        """Whether `check` needs a call every second."""
        return self._blocked or self._mourned_until > 0

    @property
    def is_flushed(self) -> bool:
        return not (self._waiting_bytes or self._payload or self._held[0] or self._empty)

    def check(self) -> None:
        """Gives the sidecar up when it took nothing for too long."""
        if self._blocked and self._has_stalled():
            self.lose(f"took nothing for {self._stall_secs:g} s and was given up")
        elif self._mourned_until and time.monotonic() >= self._mourned_until:
            self._kill()
            self._tell_loss("ended unexpectedly")

    def _has_stalled(self) -> bool:
        # time without running (a suspended job) does not count: the sidecar may not have run either
        now = time.monotonic()
        self._still += min(now - self._looked_at, 1.0)
        self._looked_at = now
        return self._still >= self._stall_secs

    # ---- reports and ends

    def _read_report(self) -> None:
        try:
            chunk = os.read(self._report, _MAX_REPORT_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            self.lose()
            return
        self._still = 0.0
        *lines, self._half_report = (self._half_report + chunk)[-_MAX_REPORT_BYTES:].split(b"\n")
        for line in lines:
            word, _, reason = line.decode("utf-8", "replace").partition(" ")
            if word == "done":
                self.done = True
            elif word == "failed":
                self._failed = reason
            elif word == "degraded":
                self._on_trouble(reason)

    def hang_up(self) -> None:
        """Close the pipe after the EXIT frame; the sidecar's reading is then its progress."""
        if not self.alive:
            return
        try:
            self._rest = os.open(f"/proc/self/fd/{self._pipe}", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            pass  # then only its reports tell of progress
        self._close_pipe()
        self._still, self._looked_at = 0.0, time.monotonic()

    def may_finish(self) -> bool:
        """After hang_up, some times a second: whether it is worth waiting for `done`, or for how it
        died."""
        if self.done or not self.alive:
            return self._mourned_until > 0
        unread = side_pipe.unread_bytes(self._rest) if self._rest >= 0 else 0
        if unread != self._unread:
            self._unread, self._still = unread, 0.0
        if self._has_stalled():
            self.lose(f"didn't finish within {self._stall_secs:g} s and was given up")
        return self.alive

    def reaped(self, wait_status: int) -> None:
        """Note the sidecar's death."""
        self.pid = 0
        self.lose()
        code = os.waitstatus_to_exitcode(wait_status)
        self._tell_loss(f"was killed by signal {-code}" if code < 0 else "ended unexpectedly")

    def lose(self, cause: str = "") -> None:
        """Continue without the sidecar, dead or given up.

        cause: empty if its exit status tells.
        """
        if not self.alive:
            return
        self.alive = False  # first: the report's end is no news
        poll = select.poll()
        poll.register(self._report, select.POLLIN)
        if poll.poll(0):
            self._read_report()
        self._relay.unwatch(self._report)
        self._close_pipe()
        self._frames, self._waiting_bytes, self._payload, self._payload_bytes = [], 0, [], 0
        self._held = (0, 0, b"")
        if self._paused:
            self._relay.pause(False)
        self._mourned_until = time.monotonic() + _MOURNING_SECS
        if cause:
            self._kill()
            self._tell_loss(cause)

    def _kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)  # our own child, not reaped yet

    def _tell_loss(self, cause: str) -> None:
        if self._mourned_until and not self.done:
            reason = f": {self._failed}" if self._failed else f", as the logging process {cause}"
            self._on_trouble(f"output is missing from the log{reason}")
        self._mourned_until = 0.0

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            self._relay.unwatch(self._pipe)
            os.close(self._pipe)
            self._pipe = -1
            self._blocked = False


def be_sidecar(
    fds: "Callable[[], set[int]]", report: int, serve: "Callable[[], None]"
) -> "NoReturn":
    """Serve in this process, and end it. fds: to keep; report: the write end."""
    status = 1
    try:
        detach(COMM, fds())
        serve()
        status = 0
    except BaseException as error:  # any error: no caller could handle it
        _report_failure(report, error)
    finally:
        os._exit(status)


def _report_failure(report: int, error: BaseException) -> None:
    """A sidecar's last words to its relay."""
    words = str(error) if isinstance(error, LogshipperError) else f"{type(error).__name__}: {error}"
    try:
        os.write(report, f"failed {' '.join(words.split())}\n".encode("utf-8", "replace"))
    except OSError:
        pass  # the relay has gone
