"""Passes measurements that a job sends to the classifier, in the order of the job's output.

Only captures with measurements import it.
"""

import os
import select
import time
from collections.abc import Callable

from logshipper.classify.classifier import Classifier
from logshipper.relay.handover import SidecarPlan
from logshipper.sidecar.log_writer import LogWriter
from logshipper.spool.captures import PORT_FILE, counted_bytes
from logshipper.telegraf.measurements import Batch, Collector, Measurements

LEFT_OUT_SECS = 10.0  # between two reports of dropped measurements


class MeasurementIntake:
    """Measurements of one capture. received: the sidecar's count of each stream's bytes, which the
    sidecar updates. flush(): writes the classifier's output."""

    def __init__(
        self,
        collector: Collector,
        plan: SidecarPlan,
        received: dict[int, int],
        classifier: Classifier,
        log: LogWriter,
        flush: Callable[[], None],
    ) -> None:
        self._measurements = Measurements(collector)
        self._plan = plan
        self._received = received
        self._classifier = classifier
        self._log = log
        self._flush = flush
        self._is_polled = self._is_over = False
        self._left_out_due = 0.0
        self._left_out: dict[str, int] = {}

    def announce(self, path: str) -> None:
        """Announce the port to the node's agent, which forwards measurements for this job. path:
        the capture's folder."""
        try:
            with open(os.path.join(path, "segments", PORT_FILE), "x", encoding="ascii") as file:
                file.write(f"{self._measurements.port}\n")
        except OSError:
            pass  # the job's own measurements still arrive

    def listen(self, poll: "select.poll") -> None:
        """Let poll watch for measurements if some may come and there is room."""
        if not self._measurements.over:
            poll.register(self._measurements.fd, 0 if self._measurements.is_full else select.POLLIN)
            self._is_polled = True
        elif self._is_polled:
            poll.unregister(self._measurements.fd)
            self._is_polled = False

    @property
    def due(self) -> float:
        return self._measurements.due

    def take(self, *, at_end: bool) -> None:
        """Take measurements. at_end: no more output comes."""
        if self._is_over:
            return
        measurements = self._measurements
        now = time.monotonic()
        measurements.read(now)
        if at_end:
            self._record(measurements.all())
        elif measurements.due <= now:
            received = tuple(self._received.values())
            self._record(measurements.ready(now, self._relayed(), received))
        if now >= self._left_out_due:
            self._left_out_due = now + LEFT_OUT_SECS
            self._report_left_out()
        if measurements.is_done:
            self.end()
            message = "the process that takes measurements has died: no more are taken"
            self._log.write_event({"event": "measurements_ended", "message": message})

    def end(self) -> None:
        """Take the last measurements."""
        if not self._is_over:
            self._is_over = True
            self._record(self._measurements.end())
            self._report_left_out()
            self._flush()

    def _relayed(self) -> tuple[int, ...] | None:
        """Return the bytes of each stream at the relay; None while more are unread."""
        streams = select.poll()
        for fd in self._plan.masters.values():
            streams.register(fd, select.POLLIN)
        if any(event & select.POLLIN for _, event in streams.poll(0)):
            return None
        counters = self._plan.counters
        if counters is None:
            return tuple(self._received.values())
        return tuple(counted_bytes(counters, stream) for stream in self._received)

    def _record(self, batches: list[Batch]) -> None:
        """Record measurements under the narrowest mode since each arrival; count the others."""
        for batch in batches:
            since = float("-inf") if batch.undecided else batch.arrived_at
            dropped_count = self._classifier.take_measurements(batch.records, since)
            if dropped_count:
                reason = "undecided" if batch.undecided else "disabled"
                self._measurements.drop(dropped_count, reason)

    def _report_left_out(self) -> None:
        left_out = self._measurements.left_out
        if left_out != self._left_out:
            self._left_out = left_out
            counts = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
            message = f"of the measurements that were sent, lines were left out so far: {counts}"
            event = {"event": "measurements_left_out", "message": message, "reasons": left_out}
            self._log.write_event(event)
