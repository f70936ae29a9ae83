"""Models of Grafana's data sources: they send Grafana's requests to Loki and Prometheus, and
convert the answers to its frames."""

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import requests

from tests.grafana.tools.frames import NUMBER, OTHER, STRING, TIME, Field, Frame, Json
from tests.grafana.tools.interpolation import Text, Variable
from tests.tools.waiting import scaled

POINTS = 1000  # about the pixels of a wide panel
TIMEOUT_SECS = scaled(30.0)
_STEPS_MS = (
    (10, 1), (15, 10), (35, 20), (75, 50), (150, 100), (350, 200), (750, 500), (1500, 1000), (3500, 2000),
    (7500, 5000), (12500, 10000), (17500, 15000), (25000, 20000), (45000, 30000), (90000, 60000), (210000, 120000),
    (450000, 300000), (750000, 600000), (1050000, 900000), (1500000, 1200000), (2700000, 1800000), (5400000, 3600000),
    (9000000, 7200000), (16200000, 10800000), (32400000, 21600000), (86400000, 43200000), (604800000, 86400000),
)  # fmt: skip


class Range(NamedTuple):
    """A page's time, in ms since 1970."""

    begin_ms: int
    end_ms: int

    @property
    def secs(self) -> int:
        return round((self.end_ms - self.begin_ms) / 1000)

    def interval_ms(self, least_ms: int, points: int = POINTS) -> int:
        """Return `$__interval` for a panel of this many points."""
        width = (self.end_ms - self.begin_ms) / points
        return max(least_ms, next((step for below, step in _STEPS_MS if width < below), 604800000))

    def built_in(self, interval_ms: int) -> dict[str, str]:
        interval = f"{interval_ms}ms" if interval_ms % 1000 else f"{interval_ms // 1000}s"
        return {
            "__range": f"{self.secs}s",
            "__range_s": str(self.secs),
            "__range_ms": str(self.end_ms - self.begin_ms),
            "__interval": interval,
            "__interval_ms": str(interval_ms),
        }


class Query(NamedTuple):
    """A query after its run, with the lines, chunks and bytes read by Loki (0 for Prometheus)."""

    expr: str
    lines: int = 0
    chunks: int = 0
    data_bytes: int = 0


class Answer(NamedTuple):
    frames: list[Frame]
    query: Query


class QueryFailed(Exception):
    """A server refused a query, or an entry of the answer has an error."""


class _Server:
    method = "GET"

    def __init__(self, url: str) -> None:
        self.url = url
        self._threads = threading.local()
        self.queries: list[Query] = []

    def get(
        self, path: str, params: Mapping[str, Any]
    ) -> Any:  # Any: JSON and values of a query string
        if not hasattr(self._threads, "session"):
            self._threads.session = requests.Session()
            self._threads.session.trust_env = False
        payload = {"params" if self.method == "GET" else "data": params}
        answer = self._threads.session.request(
            self.method, self.url + path, timeout=TIMEOUT_SECS, **payload
        )
        if answer.status_code != requests.codes.ok:
            raise QueryFailed(
                f"{answer.status_code} {answer.text.strip()[:600]}\nof {json.dumps(params)[:3000]}"
            )
        return answer.json()["data"]

    @contextmanager
    def recorded(self) -> Iterator[list[Query]]:
        """Yield a list; at the end it contains all queries of all threads since the begin."""
        before = len(self.queries)
        queries: list[Query] = []
        yield queries
        queries += self.queries[before:]


class LokiSource(_Server):
    kind, uid = "loki", "loki-uid"

    @staticmethod
    def plain(value: Text, variable: Variable) -> str:
        """Format a reference without a format."""
        if isinstance(value, str) and not (variable.multi or variable.include_all):
            return value.replace("'", "\\\\'")
        return "|".join(
            _escaped_twice(item) for item in ([value] if isinstance(value, str) else value)
        )

    def variable(self, query: object, when: Range) -> list[str]:
        match = re.fullmatch(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*", str(query))
        assert match, f"no query of a Loki variable: {query!r}"
        params: Json = {"start": when.begin_ms * 10**6, "end": when.end_ms * 10**6}
        if match[1] is None:
            return list(self.get(f"/loki/api/v1/label/{match[2]}/values", params) or [])
        series = self.get("/loki/api/v1/series", {**params, "match[]": match[1]})
        return list(dict.fromkeys(labels[match[2]] for labels in series if labels.get(match[2])))

    def answer(
        self, target: Json, expr: str, when: Range, least_ms: int | None, points: int = POINTS
    ) -> Answer:
        expr = _fill_in(expr, when.built_in(when.interval_ms(least_ms or 1, points)))
        instant = target.get("queryType") == "instant"
        params: Json = {
            "query": expr,
            "direction": "backward",
            "limit": target.get("maxLines") or 1000,
        }
        if instant:
            answer = self.get("/loki/api/v1/query", {**params, "time": when.end_ms * 10**6})
        else:
            span = {"start": when.begin_ms * 10**6, "end": when.end_ms * 10**6}
            step = f"{when.interval_ms(least_ms or 1, points)}ms"
            answer = self.get("/loki/api/v1/query_range", {**params, **span, "step": step})
        query = _looked_at(expr, answer["stats"])
        self.queries.append(query)
        ref = target["refId"]
        if answer["resultType"] == "streams":
            return Answer([_log_frame(answer["result"], expr, ref)], query)
        for series in answer["result"]:
            if "__error__" in series["metric"]:
                raise QueryFailed(f"{series['metric']} of {expr}")
        return Answer(_metric_frames(answer["result"], target, as_table=instant), query)


class PrometheusSource(_Server):
    """scrape_ms: the data source's scrape interval; uid: also its name."""

    kind = "prometheus"
    method = "POST"

    def __init__(self, url: str, *, scrape_ms: int, uid: str = "prometheus-uid") -> None:
        super().__init__(url)
        self._scrape_ms = scrape_ms
        self.uid = uid

    @staticmethod
    def plain(value: Text, variable: Variable) -> str:
        """Format a reference without a format."""
        if isinstance(value, str) and not (variable.multi or variable.include_all):
            return value.replace("\\", "\\\\").replace("'", "\\\\'")
        escaped = [_escaped_twice(item) for item in ([value] if isinstance(value, str) else value)]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def variable(self, query: object, when: Range) -> list[str]:
        text = query["query"] if isinstance(query, dict) else str(query)
        text = _fill_in(text, when.built_in(when.interval_ms(self._scrape_ms)))
        query_match = re.fullmatch(r"query_result\((.+)\)\s*", text)
        if query_match:
            self.queries.append(Query(query_match[1]))
            answer = self.get(
                "/api/v1/query", {"query": query_match[1], "time": when.end_ms / 1000}
            )
            return [_printed(series) for series in answer["result"]]
        match = re.fullmatch(r"label_values\((?:(.+),\s*)?([a-zA-Z_]\w*)\)\s*", text)
        assert match, f"no query of a Prometheus variable: {text!r}"
        params = {"match[]": match[1], "start": when.begin_ms / 1000, "end": when.end_ms / 1000}
        series = self.get("/api/v1/series", params)
        return list(dict.fromkeys(series[match[2]] for series in series if series.get(match[2])))

    def answer(
        self, target: Json, expr: str, when: Range, least_ms: int | None, points: int = POINTS
    ) -> Answer:
        step_ms = when.interval_ms(max(least_ms or 0, self._scrape_ms), points)
        rate_ms = max(step_ms + self._scrape_ms, 4 * self._scrape_ms)
        expr = _fill_in(expr, {**when.built_in(step_ms), "__rate_interval": f"{rate_ms}ms"})
        query = Query(expr)
        self.queries.append(query)
        if target.get("instant"):
            answer = self.get("/api/v1/query", {"query": expr, "time": when.end_ms / 1000})
        else:
            begin, end = (at // step_ms * step_ms / 1000 for at in when)
            answer = self.get(
                "/api/v1/query_range",
                {"query": expr, "start": begin, "end": end, "step": step_ms / 1000},
            )
        as_table = target.get("format") == "table"
        return Answer(_metric_frames(answer["result"], target, as_table=as_table), query)


def loki_metrics(url: str) -> PrometheusSource:
    """Return Loki as a data source of the type Prometheus."""
    return PrometheusSource(f"{url}/loki", scrape_ms=15_000, uid="loki-values-uid")


def _escaped_twice(text: str) -> str:
    """Escape a text for a regular expression within quotes."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", text.replace("\\", "\\" * 4))


def with_table_names(frames: Sequence[Frame]) -> list[Frame]:
    """Name the values in Prometheus' tables. If only one query has an answer, Grafana names its
    values `Value`."""
    if len({frame.ref for frame in frames}) > 1:
        return list(frames)
    return [
        frame.with_fields(
            Field("Value", field.kind, field.values)
            if field.name == f"Value #{frame.ref}"
            else field
            for field in frame.fields
        )
        for frame in frames
    ]


def _fill_in(text: str, built_in: Mapping[str, str]) -> str:
    return re.sub(
        r"\$(__\w+)|\$\{(__\w+)\}", lambda match: built_in.get(match[1] or match[2], match[0]), text
    )


def _printed(series: Json) -> str:
    """Return a series as Grafana prints it for a variable's regular expression: labels in their
    order (sorted), unescaped."""
    labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    at, value = series["value"]
    return f"{series['metric'].get('__name__', '')}{{{inside}}} {value} {at * 1000:g}"


def _looked_at(expr: str, stats: Json) -> Query:
    ingester, store = stats["ingester"], stats["querier"]["store"]
    chunks = ingester["totalChunksMatched"] + store["totalChunksRef"]
    summary = stats["summary"]
    return Query(expr, summary["totalLinesProcessed"], chunks, summary["totalBytesProcessed"])


def _log_frame(streams: Sequence[Json], expr: str, ref: str) -> Frame:
    """Return log entries in the order of their streams. Parsed labels put each entry into its own
    stream, so the rows have no order."""
    labels: list[Json] = []
    times: list[int] = []
    lines: list[str] = []
    for stream in streams:
        if "__error__" in stream["stream"]:
            raise QueryFailed(f"{stream['stream']} of {expr}")
        for value in stream["values"]:
            labels.append(stream["stream"])
            times.append(int(value[0]))
            lines.append(value[1])
    fields = (
        Field("labels", OTHER, labels),
        Field("Time", TIME, [at // 10**6 for at in times]),
        Field("Line", STRING, lines),
        Field("tsNs", STRING, [str(at) for at in times]),
        Field("id", STRING, [f"{at}_{row}_{ref}" for row, at in enumerate(times)]),
    )
    return Frame(fields, len(lines), ref)


def _metric_frames(result: Sequence[Json], target: Json, *, as_table: bool) -> list[Frame]:
    ref = target["refId"]
    if not as_table:
        return [_series(series, ref, target.get("legendFormat", "")) for series in result]
    return [_table(result, ref, f"Value #{ref}")] if result else []


def _number(text: str) -> float:
    return float(text.replace("Inf", "inf"))


def _samples(series: Json) -> list[tuple[float, str]]:
    return series["values"] if "values" in series else [series["value"]]


def _series(series: Json, ref: str, legend: str) -> Frame:
    labels: dict[str, str] = series["metric"]
    title = re.sub(r"\{\{\s*(.+?)\s*\}\}", lambda match: labels.get(match[1], ""), legend)
    display = (
        title
        or "{" + ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"
    )
    samples = _samples(series)
    times = Field("Time", TIME, [round(float(at) * 1000) for at, _ in samples])
    values = Field("Value", NUMBER, [_number(value) for _, value in samples], labels, display)
    return Frame((times, values), len(samples), ref)


def _table(result: Sequence[Json], ref: str, value_name: str) -> Frame:
    names = sorted({name for series in result for name in series["metric"]})
    samples = [(series["metric"], *sample) for series in result for sample in _samples(series)]
    fields = [Field("Time", TIME, [round(float(at) * 1000) for _, at, _ in samples])]
    fields += [
        Field(name, STRING, [labels.get(name, "") for labels, _, _ in samples]) for name in names
    ]
    fields.append(Field(value_name, NUMBER, [_number(value) for _, _, value in samples]))
    return Frame(tuple(fields), len(samples), ref)
