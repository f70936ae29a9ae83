"""The project is under Apache-2.0: its builds, pins and runs name no module of Grafana Labs under
AGPL-3.0.

Tests use such programs only as installed on the machine.
"""

import fnmatch
import os
import re

import pytest

from tests.tools.sources import ROOT, UNTRACKED

# Grafana Labs' repositories under AGPL-3.0; some packages of these have other licences
AGPL = re.compile(
    r"\bgo\.k6\.io/k6\b"
    r"|github\.com/grafana/(?:alerting|grafana|k6|loki|mimir|oncall|phlare|pyroscope|tempo)(?![\w-])",
    re.IGNORECASE,
)
KINDS = ("go.*", "*.lock", "*.toml", "*.json", "*.py", "*.sh", "Makefile", "Dockerfile")


def files() -> list[str]:
    found = []
    for folder, names, here in os.walk(ROOT):
        names[:] = [name for name in names if not _is(name, UNTRACKED)]
        found += [os.path.join(folder, name) for name in here if _is(name, KINDS)]
    return found


def _is(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def test_nothing_names_a_module_under_agpl() -> None:
    paths = files()
    names = {os.path.relpath(path, ROOT) for path in paths}
    assert {"tests/servers/influxdb/go.sum", "requirements/dev.lock", "Makefile"} <= names
    named = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            named += [f"{path}: {line.strip()}" for line in file if AGPL.search(line)]
    assert named == []


@pytest.mark.parametrize("name", ["loki/v3", "tempo", "mimir/pkg/x", "Grafana"])
def test_the_pattern_knows_modules(name: str) -> None:
    assert AGPL.search(f"require github.com/grafana/{name} v1.2.3")


@pytest.mark.parametrize("name", ["regexp", "gomemcache", "grafana-client", "loki-client-go"])
def test_the_pattern_lets_others_pass(name: str) -> None:
    assert not AGPL.search(f"require github.com/grafana/{name} v1.2.3")
