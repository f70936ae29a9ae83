"""Which entries lie in the quarantine already: what was put there and never committed is refused
once more, and must not stand there twice. Entries are known by what tells them apart, not by when
or why they were refused."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

import orjson

MAX_KNOWN = 100_000  # more than a round has
TAIL_BYTES = 32 << 20  # of a user's files, looked at once: more than a round's entries take
_STEP_BYTES = 64 << 10
_NAMING = ("stream", "kind", "time_ns", "metadata", "line")
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class QuarantinedEntries:
    """Of the folder's files, the newest of each user; read again where others have changed them.
    Raises OSError."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[int, dict[bytes, None]] = {}  # by user; each in order of coming
        self._left: dict[
            int, list[tuple[str, int, int, int]]
        ] = {}  # how the user's files were left

    def look_up(self, uid: int) -> None:
        """Has all that lies there of a user's be known."""
        files = self._files(uid)
        if uid in self._known and self._left[uid] == files:
            return
        if sum(map(len, self._known.values())) > MAX_KNOWN:
            self._known.clear()  # all can be read again
        known: dict[bytes, None] = {}
        for line in self._newest_lines([name for name, *_ in files]):
            try:
                known[_digest(orjson.loads(line))] = None
            except (ValueError, TypeError, KeyError):
                pass  # cut off, or somebody else's
        self._known[uid], self._left[uid] = known, files

    def _files(self, uid: int) -> list[tuple[str, int, int, int]]:
        found: list[tuple[str, int, int, int]] = []
        for name in sorted(os.listdir(self._folder)):
            if name.endswith(f".u{uid}.jsonl"):
                there = os.stat(os.path.join(self._folder, name), follow_symlinks=False)
                found.append((name, there.st_ino, there.st_size, there.st_mtime_ns))
        return found

    def _newest_lines(self, names: list[str]) -> Iterator[bytes]:
        left = TAIL_BYTES
        tails: list[bytes] = []
        for name in reversed(names):
            tails.append(_tail(os.path.join(self._folder, name), left))
            left -= len(tails[-1])
        for tail in reversed(tails):
            yield from tail.split(b"\n")[:-1]  # what a killed agent left of a line doesn't count

    def digest_of_new(self, uid: int, document: Mapping[str, object]) -> bytes | None:
        """What `add` takes; None where the entry is known."""
        digest = _digest(document)
        return None if digest in self._known[uid] else digest

    def add(self, uid: int, digests: Iterable[bytes]) -> None:
        """They are in the user's files now."""
        known = self._known[uid]
        known |= dict.fromkeys(digests)
        while len(known) > MAX_KNOWN:
            del known[next(iter(known))]
        self._left[uid] = self._files(uid)


def cut_torn_line(fd: int) -> int:
    """Cuts off what a killed agent left of a line: its entry wasn't committed, and comes again.
    Returns the file's size then. Raises OSError."""
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
    named = [document[name] for name in _NAMING]
    return hashlib.blake2b(
        orjson.dumps(named, option=orjson.OPT_SORT_KEYS), digest_size=16
    ).digest()


def _tail(path: str, size: int) -> bytes:
    fd = os.open(path, _READ_FLAGS)
    try:
        return os.pread(fd, size, max(os.fstat(fd).st_size - size, 0)) if size > 0 else b""
    finally:
        os.close(fd)
