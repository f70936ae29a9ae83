"""The progress of a capture at one sink: its reader, its checkpoint, and its state in between."""

import os
import time
from collections.abc import Collection, Sequence
from typing import Protocol

from logshipper_ingest.console.service_log import LogLine
from logshipper_ingest.model.capture_rows import ReportRow
from logshipper_ingest.model.job import RUNNING, UNRESPONSIVE_NS
from logshipper_ingest.shipping.entries import EntryBuilder
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life
from logshipper_ingest.spool.learning import new_account
from logshipper_ingest.spool.segment_reader import FrameBatch, SegmentReader, list_segments
from logshipper_ingest.state.checkpoints import (
    CaptureCheckpoint,
    CaptureKnowledge,
    Checkpoints,
    Counts,
)

FIRST_SEGMENT = 1
ENTRY_BYTES = 100  # about an entry's cost at Loki besides its line; shares count bytes to send


class Followed(Protocol):
    """The common state of a capture's readers: a `FollowedCapture`."""

    folder: CaptureFolder
    identity: Identity
    life: Life
    knowledge: CaptureKnowledge
    learn_reader: SegmentReader
    begun_ns: int
    report: ReportRow | None

    def line(self, words: str) -> LogLine: ...

    def remove_old_segments(self) -> None: ...


class ShippedCapture:
    """A capture at one sink. Its shipper's thread owns it; others read `committed`."""

    def __init__(self, capture: Followed, checkpoints: Checkpoints) -> None:
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
        account = None if rows else new_account(self.folder, self.identity)
        self.progress = (
            CaptureCheckpoint(self.folder.key, self.identity, account) if account else rows[0]
        )
        # the checkpoint's position, and whether it is the end
        self.committed = self.progress.position, self.progress.done
        path = os.path.join(self.folder.path, "segments")
        self.reader = SegmentReader(
            self.folder.segments_fd,
            path,
            self.progress.position,
            owner=self.folder.writer,
            line_bytes=ENTRY_BYTES,
        )

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
        if self.stale:
            return True
        if self.progress.done:
            return False
        if self.is_silent:
            return True
        learner_position = self.capture.learn_reader.position
        return (
            self.pending_batch is not None
            or self.knowledge.done
            or self.reader.position != learner_position
        )

    @property
    def is_silent(self) -> bool:
        """Whether it has been silent for long enough to report, and that isn't reported yet. This
        uses the process's own monotonic clock, so that neither a stepped clock nor a stopped agent
        looks like silence."""
        account = self.progress.account
        if (
            self.life not in (Life.LIVE, Life.ORPHANED)
            or account.state != RUNNING
            or account.silent_ns == account.newest_ns
        ):
            return False
        return time.monotonic() - self.read_at > UNRESPONSIVE_NS / 1e9

    def note_waiting(self, since_ns: int) -> None:
        """Note that something new is there."""
        self.waiting_since_ns = self.waiting_since_ns or since_ns

    def note_round(self) -> None:
        """Note a committed round; anything left is younger than the shipped frames."""
        self.committed = self.progress.position, self.progress.done
        caught_up = self.reader.position == self.capture.learn_reader.position
        self.waiting_since_ns = 0 if caught_up else self.progress.account.newest_ns

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
