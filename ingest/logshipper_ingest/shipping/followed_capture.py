"""A capture in the node's spool, and how far the agent's parties have gone through it: the learner,
and each sink."""

import os
import threading
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from logshipper.errors import SpoolError
from logshipper.fault_points import fault_point
from logshipper_ingest.console.service_log import LogLine
from logshipper_ingest.model.capture_account import ReportRow
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


REPORT_NS = 60 * 10**9  # of the capture's time: between two reports of its keys
FIRST_REPORT_NS = 10 * 10**9  # after its start

AnyCapture = TypeVar("AnyCapture", bound=_Capture)


class FollowedCapture:
    """Owns the folder. The learner's thread sets what begins with learn, and life; each sink's
    shipper what is in its `sinks`; each reads the others'. checkpoints: the learner's; sinks: of
    each sink, the learner's own where none are named; new: those of sinks that were added since the
    agent ran last. Raises SpoolError where it isn't a capture that can be followed.

    life: looked at before the learner's last read. learnt: as of now, checkpoint: as it was last
    checkpointed. begun_ns: when its directory was made. blocked: why it can't be read further.
    next_look: by the monotonic clock. report: the newest one of its keys while it runs, None before
    the first.
    """

    def __init__(
        self,
        folder: CaptureFolder,
        checkpoints: Checkpoints,
        identity: Identity,
        sinks: Sequence[Checkpoints] = (),
        new: Collection[Checkpoints] = (),
    ) -> None:
        if folder.segments_fd < 0:
            raise SpoolError(folder.path, "has no segments/")
        self.folder = folder
        self.identity = identity
        self.life = Life.STARTING
        self.blocked = ""
        self.next_look = 0.0
        self.pause_secs = 0.0
        self.shown_state = ""
        self.damages_told = 0
        self.begun_ns = folder.begun_ns()
        self.checkpoint = checkpoints.learnt(folder.key)
        self.learnt = self.checkpoint or self._nothing_learnt()
        if self.learnt.done:
            self.life = Life.DEAD  # nobody looks any more
        self.learn_reader = self._reader(self.learnt.position)
        self.sinks = [
            ShippedCapture(self, sink_checkpoints) for sink_checkpoints in sinks or (checkpoints,)
        ]
        begin_new(self.sinks, new)
        self.report: ReportRow | None = None
        self._reported_records = 0
        self._report_ns = max(sink.progress.counts.report_ns for sink in self.sinks)
        self._holders = len(self.sinks)
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, str]:
        """Of a line of the log."""
        return self.identity.about(self.folder.name)

    def line(self, words: str) -> LogLine:
        """Of the log: where the capture is, and what is wrong with it."""
        return LogLine(f"{self.folder.path}: {words}", **self.about)

    @property
    def first(self) -> ShippedCapture:
        """As the first sink has it."""
        return self.sinks[0]

    def _reader(self, position: SpoolPosition) -> SegmentReader:
        path = os.path.join(self.folder.path, "segments")
        return SegmentReader(self.folder.segments_fd, path, position, owner=self.folder.writer)

    def begin_learning_again(self) -> None:
        """After a read that raised: what it had taken already is read once more."""
        self.learn_reader.close()
        self.learn_reader = self._reader(self.learnt.position)

    def learn_from_checkpoint(self, checkpoints: Checkpoints) -> None:
        """From the learner's last checkpoint on: what it took after that may be half taken."""
        self.checkpoint = checkpoints.learnt(self.folder.key)
        self.learnt = self.checkpoint or self._nothing_learnt()
        self.begin_learning_again()

    def _nothing_learnt(self) -> CaptureKnowledge:
        account = new_account(self.folder, self.identity)
        axis = XAxis(keeps_places=True)
        return CaptureKnowledge(self.folder.key, SpoolPosition(), False, account, axis)

    def report_keys(self) -> None:
        """Makes a new report where there are new records, and the last one, maybe of an earlier
        agent, is old enough."""
        account, axis = self.learnt.account, self.learnt.axis
        if axis.records == self._reported_records:
            return
        first_ns = account.started_ns + FIRST_REPORT_NS
        if account.newest_ns >= (self._report_ns + REPORT_NS if self._report_ns else first_ns):
            self._reported_records, self._report_ns = axis.records, account.newest_ns
            self.report = ReportRow(account.newest_ns, reported_documents(axis, over=False))

    @property
    def is_over(self) -> bool:
        """Whether all of it is shipped to every sink and learnt, and the checkpoints say so."""
        return (
            all(sink.committed[1] for sink in self.sinks)
            and self.checkpoint is not None
            and self.checkpoint.done
        )

    def remove_old_segments(self) -> None:
        """Those that all parties have done with. Called by any shipper, after its checkpoint."""
        checkpoint = self.checkpoint
        if len({sink.committed for sink in self.sinks}) > 1:
            fault_point("sinks_differ")
        if checkpoint is not None:
            done = min(
                checkpoint.position.segment, *(sink.committed[0].segment for sink in self.sinks)
            )
            self.folder.remove_segments_before(done)

    def let_go(self) -> None:
        """Called by each sink's shipper when it has done with it: the last one closes it."""
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
    """User by user, a capture of each at a time, each user's in the given order: none is behind
    another's thousand."""
    queues: dict[int, deque[AnyCapture]] = defaultdict(deque)
    for capture in captures:
        queues[capture.identity.uid].append(capture)
    while queues:
        for uid in list(queues):
            yield queues[uid].popleft()
            if not queues[uid]:
                del queues[uid]
