"""`quarantine/`: what Loki refused for good, entry by entry, with its words; synced before it counts as dealt with.

Files are JSON lines, one a day and user, at most max_bytes in all: what doesn't fit any more is dropped, and counted.
"""

import os
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson

from ingest.entries import Chunk
from ingest.quarantine_files import folder_lock, sync_folder
from logshipper.errors import StoreError, os_words

USER_SHARE = 1 / 8  # of max_bytes
_SLICE_BYTES = 256 << 10  # written at a time
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Refusal(NamedTuple):
    """Refused entries: all of the chunk's. reason: one of a few words; status: HTTP's, 0 where nothing was sent; words:
    Loki's."""

    chunk: Chunk
    reason: str
    status: int
    words: str


class Quarantine:
    """The folder, made where it is missing. No user's entries take more than USER_SHARE of it. Raises StoreError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._error(error) from None

    def put(self, refusals: Iterable[Refusal]) -> int:
        """Writes and syncs them; returns how many entries found no room. Raises StoreError: then nothing counts as
        written."""
        by_user: dict[int, list[Refusal]] = {}
        for refusal in refusals:
            by_user.setdefault(refusal.chunk.common.uid, []).append(refusal)
        if not by_user:
            return 0
        try:
            with folder_lock(self._folder):
                return sum(self._put(uid, of_user) for uid, of_user in by_user.items())
        except OSError as error:
            raise self._error(error) from None

    def _put(self, uid: int, refusals: Sequence[Refusal]) -> int:
        total, own = self._measured(uid)  # each time: somebody may have made room
        room = min(self._max_bytes - total, int(self._max_bytes * USER_SHARE) - own)
        if room <= 0:
            return sum(len(refusal.chunk.lines) for refusal in refusals)
        day = time.strftime("%Y-%m-%d", time.gmtime())
        fd = os.open(os.path.join(self._folder, f"{day}.u{uid}.jsonl"), _FLAGS, 0o600)
        try:
            before = os.fstat(fd).st_size
            try:
                if before and os.pread(fd, 1, before - 1) != b"\n":
                    _write_all(fd, b"\n")  # what a power cut left is a line of its own, and spoils none of ours
                dropped = _write(fd, refusals, room)
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, before)
                raise
            if not before:
                sync_folder(self._folder)  # or a power cut takes the file's name
        finally:
            os.close(fd)
        return dropped

    def _measured(self, uid: int) -> tuple[int, int]:
        """Bytes of all, and of one user."""
        total = own = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_file() and not entry.name.startswith("."):  # what a killed rewriter left goes with the next
                    size = entry.stat().st_size
                    total += size
                    own += size if entry.name.endswith(f".u{uid}.jsonl") else 0
        return total, own

    def _error(self, error: OSError) -> StoreError:
        return StoreError(self._folder, f"can't be written: {os_words(error)}")


def _write(fd: int, refusals: Sequence[Refusal], room: int) -> int:
    """Writes entry by entry, as far as there is room; returns how many there was none for."""
    dropped = 0
    held: list[bytes] = []
    size = 0
    for refusal in refusals:
        for at in range(len(refusal.chunk.lines)):
            if dropped:
                dropped += len(refusal.chunk.lines) - at
                break
            line = orjson.dumps(_document(refusal, at), option=orjson.OPT_APPEND_NEWLINE)
            room -= len(line)
            if room < 0:
                dropped += len(refusal.chunk.lines) - at
                break
            held.append(line)
            size += len(line)
            if size >= _SLICE_BYTES:
                _write_all(fd, b"".join(held))
                held, size = [], 0
    _write_all(fd, b"".join(held))
    return dropped


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
