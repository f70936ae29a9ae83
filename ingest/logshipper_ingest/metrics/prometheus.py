"""A client of Prometheus' HTTP interface: questions, targets, what it runs with.

A client belongs to one thread at a time. Every method raises QueryError, and nothing else. Times
are nanoseconds since 1970; Prometheus itself has milliseconds. (Interface:
https://prometheus.io/docs/prometheus/latest/querying/api/)
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

__all__ = ["Client", "Sample", "Series", "Target"]


class Series(NamedTuple):
    """labels: with `__name__` where the query keeps it; samples: one, for an instant."""

    labels: Mapping[str, str]
    samples: list[Sample]


class Target(NamedTuple):
    """What Prometheus scrapes. health: up, down or unknown; last_error: of the last scrape, ""
    where it went well; interval_secs: None where Prometheus doesn't say."""

    labels: Mapping[str, str]
    scrape_url: str
    health: str
    last_error: str
    interval_secs: float | None


class Client(ServerClient):
    """access: address, credentials, TLS; or only an address. max_answer_bytes: larger answers are
    errors."""

    kind = "Prometheus"
    _ready_path = "/-/ready"

    def query(self, promql: str, *, time_ns: int | None = None) -> list[Series]:
        """Answers an instant query; time_ns: None for now. A scalar is a series without labels."""
        return self._series(
            "query", {"query": promql} | ({} if time_ns is None else {"time": _seconds(time_ns)})
        )

    def query_range(
        self, promql: str, begin_ns: int, end_ns: int, *, step_secs: float
    ) -> list[Series]:
        """Answers a query over a range, both ends included, with a sample each step_secs (at most
        11,000)."""
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
        """Label sets of the series that selectors find."""
        params: dict[str, str | list[str]] = {"match[]": list(selectors)}
        params |= {
            name: _seconds(at)
            for name, at in (("start", begin_ns), ("end", end_ns))
            if at is not None
        }
        found = self._ask("series", params)
        return [labels_of(labels) for labels in found] if isinstance(found, list) else []

    def targets(self) -> list[Target]:
        """All that are scraped."""
        found = self._ask("targets", {"state": "active"})
        active = found.get("activeTargets") if isinstance(found, dict) else None
        return [_target(target) for target in active or [] if isinstance(target, dict)]

    def build_info(self) -> dict[str, str]:
        """`version`, `revision`, `goVersion` and others."""
        return labels_of(self._ask("status/buildinfo"))

    def flags(self) -> dict[str, str]:
        """Its command line, with defaults, such as `storage.tsdb.retention.time`."""
        return labels_of(self._ask("status/flags"))

    def config(self) -> dict[str, Any]:
        """Its configuration (Any: YAML)."""
        found = self._ask("status/config")
        text = found.get("yaml") if isinstance(found, dict) else None
        return yaml_table(text.encode() if isinstance(text, str) else b"", self.name)

    def _ask(
        self, what: str, params: Mapping[str, str | list[str]] | None = None
    ) -> Any:  # Any: JSON, checked later
        found = self._server.get_json(f"/api/v1/{what}", params)
        if not isinstance(found, dict) or found.get("status") != "success":
            raise QueryError(self.name, 200, "this isn't how Prometheus answers: is url right?")
        return found.get("data")

    def _series(self, what: str, params: Mapping[str, str]) -> list[Series]:
        found = self._ask(what, params)
        try:
            if found["resultType"] == "scalar":
                return [Series({}, [sample_of(found["result"])])]
            return [
                Series(labels_of(one["metric"]), [sample_of(sample) for sample in _samples(one)])
                for one in found["result"]
            ]
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            raise QueryError(
                self.name, 200, "this isn't how Prometheus answers: is url right?"
            ) from None


def _samples(one: Any) -> Any:  # Any: JSON; native histograms have neither key
    return one["values"] if "values" in one else [one["value"]] if "value" in one else []


def _target(found: Mapping[str, Any]) -> Target:  # Any: JSON
    return Target(
        labels_of(found.get("labels")),
        str(found.get("scrapeUrl", "")),
        str(found.get("health", "unknown")),
        str(found.get("lastError", "")),
        duration_secs(found.get("scrapeInterval")),
    )


def _seconds(time_ns: int) -> str:
    return f"{time_ns // 1_000_000_000}.{time_ns % 1_000_000_000:09d}"
