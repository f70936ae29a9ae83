"""A job's summary from its captures, and the search for a job by name, for all stores. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from logshipper.errors import UnknownJob
from logshipper_ingest.model.job import RUNNING, JobSummary, Json, worst_state

_MAX_SUGGESTED_FROM = 10_000
# what a job has from the first capture of its newest attempt, and sums over all captures
_OF_FIRST = (
    "user", "host", "account", "partition", "origin", "parent", "iteration", "cores", "packing", "allocation",
)  # fmt: skip
_SUMS = ("lines", "records", "bytes_printed", "bytes_logged")


@dataclass
class CaptureFacts(ABC):
    """A store's data about one capture, from any source."""

    name: str = ""
    user: str = ""
    host: str = ""
    state: str = RUNNING
    exit_code: int | None = None
    signal: int = 0
    started_ns: int = 0
    ended_ns: int | None = None
    heartbeat_ns: int = 0
    mode: str = "enabled"  # enabled, metadata or disabled
    reason: str = ""
    columns: int = 0  # of the terminal
    rows: int = 0  # likewise
    tty: bool = True  # False where pipes took its place
    ledger: Json = field(default_factory=dict)  # the capture's account of lines
    account: str = ""  # the scheduler's, "" without one
    partition: str = ""  # likewise
    # origin to allocation: as JobSummary has them
    origin: str = ""
    parent: str = ""
    iteration: int | None = None
    nodes: int = 0
    cores: int = 0
    packing: int = 1
    allocation: str = ""
    restarts: int = 0  # further attempts that are in this capture
    # how many there are, are over, and failed
    children: list[int] = field(default_factory=lambda: [0, 0, 0])
    # more data of an imported job's system
    details: Json = field(default_factory=dict)
    first_change_ns: int = 0  # as JobSummary has it
    last_change_ns: int = 0  # likewise
    limit_secs: int = 0  # of the job's time, 0 if unknown

    @property
    @abstractmethod
    def lines(self) -> int: ...  # stored ones

    @property
    @abstractmethod
    def records(self) -> int: ...  # stored ones

    @property
    @abstractmethod
    def bytes_printed(self) -> int: ...  # by the job

    @property
    @abstractmethod
    def bytes_logged(self) -> int: ...  # of stored lines and records

    @abstractmethod
    def lost(self) -> int:
        """Printed lines that were lost."""

    def note_change(self, time_ns: int) -> None:
        """Takes note of an event that changed its job's state."""
        self.first_change_ns = min(self.first_change_ns or time_ns, time_ns)
        self.last_change_ns = max(self.last_change_ns, time_ns)


class OfAttempt(Protocol):
    """A capture: which attempt it belongs to, and its account."""

    @property
    def attempt(self) -> int: ...
    @property
    def account(self) -> CaptureFacts: ...


def summarise(job_id: str, captures: Sequence[OfAttempt]) -> JobSummary | None:
    """Summarise a job, without telling RUNNING from UNRESPONSIVE; None without captures."""
    if not captures:
        return None
    newest = max(row.attempt for row in captures)
    current = [row.account for row in captures if row.attempt == newest]
    state = worst_state([account.state for account in current])
    of_state = next(account for account in current if account.state == state)
    ended = [account.ended_ns for account in current if account.ended_ns is not None]
    children, finished, failed = map(
        sum, zip(*(account.children for account in current), strict=True)
    )
    sums: dict[str, Any] = {  # Any: integers
        name: sum(getattr(row.account, name) for row in captures) for name in _SUMS
    }
    return JobSummary(
        job_id=job_id,
        name=current[0].name or job_id,
        **{name: getattr(current[0], name) for name in _OF_FIRST},
        state=state,
        exit_code=of_state.exit_code,
        signal=of_state.signal,
        attempts=len({row.attempt for row in captures})
        + sum(row.account.restarts for row in captures),
        started_ns=min(account.started_ns for account in current),
        ended_ns=max(ended) if len(ended) == len(current) else None,
        heartbeat_ns=max(account.heartbeat_ns for account in current),
        mode=current[-1].mode,
        **sums,
        lost=sum(row.account.lost() for row in captures),
        reason=of_state.reason,
        nodes=nodes_of([row.nodes for row in current], [row.host for row in current]),
        children=children,
        children_finished=finished,
        children_failed=failed,
        first_change_ns=min(
            filter(None, (row.account.first_change_ns for row in captures)), default=0
        ),
        last_change_ns=max(row.account.last_change_ns for row in captures),
        limit_secs=max(account.limit_secs for account in current),
    )


def nodes_of(node_counts: Iterable[int], hosts: Iterable[str]) -> int:
    """Return the number of an attempt's nodes.

    node_counts: by the scheduler, of its captures; hosts: of its captures, a lower bound.
    """
    return max(max(node_counts, default=0), len(set(hosts) - {""}))


def find_job(name: str, jobs: Sequence[JobSummary]) -> JobSummary:
    """Find a job by its id (of an imported job, also its system's id), its name (the newest such
    job), a unique beginning of its id, or `last`.

    jobs: newest first. Raises UnknownJob, with suggestions.
    """
    if name == "last":
        if not jobs:
            raise UnknownJob(name, "there are no jobs yet")
        return jobs[0]
    for job in jobs:
        if job.job_id == name:
            return job
    for job in jobs:
        if job.origin and job.job_id == f"{job.origin}-{name}":
            return job
    for job in jobs:
        if job.name == name:
            return job
    beginning = {job.job_id: job for job in jobs if name and job.job_id.startswith(name)}
    if len(beginning) == 1:
        return next(iter(beginning.values()))
    if beginning:
        words = f"{len(beginning)} jobs have an id that begins with {name!r}"
        raise UnknownJob(name, words, list(beginning)[:10])
    raise UnknownJob(name, f"no job has the id or name {name!r}", _suggestions(name, jobs))


def _suggestions(name: str, jobs: Sequence[JobSummary]) -> list[str]:
    from difflib import get_close_matches  # late: only for a wrong name

    words = dict.fromkeys(
        ("last", *(word for job in jobs[:_MAX_SUGGESTED_FROM] for word in (job.job_id, job.name)))
    )
    by_folded = {word.casefold(): word for word in words}
    return [by_folded[word] for word in get_close_matches(name.casefold(), by_folded, n=3)]
