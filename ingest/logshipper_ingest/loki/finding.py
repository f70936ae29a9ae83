"""Finds jobs in Loki by their ids, with the same few queries for one or many.

It reads their events and last signs of life. Prometheus helps with the jobs' begin.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.loki.account import BEATS, JobAccount, LokiEntry, capture_id, job_key
from logshipper_ingest.loki.reader import AHEAD_NS, MARGIN_NS, Direction, Entries
from logshipper_ingest.model.capture_id import CaptureId, JobKey
from logshipper_ingest.model.job import EVENT_KINDS, HEARTBEAT
from logshipper_ingest.servers.logql import (
    matcher,
    selector,
    with_any_metadata,
    with_event,
    without_event,
)

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
PROMETHEUS_DAYS = 15  # Prometheus' default retention
# an earlier begin is not credible: the job reports its own
MAX_JOB_NS = 366 * 24 * HOUR_NS
MAX_LOOKS = 20  # for heartbeats beyond the newest
_PAGE = 5000


class SeriesValue(NamedTuple):
    """A series of Prometheus' answer."""

    labels: Mapping[str, str]
    value: float


Metrics = Callable[[str], Iterable[SeriesValue]]  # Prometheus' instant query


@dataclass
class LokiJob:
    """A job with its events."""

    account: JobAccount
    from_ns: int  # begin of the events read
    read_ns: int  # time of the reading
    hosts: frozenset[str]  # by Prometheus


class _Hint(NamedTuple):
    """Prometheus' knowledge of a job. begin_ns: 0 if unknown."""

    begin_ns: int = 0
    hosts: frozenset[str] = frozenset()


class TooMany(Exception):
    """More events than were to be read."""


class Finder:
    """Finds jobs by their ids in Loki, with hints of Prometheus.

    since_ns: the earliest time for jobs that Prometheus does not know; cluster: only this one; say:
    logs faults that stop nothing.
    """

    def __init__(
        self,
        client: Entries,
        metrics: Metrics | None,
        since_ns: int,
        cluster: str | None,
        now: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._since_ns = since_ns
        self._cluster = cluster
        self._now = now
        self._say = say

    def find(
        self, job_ids: Collection[str], *, max_entries: int | None = None
    ) -> dict[JobKey, LokiJob]:
        """Return the jobs with these ids, of each cluster.

        The search in all streams starts an hour before Prometheus' begin of a job. A job may have
        run on nodes that Prometheus does not scrape, or knows by other names. Raises TooMany for
        more entries than `max_entries`.
        """
        hints = self._hints(job_ids)
        now_ns = self._now()
        since_ns = now_ns - self._since_ns
        hint_ids = {key.job_id for key in hints}
        hint_begins = (
            hint.begin_ns if now_ns - hint.begin_ns < MAX_JOB_NS else since_ns
            for hint in hints.values()
        )
        begins = [begin_ns - HOUR_NS for begin_ns in hint_begins]
        since_ns = min(begins + ([] if hint_ids.issuperset(job_ids) else [since_ns]))
        jobs = self._read_events(job_ids, since_ns, max_entries)
        absent_ids = set(job_ids) - {key.job_id for key in jobs}
        if absent_ids & hint_ids and since_ns > now_ns - self._since_ns:  # Prometheus was wrong
            since_ns = now_ns - self._since_ns
            jobs |= self._read_events(absent_ids, since_ns, max_entries)
        self.read_heartbeats(jobs.values(), begin_of(jobs.values(), since_ns))
        return {
            key: LokiJob(job, since_ns, now_ns, hints.get(key, _Hint()).hosts)
            for key, job in jobs.items()
        }

    def _read_events(
        self, job_ids: Collection[str], begin_ns: int, max_entries: int | None
    ) -> dict[JobKey, JobAccount]:
        jobs: dict[JobKey, JobAccount] = {}
        logql = selector(["event"], cluster=self._cluster) + with_any_metadata("job_id", job_ids)
        entries = self.entries(logql + without_event((HEARTBEAT,)), begin_ns)
        for read, entry in enumerate(entries, start=1):
            if max_entries is not None and read > max_entries:
                raise TooMany
            key = job_key(entry)
            if key is None or key.job_id not in job_ids:
                continue
            job = jobs.get(key) or JobAccount(key)
            job.take(entry)
            if job.captures or job.ends:
                jobs[key] = job
        return jobs

    def entries(
        self,
        logql: str,
        begin_ns: int,
        *,
        end_ns: int = 0,
        backward: bool = False,
        page: int = _PAGE,
    ) -> Iterable[LokiEntry]:
        """Yield entries since begin_ns. end_ns: 0 for no end."""
        direction: Direction = "backward" if backward else "forward"
        return self._client.entries(
            logql, begin_ns, end_ns or self._now() + AHEAD_NS, direction=direction, page=page
        )

    # ---- heartbeats

    def read_heartbeats(self, jobs: Collection[JobAccount], begin_ns: int) -> None:
        """Read the newest heartbeat of each capture that may run, and more of silent ones.

        Captures with fresh heartbeats fill the first answers; later queries exclude them.
        """
        by_key = {job.key: job for job in jobs}
        open_captures = {capture for job in jobs for capture in job.open_captures()}
        end_ns = self._now() + AHEAD_NS
        for _ in range(MAX_LOOKS):
            if not open_captures:
                return
            reached_ns = self._read_some(by_key, open_captures, begin_ns, end_ns)
            if reached_ns is None:
                return
            end_ns = reached_ns + 1

    def _read_some(
        self,
        jobs: Mapping[JobKey, JobAccount],
        open_captures: set[CaptureId],
        begin_ns: int,
        end_ns: int,
    ) -> int | None:
        """Remove captures with enough heartbeats from open_captures.

        Returns the time of the oldest heartbeat read, None at the end.
        """
        clusters = {capture.cluster for capture in open_captures}
        cluster = next(iter(clusters)) if len(clusters) == 1 else self._cluster
        logql = selector(EVENT_KINDS, cluster=cluster, hosts={each.host for each in open_captures})
        logql += with_any_metadata("job_id", {capture.job_id for capture in open_captures})
        logql += with_event((HEARTBEAT,))
        max_entries = (3 + BEATS) * len(open_captures) + 20
        page = min(max(2 * len(open_captures), 10), _PAGE)
        now_ns = self._now()
        entries = self.entries(logql, begin_ns, end_ns=end_ns, backward=True, page=page)
        for read, entry in enumerate(entries, start=1):
            capture = capture_id(entry)
            if (job := jobs.get(capture.job)) is not None:
                job.take(entry)
                account = job.captures.get(capture)
                if not account or not account.is_silent(now_ns) or len(account.beats_ns) == BEATS:
                    open_captures.discard(capture)
            if not open_captures:
                return None
            if read >= max_entries:
                return entry.time_ns
        return None

    # ---- Prometheus

    def _hints(self, job_ids: Collection[str]) -> dict[JobKey, _Hint]:
        """Return Prometheus' knowledge of jobs; empty if it does not answer."""
        if self._metrics is None:
            return {}
        matchers = matcher("job_id", job_ids)
        matchers += "," + matcher("cluster", [self._cluster]) if self._cluster is not None else ""
        back = f"[{max(PROMETHEUS_DAYS, self._since_ns // (24 * HOUR_NS) + 1)}d]"
        by = "by (cluster, job_id"
        start, info = "logshipper_job_start_time_seconds", "logshipper_job_info"
        begins: dict[JobKey, float] = {}
        hosts: defaultdict[JobKey, set[str]] = defaultdict(set)
        try:
            starts = self._metrics(f"min {by}) (min_over_time({start}{{{matchers}}}{back}))")
            places = self._metrics(
                f"group {by}, host) (last_over_time({info}{{{matchers}}}{back}))"
            )
            for series in starts:
                begins[_key_of(series)] = series.value
            for series in places:
                hosts[_key_of(series)].add(series.labels.get("host", ""))
        except QueryError as error:
            self._say(f"{error}; jobs are looked for in Loki alone")
            self._metrics = None
            return {}
        hints = {}
        for key in {*begins, *hosts}:
            secs = begins.get(key, 0.0)
            begin_ns = int(secs * SECOND_NS) if 0 < secs < 1 << 33 else 0
            if key.job_id in job_ids:
                hints[key] = _Hint(begin_ns, frozenset(hosts.get(key, ())))
        return hints


def begin_of(jobs: Iterable[JobAccount], otherwise_ns: int) -> int:
    """Return the earliest possible time of jobs' entries.

    A start long before its own event is not credible.
    """
    accounts = (account for job in jobs for account in job.captures.values())
    begins = [max(account.started_ns, account.first_ns - HOUR_NS) for account in accounts]
    return min(begins) - MARGIN_NS if begins else otherwise_ns


def _key_of(series: SeriesValue) -> JobKey:
    return JobKey(series.labels.get("job_id", ""), series.labels.get("cluster", ""))
