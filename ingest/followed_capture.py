"""A capture in the node's spool, and how far the agent's two parties have gone through it."""

import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

from ingest.capture_folder import CaptureFolder, Identity, Life
from ingest.checkpoints import Checkpoints, Learnt, Shipped
from ingest.entries import EntryBuilder
from ingest.learning import new_account
from ingest.segment_reader import Batch, SegmentReader, SpoolPosition
from ingest.x_axis import XAxis
from logshipper.errors import SpoolError

ENTRY_BYTES = 100  # what an entry costs at Loki beside its line, about: a share is what is sent


class FollowedCapture:
    """Owns the folder. The learner's thread sets what begins with learn, and life; the shipper's what begins with ship;
    each reads the other's. Raises SpoolError where it isn't a capture that can be followed.

    life: looked at before the learner's last read. learnt: as of now, saved: as it stands in the checkpoints. held:
    read by the shipper, and put off. waiting_since_ns: the time of the first frame that isn't shipped, 0 where all is.
    served_turn: the shipper's last round with it. ship_trouble: why it couldn't read it. entries: builds what it sends.
    begun_ns: when its directory was made. blocked: why it can't be read further. spooled_bytes: what isn't shipped, as
    last measured. next_look, measured_at: by the monotonic clock.
    """

    def __init__(self, folder: CaptureFolder, checkpoints: Checkpoints, identity: Identity) -> None:
        if folder.segments_fd < 0:
            raise SpoolError(folder.path, "has no segments/")
        self.folder = folder
        self.identity = identity
        self.life = Life.STARTING
        self.blocked = ""
        self.next_look = 0.0
        self.pause_secs = 0.0
        self.shown_state = ""
        self.held: tuple[Batch, Life] | None = None
        self.stale = False
        self.waiting_since_ns = 0
        self.served_turn = 0
        self.ship_trouble = ""
        self.entries: EntryBuilder | None = None
        self.damages_told = 0
        self.spooled_bytes = 0
        self.measured_at = 0.0
        self.begun_ns = folder.begun_ns()
        self.saved = checkpoints.learnt(folder.key)
        self.learnt = self.saved or self._nothing_learnt()
        if self.learnt.done:
            self.life = Life.DEAD  # nobody looks any more
        self.learn_reader = self._reader(self.learnt.position)
        self.shipped = self._load(checkpoints)
        self.ship_reader = self._reader(self.shipped.position, line_bytes=ENTRY_BYTES)

    def _reader(self, position: SpoolPosition, *, line_bytes: int = 0) -> SegmentReader:
        path = os.path.join(self.folder.path, "segments")
        return SegmentReader(self.folder.segments_fd, path, position, owner=self.folder.writer, line_bytes=line_bytes)

    def _load(self, checkpoints: Checkpoints) -> Shipped:
        known = checkpoints.shipped(self.folder.key)
        account = new_account(self.folder, self.identity)
        return known[0] if known else Shipped(self.folder.key, self.identity, account)

    def reload(self, checkpoints: Checkpoints) -> None:
        """Goes back to the shipper's last checkpoint: what came after it is read and sent once more."""
        self.ship_reader.close()
        self.held = None
        self.shipped = self._load(checkpoints)
        self.ship_reader = self._reader(self.shipped.position, line_bytes=ENTRY_BYTES)
        self.stale = False

    def begin_learning_again(self) -> None:
        """After a read that raised: what it had taken already is read once more."""
        self.learn_reader.close()
        self.learn_reader = self._reader(self.learnt.position)

    def learn_anew(self, checkpoints: Checkpoints) -> None:
        """From the learner's last checkpoint on: what it took after that may be half taken."""
        self.saved = checkpoints.learnt(self.folder.key)
        self.learnt = self.saved or self._nothing_learnt()
        self.begin_learning_again()

    def _nothing_learnt(self) -> Learnt:
        account = new_account(self.folder, self.identity)
        return Learnt(self.folder.key, SpoolPosition(), False, account, XAxis())

    @property
    def waits(self) -> bool:
        """Whether there is something to ship."""
        if self.stale:
            return True
        if self.shipped.done:
            return False
        return self.held is not None or self.learnt.done or self.ship_reader.position != self.learn_reader.position

    @property
    def is_over(self) -> bool:
        """Whether all of it is shipped and learnt, and the checkpoints say so."""
        return self.shipped.done and self.saved is not None and self.saved.done

    def noted_shipped(self) -> None:
        """After a round: where more waits, it is younger than what was shipped."""
        caught_up = self.ship_reader.position == self.learn_reader.position
        self.waiting_since_ns = 0 if caught_up else self.shipped.account.newest_ns

    def remove_old_segments(self) -> None:
        """Those that both parties have done with. Called by the shipper."""
        saved = self.saved
        if saved is not None:
            self.folder.remove_segments_before(min(self.shipped.position.segment, saved.position.segment))

    def close(self) -> None:
        self.learn_reader.close()
        self.ship_reader.close()
        self.folder.close()


def in_turn(captures: Iterable[FollowedCapture]) -> Iterator[FollowedCapture]:
    """User by user, a capture of each at a time, each user's in the given order: none is behind another's thousand."""
    of_user: dict[int, deque[FollowedCapture]] = defaultdict(deque)
    for capture in captures:
        of_user[capture.identity.uid].append(capture)
    while of_user:
        for uid in list(of_user):
            yield of_user[uid].popleft()
            if not of_user[uid]:
                del of_user[uid]
