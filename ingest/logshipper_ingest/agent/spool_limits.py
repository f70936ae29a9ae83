"""Limits of spool bytes per job and user, written as marks into each capture's directory.

A capture gets the remaining room of its job and its user. The agent rewrites marks that change by
more than _STEP of the limit, or that change the capture's state. Without an agent, the last marks
hold. A new capture has no marks for a turn or two.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter

from logshipper.errors import os_words
from logshipper.spool.spool_room import SpoolMarks
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.shipping.followed_capture import FollowedCapture
from logshipper_ingest.spool.segment_reader import SpoolPosition

SCOPES = ("job", "user")
_STEP = 1 / 16
_WHOLE = SpoolPosition()


class SpoolLimits:
    """The writer of marks. say: receives one line if writing fails. slow, stopped: numbers of
    limited captures in the last turn."""

    def __init__(self, agent: AgentSection, say: Callable[[str], None]) -> None:
        self._slow_limits = {
            "job": agent.job_spool_soft_max_bytes,
            "user": agent.user_spool_soft_max_bytes,
        }
        self._stop_limits = hard_limits(agent)
        self._say = say
        self._written_marks: dict[str, SpoolMarks] = {}
        self._failed = ""
        self.slow = self.stopped = 0

    def turn(self, captures: Iterable[FollowedCapture]) -> None:
        """Measure all captures by a few stat(2) each, and update their marks."""
        sizes = {
            capture: capture.folder.bytes_from(_WHOLE)
            for capture in captures
            if not capture.folder.is_taken
        }
        totals = Counter[tuple[str, object]]()
        for capture, size in sizes.items():
            for scope in SCOPES:
                totals[scope, scope_key(scope, capture)] += size
        self.slow = self.stopped = 0
        for capture, size in sizes.items():
            marks = self._marks(
                {scope: totals[scope, scope_key(scope, capture)] - size for scope in SCOPES}
            )
            is_stopped = 0 < marks.stop_at <= size
            self.stopped += is_stopped
            self.slow += 0 < marks.slow_at <= size and not is_stopped
            old_marks = self._written_marks.get(capture.folder.key)
            if old_marks is None or _differ(old_marks, marks, size):
                self._write_marks(capture, marks)
        present = {capture.folder.key for capture in sizes}
        self._written_marks = {
            key: marks for key, marks in self._written_marks.items() if key in present
        }

    def _marks(self, other_bytes: dict[str, int]) -> SpoolMarks:
        """Return a capture's marks. other_bytes: of other captures, by scope."""
        slow = _nearest(self._slow_limits, other_bytes)
        stop = _nearest(self._stop_limits, other_bytes)
        _, scope = min(filter(None, (stop, slow)), key=itemgetter(0), default=(0, "job"))
        return SpoolMarks(slow[0] if slow else 0, stop[0] if stop else 0, scope)

    def _write_marks(self, capture: FollowedCapture, marks: SpoolMarks) -> None:
        try:
            capture.folder.write_limits(marks.encode())
        except OSError as error:
            words = os_words(error)
            if self._failed != words:
                self._failed = words
                line = f"can't write the limits of spool bytes: {words}; the agent retries"
                self._say(capture.line(line))
            return
        self._failed = ""
        self._written_marks[capture.folder.key] = marks


def hard_limits(agent: AgentSection) -> dict[str, int]:
    """Return the hard limits by scope, 0 for none."""
    return {"job": agent.job_spool_hard_max_bytes, "user": agent.user_spool_hard_max_bytes}


def scope_key(scope: str, capture: FollowedCapture) -> object:
    """Identify the user of a capture, or its job."""
    uid = capture.identity.uid
    return uid if scope == "user" else (uid, capture.identity.job_id)


def _nearest(limits: dict[str, int], other_bytes: dict[str, int]) -> tuple[int, str] | None:
    """Return a capture's lowest mark and its scope. The mark is at least 1 byte: 0 is no limit."""
    marks = [
        (max(limit - other_bytes[scope], 1), scope) for scope, limit in limits.items() if limit
    ]
    return min(marks, default=None)


def _differ(old_marks: SpoolMarks, marks: SpoolMarks, size: int) -> bool:
    """Return whether the marks differ noticeably for a capture of this size."""
    for old, new in ((old_marks.slow_at, marks.slow_at), (old_marks.stop_at, marks.stop_at)):
        if (old <= size) is not (new <= size) or abs(old - new) > _STEP * max(old, new):
            return True
    return old_marks.scope != marks.scope
