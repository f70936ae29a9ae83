"""Jobs, as programs read them: `logshipper.Store`, over the local store or over Loki, with the same
answers."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from logshipper.errors import LogshipperError, StoreError, UnknownJob
from logshipper.spool.captures import store_root
from logshipper_ingest.model.job import JobSummary
from logshipper_observe.api.job_api import Job, StreamName
from logshipper_observe.api.lazy_answers import LazyAnswers
from logshipper_observe.base.words import state_of
from logshipper_observe.model.documents import STREAM_NAMES, STREAMS
from logshipper_observe.model.overlay import Overlay
from logshipper_observe.model.properties import field_of
from logshipper_observe.query.conditions import parse_condition, tag_condition
from logshipper_observe.query.listing import JobQuery, Listing
from logshipper_observe.query.opening import open_folder, open_loki, overlay_of
from logshipper_observe.query.selectors import resolve_each

if TYPE_CHECKING:
    from logshipper_ingest.model.stores import History, JobStore, Reader
    from logshipper_observe.api.job_ends import Waiting
    from logshipper_observe.model.job_info import JobInfo
    from logshipper_observe.query.info_lookup import Found
    from logshipper_observe.search.line_search import LineSearch

INGEST_SECS = 60.0
T = TypeVar("T")


class TimedOut(LogshipperError):
    """The time was up before all jobs had ended. left: ids of those that hadn't."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        self.left = tuple(job_ids)
        super().__init__(f"the time was up before {', '.join(self.left)} had ended")


class Jobs(LazyAnswers[Job]):
    """The selected jobs, read lazily and again in each pass.

    `len(jobs)`, `jobs[0]` and `jobs[:10]` refer to the present jobs. unknown: after a pass, an
    error for each selector without a job.
    """

    _TITLES = ("job", "name", "state", "started (UTC)", "took", "exit code", "records", "tags")

    def __init__(
        self,
        list_jobs: Callable[[], Listing],
        job: "Callable[[Listing], Iterator[Job]]",
        limit: int | None,
    ):
        self.unknown: list[UnknownJob] = []
        self._list = list_jobs
        self._job = job
        self._limit = limit

    def _read(self) -> Iterator[Job]:
        listing = self._list()
        yield from islice(self._job(listing), self._limit)
        self.unknown = listing.unknown

    def _cells(self, item: Job) -> Sequence[object]:
        return [value for _, value in item._properties()]


@dataclass(frozen=True, slots=True)
class Match:
    """A line that `Store.grep` found."""

    job: Job
    number: int  # in the job's log, from 1; 0 for a job in Loki
    time_ns: int  # nanoseconds since 1970
    stream: str  # `stdout` or `stderr`, "" for notes of neither
    text: str  # without colours
    printed: int = 1  # number of times: a note of repeats stands for several


class Store:
    """An open store; close it, or use it in a `with`.

    `Store()` opens the store of commands without --from: the local store, or Loki if the site file
    says so. `Store.local` and `Store.loki` open another one. problems: faults that stopped nothing,
    a sentence each.
    """

    def __init__(
        self,
        store: "JobStore | None" = None,
        overlay: Overlay | None = None,
        problems: list[str] | None = None,
    ) -> None:
        self.problems = [] if problems is None else problems
        self._store = _default_store(self.problems) if store is None else store
        self._overlay = overlay or overlay_of(self._store, self.problems.append)
        self._closed = False

    @classmethod
    def local(cls, path: "str | os.PathLike[str] | None" = None) -> "Store":
        """A local store. path: its folder; None for $LOGSHIPPER_STORE, else the user's own. Raises
        StoreError."""
        return cls(_local_store(None if path is None else os.fspath(path)))

    @classmethod
    def default(cls) -> "Store":
        """Return `Store()`."""
        return cls()

    @classmethod
    def loki(
        cls,
        url: str | None = None,
        *,
        site: "str | os.PathLike[str] | None" = None,
        prometheus_url: str | None = None,
        cluster: str | None = None,
        since_secs: float | None = None,
    ) -> "Store":
        """Open a site's Loki.

        url, prometheus_url: replace the site file's addresses; site: another site file; cluster:
        only its jobs; since_secs: age of the oldest jobs, 7 days by default. Credentials come from
        the site file. Raises ConfigError; a Loki that does not answer raises QueryError later.
        """
        from logshipper_ingest.config.site import find

        file = None if site is None else os.fspath(site)
        loki_site = find(os.environ, path=file, loki_url=url, prometheus_url=prometheus_url)
        problems: list[str] = []
        store = open_loki(loki_site, since_secs=since_secs, cluster=cluster, say=problems.append)
        return cls(store, problems=problems)

    # ---- jobs

    def jobs(
        self,
        *selectors: str,
        filter: "str | Sequence[str]" = (),
        tags: "str | Sequence[str]" = (),
        state: "str | Sequence[str]" = (),
        name: str = "",
        sort: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Jobs:
        """Return the jobs that meet all conditions, newest first, read lazily.

        selectors: ids, names, ranges `a3-a9`, wildcards; filter: conditions such as `loss<0.3`;
        tags: `baseline`, `dataset=cifar10`; state: names of states; name: a part of the name, or a
        pattern; sort: a property, tag or key, smallest first; reverse: reverses the order; limit:
        the most jobs. docs/reading.md describes the conditions. Raises ConfigError for invalid
        ones; reads nothing before the first pass.
        """
        conditions = [parse_condition(text) for text in _several(filter)]
        conditions += [tag_condition(text) for text in _several(tags)]
        states = [state_of(text) for text in _several(state)]
        key = field_of(sort) if sort else None
        query = JobQuery(selectors, states, name, conditions, key, reverse)
        return Jobs(lambda: self._listing(query), self._jobs_of, limit)

    def job(self, name: str) -> Job:
        """Return a job by its id, its name (the newest with that name), a unique beginning of its
        id, or `last`.

        Raises UnknownJob, with suggestions.
        """
        self._ingest()
        with self._store.open(self._store.resolve(name)) as reader:
            summary = reader.summary
        marks = self._overlay.of(summary.key)
        return Job(self._store, summary, self._overlay, marks, check=self._check)

    def grep(
        self,
        pattern: "str | Sequence[str]",
        *selectors: str,
        fixed: bool = False,
        ignore_case: bool = False,
        words: bool = False,
        invert: bool = False,
        stream: StreamName = "both",
        limit: int | None = None,
        filter: "str | Sequence[str]" = (),
        tags: "str | Sequence[str]" = (),
        state: "str | Sequence[str]" = (),
        name: str = "",
    ) -> Iterator[Match]:
        """Yield the lines that match a regular expression of RE2, or one of several, as they are
        found: job by job, newest first, in order within a job.

        selectors, filter, tags, state, name: the searched jobs, as in `jobs`; fixed: the patterns
        are texts; words: whole words; invert: the other lines; limit: the most lines of a job.
        Raises ConfigError for an invalid expression; `problems` gets unreadable jobs.
        """
        from logshipper_observe.search.line_search import LineSearch

        search = LineSearch(
            _several(pattern),
            fixed=fixed,
            ignore_case=ignore_case,
            words=words,
            invert=invert,
            streams=STREAMS[stream],
            limit=limit,
        )
        found = self.jobs(*selectors, filter=filter, tags=tags, state=state, name=name)
        return self._matches(found, search)

    def _matches(self, found: Jobs, search: "LineSearch") -> Iterator[Match]:
        from logshipper_observe.search.job_search import search_jobs

        jobs = {job.summary.key: job for job in found}
        self.problems += map(str, found.unknown)
        summaries = [job.summary for job in jobs.values()]
        with closing(search_jobs(self._store, summaries, search, self.problems.append)) as answers:
            for answer in answers:
                job = jobs[answer.job.key]
                for line in answer.matches:
                    self._check()
                    stream = STREAM_NAMES[line.stream]
                    yield Match(job, line.number, line.time_ns, stream, line.text, line.printed)

    def info(self, *names: str) -> "Found[JobInfo]":
        """Return data about each of these jobs, by the given name.

        names: ids, names (jobs NAME:0, NAME:1, ... become iterations of one), ranges and wildcards
        (found by ids). `unknown` has an error for each name without a job; it raises none.
        """
        from logshipper_observe.query.info_lookup import infos

        self._ingest()
        return infos(self._store, names, self._store.resolve, time.time_ns())

    def status(self, *names: str) -> "Found[str]":
        """Return the states of `info`."""
        from logshipper_observe.query.info_lookup import Found, infos

        self._ingest()
        job_infos = infos(self._store, names, self._store.resolve, time.time_ns(), children=False)
        states: Found[str] = Found()
        states.update({name: info.status for name, info in job_infos.items()})
        states.unknown = job_infos.unknown
        return states

    def _listing(self, query: JobQuery) -> Listing:
        self._ingest()
        return Listing(self._store, self._overlay, query)

    def _jobs_of(self, listing: Listing) -> Iterator[Job]:
        for row in listing.rows():
            yield Job(self._store, row.job, self._overlay, row.marks, check=self._check)

    def _in_order(self, jobs: Sequence[JobSummary]) -> "Callable[[JobSummary], Reader]":
        return self._checked(self._store.in_order(jobs))

    def _histories(self, jobs: Sequence[JobSummary]) -> "Callable[[JobSummary], History]":
        return self._checked(self._store.histories(jobs))

    def _checked(self, open_reader: "Callable[[JobSummary], T]") -> "Callable[[JobSummary], T]":
        def reader(job: JobSummary) -> "T":
            self._check()
            return open_reader(job)

        return reader

    def _ingest(self) -> None:
        self._check()
        self.problems += self._store.ingest(deadline_secs=INGEST_SECS).problems

    # ---- waiting

    def wait_all(self, *selectors: str, timeout_secs: float | None = None) -> dict[str, str]:
        """Wait until all of these jobs have ended; return their states by id.

        Raises TimedOut when the time is up, and UnknownJob for an unknown job before any wait.
        """
        wait = self._wait_for(selectors, timeout_secs)
        ended = {job.job_id: job.state for job in wait.ended()}
        if wait.pending:
            raise TimedOut(wait.pending)
        return ended

    def wait_any(
        self, *selectors: str, timeout_secs: float | None = None
    ) -> tuple[str, str] | tuple[None, None]:
        """Waits until one of these jobs has ended, or had before: its id and state, or (None, None)
        when the time is up. Nothing is remembered between two calls. Raises UnknownJob."""
        for job in self._wait_for(selectors, timeout_secs).ended():
            return job.job_id, job.state
        return None, None

    def _wait_for(self, selectors: Sequence[str], timeout_secs: float | None) -> "Waiting":
        from logshipper_observe.api.job_ends import Waiting

        self._ingest()
        ids, unknown = resolve_each(selectors, self._store.resolve, self._store.jobs)
        if unknown:
            raise unknown[0]
        return Waiting(self._store, ids, timeout_secs=timeout_secs)

    # ---- its end

    def close(self) -> None:
        """Close the store; its jobs become unreadable."""
        if not self._closed:
            self._closed = True
            self._store.close()

    def _check(self) -> None:
        if self._closed:
            raise ValueError("the store is closed")

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _local_store(path: str | None) -> "JobStore":
    root = store_root(path)
    store = open_folder(root)
    if store is None:
        raise StoreError(root, "there is no store here yet; `logshipper run -- COMMAND` makes one")
    return store


def _default_store(problems: list[str]) -> "JobStore":
    """Raises StoreError, ConfigError."""
    from logshipper_ingest.config.site import default_source, find

    if os.environ.get("LOGSHIPPER_STORE") or default_source(os.environ) == "local":
        return _local_store(None)
    return open_loki(find(os.environ), say=problems.append)


def _several(texts: "str | Sequence[str]") -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts
