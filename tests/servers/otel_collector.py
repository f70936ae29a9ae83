"""An OpenTelemetry collector: OTLP by HTTP in, files out, in the collector's JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import requests
import yaml

from tests.servers.build import OTELCOL
from tests.servers.places import ServerMissing
from tests.servers.running import (
    ANSWER_TIMEOUT_SECS,
    NOT_BUILT,
    READY_TIMEOUT_SECS,
    Server,
    free_port,
)

_PROTOBUF = {"Content-Type": "application/x-protobuf"}


def otel_collector_program() -> Path:
    """Return the program's path. Raises ServerMissing."""
    program = OTELCOL.path()
    if program is None:
        raise ServerMissing(NOT_BUILT.format(f"OpenTelemetry collector {OTELCOL.version}"))
    return program


class StoredRecord(NamedTuple):
    """A log record, in order of arrival at the collector. Any: JSON's values."""

    resource: dict[str, Any]
    attributes: dict[str, Any]
    time_ns: int
    body: str
    severity: str
    event: str

    @property
    def uid(self) -> str:
        return str(self.attributes["log.record.uid"])


class StoredPoint(NamedTuple):
    resource: dict[str, Any]
    attributes: dict[str, Any]
    metric: str
    time_ns: int
    value: float


class OtelCollector(Server):
    """A collector that acknowledges only written data, so a kill of it loses none of that. Raises
    ServerMissing."""

    name = "otelcol"
    ready_path = ""

    def __init__(self) -> None:
        self.program = otel_collector_program()
        super().__init__(None, stay=False)
        self._telemetry_port = free_port(besides=self.port)
        # with rotation its writer has no buffer
        files = {
            f"file/{signal}": {
                "path": str(self._file(signal)),
                "rotation": {"max_megabytes": 10_000, "max_backups": 1},
            }
            for signal in ("logs", "metrics")
        }
        pipelines = {
            signal: {"receivers": ["otlp"], "exporters": [f"file/{signal}"]}
            for signal in ("logs", "metrics")
        }
        config = {
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{self.port}"}}}},
            "exporters": files,
            "service": {"pipelines": pipelines, "telemetry": {"metrics": {"level": "none"}}},
        }
        (self.folder / "otelcol.yaml").write_text(yaml.safe_dump(config))

    def wait_ready(self, timeout_secs: float = READY_TIMEOUT_SECS) -> None:
        def takes() -> bool:
            with requests.Session() as session:
                session.trust_env = False
                answer = session.post(
                    f"{self.url}/v1/logs", b"", headers=_PROTOBUF, timeout=ANSWER_TIMEOUT_SECS
                )
            return answer.ok

        self._wait(takes, "take requests", timeout_secs)

    def _command(self) -> list[str]:
        return [str(self.program), "--config", f"file:{self.folder / 'otelcol.yaml'}"]

    def _file(self, signal: str) -> Path:
        return self.folder / f"{signal}.json"

    def records(self) -> list[StoredRecord]:
        return [
            StoredRecord(
                _attributes(resource["resource"]),
                _attributes(record),
                int(record["timeUnixNano"]),
                record["body"]["stringValue"],
                record.get("severityText", ""),
                record.get("eventName", ""),
            )
            for request in self._requests("logs")
            for resource in request["resourceLogs"]
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def points(self) -> list[StoredPoint]:
        return [
            StoredPoint(
                _attributes(resource["resource"]),
                _attributes(point),
                metric["name"],
                int(point["timeUnixNano"]),
                float(point["asDouble"]),
            )
            for request in self._requests("metrics")
            for resource in request["resourceMetrics"]
            for scope in resource["scopeMetrics"]
            for metric in scope["metrics"]
            for point in metric["gauge"]["dataPoints"]
        ]

    def _requests(self, signal: str) -> Iterator[dict[str, Any]]:
        """Yield complete requests.

        A killed collector may leave a request without its line end, or an unacknowledged half of
        one. A running one may be inside a write.
        """
        path = self._file(signal)
        text = path.read_text() if path.exists() else ""
        decoder = json.JSONDecoder()
        at = 0
        while at < len(text):
            if text[at] == "\n":
                at += 1
                continue
            try:
                request, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                at = text.find(f'{{"resource{signal.capitalize()}"', at + 1)
                if at < 0:
                    return
                continue
            if request:
                yield request


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    values = {}
    for pair in holder.get("attributes", []):
        ((kind, value),) = pair["value"].items()
        values[pair["key"]] = int(value) if kind == "intValue" else value
    return values
