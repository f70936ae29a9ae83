"""Names on a terminal the server that a command waits for, if the wait is long."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from logshipper_observe.base.running import say

if TYPE_CHECKING:
    from logshipper_ingest.loki.account import LokiEntry
    from logshipper_ingest.loki.reader import Direction, Entries

AFTER_SECS = 5.0
_LOOK_SECS = 0.25
_CLEAR_LINE = "\r\x1b[K"


class _Wait(NamedTuple):
    server: str
    since: float


class Watch:
    """Names the server on stderr, once per wait, in a thread of its own."""

    def __init__(self) -> None:
        self._wait: _Wait | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        self._closed.set()

    @contextmanager
    def waiting_for(self, server: str) -> Iterator[None]:
        self._wait = _Wait(server, time.monotonic())
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, daemon=True, name="waiting")
            self._thread.start()
        try:
            yield
        finally:
            self._wait = None

    def _look(self) -> None:
        last_wait: _Wait | None = None
        while not self._closed.wait(min(_LOOK_SECS, AFTER_SECS)):
            wait = self._wait
            if wait is None or wait is last_wait:
                continue
            if time.monotonic() - wait.since >= AFTER_SECS:
                last_wait = wait
                _tell(f"waiting for {wait.server}")


class WatchedEntries:
    """A client of Loki with watched waits: those for the next entry, without the reader's own work."""

    def __init__(self, client: "Entries", watch: Watch) -> None:
        self.name = client.name
        self._client = client
        self._watch = watch

    def entries(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        direction: "Direction" = "forward",
        page: int = 5000,
    ) -> "Iterator[LokiEntry]":
        entries = iter(
            self._client.entries(logql, begin_ns, end_ns, direction=direction, page=page)
        )
        while True:
            with self._watch.waiting_for(self.name):
                entry = next(entries, None)
            if entry is None:
                return
            yield entry


def _tell(sentence: str) -> None:
    sys.stderr.write(_CLEAR_LINE)  # a bar may occupy the line
    say(sentence)
