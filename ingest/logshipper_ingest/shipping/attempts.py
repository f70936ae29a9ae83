"""What the shipper is about to send, written down before it is sent: so that the same entries go to
the same streams again, whatever has become of them and of the node meanwhile.

Whether an entry goes to a stream's replay depends on how far it is behind the newest one there.
Were that decided again after an answer got lost, or the agent was killed, then what Loki has in the
one stream would be stored in the other once more, where no query takes the two for one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from logshipper_ingest.shipping.entries import StreamKey
from logshipper_ingest.spool.segment_reader import SpoolPosition
from logshipper_ingest.state.checkpoints import CaptureCheckpoint, Checkpoints

_NOTE = "attempts"


class End(NamedTuple):
    """Up to where a capture was read. done: to its end, which was sent as well."""

    position: SpoolPosition
    done: bool


class _Attempt(NamedTuple):
    """A round."""

    ends: dict[str, End]  # by capture
    newest_ns: dict[str, int]  # the newest entry that a stream has, with what is sent of this round


class Attempts:
    """Those that may not be committed yet; one of each capture. Raises StoreError."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._by_capture: dict[str, _Attempt] = {}
        for attempt in map(_from_json, _as_list(checkpoints.note(_NOTE))):
            self._by_capture |= dict.fromkeys(attempt.ends, attempt)

    def end(self, progress: CaptureCheckpoint) -> End | None:
        """Up to where a capture's entries were sent, or begun to be; None where all that is
        committed."""
        attempt = self._by_capture.get(progress.folder)
        if attempt is None or progress.done:
            return None
        end = attempt.ends[progress.folder]
        return end if end.done or end.position > progress.position else None

    def newest_ns(self, capture: str, key: StreamKey) -> int:
        """The newest entry of a stream, as it was when the capture's last attempt began."""
        return self._by_capture[capture].newest_ns.get(key.text, 0)

    def begin(self, ends: Mapping[str, End], newest_ns: Mapping[StreamKey, int]) -> None:
        """The attempt is on the disk when this returns."""
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
        """It is committed."""
        if self.end(progress) is None:
            self._by_capture.pop(progress.folder, None)

    def keep(self, captures: Iterable[str]) -> None:
        """No other captures are there any more."""
        if self._by_capture:
            self._by_capture = {
                capture: self._by_capture[capture]
                for capture in captures
                if capture in self._by_capture
            }


def _as_list(value: object) -> list[Any]:  # Any: JSON that an agent wrote
    return value if isinstance(value, list) else []


def _from_json(value: Any) -> _Attempt:  # Any: likewise
    ends = {
        capture: End(SpoolPosition(*position), done)
        for capture, (position, done) in value["ends"].items()
    }
    return _Attempt(ends, dict(value["newest_ns"]))
