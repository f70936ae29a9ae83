"""Digests of quarantined entries, so that the quarantine holds each entry once. If the agent dies
between quarantining and committing an entry, Loki refuses the entry again. Its digest ignores the
time and reason of the refusal."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

import orjson

MAX_DIGESTS = 100_000  # more than a round has
TAIL_BYTES = 32 << 20  # of a user's files that are read: more than a round's entries
_STEP_BYTES = 64 << 10
_NAMING = ("stream", "kind", "time_ns", "metadata", "line")
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class QuarantinedEntries:
    """The newest entries of each user in a folder, read again after others change a file. Raises
    OSError."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._digests: dict[int, dict[bytes, None]] = {}  # by user, the oldest first
        # by user: name, inode, size and time of change of the files when they were read
        self._file_states: dict[int, list[tuple[str, int, int, int]]] = {}

    def look_up(self, uid: int) -> None:
        """Read the digests of a user's entries if files have changed."""
        files = self._files(uid)
        if uid in self._digests and self._file_states[uid] == files:
            return
        if sum(map(len, self._digests.values())) > MAX_DIGESTS:
            self._digests.clear()  # `look_up` reads them again
        user_digests: dict[bytes, None] = {}
        for line in self._newest_lines([name for name, *_ in files]):
            with suppress(ValueError, TypeError, KeyError):  # a torn line, or not an entry
                user_digests[_digest(orjson.loads(line))] = None
        self._digests[uid], self._file_states[uid] = user_digests, files

    def _files(self, uid: int) -> list[tuple[str, int, int, int]]:
        states: list[tuple[str, int, int, int]] = []
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(f".u{uid}.jsonl"):
                status = os.stat(os.path.join(self._folder, name), follow_symlinks=False)
                states.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
        return states

    def _newest_lines(self, names: list[str]) -> Iterator[bytes]:
        rest_bytes = TAIL_BYTES
        tails: list[bytes] = []
        for name in reversed(names):
            tails.append(_tail(os.path.join(self._folder, name), rest_bytes))
            rest_bytes -= len(tails[-1])
        for tail in reversed(tails):
            yield from tail.split(b"\n")[:-1]  # without the torn line of a killed agent

    def digest_of_new(self, uid: int, document: Mapping[str, object]) -> bytes | None:
        """Return the digest of a new entry for `add`, or None for any other."""
        digest = _digest(document)
        return None if digest in self._digests[uid] else digest

    def add(self, uid: int, digests: Iterable[bytes]) -> None:
        """Note entries that were written to the user's files."""
        user_digests = self._digests[uid]
        user_digests |= dict.fromkeys(digests)
        while len(user_digests) > MAX_DIGESTS:
            del user_digests[next(iter(user_digests))]
        self._file_states[uid] = self._files(uid)


def cut_torn_line(fd: int) -> int:
    """Cut off a killed agent's torn line, whose entry was not committed and comes again. Return the
    remaining size. Raises OSError."""
    size = end = os.fstat(fd).st_size
    while end:
        begin = max(end - _STEP_BYTES, 0)
        last = os.pread(fd, end - begin, begin).rfind(b"\n")
        if last >= 0:
            end = begin + last + 1
            break
        end = begin
    if end < size:
        os.ftruncate(fd, end)
    return end


def _digest(document: Mapping[str, object]) -> bytes:
    identity = [document[name] for name in _NAMING]
    return hashlib.blake2b(
        orjson.dumps(identity, option=orjson.OPT_SORT_KEYS), digest_size=16
    ).digest()


def _tail(path: str, size: int) -> bytes:
    fd = os.open(path, _READ_FLAGS)
    try:
        return os.pread(fd, size, max(os.fstat(fd).st_size - size, 0)) if size > 0 else b""
    finally:
        os.close(fd)
