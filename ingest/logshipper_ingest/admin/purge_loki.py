"""Removal of a job's lines from Loki by its delete API, with a check of its answers.

Loki matches lines in their stored form: with colours, and with JSON's escapes. So the purge reads
lines that may have another form. A request names each piece that contains the pattern in such a
form.

Loki hides named lines when its parts receive the request: they poll every 5 minutes. It removes
them from its chunks when the request is `delete_request_cancel_period` old. Several Lokis behind
one address receive it at different times. Empty lines stay.
"""

import re
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from logshipper.errors import QueryError
from logshipper_ingest.console.text_table import plural
from logshipper_ingest.loki.client import Result
from logshipper_ingest.servers import logql
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.spool.purge_pattern import EVERY_LINE, LinePattern
from logshipper_ingest.spool.text_forms import MAY_DIFFER, spans

MAX_REACH_SECS = 29 * 86_400.0  # Loki's longest query is 30 days
MAX_REQUESTS = 100  # of a job in one tenant
MAX_QUERY_CHARS = 3000  # of the pieces in a request: gateways limit addresses to some 8 KiB
_BEFORE_NS = 3600 * 10**9  # a capture's oldest line is at most this much before its begin
_AHEAD_NS = 600 * 10**9  # Loki accepts lines this far ahead of its clock
_SECOND_NS = 10**9
_OF_ALL_ENTRIES = ("step", "user", "host")  # labels and structured metadata with words of others
_TOO_MANY = ", in too many forms, or too long ones, for delete requests: purge the whole job, without --grep"
_NO_READER = (
    "a gateway that lets agents push only takes a certificate for purging, --cert FILE --key FILE (docs/privacy.md); "
    "--no-loki purges this node's files"
)
_OFF = (
    "Loki deletes nothing as it is set up: it needs `compactor: retention_enabled: true` with `delete_request_store`, "
    "and `limits_config: deletion_mode: filter-and-delete`"
)


class DeletingClient(Protocol):
    """The part of `logshipper_ingest.loki.client.LokiClient` that purging needs."""

    @property
    def answer_date_ns(self) -> int | None: ...
    def close(self) -> None: ...
    def query(self, logql: str, *, time_ns: int | None = None) -> list[Result]: ...
    def entries(self, logql: str, begin_ns: int, end_ns: int) -> Iterator[Entry]: ...
    def delete(self, logql: str, begin_ns: int, end_ns: int) -> str: ...


class PurgeSpan(NamedTuple):
    """A job in Loki."""

    begin_ns: int  # the oldest possible line
    hosts: list[str]  # hosts of its captures
    lines: int  # with the pattern
    queries: list[str]  # for these lines


class LokiPurge:
    """One job's lines in one tenant. Raises QueryError."""

    def __init__(
        self, client: DeletingClient, cluster: str, job_id: str, pattern: LinePattern
    ) -> None:
        self._client = client
        self._pattern = pattern
        of_job = logql.with_metadata({"job_id": job_id})
        service = f"{{service_name={logql.quoted(logql.SERVICE)},cluster={logql.quoted(cluster)}}}"
        self._job = service + of_job
        self._events = logql.selector(["event"], cluster=cluster) + of_job
        self._query = self._job + pattern.logql
        self.span = PurgeSpan(0, [], 0, [])

    def look(self, reach_secs: float) -> PurgeSpan:
        """Find the job, and keep its span. reach_secs: the longest time since its begin."""
        try:
            self.span = self._look(reach_secs)
        except QueryError as error:
            if error.status in (401, 403):
                words = f"{error.excerpt}; {_NO_READER}"
                raise QueryError(error.server, error.status, words) from None
            raise
        return self.span

    def _look(self, reach_secs: float) -> PurgeSpan:
        now_ns = time.time_ns()
        begin_ns = oldest_ns = now_ns - int(min(reach_secs, MAX_REACH_SECS) * 1e9)
        hosts: set[str] = set()
        first_ns = 0
        for entry in self._client.entries(self._events, oldest_ns, now_ns + _AHEAD_NS):
            first_ns = first_ns or entry.time_ns
            hosts.add(entry.labels.get("host", ""))
        if first_ns:
            begin_ns = max(first_ns - _BEFORE_NS, oldest_ns)
        forms = self._look_for_forms(begin_ns)
        lines = self._count(begin_ns, [self._query]) + forms.lines
        return PurgeSpan(begin_ns, sorted(hosts - {""}), lines, self._queries(forms))

    def count_again(self) -> int:
        """Count the shown lines by a new connection: another Loki behind the address may answer."""
        self._client.close()
        return self._count(self.span.begin_ns, self.span.queries)

    def _count(self, begin_ns: int, queries: Sequence[str]) -> int:
        results = (result for query in queries for result in self._sums(begin_ns, query))
        return sum(int(result.samples[-1].value) for result in results if result.samples)

    def _sums(self, begin_ns: int, query: str, by: str = "") -> list[Result]:
        end_ns = time.time_ns() + _AHEAD_NS
        secs = (end_ns - begin_ns) // _SECOND_NS + 1
        return self._client.query(f"sum{by}(count_over_time({query} [{secs}s]))", time_ns=end_ns)

    def still_there(self) -> list[str]:
        """Search all forms again; return a sentence for each remainder."""
        if self._pattern is EVERY_LINE:
            return []
        begin_ns = self.span.begin_ns
        forms = self._look_for_forms(begin_ns)
        line_count = self._count(begin_ns, [self._query]) + forms.lines
        sentences = []
        if line_count:
            fix = _TOO_MANY if forms.unnameable_lines else ": call this again"
            sentences = [f"Loki shows {plural(line_count, 'line')} in which it still is{fix}"]
        label_names = {
            name
            for result in self._sums(begin_ns, self._job, f" by ({', '.join(_OF_ALL_ENTRIES)}) ")
            for name, value in result.labels.items()
            if self._pattern.has(value)
        }
        return sentences + [
            f"the job's {name} has it, which stands with every line in Loki: purge the whole job, without --grep"
            for name in sorted(label_names)
        ]

    def delete(self) -> list[str]:
        """Request deletion up to now, by Loki's clock; return the requests' ids."""
        date_ns = self._client.answer_date_ns or time.time_ns()
        time.sleep(1.1)  # a request names full past seconds, by Loki's clock
        try:
            return [
                self._client.delete(query, self.span.begin_ns, date_ns + _SECOND_NS)
                for query in self.span.queries
            ]
        except QueryError as error:
            if error.status in (403, 404) or "etention is not enabled" in error.excerpt:
                raise QueryError(error.server, error.status, f"{error.excerpt}; {_OFF}") from None
            raise

    # ---- lines that have it in another form than they stand there

    def _look_for_forms(self, begin_ns: int) -> "_Forms":
        forms = _Forms(self._pattern)
        if self._pattern is not EVERY_LINE:
            query = f"{self._job}{self._pattern.without} |~ {logql.quoted(MAY_DIFFER)}"
            for entry in self._client.entries(query, begin_ns, time.time_ns() + _AHEAD_NS):
                forms.add(entry.line)
        return forms

    def _queries(self, forms: "_Forms") -> list[str]:
        others = f"{self._job}{self._pattern.without} |~ "
        return [self._query, *(others + logql.quoted(pattern) for pattern in forms.filters())]


class _Forms:
    """Pieces of lines with a pattern in another form. lines: number of such lines;
    unnameable_lines: those without a piece that a request can name."""

    def __init__(self, pattern: LinePattern) -> None:
        self.lines = 0
        self.unnameable_lines = 0
        self._pattern = pattern
        self._pieces: dict[str, int] = {}  # by regular expression: characters in an address
        self._chars = 0

    def add(self, line: str) -> None:
        if not self._pattern.has(line):
            return
        self.lines += 1
        pieces = list(map(re.escape, self._pieces_of(line)))
        if any(piece in self._pieces for piece in pieces):
            return
        piece = min(pieces, key=len, default="")
        chars = len(urllib.parse.quote(piece))
        room = min(MAX_REQUESTS * MAX_QUERY_CHARS - self._chars, MAX_QUERY_CHARS)
        if not piece or chars > room:
            self.unnameable_lines += 1
            return
        self._pieces[piece] = chars
        self._chars += chars

    def _pieces_of(self, line: str) -> list[str]:
        """Return the pieces, or the whole line if no piece alone contains the pattern."""
        if self._pattern.is_anchored:
            return [line]
        pieces = (piece[:MAX_QUERY_CHARS] for piece in spans(line, self._pattern.python))
        return [piece for piece in pieces if self._pattern.has(piece)]

    def filters(self) -> list[str]:
        """Return regular expressions for the pieces."""
        groups: list[list[str]] = []
        room = 0
        for piece, chars in self._pieces.items():
            if chars > room:
                groups.append([])
                room = MAX_QUERY_CHARS
            groups[-1].append(piece)
            room -= chars
        form = "^(?:{})$" if self._pattern.is_anchored else "{}"
        return [form.format("|".join(pieces)) for pieces in groups]
