"""A capture in the node's spool, and the progress of its readers: the learner and each sink."""

import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from logshipper.errors import SpoolError
from logshipper.fault_points import fault_point
from logshipper_ingest.console.service_log import LogLine
from logshipper_ingest.model.capture_rows import ReportRow
from logshipper_ingest.model.job import RUNNING, UNRESPONSIVE_NS
from logshipper_ingest.model.ranks import reported_documents
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.shipping.entries import EntryBuilder
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life
from logshipper_ingest.spool.learning import new_account
from logshipper_ingest.spool.segment_reader import (
    FrameBatch,
    SegmentReader,
    SpoolPosition,
    list_segments,
)
from logshipper_ingest.state.checkpoints import (
    CaptureCheckpoint,
    CaptureKnowledge,
    Checkpoints,
    Counts,
)

# Between two reports of its keys, in the capture's time. Of a young capture, a tenth of its age:
# somebody may be watching its graphs
REPORT_NS = 60 * 10**9
FIRST_REPORT_NS = 10 * 10**9  # after its start; the least
FIRST_SEGMENT = 1
ENTRY_BYTES = 100  # about an entry's cost at Loki besides its line; shares count bytes to send


class FollowedCapture:
    """A capture and its folder, which it owns. The learner's thread sets all attributes except
    `sinks`, whose elements belong to their shippers; every thread reads all. Raises SpoolError if
    it has no segments."""

    def __init__(
        self,
        folder: CaptureFolder,
        checkpoints: Checkpoints,  # the learner's
        identity: Identity,
        sinks: Sequence[Checkpoints] = (),  # of each sink; by default, the learner's
        new: Collection[Checkpoints] = (),  # of sinks added since the agent's last run
    ) -> None:
        if folder.segments_fd < 0:
            raise SpoolError(folder.path, "has no segments/")
        self.folder = folder
        self.identity = identity
        self.life = Life.STARTING  # as checked before the learner's last read
        self.blocked = ""  # why the rest can't be read
        self.next_look = 0.0  # by the monotonic clock
        self.pause_secs = 0.0
        self.quiet_looks = 0  # the learner's next ones that read nothing if nothing has grown
        self.grown_bytes = 0  # unread by the learner, as it saw them last
        self.shown_state = ""
        self.damages_told = 0
        self.begun_ns = folder.begun_ns()
        self.checkpoint = checkpoints.knowledge(folder.key)  # the stored form of `knowledge`
        self.knowledge = self.checkpoint or self._no_knowledge()
        if self.knowledge.done:
            self.life = Life.DEAD  # the learner checks it no more
        self.learn_reader = segment_reader(folder, self.knowledge.position)
        self.sinks = [
            ShippedCapture(self, sink_checkpoints) for sink_checkpoints in sinks or (checkpoints,)
        ]
        begin_new(self.sinks, new)
        self.report: ReportRow | None = None  # the newest one of its keys while it runs
        self._reported_records = 0
        self._report_ns = max(sink.progress.counts.report_ns for sink in self.sinks)
        self._holders = len(self.sinks)
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, str]:
        """The fields of a log line about it."""
        return self.identity.about(self.folder.name)

    def line(self, words: str) -> LogLine:
        """Return a log line about it."""
        return LogLine(f"{self.folder.path}: {words}", **self.about)

    def begin_learning_again(self) -> None:
        """Go back to `knowledge` after a failed read."""
        self.learn_reader.close()
        self.learn_reader = segment_reader(self.folder, self.knowledge.position)

    def learn_from_checkpoint(self, checkpoints: Checkpoints) -> None:
        """Go back to the last checkpoint: later frames may be half learned."""
        self.checkpoint = checkpoints.knowledge(self.folder.key)
        self.knowledge = self.checkpoint or self._no_knowledge()
        self.begin_learning_again()

    def _no_knowledge(self) -> CaptureKnowledge:
        account = new_account(self.folder, self.identity)
        axis = XAxis(keeps_places=True)
        return CaptureKnowledge(self.folder.key, SpoolPosition(), False, account, axis)

    def report_keys(self) -> None:
        """Make a new report if there are new records and the last report, maybe an earlier
        agent's, is old enough."""
        account, axis = self.knowledge.account, self.knowledge.axis
        if axis.records == self._reported_records:
            return
        age_ns = account.newest_ns - account.started_ns
        pause_ns = min(max(age_ns // 10, FIRST_REPORT_NS), REPORT_NS)
        if account.newest_ns >= max(self._report_ns, account.started_ns) + pause_ns:
            self._reported_records, self._report_ns = axis.records, account.newest_ns
            self.report = ReportRow(account.newest_ns, reported_documents(axis, over=False))

    @property
    def is_over(self) -> bool:
        """Whether all checkpoints, the learner's and each sink's, have reached its end."""
        return (
            all(sink.committed[1] for sink in self.sinks)
            and self.checkpoint is not None
            and self.checkpoint.done
        )

    def sinks_behind(self, position: SpoolPosition) -> list["ShippedCapture"]:
        """Return the sinks that have not shipped all before a position."""
        return [sink for sink in self.sinks if sink.committed[0] < position]

    def remove_old_segments(self) -> None:
        """Remove segments that all readers have finished. Any shipper calls it after a checkpoint."""
        if len({sink.committed for sink in self.sinks}) > 1:
            fault_point("sinks_differ")
        checkpoint = self.checkpoint
        if checkpoint is not None:
            positions = [checkpoint.position, *(sink.committed[0] for sink in self.sinks)]
            self.folder.remove_segments_before(min(positions).segment)

    def let_go(self) -> None:
        """Release it for one sink's shipper; the last release closes it."""
        with self._lock:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self.close()

    def close(self) -> None:
        self.learn_reader.close()
        for sink in self.sinks:
            sink.close()
        self.folder.close()


class ShippedCapture:
    """A capture at one sink. Its shipper's thread owns it; others read `committed`."""

    def __init__(self, capture: FollowedCapture, checkpoints: Checkpoints) -> None:
        self.capture = capture
        self.folder = capture.folder
        self.identity = capture.identity
        self.begun_ns = capture.begun_ns
        self.checkpoints = checkpoints
        self.pending_batch: tuple[FrameBatch, Life] | None = None  # read but put off
        self.read_at = time.monotonic()  # of the last frame, by the monotonic clock
        self.stale = False  # it must go back to its checkpoint
        self.waiting_since_ns = 0  # time of the first unshipped frame, or 0
        self.served_turn = 0  # the shipper's last round with it
        self.trouble = ""  # the last read error
        self.entries: EntryBuilder | None = None
        self.spooled_bytes = 0  # unshipped ones, when last measured
        self.measured_at = 0.0  # by the monotonic clock
        self._load()

    @property
    def life(self) -> Life:
        return self.capture.life

    @property
    def knowledge(self) -> CaptureKnowledge:
        return self.capture.knowledge

    # ---- checkpoints

    def _load(self) -> None:
        rows = self.checkpoints.shipped(self.folder.key)
        self.has_checkpoint = bool(rows)
        self.progress = rows[0] if rows else self._no_progress()
        # the checkpoint's position, and whether it is the end
        self.committed = self.progress.position, self.progress.done
        self.reader = segment_reader(self.folder, self.progress.position, line_bytes=ENTRY_BYTES)

    def _no_progress(self) -> CaptureCheckpoint:
        account = new_account(self.folder, self.identity)
        return CaptureCheckpoint(self.folder.key, self.identity, account)

    def reload(self) -> None:
        """Go back to the last checkpoint; later frames are read and sent again."""
        self.reader.close()
        self.pending_batch = None
        self._load()
        self.stale = False

    def begin_behind(self, slowest: CaptureCheckpoint) -> None:
        """Begin at another sink's position, since earlier segments are gone, and commit that."""
        progress = CaptureCheckpoint(
            slowest.folder, slowest.identity, slowest.account, slowest.position, slowest.done
        )
        progress.counts = Counts(skipped=slowest.account.lines)
        self.checkpoints.commit([progress], {})
        self.reload()

    # ---- progress

    @property
    def waits(self) -> bool:
        """Whether it has something to ship."""
        if self.stale or self.progress.done:
            return self.stale
        return (
            self.is_silent
            or self.pending_batch is not None
            or self.knowledge.done
            or not self._has_caught_up
        )

    @property
    def _has_caught_up(self) -> bool:
        position, learnt = self.reader.position, self.capture.learn_reader.position
        if position == learnt and not self.capture.grown_bytes:
            return True  # without a question to the system: there may be a thousand captures
        return position >= learnt and not self.reader.grown_bytes()

    @property
    def is_silent(self) -> bool:
        """Whether it has been silent for long enough to report, and that isn't reported yet. This
        uses the process's own monotonic clock, so that neither a stepped clock nor a stopped agent
        looks like silence."""
        account = self.progress.account
        return (
            self.life in (Life.LIVE, Life.ORPHANED)
            and account.state == RUNNING
            and account.silent_ns != account.newest_ns
            and time.monotonic() - self.read_at > UNRESPONSIVE_NS / 1e9
        )

    @property
    def frees_segments(self) -> bool:
        """Whether its position has left a segment since the last commit."""
        return self.progress.position.segment != self.committed[0].segment

    def note_round(self) -> None:
        """Note a committed round; anything left is younger than the shipped frames."""
        self.committed = self.progress.position, self.progress.done
        self.waiting_since_ns = 0 if self._has_caught_up else self.progress.account.newest_ns

    def close(self) -> None:
        self.reader.close()


def begin_new(sinks: Sequence[ShippedCapture], new: Collection[Checkpoints]) -> None:
    """Set the first position of new sinks: the capture's begin if its segments are all there, else
    the position of the sink that is furthest behind."""
    others_progress = [sink.progress for sink in sinks if sink.has_checkpoint]
    new_sinks = [sink for sink in sinks if not sink.has_checkpoint and sink.checkpoints in new]
    if not others_progress or not new_sinks:
        return
    segments = list_segments(new_sinks[0].folder.segments_fd)
    if segments[:1] == [FIRST_SEGMENT]:
        return
    slowest = min(others_progress, key=lambda progress: progress.position)
    for sink in new_sinks:
        sink.begin_behind(slowest)


def segment_reader(
    folder: CaptureFolder, position: SpoolPosition, line_bytes: int = 0
) -> SegmentReader:
    path = os.path.join(folder.path, "segments")
    return SegmentReader(
        folder.segments_fd, path, position, owner=folder.writer, line_bytes=line_bytes
    )


AnyCapture = TypeVar("AnyCapture", FollowedCapture, ShippedCapture)


def in_turn(captures: Iterable[AnyCapture]) -> Iterator[AnyCapture]:
    """Yield captures user by user in turn, so that nobody waits for another's thousand. Each user's
    captures keep their order."""
    queues: dict[int, deque[AnyCapture]] = defaultdict(deque)
    for capture in captures:
        queues[capture.identity.uid].append(capture)
    while queues:
        for uid in list(queues):
            yield queues[uid].popleft()
            if not queues[uid]:
                del queues[uid]
