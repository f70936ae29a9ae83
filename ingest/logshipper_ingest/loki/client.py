"""A client of Grafana Loki's HTTP interface: push, query, labels (docs/loki-client.md).

It depends on logshipper's access settings and errors only. Use one client per thread. Every method
raises QueryError, pushes raise PushError, and impossible arguments ValueError. Times are
nanoseconds since 1970; ranges include their begin and exclude their end. (Interface:
https://grafana.com/docs/loki/latest/reference/loki-http-api/)
"""

import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.servers import loki_push
from logshipper_ingest.servers.loki_push import Entry
from logshipper_ingest.servers.server_access import TENANT_HEADER
from logshipper_ingest.servers.server_calls import (
    AnswerTooLarge,
    Params,
    Sample,
    ServerClient,
    labels_of,
    sample_of,
    yaml_table,
)

__all__ = ["Entry", "LokiClient", "PushAnswer", "Result", "Sample"]

Direction = Literal["forward", "backward"]

# entries in an answer: Loki's default of max_entries_limit_per_query
MAX_PAGE = 5000
MAX_RANGE_NS = 30 * 86_400 * 1_000_000_000  # of a query: Loki's max_query_length is an hour more
FIRST_PAGE = 1000
PAGE_BYTES = 1 << 20  # of JSON, which exceeds the messages between Loki's parts
_PUSH_HEADERS = {"Content-Type": "application/x-protobuf"}
_CATEGORIZED = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}


class PushAnswer(NamedTuple):
    """status: 204; date_ns: the server's clock, to a second, or None."""

    status: int
    date_ns: int | None


class Result(NamedTuple):
    """A stream or a series of an answer. entries: of a log query; samples: of a metric query (one,
    for an instant)."""

    labels: Mapping[str, str]
    entries: list[Entry]
    samples: list[Sample]


class LokiClient(ServerClient):
    """access: address, credentials, tenant, TLS; or only an address. max_answer_bytes: larger
    answers are errors."""

    kind = "Loki"
    _strange_words = "this is no answer of Loki"

    # ---- pushing

    def push(self, labels: Mapping[str, str], entries: Iterable[Entry]) -> PushAnswer:
        """Push entries of one stream in one request of any size. Raises PushError."""
        return self.push_body(loki_push.compress(loki_push.encode_push(labels, entries)))

    def push_body(self, body: bytes, tenant: str = "") -> PushAnswer:
        """Push an encoded and compressed request (servers/loki_push.py).

        tenant: replaces that of the access. Only 204 is a success: Loki answers 260 for entries
        that it drops by configuration. Raises RetryablePushError if Loki may accept the push later
        (no connection, time-outs, 429, 5xx, a gateway's 400: status 0), RejectedPushError
        otherwise. After a 400, Loki has stored the valid entries of the request; repeating the push
        does no harm.
        """
        headers = {**_PUSH_HEADERS, TENANT_HEADER: tenant} if tenant else _PUSH_HEADERS
        answer = self._push("/loki/api/v1/push", body, headers, (204,))
        return PushAnswer(answer.status, answer.date_ns)

    # ---- asking

    def query(
        self,
        logql: str,
        *,
        time_ns: int | None = None,
        limit: int = 100,
        direction: Direction = "backward",
    ) -> list[Result]:
        """Run an instant query, such as `sum(count_over_time({cluster="local"}[1h]))`.

        time_ns: None for now. Loki's time beside a bare number (`1+1`) is meaningless (3.7.6).
        """
        params = {"query": logql, "limit": str(limit), "direction": direction}
        if time_ns is not None:
            params["time"] = str(time_ns)
        return self._results("query", params)

    def query_range(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        limit: int = MAX_PAGE,
        direction: Direction = "forward",
        step_secs: float | None = None,
    ) -> list[Result]:
        """Answers a query over a range: streams with at most limit entries in all, or series with a
        sample each step_secs (None: Loki's choice). For more entries than a limit's: `entries`."""
        params = {"query": logql, "start": str(begin_ns), "end": str(end_ns), "limit": str(limit)}
        params["direction"] = direction
        if step_secs is not None:
            params["step"] = f"{step_secs:.3f}"
        return self._results("query_range", params)

    def entries(
        self,
        logql: str,
        begin_ns: int,
        end_ns: int,
        *,
        direction: Direction = "forward",
        page: int = MAX_PAGE,
    ) -> Iterator[Entry]:
        """Yield all entries of a log query in a time range, in order of time, each exactly once.

        page: entries per request, 2 or more. Each page starts with the last time of the page
        before, because others may share it. More than MAX_PAGE entries of one nanosecond, or more
        than one answer can hold, raise QueryError: narrow the query. Pages are smaller for long
        lines (`_PageSize`).
        """
        size = _PageSize(page)
        forward = direction == "forward"
        while begin_ns < end_ns:
            if forward:
                window = begin_ns, min(end_ns, begin_ns + MAX_RANGE_NS)
            else:
                window = max(begin_ns, end_ns - MAX_RANGE_NS), end_ns
            entries, complete = self._page(logql, *window, direction, size)
            if complete:
                yield from entries
                begin_ns, end_ns = (window[1], end_ns) if forward else (begin_ns, window[0])
                continue
            last_ns = entries[-1].time_ns
            if entries[0].time_ns == last_ns:
                yield from self._one_time(logql, last_ns)
                begin_ns, end_ns = (last_ns + 1, end_ns) if forward else (begin_ns, last_ns)
                continue
            yield from (entry for entry in entries if entry.time_ns != last_ns)
            begin_ns, end_ns = (last_ns, end_ns) if forward else (begin_ns, last_ns + 1)

    def _page(
        self, logql: str, begin_ns: int, end_ns: int, direction: Direction, size: "_PageSize"
    ) -> tuple[list[Entry], bool]:
        """A page in order of time, and whether that is all there is."""
        tries = 0
        while True:
            limit = size.entries
            tries += 1
            try:
                results = self.query_range(
                    logql, begin_ns, end_ns, limit=limit, direction=direction
                )
                break
            except QueryError as error:
                if not size.shrink(error):
                    words = f"{error.excerpt} ({tries} tries)" if tries > 1 else error.excerpt
                    raise type(error)(error.server, error.status, words) from None
        if any(result.samples for result in results):
            raise ValueError("a metric query has no entries: use query_range")
        entries = [entry for result in results for entry in result.entries]
        entries.sort(key=lambda entry: entry.time_ns, reverse=direction == "backward")
        size.learn(len(entries), self.answer_bytes)
        return entries, len(entries) < limit

    def _one_time(self, logql: str, time_ns: int) -> list[Entry]:
        """Return all entries of a nanosecond from one answer: paging fails, as their order changes
        between queries."""
        try:
            results = self.query_range(logql, time_ns, time_ns + 1, limit=MAX_PAGE)
        except QueryError as error:
            words = f"{error.excerpt}; asked for all entries of the time {time_ns} ns: narrow the query,"
            words += " or raise Loki's grpc_server_max_recv_msg_size"
            raise QueryError(self.name, error.status, words) from None
        entries = [entry for result in results for entry in result.entries]
        if len(entries) >= MAX_PAGE:
            words = f"{len(entries)} entries or more share the time {time_ns} ns: narrow the query"
            raise QueryError(self.name, 0, words)
        return entries

    def labels(self, begin_ns: int | None = None, end_ns: int | None = None) -> list[str]:
        """Names of labels in a range (None: Loki's choice, the last six hours)."""
        return self._strings("labels", _range(begin_ns, end_ns))

    def series(
        self, *selectors: str, begin_ns: int | None = None, end_ns: int | None = None
    ) -> list[dict[str, str]]:
        """Label sets of the streams that selectors find (none: all)."""
        params: dict[str, str | list[str]] = {**_range(begin_ns, end_ns)}
        if selectors:
            params["match[]"] = list(selectors)
        series = self._ask("series", params)
        return [labels_of(labels) for labels in series] if isinstance(series, list) else []

    # ---- deleting

    def delete(self, logql: str, begin_ns: int, end_ns: int) -> str:
        """Ask Loki to delete the entries of a log query, from the second of begin_ns to that of
        end_ns.

        The range must have passed. Returns the request's id. Loki hides the entries within minutes,
        and removes them from its chunks after `delete_request_cancel_period`. Raises QueryError:
        404 without retention, 403 if the site disables deletion.
        """
        params = {"query": logql, "start": str(begin_ns // 10**9), "end": str(end_ns // 10**9)}
        path = f"/loki/api/v1/delete?{urllib.parse.urlencode(params)}"
        return self.ask("POST", path, statuses=(204,)).request_id

    # ---- about the server

    def build_info(self) -> dict[str, str]:
        """`version`, `revision`, `goVersion` and others."""
        return labels_of(self.get_json("/loki/api/v1/status/buildinfo"))

    def config(self) -> dict[str, Any]:
        """Return Loki's running configuration (Any: YAML).

        Many gateways forbid it: QueryError with status 403 or 404.
        """
        return yaml_table(self.get("/config"), self.name)

    def _ask(self, path: str, params: Params) -> Any:  # Any: JSON, checked by each caller
        return self._data(f"/loki/api/v1/{path}", params, _CATEGORIZED)

    def _strings(self, path: str, params: Mapping[str, str]) -> list[str]:
        values = self._ask(path, params)
        values = values if isinstance(values, list) else []
        return [value for value in values if isinstance(value, str)]

    def _results(self, path: str, params: Mapping[str, str]) -> list[Result]:
        answer = self._ask(path, params)
        try:
            kind, results = answer["resultType"], answer["result"]
            if kind == "streams":
                return [_stream(result) for result in results]
            if kind == "scalar":
                return [Result({}, [], [sample_of(results)])]
            return [_series(result) for result in results]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._strange_answer() from None


class _PageSize:
    """Number of entries per request.

    By default Loki's parts exchange at most 4 MB (`grpc_server_max_recv_msg_size`). Loki never
    answers a query with more: it retries until its own time-out (3.7.6). So pages begin small, grow
    while they stay below PAGE_BYTES, and shrink sharply after a time-out.
    """

    def __init__(self, max_entries: int) -> None:
        if max_entries < 2:
            raise ValueError("a page has at least 2 entries: the last time is asked for again")
        self._max_entries = max_entries
        self.entries = min(FIRST_PAGE, max_entries)

    def learn(self, entries: int, answer_bytes: int) -> None:
        if entries:
            fitting = entries * PAGE_BYTES // max(answer_bytes, 1)
            self.entries = max(min(fitting, 2 * self.entries, self._max_entries), 2)

    def shrink(self, error: QueryError) -> bool:
        """Return whether a smaller request can succeed after this error."""
        if self.entries == 2:
            return False
        if error.status == 400 and "max entries limit" in error.excerpt:
            # max_entries_limit_per_query
            self._max_entries = self.entries = max(self.entries // 2, 2)
            return True
        self.entries = max(self.entries // 32, 2)
        return isinstance(error, AnswerTooLarge) or error.status == 0 or error.status >= 500


def _stream(result: Any) -> Result:  # Any: JSON; the caller catches errors
    labels = labels_of(result["stream"])
    entries = []
    for time_ns, line, *more in result["values"]:
        extra = more[0] if more else {}
        metadata, parsed = extra.get("structuredMetadata") or {}, extra.get("parsed") or {}
        entries.append(Entry(int(time_ns), line, metadata, labels, parsed))
    return Result(labels, entries, [])


def _series(result: Any) -> Result:  # Any: as above
    samples = result["values"] if "values" in result else [result["value"]]
    return Result(labels_of(result["metric"]), [], [sample_of(sample) for sample in samples])


def _range(begin_ns: int | None, end_ns: int | None) -> dict[str, str]:
    times = {"start": begin_ns, "end": end_ns}
    return {name: str(time_ns) for name, time_ns in times.items() if time_ns is not None}
