"""A client of Prometheus' HTTP interface
(https://prometheus.io/docs/prometheus/latest/querying/api/): queries, targets, settings.

A client belongs to one thread at a time. Every method raises QueryError and nothing else. Times are
nanoseconds since 1970; Prometheus has milliseconds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from logshipper_ingest.servers.server_calls import (
    Params,
    Sample,
    ServerClient,
    labels_of,
    sample_of,
    yaml_table,
)
from logshipper_ingest.servers.server_units import duration_secs

__all__ = ["PrometheusClient", "Sample", "Series", "Target"]


class Series(NamedTuple):
    """A series of an answer."""

    labels: Mapping[str, str]  # with `__name__` if the query keeps it
    samples: list[Sample]  # one for an instant query


class Target(NamedTuple):
    """A target of Prometheus' scrapes."""

    labels: Mapping[str, str]
    scrape_url: str
    health: str  # up, down or unknown
    last_error: str  # of the last scrape, "" if it succeeded
    interval_secs: float | None  # None if Prometheus doesn't report it


class PrometheusClient(ServerClient):
    """A client of one server."""

    kind = "Prometheus"
    _ready_path = "/-/ready"
    _strange_words = "this isn't an answer of Prometheus"

    def query(self, promql: str, *, time_ns: int | None = None) -> list[Series]:
        """Answer an instant query, by default for now. A scalar is a series without labels."""
        return self._series("query", {"query": promql, **_times(time=time_ns)})

    def query_range(
        self, promql: str, begin_ns: int, end_ns: int, *, step_secs: float
    ) -> list[Series]:
        """Answer a query over a range, ends included, with at most 11,000 samples."""
        params = {"query": promql, **_times(start=begin_ns, end=end_ns), "step": f"{step_secs:.3f}"}
        return self._series("query_range", params)

    def series(
        self, *selectors: str, begin_ns: int | None = None, end_ns: int | None = None
    ) -> list[dict[str, str]]:
        """Return the label sets of the selected series."""
        params: dict[str, str | list[str]] = {"match[]": list(selectors)}
        params |= _times(start=begin_ns, end=end_ns)
        series = self._ask("series", params)
        return [labels_of(labels) for labels in series] if isinstance(series, list) else []

    def targets(self) -> list[Target]:
        """Return all active targets."""
        answer = self._ask("targets", {"state": "active"})
        active = answer.get("activeTargets") if isinstance(answer, dict) else None
        return [_target(target) for target in active or [] if isinstance(target, dict)]

    def build_info(self) -> dict[str, str]:
        """Return `version`, `revision`, `goVersion` and others."""
        return labels_of(self._ask("status/buildinfo"))

    def flags(self) -> dict[str, str]:
        """Return its command-line flags with defaults, such as `storage.tsdb.retention.time`."""
        return labels_of(self._ask("status/flags"))

    def config(self) -> dict[str, Any]:
        """Return its configuration (Any: YAML)."""
        answer = self._ask("status/config")
        text = answer.get("yaml") if isinstance(answer, dict) else None
        return yaml_table(text.encode() if isinstance(text, str) else b"", self.name)

    def _ask(self, path: str, params: Params | None = None) -> Any:  # Any: JSON, checked later
        return self._data(f"/api/v1/{path}", params)

    def _series(self, path: str, params: Mapping[str, str]) -> list[Series]:
        answer = self._ask(path, params)
        try:
            if answer["resultType"] == "scalar":
                return [Series({}, [sample_of(answer["result"])])]
            return [
                Series(labels_of(series["metric"]), list(map(sample_of, _samples(series))))
                for series in answer["result"]
            ]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._strange_answer() from None


def _samples(series: Any) -> Any:  # Any: JSON; native histograms have neither key
    if "values" in series:
        return series["values"]
    return [series["value"]] if "value" in series else []


def _target(target: Mapping[str, Any]) -> Target:  # Any: JSON
    return Target(
        labels_of(target.get("labels")),
        str(target.get("scrapeUrl", "")),
        str(target.get("health", "unknown")),
        str(target.get("lastError", "")),
        duration_secs(target.get("scrapeInterval")),
    )


def _times(**times_ns: int | None) -> dict[str, str]:
    return {
        name: f"{time_ns // 1_000_000_000}.{time_ns % 1_000_000_000:09d}"
        for name, time_ns in times_ns.items()
        if time_ns is not None
    }
