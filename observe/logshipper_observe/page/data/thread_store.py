"""The store of each thread of the server.

Threads can't share SQLite connections or clients of Loki, so each opens the store. One thread at a
time ingests the spool, at most every INGEST_SECS.
"""

import argparse
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper_observe.model.overlay import NO_MARKS, Marks
from logshipper_observe.query import opening

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import JobStore, Reader

INGEST_SECS = 0.25


class SharedIngest:
    """Ingestion for all threads."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.from_loki = opening.is_from_loki(args)
        self.place = opening.store_place(args)
        self.problems: list[str] = []  # of the last ingestion
        self._lock = threading.Lock()
        self._end = 0.0  # of the last ingestion, monotonic
        self._signature: object = None

    def run(self, store: "JobStore") -> None:
        """Ingest the spool, unless another thread does or just did."""
        if self.from_loki or not self._lock.acquire(blocking=not self._end):
            return
        try:
            if time.monotonic() - self._end < INGEST_SECS and self._end:
                return
            signature = getattr(store, "spool_signature", lambda: None)()
            if signature is None or signature != self._signature or not self._end:
                report = store.ingest(deadline_secs=opening.LIST_SECS)
                self.problems = list(report.problems)
                self._signature = signature if report.complete else None
            self._end = time.monotonic()
        finally:
            self._lock.release()


class ThreadStore:
    """The store of one thread. Opens at the first use, since it may not exist yet. Close it."""

    def __init__(self, intake: SharedIngest) -> None:
        self.intake = intake
        self._stack = ExitStack()
        self._store: JobStore | None = None

    def close(self) -> None:
        self._store = None
        self._stack.close()

    def poll_secs(self, least: float = 1.5) -> float:
        """Return the interval at which a page polls a running job."""
        return least if self._store is None else max(self._store.poll_secs, least)

    def get(self) -> "JobStore | None":
        """Return the store after ingestion, None without one. Raises StoreError, ConfigError."""
        if self._store is None:
            self._store = self._stack.enter_context(opening.open_store(self.intake.args))
        if self._store is not None:
            self.intake.run(self._store)
        return self._store

    def marks(self, reader: "Reader") -> Marks:
        """Return the tags, note and star of a job."""
        store = self.get()
        return opening.overlay_of(store).of(reader.summary.key) if store else NO_MARKS

    def job(self, job_id: str) -> "Reader":
        """Open a job. Raises UnknownJob."""
        store = self.get()
        if store is None:
            raise UnknownJob(job_id, f"no job has the id {job_id!r}: there are no jobs yet")
        return store.open(job_id)
