"""Jobs in Loki, with the interface of the local store. Their events describe them; Prometheus helps
to find them.

Everybody may push to Loki: loki/account.py checks the entries. Queries contain only possible job
ids, and all other texts as quoted strings.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from logshipper.errors import UnknownJob
from logshipper.spool.segment import Stream
from logshipper_ingest.loki.account import MAX_CAPTURES, JobAccount, capture_id, is_job_id, job_key
from logshipper_ingest.loki.ahead import Ahead
from logshipper_ingest.loki.finding import Finder, LokiJob, Metrics, begin_of
from logshipper_ingest.loki.line_search import lines_of_jobs
from logshipper_ingest.loki.lines import LokiLine
from logshipper_ingest.loki.reader import (
    AHEAD_NS,
    MARGIN_NS,
    Entries,
    LokiJobReader,
    QuerySpan,
    Reads,
)
from logshipper_ingest.model.capture_id import JobKey
from logshipper_ingest.model.job import (
    CLOSED,
    ENDED,
    EVENT_KINDS,
    HEARTBEAT,
    HISTORY,
    JOB_ENDED,
    SHIPPED_UNRESPONSIVE_NS,
    STARTED,
    STILL_RUNNING,
    Allocation,
    IngestOutcome,
    JobSummary,
)
from logshipper_ingest.model.key_values import KeyValues
from logshipper_ingest.model.stores import Progress
from logshipper_ingest.model.summary import find_job
from logshipper_ingest.servers.logql import selector, with_event, with_metadata, without_event

SECOND_NS = 10**9
POLL_SECS = 1.0
DEFAULT_SINCE_SECS = 7 * 86_400.0  # by default, Loki refuses older entries
MAX_JOBS = 16  # jobs with kept events, for followers
MAX_LOOKED_UP = 20  # jobs of a list with a lookup of the last sign of life
_FRESH_NS = SECOND_NS // 2  # the reader does not repeat such recent reads


class LokiStore:
    """The jobs in Loki. Raises QueryError if Loki does not answer.

    metrics: queries Prometheus, None without one; since_secs: age of the oldest jobs to find;
    cluster: only this one; progress: see LokiJobReader; say: logs, once, faults that stop nothing;
    close: ends connections.
    """

    poll_secs = POLL_SECS

    def __init__(
        self,
        client: Entries,
        *,
        metrics: Metrics | None = None,
        since_secs: float = DEFAULT_SINCE_SECS,
        cluster: str | None = None,
        progress: Progress | None = None,
        say: Callable[[str], None] = lambda words: None,
        close: Callable[[], None] = lambda: None,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self.name = client.name
        self._client = client
        self._since_ns = int(since_secs * SECOND_NS)
        self._cluster = cluster
        self._progress = progress
        self._say = say
        self._close = close
        self._now = now
        self._finder = Finder(client, metrics, self._since_ns, cluster, now, say)
        self._jobs: dict[JobKey, LokiJob] = {}
        self._clusters: dict[str, str] = {}  # the cluster of each job id that was resolved
        self._reads = Reads()

    def close(self) -> None:
        self._close()

    def __enter__(self) -> "LokiStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ingest(
        self,
        *,
        deadline_secs: float = 10.0,
        job_id: str | None = None,
        progress: Progress | None = None,
    ) -> IngestOutcome:
        """Do nothing: the node agents bring all entries."""
        return IngestOutcome(True, [])

    # ---- lists

    def jobs(self) -> list[JobSummary]:
        """Return all jobs with a sign of life in the time range, newest first."""
        return [summary for _, summary in self._list_jobs()]

    def _list_jobs(self) -> list[tuple[JobKey, JobSummary]]:
        now_ns = self._now()
        jobs: dict[JobKey, JobAccount] = {}
        begin_ns = now_ns - self._since_ns
        courses = with_event((STARTED, STILL_RUNNING, ENDED, CLOSED, JOB_ENDED, *HISTORY))
        self._gather(jobs, courses, begin_ns)
        since_ns = max(begin_ns, now_ns - 2 * SHIPPED_UNRESPONSIVE_NS)
        self._gather(jobs, with_event((HEARTBEAT,)), since_ns, EVENT_KINDS)
        silent = [job for job in jobs.values() if job.silent_captures(now_ns)]
        silent.sort(key=lambda job: -max(each.started_ns for each in job.captures.values()))
        newest = silent[:MAX_LOOKED_UP]
        self._finder.read_heartbeats(newest, begin_of(newest, begin_ns))
        if len(silent) > MAX_LOOKED_UP:
            accounts = (account for job in newest for account in job.captures.values())
            patience_ns = max(account.patience_ns() for account in accounts)
            # heartbeats are sparse here: so are those of the others
            if patience_ns > SHIPPED_UNRESPONSIVE_NS:
                since_ns = max(begin_ns, now_ns - patience_ns)
                self._gather(jobs, with_event((HEARTBEAT,)), since_ns, EVENT_KINDS)
        summaries = ((key, job.summary(now_ns)) for key, job in jobs.items())
        listing = [(key, summary) for key, summary in summaries if summary is not None]
        listing.sort(key=lambda pair: (-pair[1].started_ns, pair[0].job_id, pair[0].cluster))
        return listing

    def _gather(
        self,
        jobs: dict[JobKey, JobAccount],
        which: str,
        begin_ns: int,
        kinds: Collection[str] = ("event",),
    ) -> None:
        """Read events of all jobs, newest first; too many captures exclude the oldest."""
        captures = sum(len(job.captures) for job in jobs.values())
        logql = selector(kinds, cluster=self._cluster) + which
        for entry in self._finder.entries(logql, begin_ns, backward=True):
            key = job_key(entry)
            if key is None:
                continue
            job = jobs.get(key)
            if job is None or capture_id(entry) not in job.captures:
                if captures >= MAX_CAPTURES:
                    words = f"only the newest {MAX_CAPTURES} captures are looked at"
                    self._say(f"{words}; --since makes it fewer")
                    return
                captures += 1
            if job is None:
                job = jobs[key] = JobAccount(key)
            job.take(entry)

    # ---- one job

    def resolve(self, name: str) -> str:
        """Return the id of a job by its id, its name (the newest such job), a unique beginning of
        its id, or `last`.

        Raises UnknownJob, also for an id in several clusters.
        """
        if name != "last" and is_job_id(name):
            keys = self._find(name)
            if keys:
                return self._choose(name, name, keys)
        listing = self._list_jobs()
        try:
            job = find_job(name, [summary for _, summary in listing])
        except UnknownJob as error:
            words = f"{error}, in {self.name}, {self._how_far()}"
            raise UnknownJob(name, words, error.suggestions) from None
        if job.job_id.startswith(name):
            keys = [key for key, _ in listing if key.job_id == job.job_id]
            return self._choose(name, job.job_id, keys)
        key = next(key for key, summary in listing if summary is job)
        self._clusters[key.job_id] = key.cluster
        return key.job_id

    def _choose(self, name: str, job_id: str, keys: Sequence[JobKey]) -> str:
        if len(keys) > 1:
            clusters = ", ".join(sorted(key.cluster for key in keys))
            words = f"job {job_id} is there in several clusters, {clusters}: give --cluster NAME"
            raise UnknownJob(name, words)
        self._clusters[job_id] = keys[0].cluster
        return job_id

    def clusters_of(self, job_id: str) -> list[str]:
        """The clusters that have a job of this very id, in alphabetical order."""
        return sorted(key.cluster for key in self._find(job_id)) if is_job_id(job_id) else []

    def cluster_of(self, job_id: str) -> str:
        """The cluster of a job that was resolved or opened."""
        return self._clusters[job_id]

    def _how_far(self) -> str:
        where = f" of cluster {self._cluster}" if self._cluster is not None else ""
        span = _span_words(self._since_ns)
        return f"where jobs{where} of the last {span} were looked for (--since)"

    def _find(self, job_id: str) -> list[JobKey]:
        """The jobs with this id, of each cluster, their events read."""
        jobs = self._finder.find([job_id])
        for key, job in jobs.items():
            if key not in self._jobs and len(self._jobs) >= MAX_JOBS:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[key] = job
        return list(jobs)

    def allocations(self) -> list[Allocation]:
        """None: Loki has captures only."""
        return []

    def key_values(self, job: JobSummary) -> Mapping[str, KeyValues]:
        """The last, least and greatest value of each key of a job's metadata by its name. Reads all
        its records."""
        with self.reader_of(job) as reader:
            return reader.key_values()

    def reader_of(self, job: JobSummary) -> LokiJobReader:
        """Opens one of `jobs`: also where several clusters have a job of its id."""
        if job.cluster:
            self._clusters[job.job_id] = job.cluster
        return self.open(job.job_id)

    def in_order(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], LokiJobReader]:
        """Opens these jobs one after the other, in this order, with few questions for all of them:
        each as it was when its turn came near."""
        ahead = Ahead(self._finder, [job.key for job in jobs])

        def open_job(job: JobSummary) -> LokiJobReader:
            loki_job = ahead.take(job.key)
            if loki_job is None:
                raise self._unknown_job(job.job_id)
            return self._reader(loki_job)

        return open_job

    def histories(self, jobs: Sequence[JobSummary]) -> Callable[[JobSummary], LokiJobReader]:
        return self.in_order(jobs)

    def open(self, job_id: str) -> LokiJobReader:
        """Open a job. Raises UnknownJob, also for an id in several clusters."""
        cluster = self._clusters.get(job_id)
        loki_job = None if cluster is None else self._jobs.get(JobKey(job_id, cluster))
        if loki_job is None:
            keys = self._find(job_id) if is_job_id(job_id) else []
            if not keys:
                raise self._unknown_job(job_id, f", {self._how_far()}")
            if self._clusters.get(job_id) not in [key.cluster for key in keys]:
                self._choose(job_id, job_id, keys)
            loki_job = self._jobs[JobKey(job_id, self._clusters[job_id])]
        elif self._now() - loki_job.read_ns > _FRESH_NS:
            self._read_on(loki_job)
        return self._reader(loki_job)

    def lines_of_jobs(
        self, jobs: Sequence[JobSummary], line_filter: str, streams: Collection[Stream]
    ) -> Iterator[tuple[JobSummary, list[LokiLine]]]:
        """See line_search.lines_of_jobs."""
        now_ns = self._now()
        return lines_of_jobs(
            self._client,
            jobs,
            line_filter,
            streams,
            since_ns=now_ns - self._since_ns,
            now_ns=now_ns,
        )

    def _reader(self, loki_job: LokiJob) -> LokiJobReader:
        summary = loki_job.account.summary(self._now())
        if summary is None:
            raise self._unknown_job(loki_job.account.key.job_id)
        return LokiJobReader(
            self._client,
            loki_job.account,
            summary,
            self._span(loki_job),
            self._reads,
            now=self._now,
            progress=self._progress,
        )

    def _unknown_job(self, job_id: str, how_far: str = "") -> UnknownJob:
        return UnknownJob(job_id, f"no job has the id {job_id!r}, in {self.name}{how_far}")

    def _read_on(self, loki_job: LokiJob) -> None:
        """Read events since the last look, and for running captures since their last sign of life:
        a late report of an end has the time of the end."""
        job = loki_job.account
        signs = [job.captures[key].heartbeat_ns for key in job.open_captures()]
        accounts = job.captures.values()
        signs += [each.heartbeat_ns for each in accounts if each.may_print(loki_job.read_ns)]
        begin_ns = max(loki_job.from_ns, min([loki_job.read_ns - MARGIN_NS, *signs]))
        loki_job.read_ns = self._now()
        before = {key for key, account in job.captures.items() if account.closed}
        logql = selector(["event"], cluster=job.key.cluster)
        logql += with_metadata({"job_id": job.key.job_id}) + without_event((HEARTBEAT,))
        for entry in self._finder.entries(logql, begin_ns):
            job.take(entry)
        for key, account in job.captures.items():
            if account.closed and key not in before:
                account.closed_seen_ns = loki_job.read_ns
        self._finder.read_heartbeats([job], begin_ns)

    def _span(self, loki_job: LokiJob) -> QuerySpan:
        captures, ends = loki_job.account.captures, loki_job.account.ends.values()
        end_ns = self._now() + AHEAD_NS
        if all(account.closed for account in captures.values()):
            times = [max(each.heartbeat_ns, each.ended_ns or 0) for each in captures.values()]
            end_ns = max([*times, *(end.time_ns for end in ends)]) + MARGIN_NS
        hosts = loki_job.hosts | {key.host for key in captures} | {end.host for end in ends}
        return QuerySpan(begin_of([loki_job.account], loki_job.from_ns), end_ns, hosts)


def _span_words(span_ns: int) -> str:
    """A span of time in the largest unit that it is a whole number of."""
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    name, secs = next(
        (unit for unit in units if span_ns % (unit[1] * SECOND_NS) == 0), ("second", 1)
    )
    amount = span_ns / (secs * SECOND_NS)
    return f"{amount:g} {name}" if amount == 1 else f"{amount:g} {name}s"
