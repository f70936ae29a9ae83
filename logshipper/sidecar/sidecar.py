"""The sidecar: renders, classifies and spools the relay's bytes. Wiring of one process, forked by
`logshipper run`.

It reads the side pipe as fast as it can, writes frames at once, and lets the segment writer sync
them. If the relay dies or returns while somebody still holds the job's terminals, it relays itself,
because no death may hurt the job. A full disk never stops it: it counts and reports unwritable
lines as lost. It drops log lines before the disk is full, stderr's first, and beyond the limits of
the node's agent (logshipper/spool/spool_room.py).
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
from logshipper.classify.logged import LoggedEvent, LoggedLines
from logshipper.errors import SpoolError, SpoolFull, os_words
from logshipper.fault_points import fault_point
from logshipper.masks.shape_mask import masked_text
from logshipper.relay import relay, side_pipe
from logshipper.relay.handover import SidecarPlan
from logshipper.relay.side_pipe import Empty, Ending, SideType
from logshipper.render.renderer import FIRST_SECS
from logshipper.sidecar.frame_builder import FrameBuilder
from logshipper.sidecar.memory_kills import MemoryKills
from logshipper.sidecar.settings import Settings
from logshipper.sidecar.slurm_reason import slurm_reason
from logshipper.spool.captures import (
    NOT_CAPTURED,
    PORT_FILE,
    TELEGRAF_MARK,
    boot_id,
    counted_bytes,
    outcome,
)
from logshipper.spool.live_status import LiveStatusFile
from logshipper.spool.segment import Json, Kind, Stream
from logshipper.spool.segment_writer import SegmentWriter
from logshipper.spool.spool_room import SLOW_BYTES_PER_SEC, SpoolRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logshipper.sidecar.context import Gathering
    from logshipper.telegraf.measurements import Batch, Measurements

HEARTBEAT_SECS = 5.0
IDLE_SECS = 1.0
LEDGER_SECS = 0.25
RETRY_SECS = 1.0  # pause after a refusal of the spool
AGENT_AFTER_SECS = 2.0
CONTEXT_AFTER_SECS = 0.05  # a command that is over sooner costs no process more
LEFT_OUT_SECS = 10.0
_READ_BYTES = 1 << 20
# then a pause well below the limit for missing progress (handover)
_SLOW_READ_BYTES = SLOW_BYTES_PER_SEC // 4
# as integers, which are much quicker than flags of an enum
_STDOUT_EMPTY, _STDERR_EMPTY = int(Empty.STDOUT), int(Empty.STDERR)
_STREAM_KINDS = (Kind.LOG, Kind.NOTE, Kind.STATUS)  # dropped without room


def serve(plan: SidecarPlan, settings: Settings) -> None:
    """Run until the capture is over. Raises SpoolError for an unwritable spool."""
    run(plan, Sidecar(plan, settings))


def run(plan: SidecarPlan, sidecar: "Sidecar") -> None:
    """Run a sidecar that has not started, as `serve`."""
    sidecar.start()
    if not sidecar.follow_relay():
        sidecar.make_up()
        relay.take_over(plan, sidecar)
        sidecar.relay_died()
    sidecar.close()


class Sidecar:
    """State of one capture; also a sink for `relay.take_over`: data, empty, closed, idle,
    wait_secs.

    received: bytes of each stream, from relay or take-over.
    """

    def __init__(self, plan: SidecarPlan, settings: Settings) -> None:
        self._plan = plan
        self._settings = settings
        # times follow the monotonic clock from here on
        self._wall_ns = time.time_ns() - time.monotonic_ns()
        config = settings.config
        self._classifier = Classifier(
            config.mode,
            obey=config.commands,
            keep_colours=config.colors == "keep",
            snapshot_secs=config.snapshots,
            columns=plan.columns,
            rows=plan.rows,
            metadata=config.metadata,
            first_secs=FIRST_SECS,
            mask=config.mask,
        )
        self._frames = FrameBuilder(epoch_ns=self._wall_ns)
        self._left_out_due = 0.0  # time of the next report of dropped measurements
        self._left_out: dict[str, int] = {}
        # before there are threads: it may fork
        self._measurements = _measurements(plan, settings.capture.path)
        folder = os.path.join(settings.capture.path, "segments")
        self._lock = _take_lock(os.path.join(folder, "lock"))
        fault_point("sidecar_locked")
        self._writer = SegmentWriter(folder, self._now_ns())
        self._live = LiveStatusFile(folder)
        self._open = {Stream.STDOUT, Stream.STDERR}
        self.received = dict.fromkeys((1, 2), 0)
        self._ended = False
        self._ledger: Json = {}
        self._ledger_due = 0.0
        self._heartbeat_due = self._idle_due = 0.0
        self._refused_until = 0.0
        self._room = SpoolRoom(settings.capture.path)
        self._slowed_since = 0.0  # 0: not slowed
        self._slowed_secs = 0.0
        # lines, not yet reported in the log
        self._lost = dict.fromkeys((Stream.STDOUT, Stream.STDERR), 0)
        self._lost_reason = ""
        # beside their lines, not yet reported
        self._lost_records = 0
        self._degraded = False
        self._agent_due = time.monotonic() + AGENT_AFTER_SECS
        self._context: Gathering | None = None
        self._context_due = float("inf")  # begin of the gathering that nobody asked for
        self._memory_kills = MemoryKills()

    # ---- the capture's course

    def start(self) -> None:
        plan = self._plan
        self._write_record(
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
            self._write_event({"event": "config_refused", "message": message, "problems": problems})
        # after a disabled start, earlier facts are never recorded (R11); texts of a run by hand
        # follow the mode of logging
        setting, mode = self._settings.config.context, self._classifier.mode
        by_default = setting is None and self._settings.by_hand and mode == "enabled"
        if by_default:
            self._context_due = time.monotonic() + CONTEXT_AFTER_SECS
        elif setting and mode != "disabled":
            self._begin_context(by_default=False)
        self._announce()
        self._report("ready")

    def follow_relay(self) -> bool:
        """Read the side pipe to its end. Returns False if this process must relay: the relay has
        died or returned."""
        poll = select.poll()
        poll.register(self._plan.side_pipe, select.POLLIN)
        measurements_fd = self._measurements.fd if self._measurements is not None else -1
        if measurements_fd >= 0:
            poll.register(measurements_fd, select.POLLIN)
        # one for all reads: a fresh object for each costs page faults; mapped, it costs none before
        # it is filled
        buffer = memoryview(
            mmap.mmap(-1, _READ_BYTES + side_pipe.HEADER.size + side_pipe.MAX_PAYLOAD_BYTES)
        )
        rest_size = 0  # of an incomplete frame, at the buffer's begin
        while True:
            wait_secs = self._due() - time.monotonic()
            ready = [fd for fd, _ in poll.poll(max(0, int(wait_secs * 1000) + 1))]
            if not ready or wait_secs <= 0:  # also where something always comes
                self.idle()
            if ready and ready != [self._plan.side_pipe]:
                self._take_measurements()
                self._flush()
            if measurements_fd >= 0:
                measurements_fd = self._listen(poll, measurements_fd)
            if self._plan.side_pipe not in ready:
                continue
            slow = self._room.slow and not self._ended
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

    def _listen(self, poll: "select.poll", measurements_fd: int) -> int:
        """Poll measurements if some may come and there is room. Returns the polled descriptor, or
        -1."""
        if self._measurements is None or self._measurements.over:
            poll.unregister(measurements_fd)
            return -1
        poll.modify(measurements_fd, 0 if self._measurements.is_full else select.POLLIN)
        return measurements_fd

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
        self._end_measurements()
        self._say_lost(at_end=True)
        self._write_ledger(with_bytes=True)  # later output counts, too
        try:
            self._writer.close(self._frames.end(self._now_ns()))
        except SpoolError as error:
            self._degrade(error)
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
            self._write_event({"event": NOT_CAPTURED, "message": "not captured: node too busy"})
        elif kind == SideType.EXIT:
            self._end_as(struct.unpack("<i", payload)[0], flags)

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.empty(flags & ~(1 << (stream - 1)))
        self._feed(stream, data, time.monotonic())

    def _feed(self, stream: int, data: bytes, now: float) -> None:
        self.received[stream] += len(data)
        self._classifier.feed(Stream(stream), data, now)

    def empty(self, flags: int) -> None:
        if flags & _STDOUT_EMPTY:
            self._classifier.seen_empty(Stream.STDOUT, time.monotonic())
        if flags & _STDERR_EMPTY:
            self._classifier.seen_empty(Stream.STDERR, time.monotonic())

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
        """Handle time: call it after a moment of silence, and at least once a second."""
        now = time.monotonic()
        self._idle_due = now + IDLE_SECS
        self._classifier.tick(now)
        self._take_measurements()
        self._look_for_room()
        self._flush()
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_SECS
            facts = {
                "mode": self._classifier.mode,
                "ledger": self._classifier.ledger(),
                **self._slowed(now),
            }
            self._write_record({"type": "heartbeat", **facts})
        if now >= self._context_due:
            self._context_due = float("inf")
            self._begin_context(by_default=True)
        if now >= self._agent_due:
            self._agent_due = float("inf")
            self._settings.start_agent()

    def wait_secs(self, *, untold: bool) -> float | None:
        """Return the time until `idle`; reports of empty streams cost nothing here."""
        return 0.0 if untold else None

    def _due(self) -> float:
        """Return the latest time of the next `idle`."""
        measurements_due = (
            self._measurements.due if self._measurements is not None else self._idle_due
        )
        return min(
            self._classifier.next_tick() or self._idle_due,
            self._heartbeat_due,
            self._idle_due,
            self._context_due,
            measurements_due,
        )

    # ---- the end

    def _end(self, state: str, exit_code: int | None, signo: int, reason: str) -> None:
        self._ended = True
        ended_ns = self._now_ns()
        self._take_measurements(at_end=True)
        self._classifier.release()
        self._flush()
        self._writer.give_up_reserve()
        self._refused_until = 0.0  # now there is room, if only for this
        self._take_context(at_end=True)
        self._say_lost(at_end=True)
        record: Json = {
            "type": "end",
            "state": state,
            "exit_code": exit_code,
            "signal": signo,
            "reason": reason,
        }
        record |= self._slowed(time.monotonic())
        ledger = self._classifier.ledger()
        if self._write_record({**record, "ended_ns": ended_ns, "ledger": ledger}):
            self._ledger = ledger
        fault_point("end_written")
        if self._open:  # the relay returns now; the rest continues here
            try:
                self._writer.sync()
            except SpoolError as error:
                self._degrade(error)
            self._report("done")

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
            self._say(Stream.STDOUT, f"logshipper: {reason}", "ended_by_scheduler")
        self._end(state, exit_code, signo, reason)

    # ---- how the job was started

    def _begin_context(self, *, by_default: bool) -> None:
        from logshipper.sidecar.context import MISSING, Gathering, JobStart

        argv, cwd = self._settings.argv, self._settings.cwd
        pid = self._plan.cmd_pid if argv is None else 0
        try:
            self._context = Gathering(JobStart(argv, cwd, pid, by_default=by_default))
        except OSError:
            self._write_event(MISSING)

    def _take_context(self, *, at_end: bool = False) -> None:
        event = None
        if at_end and self._context_due != float("inf"):
            from logshipper.sidecar.context import start_event

            if self._classifier.mode != "disabled":
                self._write_event(start_event(self._settings.argv, self._settings.cwd))
        if self._context is not None:
            event = self._context.wait() if at_end else self._context.take()
        if self._context is None or event is None:
            return
        self._context.close()
        self._context = None
        if self._classifier.mode != "disabled":
            self._write_event(event)

    # ---- measurements that the job sends

    def _announce(self) -> None:
        """Announce the port to the node's agent, which forwards measurements for this job."""
        if self._measurements is None:
            return
        try:
            with open(
                os.path.join(self._settings.capture.path, "segments", PORT_FILE),
                "x",
                encoding="ascii",
            ) as file:
                file.write(f"{self._measurements.port}\n")
        except OSError:
            pass  # the job's own measurements still arrive

    def _take_measurements(self, *, at_end: bool = False) -> None:
        """Take measurements. at_end: no more output comes."""
        measurements = self._measurements
        if measurements is None:
            return
        now = time.monotonic()
        measurements.read(now)
        if at_end:
            self._record(measurements, measurements.all())
        elif measurements.due <= now:
            self._record(
                measurements,
                measurements.ready(now, self._relayed(), tuple(self.received.values())),
            )
        if now >= self._left_out_due:
            self._left_out_due = now + LEFT_OUT_SECS
            self._say_left_out(measurements)
        if measurements.is_done:
            self._end_measurements()
            message = "the process that takes measurements has died: no more are taken"
            self._write_event({"event": "measurements_ended", "message": message})

    def _relayed(self) -> tuple[int, ...] | None:
        """Return the bytes of each stream at the relay; None while more are unread."""
        streams = select.poll()
        for fd in self._plan.masters.values():
            streams.register(fd, select.POLLIN)
        if any(event & select.POLLIN for _, event in streams.poll(0)):
            return None
        counters = self._plan.counters
        counts = (
            self.received
            if counters is None
            else {of: counted_bytes(counters, of) for of in self.received}
        )
        return tuple(counts.values())

    def _record(self, measurements: "Measurements", batches: "list[Batch]") -> None:
        """Record measurements under the narrowest mode since each arrival; count the others."""
        for batch in batches:
            since = float("-inf") if batch.undecided else batch.arrived_at
            dropped_count = self._classifier.take_measurements(batch.records, since)
            if dropped_count:
                measurements.drop(dropped_count, "undecided" if batch.undecided else "disabled")

    def _end_measurements(self) -> None:
        if self._measurements is not None:
            self._record(self._measurements, self._measurements.end())
            self._say_left_out(self._measurements)
            self._measurements = None
            self._flush()

    def _say_left_out(self, measurements: "Measurements") -> None:
        left_out = measurements.left_out
        if left_out != self._left_out:
            self._left_out = left_out
            counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
            message = f"of the measurements that were sent, lines were left out so far: {counts}"
            self._write_event(
                {"event": "measurements_left_out", "message": message, "reasons": left_out}
            )

    # ---- writing

    def _flush(self) -> None:
        items = self._classifier.take()
        if items:
            self._write_items(items)
            fault_point("lines_without_ledger")
        self._live.show(self._classifier.live(), self._now_ns())
        now = time.monotonic()
        if now >= self._ledger_due:
            self._ledger_due = now + LEDGER_SECS
            self._take_context()
            self._write_ledger()

    def _write_ledger(self, *, with_bytes: bool = False) -> None:
        """Write a changed ledger. with_bytes: also for bytes alone, as of a redrawn bar; otherwise
        the next heartbeat has them."""
        ledger = self._classifier.ledger()
        changed = (
            ledger != self._ledger if with_bytes else _lines_of(ledger) != _lines_of(self._ledger)
        )
        if changed and self._write_record({"type": "ledger", "ledger": ledger}):
            self._ledger = ledger

    def _write_items(self, items: list[LoggedLines | LoggedEvent]) -> None:
        now_ns = self._now_ns()
        self._look_for_room()
        self._say_lost()
        if self._room.left_out:
            items = [item for item in items if not self._leaves_out(item)]
        for frame in self._frames.build(items, now_ns):
            if self._write(frame.data, now_ns):
                continue
            self._lost_records += frame.copies
            if frame.stored:
                self._count_lost(frame.stream, frame.stored)
                fault_point("lines_refused")

    def _leaves_out(self, item: LoggedLines | LoggedEvent) -> bool:
        """Return whether there is no room for a log line, and count it."""
        if (
            isinstance(item, LoggedEvent)
            or item.stream not in self._room.left_out
            or item.kind not in _STREAM_KINDS
        ):
            return False
        if (
            item.kind is Kind.LOG and (item.attrs or {}).get("part", "1") == "1"
        ):  # a long line counts once
            self._lost_reason = self._room.reason
            self._degrade(SpoolFull(self._settings.capture.path, self._room.reason))
            self._count_lost(item.stream, item.lines)
        return True

    def _count_lost(self, stream: Stream, lines: int) -> None:
        self._lost[stream] += lines
        self._classifier.count_lost(stream, lines)

    def _write(self, frames: bytes, now_ns: int) -> bool:
        """Write frames; return False if the spool refuses. The next attempt follows after
        RETRY_SECS."""
        now = time.monotonic()
        if now < self._refused_until:
            return False
        try:
            self._writer.write(frames, now_ns)
        except SpoolError as error:
            self._refused_until = now + RETRY_SECS
            self._lost_reason = error.reason
            self._degrade(error)
            return False
        return True

    def _write_record(self, record: Json) -> bool:
        now_ns = self._now_ns()
        return self._write(self._frames.record(record, now_ns), now_ns)

    def _write_event(self, event: Json) -> None:
        self._write_record({**event, "type": "event"})

    def _say_lost(self, *, at_end: bool = False) -> None:
        """Once the spool takes a stream's lines again, or nothing follows: how many are missing
        here."""
        for stream, lines in self._lost.items():
            if (
                not lines
                or (stream in self._room.left_out and not at_end)
                or time.monotonic() < self._refused_until
            ):
                continue
            self._refused_until = 0.0
            self._writer.give_up_reserve()
            if self._say(
                stream,
                f"{lines} lines lost here: {self._lost_reason}",
                "lines_lost",
                lines=lines,
                stream=stream.name.lower(),
                reason=self._lost_reason,
            ):
                self._lost[stream] = 0
        if self._lost_records and time.monotonic() >= self._refused_until:
            words = (
                f"{self._lost_records} records of lines that aren't JSON lost: {self._lost_reason}"
            )
            event = {"event": "records_lost", "message": words, "records": self._lost_records}
            if self._write_record({"type": "event", **event, "reason": self._lost_reason}):
                self._lost_records = 0

    def _look_for_room(self) -> None:
        """Report the begin and end of dropped lines, and of slow reading."""
        now = time.monotonic()
        if not self._room.look(now, self._writer.present_bytes):
            return
        if self._room.left_out:
            names = " and ".join(stream.name.lower() for stream in sorted(self._room.left_out))
            words = f"log lines of {names} are left out from here on: {self._room.reason}; metadata and events go on"
            self._say(Stream.STDOUT, words, "lines_left_out", reason=self._room.reason)
        if self._room.slow and not self._slowed_since:
            self._slowed_since = now
            words = f"output is taken at {SLOW_BYTES_PER_SEC >> 20} MiB/s at most from here on: {self._room.reason}"
            self._say(
                Stream.STDOUT,
                words,
                "output_slowed",
                bytes_per_sec=SLOW_BYTES_PER_SEC,
                reason=self._room.reason,
            )
        elif self._slowed_since and not self._room.slow:
            secs = now - self._slowed_since
            self._slowed_secs, self._slowed_since = self._slowed_secs + secs, 0.0
            self._say(
                Stream.STDOUT,
                f"output was slowed for {secs:.0f} s",
                "output_slowed_no_longer",
                secs=round(secs),
            )

    def _say(self, about: Stream, words: str, event: str, **more: object) -> bool:
        """Write a note and an event; return whether the spool accepted it."""
        items: list[LoggedLines | LoggedEvent] = [
            LoggedEvent({"event": event, "message": words, **more})
        ]
        if self._classifier.mode == "enabled" or self._lost[about]:
            items.insert(0, LoggedLines(about, Kind.NOTE, f"[{words}]\n".encode(), 1))
        now_ns = self._now_ns()
        return self._write(
            b"".join(frame.data for frame in self._frames.build(items, now_ns)), now_ns
        )

    def _slowed(self, now: float) -> Json:
        secs = self._slowed_secs + (now - self._slowed_since if self._slowed_since else 0.0)
        return {"slowed_secs": round(secs)} if secs else {}

    def _degrade(self, error: SpoolError) -> None:
        if not self._degraded:
            self._degraded = True
            self._report(
                f"degraded lines are missing from the log of {self._settings.capture.job_id}: {error}"
            )

    def _report(self, line: str) -> None:
        try:
            os.write(self._plan.report, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass  # the relay has died or returned: nobody listens

    def _now_ns(self) -> int:
        return self._wall_ns + time.monotonic_ns()


def _lines_of(ledger: Json) -> Json:
    """A ledger without its bytes."""
    return {
        name: {count: value[count] for count in value if count != "bytes"}
        if isinstance(value, dict)
        else value
        for name, value in ledger.items()
    }


def _measurements(plan: SidecarPlan, path: str) -> "Measurements | None":
    """Open the job's port for measurements; any port if the node's agent forwards them. path: the
    capture's folder."""
    telegraf = plan.telegraf
    if not telegraf and not os.path.lexists(os.path.join(os.path.dirname(path), TELEGRAF_MARK)):
        return None
    from logshipper.telegraf.listener import LOOPBACK, open_sockets
    from logshipper.telegraf.measurements import Collector, Measurements, start_collector

    try:
        collector = (
            Collector(*telegraf)
            if telegraf
            else start_collector(open_sockets(LOOPBACK, 0), os.stat(path).st_uid)
        )
    except OSError:
        return None  # no room for one more: the log matters more
    return Measurements(collector)


def _take_lock(path: str) -> int:
    """Held as long as this process lives: readers see by it whether the capture is alive."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        raise SpoolError(path, os_words(error)) from None
    return fd
