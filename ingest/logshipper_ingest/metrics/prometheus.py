"""A client of Prometheus' HTTP interface
(https://prometheus.io/docs/prometheus/latest/querying/api/): queries, targets, settings.

A client belongs to one thread at a time. Every method raises QueryError and nothing else. Times are
nanoseconds since 1970; Prometheus has milliseconds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from logshipper.errors import QueryError
from logshipper_ingest.servers.server_calls import (
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

    def query(self, promql: str, *, time_ns: int | None = None) -> list[Series]:
        """Answer an instant query, by default for now. A scalar is a series without labels."""
        return self._series(
            "query", {"query": promql} | ({} if time_ns is None else {"time": _seconds(time_ns)})
        )

    def query_range(
        self, promql: str, begin_ns: int, end_ns: int, *, step_secs: float
    ) -> list[Series]:
        """Answer a query over a range, ends included, with at most 11,000 samples."""
        params = {
            "query": promql,
            "start": _seconds(begin_ns),
            "end": _seconds(end_ns),
            "step": f"{step_secs:.3f}",
        }
        return self._series("query_range", params)

    def series(
        self, *selectors: str, begin_ns: int | None = None, end_ns: int | None = None
    ) -> list[dict[str, str]]:
        """Return the label sets of the selected series."""
        params: dict[str, str | list[str]] = {"match[]": list(selectors)}
        params |= {
            name: _seconds(at)
            for name, at in (("start", begin_ns), ("end", end_ns))
            if at is not None
        }
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

    def _ask(
        self, path: str, params: Mapping[str, str | list[str]] | None = None
    ) -> Any:  # Any: JSON, checked later
        answer = self._server.get_json(f"/api/v1/{path}", params)
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise self._wrong_answer()
        return answer.get("data")

    def _series(self, path: str, params: Mapping[str, str]) -> list[Series]:
        answer = self._ask(path, params)
        try:
            if answer["resultType"] == "scalar":
                return [Series({}, [sample_of(answer["result"])])]
            return [
                Series(
                    labels_of(series["metric"]), [sample_of(sample) for sample in _samples(series)]
                )
                for series in answer["result"]
            ]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise self._wrong_answer() from None

    def _wrong_answer(self) -> QueryError:
        return QueryError(self.name, 200, "this isn't an answer of Prometheus: check url")


def _samples(series: Any) -> Any:  # Any: JSON; native histograms have neither key
    return (
        series["values"] if "values" in series else [series["value"]] if "value" in series else []
    )


def _target(target: Mapping[str, Any]) -> Target:  # Any: JSON
    return Target(
        labels_of(target.get("labels")),
        str(target.get("scrapeUrl", "")),
        str(target.get("health", "unknown")),
        str(target.get("lastError", "")),
        duration_secs(target.get("scrapeInterval")),
    )


def _seconds(time_ns: int) -> str:
    return f"{time_ns // 1_000_000_000}.{time_ns % 1_000_000_000:09d}"
