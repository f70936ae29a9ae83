"""Takes a job's lines out of Loki by its delete API, and looks whether they are gone from its answers.

Loki hides what a request names as soon as its parts have heard of it (they ask every 5 minutes), and takes it out of
its chunks when the request is `delete_request_cancel_period` old. Empty lines, which tell nothing, stay.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ingest.capture.purge_pattern import LinePattern
from ingest.loki import logql
from ingest.loki.client import Result
from ingest.loki.push import Entry
from logshipper.errors import QueryError

MAX_REACH_SECS = 29 * 86_400.0  # Loki's longest question is 30 days
_BEFORE_NS = 3600 * 10**9  # lines of a capture are no older than that before it began
_AHEAD_NS = 600 * 10**9  # Loki takes lines that are so far ahead of its clock
_SECOND_NS = 10**9
_OFF = (
    "Loki deletes nothing as it is set up: it needs `compactor: retention_enabled: true` with `delete_request_store`, "
    "and `limits_config: deletion_mode: filter-and-delete`"
)


class DeletingClient(Protocol):
    """The part of `ingest.loki.client.Client` that is needed here."""

    @property
    def answer_date_ns(self) -> int | None: ...
    def query(self, logql: str, *, time_ns: int | None = None) -> list[Result]: ...
    def entries(self, logql: str, begin_ns: int, end_ns: int) -> Iterator[Entry]: ...
    def delete(self, logql: str, begin_ns: int, end_ns: int) -> str: ...


class Span(NamedTuple):
    """A job in Loki. begin_ns: no line of it is older; hosts: that captured it; lines: that have the pattern."""

    begin_ns: int
    hosts: list[str]
    lines: int


class LokiPurge:
    """One job's lines in one tenant. Raises QueryError."""

    def __init__(self, client: DeletingClient, cluster: str, job_id: str, pattern: LinePattern) -> None:
        self._client = client
        service = f"{{service_name={logql.quoted(logql.SERVICE)},cluster={logql.quoted(cluster)}}}"
        self._job = service + logql.with_metadata({"job_id": job_id})
        self._events = logql.selector(["event"], cluster=cluster) + logql.with_metadata({"job_id": job_id})
        self.query = self._job + pattern.logql

    def look(self, reach_secs: float) -> Span:
        """reach_secs: how long ago the job began, at most."""
        now_ns = time.time_ns()
        begin_ns = oldest_ns = now_ns - int(min(reach_secs, MAX_REACH_SECS) * 1e9)
        hosts: set[str] = set()
        first_ns = 0
        for entry in self._client.entries(self._events, oldest_ns, now_ns + _AHEAD_NS):
            first_ns = first_ns or entry.time_ns
            hosts.add(entry.labels.get("host", ""))
        if first_ns:
            begin_ns = max(first_ns - _BEFORE_NS, oldest_ns)
        return Span(begin_ns, sorted(hosts - {""}), self.count(begin_ns))

    def count(self, begin_ns: int) -> int:
        """Lines that Loki shows now."""
        end_ns = time.time_ns() + _AHEAD_NS
        secs = (end_ns - begin_ns) // _SECOND_NS + 1
        found = self._client.query(f"sum(count_over_time({self.query} [{secs}s]))", time_ns=end_ns)
        return int(sum(sample.value for result in found for sample in result.samples[-1:]))

    def delete(self, begin_ns: int) -> str:
        """Up to now, by Loki's clock; returns the request's id."""
        date_ns = self._client.answer_date_ns or time.time_ns()
        time.sleep(1.1)  # a request names whole seconds that have passed, by Loki's clock
        try:
            return self._client.delete(self.query, begin_ns, date_ns + _SECOND_NS)
        except QueryError as error:
            if error.status in (403, 404) or "etention is not enabled" in error.excerpt:
                raise QueryError(error.server, error.status, f"{error.excerpt}; {_OFF}") from None
            raise
