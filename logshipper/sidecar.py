"""The sidecar: renders, sorts and spools what the relay passes on. Wiring of one process, forked by `logshipper run`.

It reads the side pipe as fast as it can, writes frames at once, and lets the segment writer sync them. When the relay
dies or returns while somebody still holds the job's terminals, it relays on itself (RELAY: nobody's death may hurt
the job). A full disk never stops it: what can't be written is counted as lost, and said.
"""

import fcntl
import os
import select
import struct
import time

from logshipper import __version__, relay, side_pipe
from logshipper.capture import Settings
from logshipper.classifier import Classifier, Event, Lines
from logshipper.errors import SpoolError, os_words
from logshipper.fault_points import fault_point
from logshipper.frame_builder import FrameBuilder
from logshipper.handover import SidecarPlan
from logshipper.segment import Json, Kind, Stream
from logshipper.segment_writer import SegmentWriter
from logshipper.side_pipe import Empty, SideType
from logshipper.spool import boot_id, counted_bytes, outcome

HEARTBEAT_SECS = 5.0
LEDGER_SECS = 0.05
RETRY_SECS = 1.0  # how long a spool that refused is left alone
AGENT_AFTER_SECS = 2.0
_READ_BYTES = 1 << 20


def serve(plan: SidecarPlan, settings: Settings) -> None:
    """Runs until the capture is over. Raises SpoolError where the spool can't be written at all."""
    run(plan, Sidecar(plan, settings))


def run(plan: SidecarPlan, sidecar: "Sidecar") -> None:
    """As `serve`, with a sidecar that isn't started yet."""
    sidecar.start()
    if not sidecar.follow_relay():
        sidecar.make_up()
        relay.take_over(plan, sidecar)
        sidecar.relay_died()
    sidecar.close()


class Sidecar:
    """State of one capture. It is a sink for `relay.take_over` as well: data, empty, closed, idle.

    received: bytes of each stream that came, or were taken over.
    """

    def __init__(self, plan: SidecarPlan, settings: Settings) -> None:
        self._plan = plan
        self._settings = settings
        self._wall_ns = time.time_ns() - time.monotonic_ns()  # times follow the monotonic clock from here on
        config = settings.config
        self._classifier = Classifier(
            config.mode,
            obey=config.commands,
            keep_colours=config.colors == "keep",
            snapshot_secs=config.snapshots,
            columns=plan.columns,
            rows=plan.rows,
        )
        self._frames = FrameBuilder()
        folder = os.path.join(settings.capture.path, "segments")
        self._lock = _take_lock(os.path.join(folder, "lock"))
        fault_point("sidecar_locked")
        self._writer = SegmentWriter(folder, self._now_ns())
        self._open = {Stream.STDOUT, Stream.STDERR}
        self.received = dict.fromkeys((1, 2), 0)
        self._ended = False
        self._ledger: Json = {}
        self._ledger_due = 0.0
        self._heartbeat_due = 0.0
        self._refused_until = 0.0
        self._lost_lines = 0  # not yet said in the log
        self._lost_why = ""
        self._degraded = False
        self._agent_due = time.monotonic() + AGENT_AFTER_SECS

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
            }
        )
        if self._settings.problems:
            problems = list(self._settings.problems)
            message = f"~/.logoptin is refused, so nothing is logged until a /LOGCOMMAND says so: {'; '.join(problems)}"
            self._write_event({"event": "config_refused", "message": message, "problems": problems})
        self._report("ready")

    def follow_relay(self) -> bool:
        """Reads the side pipe to its end. False where somebody must relay on: the relay is gone, or has returned."""
        poll = select.poll()
        poll.register(self._plan.side_pipe, select.POLLIN)
        # one for all reads: a fresh object for each costs page faults
        buffer = memoryview(bytearray(_READ_BYTES + side_pipe.HEADER.size + side_pipe.MAX_PAYLOAD_BYTES))
        left = 0  # of a frame that isn't whole yet, at the buffer's begin
        while True:
            if not poll.poll(self._wait_ms()):
                self.idle()
                continue
            size = os.readv(self._plan.side_pipe, [buffer[left : left + _READ_BYTES]])
            if not size:
                return self._ended and not self._open
            size += left
            used = self._take_frames(buffer[:size])
            left = size - used
            buffer[:left] = buffer[used:size]
            self._flush()

    def make_up(self) -> None:
        """What a dead relay had read and counted, and not handed over."""
        unsent, counters = self._plan.unsent, self._plan.counters
        if unsent is not None and counters is not None:
            for stream in sorted(self._open):
                read = unsent.counted(stream, self.received[stream], counted_bytes(counters, stream))
                if read:
                    self.data(stream, read, 0)

    def relay_died(self) -> None:
        """After a take-over: the end that nobody has told."""
        if not self._ended:
            reason = "logshipper itself was killed: the command's exit code isn't known"
            self._end("FAILED", None, 0, reason)

    def close(self) -> None:
        """The capture is over for good."""
        self._say_lost()
        try:
            self._writer.close(self._frames.end(self._now_ns()))
        except SpoolError as error:
            self._degrade(error)
        fault_point("capture_synced")
        os.close(self._lock)
        self._report("done")
        self._settings.start_agent()

    # ---- frames of the side pipe

    def _take_frames(self, data: memoryview) -> int:
        """Handles all whole frames of data; returns their bytes. Neighbours of one stream are fed as one."""
        at = 0
        gathered: list[memoryview] = []
        of = 0
        while len(data) - at >= side_pipe.HEADER.size:
            kind, stream, flags, length = side_pipe.HEADER.unpack_from(data, at)
            end = at + side_pipe.HEADER.size + length
            if end > len(data):
                break
            if gathered and (kind != SideType.DATA or stream != of):
                self.data(of, b"".join(gathered), 0)
                gathered = []
            if kind == SideType.DATA:
                # what was seen empty between neighbours is left out: policies stay strict a little longer, never wider
                if not gathered:
                    self.empty(flags)
                gathered.append(data[at + side_pipe.HEADER.size : end])
                of = stream
            else:
                self._take_frame(kind, stream, flags, bytes(data[at + side_pipe.HEADER.size : end]))
            at = end
        if gathered:
            self.data(of, b"".join(gathered), 0)
        return at

    def _take_frame(self, kind: int, stream: int, flags: int, payload: bytes) -> None:
        if kind == SideType.EMPTY:
            self.empty(flags)
        elif kind == SideType.SIZE:
            self._classifier.resize(*struct.unpack("<HH", payload))
        elif kind == SideType.CLOSED:
            self.closed(stream)
        elif kind == SideType.EXIT:
            self._end(*outcome(struct.unpack("<i", payload)[0]), "")

    def data(self, stream: int, data: bytes, flags: int) -> None:
        self.empty(flags)
        self.received[stream] += len(data)
        self._classifier.feed(Stream(stream), data, time.monotonic())

    def empty(self, flags: int) -> None:
        if flags & Empty.STDOUT:
            self._classifier.seen_empty(Stream.STDOUT, time.monotonic())
        if flags & Empty.STDERR:
            self._classifier.seen_empty(Stream.STDERR, time.monotonic())

    def closed(self, stream: int) -> None:
        """Nobody writes to the stream any more: what is held of it is given back, its last line is final."""
        if Stream(stream) not in self._open:
            return
        self._open.discard(Stream(stream))
        for fd in (self._plan.masters.pop(stream, None), self._plan.outs.pop(stream, None)):
            if fd is not None:
                os.close(fd)
        self._classifier.end(Stream(stream), time.monotonic())
        self._flush()

    def idle(self) -> None:
        """What time brings: call it when nothing has come for a while, a second at most."""
        now = time.monotonic()
        self._classifier.tick(now)
        self._flush()
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + HEARTBEAT_SECS
            self._write_record(
                {"type": "heartbeat", "mode": self._classifier.mode, "ledger": self._classifier.ledger()}
            )
        if now >= self._agent_due:
            self._agent_due = float("inf")
            self._settings.start_agent()

    def _wait_ms(self) -> int:
        now = time.monotonic()
        due = min(self._classifier.next_tick() or now + 1.0, self._heartbeat_due, now + 1.0)
        return max(0, int((due - now) * 1000) + 1)

    # ---- the end

    def _end(self, state: str, exit_code: int | None, signo: int, reason: str) -> None:
        self._ended = True
        self._flush()
        self._writer.give_up_reserve()
        self._refused_until = 0.0  # now there is room, if only for this
        self._say_lost()
        ended: Json = {"type": "end", "state": state, "exit_code": exit_code, "signal": signo, "reason": reason}
        self._write_record({**ended, "ended_ns": self._now_ns(), "ledger": self._classifier.ledger()})
        fault_point("end_written")
        if self._open:  # the relay returns now; what is left behind goes on here
            try:
                self._writer.sync()
            except SpoolError as error:
                self._degrade(error)
            self._report("done")

    # ---- writing

    def _flush(self) -> None:
        items = self._classifier.take()
        if items:
            self._write_items(items)
            fault_point("lines_without_ledger")
        now = time.monotonic()
        if now >= self._ledger_due:
            self._ledger_due = now + LEDGER_SECS
            ledger = self._classifier.ledger()
            if ledger != self._ledger:
                self._ledger = ledger
                self._write_record({"type": "ledger", "ledger": ledger})

    def _write_items(self, items: list[Lines | Event]) -> None:
        now_ns = self._now_ns()
        self._say_lost()
        for frame in self._frames.build(items, now_ns):
            if not self._write(frame.data, now_ns) and frame.stored:
                self._lost_lines += frame.stored
                self._classifier.count_lost(frame.stream, frame.stored)
                fault_point("lines_refused")

    def _write(self, frames: bytes, now_ns: int) -> bool:
        """False where the spool refuses: it is tried again after RETRY_SECS."""
        now = time.monotonic()
        if now < self._refused_until:
            return False
        try:
            self._writer.write(frames, now_ns)
        except SpoolError as error:
            self._refused_until = now + RETRY_SECS
            self._lost_why = error.reason
            self._degrade(error)
            return False
        return True

    def _write_record(self, record: Json) -> None:
        now_ns = self._now_ns()
        self._write(self._frames.record(record, now_ns), now_ns)

    def _write_event(self, event: Json) -> None:
        self._write_record({"type": "event", **event})

    def _say_lost(self) -> None:
        """Once the spool takes something again: how many lines are missing here."""
        if not self._lost_lines or time.monotonic() < self._refused_until:
            return
        self._refused_until = 0.0
        self._writer.give_up_reserve()
        text = f"[{self._lost_lines} lines lost here: {self._lost_why}]\n".encode()
        note = Lines(Stream.STDOUT, Kind.NOTE, text, 1)
        event = Event({"event": "lines_lost", "message": text.decode().strip("[]\n"), "lines": self._lost_lines})
        now_ns = self._now_ns()
        if self._write(b"".join(frame.data for frame in self._frames.build([note, event], now_ns)), now_ns):
            self._lost_lines = 0

    def _degrade(self, error: SpoolError) -> None:
        if not self._degraded:
            self._degraded = True
            self._report(f"degraded lines are missing from the log of {self._settings.capture.job_id}: {error}")

    def _report(self, line: str) -> None:
        try:
            os.write(self._plan.report, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass  # the relay is gone or has returned: nobody to tell

    def _now_ns(self) -> int:
        return self._wall_ns + time.monotonic_ns()


def _take_lock(path: str) -> int:
    """Held as long as this process lives: readers see by it whether the capture is alive."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        raise SpoolError(path, os_words(error)) from None
    return fd
