"""The captured run that a record of a job's end is about, from Loki's events.

Slurm's jobcomp/script gives no restart count, and EpilogSlurmctld's is one too high for some
requeued runs. So the times of the runs decide. A run without capture has no events, and must not
get another run's captures.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from logshipper_ingest.loki.account import EventAccount, JobAccount, job_key
from logshipper_ingest.loki.reader import AHEAD_NS, Entries
from logshipper_ingest.model.end_record import MAX_NODES, SECOND_NS, EndRecord
from logshipper_ingest.model.job import CLOSED, ENDED, STARTED
from logshipper_ingest.servers.logql import SERVICE, any_of, quoted, with_event

MAX_ENTRIES = 100_000  # of an answer
BEFORE_NS = 60 * SECOND_NS  # lag of a capture's clock that a question allows for
# difference between the clocks of node and controller; runs are further apart
SKEW_NS = 5 * SECOND_NS
FRESH_NS = 60 * SECOND_NS


class Run(NamedTuple):
    """A captured run."""

    attempt: int
    newest_ns: int  # newest event of its captures so far
    is_complete: bool  # all its captures are closed
    sure: bool  # no later arrival can fit better


def ask(
    client: Entries, cluster: str, records: Sequence[EndRecord], now_ns: int, longest_ns: int
) -> dict[str, JobAccount]:
    """Return the captured jobs among these records, by job id. longest_ns: the search range for a
    record without a start time. Raises QueryError."""
    accounts = _ask(client, cluster, records, now_ns, longest_ns)
    if accounts is not None:
        return accounts
    half = len(records) // 2
    first = ask(client, cluster, records[:half], now_ns, longest_ns)
    return {**first, **ask(client, cluster, records[half:], now_ns, longest_ns)}


def _ask(
    client: Entries, cluster: str, records: Sequence[EndRecord], now_ns: int, longest_ns: int
) -> dict[str, JobAccount] | None:
    """Ask by one question; return None if the answer about several jobs is too long."""
    ids = {record.job_id for record in records}
    begins_ns = (
        record.start * SECOND_NS or record.end * SECOND_NS - longest_ns for record in records
    )
    begin_ns = min(begins_ns) - BEFORE_NS
    accounts: dict[str, JobAccount] = {}
    logql = _selector(cluster, records) + f" | job_id=~{quoted(any_of(sorted(ids)))}"
    logql += with_event((STARTED, ENDED, CLOSED))
    for read, entry in enumerate(client.entries(logql, begin_ns, now_ns + AHEAD_NS), start=1):
        key = job_key(entry)
        if key is not None and key.cluster == cluster and key.job_id in ids:
            accounts.setdefault(key.job_id, JobAccount(key)).take(entry)
        if read >= MAX_ENTRIES:
            if len(records) > 1:
                return None
            break
    return accounts


def _selector(cluster: str, records: Collection[EndRecord]) -> str:
    """Select the events of the jobs' nodes. An agent's host may have a domain behind the node's
    name."""
    hosts = {node for record in records for node in record.nodes}
    of_hosts = ""
    if len(hosts) <= MAX_NODES and all(record.nodes for record in records):
        names = f"({any_of(sorted(hosts))})([.].+)?"
        of_hosts = f",host=~{quoted(names)}"
    return f'{{service_name={quoted(SERVICE)},kind="event",cluster={quoted(cluster)}{of_hosts}}}'


def run_of(record: EndRecord, job: JobAccount | None) -> Run | None:
    """Return the record's run, or None without a capture so far."""
    attempts: dict[int, list[EventAccount]] = {}
    for key, account in job.captures.items() if job is not None else ():
        attempts.setdefault(key.attempt, []).append(account)
    runs = {
        min(account.started_ns for account in accounts): (attempt, accounts)
        for attempt, accounts in attempts.items()
    }
    began_ns = _nearest(record, sorted(runs))
    if began_ns is None:
        return None
    attempt, accounts = runs[began_ns]
    newest_ns = max(account.heartbeat_ns for account in accounts) + 1
    is_complete = all(account.closed for account in accounts)
    if record.start:
        # a resized job begins again for Slurm: its captures were there before
        fits = max(began_ns, newest_ns if is_complete else 0) >= record.start * SECOND_NS - SKEW_NS
        sure = began_ns >= record.start * SECOND_NS
    else:
        sure = record.restarts == 0
        fits = sure or not is_complete or newest_ns >= record.end * SECOND_NS - FRESH_NS
    return Run(attempt, newest_ns, is_complete, sure) if fits else None


def _nearest(record: EndRecord, began_ns: Sequence[int]) -> int | None:
    """Return the start nearest to the record's, among runs that began before its end."""
    end_ns = record.end * SECOND_NS
    starts_ns = [at_ns for at_ns in began_ns if at_ns <= end_ns + SKEW_NS]
    if not starts_ns:
        return None
    if record.start:
        return min(starts_ns, key=lambda at_ns: abs(at_ns - record.start * SECOND_NS))
    surely = [at_ns for at_ns in starts_ns if at_ns <= end_ns]
    return surely[-1] if surely else starts_ns[0]
