"""`quarantine/`: entries that a sink refused for good, with its message, synced before the shipper
commits.

There is one file of JSON lines per day and user. Entries beyond max_bytes in all are dropped and
counted. An entry that is refused again, because the agent died before its checkpoint, is stored once.
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
    """The refusal of all entries of a chunk."""

    chunk: Chunk
    reason: str  # one of a few names
    status: int  # HTTP's, 0 if the agent itself refused
    words: str  # the sink's message

    @property
    def is_behind(self) -> bool:
        """Whether its stream has newer entries, so that a replay stream may accept it."""
        return self.reason == "too_far_behind" and not self.chunk.key.replay


class Quarantine:
    """A quarantine's folder, of which each user gets at most USER_SHARE. Raises StoreError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._entries = QuarantinedEntries(folder)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._error(error) from None

    def put(self, refusals: Iterable[Refusal]) -> int:
        """Write and sync entries; return how many found no room. After StoreError, nothing counts
        as written."""
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
        total_bytes, user_bytes = self._sizes(uid)  # each time, as others may have made room
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
                sync_folder(self._folder)  # else a power cut may lose the file's name
            self._entries.add(uid, digests)
        finally:
            os.close(fd)
        return dropped_count

    def _new_entries(self, uid: int, refusals: Sequence[Refusal]) -> Iterator[tuple[bytes, bytes]]:
        """Yield digest and line of each new entry."""
        for refusal in refusals:
            for at in range(len(refusal.chunk.lines)):
                document = _document(refusal, at)
                digest = self._entries.digest_of_new(uid, document)
                if digest is not None:
                    yield digest, orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)

    def size(self) -> int:
        """Return the bytes of all files. Raises OSError."""
        return self._sizes(0)[0]

    def _sizes(self, uid: int) -> tuple[int, int]:
        """Return the bytes of all files, and of one user's."""
        total_bytes = user_bytes = 0
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # without the file of a killed rewriter, which the next one removes
                if entry.is_file() and not entry.name.startswith("."):
                    size = entry.stat().st_size
                    total_bytes += size
                    user_bytes += size if entry.name.endswith(f".u{uid}.jsonl") else 0
        return total_bytes, user_bytes

    def _error(self, error: OSError) -> StoreError:
        return StoreError(self._folder, f"can't be written: {os_words(error)}")


def _write(fd: int, entries: Iterable[tuple[bytes, bytes]], room: int) -> tuple[list[bytes], int]:
    """Write entries until the room is used up; return the digests of those written, and the number
    of the others."""
    digests: list[bytes] = []
    dropped_count = 0
    unwritten = bytearray()
    for digest, line in entries:
        if dropped_count or len(line) > room:
            dropped_count += 1
            continue
        room -= len(line)
        digests.append(digest)
        unwritten += line
        if len(unwritten) >= _SLICE_BYTES:
            _write_all(fd, bytes(unwritten))
            unwritten.clear()
    _write_all(fd, bytes(unwritten))
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
