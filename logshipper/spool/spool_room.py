"""The room of a capture in the spool: on its disk, and by the limits of the node's agent
(docs/agent.md, "Limits of the spool"). Every sidecar imports it: light imports only.

The agent knows all captures of a job and a user, and sets the size of this capture's segments in a
file beside `segments/`. Root owns the file, so the job (its environment, say) cannot raise a limit,
and it holds without a running agent. Beyond the first mark the sidecar reads SLOW_BYTES_PER_SEC,
and the bounded side pipe slows the job (R28). Beyond the second it drops log lines, and the job
runs at full speed again. On a nearly full disk it drops stderr first, then log lines of stdout;
metadata and events continue until nothing can be written. A mark holds until there is a tenth more
room, so that states do not alternate every second.
"""

import os

from logshipper.named_tuple import NamedTuple
from logshipper.spool.segment import Stream

LIMITS_FILE = "limits"
LIMITS_BYTES = 64
SLOW_BYTES_PER_SEC = 1 << 20
LOOK_SECS = 0.5
# bytes free on the disk, or this part of a small one: below, no stderr
KEPT_FOR_STDOUT = 64 << 20, 20
KEPT_FOR_METADATA = 32 << 20, 40  # below, no log lines at all
_HYSTERESIS = 0.9
_NONE: frozenset[Stream] = frozenset()
_STDERR = frozenset((Stream.STDERR,))
_BOTH = frozenset((Stream.STDOUT, Stream.STDERR))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class SpoolMarks(NamedTuple):
    """The agent's limits. slow_at, stop_at: bytes of the capture's segments, 0 for none; scope:
    `job` or `user`."""

    slow_at: int = 0
    stop_at: int = 0
    scope: str = "job"

    def encode(self) -> bytes:
        """Encode to a constant length: the file is overwritten, even on a full disk."""
        words = f"1 {self.slow_at} {self.stop_at} {self.scope}"
        return words.ljust(LIMITS_BYTES - 1).encode() + b"\n"


def parse_marks(data: bytes) -> SpoolMarks | None:
    """None where data is none of `Marks.encode`."""
    words = data.split()
    if len(words) != 4 or words[0] != b"1" or not (words[1].isdigit() and words[2].isdigit()):
        return None
    return SpoolMarks(int(words[1]), int(words[2]), "user" if words[3] == b"user" else "job")


class SpoolRoom:
    """The room of one capture. path: its folder.

    After each `look`: slow: whether to read slowly; left_out: streams with dropped log lines;
    reason: in words.
    """

    def __init__(self, path: str) -> None:
        self._limits = os.path.join(path, LIMITS_FILE)
        self._segments = os.path.join(path, "segments")
        self._due = 0.0
        self.slow = False
        self.left_out = _NONE
        self.reason = ""

    def look(self, now: float, own_bytes: "Callable[[], int]") -> bool:
        """Looks again after LOOK_SECS; whether anything is another than before. own_bytes: of its
        segments, now."""
        if now < self._due:
            return False
        self._due = now + LOOK_SECS
        before = self.slow, self.left_out
        self.slow, self.left_out, self.reason = False, _NONE, ""
        self._mind_disk(before[1])
        marks = self._marks()
        if marks is not None and (marks.slow_at or marks.stop_at):
            self._mind_marks(marks, own_bytes(), *before)
        return before != (self.slow, self.left_out)

    def _mind_disk(self, left_out: frozenset[Stream]) -> None:
        try:
            disk = os.statvfs(self._segments)
        except OSError:
            return
        free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        for streams, (limit, part) in ((_BOTH, KEPT_FOR_METADATA), (_STDERR, KEPT_FOR_STDOUT)):
            reserve = min(limit, whole // part)
            if free < (reserve / _HYSTERESIS if streams <= left_out else reserve):
                self.left_out = streams
                self.reason = "no room left there: the spool's disk is full"
                return

    def _mind_marks(
        self, marks: SpoolMarks, used_bytes: int, slow: bool, left_out: frozenset[Stream]
    ) -> None:
        whose = f"this {marks.scope}'s logs fill what a {marks.scope} may have of the node's spool"
        if marks.stop_at and used_bytes >= marks.stop_at * (
            _HYSTERESIS if left_out == _BOTH else 1.0
        ):
            self.left_out, self.reason = _BOTH, whose
        elif (
            not self.left_out
            and marks.slow_at
            and used_bytes >= marks.slow_at * (_HYSTERESIS if slow else 1.0)
        ):
            self.slow, self.reason = True, whose.replace("fill", "nearly fill")

    def _marks(self) -> SpoolMarks | None:
        try:
            fd = os.open(self._limits, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return parse_marks(os.read(fd, LIMITS_BYTES))
        except OSError:
            return None
        finally:
            os.close(fd)
