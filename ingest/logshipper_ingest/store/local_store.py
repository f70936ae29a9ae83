"""The local store: a folder with one SQLite file per job and a catalogue; needs no server.

    catalogue.db    a summary of each job, tombstones of removed ones
    jobs/<id>.db    one job: blocks of lines, metadata records, events, captures, positions in the spool
    spool/          captures' segments before their ingestion (host-local for a store on a network)
    values.db       the last value of each key, for lists
    overlay.db      the readers' tags and notes (logshipper_observe/model/overlay.py)
    allocations.db  nodes given to imported jobs
    importing/      databases of jobs during their import; importing.marks: their tags and notes
    intake.lock     held during ingestion; agent.lock, agent.log: the per-user agent's

Readers call `ingest` first, to see all spooled data. Several programs may use a store at a time.
"""

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from logshipper.errors import LogshipperError, StoreError, UnknownJob
from logshipper.fault_points import fault_point
from logshipper.filesystem import network_type
from logshipper.spool.captures import spool_root
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.model.job import NAME, IngestOutcome, JobSummary
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.model.summary import find_job
from logshipper_ingest.sqlite_file import DamagedError, UnfinishedError
from logshipper_ingest.store.catalogue_rows import CatalogueRow
from logshipper_ingest.store.job_list import JobList
from logshipper_ingest.store.key_cache import MAX_WAITING, KeyCache
from logshipper_ingest.store.store_catalogue import StoreCatalogue
from logshipper_ingest.store.store_folder import find_store, is_empty

if TYPE_CHECKING:
    from logshipper_ingest.model.job import Allocation
    from logshipper_ingest.model.stores import History
    from logshipper_ingest.spool.capture_folder import FolderSignature
    from logshipper_ingest.spool.purge_pattern import LinePattern
    from logshipper_ingest.spool.purge_segments import PurgeResult
    from logshipper_ingest.store.due_marks import Mark
    from logshipper_ingest.store.intake import Intake, Progress, SpooledCapture
    from logshipper_ingest.store.job_imports import JobImports
    from logshipper_ingest.store.job_reader import JobReader
    from logshipper_ingest.store.job_traces import JobPlace


class LocalStore:
    """An open store. Closing it closes all its readers.

    root: its folder; create: creates a missing one; spool: the captures' folder outside the store.
    Raises StoreError: missing, no store, a newer version's, unreadable.
    """

    poll_secs = 0.3  # interval of followers

    def __init__(self, root: str, *, create: bool = False, spool: str | None = None) -> None:
        self.root = os.path.abspath(root)
        file_system = network_type(self.root)
        self.spool = spool or spool_root(self.root, file_system)
        # WAL needs shared memory between all users of the file
        self.uses_wal = file_system is None
        self._jobs = os.path.join(self.root, "jobs")
        self._readers: weakref.WeakSet[JobReader] = weakref.WeakSet()
        find_store(self.root, self.spool, create=create)
        self._catalogue = StoreCatalogue(
            self.root, self._jobs, self.spool, wal=self.uses_wal, creates=create
        )
        self._values = KeyCache(
            self.root, self._job_check, wal=self.uses_wal, writable=self.is_writable
        )
        # to be written, with the stamps of the jobs' databases
        self._histories: dict[str, tuple[CatalogueRow, int]] = {}
        self._last_intake: Intake | None = None

    @property
    def is_writable(self) -> bool:
        """Whether this user can write the store."""
        return self._catalogue.is_writable

    @property
    def _intake(self) -> "Intake":
        """Late: a list of jobs without spooled data does not import it."""
        from logshipper_ingest.store.intake import Intake

        catalogue = self._catalogue.current
        if self._last_intake is None or self._last_intake.catalogue is not catalogue:
            self._last_intake = Intake(
                self.spool, self._jobs, catalogue, wal=self.uses_wal, ended=self.key_values
            )
        return self._last_intake

    def _require_writable(self, act: str) -> None:
        if not self.is_writable:
            raise StoreError(self.root, f"cannot be written, so {act} is impossible")

    @contextmanager
    def _changing(self, act: str) -> Iterator[None]:
        """Hold the store's lock for a change. act: names it in the error. Raises StoreError."""
        self._require_writable(act)
        with self._catalogue.locked() as is_locked:
            if not is_locked:
                raise StoreError(self.root, "another program is ingesting: try again")
            self._catalogue.follow()
            yield

    # ---- ingesting

    def ingest(
        self,
        *,
        deadline_secs: float = 10.0,
        job_id: str | None = None,
        progress: "Progress | None" = None,
    ) -> IngestOutcome:
        """Ingest the spool of one job or of all; stops, incomplete, after the deadline.

        progress: gets bytes ingested, and bytes in all. Reports faults and never raises them: the
        segments stay in the spool until their ingestion.
        """
        problems, self._catalogue.problems = self._catalogue.problems, []
        if is_empty(self.spool):
            return IngestOutcome(True, problems)
        if not self.is_writable:
            capture_count = len(self._intake.spooled())
            if capture_count:
                problems.append(
                    f"{self.root}: can't be written: {plural(capture_count, 'capture')} in the"
                    " spool not ingested"
                )
            return IngestOutcome(not capture_count, problems)
        deadline = time.monotonic() + deadline_secs
        try:
            with self._catalogue.locked(deadline) as is_locked:
                if not is_locked:
                    problems.append(
                        f"{self.root}: another program is ingesting; the answer may be older"
                    )
                    return IngestOutcome(False, problems)
                self._catalogue.follow()
                outcome = self._intake.run(deadline, job_id, progress)
                if self._catalogue.current.is_damaged:
                    self._catalogue.follow()
                    outcome = self._intake.run(deadline, job_id, progress)
            self._values.flush()
        except LogshipperError as error:
            return IngestOutcome(False, [*problems, str(error)])
        return IngestOutcome(outcome.complete, problems + outcome.problems)

    def spooled(self) -> "list[SpooledCapture]":
        """List the spooled captures."""
        return self._intake.spooled()

    def spool_signature(self) -> "dict[str, FolderSignature]":
        """Return the state of each spooled capture, which changes with everything new."""
        return self._intake.signature()

    @contextmanager
    def _job_check(self) -> "Iterator[Callable[[str, int], bool]]":
        """Give a function that tests if a job exists with its stamp; nobody can change jobs
        meanwhile.

        If others hold the store's lock, it finds no job.
        """
        job_ids: set[str] = set()
        with ExitStack() as until:
            try:
                if (
                    until.enter_context(self._catalogue.locked(time.monotonic()))
                    and self._catalogue.current.is_in_place()
                ):
                    job_ids = self._catalogue.current.job_ids()
            except StoreError:
                pass  # only the cache stays unwritten
            yield lambda job_id, stamp: job_id in job_ids and self._stamp(job_id) == stamp

    def _stamp(self, job_id: str) -> int:
        """Another one once the job's database was purged."""
        try:
            return os.stat(self.path_of(job_id)).st_mtime_ns
        except FileNotFoundError:
            return 0

    @contextmanager
    def importing(self, mark: "Mark", *, again: bool = False) -> Iterator["JobImports"]:
        """Give the importer of jobs; holds the store's lock for short times.

        mark, again: see JobImports. Raises StoreError.
        """
        from logshipper_ingest.store.job_imports import JobImports

        with self._changing("import"):
            imports = JobImports(
                self.root, self._catalogue.current, mark=mark, wal=self.uses_wal, again=again
            )
            try:
                yield imports
            finally:
                try:
                    imports.flush()
                finally:
                    imports.close()
                    if self._catalogue.current.is_damaged:
                        self._catalogue.follow()  # so that the next attempt succeeds

    def put_allocations(self, allocations: "Sequence[Allocation]") -> None:
        """Keeps them, each in the place of its earlier row. Raises StoreError."""
        from logshipper_ingest.store.allocations import put_allocations

        self._require_writable("import")
        put_allocations(self.root, allocations, wal=self.uses_wal)

    def allocations(self) -> "list[Allocation]":
        """Return imported allocations of nodes, oldest first, waiting ones last."""
        from logshipper_ingest.store.allocations import read_allocations

        return read_allocations(self.root)

    # ---- jobs

    def jobs(self) -> JobList:
        """All jobs, newest first."""
        now_ns = time.time_ns()
        return JobList(
            self._catalogue.ask(len),
            lambda after, count: self._catalogue.ask(
                lambda list_: list_.jobs(now_ns, after, count)
            ),
            lambda: self._catalogue.ask(lambda list_: list_.states(now_ns)),
        )

    def summary(self, job_id: str) -> JobSummary | None:
        """Return the summary of a job in the list."""
        return self._catalogue.ask(lambda list_: list_.job(job_id, time.time_ns()))

    def resolve(self, name: str) -> str:
        """Return the id of a job by its id, its name (the newest such job), a unique beginning of
        its id, or `last`.

        Raises UnknownJob, with suggestions.
        """
        if name != "last":
            try:
                candidates = self._catalogue.ask(
                    lambda list_: list_.candidates(name, time.time_ns())
                )
                return find_job(name, candidates).job_id
            except UnknownJob:
                pass  # the search through all jobs finds candidates
        return find_job(name, self.jobs()).job_id

    def key_values(self, job: JobSummary) -> Mapping[str, KeyValues]:
        """The last, least and greatest value of each key of a job's metadata by its name. Raises as
        `open` does."""
        values = self._values.get(job)
        if values is None:
            stamp = self._stamp(job.job_id)
            with self.reader_of(job) as reader:
                values = reader.key_values()
            self._values.put(job, values, stamp)
        return values

    def reader_of(self, job: JobSummary) -> "JobReader":
        """Opens one of `jobs`."""
        return self.open(job.job_id)

    def in_order(self, jobs: Sequence[JobSummary]) -> "Callable[[JobSummary], JobReader]":
        """Return `reader_of`: several open jobs would gain nothing."""
        return self.reader_of

    def histories(self, jobs: Sequence[JobSummary]) -> "Callable[[JobSummary], History]":
        """Return jobs' histories from the catalogue, in this order; opens jobs without one, and
        adds it."""
        from logshipper_ingest.store.job_history import HistoryLookup

        lookup = HistoryLookup(
            jobs,
            lambda ids: self._catalogue.ask(lambda list_: list_.histories(ids)),
            self._read_history,
        )
        return lookup.of

    def _read_history(self, job: JobSummary) -> "JobReader":
        from logshipper_ingest.store.job_history import EVENTS, packed_history

        stamp = self._stamp(job.job_id)
        reader = self.reader_of(job)
        if job.job_id not in self._histories and self.is_writable:
            events = reader.events(names=EVENTS)
            text = packed_history(reader.summary, reader.captures, events, reader.details())
            if text is not None:
                self._histories[job.job_id] = CatalogueRow(reader.summary, text), stamp
            if len(self._histories) >= MAX_WAITING:
                self._flush_histories()
        return reader

    def _flush_histories(self) -> None:
        """Write histories of unchanged jobs into the catalogue; a failure loses only a copy."""
        histories, self._histories = self._histories, {}
        if not histories:
            return
        try:
            with self._job_check() as is_current:
                self._catalogue.current.add_histories(
                    [row for job_id, (row, stamp) in histories.items() if is_current(job_id, stamp)]
                )
        except StoreError:
            pass

    def open(self, job_id: str) -> "JobReader":
        """Open a job.

        Raises UnknownJob for an unknown job, or one without ingested data; StoreError for an
        unreadable database.
        """
        path = self.path_of(job_id)
        from logshipper_ingest.store.job_reader import JobReader

        try:
            try:
                reader = JobReader(path, job_id, self.spool)
            except UnfinishedError:
                # being created; its row in the catalogue is outdated, or the file is damaged
                if self.summary(job_id) is None:
                    raise UnknownJob(job_id, f"no job has the id {job_id!r}") from None
                reader = JobReader(path, job_id, self.spool)
        except StoreError:
            if os.path.exists(path):
                raise
            raise UnknownJob(job_id, f"no job has the id {job_id!r}") from None
        self._readers.add(reader)
        return reader

    def path_of(self, job_id: str) -> str:
        """Return the path of a job's database. Raises UnknownJob for an impossible id."""
        if not NAME.fullmatch(job_id):
            raise UnknownJob(job_id, f"{job_id!r} is no job id")
        return os.path.join(self._jobs, f"{job_id}.db")

    def remove(self, *job_ids: str) -> list[str]:
        """Remove jobs: their spool, databases, summaries and marks, overwritten in all files.

        The overwriting is complete once nobody has the store open. Late segments of the jobs are
        dropped. Returns damaged files, set aside earlier, with traces of the jobs. Raises
        UnknownJob; StoreError for a running job, or if a write fails.
        """
        for job_id in job_ids:
            summary = self.summary(job_id)
            if summary is None and not os.path.exists(self.path_of(job_id)):
                raise UnknownJob(job_id, f"no job has the id {job_id!r}")
            if summary is not None and summary.state == "RUNNING" and not summary.origin:
                raise StoreError(
                    self.root, f"job {job_id} runs: it can be removed when it has ended"
                )
        self._require_writable("removal")
        paths, removed = [], []
        with self._changing("removal"):
            try:
                for job_id in job_ids:
                    paths += self._remove_files(job_id)
                    removed.append(job_id)
            finally:
                self._catalogue.current.forget(removed)
        return paths

    def _remove_files(self, job_id: str) -> list[str]:
        """Remove all but the job's row in the catalogue."""
        from logshipper_ingest.store.job_traces import remove_traces

        path = self.path_of(job_id)
        summary = self.summary(job_id)
        attempts = summary.attempts if summary else 0
        last = max(attempts, self._intake.check_idle(job_id), self._last_attempt(path, job_id))
        self._intake.keep_attempts(job_id, last)
        try:
            self._catalogue.current.bury(job_id, last)
        except DamagedError:
            self._catalogue.follow()
            self._catalogue.current.bury(job_id, last)
        fault_point("store_job_buried")
        self._intake.drop(job_id)
        fault_point("store_spool_dropped")
        for reader in list(self._readers):
            if reader.path == path:
                reader.close()
        paths = remove_traces(self._place_of(job_id))
        self._values.forget(job_id)
        self._histories.pop(job_id, None)
        fault_point("store_database_removed")
        return paths

    def purge(self, job_id: str, pattern: "LinePattern", *, dry_run: bool) -> "PurgeResult":
        """Overwrite matches of a pattern in a job's lines, names, tags and notes, in the whole
        store; count them.

        dry_run: only counts. Raises UnknownJob, StoreError.
        """
        from logshipper_ingest.store.job_purge import purge_job

        self.path_of(job_id)
        with self._changing("`purge`"):
            if not dry_run:
                self._values.remove()
                self._histories.clear()
            return purge_job(
                self._place_of(job_id),
                self._intake,
                self._catalogue.current,
                pattern,
                dry_run=dry_run,
            )

    def not_purged(self, job_id: str, pattern: "LinePattern") -> list[str]:
        """List places that `purge` leaves and that may match, a sentence each. Raises StoreError."""
        from logshipper_ingest.store.job_purge import not_purged

        return not_purged(self._place_of(job_id), pattern)

    def _place_of(self, job_id: str) -> "JobPlace":
        from logshipper_ingest.store.job_traces import JobPlace

        return JobPlace(self.root, job_id, self.uses_wal)

    def _last_attempt(self, path: str, job_id: str) -> int:
        from logshipper_ingest.store.job_reader import JobReader

        try:
            with JobReader(path, job_id) as reader:
                return max(capture.attempt for capture in reader.captures)
        except StoreError:
            return 1  # damaged, or gone: it is removed all the same

    def close(self) -> None:
        self._values.flush()
        self._flush_histories()
        for reader in list(self._readers):
            reader.close()
        self._catalogue.current.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
