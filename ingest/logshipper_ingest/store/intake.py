"""Ingests captures' segments from the spool into the jobs' databases, exactly once, even if
processes die.

Each batch of frames takes one transaction with the lines and the position in the segments. Then the
intake removes completely ingested segments. After the job's last batch it updates the catalogue,
then removes the folders of ended captures. After a crash the next run continues from the stored
state. A capture that it cannot ingest (damaged, newer, another user's) never delays the others; the
intake reports it.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from logshipper.errors import LogshipperError, StoreError, os_words
from logshipper.fault_points import fault_point
from logshipper.safe_text import safe
from logshipper.spool.captures import keep_attempts
from logshipper_ingest.model.capture_rows import Rows
from logshipper_ingest.model.job import RUNNING, IngestOutcome, JobSummary
from logshipper_ingest.spool.capture_folder import (
    CaptureFolder,
    FolderSignature,
    Identity,
    Life,
    list_folders,
)
from logshipper_ingest.spool.learning import learn, new_account
from logshipper_ingest.spool.purge_pattern import LinePattern
from logshipper_ingest.spool.purge_segments import PurgeResult, purge_capture
from logshipper_ingest.spool.segment_reader import FrameBatch, Outcome, SegmentReader, SpoolPosition
from logshipper_ingest.sqlite_file import UnwritableError
from logshipper_ingest.store.catalogue import Catalogue
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.job_db import CaptureRow, JobWriter

BATCH_BYTES = 4 << 20
MAX_PROBLEMS = 100  # reported by one run
_LOCK_POLL_SECS = 0.02

Progress = Callable[[int, int], None]


class SpooledCapture(NamedTuple):
    """A capture in the spool."""

    folder: str
    job_id: str
    life: Life
    size: int  # bytes of segments not yet ingested; a partly ingested one counts whole


class _Pending(NamedTuple):
    """A capture to be ingested."""

    folder: str
    identity: Identity
    life: Life
    size: int
    signature: object  # state of the spool before the first read


class _Run:
    """Limits and results of one run."""

    def __init__(self, deadline: float, progress: Progress | None) -> None:
        self.deadline = deadline
        self.progress = progress
        self.taken_bytes = 0
        self.all_bytes = 0
        self.complete = True
        self.problems: list[str] = []

    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def advance(self, size: int) -> None:
        self.taken_bytes = min(self.taken_bytes + size, self.all_bytes)
        if self.progress is not None:
            self.progress(self.taken_bytes, self.all_bytes)


class Intake:
    """Ingests one store's spool.

    wal: see sqlite_file; ended: called with each ended job after its last spooled data.
    """

    def __init__(
        self,
        spool: str,
        jobs: str,
        catalogue: Catalogue,
        *,
        wal: bool,
        ended: Callable[[JobSummary], object],
    ) -> None:
        self._spool = spool
        self._jobs = jobs
        self.catalogue = catalogue
        self._wal = wal
        self._owner = os.geteuid()  # other users' captures stay
        self._ended = ended
        # nothing to do until the signature changes
        self._last_results: dict[str, tuple[object, IngestOutcome]] = {}

    def run(self, deadline: float, job_id: str | None, progress: Progress | None) -> IngestOutcome:
        """Ingest the spool of one job or of all, at least a batch.

        deadline: by time.monotonic(). The caller holds the store's lock.
        """
        run = _Run(deadline, progress)
        with _open_spool(self._spool) as spool_fd:
            if spool_fd is None:
                return IngestOutcome(True, [])
            jobs = self._look(spool_fd, job_id, run)
            for number, (pending_job_id, captures) in enumerate(jobs.items()):
                if number and run.is_over():
                    run.complete = False
                    break
                self._take_job(spool_fd, pending_job_id, captures, run)
        problems = list(dict.fromkeys(safe(problem) for problem in run.problems))
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more problems"]
        return IngestOutcome(run.complete, problems)

    def spooled(self) -> list[SpooledCapture]:
        """List the spooled captures, with sizes as if none were ingested."""
        captures = []
        for folder in self._folders():
            identity = _identity_of(folder)
            size = folder.bytes_from(SpoolPosition())
            job_id = identity.job_id if identity else ""
            captures.append(SpooledCapture(folder.name, job_id, folder.life(), size))
        return captures

    def signature(self) -> dict[str, FolderSignature]:
        """Return the state of each capture by the name of its folder."""
        return {folder.name: folder.signature() for folder in self._folders()}

    # ---- a job that is to go; the caller holds the store's lock

    def check_idle(self, job_id: str) -> int:
        """Return the last attempt of the job in the spool, 0 without one. Raises StoreError for a
        running one."""
        last = 0
        for folder, identity in self._folders_of(job_id):
            if folder.life() is not Life.DEAD:
                raise StoreError(
                    folder.path, f"job {job_id} runs: it can be removed when it has ended"
                )
            last = max(last, identity.attempt)
        return last

    def keep_attempts(self, job_id: str, attempts: int) -> None:
        """Says in the spool how many attempts a removed job had. Raises StoreError."""
        try:
            keep_attempts(self._spool, job_id, attempts)
        except OSError as error:
            raise StoreError(self._spool, f"can't be written: {os_words(error)}") from None

    def drop(self, job_id: str) -> None:
        """Remove the job's spooled data."""
        for folder, _ in self._folders_of(job_id):
            try:
                while not folder.remove():
                    pass
            except OSError as error:
                raise StoreError(folder.path, f"can't be removed: {os_words(error)}") from None

    def purge(self, job_id: str, pattern: LinePattern, *, dry_run: bool) -> PurgeResult:
        """Overwrite the job's spooled lines that match a pattern. The caller holds the store's
        lock."""
        purges = [
            purge_capture(folder, pattern, dry_run=dry_run)
            for folder, _ in self._folders_of(job_id)
        ]
        return PurgeResult(
            sum(purge.lines for purge in purges), [file for purge in purges for file in purge.files]
        )

    def _folders_of(self, job_id: str) -> Iterator[tuple[CaptureFolder, Identity]]:
        for folder in self._folders():
            identity = _identity_of(folder)
            if identity is not None and identity.job_id == job_id:
                yield folder, identity

    def _folders(self) -> Iterator[CaptureFolder]:
        """Yield the captures' folders that can be opened; each stays open until the next."""
        with _open_spool(self._spool) as spool_fd:
            if spool_fd is None:
                return
            for name in list_folders(spool_fd):
                try:
                    folder = self._folder(spool_fd, name)
                except (OSError, LogshipperError):
                    continue  # reported when it is to be ingested
                with folder:
                    yield folder

    def _folder(self, spool_fd: int, name: str) -> CaptureFolder:
        return CaptureFolder(spool_fd, self._spool, name, self._owner)

    # ---- pending work

    def _look(self, spool_fd: int, job_id: str | None, run: _Run) -> dict[str, list[_Pending]]:
        """Captures with something new, by job."""
        jobs: dict[str, list[_Pending]] = {}
        names = list_folders(spool_fd)
        self._last_results = {
            name: self._last_results[name] for name in names if name in self._last_results
        }
        for name in names:
            with _reported(run):
                pending = self._look_at(spool_fd, name, job_id, run)
                if pending is not None:
                    run.all_bytes += pending.size
                    jobs.setdefault(pending.identity.job_id, []).append(pending)
        return jobs

    def _look_at(self, spool_fd: int, name: str, job_id: str | None, run: _Run) -> _Pending | None:
        try:
            folder = self._folder(spool_fd, name)
        except FileNotFoundError:
            return None  # removed meanwhile
        with folder:
            signature = folder.signature()
            life = folder.life()
            identity = folder.identity(complete=life is Life.DEAD)
            if identity is None or life is Life.STARTING or job_id not in (None, identity.job_id):
                return None
            last_result = self._last_results.get(name)
            if last_result is not None and last_result[0] == signature:
                run.complete &= last_result[1].complete
                run.problems += last_result[1].problems
                return None
            return _Pending(name, identity, life, folder.bytes_from(SpoolPosition()), signature)

    # ---- a job

    def _take_job(self, spool_fd: int, job_id: str, captures: list[_Pending], run: _Run) -> None:
        with _reported(run):
            late = [pending for pending in captures if self._attempt(pending, spool_fd) is None]
            over = [pending.folder for pending in late]
            current = [pending for pending in captures if pending not in late]
            if current:
                path = os.path.join(self._jobs, f"{job_id}.db")
                with closing(JobWriter(path, wal=self._wal)) as job:
                    for number, pending in enumerate(current):
                        if number and run.is_over():
                            run.complete = False
                            break
                        with _reported(run):
                            if self._take_capture(spool_fd, job, pending, run):
                                over.append(pending.folder)
                    row = job.catalogue_row(job_id)
                if row is not None:
                    self._put_in_list(row, captures)
                    summary = row.summary
                    if summary.state != RUNNING and summary.records:
                        self._ended(summary)
            fault_point("store_catalogue_updated")
            for name in over:
                with _reported(run), self._folder(spool_fd, name) as folder:
                    while not folder.remove():
                        if run.is_over():
                            run.complete = False
                            break

    def _put_in_list(self, row: CatalogueRow, captures: list[_Pending]) -> None:
        """Into the catalogue: as long as that fails, none of the captures is settled."""
        try:
            self.catalogue.put(row)
        except BaseException:
            for pending in captures:
                self._last_results.pop(pending.folder, None)
            raise

    def _attempt(self, pending: _Pending, spool_fd: int) -> int | None:
        """Return the attempt of a capture; None for a late part of a removed job."""
        attempt = pending.identity.attempt
        stone = self.catalogue.tombstone(pending.identity.job_id)
        if stone is None or attempt > stone.attempt:
            return attempt
        with self._folder(spool_fd, pending.folder) as folder:
            return stone.attempt + 1 if folder.begun_ns() > stone.removed_ns else None

    # ---- a capture

    def _take_capture(self, spool_fd: int, job: JobWriter, pending: _Pending, run: _Run) -> bool:
        """True where the capture is over, and all of it is in the job's database."""
        with self._folder(spool_fd, pending.folder) as folder:
            row = job.capture(folder.key)
            if row is None:
                attempt = self._attempt(pending, spool_fd) or pending.identity.attempt
                source = pending.identity.source._replace(attempt=attempt)
                row = job.add_capture(folder.key, source, new_account(folder, pending.identity))
            run.taken_bytes += row.position.offset
            if row.done:
                return True
            problems = len(run.problems)
            row, outcome = self._read_on(folder, job, row, pending, run)
            if outcome is Outcome.MORE:
                return False
            if not row.done:
                blocked = outcome is Outcome.BLOCKED
                run.complete &= not blocked
                result = IngestOutcome(not blocked, run.problems[problems:] if blocked else [])
                self._last_results[folder.name] = (pending.signature, result)
            return row.done

    def _read_on(
        self, folder: CaptureFolder, job: JobWriter, row: CaptureRow, pending: _Pending, run: _Run
    ) -> tuple[CaptureRow, Outcome]:
        """Ingests batch after batch; Outcome.MORE where time is up, or a capture that prints on has
        brought more."""
        alive = pending.life is Life.LIVE
        remaining_bytes = pending.size
        if folder.segments_fd < 0:
            nothing = FrameBatch([], [], row.position, Outcome.CUT, 0)
            return self._store(folder, job, row, nothing, pending.life, run), Outcome.CUT
        path = os.path.join(folder.path, "segments")
        with closing(
            SegmentReader(folder.segments_fd, path, row.position, owner=self._owner)
        ) as reader:
            while True:
                batch = reader.read(BATCH_BYTES, alive=alive)
                row = self._store(folder, job, row, batch, pending.life, run)
                fault_point("store_committed")
                folder.remove_segments_before(row.position.segment)
                fault_point("store_segments_removed")
                run.advance(batch.frame_bytes)
                remaining_bytes -= batch.frame_bytes
                if batch.outcome is not Outcome.MORE:
                    return row, batch.outcome
                if run.is_over() or (alive and remaining_bytes <= 0):
                    run.complete &= alive and remaining_bytes <= 0
                    return row, Outcome.MORE

    def _store(
        self,
        folder: CaptureFolder,
        job: JobWriter,
        row: CaptureRow,
        batch: FrameBatch,
        life: Life,
        run: _Run,
    ) -> CaptureRow:
        """One transaction: the frames, the capture's account, and how far it is ingested."""
        account, rows = row.account, Rows()
        before = account.reason
        learnt = learn(account, row.axis, rows, batch, folder, life, time.time_ns())
        if learnt.blocked:
            run.problems.append(f"{job.path}: waits in the spool: {learnt.blocked}")
        run.problems += learnt.damages
        has_moved = batch.position != row.position or account.reason != before
        if batch.frames or learnt.damages or learnt.done or has_moved:
            row = row._replace(position=batch.position, done=learnt.done)
            job.write(row, rows)
        return row


def _identity_of(folder: CaptureFolder) -> Identity | None:
    try:
        return folder.identity(complete=True)
    except LogshipperError:
        return None


@contextmanager
def _open_spool(path: str) -> Iterator[int | None]:
    """Hold a descriptor of the spool; None without one."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    except OSError as error:
        raise StoreError(path, f"the spool can't be opened: {os_words(error)}") from None
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _reported(run: _Run) -> Iterator[None]:
    """Turn a fault of one capture or job into a problem of the run; the others continue."""
    try:
        yield
        return
    except LogshipperError as error:
        problem = str(error)
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else "the spool"
        problem = f"{where}: {os_words(error)}"
    except Exception as error:  # captures are untrusted: no error of one may stop the others
        problem = f"ingesting failed, by a fault of logshipper's own: {error!r}"
    run.complete = False
    run.problems.append(problem)


@contextmanager
def intake_lock(path: str, deadline: float) -> Iterator[bool]:
    """Holds the store's lock, a file; False where others hold it until the deadline. Raises
    UnwritableError."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise UnwritableError(path, f"can't be opened: {os_words(error)}") from None
    try:
        yield _lock_until(fd, path, deadline)
    finally:
        os.close(fd)


def _lock_until(fd: int, path: str, deadline: float) -> bool:
    wait = _LOCK_POLL_SECS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remaining_secs = deadline - time.monotonic()
            if remaining_secs <= 0:
                return False
            time.sleep(min(wait, remaining_secs))
            wait = min(2 * wait, 0.2)
        except OSError as error:
            raise UnwritableError(path, f"can't be locked: {os_words(error)}") from None
        else:
            return True
