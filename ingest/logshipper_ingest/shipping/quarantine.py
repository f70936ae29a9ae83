"""`quarantine/`: what Loki refused for good, entry by entry, with its words; synced before it
counts as dealt with.

Files are JSON lines, one a day and user, at most max_bytes in all: what doesn't fit any more is
dropped, and counted. What was put in and is refused again, since an agent was killed before its
checkpoint, stands there once.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import orjson

from logshipper.errors import StoreError, os_words
from logshipper.fault_points import fault_point
from logshipper_ingest.shipping.entries import Chunk
from logshipper_ingest.state.quarantine_files import folder_lock, sync_folder
from logshipper_ingest.state.quarantined_entries import QuarantinedEntries, cut_torn_line

USER_SHARE = 1 / 8  # of max_bytes
_SLICE_BYTES = 256 << 10  # written at a time
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Refusal(NamedTuple):
    """Refused entries: all of the chunk's."""

    chunk: Chunk
    reason: str  # one of a few words
    status: int  # HTTP's, 0 where nothing was sent
    words: str  # Loki's


class Quarantine:
    """The folder, made where it is missing. No user's entries take more than USER_SHARE of it.
    Raises StoreError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._entries = QuarantinedEntries(folder)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._error(error) from None

    def put(self, refusals: Iterable[Refusal]) -> int:
        """Writes and syncs them; returns how many entries found no room. Raises StoreError: then
        nothing counts as written."""
        by_user: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            by_user.setdefault(refusal.chunk.common.uid, []).append(refusal)
        if not by_user:
            return 0
        try:
            with folder_lock(self._folder):
                return sum(self._put(uid, user_refusals) for uid, user_refusals in by_user.items())
        except OSError as error:
            raise self._error(error) from None

    def _put(self, uid: int, refusals: Sequence[Refusal]) -> int:
        self._entries.look_up(uid)
        total_bytes, user_bytes = self._sizes(uid)  # each time: somebody may have made room
        room = min(self._max_bytes - total_bytes, int(self._max_bytes * USER_SHARE) - user_bytes)
        entries = self._new_entries(uid, refusals)
        if room <= 0:
            return sum(1 for _ in entries)
        day = time.strftime("%Y-%m-%d", time.gmtime())
        fd = os.open(os.path.join(self._folder, f"{day}.u{uid}.jsonl"), _FLAGS, 0o600)
        try:
            before = cut_torn_line(fd)
            try:
                digests, dropped_count = _write(fd, entries, room)
                fault_point("quarantine_written")
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, before)
                raise
            if not before:
                sync_folder(self._folder)  # or a power cut takes the file's name
            self._entries.add(uid, digests)
        finally:
            os.close(fd)
        return dropped_count

    def _new_entries(self, uid: int, refusals: Sequence[Refusal]) -> Iterator[tuple[bytes, bytes]]:
        """Digest and line of each entry that isn't there yet."""
        for refusal in refusals:
            for at in range(len(refusal.chunk.lines)):
                document = _document(refusal, at)
                digest = self._entries.digest_of_new(uid, document)
                if digest is not None:
                    yield digest, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)

    def size(self) -> int:
        """Bytes of all that it holds. Raises OSError."""
        return self._sizes(0)[0]

    def _sizes(self, uid: int) -> tuple[int, int]:
        """Bytes of all, and of one user."""
        total_bytes = user_bytes = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_file() and not entry.name.startswith(
                    "."
                ):  # what a killed rewriter left goes with the next
                    size = entry.stat().st_size
                    total_bytes += size
                    user_bytes += size if entry.name.endswith(f".u{uid}.jsonl") else 0
        return total_bytes, user_bytes

    def _error(self, error: OSError) -> StoreError:
        return StoreError(self._folder, f"can't be written: {os_words(error)}")


def _write(fd: int, entries: Iterable[tuple[bytes, bytes]], room: int) -> tuple[list[bytes], int]:
    """Writes entry by entry, as far as there is room; returns the digests of those written, and how
    many there was no room for."""
    digests: list[bytes] = []
    dropped_count = 0
    lines: list[bytes] = []
    size = 0
    for digest, line in entries:
        if dropped_count or len(line) > room:
            dropped_count += 1
            continue
        room -= len(line)
        digests.append(digest)
        lines.append(line)
        size += len(line)
        if size >= _SLICE_BYTES:
            _write_all(fd, b"".join(lines))
            lines, size = [], 0
    _write_all(fd, b"".join(lines))
    return digests, dropped_count


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _document(refusal: Refusal, at: int) -> dict[str, object]:
    chunk = refusal.chunk
    return {
        "refused_ns": time.time_ns(),
        "reason": refusal.reason,
        "status": refusal.status,
        "words": refusal.words,
        "stream": chunk.key.stream,
        "kind": chunk.key.kind,
        "host": chunk.key.host,
        "tenant": chunk.key.tenant,
        "capture": chunk.capture,
        "time_ns": chunk.times_ns[at],
        "metadata": chunk.metadata(at),
        "line": chunk.lines[at].decode("utf-8", "replace"),
    }
