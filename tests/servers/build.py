"""Get the programs: `python -m tests.servers.build [loki] [prometheus] [victoria-metrics]
[influxdb] [otelcol]`.

Without names it gets all of them, and continues without a Loki if none exists. It builds InfluxDB
and the OpenTelemetry collector from Go modules, once, in two minutes; it never builds Loki
(loki.py). Afterwards it only reports the programs. If one isn't available, it prints instructions
and exits with code 1.

LOGSHIPPER_TEST_SERVERS=off: it does nothing.
"""

import sys
from collections.abc import Sequence

from tests.servers.debian_package import PROMETHEUS, VICTORIA_METRICS
from tests.servers.go import GoProgram
from tests.servers.loki import fetch_loki
from tests.servers.places import CACHE, ServerMissing
from tests.servers.setting import ARE_OFF, MUST_LOKI, OFF, SETTING
from tests.tools.sources import ROOT

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


def main(names: Sequence[str]) -> int:
    if ARE_OFF:
        print(f"Servers for the tests are left out, as {SETTING}={OFF} says.")
        return 0
    try:
        found = [_get(name) for name in names] if names else [*map(_get_for_tests, TESTS)]
    except ServerMissing as missing:
        print(f"make: {missing}", file=sys.stderr)
        if not names:
            print(f"(tests that need servers are left out with {SETTING}={OFF})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"Servers: {', '.join(found)}; {CACHE}")
    return 0


def _get_for_tests(name: str) -> str:
    try:
        return _get(name)
    except ServerMissing as missing:
        if name != "loki" or MUST_LOKI:
            raise
        print(f"Going on without a Loki: {missing}", flush=True)
        return "no Loki"


def _get(name: str) -> str:
    """Get a program; return its name, version and origin."""
    if name == "loki":
        loki = fetch_loki()
        return f"Loki {loki.version} ({loki.origin})"
    packages = {package.name: package for package in (PROMETHEUS, VICTORIA_METRICS)}
    if name in packages:
        fetched = packages[name].fetch()
        return f"{packages[name].title} {fetched.version} ({fetched.origin})"
    program = {program.name: program for program in (INFLUXDB, OTELCOL)}[name]
    program.build()
    return f"{name.capitalize()} {program.version}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
