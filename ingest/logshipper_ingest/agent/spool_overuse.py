"""Seizure of captures whose user fills the node's spool past the sidecar.

The sidecar keeps the limits of spool bytes (spool_limits.py). The job's processes own `segments/`
and can write there without it. So the agent measures each capture's disk usage, user by user, for a
limited time per turn. It seizes a capture in two cases:

- a job or user has more blocks than the hard limit and a margin
- a capture or user has more entries than any sidecar creates

It seizes one capture at a time, the one with most foreign files first. The agent becomes the owner
of its `segments/`, removes foreign files and segments beyond the limit, ships the rest and closes
it. The job itself continues.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from logshipper.errors import os_words
from logshipper_ingest.agent.spool_limits import hard_limits, scope_key
from logshipper_ingest.config.agent_config import AgentSection
from logshipper_ingest.console.service_log import Kind, LogLine
from logshipper_ingest.console.text_table import plural, shown_size
from logshipper_ingest.shipping.followed_capture import FollowedCapture, in_turn
from logshipper_ingest.spool.capture_folder import CaptureFolder, Identity, Life
from logshipper_ingest.spool.folder_size import BYTES_PER_ENTRY, FolderSize

LOOK_SECS = 10.0  # between two measurements of a capture
TURN_SECS = 0.2  # of measuring, and as much of removing, per turn
# added to a hard limit and its quarter: file systems allocate ahead
MARGIN_BYTES = 64 << 20
USER_ENTRIES = 20_000  # of all captures of a user: a thousand captures have half of that
MOST_NOTED = 10
MOST_SAID = 20  # lines in the agent's log for a user
REASONS = ("bytes", "entries", "unused")
UNUSED_BYTES = 1 << 20  # of a capture without a writer: no sidecar allocates more
UNUSED_ENTRIES = 20

_NOTHING = FolderSize()

Overuse: TypeAlias = "tuple[FollowedCapture, str, str]"  # with the reason for its seizure, in words


@dataclass
class _Look:
    """Measurement of a capture."""

    at: float = float("-inf")  # monotonic time
    size: FolderSize = _NOTHING
    keep: int | None = None  # bytes of segments that a seized capture keeps
    is_emptied: bool = False  # everything else is removed


class SpoolOveruse:
    """The agent's check of disk usage, for its main thread. taken_counts: seized captures by
    reason; latest: notes of the last ones for `status`."""

    def __init__(self, agent: AgentSection, say: Callable[[str], None]) -> None:
        self._limits = hard_limits(agent)
        self._say = say
        self._looks: dict[str, _Look] = {}
        self._line_counts: Counter[int] = Counter()  # by user
        self._failed = ""
        self.taken_counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self.latest: list[dict[str, object]] = []

    def turn(self, captures: Iterable[FollowedCapture]) -> None:
        captures = list(captures)
        self._looks = {
            capture.folder.key: self._looks.get(capture.folder.key, _Look()) for capture in captures
        }
        self._look(captures)
        for capture, reason, words in self._overused(captures):
            self._take(capture, reason, words, captures)
        self._empty(captures)

    # ---- looking

    def _look(self, captures: Sequence[FollowedCapture]) -> None:
        now = time.monotonic()
        due = sorted(
            (capture for capture in captures if now - self._of(capture).at >= LOOK_SECS),
            key=lambda capture: self._of(capture).at,
        )
        for capture in in_turn(due):
            look = self._of(capture)
            try:
                look.size = capture.folder.size()
            except OSError as error:
                self._log(f"{capture.folder.path}: can't measure its disk usage: {os_words(error)}")
            look.at = now
            if time.monotonic() - now > TURN_SECS:
                break

    def _of(self, capture: FollowedCapture) -> _Look:
        return self._looks[capture.folder.key]

    def _overused(self, captures: Sequence[FollowedCapture]) -> Iterator[Overuse]:
        """Yield each capture to seize once, with reason and words."""
        keys: set[str] = set()
        for overuse in (*self._floods(captures), *self._too_large(captures)):
            key = overuse[0].folder.key
            if key not in keys:
                keys.add(key)
                yield overuse

    def _floods(self, captures: Sequence[FollowedCapture]) -> Iterator[Overuse]:
        by_user: dict[int, list[FollowedCapture]] = defaultdict(list)
        for capture in captures:
            size = self._of(capture).size
            if size.is_flood and self._is_judged(capture):
                yield capture, "entries", f"it has {size.entries:,} files and folders or more"
            elif not capture.folder.is_taken:
                by_user[capture.identity.uid].append(capture)
        for user_captures in by_user.values():
            sizes = [(self._of(capture).size, capture) for capture in user_captures]
            sizes.sort(key=lambda pair: pair[0].entries, reverse=True)
            entries = sum(size.entries for size, _ in sizes)
            segments = sum(size.segments for size, _ in sizes)
            for size, capture in sizes:
                if entries <= USER_ENTRIES + segments // BYTES_PER_ENTRY:
                    break
                yield capture, "entries", f"its user has {entries:,} files and folders in the spool"
                entries -= size.entries

    def _too_large(self, captures: Sequence[FollowedCapture]) -> Iterator[Overuse]:
        for capture in captures:
            look = self._of(capture)
            has_grown = look.keep is not None and look.size.blocks > look.keep + MARGIN_BYTES
            if has_grown and self._is_judged(capture):
                words = f"it has grown to {shown_size(look.size.blocks)} all the same"
                yield capture, "bytes", words
        for scope, limit in self._limits.items():
            for scope_captures in _by_scope(scope, captures).values() if limit else ():
                sizes = [
                    (self._of(capture).size, capture)
                    for capture in scope_captures
                    if not capture.folder.is_taken
                ]
                sizes.sort(key=lambda pair: _odd_first(pair[0]))
                blocks = sum(size.blocks for size, _ in sizes)
                for size, capture in sizes:
                    if blocks <= limit + limit // 4 + MARGIN_BYTES:
                        break
                    words = f"this {scope}'s captures take {shown_size(blocks)} of the spool's disk"
                    option = f"[agent] {scope}_spool_hard_max_bytes = {limit}"
                    yield capture, "bytes", f"{words}, far above what they may have ({option})"
                    blocks -= size.blocks

    def _is_judged(self, capture: FollowedCapture) -> bool:
        """Return whether the limits apply: not to a seized capture that is unfinished or empty."""
        look = self._of(capture)
        return not capture.folder.is_taken or (look.is_emptied and look.keep != 0)

    # ---- taking away

    def _take(
        self, capture: FollowedCapture, reason: str, words: str, captures: Sequence[FollowedCapture]
    ) -> None:
        look = self._of(capture)
        if capture.folder.is_taken:
            look.keep, look.is_emptied = 0, False
            words += ": its segments are removed, too"
            self._note(capture.folder, capture.identity, reason, words)
            return
        try:
            capture.folder.take_away()
        except OSError as error:
            words = f"can't take it from its user: {os_words(error)}; the agent retries"
            self._log(f"{capture.folder.path}: {words}")
            return
        capture.life, capture.next_look = Life.DEAD, 0.0
        look.keep = self._room(capture, captures)
        self.taken_counts[reason] += 1
        words = f"{words}: it is taken from its user, and closed; the job runs on"
        self._note(capture.folder, capture.identity, reason, words)

    def _room(self, capture: FollowedCapture, captures: Sequence[FollowedCapture]) -> int:
        """Return the bytes of its segments that fit into the limits next to other captures."""
        room = [1 << 62]
        for scope, limit in self._limits.items():
            scope_captures = _by_scope(scope, captures)[scope_key(scope, capture)]
            other_bytes = sum(
                self._of(other).size.segments for other in scope_captures if other is not capture
            )
            room += [max(limit - other_bytes, 0)] if limit else []
        return min(room)

    def _empty(self, captures: Sequence[FollowedCapture]) -> None:
        """Empty seized captures; one call removes at most some thousand entries."""
        now = time.monotonic()
        seized = [
            capture
            for capture in captures
            if capture.folder.is_taken and not self._of(capture).is_emptied
        ]
        for capture in in_turn(seized):
            look = self._of(capture)
            if look.keep is None:  # an earlier agent seized it
                look.keep = self._room(capture, captures)
            try:
                look.is_emptied = capture.folder.empty_taken(look.keep)
            except OSError as error:
                words = f"can't empty it: {os_words(error)}; the agent retries"
                self._log(f"{capture.folder.path}: {words}")
            look.at, look.size = float("-inf"), _NOTHING
            if time.monotonic() - now > TURN_SECS:
                break

    def removes_unused(self, folder: CaptureFolder) -> bool:
        """Remove an unused capture with more content than a sidecar creates, over several calls.
        Return whether it has more. Raises OSError."""
        size = folder.size()
        is_small = size.blocks <= UNUSED_BYTES and size.entries <= UNUSED_ENTRIES
        if is_small or not folder.is_unused():  # check again: it may have begun meanwhile
            return False
        if folder.segments_fd >= 0:
            self.taken_counts["unused"] += 1
            words = f"nobody captures there, and it has {shown_size(size.blocks)} in {plural(size.entries, 'entry')}"
            self._note(folder, folder.identity(complete=True), "unused", f"{words}: it is removed")
        folder.remove()
        return True

    # ---- notes and lines in the log

    def _note(
        self, folder: CaptureFolder, identity: Identity | None, reason: str, words: str
    ) -> None:
        if identity is None:
            return
        uid = identity.uid
        note = {"time_ns": time.time_ns(), "job_id": identity.job_id, "user": identity.user}
        note |= {"uid": uid, "reason": reason, "words": words}
        self.latest = [*self.latest, note][-MOST_NOTED:]
        self._line_counts[uid] += 1
        if self._line_counts[uid] <= MOST_SAID:
            line = f"{folder.path}, of uid {uid}: {words}"
            self._say(LogLine(line, Kind.TAKEN, **identity.about(folder.name)))
        elif self._line_counts[uid] == MOST_SAID + 1:
            self._say(f"uid {uid}: the agent only counts further captures taken away")

    def _log(self, words: str) -> None:
        if self._failed != words:
            self._failed = words
            self._say(words)


def _odd_first(size: FolderSize) -> tuple[int, int]:
    """Sort by foreign bytes beyond the usual ones, then by all blocks, largest first."""
    return -max(size.foreign - UNUSED_BYTES, 0), -size.blocks


def _by_scope(
    scope: str, captures: Iterable[FollowedCapture]
) -> dict[object, list[FollowedCapture]]:
    groups: dict[object, list[FollowedCapture]] = defaultdict(list)
    for capture in captures:
        groups[scope_key(scope, capture)].append(capture)
    return groups
