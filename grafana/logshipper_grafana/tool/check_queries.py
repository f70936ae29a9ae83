"""Does each query of each page answer? Asked through Grafana, with variables as the pages have them
at first, for one job and the last hour; of a panel that is repeated, the first one."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from logshipper.errors import QueryError
from logshipper_grafana.parts import Json
from logshipper_grafana.tool import resolve
from logshipper_grafana.tool.content import wanted_dashboards
from logshipper_grafana.tool.server import as_options
from logshipper_ingest.checks.findings import Finding
from logshipper_ingest.loki import client as loki
from logshipper_ingest.metrics import prometheus
from logshipper_ingest.servers.server_access import ServerAccess

RANGE_SECS = 3600
STEP_SECS = 15.0
MANY = 1000  # entries of an answer, unless a panel sets a number
_NOTHING = "none"  # replaces a missing cluster or job: an empty one would break the query
_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)")
_QUERY_RESULT = re.compile(r"query_result\((.+)\)")
_BUILT_IN = {
    "__range": f"{RANGE_SECS}s",
    "__range_s": str(RANGE_SECS),
    "__range_ms": str(RANGE_SECS * 1000),
    "__interval": f"{STEP_SECS:.0f}s",
    "__interval_ms": f"{STEP_SECS * 1000:.0f}",
    "__rate_interval": f"{4 * STEP_SECS:.0f}s",
}
_FIXES = (  # the first match in a server's message
    ("max entries limit", "Loki, limits_config: max_entries_limit_per_query: 5000."),
    ("query time range exceeds", "Loki, limits_config: max_query_length: 31d."),
    (
        "maximum number of series",
        "Loki, limits_config: max_query_series: 20000, or more than it is.",
    ),
    ("maximum of series", "Loki, limits_config: max_query_series: 20000, or more than it is."),
    ("read too many bytes", "Loki, limits_config: max_query_bytes_read: more, or 0."),
    ("query would read", "Loki, limits_config: max_query_bytes_read: more, or 0."),
    ("parse error", "Is the server as new as docs/grafana.md asks for?"),
    ("unknown function", "Is the server as new as docs/grafana.md asks for?"),
    (
        "query timed out",
        "The server is slow: look at its load, and at query_timeout or query.timeout.",
    ),
    ("no answer within", "The server is slow: look at its load; --timeout-secs waits for longer."),
)


class QueryContext(NamedTuple):
    """The servers that the pages' queries go to, and the job that they are for."""

    loki: ServerAccess  # through Grafana, as prometheus
    prometheus: ServerAccess
    job: str = ""  # its id, "" for none
    cluster: str = ""  # the job's, "" for none


class _Page:
    """A dashboard with its variables, and two clients: for one thread."""

    def __init__(self, dashboard: Json, context: QueryContext) -> None:
        self.dashboard = dashboard
        self.query_count = 0
        self._wished = {"job": context.job, "jobs": context.job, "cluster": context.cluster}
        self._loki = loki.LokiClient(context.loki)
        self._prometheus = prometheus.PrometheusClient(context.prometheus)
        self._end_ns = time.time_ns()
        self._begin_ns = self._end_ns - RANGE_SECS * 10**9
        built_in = _BUILT_IN | {
            "__from": str(self._begin_ns // 10**6),
            "__to": str(self._end_ns // 10**6),
        }
        self._selections = {
            name: resolve.Selection([resolve.Option(value, value)])
            for name, value in built_in.items()
        }

    def check(self) -> list[Finding]:
        about = f"page {self.dashboard['uid']}"
        begin = time.monotonic()
        with self._loki, self._prometheus:
            findings = [
                Finding("wrong", f"{about}, {place}", *_words_and_fix(error))
                for place, error in self._failures()
            ]
        if findings:
            return findings
        job = self._selections.get("job") or self._selections.get("jobs")
        job_id = job.options[0].value if job else ""
        of_job = f" for the job {job_id}" if job_id else ""
        secs = time.monotonic() - begin
        words = f"all {self.query_count} queries answer{of_job}, in {secs:.1f} s"
        return [Finding("ok", about, words)]

    def _failures(self) -> Iterator[tuple[str, QueryError]]:
        """Yield failing queries by their place on the page."""
        yield from self._variables()
        for place, target, selections in self._targets():
            try:
                self._ask(target, selections)
            except QueryError as error:
                yield place, error

    def _variables(self) -> Iterator[tuple[str, QueryError]]:
        for variable in resolve.in_order(self.dashboard["templating"]["list"]):
            name = variable["name"]
            answers: list[str] = []
            if variable["type"] == "query":
                try:
                    answers = self._answers(variable)
                except QueryError as error:
                    yield f"variable {name}", error
            self._selections[name] = resolve.initial_selection(
                variable, answers, self._wished.get(name, "")
            )
            if name in ("cluster", "job") and not self._selections[name].options[0].value:
                self._selections[name] = resolve.Selection([resolve.Option(_NOTHING, _NOTHING)])

    def _answers(self, variable: Json) -> list[str]:
        self.query_count += 1
        query = resolve.fill_in(resolve.query_of(variable), self._selections)
        of_loki = variable["datasource"]["type"] == "loki"
        if match := _QUERY_RESULT.fullmatch(query):
            answer = self._prometheus.query(match[1], time_ns=self._end_ns)
            return [
                resolve.series_text(series.labels, series.samples[0].value) for series in answer
            ]
        match = _LABEL_VALUES.fullmatch(query)
        if match is None:
            raise ValueError(f"no query of a variable: {query}")
        client = self._loki if of_loki else self._prometheus
        label_sets = client.series(match[1], begin_ns=self._begin_ns, end_ns=self._end_ns)
        return sorted({labels[match[2]] for labels in label_sets if labels.get(match[2])})

    def _targets(self) -> Iterator[tuple[str, Json, Mapping[str, resolve.Selection]]]:
        for panel, names in _panels_of(self.dashboard):
            selections = dict(self._selections)
            for name in names:
                selections |= self._first_of(name)
            for target in panel.get("targets", ()):
                yield f"panel {panel['title']!r}, query {target['refId']}", target, selections
        for annotation in self.dashboard["annotations"]["list"]:
            yield f"annotation {annotation['name']!r}", annotation, self._selections

    def _first_of(self, name: str) -> dict[str, resolve.Selection]:
        """The variable that a panel is repeated for, with its first value. Without any, Grafana
        keeps the panel."""
        options = self._selections[name].options[:1]
        return {name: resolve.Selection(options)} if options else {}

    def _ask(self, target: Json, selections: Mapping[str, resolve.Selection]) -> None:
        self.query_count += 1
        query, span = resolve.fill_in(target["expr"], selections), (self._begin_ns, self._end_ns)
        if target["datasource"]["type"] == "prometheus":
            if target.get("instant"):
                self._prometheus.query(query, time_ns=self._end_ns)
            else:
                self._prometheus.query_range(query, *span, step_secs=STEP_SECS)
            return
        limit = target.get("maxLines") or MANY
        if target.get("queryType") == "instant":
            answer = self._loki.query(query, time_ns=self._end_ns, limit=limit)
        else:
            answer = self._loki.query_range(
                query, *span, limit=limit, direction="backward", step_secs=STEP_SECS
            )
        for series in answer:
            if "__error__" in series.labels:
                details = series.labels.get("__error_details__", "")
                raise QueryError("Loki", 200, f"{series.labels['__error__']}: {details}")


def check_queries(
    context: QueryContext, dashboards: Mapping[str, Json] | None = None
) -> list[Finding]:
    """Return a finding for each failing query, or one for a page without any. dashboards: by uid,
    None for ours."""
    chosen = (dashboards or wanted_dashboards()).values()
    with ThreadPoolExecutor(len(chosen)) as pool:
        findings = pool.map(_Page.check, [_Page(dashboard, context) for dashboard in chosen])
        return [*chain.from_iterable(findings)]


def of_job(context: QueryContext, job: str) -> QueryContext:
    """Return the context with a job's id and cluster, "" for the newest, as Prometheus saw them in
    the last day. Raises QueryError."""
    matcher = f"{{job_id={json.dumps(job)}}}" if job else ""
    query = f"topk(1, max by(job_id, cluster)(max_over_time(logshipper_job_start_time_seconds{matcher}[1d])))"
    with prometheus.PrometheusClient(context.prometheus) as client:
        labels = next((series.labels for series in client.query(query)), {})
    return context._replace(job=job or labels.get("job_id", ""), cluster=labels.get("cluster", ""))


def _panels_of(dashboard: Json) -> Iterator[tuple[Json, list[str]]]:
    """Each panel with the variables that it is repeated for: its own, and that of its row, which is
    that of all panels up to the next row."""
    of_row: list[str] = []
    for panel in dashboard["panels"]:
        names = [panel["repeat"]] if panel.get("repeat") else []
        if panel["type"] == "row":
            of_row = names
        yield panel, of_row if panel["type"] == "row" else of_row + names
        for inside in panel.get("panels", ()):
            yield inside, of_row + ([inside["repeat"]] if inside.get("repeat") else [])


def _words_and_fix(error: QueryError) -> tuple[str, str]:
    """Return a finding's words, and the remedy."""
    words = as_options(str(error))
    return words, next((fix for phrase, fix in _FIXES if phrase in words), "")
