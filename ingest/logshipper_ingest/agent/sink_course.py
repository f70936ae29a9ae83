"""One sink of the node agent (Loki, InfluxDB or OTLP) with its own checkpoints, quarantine, retries
and threads. Sinks do not wait for each other. A segment goes when all sinks have it."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from logshipper.private_folder import make_private_folder
from logshipper_ingest.agent.sink_parts import make_delivery, push_client
from logshipper_ingest.config.sink_config import Server, SinkConfig, is_loki
from logshipper_ingest.console.service_log import other_words
from logshipper_ingest.metrics.agent_metrics import AgentMetrics
from logshipper_ingest.metrics.job_metrics import JobMetrics
from logshipper_ingest.shipping.disk_metrics import QuarantineMetrics
from logshipper_ingest.shipping.followed_capture import FollowedCapture, ShippedCapture, in_turn
from logshipper_ingest.shipping.quarantine import Quarantine
from logshipper_ingest.shipping.ship_loop import ship_until
from logshipper_ingest.shipping.shipper import Shipper
from logshipper_ingest.slurm.states import SlurmStates
from logshipper_ingest.state import quarantine_files
from logshipper_ingest.state.checkpoints import STATE_FILE, Checkpoints

MEASURE_SECS = 0.2  # longest time for one measurement of the backlog

Say = Callable[[str], None]


class SinkCourse:
    """A sink at work. checkpoints: the learner's, shared by the sink without a name. Raises
    StoreError, SpoolError."""

    def __init__(
        self,
        config: SinkConfig[Server],
        checkpoints: Checkpoints,
        metrics: AgentMetrics,
        stop: threading.Event,
        say: Say,
        jobs: JobMetrics,
    ) -> None:
        self.config = config
        self.wake = threading.Event()  # new entries to ship
        self._stop = stop
        self._say = say = _of_sink(config, say)
        self._departures: deque[FollowedCapture] = deque()  # to release
        self.metrics = metrics if config.is_first else metrics.of_sink(config.label)
        self._notes: dict[str, object] = {}
        self.slurm: SlurmStates | None = None
        with ExitStack() as undo:
            if config.name:
                make_private_folder(os.path.dirname(config.folder))
                make_private_folder(config.folder)
                checkpoints = Checkpoints(os.path.join(config.folder, STATE_FILE))
                undo.callback(checkpoints.close)
            self.checkpoints = checkpoints
            self.delivery = make_delivery(
                config, lambda: push_client(config, say), self.metrics, stop, say
            )
            folder = os.path.join(config.folder, quarantine_files.FOLDER)
            room_bytes = config.delivery.quarantine_max_bytes
            quarantine = Quarantine(folder, room_bytes)
            self._room = QuarantineMetrics(self.metrics, quarantine, room_bytes)
            parts = checkpoints, self.delivery, quarantine, self.metrics
            self._shipper = Shipper(config, *parts, say)
            undo.callback(self._shipper.close)
            if is_loki(config) and config.ended_dir:
                self.slurm = SlurmStates(config, *parts, stop, say, jobs)
                undo.callback(self.slurm.close)
            self._open_parts = undo.pop_all()

    def threads(self, captures: Callable[[], Iterable[FollowedCapture]]) -> list[threading.Thread]:
        """Return the sink's threads, not started. captures: returns all present captures."""
        wait_secs = self.config.delivery.batch_wait_secs
        to_ship = partial(self._to_ship, captures)
        ship_args = self._shipper, to_ship, self._stop, wait_secs, self._say, self.wake
        label = self.config.label
        threads = [threading.Thread(target=ship_until, args=ship_args, name=f"shipper {label}")]
        if self.slurm is not None:
            threads.append(threading.Thread(target=self.slurm.run, name=f"slurm {label}"))
        return threads

    def _to_ship(self, captures: Callable[[], Iterable[FollowedCapture]]) -> list[ShippedCapture]:
        """Return the captures to ship. The shipper calls it between two rounds, when it reads no
        dropped capture."""
        self.let_all_go()
        return self._shipped(captures())

    def _shipped(self, captures: Iterable[FollowedCapture]) -> list[ShippedCapture]:
        """Return the captures as shipped to this sink."""
        return [
            shipped_capture
            for capture in captures
            for shipped_capture in capture.sinks
            if shipped_capture.checkpoints is self.checkpoints
        ]

    def drop(self, capture: FollowedCapture) -> None:
        """Release a removed capture between two rounds."""
        self._departures.append(capture)

    @property
    def leaving_count(self) -> int:
        """The number of captures to release."""
        return len(self._departures)

    def let_all_go(self) -> None:
        while self._departures:
            self._departures.popleft().let_go()

    def close(self) -> None:
        """Close the sink after its threads have ended."""
        self.let_all_go()
        self._open_parts.close()

    # ---- reports

    def save_notes(self) -> None:
        """Store the sink's state for `status`."""
        notes: dict[str, object] = {
            "loki": {"url": self.config.url, **self.delivery.state._asdict()},
            "last_refusal": self.delivery.last_refusal._asdict(),
        }
        if notes != self._notes:
            self.checkpoints.put_notes(notes)
            self._notes = notes

    def trouble_text(self) -> str:
        """Return a sentence about the sink's trouble, or ""."""
        state = self.delivery.state
        if not state.since_ns:
            return ""
        status = f"HTTP {state.status}: " if state.status else ""
        name = "" if self.config.is_first else f" ({self.config.label})"
        return f"{self.delivery.sink.kind}{name} doesn't accept pushes: {status}{state.words}"

    def measure(self, captures: Sequence[FollowedCapture]) -> None:
        """Update the sink's metrics. Measure the oldest measurements first, for MEASURE_SECS at
        most: captures may have ten thousands of files."""
        shipped_captures = self._shipped(captures)
        begin, now_ns = time.monotonic(), time.time_ns()
        for capture in in_turn(sorted(shipped_captures, key=lambda capture: capture.measured_at)):
            now = time.monotonic()
            if now - begin > MEASURE_SECS:
                break
            capture.spooled_bytes = capture.folder.bytes_from(capture.progress.position)
            capture.measured_at = now
        self.metrics.spool_bytes.set(sum(capture.spooled_bytes for capture in shipped_captures))
        lags_ns = [
            now_ns - capture.waiting_since_ns
            for capture in shipped_captures
            if capture.waits and capture.waiting_since_ns
        ]
        self.metrics.lag_seconds.set(max(lags_ns, default=0) / 1e9)
        self.metrics.set_waiting(self.delivery.waiting_by_result())
        self._room.measure()


def _of_sink(config: SinkConfig[Server], say: Say) -> Say:
    """Return `say` with the sink's name: in the line, except for the first sink, and in the
    journal's fields."""
    prefix = "" if config.is_first else f"[{config.table}] "
    return lambda words: say(other_words(words, f"{prefix}{words}", sink=config.label))
