"""A VictoriaMetrics of one node, with the settings of docs/metrics.md."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.debian_package import VICTORIA_METRICS, PackageProgram
from tests.servers.places import ServerMissing
from tests.servers.running import NOT_BUILT, Server

MEMORY_BYTES = 64 << 20
# as in docs/metrics.md
DOCUMENTED = (
    "-search.latencyOffset=0s",
    "-search.minStalenessInterval=5m",
    "-search.maxStalenessInterval=5m",
    "-search.maxQueryLen=64KiB",
    "-dedup.minScrapeInterval=1ms",
)


def victoria_metrics_program() -> PackageProgram:
    """Return VictoriaMetrics from the PATH or from the cache. Raises ServerMissing."""
    program = VICTORIA_METRICS.find()
    if program is None:
        raise ServerMissing(NOT_BUILT.format(VICTORIA_METRICS.title))
    return program


class RawSeries(NamedTuple):
    """All samples of a series. labels: with `__name__`; samples: time in ms and value, in order of
    time."""

    labels: dict[str, str]
    samples: list[tuple[int, float]]


class VictoriaMetricsServer(Server):
    """flags: of its command line, over the documented ones. Raises ServerMissing."""

    name = "victoria-metrics"
    ready_path = "/health"

    def __init__(self, flags: Sequence[str] = (), *, folder: Path | None = None) -> None:
        self.program = victoria_metrics_program()
        super().__init__(folder, stay=False)
        self._flags = flags

    @property
    def version(self) -> str:
        return self.program.version

    @property
    def write_url(self) -> str:
        return f"{self.url}/api/v1/write"

    def flush(self) -> None:
        """Make all received samples available to queries. Raises ServerFailed."""
        if not self._get("/internal/force_flush").ok:
            raise self._failed("didn't flush")

    def export(self, selector: str) -> list[RawSeries]:
        """Return series as queries see them: without duplicate samples, and without markers of a
        series' end."""
        self.flush()
        end = str(time.time() + 3600)  # its own default is the current second
        text = self._get("/api/v1/export", **{"match[]": selector, "end": end}).text
        series: list[dict[str, Any]] = list(map(json.loads, text.splitlines()))  # Any: JSON
        return [
            RawSeries(
                row["metric"],
                [
                    (at, float(value))
                    for at, value in zip(row["timestamps"], row["values"], strict=True)
                    if value is not None
                ],
            )
            for row in series
        ]

    def _command(self) -> list[str]:
        return [
            str(self.program.program),
            f"-storageDataPath={self.folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            f"-memory.allowedBytes={MEMORY_BYTES}",
            "-retentionPeriod=1y",
            "-loggerLevel=WARN",
            *DOCUMENTED,
            *self._flags,
        ]
