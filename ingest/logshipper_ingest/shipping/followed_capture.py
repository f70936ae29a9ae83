"""A capture in the node's spool, and the progress of its readers: the learner and each sink."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from logshipper.errors import SpoolError
from logshipper.fault_points import fault_point
from logshipper_ingest.console.service_log import LogLine
from logshipper_ingest.model.capture_rows import ReportRow
from logshipper_ingest.model.ranks import reported_documents
from logshipper_ingest.model.x_axis import XAxis
from logshipper_ingest.shipping.shipped_capture import ShippedCapture, begin_new
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life
from logshipper_ingest.spool.learning import new_account
from logshipper_ingest.spool.segment_reader import SegmentReader, SpoolPosition
from logshipper_ingest.state.checkpoints import CaptureKnowledge, Checkpoints


class _Capture(Protocol):
    @property
    def identity(self) -> Identity: ...


REPORT_NS = 60 * 10**9  # between two reports of its keys, in the capture's time
FIRST_REPORT_NS = 10 * 10**9  # after its start

AnyCapture = TypeVar("AnyCapture", bound=_Capture)


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
        self.shown_state = ""
        self.damages_told = 0
        self.begun_ns = folder.begun_ns()
        self.checkpoint = checkpoints.knowledge(folder.key)  # the stored form of `knowledge`
        self.knowledge = self.checkpoint or self._no_knowledge()
        if self.knowledge.done:
            self.life = Life.DEAD  # the learner checks it no more
        self.learn_reader = self._reader(self.knowledge.position)
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

    @property
    def first(self) -> ShippedCapture:
        """The first sink's progress."""
        return self.sinks[0]

    def _reader(self, position: SpoolPosition) -> SegmentReader:
        path = os.path.join(self.folder.path, "segments")
        return SegmentReader(self.folder.segments_fd, path, position, owner=self.folder.writer)

    def begin_learning_again(self) -> None:
        """Go back to `knowledge` after a failed read."""
        self.learn_reader.close()
        self.learn_reader = self._reader(self.knowledge.position)

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
        first_ns = account.started_ns + FIRST_REPORT_NS
        if account.newest_ns >= (self._report_ns + REPORT_NS if self._report_ns else first_ns):
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

    def remove_old_segments(self) -> None:
        """Remove segments that all readers have finished. Any shipper calls it after a checkpoint."""
        checkpoint = self.checkpoint
        if len({sink.committed for sink in self.sinks}) > 1:
            fault_point("sinks_differ")
        if checkpoint is not None:
            done = min(
                checkpoint.position.segment, *(sink.committed[0].segment for sink in self.sinks)
            )
            self.folder.remove_segments_before(done)

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
