"""Imports a source's jobs into a store: once, or repeatedly while it grows.

Entries are sorted by job on disk, then each job takes one transaction. So memory stays flat, and an
interrupted import leaves whole jobs. The import holds the store's lock for HELD_SECS, or for one
job.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from logshipper_ingest.imports.faults import Faults
from logshipper_ingest.imports.source_file import Unreadable
from logshipper_ingest.imports.staging import Staging
from logshipper_ingest.imports.workers import Workers
from logshipper_ingest.model.imported import ImportedJob, PositionLookup
from logshipper_ingest.model.job import Allocation, Json
from logshipper_ingest.sqlite_file import DamagedError
from logshipper_ingest.store.due_marks import Mark
from logshipper_ingest.store.job_imports import ImportOutcome, JobImports
from logshipper_ingest.store.local_store import LocalStore

HELD_SECS = 2.0

Progress = Callable[[int, int], None]
# jobs' keys, and functions that wait for their results
_Pending: TypeAlias = deque[tuple[str, Callable[[], ImportOutcome]]]


class ImportSource(Protocol):
    """Files of another system."""

    def size(self) -> int:
        """Bytes in all."""

    def done(self) -> int:
        """Bytes read."""

    def stage(self, staging: Staging, *, last: bool) -> Iterator[None]:
        """Read the entries since the last call; yields now and then. last: includes unfinished
        ones."""

    def jobs(self, staging: Staging, position_of: PositionLookup) -> Iterator[ImportedJob]:
        """All that was staged, job by job."""

    def allocations(self) -> list[Allocation]:
        """The allocations read so far."""

    def is_over(self) -> bool:
        """Return whether the source has ended."""


@dataclass
class ImportCounts:
    """Counts of an import, named as in the command's JSON."""

    entries: int = 0  # that were read
    new: int = 0  # jobs that weren't in the store
    known: int = 0  # jobs that were
    removed: int = 0  # omitted jobs, because the user removed them from the store
    allocations: int = 0


class Taking:
    """A source and its store.

    again: includes removed jobs; mark: gets each imported job, for tags and notes; progress: bytes
    done, and in all; workers: for sources whose jobs have no tags and notes.
    """

    def __init__(
        self,
        store: LocalStore,
        source: ImportSource,
        faults: Faults,
        *,
        mark: Mark,
        again: bool = False,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.counts = ImportCounts()
        self._store = store
        self._source = source
        self._faults = faults
        self._again = again
        self._mark = mark
        self._progress = progress
        self._workers = workers
        if workers is not None and progress is not None:
            workers.advanced = lambda: progress(source.done(), source.size())
        self._imports: JobImports | None = None
        self._new_jobs: set[str] = set()
        self._known_jobs: set[str] = set()
        self._removed_jobs: set[str] = set()

    def run(self, *, last: bool = True) -> None:
        """Ingest the present entries.

        last: includes unfinished ones. Raises StoreError, LogshipperError.
        """
        with Staging(self._store.root, lambda: self._advance(staging)) as staging:
            for _ in self._source.stage(staging, last=last):
                self._advance(staging)
            self.counts.entries += staging.entries_of_files
            jobs = self._source.jobs(staging, self._position_of)
            while self._take(jobs):
                pass
        allocations = self._source.allocations()
        if allocations:
            self._store.put_allocations(allocations)
            self.counts.allocations += len(allocations)

    def _advance(self, staging: Staging) -> None:
        """Reading files is the first half of it, writing jobs the other one."""
        if self._progress is not None:
            size = max(self._source.size(), self._source.done())
            bytes_written = size * min(staging.read_count, staging.count) // max(staging.count, 1)
            self._progress((self._source.done() + bytes_written) // 2, size)

    def _position_of(self, job: ImportedJob) -> Json:
        return {} if self._imports is None else self._imports.position_of(job)

    def _take(self, jobs: Iterator[ImportedJob]) -> bool:
        """Import jobs for HELD_SECS; return whether there may be more."""
        until = time.monotonic() + HELD_SECS
        submit, at_once = None, 1
        if self._workers is not None:
            submit, at_once = self._workers.submit, self._workers.at_once
        pending: _Pending = deque()
        with self._store.importing(self._mark, again=self._again) as self._imports:
            try:
                for job in jobs:
                    if job.is_unchanged:
                        self._count(job.key, is_new=False)
                    else:
                        pending.append((job.key, self._imports.begin(job, submit)))
                    if len(pending) >= at_once:
                        self._finish(*pending.popleft())
                    if time.monotonic() >= until or self._imports.is_full:
                        break
                else:
                    until = 0.0
            finally:
                self._drain(pending)  # nobody writes without the lock
        return until > 0.0

    def _drain(self, pending: "_Pending") -> None:
        """Finish all, even if some fail."""
        if pending:
            try:
                self._finish(*pending.popleft())
            finally:
                self._drain(pending)

    def _finish(self, key: str, result: Callable[[], ImportOutcome]) -> None:
        try:
            imported = result()
        except DamagedError as error:
            self._faults.leave_out_file(error.path, str(error.reason))
            return
        except Unreadable as error:  # its log vanished after the search
            self._faults.leave_out_file(error.path, error.words)
            return
        if imported.log_differs:
            words = "its log differs from the imported one, and is left out (`--as NAME` imports it as another)"
            self._faults.remark(imported.job_id, 0, words)
        if imported.was_removed:
            self._removed_jobs.add(key)
            self.counts.removed = len(self._removed_jobs)
        else:
            self._count(key, is_new=imported.is_new)

    def _count(self, key: str, *, is_new: bool) -> None:
        if is_new:
            self._new_jobs.add(key)
        elif key not in self._new_jobs:
            self._known_jobs.add(key)
        self.counts.new, self.counts.known = len(self._new_jobs), len(self._known_jobs)
