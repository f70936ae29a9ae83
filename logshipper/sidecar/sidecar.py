"""The sidecar: renders, classifies and spools the relay's bytes. Wiring of one process, forked by
`logshipper run`.

It reads the side pipe as fast as it can, writes frames at once, and lets the segment writer sync
them. If the relay dies or returns while somebody still holds the job's terminals, it relays itself,
because no death may hurt the job.
"""

import fcntl
import mmap
import os
import select
import struct
import time
from signal import SIGKILL

from logshipper import __version__
from logshipper.classify.classifier import Classifier
from logshipper.config import JSON
from logshipper.errors import SpoolError, os_words
from logshipper.fault_points import fault_point
from logshipper.masks.shape_mask import masked_text
from logshipper.relay import side_pipe
from logshipper.relay.channel import next_beat
from logshipper.relay.handover import SidecarPlan
from logshipper.relay.relay import RelaySink
from logshipper.relay.side_pipe import Empty, Ending, SideType
from logshipper.relay.take_over import take_over
from logshipper.render.renderer import FIRST_SECS
from logshipper.sidecar.log_writer import LogWriter
from logshipper.sidecar.memory_kills import MemoryKills
from logshipper.sidecar.settings import Settings
from logshipper.sidecar.slurm_reason import slurm_reason
from logshipper.spool.captures import NOT_CAPTURED, TELEGRAF_MARK, boot_id, counted_bytes, outcome
from logshipper.spool.live_status import LiveStatusFile
from logshipper.spool.segment import Json, Stream
from logshipper.spool.spool_room import SLOW_BYTES_PER_SEC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.notify.watch import Watch
    from logshipper.sidecar.context import Gathering
    from logshipper.sidecar.measurement_intake import MeasurementIntake
    from logshipper.telegraf.measurements import Collector

HEARTBEAT_SECS = 5.0
IDLE_SECS = 1.0  # to `idle` from output without a ledger, and while something waits for it
LEDGER_SECS = 0.25
AGENT_AFTER_SECS = 2.0
CONTEXT_AFTER_SECS = 0.05  # a command that is over sooner costs no process more
_READ_BYTES = 1 << 20
# then a pause well below the limit for missing progress (handover)
_SLOW_READ_BYTES = SLOW_BYTES_PER_SEC // 4
# as integers, which are much quicker than flags of an enum
_STDOUT_EMPTY, _STDERR_EMPTY = int(Empty.STDOUT), int(Empty.STDERR)


def run(plan: SidecarPlan, sidecar: "Sidecar") -> None:
    """Run a sidecar that has not started, until the capture is over. Raises SpoolError for an
    unwritable spool."""
    sidecar.start()
    if not sidecar.follow_relay():
        sidecar.make_up()
        take_over(plan, sidecar)
        sidecar.relay_died()
    sidecar.close()


class Sidecar(RelaySink):
    """State of one capture; also the sink of a take-over.

    received: bytes of each stream, from relay or take-over.
    """

    def __init__(self, plan: SidecarPlan, settings: Settings) -> None:
        self._plan = plan
        self._settings = settings
        config = settings.config
        self._classifier = Classifier(
            config.mode,
            obey=config.commands,
            keep_colours=config.colors == "keep",
            snapshot_secs=config.snapshots,
            columns=plan.columns,
            rows=plan.rows,
            metadata=(JSON,) if config.metadata is None else config.metadata,
            finds_series=settings.by_hand and config.metadata is None,
            ignore=config.ignore,
            rename=config.rename,
            first_secs=FIRST_SECS,
            mask=config.mask,
        )
        # before there are threads: it may fork
        collector = _collector(plan, settings.capture.path)
        folder = os.path.join(settings.capture.path, "segments")
        self._lock = _take_lock(os.path.join(folder, "lock"))
        fault_point("sidecar_locked")
        self._log = LogWriter(settings.capture, self._classifier, self._report)
        self._live = LiveStatusFile(folder)
        self._open = {Stream.STDOUT, Stream.STDERR}
        self.received = dict.fromkeys((1, 2), 0)
        self._ended = False
        self._ledger_due = 0.0
        self._is_untold = False  # the ledger counts more than the last written one, perhaps
        self._heartbeat_due = self._idle_due = 0.0
        self._agent_due = time.monotonic() + AGENT_AFTER_SECS
        self._context: Gathering | None = None
        self._context_due = float("inf")  # begin of the gathering that nobody asked for
        self._memory_kills = MemoryKills()
        self._measurements: MeasurementIntake | None = None
        if collector is not None:
            from logshipper.sidecar import measurement_intake

            self._measurements = measurement_intake.MeasurementIntake(
                collector, plan, self.received, self._classifier, self._log, self._flush
            )
        self._watch: Watch | None = None
        if config.notify is not None and settings.watched is not None:
            from logshipper.notify import watch

            self._watch = watch.Watch(config.notify, settings.watched, time.monotonic())

    # ---- the capture's course

    def start(self) -> None:
        plan = self._plan
        self._log.write_record(
            {
                "type": "start",
                "version": __version__,
                "mode": self._classifier.mode,
                "columns": plan.columns,
                "rows": plan.rows,
                "tty": plan.tty,
                "host": os.uname().nodename,
                "boot_id": boot_id(),
                "pid": plan.cmd_pid,
                "started_ns": plan.started_ns,
                **self._settings.of_scheduler(),
            }
        )
        if self._settings.problems:
            problems = list(map(masked_text, self._settings.problems))
            message = f"~/.logoptin is refused, so nothing is logged until a /LOGCOMMAND says so: {'; '.join(problems)}"
            self._log.write_event(
                {"event": "config_refused", "message": message, "problems": problems}
            )
        # after a disabled start, earlier facts are never recorded (R11); texts of a run by hand
        # follow the mode of logging
        setting, mode = self._settings.config.context, self._classifier.mode
        if setting is None and self._settings.by_hand and mode == "enabled":
            self._context_due = time.monotonic() + CONTEXT_AFTER_SECS
        elif setting and mode != "disabled":
            self._begin_context(by_default=False)
        if self._measurements is not None:
            self._measurements.announce(self._settings.capture.path)
        self._report("ready")

    def follow_relay(self) -> bool:
        """Read the side pipe to its end. Returns False if this process must relay: the relay has
        died or returned."""
        poll = select.poll()
        poll.register(self._plan.side_pipe, select.POLLIN)
        # one for all reads: a fresh object for each costs page faults; mapped, it costs none before
        # it is filled
        buffer = memoryview(
            mmap.mmap(-1, _READ_BYTES + side_pipe.HEADER.size + side_pipe.MAX_PAYLOAD_BYTES)
        )
        rest_size = 0  # of an incomplete frame, at the buffer's begin
        while True:
            if self._measurements is not None:
                self._measurements.listen(poll)
            wait_secs = self._due() - time.monotonic()
            ready = [fd for fd, _ in poll.poll(max(0, int(wait_secs * 1000) + 1))]
            if not ready or wait_secs <= 0:  # also where something always comes
                self.idle()
            if ready and ready != [self._plan.side_pipe]:
                self._take_measurements()
                self._flush()
            if self._plan.side_pipe not in ready:
                continue
            slow = self._log.is_slow and not self._ended
            limit = _SLOW_READ_BYTES if slow else _READ_BYTES
            size = os.readv(self._plan.side_pipe, [buffer[rest_size : rest_size + limit]])
            if not size:
                return self._ended and not self._open
            rest_size += size
            used_bytes = self._take_frames(buffer[:rest_size])
            buffer[: rest_size - used_bytes] = buffer[used_bytes:rest_size]
            rest_size -= used_bytes
            self._flush()
            if slow:
                time.sleep(size / SLOW_BYTES_PER_SEC)

    def make_up(self) -> None:
        """Process the bytes that a dead relay had read and counted, and not handed over."""
        unsent, counters = self._plan.unsent, self._plan.counters
        if unsent is not None and counters is not None:
            for stream in sorted(self._open):
                read = unsent.unreceived(
                    stream, self.received[stream], counted_bytes(counters, stream)
                )
                if read:
                    self.data(stream, read, 0)

    def relay_died(self) -> None:
        """Write the unreported end, after a take-over."""
        if not self._ended:
            reason = "logshipper itself was killed: the command's exit code isn't known"
            self._end("FAILED", None, 0, reason)

    def close(self) -> None:
        """The capture is over for good."""
        if self._measurements is not None:
            self._measurements.end()
        self._log.report_lost(at_end=True)
        self._log.write_ledger(with_bytes=True)  # later output counts, too
        if self._watch is not None:
            self._log.sync()
            self._write_events(self._watch.hold())
            self._report("done")  # the job's end waits for no target
            self._write_events(self._watch.finish())
        self._log.close()
        self._live.close()
        fault_point("capture_synced")
        os.close(self._lock)
        if self._plan.counters is not None:
            self._plan.counters.close()  # whoever waits for us may unmount the disk
        self._report("done")
        self._settings.start_agent()

    # ---- frames of the side pipe

    def _take_frames(self, data: memoryview) -> int:
        """Handles all whole frames of data; returns their bytes. Neighbours of one stream are fed
        as one."""
        at = 0
        gathered: list[memoryview] = []
        of = 0
        # new where the stream changes only: lines of one time share a frame
        now = 0.0
        while len(data) - at >= side_pipe.HEADER.size:
            kind, stream, flags, length = side_pipe.HEADER.unpack_from(data, at)
            end = at + side_pipe.HEADER.size + length
            if end > len(data):
                break
            if gathered and (kind != SideType.DATA or stream != of):
                self._feed(of, b"".join(gathered), now)
                gathered = []
            if kind == SideType.DATA:
                # emptiness between neighbours is dropped: policies stay strict a little longer,
                # never wider
                if not gathered:
                    self.empty(flags)
                if stream != of:
                    of, now = stream, time.monotonic()
                gathered.append(data[at + side_pipe.HEADER.size : end])
            else:
                self._take_frame(kind, stream, flags, bytes(data[at + side_pipe.HEADER.size : end]))
            at = end
        if gathered:
            self._feed(of, b"".join(gathered), now)
        return at

    def _take_frame(self, kind: int, stream: int, flags: int, payload: bytes) -> None:
        if kind == SideType.EMPTY:
            self.empty(flags)
        elif kind == SideType.SIZE:
            self._classifier.resize(*struct.unpack("<HH", payload))
        elif kind == SideType.CLOSED:
            self.closed(stream)
        elif kind == SideType.MISSED:
            self._log.write_event({"event": NOT_CAPTURED, "message": "not captured: node too busy"})
        elif kind == SideType.EXIT:
            self._end_as(struct.unpack("<i", payload)[0], flags)

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.empty(flags & ~(1 << (stream - 1)))
        self._feed(stream, data, time.monotonic())

    def _feed(self, stream: int, data: bytes, now: float) -> None:
        self.received[stream] += len(data)
        self._is_untold = True
        self._classifier.feed(Stream(stream), data, now)

    def empty(self, flags: int) -> None:
        if flags & _STDOUT_EMPTY:
            self._classifier.seen_empty(Stream.STDOUT, time.monotonic())
        if flags & _STDERR_EMPTY:
            self._classifier.seen_empty(Stream.STDERR, time.monotonic())

    def _take_measurements(self, *, at_end: bool = False) -> None:
        if self._measurements is not None:
            self._measurements.take(at_end=at_end)

    def closed(self, stream: int) -> None:
        """Close a stream without writers: release its held lines and finish its last one."""
        if Stream(stream) not in self._open:
            return
        self._open.discard(Stream(stream))
        for fd in (self._plan.masters.pop(stream, None), self._plan.outs.pop(stream, None)):
            if fd is not None:
                os.close(fd)
        self._classifier.end(Stream(stream), time.monotonic())
        self._flush()

    def idle(self) -> None:
        """Handle time: call it after a moment of silence, and when it is due."""
        now = time.monotonic()
        self._classifier.tick(now)
        self._take_measurements()
        self._log.look_for_room()
        self._flush()
        if self._watch is not None:
            received = sum(self.received.values())
            self._write_events(self._watch.tick(now, received, self._classifier.mode))
        if now >= self._heartbeat_due:
            self._heartbeat_due = next_beat(now, HEARTBEAT_SECS)  # the agent sends all in one round
            self._log.write_record(
                {
                    "type": "heartbeat",
                    "mode": self._classifier.mode,
                    "ledger": self._classifier.ledger(),
                    **self._log.slowed(now),
                },
                syncs=False,  # its loss with the machine loses nothing
            )
        if now >= self._context_due:
            self._context_due = float("inf")
            self._begin_context(by_default=True)
        if now >= self._agent_due:
            self._agent_due = float("inf")
            self._settings.start_agent()
        waits = self._context is not None or self._watch is not None or self._log.is_slow
        self._idle_due = now + (IDLE_SECS if waits else HEARTBEAT_SECS)

    def wait_secs(self, *, untold: bool) -> float | None:
        """Return the time until `idle`; reports of empty streams cost nothing here."""
        return 0.0 if untold else None

    def _due(self) -> float:
        """Return the latest time of the next `idle`."""
        idle_due = self._idle_due
        return min(
            idle_due,
            self._classifier.next_tick() or idle_due,
            self._heartbeat_due,
            self._context_due,
            self._agent_due,
            self._measurements.due if self._measurements is not None else idle_due,
        )

    # ---- the end

    def _end(self, state: str, exit_code: int | None, signo: int, reason: str) -> None:
        self._ended = True
        ended_ns = self._log.now_ns()
        self._take_measurements(at_end=True)
        self._classifier.release()
        self._flush()
        self._log.give_up_reserve()
        self._take_context(at_end=True)
        self._log.report_lost(at_end=True)
        self._log.write_record(
            {
                "type": "end",
                "state": state,
                "exit_code": exit_code,
                "signal": signo,
                "reason": reason,
                **self._log.slowed(time.monotonic()),
                "ended_ns": ended_ns,
                "ledger": self._classifier.ledger(),
            }
        )
        fault_point("end_written")
        if self._open:  # the relay returns now; the rest continues here
            self._log.sync()
            self._report("done")
        if self._watch is not None:
            self._log.sync()
            now, mode = time.monotonic(), self._classifier.mode
            self._write_events(self._watch.end(state, exit_code, reason, now, mode))

    def _end_as(self, wait_status: int, flags: int) -> None:
        """Name the kernel's lack of memory as the reason of a SIGKILL without a cancelled job; a
        shell passes it on as an exit code."""
        state, exit_code, signo = outcome(wait_status)
        reason = ""
        if flags & Ending.UNCANCELLED and SIGKILL in (signo, (exit_code or 0) - 128):
            state = "KILLED" if signo else state
            reason = f"perhaps out of memory: {self._memory_kills.words() or 'nobody is seen to have cancelled it'}"
        if by_slurm := slurm_reason(
            signo or max(0, (exit_code or 0) - 128),
            os.environ,
            is_cancelled=not flags & Ending.UNCANCELLED,
            is_short_of_memory=self._memory_kills.in_group(),
        ):
            reason = by_slurm
            self._log.report(Stream.STDOUT, f"logshipper: {reason}", "ended_by_scheduler")
        self._end(state, exit_code, signo, reason)

    # ---- how the job was started

    def _begin_context(self, *, by_default: bool) -> None:
        from logshipper.sidecar.context import MISSING, Gathering, JobStart

        argv, cwd = self._settings.argv, self._settings.cwd
        pid = self._plan.cmd_pid if argv is None else 0
        try:
            self._context = Gathering(JobStart(argv, cwd, pid, by_default=by_default))
        except OSError:
            self._log.write_event(MISSING)

    def _take_context(self, *, at_end: bool = False) -> None:
        event = None
        if self._context is not None:
            event = self._context.wait() if at_end else self._context.take()
            if event is not None:
                self._context.close()
                self._context = None
        elif at_end and self._context_due != float("inf"):
            from logshipper.sidecar.context import start_event

            event = start_event(self._settings.argv, self._settings.cwd)
        if event is not None and self._classifier.mode != "disabled":
            self._log.write_event(event)

    # ---- writing

    def _flush(self) -> None:
        now, items = time.monotonic(), self._classifier.take()
        if is_due := now >= self._ledger_due:
            self._ledger_due, self._is_untold = now + LEDGER_SECS, False
            self._take_context()
        elif items or self._is_untold:
            self._idle_due = min(self._idle_due, now + IDLE_SECS)
        if items:
            self._log.write(items, with_ledger=is_due)
            if self._watch is not None:
                self._write_events(self._watch.take(items))
            if not is_due:
                fault_point("lines_without_ledger")
        elif is_due:
            self._log.write_ledger()
        self._live.show(self._classifier.live(), self._log.now_ns())

    def _write_events(self, events: list[Json]) -> None:
        for event in events:
            self._log.write_event(event)
            if event.get("kind") == "check":  # its user may still be looking
                self._report(f"degraded {event['message']}")

    def _report(self, line: str) -> None:
        try:
            os.write(self._plan.report, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass  # the relay has died or returned: nobody listens


def _collector(plan: SidecarPlan, path: str) -> "Collector | None":
    """Open the job's port for measurements; any port if the node's agent forwards them. path: the
    capture's folder."""
    forwards = os.path.lexists(os.path.join(os.path.dirname(path), TELEGRAF_MARK))
    if not (plan.telegraf or forwards):
        return None
    from logshipper.telegraf.listener import LOOPBACK, open_sockets
    from logshipper.telegraf.measurements import Collector, start_collector

    if plan.telegraf:
        return Collector(*plan.telegraf)
    try:
        return start_collector(open_sockets(LOOPBACK, 0), os.stat(path).st_uid)
    except OSError:
        return None  # no room for one more: the log matters more


def _take_lock(path: str) -> int:
    """Held as long as this process lives: readers see by it whether the capture is alive."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        raise SpoolError(path, os_words(error)) from None
    return fd
