"""Notes of the shipper's tries, written before it sends: they make a repeated round go to the same
streams.

An entry goes to a stream's replay if it is far behind the newest one there. After a lost answer or
the agent's death, a new decision might differ. Then Loki would store the entry in both streams, and
queries would return it twice.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from logshipper_ingest.shipping.entries import StreamKey
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import CaptureCheckpoint, Checkpoints

_NOTE = "attempts"


class End(NamedTuple):
    """The end of a capture's part of a try."""

    position: SpoolPosition
    done: bool  # it includes the capture's end


class _Attempt(NamedTuple):
    """The note of a round."""

    ends: dict[str, End]  # by capture
    newest_ns: dict[str, int]  # of each stream, with this round's entries


class Attempts:
    """Tries without a commit, at most one per capture. Raises StoreError."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._by_capture: dict[str, _Attempt] = {}
        for document in checkpoints.note(_NOTE) or ():
            ends = {
                capture: End(SpoolPosition(*position), done)
                for capture, (position, done) in document["ends"].items()
            }
            self._by_capture |= dict.fromkeys(ends, _Attempt(ends, document["newest_ns"]))

    def end(self, progress: CaptureCheckpoint) -> End | None:
        """Return the end of a capture's last try, or None if it is committed."""
        attempt = self._by_capture.get(progress.folder)
        if attempt is None or progress.done:
            return None
        end = attempt.ends[progress.folder]
        return end if end.done or end.position > progress.position else None

    def newest_ns(self, capture: str, key: StreamKey) -> int:
        """Return the newest time of a stream when the capture's last try began."""
        return self._by_capture[capture].newest_ns.get(key.text, 0)

    def begin(self, ends: Mapping[str, End], newest_ns: Mapping[StreamKey, int]) -> None:
        """Write down a try; it is on the disk when this returns."""
        attempt = _Attempt(dict(ends), {key.text: time_ns for key, time_ns in newest_ns.items()})
        by_capture = self._by_capture | dict.fromkeys(attempt.ends, attempt)
        attempts = {id(attempt): attempt for attempt in by_capture.values()}
        documents = [
            {
                "ends": {
                    capture: end
                    for capture, end in attempt.ends.items()
                    if by_capture.get(capture) is attempt
                },
                "newest_ns": attempt.newest_ns,
            }
            for attempt in attempts.values()
        ]
        self._checkpoints.put_notes({_NOTE: documents})
        self._by_capture = by_capture

    def settle(self, progress: CaptureCheckpoint) -> None:
        """Forget a committed try."""
        if self.end(progress) is None:
            self._by_capture.pop(progress.folder, None)

    def keep(self, captures: Collection[str]) -> None:
        """Forget all other captures."""
        self._by_capture = {
            key: self._by_capture[key] for key in self._by_capture.keys() & captures
        }
