"""Which package imports which, late and type-only imports included."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tools.sources import PACKAGES

MAY_IMPORT = {
    "logshipper": (),
    "logshipper_ingest": ("logshipper",),
    "logshipper_observe": ("logshipper", "logshipper_ingest"),
    "logshipper_grafana": ("logshipper", "logshipper_ingest"),
}
# the one import for users' code, and what a command of the command line and a capture start
WIRING = {
    "logshipper/__init__.py": "logshipper_observe",
    "logshipper/cli.py": "logshipper_observe",
    "logshipper/capture.py": "logshipper_ingest",
}


def imports(path: Path) -> Iterator[str]:
    """The first part of each module's name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def test_packages_import_only_what_they_may() -> None:
    found = {
        (str(path.relative_to(package.parent)), name)
        for package in PACKAGES
        for path in package.rglob("*.py")
        for name in imports(path)
        if name in MAY_IMPORT and name not in (package.name, *MAY_IMPORT[package.name])
    }
    assert found == set(WIRING.items())


def test_nobody_imports_names_that_users_have() -> None:
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            assert not {"ingest", "observe", "grafana", "tests"} & set(imports(path)), path
