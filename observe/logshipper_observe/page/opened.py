"""The store as the page's threads read it: opened by each for itself, since SQLite's connections
and a client of Loki's aren't shared, and ingested by one at a time, at most every INGEST_SECS."""

import argparse
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from logshipper.errors import UnknownJob
from logshipper_observe.query.opening import LIST_SECS, is_from_loki, open_store, store_place

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary
    from logshipper_ingest.model.stores import JobStore, Reader

INGEST_SECS = 0.25


class SharedIngest:
    """What all threads know of ingesting: when it was done last, and what went wrong."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.from_loki = is_from_loki(args)
        self.place = store_place(args)
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._done = 0.0
        self._signature: object = None

    def run(self, store: "JobStore") -> None:
        """Ingests what is spooled, unless that was just done, or another thread does it."""
        if self.from_loki or not self._lock.acquire(blocking=not self._done):
            return
        try:
            if time.monotonic() - self._done < INGEST_SECS and self._done:
                return
            signature = getattr(store, "spool_signature", lambda: None)()
            if signature is None or signature != self._signature or not self._done:
                report = store.ingest(deadline_secs=LIST_SECS)
                self.problems = list(report.problems)
                self._signature = signature if report.complete else None
            self._done = time.monotonic()
        finally:
            self._lock.release()


class OpenedStore:
    """The store of one thread. Opened when it is first asked for, as there may be none yet; close
    it."""

    def __init__(self, intake: SharedIngest) -> None:
        self.intake = intake
        self._stack = ExitStack()
        self._store: JobStore | None = None

    def close(self) -> None:
        self._store = None
        self._stack.close()

    @property
    def poll_secs(self) -> float:
        """How long a page waits between two looks at a job that runs."""
        return self._at_least(1.5)

    @property
    def bar_poll_secs(self) -> float:
        """The same where it shows a running bar: with what the sidecar waits, it is below a second
        old."""
        return self._at_least(0.4)

    def _at_least(self, secs: float) -> float:
        return secs if self._store is None else max(self._store.poll_secs, secs)

    def get(self) -> "JobStore | None":
        """None where there is no store yet. Raises StoreError, ConfigError."""
        if self._store is None:
            self._store = self._stack.enter_context(open_store(self.intake.args))
        if self._store is not None:
            self.intake.run(self._store)
        return self._store

    def jobs(self) -> "Sequence[JobSummary]":
        """Newest first."""
        store = self.get()
        return [] if store is None else store.jobs()

    @contextmanager
    def job(self, job_id: str) -> Iterator["Reader"]:
        """Raises UnknownJob."""
        store = self.get()
        if store is None:
            raise UnknownJob(job_id, f"no job has the id {job_id!r}: there are no jobs yet")
        with store.open(job_id) as reader:
            yield reader
