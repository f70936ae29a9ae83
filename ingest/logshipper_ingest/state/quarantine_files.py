"""Reading and rewriting of the quarantine's files, for `replay`, `purge` and `fsck`.

The agent may append to a file at any time, so each writer holds the folder's lock (`folder_lock`)
while it appends or rewrites. A rewriting process also holds REWRITER_LOCK from start to end, so that
offsets in a file stay valid. It replaces a file by a rename: a killed process leaves the old file or
the new one, complete.
"""

import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from logshipper.errors import StoreError, os_words
from logshipper_ingest.servers.loki_push import is_name

FOLDER = "quarantine"  # in the agent's state_dir
REWRITER_LOCK = "quarantine.lock"  # likewise
LOCK_SECS = 60.0  # rewriting a user's share of the default size takes some seconds
MAX_ENTRY_BYTES = 64 << 20  # fits the longest log line with every byte escaped
_MAX_TIME_NS = (1 << 63) - 1
_NEW = ".rewritten-"
_FILE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\.u(-?[0-9]{1,10})\.jsonl")
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_POLL_SECS = 0.02
_LATER = ("host", "tenant", "capture")  # missing in files of earlier versions


class QuarantineEntry(NamedTuple):
    """A refused entry; stream, kind, host and tenant are from its stream's key."""

    reason: str
    status: int
    words: str
    refused_ns: int
    stream: str
    kind: str
    time_ns: int
    metadata: Mapping[str, str]
    line: str
    host: str  # "" for the agent's own
    tenant: str
    uid: int  # of its owner
    capture: str  # its folder, "" if unknown

    @property
    def job_id(self) -> str:
        return self.metadata.get("job_id", "")


class QuarantineLine(NamedTuple):
    """A line of a file."""

    offset: int  # in bytes
    size: int  # in bytes, with its LF
    entry: QuarantineEntry | None  # None for an invalid line
    whole: bool  # whether it ends with LF


# takes a line and its bytes, and returns the bytes that replace it
Decide = Callable[[QuarantineLine, bytes], bytes]


@contextmanager
def folder_lock(folder: str, secs: float = LOCK_SECS) -> Iterator[None]:
    """Hold the lock for appending to the files or replacing one. Raises StoreError if others hold
    it for so long."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(folder, f"can't be opened: {os_words(error)}") from None
    try:
        deadline = time.monotonic() + secs
        while not _try_lock(fd):
            if time.monotonic() > deadline:
                words = f"is locked by another process for over {secs:g} s"
                raise StoreError(folder, words) from None
            time.sleep(_LOCK_POLL_SECS)
        yield
    finally:
        os.close(fd)


@contextmanager
def rewriter_lock(state_dir: str) -> Iterator[None]:
    """Hold the lock of the one process that may rewrite. Raises StoreError if another holds it."""
    path = os.path.join(state_dir, REWRITER_LOCK)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not os.path.isdir(state_dir):
            raise StoreError(
                state_dir, "isn't there: no agent has run with this [agent] state_dir"
            ) from None
        raise StoreError(path, f"can't be opened: {os_words(error)}") from None
    try:
        if not _try_lock(fd):
            words = "another `logshipper-agent replay`, `purge` or `fsck` is at work; try again"
            raise StoreError(path, words)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def names(folder: str) -> list[str]:
    """Return the files, the oldest first; none without a folder. Raises StoreError."""
    try:
        file_names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(folder, f"can't be read: {os_words(error)}") from None
    return sorted(name for name in file_names if _FILE.fullmatch(name))


def size(sink_dir: str) -> int:
    """Return the bytes of all files of a sink's quarantine. Raises StoreError."""
    folder = os.path.join(sink_dir, FOLDER)
    return sum(os.path.getsize(os.path.join(folder, name)) for name in names(folder))


def leftovers(folder: str) -> list[str]:
    """Return the incomplete files of killed rewriters."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(_NEW))
    except OSError:
        return []


def remove_leftovers(folder: str) -> None:
    """Remove them; the caller holds the rewriter's lock."""
    for name in leftovers(folder):
        path = os.path.join(folder, name)
        try:
            os.unlink(path)
        except OSError as error:
            raise StoreError(path, f"can't be removed: {os_words(error)}") from None


def read_lines(folder: str, name: str) -> Iterator[QuarantineLine]:
    """Yield all lines in order. Raises StoreError."""
    for line, _ in read_bytes(folder, name):
        yield line


def read_at(folder: str, name: str, line: QuarantineLine) -> QuarantineEntry:
    """Read an entry from `read_lines` again. The caller holds the rewriter's lock. Raises
    StoreError."""
    path = os.path.join(folder, name)
    with _open_file(folder, name) as fd:
        entry = _parse(os.pread(fd, line.size, line.offset), _uid(name))
    if entry is None:
        words = f"at byte {line.offset}: the entry has changed since; run the command again"
        raise StoreError(path, words)
    return entry


def rewrite(folder: str, name: str, decide: Decide) -> None:
    """Replace each line by the result of decide, b"" to delete it, and remove an empty file. The
    caller holds the rewriter's lock. Raises StoreError and then keeps the old file."""
    new = os.path.join(folder, f"{_NEW}{name}")
    path = os.path.join(folder, name)
    with folder_lock(folder):
        try:
            if _write_new(folder, name, new, decide):
                os.rename(new, path)
            else:
                os.unlink(new)
                os.unlink(path)
            sync_folder(folder)
        except OSError as error:
            words = f"can't be rewritten: {os_words(error)}; it is unchanged"
            raise StoreError(path, words) from None


def _write_new(folder: str, name: str, new: str, decide: Decide) -> bool:
    """Write the new file; return whether it has any content."""
    size = 0
    fd = os.open(new, _NEW_FLAGS, 0o600)
    with open(fd, "wb") as file:
        for line, raw in read_bytes(folder, name):
            size += file.write(decide(line, raw))
        file.flush()
        os.fsync(fd)
    return size > 0


def read_bytes(folder: str, name: str) -> Iterator[tuple[QuarantineLine, bytes]]:
    """Yield all lines with their bytes. Raises StoreError."""
    uid = _uid(name)
    with _open_file(folder, name) as fd, open(fd, "rb", closefd=False) as file:
        offset = 0
        while raw := file.readline(MAX_ENTRY_BYTES):
            whole = raw.endswith(b"\n")
            yield QuarantineLine(offset, len(raw), _parse(raw, uid) if whole else None, whole), raw
            offset += len(raw)


@contextmanager
def _open_file(folder: str, name: str) -> Iterator[int]:
    path = os.path.join(folder, name)
    try:
        fd = os.open(path, _READ_FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise StoreError(path, "isn't a regular file")
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(path, f"can't be read: {os_words(error)}") from None


def _uid(name: str) -> int:
    match = _FILE.fullmatch(name)
    return int(match[1]) if match else -1


def _parse(raw: bytes, uid: int) -> QuarantineEntry | None:
    """Return the entry, or None if `Quarantine` can't have written the line: a full disk, a torn
    write or an editor may have spoilt it."""
    try:
        document: Any = orjson.loads(raw)  # Any: JSON, each field of which is checked
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict):
        return None
    numbers = {name: document.get(name, 0) for name in ("refused_ns", "status", "time_ns")}
    names = ("reason", "words", "stream", "kind", "line", *_LATER)
    texts = {name: document.get(name, "") for name in names}
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return None
    is_valid = (
        all(type(number) is int and 0 <= number < _MAX_TIME_NS for number in numbers.values())
        and all(isinstance(text, str) for text in texts.values())
        and texts["kind"]
        and "line" in document
        and all(is_name(name) and isinstance(value, str) for name, value in metadata.items())
    )
    return QuarantineEntry(**numbers, **texts, metadata=metadata, uid=uid) if is_valid else None


def sync_folder(folder: str) -> None:
    """Sync the names of its files to the disk. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
