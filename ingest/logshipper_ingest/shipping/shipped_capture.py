"""A capture as one Loki's shipper goes through it: where it reads, what is checkpointed, what it
keeps meanwhile."""

import os
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from logshipper_ingest.shipping.followed_capture import FollowedCapture

FIRST_SEGMENT = 1
ENTRY_BYTES = 100  # what an entry costs at Loki besides its line, about: a share is what is sent


class ShippedCapture:
    """One thread's, its shipper's; others read what is `committed`.

    committed: position, and whether that is the end, as they stand in the checkpoints. read_at:
    when a frame was last read, by the monotonic clock. pending_batch: read, and put off.
    waiting_since_ns: the time of the first frame that isn't shipped, 0 where all is.
    served_turn: the shipper's last round with it. trouble: why it couldn't be read. entries: builds
    what is sent. spooled_bytes: what isn't shipped, as last measured, measured_at: when, by the
    monotonic clock.
    """

    def __init__(self, capture: "FollowedCapture", checkpoints: Checkpoints) -> None:
        self.capture = capture
        self.checkpoints = checkpoints
        self.pending_batch: tuple[FrameBatch, Life] | None = None
        self.read_at = time.monotonic()
        self.stale = False
        self.waiting_since_ns = 0
        self.served_turn = 0
        self.trouble = ""
        self.entries: EntryBuilder | None = None
        self.spooled_bytes = 0
        self.measured_at = 0.0
        self._load()

    # ---- what is the capture's

    @property
    def folder(self) -> CaptureFolder:
        return self.capture.folder

    @property
    def identity(self) -> Identity:
        return self.capture.identity

    @property
    def life(self) -> Life:
        return self.capture.life

    @property
    def learnt(self) -> CaptureKnowledge:
        return self.capture.learnt

    @property
    def begun_ns(self) -> int:
        return self.capture.begun_ns

    # ---- checkpoints

    def _load(self) -> None:
        rows = self.checkpoints.shipped(self.folder.key)
        self.has_checkpoint = bool(rows)
        new = (
            None
            if rows
            else CaptureCheckpoint(
                self.folder.key, self.identity, new_account(self.folder, self.identity)
            )
        )
        self.progress = new or rows[0]
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
        """Goes back to the last checkpoint: what came after it is read and sent once more."""
        self.reader.close()
        self.pending_batch = None
        self._load()
        self.stale = False

    def begin_behind(self, slowest: CaptureCheckpoint) -> None:
        """Begins where another sink is, on the disk, too: the segments before that are gone."""
        progress = CaptureCheckpoint(
            slowest.folder, slowest.identity, slowest.account, slowest.position, slowest.done
        )
        progress.counts = Counts(skipped=slowest.account.lines)
        self.checkpoints.commit([progress], {})
        self.reload()

    # ---- how far it is

    @property
    def waits(self) -> bool:
        """Whether there is something to ship."""
        if self.stale:
            return True
        if self.progress.done:
            return False
        if self.is_silent:
            return True
        learnt_to = self.capture.learn_reader.position
        return (
            self.pending_batch is not None or self.learnt.done or self.reader.position != learnt_to
        )

    @property
    def is_silent(self) -> bool:
        """Whether no frame has come for so long that it has yet to be reported. By this process's
        own clock: neither a machine's stepped clock nor an agent that was stopped makes a
        silence."""
        account = self.progress.account
        if (
            self.life not in (Life.LIVE, Life.ORPHANED)
            or account.state != RUNNING
            or account.silent_ns == account.newest_ns
        ):
            return False
        return time.monotonic() - self.read_at > UNRESPONSIVE_NS / 1e9

    def note_waiting(self, since_ns: int) -> None:
        """Something new is there."""
        self.waiting_since_ns = self.waiting_since_ns or since_ns

    def note_round(self) -> None:
        """After a round: where more waits, it is younger than what was shipped."""
        self.committed = self.progress.position, self.progress.done
        caught_up = self.reader.position == self.capture.learn_reader.position
        self.waiting_since_ns = 0 if caught_up else self.progress.account.newest_ns

    def close(self) -> None:
        self.reader.close()


def begin_new(sinks: Sequence[ShippedCapture], new: Collection[Checkpoints]) -> None:
    """Sinks that weren't there when the capture began get all of it where all its segments are
    still there; else what the one that is the furthest behind has yet to get."""
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
