"""`STATE_DIR/telegraf/unidentified.jsonl`: measurements of unidentified senders, apart from all
jobs.

Only admins who ask for it get this file: the senders may be people without opt-in, or a disabled
job. It keeps the newest: at most max_bytes, in two files, and BYTES_PER_SEC; TEXT_BYTES of each
batch.
"""

import os
import time
from contextlib import suppress

import orjson

from logshipper.errors import SpoolError, os_words
from logshipper.private_folder import make_private_folder
from logshipper_ingest.open_files import opened

FOLDER = "telegraf"
FILE = "unidentified.jsonl"
TEXT_BYTES = 4096
BYTES_PER_SEC = 100_000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW


class UnidentifiedFile:
    """The file. Use it in one thread. Raises SpoolError if its folder cannot be created."""

    def __init__(self, state_dir: str, max_bytes: int) -> None:
        self._folder = os.path.join(state_dir, FOLDER)
        self._path = os.path.join(self._folder, FILE)
        self._max_bytes = max_bytes
        make_private_folder(self._folder)
        self._room = float(BYTES_PER_SEC)
        self._at = time.monotonic()

    def keep(self, sender: str, uid: int, reason: str, data: bytes) -> bool:
        """Write a batch; return whether there was room.

        uid: -1 if unknown.
        """
        text = data[:TEXT_BYTES].decode("utf-8", "replace")
        entry = {"time_ns": time.time_ns(), "from": sender, "uid": uid, "why": reason}
        entry |= {"bytes": len(data), "lines": text}
        line = orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)
        now = time.monotonic()
        self._room = min(self._room + (now - self._at) * BYTES_PER_SEC, BYTES_PER_SEC)
        self._at = now
        if len(line) > self._room or 2 * len(line) > self._max_bytes:
            return False
        self._room -= len(line)
        try:
            self._append(line)
        except OSError:  # a full disk: the caller counts the loss
            return False
        return True

    def _append(self, line: bytes) -> None:
        with suppress(FileNotFoundError):
            size = os.stat(self._path, follow_symlinks=False).st_size
            if size + len(line) > self._max_bytes // 2:
                os.replace(self._path, f"{self._path}.1")
        with opened(self._path, _FLAGS) as fd:
            os.write(fd, line)


def remove_unidentified(state_dir: str) -> bool:
    """Remove the file of an earlier configuration; return whether there was one.

    Raises SpoolError if this fails.
    """
    path = os.path.join(state_dir, FOLDER, FILE)
    has_removed = False
    for name in (path, f"{path}.1"):
        try:
            os.unlink(name)
            has_removed = True
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            remedy = "remove it, or set [telegraf] unidentified_max_bytes"
            raise SpoolError(name, f"{os_words(error)}; {remedy}") from None
    return has_removed
