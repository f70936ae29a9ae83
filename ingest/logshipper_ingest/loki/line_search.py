"""Reads the lines of many jobs that pass a filter, with the same few queries for all of them."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from logshipper.spool.segment import COPY, Stream
from logshipper_ingest.loki.account import STREAMS, LokiEntry, job_key
from logshipper_ingest.loki.lines import KINDS, Captures, LokiLine, join_pieces
from logshipper_ingest.loki.reader import AHEAD_NS, MARGIN_NS, Entries
from logshipper_ingest.model.job import job_shard
from logshipper_ingest.servers.logql import selector, with_any_metadata

if TYPE_CHECKING:
    from logshipper_ingest.model.job import JobSummary

MAX_NAMED = 100  # jobs in a query; it reads the lines of all others, too


def lines_of_jobs(
    client: Entries,
    jobs: "Sequence[JobSummary]",
    line_filter: str,
    streams: Collection[Stream],
    *,
    since_ns: int,
    now_ns: int,
) -> "Iterator[tuple[JobSummary, list[LokiLine]]]":
    """Yield each job with its lines in order of time, as soon as the time before its start is
    reached.

    jobs: newest first; line_filter: LogQL's; since_ns: no attempt before. Only the lines of jobs that
    overlap in time are in memory together. Raises QueryError.
    """
    if not jobs:
        return
    begins = {
        job.key: job.started_ns - MARGIN_NS if job.attempts == 1 else since_ns for job in jobs
    }
    ends = [job.ended_ns and job.ended_ns + MARGIN_NS for job in jobs]
    end_ns = max(end or now_ns + AHEAD_NS for end in ends)
    clusters = {job.cluster for job in jobs}
    names = [name for name, stream in STREAMS.items() if stream in streams]
    logql = selector(
        KINDS,
        cluster=clusters.pop() if len(clusters) == 1 else None,
        streams=[] if len(names) == len(STREAMS) else names,
        shard=job_shard(jobs[0].job_id) if len(jobs) == 1 else "",
    )
    logql += line_filter
    if len(jobs) <= MAX_NAMED:
        logql += with_any_metadata("job_id", {job.job_id for job in jobs})
    entries: dict[object, list[LokiEntry]] = {key: [] for key in begins}
    waiting = deque(jobs)
    for entry in client.entries(logql, min(begins.values()), end_ns, direction="backward"):
        while waiting and entry.time_ns < begins[waiting[0].key]:
            job = waiting.popleft()
            yield job, _lines(entries.pop(job.key))
        if (of_job := entries.get(job_key(entry))) is not None:
            of_job.append(entry)
    for job in waiting:
        yield job, _lines(entries.pop(job.key))


def _lines(newest_first: list[LokiEntry]) -> list[LokiLine]:
    lines = join_pieces(reversed(newest_first), Captures(()))
    return [line for line in lines if COPY not in line.attrs]
