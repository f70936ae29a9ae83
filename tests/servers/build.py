"""Gets the programs: `python -m tests.servers.build [loki] [prometheus] [victoria-metrics] [influxdb]
[otelcol] [promtail]`; without names, those of the tests.

Loki, InfluxDB, the OpenTelemetry collector and Promtail are built from Go modules, once, which takes
some minutes; afterwards this only says what there is. Exit code 1, with what to do, where one isn't
available.
LOGSHIPPER_TEST_SERVERS=off: nothing is done.
"""

import os
import sys
from collections.abc import Sequence

from tests.servers.debian_package import PROMETHEUS, VICTORIA_METRICS
from tests.servers.go import GoProgram
from tests.servers.places import CACHE, ServerMissing
from tests.tools.sources import ROOT

LOKI = GoProgram("loki", ROOT / "tests" / "servers" / "loki", "github.com/grafana/loki/v3/cmd/loki")
PROMTAIL = GoProgram(
    "promtail", ROOT / "benchmarks" / "promtail", "github.com/grafana/loki/v3/clients/cmd/promtail"
)
_INFLUXDB = "github.com/influxdata/influxdb"
INFLUXDB = GoProgram(
    "influxdb",
    ROOT / "tests" / "servers" / "influxdb",
    f"{_INFLUXDB}/cmd/influxd",
    _INFLUXDB,
    "main.version",
)
OTELCOL = GoProgram(
    "otelcol",
    ROOT / "tests" / "servers" / "otelcol",
    ".",
    "go.opentelemetry.io/collector/otelcol",
    "main.version",
)
TESTS = ("loki", "prometheus", "victoria-metrics", "influxdb", "otelcol")
SETTING = "LOGSHIPPER_TEST_SERVERS"  # off: tests of servers are skipped; required: they fail where there is none


def main(names: Sequence[str]) -> int:
    if os.environ.get(SETTING) == "off":
        print(f"Servers for the tests are left out, as {SETTING}=off says.")
        return 0
    try:
        print(f"Servers: {', '.join(_get(name) for name in names or TESTS)}; {CACHE}")
    except ServerMissing as missing:
        print(
            f"make: {missing}\n(tests that need servers are left out with {SETTING}=off)",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _get(name: str) -> str:
    packages = {package.name: package for package in (PROMETHEUS, VICTORIA_METRICS)}
    if name in packages:
        fetched = packages[name].fetch()
        return f"{packages[name].title} {fetched.version} ({fetched.origin})"
    program = {program.name: program for program in (LOKI, INFLUXDB, OTELCOL, PROMTAIL)}[name]
    program.build()
    return f"{name.capitalize()} {program.version}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
