"""`quarantine/`: what Loki refused for good, entry by entry, with its words; synced before it counts as dealt with.

Files are JSON lines, one file a day, at most max_bytes in all: what doesn't fit any more is dropped, and counted.
"""

import os
import time
from typing import NamedTuple

import orjson

from ingest.entries import Chunk
from logshipper.errors import StoreError

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Refusal(NamedTuple):
    """A refused entry. reason: one of a few words; status: HTTP's, 0 where nothing was sent; words: Loki's."""

    chunk: Chunk
    at: int
    reason: str
    status: int
    words: str


class Quarantine:
    """The folder, made where it is missing. Raises StoreError."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self.bytes = self._measured()
        except OSError as error:
            raise self._error(error) from None

    def put(self, refusals: list[Refusal]) -> int:
        """Writes and syncs them; returns how many found no room. Raises StoreError: then nothing counts as written."""
        lines = [orjson.dumps(_document(refusal), option=orjson.OPT_APPEND_NEWLINE) for refusal in refusals]
        fitting = 0
        try:
            size = self._measured()  # somebody may have looked it through and made room
        except OSError as error:
            raise self._error(error) from None
        while fitting < len(lines) and size + len(lines[fitting]) <= self._max_bytes:
            size += len(lines[fitting])
            fitting += 1
        if fitting:
            try:
                self._append(b"".join(lines[:fitting]))
            except OSError as error:
                raise self._error(error) from None
            self.bytes = size
        return len(lines) - fitting

    def _measured(self) -> int:
        with os.scandir(self._folder) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())

    def _append(self, text: bytes) -> None:
        path = os.path.join(self._folder, time.strftime("%Y-%m-%d.jsonl", time.gmtime()))
        fd = os.open(path, _FLAGS, 0o600)
        try:
            before = os.fstat(fd).st_size
            while text:
                written = os.write(fd, text)
                text = text[written:]
            os.fsync(fd)
            if not before:
                self._sync_folder()  # or a power cut takes the file's name
        except OSError:
            os.ftruncate(fd, before)
            raise
        finally:
            os.close(fd)

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _error(self, error: OSError) -> StoreError:
        return StoreError(self._folder, f"can't be written: {(error.strerror or str(error)).lower()}")


def _document(refusal: Refusal) -> dict[str, object]:
    chunk, at = refusal.chunk, refusal.at
    return {
        "refused_ns": time.time_ns(),
        "reason": refusal.reason,
        "status": refusal.status,
        "words": refusal.words,
        "stream": chunk.key.stream,
        "kind": chunk.key.kind,
        "time_ns": chunk.times_ns[at],
        "metadata": chunk.metadata(at),
        "line": chunk.lines[at].decode("utf-8", "replace"),
    }
