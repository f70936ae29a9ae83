"""Which entries the quarantine has: who is killed between quarantine and checkpoint, or can't write the checkpoint,
sends a round once more, and Loki refuses the same entries again."""

import hashlib
import os
from collections.abc import Iterator, Mapping

import orjson

MAX_KNOWN = 100_000  # entries, the latest: more than a round has of those that come with Loki's words
READ_BACK_BYTES = 64 << 20  # of a user's latest file
_SAME = ("stream", "kind", "time_ns", "metadata", "line")  # what tells entries apart
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class KnownEntries:
    """Of the files in a folder: those that this process has added, and the latest of each user from before."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._known: dict[bytes, None] = {}  # in the order of their coming
        self._read_back: set[int] = set()  # users

    def has(self, uid: int, document: Mapping[str, object]) -> bool:
        """Raises OSError."""
        if uid not in self._read_back:
            self._read_back.add(uid)
            for earlier in self._latest(uid):
                self.add(earlier)
        return _digest(document) in self._known

    def add(self, document: Mapping[str, object]) -> None:
        self._known[_digest(document)] = None
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _latest(self, uid: int) -> Iterator[Mapping[str, object]]:
        names = [name for name in os.listdir(self._folder) if name.endswith(f".u{uid}.jsonl")]
        if not names:
            return
        fd = os.open(os.path.join(self._folder, max(names)), _FLAGS)
        with open(fd, "rb") as file:
            file.seek(max(0, os.fstat(fd).st_size - READ_BACK_BYTES))
            for line in file:
                try:
                    document = orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue  # cut off: by us, or by a crash
                if isinstance(document, dict):
                    yield document


def _digest(document: Mapping[str, object]) -> bytes:
    same = [document.get(name) for name in _SAME]
    return hashlib.blake2b(orjson.dumps(same, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
